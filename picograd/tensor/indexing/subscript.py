"""What stands between the brackets of x[...], taken apart before anything is built.

In:    an index as users write it, and the shape it applies to
Out:   `Subscript`: view steps for ints, slices, None and ...; integer arrays and the axes they select from
Next:  picograd/tensor/variable.py
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.errors import DTypeError, IndexingError, ShapeError
from picograd.ir.op import Dim, Op, Shape, greatest, length_name, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import bounds, subtract, with_values
from picograd.record import Record
from picograd.tensor.blocks import Step
from picograd.tensor.cell import trace
from picograd.tensor.core import TensorCore
from picograd.tensor.exchange.host import Array
from picograd.tensor.variable import Length, Variable

Place = int | Length
ENDS = (int, type(None), TensorCore)  # of a slice


class NewAxis(Record):
    """A mask of no axes: the places, [0] or [], that it takes of a new axis of length 1."""

    places: Array


class Subscript(Record):
    """An index taken apart.

    steps:   view steps for all that is not an array
    arrays:  integer arrays (tensors, or host arrays: along an axis of known length checked and not negative)
    places:  for each array the axis of the view it selects from
    """

    steps: tuple[Step, ...]
    arrays: tuple[TensorCore | Array, ...]
    places: tuple[int, ...]


def parse(index: Any, shape: Shape, host_value: Callable[[TensorCore], Array]) -> Subscript:
    """Returns `index` taken apart for a tensor of `shape`; masks are read on the host.

    Raises:
      IndexingError: an index is outside its axis, or there are more indices than axes.
      DTypeError:    an index is no int, slice, None, ..., integer array or bool mask.
    """
    block = _leading_block(index, shape)
    if block is not None:
        return Subscript(block, (), ())
    items = _without_ellipsis(_without_masks(index, shape, host_value), shape)
    steps, places = _view_steps(items, shape)
    arrays: list[TensorCore | Array] = []
    axis = 0
    for item in items:
        if isinstance(item, TensorCore):
            arrays.append(item)
        elif isinstance(item, NewAxis):
            arrays.append(item.places)
        elif isinstance(item, np.ndarray):
            dim = shape[axis]
            arrays.append(_checked(item, dim, axis, shape) if isinstance(dim, int) else item)
        axis += item is not None and not isinstance(item, NewAxis)
    return Subscript(steps, tuple(arrays), places)


def _leading_block(index: Any, shape: Shape) -> tuple[Step, ...] | None:
    """Returns the view steps of x[i] and of x[i:j], the commonest; None for all else, which is looked at part by part."""
    if not shape or shape[0].__class__ is not int:
        return None
    dim: Any = shape[0]
    final: tuple[Step, ...] = ()
    if index.__class__ is int:
        start = index if index >= 0 else dim + index
        if not 0 <= start < dim:
            return None
        stop, final = start + 1, ((OpCode.RESHAPE, shape[1:]),)
    elif index.__class__ is slice and index.step is None and isinstance(index.start, ENDS) and isinstance(index.stop, ENDS):
        start, stop, _ = _slice_indices(index, dim)
        if start >= stop:
            return None
    else:
        return None
    if (start, stop) == (0, dim):
        return final
    return ((OpCode.SHRINK, ((start, stop), *[(0, n) for n in shape[1:]])), *final)


def one_place(axis: int, index: Place, shape: Shape) -> tuple[Step, ...]:
    """Returns the view steps for one index along one axis, which disappears.

    Raises:
      IndexingError: it is outside the axis.
    """
    items = [index if a == axis else slice(None) for a in range(len(shape))]
    return _view_steps(items, shape)[0]


def _without_masks(index: Any, shape: Shape, host_value: Callable[[TensorCore], Array]) -> list[Any]:
    """Returns the index as a list: lists as arrays, each mask of k axes as the k arrays of its true places."""
    if isinstance(index, list) and any(isinstance(part, (list, tuple)) for part in index):
        fact = "index: a list of lists is an index for each axis to PyTorch, and one index of two axes to NumPy."
        raise IndexingError(fact, hint="x[pg.tensor(rows)] for one index, x[tuple(rows)] for one for each axis")
    given = [_as_item(item) for item in (index if isinstance(index, tuple) else (index,))]
    dots = max(0, len(shape) - sum(map(_num_axes, given)))
    items: list[Any] = []
    axis = 0
    for item in given:
        is_mask = isinstance(item, TensorCore) and item.dtype.kind == "b"
        if is_mask or (isinstance(item, np.ndarray) and item.dtype.kind == "b"):
            mask = host_value(item) if is_mask else item
            covered = shape[axis : axis + mask.ndim]
            if mask.shape != covered:
                raise IndexingError(f"index: a mask of shape {mask.shape} does not fit the axes {covered} of {shape}.")
            items.extend(np.nonzero(mask) if mask.ndim else [NewAxis(np.arange(int(mask)))])
            axis += mask.ndim
        else:
            _check_kind(item)
            items.append(item)
            axis += dots if item is Ellipsis else _num_axes(item)
    return items


def _as_item(item: Any) -> Any:
    """Returns lists and bools as arrays, NumPy's numbers as Python's."""
    if isinstance(item, (list, range)):
        return np.asarray(item, dtype=None if len(item) else np.int64)
    if isinstance(item, np.generic):
        item = item.item()
    return np.array(item) if isinstance(item, bool) else item


def _num_axes(item: Any) -> int:
    """Returns how many axes one part of an index takes."""
    if isinstance(item, (TensorCore, np.ndarray)) and item.dtype.kind == "b":
        return item.ndim
    return int(item is not None and item is not Ellipsis)


def _check_kind(item: Any) -> None:
    kind = item.dtype.kind if isinstance(item, (TensorCore, np.ndarray)) else ""
    if kind and str(item.dtype).endswith("uint8"):
        fact = "index: uint8 is a mask to PyTorch and positions to NumPy."
        raise DTypeError(fact, hint="x[mask.bool()], or x[index.long()]")
    allowed = item is None or item is Ellipsis or isinstance(item, slice | Length) or kind in tuple("iu")
    if not allowed and (isinstance(item, bool) or not hasattr(item, "__index__") or kind):
        shown = f"{type(item).__name__} of dtype {item.dtype}" if kind else repr(item)
        raise DTypeError(f"index: needs ints, slices, None, ..., integer arrays or bool masks, got {shown}.")


def _without_ellipsis(items: list[Any], shape: Shape) -> list[Any]:
    """Returns one item for each axis, and the Nones."""
    used = sum(item is not None and item is not Ellipsis and not isinstance(item, NewAxis) for item in items)
    if used > len(shape):
        raise IndexingError(f"index: {used} indices are too many for shape {shape}.")
    rest: list[Any] = [slice(None)] * (len(shape) - used)
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("index: only one ... can stand in an index.")
    place = dots[0] if dots else len(items)
    return items[:place] + rest + items[place + len(dots) :]


def _view_steps(items: list[Any], shape: Shape) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Returns the steps for ints, slices and Nones, and the axes left for the arrays."""
    flips: list[int] = []
    cuts: list[tuple[Dim, Dim]] = []
    margins: list[tuple[int, int]] = []
    strides: list[tuple[Dim, int]] = []  # (how many, step) of each axis
    final: list[Dim] = []
    places: list[int] = []
    axis = 0
    for item in items:
        if item is None or isinstance(item, NewAxis):
            places += [len(final)] * (item is not None)
            final.append(1)
            continue
        dim = shape[axis]
        cut: tuple[Dim, Dim] = (0, dim)
        count, step, margin = dim, 1, 0
        if isinstance(item, slice):
            symbolic = isinstance(item.start, Length) or isinstance(item.stop, Length) or isinstance(dim, Op)
            if symbolic and item != slice(None):
                cut, count = _bound(item, dim, axis, shape)
            elif item != slice(None):
                assert isinstance(dim, int)
                flipped, cut, count, step, margin = _slice(item, dim)
                flips += [axis] * flipped
            final.append(count)
        elif isinstance(item, (TensorCore, np.ndarray)):
            places.append(len(final))
            final.append(dim)
        elif isinstance(item, Length):
            cut, count = _bound(slice(item, item + 1), dim, axis, shape)
        elif isinstance(dim, Op):
            place = _place(item, 0, dim)
            cut, count = _bound(slice(place, place + 1), dim, axis, shape)
        else:
            start = _wrapped(operator.index(item), dim, axis, shape)
            cut, count = (start, start + 1), 1
        cuts.append(cut)
        margins.append((0, margin))
        strides.append((count, step))
        axis += 1
    return _as_steps(shape, flips, cuts, margins, strides, tuple(final)), tuple(places)


