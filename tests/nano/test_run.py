"""`picograd train nano` from a text to answers: it learns, stops, goes on bit for bit, says what is wrong."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import signal
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from picograd import Tensor, nn, optim
from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.chat.turns import Turns
from picograd_programs.data.text import load_text
from picograd_programs.data.tokenizer_json import load_tokenizer
from picograd_programs.nano.lessons import Lesson, Lessons, is_held_out
from picograd_programs.nano.stage import MANNER, MARKS, Rows, rows_of
from picograd_programs.nano.sums import policy_loss
from picograd_programs.train.program import HEARD_CTRL_C, newest
from picograd_programs.train.trainer import Trainer
from tests.train.test_programs import _arrays

SMALL = "--vocabulary 400 --context 64 --batch 4 --steps 6 --chat-steps 6 --sums-steps 4 --eval-every 100 --save-every 4"
STAGES = ("base", "talk", "sums")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text(load_text("shakespeare")[:20_000])
    return path


def options(text: Path, out: Path, *more: str) -> list[str]:
    return ["train", "nano", "--text", str(text), *SMALL.split(), "--out", str(out), *more]


@pytest.fixture(scope="module")
def run_and_said(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An unbroken run, and what it printed."""
    out, said = tmp_path_factory.mktemp("nano") / "run", io.StringIO()
    with redirect_stdout(said):
        assert cli.main(options(text, out)) == 0
    return out, said.getvalue()


@pytest.fixture(scope="module")
def trained_small(run_and_said: tuple[Path, str]) -> Path:
    return run_and_said[0]


