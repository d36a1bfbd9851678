"""Operators in place: the result is written where the left operand is stored.

In:    tensors and Python scalars
Out:   `InPlace`; every view of the same storage sees what was written
Next:  picograd/tensor/casts.py
"""

from __future__ import annotations

from typing import Any, Self

from picograd.dtype import Scalar
from picograd.errors import DTypeError, ShapeError
from picograd.ir.op import filled
from picograd.tensor.build import CATEGORY, broadcast_to
from picograd.tensor.core import TensorCore
from picograd.tensor.elementwise import Elementwise, Operand


class InPlace(Elementwise):
    """add_ sub_ mul_ div_ pow_ and the forms with =, copy_ fill_ zero_."""

    __slots__ = ()

    def _in_place(self, function: str, result: TensorCore) -> Self:
        """Stores a result of this tensor's shape and category here.

        Raises:
          DTypeError: a float result does not fit an integer tensor, nor a number a bool one.
          ShapeError: broadcasting made the result larger.
        """
        if CATEGORY[result.dtype.kind] > CATEGORY[self.dtype.kind]:
            raise DTypeError(
                f"{function}: a result of dtype {result.dtype} does not fit in place into {self.dtype}.",
                hint=f"x = x.cast(dtypes.{result.dtype}) first.",
            )
        if result.shape != self.shape:
            raise ShapeError(f"{function}: the result has shape {result.shape}, it does not fit into {self.shape}.")
        self.cell.device = self.other_device(function, result)
        return self.write(function, result.op)

    def add_(self, other: Operand, *, alpha: Scalar = 1) -> Self:
        """Adds alpha * other in place.

        >>> Tensor([1, 2]).add_(1)
        Tensor([2, 3])
        """
        return self._in_place("add_", self.add(other, alpha=alpha))

    def sub_(self, other: Operand, *, alpha: Scalar = 1) -> Self:
        """Subtracts alpha * other in place.

        >>> Tensor([1, 2]).sub_(1)
        Tensor([0, 1])
        """
        return self._in_place("sub_", self.sub(other, alpha=alpha))

    def mul_(self, other: Operand) -> Self:
        """Multiplies by `other` in place.

        >>> Tensor([1, 2]).mul_(3)
        Tensor([3, 6])
        """
        return self._in_place("mul_", self.mul(other))

    def div_(self, other: Operand) -> Self:
        """Divides by `other` in place.

        >>> Tensor([1.0, 2.0]).div_(2)
        Tensor([0.5, 1. ])
        """
        return self._in_place("div_", self.div(other))

    def pow_(self, exponent: Operand) -> Self:
        """Raises to the power `exponent` in place.

        >>> Tensor([2.0, 3.0]).pow_(2)
        Tensor([4., 9.])
        """
        return self._in_place("pow_", self.pow(exponent))

    def __ifloordiv__(self, other: Any) -> Self:
        return self._in_place("floor_divide_", self.floor_divide(other))

    def __imod__(self, other: Any) -> Self:
        return self._in_place("remainder_", self.remainder(other))

    def __iand__(self, other: Any) -> Self:
        return self._in_place("bitwise_and_", self & other)

    def __ior__(self, other: Any) -> Self:
        return self._in_place("bitwise_or_", self | other)

    def __ixor__(self, other: Any) -> Self:
        return self._in_place("bitwise_xor_", self ^ other)

    __iadd__, __isub__, __imul__, __itruediv__, __ipow__ = add_, sub_, mul_, div_, pow_

    def copy_(self, source: TensorCore) -> Self:
        """Stores `source`, broadcast and cast to this tensor's shape and dtype, in place.

        >>> Tensor.zeros(2).copy_(Tensor([1, 2]))
        Tensor([1., 2.])
        """
        self.cell.device = self.other_device("copy_", source)
        return self.write("copy_", broadcast_to(source.read(), self.op.shape))

    def fill_(self, value: Scalar) -> Self:
        """Stores the number `value` everywhere, in place.

        >>> Tensor.zeros(2).fill_(7)
        Tensor([7., 7.])
        """
        return self.write("fill_", filled(value, self.dtype, self.op.shape))

    def zero_(self) -> Self:
        """Stores 0 everywhere, in place.

        >>> Tensor([1, 2]).zero_()
        Tensor([0, 0])
        """
        return self.write("zero_", filled(0, self.dtype, self.op.shape))
