"""Maxima of windows, at given steps or of as many bins as asked for, and the way back from them.

In:    tensors
Out:   tensors, with return_indices a pair: values, and where each stands in its image (int64, row-major)
Next:  picograd/nn/functions/fractional.py

The place of each maximum is found first, window by window; the value is then read there. So a gradient goes to one
element of a window, the first of equal ones, and costs no more than the windows there are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.ir.build import (
    both,
    compare,
    gather,
    iota,
    maximum,
    pad,
    positions,
    reduce,
    repeat_axes,
    reshape,
    scatter,
    shrink,
    unary,
    where,
)
from picograd.ir.op import Dim, Op, Shape, filled
from picograd.ir.opcode import OpCode
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
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import cast, detached, static, static_numel
from picograd.tensor.tensor import Tensor

__all__ = [
    "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
    "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip

Pooled = Any  # a tensor, or with return_indices a pair of them: checkers of types let programs use it as either


def max_pool1d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,  # noqa: A002
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """Returns the greatest element of each window; see `max_pool2d`.

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
    """Returns the greatest element of each window; of equal ones the gradient goes to the first, NaN wins.

    out[n, c, i, j] = max over k, l of input[n, c, i s + k d - p, j s + l d - p], where that is inside

    Args:
      input:           (N, C, H, W) or (C, H, W)
      kernel_size:     K, elements of a window
      stride:          s, steps between windows; None: kernel_size
      padding:         p, at most half of kernel_size
      dilation:        d, steps between the elements of a window
      ceil_mode:       also a window that is cut off at the end
      return_indices:  also where each maximum stands in its image, int64

    Returns:   (N, C, H', W') with H' = (H + 2 p - d (K - 1) - 1) // s + 1, or a pair

    Raises:
      ShapeError:    input has another number of axes, one but the batch is empty, or no window fits.
      ArgumentError: an argument is no number that fits.

    >>> max_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), 2)
    Tensor([[[4.]]])
    """
    return _max_pool("max_pool2d", 2, input, (kernel_size, stride, padding, dilation), ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,  # noqa: A002
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """Returns the greatest element of each window; see `max_pool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      kernel_size, stride, padding, dilation, ceil_mode, return_indices: as in `max_pool2d`

    >>> max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _max_pool("max_pool3d", 3, input, (kernel_size, stride, padding, dilation), ceil_mode, return_indices)


def adaptive_max_pool1d(input: Tensor, output_size: Bins, return_indices: bool = False) -> Pooled:  # noqa: A002
    """Returns the greatest elements of output_size bins; see `adaptive_max_pool2d`.

    Args:
      input:           (N, C, L) or (C, L)
      output_size:     bins
      return_indices:  also where each maximum stands

    >>> adaptive_max_pool1d(Tensor([[1.0, 3.0, 2.0, 5.0, 4.0]]), 2)
    Tensor([[3., 5.]])
    """
    return _adaptive("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Bins, return_indices: bool = False) -> Pooled:  # noqa: A002
    """Returns the greatest element of each of output_size bins, of which bin i is floor(i H / H') .. ceil((i + 1) H / H').

    Args:
      input:           (N, C, H, W) or (C, H, W)
      output_size:     H', or (H', W'); None for an axis: its length
      return_indices:  also where each maximum stands in its image, int64

    Returns:   (N, C, H', W'), or a pair

    Raises:
      ShapeError:    input has another number of axes, or an empty one.
      ArgumentError: output_size is no number that fits.

    >>> adaptive_max_pool2d(Tensor([[[1.0, 2.0], [4.0, 3.0]]]), (1, 2))
    Tensor([[[4., 3.]]])
    """
    return _adaptive("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Bins, return_indices: bool = False) -> Pooled:  # noqa: A002
    """Returns the greatest elements of output_size bins; see `adaptive_max_pool2d`.

    Args:
      input:           (N, C, D, H, W) or (C, D, H, W)
      output_size:     bins of each axis
      return_indices:  also where each maximum stands

    >>> adaptive_max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _adaptive("adaptive_max_pool3d", 3, input, output_size, return_indices)


# ---- old names ----
def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """Returns max_poolNd with return_indices=True, under the name that PyTorch has for that."""

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


# ---- the way back ----
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0,  # noqa: A002
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of input where max_pool1d found them; see `max_unpool2d`.

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
    """Returns zeros with the elements of input where max_pool2d found them.

    Args:
      input:        (N, C, H, W) or (C, H, W)
      indices:      of its shape: what max_pool2d(..., return_indices=True) gave
      kernel_size:  K of that
      stride:       s of that
      padding:      p of that
      output_size:  (H', W'), or the whole shape; None: (H - 1) s - 2 p + K

    Returns:   (N, C, H', W')

    Raises:
      ShapeError:    indices have another shape.
      ArgumentError: an argument is no number that fits.

    >>> max_unpool2d(Tensor([[[4.0]]]), Tensor([[[2]]]), 2)
    Tensor([[[0., 0.],
             [4., 0.]]])
    """
    return _unpool("max_unpool2d", 2, input, indices, (kernel_size, stride, padding), output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Each, stride: Each | None = None, padding: Each = 0,  # noqa: A002
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of input where max_pool3d found them; see `max_unpool2d`.

    Args:
      input:  (N, C, D, H, W) or (C, D, H, W)
      indices, kernel_size, stride, padding, output_size: as in `max_unpool2d`

    >>> max_unpool3d(Tensor.ones(1, 1, 1, 1, 1), Tensor([[[[[7]]]]]), 2).sum().item()
    1.0
    """
    return _unpool("max_unpool3d", 3, input, indices, (kernel_size, stride, padding), output_size)


# ---- the work ----
def _max_pool(
    function: str, axes: int, x: Tensor, numbers: Sequence[Each | None], ceil_mode: bool, return_indices: bool
) -> Pooled:
    op, has_batch = with_batch(function, x, axes)
    if 0 in op.shape[1:]:
        raise ShapeError(f"{function}: no axis but the batch may be empty, got input {x.shape}.")
    windows = pooling_windows(function, op, numbers, ceil_mode)
    return _pair(x, max_of_windows(op, windows), has_batch, return_indices)


def max_of_windows(x: Op, windows: Windows) -> tuple[Op, Op]:
    """Returns the maximum of each window of (N, C, *spatial), and where it stands in its image, int64.

    What lies outside of x is least. A window where nothing is greater takes its first element inside.
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
    if is_padded:
        first = [maximum(start, _modulo(start, step)) for start, step in zip(starts, windows.steps)]
        index = where(compare(OpCode.CMPEQ, greatest, least), _flat(first, x.shape[2:], index.shape), index)
    return _read(x, index)


def _adaptive(function: str, axes: int, x: Tensor, output_size: Bins, return_indices: bool) -> Pooled:
    """Returns the greatest element of each bin; bins as long as the widest, in which what is beyond a bin is left out."""
    op, has_batch = with_batch(function, x, axes)
    lengths = [static(n) for n in op.shape[2:]]
    places, seen, inside = [], detached(op), None
    for length, count in zip(lengths, bins_of(function, op, output_size, axes)):
        shape = (widest_bin(length, count), count)
        places.append(repeat_axes(start_of_bin(iota(count), length, count), (0,), shape) + positions(shape, 0))
    seen = _taken(seen, places)
    for axis, (length, place) in enumerate(zip(lengths, places)):
        if place.shape[1] and length % static(place.shape[1]):  # bins of several lengths
            end = repeat_axes(end_of_bin(iota(place.shape[1]), length, static(place.shape[1])), (0,), place.shape)
            others = (i for i in range(len(seen.shape)) if i // 2 != axis + 1)
            holds = repeat_axes(compare(OpCode.CMPLT, place, end), others, seen.shape)
            inside = holds if inside is None else both(inside, holds)
    _, index = _first_greatest(seen, inside, _strides(lengths, (1,) * axes))
    index = _flat([_first_row(place) for place in places], lengths, index.shape) + index
    return _pair(x, _read(op, index), has_batch, return_indices)


# ---- one window ----
def _taken(x: Op, places: Sequence[Op]) -> Op:
    """Returns (N, C, K, H', K', W', ...): the elements at places (K, H') along each axis."""
    for axis, place in enumerate(places):
        x = gather(x, place, 2 + 2 * axis, 0)
    return x


def _first_row(places: Op) -> Op:
    """Returns (H',): where each window starts."""
    return reshape(shrink(places, ((0, 1), (0, places.shape[1]))), places.shape[1:])


def _first_greatest(seen: Op, inside: Op | None, strides: Sequence[int]) -> tuple[Op, Op]:
    """Returns the maximum of each window, and how far behind the start of the window it stands in its image, int64.

    Two reductions: the maximum, then the least key. The key of an element that is the maximum is its distance, that of
    a NaN -1 - distance: so the first maximum is found, or the last NaN.
    """
    shape, taps = seen.shape, tuple(range(2, len(seen.shape), 2))
    lowest = seen.dtype.min
    greatest = reduce(seen if inside is None else where(inside, seen, lowest), OpCode.MAX, taps)
    farthest = sum((static(shape[axis]) - 1) * stride for axis, stride in zip(taps, strides))
    distance = filled(0, dtypes.int32 if farthest < dtypes.int32.max else dtypes.int64, shape)
    for axis, stride in zip(taps, strides):
        distance = distance + positions(shape, axis, distance.dtype) * stride
    none = distance.dtype.max
    key = where(compare(OpCode.CMPEQ, seen, repeat_axes(greatest, taps, shape)), distance, none)
    if seen.dtype.is_float:
        key = where(compare(OpCode.CMPNE, seen, seen), unary(OpCode.NEG, distance) - 1, key)
    found = reduce(key if inside is None else where(inside, key, none), OpCode.MIN, taps)
    if seen.dtype.is_float:
        found = where(compare(OpCode.CMPLT, found, 0), unary(OpCode.NEG, found) - 1, found)
    return greatest, cast(found, dtypes.int64)


def _strides(lengths: Sequence[Dim], steps: Sequence[int]) -> list[int]:
    """Returns how far the next element of a window stands in an image, along each axis."""
    return [step * static_numel(lengths[axis + 1 :]) for axis, step in enumerate(steps)]


def _flat(places: Sequence[Op], lengths: Sequence[Dim], shape: Shape) -> Op:
    """Returns where in an image, row-major, each window of (N, C, H', W', ...) starts."""
    index = filled(0, dtypes.int64, shape)
    for axis, (place, length) in enumerate(zip(places, lengths)):
        index = index * static(length) + repeat_axes(place, (i for i in range(len(shape)) if i != 2 + axis), shape)
    return index


def _modulo(x: Op, divisor: int) -> Op:
    return Op(OpCode.MOD, x.dtype, (x, x.filled(divisor)))


def _read(x: Op, index: Op) -> tuple[Op, Op]:
    """Returns the elements of (N, C, *spatial) at places in their images, stored, and the places."""
    images, flat = (*x.shape[:2], _numel(x)), (*x.shape[:2], _numel(index))
    value = reshape(gather(reshape(x, images), reshape(index, flat), 2, 2), index.shape)
    return Op(OpCode.CONTIGUOUS, value.dtype, (value,)), index


def _pair(x: Tensor, found: tuple[Op, Op], has_batch: bool, return_indices: bool) -> Pooled:
    value, index = (x.from_op(without_batch(op, has_batch), x.cell.device) for op in found)
    return (value, index) if return_indices else value


def _numel(op: Op) -> int:
    return static_numel(op.shape[2:])


def _unpool(
    function: str, axes: int, x: Tensor, indices: Tensor, numbers: Sequence[Each | None],
    output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of x where max pooling, of windows of these numbers, had found them."""
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
    result = put_back(op, place, lengths)
    return x.from_op(without_batch(result, has_batch), x.other_device(function, indices))


def put_back(x: Op, places: Op, lengths: Sequence[int]) -> Op:
    """Returns images of zeros, (N, C, *lengths), with the elements of x (N, C, ...) at their places."""
    flat = (*x.shape[:2], _numel(x))
    base = filled(0, x.dtype, (*x.shape[:2], math.prod(lengths)))
    index = reshape(cast(places, dtypes.int64), flat)
    return reshape(scatter(base, index, reshape(x, flat), None, 2, 2), (*x.shape[:2], *lengths))
