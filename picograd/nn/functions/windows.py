"""Windows along spatial axes: arguments per axis, positions of windows and bins, columns, padding, pixel shuffles.

Letters: N batch, C channels, K taps of a window, P windows; H, W lengths, r a factor.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from picograd.errors import ArgumentError, ShapeError, UnsupportedOp
from picograd.ir import symbolic
from picograd.ir.build import (
    floordiv,
    gather,
    iota,
    maximum,
    minimum,
    mod,
    number_like,
    permute,
    repeat_axes,
    reshape,
    scatter,
    shrink_axis,
)
from picograd.ir.op import Dim, Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, at_least_0, bounds, ceildiv, dim_value, mul, subtract
from picograd.record import Record
from picograd.tensor.arguments import at_least, tensor_of
from picograd.tensor.build import is_integer, static
from picograd.tensor.cell import trace
from picograd.tensor.formulas import formula
from picograd.tensor.tensor import Tensor

__all__ = ["channel_shuffle", "fold", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]


# ---- arguments ----
Each = int | Sequence[int]  # one number for all spatial axes, or one per axis
Bins = int | Sequence[int | None] | None  # the same; None: the axis' length


def each_axis(function: str, name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """Returns an argument as one number per spatial axis.

    Raises:
      ArgumentError: it is neither an int nor a sequence of `count` of them, or one is below `least`.
    """
    if type(value) is int and value >= least:
        return (value,) * count
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) == 1:
        values *= count
    if len(values) != count or not all(is_integer(v) and not isinstance(v, bool) for v in values):
        raise ArgumentError(f"{function}: {name} must be an int, or {count} of them, got {value!r}.")
    if min(values) < least:
        raise ArgumentError(f"{function}: {name} must be at least {least}, got {value!r}.")
    return tuple(map(operator.index, values))


def with_batch(function: str, x: Tensor, num_spatial: int) -> tuple[Op, bool]:
    """Returns x as (N, C, *spatial), and whether it had the batch axis.

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
    function: str, length: Dim, kernel: int, stride: int, padding: tuple[int, int], dilation: int, ceil_mode: bool
) -> Dim:
    """Returns the number of windows along an axis; ceil_mode adds one that is cut off, if it starts before the end.

    Raises:
      ShapeError: no window fits.
    """
    before, after = padding
    span = (kernel - 1) * dilation + 1
    count = add(symbolic.floordiv(add(length, before + after - span + (stride - 1 if ceil_mode else 0)), stride), 1)
    if ceil_mode:
        count = symbolic.minimum(count, ceildiv(add(length, before), stride))
    if least(count) < 1:
        shown = before if before == after else padding
        raise ShapeError(
            f"{function}: a window spanning {span} does not fit an axis of length {length} with padding {shown}."
        )
    return count


def least(length: Dim) -> int:
    """Returns a length, or in a trace its lower bound, since the function will be called with other lengths.

    A symbolic length without a value, in a graph for many lengths, counts as the largest: each real one was checked.
    """
    if isinstance(length, int):
        return length
    if trace.get() is not None:
        return bounds(length)[0]
    try:
        return dim_value(length, {})
    except UnsupportedOp:
        return bounds(length)[1]


