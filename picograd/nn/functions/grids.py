"""Pictures read at places that a tensor names.

In:    tensors
Out:   tensors
Next:  picograd/nn/containers.py

Letters: N batch, C channels; H, W, D lengths of input, H', W', D' of the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import (
    both,
    compare,
    expand,
    gather,
    iota,
    maximum,
    reshape,
    shrink_axis,
    unary,
    where,
)
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.nn.functions.precision import widened
from picograd.nn.functions.resize import along, cubic_weights
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import cast, need_float, static
from picograd.tensor.elements.pointwise import round_even
from picograd.tensor.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

MODES = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


@widened
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",  # noqa: A002
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns input read at the places of grid: x, y (and z) from -1, its start, to 1, its end.

    Args:
      input:          (N, C, H, W) or (N, C, D, H, W)  float
      grid:           (N, H', W', 2) or (N, D', H', W', 3), of the dtype of input
      mode:           "bilinear", between the nearest elements; "nearest"; "bicubic", for four axes
      padding_mode:   what is outside: "zeros", "border" or "reflection". A NaN is outside, before the first element,
                      but where a weight is made of it: between elements padded with zeros, and by "bicubic"
      align_corners:  -1 and 1 are the middles of the first and last elements, not their edges

    Returns:   (N, C, H', W') or (N, C, D', H', W')

    Raises:
      ShapeError:    the shapes do not fit each other.
      DTypeError:    input is no float, or the dtypes differ.
      ArgumentError: another mode or padding_mode.

    >>> grid_sample(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]]))
    Tensor([[[[2.]]]])
    """
    op, where_op = tensor_of("grid_sample", "input", input).read(), tensor_of("grid_sample", "grid", grid).read()
    axes = len(op.shape) - 2
    if mode not in MODES or (mode == "bicubic" and axes != 2):
        raise ArgumentError(f"grid_sample: mode must be one of {', '.join(MODES)} (bicubic of four axes), got {mode!r}.")
    if padding_mode not in PADDING:
        raise ArgumentError(f"grid_sample: padding_mode must be one of {', '.join(PADDING)}, got {padding_mode!r}.")
    fits = axes in (2, 3) and len(where_op.shape) == axes + 2
    if not fits or where_op.shape[0] != op.shape[0] or where_op.shape[-1] != axes:
        raise ShapeError(f"grid_sample: grid {grid.shape} must be (N, *new lengths, {axes}) for input {input.shape}.")
    if 0 in op.shape[2:]:
        raise ShapeError(f"grid_sample: input {input.shape} has an empty axis.")
    need_float("grid_sample", op, "input")
    if where_op.dtype is not op.dtype:
        raise DTypeError(f"grid_sample: input is {op.dtype}, grid is {where_op.dtype}.", hint="bring both to one dtype.")
    sampler = Sampler(cast(op, op.dtype.compute_dtype), padding_mode, bool(align_corners))
    result = sampler.at(sampler.places(cast(where_op, op.dtype.compute_dtype)), mode)
    return input.from_op(cast(result, op.dtype), input.other_device("grid_sample", grid))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Returns the grid of an affine map of each picture, for `grid_sample`: theta times (x, y, 1).

    Args:
      theta:          (N, 2, 3) or (N, 3, 4)  float
      size:           (N, C, H, W) or (N, C, D, H, W) of the pictures to be made
      align_corners:  as in `grid_sample`

    Returns:   (N, H, W, 2) or (N, D, H, W, 3)

    Raises:
      ShapeError: theta and size do not fit each other.
      DTypeError: theta is no float.

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
        total = total + factor(i) * along(line, shape, len(lengths) - i)
    return theta.from_op(total, theta.cell.device)


def _base_line(length: int, align_corners: bool, like: Op) -> Op:
    """Returns (length,): from -1 to 1, the middles of elements."""
    number = cast(iota(length), like.dtype)
    if align_corners:
        return number * (2.0 / (length - 1)) - 1.0 if length > 1 else number
    return (number * 2.0 + (1.0 - length)) * (1.0 / length)


def _above(place: Op, start: float) -> Op:
    """Returns a place, or `start` where it is not above it, or NaN; flat there."""
    return where(compare(OpCode.CMPLT, start, place), place, start)


