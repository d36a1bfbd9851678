"""Rotary positions: each pair of features turns by an angle that grows with the position, so products see distances alone.

Source: Su et al. 2021, arXiv:2104.09864, eq. 15 and 34.

Letters: B batch, H heads, T positions, D features of a head.
"""

from __future__ import annotations

import numpy as np

from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_file import Array


def angles(features: int, length: int, base: float, slower: Array | float = 1.0) -> tuple[Tensor, Tensor]:
    """Returns cosine and sine of the angle of each pair at each position, (length, D/2) each.

    angle = position * base^(-2i/D) / slower

    Args:
      slower:  (D/2,) or one number
    """
    speeds = base ** (-np.arange(0, features, 2) / features) / slower
    turns = np.arange(length)[:, None] * speeds
    return Tensor(np.cos(turns).astype(np.float32)), Tensor(np.sin(turns).astype(np.float32))


def turned(x_BHTD: Tensor, cos: Tensor, sin: Tensor, pairs_are_halves: bool) -> Tensor:
    """Turns each pair (a, b) of features by its angle: (a cos - b sin, a sin + b cos).

    >>> turned(Tensor([[[[1.0, 0.0]]]]), Tensor([[0.0]]), Tensor([[1.0]]), False).tolist()
    [[[[0.0, 1.0]]]]
    """
    batch, heads, length, features = x_BHTD.shape
    inner = (2, features // 2) if pairs_are_halves else (features // 2, 2)
    axis = 3 if pairs_are_halves else 4
    a, b = x_BHTD.reshape(batch, heads, length, *inner).unbind(axis)
    return Tensor.stack([a * cos - b * sin, a * sin + b * cos], axis).reshape(batch, heads, length, features)
