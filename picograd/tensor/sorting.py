"""Order along an axis: argsort, sort, topk.

In:    tensors
Out:   `Sorting`
Next:  picograd/tensor/creation.py
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self, SupportsIndex

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of
from picograd.tensor.indexing import Indexing
from picograd.tensor.variable import known


class SortResult(NamedTuple):
    """What sort and topk return.

    values:   the elements in order
    indices:  where each stood, int64
    """

    values: Any
    indices: Any


class Sorting(Indexing):
    """Sorts are stable: equal elements keep their order. NaN counts as greater than every number."""

    __slots__ = ()

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """Returns where the elements stand that make the order along `dim`, int64; greatest first if `descending`.

        >>> Tensor([3, 1, 2]).argsort()
        Tensor([1, 2, 0])
        """
        op = self.read()
        if not op.shape:
            return self.from_op(Op(OpCode.CONST, dtypes.int64, (), 0), self.cell.device)
        order = Op(OpCode.SORT, dtypes.int64, (op,), (axis_of("argsort", op.shape, dim), descending))
        return self.from_op(order, self.cell.device)

    def sort(self, dim: int = -1, descending: bool = False) -> SortResult:
        """Returns the elements in order along `dim`, and where they stood; greatest first if `descending`.

        >>> Tensor([3, 1, 2]).sort(descending=True).values
        Tensor([3, 2, 1])
        """
        return self._taken(self.argsort(dim, descending), dim)

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> SortResult:  # noqa: A002
        """Returns the k greatest elements along `dim`, or the least unless `largest`, and where they stood.

        They come in order whether `sorted` says so or not.

        Raises:
          ArgumentError: k is no integer, negative, or more than the axis has.

        >>> Tensor([3, 1, 2]).topk(2)
        SortResult(values=Tensor([3, 2]), indices=Tensor([0, 2]))
        """
        length = known("topk", self.shape, axis_of("topk", self.op.shape, dim)) if self.ndim else 1
        if not isinstance(k, SupportsIndex) or not 0 <= (k := k.__index__()) <= length:
            raise ArgumentError(f"topk: k must be from 0 to {length}, the length of axis {dim} of {self.shape}; got {k}.")
        order = self.argsort(dim, largest)
        return self._taken(order.narrow(dim, 0, k) if self.ndim else order, dim)

    def _taken(self, order: Self, dim: int) -> SortResult:
        return SortResult(self.take_along_dim(order, dim) if self.ndim else self, order)
