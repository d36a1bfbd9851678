"""Test of the exercise of chapter 24: parts add up to the whole, and no device has all of a weight."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_parts_add_up(exercise: ModuleType, n: int) -> None:
    rng = np.random.default_rng(0)
    x, w1, w2 = rng.standard_normal((5, 4)), rng.standard_normal((4, 12)), rng.standard_normal((12, 4))
    parts = exercise.share(w1, w2, n)
    assert len(parts) == n
    assert [a.size + b.size for a, b in parts] == [(w1.size + w2.size) // n] * n, "each device has an n-th of the weights"
    total = sum(exercise.compute(x, part) for part in parts)
    np.testing.assert_allclose(total, np.maximum(x @ w1, 0) @ w2, rtol=1e-9, atol=1e-12)
