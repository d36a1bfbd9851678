"""Operators: arithmetic, comparisons and bits, both operand orders, and their forms in place.

In:    tensors and Python scalars
Out:   `Elementwise`
Next:  picograd/tensor/pointwise.py
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor import pointwise
from picograd.tensor.build import CATEGORY, broadcast_shapes, broadcast_to, cast, number, promoted, unary
from picograd.tensor.core import TensorCore
from picograd.tensor.host import fitting
from picograd.tensor.movement import Movement

Operand = TensorCore | Scalar


class Elementwise(Movement):
    """Operators, with PyTorch's promotion and broadcasting."""

    __slots__ = ()
    __hash__ = object.__hash__

    # ---- the one way in ----
    def _operands(self, function: str, other: Any, kinds: str = "biuf") -> tuple[Op, Op]:
        """Returns both operands with one dtype and one shape.

        Raises:
          DTypeError: `other` is neither a tensor nor a number (of 64 bits), or the common dtype is not of `kinds`.
          ShapeError: the shapes do not broadcast.
        """
        lhs = self.read()
        rhs: Op | None
        if isinstance(other, TensorCore):
            rhs = other.read()
            dtype = lhs.dtype if lhs.dtype is rhs.dtype else promoted(lhs, rhs)
        else:
            value = scalar_of(function, other)
            dtype = dtypes.promote_scalar(lhs.dtype, value)
            rhs = None
            if dtype.kind in "iu" and not -(1 << 63) <= value < 1 << 64:
                raise DTypeError(f"{function}: {value} does not fit 64 bits.", hint="write it as a float.")
        if dtype.kind not in kinds:
            dtype = self._lifted(function, dtype, kinds)
        lhs = cast(lhs, dtype)
        # NOTE: the number becomes the common dtype at once: by way of uint8, 1000 in x / 1000 would be 232.
        rhs = number(value, dtype, lhs.shape) if rhs is None else cast(rhs, dtype)
        if lhs.shape != rhs.shape:
            shape = broadcast_shapes(function, lhs.shape, rhs.shape)
            lhs, rhs = broadcast_to(lhs, shape), broadcast_to(rhs, shape)
        return lhs, rhs

    def _lifted(self, function: str, dtype: DType, kinds: str) -> DType:
        if kinds == "f":
            return dtypes.default_float
        if dtype.kind == "b" and kinds == "iuf":
            raise DTypeError(
                f"{function}: bools have no {function}, got {dtype} of shape {self.shape}.", hint="use ^, & or |."
            )
        raise DTypeError(f"{function}: needs integers or bools, got {dtype} of shape {self.shape}.")

    def _result(self, function: str, op: Op, other: Any = None) -> Self:
        if isinstance(other, TensorCore) and other.cell.device is not self.cell.device:
            return self.from_op(op, self.other_device(function, other))
        return self.from_op(op, self.cell.device)

    def _binary(self, function: str, code: OpCode, other: Any, kinds: str = "biuf", swap: bool = False) -> Self:
        lhs, rhs = self._operands(function, other, kinds)
        if swap:
            lhs, rhs = rhs, lhs
        return self._result(function, Op(code, lhs.dtype, (lhs, rhs)), other)

    def _compare(self, function: str, code: OpCode, other: Any, swap: bool = False) -> Self:
        lhs, rhs = self._operands(function, other)
        if swap:
            lhs, rhs = rhs, lhs
        return self._result(function, Op(code, dtypes.bool_, (lhs, rhs)), other)

    # ---- arithmetic ----
    def add(self, other: Operand, *, alpha: Scalar = 1) -> Self:
        """Returns self + alpha * other, broadcast."""
        if alpha != 1:
            other = other * alpha  # type: ignore[operator]
        lhs, rhs = self._operands("add", other)
        return self._result("add", Op(OpCode.OR if lhs.dtype.kind == "b" else OpCode.ADD, lhs.dtype, (lhs, rhs)), other)

    def sub(self, other: Operand, *, alpha: Scalar = 1) -> Self:
        """Returns self - alpha * other, broadcast."""
        if alpha != 1:
            other = other * alpha  # type: ignore[operator]
        return self._binary("sub", OpCode.SUB, other, "iuf")

    def mul(self, other: Operand) -> Self:
        """Returns self * other, broadcast."""
        lhs, rhs = self._operands("mul", other)
        code = OpCode.AND if lhs.dtype.kind == "b" else OpCode.MUL
        return self._result("mul", Op(code, lhs.dtype, (lhs, rhs)), other)

    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Self:
        """Returns self / other as a float; rounding_mode "floor" or "trunc" rounds the quotient."""
        if rounding_mode == "floor":
            return self.floor_divide(other)
        if rounding_mode not in (None, "trunc"):
            raise ArgumentError(f'div: rounding_mode must be None, "floor" or "trunc", got {rounding_mode!r}.')
        if rounding_mode is None:
            return self._binary("div", OpCode.DIV, other, "f")
        lhs, rhs = self._operands("div", other, "iuf")
        return self._result("div", pointwise.trunc_divide(lhs, rhs), other)

    def floor_divide(self, other: Operand, _swap: bool = False) -> Self:
        """Returns the quotient rounded to minus infinity."""
        lhs, rhs = self._operands("floor_divide", other)
        if _swap:
            lhs, rhs = rhs, lhs
        if lhs.dtype.kind == "f":
            return self._result("floor_divide", pointwise.floor_divide(lhs, rhs), other)
        return self._result("floor_divide", Op(OpCode.IDIV, lhs.dtype, (lhs, rhs)), other)

    def remainder(self, other: Operand) -> Self:
        """Returns what floor division leaves; it has the sign of the divisor."""
        return self._binary("remainder", OpCode.MOD, other)

    def pow(self, exponent: Operand) -> Self:
        """Returns self ** exponent; small constant exponents are products, as in PyTorch.

        Raises:
          ArgumentError: integers to a negative integer power.
        """
        if not isinstance(exponent, TensorCore):
            value = scalar_of("pow", exponent)
            if self.dtype.kind in "biu" and isinstance(value, int) and value < 0:
                raise ArgumentError(
                    f"pow: integers have no negative integer powers, got {self.dtype} ** {value}.",
                    hint="x.float() ** exponent",
                )
            fitting("pow", value, dtypes.promote_scalar(self.dtype, value))
            lhs = cast(self.read(), dtypes.promote_scalar(self.dtype, value))
            simple = pointwise.constant_power(lhs, value)
            if simple is not None:
                return self.from_op(simple, self.cell.device)
        return self._binary("pow", OpCode.POW, exponent)

    def __rpow__(self, base: Any) -> Self:
        return self._binary("pow", OpCode.POW, base, swap=True)

    def __add__(self, other: Any) -> Self:
        return self.add(other) if is_operand(other) else NotImplemented

    def __sub__(self, other: Any) -> Self:
        return self._binary("sub", OpCode.SUB, other, "iuf") if is_operand(other) else NotImplemented

    def __mul__(self, other: Any) -> Self:
        return self.mul(other) if is_operand(other) else NotImplemented

    def __truediv__(self, other: Any) -> Self:
        return self._binary("div", OpCode.DIV, other, "f") if is_operand(other) else NotImplemented

    def __floordiv__(self, other: Any) -> Self:
        return self.floor_divide(other) if is_operand(other) else NotImplemented

    def __mod__(self, other: Any) -> Self:
        return self.remainder(other) if is_operand(other) else NotImplemented

    def __pow__(self, other: Any) -> Self:
        return self.pow(other) if is_operand(other) else NotImplemented

    def __radd__(self, other: Any) -> Self:
        return self.add(other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary("sub", OpCode.SUB, other, "iuf", swap=True)

    def __rmul__(self, other: Any) -> Self:
        return self.mul(other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._binary("div", OpCode.DIV, other, "f", swap=True)

    def __rfloordiv__(self, other: Any) -> Self:
        return self.floor_divide(other, _swap=True)

    def __rmod__(self, other: Any) -> Self:
        return self._binary("remainder", OpCode.MOD, other, swap=True)

    def __neg__(self) -> Self:
        if self.dtype.kind == "b":
            raise DTypeError(f"neg: bools have no negative, got shape {self.shape}.", hint="use ~x.")
        return self.from_op(unary(OpCode.NEG, self.read()), self.cell.device)

    def __pos__(self) -> Self:
        return self

    # ---- comparisons ----
    def __lt__(self, other: Any) -> Self:
        return self._compare("lt", OpCode.CMPLT, other) if is_operand(other) else NotImplemented

    def __le__(self, other: Any) -> Self:
        return self._compare("le", OpCode.CMPLE, other) if is_operand(other) else NotImplemented

    def __gt__(self, other: Any) -> Self:
        return self._compare("gt", OpCode.CMPLT, other, swap=True) if is_operand(other) else NotImplemented

    def __ge__(self, other: Any) -> Self:
        return self._compare("ge", OpCode.CMPLE, other, swap=True) if is_operand(other) else NotImplemented

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._compare("eq", OpCode.CMPEQ, other) if is_operand(other) else NotImplemented

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._compare("ne", OpCode.CMPNE, other) if is_operand(other) else NotImplemented

    lt, le, gt, ge, eq, ne = __lt__, __le__, __gt__, __ge__, __eq__, __ne__

    # ---- bits ----
    def __and__(self, other: Any) -> Self:
        return self._binary("bitwise_and", OpCode.AND, other, "biu")

    def __or__(self, other: Any) -> Self:
        return self._binary("bitwise_or", OpCode.OR, other, "biu")

    def __xor__(self, other: Any) -> Self:
        return self._binary("bitwise_xor", OpCode.XOR, other, "biu")

    def __lshift__(self, other: Any) -> Self:
        return self._binary("bitwise_left_shift", OpCode.SHL, other, "iu")

    def __rshift__(self, other: Any) -> Self:
        return self._binary("bitwise_right_shift", OpCode.SHR, other, "iu")

    def __rlshift__(self, other: Any) -> Self:
        return self._binary("bitwise_left_shift", OpCode.SHL, other, "iu", swap=True)

    def __rrshift__(self, other: Any) -> Self:
        return self._binary("bitwise_right_shift", OpCode.SHR, other, "iu", swap=True)

    def __invert__(self) -> Self:
        return self._binary("bitwise_not", OpCode.XOR, True if self.dtype.kind == "b" else -1, "biu")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__
    bitwise_and, bitwise_or, bitwise_xor, bitwise_not = __and__, __or__, __xor__, __invert__
    bitwise_left_shift, bitwise_right_shift = __lshift__, __rshift__

    def logical_not(self) -> Self:
        """Returns True where the element is zero."""
        return self.eq(0)

    def logical_and(self, other: Operand) -> Self:
        """Returns True where both are not zero."""
        return self.ne(0) & (other.ne(0) if isinstance(other, Elementwise) else bool(other))

    def logical_or(self, other: Operand) -> Self:
        """Returns True where one is not zero."""
        return self.ne(0) | (other.ne(0) if isinstance(other, Elementwise) else bool(other))

    # ---- in place ----
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
        """Adds alpha * other in place."""
        return self._in_place("add_", self.add(other, alpha=alpha))

    def sub_(self, other: Operand, *, alpha: Scalar = 1) -> Self:
        """Subtracts alpha * other in place."""
        return self._in_place("sub_", self.sub(other, alpha=alpha))

    def mul_(self, other: Operand) -> Self:
        """Multiplies by `other` in place."""
        return self._in_place("mul_", self.mul(other))

    def div_(self, other: Operand) -> Self:
        """Divides by `other` in place."""
        return self._in_place("div_", self.div(other))

    def pow_(self, exponent: Operand) -> Self:
        """Raises to a power in place."""
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
        """Stores `source`, broadcast and cast to this tensor's shape and dtype, in place."""
        self.cell.device = self.other_device("copy_", source)
        return self.write("copy_", broadcast_to(source.read(), self.op.shape))

    def fill_(self, value: Scalar) -> Self:
        """Stores one number everywhere, in place."""
        return self.write("fill_", filled(fitting("fill_", value, self.dtype), self.dtype, self.op.shape))

    def zero_(self) -> Self:
        """Stores 0 everywhere, in place."""
        return self.write("zero_", filled(0, self.dtype, self.op.shape))


def is_operand(value: Any) -> bool:
    """True for what an operator takes at its other side: tensors and numbers."""
    return isinstance(value, (TensorCore, int, float, np.generic))


def scalar_of(function: str, value: Any) -> Scalar:
    """Returns a number as a Python scalar.

    Raises:
      DTypeError: it is none.
    """
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()  # type: ignore[no-any-return]
    raise DTypeError(
        f"{function}: the other operand must be a Tensor or a number, got {type(value).__name__}.", hint="Tensor(value)"
    )
