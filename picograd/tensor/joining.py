"""Tensors rearranged and joined: repeated, reversed, padded, concatenated, stacked, broadcast."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any
from typing import cast as cast_to

import numpy as np

from picograd.dtype import DType, bool_, int64
from picograd.engine.host_memory import block_on_host, shared, value_on_host
from picograd.engine.realize import devices_of, from_host
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, gather, joined_ops, reshape, stacked_ops, where
from picograd.ir.build import pad as padded_op
from picograd.ir.op import Op, filled, is_memory
from picograd.ir.opcode import OpCode
from picograd.ir.origin import out_of_memory
from picograd.ir.shape import numel, of_numbers
from picograd.ir.symbolic import add, bounds, mod, mul, subtract
from picograd.tensor.arguments import at_least
from picograd.tensor.build import axes_of, axis_of, broadcast_to, common_dtype, is_integer, sizes, whole
from picograd.tensor.build import broadcast_shapes as common_shape
from picograd.tensor.cell import trace
from picograd.tensor.compute import compute, unrealized
from picograd.tensor.core import T, TensorCore
from picograd.tensor.creation import shape_of_sizes
from picograd.tensor.first_values import evaluated
from picograd.tensor.formulas import by_formula
from picograd.tensor.variable import known, lengths
from picograd.tensor.views import cut

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = [
    "combinations", "flip", "fliplr", "flipud", "roll", "rot90", "tile",
]  # fmt: skip


# ---- repetitions, margins, joins ----
DATA_PIECES_MIN = 5  # of a join on the host; a kernel joins fewer
DATA_OPS_MAX = 8  # in the graph of a piece
DATA_NBYTES_MAX = 1 << 24  # of all pieces: the host copies them in a few milliseconds
DATA_PIECES_LATE = 4  # at most one in four pieces may still have to be computed


def repeat(self: T, *times: Any, repeats: Sequence[int] | None = None) -> T:
    """Returns the tensor tiled `times`, or `repeats`, times along each axis.

    Raises:
      ShapeError:    there are fewer repeats than axes.
      ArgumentError: a number is negative.

    >>> Tensor([1, 2]).repeat(2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    counts = lengths("repeat", sizes("repeat", times, repeats))
    if len(counts) < self.ndim:
        raise ShapeError(f"repeat: {counts} needs a count for each axis of {self.shape}.")
    if any(isinstance(count, int) and count < 0 for count in counts):
        raise ArgumentError(f"repeat: counts must not be negative, got {counts}.")
    shape = (1,) * (len(counts) - self.ndim) + self.shape
    paired = tuple(n for dim in shape for n in (1, dim))
    tiled = tuple(n for count, dim in zip(counts, shape) for n in (count, dim))
    op = broadcast_to(self.reshape(paired).read(), tiled)
    joined = tuple(mul(count, dim) for count, dim in zip(counts, shape))
    return self.from_op(reshape(op, joined), self.cell.device)


def tile(self: T, *times: Any, dims: Sequence[int] | None = None) -> T:
    """Returns the tensor tiled `times`, or `dims`, times along its last axes; missing numbers are 1.

    >>> Tensor([1, 2]).tile(2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    counts = lengths("tile", sizes("tile", times, dims))
    return self.repeat((1,) * (self.ndim - len(counts)) + tuple(counts))


# ---- order ----
def flip(self: T, *axes: Any, dims: int | Sequence[int] | None = None) -> T:
    """Returns a tensor with the order of elements reversed along `axes`, or `dims`.

    >>> Tensor([1, 2, 3]).flip(0)
    Tensor([3, 2, 1])
    """
    chosen = axes_of("flip", self.shape, sizes("flip", axes, dims))
    op = self.read()
    return self.from_op(Op(OpCode.FLIP, op.dtype, (op,), chosen) if chosen and op.shape else op, self.cell.device)


def fliplr(self: T) -> T:
    """Returns the elements in reverse order along axis 1.

    Raises:
      ShapeError: there are fewer than two axes.

    >>> Tensor([[1, 2], [3, 4]]).fliplr().tolist()
    [[2, 1], [4, 3]]
    """
    if self.ndim < 2:
        raise ShapeError(f"fliplr: needs two axes, got shape {self.shape}.")
    return self.flip(1)


def flipud(self: T) -> T:
    """Returns the elements in reverse order along axis 0.

    Raises:
      ShapeError: the tensor is 0-d.

    >>> Tensor([[1, 2], [3, 4]]).flipud().tolist()
    [[3, 4], [1, 2]]
    """
    if not self.ndim:
        raise ShapeError("flipud: needs an axis, got shape ().")
    return self.flip(0)


def rot90(self: T, k: int = 1, dims: Sequence[int] = (0, 1)) -> T:
    """Returns the tensor rotated `k` times by 90 degrees in the plane of two axes, from the first to the second.

    Raises:
      ArgumentError: `dims` are not two different axes.

    >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
    [[2, 4], [1, 3]]
    """
    axes = tuple(axis_of("rot90", self.shape, dim) for dim in dims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ArgumentError(f"rot90: dims must be two different axes of {self.shape}, got {tuple(dims)}.")
    turns = whole("rot90", "k", k) % 4
    if turns == 2:
        return self.flip(axes)
    turned = self.flip(axes[1] if turns == 1 else axes[0]) if turns else self.clone()
    return turned.transpose(*axes) if turns else turned


def pad(self: T, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> T:
    """Returns the tensor padded with `value`.

    Args:
      pad:   elements before and after the last axis, then the one before it, ...; negative numbers crop
      mode:  "constant"
      value: value of the padding

    Raises:
      ArgumentError: an odd count of numbers, more than two per axis, or an unknown mode.

    >>> Tensor([1, 2]).pad((1, 2), value=9)
    Tensor([9, 1, 2, 9, 9])
    """
    if mode != "constant":
        raise ArgumentError(f'pad: mode must be "constant", got {mode!r}.')
    pad = [whole("pad", "a margin", n) for n in pad]
    if len(pad) % 2 or len(pad) > 2 * self.ndim:
        raise ArgumentError(f"pad: {tuple(pad)} needs a pair for each of the last axes of {self.shape}.")
    given = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    pairs = [(0, 0)] * (self.ndim - len(given)) + given
    cut = tuple((max(0, -before), dim - max(0, -after)) for (before, after), dim in zip(pairs, self.shape))
    op = self.read()
    if any(before < 0 or after < 0 for before, after in pairs):
        op = Op(OpCode.SHRINK, op.dtype, (op,), cut)
    margins = tuple((max(0, before), max(0, after)) for before, after in pairs)
    padded = pad_op(op, margins, value)
    return self.from_op(padded, self.cell.device)


def roll(self: T, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> T:
    """Returns the elements shifted by `shifts` along `dims`; those pushed out come in at the other end.

    Without `dims` the flattened tensor is shifted.

    Raises:
      ArgumentError: the numbers of shifts and dims differ.

    >>> Tensor([1, 2, 3]).roll(1)
    Tensor([3, 1, 2])
    """
    if dims is None or (not is_integer(dims) and len(dims) == 0 and len(sizes("roll", (shifts,))) == 1):
        return self.flatten().roll(shifts, 0).reshape(self.shape)
    moves = tuple(whole("roll", "shifts", n) for n in ((shifts,) if is_integer(shifts) else shifts))
    axes = (dims,) if is_integer(dims) else tuple(dims)
    if len(moves) != len(axes):
        raise ArgumentError(f"roll: shifts {moves} and dims {axes} must be of one length.")
    result = self
    for move, dim in zip(moves, axes):
        axis = axis_of("roll", self.shape, dim)
        length = self.op.shape[axis]
        first = subtract(length, move) if 0 <= move <= bounds(length)[0] else mod(-move, length)
        twice = result.cat([result, result], axis)  # so shifts differ in an offset, not in a length
        result = self.from_op(cut(twice, axis, first, add(first, length)).op, self.cell.device)
    return result


def cat(cls: type[T], tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> T:
    """Returns tensors concatenated along one axis; their other axes must be equal.

    Raises:
      ShapeError:    another axis differs, or tensors are 0-d. Empty vectors are ignored.
      DTypeError:    an item is not a tensor.
      ArgumentError: tensors is empty.

    >>> Tensor.cat([Tensor([1]), Tensor([2, 3])]).tolist()
    [1, 2, 3]
    """
    if not tensors:
        raise ArgumentError("cat: needs at least one tensor.")
    for t in tensors:
        if not isinstance(t, TensorCore):
            raise DTypeError(f"cat: needs tensors, got {t!r}.", hint="Tensor(x)")
    ops = [t.read() for t in tensors]
    shapes = [op.shape for op in ops]
    if () in shapes:
        raise ShapeError("cat: a tensor of shape () has no axis to join along.", hint="pg.stack([...])")
    device, dtype = tensors[0].other_device("cat", *tensors[1:]), common_dtype(ops)
    if (0,) in shapes and any(len(shape) > 1 for shape in shapes):  # empty vectors are ignored
        tensors, ops = [t for t in tensors if t.op.shape != (0,)], [op for op in ops if op.shape != (0,)]
    first = ops[0].shape
    chosen = dim if axis is None else axis
    axis = axis_of("cat", first, 0 if {*shapes} == {(0,)} else chosen)  # empty vectors accept any axis
    for op in ops:
        if op.shape[:axis] != first[:axis] or op.shape[axis + 1 :] != first[axis + 1 :]:
            shown = ", ".join(map(str, shapes))
            raise ShapeError(f"cat: shapes must match except along axis {axis}, got {shown}.", _axis_that_fits(tensors))
    if (data := _joined_data(tensors, ops, axis, dtype)) is not None:
        return cls(data, dtype, device)
    total = reduce(add, [op.shape[axis] for op in ops])
    kind = (dtype, (*first[:axis], total, *first[axis + 1 :]))
    (joined,) = by_formula(joined_ops, (axis, dtype), ops, (kind,))
    _hold_joined(joined, ops, axis)
    return cls.from_op(joined, device)


def stack(cls: type[T], tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> T:
    """Returns tensors of one shape joined along a new axis.

    Raises:
      ShapeError:    the shapes differ.
      ArgumentError: tensors is empty.

    >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1)
    Tensor([[1, 3],
            [2, 4]])
    """
    if not tensors:
        raise ArgumentError("stack: needs at least one tensor.")
    ops = [t.read() for t in tensors]
    each = ops[0].shape
    if {op.shape for op in ops} != {each}:
        shapes = ", ".join(str(op.shape) for op in ops)
        raise ShapeError(f"stack: shapes must be equal, got {shapes}.", _axis_that_fits(tensors))
    axis = axis_of("stack", each, dim if axis is None else axis, extra=1)
    dtype, device = common_dtype(ops), tensors[0].other_device("stack", *tensors[1:])
    if (data := _joined_data(tensors, ops, axis, dtype, is_new=True)) is not None:
        return cls(data, dtype, device)
    kind = (dtype, (*each[:axis], len(ops), *each[axis:]))
    (joined,) = by_formula(stacked_ops, (axis, dtype), ops, (kind,))
    _hold_joined(joined, ops, axis, is_new=True)
    return cls.from_op(joined, device)


def _joined_data(
    tensors: Sequence[Tensor], ops: Sequence[Op], axis: int, dtype: DType, is_new: bool = False
) -> np.ndarray[Any, Any] | None:
    """Joins many small pieces of data on the host; returns None if the host should not.

    Why: each batch consists of other pieces, at positions or of lengths of their own, and on the device each combination of
    lengths would be a plan. If lengths differ, a piece that is a few operations from memory is computed by itself, by the
    evaluator if its bits are those of a kernel: each length would be a kernel. A list to which a loop adds a piece at each
    turn would be a plan per number of pieces, so the latest pieces are computed for it.

    Args:
      is_new:  join along a new axis
    """
    if len(ops) < DATA_PIECES_MIN or trace.get() is not None:
        return None
    kinds = {(op.shape, op.dtype, op.needs_grad) for op in ops}
    if any(kind is not dtype or needs_grad or not all(type(n) is int for n in shape) for shape, kind, needs_grad in kinds):
        return None
    if sum(op.numel for op in ops) * dtype.itemsize > DATA_NBYTES_MAX:
        return None
    if axis == 0 and (blocks := _joined_blocks(ops, is_new)) is not None:
        return blocks
    pieces, late = list[Any](), list[Op]()
    for tensor, op in zip(tensors, ops):
        piece = value_on_host(op)
        if piece is None and len(kinds) > 1 and unrealized(op, DATA_OPS_MAX) < DATA_OPS_MAX:
            piece = tensor.numpy() if (values := evaluated([op])) is None else values[0]
        if piece is None:
            late.append(op)
            if len(late) * DATA_PIECES_LATE > len(ops) or is_memory(op):
                return None
        pieces.append(piece)
    if late:
        compute((), late)
        pieces = [value_on_host(op) if piece is None else piece for piece, op in zip(pieces, ops)]
    return np.stack(pieces, axis) if is_new else np.concatenate(pieces, axis)


def _joined_blocks(ops: Sequence[Op], is_new: bool) -> np.ndarray[Any, Any] | None:
    """Returns blocks of host memory of one dtype joined along axis 0; None if one of the Ops is something else."""
    blocks = []
    for op in ops:
        if (block := block_on_host(op)) is None:
            return None
        blocks.append(block)
    first = ops[0].shape
    shape = (len(ops), *first) if is_new else (sum([cast_to(int, op.shape[0]) for op in ops]), *first[1:])
    return np.frombuffer(b"".join(blocks), ops[0].dtype.numpy).reshape(shape)


def _hold_joined(joined: Op, ops: Sequence[Op], axis: int, is_new: bool = False) -> None:
    """Gives a graph for backward() its value now, if it joins many blocks of host memory that need gradients.

    Otherwise a list of rows of many batches, from which some are drawn, would have a plan for each pattern of the batches.
    """
    if not joined.needs_grad or axis or len(ops) < DATA_PIECES_MIN or trace.get() is not None or shared.data:
        return
    if joined.realized is not None or {op.dtype for op in ops} != {joined.dtype}:
        return
    if not of_numbers(joined.shape) or joined.nbytes > DATA_NBYTES_MAX:
        return
    if (data := _joined_blocks(ops, is_new)) is not None and (device := devices_of([joined])[0]) is not None:
        joined.realized = from_host(data, joined.dtype, device)


def pad_op(op: Op, margins: tuple[tuple[int, int], ...], value: float) -> Op:
    """Returns `op` padded with `value`."""
    padded = padded_op(op, margins)
    if padded is op or op.dtype.scalar(value) == 0:
        return padded
    inside = padded_op(filled(True, bool_, op.shape), margins)
    return where(inside, padded, value)


def _axis_that_fits(tensors: Sequence[Tensor]) -> str:
    """Returns a hint for tensors that cannot be joined: an axis along which they can be, or the lengths that differ."""
    shapes = [tensor.op.shape for tensor in tensors]
    if len({len(shape) for shape in shapes}) > 1:
        return "all need the same number of axes: unsqueeze or flatten some."
    differing = [axis for axis, dims in enumerate(zip(*shapes)) if len(set(dims)) > 1]
    if len(differing) == 1:
        return f"they fit along axis {differing[0]}: pg.cat([...], {differing[0]})."
    return f"they differ along axes {', '.join(map(str, differing[:-1]))} and {differing[-1]}: pad, cut or reshape them."


# ---- several tensors ----
CHOSEN_AT_ONCE = 1 << 16


# ---- at least one, two or three axes ----
def atleast_1d(cls: Any, *tensors: Any) -> Any:
    """Returns views with at least one axis: one for a single tensor, a tuple for several `tensors`.

    >>> Tensor.atleast_1d(Tensor(3))
    Tensor([3])
    """
    return _each(cls, "atleast_1d", tensors, lambda x: x if x.ndim else x.reshape(1))


def atleast_2d(cls: Any, *tensors: Any) -> Any:
    """Returns views with at least two axes, new ones in front: one for a single tensor, a tuple for several `tensors`.

    >>> Tensor.atleast_2d(Tensor([1, 2])).tolist()
    [[1, 2]]
    """
    return _each(cls, "atleast_2d", tensors, lambda x: x if x.ndim > 1 else x.reshape(1, -1))


def atleast_3d(cls: Any, *tensors: Any) -> Any:
    """Returns views with at least three axes: a vector becomes the middle one, a matrix the first two.

    One view for a single tensor, a tuple for several `tensors`.

    >>> Tensor.atleast_3d(Tensor([1, 2])).shape
    (1, 2, 1)
    """
    return _each(cls, "atleast_3d", tensors, _in_three_axes)


def _each(cls: type[T], function: str, tensors: tuple[Any, ...], convert: Any) -> Any:
    listed = len(tensors) != 1 or isinstance(tensors[0], (list, tuple))
    results = tuple(convert(x) for x in _listed(cls, function, tensors))
    return results if listed else results[0]


def _listed(cls: type[T], function: str, tensors: Sequence[Any]) -> list[T]:
    """Returns tensors given as f(a, b) or as f([a, b])."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    for x in tensors:
        if not isinstance(x, cls):
            raise DTypeError(f"{function}: needs tensors, got {x!r}.", hint="Tensor(x)")
    return list(tensors)


