"""Shapes in place: the tensor becomes another view of its storage.

In:    tensors
Out:   `InPlaceShapes`; other tensors on the same storage keep their shapes
Next:  picograd/tensor/products/matmul.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from picograd.dtype import Scalar
from picograd.errors import GradientError, ShapeError
from picograd.ir.build import both, compare, positions, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import static
from picograd.tensor.change import last_change
from picograd.tensor.exchange.host import fitting
from picograd.tensor.inplace.pairs import InPlacePairs
from picograd.tensor.modes import enable_grad


class InPlaceShapes(InPlacePairs):
    """squeeze_ unsqueeze_ transpose_ t_ ...: views that take this tensor's place; fill_diagonal_."""

    __slots__ = ()

    def _viewed_in_place(self, function: str, method: Callable[..., Self], *args: Any) -> Self:
        """Makes this tensor show what a method of it returns; returns self.

        Raises:
          GradientError: it is a leaf, or keeps its gradient, which has its shape.
        """
        if any(code is OpCode.LEAF for code, _ in self.steps):
            raise GradientError(
                f"{function}: a tensor of shape {self.shape} that collects gradients keeps its shape.",
                hint=f"y = x.{function.removesuffix('_')}(...)",
            )
        with enable_grad():  # under no_grad, too, the value stays the one that it was
            view = method(*args)
        if view.steps != self.steps:
            last_change.note()
            self.steps, self._shown = view.steps, None
        return self

    def squeeze_(self, dim: int | Sequence[int] | None = None) -> Self:
        """Leaves out axes of length 1, all of them or those named, in place.

        Raises:
          GradientError: a tensor that collects gradients.

        >>> Tensor.zeros(1, 3, 1).squeeze_().shape
        (3,)
        """
        return self._viewed_in_place("squeeze_", self.squeeze, dim)

    def unsqueeze_(self, dim: int) -> Self:
        """Puts an axis of length 1 at `dim` in place.

        Raises:
          GradientError: a tensor that collects gradients.

        >>> Tensor.zeros(3).unsqueeze_(0).shape
        (1, 3)
        """
        return self._viewed_in_place("unsqueeze_", self.unsqueeze, dim)

    def transpose_(self, dim0: int, dim1: int) -> Self:
        """Exchanges the axes `dim0` and `dim1` in place.

        Raises:
          GradientError: a tensor that collects gradients.

        >>> Tensor.zeros(2, 3, 4).transpose_(0, 2).shape
        (4, 3, 2)
        """
        return self._viewed_in_place("transpose_", self.transpose, dim0, dim1)

    swapdims_ = transpose_

    def swapaxes_(self, axis0: int, axis1: int) -> Self:
        """Exchanges the axes `axis0` and `axis1` in place.

        Raises:
          GradientError: a tensor that collects gradients.

        >>> Tensor.zeros(2, 3, 4).swapaxes_(0, 2).shape
        (4, 3, 2)
        """
        return self._viewed_in_place("swapaxes_", self.swapaxes, axis0, axis1)

    def t_(self) -> Self:
        """Exchanges both axes of a matrix in place; a vector stays as it is.

        Raises:
          GradientError: a tensor that collects gradients.
          ShapeError:    more than two axes.

        >>> Tensor.zeros(2, 3).t_().shape
        (3, 2)
        """
        return self._viewed_in_place("t_", self.t)

    def fill_diagonal_(self, fill_value: Scalar, wrap: bool = False) -> Self:
        """Stores the number `fill_value` along the diagonal in place.

        Args:
          fill_value:  what is stored
          wrap:        the diagonal of a matrix with more rows than columns begins anew after each block of n + 1 rows

        Raises:
          ShapeError: fewer than two axes, or more than two that are not of one length.

        >>> Tensor.zeros(2, 3).fill_diagonal_(7)
        Tensor([[7., 0., 0.],
                [0., 7., 0.]])
        """
        shape = tuple(map(static, self.op.shape))
        if len(shape) < 2 or (len(shape) > 2 and len({*shape}) > 1):
            raise ShapeError(f"fill_diagonal_: needs two axes, or more of one length, got shape {shape}.")
        rows = positions(shape, 0)
        if wrap and len(shape) == 2:
            rows = Op(OpCode.MOD, rows.dtype, (rows, filled(shape[1] + 1, rows.dtype, shape)))
        chosen = compare(OpCode.CMPEQ, rows, positions(shape, 1))
        for axis in range(2, len(shape)):
            chosen = both(chosen, compare(OpCode.CMPEQ, rows, positions(shape, axis)))
        value = filled(fitting("fill_diagonal_", fill_value, self.dtype), self.dtype, shape)
        return self.write("fill_diagonal_", where(chosen, value, self.read()))
