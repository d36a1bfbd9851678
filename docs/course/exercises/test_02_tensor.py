"""Tests of exercise 2: shapes first, then every element against its slope."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

RNG = np.random.default_rng(0)


def slopes(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """How much sum(grad * function(x)) grows with each element of x."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-5
        found[place] = (grad * (function(x + step) - function(x - step))).sum() / 2e-5
    return found


def check(found: np.ndarray, wanted: np.ndarray, name: str) -> None:
    assert found.shape == wanted.shape, f"the gradient of {name} has shape {found.shape}, {name} has {wanted.shape}"
    assert np.allclose(found, wanted, atol=1e-6), f"the gradient of {name} is\n{found}\nits slopes are\n{wanted}"


def test_product_of_a_stack(exercise: ModuleType) -> None:
    x, w, grad = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(4, 5)), RNG.normal(size=(2, 3, 5))
    of_x, of_w = exercise.gradients_of_product(x, w, grad)
    check(of_x, slopes(lambda x: x @ w, x, grad), "x")
    check(of_w, slopes(lambda w: x @ w, w, grad), "w")


def test_mean_along_an_axis(exercise: ModuleType) -> None:
    x, grad = RNG.normal(size=(3, 4)), RNG.normal(size=(3,))
    check(exercise.gradient_of_mean(x, grad), slopes(lambda x: x.mean(axis=1), x, grad), "x")


def test_difference_with_broadcasting(exercise: ModuleType) -> None:
    a, b, grad = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 1)), RNG.normal(size=(3, 4))
    of_a, of_b = exercise.gradients_of_difference(a, b, grad)
    check(of_a, slopes(lambda a: a - b, a, grad), "a")
    check(of_b, slopes(lambda b: a - b, b, grad), "b")
