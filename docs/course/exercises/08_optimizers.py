"""Exercise 8: three functions of a training. Arrays are changed in place: `p -= ...`.

Test it:  python -m pytest docs/course/exercises/test_08_optimizers.py
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def nesterov(p: Array, grad: Array, velocity: Array, lr: float, beta: float) -> None:
    """One step of gradient descent with Nesterov's momentum.

    velocity = beta * velocity + grad
    p -= lr * (grad + beta * velocity)         with the new velocity: a look ahead
    """
    raise NotImplementedError("gap 1: velocity is the caller's array and must change, too")


def adamw(p: Array, grad: Array, m: Array, v: Array, t: int, lr: float, decay: float) -> None:
    """One step of AdamW with betas 0.9 and 0.999 and eps 1e-8; t is 1 in the first step.

    First p shrinks by lr * decay of itself; then comes Adam's step, whose averages do not see the decay.
    """
    raise NotImplementedError("gap 2")


def clip(grads: list[Array], limit: float) -> float:
    """Scales all gradients by one factor so that together they are at most `limit` long; returns how long they were.

    The length of all is the root of the sum of all squares. Gradients that are short enough stay as they are.
    """
    raise NotImplementedError("gap 3")