class Sampler:
    """Reads pictures (N, C, *spatial) at places."""

    def __init__(self, x: Op, padding_mode: str, align_corners: bool):
        self.x, self.padding_mode, self.align_corners = x, padding_mode, align_corners
        self.lengths = [static(n) for n in x.shape[2:]]

    def places(self, grid: Op) -> list[Op]:
        """Returns (N, *new) along each spatial axis for grid (N, *new, axes), whose last axis names the last one first."""
        new, axes = grid.shape[:-1], len(self.lengths)
        parts = [reshape(shrink_axis(grid, -1, i, i + 1), new) for i in reversed(range(axes))]
        return [self.unnormalised(part, length) for part, length in zip(parts, self.lengths)]

    def at(self, places: Sequence[Op], mode: str) -> Op:
        """Returns (N, C, *new): the pictures at places (N, *new) between their elements, padded where they are outside."""
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
        """Returns the elements before and behind a place, and their weights."""
        whole = unary(OpCode.FLOOR, place)
        part, first = place - whole, cast(whole, dtypes.int64)
        return [(first, unary(OpCode.NEG, part) + 1.0), (first + 1, part)]

    def _cubic(self, place: Op, length: int) -> list[tuple[Op, Op]]:
        """Returns the four elements around a place, each padded by itself, and their weights."""
        whole = unary(OpCode.FLOOR, place)
        steps = (self.padded(whole + float(k), length) for k in range(-1, 3))
        return [(cast(step, dtypes.int64), weight) for step, weight in zip(steps, cubic_weights(place - whole))]

    def unnormalised(self, place: Op, length: int) -> Op:
        """Returns a place from -1 to 1 as one between elements."""
        if self.align_corners:
            return (place + 1.0) * ((length - 1) / 2.0)
        return ((place + 1.0) * float(length) - 1.0) * 0.5

    def padded(self, place: Op, length: int) -> Op:
        """Brings a place inside, between the first and the last element, but for padding with zeros."""
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            place = self._mirrored(place, length)
        inner, end = _above(place, 0.0), float(length - 1)
        return where(compare(OpCode.CMPLT, inner, end), inner, end)

    def between_edges(self, place: Op, length: int) -> Op:
        """Does what `padded` does with a place beyond an outer edge; one within half an element of it stays."""
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            return self._mirrored(place, length)
        low, span = self._edges(length)
        is_between = both(compare(OpCode.CMPLE, low, place), compare(OpCode.CMPLE, place, low + span))
        return where(is_between, place, self.padded(place, length))

    def _edges(self, length: int) -> tuple[float, float]:
        """Returns the first edge, and how far the last one is."""
        return (0.0, float(length - 1)) if self.align_corners else (-0.5, float(length))

    def _mirrored(self, place: Op, length: int) -> Op:
        low, span = self._edges(length)
        return _reflected(place, low, span) if span else place * 0.0

    def read(self, places: Sequence[Op]) -> Op:
        """Returns the elements at whole places (N, *new), 0 outside: (N, C, *new)."""
        flat, inside = places[0].filled(0), compare(OpCode.CMPEQ, places[0], places[0])
        for place, length in zip(places, self.lengths):
            holds = both(compare(OpCode.CMPLE, 0, place), compare(OpCode.CMPLT, place, length))
            flat, inside = flat * length + place, both(inside, holds)
        images = (*self.x.shape[:2], math.prod(self.lengths))
        return gather(reshape(self.x, images), where(inside, flat, -1), 2, 1)

    def for_channels(self, weight: Op) -> Op:
        """Returns (N, *new) repeated for every channel."""
        batch, *new = weight.shape
        return expand(reshape(weight, (batch, 1, *new)), (batch, self.x.shape[1], *new))


def _reflected(place: Op, low: float, span: float) -> Op:
    """Returns a place mirrored at low and low + span until it is between them."""
    distance = place - low
    distance = maximum(distance, unary(OpCode.NEG, distance))
    turns = unary(OpCode.FLOOR, distance * (1.0 / span))
    rest = distance - turns * span
    is_odd = turns - unary(OpCode.FLOOR, turns * 0.5) * 2.0
    return where(compare(OpCode.CMPEQ, is_odd, 0.0), rest, unary(OpCode.NEG, rest) + span) + low
