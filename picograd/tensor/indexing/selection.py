"""What is chosen by values: masks, places of what is not zero, one-hot rows, elements repeated.

In:    tensors
Out:   `masked_select`, `masked_fill_`, `nonzero`, `argwhere`, `one_hot`, `repeat_interleave`: methods of Tensor
Next:  picograd/tensor/order/sorting.py

Where only the values decide how long a result is, the tensor is computed at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import gather, reshape, scan, scatter, shrink
from picograd.ir.checks import Site, checked
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, cast, whole
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.indexing.brackets import integer_index, same_as_iota
from picograd.tensor.indexing.chosen import in_a_trace
from picograd.tensor.inplace import stored
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["argwhere", "masked_select", "nonzero", "repeat_interleave"]


# ---- masks ----
def masked_select(self: T, mask: Tensor) -> T:
    """Returns the elements where the mask holds, in one axis; computes the mask.

    >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True]))
    Tensor([1, 3])
    """
    for tensor in (self, mask):
        for axis in range(tensor.ndim):
            known("masked_select", tensor.shape, axis)
    shape = broadcast_shapes("masked_select", self.op.shape, mask.op.shape)
    whole_mask = type(self).from_op(broadcast_to(mask.read(), shape), mask.cell.device)
    if in_a_trace():
        whole_mask._host("masked_select")  # raises: how many elements there are only values tell
    return self.expand(shape).reshape(-1)[whole_mask.reshape(-1)]


def masked_fill_(self: T, mask: Tensor, value: Operand) -> T:
    """Stores `value` where the mask holds; the mask broadcasts to self.

    Raises:
      ShapeError: the mask does not broadcast to this shape.

    >>> Tensor([1, 2]).masked_fill_(Tensor([True, False]), 0)
    Tensor([0, 2])
    """
    result = self.masked_fill(mask, value)
    if result.op.shape != self.op.shape:
        raise ShapeError(f"masked_fill_: a mask of shape {mask.shape} does not broadcast to {self.shape}.")
    return stored("masked_fill_", self, result)


def nonzero(self: T, *, as_tuple: bool = False) -> Any:
    """Returns the places (n, ndim) of the elements that are not zero, int64; computes the tensor.

    Args:
      as_tuple: a vector of places for each axis instead, as x[...] takes them

    >>> Tensor([0, 5, 7]).nonzero()
    Tensor([[1],
            [2]])
    >>> Tensor([0, 5, 7]).nonzero(as_tuple=True)
    (Tensor([1, 2]),)
    """
    found = self._host("nonzero")
    if as_tuple:
        return tuple(type(self)(axis.astype(np.int64), device=self.device) for axis in np.atleast_1d(found).nonzero())
    return type(self)(np.argwhere(found).astype(np.int64), dtypes.int64, self.device)


def argwhere(self: T) -> T:
    """Returns the places (n, ndim) of the elements that are not zero, int64; computes the tensor.

    >>> Tensor([[0, 5], [7, 0]]).argwhere().tolist()
    [[0, 1], [1, 0]]
    """
    found: T = nonzero(self)
    return found


# ---- classes ----
def one_hot(self: T, num_classes: int = -1) -> T:
    """Returns int64 rows with a 1 where the class stands: shape (..., num_classes).

    Without num_classes the tensor is computed to know the greatest class.

    Raises:
      DTypeError:    the classes are no integers.
      ArgumentError: there is no class.
      IndexingError: when it is computed: a class is negative, or not below num_classes.

    >>> Tensor([0, 2]).one_hot(3)
    Tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    op = integer_index("one_hot", self)
    num_classes = whole("one_hot", "num_classes", num_classes)
    if num_classes < 0:
        found = self._host("one_hot")
        if not found.size:
            raise ArgumentError(f"one_hot: shape {self.shape} has no class; give num_classes.")
        num_classes = max(int(found.max()) + 1, 1)
    hint = f"classes are 0 .. {num_classes - 1}."
    op = checked(op, num_classes, Site(f"one_hot: class {{}} is not one of the {num_classes} classes.", hint))
    return self.from_op(cast(same_as_iota(op, (*op.shape, num_classes)), dtypes.int64), self.cell.device)


# ---- repetition ----
def repeat_interleave(self: T, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None) -> T:
    """Returns each element repeated `repeats` times, along one axis or along the flattened tensor.

    Args:
      repeats:      a number, or a vector with one for each place of the axis; it is computed
      output_size:  the sum of `repeats`, which then need not be computed

    Raises:
      ShapeError:    repeats has several axes, or not one element for each place.
      ArgumentError: a number of repeats is negative.

    >>> Tensor([1, 2]).repeat_interleave(2)
    Tensor([1, 1, 2, 2])
    >>> Tensor([1, 2]).repeat_interleave(Tensor([3, 1]))
    Tensor([1, 1, 1, 2])
    """
    if dim is None:
        return repeat_interleave(self.flatten(), repeats, 0, output_size=output_size)
    shape = self.shape
    axis = axis_of("repeat_interleave", shape, dim)
    if isinstance(repeats, TensorCore):
        return _repeated(self, repeats, axis, output_size)
    repeats = whole("repeat_interleave", "repeats", repeats)
    if repeats < 0:
        raise ArgumentError(f"repeat_interleave: repeats must not be negative, got {repeats}.")
    view = self.unsqueeze(axis + 1).expand(*shape[: axis + 1], repeats, *shape[axis + 1 :])
    return view.reshape(*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])


def _repeated(self: T, repeats: TensorCore, axis: int, total: int | None) -> T:
    """Returns each slice of an axis as often as its element of `repeats` says.

    Every slice but the first marks where it begins; the running sum of the marks is which slice a place has.
    """
    length = known("repeat_interleave", self.shape, axis)
    times = cast(integer_index("repeat_interleave", repeats), dtypes.int64)
    if times.shape not in ((), (1,), (length,)):
        raise ShapeError(f"repeat_interleave: repeats of shape {repeats.shape} must be ({length},), the axis {axis}.")
    if total is None:
        counts = repeats._host("repeat_interleave")
        if (counts < 0).any():
            raise ArgumentError(f"repeat_interleave: repeats must not be negative, got {counts.min()}.")
        total = int(counts.sum()) * (1 if times.shape == (length,) else length)
    total = whole("repeat_interleave", "output_size", total)
    if total < 0:
        raise ArgumentError(f"repeat_interleave: output_size must not be negative, got {total}.")
    times = broadcast_to(reshape(times, times.shape or (1,)), (length,))
    device = self.other_device("repeat_interleave", repeats)
    if not total or not length:
        empty = tuple((0, 0 if a == axis else dim) for a, dim in enumerate(self.op.shape))
        return self.from_op(shrink(self.read(), empty), device)
    begins = shrink(scan(times, OpCode.ADD, 0), ((0, length - 1),))
    marks = scatter(filled(0, dtypes.int64, (total,)), begins, filled(1, dtypes.int64, (length - 1,)), OpCode.ADD, 0, 0)
    return self.from_op(gather(self.read(), scan(marks, OpCode.ADD, 0), axis, 0), device)
