"""Tests of exercise 1. Each compares gradients with slopes: how much the result changes when an input grows a little."""

from __future__ import annotations

import math
from types import ModuleType

import pytest


def test_the_slopes_of_a_product(exercise: ModuleType) -> None:
    a, b = exercise.Value(3.0), exercise.Value(-5.0)
    y = a * b
    assert y.data == -15.0, f"3 * -5 is -15, not {y.data}"
    assert y.slopes == (-5.0, 3.0), "a product grows with one factor as fast as the other factor says"


def test_tanh(exercise: ModuleType) -> None:
    y = exercise.Value(0.5).tanh()
    assert y.data == pytest.approx(math.tanh(0.5)), f"tanh(0.5) is {math.tanh(0.5):.4f}, not {y.data}"
    slope = (math.tanh(0.5 + 1e-6) - math.tanh(0.5 - 1e-6)) / 2e-6
    assert y.slopes == pytest.approx((slope,), abs=1e-6), f"at 0.5 tanh rises by {slope:.6f}, the slope is {y.slopes}"


def test_backward_through_three_steps(exercise: ModuleType) -> None:
    a, b, c = exercise.Value(2.0), exercise.Value(-3.0), exercise.Value(10.0)
    y = (a * b + c).tanh() * c
    y.backward()

    def f(a: float, b: float, c: float) -> float:
        return math.tanh(a * b + c) * c

    h = 1e-6
    by_a, by_c = (f(2 + h, -3, 10) - f(2 - h, -3, 10)) / (2 * h), (f(2, -3, 10 + h) - f(2, -3, 10 - h)) / (2 * h)
    assert a.grad == pytest.approx(by_a, abs=1e-4), f"y grows by {by_a:.4f} with a, the grad is {a.grad:.4f}"
    assert c.grad == pytest.approx(by_c, abs=1e-4), (
        f"y grows by {by_c:.4f} with c, which it reads twice; the grad is {c.grad:.4f}"
    )


def test_a_value_that_is_read_twice(exercise: ModuleType) -> None:
    a = exercise.Value(3.0)
    (a + a).backward()
    assert a.grad == 2.0, f"a + a grows twice as fast as a; the grad is {a.grad}: is it added to, or overwritten?"


def test_a_grad_is_complete_before_it_is_passed_on(exercise: ModuleType) -> None:
    a = exercise.Value(2.0)
    u = a * a  # read by both factors below
    y = u * (u + a)  # a ** 4 + a ** 3
    y.backward()
    assert a.grad == 4 * 2.0**3 + 3 * 2.0**2, "u passed its grad on before both of its readers had added to it"