# ---- joined along an axis of their own ----
def hstack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 1; vectors and numbers along axis 0.

    >>> Tensor.hstack([Tensor([1, 2]), Tensor([3])])
    Tensor([1, 2, 3])
    """
    parts = [cls.atleast_1d(x) for x in _listed(cls, "hstack", [tensors])]
    return cls.cat(parts, 0 if parts and parts[0].ndim == 1 else 1)


def vstack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 0; vectors and numbers become rows.

    >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return cls.cat([cls.atleast_2d(x) for x in _listed(cls, "vstack", [tensors])], 0)


def row_stack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 0, as vstack does.

    >>> Tensor.row_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return cls.vstack(tensors)


def dstack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 2, after `atleast_3d`.

    >>> Tensor.dstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return cls.cat([cls.atleast_3d(x) for x in _listed(cls, "dstack", [tensors])], 2)


def column_stack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 1; vectors and numbers become columns.

    >>> Tensor.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    parts = _listed(cls, "column_stack", [tensors])
    return cls.cat([x if x.ndim > 1 else x.reshape(-1, 1) for x in parts], 1)


# ---- one shape ----
def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """Returns the shape that all `shapes` broadcast to; a number is the shape of a vector.

    Raises:
      ShapeError: two lengths of one axis differ and neither is 1.

    >>> Tensor.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    given = [shape_of_sizes("broadcast_shapes", (shape,) if is_integer(shape) else tuple(shape)) for shape in shapes]
    return common_shape("broadcast_shapes", *given) if given else ()  # type: ignore[return-value]


