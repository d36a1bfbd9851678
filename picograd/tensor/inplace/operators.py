"""Operators in place: the result is written where the left operand is stored.

In:    tensors and Python scalars
Out:   `InPlaceOperators`; every view of the same storage sees what was written
Next:  picograd/tensor/info.py
"""

from __future__ import annotations

from typing import Self

from picograd.dtype import Scalar
from picograd.errors import DTypeError, ShapeError
from picograd.ir.op import Op, filled
from picograd.tensor.build import CATEGORY, broadcast_to
from picograd.tensor.core import TensorCore
from picograd.tensor.elements.operators import Operand, Operators, scalar_of
from picograd.tensor.exchange.host import default_device, fitting
from picograd.tensor.meeting import value_at


class InPlaceOperators(Operators):
    """add_ sub_ mul_ div_ pow_, bits, and the forms with =; copy_ fill_ zero_."""

    __slots__ = ()

    def _in_place(self, function: str, result: TensorCore) -> Self:
        """Stores a result here, which must fit."""
        op = self._fitting(function, result.op)
        if result.cell.device is not self.cell.device:
            self.cell.device = self.other_device(function, result)
        return self.write(function, op)

    def _fitting(self, function: str, result: Op) -> Op:
        """Returns a result, which is of this tensor's shape and category.

        Raises:
          DTypeError: a float result does not fit an integer tensor, nor a number a bool one.
          ShapeError: broadcasting made the result larger.
        """
        dtype, shape = self.cell.op.dtype, self.op.shape
        if CATEGORY[result.dtype.kind] > CATEGORY[dtype.kind]:
            raise DTypeError(
                f"{function}: a result of dtype {result.dtype} does not fit in place into {dtype}.",
                hint=f"x = x.cast(dtypes.{result.dtype}) first.",
            )
        if result.shape != shape:
            raise ShapeError(f"{function}: the result has shape {result.shape}, it does not fit into {shape}.")
        return result

    def add_(self, other: Operand, *, alpha: Scalar = 1) -> Self:
        """Adds alpha * other in place; where both overlap, other is read before, and PyTorch refuses.

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

    def div_(self, other: Operand, *, rounding_mode: str | None = None) -> Self:
        """Divides by `other` in place; rounding_mode "floor" or "trunc" rounds the quotient.

        >>> Tensor([1.0, 2.0]).div_(2)
        Tensor([0.5, 1. ])
        """
        return self._in_place("div_", self.div(other, rounding_mode=rounding_mode))

    def pow_(self, exponent: Operand) -> Self:
        """Raises to the power `exponent` in place.

        >>> Tensor([2.0, 3.0]).pow_(2)
        Tensor([4., 9.])
        """
        return self._in_place("pow_", self.pow(exponent))

    def floor_divide_(self, other: Operand) -> Self:
        """Stores the quotient rounded to minus infinity in place.

        >>> Tensor([7, -7]).floor_divide_(2)
        Tensor([ 3, -4])
        """
        return self._in_place("floor_divide_", self.floor_divide(other))

    def remainder_(self, other: Operand) -> Self:
        """Stores what floor division leaves in place.

        >>> Tensor([7, -7]).remainder_(3)
        Tensor([1, 2])
        """
        return self._in_place("remainder_", self.remainder(other))

    # ---- bits ----
    def bitwise_and_(self, other: Operand) -> Self:
        """Stores the bits set in both in place.

        >>> Tensor([6, 5]).bitwise_and_(3)
        Tensor([2, 1])
        """
        return self._in_place("bitwise_and_", self.bitwise_and(other))

    def bitwise_or_(self, other: Operand) -> Self:
        """Stores the bits set in one of both in place.

        >>> Tensor([6, 5]).bitwise_or_(3)
        Tensor([7, 7])
        """
        return self._in_place("bitwise_or_", self.bitwise_or(other))

    def bitwise_xor_(self, other: Operand) -> Self:
        """Stores the bits that differ in place.

        >>> Tensor([6, 5]).bitwise_xor_(3)
        Tensor([5, 6])
        """
        return self._in_place("bitwise_xor_", self.bitwise_xor(other))

    def bitwise_not_(self) -> Self:
        """Stores all bits turned over in place.

        >>> Tensor([0, 5]).bitwise_not_()
        Tensor([-1, -6])
        """
        return self._in_place("bitwise_not_", self.bitwise_not())

    def bitwise_left_shift_(self, other: Operand) -> Self:
        """Stores self * 2 ** other in place.

        >>> Tensor([1, 3]).bitwise_left_shift_(2)
        Tensor([ 4, 12])
        """
        return self._in_place("bitwise_left_shift_", self.bitwise_left_shift(other))

    def bitwise_right_shift_(self, other: Operand) -> Self:
        """Stores floor(self / 2 ** other) in place.

        >>> Tensor([5, -5]).bitwise_right_shift_(1)
        Tensor([ 2, -3])
        """
        return self._in_place("bitwise_right_shift_", self.bitwise_right_shift(other))

    __iadd__, __isub__, __imul__, __itruediv__, __ipow__ = add_, sub_, mul_, div_, pow_
    __ifloordiv__, __imod__ = floor_divide_, remainder_
    __iand__, __ior__, __ixor__ = bitwise_and_, bitwise_or_, bitwise_xor_
    __ilshift__, __irshift__ = bitwise_left_shift_, bitwise_right_shift_

    # ---- what is stored as it is ----
    def copy_(self, source: Operand) -> Self:
        """Stores `source`, a tensor or a number, broadcast and cast to this tensor's shape and dtype, in place.

        A tensor of another device is moved to this one's first.

        Raises:
          ShapeError: the source does not broadcast to this shape.

        >>> Tensor.zeros(2).copy_(Tensor([1, 2]))
        Tensor([1., 2.])
        """
        if not isinstance(source, TensorCore):
            return self.fill_(scalar_of("copy_", source))
        if source.cell.device is not None:
            self.cell.device = self.cell.device or default_device()
        value, shape = value_at(source, self.cell.device), self.op.shape
        if len(value.shape) > len(shape) or any(n not in (1, m) for n, m in zip(value.shape[::-1], shape[::-1])):
            raise ShapeError(
                f"copy_: a source of shape {source.shape} does not broadcast to {self.shape}.",
                hint="it may have fewer axes, and length 1 where this tensor is longer.",
            )
        return self.write("copy_", broadcast_to(value, shape))

    def fill_(self, value: Scalar) -> Self:
        """Stores the number `value` everywhere, in place.

        >>> Tensor.zeros(2).fill_(7)
        Tensor([7., 7.])
        """
        return self.write("fill_", filled(fitting("fill_", value, self.dtype), self.dtype, self.op.shape))

    def zero_(self) -> Self:
        """Stores 0 everywhere, in place.

        >>> Tensor([1, 2]).zero_()
        Tensor([0, 0])
        """
        return self.write("zero_", filled(0, self.dtype, self.op.shape))
