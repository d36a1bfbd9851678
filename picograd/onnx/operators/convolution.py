"""Convolutions: of floats, of integers, transposed, deformed; and what undoes a division into windows.

In:    tensors x (N, C, spatial axes...), weights (O, C / group, kernel...)
Out:   `OPERATORS`
Next:  picograd/onnx/operators/normalization.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ShapeError, UnsupportedOp
from picograd.nn import functional as F
from picograd.nn.functions.grids import Sampler
from picograd.nn.functions.placement import Windows
from picograd.nn.functions.slide import image_of
from picograd.onnx.operators.pooling import padded, windows_of
from picograd.onnx.operators.quantization import quantize
from picograd.onnx.record import row
from picograd.tensor.tensor import Tensor

Numbers = Sequence[int] | None
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _axes(function: str, x: Tensor) -> int:
    axes = x.ndim - 2
    if axes not in CONV:
        raise UnsupportedOp(f"{function}: {axes} spatial axes are not supported; 1 to 3 are.")
    return axes


def _check_kernel(function: str, kernel_shape: Numbers, w: Tensor) -> None:
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        raise ShapeError(f"{function}: kernel_shape {[*kernel_shape]} is not that of the weights, {w.shape}.")


# ---- convolution ----
def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, kernel_shape: Numbers = None, strides: Numbers = None,
    pads: Numbers = None, dilations: Numbers = None, group: int = 1, auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """Returns the sums of products of weights with each window."""
    axes = _axes("Conv", x)
    _check_kernel("Conv", kernel_shape, w)
    windows = windows_of("Conv", x.shape[2:], w.shape[2:], strides, pads, dilations, auto_pad)
    if windows.before == windows.after:
        return CONV[axes](x, w, b, windows.strides, windows.before, windows.steps, group)
    return CONV[axes](padded(x, windows), w, b, windows.strides, 0, windows.steps, group)


def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **about: Any
) -> Tensor:
    """Returns the convolution of x - x_zero with w - w_zero in int32."""
    # NOTE: in float64, whose integers are exact up to 2**53: sums of int8 products reach 2**31 at most.
    values, weights = x.to(dtypes.float64), w.to(dtypes.float64)
    if x_zero is not None:
        values = values - x_zero.to(dtypes.float64)
    if w_zero is not None:
        weights = weights - w_zero.to(dtypes.float64).reshape(-1, *(1,) * (w.ndim - 1))
    return conv(values, weights, **about).to(dtypes.int32)


def integer_conv(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, *, kernel_shape: Numbers = None,
    strides: Numbers = None, pads: Numbers = None, dilations: Numbers = None, group: int = 1, auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """Returns conv_integer."""
    return conv_integer(
        x, w, x_zero, w_zero, kernel_shape=kernel_shape, strides=strides, pads=pads, dilations=dilations, group=group,
        auto_pad=auto_pad,
    )  # fmt: skip


def quantized_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
    b: Tensor | None = None, *, kernel_shape: Numbers = None, strides: Numbers = None, pads: Numbers = None,
    dilations: Numbers = None, group: int = 1, auto_pad: str = "NOTSET",
) -> Any:  # fmt: skip
    """Returns the convolution of quantized tensors, quantized."""
    total = integer_conv(
        x, w, x_zero, w_zero, kernel_shape=kernel_shape, strides=strides, pads=pads, dilations=dilations, group=group,
        auto_pad=auto_pad,
    )  # fmt: skip
    if b is not None:
        total = total + b.reshape(-1, *(1,) * (x.ndim - 2))
    scale = x_scale * w_scale.reshape(-1, *(1,) * (x.ndim - 2))
    return quantize(total.to(dtypes.float32) * scale, y_scale, y_zero)


# ---- transposed ----
def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, kernel_shape: Numbers = None, strides: Numbers = None,
    pads: Numbers = None, dilations: Numbers = None, group: int = 1, auto_pad: str = "NOTSET",
    output_padding: Numbers = None, output_shape: Numbers = None,
) -> Tensor:  # fmt: skip
    """Returns the transpose of a convolution: what its gradient with respect to its input is."""
    axes = _axes("ConvTranspose", x)
    _check_kernel("ConvTranspose", kernel_shape, w)
    steps, gaps = strides or [1] * axes, dilations or [1] * axes
    extra = output_padding or [0] * axes
    whole = CONV_TRANSPOSE[axes](x, w, None, steps, 0, 0, group, gaps)
    wanted = output_shape
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * step for n, step in zip(x.shape[2:], steps)]
    cut = [*(pads or [0] * (2 * axes))] if auto_pad == "NOTSET" else [0] * (2 * axes)
    if wanted is not None:
        rest = [n + more - asked for n, more, asked in zip(whole.shape[2:], extra, [*wanted][-axes:])]
        first = [n // 2 if auto_pad == "SAME_UPPER" else n - n // 2 for n in rest]
        cut = [*first, *(n - start for n, start in zip(rest, first))]
    margins = [n for axis in reversed(range(axes)) for n in (-cut[axis], extra[axis] - cut[axes + axis])]
    result = whole.pad(margins) if any(margins) else whole
    return result if b is None else result + b.reshape(-1, *(1,) * axes)


def columns_to_image(
    x: Tensor, image_shape: Sequence[int], block_shape: Sequence[int], *, dilations: Numbers = None, pads: Numbers = None,
    strides: Numbers = None,
) -> Tensor:  # fmt: skip
    """Returns the image whose windows are the columns of x, summed where they overlap."""
    windows = windows_of("Col2Im", image_shape, block_shape, strides, pads, dilations)
    return x.from_op(image_of("Col2Im", x.read(), windows, image_shape), x.device)


# ---- deformed ----
def deform_conv(
    x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None, *, dilations: Numbers = None,
    group: int = 1, kernel_shape: Numbers = None, offset_group: int = 1, pads: Numbers = None, strides: Numbers = None,
) -> Tensor:  # fmt: skip
    """Returns a convolution whose windows see x where offsets say, between elements too, times a mask."""
    _check_kernel("DeformConv", kernel_shape, w)
    kernel = w.shape[2:]
    windows = windows_of("DeformConv", x.shape[2:], kernel, strides, pads, dilations)
    axes, count, batch = len(kernel), math.prod(kernel), x.shape[0]
    moved = offset.reshape(batch, offset_group, *kernel, axes, *windows.counts)
    by_tap = None if mask is None else mask.reshape(batch, offset_group, 1, *kernel, *windows.counts)
    groups = []
    for number, part in enumerate(x.chunk(offset_group, 1)):
        taken = _deformed(part, moved[:, number], windows)
        groups.append(taken if by_tap is None else taken * by_tap[:, number])  # (N, C / offset_group, taps..., outputs...)
    columns = Tensor.cat(groups, 1).reshape(batch, group, x.shape[1] // group * count, math.prod(windows.counts))
    weights = w.reshape(1, group, w.shape[0] // group, -1)
    result = (weights @ columns).reshape(batch, w.shape[0], *windows.counts)
    return result if b is None else result + b.reshape(-1, *(1,) * axes)


def _deformed(x: Tensor, offset: Tensor, windows: Windows) -> Tensor:
    """Returns (N, C, taps..., outputs...): what windows see, (N, taps..., axes, outputs...) away from where they stand."""
    axes, where = len(windows.kernel), []
    for axis in range(axes):
        shape = [n if i % axes == axis else 1 for i, n in enumerate((*windows.kernel, *windows.counts))]
        base = x.from_op(windows.places(axis), x.device).reshape(*shape)
        where.append((offset.select(1 + axes, axis) + base.to(offset.dtype)).to(x.dtype.compute_dtype))
    sampler = Sampler(x.to(x.dtype.compute_dtype).read(), "zeros", False)
    return x.from_op(sampler.at([place.read() for place in where], "bilinear"), x.device).to(x.dtype)


OPERATORS = [
    row("Conv", 1, conv, "3+ like 1"), row("ConvTranspose", 1, conv_transpose, "3+ like 1"),
    row("ConvInteger", 10, integer_conv, "3+ like single 0-1", state=(2, 3)),
    row("QLinearConv", 10, quantized_conv, "3+ single single like 0-1 0-1 single single 1", state=(1, 2, 4, 5, 6, 7)),
    row("Col2Im", 18, columns_to_image, "3 row row"), row("DeformConv", 19, deform_conv, "3+ like like 1 like"),
]  # fmt: skip
