"""Pictures made smaller without aliasing: each new element is a mean of all old ones in its area.

In:    lengths, a factor, the kernel of linear or cubic interpolation
Out:   `smoothing_weights`: a matrix for one axis; `cubic_near`, `cubic_far`: the cubic kernel
Next:  picograd/nn/functions/grids.py

Where an axis becomes `scale` times shorter the kernel becomes as many times wider; where it becomes longer it is as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
CUBIC = -0.5  # the slope of the cubic kernel at 1: Keys 1981, a of eq. 4 for third order; Pillow's and PyTorch's


def smoothing_weights(length: int, count: int, factor: float | None, align_corners: bool, mode: str) -> Array:
    """Returns (count, length): the share that each old element has in each new one; rows add up to 1.

    Source: ATen/native/cpu/UpSampleKernel.cpp of PyTorch, _compute_indices_min_size_weights_aa.
    """
    if align_corners:
        scale = (length - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = 1.0 / factor if factor is not None else length / count
    reach = (2.0 if mode == "bicubic" else 1.0) * max(scale, 1.0)
    center = scale * (np.arange(count) + 0.5)[:, None]
    place = np.arange(length)[None, :]
    first = np.maximum(np.trunc(center - reach + 0.5), 0)
    last = np.minimum(np.trunc(center + reach + 0.5), length)
    distance = np.abs(place - center + 0.5) / max(scale, 1.0)
    weights = np.where((first <= place) & (place < last), _kernel(distance, mode), 0.0)
    total = weights.sum(1, keepdims=True)
    shares: Array = weights / np.where(total == 0.0, 1.0, total)
    return shares


def _kernel(distance: Array, mode: str) -> Array:
    if mode != "bicubic":
        return np.maximum(1.0 - distance, 0.0)
    near, far = cubic_near(distance, CUBIC), cubic_far(distance, CUBIC)
    return np.where(distance < 1.0, near, np.where(distance < 2.0, far, 0.0))


def cubic_near(x: Any, a: float) -> Any:
    """Returns the weight of an element at a distance x (Op or array) of at most 1. Source: Keys 1981, eq. 4."""
    return (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0


def cubic_far(x: Any, a: float) -> Any:
    """Returns the weight of an element at a distance x (Op or array) from 1 to 2."""
    return ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
