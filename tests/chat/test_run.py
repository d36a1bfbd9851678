"""`picograd chat`: an answer, a dialogue, Ctrl-C, texts and files that do not fit; SmolLM2 with its published weights."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd import Tensor
from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.chat.answer import Choice, Reader
from picograd_programs.chat.run import Chat, Dialogue
from picograd_programs.data.weights import load_weights
from picograd_programs.models.decoder_gguf import config_of
from tests.chat.small_model import write_model
from tests.formats.test_mutations import MUTANTS, mutant
from tests.models.numpy_decoder import numpy_logits

CUT = ["<|im_end|>", "\n"]  # after an answer of the most tokens
SPEED = r"\[read (\d+) tokens, [\d.]+ a second; wrote (\d+) tokens, [\d.]+ a second\]"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "small.gguf"))


def test_a_prompt_is_answered_with_the_same_text_for_a_seed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in ("1", "1", "2"):
        command = ["chat", "--model", model, "--prompt", "Hi", "--max-tokens", "20", "--temperature", "1", "--seed", seed]
        assert cli.main(command) == 0
        out, err = capsys.readouterr()
        said.append(out)
        assert re.fullmatch(SPEED + "\n", err)
    assert said[0] == said[1] != said[2]


def test_a_prompt_is_continued_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write_model(tmp_path / "base.gguf", template="of another form"))
    assert cli.main(["chat", "--model", model, "--prompt", "Hi"]) == 1
    assert "hint: --raw continues the prompt as it is." in capsys.readouterr().err
    assert cli.main(["chat", "--model", model, "--prompt", "Hi", "--raw", "--max-tokens", "5"]) == 0
    assert re.fullmatch(SPEED + "\n", capsys.readouterr().err).groups() == ("2", "5")


def test_an_answer_is_searched_for(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    dialogue = Dialogue(Chat(model=model, beams=3, no_repeat=2, max_tokens=8))
    assert dialogue.reader.plans.num == 3 and "3 beams, length penalty 1, repetition 1.1" in dialogue.describe()
    for number, text in enumerate(("Hi", "And?")):
        question = dialogue.question(text)
        dialogue.answer(text)
        written = dialogue.said[-1][1]
        assert dialogue.reader.tokens[: len(question)] == question and len(dialogue.said) == 2 * number + 2
        assert dialogue.reader.tokens[len(question) :][: len(written)] == [*written], "the answer was read"
        pairs = [*zip(dialogue.reader.tokens, dialogue.reader.tokens[1:])]
        assert all(pair not in pairs[:place] for place, pair in enumerate(pairs) if place >= len(question))
    assert re.search(SPEED, capsys.readouterr().err)
    assert cli.main(["chat", "--model", model, "--prompt", "a", "--target", "de_DE"]) == 1
    assert "--source and --target are for networks that translate" in capsys.readouterr().err


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    left = iter(lines)

    def line(prompt: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", line)


def test_a_dialogue_is_read_once(model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed(monkeypatch, "Hello", "And?")
    assert cli.main(["chat", "--model", model, "--max-tokens", "5"]) == 0
    err = capsys.readouterr().err
    assert re.search(r"small.gguf: [\d,]+ weights in [\d.]+ KiB, up to 256 tokens", err)
    # Marks are one token each, letters too but for "er".
    turn = 1 + len("us") + 1 + len("\n") + 1 + len("\n") + 1 + len("assistant\n")
    system = 1 + len("system\nBe brief.") + 1 + len("\n")
    assert [int(read) for read, _ in re.findall(SPEED, err)] == [
        system + turn + len("Hello"),
        len(CUT) + turn + len("And?"),
    ]


def test_ctrl_c_ends_the_answer_and_the_dialogue_goes_on(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, calls = Reader.read, []

    def interrupted(self: Reader, tokens: list[int]) -> Any:
        calls.append(len(tokens))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return read(self, tokens)

    monkeypatch.setattr(Reader, "read", interrupted)
    typed(monkeypatch, "Hello", "And?")
    assert cli.main(["chat", "--model", model, "--max-tokens", "5", "--temperature", "1"]) == 0
    assert [int(wrote) for _, wrote in re.findall(SPEED, capsys.readouterr().err)][0] == 2


def test_ctrl_c_ends_the_answer_of_a_process(tmp_path: Path) -> None:
    model = write_model(tmp_path / "small.gguf", context=100_000)
    words = ["chat", "--model", str(model), "--prompt", "Hi", "--temperature", "9", "--top-p", "1"]
    words += ["--max-tokens", "90000", "--context", "99999"]
    code = f"from picograd_programs.cli import main; raise SystemExit(main({words}))"
    made = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert made.stdout is not None and made.stdout.read(1)
    made.send_signal(signal.SIGINT)
    _, err = made.communicate(timeout=60)
    assert made.returncode == 0 and re.fullmatch(SPEED + "\n", err.decode())


@pytest.mark.parametrize(
    ("context", "prompt", "words"),
    [
        ("64", "x" * 50, r"64 fit\. Begin with --context 1\d\d, or a shorter text\."),
        ("256", "x" * 300, r"This model reads 256 at most: shorten the text, or begin a new dialogue\."),
    ],
)
def test_a_prompt_longer_than_the_context_says_what_to_do(
    context: str, prompt: str, words: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["chat", "--model", model, "--context", context, "--prompt", prompt]) == 1
    assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nowhere.gguf"], "a GGUF file, a folder (docs/chat.md), or smollm2 or gemma3, which are fetched"),
        (["--model", __file__], "does not begin with GGUF"),
        (["--temperature", "-1"], "--temperature: got -1.0"),
        (["--repetition", "0"], "--repetition: got 0, it must be from 1e-06 to 1e+06."),
        (["--raw", "--system", "Be kind."], "--system is the first turn of a dialogue; with --raw there are no turns."),
        (["--top-p", "0"], "--top-p: got 0, it must be above 0."),
        (["--context", "0"], "--context: got 0, it must be at least 1"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "--prompt", "Hi", *words]) == 1
    assert said in capsys.readouterr().err


def test_an_option_of_searches_alone_is_refused_where_tokens_are_drawn(model: str, capsys: Any) -> None:
    assert cli.main(["chat", "--prompt", "Hi", "--model", model, "--context", "64", "--length-penalty", "1"]) == 1
    assert "--length-penalty is for a search; tokens are drawn here." in capsys.readouterr().err


def test_mutants_of_a_file_are_models_or_data_errors(model: str, tmp_path: Path) -> None:
    data, chance, ready = Path(model).read_bytes(), random.Random(0), 0
    past = data.index(b"blk.1.ffn_up.weight")  # the numbers of tensors, behind it, are as good as any others
    for _ in range(MUTANTS):
        (tmp_path / "mutant.gguf").write_bytes(mutant(data[:past], chance) + data[past:])
        try:
            dialogue = Dialogue(Chat(model=str(tmp_path / "mutant.gguf"), context=64))
            assert all(0 <= number < len(dialogue.tokenizer.tokens) for number in dialogue.question("Hi"))
            ready += 1
        except DataError:
            pass
    assert 0 < ready < MUTANTS


def test_weights_are_packed_in_fewer_bits(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {pack: Dialogue(Chat(model=model, pack=pack)).describe() for pack in ("file", "q8_0", "q4_0", "f32")}
    nbytes = {pack: float(re.search(r"in ([\d.]+) KiB", line)[1]) for pack, line in lines.items()}
    assert nbytes["file"] == nbytes["q4_0"] < nbytes["q8_0"] < nbytes["f32"] / 3
    assert cli.main(["chat", "--model", str(tmp_path), "--pack", "q4_0", "--prompt", "Hi"]) == 1
    assert "--pack q4_0 is for published weights" in capsys.readouterr().err


# ---- published weights ----
@pytest.mark.req("D9")
@pytest.mark.variants(first=2)
@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("smollm2", "Name the capital of Italy.", "The capital of Italy is Rome."),
        ("gemma3", "The capital of France is Paris. The capital of Italy is", " Rome. The capital of Germany is Berlin"),
    ],
)
def test_published_weights_have_the_logits_of_the_formulas_and_answer(name: str, question: str, answer: str) -> None:
    try:
        file = load_weights(name)
    except DataError as error:
        pytest.skip(f"the weights of {name} are not here: {error.fact.splitlines()[-1]}")
    dialogue = Dialogue(Chat(model=name, raw=name == "gemma3", system="Be brief.", context=256))
    tokens = dialogue.question(question)
    weights = {name: tensor.unpacked() for name, tensor in file.tensors.items()}
    expected = numpy_logits(config_of(file), weights, np.array(tokens))
    assert np.abs(expected).max() > 20
    np.testing.assert_allclose(dialogue.reader.read(tokens), expected[-1], atol=5e-4)
    dialogue.reader.keep([])  # forgets it
    written = list(dialogue.reader.answer(tokens, dialogue.ends, 8, Choice(temperature=0.0, repetition=1.0), 0))
    found = dialogue.model(Tensor([[*tokens, *written]])).numpy()[0]  # all at once; a position sees those before it alone
    np.testing.assert_allclose(found[: len(tokens)], expected, atol=5e-4)  # float32 through up to thirty blocks
    likeliest = found.argmax(-1).tolist()
    assert written == likeliest[len(tokens) - 1 :][: len(written)], "decoding is recomputing everything"
    assert dialogue.tokenizer.decode(written).startswith(answer)


@pytest.mark.req("I4")
def test_perplexity_of_published_weights_in_fewer_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        load_weights("smollm2")
    except DataError as error:
        pytest.skip(f"the weights are not here: {error.fact.splitlines()[-1]}")
    (tmp_path / "text").write_text(
        "The village lies between two hills, and a river runs through it. In spring the water is high, and the road to "
        "the mill is closed for a week or two. My grandmother used to say that the river gives back in autumn what it has "
        "taken in spring; nobody knew what she meant by that, but everybody agreed with her."
    )
    packs = ["file", "q8_0", "q4_0"]
    assert cli.main(["perplexity", "--text", str(tmp_path / "text"), "--context", "64", "--pack", *packs]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    found = {pack: float(value) for pack, _, _, value, *_ in rows}
    assert [*found] == packs and found["file"] == pytest.approx(26.0562, abs=2e-3), "as by the formulas in float64"
    assert found["q8_0"] == pytest.approx(found["file"], rel=0.02)
    assert found["q4_0"] == pytest.approx(found["file"], rel=0.1)
