"""Test of the exercise of chapter 14: joined parts are the whole."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

State = tuple[float, float, Any]


def seen(scores: Any, values: Any) -> State:
    """Returns m, l and o of some keys."""
    if len(scores) == 0:
        return -np.inf, 0.0, np.zeros(values.shape[1])
    weights = np.exp(scores - scores.max())
    return float(scores.max()), float(weights.sum()), weights @ values


def check_same(found: State, expected: State) -> None:
    """Compares what the weighted mean is made of."""
    assert found[0] == expected[0], "m is the largest score of both"
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, err_msg="l")
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-12, err_msg="o")


@pytest.mark.parametrize("cuts", [(5,), (3, 7), (1, 2, 3), (0, 4), (9,)])
def test_parts_are_joined(exercise: ModuleType, cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    scores, values = 3 * rng.standard_normal(9), rng.standard_normal((9, 4))
    parts = [seen(s, x) for s, x in zip(np.split(scores, cuts), np.split(values, cuts))]
    check_same(functools.reduce(exercise.join, parts), seen(scores, values))


def test_large_scores_do_not_overflow(exercise: ModuleType) -> None:
    scores, values = np.array([1000.0, -1000.0, 1001.0]), np.eye(3)
    check_same(exercise.join(seen(scores[:2], values[:2]), seen(scores[2:], values[2:])), seen(scores, values))


def test_two_workers_without_keys(exercise: ModuleType) -> None:
    nothing = seen(np.zeros(0), np.zeros((0, 2)))
    found = exercise.join(nothing, nothing)
    assert found[:2] == (-np.inf, 0.0), "no key was seen: l is 0, not nan"
    assert np.array_equal(found[2], np.zeros(2)), f"no key was seen: o is 0, not {found[2]}"
