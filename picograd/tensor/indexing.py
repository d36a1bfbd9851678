"""Indexing: x[...] as views and gathers, x[...] = v as writes, and selection by index tensors.

x[mask] *= 2 reads x[mask], multiplies, and stores under the same mask. In a trace, elements outside the mask are 1
meanwhile, where no arithmetic and no derivative of it is infinite.

Ints, slices, None and ... give views. Integer arrays give GATHER. The values of a bool mask decide the shape, so the mask
is computed at once; in a trace all elements are kept instead (`Chosen`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from picograd.ir.build import cast, iota, less, permute, reshape, shrink, where
from picograd.ir.build import gather as gather_op
from picograd.ir.build import scatter as scatter_op
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op, Shape, filled, greatest, length_name, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import bounds, subtract, with_values
from picograd.record import Record, replace
from picograd.tensor.arguments import brought_to, storing_device, value_at
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, broadcasts, static
from picograd.tensor.cell import Step, trace
from picograd.tensor.core import T, TensorCore, chosen_on_host
from picograd.tensor.formulas import formula
from picograd.tensor.intake import Array, fitting
from picograd.tensor.variable import Length, Variable

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = ["gather", "index_put", "index_put_", "index_select", "take", "take_along_dim"]


# ---- elements that a mask chooses in a trace ----
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")


class Chosen:
    """The result of x[mask] in a trace.

    whole:   a tensor of the shape of x; its elements outside the mask do not count
    mask:    over its leading axes, and
    chosen:  the value of the mask when it was read
    """

    def __init__(self, whole: TensorCore, mask: TensorCore, chosen: Op):
        self.whole, self.mask, self.chosen = whole, mask, chosen

    @classmethod
    def of(cls, tensor: TensorCore, mask: TensorCore) -> Chosen:
        """Returns the elements of a tensor that a mask selects."""
        op, device = tensor.read(), brought_to("index", tensor, mask)
        over_all = mask_over("x[mask]", mask, op, device)
        return cls(type(tensor).from_op(where(over_all, op, 1), device), mask, mask.op)

    def is_of(self, mask: Any) -> bool:
        """Returns whether a mask of this value selected these."""
        return is_mask(mask) and mask.op is self.chosen

    def _with(self, call: Callable[[Any, Any], Any], other: Any) -> Chosen:
        """Applies arithmetic to the selected elements and another operand."""
        if isinstance(other, Chosen):
            if not other.is_of(self.mask):
                self._refuse()
            other = other.whole
        elif isinstance(other, TensorCore):
            num_others = self.whole.ndim - self.mask.ndim  # axes after those of the mask
            if other.ndim > num_others + 1 or other.ndim == num_others + 1 and other.shape[0] != 1:
                self._refuse()
        copy = type(self.whole).from_op(self.whole.read(), self.whole.cell.device)  # in-place arithmetic writes to it
        return Chosen(call(copy, other), self.mask, self.chosen)

    def __hash__(self) -> int:
        self._refuse()  # it is not an ordinary value, which a plan could return

    def __neg__(self) -> Chosen:
        return Chosen(-self.whole, self.mask, self.chosen)  # type: ignore[operator]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.mask._host("index")  # a trace refuses this
        raise AssertionError("chosen: used outside a trace")


def _method(name: str, is_reflected: bool = False) -> Callable[[Chosen, Any], Chosen]:
    call = getattr(operator, name)
    return lambda self, other: self._with((lambda a, b: call(b, a)) if is_reflected else call, other)


for _name in ARITHMETIC:
    setattr(Chosen, f"__{_name}__", _method(_name))
    setattr(Chosen, f"__r{_name}__", _method(_name, is_reflected=True))
    setattr(Chosen, f"__i{_name}__", _method(f"i{_name}"))


def mask_over(function: str, mask: TensorCore, op: Op, device: str | None) -> Op:
    """Returns a mask over the leading axes of a value, broadcast to all of its axes.

    Raises:
      ShapeError: the shapes of mask and value do not match.
    """
    if mask.op.shape != op.shape[: mask.ndim]:
        raise ShapeError(f"{function}: a mask of shape {mask.shape} does not fit {op.shape}.")
    return broadcast_to(reshape(value_at(mask, device), mask.op.shape + (1,) * (len(op.shape) - mask.ndim)), op.shape)


def is_mask(index: Any) -> bool:
    """Returns whether an index is a single mask with axes."""
    return isinstance(index, TensorCore) and index.dtype.kind == "b" and index.ndim > 0


# ---- brackets, taken apart ----
Position = int | Length
ENDS = (int, type(None), TensorCore)  # types of a slice's ends


class NewAxis(Record):
    """A mask of no axes: the positions, [0] or [], that it selects of a new axis of length 1."""

    places: Array


class Span(Record):
    """The elements of one axis in a view: every `step`-th of a block.

    begin, end:  bounds of the block, in the reversed axis if `is_flipped`
    count:       number of elements
    margin:      elements that the block lacks to count * step
    """

    begin: Dim
    end: Dim
    count: Dim
    step: int = 1
    margin: int = 0
    is_flipped: bool = False


class Subscript(Record):
    """A parsed index.

    steps:   view steps for everything except arrays
    arrays:  integer arrays: tensors, or checked nonnegative host arrays along an axis of known length
    places:  for each array the axis of the view that it selects from
    """

    steps: tuple[Step, ...]
    arrays: tuple[TensorCore | Array, ...]
    places: tuple[int, ...]


def parse(index: Any, shape: Shape, host_value: Callable[[TensorCore], Array]) -> Subscript:
    """Parses `index` for a tensor of `shape`; masks are read on the host.

    Raises:
      IndexingError: an index is outside its axis, or not an int, slice, None, ..., integer array or bool mask; or there are
                     more indices than axes.
    """
    block = _one_block(index, shape)
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


def _one_block(index: Any, shape: Shape) -> tuple[Step, ...] | None:
    """Returns view steps for ints and slices of step 1, the most common case; None for others, and for no elements."""
    items = index if index.__class__ is tuple else (index,)
    if len(items) > len(shape):
        return None
    block: list[tuple[Dim, Dim]] = []
    left: list[Dim] = []
    for item, dim in zip(items, shape):
        if dim.__class__ is not int:
            return None
        if item.__class__ is int:
            start = item if item >= 0 else dim + item
            stop = start + 1
        elif item.__class__ is slice and item.step is None and isinstance(item.start, ENDS) and isinstance(item.stop, ENDS):
            start, stop, _ = _slice_indices(item, dim)
            left.append(stop - start)
        else:
            return None
        if not 0 <= start < stop <= dim:
            return None
        block.append((start, stop))
    rest = shape[len(items) :]
    block += [(0, n) for n in rest]
    is_whole = all(start == 0 and stop == dim for (start, stop), dim in zip(block, shape))
    steps: tuple[Step, ...] = () if is_whole else ((OpCode.SHRINK, tuple(block)),)
    return steps if len(left) == len(items) else (*steps, (OpCode.RESHAPE, (*left, *rest)))


def _is_whole(item: Any) -> bool:
    return item.__class__ is slice and item.start is None and item.stop is None and item.step is None


def one_place(axis: int, index: Position, shape: Shape) -> tuple[Step, ...]:
    """Returns the view steps for one index along one axis, which is removed.

    Raises:
      IndexingError: the index is outside the axis.
    """
    items = [index if a == axis else slice(None) for a in range(len(shape))]
    return _view_steps(items, shape)[0]


def _without_masks(index: Any, shape: Shape, host_value: Callable[[TensorCore], Array]) -> list[Any]:
    """Returns the index as a list: lists become arrays, and a mask of k axes the k arrays of its true positions."""
    if isinstance(index, list) and any(isinstance(part, (list, tuple, range, np.ndarray, TensorCore)) for part in index):
        kind = "lists" if any(isinstance(part, (list, tuple, range)) for part in index) else "tensors"
        fact = f"index: a list of {kind} means one index per axis in PyTorch, and a single index array in NumPy."
        one = "pg.tensor(rows)" if kind == "lists" else "pg.stack(rows)"
        raise IndexingError(fact, hint=f"x[{one}] for a single index array, x[tuple(rows)] for one index per axis")
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
    """Converts lists and bools to arrays, and NumPy's numbers to Python's."""
    if isinstance(item, (list, tuple, range)):
        return np.asarray(item, dtype=None if len(item) else np.int64)
    if isinstance(item, np.generic):
        item = item.item()
    return np.array(item) if isinstance(item, bool) else item


def _num_axes(item: Any) -> int:
    """Returns the number of axes that one item of an index takes."""
    if isinstance(item, (TensorCore, np.ndarray)) and item.dtype.kind == "b":
        return item.ndim
    return int(item is not None and item is not Ellipsis)


def _check_kind(item: Any) -> None:
    kind = item.dtype.kind if isinstance(item, (TensorCore, np.ndarray)) else ""
    if kind and str(item.dtype).endswith("uint8"):
        fact = "index: uint8 means a mask in PyTorch and positions in NumPy."
        raise DTypeError(fact, hint="x[mask.bool()], or x[index.long()]")
    allowed = item is None or item is Ellipsis or isinstance(item, slice | Length) or kind in tuple("iu")
    if not allowed and (isinstance(item, bool) or not hasattr(item, "__index__") or kind):
        shown = f"{type(item).__name__} of dtype {item.dtype}" if kind else repr(item)
        raise IndexingError(f"index: needs ints, slices, None, ..., integer arrays or bool masks, got {shown}.")


def _without_ellipsis(items: list[Any], shape: Shape) -> list[Any]:
    """Returns one item per axis, and the Nones."""
    used = sum(item is not None and item is not Ellipsis and not isinstance(item, NewAxis) for item in items)
    if used > len(shape):
        raise IndexingError(f"index: {used} indices are too many for shape {shape}.")
    rest: list[Any] = [slice(None)] * (len(shape) - used)
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("index: an index can contain only one ... (ellipsis).")
    place = dots[0] if dots else len(items)
    return items[:place] + rest + items[place + len(dots) :]


def _view_steps(items: list[Any], shape: Shape) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Returns the steps for ints, slices and Nones, and the axes that are left for arrays."""
    spans: list[Span] = []
    final: list[Dim] = []
    places: list[int] = []
    for item in items:
        if isinstance(item, (TensorCore, np.ndarray, NewAxis)):
            places.append(len(final))
        if item is None or isinstance(item, NewAxis):
            final.append(1)
            continue
        spans.append(_span(item, len(spans), shape))
        if isinstance(item, (slice, TensorCore, np.ndarray)):
            final.append(spans[-1].count)
    return _as_steps(shape, spans, tuple(final)), tuple(places)