def broadcast_tensors(cls: type[T], *tensors: Any) -> tuple[T, ...]:
    """Returns views of `tensors` broadcast to their common shape.

    Raises:
      ShapeError: two lengths of one axis differ and neither is 1.

    >>> [x.tolist() for x in Tensor.broadcast_tensors(Tensor([[1], [2]]), Tensor([3, 4]))]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    listed = _listed(cls, "broadcast_tensors", tensors)
    if not listed:
        return ()
    shape = common_shape("broadcast_tensors", *(x.op.shape for x in listed))
    return tuple(x.expand(shape) for x in listed)


def meshgrid(cls: type[T], *tensors: Any, indexing: str = "ij") -> tuple[T, ...]:
    """Returns views of vectors, each broadcast along the axes of all others.

    out[k][i, j, ...] is vector k's element at its own index among i, j, ...

    Args:
      tensors:   vectors; numbers count as vectors of one element
      indexing:  "ij": axis k belongs to vector k; "xy": the first two axes are exchanged

    Raises:
      ArgumentError: indexing is neither.
      ShapeError:    a tensor has several axes.

    >>> [x.tolist() for x in Tensor.meshgrid(Tensor([1, 2]), Tensor([3, 4]))]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    listed = _listed(cls, "meshgrid", tensors)
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f'meshgrid: indexing must be "ij" or "xy", got {indexing!r}.')
    for x in listed:
        if x.ndim > 1:
            raise ShapeError(f"meshgrid: needs vectors, got shape {x.shape}.")
    swapped = indexing == "xy" and len(listed) > 1
    vectors = [x.reshape(-1) if x.ndim == 0 else x for x in listed]
    if swapped:
        vectors[:2] = vectors[1::-1]
    shape = tuple(x.shape[0] for x in vectors)
    grids = [
        x.reshape((1,) * axis + (shape[axis],) + (1,) * (len(shape) - axis - 1)).expand(shape)
        for axis, x in enumerate(vectors)
    ]
    if swapped:
        grids[:2] = grids[1::-1]
    return tuple(grids)


