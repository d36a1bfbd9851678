"""`picograd train names`, on a few names and on the real ones."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS
from picograd_programs.models.names import BengioModel
from picograd_programs.train import names
from picograd_programs.train.checkpoint import load_checkpoint
from picograd_programs.train.names import NamesConfig, sample, train_names


def plain(text: str) -> str:
    """Returns printed text without the colours a terminal would show."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)



@pytest.fixture
def few_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forty names in the place of the published ones."""
    words = [first + "nn" + last for first in "abcdefghij" for last in ("a", "ie", "y", "o")]
    monkeypatch.setattr(names, "load_names", lambda: words)
    return words


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., NamesConfig]:
    """Settings of a short run that writes into a folder of its own."""

    def make(**changes: object) -> NamesConfig:
        settings = {"steps": 60, "hidden": 16, "lr": 0.1, "out": tmp_path / "names", "samples": 4}
        return NamesConfig(**{**settings, **changes})  # type: ignore[arg-type]

    return make


def test_run_prints_three_losses_and_new_names(
    few_names: list[str], config: Callable[..., NamesConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_names(config()) == 0
    out = plain(capsys.readouterr().out)
    losses = re.search(r"^loss: train (\d\.\d{4}), dev (\d\.\d{4}), test (\d\.\d{4})$", plain(out), re.M)
    assert losses is not None
    # ln 27 = 3.30 is what knowing nothing costs.
    assert float(losses[1]) < 3.0
    said = re.search(r"^new names: (.*)$", out, re.M)
    assert said is not None
    assert len(said[1].split(", ")) == 4


def test_run_resumed_after_ctrl_c_ends_as_an_unbroken_one(
    few_names: list[str],
    config: Callable[..., NamesConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train_names(config(out=tmp_path / "unbroken"))
    interrupted = config()
    with monkeypatch.context() as patch:
        step_done = names.TrainingLog.step_done

        def press(log: names.TrainingLog, step: int, num_items: int) -> None:
            step_done(log, step, num_items)
            if step == 25:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(names.TrainingLog, "step_done", press)
        assert train_names(interrupted) == 130
    assert "trained 25 of 60 steps" in capsys.readouterr().out
    assert train_names(config(resume=interrupted.out)) == 0
    expected, actual = load_checkpoint(tmp_path / "unbroken", "names"), load_checkpoint(interrupted.out, "names")
    assert expected.step == actual.step == 60
    for name in expected.model:
        assert expected.model[name].tobytes() == actual.model[name].tobytes(), name


def test_no_steps_are_refused(config: Callable[..., NamesConfig]) -> None:
    with pytest.raises(ArgumentError, match="--steps: got 0, it must be at least 1."):
        train_names(config(steps=0))


class Alphabet(BengioModel):
    """A model that is sure: each name is abc."""

    def forward(self, contexts_BT: Tensor) -> Tensor:
        """Returns logits that leave one character."""
        last_B = contexts_BT.numpy()[:, -1]
        return Tensor(np.where(np.arange(27) == ((last_B + 1) % 4)[:, None], 50.0, -50.0).astype(np.float32))


def test_samples_follow_the_probabilities_and_end_at_the_dot() -> None:
    assert sample(Alphabet(len(CHARACTERS)), context=3, num=2, seed=0) == ["abc", "abc"]


@pytest.mark.req("D4")
def test_short_run_on_the_published_names_learns(
    published_names: list[str],
    config: Callable[..., NamesConfig],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(names, "load_names", lambda: published_names)
    assert train_names(config(steps=3000, hidden=200)) == 0
    printed = plain(capsys.readouterr().out)
    losses = re.search(r"^loss: train (\d\.\d{4}), dev (\d\.\d{4}), test (\d\.\d{4})$", printed, re.M)
    assert losses is not None, printed
    # Single characters by their frequency cost 2.82; 3000 steps at 0.1 come to about 2.4.
    assert all(float(loss) < 2.6 for loss in losses.groups())