def _span(item: Any, axis: int, shape: Shape) -> Span:
    """Returns the elements of an axis that an item selects; for an array all of them."""
    dim = shape[axis]
    if isinstance(item, (TensorCore, np.ndarray)):
        return Span(0, dim, dim)
    if isinstance(item, slice):
        if _is_whole(item):
            return Span(0, dim, dim)
        if isinstance(item.start, Length) or isinstance(item.stop, Length) or isinstance(dim, Op):
            return _bound(item, axis, shape)
        return _strided(item, dim)
    if isinstance(item, Length):
        return _bound(slice(item, item + 1), axis, shape)
    if isinstance(dim, Op):
        place = _place(item, 0, dim)
        return _bound(slice(place, place + 1), axis, shape)
    if not -dim <= (place := operator.index(item)) < dim:
        raise _outside(place, dim, axis, shape)
    return Span(place % dim, place % dim + 1, 1)


def _bound(item: slice, axis: int, shape: Shape) -> Span:
    """Returns the elements of `x[:n]`, `x[n:]` or `x[n : n + 2]` with a symbolic end or length."""
    if item.step not in (None, 1):
        raise IndexingError(
            f"index: a slice to a symbolic length has step 1; got step {item.step} along axis {axis} of shape {shape}."
        )
    dim = shape[axis]
    end = _end(dim)
    start, stop = (_place(end_of, default, dim) for end_of, default in ((item.start, 0), (item.stop, end)))
    said = f"of axis {axis} in shape {tuple(d if isinstance(d, int) else greatest(d) for d in shape)}"
    _needs_order(0, start, f"index: {start} is before the start {said}.")
    _needs_order(start, stop, f"index: {stop} is before {start}, the start of the slice {said}.")
    _needs_order(stop, end, f"index: {stop} is longer than an axis of length {end}.")
    first, last = (place.op if isinstance(place, Length) else place for place in (start, stop))
    return Span(first, last, subtract(last, first))


