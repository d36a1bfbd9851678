"""Maxima of windows, at given steps or of as many bins as asked for, and the way back from them.

In:    tensors
Out:   tensors, with return_indices a pair: values, and where each stands in its image (int64, row-major)
Next:  picograd/nn/means.py

The place of each maximum is found first, window by window; the value is then read there. So a gradient goes to one
element of a window, the first of equal ones, and costs no more than the windows there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import both, compare, expand, gather, iota, reshape, scatter, where
from picograd.ir.build import cast as cast_op
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.nn.windows import Bins, Each, each_axis, num_windows, tensor_op, with_batch, without_batch
from picograd.tensor.build import detached, static
from picograd.tensor.tensor import Tensor

Start = Callable[[Op], Op]  # number of a window along an axis -> where it starts
Pooled = Tensor | tuple[Tensor, Tensor]


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
      ShapeError:    input has another number of axes, or no window fits.
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
    kernel_size, stride, padding, dilation = numbers
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    strides = kernel if stride is None else each_axis(function, "stride", stride, axes, 1)
    pads, steps = each_axis(function, "padding", padding, axes, 0), each_axis(function, "dilation", dilation, axes, 1)
    if any(2 * pad > k for pad, k in zip(pads, kernel)):
        raise ArgumentError(f"{function}: padding {padding} must be at most half of kernel_size {kernel_size}.")
    counts = [num_windows(function, *each, ceil_mode) for each in zip(op.shape[2:], kernel, strides, pads, steps)]
    starts = [lambda i, s=s, p=p: i * s - p for s, p in zip(strides, pads)]
    index = _places(op, kernel, steps, counts, starts, None)
    return _pair(x, op, index, counts, has_batch, return_indices)


def _adaptive(function: str, axes: int, x: Tensor, output_size: Bins, return_indices: bool) -> Pooled:
    op, has_batch = with_batch(function, x, axes)
    counts = bins_of(function, op, output_size, axes)
    lengths = [static(n) for n in op.shape[2:]]
    kernel = [widest_bin(n, count) for n, count in zip(lengths, counts)]
    starts = [lambda i, n=n, c=c: start_of_bin(i, n, c) for n, c in zip(lengths, counts)]
    ends = [lambda i, n=n, c=c: end_of_bin(i, n, c) for n, c in zip(lengths, counts)]
    index = _places(op, kernel, (1,) * axes, counts, starts, ends)
    return _pair(x, op, index, counts, has_batch, return_indices)


def bins_of(function: str, op: Op, output_size: Bins, axes: int) -> list[int]:
    """Returns how many bins each axis has; None stands for its length.

    Raises:
      ShapeError:    an axis to be shared out is empty.
      ArgumentError: output_size is no number that fits.
    """
    given = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * axes
    lengths = [static(n) for n in op.shape[2:]]
    if len(given) == axes:
        given = [n if count is None else count for count, n in zip(given, lengths)]
    counts = each_axis(function, "output_size", tuple(given), axes, 0)
    if 0 in lengths:
        raise ShapeError(f"{function}: an axis of input {op.shape} is empty.")
    return list(counts)


def start_of_bin(i: Op, length: int, count: int) -> Op:
    """Returns floor(i length / count)."""
    return Op(OpCode.IDIV, i.dtype, (i * length, i.filled(count)))


def end_of_bin(i: Op, length: int, count: int) -> Op:
    """Returns ceil((i + 1) length / count)."""
    return Op(OpCode.IDIV, i.dtype, (i * length + (length + count - 1), i.filled(count)))


def widest_bin(length: int, count: int) -> int:
    """Returns the length of the longest bin."""
    return max((-(-(i + 1) * length // count) - i * length // count for i in range(count)), default=1)


def _places(
    x: Op, kernel: Sequence[int], steps: Sequence[int], counts: Sequence[int], starts: Sequence[Start],
    ends: Sequence[Start] | None,
) -> Op:  # fmt: skip
    """Returns (N, C, *counts) int64: where the maximum of each window stands. The last NaN counts as one.

    A window is compared element by element: one chain of choices, which costs as much as it has elements.
    """
    lengths = [static(n) for n in x.shape[2:]]
    x = detached(x)
    axes, shape = range(len(kernel)), (*x.shape[:2], *counts)
    best: Op | None = None
    place = filled(-1, dtypes.int64, shape)
    for tap in itertools.product(*map(range, kernel)):
        value, inside, here = x, filled(True, dtypes.bool_, shape), filled(0, dtypes.int64, shape)
        for axis in axes:
            number = iota(counts[axis])
            at = starts[axis](number) + tap[axis] * steps[axis]
            value = gather(value, at, 2 + axis, 0)
            last = number.filled(lengths[axis]) if ends is None else ends[axis](number)
            holds = both(compare(OpCode.CMPLE, at.filled(0), at), compare(OpCode.CMPLT, at, last))
            inside = both(inside, _along(holds, shape, 2 + axis))
            here = here * lengths[axis] + _along(at, shape, 2 + axis)
        better = compare(OpCode.CMPLT, place, 0)
        if best is not None:
            better = Op(OpCode.OR, dtypes.bool_, (better, compare(OpCode.CMPLT, best, value)))
        if x.dtype.is_float:
            better = Op(OpCode.OR, dtypes.bool_, (better, compare(OpCode.CMPNE, value, value)))
        taken = both(inside, better)
        best = value if best is None else where(taken, value, best)
        place = where(taken, here, place)
    return place


def _along(op: Op, shape: Shape, axis: int) -> Op:
    """Returns a line of numbers along one axis of `shape`."""
    return expand(reshape(op, tuple(n if i == axis else 1 for i, n in enumerate(shape))), shape)


def _pair(x: Tensor, op: Op, index: Op, counts: Sequence[int], has_batch: bool, return_indices: bool) -> Pooled:
    """Reads the maxima; both are stored, since whatever reads an element would else look for it again."""
    index = Op(OpCode.CONTIGUOUS, index.dtype, (index,))
    images, flat = (op.shape[0], op.shape[1], _numel(op)), (*op.shape[:2], _numel(index))
    value = gather(reshape(op, images), reshape(index, flat), 2, 2)
    value = reshape(Op(OpCode.CONTIGUOUS, value.dtype, (value,)), index.shape)
    result = x.from_op(without_batch(value, has_batch), x.cell.device)
    if not return_indices:
        return result
    return result, x.from_op(without_batch(index, has_batch), x.cell.device)


def _numel(op: Op) -> int:
    count = 1
    for n in op.shape[2:]:
        count *= static(n)
    return count


def _unpool(
    function: str, axes: int, x: Tensor, indices: Tensor, numbers: Sequence[Each | None],
    output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    op, has_batch = with_batch(function, x, axes)
    place = tensor_op(function, "indices", indices)
    if place.shape != x.shape:
        raise ShapeError(f"{function}: indices {place.shape} must have the shape of input {x.shape}.")
    kernel_size, stride, padding = numbers
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    strides = kernel if stride is None else each_axis(function, "stride", stride, axes, 1)
    pads = each_axis(function, "padding", padding, axes, 0)
    lengths = tuple((static(n) - 1) * s - 2 * p + k for n, s, p, k in zip(op.shape[2:], strides, pads, kernel))
    if output_size is not None:
        lengths = each_axis(function, "output_size", tuple(output_size)[-axes:], axes, 1)
    whole = 1
    for n in lengths:
        whole *= n
    flat = (*op.shape[:2], _numel(op))
    base = filled(0, op.dtype, (*op.shape[:2], whole))
    index = reshape(cast_op(place, dtypes.int64), flat)
    result = reshape(scatter_rows(base, index, reshape(op, flat)), (*op.shape[:2], *lengths))
    return x.from_op(without_batch(result, has_batch), x.other_device(function, indices))


def scatter_rows(base: Op, index: Op, updates: Op) -> Op:
    """Returns base (N, C, L) with updates (N, C, P) stored at index."""
    return scatter(base, index, updates, None, 2, 2)
