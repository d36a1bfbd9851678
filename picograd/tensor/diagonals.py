"""Windows along an axis, diagonals, and pieces put back in a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from picograd.dtype import Scalar
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import both, cast, equal, mod, number_like, positions, where
from picograd.ir.op import Dim, Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, bounds, ceildiv, minimum, mul, subtract
from picograd.tensor.arguments import at_least
from picograd.tensor.build import axis_of, broadcast_to, whole
from picograd.tensor.cell import write_through
from picograd.tensor.core import T
from picograd.tensor.formulas import of_tensors
from picograd.tensor.intake import fitting
from picograd.tensor.variable import known
from picograd.tensor.views import cut

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = [
    "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "select_scatter", "slice_scatter",
]  # fmt: skip


# ---- windows and diagonals ----
PIECE_ELEMENTS_MIN = 4  # a step with fewer elements takes windows at each position, which are at most three times as many


def unfold(self: T, dimension: int, size: int, step: int) -> T:
    """Returns the view of all windows along one axis: `size` elements each, `step` elements apart.

    out[..., i, ..., j] = self[..., i * step + j, ...]; the elements of a window are the last axis. Windows that
    overlap cannot be written to.

    Raises:
      ArgumentError: the step is not positive.
      ShapeError:    a window is longer than the axis `dimension`.

    >>> Tensor([1, 2, 3, 4]).unfold(0, 2, 1).tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    if not self.ndim:
        return self.reshape(1).unfold(0, size, step).reshape(whole("unfold", "size", size))
    axis = axis_of("unfold", self.shape, dimension)
    length, count = known("unfold", self.shape, axis), whole("unfold", "size", size)
    step = at_least("unfold", "step", step, 1)
    if not 0 <= count <= length:
        raise ShapeError(f"unfold: a window of {count} is longer than axis {dimension} of {self.shape}.")
    line = self.movedim(axis, -1)
    windows = (length - count) // step + 1
    span = (windows - 1) * step + count
    if step < min(count, PIECE_ELEMENTS_MIN) and count % step:
        return _thinned(_overlapping(line, count).movedim(-2, 0), step).movedim(0, axis)
    if step < count:  # a window has several pieces of `step` elements; the last may be cut
        parts = ceildiv(count, step)
        used = (windows - 1 + parts) * step
        pieces = cut(_with_margin(line, max(0, used - length)), self.ndim - 1, 0, used)
        pieces = pieces.unflatten(-1, (-1, step)).transpose(-1, -2)
        found = _last_two_joined(_overlapping(pieces, parts).movedim(-3, -1))
        return cut(found, self.ndim, 0, count).movedim(-2, axis)
    padded = _with_margin(cut(line, self.ndim - 1, 0, span), windows * step - span)  # contiguous windows: a shape, cut
    return cut(padded.unflatten(-1, (windows, step)), self.ndim, 0, count).movedim(-2, axis)


def _last_two_joined(self: T) -> T:
    """Returns a view in which the last two axes are joined."""
    *others, rows, columns = self.shape
    return self.view(*others, rows * columns)


def _with_margin(self: T, after: Dim) -> T:
    """Returns a view with zeros after the end of the last axis."""
    return self.viewed(OpCode.PAD, ((0, 0),) * (self.ndim - 1) + ((0, after),)) if after != 0 else self


def _overlapping(self: T, count: int) -> T:
    """Returns the view (..., windows, count) of all windows along the last axis.

    The line is repeated and cut into rows that are longer by one, so row j begins with element j.
    """
    rows, length = self.shape[:-1], self.shape[-1]
    lines = _last_two_joined(self.unsqueeze(-2).expand(*rows, count + 1, length))
    windows = cut(lines, self.ndim - 1, 0, count * (length + 1)).unflatten(-1, (count, length + 1))
    return cut(windows, self.ndim, 0, length - count + 1).transpose(-1, -2)


