"""Gives gradients of a convolution's weight the form that fills the vectors of a CPU.

In:    a CONV
Out:   `is_of_pixels`, `operands_by_image`, `sum_of_images`;  `is_narrow`, `with_roles_swapped`
Called by: schedule/contract.py.    Next: picograd/schedule/pieces.py

Such a CONV has channels where others have images, and images where others have channels (autodiff/transposes.py):

    x (C, B, *lengths), w (O, B, *windows)  ->  (C, O, *taps)
"""

from __future__ import annotations

from math import prod

from picograd.device import Target
from picograd.ir.build import cast, flip, permute, reduce, reshape, static_shape
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg, MatmulArg
from picograd.record import replace

WELL_FILLED = 0.6  # of the lanes of the vectors that outputs are computed in, one or two


def is_of_pixels(op: Op, target: Target | None) -> bool:
    """True for a weight that sees one element at a time, of fewer numbers than the images that it sees."""
    if not _is_plain(op, target) or op.src[0].shape[2:] != op.src[1].shape[2:] or set(op.arg.padding) != {(0, 0)}:
        return False
    channels, outputs = static_shape(op.shape[:2])
    return channels * outputs <= (channels + outputs) * prod(static_shape(op.src[0].shape[2:]))


def operands_by_image(op: Op, x: Op, w: Op) -> tuple[Op, Op, MatmulArg | None]:
    """Returns the operands of a product of each image, as they lie: (B, C, P) and (B, P, O)."""
    wide, num_pixels = op.dtype.compute_dtype, prod(static_shape(x.shape[2:]))
    images = permute(reshape(cast(x, wide), (*x.shape[:2], num_pixels)), (1, 0, 2))
    grads = permute(reshape(cast(w, wide), (*w.shape[:2], num_pixels)), (1, 2, 0))
    return images, grads, MatmulArg(tf32=True) if op.arg.tf32 else None


def sum_of_images(op: Op, products: Op) -> Op:
    """Returns the gradient, from products of each image."""
    return reshape(cast(reduce(products, OpCode.ADD, (0,)), op.dtype), op.shape)


def is_narrow(op: Op, target: Target | None) -> bool:
    """True for a weight whose outputs leave lanes empty that its channels fill."""
    if target is None or not _is_plain(op, target) or min(_padding_of_swapped(op)[0]) < 0:
        return False
    lanes = max(1, target.vector_bytes // max(4, op.dtype.compute_dtype.itemsize))
    channels, outputs = static_shape(op.shape[:2])
    return _filled(outputs, lanes) < WELL_FILLED <= _filled(channels, lanes)


def with_roles_swapped(op: Op, x: Op, w: Op) -> Op:
    """Returns the sum over p of x[p + t] w[p] as a CONV of w, with taps turned around, whose outputs are channels of x."""
    spatial = tuple(range(2, len(op.shape)))
    arg = replace(op.arg, padding=_padding_of_swapped(op))
    return permute(flip(Op(OpCode.CONV, op.dtype, (w, x), arg), spatial), (1, 0, *spatial))


def _padding_of_swapped(op: Op) -> tuple[tuple[int, int], ...]:
    lengths, windows = static_shape(op.src[0].shape[2:]), static_shape(op.src[1].shape[2:])
    pairs = zip(lengths, windows, op.arg.padding)
    return tuple([(length - window + after, length - window + before) for length, window, (before, after) in pairs])


def _is_plain(op: Op, target: Target | None) -> bool:
    """True for the gradient of a weight whose windows are side by side, on a CPU, where sums need not be a result's own."""
    arg: ConvArg = op.arg
    if target is not None and (target.is_gpu or target.plain_sums):
        return False
    if not arg.of_weight or arg.groups != 1 or {*arg.stride, *arg.dilation, *arg.input_dilation} != {1}:
        return False
    return op.dtype.is_float and all(isinstance(n, int) and n > 0 for s in op.src for n in s.shape)


def _filled(count: int, lanes: int) -> float:
    """Returns how much of their vectors so many outputs fill."""
    width = lanes if count <= lanes else 2 * lanes
    return count / (-(-count // width) * width)