def _place(given: Any, default: Position, dim: Dim) -> Position:
    """Returns one end of a slice, counted from the front."""
    if given is None:
        return default
    if isinstance(given, Length):
        return given
    place = operator.index(given)
    return place if place >= 0 else _end(dim) + place


def _end(dim: Dim) -> Position:
    """Returns the length of an axis as a position in it."""
    return Length(dim, _now(dim), length_name(dim)) if isinstance(dim, Op) else dim


def _needs_order(a: Position, b: Position, fact: str) -> None:
    """Raises IndexingError if a > b; in a trace, if that is so for some value of the symbolic integers."""
    first, last = (place.op if isinstance(place, Length) else place for place in (a, b))
    if bounds(subtract(last, first))[0] >= 0:
        return
    if trace.get() is not None:
        names = ", ".join(f"{p.name} is {p.bounds[0]} to {p.bounds[1]}" for p in (a, b) if isinstance(p, Length))
        raise IndexingError(fact[:-1] + f" for some values: {names}.", "give the Variable narrower bounds.")
    if (a.current if isinstance(a, Length) else a) > (b.current if isinstance(b, Length) else b):
        raise IndexingError(fact)


def _now(dim: Op) -> int:
    """Returns the present value of a symbolic length; ShapeError if there is none, as in trials for many lengths."""
    return static(with_values(dim, {op: int(op.src[1].arg) for op in toposort([dim]) if op.code is OpCode.BIND}))


