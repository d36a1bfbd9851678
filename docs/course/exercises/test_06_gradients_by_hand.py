"""Tests of exercise 6: gradients against slopes, from the loss backwards. The first that fails is next to a mistake."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

N, D, C = 6, 6, 4  # N = D: even a sum along the wrong axis has a shape that fits
RNG = np.random.default_rng(0)
SHAPES = {"b2": (C,), "w2": (D, C), "scale": (D,), "b1": (D,), "w1": (D, D)}
PARAMETERS = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}
X, TARGETS = RNG.normal(size=(N, D)), RNG.integers(0, C, N)


def slopes(exercise: ModuleType, name: str) -> np.ndarray:
    """How much the loss grows with each number of a parameter."""
    found = np.zeros(SHAPES[name])
    for place in np.ndindex(found.shape):
        step = np.zeros_like(found)
        step[place] = 1e-5
        more, less = (
            exercise.forward({**PARAMETERS, name: PARAMETERS[name] + sign * step}, X, TARGETS)[0] for sign in (1, -1)
        )
        found[place] = (more - less) / 2e-5
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_gradient(exercise: ModuleType, name: str) -> None:
    wanted, found = slopes(exercise, name), exercise.backward(PARAMETERS, X, TARGETS)[name]
    assert found.shape == wanted.shape, f"{name} has shape {wanted.shape}, its gradient {found.shape}"
    ratio = (found * wanted).sum() / (wanted * wanted).sum()
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    is_factor = np.allclose(found, ratio * wanted)
    kind = f"it is {ratio:.4g} times what it should be" if is_factor else "it points elsewhere, not just too far"
    assert error < 1e-6, f"the gradient of {name} is off by {error:.2f} of its length: {kind}"
