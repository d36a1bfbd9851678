"""Rotary positions: each pair of features is rotated by an angle proportional to the position; products see distances only.

Source: Su et al. 2021, arXiv:2104.09864, eq. 15 and 34.

Letters: B batch, H heads, T positions, D features of a head, R rotated ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from picograd.tensor.tensor import Tensor


@dataclass(frozen=True)
class Rotation:
    """The rotation angles of a head's first features: angle = position * base^(-2i/R) / slower_i

    features:   R, number of rotated features; even
    base:       base of the frequencies
    slower:     (R/2,), divisor for each pair; none: 1 for all
    amplitude:  factor of the rotated features
    """

    features: int
    base: float = 10000.0
    slower: tuple[float, ...] = ()
    amplitude: float = 1.0


def angles(rotation: Rotation, length: int) -> tuple[Tensor, Tensor]:
    """Returns cosine and sine of each pair's angle at each position, times the amplitude, (length, R/2) each."""
    speeds = rotation.base ** (-np.arange(0, rotation.features, 2) / rotation.features) / (rotation.slower or 1.0)
    turns, amplitude = np.arange(length)[:, None] * speeds, rotation.amplitude
    return Tensor((np.cos(turns) * amplitude).astype(np.float32)), Tensor((np.sin(turns) * amplitude).astype(np.float32))


def turned(x_BHTD: Tensor, cos: Tensor, sin: Tensor, pairs_are_halves: bool) -> Tensor:
    """Rotates each pair (a, b) of the first R features by its angle: (a cos - b sin, a sin + b cos); the others stay.

    Args:
      cos, sin:  (T, R/2), or (B, T, R/2) if each text has its own positions

    >>> turned(Tensor([[[[1.0, 0.0]]]]), Tensor([[0.0]]), Tensor([[1.0]]), False).tolist()
    [[[[0.0, 1.0]]]]
    """
    batch, heads, length, _ = x_BHTD.shape
    features = 2 * cos.shape[-1]
    cos, sin = (each if each.ndim == 2 else each.unsqueeze(1) for each in (cos, sin))
    inner = (2, features // 2) if pairs_are_halves else (features // 2, 2)
    axis = 3 if pairs_are_halves else 4
    a, b = x_BHTD[..., :features].reshape(batch, heads, length, *inner).unbind(axis)
    out = Tensor.stack([a * cos - b * sin, a * sin + b * cos], axis).reshape(batch, heads, length, features)
    return out if features == x_BHTD.shape[3] else Tensor.cat([out, x_BHTD[..., features:]], 3)