def _slice_indices(item: slice, dim: int) -> tuple[int, int, int]:
    try:
        return item.indices(dim)
    except (TypeError, ValueError):
        parts = (item.start, item.stop, item.step)
        hint = "n.bind(3) gives it a value." if any(isinstance(part, Variable) for part in parts) else None
        raise IndexingError(f"index: {item} needs ints and a step other than 0.", hint) from None


def _strided(item: slice, dim: int) -> Span:
    """Returns the elements of a slice with numbers as ends."""
    start, stop, step = _slice_indices(item, dim)
    count = len(range(start, stop, step))
    is_flipped = step < 0
    if is_flipped:
        start, step = dim - 1 - start, -step
    if count == 0:
        return Span(0, 0, 0)
    if count == 1:
        return Span(start, start + 1, 1, is_flipped=is_flipped)
    end = start + count * step
    return Span(start, min(end, dim), count, step, max(0, end - dim), is_flipped)


def _as_steps(shape: Shape, spans: Sequence[Span], final: Shape) -> tuple[Step, ...]:
    """Returns the view steps: flip, cut, take every step-th element (the step is an axis of a reshape), final shape."""
    steps: list[Step] = []
    flips = tuple([axis for axis, span in enumerate(spans) if span.is_flipped])
    blocks = tuple([(span.begin, span.end) for span in spans])
    counts = tuple([span.count for span in spans])
    if flips:
        steps.append((OpCode.FLIP, flips))
    if blocks != tuple([(0, dim) for dim in shape]):
        steps.append((OpCode.SHRINK, blocks))
    thinned = [span for span in spans if span.step > 1]
    if thinned:
        if any(span.margin for span in thinned):
            steps.append((OpCode.PAD, tuple([(0, span.margin) for span in spans])))
        steps.append((OpCode.RESHAPE, tuple([n for span in spans for n in (span.count, span.step)])))
        steps.append((OpCode.SHRINK, tuple([cut for count in counts for cut in ((0, count), (0, 1))])))
    if thinned or final != counts:
        steps.append((OpCode.RESHAPE, final))
    return tuple(steps)


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
    """Returns the shape that index arrays broadcast to.

    Raises:
      ShapeError: they do not broadcast.
    """
    shapes = [array.shape for array in arrays]
    try:
        return broadcast_shapes("index", *shapes)
    except ShapeError:
        shown = ", ".join(str(shape) for shape in shapes)
        raise ShapeError(f"index: index arrays of shapes {shown} do not broadcast.") from None


