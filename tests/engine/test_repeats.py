"""Lengths that change at one place and have no plan for all of them: a warning with the line and the remedy, once."""

from __future__ import annotations

import warnings

import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import PlanningWarning
from picograd.look import watch


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def test_the_eighth_length_is_mentioned_once() -> None:
    x = pg.rand(40, 40).realize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(5, 20):
            pg.linalg.inv(x[:n, :n]).realize()
    assert [warning.category for warning in caught] == [PlanningWarning]
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "realize: the computation here was planned 8 times, each time with other lengths or numbers, the"
        " last with a result of shape (12, 12). Each plan is scheduled, and may compile."
        "\n  hint: pad to a few lengths, or cut to a symbolic one: n = pg.Variable('n', 1, 512), x[: n.bind(k)]."
    )


def test_an_exponent_that_changes_is_to_be_a_tensor() -> None:
    """Powers are products, roots and quotients for some exponents, so that each number has a plan of its own."""
    x = pg.rand(40).realize()
    with pytest.warns(
        PlanningWarning, match=r"hint: an exponent that changes must be a tensor: x \*\* pg\.tensor\(p\); pad"
    ):
        for i in range(9):
            (x ** (0.3 + 0.047 * i)).realize()
    with watch() as counts:
        for i in range(9):
            (x ** pg.tensor(0.3 + 0.047 * i)).realize()
    assert counts.scheduled == 1


def test_lengths_offsets_and_numbers_that_change_are_not_mentioned() -> None:
    x = pg.rand(40, 5).realize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(3, 20):
            (x[:n] * x[0] + x[1]).realize()
        for i in range(20):
            (x[i : i + 9] * (i + 0.5) - x[i]).realize()


def test_lines_are_counted_apart() -> None:
    x = pg.rand(40, 3).realize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(20, 26):
            (x[:n] / x[2]).realize()
        for n in range(26, 32):
            (x[:n] / x[2]).realize()


def test_the_remedy_of_the_warning_works() -> None:
    x, n = Tensor(list(range(30))).realize(), pg.Variable("n", 1, 512)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(2, 20):
            assert (x[: n.bind(k)] * 7).sum().item() == 7 * k * (k - 1) // 2


def test_what_differs_in_more_than_numbers_is_not_counted_together() -> None:
    x = pg.rand(4, 5).realize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "tanh", "abs", "erf", "floor"):
            getattr(x, function)().realize()
