"""Order along an axis: argsort, sort, topk. Equal elements keep their order; NaN counts as greater than every number.

In:    tensors
Out:   `argsort`, `sort`, `msort`, `topk`: methods of Tensor
Next:  picograd/tensor/order/ranks.py
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, SupportsIndex

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.build import iota
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of, one_name
from picograd.tensor.core import T
from picograd.tensor.variable import known

__all__ = ["argsort", "msort", "sort", "topk"]


LEAST_BLOCK = 64  # elements that topk puts in order at once, at least
MANY_BLOCKS = 64  # of fewer the whole is put in order: that is fewer kernels


class SortResult(NamedTuple):
    """What sort and topk return.

    values:   the elements in order
    indices:  where each stood, int64
    """

    values: Any
    indices: Any


def argsort(self: T, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None) -> T:
    """Returns where the elements stand that make the order along `dim`, int64; greatest first if `descending`.

    Equal elements keep their order, whether `stable` asks for that or not.

    >>> Tensor([3, 1, 2]).argsort()
    Tensor([1, 2, 0])
    """
    op, dim = self.read(), one_name("argsort", dim, axis, -1)
    if not op.shape:
        axis_of("argsort", op.shape, dim)
        return self.from_op(Op(OpCode.CONST, dtypes.int64, (), 0), self.cell.device)
    order = Op(OpCode.SORT, dtypes.int64, (op,), (axis_of("argsort", op.shape, dim), descending))
    return self.from_op(order, self.cell.device)


def sort(self: T, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None) -> SortResult:
    """Returns the elements in order along `dim`, and where they stood; greatest first if `descending`.

    Equal elements keep their order, whether `stable` asks for that or not.

    >>> Tensor([3, 1, 2]).sort(descending=True).values
    Tensor([3, 2, 1])
    """
    dim = one_name("sort", dim, axis, -1)
    return _taken(self, argsort(self, dim, descending), dim)


def msort(self: T) -> T:
    """Returns the elements in order along axis 0.

    >>> Tensor([3, 1, 2]).msort()
    Tensor([1, 2, 3])
    """
    values: T = sort(self, 0).values
    return values


def topk(
    self: T,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
    *,
    axis: int | None = None,
) -> SortResult:
    """Returns the k greatest elements along `dim`, or the least unless `largest`, and where they stood.

    They come in order whether `sorted` says so or not.

    Raises:
      ArgumentError: k is no integer, negative, or more than the axis has.

    >>> Tensor([3, 1, 2]).topk(2)
    SortResult(values=Tensor([3, 2]), indices=Tensor([0, 2]))
    """
    dim = one_name("topk", dim, axis, -1)
    length = known("topk", self.shape, axis_of("topk", self.op.shape, dim)) if self.ndim else 1
    if not isinstance(k, SupportsIndex) or not 0 <= (k := k.__index__()) <= length:
        raise ArgumentError(f"topk: k must be from 0 to {length}, the length of axis {dim} of {self.shape}; got {k}.")
    if not self.ndim:
        return _taken(self, argsort(self, dim, largest), dim)
    return _taken(self, first_in_order(self.movedim(dim, -1), k, largest).movedim(-1, dim), dim)


def first_in_order(self: T, k: int, descending: bool) -> T:
    """Returns where the first k elements of the order along the last axis stand: argsort, cut after k.

    A long axis is cut into blocks, and what comes first in each is put in order in turn: a quarter of it, at most.
    Equal elements keep their order, since blocks do, and what fills up the last block stands at its end.
    Cost: n log k.
    """
    length, block = known("topk", self.shape, self.ndim - 1), max(LEAST_BLOCK, 4 * k)
    if length < MANY_BLOCKS * block:
        return argsort(self, -1, descending).narrow(-1, 0, k)
    last = math.nan if self.dtype.is_float else self.dtype.max
    filled_up = self.detach().pad((0, -length % block), value=self.dtype.min if descending else last)
    blocks = filled_up.unflatten(-1, (-(-length // block), block))
    inside = argsort(blocks, -1, descending).narrow(-1, 0, k)
    starts = self.from_op(iota(blocks.shape[-2]) * block, self.cell.device).unsqueeze(-1)
    first = first_in_order(blocks.take_along_dim(inside, -1).flatten(-2), k, descending)
    return (inside + starts).flatten(-2).take_along_dim(first, -1)


def _taken(self: T, order: T, dim: int) -> SortResult:
    return SortResult(self.take_along_dim(order, dim) if self.ndim else self, order)
