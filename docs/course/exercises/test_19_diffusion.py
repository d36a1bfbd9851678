"""Test of the exercise of chapter 19: with a network that is always right the sampler arrives at the data."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def test_the_schedule(exercise: ModuleType) -> None:
    a = exercise.cosine_schedule(9)
    assert a.shape == (9,), f"9 steps have 9 numbers; the shape is {a.shape}"
    some = [np.cos(np.pi / 20) ** 2, 0.5, np.cos(np.pi * 9 / 20) ** 2]
    np.testing.assert_allclose(a[[0, 4, 8]], some, err_msg="the first, the middle and the last of nine")
    assert (np.diff(a) < 0).all(), "each step has less data than the one before"


def test_the_sampler_arrives_at_the_data(exercise: ModuleType) -> None:
    rng = np.random.default_rng(0)
    data, noise = rng.standard_normal((2, 6, 2))
    a = exercise.cosine_schedule(20)
    x = np.sqrt(a[-1]) * data + np.sqrt(1 - a[-1]) * noise
    for t in reversed(range(20)):
        right = (x - np.sqrt(a[t]) * data) / np.sqrt(1 - a[t])
        before = a[t - 1] if t else 1.0
        x = exercise.back(x, right, a[t], before)
        np.testing.assert_allclose(x, np.sqrt(before) * data + np.sqrt(1 - before) * noise, err_msg=f"step {t}")
    np.testing.assert_allclose(x, data, err_msg="after the last step")
