"""Pictures of another size: between the elements of an axis, one axis after the other.

In:    tensors
Out:   tensors
Next:  picograd/nn/functions/grids.py

Letters: N batch, C channels; L, H, W, D lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import expand, gather, iota, maximum, minimum, reduce, reshape, unary
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.nn.functions.means import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from picograd.nn.functions.placement import each_axis
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import cast, need_float, static
from picograd.tensor.tensor import Tensor

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
MODES = ("nearest", "nearest-exact", *AXES, "area")
AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
CUBIC = -0.75  # the slope of the cubic kernel at 1: Keys 1981, "Cubic convolution interpolation", a of eq. 4; PyTorch's
CUBIC_SMOOTH = -0.5  # the same where it is widened: the one of third order; Pillow's and PyTorch's


def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,  # noqa: A002
    mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Returns input with other lengths of its spatial axes.

    Args:
      input:          (N, C, L), (N, C, H, W) or (N, C, D, H, W)
      size:           the new lengths
      scale_factor:   in its place: factors of the lengths
      mode:           "nearest", "nearest-exact"; "linear", "bilinear" or "trilinear" for 3, 4 or 5 axes; "bicubic" for 4;
                      "area", means of bins
      align_corners:  of the linear and cubic ones: first and last elements keep their places
      recompute_scale_factor:  the factor is that of the lengths, rounded down, and not scale_factor itself
      antialias:      of bilinear and bicubic: a new element is a mean of all old ones in its area

    Returns:   (N, C, *size)

    Raises:
      ShapeError:    input does not have the axes that mode needs, or is empty.
      DTypeError:    input is no float, and mode not one of the nearest.
      ArgumentError: not one of size and scale_factor, another mode, or what mode does not take.

    >>> interpolate(Tensor([[[1.0, 3.0]]]), scale_factor=2, mode="linear")
    Tensor([[[1. , 1.5, 2.5, 3. ]]])
    """
    op = tensor_of("interpolate", "input", input).read()
    axes = len(op.shape) - 2
    _check_mode(op, mode, align_corners, antialias)
    sizes, factors = _sizes(op, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return AREA[axes](input, sizes)
    if mode in AXES:
        need_float("interpolate", op, "input")
    wide = cast(op, op.dtype.compute_dtype)
    for i, (count, factor) in enumerate(zip(sizes, factors)):
        options = 2 + i, count, factor, mode, bool(align_corners)
        wide = _smoothed(wide, *options, input.cell.device) if antialias else _resized(wide, *options)
    return input.from_op(cast(wide, op.dtype), input.cell.device)


def upsample(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,  # noqa: A002
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns input with other lengths of its spatial axes: another name of `interpolate`.

    Args:
      input, size, scale_factor, mode, align_corners: as in `interpolate`

    >>> upsample(Tensor([[[1.0, 3.0]]]), 4)
    Tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None  # noqa: A002
) -> Tensor:
    """Returns input with each element repeated along its spatial axes: an old name of `interpolate`.

    Args:
      input, size, scale_factor: as in `interpolate`

    >>> upsample_nearest(Tensor([[[1.0, 3.0]]]), 4)
    Tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None  # noqa: A002
) -> Tensor:
    """Returns (N, C, H, W) by lines between its elements, corners at corners: an old name of `interpolate`.

    Args:
      input, size, scale_factor: as in `interpolate`

    >>> upsample_bilinear(Tensor([[[[1.0, 3.0]]]]), (1, 3))
    Tensor([[[[1., 2., 3.]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


# ---- arguments ----
def _check_mode(op: Op, mode: str, align_corners: bool | None, antialias: bool) -> None:
    """Raises unless interpolate has this mode for an input of so many axes, with these options."""
    axes = len(op.shape) - 2
    if mode not in MODES:
        raise ArgumentError(f"interpolate: mode must be one of {', '.join(MODES)}, got {mode!r}.")
    if not 1 <= axes <= 3 or AXES.get(mode, axes) != axes:
        raise ShapeError(f"interpolate: mode {mode!r} does not take an input with {len(op.shape)} axes, {op.shape}.")
    if align_corners is not None and mode not in AXES:
        raise ArgumentError(f"interpolate: align_corners goes with {', '.join(AXES)}, not with {mode!r}.")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"interpolate: antialias=True goes with bilinear and bicubic, not with {mode!r}.")
    if 0 in op.shape[1:]:
        raise ShapeError(f"interpolate: input {op.shape} is empty.")


def _sizes(
    op: Op, size: int | Sequence[int] | None, scale_factor: float | Sequence[float] | None, recompute: bool | None
) -> tuple[tuple[int, ...], list[float | None]]:
    """Returns the new lengths, and for each axis the factor that places are computed with; None: that of the lengths."""
    axes = len(op.shape) - 2
    if (size is None) == (scale_factor is None):
        raise ArgumentError(f"interpolate: give one of size and scale_factor, got {size} and {scale_factor}.")
    if size is not None:
        if recompute:
            raise ArgumentError("interpolate: recompute_scale_factor=True goes with scale_factor, not with size.")
        return each_axis("interpolate", "size", size, axes, 1), [None] * axes
    given = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * axes
    factors = [float(f) for f in given if isinstance(f, (int, float)) and f > 0]
    if len(factors) != axes or len(given) != axes:
        raise ArgumentError(f"interpolate: scale_factor must be a positive number, or {axes} of them, got {scale_factor}.")
    sizes = tuple(math.floor(static(n) * f) for n, f in zip(op.shape[2:], factors))
    if min(sizes) < 1:
        raise ShapeError(f"interpolate: input {op.shape} scaled by {scale_factor} has nothing left, {sizes}.")
    return sizes, [None] * axes if recompute else [*factors]


# ---- one axis ----
def _resized(x: Op, axis: int, count: int, factor: float | None, mode: str, align_corners: bool) -> Op:
    """Returns x with another length of one axis."""
    length = static(x.shape[axis])
    if mode.startswith("nearest"):
        factor = None if len(x.shape) == 4 and count in (length, 2 * length) and mode == "nearest" else factor  # as PyTorch
        return gather(x, _nearest(length, count, factor, mode == "nearest-exact"), axis, 0)
    real = _source(length, count, factor, align_corners, x.dtype)
    if mode == "bicubic":
        whole = unary(OpCode.FLOOR, real)
        first, weights = cast(whole, dtypes.int64), cubic_weights(real - whole)
        taps = [minimum(maximum(first + (k - 1), 0), length - 1) for k in range(4)]
    else:
        real = maximum(real, 0.0)
        first = minimum(cast(unary(OpCode.FLOOR, real), dtypes.int64), length - 1)
        part = real - cast(first, x.dtype)
        weights, taps = [unary(OpCode.NEG, part) + 1.0, part], [first, minimum(first + 1, length - 1)]
    return weighted(x, axis, taps, weights)


def _smoothed(
    x: Op, axis: int, count: int, factor: float | None, mode: str, align_corners: bool, device: str | None
) -> Op:
    """Returns x with another length of one axis: sums of old elements, T for each new one, times their shares."""
    shares = smoothing_weights(static(x.shape[axis]), count, factor, align_corners, mode)
    most = int((shares != 0.0).sum(1).max(initial=1))
    taps = np.sort(np.argsort(shares == 0.0, 1, "stable")[:, :most], 1)
    place, share = (
        Tensor(values, dtype, device).read()
        for values, dtype in ((taps.ravel(), dtypes.int64), (np.take_along_axis(shares, taps, 1), x.dtype))
    )
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    shape = (*before, count, most, *after)
    read = reshape(gather(x, place, axis, 0), shape)
    ones = (1,) * len(before), (1,) * len(after)
    return reduce(read * expand(reshape(share, (*ones[0], count, most, *ones[1])), shape), OpCode.ADD, (axis + 1,), False)


def weighted(x: Op, axis: int, taps: Sequence[Op], weights: Sequence[Op]) -> Op:
    """Returns sums of elements along an axis: of each tap (count,) the elements there, times its weights (count,)."""
    total: Op | None = None
    for tap, weight in zip(taps, weights):
        part = gather(x, tap, axis, 0)
        part = part * along(weight, part.shape, axis)
        total = part if total is None else total + part
    assert total is not None
    return total


def along(op: Op, shape: Shape, axis: int) -> Op:
    """Returns a line of numbers along one axis of `shape`."""
    return expand(reshape(op, tuple(n if i == axis else 1 for i, n in enumerate(shape))), shape)


def _nearest(length: int, count: int, factor: float | None, exact: bool) -> Op:
    """Returns (count,) int64: floor(i scale), or with `exact` floor((i + 0.5) scale), in float32 as PyTorch does."""
    number = iota(count)
    if factor is None and (count == length or (count == 2 * length and not exact)):
        return number if count == length else Op(OpCode.IDIV, number.dtype, (number, number.filled(2)))
    scale = 1.0 / factor if factor is not None else float(dtypes.float32.scalar(length / count))
    place = (cast(number, dtypes.float32) + (0.5 if exact else 0.0)) * scale
    return minimum(cast(unary(OpCode.FLOOR, place), dtypes.int64), length - 1)


def _source(length: int, count: int, factor: float | None, align_corners: bool, dtype: DType) -> Op:
    """Returns (count,): where each new element stands between the old ones."""
    number = cast(iota(count), dtype)
    if align_corners:
        return number * ((length - 1) / (count - 1) if count > 1 else 0.0)
    scale = 1.0 / factor if factor is not None else length / count
    return (number + 0.5) * scale - 0.5


def cubic_weights(t: Op) -> list[Op]:
    """Returns the weights of the elements at -1, 0, 1, 2 for a place t in [0, 1) behind element 0."""
    rest = unary(OpCode.NEG, t) + 1.0
    return [cubic_far(t + 1.0, CUBIC), cubic_near(t, CUBIC), cubic_near(rest, CUBIC), cubic_far(rest + 1.0, CUBIC)]


# ---- without aliasing: where an axis becomes `scale` times shorter, the kernel becomes as many times wider ----
def smoothing_weights(length: int, count: int, factor: float | None, align_corners: bool, mode: str) -> Array:
    """Returns (count, length): the share that each old element has in each new one; rows add up to 1.

    Source: ATen/native/cpu/UpSampleKernel.cpp of PyTorch, _compute_indices_min_size_weights_aa.
    """
    if align_corners:
        scale = (length - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = 1.0 / factor if factor is not None else length / count
    reach = (2.0 if mode == "bicubic" else 1.0) * max(scale, 1.0)
    center = scale * (np.arange(count) + 0.5)[:, None]
    place = np.arange(length)[None, :]
    first = np.maximum(np.trunc(center - reach + 0.5), 0)
    last = np.minimum(np.trunc(center + reach + 0.5), length)
    distance = np.abs(place - center + 0.5) / max(scale, 1.0)
    weights = np.where((first <= place) & (place < last), _kernel(distance, mode), 0.0)
    total = weights.sum(1, keepdims=True)
    shares: Array = weights / np.where(total == 0.0, 1.0, total)
    return shares


def _kernel(distance: Array, mode: str) -> Array:
    if mode != "bicubic":
        return np.maximum(1.0 - distance, 0.0)
    near, far = cubic_near(distance, CUBIC_SMOOTH), cubic_far(distance, CUBIC_SMOOTH)
    return np.where(distance < 1.0, near, np.where(distance < 2.0, far, 0.0))


def cubic_near(x: Any, a: float) -> Any:
    """Returns the weight of an element at a distance x (Op or array) of at most 1. Source: Keys 1981, eq. 4."""
    return (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0


def cubic_far(x: Any, a: float) -> Any:
    """Returns the weight of an element at a distance x (Op or array) from 1 to 2."""
    return ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
