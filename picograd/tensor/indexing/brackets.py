"""Indexing: x[...] as views and gathers, x[...] = v as writes, and selection by index tensors.

In:    tensors; ints, slices, None, ..., integer arrays, bool masks
Out:   `Brackets`
Next:  picograd/tensor/indexing/chosen.py

Ints, slices, None and ... give views. Integer arrays give GATHER. A bool mask has a shape that only its values
decide, so it is computed at once; in a trace all elements are (tensor/indexing/chosen.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import compare, iota, permute, reshape, shrink, where
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import bounds, subtract
from picograd.record import replace
from picograd.tensor.build import axis_of, broadcast_to, cast
from picograd.tensor.core import T, TensorCore
from picograd.tensor.exchange.host import fitting
from picograd.tensor.indexing.chosen import Chosen, in_a_trace, is_mask, mask_over
from picograd.tensor.indexing.subscript import Subscript, common_shape, parse
from picograd.tensor.meeting import brought_to, storing_device, value_at

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- x[...] ----
def __getitem__(self: T, index: Any) -> T:
    """Returns a view for ints, slices, None and ...; a new tensor for integer arrays and bool masks.

    Raises:
      IndexingError: an index is outside its axis, or there are too many.
      DTypeError:    an index is of another kind.

    >>> Tensor.arange(6).reshape(2, 3)[:, ::-1][0].tolist()
    [2, 1, 0]
    """
    if is_mask(index) and in_a_trace():
        return Chosen.of(self, index)  # type: ignore[return-value]  # for arithmetic alone
    subscript = parse(index, self.op.shape, lambda mask: mask._host("index"))
    view = self.viewed_by(subscript.steps)
    if not subscript.arrays:
        return view
    subscript, device = _beside(self, "index", subscript)
    index_op, axis, order = _selection(self, subscript, view.op.shape)
    merged = _merge(view.read(), subscript.places, order)
    return self.from_op(gather_op(merged, index_op, axis), device)


def __setitem__(self: T, index: Any, value: Any) -> None:
    """Stores `value`, broadcast, in the places that x[index] shows.

    What a view shows takes a value from any device; where arrays or masks choose the places, one of no axes.

    Raises:
      ShapeError:    the value does not broadcast to x[index].
      GradientError: self is (a view of) a leaf that requires grad, outside no_grad.
    """
    if isinstance(index, TensorCore) and index.dtype.kind == "b" and _is_single(value):
        return _fill_mask(self, index, value)
    if isinstance(value, Chosen) and value.is_of(index):
        return _fill_mask(self, index, value.whole)
    subscript = parse(index, self.op.shape, lambda mask: mask._host("index"))
    view = self.viewed_by(subscript.steps)
    if not subscript.arrays:
        same = isinstance(value, TensorCore) and value.cell is self.cell and value.steps == view.steps
        if same and not view.op.needs_grad:
            return None  # x[index] += y has written it
        view.write("x[...] = value", _stored(self, value, view.op.shape, from_anywhere=True))
        return None
    shape = _selected_shape(self, subscript, view.op.shape)
    op = _combined(view, "index", subscript, _stored(self, value, shape), None)
    view.write("x[...] = value", op)
    return None


def _combined(self: T, function: str, subscript: Subscript, updates: Op, code: OpCode | None) -> Op:
    """Returns this value with `updates` stored, or combined in by `code`, where the arrays of a subscript say."""
    before = self.read()
    subscript, self.cell.device = _beside(self, function, subscript)
    index_op, axis, order = _selection(self, subscript, before.shape, function)
    merged = _merge(before, subscript.places, order)
    scattered = Op(OpCode.SCATTER, merged.dtype, (merged, index_op, updates), (code, axis, 0))
    return _unmerge(scattered, before.shape, order)


def _selected_shape(self: T, subscript: Subscript, shape: Shape) -> Shape:
    """Returns the shape of what the arrays of a subscript select from a view of `shape`."""
    others = tuple(dim for axis, dim in enumerate(shape) if axis not in subscript.places)
    at = _front(subscript)
    return (*others[:at], *common_shape(subscript.arrays), *others[at:])


def _fill_mask(self: T, mask: TensorCore, value: Any) -> None:
    """Stores one number, or values for all places, where the mask, over the leading axes, holds."""
    op, device = self.read(), brought_to("x[mask] = value", self, mask)
    over_all = mask_over("x[mask] = value", mask, op, device)
    self.cell.device = device
    self.write("x[mask] = value", where(over_all, _stored(self, value, op.shape), op))


def _stored(self: T, value: Any, shape: Shape, from_anywhere: bool = False) -> Op:
    """Returns a value to be written, as this dtype and repeated to `shape`; where it may come from_anywhere, moved."""
    if isinstance(value, TensorCore):
        if not (from_anywhere and self.cell.device):
            self.cell.device = storing_device("x[...] = value", self, value)
        op = cast(value_at(value, self.cell.device), self.dtype)
    elif isinstance(value, (bool, int, float)):
        return filled(fitting("x[...] = value", value, self.dtype), self.dtype, shape)
    else:
        op = type(self)(value, self.dtype, self.device).op
    while len(op.shape) > len(shape) and op.shape[0] == 1:
        op = reshape(op, op.shape[1:])
    if len(op.shape) > len(shape) or any(a not in (1, b) for a, b in zip(op.shape[::-1], shape[::-1])):
        raise ShapeError(f"x[...] = value: a value of shape {op.shape} does not broadcast to {shape}.")
    return broadcast_to(op, shape)


def _beside(self: T, function: str, subscript: Subscript) -> tuple[Subscript, str | None]:
    """Returns a subscript with its arrays where this tensor is, and the device of what it selects."""
    given = subscript.arrays
    tensors = [a for a in given if isinstance(a, TensorCore)]
    device = brought_to(function, self, *tensors)
    if all(a.cell.device is device for a in tensors):
        return subscript, device
    moved = (type(self).from_op(value_at(a, device), device) if isinstance(a, TensorCore) else a for a in given)
    return replace(subscript, arrays=tuple(moved)), device


def _selection(self: T, subscript: Subscript, shape: Shape, function: str = "index") -> tuple[Op, int, tuple[int, ...]]:
    """Returns (index, axis, order): GATHER by index along axis, once the axes in `order` are made adjacent.

    Several arrays become one index into the merged axes.
    """
    places = subscript.places
    axis = _front(subscript)
    others = [a for a in range(len(shape)) if a not in places]
    order = (*others[:axis], *places, *others[axis:])
    common = common_shape(subscript.arrays)
    index: Op | None = None
    for array, place in zip(subscript.arrays, places):
        part = broadcast_to(index_op(self, function, array, shape, place), common)
        index = part if index is None else index * _repeated(shape[place], common) + part
    assert index is not None
    return index, axis, order


def index_op(self: T, function: str, array: TensorCore | np.ndarray[Any, Any], shape: Shape, axis: int) -> Op:
    """Returns an index array as int64, negative ones counted from the end."""
    dim = shape[axis]
    op = array.read() if isinstance(array, TensorCore) else type(self)(array, dtypes.int64, self.device).op
    if not isinstance(array, TensorCore) and isinstance(dim, int):
        return op
    if op.dtype.kind == "u":
        return along_axis(function, cast(op, dtypes.int64), shape, axis)
    op = cast(op, dtypes.int64)
    wrapped = where(compare(OpCode.CMPLT, op, 0), op + _repeated(dim, op.shape), op)
    return along_axis(function, wrapped, shape, axis, from_end=True)


def index_put(self: T, indices: Sequence[Any], values: Any, accumulate: bool = False) -> T:
    """Returns a copy with `values`, broadcast, in the places that x[indices] shows.

    Args:
      indices:     a tuple of integer tensors, bool masks and Nones, which stand for whole axes
      values:      a tensor of this dtype
      accumulate:  add to what is there; where a place is named several times, each time

    Raises:
      ShapeError:    the values do not broadcast to x[indices].
      DTypeError:    the values are of another dtype.
      ArgumentError: there is no index.

    >>> Tensor([1, 2, 3]).index_put((Tensor([0, 0]),), Tensor([10, 20]), accumulate=True)
    Tensor([31,  2,  3])
    """
    copy = self.from_op(self.read(), self.cell.device)
    return self.from_op(_put_at(copy, "index_put", indices, values, accumulate), copy.cell.device)


def index_put_(self: T, indices: Sequence[Any], values: Any, accumulate: bool = False) -> T:
    """Stores `values`, broadcast, in the places that x[indices] shows, or adds them if `accumulate`.

    >>> Tensor([1, 2, 3]).index_put_((Tensor([0, 2]),), Tensor([8, 9]))
    Tensor([8, 2, 9])
    """
    return self.write("index_put_", _put_at(self, "index_put_", indices, values, accumulate))


def _put_at(self: T, function: str, indices: Sequence[Any], values: Any, accumulate: bool) -> Op:
    index = tuple(slice(None) if part is None else part for part in indices)
    subscript = parse(index, self.op.shape, lambda mask: mask._host(function))
    if subscript.steps or not subscript.arrays:
        raise ArgumentError(f"{function}: needs integer tensors, bool masks and Nones, got {indices!r}.")
    needs_dtype(self, function, "values", values)
    shape = _selected_shape(self, subscript, self.op.shape)
    return _combined(self, function, subscript, _stored(self, values, shape), OpCode.ADD if accumulate else None)


def needs_dtype(self: T, function: str, name: str, source: Any) -> None:
    """Raises DTypeError unless `source` is a tensor of this dtype."""
    if not isinstance(source, TensorCore) or source.dtype is not self.dtype:
        shown = f"{source.dtype} of shape {source.shape}" if isinstance(source, TensorCore) else repr(source)
        raise DTypeError(
            f"{function}: {name} must be a tensor of {self.dtype}, the dtype of x; got {shown}.",
            hint=f"{name}.cast(dtypes.{self.dtype})",
        )


# ---- selection by tensors ----
def gather(self: T, dim: int, index: Tensor) -> T:
    """Returns self[..., index, ...]: each element taken from the place along `dim` that `index` says.

    out[i][j] = self[index[i][j]][j] for dim=0; `index` is no longer than self along the other axes. Without elements it
    may have any shape; a tensor of no axes counts as one of one element.

    Raises:
      ShapeError: the ranks differ, or index is too long along another axis.
      DTypeError: index is no integer tensor.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

    >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]]))
    Tensor([[2],
            [3]])
    """
    op, positions = self.read(), integer_index("gather", index)
    axis = axis_of("gather", op.shape, dim)
    if 0 in positions.shape:
        return self.from_op(filled(0, op.dtype, positions.shape), self.other_device("gather", index))
    op, places = reshape(op, op.shape or (1,)), reshape(positions, positions.shape or (1,))
    if len(places.shape) != len(op.shape) or any(
        bounds(subtract(n, m))[1] > 0 for a, (n, m) in enumerate(zip(places.shape, op.shape)) if a != axis
    ):
        raise ShapeError(f"gather: index of shape {index.shape} does not fit {self.shape} along dim {dim}.")
    block = tuple((0, m if a == axis else n) for a, (m, n) in enumerate(zip(op.shape, places.shape)))
    taken = along(shrink(op, block), along_axis("gather", places, op.shape, axis), axis)
    return self.from_op(reshape(taken, positions.shape), self.other_device("gather", index))


def take(self: T, index: Tensor) -> T:
    """Returns the elements of the flattened tensor at `index`, in its shape; negative ones count from the end.

    Raises:
      DTypeError: index is no integer tensor.

    >>> Tensor([[1, 2], [3, 4]]).take(Tensor([[0, -1]]))
    Tensor([[1, 4]])
    """
    integer_index("take", index)
    op = reshape(self.read(), (numel(self.op.shape),))
    places = index_op(self, "take", index, op.shape, 0)
    return self.from_op(gather_op(op, places, 0), self.other_device("take", index))


def take_along_dim(self: T, indices: Tensor, dim: int | None = None) -> T:
    """Returns the elements at `indices` along one axis, the other axes broadcast; negative ones from the end.

    Raises:
      ShapeError: indices has another number of axes, or does not broadcast.

    >>> Tensor([[1, 2], [3, 4]]).take_along_dim(Tensor([[-1], [0]]), 1)
    Tensor([[2],
            [3]])
    """
    if dim is None:
        return self.flatten().take_along_dim(type(self).from_op(indices.read(), indices.cell.device).flatten(), 0)
    op = self.read()
    axis = axis_of("take_along_dim", op.shape, dim)
    positions = index_op(self, "take_along_dim", indices, op.shape, axis)
    if len(positions.shape) != len(op.shape):
        raise ShapeError(f"take_along_dim: indices {indices.shape} and {self.shape} must have as many axes.")
    pairs = [(m, n) if a != axis else (1, 1) for a, (m, n) in enumerate(zip(op.shape, positions.shape))]
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise ShapeError(f"take_along_dim: indices {indices.shape} do not broadcast to {self.shape}.")
    common = [m if n == 1 else n for m, n in pairs]
    whole = tuple(op.shape[a] if a == axis else n for a, n in enumerate(common))
    wanted = tuple(positions.shape[a] if a == axis else n for a, n in enumerate(common))
    taken = along(broadcast_to(op, whole), broadcast_to(positions, wanted), axis)
    return self.from_op(taken, self.other_device("take_along_dim", indices))


def index_select(self: T, dim: int, index: Tensor) -> T:
    """Returns the slices along one axis that `index`, a 1-d integer tensor, names.

    Raises:
      ShapeError: index has several axes, or not one element for a tensor of no axes.
      DTypeError: index is no integer tensor.

    >>> Tensor([[1, 2], [3, 4]]).index_select(0, Tensor([1, 1]))
    Tensor([[3, 4],
            [3, 4]])
    """
    positions = integer_index("index_select", index)
    if len(positions.shape) > 1:
        raise ShapeError(f"index_select: index must have one axis, got {index.shape}.")
    op = self.read()
    line = reshape(positions, (positions.shape or (1,)))
    axis = axis_of("index_select", op.shape, dim)
    if not op.shape:
        if line.shape != (1,):
            raise ShapeError(f"index_select: a tensor of no axes has one element, index has shape {index.shape}.")
        taken = gather_op(reshape(op, (1,)), along_axis("index_select", line, (1,), 0), 0)
        return self.from_op(reshape(taken, ()), self.other_device("index_select", index))
    taken = gather_op(op, along_axis("index_select", line, op.shape, axis), axis)
    return self.from_op(taken, self.other_device("index_select", index))


def _front(subscript: Subscript) -> int:
    """Returns how many axes stand before what the arrays select: none, if a slice separates the arrays.

    An array of no axes is an int to PyTorch: its axis is gone before it is asked where the other arrays stand.
    """
    places = subscript.places
    lines = [place for place, array in zip(places, subscript.arrays) if array.ndim] or places[:1]
    between = [axis for axis in range(lines[0], lines[-1]) if axis not in places]
    return 0 if between else lines[0] - sum(place < lines[0] for place in places)


# ---- on Ops ----
def along_axis(function: str, index: Op, shape: Shape, axis: int, from_end: bool = False) -> Op:
    """Returns an index as int64, which ends a run with an IndexingError where it is outside the axis.

    Args:
      from_end: the user's negative ones were counted from the end before
    """
    if not shape:
        return cast(index, dtypes.int64)
    return checked(index, shape[axis], _site(function, shape, axis, from_end))


@lru_cache(maxsize=256)
def _site(function: str, shape: Shape, axis: int, from_end: bool) -> Site:
    """Returns what is said of an index outside an axis."""
    dim = shape[axis]
    fact = f"{function}: {{}} is out of range for axis {axis} of length {_shown(dim)} in shape {_shown(shape)}."
    least = f"-{dim}" if from_end else "0"
    hint = f"indices are {least} to {dim - 1}" if isinstance(dim, int) and dim else None
    if hint and not from_end:
        hint += f"; negative ones do not count from the end in {function}"
    return Site(fact, hint and hint + ".", from_end)


def _repeated(dim: Dim, shape: Shape) -> Any:
    return broadcast_to(dim, shape) if isinstance(dim, Op) else dim


def _shown(value: Any) -> str:
    """Returns a length or a shape, symbolic integers by name: their values are no part of what is computed."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    return str(value.src[0].arg[0]) if isinstance(value, Op) and value.code is OpCode.BIND else str(value)


