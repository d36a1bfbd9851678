"""Means of windows, at given steps or of as many bins as asked for, and their power means.

In:    tensors
Out:   tensors
Next:  picograd/nn/functions/slide.py

A sum over windows is a convolution with ones, each channel an image of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.build import compare, expand, gather, iota, maximum, minimum, reduce, reshape, where
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg, numel
from picograd.nn.functions.placement import (
    Bins,
    Each,
    Windows,
    bins_of,
    each_axis,
    end_of_bin,
    pooling_windows,
    start_of_bin,
    widest_bin,
    with_batch,
    without_batch,
)
from picograd.tensor.build import cast, need_float, static, whole
from picograd.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d",
]  # fmt: skip


def avg_pool1d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, ceil_mode: bool = False,  # noqa: A002
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Returns the mean of each window; see `avg_pool2d`.

    Args:
      input:  (N, C, L) or (C, L)
      kernel_size, stride, padding, ceil_mode, count_include_pad: as in `avg_pool2d`

    >>> avg_pool1d(Tensor([[1.0, 3.0, 2.0, 5.0]]), 2)
    Tensor([[2. , 3.5]])
    """
    return _avg_pool("avg_pool1d", 1, input, (kernel_size, stride, padding), ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, ceil_mode: bool = False,  # noqa: A002
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Returns the mean of each window.

    out[n, c, i, j] = 1 / count * sum over k, l of input[n, c, i s + k - p, j s + l - p]

    Args:
      input:              (N, C, H, W) or (C, H, W)  float
      kernel_size:        K, elements of a window
      stride:             s, steps between windows; None: kernel_size
      padding:            p, zeros around input, at most half of kernel_size
      ceil_mode:          also a window that is cut off at the end
      count_include_pad:  the zeros of padding count
      divisor_override:   what each sum is divided by; None: by count

    Returns:   (N, C, H', W') with H' = (H + 2 p - K) // s + 1

    Raises:
      ShapeError:    input has another number of axes, or no window fits.
      DTypeError:    input is no float.
      ArgumentError: an argument is no number that fits.

    >>> avg_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), 2)
    Tensor([[[2.5]]])
    """
    numbers = (kernel_size, stride, padding)
    return _avg_pool("avg_pool2d", 2, input, numbers, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, ceil_mode: bool = False,  # noqa: A002
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Returns the mean of each window; see `avg_pool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: as in `avg_pool2d`

    >>> avg_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    numbers = (kernel_size, stride, padding)
    return _avg_pool("avg_pool3d", 3, input, numbers, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool1d(input: Tensor, output_size: Bins) -> Tensor:  # noqa: A002
    """Returns the means of output_size bins; see `adaptive_avg_pool2d`.

    Args:
      input:        (N, C, L) or (C, L)
      output_size:  bins

    >>> adaptive_avg_pool1d(Tensor([[1.0, 3.0, 2.0, 5.0]]), 2)
    Tensor([[2. , 3.5]])
    """
    return _adaptive("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Bins) -> Tensor:  # noqa: A002
    """Returns the mean of each of output_size bins, of which bin i is floor(i H / H') .. ceil((i + 1) H / H').

    Args:
      input:        (N, C, H, W) or (C, H, W)  float
      output_size:  H', or (H', W'); None for an axis: its length

    Returns:   (N, C, H', W')

    Raises:
      ShapeError:    input has another number of axes, or an empty one.
      DTypeError:    input is no float.
      ArgumentError: output_size is no number that fits.

    >>> adaptive_avg_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), (1, 2))
    Tensor([[[2.5, 2.5]]])
    """
    return _adaptive("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Bins) -> Tensor:  # noqa: A002
    """Returns the means of output_size bins; see `adaptive_avg_pool2d`.

    Args:
      input:        (N, C, D, H, W) or (C, D, H, W)
      output_size:  bins of each axis

    >>> adaptive_avg_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _adaptive("adaptive_avg_pool3d", 3, input, output_size)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False,  # noqa: A002
) -> Tensor:  # fmt: skip
    """Returns the p-norm of each window; see `lp_pool2d`.

    Args:
      input:  (N, C, L) or (C, L)
      norm_type, kernel_size, stride, ceil_mode: as in `lp_pool2d`

    >>> lp_pool1d(Tensor([[3.0, 4.0]]), 2, 2)
    Tensor([[5.]])
    """
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False,  # noqa: A002
) -> Tensor:  # fmt: skip
    """Returns the p-norm of each window: (sum of x ** p) ** (1 / p), whose gradient at a sum of 0 is 0.

    Args:
      input:        (N, C, H, W) or (C, H, W)  float
      norm_type:    p
      kernel_size:  elements of a window
      stride:       steps between windows; None: kernel_size
      ceil_mode:    also a window that is cut off at the end

    Returns:   (N, C, H', W')

    >>> lp_pool2d(Tensor([[[3.0, 0.0], [0.0, 4.0]]]), 2, 2)
    Tensor([[[5.]]])
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False,  # noqa: A002
) -> Tensor:  # fmt: skip
    """Returns the p-norm of each window; see `lp_pool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      norm_type, kernel_size, stride, ceil_mode: as in `lp_pool2d`

    >>> lp_pool3d(Tensor.ones(1, 1, 2, 2, 2), 3, 2)
    Tensor([[[[[2.]]]]])
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


# ---- the work ----
def _avg_pool(
    function: str, axes: int, x: Tensor, numbers: Sequence[Each | None], ceil_mode: bool, count_include_pad: bool,
    divisor: int | None,
) -> Tensor:  # fmt: skip
    """Returns the means of windows of these numbers: kernel_size, stride and padding."""
    op, has_batch = with_batch(function, x, axes)
    need_float(function, op, "input")
    windows = pooling_windows(function, op, (*numbers, 1), ceil_mode)
    if divisor is not None and whole(function, "divisor_override", divisor) == 0:
        raise ArgumentError(f"{function}: divisor_override must not be 0.")
    wide = cast(op, op.dtype.compute_dtype)
    if divisor is not None:
        mean = sum_of_windows(wide, windows) / float(divisor)
    else:
        mean = mean_of_windows(wide, windows, count_include_pad)
    return x.from_op(without_batch(cast(mean, op.dtype), has_batch), x.cell.device)


def mean_of_windows(x: Op, windows: Windows, include_pad: bool) -> Op:
    """Returns the mean of each window of (N, C, *spatial): of what it sees of x, with include_pad of the padding too."""
    total = sum_of_windows(x, windows)
    counts = [_elements(axis, static(n), windows, include_pad) for axis, n in enumerate(x.shape[2:])]
    divisor = filled(float(prod(n for n in counts if isinstance(n, int))), total.dtype, total.shape)
    for axis, count in enumerate(counts):
        if isinstance(count, Op):
            divisor = divisor * _repeated(cast(count, total.dtype), total.shape, 2 + axis)
    return total / divisor


def sum_of_windows(x: Op, windows: Windows) -> Op:
    """Returns the sum of each window of (N, C, *spatial)."""
    images, (kernel, counts) = x.shape[:2], (windows.kernel, windows.counts)
    margins, ones = windows.margins(x.shape[2:]), (1,) * len(kernel)
    side_by_side = kernel == windows.strides and windows.steps == ones and not any(map(any, margins))
    if side_by_side and [k * c for k, c in zip(kernel, counts)] == [*x.shape[2:]]:
        split = tuple(n for pair in zip(counts, kernel) for n in pair)
        return reduce(reshape(x, (*images, *split)), OpCode.ADD, tuple(range(3, 3 + 2 * len(kernel), 2)))
    planes = reshape(x, (numel(images), 1, *x.shape[2:]))
    weight = filled(1.0, x.dtype, (1, 1, *kernel))
    arg = ConvArg(windows.strides, margins, windows.steps, ones)
    return reshape(Op(OpCode.CONV, x.dtype, (planes, weight), arg), (*images, *counts))


def _elements(axis: int, length: int, windows: Windows, include_pad: bool) -> Op | int:
    """Returns (counts,) int64: how many elements each window has along an axis; beyond the padding there are none.

    A number where all have as many.
    """
    kernel, step, before, after = (n[axis] for n in (windows.kernel, windows.steps, windows.before, windows.after))
    low, high = (-before, length + after) if include_pad else (0, length)
    last = (windows.counts[axis] - 1) * windows.strides[axis] - before + (kernel - 1) * step
    if low == -before and last < high:
        return kernel
    starts = iota(windows.counts[axis]) * windows.strides[axis] - before
    first, end = (_ceil_div(starts.filled(bound) - starts, step) for bound in (low, high))
    return minimum(end, kernel) - maximum(first, 0)


def _ceil_div(x: Op, divisor: int) -> Op:
    return x if divisor == 1 else Op(OpCode.IDIV, x.dtype, (x + (divisor - 1), x.filled(divisor)))


def _repeated(op: Op, shape: Shape, axis: int) -> Op:
    return expand(reshape(op, tuple(n if i == axis else 1 for i, n in enumerate(shape))), shape)


def _adaptive(function: str, axes: int, x: Tensor, output_size: Bins) -> Tensor:
    """The mean over a box of bins is the mean of means along each axis."""
    op, has_batch = with_batch(function, x, axes)
    need_float(function, op, "input")
    counts = bins_of(function, op, output_size, axes)
    result = cast(op, op.dtype.compute_dtype)
    for axis, count in enumerate(counts):
        result = _mean_of_bins(result, 2 + axis, count)
    return x.from_op(without_batch(cast(result, op.dtype), has_batch), x.cell.device)


def _mean_of_bins(x: Op, axis: int, count: int) -> Op:
    """Returns the means of `count` bins of an axis, which differ by an element where count does not divide its length."""
    length = static(x.shape[axis])
    left, right = x.shape[:axis], x.shape[axis + 1 :]
    if count and length % count == 0:
        bins = reshape(x, (*left, count, length // count, *right))
        return reduce(bins, OpCode.ADD, (axis + 1,)) / float(length // count)
    width = widest_bin(length, count)
    shape = (count, width)
    number = expand(reshape(iota(count), (count, 1)), shape)
    starts, ends = start_of_bin(number, length, count), end_of_bin(number, length, count)
    at = starts + expand(reshape(iota(width), (1, width)), shape)
    inside = compare(OpCode.CMPLT, at, ends)
    taken = gather(x, where(inside, at, -1), axis, 0)  # which outside of x is 0
    total = reduce(taken, OpCode.ADD, (axis + 1,))
    elements = reduce(cast(inside, dtypes.int64), OpCode.ADD, (1,)) if width else filled(1, dtypes.int64, (count,))
    return total / _repeated(cast(elements, x.dtype), total.shape, axis)


def _lp_pool(
    function: str, axes: int, x: Tensor, p: float, kernel_size: Each, stride: Each | None, ceil_mode: bool
) -> Tensor:
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    if p == 0:
        raise ArgumentError(f"{function}: norm_type must not be 0.")
    mean = _avg_pool(function, axes, x.pow(p), (kernel, stride, 0), ceil_mode, True, None)
    total = mean.sign() * mean.abs().relu() * float(prod(kernel))
    return total.pow(1.0 / p)