class Windows(Record):
    """Positions of windows along each spatial axis.

    kernel, strides, steps:  elements of a window, elements between windows, elements between those of a window
    before, after:           elements of padding
    counts:                  number of windows; the last may reach beyond the padding
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    counts: tuple[Dim, ...]

    def places(self, axis: int) -> Op:
        """Returns (kernel, count) int64: position along an axis of each tap of each window; it may be outside."""
        shape = (self.kernel[axis], self.counts[axis])
        taps, starts = repeat_axes(iota(shape[0]), (1,), shape), repeat_axes(iota(shape[1]), (0,), shape)
        return starts * self.strides[axis] + taps * self.steps[axis] - self.before[axis]

    def margins(self, lengths: Shape) -> tuple[tuple[int, Dim], ...]:
        """Returns the number of elements that windows reach before and after each axis."""
        each = zip(self.counts, self.strides, self.kernel, self.steps)
        ends = [add(mul(subtract(count, 1), stride), (k - 1) * step + 1) for count, stride, k, step in each]
        return tuple((b, at_least_0(subtract(end, add(n, b)))) for b, end, n in zip(self.before, ends, lengths))


def pooling_windows(function: str, op: Op, numbers: Sequence[Each | None], ceil_mode: bool) -> Windows:
    """Returns the windows of kernel_size, stride (None: kernel_size), padding and dilation over (N, C, *spatial).

    Raises:
      ShapeError:    no window fits.
      ArgumentError: an argument is not a number in its range, or padding exceeds half of kernel_size.
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
    """Returns as many windows as fit on axes of these lengths.

    Raises:
      ShapeError: no window fits.
    """
    counts = tuple(
        _num_windows(function, n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(lengths, kernel, strides, zip(*pads), steps)
    )
    return Windows(kernel, strides, steps, *pads, counts)


# ---- bins: as many windows as asked for, next to each other ----
def bins_of(function: str, op: Op, output_size: Bins, axes: int) -> list[Dim]:
    """Returns the number of bins per axis; None means its length.

    Raises:
      ShapeError:    an axis to be divided is empty.
      ArgumentError: output_size is not a number in its range.
    """
    given = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * axes
    lengths = op.shape[2:]
    is_length = [count is None for count in given] if len(given) == axes else [False] * axes
    chosen = tuple([0 if count is None and len(given) == axes else count for count in given])
    counts = each_axis(function, "output_size", chosen, axes, 0)
    if 0 in lengths:
        raise ShapeError(f"{function}: an axis of input {op.shape} is empty.")
    return [length if same else count for length, count, same in zip(lengths, counts, is_length)]


def start_of_bin(i: Op, length: Dim, count: Dim) -> Op:
    """Returns floor(i length / count)."""
    return floordiv(i * number_like(i, length), number_like(i, count))


def end_of_bin(i: Op, length: Dim, count: Dim) -> Op:
    """Returns ceil((i + 1) length / count)."""
    return floordiv((i + 1) * number_like(i, length) + number_like(i, subtract(count, 1)), number_like(i, count))


def widest_bin(length: Dim, count: Dim) -> Dim:
    """Returns the length of the longest bin, or an upper bound for symbolic numbers."""
    if length == count:
        return 1
    if isinstance(length, int) and isinstance(count, int):
        return max((ceildiv((i + 1) * length, count) - i * length // count for i in range(count)), default=1)
    return symbolic.minimum(length, add(symbolic.floordiv(length, count), 2))


# ---- windows ----
def unfold(
    input: Tensor, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1,  # noqa: A002
) -> Tensor:  # fmt: skip
    """Returns the windows of input as columns.

    out[n, (c, k, l), (i, j)] = input[n, c, i s + k d - p, j s + l d - p], 0 outside

    Args:
      input:        (N, C, H, W) or (C, H, W)
      kernel_size:  (K, K')
      dilation:     d, elements between the elements of a window
      padding:      p, zeros around input
      stride:       s, elements between windows

    Returns:   (N, C K K', P)

    Raises:
      ShapeError:    input has the wrong number of axes, or no window fits.
      ArgumentError: an argument is not a number in its range.

    >>> unfold(Tensor([[[1.0, 2.0, 3.0]]]), (1, 2))
    Tensor([[1., 2.],
            [2., 3.]])
    """
    op, has_batch = with_batch("unfold", input, 2)
    windows = _windows("unfold", op.shape[2:], (kernel_size, dilation, padding, stride))
    for axis in (1, 0):
        op = gather(op, windows.places(axis), 2 + axis, 0)  # (N, C, K, H', K', W') in the end
    op = permute(op, (0, 1, 2, 4, 3, 5))
    result = reshape(op, (op.shape[0], static(op.shape[1]) * prod(windows.kernel), numel(windows.counts)))
    return input.from_op(without_batch(result, has_batch), input.cell.device)


def fold(
    input: Tensor, output_size: Each, kernel_size: Each, dilation: Each = 1, padding: Each = 0,  # noqa: A002
    stride: Each = 1,
) -> Tensor:  # fmt: skip
    """Sums overlapping windows: the transpose of `unfold`.

    Args:
      input:        (N, C K K', P) or (C K K', P)
      output_size:  (H, W) of the result
      kernel_size, dilation, padding, stride: as in `unfold`

    Returns:   (N, C, H, W)

    Raises:
      ShapeError:    the number of windows does not match output_size, or the taps do not divide the channels.
      ArgumentError: an argument is not a number in its range.

    >>> fold(Tensor([[1.0, 2.0], [2.0, 3.0]]), (1, 3), (1, 2))
    Tensor([[[1., 4., 3.]]])
    """
    op = tensor_of("fold", "input", input).read()
    if len(op.shape) not in (2, 3):
        raise ShapeError(f"fold: input must be (N, C * taps, windows) or (C * taps, windows), got {op.shape}.")
    has_batch = len(op.shape) == 3
    op = op if has_batch else reshape(op, (1, *op.shape))
    lengths = each_axis("fold", "output_size", output_size, 2, 1)
    result = image_of("fold", op, _windows("fold", lengths, (kernel_size, dilation, padding, stride)), lengths)
    return input.from_op(without_batch(result, has_batch), input.cell.device)


def image_of(function: str, columns: Op, windows: Windows, lengths: Sequence[int]) -> Op:
    """Sums windows given as columns (N, C * taps, P) where they overlap: (N, C, *lengths).

    Raises:
      ShapeError: the number of windows differs, or the taps do not divide the channels.
    """
    kernel, counts = windows.kernel, tuple(map(static, windows.counts))
    batch, channels, number = columns.shape
    if static(channels) % prod(kernel) or static(number) != prod(counts):
        raise ShapeError(
            f"{function}: input {columns.shape} must have a multiple of {prod(kernel)} channels and {prod(counts)} "
            f"windows: {tuple(lengths)} has {' x '.join(map(str, counts))} windows of {' x '.join(map(str, kernel))}."
        )
    images, axes = (batch, static(channels) // prod(kernel)), len(kernel)
    pairs = [n for axis in range(axes) for n in (2 + axis, 2 + axes + axis)]
    op = permute(reshape(columns, (*images, *kernel, *counts)), (0, 1, *pairs))  # (N, C, K, H', K', W', ...)
    for axis in reversed(range(axes)):
        at = 2 + 2 * axis
        base = filled(0, op.dtype, (*op.shape[:at], lengths[axis], *op.shape[at + 2 :]))
        op = scatter(base, windows.places(axis), op, OpCode.ADD, at, 0)
    return op


def _windows(function: str, lengths: Shape, numbers: Sequence[Each]) -> Windows:
    names = ("kernel_size", "dilation", "padding", "stride")
    kernel, steps, pads, strides = (
        each_axis(function, name, value, 2, 0 if name == "padding" else 1) for name, value in zip(names, numbers)
    )
    return placed(function, lengths, kernel, strides, steps, (pads, pads), False)


# ---- margins ----
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:  # noqa: A002
    """Returns input with padding.

    Args:
      input:  any shape; for modes other than "constant" (N, C, *spatial) or (C, *spatial)
      pad:    elements before and after the last axis, then the one before it, ...; negative numbers crop
      mode:   "constant": value; "reflect": mirrored without the edge; "replicate": the edge; "circular": the other end
      value:  for "constant", None: 0; for other modes None or 0

    Raises:
      ShapeError:    the padding of "reflect" or "circular" is longer than the axis allows.
      ArgumentError: an unknown mode, a value for a mode that takes none, or not a pair per axis.

    >>> pad(Tensor([[1, 2, 3]]), (2, 1), "reflect")
    Tensor([[3, 2, 1, 2, 3, 2]])
    """
    if mode == "constant":
        return input.pad(pad, value=0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ArgumentError(f'pad: mode must be "constant", "reflect", "replicate" or "circular", got {mode!r}.')
    if value:  # PyTorch accepts 0 with every mode
        raise ArgumentError(f'pad: mode="{mode}" takes no value, got {value}.')
    op = tensor_of("pad", "input", input).read()
    if len(pad) % 2 or not 1 <= len(pad) // 2 < len(op.shape) <= len(pad) // 2 + 2:
        raise ArgumentError(
            f'pad: mode="{mode}" needs a pair for each axis of {input.shape} except the first one or two, got {tuple(pad)}.'
        )
    for number in range(len(pad) // 2):
        axis = len(op.shape) - 1 - number
        before, after = pad[2 * number], pad[2 * number + 1]
        if mode == "circular" and min(before, after) < 0:  # elements cropped at one end do not come in at the other
            op, before, after = _cut(op, axis, max(0, -before), max(0, -after)), max(0, before), max(0, after)
        _check_margin(mode, least(op.shape[axis]), before, after, axis)
        op = _with_margin(op, mode, before, after, axis)
    return input.from_op(op, input.cell.device)


def _cut(op: Op, axis: int, before: int, after: int) -> Op:
    """Crops elements at both ends of an axis."""
    length = static(op.shape[axis])
    if before + after > length:
        raise ShapeError(f"pad: margins {-before} and {-after} cut off more than the {length} elements of axis {axis}.")
    return shrink_axis(op, axis, before, length - after)


def _check_margin(mode: str, length: int, before: int, after: int, axis: int) -> None:
    longest = max(before, after)
    most = {"reflect": length - 1, "circular": length}.get(mode, longest if length else 0)
    if longest > most:
        raise ShapeError(f'pad: a margin of {longest} is too long for axis {axis} of length {length} in mode "{mode}".')
    if length + before + after < 0:
        raise ShapeError(f"pad: margins {before} and {after} cut off more than the {length} elements of axis {axis}.")


@formula
def _with_margin(x: Op, mode: str, before: int, after: int, axis: int) -> Op:
    """Pads an axis of x with its own elements."""
    length = x.shape[axis]
    place = iota(add(length, before + after)) - before
    last = number_like(place, subtract(length, 1))
    if mode == "circular":
        place = mod(place, maximum(last + 1, 1))
    elif mode == "replicate":
        place = minimum(maximum(place, 0), last)
    else:
        mirrored = maximum(place, -place)
        place = minimum(mirrored, -mirrored + last * 2)
    return gather(x, place, axis, 0)


# ---- channels ----
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:  # noqa: A002
    """Moves channels to pixels: (..., C r r, H, W) -> (..., C, H r, W r).

    Args:
      input:           (..., C r r, H, W)
      upscale_factor:  r

    Raises:
      ShapeError:    input has fewer than three axes, or r r does not divide the channels.
      ArgumentError: upscale_factor is not a positive int.

    >>> pixel_shuffle(Tensor([[[1]], [[2]], [[3]], [[4]]]), 2)
    Tensor([[[1, 2],
             [3, 4]]])
    """
    _check_image("pixel_shuffle", input)
    r = at_least("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    *batch, channels, height, width = input.shape
    if channels % (r * r):
        raise ShapeError(f"pixel_shuffle: input {input.shape} has {channels} channels, no multiple of {r} * {r}.")
    n = len(batch)
    split = input.reshape(*batch, channels // (r * r), r, r, height, width)
    moved = split.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return moved.reshape(*batch, channels // (r * r), height * r, width * r).clone()


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:  # noqa: A002
    """Moves pixels to channels: (..., C, H r, W r) -> (..., C r r, H, W).

    Args:
      input:             (..., C, H r, W r)
      downscale_factor:  r

    Raises:
      ShapeError:    input has fewer than three axes, or r does not divide a length.
      ArgumentError: downscale_factor is not a positive int.

    >>> pixel_unshuffle(Tensor([[[1, 2], [3, 4]]]), 2).flatten()
    Tensor([1, 2, 3, 4])
    """
    _check_image("pixel_unshuffle", input)
    r = at_least("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    *batch, channels, height, width = input.shape
    if height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: input {input.shape} has lengths that are not multiples of {r}.")
    n = len(batch)
    split = input.reshape(*batch, channels, height // r, r, width // r, r)
    moved = split.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return moved.reshape(*batch, channels * r * r, height // r, width // r).clone()


def channel_shuffle(input: Tensor, groups: int) -> Tensor:  # noqa: A002
    """Interleaves the channels of the groups: (a a b b) becomes (a b a b).

    Args:
      input:   (N, C, ...)
      groups:  number of groups of consecutive channels

    Raises:
      ShapeError:    input has fewer than three axes, or groups does not divide the channels.
      ArgumentError: groups is not a positive int.

    >>> channel_shuffle(Tensor([[[1], [2], [3], [4]]]), 2).flatten()
    Tensor([1, 3, 2, 4])
    """
    _check_image("channel_shuffle", input)
    count = at_least("channel_shuffle", "groups", groups, 1)
    batch, channels, *rest = input.shape
    if channels % count:
        raise ShapeError(f"channel_shuffle: input {input.shape} has {channels} channels, no multiple of groups={groups}.")
    return input.reshape(batch, count, channels // count, *rest).transpose(1, 2).reshape(input.shape).clone()


def _check_image(function: str, x: Tensor) -> None:
    if x.ndim < 3:
        raise ShapeError(f"{function}: input must have at least three axes, got {x.shape}.")
