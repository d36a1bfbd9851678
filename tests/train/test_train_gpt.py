"""`picograd train gpt` and `picograd sample gpt`, on a small text."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from picograd.errors import ArgumentError, DataError
from picograd_programs.train import gpt
from picograd_programs.train.checkpoint import load_checkpoint
from picograd_programs.train.gpt import GptConfig, SampleGptConfig, sample_gpt, train_gpt

TEXT = "the quick brown fox jumps over the lazy dog.\n" * 30


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., GptConfig]:
    """Settings of a short run on a text of its own."""
    (tmp_path / "text").write_text(TEXT)

    def make(**changes: object) -> GptConfig:
        small = {"layers": 1, "heads": 2, "width": 16, "block": 8, "batch": 4, "steps": 60, "lr": 1e-2, "warmup": 5}
        also = {"eval_every": 25, "eval_batches": 2, "sample": 20}
        files = {"text": str(tmp_path / "text"), "out": tmp_path / "gpt"}
        return GptConfig(**{**small, **also, **files, **changes})  # type: ignore[arg-type]

    return make


def interrupted_after(monkeypatch: pytest.MonkeyPatch, step: int, config: GptConfig) -> None:
    """Trains, and presses Ctrl-C in a step."""
    with monkeypatch.context() as patch:
        step_done = gpt.TrainingLog.step_done

        def press(log: gpt.TrainingLog, done: int, num_items: int) -> None:
            step_done(log, done, num_items)
            if done == step:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(gpt.TrainingLog, "step_done", press)
        assert train_gpt(config) == 130


@pytest.mark.req("D7")
def test_run_prints_its_loss_and_new_text(
    config: Callable[..., GptConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_gpt(config(steps=150)) == 0
    captured = capsys.readouterr()
    assert re.search(r"^gpt: 1,350 characters of .*text, 29 different; \d,\d{3} parameters$", captured.out, re.M)
    loss = re.search(r"^validation loss: (\d\.\d{4})$", captured.out, re.M)
    assert loss is not None
    assert float(loss[1]) < 1.5  # ln 29 = 3.4 is what knowing nothing costs
    assert "validation" in captured.err and "characters/s" in captured.err
    drawn = captured.out[loss.end() + 1 :]
    assert len(drawn) == 1 + 20 + 1 and set(drawn) <= set(TEXT)


@pytest.mark.req("D7")
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_run_resumed_after_ctrl_c_ends_as_an_unbroken_one(
    dropout: float,
    config: Callable[..., GptConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train_gpt(config(out=tmp_path / "unbroken", dropout=dropout))
    interrupted = config(dropout=dropout)
    interrupted_after(monkeypatch, 33, interrupted)
    printed = capsys.readouterr().out
    assert "trained 33 of 60 steps" in printed
    assert f"go on with: picograd train gpt --text {interrupted.text} --layers 1" in printed
    assert f"--resume {interrupted.out}" in printed
    assert train_gpt(config(resume=interrupted.out, dropout=dropout)) == 0
    expected, actual = load_checkpoint(tmp_path / "unbroken", "gpt"), load_checkpoint(interrupted.out, "gpt")
    assert expected.step == actual.step == 60
    for before, after in ((expected.model, actual.model), (expected.optimizer, actual.optimizer)):
        assert before.keys() == after.keys()
        for name in before:
            assert before[name].tobytes() == after[name].tobytes(), name


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"block": 4}, "made with block 8, this run has block 4", "--block 8"),
        ({"heads": 4}, "made with heads 2, this run has heads 4", "--heads 2"),
        ({"batch": 5}, "made with batch 4, this run has batch 5", "--batch 4"),
        ({"seed": 1}, "made with seed 0, this run has seed 1", "--seed 0"),
        ({"layers": 2}, "h.1.attn.c_attn.weight is not there, this run needs (48, 16)", None),
        ({"width": 32}, "h.0.attn.c_attn.weight is (48, 16), this run needs (96, 32)", None),
        ({"text": "other"}, "are not those of this run", "resume with the data the checkpoint was made with."),
    ],
)
def test_checkpoint_of_another_run_is_refused_and_kept(
    changes: dict[str, object], said: str, hint: str | None, config: Callable[..., GptConfig], tmp_path: Path
) -> None:
    saved = config(steps=1)
    train_gpt(saved)
    before = saved.out.read_bytes()
    if "text" in changes:
        (tmp_path / "other").write_text(TEXT[::-1])
        changes = {"text": str(tmp_path / "other")}
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        train_gpt(config(resume=saved.out, **changes))
    assert hint is None or caught.value.hint == hint
    assert saved.out.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "--steps: got 0, it must be at least 1."),
        ({"sample": 0}, "--sample: got 0, it must be at least 1."),
        ({"seed": -1}, "--seed: got -1, it must be at least 0."),
        ({"lr": float("nan")}, "--lr: got nan"),
        ({"heads": 3}, "heads must divide width, got 3 heads and width 16"),
        ({"dropout": 2.0}, "dropout must be a probability, got 2.0"),
        ({"beta2": 1.0}, "betas must be in"),
    ],
)
def test_settings_out_of_range_are_refused(
    changes: dict[str, object], said: str, config: Callable[..., GptConfig]
) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)):
        train_gpt(config(**changes))


def test_text_and_folder_that_cannot_be_used_are_refused(config: Callable[..., GptConfig], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1,350 characters are too few") as caught:
        train_gpt(config(block=200))
    assert caught.value.hint == "a longer text, or --block 134"
    with pytest.raises(DataError, match="cannot be read: No such file"):
        train_gpt(config(text=str(tmp_path / "missing")))
    with pytest.raises(DataError, match="cannot be written"):
        train_gpt(config(out=tmp_path / "text" / "gpt"))
    with pytest.raises(DataError, match="cannot be read: No such file"):
        train_gpt(config(resume=tmp_path / "missing"))


# ---- picograd sample gpt ----
def test_sampled_text_follows_the_prompt_and_the_seed(
    config: Callable[..., GptConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    saved = config(steps=100)
    train_gpt(saved)
    capsys.readouterr()

    def drawn(**changes: object) -> str:
        settings = {"checkpoint": saved.out, "prompt": "the quick", "length": 20}
        assert sample_gpt(SampleGptConfig(**{**settings, **changes})) == 0  # type: ignore[arg-type]
        return capsys.readouterr().out

    text = drawn()
    assert text.startswith("the quick") and len(text) == 9 + 20 + 1
    assert text == drawn() != drawn(seed=1)
    assert drawn(num=2) == f"{text}{'-' * 20}\n{drawn(seed=1)}"
    assert drawn(prompt="").startswith("\n")
    assert drawn(temperature=0.0) == drawn(top_k=1) != text


def test_what_cannot_be_sampled_is_refused(config: Callable[..., GptConfig], tmp_path: Path) -> None:
    saved = config(steps=1)
    train_gpt(saved)
    for changes, said in (
        ({"length": 0}, "--length: got 0, it must be at least 1."),
        ({"top_k": 0}, "--top-k: got 0, it must be at least 1."),
        ({"temperature": -1.0}, "--temperature: got -1.0"),
        ({"prompt": "Zebra"}, "--prompt: 'Z' is not one of the 29 characters of the text: "),
        ({"checkpoint": tmp_path / "missing"}, "missing: cannot be read: No such file"),
        ({"checkpoint": tmp_path / "text"}, "truncated or not a safetensors file"),
    ):
        with pytest.raises((ArgumentError, DataError), match=re.escape(said)):
            sample_gpt(SampleGptConfig(**{"checkpoint": saved.out, **changes}))  # type: ignore[arg-type]
