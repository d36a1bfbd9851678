"""Movement: other views of the same storage.

In:    a tensor
Out:   `Views`; a view shares storage, so a write through it is seen by all
Next:  picograd/tensor/elements/widths.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from picograd.dtype import DType, named
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import floordiv, mul
from picograd.tensor.build import INTS, axes_of, axis_of, sizes
from picograd.tensor.core import T
from picograd.tensor.elements.widths import with_width
from picograd.tensor.inplace import in_place_view
from picograd.tensor.variable import lengths

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- shape ----
def reshape(self: T, *dims: Any, shape: Any = None) -> T:
    """Returns a view of another shape, given by its `dims` or as `shape`; one dimension may be -1.

    A write goes through it to the tensor it shows, of a transpose too, where PyTorch's reshape is a copy; write to
    x.reshape(...).clone() where that tensor should stay as it is.

    Raises:
      ShapeError: the numbers of elements differ.

    >>> Tensor.arange(6).reshape(2, -1).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    target = lengths("reshape", sizes("reshape", dims, shape))
    if target == self.op.shape:
        return self.viewed(OpCode.RESHAPE, target)
    return self.viewed(OpCode.RESHAPE, _full_shape(self, target))


def _full_shape(self: T, target: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the shape with -1 replaced by the length that is left."""
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
    """Returns a view of another shape, as reshape does, or a copy of the bits as elements of another dtype.

    Args:
      shape: lengths, or a dtype; the last axis of narrower elements is longer, of wider ones shorter
      size:  the lengths, and
      dtype: the dtype, by PyTorch's names

    Raises:
      ShapeError: the numbers of elements differ, or the last axis has no whole number of wider elements.
      DTypeError: `dtype` is none.

    >>> Tensor([1.0]).view(dtypes.int32)
    Tensor([1065353216], dtype=int32)
    >>> Tensor([1, 2], dtype=dtypes.int16).view(dtypes.uint8).tolist()
    [1, 0, 2, 0]
    """
    if len(shape) == 1 and isinstance(shape[0], DType):
        (dtype,) = shape
    if dtype is not None:
        return self.from_op(with_width(self.read(), named("view", dtype)), self.cell.device)
    return self.reshape(*shape, shape=size)


def reshape_as(self: T, other: Tensor) -> T:
    """Returns a view of the shape of `other`.

    >>> Tensor([1, 2]).reshape_as(Tensor.zeros(2, 1)).shape
    (2, 1)
    """
    return self.reshape(other.shape)


def ravel(self: T) -> T:
    """Returns a view with one axis.

    >>> Tensor([[1, 2], [3, 4]]).ravel()
    Tensor([1, 2, 3, 4])
    """
    return self.reshape(-1) if self.op.numel else self.reshape(0)


def view_as(self: T, other: Tensor) -> T:
    """Returns a view of the shape of `other`.

    >>> Tensor([1, 2]).view_as(Tensor.zeros(2, 1)).shape
    (2, 1)
    """
    return self.reshape(other.shape)


def flatten(self: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """Returns a view with the axes start_dim..end_dim made one.

    Raises:
      ArgumentError: start_dim comes after end_dim.

    >>> Tensor.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    shape = self.shape
    if not shape:
        return self.reshape(1)
    start, end = axis_of("flatten", shape, start_dim), axis_of("flatten", shape, end_dim)
    if start > end:
        raise ArgumentError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {shape}.")
    return self.reshape(*shape[:start], numel(shape[start : end + 1]), *shape[end + 1 :])


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
    left = numel(tuple(length for length in sizes if length != -1))
    if -1 in sizes and left == 0:
        raise ShapeError(f"unflatten: {tuple(sizes)} leaves no length for -1 along axis {dim} of shape {shape}.")
    parts = tuple(floordiv(shape[axis], left) if length == -1 else length for length in sizes)
    return self.reshape(*shape[:axis], *parts, *shape[axis + 1 :])


def squeeze(self: T, dim: int | Sequence[int] | None = None, *, axis: int | Sequence[int] | None = None) -> T:
    """Returns a view without axes of length 1: all of them, or those named.

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
    """Returns a view with the axes in the `order` given, or by the name `dims`.

    Raises:
      ShapeError: the order does not name each axis once.

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
    """Returns a view with the axes `axis0` and `axis1` exchanged: NumPy's name of transpose.

    >>> Tensor.zeros(2, 3, 4).swapaxes(0, 2).shape
    (4, 3, 2)
    """
    return self.transpose(axis0, axis1)


swapaxes_ = in_place_view(swapaxes)


def swapdims(self: T, dim0: int, dim1: int) -> T:
    """Returns a view with the axes `dim0` and `dim1` exchanged: another name of transpose.

    >>> Tensor.zeros(2, 3, 4).swapdims(0, 2).shape
    (4, 3, 2)
    """
    return self.transpose(dim0, dim1)


swapdims_ = in_place_view(swapdims)


def t(self: T) -> T:
    """Returns a view of a matrix with its axes exchanged; a vector or a number as it is.

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
    """Returns a view with the last two axes exchanged: real numbers are their own conjugates.

    Raises:
      ShapeError: there is one axis, or none.

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
    """Returns a view with the axes `source` moved to the places `destination`; the others keep their order.

    Raises:
      ArgumentError: an axis or a place is named twice, or there are not as many of both.

    >>> Tensor.zeros(2, 3, 4).movedim(0, -1).shape
    (3, 4, 2)
    >>> Tensor.zeros(2, 3, 4).movedim((0, 1), (1, 2)).shape
    (4, 2, 3)
    """
    shape = self.shape
    starts, ends = (
        tuple(axis_of("movedim", shape, dim) for dim in ((dims,) if isinstance(dims, INTS) else dims))
        for dims in (source, destination)
    )
    if len(starts) != len(ends) or len({*starts}) != len(starts) or len({*ends}) != len(ends):
        raise ArgumentError(
            f"movedim: source {source} and destination {destination} must name as many axes of {shape}, each once."
        )
    axes = [axis for axis in range(len(shape)) if axis not in starts]
    for end, start in sorted(zip(ends, starts)):
        axes.insert(end, start)
    return self.permute(*axes)


def moveaxis(self: T, source: int | Sequence[int], destination: int | Sequence[int]) -> T:
    """Returns a view with the axes `source` moved to the places `destination`: NumPy's name of movedim.

    >>> Tensor.zeros(2, 3, 4).moveaxis(0, -1).shape
    (3, 4, 2)
    """
    return self.movedim(source, destination)


# ---- repetition ----
def expand(self: T, *shape: Any, size: Any = None) -> T:
    """Returns a view of `shape`, or of the shape `size`, that repeats axes of length 1; -1 keeps an axis.

    Raises:
      ShapeError: an axis to be changed is not of length 1.

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
    """Returns a view repeated to the shape of `other`.

    >>> Tensor([1, 2]).expand_as(Tensor.zeros(2, 2))
    Tensor([[1, 2],
            [1, 2]])
    """
    return self.expand(other.shape)


def broadcast_to(self: T, size: Sequence[int]) -> T:
    """Returns a view repeated to the shape `size`.

    >>> Tensor([1, 2]).broadcast_to((2, 2))
    Tensor([[1, 2],
            [1, 2]])
    """
    return self.expand(tuple(size))
