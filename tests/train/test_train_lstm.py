"""`picograd train lstm` and `picograd sample lstm`, on a few names and on the real ones."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import ArgumentError, DataError
from picograd.nn import functional as F
from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS, sequences
from picograd_programs.models.names import CharacterLSTM
from picograd_programs.train import checkpoint, lstm
from picograd_programs.train.checkpoint import load_checkpoint
from picograd_programs.train.lstm import LstmConfig, SampleLstmConfig, nll, sample_lstm, train_lstm


@pytest.fixture
def few_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forty names in the place of the published ones."""
    words = [first + "nn" + last for first in "abcdefghij" for last in ("a", "ie", "y", "o")]
    monkeypatch.setattr(lstm, "load_names", lambda: words)
    return words


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., LstmConfig]:
    """Settings of a short run that writes into a folder of its own."""

    def make(**changes: object) -> LstmConfig:
        settings = {"steps": 60, "batch": 8, "width": 16, "lr": 0.02, "out": tmp_path / "lstm", "samples": 4}
        return LstmConfig(**{**settings, **changes})  # type: ignore[arg-type]

    return make


@pytest.mark.req("D5")
def test_run_prints_three_losses_and_new_names(
    few_names: list[str], config: Callable[..., LstmConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_lstm(config()) == 0
    out = capsys.readouterr().out
    losses = re.search(r"^loss: train (\d\.\d{4}), dev (\d\.\d{4}), test (\d\.\d{4})$", out, re.M)
    assert losses is not None
    assert float(losses[1]) < 2.0  # ln 27 = 3.30 is what knowing nothing costs
    said = re.search(r"^new names: (.*)$", out, re.M)
    assert said is not None
    assert len(said[1].split(", ")) == 4


@pytest.mark.req("D5")
def test_run_resumed_after_ctrl_c_ends_as_an_unbroken_one(
    few_names: list[str],
    config: Callable[..., LstmConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train_lstm(config(out=tmp_path / "unbroken"))
    interrupted = config()
    with monkeypatch.context() as patch:
        step_done = lstm.TrainingLog.step_done

        def press(log: lstm.TrainingLog, step: int, num_items: int) -> None:
            step_done(log, step, num_items)
            if step == 25:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(lstm.TrainingLog, "step_done", press)
        assert train_lstm(interrupted) == 130
    assert "trained 25 of 60 steps" in capsys.readouterr().out
    assert train_lstm(config(resume=interrupted.out)) == 0
    expected, actual = load_checkpoint(tmp_path / "unbroken", "lstm"), load_checkpoint(interrupted.out, "lstm")
    for name in expected.model:
        assert expected.model[name].tobytes() == actual.model[name].tobytes(), name


def test_loss_is_that_of_all_names_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm, "EVALUATED", 3)
    part, model = sequences(["emma", "ava", "jo", "x"]), CharacterLSTM(len(CHARACTERS), 8)
    logits = model(Tensor(part.tokens))[0]
    rows = F.cross_entropy(logits.flatten(0, 1), Tensor(part.targets).flatten(), ignore_index=-1, reduction="none")
    expected = rows.detach().numpy().sum() / (4 + 3 + 2 + 1 + 4)
    assert nll(model, part) == pytest.approx(expected, rel=1e-6)


class Alphabet(CharacterLSTM):
    """A model that is sure: each name is abc."""

    def draw(self, num: int, length: int, *settings: object) -> Tensor:
        """Returns a b c and a dot, over and over."""
        return Tensor(np.tile([1, 2, 3, 0], (num, length // 4)))


def test_names_end_at_the_dot() -> None:
    assert lstm.new_names(Alphabet(), num=2) == ["abc", "abc"]


def test_sampled_names_follow_the_seed(
    few_names: list[str], config: Callable[..., LstmConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    saved = config(steps=40)
    train_lstm(saved)
    capsys.readouterr()

    def drawn(**changes: object) -> list[str]:
        assert sample_lstm(SampleLstmConfig(**{"checkpoint": saved.out, "num": 5, **changes})) == 0  # type: ignore[arg-type]
        return capsys.readouterr().out.splitlines()

    assert len(drawn()) == 5
    assert drawn() == drawn() != drawn(seed=1)
    assert len(set(drawn(temperature=0.0))) == 1


def test_what_cannot_be_done_is_refused(
    few_names: list[str], config: Callable[..., LstmConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError, match="--steps: got 0, it must be at least 1."):
        train_lstm(config(steps=0))
    with pytest.raises(ArgumentError, match="--num: got 0, it must be at least 1."):
        sample_lstm(SampleLstmConfig(num=0))
    with pytest.raises(DataError, match="missing: cannot be read: No such file"):
        sample_lstm(SampleLstmConfig(checkpoint=tmp_path / "missing"))
    saved = config(steps=1)
    train_lstm(saved)
    with pytest.raises(DataError, match=r"embedding.weight is \(27, 16\), this run needs \(27, 8\)"):
        train_lstm(config(width=8, resume=saved.out))
    with pytest.raises(DataError, match="a checkpoint of `train lstm`, not of `train gpt`") as caught:
        lstm.load_checkpoint(saved.out, "gpt", "sample {kind} --checkpoint {path}")
    assert caught.value.hint == f"picograd sample lstm --checkpoint {saved.out}"
    monkeypatch.setattr(checkpoint, "SAMPLED", ("gpt",))
    with pytest.raises(DataError) as caught:  # of a training whose models nothing is sampled from
        lstm.load_checkpoint(saved.out, "gpt", "sample {kind} --checkpoint {path}")
    assert caught.value.hint == f"picograd train lstm --resume {saved.out}"
