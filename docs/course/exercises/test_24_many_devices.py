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
    assert len(parts) == n, f"{n} devices have {n} parts, not {len(parts)}"
    assert [a.size + b.size for a, b in parts] == [(w1.size + w2.size) // n] * n, "each device has an n-th of the weights"
    shapes = [(a.shape, b.shape) for a, b in parts]
    fits = all(a[0] == 4 and b == a[::-1] for a, b in shapes)
    assert fits, f"x has 4 columns, so each part of w1 has 4 rows; the parts have shapes {shapes}"
    total, wanted = sum(exercise.compute(x, part) for part in parts), np.maximum(x @ w1, 0) @ w2
    np.testing.assert_allclose(total, wanted, rtol=1e-9, atol=1e-12, err_msg=f"the sum over {n} devices is another")