# ---- blocks and choices ----
def block_diag(cls: type[T], *tensors: Any) -> T:
    """Returns a matrix with `tensors` along its diagonal, and zeros elsewhere.

    Args:
      tensors: matrices; a vector is a row, a number a 1 x 1 matrix

    Raises:
      ShapeError: a tensor has more than two axes.

    >>> Tensor.block_diag(Tensor([[1, 2]]), Tensor(3)).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    blocks = [cls.atleast_2d(x) for x in _listed(cls, "block_diag", tensors)] or [cls([[]])]
    for x in blocks:
        if x.ndim > 2:
            raise ShapeError(f"block_diag: needs at most two axes, got shape {x.shape}.")
    dtype, left = common_dtype([x.read() for x in blocks]), 0
    total = sum(known("block_diag", x.shape, 1) for x in blocks)
    rows = []
    for x in blocks:
        op, after = cast(x.read(), dtype), left + x.shape[1]
        rows.append(cls.from_op(padded_op(op, ((0, 0), (left, total - after))), x.cell.device))
        left = after
    return cls.cat(rows, 0)


def cartesian_prod(cls: type[T], *tensors: Any) -> T:
    """Returns all combinations of one element of each vector as rows; the last element changes fastest.

    Args:
      tensors: vectors; a single vector is returned unchanged

    >>> Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    listed = _listed(cls, "cartesian_prod", tensors)
    grids = cls.meshgrid(*listed)
    return grids[0] if len(grids) == 1 else cls.stack([x.reshape(-1) for x in grids], 1)


