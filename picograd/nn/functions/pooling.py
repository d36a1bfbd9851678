"""Pooling: maxima, means and p-norms of windows, which have fixed steps, a fixed number, or random positions.

For each maximum its index is found first; the value is then read there. So a gradient goes to one element per window, the
first of equal ones, and costs as much as there are windows. Indices are positions in an image, int64 and row-major.
A sum over windows is a convolution with ones; each channel is an image of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import (
    both,
    cast,
    differs,
    equal,
    expand,
    floordiv,
    gather,
    iota,
    less,
    less_equal,
    maximum,
    minimum,
    mod,
    number_like,
    pad,
    positions,
    reduce,
    repeat_along,
    repeat_axes,
    reshape,
    scatter,
    shrink,
    where,
)
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg, numel, of_numbers
from picograd.ir.symbolic import add, bounds, mul, subtract
from picograd.ir.symbolic import floordiv as quotient
from picograd.ir.symbolic import mod as remainder
from picograd.nn.functions.windows import (
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
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import detached, need_float, static, whole
from picograd.tensor.formulas import of_tensors
from picograd.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
    "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


# ---- maxima ----
Pooled = Any  # a tensor, or with return_indices a pair; Any, so that type checkers accept either use


def max_pool1d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,  # noqa: A002
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """Returns the largest element of each window; see `max_pool2d`.

    Args:
      input:  (N, C, L) or (C, L)
      kernel_size, stride, padding, dilation, ceil_mode, return_indices: as in `max_pool2d`

    >>> max_pool1d(Tensor([[1.0, 3.0, 2.0, 5.0]]), 2)
    Tensor([[3., 5.]])
    """
    return _max_pool("max_pool1d", 1, input, (kernel_size, stride, padding, dilation), ceil_mode, return_indices)


def max_pool2d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,  # noqa: A002
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """Returns the largest element of each window; the gradient goes to the first of equal ones, and NaN is the largest.

    out[n, c, i, j] = max over k, l inside of input[n, c, i s + k d - p, j s + l d - p]

    Args:
      input:           (N, C, H, W) or (C, H, W)
      kernel_size:     K, elements of a window
      stride:          s, elements between windows; None: kernel_size
      padding:         p on each side, at most half of kernel_size
      dilation:        d, elements between the elements of a window
      ceil_mode:       add a window that is cut off at the end
      return_indices:  return also the index of each maximum in its image, int64

    Returns:   (N, C, H', W') with H' = (H + 2 p - d (K - 1) - 1) // s + 1, or a pair

    Raises:
      ShapeError:    input has the wrong number of axes, an axis other than the batch is empty, or no window fits.
      ArgumentError: an argument is not a number in its range.

    >>> max_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), 2)
    Tensor([[[4.]]])
    """
    return _max_pool("max_pool2d", 2, input, (kernel_size, stride, padding, dilation), ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,  # noqa: A002
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """Returns the largest element of each window; see `max_pool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      kernel_size, stride, padding, dilation, ceil_mode, return_indices: as in `max_pool2d`

    >>> max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _max_pool("max_pool3d", 3, input, (kernel_size, stride, padding, dilation), ceil_mode, return_indices)


def adaptive_max_pool1d(input: Tensor, output_size: Bins, return_indices: bool = False) -> Pooled:  # noqa: A002
    """Returns the largest elements of output_size bins; see `adaptive_max_pool2d`.

    Args:
      input:           (N, C, L) or (C, L)
      output_size:     number of bins
      return_indices:  return also the index of each maximum

    >>> adaptive_max_pool1d(Tensor([[1.0, 3.0, 2.0, 5.0, 4.0]]), 2)
    Tensor([[3., 5.]])
    """
    return _adaptive_max_pool("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Bins, return_indices: bool = False) -> Pooled:  # noqa: A002
    """Returns the largest element of each of output_size bins; bin i is floor(i H / H') .. ceil((i + 1) H / H').

    Args:
      input:           (N, C, H, W) or (C, H, W)
      output_size:     H', or (H', W'); None for an axis: its length
      return_indices:  return also the index of each maximum in its image, int64

    Returns:   (N, C, H', W'), or a pair

    Raises:
      ShapeError:    input has the wrong number of axes, or an empty one.
      ArgumentError: output_size is not a number in its range.

    >>> adaptive_max_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), (1, 2))
    Tensor([[[4., 3.]]])
    """
    return _adaptive_max_pool("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Bins, return_indices: bool = False) -> Pooled:  # noqa: A002
    """Returns the largest elements of output_size bins; see `adaptive_max_pool2d`.

    Args:
      input:           (N, C, D, H, W) or (C, D, H, W)
      output_size:     number of bins along each axis
      return_indices:  return also the index of each maximum

    >>> adaptive_max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _adaptive_max_pool("adaptive_max_pool3d", 3, input, output_size, return_indices)


# ---- maxima with their places, under names of their own ----
def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """Returns max_poolNd with return_indices=True, under PyTorch's name for it."""

    @functools.wraps(pool)
    def pooled(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **{**kwargs, "return_indices": True})

    pooled.__name__ = pooled.__qualname__ = f"{pool.__name__}_with_indices"
    rest = (pool.__doc__ or "").partition("\n")[2]
    pooled.__doc__ = f"Returns the values and the indices of {pool.__name__}(..., return_indices=True).\n{rest}"
    return pooled


max_pool1d_with_indices, max_pool2d_with_indices = _with_indices(max_pool1d), _with_indices(max_pool2d)
max_pool3d_with_indices, adaptive_max_pool1d_with_indices = _with_indices(max_pool3d), _with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d)


# ---- back from maxima ----
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0,  # noqa: A002
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of input at the positions that max_pool1d returned; see `max_unpool2d`.

    Args:
      input:  (N, C, L) or (C, L)
      indices, kernel_size, stride, padding, output_size: as in `max_unpool2d`

    >>> max_unpool1d(Tensor([[3.0, 5.0]]), Tensor([[1, 3]]), 2)
    Tensor([[0., 3., 0., 5.]])
    """
    return _unpool("max_unpool1d", 1, input, indices, (kernel_size, stride, padding), output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0,  # noqa: A002
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of input at the positions that max_pool2d returned.

    Args:
      input:        (N, C, H, W) or (C, H, W)
      indices:      of input's shape: the indices of max_pool2d(..., return_indices=True)
      kernel_size:  K of that call
      stride:       s of that call
      padding:      p of that call
      output_size:  (H', W'), or the whole shape; None: (H - 1) s - 2 p + K

    Returns:   (N, C, H', W')

    Raises:
      ShapeError:    the shapes of indices and input differ.
      ArgumentError: an argument is not a number in its range.
      IndexingError: when the result is computed: an index is outside the image.

    >>> max_unpool2d(Tensor([[[4.0]]]), Tensor([[[2]]]), 2)
    Tensor([[[0., 0.],
             [4., 0.]]])
    """
    return _unpool("max_unpool2d", 2, input, indices, (kernel_size, stride, padding), output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0,  # noqa: A002
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of input at the positions that max_pool3d returned; see `max_unpool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      indices, kernel_size, stride, padding, output_size: as in `max_unpool2d`

    >>> max_unpool3d(Tensor.ones(1, 1, 1, 1, 1), Tensor([[[[[7]]]]]), 2).sum().item()
    1.0
    """
    return _unpool("max_unpool3d", 3, input, indices, (kernel_size, stride, padding), output_size)


# ---- how maxima are found ----
def _max_pool(
    function: str, axes: int, x: Tensor, numbers: Sequence[Each | None], ceil_mode: bool, return_indices: bool
) -> Pooled:
    """Returns the largest element of each window, with return_indices also its index."""
    found: tuple[Tensor, Tensor] = _maxima(function, axes, x, numbers, ceil_mode)
    return found if return_indices else found[0]


@of_tensors
def _maxima(function: str, axes: int, x: Tensor, numbers: Sequence[Each | None], ceil_mode: bool) -> tuple[Tensor, Tensor]:
    op, has_batch = with_batch(function, x, axes)
    if 0 in op.shape[1:]:
        raise ShapeError(f"{function}: every axis except the batch needs elements, got input {x.shape}.")
    windows = pooling_windows(function, op, numbers, ceil_mode)
    return _value_and_place(x, max_of_windows(op, windows), has_batch)


def max_of_windows(x: Op, windows: Windows) -> tuple[Op, Op]:
    """Returns the maximum of each window of (N, C, *spatial), and its index in its image, int64.

    Elements outside x count as the least number. A window with no greater element takes its first element inside x; a
    dilated window with no element inside has the least number, and a meaningless index.
    """
    least = x.dtype.min
    margins, seen = windows.margins(x.shape[2:]), detached(x)
    is_padded = any(map(any, margins))
    if is_padded:
        pads = ((0, 0), (0, 0), *margins)
        inside = pad(filled(True, dtypes.bool_, x.shape), pads)
        seen = Op(OpCode.CONTIGUOUS, x.dtype, (where(inside, pad(seen, pads), least),))
    places = [windows.places(axis) for axis in range(len(margins))]
    seen = _taken(seen, [place + before for place, before in zip(places, windows.before)])
    greatest, index = _first_greatest(seen, None, _strides(x.shape[2:], windows.steps))
    starts = [_first_row(place) for place in places]
    index = _flat(starts, x.shape[2:], index.shape) + index
    if not is_padded:
        return _read(x, index, greatest)
    first = [maximum(start, mod(start, step)) for start, step in zip(starts, windows.steps)]
    index = where(equal(greatest, least), _flat(first, x.shape[2:], index.shape), index)
    value, index = _read(x, index, greatest)
    for axis, (place, step, length) in enumerate(zip(first, windows.steps, x.shape[2:])):
        if step > bounds(length)[0]:
            has_tap = repeat_along(less(place, number_like(place, length)), index.shape, 2 + axis)
            value = where(has_tap, value, least)
    return value, index


def _adaptive_max_pool(function: str, axes: int, x: Tensor, output_size: Bins, return_indices: bool) -> Pooled:
    """Returns the largest element of each bin, with return_indices also its index."""
    found: tuple[Tensor, Tensor] = _maxima_of_bins(function, axes, x, output_size)
    return found if return_indices else found[0]


@of_tensors
def _maxima_of_bins(function: str, axes: int, x: Tensor, output_size: Bins) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each bin; windows are as long as the widest bin, and masked to their own."""
    op, has_batch = with_batch(function, x, axes)
    lengths = op.shape[2:]
    places, seen, inside = [], detached(op), None
    for length, count in zip(lengths, bins_of(function, op, output_size, axes)):
        shape = (widest_bin(length, count), count)
        starts = repeat_axes(start_of_bin(iota(count), length, count), (0,), shape)
        places.append(starts + positions(shape, 0))
    seen = _taken(seen, places)
    for axis, (length, place) in enumerate(zip(lengths, places)):
        count = place.shape[1]
        if count != 0 and remainder(length, count) != 0:  # bins of different lengths
            end = repeat_axes(end_of_bin(iota(count), length, count), (0,), place.shape)
            others = (i for i in range(len(seen.shape)) if i // 2 != axis + 1)
            holds = repeat_axes(less(place, end), others, seen.shape)
            inside = holds if inside is None else both(inside, holds)
    greatest, index = _first_greatest(seen, inside, _strides(lengths, (1,) * axes))
    index = _flat([_first_row(place) for place in places], lengths, index.shape) + index
    return _value_and_place(x, _read(op, index, greatest), has_batch)


# ---- one window ----
def _taken(x: Op, places: Sequence[Op]) -> Op:
    """Returns (N, C, K, H', K', W', ...): the elements at positions (K, H') along each axis."""
    for axis, place in enumerate(places):
        x = gather(x, place, 2 + 2 * axis, 0)
    return x


def _first_row(places: Op) -> Op:
    """Returns (H',): the start of each window."""
    return reshape(shrink(places, ((0, 1), (0, places.shape[1]))), places.shape[1:])


def _first_greatest(seen: Op, inside: Op | None, strides: Sequence[Dim]) -> tuple[Op, Op]:
    """Returns the maximum of each window, and its offset in the image from the window's start, int64.

    Two reductions: the maximum, then the least key. The key of a maximal element is its offset, that of a NaN -1 - offset:
    so the first maximum is found, or the last NaN.
    """
    shape, taps = seen.shape, tuple(range(2, len(seen.shape), 2))
    lowest = seen.dtype.min
    greatest = reduce(seen if inside is None else where(inside, seen, lowest), OpCode.MAX, taps)
    farthest = sum((bounds(shape[axis])[1] - 1) * bounds(stride)[1] for axis, stride in zip(taps, strides))
    distance = filled(0, dtypes.int32 if farthest < dtypes.int32.max else dtypes.int64, shape)
    for axis, stride in zip(taps, strides):
        distance = distance + positions(shape, axis, distance.dtype) * number_like(distance, stride)
    none = distance.dtype.max
    key = where(equal(seen, repeat_axes(greatest, taps, shape)), distance, none)
    if seen.dtype.is_float:
        key = where(differs(seen, seen), -distance - 1, key)
    found = reduce(key if inside is None else where(inside, key, none), OpCode.MIN, taps)
    if seen.dtype.is_float:
        found = where(less(found, 0), -found - 1, found)
    return greatest, cast(found, dtypes.int64)


def _strides(lengths: Shape, steps: Sequence[int]) -> list[Dim]:
    """Returns the offset in an image from one element of a window to the next, along each axis."""
    return [mul(numel(lengths[axis + 1 :]), step) for axis, step in enumerate(steps)]


def _flat(places: Sequence[Op], lengths: Sequence[Dim], shape: Shape) -> Op:
    """Returns the row-major position in an image of the start of each window of (N, C, H', W', ...)."""
    index = filled(0, dtypes.int64, shape)
    for axis, (place, length) in enumerate(zip(places, lengths)):
        index = index * number_like(index, length) + repeat_along(place, shape, 2 + axis)
    return index


def _read(x: Op, index: Op, greatest: Op) -> tuple[Op, Op]:
    """Returns the elements of (N, C, *spatial) at positions in their images, and these positions, stored.

    The elements are the given maxima: they are used directly if no gradient needs their positions.
    """
    value = greatest
    if x.needs_grad:
        # Blocks of updates are longest along one axis; but lengths that only a run tells would be divided by.
        flat = (*x.shape[:2], numel(index.shape[2:])) if of_numbers(index.shape) else index.shape
        images = reshape(x, (*x.shape[:2], numel(x.shape[2:])))
        value = reshape(gather(images, reshape(index, flat), 2, 2), index.shape)
    return Op(OpCode.CONTIGUOUS, value.dtype, (value,)), index


def _value_and_place(x: Tensor, found: tuple[Op, Op], has_batch: bool) -> tuple[Tensor, Tensor]:
    value, index = (x.from_op(without_batch(op, has_batch), x.cell.device) for op in found)
    return value, index


def _unpool(
    function: str, axes: int, x: Tensor, indices: Tensor, numbers: Sequence[Each | None],
    output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of x at the positions that max pooling with these windows returned."""
    op, has_batch = with_batch(function, x, axes)
    place = tensor_of(function, "indices", indices).read()
    if place.shape != x.shape:
        raise ShapeError(f"{function}: indices {place.shape} must have the shape of input {x.shape}.")
    kernel_size, stride, padding = numbers
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    strides = kernel if stride is None else each_axis(function, "stride", stride, axes, 1)
    pads = each_axis(function, "padding", padding, axes, 0)
    lengths = tuple((static(n) - 1) * s - 2 * p + k for n, s, p, k in zip(op.shape[2:], strides, pads, kernel))
    if output_size is not None:
        lengths = each_axis(function, "output_size", tuple(output_size)[-axes:], axes, 1)
    fact = f"{function}: index {{}} is outside of an image of {lengths}."
    site = Site(fact, "indices come from max pooling with return_indices=True; output_size is the shape before it.")
    result = put_back(op, checked(place, math.prod(lengths), site), lengths)
    return x.from_op(without_batch(result, has_batch), x.other_device(function, indices))


def put_back(x: Op, places: Op, lengths: Sequence[int]) -> Op:
    """Returns zeros (N, C, *lengths) with the elements of x (N, C, ...) at their positions."""
    flat = (*x.shape[:2], numel(x.shape[2:]))
    base = filled(0, x.dtype, (*x.shape[:2], math.prod(lengths)))
    index = reshape(cast(places, dtypes.int64), flat)
    return reshape(scatter(base, index, reshape(x, flat), None, 2, 2), (*x.shape[:2], *lengths))


# ---- maxima at drawn places ----
def fractional_max_pool2d(
    input: Tensor, kernel_size: Each, output_size: Each | None = None,  # noqa: A002
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:  # fmt: skip
    """Returns the largest element of each of output_size windows with random starts.

    window i begins at floor((i + u) a) - floor(u a), a = (H - K) / (H' - 1), u uniform in [0, 1); the last at H - K

    Args:
      input:            (N, C, H, W) or (C, H, W)
      kernel_size:      K, elements of a window
      output_size:      H', or (H', W')
      output_ratio:     instead of output_size: fractions of (H, W), between 0 and 1
      return_indices:   return also the index of each maximum in its image, int64
      _random_samples:  (N, C, 2) u of each axis, last axis first; None: random

    Returns:   (N, C, H', W'), or a pair

    Raises:
      ShapeError:    input has the wrong number of axes, or H' + K - 1 is more than H.
      ArgumentError: not exactly one of output_size and output_ratio is given, or a ratio is not between 0 and 1.

    >>> fractional_max_pool2d(Tensor.ones(1, 6, 6), 2, output_size=3).shape
    (1, 3, 3)
    """
    sizes = (kernel_size, output_size, output_ratio)
    return _fractional_max_pool("fractional_max_pool2d", 2, input, sizes, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Tensor, kernel_size: Each, output_size: Each | None = None,  # noqa: A002
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:  # fmt: skip
    """Returns the largest element of each of output_size windows; see `fractional_max_pool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      kernel_size, output_size, output_ratio, return_indices: as in `fractional_max_pool2d`
      _random_samples:  (N, C, 3) u of each axis, first axis first; None: random

    >>> fractional_max_pool3d(Tensor.ones(1, 6, 6, 6), 2, output_ratio=0.5).shape
    (1, 3, 3, 3)
    """
    sizes = (kernel_size, output_size, output_ratio)
    return _fractional_max_pool("fractional_max_pool3d", 3, input, sizes, return_indices, _random_samples)


def check_sizes(function: str, output_size: Any, output_ratio: Any) -> None:
    """Raises an ArgumentError unless exactly one of both is given, and ratios are between 0 and 1."""
    if (output_size is None) == (output_ratio is None):
        given = f"{output_size} and {output_ratio}"
        raise ArgumentError(f"{function}: give just one of output_size and output_ratio, got {given}.")
    ratios = output_ratio if isinstance(output_ratio, (list, tuple)) else [output_ratio]
    if output_ratio is not None and not all(0 < ratio < 1 for ratio in ratios):
        raise ArgumentError(f"{function}: output_ratio must be between 0 and 1, got {output_ratio}.")


def _fractional_max_pool(
    function: str, axes: int, x: Tensor, sizes: tuple[Each, Each | None, Any], return_indices: bool, samples: Tensor | None
) -> Pooled:
    """Returns the largest element of each window, and its index; `samples` in [0, 1) decide the starts."""
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
    values, found = _at_samples(image, samples, tuple(lengths), kernel, counts)
    if not has_batch:
        values, found = values[0], found[0]
    return (values, found) if return_indices else values


@of_tensors
def _at_samples(
    image: Tensor, samples: Tensor, lengths: tuple[int, ...], kernel: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Returns the largest elements of windows, and their indices, both (N, C, *counts)."""
    (batch, channels), axes = image.shape[:2], len(lengths)
    index: Any = 0
    for axis, (length, taps, count) in enumerate(zip(lengths, kernel, counts)):
        drawn = samples[:, :, axis if axes == 3 else 1 - axis]  # PyTorch's order of samples
        starts = _starts(drawn, length, taps, count)  # (N, C, windows)
        places = starts.unsqueeze(-1) + Tensor.arange(taps, device=image.device)  # (N, C, windows, taps)
        spread = [batch, channels, *(1,) * (2 * axes)]
        spread[2 + axis], spread[2 + axes + axis] = count, taps
        index = index * length + places.reshape(spread)
    flat = index.reshape(batch, channels, math.prod(counts), math.prod(kernel))
    taken = image.gather(2, flat.flatten(2)).reshape(flat.shape)
    where = taken.detach().argmax(-1, keepdim=True)  # the first of equal ones; NaN first of all
    values, found = (part.gather(-1, where).reshape(batch, channels, *counts) for part in (taken, flat))
    return values, found


def _starts(samples: Tensor, length: int, taps: int, count: int) -> Tensor:
    """Returns the starts of windows along an axis: (N, C) -> (N, C, count)."""
    last = Tensor.full((*samples.shape, 1), length - taps, dtype=dtypes.int64, device=samples.device)
    if count == 1:
        return last
    step = (length - taps) / (count - 1)
    u = samples.detach().unsqueeze(-1)
    rising = ((u + Tensor.arange(count - 1, device=samples.device)) * step).long() - (u * step).long()
    return Tensor.cat([rising, last], -1)


# ---- means and p-norms ----
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
      stride:             s, elements between windows; None: kernel_size
      padding:            p, zeros around input, at most half of kernel_size
      ceil_mode:          add a window that is cut off at the end
      count_include_pad:  count the zeros of padding
      divisor_override:   divisor of each sum; None: the count

    Returns:   (N, C, H', W') with H' = (H + 2 p - K) // s + 1

    Raises:
      ShapeError:    input has the wrong number of axes, or no window fits.
      DTypeError:    input is not a float.
      ArgumentError: an argument is not a number in its range.

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
      output_size:  number of bins

    >>> adaptive_avg_pool1d(Tensor([[1.0, 3.0, 2.0, 5.0]]), 2)
    Tensor([[2. , 3.5]])
    """
    return _adaptive_avg_pool("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Bins) -> Tensor:  # noqa: A002
    """Returns the mean of each of output_size bins; bin i is floor(i H / H') .. ceil((i + 1) H / H').

    Args:
      input:        (N, C, H, W) or (C, H, W)  float
      output_size:  H', or (H', W'); None for an axis: its length

    Returns:   (N, C, H', W')

    Raises:
      ShapeError:    input has the wrong number of axes, or an empty one.
      DTypeError:    input is not a float.
      ArgumentError: output_size is not a number in its range.

    >>> adaptive_avg_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), (1, 2))
    Tensor([[[2.5, 2.5]]])
    """
    return _adaptive_avg_pool("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Bins) -> Tensor:  # noqa: A002
    """Returns the means of output_size bins; see `adaptive_avg_pool2d`.

    Args:
      input:        (N, C, D, H, W) or (C, D, H, W)
      output_size:  number of bins along each axis

    >>> adaptive_avg_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _adaptive_avg_pool("adaptive_avg_pool3d", 3, input, output_size)


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
    """Returns the p-norm of each window: (sum of x ** p) ** (1 / p), with gradient 0 where the sum is 0.

    Args:
      input:        (N, C, H, W) or (C, H, W)  float
      norm_type:    p
      kernel_size:  elements of a window
      stride:       elements between windows; None: kernel_size
      ceil_mode:    add a window that is cut off at the end

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


# ---- how means are computed ----
@of_tensors
def _avg_pool(
    function: str, axes: int, x: Tensor, numbers: Sequence[Each | None], ceil_mode: bool, count_include_pad: bool,
    divisor: int | None,
) -> Tensor:  # fmt: skip
    """Returns the means of windows with this kernel_size, stride and padding."""
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
    """Returns the mean of each window of (N, C, *spatial) over its elements of x; include_pad: over the padding, too."""
    total = sum_of_windows(x, windows)
    counts = [_elements(axis, n, windows, include_pad) for axis, n in enumerate(x.shape[2:])]
    divisor = filled(float(prod(n for n in counts if isinstance(n, int))), total.dtype, total.shape)
    for axis, count in enumerate(counts):
        if isinstance(count, Op):
            divisor = divisor * repeat_along(cast(count, total.dtype), total.shape, 2 + axis)
    return total / divisor


def sum_of_windows(x: Op, windows: Windows) -> Op:
    """Returns the sum of each window of (N, C, *spatial)."""
    images, (kernel, counts) = x.shape[:2], (windows.kernel, windows.counts)
    margins, ones = windows.margins(x.shape[2:]), (1,) * len(kernel)
    side_by_side = kernel == windows.strides and windows.steps == ones and not any(map(any, margins))
    if side_by_side and [mul(c, k) for k, c in zip(kernel, counts)] == [*x.shape[2:]]:
        split = tuple(n for pair in zip(counts, kernel) for n in pair)
        return reduce(reshape(x, (*images, *split)), OpCode.ADD, tuple(range(3, 3 + 2 * len(kernel), 2)))
    planes = reshape(x, (numel(images), 1, *x.shape[2:]))
    weight = filled(1.0, x.dtype, (1, 1, *kernel))
    ends = [after + stride - 1 for after, stride in zip(windows.after, windows.strides)]  # unseen elements
    padding = tuple([(b, a if isinstance(a, int) else end) for (b, a), end in zip(margins, ends)])
    sums = Op(OpCode.CONV, x.dtype, (planes, weight), ConvArg(windows.strides, padding, windows.steps, ones))
    seen = shrink(sums, tuple([(0, n) for n in (*sums.shape[:2], *counts)]))
    return reshape(seen, (*images, *counts))


def _elements(axis: int, length: Dim, windows: Windows, include_pad: bool) -> Op | int:
    """Returns (counts,) int64: the number of elements of each window along an axis, without those past the padding.

    A single number if all windows have as many.
    """
    kernel, step, before, after = (n[axis] for n in (windows.kernel, windows.steps, windows.before, windows.after))
    low, high = (-before, add(length, after)) if include_pad else (0, length)
    last = add(mul(subtract(windows.counts[axis], 1), windows.strides[axis]), (kernel - 1) * step - before)
    if low == -before and bounds(subtract(high, last))[0] > 0:
        return kernel
    starts = iota(windows.counts[axis]) * windows.strides[axis] - before
    first, end = (_ceil_div(number_like(starts, bound) - starts, step) for bound in (low, high))
    return minimum(end, kernel) - maximum(first, 0)


def _ceil_div(x: Op, divisor: int) -> Op:
    return x if divisor == 1 else floordiv(x + (divisor - 1), divisor)


@of_tensors
def _adaptive_avg_pool(function: str, axes: int, x: Tensor, output_size: Bins) -> Tensor:
    """Averages along one axis after the other, which gives the mean over a box of bins."""
    op, has_batch = with_batch(function, x, axes)
    need_float(function, op, "input")
    counts = bins_of(function, op, output_size, axes)
    result = cast(op, op.dtype.compute_dtype)
    for axis, count in enumerate(counts):
        result = mean_of_bins(result, 2 + axis, count)
    return x.from_op(without_batch(cast(result, op.dtype), has_batch), x.cell.device)


def mean_of_bins(x: Op, axis: int, count: Dim) -> Op:
    """Returns the means of `count` bins of an axis; bins differ by one element if count does not divide its length."""
    length, left, right = x.shape[axis], x.shape[:axis], x.shape[axis + 1 :]
    if count == length:
        return x
    if count != 0 and remainder(length, count) == 0:
        each = quotient(length, count)
        total = reduce(reshape(x, (*left, count, each, *right)), OpCode.ADD, (axis + 1,))
        return total / number_like(total, each)
    width = widest_bin(length, count)
    shape = (count, width)
    number = expand(reshape(iota(count), (count, 1)), shape)
    starts, ends = start_of_bin(number, length, count), end_of_bin(number, length, count)
    at = minimum(starts, number_like(starts, subtract(length, width))) + expand(reshape(iota(width), (1, width)), shape)
    inside = both(less_equal(starts, at), less(at, ends))
    taken = gather(x, at, axis, 0)
    others = (i for i in range(len(taken.shape)) if i not in (axis, axis + 1))
    total = reduce(where(repeat_axes(inside, others, taken.shape), taken, 0.0), OpCode.ADD, (axis + 1,))
    elements = reduce(cast(inside, dtypes.int64), OpCode.ADD, (1,)) if width != 0 else filled(1, dtypes.int64, (count,))
    return total / repeat_along(cast(elements, x.dtype), total.shape, axis)


@of_tensors
def _lp_pool(
    function: str, axes: int, x: Tensor, p: float, kernel_size: Each, stride: Each | None, ceil_mode: bool
) -> Tensor:
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    if p == 0:
        raise ArgumentError(f"{function}: norm_type must not be 0.")
    mean = _avg_pool(function, axes, x.pow(p), (kernel, stride, 0), ceil_mode, True, None)
    total = mean.sign() * mean.abs().relu() * float(prod(kernel))
    return total.pow(1.0 / p)