def diagonal(self: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    """Returns the view of a diagonal of two axes; the diagonal becomes the last axis.

    out[..., i] = self[..., i, i + offset] with `dim1` and `dim2` as last axes; a negative `offset` is below the main
    diagonal.

    Raises:
      ArgumentError: dim1 and dim2 are the same axis.
      ShapeError:    there are fewer than two axes.

    >>> Tensor([[1, 2], [3, 4]]).diagonal()
    Tensor([1, 4])
    """
    shape = self.shape
    if len(shape) < 2:
        raise ShapeError(f"diagonal: needs two axes, got shape {shape}.")
    first, second = axis_of("diagonal", shape, dim1), axis_of("diagonal", shape, dim2)
    if first == second:
        raise ArgumentError(f"diagonal: dim1 {dim1} and dim2 {dim2} are one axis of {shape}.")
    start = whole("diagonal", "offset", offset)
    count = minimum(add(self.op.shape[first], min(start, 0)), subtract(self.op.shape[second], max(start, 0)))
    if isinstance(count, int):
        count = max(0, count)
    elif bounds(count)[0] < 1:
        known("diagonal", shape, first if isinstance(self.op.shape[first], Op) else second)
    top, left = (max(0, -start), max(0, start)) if count != 0 else (0, 0)
    square = cut(self.movedim((first, second), (-2, -1)), self.ndim - 2, top, add(count, top))
    square = cut(square, self.ndim - 1, left, add(count, left))
    if isinstance(count, int) and count < 2:
        return square.view(*square.shape[:-2], count)
    # count x count elements and count zeros, in rows that are longer by one: the diagonal is the first column
    line = _with_margin(_last_two_joined(square), count)
    rows_of = line.view(*line.shape[:-1], count, add(count, 1))
    return cut(rows_of, self.ndim - 1, 0, 1).view(*rows_of.shape[:-2], count)


@of_tensors
def diag(self: T, diagonal: int = 0) -> T:
    """Returns a copy of a diagonal of a matrix; or a square matrix with a vector as its diagonal.

    Raises:
      ShapeError: there are neither one axis nor two.

    >>> Tensor([[1, 2], [3, 4]]).diag()
    Tensor([1, 4])
    >>> Tensor([1, 2]).diag().tolist()
    [[1, 0], [0, 2]]
    """
    if self.ndim not in (1, 2):
        raise ShapeError(f"diag: needs one or two axes, got shape {self.shape}.", hint="use diagonal or diag_embed.")
    return self.diag_embed(diagonal) if self.ndim == 1 else self.diagonal(diagonal).clone()


@of_tensors
def diagflat(self: T, offset: int = 0) -> T:
    """Returns a square matrix with all elements, in order, along the diagonal at `offset`.

    >>> Tensor([[1, 2]]).diagflat().tolist()
    [[1, 0], [0, 2]]
    """
    return self.reshape(-1 if self.op.numel else 0).diag_embed(offset)


@of_tensors
def diag_embed(self: T, offset: int = 0, dim1: int = -2, dim2: int = -1) -> T:
    """Returns square matrices with the last axis on the diagonal of axes `dim1` and `dim2`, zeros elsewhere.

    Args:
      offset:      above the main diagonal, below it if negative
      dim1, dim2:  axes of the result; self[..., i] is at (i, i + offset)

    Raises:
      ArgumentError: dim1 and dim2 are the same axis.
      ShapeError:    self is 0-d.

    >>> Tensor([1, 2]).diag_embed(1).tolist()
    [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    shape = self.shape
    if not shape:
        raise ShapeError("diag_embed: needs an axis, got shape ().")
    length, start = self.op.shape[-1], whole("diag_embed", "offset", offset)
    first, second = (axis_of("diag_embed", shape, dim, extra=1) for dim in (dim1, dim2))
    if first == second:
        raise ArgumentError(f"diag_embed: dim1 {dim1} and dim2 {dim2} are one axis.")
    # The diagonal is the first column of rows that are longer by one: see diagonal.
    rows = self.unsqueeze(-1).viewed(OpCode.PAD, ((0, 0),) * len(shape) + ((0, length),)).flatten(-2)
    square = cut(rows, self.ndim - 1, 0, mul(length, length)).reshape(*shape, length)
    margins = ((max(0, -start), max(0, start)), (max(0, start), max(0, -start)))
    placed = square.viewed(OpCode.PAD, ((0, 0),) * (len(shape) - 1) + margins) if start else square
    return placed.movedim((-2, -1), (first, second)).clone()


# ---- pieces put back ----
def _with_piece(self: T, function: str, src: Tensor, view: Callable[[T], T]) -> T:
    """Returns a copy in which `src` replaces a view."""
    whole = self.from_op(self.read(), self.cell.device)
    piece = view(whole)
    if src.shape != piece.shape:
        raise ShapeError(f"{function}: src of shape {src.shape} does not fit the piece of shape {piece.shape}.")
    value = broadcast_to(cast(src.read(), self.dtype), piece.op.shape)
    return self.from_op(write_through(whole.op, piece.steps, value), self.other_device(function, src))


@of_tensors
def select_scatter(self: T, src: Tensor, dim: int, index: int) -> T:
    """Returns a copy with `src` at `index` along one axis.

    Raises:
      ShapeError: the shape of src differs.

    >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([8, 9]), 0, 1).tolist()
    [[1, 2], [8, 9]]
    """
    return _with_piece(self, "select_scatter", src, lambda whole: whole.select(dim, index))


@of_tensors
def slice_scatter(self: T, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> T:
    """Returns a copy with `src` in the slice from `start` up to `end`, by `step`, along one axis.

    Raises:
      ShapeError:    the shape of src differs.
      ArgumentError: the step is not positive.

    >>> Tensor([1, 2, 3]).slice_scatter(Tensor([8, 9]), 0, 0, None, 2)
    Tensor([8, 2, 9])
    """
    axis = axis_of("slice_scatter", self.shape, dim)
    length = known("slice_scatter", self.shape, axis)
    step = at_least("slice_scatter", "step", step, 1)
    first, last, by = slice(start, end, step).indices(length)

    def piece(whole: T) -> T:
        return _thinned(cut(whole, axis, first, max(first, last)).movedim(axis, 0), by).movedim(0, axis)

    return _with_piece(self, "slice_scatter", src, piece)


def _thinned(self: T, step: int) -> T:
    """Returns the view of every `step`-th element of axis 0."""
    return self if step == 1 or not self.shape[0] else self.unfold(0, 1, step).select(-1, 0)


@of_tensors
def diagonal_scatter(self: T, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    """Returns a copy with `src` on a diagonal of two axes, as selected by `diagonal`.

    Args:
      src:         the new diagonal, of the shape of self.diagonal(offset, dim1, dim2)
      offset:      above the main diagonal, below it if negative
      dim1, dim2:  the two axes

    Raises:
      ShapeError: the shape of src differs.

    >>> Tensor([[1, 2], [3, 4]]).diagonal_scatter(Tensor([8, 9])).tolist()
    [[8, 2], [3, 9]]
    """
    return _with_piece(self, "diagonal_scatter", src, lambda whole: whole.diagonal(offset, dim1, dim2))


def fill_diagonal_(self: T, fill_value: Scalar, wrap: bool = False) -> T:
    """Stores the number `fill_value` along the diagonal in place.

    Args:
      fill_value:  the number
      wrap:        the diagonal of a matrix with more rows than columns starts again after each block of n + 1 rows

    Raises:
      ShapeError: fewer than two axes, or more than two of different lengths.

    >>> Tensor.zeros(2, 3).fill_diagonal_(7)
    Tensor([[7., 0., 0.],
            [0., 7., 0.]])
    """
    shape = self.op.shape
    if len(shape) < 2 or (len(shape) > 2 and len({*shape}) > 1):
        raise ShapeError(f"fill_diagonal_: needs two axes, or more axes of equal length, got shape {shape}.")
    rows = positions(shape, 0)
    if wrap and len(shape) == 2:
        rows = mod(rows, number_like(rows, add(shape[1], 1)))
    chosen = equal(rows, positions(shape, 1))
    for axis in range(2, len(shape)):
        chosen = both(chosen, equal(rows, positions(shape, axis)))
    value = filled(fitting("fill_diagonal_", fill_value, self.dtype), self.dtype, shape)
    return self.write("fill_diagonal_", where(chosen, value, self.read()))
