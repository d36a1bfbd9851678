"""Windows side by side and back, margins of other kinds than zeros, and channels that become pixels.

In:    tensors
Out:   tensors
Next:  picograd/nn/functions/resize.py

Letters: N batch, C channels, K taps of a window, P windows; H, W lengths, r a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import gather, iota, maximum, minimum, permute, reshape, scatter, shrink_axis, unary
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.nn.functions.placement import Each, Windows, each_axis, placed, with_batch, without_batch
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor

__all__ = ["channel_shuffle", "fold", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]


# ---- windows ----
def unfold(
    input: Tensor, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1,  # noqa: A002
) -> Tensor:  # fmt: skip
    """Returns the windows of input as columns.

    out[n, (c, k, l), (i, j)] = input[n, c, i s + k d - p, j s + l d - p], 0 outside

    Args:
      input:        (N, C, H, W) or (C, H, W)
      kernel_size:  (K, K')
      dilation:     d, steps between the elements of a window
      padding:      p, zeros around input
      stride:       s, steps between windows

    Returns:   (N, C K K', P)

    Raises:
      ShapeError:    input has another number of axes, or no window fits.
      ArgumentError: an argument is no number that fits.

    >>> unfold(Tensor([[[1.0, 2.0, 3.0]]]), (1, 2))
    Tensor([[1., 2.],
            [2., 3.]])
    """
    op, has_batch = with_batch("unfold", input, 2)
    windows = _windows("unfold", op.shape[2:], (kernel_size, dilation, padding, stride))
    for axis in (1, 0):
        op = gather(op, windows.places(axis), 2 + axis, 0)  # (N, C, K, H', K', W') in the end
    op = permute(op, (0, 1, 2, 4, 3, 5))
    result = reshape(op, (op.shape[0], static(op.shape[1]) * prod(windows.kernel), prod(windows.counts)))
    return input.from_op(without_batch(result, has_batch), input.cell.device)


def fold(
    input: Tensor, output_size: Each, kernel_size: Each, dilation: Each = 1, padding: Each = 0,  # noqa: A002
    stride: Each = 1,
) -> Tensor:  # fmt: skip
    """Returns the sums of windows that overlap: the transpose of `unfold`.

    Args:
      input:        (N, C K K', P) or (C K K', P)
      output_size:  (H, W) of the result
      kernel_size, dilation, padding, stride: as in `unfold`

    Returns:   (N, C, H, W)

    Raises:
      ShapeError:    input does not have as many windows as output_size, or channels no multiple of the taps.
      ArgumentError: an argument is no number that fits.

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
    """Returns (N, C, *lengths): windows that are columns (N, C * taps, P), added up where they overlap.

    Raises:
      ShapeError: there are not as many windows, or channels no multiple of the taps.
    """
    kernel, counts = windows.kernel, windows.counts
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
    """Returns input with a margin.

    Args:
      input:  any shape; for modes other than "constant" (N, C, *spatial) or (C, *spatial)
      pad:    before and after for the last axis, then for the one before it, ...; negative numbers cut off
      mode:   "constant": value; "reflect": mirrored, the edge not repeated; "replicate": the edge; "circular": the
              other end
      value:  of "constant", 0 where it is None

    Raises:
      ShapeError:    a margin of "reflect" or "circular" is longer than what it is made of.
      ArgumentError: another mode, a value where mode does not take one, or no pair for each axis.

    >>> pad(Tensor([[1, 2, 3]]), (2, 1), "reflect")
    Tensor([[3, 2, 1, 2, 3, 2]])
    """
    if mode == "constant":
        return input.pad(pad, value=0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ArgumentError(f'pad: mode must be "constant", "reflect", "replicate" or "circular", got {mode!r}.')
    if value is not None:
        raise ArgumentError(f'pad: mode="{mode}" takes no value, got {value}.')
    op = tensor_of("pad", "input", input).read()
    if len(pad) % 2 or not 1 <= len(pad) // 2 < len(op.shape) <= len(pad) // 2 + 2:
        raise ArgumentError(
            f'pad: mode="{mode}" needs a pair for each axis of {input.shape} but the first one or two, got {tuple(pad)}.'
        )
    for number in range(len(pad) // 2):
        axis = len(op.shape) - 1 - number
        before, after = pad[2 * number], pad[2 * number + 1]
        if mode == "circular" and min(before, after) < 0:  # what is cut off does not come in at the other end
            op, before, after = _cut(op, axis, max(0, -before), max(0, -after)), max(0, before), max(0, after)
        op = gather(op, _margin(mode, static(op.shape[axis]), before, after, axis), axis, 0)
    return input.from_op(op, input.cell.device)


def _cut(op: Op, axis: int, before: int, after: int) -> Op:
    """Returns op without so many elements at both ends of an axis."""
    length = static(op.shape[axis])
    if before + after > length:
        raise ShapeError(f"pad: margins {-before} and {-after} cut off more than the {length} elements of axis {axis}.")
    return shrink_axis(op, axis, before, length - after)


def _margin(mode: str, length: int, before: int, after: int, axis: int) -> Op:
    """Returns which element stands at each place of an axis with its margins."""
    most = {"reflect": length - 1, "circular": length}.get(mode, max(before, after) if length else 0)
    if max(before, after) > most:
        longest = max(before, after)
        raise ShapeError(f'pad: a margin of {longest} is too long for axis {axis} of length {length} in mode "{mode}".')
    if length + before + after < 0:
        raise ShapeError(f"pad: margins {before} and {after} cut off more than the {length} elements of axis {axis}.")
    place = iota(length + before + after) - before
    if mode == "circular":
        return Op(OpCode.MOD, place.dtype, (place, place.filled(max(1, length))))
    if mode == "replicate":
        return minimum(maximum(place, 0), length - 1)
    mirrored = maximum(place, unary(OpCode.NEG, place))
    return minimum(mirrored, unary(OpCode.NEG, mirrored) + 2 * (length - 1))


# ---- channels ----
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:  # noqa: A002
    """Returns (..., C r r, H, W) as (..., C, H r, W r): channels become pixels.

    Args:
      input:           (..., C r r, H, W)
      upscale_factor:  r

    Raises:
      ShapeError:    input has fewer than three axes, or channels no multiple of r r.
      ArgumentError: upscale_factor is no positive int.

    >>> pixel_shuffle(Tensor([[[1]], [[2]], [[3]], [[4]]]), 2)
    Tensor([[[1, 2],
             [3, 4]]])
    """
    r = _factor("pixel_shuffle", "upscale_factor", upscale_factor, input)
    *batch, channels, height, width = input.shape
    if channels % (r * r):
        raise ShapeError(f"pixel_shuffle: input {input.shape} has {channels} channels, no multiple of {r} * {r}.")
    n = len(batch)
    split = input.reshape(*batch, channels // (r * r), r, r, height, width)
    moved = split.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return moved.reshape(*batch, channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:  # noqa: A002
    """Returns (..., C, H r, W r) as (..., C r r, H, W): pixels become channels.

    Args:
      input:             (..., C, H r, W r)
      downscale_factor:  r

    Raises:
      ShapeError:    input has fewer than three axes, or a length that is no multiple of r.
      ArgumentError: downscale_factor is no positive int.

    >>> pixel_unshuffle(Tensor([[[1, 2], [3, 4]]]), 2).flatten()
    Tensor([1, 2, 3, 4])
    """
    r = _factor("pixel_unshuffle", "downscale_factor", downscale_factor, input)
    *batch, channels, height, width = input.shape
    if height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: input {input.shape} has lengths that are not multiples of {r}.")
    n = len(batch)
    split = input.reshape(*batch, channels, height // r, r, width // r, r)
    moved = split.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return moved.reshape(*batch, channels * r * r, height // r, width // r)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:  # noqa: A002
    """Returns input with the channels of its groups dealt out in turn: of (a a b b) it makes (a b a b).

    Args:
      input:   (N, C, ...)
      groups:  slices of C

    Raises:
      ShapeError:    input has fewer than three axes, or channels no multiple of groups.
      ArgumentError: groups is no positive int.

    >>> channel_shuffle(Tensor([[[1], [2], [3], [4]]]), 2).flatten()
    Tensor([1, 3, 2, 4])
    """
    count = _factor("channel_shuffle", "groups", groups, input)
    batch, channels, *rest = input.shape
    if channels % count:
        raise ShapeError(f"channel_shuffle: input {input.shape} has {channels} channels, no multiple of groups={groups}.")
    return input.reshape(batch, count, channels // count, *rest).transpose(1, 2).reshape(input.shape)


def _factor(function: str, name: str, value: int, x: Tensor) -> int:
    if not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{function}: {name} must be an int of at least 1, got {value!r}.")
    if x.ndim < 3:
        raise ShapeError(f"{function}: input must have at least three axes, got {x.shape}.")
    return value
