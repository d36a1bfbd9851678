"""A solution of exercise 2."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def gradients_of_product(x: Array, w: Array, grad: Array) -> tuple[Array, Array]:
    """(B, N, M) @ (M, K) for x; for w the sum over the stack of (K, N) @ (N, M)."""
    return grad @ w.T, (np.swapaxes(x, 1, 2) @ grad).sum(axis=0)


def gradient_of_mean(x: Array, grad: Array) -> Array:
    """Each element counts 1 / K."""
    return np.repeat(grad[:, None] / x.shape[1], x.shape[1], axis=1)


def gradients_of_difference(a: Array, b: Array, grad: Array) -> tuple[Array, Array]:
    """The gradient of a repetition is a sum."""
    return grad, -grad.sum(axis=1, keepdims=True)