def _bound(item: slice, dim: Dim, axis: int, shape: Shape) -> tuple[tuple[Dim, Dim], Dim]:
    """Returns (block to cut, elements) of `x[:n]`, `x[n:]`, `x[n : n + 2]` where an end or the axis is symbolic."""
    if item.step not in (None, 1):
        raise IndexingError(
            f"index: a slice to a symbolic length has step 1; got step {item.step} along axis {axis} of shape {shape}."
        )
    end = _end(dim)
    start, stop = (_place(end_of, default, dim) for end_of, default in ((item.start, 0), (item.stop, end)))
    said = f"of axis {axis} in shape {tuple(d if isinstance(d, int) else greatest(d) for d in shape)}"
    _needs_order(0, start, f"index: {start} is before the beginning {said}.")
    _needs_order(start, stop, f"index: {stop} is before {start}, where the slice {said} begins.")
    _needs_order(stop, end, f"index: {stop} is longer than an axis of length {end}.")
    first, last = (place.op if isinstance(place, Length) else place for place in (start, stop))
    return (first, last), subtract(last, first)


def _place(given: Any, default: Place, dim: Dim) -> Place:
    """Returns one end of a slice, an int counted from the front."""
    if given is None:
        return default
    if isinstance(given, Length):
        return given
    place = operator.index(given)
    return place if place >= 0 else _end(dim) + place


