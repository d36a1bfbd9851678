"""What somebody has computed before a function is traced is no part of the plan: it would stay as it was (G10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError

pytestmark = pytest.mark.req("G10")


def values(*shape: int) -> Tensor:
    return Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)).realize()


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "a slice": lambda x: x[:, 1:3],
    "a row": lambda x: x[1],
    "transposed": lambda x: x.T,
    "a view of a view": lambda x: x[1:].T[0],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_of_state_that_was_looked_at_is_read_anew(view: Callable[[Tensor], Tensor], device: str) -> None:
    base = values(4, 4)
    shown = view(base)
    before = shown.numpy()
    doubled = pg.jit(lambda: shown * 2)
    for number in range(5):
        assert (doubled().numpy() == 2 * (before + number)).all()
        base.add_(1.0)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_of_an_argument_that_was_looked_at_is_read_anew(view: Callable[[Tensor], Tensor], device: str) -> None:
    first = values(4, 4)
    shown = view(first)
    before = shown.numpy()
    doubled = pg.jit(lambda x: view(x) * 2)
    for number in range(5):
        assert (doubled(first + number).numpy() == 2 * (before + number)).all()
    assert (doubled(first).numpy() == 2 * before).all()


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_that_was_looked_at_is_written_to(view: Callable[[Tensor], Tensor], device: str) -> None:
    base, expected = values(4, 4), values(4, 4)
    shown = view(base)
    shown.numpy()
    step = pg.jit(lambda value: shown.add_(value))
    for number in range(5):
        step(Tensor(float(number)))
        view(expected).add_(float(number))
        assert (base.numpy() == expected.numpy()).all()


def test_a_loss_that_was_computed_follows_its_parameters(device: str) -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    kept = (weight * 3).sum()
    assert kept.item() == 9.0
    loss = pg.jit(lambda: (weight * 3).sum())
    for number in range(5):
        assert loss().item() == 9.0 + 6.0 * number
        with pg.no_grad():
            weight.add_(1.0)
    assert kept.item() == 9.0


def test_a_step_may_begin_with_what_was_computed_before_it(device: str) -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    kept = (weight * weight).sum()
    assert kept.item() == 5.0

    def step() -> Tensor:
        weight.grad = None
        loss = (weight * weight).sum()
        loss.backward()
        with pg.no_grad():
            weight.sub_(0.25 * weight.grad)  # halves it: exact in float32
        return loss

    jitted = pg.jit(step)
    assert [jitted().item() for _ in range(4)] == [5.0, 1.25, 0.3125, 0.078125]
    assert kept.item() == 5.0


def test_a_length_that_is_an_argument_is_not_that_of_what_was_computed_before(device: str) -> None:
    bound = pg.Variable("n", 1, 8)
    ones = pg.ones(bound.bind(3)) * 2
    assert ones.sum().item() == 6.0
    total = pg.jit(lambda n: (pg.ones(n) * 2).sum())
    for length in (3, 3, 5, 8):
        assert total(bound.bind(length)).item() == 2.0 * length
    assert ones.sum().item() == 6.0


def test_what_depends_on_nothing_that_changes_is_not_computed_again(device: str) -> None:
    numbers = pg.arange(8.0)
    squares = (numbers * numbers).realize()
    total = pg.jit(lambda x: (squares + x).sum())
    for number in range(4):
        assert total(Tensor(float(number))).item() == 140.0 + 8 * number


WRITES: dict[str, tuple[Callable[[Tensor, Tensor], object], list[float]]] = {
    "read": (lambda state, rows: None, [9.0, 9.0, 9.0, 9.0]),
    "added to": (lambda state, rows: state.add_(rows), [12.0, 15.0, 18.0, 21.0]),
    "replaced": (lambda state, rows: state.copy_(rows), [6.0, 6.0, 6.0, 6.0]),
}


@pytest.mark.parametrize(("write", "expected"), WRITES.values(), ids=WRITES)
def test_state_of_some_length_is_not_taken_for_longer_than_it_is(
    write: Callable[[Tensor, Tensor], object], expected: list[float], device: str
) -> None:
    bound = pg.Variable("n", 1, 1000)
    ones = pg.ones(1000).realize()
    state = (ones[: bound.bind(3)] * 2).realize()

    def step(n: Any) -> Tensor:
        write(state, ones[:n])
        return state.sum() + ones[:n].sum()

    jitted = pg.jit(step)
    assert [jitted(bound.bind(3)).item() for _ in range(3)] == expected[:3]
    with pytest.raises(ArgumentError, match="n is bound to 1000 and to 3"):
        jitted(bound.bind(1000))
    assert jitted(bound.bind(3)).item() == expected[3]