def combinations(self: T, r: int = 2, with_replacement: bool = False) -> T:
    """Returns all combinations of `r` elements of a vector as rows, in order.

    Args:
      r:                 number of elements per combination
      with_replacement:  allow repeated elements

    Raises:
      ShapeError:       it is not a vector.
      ArgumentError:    r is negative.
      OutOfMemoryError: there are too many combinations.

    >>> Tensor([1, 2, 3]).combinations().tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    if self.ndim != 1:
        raise ShapeError(f"combinations: needs a vector, got shape {self.shape}.")
    r = at_least("combinations", "r", r, 0)
    length = known("combinations", self.shape, 0)
    if not r:
        return cut(self.clone(), 0, 0, 0)
    places = type(self)(_choices(length, r, with_replacement), dtype=int64, device=self.device).read()
    rows = reshape(gather(self.read(), reshape(places, (numel(places.shape),)), 0, 0), places.shape)
    return self.from_op(rows, self.cell.device)


def _choices(length: int, r: int, with_replacement: bool) -> np.ndarray[Any, Any]:
    """Returns (combinations, r): indices below `length` of each combination, computed in interruptible pieces.

    Raises:
      OutOfMemoryError: there are too many.
    """
    count = math.comb(length + r - 1, r) if with_replacement and length else math.comb(length, r)
    try:
        chosen = np.empty((count, r), np.int64)
    except (MemoryError, ValueError):
        raise out_of_memory("combinations", 8 * count * r) from None
    rows = (itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(length), r)
    for start in range(0, count, CHOSEN_AT_ONCE):
        piece = chosen[start : start + CHOSEN_AT_ONCE]
        piece[:] = [*itertools.islice(rows, len(piece))]
    return chosen


def _in_three_axes(x: Any) -> Any:
    if x.ndim > 2:
        return x
    return x.reshape(*x.shape, 1) if x.ndim == 2 else x.reshape(1, -1, 1)
