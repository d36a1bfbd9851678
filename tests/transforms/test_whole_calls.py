"""A call of a jitted function changes everything it writes, or nothing: state, and arguments that it writes in place."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import PicogradError, ShapeError, SharingError
from picograd.tensor.cell import Cell, TakenBuffers
from picograd.tensor.core import TensorCore


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def read_only() -> Tensor:
    array = np.ones((2, 3), np.float32)
    array.flags.writeable = False
    return pg.from_dlpack(array)


class Step:
    """A captured step that writes two arguments and a count; it refuses places outside of the first argument."""

    def __init__(self) -> None:
        self.count = pg.zeros(3)
        self.step = pg.jit(self._step)

    def _step(self, first: Tensor, second: Tensor, place: Tensor) -> Tensor:
        chosen = first[place]
        first.add_(1)
        second.add_(2)
        self.count.add_(1)
        return chosen.sum()


@pytest.mark.parametrize(
    ("make", "place", "error"),
    [
        (lambda: pg.ones(2, 1).expand(2, 3), 0, ShapeError),
        (read_only, 0, SharingError),
        (lambda: pg.ones(2, 3), 5, IndexError),
    ],
    ids=["expanded", "read-only", "refused"],
)
def test_a_call_that_raises_has_changed_nothing(make: Callable[[], Tensor], place: int, error: type[PicogradError]) -> None:
    """An argument that cannot be written is found before the plan runs, also the first time."""
    work, first = Step(), pg.zeros(2, 3)
    for turn in range(4):
        second = make()
        with pytest.raises(error):
            work.step(first, second, Tensor([place]))
        assert (first.sum().item(), second.sum().item(), work.count.tolist()) == (0, 6, [turn] * 3)
        work.step(pg.zeros(2, 3), pg.zeros(2, 3), Tensor([0]))


def interrupt_after_the_first(values: Iterable[Any]) -> Iterator[Any]:
    for number, value in enumerate(values):
        if number == 1:
            signal.raise_signal(signal.SIGINT)
        yield value


def test_an_interrupt_between_arguments_comes_when_both_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    work, first, second = Step(), pg.zeros(2, 3), pg.zeros(2, 3)
    for _ in range(3):
        work.step(first, second, Tensor([0]))
    write = TensorCore.write

    def write_and_interrupt(self: TensorCore, function: str, value: Any) -> TensorCore:
        write(self, function, value)
        if self is first:
            signal.raise_signal(signal.SIGINT)
        return self

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TensorCore, "write", write_and_interrupt)
        work.step(first, second, Tensor([0]))
    assert (first[0, 0].item(), second[0, 0].item(), work.count.tolist()) == (4, 8, [4, 4, 4])


@pytest.mark.parametrize("is_read", [True, False], ids=["read in between", "equal values"])
def test_an_interrupt_between_cells_comes_when_all_are_written(is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that is read in between gets new memory; cells with one value for both get memory that is not their own."""
    a, b = pg.zeros(3), pg.zeros(3)

    def step(x: Tensor) -> None:
        a.copy_(a + x) if is_read else a.copy_(x * 2)
        b.copy_(b + x) if is_read else b.copy_(x * 2)

    jitted, kept = pg.jit(step), []
    for turn in range(4):
        jitted(pg.full((3,), float(turn)))
        if is_read:
            kept += [a.detach(), b.detach()]
            kept = [(each + 0).realize() for each in kept]
    put, hold = TakenBuffers.put, Cell.hold

    def interrupted_put(self: TakenBuffers, places: Iterable[int], buffers: Iterable[Any]) -> None:
        put(self, places, interrupt_after_the_first(buffers))

    def interrupted_hold(cells: Iterable[Cell], held: Iterable[Any]) -> None:
        hold(cells, interrupt_after_the_first(held))

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TakenBuffers, "put", interrupted_put)
        patch.setattr(Cell, "hold", staticmethod(interrupted_hold))
        readers = [a.read(), b.read()] if is_read else []
        jitted(pg.full((3,), 10.0))
    del readers
    assert a.tolist() == b.tolist() == ([16.0] * 3 if is_read else [20.0] * 3)
