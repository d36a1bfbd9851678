"""`picograd chat`: an answer, a dialogue, Ctrl-C, texts and files that do not fit; SmolLM2 with its published weights."""

from __future__ import annotations

import re
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
from picograd_programs.models.llama import config_of
from tests.chat.small_model import write_model
from tests.models.numpy_llama import numpy_logits

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
        (["--model", "nowhere.gguf"], "--model names a GGUF file, or smollm2, which is fetched"),
        (["--model", __file__], "does not begin with GGUF"),
        (["--temperature", "-1"], "--temperature: got -1.0"),
        (["--repetition", "0"], "--repetition and --top-p must be above 0"),
        (["--context", "0"], "--context: got 0, it must be at least 1"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "--prompt", "Hi", *words]) == 1
    assert said in capsys.readouterr().err


# ---- published weights ----
@pytest.fixture(scope="module")
def smollm2() -> Any:
    try:
        return load_weights("smollm2")
    except DataError as error:
        pytest.skip(f"the weights of SmolLM2 are not here: {error.fact.splitlines()[-1]}")


@pytest.mark.req("D9")
def test_smollm2_has_the_logits_of_the_formulas_and_answers(smollm2: Any) -> None:
    dialogue = Dialogue(Chat())
    question = dialogue.turns.question("Name the capital of Italy.")
    weights = {name: tensor.unpacked() for name, tensor in smollm2.tensors.items()}
    expected = numpy_logits(config_of(smollm2), weights, np.array(question))
    found = dialogue.model(Tensor([question])).numpy()[0]
    assert np.abs(expected).max() > 20
    np.testing.assert_allclose(found, expected, atol=5e-4)  # sums of float32 through thirty blocks
    np.testing.assert_allclose(Reader(dialogue.model, 64).read(question), expected[-1], atol=5e-4)
    answer = list(dialogue.reader.answer(question, dialogue.turns.ends, 12, Choice(temperature=0.0, repetition=1.0), 0))
    likeliest = dialogue.model(Tensor([[*question, *answer]])).numpy()[0].argmax(-1).tolist()
    assert answer == likeliest[len(question) - 1 :][: len(answer)], "decoding is recomputing everything"
    assert dialogue.tokenizer.decode(answer) == "The capital of Italy is Rome."
