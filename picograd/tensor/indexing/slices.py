"""Writing by an index for every slice of an axis: index_add and its kin.

In:    tensors
Out:   `index_add`, `index_copy`, `index_fill`, `index_reduce`, and with a last _ in place: methods of Tensor
Next:  picograd/tensor/indexing/combining.py

Each has a form that returns a new tensor and one that writes in place, with a _ at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from picograd.dtype import Scalar
from picograd.errors import ShapeError
from picograd.ir.build import reshape, scatter
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of, broadcast_to, cast
from picograd.tensor.core import T, TensorCore
from picograd.tensor.exchange.host import fitting
from picograd.tensor.indexing.brackets import along_axis, index_op, integer_index, needs_dtype
from picograd.tensor.indexing.combining import CODES, combined
from picograd.tensor.indexing.scattering import check_reduction, of_slices
from picograd.tensor.inplace import in_place
from picograd.tensor.meeting import value_at

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["index_add", "index_copy", "index_fill", "index_reduce"]


WITHOUT_SUMS = tuple(name for name in CODES if name != "sum")  # index_add is the sum


def index_add(self: T, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1) -> T:
    """Returns a copy with alpha * source[i] added to the slice index[i] along one axis, for each i.

    Args:
      index:   a vector of integers
      source:  a tensor of this dtype, of self's shape but as long as index along `dim`
      alpha:   a number

    Raises:
      ShapeError:    source does not fit.
      DTypeError:    index is no integer tensor, or source of another dtype.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

    >>> Tensor([1, 1, 1]).index_add(0, Tensor([0, 0]), Tensor([5, 6]))
    Tensor([12,  1,  1])
    """
    op, places, updates, axis = _slices(self, "index_add", dim, index, source)
    if alpha != 1:
        updates = updates * fitting("index_add", alpha, self.dtype)
    return of_slices(self, "index_add", scatter(op, places, updates, OpCode.ADD, axis, 0), index, source)


index_add_ = in_place(index_add)


def index_copy(self: T, dim: int, index: Tensor, source: Tensor) -> T:
    """Returns a copy with source[i] as the slice index[i] along one axis, for each i; the last of equals wins.

    Raises:
      ShapeError:    source is not of self's shape but as long as index along `dim`.
      DTypeError:    index is no integer tensor, or source of another dtype.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

    >>> Tensor([1, 1, 1]).index_copy(0, Tensor([0, 2]), Tensor([5, 6]))
    Tensor([5, 1, 6])
    """
    op, places, updates, axis = _slices(self, "index_copy", dim, index, source)
    return of_slices(self, "index_copy", scatter(op, places, updates, None, axis, 0), index, source)


index_copy_ = in_place(index_copy)


def index_reduce(self: T, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> T:
    """Returns a copy in which all slices source[i] with one index[i] are combined at that place along one axis.

    Args:
      index:         a vector of integers
      source:        a tensor of this dtype, of self's shape but as long as index along `dim`
      reduce:        "prod", "mean" (of integers rounded down), "amax" or "amin"
      include_self:  what is there is combined, too; else it goes where anything comes

    Raises:
      ShapeError:    source does not fit.
      DTypeError:    index is no integer tensor, or source of another dtype.
      ArgumentError: another word.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

    >>> Tensor([4.0, 1.0]).index_reduce(0, Tensor([0, 0]), Tensor([5.0, 6.0]), "mean")
    Tensor([5., 1.])
    """
    check_reduction("index_reduce", reduce, WITHOUT_SUMS)
    op, places, updates, axis = _slices(self, "index_reduce", dim, index, source)
    result = combined(op, places, updates, reduce, include_self, axis, _scattered_slices)
    return of_slices(self, "index_reduce", result, index, source)


index_reduce_ = in_place(index_reduce)


def index_fill(self: T, dim: int, index: Tensor, value: Tensor | Scalar) -> T:
    """Returns a copy with the number `value` in all slices along one axis that `index` names.

    Args:
      index:  a vector of integers; negative ones count from the end
      value:  a number, or a tensor of no axes, from any device

    Raises:
      ShapeError:    index has several axes, or value has any.
      DTypeError:    index is no integer tensor.
      IndexingError: when it is computed: an index is outside the axis.

    >>> Tensor([1, 1, 1]).index_fill(0, Tensor([0, -1]), 7)
    Tensor([7, 1, 7])
    """
    line = _vector("index_fill", index)
    op = self.read()
    axis = axis_of("index_fill", op.shape, dim)
    op = reshape(op, op.shape or (1,))
    device = self.other_device("index_fill", index)
    places = index_op(self, "index_fill", type(self).from_op(line, index.cell.device), op.shape, axis)
    shape = (*op.shape[:axis], *line.shape, *op.shape[axis + 1 :])
    if isinstance(value, TensorCore):
        if value.ndim:
            raise ShapeError(f"index_fill: value must be one number, got shape {value.shape}.")
        device = device or value.cell.device
        updates = broadcast_to(cast(value_at(value, device), self.dtype), shape)
    else:
        updates = filled(fitting("index_fill", value, self.dtype), self.dtype, shape)
    return self.from_op(reshape(scatter(op, places, updates, None, axis, 0), self.op.shape), device)


index_fill_ = in_place(index_fill)


def _slices(self: T, function: str, dim: int, index: TensorCore, source: TensorCore) -> tuple[Op, Op, Op, int]:
    """Returns (value, places, updates, axis), numbers as vectors of one element."""
    needs_dtype(self, function, "source", source)
    line = _vector(function, index)
    op = self.read()
    axis = axis_of(function, op.shape, dim)
    op, updates = reshape(op, op.shape or (1,)), source.read()
    wanted = (*op.shape[:axis], *line.shape, *op.shape[axis + 1 :])
    if updates.shape != wanted and (updates.shape or (1,)) != wanted:
        raise ShapeError(f"{function}: source of shape {source.shape} must be {wanted}: {self.shape} at {index.shape}.")
    return op, along_axis(function, line, op.shape, axis), reshape(updates, wanted), axis


def _vector(function: str, index: TensorCore) -> Op:
    """Returns an index of at most one axis as a vector."""
    op = integer_index(function, index)
    if len(op.shape) > 1:
        raise ShapeError(f"{function}: index must have one axis, got {index.shape}.")
    return reshape(op, op.shape or (1,))


def _scattered_slices(base: Op, places: Op, updates: Op, code: OpCode | None, axis: int) -> Op:
    return scatter(base, places, updates, code, axis, 0)
