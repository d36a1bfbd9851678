"""Tests of exercise 7: derivatives against slopes."""

from __future__ import annotations

import math
from types import ModuleType

import pytest


def test_the_product_of_two_that_move(exercise: ModuleType) -> None:
    y = exercise.Dual(3.0, 1.0) * exercise.Dual(5.0, 10.0)
    assert (y.value, y.move) == (15.0, 1.0 * 5.0 + 3.0 * 10.0), (
        f"3 moves by 1 and 5 by 10, so 3 * 5 = 15 moves by 1 * 5 + 3 * 10 = 35; got {y.value} that moves by {y.move}"
    )


def test_a_plain_number_does_not_move(exercise: ModuleType) -> None:
    y = 2.0 * exercise.Dual(3.0, 1.0)
    assert (y.value, y.move) == (6.0, 2.0), f"2 * 3 = 6 moves by 2 if only 3 moves; got {y.value} that moves by {y.move}"


def test_the_quotient(exercise: ModuleType) -> None:
    y = exercise.Dual(3.0, 1.0) / exercise.Dual(4.0, 2.0)
    assert y.value == 0.75, f"3 / 4 is 0.75, not {y.value}"
    assert y.move == pytest.approx((1.0 * 4.0 - 3.0 * 2.0) / 16.0), (
        f"3 moves by 1 and 4 by 2; 3 = y * 4, so 1 = move * 4 + 0.75 * 2 and the move is -0.125, not {y.move}"
    )


def test_the_sine(exercise: ModuleType) -> None:
    y = exercise.Dual(0.5, 3.0).sin()
    assert y.value == pytest.approx(math.sin(0.5)), f"sin(0.5) is {math.sin(0.5):.4f}, not {y.value}"
    assert y.move == pytest.approx(3.0 * math.cos(0.5)), (
        f"the sine rises by cos(0.5) = {math.cos(0.5):.4f}, and 0.5 moves by 3; got a move of {y.move:.4f}"
    )


def test_a_derivative_through_a_loop_and_an_if(exercise: ModuleType) -> None:
    def f(x, sin):  # type: ignore[no-untyped-def]
        y = x
        for i in range(1, 5):
            y = y * x + x / (x * x + float(i)) if i % 2 else sin(y) + x
        return y

    h = 1e-6
    slope = (f(0.7 + h, math.sin) - f(0.7 - h, math.sin)) / (2 * h)
    found = exercise.derivative(lambda x: f(x, exercise.Dual.sin), 0.7)
    assert found == pytest.approx(slope, rel=1e-7), f"the slope at 0.7 is {slope:.6f}, the derivative {found:.6f}"