# ---- a run ----
@pytest.mark.req("H3")
def test_a_run_says_the_results_of_its_stages_and_answers(
    run_and_said: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, said = run_and_said[0], re.sub(r"\x1b\[[0-9;]*m", "", run_and_said[1])
    assert re.search(r"nano base: 400 tokens learned; the text has [\d,]+ of them; [\d,]+ parameters\n", said)
    assert re.search(r"held-out text: \d+\.\d{4} bits per byte, perplexity \d+\.\d\d a token\n", said)
    assert re.search(r"held-out questions: spelling right .*%, letters right .*%, sums right .*%\n", said)
    assert re.search(r"held-out sums: .*% of 18 right, .*% before; other sums: .*% of \d+ right, .*% before\n", said)
    for stage in STAGES:
        assert (out / stage / "log.jsonl").is_file()
    for command in (["sample", "nano", "--checkpoint", str(out), "--num", "2", "--length", "5", "--temperature", "1"],
                    ["chat", "--model", str(out), "--prompt", "What is 3 + 4?", "--max-tokens", "5"]):  # fmt: skip
        assert cli.main(command) == 0
        assert capsys.readouterr().out


@pytest.mark.req("H3")
@pytest.mark.variants(every=3, first=1)  # the stage that begins with another's result and has one behind it
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_stopped_in_any_stage_goes_on_as_an_unbroken_one(
    stage: str, trained_small: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out, made, begun = tmp_path / "run", Trainer.make_step, []

    def make_step(self: Trainer, parts: Any) -> Any:
        figures = made(self, parts)
        begun.extend([self] if self not in begun else [])
        if len(begun) == STAGES.index(stage) + 1 and self.done == 3:
            monkeypatch.setattr(Trainer, "make_step", made)
            signal.raise_signal(signal.SIGINT)
        return figures

    monkeypatch.setattr(Trainer, "make_step", make_step)
    assert cli.main(options(text, out)) == HEARD_CTRL_C
    go_on = capsys.readouterr().out.splitlines()[-1]
    assert go_on.startswith("go on with: picograd train nano ") and " --resume" in go_on
    assert cli.main(shlex.split(go_on.removeprefix("go on with: picograd "))) == 0
    for each in STAGES:
        expected, found = (list(_arrays(newest(place / each)[1])) for place in (trained_small, out))
        assert [name for name, _ in expected] == [name for name, _ in found]
        for (key, before), (_, after) in zip(expected, found):
            assert before.tobytes() == after.tobytes(), f"{each}{key}"


@pytest.mark.req("H3")
@pytest.mark.variants(first=1)
def test_a_short_run_learns(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--batch", "16", "--steps", "60", "--chat-steps", "60", "--sums-steps", "2")
    assert cli.main(options(text, tmp_path / "run", *more)) == 0
    found = re.search(r"held-out text: (\d+\.\d+) bits per byte", capsys.readouterr().out)
    assert found is not None and float(found[1]) < 3.3  # 6 bits where every token is equally likely
    log = (tmp_path / "run" / "talk" / "log.jsonl").read_text()
    losses = [float(each) for each in re.findall(r'"loss": ([\d.]+)', log)]
    assert losses[-1] < 2.5, losses  # 6 nats where every token is equally likely


@pytest.mark.req("H3")
def test_a_new_run_keeps_the_earlier_one_and_shows_samples(
    trained_small: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, few = tmp_path / "run", tmp_path / "few"
    shutil.copytree(trained_small, out)
    few.write_text("To be, or not to be")
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert cli.main(options(few, out)) == 1  # nothing is moved for a run that cannot begin
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    capsys.readouterr()
    more = ("--preview", "always", "--eval-every", "3", "--steps", "4", "--chat-steps", "4")
    assert cli.main(options(text, out, *more)) == 0
    said, kept = capsys.readouterr().err, out / "earlier-1"
    assert f"{out}: the earlier training there is now in {kept}." in said
    assert {path.relative_to(kept): path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before
    assert cli.main(["sample", "nano", "--checkpoint", str(kept), "--length", "2"]) == 0
    shown = said.split("after step 3:")[1:]
    assert len(shown) == 3 and " ... " in shown[0] and "Spell " in shown[1] and "What is " in shown[2]


# ---- parts ----
def test_lessons_are_right_and_held_out_ones_never_trained_on(text: Path) -> None:
    lessons, rng = Lessons(text.read_text(), 2), np.random.default_rng(0)
    for question, answer in lessons.several(400, rng):
        assert not is_held_out(question)
        if found := re.fullmatch(r"What is (\d+) \+ (\d+)\?", question):
            assert int(answer) == int(found[1]) + int(found[2]) and max(map(int, found.groups())) < 20
        elif found := re.fullmatch(r"Spell (\w+)\.", question):
            assert answer.replace(" ", "") == found[1]
        elif found := re.fullmatch(r"How many letters has (\w+)\?", question):
            assert int(answer) == len(found[1])
        else:
            assert f"{question.removeprefix('Go on: ')}\n{answer}" in re.sub(r" *\n *", "\n", text.read_text())
    for kind in lessons.kinds:
        held = lessons.held_out(kind, 20)
        assert all(is_held_out(lesson.question) for lesson in held) and held == lessons.held_out(kind, 20)


@pytest.mark.req("H3")
def test_the_answer_and_its_end_alone_are_targets(trained_small: Path) -> None:
    tokenizer = load_tokenizer(trained_small / "tokenizer.json")
    turns, end = Turns(MANNER, tokenizer), tokenizer.control[MARKS[2]]
    lesson = Lesson("What is 3 + 4?", "7")
    rows = rows_of([turns.question(lesson.question)], [[*tokenizer.encode(lesson.answer), end]], 40)
    counted = rows.targets[0] >= 0
    assert rows.targets[0][counted].tolist() == [*tokenizer.encode("7"), end]
    first = int(np.flatnonzero(counted)[0])
    assert tokenizer.decode(rows.tokens[0, : first + 1].tolist()) == "user\nWhat is 3 + 4?\nassistant\n"
    assert (rows.tokens[0, 1:][counted[:-1]] == rows.targets[0][:-1][counted[:-1]]).all()


def test_rows_that_are_too_long_are_cut_off() -> None:
    for question, answer, targets in [([1, 2, 3, 4, 5], [6], [-1, -1, -1]), ([1, 2], [3, 4, 5], [-1, 3, 4])]:
        rows = rows_of([question], [answer], 3)
        assert isinstance(rows, Rows) and rows.tokens.tolist() == [[1, 2, 3]] and rows.targets.tolist() == [targets]


@pytest.mark.req("H3")
def test_the_policys_loss_and_gradient_are_pytorchs(rng: np.random.Generator) -> None:
    logits = rng.standard_normal((4, 5, 7)).astype(np.float32)
    targets = rng.integers(-1, 7, (4, 5))
    advantages = rng.standard_normal(4).astype(np.float32)
    ours, theirs = Tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
    loss = policy_loss(ours, Tensor(targets), Tensor(advantages))
    chosen = theirs.log_softmax(-1).gather(-1, torch.tensor(targets).clamp(min=0)[..., None])[..., 0]
    counted = torch.tensor(targets) >= 0
    expected = -(chosen * torch.tensor(advantages)[:, None] * counted).sum() / counted.sum()
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad, atol=1e-6)


@pytest.mark.req("H3")
def test_what_is_rewarded_is_tried_more_often() -> None:
    scores, rng = nn.Parameter(Tensor.zeros(4)), np.random.default_rng(0)
    optimizer = optim.SGD([scores], lr=2.0)
    for _ in range(40):
        shares = np.exp(scores.detach().numpy())
        tried = rng.choice(4, 16, p=shares / shares.sum())
        rewards = (tried == 2).astype(np.float32)
        optimizer.zero_grad()
        logits_RTV = scores.reshape(1, 1, 4).expand(16, 1, 4)
        policy_loss(logits_RTV, Tensor(tried[:, None]), Tensor(rewards - rewards.mean())).backward()
        optimizer.step()
    assert scores.softmax(0)[2].item() > 0.9


# ---- what is refused ----
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--depth", "0"], "--depth: got 0, it must be at least 1."),
        (["--vocabulary", "200"], "--vocabulary: a vocabulary of 200 tokens is too small: 256 bytes, 3 control tokens"),
        (["--vocabulary", "100000"], "--vocabulary: got 100,000; the text gives "),
        (["--context", "32"], "--context: got 32, conversations need 64 tokens or more."),
        (["--text", "EMPTY"], "is empty."),
        (["--text", "SHORT"], "conversations need some of both."),
        (["--text", "FEW"], "--text: its held-out part has "),
        (["--steps", "-1"], "--steps: got -1, it must be at least 0."),
        (["--resume"], "no checkpoint is there"),
    ],
)
def test_wrong_settings_are_sentences(
    more: list[str], said: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"EMPTY": "", "SHORT": "To be, or not to be", "FEW": text.read_text()[:600]}
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    more = [str(tmp_path / word) if word in texts else word for word in more]
    assert cli.main(options(text, tmp_path / "run", *more)) == 1
    printed = capsys.readouterr().err
    assert said in printed and "Traceback" not in printed


def test_questions_that_are_too_long_and_runs_without_answers_are_sentences(
    trained_small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, said in [
        (["sample", "nano", "--checkpoint", str(trained_small), "--prompt", "long " * 80], "with an answer 64 fit."),
        (["chat", "--model", str(trained_small), "--prompt", "long " * 80], "This model reads 64 at most"),
        (["sample", "nano", "--checkpoint", str(tmp_path)], "no network that answers: no stage of `picograd"),
        (["chat", "--model", str(tmp_path), "--prompt", "Hi"], "no network that answers: no stage of `picograd"),
    ]:
        assert cli.main(command) == 1
        assert said in capsys.readouterr().err


def test_a_run_with_another_depth_or_text_does_not_go_on(
    trained_small: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, said in [(["--depth", "2"], "made with depth 1, this run has depth 2"),
                       (["--text", "shakespeare"], ", this run has text shakespeare")]:  # fmt: skip
        assert cli.main([*options(text, trained_small, "--resume"), *more]) == 1
        assert said in capsys.readouterr().err
    whole = text.read_text()
    text.write_text(whole + "More.\n")
    try:
        assert cli.main(options(text, trained_small, "--resume")) == 1
    finally:
        text.write_text(whole)
    assert "the text digest that it was made with are not those of this run" in capsys.readouterr().err


def test_a_text_without_held_out_questions_is_said() -> None:
    assert not is_held_out("How many letters has love?")
    with pytest.raises(DataError, match="of the questions about letters none is held out"):
        Lessons("love\nlove\n", 1).held_out("letters", 1)
