"""Exercise 2: three gradients of arrays. `grad` is the gradient of the result, in the shape of the result.

Test it:  python -m pytest docs/course/exercises/test_02_tensor.py
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def gradients_of_product(x: Array, w: Array, grad: Array) -> tuple[Array, Array]:
    """The gradients of x and w, for y = x @ w.

    x:     (B, N, K)  a stack of B matrices
    w:     (K, M)     one matrix, which all of them are multiplied by
    grad:  (B, N, M)
    """
    raise NotImplementedError("gap 1: w is read B times; np.swapaxes(x, 1, 2) transposes each matrix of a stack")


def gradient_of_mean(x: Array, grad: Array) -> Array:
    """The gradient of x, for y = x.mean(axis=1).

    x:     (N, K)
    grad:  (N,)
    """
    raise NotImplementedError("gap 2: each element of a row has the same slope; which?")


def gradients_of_difference(a: Array, b: Array, grad: Array) -> tuple[Array, Array]:
    """The gradients of a and b, for y = a - b.

    a:     (N, K)
    b:     (N, 1)  read again for each column
    grad:  (N, K)
    """
    raise NotImplementedError("gap 3: a minus sign, and a repetition")
