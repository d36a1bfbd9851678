"""A solution of exercise 8."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def nesterov(p: Array, grad: Array, velocity: Array, lr: float, beta: float) -> None:
    """In place, so that the caller's velocity is the new one at the next step."""
    velocity *= beta
    velocity += grad
    p -= lr * (grad + beta * velocity)


def adamw(p: Array, grad: Array, m: Array, v: Array, t: int, lr: float, decay: float) -> None:
    """Decay, averages, correction, step."""
    p -= lr * decay * p
    m += 0.1 * (grad - m)
    v += 0.001 * (grad**2 - v)
    p -= lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def clip(grads: list[Array], limit: float) -> float:
    """One factor for all keeps the direction."""
    length = float(np.sqrt(sum((grad**2).sum() for grad in grads)))
    if length > limit:
        for grad in grads:
            grad *= limit / length
    return length
