"""Tests of exercise 8: ten steps beside picograd's optimizers, on the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import picograd as pg

GRADS = np.random.default_rng(0).normal(size=(10, 5)) * [1, 10, 0.1, 1, 1]
START = np.array([1.0, -2.0, 3.0, 0.5, 100.0])


def by_picograd(make: Callable[[list[Any]], Any]) -> np.ndarray:
    """The parameters after ten steps."""
    p = pg.tensor(START.tolist(), dtype=pg.float64, requires_grad=True)
    optimizer = make([p])
    for grad in GRADS:
        p.grad = pg.tensor(grad.tolist(), dtype=pg.float64)
        optimizer.step()
    return np.array(p.tolist())


def test_nesterov(exercise: ModuleType) -> None:
    p, velocity = START.copy(), np.zeros(5)
    for grad in GRADS:
        exercise.nesterov(p, grad, velocity, lr=0.1, beta=0.9)
    wanted = by_picograd(lambda p: pg.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))
    assert velocity.any(), "the velocity is still zero: was a new array made?"
    np.testing.assert_allclose(p, wanted, rtol=1e-12, err_msg="ten steps end elsewhere: is the new velocity used?")


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(exercise: ModuleType, decay: float) -> None:
    p, m, v = START.copy(), np.zeros(5), np.zeros(5)
    for t, grad in enumerate(GRADS, 1):
        exercise.adamw(p, grad, m, v, t, lr=0.01, decay=decay)
    wanted = by_picograd(lambda p: pg.optim.AdamW(p, lr=0.01, weight_decay=decay))
    np.testing.assert_allclose(p, wanted, rtol=1e-12, err_msg=f"ten steps with a decay of {decay} end elsewhere")


@pytest.mark.parametrize("limit", [1.0, 100.0])
def test_clip(exercise: ModuleType, limit: float) -> None:
    grads = [np.array([3.0, 0.0]), np.array([[4.0]])]
    length = exercise.clip(grads, limit)
    assert length == pytest.approx(5.0), f"(3, 0) and (4) are 5 long together, before they are scaled; got {length}"
    factor = min(1.0, limit / 5.0)
    for grad, wanted in zip(grads, ([3.0 * factor, 0.0], [[4.0 * factor]])):
        np.testing.assert_allclose(grad, wanted, err_msg=f"5 is to become at most {limit}: every number times {factor}")
