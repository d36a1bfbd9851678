"""Pooling, convolution, normalization and dropout over tensors (N, C, spatial axes...).

The values of windows are computed by functions of picograd.nn; this file computes the windows' positions by ONNX's rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError, UnsupportedOp
from picograd.ir.checks import Site, checked
from picograd.nn import functional as F
from picograd.nn.functions.interpolation import Sampler
from picograd.nn.functions.normalization import divided_by_neighbours, standardized
from picograd.nn.functions.pooling import max_of_windows, mean_of_windows, put_back, sum_of_windows
from picograd.nn.functions.windows import Windows, image_of, placed
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor
from picograd_onnx.operators.casts import quantize
from picograd_onnx.operators.math import generator_of
from picograd_onnx.record import Step, row

# ---- windows and pooling ----
Numbers = Sequence[int] | None


def windows_of(
    function: str, lengths: Sequence[int], kernel: Sequence[int], strides: Numbers, pads: Numbers, dilations: Numbers,
    auto_pad: str = "NOTSET", ceil_mode: int = 0,
) -> Windows:  # fmt: skip
    """Returns the positions of windows along axes of these lengths.

    Raises:
      ArgumentError: a number is below its limit, or auto_pad is unknown.
      ShapeError:    the numbers do not fit the axes, or a window is longer than its padded axis.
    """
    ndim = len(lengths)
    steps, gaps = [*(strides or [1] * ndim)], [*(dilations or [1] * ndim)]
    given = [*(pads or [0] * (2 * ndim))]
    if not len(kernel) == len(steps) == len(gaps) == ndim or len(given) != 2 * ndim:
        shown = f"kernel {[*kernel]}, strides {steps}, dilations {gaps} and pads {given}"
        raise ShapeError(f"{function}: {shown} do not fit {ndim} spatial axes.")
    if min([*kernel, *steps, *gaps], default=1) < 1 or min(given, default=0) < 0:
        shown = f"kernel {[*kernel]}, strides {steps} and dilations {gaps}"
        raise ArgumentError(f"{function}: {shown} must be >= 1, pads {given} >= 0.")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        spans = [(k - 1) * gap + 1 for k, gap in zip(kernel, gaps)]
        given = _same(lengths, spans, steps, auto_pad)
    elif auto_pad not in ("NOTSET", "VALID", ""):
        raise ArgumentError(f"{function}: auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, got {auto_pad!r}.")
    around = tuple(given[:ndim]), tuple(given[ndim:])
    return placed(function, tuple(lengths), tuple(kernel), tuple(steps), tuple(gaps), around, bool(ceil_mode))


def _same(lengths: Sequence[int], spans: Sequence[int], steps: Sequence[int], auto_pad: str) -> list[int]:
    """Returns the padding that gives ceil(length / step) windows."""
    whole = [max(0, (-(-n // step) - 1) * step + span - n) for n, span, step in zip(lengths, spans, steps)]
    small, large = [n // 2 for n in whole], [n - n // 2 for n in whole]
    return [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]


def padded(x: Tensor, windows: Windows) -> Tensor:
    """Pads x with the zeros that windows reach."""
    pads = [static(n) for pair in reversed(windows.margins(x.shape[x.ndim - len(windows.kernel) :])) for n in pair]
    return x.pad(pads) if any(pads) else x


# ---- pooling ----
def max_pool(
    x: Tensor, *, step: Step, kernel_shape: Sequence[int], strides: Numbers = None, pads: Numbers = None,
    dilations: Numbers = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, storage_order: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the largest element of each window, and its position in the flattened input."""
    windows = windows_of("MaxPool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    largest, places = (x.from_op(op, x.device) for op in max_of_windows(x.read(), windows))
    if len(step.outputs) < 2:
        return (largest,)
    if storage_order:
        places = _moved(places, x.shape[2:], [math.prod(x.shape[2:axis]) for axis in range(2, x.ndim)])
    return largest, places + _first_places(x)


def _first_places(x: Tensor) -> Tensor:
    """Returns the position of each image's start in the flattened tensor, (N, C, 1, ...)."""
    images = Tensor.arange(x.shape[0] * x.shape[1], device=x.device)
    return images.reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * math.prod(x.shape[2:])


def _moved(places: Tensor, lengths: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Converts row-major positions in images of these lengths to positions in memory with these strides."""
    moved, rest = places * 0, places
    for length, stride in zip(reversed(lengths), reversed(strides)):
        moved, rest = moved + rest % length * stride, rest // length
    return moved


def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Numbers = None, pads: Numbers = None, dilations: Numbers = None,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    """Returns the mean of each window's elements; count_include_pad counts the padding's zeros as elements."""
    windows = windows_of("AveragePool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    wide = x.to(x.dtype.compute_dtype)
    return x.from_op(mean_of_windows(wide.read(), windows, bool(count_include_pad)), x.device).to(x.dtype)


def lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], p: float = 2, strides: Numbers = None, pads: Numbers = None,
    dilations: Numbers = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
) -> Tensor:  # fmt: skip
    """Returns the p-norm of each window."""
    windows = windows_of("LpPool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    powers = x.to(x.dtype.compute_dtype).abs().pow(p)
    return x.from_op(sum_of_windows(powers.read(), windows), x.device).pow(1.0 / p).to(x.dtype)


def global_average_pool(x: Tensor) -> Tensor:
    """Returns the mean over all spatial axes, which keep length 1."""
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def global_max_pool(x: Tensor) -> Tensor:
    """Returns the largest element over all spatial axes, which keep length 1."""
    largest: Tensor = x.flatten(2).max(2).values
    return largest.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    """Returns the p-norm over all spatial axes, which keep length 1."""
    return x.to(x.dtype.compute_dtype).abs().pow(p).sum(tuple(range(2, x.ndim)), True).pow(1.0 / p).to(x.dtype)


def max_unpool(
    x: Tensor, places: Tensor, shape: Sequence[int] | None = None, *, kernel_shape: Sequence[int], strides: Numbers = None,
    pads: Numbers = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of x at their positions in the flattened input of a MaxPool."""
    ndim = len(kernel_shape)
    steps, given = strides or [1] * ndim, pads or [0] * (2 * ndim)
    lengths = [(n - 1) * steps[i] + kernel_shape[i] - given[i] - given[ndim + i] for i, n in enumerate(x.shape[2:])]
    if shape is None:
        shape = [*x.shape[:2], *lengths]
    wanted = [*shape[2:]]
    fits = len(shape) == x.ndim and tuple(shape[:2]) == x.shape[:2] and min(lengths) > 0
    if not fits or any(asked < least for asked, least in zip(wanted, lengths)):
        raise ShapeError(f"MaxUnpool: output_shape {[*shape]} does not fit {x.shape} and windows that reach {lengths}.")
    known = math.prod((*x.shape[:2], *lengths))
    site = Site(f"MaxUnpool: index {{}} is outside of {[*x.shape[:2], *lengths]}.")
    inside = places.from_op(checked(places.read(), known, site), places.device) % math.prod(lengths)
    if wanted != lengths:
        inside, lengths = _moved(inside, lengths, [math.prod(wanted[i + 1 :]) for i in range(ndim)]), wanted
    return x.from_op(put_back(x.read(), inside.read(), lengths), x.device)


OPERATORS = [
    row("MaxPool", 1, max_pool, "3+"), row("AveragePool", 1, average_pool, "3+"), row("LpPool", 2, lp_pool, "3+"),
    row("GlobalAveragePool", 1, global_average_pool, "3+"), row("GlobalMaxPool", 1, global_max_pool, "3+"),
    row("GlobalLpPool", 2, global_lp_pool, "3+"), row("MaxUnpool", 9, max_unpool, "3+ like row"),
]  # fmt: skip


# ---- convolutions ----
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
    """Returns the convolution of x with weights."""
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
    # NOTE: computed in float64, whose integers are exact up to 2**53; sums of int8 products reach at most 2**31.
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
    """Returns conv_integer; the signature names its attributes for the table."""
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
    """Returns the transposed convolution: a convolution's gradient with respect to its input."""
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
    """Returns the image whose windows are the columns of x; overlaps are summed."""
    windows = windows_of("Col2Im", image_shape, block_shape, strides, pads, dilations)
    return x.from_op(image_of("Col2Im", x.read(), windows, image_shape), x.device)


# ---- deformed ----
def deform_conv(
    x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None, *, dilations: Numbers = None,
    group: int = 1, kernel_shape: Numbers = None, offset_group: int = 1, pads: Numbers = None, strides: Numbers = None,
) -> Tensor:  # fmt: skip
    """Returns a convolution whose taps are moved by offsets, with linear interpolation, and multiplied by a mask."""
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
    """Returns the elements under the taps of windows, (N, C, taps..., outputs...); positions are relative to the taps,
    (N, taps..., axes, outputs...)."""
    axes, where = len(windows.kernel), []
    for axis in range(axes):
        shape = [n if i % axes == axis else 1 for i, n in enumerate((*windows.kernel, *windows.counts))]
        base = x.from_op(windows.places(axis), x.device).reshape(*shape)
        where.append((offset.select(1 + axes, axis) + base.to(offset.dtype)).to(x.dtype.compute_dtype))
    sampler = Sampler(x.to(x.dtype.compute_dtype).read(), "zeros", False)
    return x.from_op(sampler.at([place.read() for place in where], "bilinear"), x.device).to(x.dtype)


OPERATORS += [
    row("Conv", 1, conv, "3+ like 1"), row("ConvTranspose", 1, conv_transpose, "3+ like 1"),
    row("ConvInteger", 10, integer_conv, "3+ like single 0-1", state=(2, 3)),
    row("QLinearConv", 10, quantized_conv, "3+ single single like 0-1 0-1 single single 1", state=(1, 2, 4, 5, 6, 7)),
    row("Col2Im", 18, columns_to_image, "3 row row"), row("DeformConv", 19, deform_conv, "3+ like like 1 like"),
]  # fmt: skip


# ---- normalization, dropout ----
def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias; training computes mean, variance and running ones."""
    if not training_mode:
        return (_normalized(x, mean, variance, scale, bias, epsilon),)
    axes, wide = (0, *range(2, x.ndim)), x.to(x.dtype.compute_dtype)
    running = [
        (old * momentum + now.to(old.dtype) * (1 - momentum)).detach()
        for old, now in ((mean, wide.mean(axes)), (variance, wide.var(axes, 0)))
    ]
    return standardized(wide, axes, scale.to(wide.dtype), bias.to(wide.dtype), epsilon).to(x.dtype), *running


def legacy_batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, is_test: int = 1, spatial: int = 1,
) -> Tensor:  # fmt: skip
    """Returns batch_normalization in evaluation.

    Raises:
      UnsupportedOp: the node asks for training, or for statistics of each element.
    """
    if not is_test or not spatial:
        raise UnsupportedOp(f"BatchNormalization: is_test {is_test} with spatial {spatial} is not supported.")
    return _normalized(x, mean, variance, scale, bias, epsilon)


def _normalized(x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Returns batch normalization by given statistics; a vector is a batch of one channel."""
    wide = (x.unsqueeze(1) if x.ndim == 1 else x).to(x.dtype.compute_dtype)
    mean, variance, scale, bias = (value.to(wide.dtype) for value in (mean, variance, scale, bias))
    return F.batch_norm(wide, mean, variance, scale, bias, eps=epsilon).to(x.dtype).reshape(*x.shape)


def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Normalizes each channel of each instance to mean 0 and variance 1, then scales and shifts it."""
    wide = x.to(x.dtype.compute_dtype)
    scale, bias = scale.to(wide.dtype), bias.to(wide.dtype)
    return standardized(wide, tuple(range(2, x.ndim)), scale, bias, epsilon).to(x.dtype)


def local_response(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:  # noqa: A002
    """Returns x / (bias + alpha / size * sum of squares of `size` adjacent channels) ** beta."""
    return divided_by_neighbours(x, size, (size - 1) // 2, alpha, beta, bias)


SMALLEST = 1e-38  # about the least normal float32; rows of smaller norms become 0


def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divides x by its p-norm along an axis; 0 if the norm is 0."""
    return F.normalize(x, p, axis, SMALLEST)


# ---- dropout ----
def dropout(
    x: Tensor, ratio: float | None = None, training: bool | None = None, *, step: Step, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """Drops elements with probability `ratio` in training and scales the others up; also returns which were kept."""
    p = 0.5 if ratio is None else ratio
    if not training or p == 0.0:
        return x, Tensor.ones(*x.shape, device=x.device).bool()
    scale = F.dropout(Tensor.ones(*x.shape, device=x.device), p, generator=generator_of(seed))
    return x * scale.to(x.dtype), scale.ne(0)


def legacy_dropout(x: Tensor, *, ratio: float = 0.5, is_test: int = 1) -> tuple[Tensor, Tensor]:
    """Returns x and ones in evaluation (is_test), else dropout and its mask in the dtype of x."""
    scale = F.dropout(Tensor.ones(*x.shape, device=x.device), ratio, training=not is_test)
    return x * scale.to(x.dtype), scale.ne(0).to(x.dtype)


def dropout_outside_training(x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor, Tensor]:
    """Returns x, and True for each element (version 10, which has no training)."""
    return x, Tensor.ones(*x.shape, device=x.device).bool()


OPERATORS += [
    row("BatchNormalization", 1, legacy_batch_normalization, "1+ 1 1 1 1", state=(3, 4)),
    row("BatchNormalization", 14, batch_normalization, "1+ 1 1 1 1", state=(3, 4)),
    row("InstanceNormalization", 1, instance_normalization, "3+ 1 1"), row("LRN", 1, local_response, "3+"),
    row("LpNormalization", 1, lp_normalization), row("Dropout", 1, legacy_dropout, random=True),
    row("Dropout", 10, dropout_outside_training),
    row("Dropout", 12, dropout, "x one one", random=True),
]  # fmt: skip
