"""What functions of windows share: arguments for each axis, the batch axis, where windows and bins fall.

In:    arguments as users write them
Out:   `each_axis`, `with_batch`, `Windows`, `pooling_windows`, `placed`, `bins_of`
Next:  picograd/nn/functions/convolution.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import iota, repeat_axes, reshape
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor

Each = int | Sequence[int]  # one number for all spatial axes, or one for each
Bins = int | Sequence[int | None] | None  # the same; None: as many bins as the axis is long


def each_axis(function: str, name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """Returns an argument as one number for each spatial axis.

    Raises:
      ArgumentError: it is no int and no sequence of `count` of them, or one is below `least`.
    """
    if type(value) is int and value >= least:
        return (value,) * count
    values = (value,) * count if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(values) == 1:
        values *= count
    if len(values) != count or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise ArgumentError(f"{function}: {name} must be an int, or {count} of them, got {value!r}.")
    if min(values) < least:
        raise ArgumentError(f"{function}: {name} must be at least {least}, got {value!r}.")
    return values


def with_batch(function: str, x: Tensor, num_spatial: int) -> tuple[Op, bool]:
    """Returns (N, C, *spatial), and whether x has the batch axis itself.

    Raises:
      ShapeError: it has neither num_spatial + 1 nor num_spatial + 2 axes.
    """
    op = tensor_of(function, "input", x).read()
    if len(op.shape) not in (num_spatial + 1, num_spatial + 2):
        spatial = ", ".join(("L",) if num_spatial == 1 else ("D", "H", "W")[3 - num_spatial :])
        hint = f"input.unsqueeze(0): {(1, *op.shape)} has one channel." if len(op.shape) == num_spatial else None
        raise ShapeError(f"{function}: input must be (N, C, {spatial}) or (C, {spatial}), got {op.shape}.", hint)
    has_batch = len(op.shape) == num_spatial + 2
    return (op if has_batch else reshape(op, (1, *op.shape))), has_batch


def without_batch(op: Op, has_batch: bool) -> Op:
    """Undoes `with_batch`."""
    return op if has_batch else reshape(op, op.shape[1:])


def _num_windows(
    function: str, length: Dim, kernel: int, stride: int, padding: tuple[int, int], dilation: int, ceil_mode: bool = False
) -> int:
    """Returns how many windows an axis has; with ceil_mode one more that is cut off, if it starts before the end.

    Raises:
      ShapeError: none fits.
    """
    before, after = padding
    whole, span = static(length) + before + after, (kernel - 1) * dilation + 1
    count = (whole - span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= static(length) + before:
        count -= 1
    if count < 1:
        shown = before if before == after else padding
        raise ShapeError(
            f"{function}: a window spanning {span} does not fit an axis of length {length} with padding {shown}."
        )
    return count


class Windows(Record):
    """Where windows lie along each spatial axis.

    kernel, strides, steps:  elements of a window, from window to window, and from element to element of one
    before, after:           elements of padding
    counts:                  number of windows; the last may reach beyond the padding
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    counts: tuple[int, ...]

    def places(self, axis: int) -> Op:
        """Returns (kernel, count) int64: where along an axis each tap of each window falls, perhaps outside of it."""
        shape = (self.kernel[axis], self.counts[axis])
        taps, starts = repeat_axes(iota(shape[0]), (1,), shape), repeat_axes(iota(shape[1]), (0,), shape)
        return starts * self.strides[axis] + taps * self.steps[axis] - self.before[axis]

    def margins(self, lengths: Shape) -> tuple[tuple[int, int], ...]:
        """Returns how many elements windows see before and after each axis."""
        ends = [(c - 1) * s + (k - 1) * d + 1 for c, s, k, d in zip(self.counts, self.strides, self.kernel, self.steps)]
        return tuple((b, max(0, end - static(n) - b)) for b, end, n in zip(self.before, ends, lengths))


def pooling_windows(function: str, op: Op, numbers: Sequence[Each | None], ceil_mode: bool) -> Windows:
    """Returns the windows that kernel_size, stride (None: kernel_size), padding and dilation put over (N, C, *spatial).

    Raises:
      ShapeError:    none fits.
      ArgumentError: an argument is no number that fits, or padding more than half of kernel_size.
    """
    kernel_size, stride, padding, dilation = numbers
    axes = len(op.shape) - 2
    kernel = each_axis(function, "kernel_size", kernel_size, axes, 1)
    strides = kernel if stride is None else each_axis(function, "stride", stride, axes, 1)
    pads, steps = each_axis(function, "padding", padding, axes, 0), each_axis(function, "dilation", dilation, axes, 1)
    if any(2 * p > k for p, k in zip(pads, kernel)):
        raise ArgumentError(f"{function}: padding {padding} must be at most half of kernel_size {kernel_size}.")
    return placed(function, op.shape[2:], kernel, strides, steps, (pads, pads), ceil_mode)


def placed(
    function: str, lengths: Shape, kernel: tuple[int, ...], strides: tuple[int, ...], steps: tuple[int, ...],
    pads: tuple[tuple[int, ...], tuple[int, ...]], ceil_mode: bool,
) -> Windows:  # fmt: skip
    """Returns windows over axes of these lengths, as many as fit.

    Raises:
      ShapeError: none fits.
    """
    counts = tuple(
        _num_windows(function, n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(lengths, kernel, strides, zip(*pads), steps)
    )
    return Windows(kernel, strides, steps, *pads, counts)


# ---- bins: as many windows as asked for, next to each other ----
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
