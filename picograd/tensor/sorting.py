"""Order along an axis: argsort, sort, topk.

In:    tensors
Out:   `Sorting`
Next:  picograd/tensor/ranks.py
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self, SupportsIndex

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of
from picograd.tensor.selection import Selection
from picograd.tensor.variable import known


class SortResult(NamedTuple):
    """What sort and topk return.

    values:   the elements in order
    indices:  where each stood, int64
    """

    values: Any
    indices: Any


class Sorting(Selection):
    """Sorts are stable: equal elements keep their order. NaN counts as greater than every number."""

    __slots__ = ()

    def argsort(
        self, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None
    ) -> Self:
        """Returns where the elements stand that make the order along `dim`, int64; greatest first if `descending`.

        Equal elements keep their order, whether `stable` asks for that or not.

        >>> Tensor([3, 1, 2]).argsort()
        Tensor([1, 2, 0])
        """
        op, dim = self.read(), dim if axis is None else axis
        if not op.shape:
            axis_of("argsort", op.shape, dim)
            return self.from_op(Op(OpCode.CONST, dtypes.int64, (), 0), self.cell.device)
        order = Op(OpCode.SORT, dtypes.int64, (op,), (axis_of("argsort", op.shape, dim), descending))
        return self.from_op(order, self.cell.device)

    def sort(
        self, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None
    ) -> SortResult:
        """Returns the elements in order along `dim`, and where they stood; greatest first if `descending`.

        Equal elements keep their order, whether `stable` asks for that or not.

        >>> Tensor([3, 1, 2]).sort(descending=True).values
        Tensor([3, 2, 1])
        """
        dim = dim if axis is None else axis
        return self._taken(self.argsort(dim, descending), dim)

    def msort(self) -> Self:
        """Returns the elements in order along axis 0.

        >>> Tensor([3, 1, 2]).msort()
        Tensor([1, 2, 3])
        """
        values: Self = self.sort(0).values
        return values

    def topk(
        self,
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
        dim = dim if axis is None else axis
        length = known("topk", self.shape, axis_of("topk", self.op.shape, dim)) if self.ndim else 1
        if not isinstance(k, SupportsIndex) or not 0 <= (k := k.__index__()) <= length:
            raise ArgumentError(f"topk: k must be from 0 to {length}, the length of axis {dim} of {self.shape}; got {k}.")
        order = self.argsort(dim, largest)
        return self._taken(order.narrow(dim, 0, k) if self.ndim else order, dim)

    def _taken(self, order: Self, dim: int) -> SortResult:
        return SortResult(self.take_along_dim(order, dim) if self.ndim else self, order)
