"""Each training of `picograd train` learns: after a few steps on little data the loss of a new batch is below a bound.

The bounds are such that a training with a fault stays above: a rate of 0, gradients of the wrong sign, a batch that is read
again and again in place of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from picograd import Tensor
from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import no_grad
from picograd_programs.train.program import Program, trainer_of
from tests.little import words_in_place
from tests.models.twins import program_of


class Short(NamedTuple):
    """A short training: what `picograd train` is told, how many steps it makes, and a loss that it comes below."""

    words: str
    steps: int
    bound: float


FAST = "--lr 0.02 --warmup 0"
SHORT = {
    "linear": Short("linear", 40, 0.1),
    "logistic": Short("logistic", 40, 0.25),
    "bigram": Short("bigram", 40, 2.6),
    "sentiment": Short("sentiment --embedding 8 --batch 4 --lr 0.01", 40, 0.4),
    "names": Short("names --lr 0.1", 200, 2.8),
    "bag": Short("bag --width 16 --batch 8 --lr 0.01", 100, 2.8),
    "rnn": Short(f"rnn --width 16 --batch 8 {FAST}", 100, 2.7),
    "gru": Short(f"gru --width 16 --batch 8 {FAST}", 100, 2.7),
    "lstm": Short(f"lstm --width 16 --batch 8 {FAST}", 100, 2.7),
    "wavenet": Short("wavenet --width 16 --lr 0.01", 100, 2.8),
    "transformer": Short(f"transformer --width 16 --layers 1 --heads 2 --batch 8 {FAST}", 100, 2.85),
    "mnist": Short("mnist --hidden 16 --batch 16 --lr 0.01", 20, 0.2),
    "fashion": Short("mnist --hidden 16 --batch 16 --lr 0.01 --data fashion", 20, 0.2),
    "cnn": Short("cnn --channels 4 --batch 16 --lr 0.01", 80, 1.5),
    "cnn-fashion": Short("cnn --channels 4 --batch 16 --lr 0.01 --data fashion", 80, 1.5),
    "bert": Short(f"bert --width 16 --layers 1 --heads 2 --block 16 {FAST} --text TEXT", 100, 3.6),
    "gpt": Short(f"gpt --width 16 --layers 1 --heads 2 --block 16 {FAST} --text TEXT", 100, 3.4),
    "diffusion": Short("diffusion --channels 8 --batch 4 --lr 0.01 --warmup 0", 40, 0.6),
    "vae": Short("vae --hidden 32 --code 4 --batch 16 --lr 0.01", 60, 420.0),
    "nano": Short("nano --vocabulary 300 --context 64 --batch 4 --text TEXT", 30, 3.5),
}
ONE_BATCH_IS_ENOUGH = ("linear", "logistic", "bigram", "sentiment", "diffusion")  # it has all data, or noise that is new


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Little data; returns a file of text."""
    return words_in_place(monkeypatch, tmp_path)


def loss_after(name: str, text: Path, *more: str, fault: Callable[[Program], None] = lambda program: None) -> float:
    """Returns the loss of the batch behind the last step's, the model in evaluation mode."""
    short = SHORT[name]
    words = short.words.replace("TEXT", str(text)).split()
    with program_of(*words, "--steps", str(short.steps), *more) as program:
        batch, loss = program.batch(short.steps), program.loss
        fault(program)
        trainer_of(program).fit(program.batch, short.steps)
        program.model.eval()
        manual_seed(0)  # of noise
        with no_grad():
            found = loss(program.model, *(Tensor(np.asarray(part)) for part in batch))
        return (found if isinstance(found, Tensor) else found["loss"]).item()


@pytest.mark.req("D5", "D6")
@pytest.mark.parametrize("name", SHORT)
def test_a_short_training_comes_below_its_bound(name: str, text: Path) -> None:
    assert loss_after(name, text) < SHORT[name].bound


@pytest.mark.parametrize("name", SHORT)
def test_a_training_at_a_rate_of_0_stays_well_above_it(name: str, text: Path) -> None:
    assert loss_after(name, text, "--lr", "0") > 1.1 * SHORT[name].bound


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("name", SHORT)
def test_a_training_up_the_slope_stays_above_it(name: str, text: Path) -> None:
    def turn_round(program: Program) -> None:
        right = program.loss

        def wrong(model: object, *batch: Tensor) -> Tensor:
            found = right(model, *batch)  # type: ignore[arg-type]
            return -(found if isinstance(found, Tensor) else found["loss"])

        program.loss = wrong  # type: ignore[method-assign]

    assert loss_after(name, text, fault=turn_round) > SHORT[name].bound


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("name", [name for name in SHORT if name not in ONE_BATCH_IS_ENOUGH])
def test_a_training_that_reads_one_batch_stays_above_it(name: str, text: Path) -> None:
    def keep_the_first(program: Program) -> None:
        first = program.batch(0)
        program.batch = lambda number: first  # type: ignore[method-assign]

    assert loss_after(name, text, fault=keep_the_first) > SHORT[name].bound