# ---- x[...] ----
def __getitem__(self: T, index: Any) -> T:
    """Returns a view for ints, slices, None and ...; a new tensor for integer arrays and bool masks.

    Raises:
      IndexingError: an index is outside its axis, or there are too many.
      DTypeError:    an index has another dtype.

    >>> Tensor.arange(6).reshape(2, 3)[:, ::-1][0].tolist()
    [2, 1, 0]
    """
    if isinstance(index, TensorCore):
        kind = index.dtype.kind
        if kind == "i" and index.cell.device is self.cell.device and (op := self.read()).shape:  # the most common case
            return self.from_op(_rows(op, index.read()), self.cell.device)
        if kind == "b" and index.ndim and trace.get() is not None:  # a trace has no values
            return Chosen.of(self, index)  # type: ignore[return-value]  # for arithmetic alone
        if kind == "b" and index.ndim and (chosen := chosen_on_host(self, index)) is not None:
            return chosen
    subscript = parse(index, self.op.shape, lambda mask: mask._host("index"))
    view = self.viewed_by(subscript.steps)
    if not subscript.arrays:
        return view
    subscript, device = _beside(self, "index", subscript)
    if _names_each_row(subscript, view.op.shape):
        return self.from_op(_one_of_each_row(self, subscript, view.read()), device)
    index_op, axis, order = _selection(self, subscript, view.op.shape)
    merged = _merge(view.read(), subscript.places, order)
    return self.from_op(gather_op(merged, index_op, axis), device)


@formula
def _rows(op: Op, index: Op) -> Op:
    """Returns the rows with the indices in `index`."""
    return gather_op(op, positions("index", index, op.shape, 0), 0)


def __setitem__(self: T, index: Any, value: Any) -> None:
    """Stores `value`, broadcast, in the elements that x[index] selects.

    A view takes a value from any device; elements selected by arrays or masks take a 0-d value.

    Raises:
      ShapeError:    the value does not broadcast to x[index].
      GradientError: self is, or is a view of, a leaf that requires grad, outside no_grad.
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
            return None  # x[index] += y has already written it
        view.write("x[...] = value", _stored(self, value, view.op.shape, from_anywhere=True))
        return None
    shape = _selected_shape(self, subscript, view.op.shape)
    view.write("x[...] = value", _combined(view, "index", subscript, _stored(self, value, shape), None))
    return None


def _combined(self: T, function: str, subscript: Subscript, updates: Op, code: OpCode | None) -> Op:
    """Returns this value with `updates` stored, or combined by `code`, in the elements that a subscript's arrays select."""
    before = self.read()
    subscript, self.cell.device = _beside(self, function, subscript)
    subscript = _without_gaps(self, subscript, before.shape)
    index_op, axis, order = _selection(self, subscript, before.shape, function)
    merged = _merge(before, subscript.places, order)
    scattered = scatter_op(merged, index_op, updates, code, axis, 0)
    return _unmerge(scattered, before.shape, order)


MOVED_PARTS_MAX = 16  # a write to less than 1 / 16 of the elements is done one by one, others by moving axes


def _without_gaps(self: T, subscript: Subscript, shape: Shape) -> Subscript:
    """Replaces whole axes between a write's arrays by arrays, if few elements are selected.

    x[i, :, j] becomes x[i[:, None], arange(n), j[:, None]], for which no axis of x is moved.
    """
    places, common = subscript.places, common_shape(subscript.arrays)
    gaps = [axis for axis in range(places[-1]) if axis not in places]
    lengths = [shape[axis] for axis in gaps]
    counts = numel((*common, *lengths, MOVED_PARTS_MAX)), numel(shape[: places[-1] + 1])
    if _front(subscript) or not gaps or not all(isinstance(n, int) for n in counts) or counts[0] > counts[1]:
        return subscript
    device, ones = self.cell.device, tuple(1 for _ in gaps)
    arrays: dict[int, TensorCore | Array] = {
        place: self.from_op(reshape(a.read(), (*a.shape, *ones)), device) if isinstance(a, TensorCore)
        else a.reshape(*a.shape, *ones) for place, a in zip(places, subscript.arrays)
    }  # fmt: skip
    for n, axis in enumerate(gaps):
        arrays[axis] = self.from_op(reshape(iota(shape[axis]), (shape[axis], *ones[n + 1 :])), device)
    return replace(subscript, arrays=tuple(arrays[axis] for axis in sorted(arrays)), places=tuple(sorted(arrays)))


