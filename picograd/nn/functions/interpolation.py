"""Resized images, interpolated along one axis after the other; and images sampled at given positions.

Letters: N batch, C channels; L, H, W, D lengths of input, H', W', D' of the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir import symbolic
from picograd.ir.build import (
    absolute,
    both,
    cast,
    equal,
    expand,
    floordiv,
    gather,
    iota,
    less,
    less_equal,
    maximum,
    minimum,
    number_like,
    positions,
    reduce,
    repeat_along,
    repeat_axes,
    reshape,
    shrink_axis,
    unary,
    where,
)
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import ceildiv, mul, subtract, to_op
from picograd.nn.functions import widened
from picograd.nn.functions.pooling import mean_of_bins
from picograd.nn.functions.windows import each_axis
from picograd.tensor.arguments import check_one_of, tensor_of
from picograd.tensor.build import need_float, static
from picograd.tensor.formulas import formula, of_tensors
from picograd.tensor.pointwise import round_even
from picograd.tensor.tensor import Tensor

__all__ = ["affine_grid", "grid_sample", "interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]


# ---- another size ----
AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
MODES = ("nearest", "nearest-exact", *AXES, "area")
CUBIC = -0.75  # slope a of the cubic kernel at 1: Keys 1981, "Cubic convolution interpolation", eq. 4; PyTorch's
CUBIC_SMOOTH = -0.5  # slope with antialias: third-order accurate; Pillow's and PyTorch's


def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,  # noqa: A002
    mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resizes the spatial axes of input.

    Args:
      input:          (N, C, L), (N, C, H, W) or (N, C, D, H, W)
      size:           the new lengths
      scale_factor:   factors of the lengths, instead of size
      mode:           "nearest", "nearest-exact"; "linear", "bilinear" or "trilinear" for 3, 4 or 5 axes; "bicubic" for 4;
                      "area": means of bins
      align_corners:  for linear and cubic modes: first and last elements keep their positions
      recompute_scale_factor:  use the ratio of the rounded lengths instead of scale_factor
      antialias:      for bilinear and bicubic: a new element averages all old ones in its area

    Returns:   (N, C, *size)

    Raises:
      ShapeError:    input does not have the axes of the mode, or is empty.
      DTypeError:    input is not a float, and mode is not a nearest one.
      ArgumentError: not exactly one of size and scale_factor, an unknown mode, or an argument that the mode does not take.

    >>> interpolate(Tensor([[[1.0, 3.0]]]), scale_factor=2, mode="linear")
    Tensor([[[1. , 1.5, 2.5, 3. ]]])
    """
    op = tensor_of("interpolate", "input", input).read()
    _check_mode(op, mode, align_corners, antialias)
    sizes, factors = _sizes(op, size, scale_factor, recompute_scale_factor)
    if mode in AXES or mode == "area":
        need_float("interpolate", op, "input")
    wide, resized = cast(op, op.dtype.compute_dtype), _smoothed if antialias else _resized
    for i, (count, factor) in enumerate(zip(sizes, factors)):
        wide = resized(wide, iota(count), 2 + i, factor, mode, bool(align_corners))
    return input.from_op(cast(wide, op.dtype), input.cell.device)


