"""Pieces of a tensor: narrowed, selected, split.

In:    tensors
Out:   `Pieces`; a piece is a view, and shares storage
Next:  picograd/tensor/movement/diagonals.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.indexing.subscript import one_place
from picograd.tensor.variable import Length, known


# ---- one piece ----
def narrow(self: T, dim: int, start: int | Length, length: int) -> T:
    """Returns the view of `length` elements from `start` along one axis; a negative start counts from the end.

    Raises:
      IndexingError: the piece is not inside the axis.
      ShapeError:    there is no axis.
      ArgumentError: start or length is no integer.

    >>> Tensor([1, 2, 3, 4]).narrow(0, 1, 2)
    Tensor([2, 3])
    """
    shape = self.shape
    axis = axis_of("narrow", shape, dim)
    if not shape:
        raise ShapeError("narrow: a tensor of shape () has no axis to narrow.")
    if isinstance(start, Length) or isinstance(length, Length):
        return cut(self, axis, getattr(start, "op", start), getattr(start + length, "op", start + length))
    begin, count, whole_axis = whole("narrow", "start", start), whole("narrow", "length", length), shape[axis]
    if isinstance(whole_axis, int):
        begin = begin + whole_axis if begin < 0 else begin
        if begin < 0 or count < 0 or begin + count > whole_axis:
            raise IndexingError(
                f"narrow: {count} elements from {start} on are not inside axis {dim} of length {whole_axis} in {shape}."
            )
    return cut(self, axis, begin, begin + count)


def cut(self: T, axis: int, start: Any, stop: Any) -> T:
    bounds = tuple((start, stop) if a == axis else (0, n) for a, n in enumerate(self.op.shape))
    return self.viewed(OpCode.SHRINK, bounds)


def narrow_copy(self: T, dim: int, start: int, length: int) -> T:
    """Returns a copy of `length` elements from `start` along one axis.

    >>> Tensor([1, 2, 3, 4]).narrow_copy(0, 1, 2)
    Tensor([2, 3])
    """
    return self.narrow(dim, start, length).clone()


def select(self: T, dim: int, index: int | Length) -> T:
    """Returns the view of the elements at `index` along one axis, which disappears.

    Raises:
      IndexingError: the axis has no such element.
      ShapeError:    there is no axis.

    >>> Tensor([[1, 2], [3, 4]]).select(1, -1)
    Tensor([2, 4])
    """
    shape = self.shape
    axis = axis_of("select", shape, dim)
    if not shape:
        raise ShapeError("select: a tensor of shape () has no axis to select from.")
    length = shape[axis]
    if isinstance(length, Op) or isinstance(index, Length):
        place = index if isinstance(index, Length) else whole("select", "index", index)
        return self.viewed_by(one_place(axis, place, self.op.shape))
    at = whole("select", "index", index)
    if not -length <= at < length:
        raise IndexingError(f"select: {at} is out of range for axis {dim} of length {length} in shape {shape}.")
    return cut(self, axis, at % length, at % length + 1).reshape(shape[:axis] + shape[axis + 1 :])


# ---- several pieces ----
def split(self: T, split_size: int | Sequence[int], dim: int = 0, *, axis: int | None = None) -> tuple[T, ...]:
    """Returns views of pieces along one axis: of length `split_size` (the last may be shorter), or of several lengths.

    Raises:
      ShapeError:    the lengths given do not add up to the axis.
      ArgumentError: a length below 1, or below 0 in a list.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).split(2)]
    [[1, 2], [3]]
    """
    if not isinstance(split_size, int):
        return self.split_with_sizes(split_size, dim if axis is None else axis)
    axis = axis_of("split", self.shape, dim if axis is None else axis)
    if not self.ndim:
        raise ShapeError("split: a tensor of shape () has no axis to split.")
    length = known("split", self.shape, axis)
    if split_size < 1 and length:
        raise ArgumentError(f"split: a piece must have at least 1 element, got {split_size}.")
    starts = range(0, max(length, 1), max(split_size, 1))
    return tuple(cut(self, axis, start, min(start + split_size, length)) for start in starts)


def split_with_sizes(self: T, split_sizes: Sequence[int], dim: int = 0) -> tuple[T, ...]:
    """Returns views of pieces of the lengths `split_sizes` along one axis.

    Raises:
      ShapeError:    the lengths do not add up to the axis.
      ArgumentError: a length is below 0.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).split_with_sizes([1, 2])]
    [[1], [2, 3]]
    """
    axis = axis_of("split", self.shape, dim)
    length = known("split", self.shape, axis)
    lengths = [whole("split", "a length", n) for n in split_sizes]
    if any(n < 0 for n in lengths):
        raise ArgumentError(f"split: lengths must not be negative, got {lengths}.")
    if sum(lengths) != length:
        raise ShapeError(f"split: {lengths} adds up to {sum(lengths)}, axis {dim} of {self.shape} is {length}.")
    stops = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return tuple(cut(self, axis, stop - n, stop) for stop, n in zip(stops, lengths))


def chunk(self: T, chunks: int, dim: int = 0, *, axis: int | None = None) -> tuple[T, ...]:
    """Returns views of at most `chunks` pieces of one length along one axis.

    Raises:
      ArgumentError: `chunks` is not positive.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).chunk(2)]
    [[1, 2], [3]]
    """
    chunks = whole("chunk", "chunks", chunks)
    if chunks < 1:
        raise ArgumentError(f"chunk: chunks must be positive, got {chunks}.")
    axis = axis_of("chunk", self.shape, dim if axis is None else axis)
    length = known("chunk", self.shape, axis)
    if length == 0:
        return (cut(self, axis, 0, 0),) * chunks
    return self.split(-(-length // chunks), axis)


def tensor_split(self: T, indices_or_sections: Any, dim: int = 0) -> tuple[T, ...]:
    """Returns views of pieces along one axis: so many, of lengths that differ by one at most; or cut at indices.

    Args:
      indices_or_sections: the number of pieces, or the indices where all but the first begin, as in a slice

    Raises:
      ArgumentError: the number of pieces is not positive.
      ShapeError:    there is no axis.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).tensor_split(2)]
    [[1, 2], [3]]
    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).tensor_split((1, 1))]
    [[1], [], [2, 3]]
    """
    return _split_at(self, "tensor_split", indices_or_sections, dim)


def _split_at(self: T, function: str, where: Any, dim: int) -> tuple[T, ...]:
    """Returns the pieces of an axis: cut before each of the places `where`, or so many of nearly one length."""
    shape = self.shape
    if not shape:
        raise ShapeError(f"{function}: a tensor of shape () has no axis to split.")
    axis = axis_of(function, shape, dim)
    length = known(function, shape, axis)
    if isinstance(where, TensorCore):
        where = where._host(function).tolist()
    if isinstance(where, (list, tuple)):
        cuts = [slice(whole(function, "an index", cut)).indices(length)[1] for cut in where]
    else:
        count = whole(function, "the number of pieces", where)
        if count < 1:
            raise ArgumentError(f"{function}: the number of pieces must be positive, got {count}.")
        cuts = [i * (length // count) + min(i, length % count) for i in range(1, count)]
    bounds = zip([0, *cuts], [*cuts, length])
    return tuple(cut(self, axis, start, max(start, stop)) for start, stop in bounds)


def _split_evenly(self: T, function: str, where: Any, axis: int, least: int) -> tuple[T, ...]:
    """Splits along an axis; into a number of pieces only if it divides the length."""
    if self.ndim < least:
        raise ShapeError(f"{function}: needs {least} axes or more, got shape {self.shape}.")
    if isinstance(where, int) and where > 0 and known(function, self.shape, axis) % where:
        raise ShapeError(f"{function}: axis {axis} of {self.shape} has no {where} pieces of one length.")
    return _split_at(self, function, where, axis)


def hsplit(self: T, indices_or_sections: Any) -> tuple[T, ...]:
    """Returns views of pieces along axis 1, of a vector along axis 0.

    Args:
      indices_or_sections: a number of equal pieces, or the indices where all but the first begin

    Raises:
      ShapeError: the axis cannot be cut into so many equal pieces.

    >>> [piece.tolist() for piece in Tensor([[1, 2], [3, 4]]).hsplit(2)]
    [[[1], [3]], [[2], [4]]]
    """
    return _split_evenly(self, "hsplit", indices_or_sections, 0 if self.ndim == 1 else 1, 1)


def vsplit(self: T, indices_or_sections: Any) -> tuple[T, ...]:
    """Returns views of pieces along axis 0 of two axes or more.

    Args:
      indices_or_sections: a number of equal pieces, or the indices where all but the first begin

    Raises:
      ShapeError: the axis cannot be cut into so many equal pieces.

    >>> [piece.tolist() for piece in Tensor([[1, 2], [3, 4]]).vsplit(2)]
    [[[1, 2]], [[3, 4]]]
    """
    return _split_evenly(self, "vsplit", indices_or_sections, 0, 2)


def dsplit(self: T, indices_or_sections: Any) -> tuple[T, ...]:
    """Returns views of pieces along axis 2 of three axes or more.

    Args:
      indices_or_sections: a number of equal pieces, or the indices where all but the first begin

    Raises:
      ShapeError: the axis cannot be cut into so many equal pieces.

    >>> [piece.tolist() for piece in Tensor([[[1, 2]]]).dsplit(2)]
    [[[[1]]], [[[2]]]]
    """
    return _split_evenly(self, "dsplit", indices_or_sections, 2, 3)


def unbind(self: T, dim: int = 0, *, axis: int | None = None) -> tuple[T, ...]:
    """Returns the views along one axis, which disappears.

    >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
    [[1, 2], [3, 4]]
    """
    shape = self.shape
    axis = axis_of("unbind", shape, dim if axis is None else axis)
    before, after = [tuple([(0, length) for length in part]) for part in (shape[:axis], shape[axis + 1 :])]
    rest = (OpCode.RESHAPE, (*shape[:axis], *shape[axis + 1 :]))
    pieces = [(OpCode.SHRINK, (*before, (i, i + 1), *after)) for i in range(known("unbind", shape, axis))]
    return tuple([self.viewed_by((piece, rest)) for piece in pieces])