def _selected_shape(self: T, subscript: Subscript, shape: Shape) -> Shape:
    """Returns the shape that a subscript's arrays select from a view of `shape`."""
    others = tuple(dim for axis, dim in enumerate(shape) if axis not in subscript.places)
    at = _front(subscript)
    return (*others[:at], *common_shape(subscript.arrays), *others[at:])


def _fill_mask(self: T, mask: TensorCore, value: Any) -> None:
    """Stores a number, or a value per element, where a mask over the leading axes is true."""
    op, device = self.read(), brought_to("x[mask] = value", self, mask)
    over_all = mask_over("x[mask] = value", mask, op, device)
    self.cell.device = device
    self.write("x[mask] = value", where(over_all, _stored(self, value, op.shape), op))


def _stored(self: T, value: Any, shape: Shape, from_anywhere: bool = False) -> Op:
    """Returns a value to be written, cast to this dtype and broadcast to `shape`; from_anywhere: copied from its device."""
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
    if not broadcasts(op.shape, shape):
        raise ShapeError(f"x[...] = value: a value of shape {op.shape} does not broadcast to {shape}.")
    return broadcast_to(op, shape)


def _beside(self: T, function: str, subscript: Subscript) -> tuple[Subscript, str | None]:
    """Returns a subscript with its arrays on this tensor's device, and the device of the result."""
    given = subscript.arrays
    device = brought_to(function, self, *(tensors := [a for a in given if isinstance(a, TensorCore)]))
    if all(a.cell.device is device for a in tensors):
        return subscript, device
    moved = (type(self).from_op(value_at(a, device), device) if isinstance(a, TensorCore) else a for a in given)
    return replace(subscript, arrays=tuple(moved)), device


def _selection(self: T, subscript: Subscript, shape: Shape, function: str = "index") -> tuple[Op, int, tuple[int, ...]]:
    """Returns (index, axis, order): the selection is a GATHER along axis after the axes in `order` are made adjacent.

    Several arrays become one index into the joined axes.
    """
    places, axis = subscript.places, _front(subscript)
    others = [a for a in range(len(shape)) if a not in places]
    order = (*others[:axis], *places, *others[axis:])
    common = common_shape(subscript.arrays)
    index: Op | None = None
    for array, place in zip(subscript.arrays, places):
        part = broadcast_to(index_op(self, function, array, shape, place), common)
        index = part if index is None else index * _repeated(shape[place], common) + part
    assert index is not None
    return index, axis, order


def _names_each_row(subscript: Subscript, shape: Shape) -> bool:
    """True for x[arange(n), index]: the first arrays count all rows, so one element of each row is selected."""
    counting, rows = subscript.arrays[:-1], shape[: len(subscript.arrays) - 1]
    if not rows or subscript.places != tuple(range(len(rows) + 1)) or common_shape(subscript.arrays) != rows:
        return False
    return all(_counts(array, axis, rows) for axis, array in enumerate(counting))


def _counts(array: TensorCore | Array, axis: int, shape: Shape) -> bool:
    """True for an index array that counts 0, 1, ... along a whole axis of `shape`, the same along all others."""
    line = (*(1 for _ in shape[:axis]), shape[axis], *(1 for _ in shape[axis + 1 :]))
    rank = len(array.shape)
    if not len(shape) - axis <= rank <= len(shape) or tuple(array.shape) != line[-rank:]:
        return False
    if not isinstance(array, TensorCore):
        return np.array_equal(array.ravel(), np.arange(array.size))
    op = array.read()
    while op.code in (OpCode.CAST, OpCode.RESHAPE):
        op = op.src[0]
    return op.code is OpCode.IOTA