def _end(dim: Dim) -> Place:
    """Returns the length of an axis as a place in it."""
    return Length(dim, _now(dim), length_name(dim)) if isinstance(dim, Op) else dim


def _needs_order(a: Place, b: Place, fact: str) -> None:
    """Raises IndexingError where a > b; in a trace, where some value of the symbolic integers would make it so."""
    first, last = (place.op if isinstance(place, Length) else place for place in (a, b))
    if bounds(subtract(last, first))[0] >= 0:
        return
    if trace.get() is not None:
        names = ", ".join(f"{p.name} is {p.bounds[0]} to {p.bounds[1]}" for p in (a, b) if isinstance(p, Length))
        raise IndexingError(fact[:-1] + f" for some values: {names}.", "give the Variable narrower bounds.")
    if (a.current if isinstance(a, Length) else a) > (b.current if isinstance(b, Length) else b):
        raise IndexingError(fact)


def _now(dim: Op) -> int:
    """Returns the value a symbolic length has now."""
    bindings = {op: int(op.src[1].arg) for op in toposort([dim]) if op.code is OpCode.BIND}
    value = with_values(dim, bindings)
    assert isinstance(value, int), f"{dim} has no value"
    return value


def _slice_indices(item: slice, dim: int) -> tuple[int, int, int]:
    try:
        return item.indices(dim)
    except (TypeError, ValueError):
        parts = (item.start, item.stop, item.step)
        hint = "n.bind(3) gives it a value." if any(isinstance(part, Variable) for part in parts) else None
        raise IndexingError(f"index: {item} needs ints, and a step that is not 0.", hint) from None


def _slice(item: slice, dim: int) -> tuple[bool, tuple[Dim, Dim], int, int, int]:
    """Returns (flip first?, block to cut, elements, step within the block, elements missing at its end)."""
    start, stop, step = _slice_indices(item, dim)
    count = len(range(start, stop, step))
    flipped = step < 0
    if flipped:
        start, step = dim - 1 - start, -step
    if count <= 1:
        return flipped and count == 1, (start, start + 1) if count else (0, 0), count, 1, 0
    end = start + count * step
    return flipped, (start, min(end, dim)), count, step, max(0, end - dim)


def _as_steps(
    shape: Shape,
    flips: list[int],
    cuts: list[tuple[Dim, Dim]],
    margins: list[tuple[int, int]],
    strides: list[tuple[Dim, int]],
    final: Shape,
) -> tuple[Step, ...]:
    """Returns the view steps: reversed, cut, thinned out (by a shape with the stride as an axis), final shape."""
    steps: list[Step] = []
    if flips:
        steps.append((OpCode.FLIP, tuple(flips)))
    if any(cut != (0, dim) for cut, dim in zip(cuts, shape)):
        steps.append((OpCode.SHRINK, tuple(cuts)))
    if any(step > 1 for _, step in strides):
        if any(after for _, after in margins):
            steps.append((OpCode.PAD, tuple(margins)))
        steps.append((OpCode.RESHAPE, tuple(n for pair in strides for n in pair)))
        steps.append((OpCode.SHRINK, tuple(cut for count, _ in strides for cut in ((0, count), (0, 1)))))
        steps.append((OpCode.RESHAPE, final))
    elif final != tuple(count for count, _ in strides):
        steps.append((OpCode.RESHAPE, final))
    return tuple(steps)


def _wrapped(index: int, dim: int, axis: int, shape: Shape) -> int:
    if not -dim <= index < dim:
        raise _outside(index, dim, axis, shape)
    return index % dim


def _outside(index: int, dim: int, axis: int, shape: Shape) -> IndexingError:
    fact = f"index: {index} is out of range for axis {axis} of length {dim} in shape {shape}."
    return IndexingError(fact, f"indices are -{dim} to {dim - 1}." if dim else None)


def _checked(array: Array, dim: int, axis: int, shape: Shape) -> Array:
    """Returns host indices counted from the front."""
    wrong = array[(array < -dim) | (array >= dim)]
    if wrong.size:
        raise _outside(int(wrong[0]), dim, axis, shape)
    return np.where(array < 0, array + dim, array).astype(np.int64)


def common_shape(arrays: tuple[TensorCore | Array, ...]) -> Shape:
    """Returns the shape index arrays repeat to.

    Raises:
      ShapeError: they do not broadcast.
    """
    shapes = [array.shape for array in arrays]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        shown = ", ".join(str(shape) for shape in shapes)
        raise ShapeError(f"index: index arrays of shapes {shown} do not broadcast.") from None