def upsample(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,  # noqa: A002
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Resizes the spatial axes of input; an old name of `interpolate`.

    Args:
      input, size, scale_factor, mode, align_corners: as in `interpolate`

    >>> upsample(Tensor([[[1.0, 3.0]]]), 4)
    Tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None  # noqa: A002
) -> Tensor:
    """Resizes by the nearest elements; an old name of `interpolate`.

    Args:
      input, size, scale_factor: as in `interpolate`

    >>> upsample_nearest(Tensor([[[1.0, 3.0]]]), 4)
    Tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None  # noqa: A002
) -> Tensor:
    """Resizes (N, C, H, W) linearly with aligned corners; an old name of `interpolate`.

    Args:
      input, size, scale_factor: as in `interpolate`

    >>> upsample_bilinear(Tensor([[[[1.0, 3.0]]]]), (1, 3))
    Tensor([[[[1., 2., 3.]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


# ---- arguments ----
def _check_mode(op: Op, mode: str, align_corners: bool | None, antialias: bool) -> None:
    """Raises an error unless interpolate has this mode for inputs of that rank, with these options."""
    axes = len(op.shape) - 2
    check_one_of("interpolate", "mode", mode, MODES)
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
) -> tuple[Shape, list[float | None]]:
    """Returns the new lengths, and the factor for positions along each axis; None: the ratio of the lengths."""
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
    sizes = tuple(mul(n, int(f)) if f.is_integer() else math.floor(static(n) * f) for n, f in zip(op.shape[2:], factors))
    if 0 in sizes:
        raise ShapeError(f"interpolate: input {op.shape} scaled by {scale_factor} would be empty, {sizes}.")
    return sizes, [None] * axes if recompute else [*factors]


# ---- one axis ----
@formula
def _resized(x: Op, number: Op, axis: int, factor: float | None, mode: str, align_corners: bool) -> Op:
    """Resizes one axis of x; `number`, (count,) int64, has the indices of the new elements."""
    length = x.shape[axis]
    if mode == "area":
        return mean_of_bins(x, axis, number.shape[0])
    if mode.startswith("nearest"):
        is_doubled = len(x.shape) == 4 and mode == "nearest" and number.shape[0] in (length, mul(length, 2))
        factor = None if is_doubled else factor  # as PyTorch does
        return gather(x, _nearest(number, length, factor, mode == "nearest-exact"), axis, 0)
    real = _source(number, length, factor, align_corners, x.dtype)
    last = number_like(number, subtract(length, 1))
    if mode == "bicubic":
        whole = unary(OpCode.FLOOR, real)
        first, weights = cast(whole, dtypes.int64), cubic_weights(real - whole)
        taps = [minimum(maximum(first + (k - 1), 0), last) for k in range(4)]
    else:
        count = number.shape[0]
        if factor is not None and (length == count or not (isinstance(length, int) and isinstance(count, int))):
            stays = equal(number_like(number, length), number_like(number, count))
            real = where(stays, cast(number, x.dtype), real)  # an axis whose length is kept is copied, as in PyTorch
        real = maximum(real, 0.0)
        first = minimum(cast(unary(OpCode.FLOOR, real), dtypes.int64), last)
        part = real - cast(first, x.dtype)
        weights, taps = [-part + 1.0, part], [first, minimum(first + 1, last)]
    return weighted(x, axis, taps, weights)


@formula
def _smoothed(x: Op, number: Op, axis: int, factor: float | None, mode: str, align_corners: bool) -> Op:
    """Resizes one axis of x with antialiasing: a new element is a weighted sum of old ones.

    The kernel is widened by `scale`, the factor by which the axis becomes shorter.
    Source: ATen/native/cpu/UpSampleKernel.cpp of PyTorch, _compute_indices_min_size_weights_aa.
    """
    length, count, wide = x.shape[axis], number.shape[0], cast(number, dtypes.float64)
    places, most = _scale(wide, length, factor, align_corners), 4 if mode == "bicubic" else 2
    stretch = maximum(places, 1.0)
    reach, center = stretch * (most / 2), places * (wide + 0.5)
    first, last = (cast(end, dtypes.int64) for end in (center - reach + 0.5, center + reach + 0.5))
    shape = (count, symbolic.minimum(length, _most_taps(most, length, count, factor, align_corners)))
    place = repeat_along(maximum(first, 0), shape, 0) + positions(shape, 1)
    distance = (cast(place, dtypes.float64) - repeat_along(center, shape, 0) + 0.5) / repeat_along(stretch, shape, 0)
    inside = both(less(place, repeat_along(last, shape, 0)), less(place, number_like(place, length)))
    weight = where(inside, _kernel(absolute(distance), mode), 0.0)
    total = repeat_along(reduce(weight, OpCode.ADD, (1,)), shape, 0)
    share = cast(weight / where(equal(total, 0.0), 1.0, total), x.dtype)
    share = Op(OpCode.CONTIGUOUS, share.dtype, (share,))
    read = gather(x, minimum(place, number_like(place, subtract(length, 1))), axis, 0)
    others = (i for i in range(len(read.shape)) if i not in (axis, axis + 1))
    return reduce(read * repeat_axes(share, others, read.shape), OpCode.ADD, (axis + 1,))


def weighted(x: Op, axis: int, taps: Sequence[Op], weights: Sequence[Op]) -> Op:
    """Returns, for each new element, the sum over taps of the elements at the taps (count,) times the weights (count,)."""
    total: Op | None = None
    for tap, weight in zip(taps, weights):
        part = gather(x, tap, axis, 0)
        part = part * repeat_along(weight, part.shape, axis)
        total = part if total is None else total + part
    assert total is not None
    return total


def _nearest(number: Op, length: Dim, factor: float | None, exact: bool) -> Op:
    """Returns (count,) int64: floor(i scale), or if `exact` floor((i + 0.5) scale), in float32 as in PyTorch."""
    count, wide = number.shape[0], cast(number, dtypes.float32)
    if factor is None and (count == length or (count == mul(length, 2) and not exact)):
        return number if count == length else floordiv(number, 2)
    scale = wide.filled(1.0 / factor) if factor is not None else _ratio(wide, length, count)
    place = (wide + (0.5 if exact else 0.0)) * scale
    return minimum(cast(unary(OpCode.FLOOR, place), dtypes.int64), number_like(number, subtract(length, 1)))


def _source(number: Op, length: Dim, factor: float | None, align_corners: bool, dtype: DType) -> Op:
    """Returns (count,): the position of each new element among the old ones."""
    number = cast(number, dtype)
    scale = _scale(number, length, factor, align_corners)
    return number * scale if align_corners else (number + 0.5) * scale - 0.5


def _scale(like: Op, length: Dim, factor: float | None, align_corners: bool) -> Op:
    """Returns the distance, in old elements, between new ones; `like` has as many elements as the new axis."""
    count = like.shape[0]
    if align_corners:
        return _ratio(like, subtract(length, 1), subtract(count, 1)) if count != 1 else like.filled(0.0)
    return like.filled(1.0 / factor) if factor is not None else _ratio(like, length, count)


def _ratio(like: Op, a: Dim, b: Dim) -> Op:
    """Returns a / b, rounded once, in the dtype and shape of `like`."""
    if isinstance(a, int) and isinstance(b, int):
        return like.filled(a / b)
    return repeat_axes(cast(cast(to_op(a), dtypes.float64) / cast(to_op(b), dtypes.float64), like.dtype), (0,), like.shape)


def cubic_weights(t: Op) -> list[Op]:
    """Returns the cubic weights of elements -1, 0, 1, 2 at a position t in [0, 1)."""
    rest = -t + 1.0
    return [cubic_far(t + 1.0, CUBIC), cubic_near(t, CUBIC), cubic_near(rest, CUBIC), cubic_far(rest + 1.0, CUBIC)]


# ---- without aliasing ----
def _most_taps(of_one: int, length: Dim, count: Dim, factor: float | None, align_corners: bool) -> Dim:
    """Returns an upper bound of old elements per new one; `of_one` is the number for an axis that becomes longer."""
    if align_corners:
        if count == 1:
            return of_one
        length, count = subtract(length, 1), subtract(count, 1)
    elif factor is not None:
        return math.ceil(of_one * max(1.0, 1.0 / factor))
    return ceildiv(mul(symbolic.maximum(length, count), of_one), count)


def _kernel(distance: Op, mode: str) -> Op:
    if mode != "bicubic":
        return maximum(-distance + 1.0, 0.0)
    near, far = cubic_near(distance, CUBIC_SMOOTH), cubic_far(distance, CUBIC_SMOOTH)
    return where(less(distance, 1.0), near, where(less(distance, 2.0), far, 0.0))


def cubic_near(x: Any, a: float) -> Any:
    """Returns the cubic kernel at a distance x (Op or array) in [0, 1]. Source: Keys 1981, eq. 4."""
    return (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0


def cubic_far(x: Any, a: float) -> Any:
    """Returns the cubic kernel at a distance x (Op or array) in [1, 2]."""
    return ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a


# ---- read at places ----
SAMPLE_MODES = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


@widened
@of_tensors
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",  # noqa: A002
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Samples input at the positions of grid; x, y (and z) are in [-1, 1] from start to end.

    Args:
      input:          (N, C, H, W) or (N, C, D, H, W)  float
      grid:           (N, H', W', 2) or (N, D', H', W', 3), of the dtype of input
      mode:           "bilinear", between the nearest elements; "nearest"; "bicubic", for four axes
      padding_mode:   values outside: "zeros", "border" or "reflection". NaN positions are before the first element, unless
                      weights are made of them: between elements padded with zeros, and by "bicubic"
      align_corners:  -1 and 1 are the centers of the first and last elements, not their edges

    Returns:   (N, C, H', W') or (N, C, D', H', W')

    Raises:
      ShapeError:    the shapes do not match.
      DTypeError:    input is not a float, or the dtypes differ.
      ArgumentError: an unknown mode or padding_mode.

    >>> grid_sample(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]]))
    Tensor([[[[2.]]]])
    """
    op, where_op = tensor_of("grid_sample", "input", input).read(), tensor_of("grid_sample", "grid", grid).read()
    axes = len(op.shape) - 2
    if mode not in SAMPLE_MODES or (mode == "bicubic" and axes != 2):
        modes = ", ".join(SAMPLE_MODES)
        raise ArgumentError(f"grid_sample: mode must be one of {modes} (bicubic of four axes), got {mode!r}.")
    check_one_of("grid_sample", "padding_mode", padding_mode, PADDING)
    fits = axes in (2, 3) and len(where_op.shape) == axes + 2
    if not fits or where_op.shape[0] != op.shape[0] or where_op.shape[-1] != axes:
        raise ShapeError(f"grid_sample: grid {grid.shape} must be (N, *new lengths, {axes}) for input {input.shape}.")
    if 0 in op.shape[2:]:
        raise ShapeError(f"grid_sample: input {input.shape} has an empty axis.")
    need_float("grid_sample", op, "input")
    if where_op.dtype is not op.dtype:
        raise DTypeError(f"grid_sample: input is {op.dtype}, grid is {where_op.dtype}.", hint="cast one of them.")
    sampler = Sampler(cast(op, op.dtype.compute_dtype), padding_mode, bool(align_corners))
    result = sampler.at(sampler.places(cast(where_op, op.dtype.compute_dtype)), mode)
    return input.from_op(cast(result, op.dtype), input.other_device("grid_sample", grid))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Returns a sampling grid for `grid_sample`: theta times (x, y, 1) for each pixel.

    Args:
      theta:          (N, 2, 3) or (N, 3, 4)  float
      size:           (N, C, H, W) or (N, C, D, H, W) of the images to be sampled
      align_corners:  as in `grid_sample`

    Returns:   (N, H, W, 2) or (N, D, H, W, 3)

    Raises:
      ShapeError: the shapes of theta and size do not match.
      DTypeError: theta is not a float.

    >>> affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    Tensor([[[[-0.5,  0. ],
              [ 0.5,  0. ]]]])
    """
    op, axes = tensor_of("affine_grid", "theta", theta).read(), len(size) - 2
    if axes not in (2, 3) or op.shape != (size[0], axes, axes + 1):
        expected = (size[0], axes, axes + 1) if axes in (2, 3) else "(N, 2, 3) or (N, 3, 4)"
        raise ShapeError(f"affine_grid: theta {theta.shape} must be {expected} for size {tuple(size)}.")
    need_float("affine_grid", op, "theta")
    lengths, shape = tuple(size[2:]), (size[0], *size[2:], axes)

    def factor(row_column: int) -> Op:
        part = shrink_axis(op, -1, row_column, row_column + 1)
        return expand(reshape(part, (size[0], *(1 for _ in lengths), axes)), shape)

    total = factor(axes)
    for i, length in enumerate(reversed(lengths)):
        line = _base_line(length, bool(align_corners), op)
        total = total + factor(i) * repeat_along(line, shape, len(lengths) - i)
    return theta.from_op(total, theta.cell.device)


def _base_line(length: int, align_corners: bool, like: Op) -> Op:
    """Returns (length,): pixel centers from -1 to 1."""
    number = cast(iota(length), like.dtype)
    if align_corners:
        return number * (2.0 / (length - 1)) - 1.0 if length > 1 else number
    return (number * 2.0 + (1.0 - length)) * (1.0 / length)


def _above(place: Op, start: float) -> Op:
    """Returns max(x, start), with gradient 0 at the bound; NaN becomes start."""
    return where(less(start, place), place, start)


class Sampler:
    """Reads images (N, C, *spatial) at positions."""

    def __init__(self, x: Op, padding_mode: str, align_corners: bool):
        self.x, self.padding_mode, self.align_corners = x, padding_mode, align_corners
        self.lengths = [static(n) for n in x.shape[2:]]

    def places(self, grid: Op) -> list[Op]:
        """Returns positions (N, *new) along each spatial axis from grid (N, *new, axes), whose last axis has x first."""
        new, axes = grid.shape[:-1], len(self.lengths)
        parts = [reshape(shrink_axis(grid, -1, i, i + 1), new) for i in reversed(range(axes))]
        return [self.unnormalised(part, length) for part, length in zip(parts, self.lengths)]

    def at(self, places: Sequence[Op], mode: str) -> Op:
        """Returns (N, C, *new): images interpolated at positions (N, *new), padded outside."""
        if mode != "bicubic":
            places = [self.padded(place, length) for place, length in zip(places, self.lengths)]
        if mode == "nearest":
            return self.read([cast(_above(round_even(place), -1.0), dtypes.int64) for place in places])
        total: Op | None = None
        taps = [self._cubic(p, n) if mode == "bicubic" else self._linear(p) for p, n in zip(places, self.lengths)]
        for corner in itertools.product(*taps):
            weight: Op | None = None
            for _, own in corner:
                weight = own if weight is None else weight * own
            assert weight is not None
            value = self.read([place for place, _ in corner]) * self.for_channels(weight)
            total = value if total is None else total + value
        assert total is not None
        return total

    def _linear(self, place: Op) -> list[tuple[Op, Op]]:
        """Returns the elements on both sides of a position, with their weights."""
        whole = unary(OpCode.FLOOR, place)
        part, first = place - whole, cast(whole, dtypes.int64)
        return [(first, -part + 1.0), (first + 1, part)]

    def _cubic(self, place: Op, length: int) -> list[tuple[Op, Op]]:
        """Returns the four elements around a position, each padded separately, with their weights."""
        whole = unary(OpCode.FLOOR, place)
        steps = (self.padded(whole + float(k), length) for k in range(-1, 3))
        return [(cast(step, dtypes.int64), weight) for step, weight in zip(steps, cubic_weights(place - whole))]

    def unnormalised(self, place: Op, length: int) -> Op:
        """Converts a position in [-1, 1] to units of elements."""
        if self.align_corners:
            return (place + 1.0) * ((length - 1) / 2.0)
        return ((place + 1.0) * float(length) - 1.0) * 0.5

    def padded(self, place: Op, length: int) -> Op:
        """Moves a position between the first and the last element, unless the padding is zeros."""
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            place = self._mirrored(place, length)
        inner, end = _above(place, 0.0), float(length - 1)
        return where(less(inner, end), inner, end)

    def between_edges(self, place: Op, length: int) -> Op:
        """Applies `padded` to positions beyond the outer edges; those in the outer half elements stay."""
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            return self._mirrored(place, length)
        low, span = self._edges(length)
        is_between = both(less_equal(low, place), less_equal(place, low + span))
        return where(is_between, place, self.padded(place, length))

    def _edges(self, length: int) -> tuple[float, float]:
        """Returns the first edge, and the distance to the last."""
        return (0.0, float(length - 1)) if self.align_corners else (-0.5, float(length))

    def _mirrored(self, place: Op, length: int) -> Op:
        low, span = self._edges(length)
        return _reflected(place, low, span) if span else place * 0.0

    def read(self, places: Sequence[Op]) -> Op:
        """Returns the elements at integer positions (N, *new): (N, C, *new), 0 outside."""
        flat, inside = places[0].filled(0), equal(places[0], places[0])
        for place, length in zip(places, self.lengths):
            holds = both(less_equal(0, place), less(place, length))
            flat, inside = flat * length + place, both(inside, holds)
        images = (*self.x.shape[:2], math.prod(self.lengths))
        return gather(reshape(self.x, images), where(inside, flat, -1), 2, 1)

    def for_channels(self, weight: Op) -> Op:
        """Broadcasts (N, *new) to all channels."""
        batch, *new = weight.shape
        return expand(reshape(weight, (batch, 1, *new)), (batch, self.x.shape[1], *new))


def _reflected(place: Op, low: float, span: float) -> Op:
    """Reflects a position at low and low + span until it is between them."""
    distance = place - low
    distance = maximum(distance, -distance)
    turns = unary(OpCode.FLOOR, distance * (1.0 / span))
    rest = distance - turns * span
    is_odd = turns - unary(OpCode.FLOOR, turns * 0.5) * 2.0
    return where(equal(is_odd, 0.0), rest, -rest + span) + low