def _one_of_each_row(self: T, subscript: Subscript, op: Op) -> Op:
    """Returns the elements that the last array of such a subscript selects: GATHER with rows as batch."""
    rank, last = len(subscript.arrays) - 1, subscript.arrays[-1]
    rows, others = op.shape[:rank], op.shape[rank + 1 :]
    index = broadcast_to(index_op(self, "index", last, op.shape, rank), rows)
    taken = gather_op(op, reshape(index, (*rows, 1)), rank, rank)
    return reshape(taken, (*rows, *others))


def index_op(self: T, function: str, array: TensorCore | np.ndarray[Any, Any], shape: Shape, axis: int) -> Op:
    """Returns an index array as int64; negative indices count from the end."""
    dim = shape[axis]
    op = array.read() if isinstance(array, TensorCore) else type(self)(array, dtypes.int64, self.device).op
    if not isinstance(array, TensorCore) and isinstance(dim, int):
        return op
    return positions(function, op, shape, axis)


def positions(function: str, index: Op, shape: Shape, axis: int) -> Op:
    """Returns an index as checked int64; negative indices count from the end of the axis."""
    op = cast(index, dtypes.int64)
    if index.dtype.kind == "u":
        return along_axis(function, op, shape, axis)
    wrapped = where(less(op, 0), op + _repeated(shape[axis], op.shape), op)
    return along_axis(function, wrapped, shape, axis, from_end=True)


def index_put(self: T, indices: Sequence[Any], values: Any, accumulate: bool = False) -> T:
    """Returns a copy with `values`, broadcast, stored in the elements that x[indices] selects.

    Args:
      indices:     a tuple of integer tensors, bool masks, and None for whole axes
      values:      a tensor of this dtype
      accumulate:  add to the present elements, once for each occurrence of an index

    Raises:
      ShapeError:    the values do not broadcast to x[indices].
      DTypeError:    the dtypes of values and self differ.
      ArgumentError: indices is empty.

    >>> Tensor([1, 2, 3]).index_put((Tensor([0, 0]),), Tensor([10, 20]), accumulate=True)
    Tensor([31,  2,  3])
    """
    return self.from_op(_put_at(self, "index_put", indices, values, accumulate), self.cell.device)


