"""Views of the same storage in other shapes and orders, and their pieces.

A view in a dtype of another width takes the lowest bits first, as all supported machines do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from picograd.dtype import DType, named
from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.ir.build import and_, iota, reduce, shl, shr
from picograd.ir.build import cast as cast_op
from picograd.ir.build import expand as expand_op
from picograd.ir.build import reshape as reshape_op
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel, of_numbers
from picograd.ir.symbolic import ceildiv, floordiv, mul
from picograd.tensor.arguments import at_least
from picograd.tensor.build import apply_step, as_bits, axes_of, axis_of, is_integer, sizes, whole
from picograd.tensor.cell import shape_after
from picograd.tensor.core import T, TensorCore
from picograd.tensor.indexing import one_place
from picograd.tensor.inplace import in_place_view
from picograd.tensor.variable import Length, known, lengths

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = [
    "adjoint", "broadcast_to", "chunk", "dsplit", "flatten", "hsplit", "moveaxis", "movedim", "narrow",
    "narrow_copy", "permute", "ravel", "reshape", "select", "split", "split_with_sizes", "squeeze", "swapaxes",
    "swapdims", "t", "tensor_split", "transpose", "unbind", "unflatten", "unsqueeze", "vsplit",
]  # fmt: skip


# ---- elements as another dtype ----
def with_width(op: Op, dtype: DType) -> Op:
    """Returns the bits of `op` as elements of `dtype` along the last axis.

    Raises:
      ShapeError: op is 0-d, or the last axis does not contain a whole number of wider elements.
    """
    width, wanted = op.dtype.itemsize, dtype.itemsize
    if width == wanted:
        return as_bits(op, dtype)
    if not op.shape:
        raise ShapeError(f"view: a tensor without axes cannot be viewed from {op.dtype} as {dtype}.")
    length = op.shape[-1]
    bits = as_bits(op, op.dtype.unsigned)
    if width > wanted:
        parts = _cut(bits, width // wanted, dtype.unsigned)
        return as_bits(reshape_op(parts, (*op.shape[:-1], mul(length, width // wanted))), dtype)
    count = wanted // width
    if mul(floordiv(length, count), count) != length:
        raise ShapeError(f"view: the last axis of {op.shape} is not a multiple of {count}, the {op.dtype} in one {dtype}.")
    rows = reshape_op(bits, (*op.shape[:-1], floordiv(length, count), count))
    return as_bits(_joined(rows, dtype.unsigned), dtype)


def _cut(bits: Op, count: int, part: DType) -> Op:
    """Returns (..., count): unsigned integers split into narrower ones, lowest bits first."""
    shape = (*bits.shape, count)
    wide = expand_op(reshape_op(bits, (*bits.shape, 1)), shape)
    low = shr(wide, _places(count, part.bits, bits.dtype, shape))
    return cast_op(and_(low, (1 << part.bits) - 1), part)


def _joined(rows: Op, whole: DType) -> Op:
    """Returns (...): the narrower unsigned integers of the last axis, lowest bits first, joined to one."""
    shifted = shl(cast_op(rows, whole), _places(rows.shape[-1], rows.dtype.bits, whole, rows.shape))
    return reduce(shifted, OpCode.ADD, (len(rows.shape) - 1,))


def _places(count: Dim, bits: int, dtype: DType, shape: Shape) -> Op:
    """Returns the position of the lowest bit of each part, over `shape`, whose last axis counts the parts."""
    places = cast_op(iota(count), dtype) * bits
    return expand_op(reshape_op(places, (*(1 for _ in shape[:-1]), count)), shape)


# ---- strides: which shapes a view can show in place ----
Strides = tuple[int, ...]


def _is_view(tensor: TensorCore, target: Shape) -> bool:
    """True if strides exist for the view in another shape; otherwise PyTorch's reshape copies."""
    shape: Shape = tensor.cell.op.shape
    strides = _row_major(shape) if of_numbers(shape) else None
    for code, arg in (*tensor.steps, (OpCode.RESHAPE, target)):
        if strides is None or code is OpCode.RESHAPE and not of_numbers(arg):
            return True  # unknown for symbolic lengths
        if code is OpCode.RESHAPE:
            if numel(shape) != numel(arg):
                return True  # the view itself is refused
            found = _reshaped(cast("tuple[int, ...]", shape), strides, arg)
            if found is None:
                return False
            strides = found
        elif code is OpCode.PERMUTE:
            strides = tuple([strides[axis] for axis in arg])
        elif code is OpCode.FLIP:
            strides = tuple([-stride if axis in arg else stride for axis, stride in enumerate(strides)])
        elif code is OpCode.EXPAND:
            strides = strides or (0,) * len(arg)  # a 0-d tensor has no axes
            strides = tuple([stride if a == b else 0 for stride, a, b in zip(strides, shape or arg, arg)])
        shape = shape_after(shape, (code, arg))
    return True