def gather_op(op: Op, index: Op, axis: int) -> Op:
    """Returns the slices of `op` along `axis` that `index` names, in the shape of index."""
    return Op(OpCode.GATHER, op.dtype, (op, index), (axis, 0))


def same_as_iota(op: Op, shape: Shape) -> Op:
    """Returns, over shape = (*op.shape, n), whether op equals the position along the last axis."""
    line = cast(iota(shape[-1]), op.dtype)
    return compare(OpCode.CMPEQ, broadcast_to(reshape(op, (*op.shape, 1)), shape), broadcast_to(line, shape))


def along(op: Op, index: Op, axis: int) -> Op:
    """Returns op[..., index, ...] where both have the same other axes: GATHER with all of those as batch."""
    rank = len(op.shape)
    last = (*(a for a in range(rank) if a != axis), axis)
    taken = Op(OpCode.GATHER, op.dtype, (permute(op, last), permute(index, last)), (rank - 1, rank - 1))
    return permute(taken, tuple(last.index(a) for a in range(rank)))


def _merge(op: Op, places: tuple[int, ...], order: tuple[int, ...]) -> Op:
    """Returns `op` with the axes at `places` made one: in place if they are adjacent, else in front."""
    if len(places) == 1:
        return op
    moved = permute(op, order)
    first = order.index(places[0])
    merged = numel(moved.shape[first : first + len(places)])
    return reshape(moved, (*moved.shape[:first], merged, *moved.shape[first + len(places) :]))


def _unmerge(op: Op, shape: Shape, order: tuple[int, ...]) -> Op:
    """Undoes `_merge`."""
    moved = reshape(op, tuple(shape[axis] for axis in order))
    return permute(moved, tuple(order.index(axis) for axis in range(len(order))))


def _is_single(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, TensorCore) and value.numel() == 1)


def integer_index(function: str, index: TensorCore) -> Op:
    if not isinstance(index, TensorCore):
        raise DTypeError(f"{function}: the index must be an integer tensor, got {index!r}.")
    if not index.dtype.is_int:
        raise DTypeError(f"{function}: the index must be an integer tensor, got {index.dtype} of shape {index.shape}.")
    return index.read()
