"""Maxima of windows whose places are drawn: fractional max pooling.

In:    tensors
Out:   tensors, or with return_indices a pair: values, and where each stands in its image (int64, row-major)
Next:  picograd/nn/functions/means.py

Source: Graham 2014, arXiv:1412.6071, section 2 (pseudorandom, overlapping).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.maxima import Pooled
from picograd.nn.functions.placement import Each, each_axis, with_batch
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]


def fractional_max_pool2d(
    input: Tensor, kernel_size: Each, output_size: Each | None = None,  # noqa: A002
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:  # fmt: skip
    """Returns the greatest element of each of output_size windows, which begin at drawn places in equal steps.

    window i begins at floor((i + u) a) - floor(u a), with a = (H - K) / (H' - 1) and u drawn from [0, 1); the last at H - K

    Args:
      input:            (N, C, H, W) or (C, H, W)
      kernel_size:      K, elements of a window
      output_size:      H', or (H', W')
      output_ratio:     in place of it, as parts of (H, W), between 0 and 1
      return_indices:   also where each maximum stands in its image, int64
      _random_samples:  (N, C, 2) u of each axis, the last axis first; None: they are drawn

    Returns:   (N, C, H', W'), or a pair

    Raises:
      ShapeError:    input has another number of axes, or H' + K - 1 is more than H.
      ArgumentError: not just one of output_size and output_ratio is given, or a ratio is not between 0 and 1.

    >>> fractional_max_pool2d(Tensor.ones(1, 6, 6), 2, output_size=3).shape
    (1, 3, 3)
    """
    sizes = (kernel_size, output_size, output_ratio)
    return _pool("fractional_max_pool2d", 2, input, sizes, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Tensor, kernel_size: Each, output_size: Each | None = None,  # noqa: A002
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:  # fmt: skip
    """Returns the greatest element of each of output_size windows; see `fractional_max_pool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      kernel_size, output_size, output_ratio, return_indices: as in `fractional_max_pool2d`
      _random_samples:  (N, C, 3) u of each axis, the first axis first; None: they are drawn

    >>> fractional_max_pool3d(Tensor.ones(1, 6, 6, 6), 2, output_ratio=0.5).shape
    (1, 3, 3, 3)
    """
    sizes = (kernel_size, output_size, output_ratio)
    return _pool("fractional_max_pool3d", 3, input, sizes, return_indices, _random_samples)


def check_sizes(function: str, output_size: Any, output_ratio: Any) -> None:
    """Raises an ArgumentError unless just one of both is given, and ratios are between 0 and 1."""
    if (output_size is None) == (output_ratio is None):
        given = f"{output_size} and {output_ratio}"
        raise ArgumentError(f"{function}: give just one of output_size and output_ratio, got {given}.")
    ratios = output_ratio if isinstance(output_ratio, (list, tuple)) else [output_ratio]
    if output_ratio is not None and not all(0 < ratio < 1 for ratio in ratios):
        raise ArgumentError(f"{function}: output_ratio must be between 0 and 1, got {output_ratio}.")


def _pool(
    function: str, axes: int, x: Tensor, sizes: tuple[Each, Each | None, Any], return_indices: bool, samples: Tensor | None
) -> Pooled:
    """Returns the greatest element of each window, and where it is: windows begin where `samples` say, in [0, 1)."""
    kernel_size, output_size, ratio = sizes
    check_sizes(function, output_size, ratio)
    op, has_batch = with_batch(function, x, axes)
    image = Tensor.from_op(op, x.cell.device).flatten(2)
    batch, channels, lengths = image.shape[0], static(op.shape[1]), [static(length) for length in op.shape[2:]]
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    if output_size is None:
        ratios = list(ratio) if isinstance(ratio, (list, tuple)) else [ratio] * axes
        output_size = [int(length * part) for length, part in zip(lengths, ratios)]
    counts = each_axis(function, "output_size", output_size, axes, 1)
    for length, taps, count in zip(lengths, kernel, counts):
        if count + taps - 1 > length:
            raise ShapeError(f"{function}: {count} windows of {taps} elements do not fit in {length} of input {x.shape}.")
    if samples is None:
        samples = Tensor.rand(batch, channels, axes, dtype=x.dtype, device=x.device)
    index: Any = 0
    for axis, (length, taps, count) in enumerate(zip(lengths, kernel, counts)):
        drawn = samples[:, :, axis if axes == 3 else 1 - axis]  # in PyTorch's order
        starts = _starts(drawn, length, taps, count)  # (N, C, windows)
        places = starts.unsqueeze(-1) + Tensor.arange(taps, device=x.device)  # (N, C, windows, taps)
        spread = [batch, channels, *(1,) * (2 * axes)]
        spread[2 + axis], spread[2 + axes + axis] = count, taps
        index = index * length + places.reshape(spread)
    flat = index.reshape(batch, channels, math.prod(counts), math.prod(kernel))
    taken = image.gather(2, flat.flatten(2)).reshape(flat.shape)
    where = taken.detach().argmax(-1, keepdim=True)  # of equal ones the first, NaN before all
    shape = (batch, channels, *counts) if has_batch else (channels, *counts)
    values, found = (part.gather(-1, where).reshape(shape) for part in (taken, flat))
    return (values, found) if return_indices else values


def _starts(samples: Tensor, length: int, taps: int, count: int) -> Tensor:
    """Returns where the windows of one axis begin: (N, C) -> (N, C, count)."""
    last = Tensor.full((*samples.shape, 1), length - taps, dtype=dtypes.int64, device=samples.device)
    if count == 1:
        return last
    step = (length - taps) / (count - 1)
    u = samples.detach().unsqueeze(-1)
    rising = ((u + Tensor.arange(count - 1, device=samples.device)) * step).long() - (u * step).long()
    return Tensor.cat([rising, last], -1)