def _row_major(shape: Shape) -> Strides:
    """Returns the strides, in elements, of row-major memory."""
    lengths = cast("tuple[int, ...]", shape)
    return tuple([math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))])


def _reshaped(shape: tuple[int, ...], strides: Strides, target: tuple[int, ...]) -> Strides | None:
    """Returns strides of the same elements in another shape, or None.

    Axes whose elements follow one another in memory form a block, and each target axis takes a factor of one block.
    """
    if 0 in shape:
        return _row_major(target)
    blocks: list[tuple[int, int]] = []  # elements and stride
    for length, stride in zip(shape, strides):
        if length == 1:
            continue
        if blocks and blocks[-1][1] == stride * length:
            length *= blocks.pop()[0]
        blocks.append((length, stride))
    found: list[int] = []
    left, step = 1, 1
    for length in reversed(target):
        if left == 1 and length > 1:
            left, step = blocks.pop()
        if left % length:
            return None
        found.append(step)
        left, step = left // length, step * length
    return tuple(found[::-1])


# ---- shape ----
def reshape(self: T, *dims: Any, shape: Any = None) -> T:
    """Returns a view of another shape, given by `dims` or as `shape`; one dimension may be -1.

    It is a copy if no strides give the elements in their order: for a transpose, or part of each row.

    Raises:
      ShapeError: the numbers of elements differ.

    >>> Tensor.arange(6).reshape(2, -1).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    target = _full_shape(self, lengths("reshape", sizes("reshape", dims, shape)))
    if self.steps and not _is_view(self, target):
        return self.from_op(apply_step(self.read(), OpCode.RESHAPE, target), self.cell.device)
    return self.viewed(OpCode.RESHAPE, target)


def _full_shape(self: T, target: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the shape with -1 replaced by the remaining length."""
    if of_numbers(target) and min(target, default=0) >= 0:
        return target
    unknown = [axis for axis, dim in enumerate(target) if isinstance(dim, int) and dim < 0]
    if not unknown:
        return tuple(dim if isinstance(dim, Op) else int(dim) for dim in target)
    if len(unknown) > 1 or target[unknown[0]] != -1:
        raise ShapeError(f"reshape: {target} may have one unknown dimension, written -1.")
    left, count = numel(tuple(dim for dim in target if dim != -1)), numel(self.op.shape)
    rest = 0 if left == 0 else floordiv(count, left)
    if left == 0 or mul(rest, left) != count:
        raise ShapeError(f"reshape: {self.shape} has {count} elements, {target} needs a multiple of {left}.")
    return tuple(rest if dim == -1 else dim if isinstance(dim, Op) else int(dim) for dim in target)


def view(self: T, *shape: Any, size: Any = None, dtype: DType | None = None) -> T:
    """Returns a view of another shape, also of a transpose, or the bits as elements of another dtype, as a copy.

    Args:
      shape: lengths, or a dtype; narrower elements make the last axis longer, wider ones shorter
      size:  the lengths,
      dtype: the dtype, by PyTorch's names

    Raises:
      ShapeError: the numbers of elements differ, or the last axis does not contain a whole number of wider elements.
      DTypeError: `dtype` is not a DType.

    >>> Tensor([1.0]).view(dtypes.int32)
    Tensor([1065353216], dtype=int32)
    >>> Tensor([1, 2], dtype=dtypes.int16).view(dtypes.uint8).tolist()
    [1, 0, 2, 0]
    """
    if len(shape) == 1 and isinstance(shape[0], DType):
        (dtype,) = shape
    if dtype is not None:
        return self.from_op(with_width(self.read(), named("view", dtype)), self.cell.device)
    return self.viewed(OpCode.RESHAPE, _full_shape(self, lengths("view", sizes("view", shape, size))))