def index_put_(self: T, indices: Sequence[Any], values: Any, accumulate: bool = False) -> T:
    """Stores `values`, broadcast, in the elements that x[indices] selects, or adds them if `accumulate`.

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
    """Returns self[..., index, ...]: `index` has the position of each result along `dim`.

    out[i][j] = self[index[i][j]][j] for dim=0; along the other axes `index` must not be longer than self. An empty index
    may have any shape; a 0-d tensor counts as one with a single element.

    Raises:
      ShapeError: the ranks differ, or index is too long along another axis.
      DTypeError: index is not an integer tensor.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]]))
    Tensor([[2],
            [3]])
    """
    op, positions = self.read(), integer_index("gather", index)
    axis = axis_of("gather", op.shape, dim)
    op, places = reshape(op, op.shape or (1,)), reshape(positions, positions.shape or (1,))
    if 0 in positions.shape:
        none = reshape(shrink(op, ((0, 0),) * len(op.shape)), positions.shape)
        return self.from_op(none, self.other_device("gather", index))
    if len(places.shape) != len(op.shape) or any(
        bounds(subtract(n, m))[1] > 0 for a, (n, m) in enumerate(zip(places.shape, op.shape)) if a != axis
    ):
        raise ShapeError(f"gather: index of shape {index.shape} does not fit {self.shape} along dim {dim}.")
    block = tuple((0, m if a == axis else n) for a, (m, n) in enumerate(zip(op.shape, places.shape)))
    taken = along(shrink(op, block), along_axis("gather", places, op.shape, axis), axis)
    return self.from_op(reshape(taken, positions.shape), self.other_device("gather", index))


def take(self: T, index: Tensor) -> T:
    """Returns the elements of the flattened tensor at `index`, in its shape; negative indices count from the end.

    Raises:
      DTypeError: index is not an integer tensor.

    >>> Tensor([[1, 2], [3, 4]]).take(Tensor([[0, -1]]))
    Tensor([[1, 4]])
    """
    integer_index("take", index)
    op = reshape(self.read(), (numel(self.op.shape),))
    places = index_op(self, "take", index, op.shape, 0)
    return self.from_op(gather_op(op, places, 0), self.other_device("take", index))


def take_along_dim(self: T, indices: Tensor, dim: int | None = None) -> T:
    """Returns the elements at `indices` along one axis, the other axes broadcast; negative ones count from the end.

    Raises:
      ShapeError: indices has another number of axes, or does not broadcast.

    >>> Tensor([[1, 2], [3, 4]]).take_along_dim(Tensor([[-1], [0]]), 1)
    Tensor([[2],
            [3]])
    """
    if dim is None:
        return self.flatten().take_along_dim(type(self).from_op(indices.read(), indices.cell.device).flatten(), 0)
    op = self.read()
    if len(indices.shape) != len(op.shape) or not op.shape:
        raise ShapeError(f"take_along_dim: indices {indices.shape} and {self.shape} need equally many axes, at least one.")
    axis = axis_of("take_along_dim", op.shape, dim)
    positions = index_op(self, "take_along_dim", indices, op.shape, axis)
    pairs = [(m, n) if a != axis else (1, 1) for a, (m, n) in enumerate(zip(op.shape, positions.shape))]
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise ShapeError(f"take_along_dim: indices {indices.shape} do not broadcast to {self.shape}.")
    common = [m if n == 1 else n for m, n in pairs]
    whole = tuple(op.shape[a] if a == axis else n for a, n in enumerate(common))
    wanted = tuple(positions.shape[a] if a == axis else n for a, n in enumerate(common))
    taken = along(broadcast_to(op, whole), broadcast_to(positions, wanted), axis)
    return self.from_op(taken, self.other_device("take_along_dim", indices))


def index_select(self: T, dim: int, index: Tensor) -> T:
    """Returns the slices along one axis with the indices in `index`, a 1-d integer tensor.

    Raises:
      ShapeError: index has several axes, or not a single element for a 0-d tensor.
      DTypeError: index is not an integer tensor.

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
            raise ShapeError(f"index_select: a tensor without axes has one element; index has shape {index.shape}.")
        taken = gather_op(reshape(op, (1,)), along_axis("index_select", line, (1,), 0), 0)
        return self.from_op(reshape(taken, ()), self.other_device("index_select", index))
    taken = gather_op(op, along_axis("index_select", line, op.shape, axis), axis)
    return self.from_op(taken, self.other_device("index_select", index))


def _front(subscript: Subscript) -> int:
    """Returns the number of axes before those that the arrays select: 0 if a slice separates the arrays.

    PyTorch treats a 0-d array as an int: its axis is removed before the other arrays are placed.
    """
    places = subscript.places
    lines = [place for place, array in zip(places, subscript.arrays) if array.ndim] or places[:1]
    between = [axis for axis in range(lines[0], lines[-1]) if axis not in places]
    return 0 if between else lines[0] - sum(place < lines[0] for place in places)


# ---- on Ops ----
def along_axis(function: str, index: Op, shape: Shape, axis: int, from_end: bool = False) -> Op:
    """Returns an index as int64; computing it raises an IndexingError if an element is outside the axis.

    Args:
      from_end: the user's negative indices have been converted already
    """
    if not shape:
        return cast(index, dtypes.int64)
    return checked(index, shape[axis], _site(function, shape, axis, from_end))


@lru_cache(maxsize=256)
def _site(function: str, shape: Shape, axis: int, from_end: bool) -> Site:
    """Returns the error message for an index outside an axis."""
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
    """Returns the text of a length or a shape; symbolic integers are shown by name, since their values may change."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    return str(value.src[0].arg[0]) if isinstance(value, Op) and value.code is OpCode.BIND else str(value)


def along(op: Op, index: Op, axis: int) -> Op:
    """Returns op[..., index, ...] with all other axes in common: GATHER with these as batch."""
    rank = len(op.shape)
    last = (*(a for a in range(rank) if a != axis), axis)
    taken = gather_op(permute(op, last), permute(index, last), rank - 1, rank - 1)
    return permute(taken, tuple(last.index(a) for a in range(rank)))


def _merge(op: Op, places: tuple[int, ...], order: tuple[int, ...]) -> Op:
    """Joins the axes of `op` at `places`: where they are if adjacent, else in front."""
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