def reshape_as(self: T, other: Tensor) -> T:
    """Returns a view in the shape of `other`.

    >>> Tensor([1, 2]).reshape_as(Tensor.zeros(2, 1)).shape
    (2, 1)
    """
    return self.reshape(other.shape)


def ravel(self: T) -> T:
    """Returns a flat view, with one axis.

    >>> Tensor([[1, 2], [3, 4]]).ravel()
    Tensor([1, 2, 3, 4])
    """
    return self.reshape(-1) if self.op.numel else self.reshape(0)


def view_as(self: T, other: Tensor) -> T:
    """Returns a view in the shape of `other`.

    >>> Tensor([1, 2]).view_as(Tensor.zeros(2, 1)).shape
    (2, 1)
    """
    return self.view(other.shape)


def flatten(self: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """Returns a view with the axes start_dim..end_dim joined; x itself if they are one axis.

    Raises:
      ArgumentError: start_dim comes after end_dim.

    >>> Tensor.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    shape = self.shape
    start, end = axis_of("flatten", shape, start_dim), axis_of("flatten", shape, end_dim)
    if not shape:
        return self.reshape(1)
    if start > end:
        raise ArgumentError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {shape}.")
    return self if start == end else self.reshape(*shape[:start], numel(shape[start : end + 1]), *shape[end + 1 :])


def unflatten(self: T, dim: int, sizes: Sequence[int]) -> T:  # noqa: A002
    """Returns a view with one axis split into axes of `sizes`; one of them may be -1.

    Raises:
      ShapeError: the sizes do not multiply to the length of the axis.

    >>> Tensor.zeros(6, 2).unflatten(0, (2, -1)).shape
    (2, 3, 2)
    """
    shape = self.shape
    axis = axis_of("unflatten", shape, dim)
    if not shape:
        raise ShapeError("unflatten: needs at least one axis, got shape ().")
    given = lengths("unflatten", sizes)
    left = numel(tuple(length for length in given if length != -1))
    if -1 in given and left == 0:
        raise ShapeError(f"unflatten: {tuple(sizes)} leaves no length for -1 along axis {dim} of shape {shape}.")
    parts = tuple(floordiv(shape[axis], left) if length == -1 else length for length in given)
    return self.view(*shape[:axis], *parts, *shape[axis + 1 :])


def squeeze(self: T, dim: int | Sequence[int] | None = None, *, axis: int | Sequence[int] | None = None) -> T:
    """Returns a view without axes of length 1: all of them, or the given ones.

    >>> Tensor.zeros(1, 3, 1).squeeze().shape
    (3,)
    """
    shape = self.shape
    chosen = axes_of("squeeze", shape, dim, axis)
    return self.reshape(*(n for axis, n in enumerate(shape) if axis not in chosen or n != 1))


squeeze_ = in_place_view(squeeze)


def unsqueeze(self: T, dim: int | None = None, *, axis: int | None = None) -> T:
    """Returns a view with an axis of length 1 at `dim`.

    >>> Tensor.zeros(3).unsqueeze(0).shape
    (1, 3)
    """
    shape = self.shape
    axis = axis_of("unsqueeze", shape, dim if axis is None else axis, extra=1)  # type: ignore[arg-type]  # it says so
    return self.reshape(*shape[:axis], 1, *shape[axis:])


unsqueeze_ = in_place_view(unsqueeze)


# ---- order ----
def permute(self: T, *order: Any, dims: Sequence[int] | None = None) -> T:
    """Returns a view with the axes in the given `order`, also called `dims`.

    Raises:
      ShapeError: the order does not contain each axis once.

    >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    axes = tuple(axis_of("permute", self.shape, d) for d in sizes("permute", order, dims))
    if sorted(axes) != list(range(self.ndim)):
        raise ShapeError(
            f"permute: {axes} does not name each of the {self.ndim} axes of {self.shape} once.",
            hint="x.transpose(0, 1) exchanges two axes.",
        )
    return self.viewed(OpCode.PERMUTE, axes)


def transpose(self: T, dim0: int, dim1: int) -> T:
    """Returns a view with the axes `dim0` and `dim1` exchanged.

    >>> Tensor([[1, 2], [3, 4]]).transpose(0, 1)
    Tensor([[1, 3],
            [2, 4]])
    """
    first, second = axis_of("transpose", self.shape, dim0), axis_of("transpose", self.shape, dim1)
    axes = list(range(self.ndim))
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return self.viewed(OpCode.PERMUTE, tuple(axes))


transpose_ = in_place_view(transpose)


def swapaxes(self: T, axis0: int, axis1: int) -> T:
    """Returns a view with the axes `axis0` and `axis1` exchanged; NumPy's name of transpose.

    >>> Tensor.zeros(2, 3, 4).swapaxes(0, 2).shape
    (4, 3, 2)
    """
    return self.transpose(axis0, axis1)


swapaxes_ = in_place_view(swapaxes)


def swapdims(self: T, dim0: int, dim1: int) -> T:
    """Returns a view with the axes `dim0` and `dim1` exchanged; another name of transpose.

    >>> Tensor.zeros(2, 3, 4).swapdims(0, 2).shape
    (4, 3, 2)
    """
    return self.transpose(dim0, dim1)


swapdims_ = in_place_view(swapdims)


def t(self: T) -> T:
    """Returns a view of a matrix with its axes exchanged; vectors and numbers are unchanged.

    Raises:
      ShapeError: there are more than two axes.

    >>> Tensor([[1, 2], [3, 4]]).t()
    Tensor([[1, 3],
            [2, 4]])
    """
    if self.ndim > 2:
        raise ShapeError(f"t: needs at most two axes, got shape {self.shape}.", hint="use x.mT or x.transpose(...).")
    return self.T


t_ = in_place_view(t)


def adjoint(self: T) -> T:
    """Returns a view with the last two axes exchanged: the conjugate of a real number is itself.

    Raises:
      ShapeError: there are fewer than two axes.

    >>> Tensor([[1, 2], [3, 4]]).adjoint()
    Tensor([[1, 3],
            [2, 4]])
    """
    return matrices(self, "adjoint")


def matrices(self: T, function: str) -> T:
    if self.ndim < 2:
        raise ShapeError(f"{function}: needs two axes, got shape {self.shape}.")
    return self.transpose(-2, -1)


def movedim(self: T, source: int | Sequence[int], destination: int | Sequence[int]) -> T:
    """Returns a view with the axes `source` moved to positions `destination`; the others keep their order.

    Raises:
      ArgumentError: an axis or position occurs twice, or source and destination differ in number.

    >>> Tensor.zeros(2, 3, 4).movedim(0, -1).shape
    (3, 4, 2)
    >>> Tensor.zeros(2, 3, 4).movedim((0, 1), (1, 2)).shape
    (4, 2, 3)
    """
    shape = self.shape
    starts, ends = (
        tuple(axis_of("movedim", shape, dim) for dim in ((dims,) if is_integer(dims) else dims))
        for dims in (source, destination)
    )
    if len(starts) != len(ends) or len({*starts}) != len(starts) or len({*ends}) != len(ends):
        raise ArgumentError(
            f"movedim: source {source} and destination {destination} must name equally many axes of {shape}, each once."
        )
    axes = [axis for axis in range(len(shape)) if axis not in starts]
    for end, start in sorted(zip(ends, starts)):
        axes.insert(end, start)
    return self.permute(*axes)


def moveaxis(self: T, source: int | Sequence[int], destination: int | Sequence[int]) -> T:
    """Returns a view with the axes `source` moved to positions `destination`; NumPy's name of movedim.

    >>> Tensor.zeros(2, 3, 4).moveaxis(0, -1).shape
    (3, 4, 2)
    """
    return self.movedim(source, destination)


# ---- repetition ----
def expand(self: T, *shape: Any, size: Any = None) -> T:
    """Returns a view broadcast to `shape`, or to the shape `size`; -1 keeps an axis.

    Raises:
      ShapeError: an axis to be changed does not have length 1.

    >>> Tensor([[1], [2]]).expand(-1, 3)
    Tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    target = lengths("expand", sizes("expand", shape, size))
    own: tuple[int, ...] = self.shape
    extra = len(target) - len(own)
    if extra < 0:
        raise ShapeError(f"expand: {own} has more axes than {target}.")
    own = (1,) * extra + own
    full = tuple(own[axis] if dim == -1 else dim for axis, dim in enumerate(target))
    if any(have not in (1, want) for have, want in zip(own, full)):
        raise ShapeError(f"expand: {self.shape} does not fit {full}: each axis must be equal or of length 1.")
    view = self.reshape(own) if extra and self.ndim else self
    return view.viewed(OpCode.RESHAPE if full == view.shape else OpCode.EXPAND, full)  # never self: see unsqueeze_


def expand_as(self: T, other: Tensor) -> T:
    """Returns a view broadcast to the shape of `other`.

    >>> Tensor([1, 2]).expand_as(Tensor.zeros(2, 2))
    Tensor([[1, 2],
            [1, 2]])
    """
    return self.expand(other.shape)


def broadcast_to(self: T, size: Sequence[int]) -> T:
    """Returns a view broadcast to the shape `size`.

    >>> Tensor([1, 2]).broadcast_to((2, 2))
    Tensor([[1, 2],
            [1, 2]])
    """
    return self.expand(tuple(size))


# ---- one piece ----
def narrow(self: T, dim: int, start: int | Length, length: int) -> T:
    """Returns the view of `length` elements from `start` along one axis; a negative start counts from the end.

    Raises:
      IndexingError: the piece is not within the axis.
      ShapeError:    self is 0-d.
      ArgumentError: start or length is not an integer.

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
    """Returns the view of the elements at `index` along one axis, which is removed.

    Raises:
      IndexingError: the index is outside the axis.
      ShapeError:    self is 0-d.

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
    """Returns views of pieces along one axis: of length `split_size` (the last may be shorter), or of given lengths.

    Raises:
      ShapeError:    the given lengths do not add up to the axis.
      ArgumentError: split_size is below 1, or a length in a list is negative.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).split(2)]
    [[1, 2], [3]]
    """
    if not is_integer(split_size):
        return self.split_with_sizes(split_size, dim if axis is None else axis)
    axis = axis_of("split", self.shape, dim if axis is None else axis)
    if not self.ndim:
        raise ShapeError("split: a tensor of shape () has no axis to split.")
    length, split_size = known("split", self.shape, axis), whole("split", "split_size", split_size)
    if split_size < 1 and length:
        raise ArgumentError(f"split: a piece must have at least 1 element, got {split_size}.")
    starts = range(0, max(length, 1), max(split_size, 1))
    return tuple(cut(self, axis, start, min(start + split_size, length)) for start in starts)


def split_with_sizes(self: T, split_sizes: Sequence[int], dim: int = 0) -> tuple[T, ...]:
    """Returns views of pieces of the lengths `split_sizes` along one axis.

    Raises:
      ShapeError:    the lengths do not add up to the axis.
      ArgumentError: a length is negative.

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
    """Returns views of at most `chunks` pieces of equal length along one axis.

    Raises:
      ArgumentError: `chunks` is not positive.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).chunk(2)]
    [[1, 2], [3]]
    """
    chunks = at_least("chunk", "chunks", chunks, 1)
    axis = axis_of("chunk", self.shape, dim if axis is None else axis)
    length = known("chunk", self.shape, axis)
    if length == 0:
        return (cut(self, axis, 0, 0),) * chunks
    return self.split(ceildiv(length, chunks), axis)


def tensor_split(self: T, indices_or_sections: Any, dim: int = 0) -> tuple[T, ...]:
    """Returns views of pieces along one axis: a number of nearly equal ones, or pieces cut at indices.

    Args:
      indices_or_sections: the number of pieces, or the start of each piece except the first

    Raises:
      ArgumentError: the number of pieces is not positive.
      ShapeError:    self is 0-d.

    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).tensor_split(2)]
    [[1, 2], [3]]
    >>> [piece.tolist() for piece in Tensor([1, 2, 3]).tensor_split((1, 1))]
    [[1], [], [2, 3]]
    """
    return _split_at(self, "tensor_split", indices_or_sections, dim)


def _split_at(self: T, function: str, where: Any, dim: int) -> tuple[T, ...]:
    """Returns the pieces of an axis, cut before each of the positions `where`, or nearly equal."""
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
        count = at_least(function, "the number of pieces", where, 1)
        cuts = [i * (length // count) + min(i, length % count) for i in range(1, count)]
    bounds = zip([0, *cuts], [*cuts, length])
    return tuple(cut(self, axis, start, max(start, stop)) for start, stop in bounds)


def _split_evenly(self: T, function: str, where: Any, axis: int, least: int) -> tuple[T, ...]:
    """Splits along an axis; a number of pieces must divide the length."""
    if self.ndim < least:
        raise ShapeError(f"{function}: needs {least} axes or more, got shape {self.shape}.")
    if isinstance(where, int) and where > 0 and known(function, self.shape, axis) % where:
        raise ShapeError(f"{function}: axis {axis} of {self.shape} cannot be split into {where} equal pieces.")
    return _split_at(self, function, where, axis)


def hsplit(self: T, indices_or_sections: Any) -> tuple[T, ...]:
    """Returns views of pieces along axis 1, for a vector along axis 0.

    Args:
      indices_or_sections: a number of equal pieces, or the start of each piece except the first

    Raises:
      ShapeError: the axis cannot be split into this number of equal pieces.

    >>> [piece.tolist() for piece in Tensor([[1, 2], [3, 4]]).hsplit(2)]
    [[[1], [3]], [[2], [4]]]
    """
    return _split_evenly(self, "hsplit", indices_or_sections, 0 if self.ndim == 1 else 1, 1)


def vsplit(self: T, indices_or_sections: Any) -> tuple[T, ...]:
    """Returns views of pieces along axis 0 of a tensor with at least two axes.

    Args:
      indices_or_sections: a number of equal pieces, or the start of each piece except the first

    Raises:
      ShapeError: the axis cannot be split into this number of equal pieces.

    >>> [piece.tolist() for piece in Tensor([[1, 2], [3, 4]]).vsplit(2)]
    [[[1, 2]], [[3, 4]]]
    """
    return _split_evenly(self, "vsplit", indices_or_sections, 0, 2)


def dsplit(self: T, indices_or_sections: Any) -> tuple[T, ...]:
    """Returns views of pieces along axis 2 of a tensor with at least three axes.

    Args:
      indices_or_sections: a number of equal pieces, or the start of each piece except the first

    Raises:
      ShapeError: the axis cannot be split into this number of equal pieces.

    >>> [piece.tolist() for piece in Tensor([[[1, 2]]]).dsplit(2)]
    [[[[1]]], [[[2]]]]
    """
    return _split_evenly(self, "dsplit", indices_or_sections, 2, 3)


def unbind(self: T, dim: int = 0, *, axis: int | None = None) -> tuple[T, ...]:
    """Returns the views along one axis, which is removed.

    >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
    [[1, 2], [3, 4]]
    """
    shape = self.shape
    axis = axis_of("unbind", shape, dim if axis is None else axis)
    before, after = [tuple([(0, length) for length in part]) for part in (shape[:axis], shape[axis + 1 :])]
    rest = (OpCode.RESHAPE, (*shape[:axis], *shape[axis + 1 :]))
    pieces = [(OpCode.SHRINK, (*before, (i, i + 1), *after)) for i in range(known("unbind", shape, axis))]
    return tuple([self.viewed_by((piece, rest)) for piece in pieces])
