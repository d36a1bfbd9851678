"""Operators: arithmetic, comparisons and bit operations, with either operand first."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError
from picograd.ir.build import cast, unary
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor import pointwise
from picograd.tensor.arguments import meeting_device, value_at
from picograd.tensor.build import broadcast_shapes, broadcast_to, computed_in, divisor, promoted
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.inplace import in_place
from picograd.tensor.intake import fitting

__all__ = ["bitwise_not", "eq", "ge", "gt", "le", "logical_and", "logical_not", "logical_or", "lt", "ne", "not_equal"]

OPERANDS: Any = (TensorCore, int, float, np.generic, np.ndarray, Op)  # types of the other operand; scalar_of handles Ops


# ---- operands ----
def _operands(self: T, function: str, other: Any, kinds: str = "biuf") -> tuple[Op, Op]:
    """Returns both operands in one dtype and shape; an array is copied to a tensor.

    Raises:
      DTypeError:  `other` is not a tensor, an array or a number of 64 bits, or the common dtype is not one of `kinds`.
      ShapeError:  the shapes do not broadcast.
      DeviceError: the tensors are on different devices, and neither is a CPU tensor without axes.
    """
    lhs = self.read()
    rhs: Op | None
    if isinstance(other, TensorCore):
        rhs = other.read()
        if other.cell.device is not self.cell.device:  # device names are interned
            device = meeting_device(function, self, other)
            lhs, rhs = value_at(self, device), value_at(other, device)
        dtype = lhs.dtype if lhs.dtype is rhs.dtype else promoted(lhs, rhs)
    elif isinstance(other, np.ndarray):
        return self._operands(function, type(self)(other, device=self.device), kinds)
    else:
        rhs, value = None, scalar_of(function, other)
        dtype = dtypes.promote_scalar(lhs.dtype, value)
        if dtype.kind in "iu" and not -(1 << 63) <= value < 1 << 64:
            raise DTypeError(f"{function}: {value} does not fit 64 bits.", hint="write it as a float.")
    if dtype.kind not in kinds:
        dtype = _lifted(self, function, dtype, kinds)
    if lhs.dtype is not dtype:
        lhs = cast(lhs, dtype)
    if rhs is None:
        # NOTE: the number is cast to the common dtype directly: through uint8, 1000 in x / 1000 would be 232.
        return lhs, filled(value, dtype, lhs.shape)
    if rhs.dtype is not dtype:
        rhs = cast(rhs, dtype)
    if lhs.shape != rhs.shape:
        shape = broadcast_shapes(function, lhs.shape, rhs.shape)
        lhs, rhs = broadcast_to(lhs, shape), broadcast_to(rhs, shape)
    return lhs, rhs


def _lifted(self: T, function: str, dtype: DType, kinds: str) -> DType:
    """Returns the default float for the operands of a division; else raises DTypeError."""
    if kinds == "f":
        return dtypes.default_float
    if dtype.kind == "b" and kinds == "iuf":
        raise DTypeError(f"{function}: bools have no {function}, got {dtype} of shape {self.shape}.", hint="use ^, & or |.")
    raise DTypeError(f"{function}: needs integers or bools, got {dtype} of shape {self.shape}.")


def result_of(self: T, function: str, op: Op, other: Any) -> T:
    """Returns an Op as a tensor on the device of both operands; an array is on that of `self`."""
    if isinstance(other, TensorCore) and other.cell.device is not self.cell.device:
        return self.from_op(op, meeting_device(function, self, other))
    return self.from_op(op, self.cell.device if not isinstance(other, np.ndarray) else str(self.device))


def binary(self: T, function: str, code: OpCode, other: Any, kinds: str = "biuf", swap: bool = False) -> T:
    lhs, rhs = self._operands(function, other, kinds)
    return result_of(self, function, Op(code, lhs.dtype, (rhs, lhs) if swap else (lhs, rhs)), other)


def _compare(self: T, function: str, code: OpCode, other: Any, swap: bool = False) -> T:
    lhs, rhs = self._operands(function, other)
    if swap:
        lhs, rhs = rhs, lhs
    return result_of(self, function, Op(code, dtypes.bool_, (lhs, rhs)), other)


# ---- arithmetic ----
def add(self: T, other: Operand, *, alpha: Scalar = 1) -> T:
    """Returns self + alpha * other, broadcast.

    >>> Tensor([1, 2]).add(Tensor([10, 20]), alpha=2)
    Tensor([21, 42])
    """
    lhs, rhs = self._operands("add", other)
    if alpha.__class__ is not int or alpha != 1:
        rhs = scaled("add", rhs, alpha)
    return result_of(self, "add", Op(OpCode.OR if lhs.dtype.kind == "b" else OpCode.ADD, lhs.dtype, (lhs, rhs)), other)


def sub(self: T, other: Operand, *, alpha: Scalar = 1) -> T:
    """Returns self - alpha * other, broadcast.

    >>> Tensor([1, 2]).sub(1)
    Tensor([0, 1])
    """
    lhs, rhs = self._operands("sub", other, "iuf")
    if alpha.__class__ is not int or alpha != 1:
        rhs = scaled("sub", rhs, alpha)
    return result_of(self, "sub", Op(OpCode.SUB, lhs.dtype, (lhs, rhs)), other)


def mul(self: T, other: Operand) -> T:
    """Returns self * other, broadcast.

    >>> Tensor([1, 2]).mul(0.5)
    Tensor([0.5, 1. ])
    """
    lhs, rhs = self._operands("mul", other)
    code = OpCode.AND if lhs.dtype.kind == "b" else OpCode.MUL
    return result_of(self, "mul", Op(code, lhs.dtype, (lhs, rhs)), other)


def div(self: T, other: Operand, *, rounding_mode: str | None = None) -> T:
    """Returns self / other as a float; rounding_mode "floor" or "trunc" rounds the quotient.

    Raises:
      ArgumentError: an unknown rounding_mode; an integer divided by 0 with rounding (a tensor: when it is computed).

    >>> Tensor([7, -7]).div(2, rounding_mode="trunc")
    Tensor([ 3, -3])
    """
    if rounding_mode == "floor":
        return self.floor_divide(other)
    if rounding_mode not in (None, "trunc"):
        raise ArgumentError(f'div: rounding_mode must be None, "floor" or "trunc", got {rounding_mode!r}.')
    if rounding_mode is None:
        return binary(self, "div", OpCode.DIV, other, "f")
    lhs, rhs = self._operands("div", other, "iuf")
    return result_of(self, "div", pointwise.trunc_divide(lhs, divisor(rhs)), other)


def floor_divide(self: T, other: Operand) -> T:
    """Returns the quotient rounded down.

    Raises:
      DTypeError:    both operands are bools.
      ArgumentError: an integer divided by 0 (a tensor: when it is computed).

    >>> Tensor([7, -7]).floor_divide(2)
    Tensor([ 3, -4])
    """
    return self._rounded("floor_divide", OpCode.IDIV, other)


def remainder(self: T, other: Operand) -> T:
    """Returns the remainder of floor division; it has the sign of the divisor; the divisor's gradient is NaN at 0.

    Raises:
      DTypeError:    both operands are bools.
      ArgumentError: an integer divided by 0 (a tensor: when it is computed).

    >>> Tensor([7, -7]).remainder(3)
    Tensor([1, 2])
    """
    return self._rounded("remainder", OpCode.MOD, other)


def _rounded(self: T, function: str, code: OpCode, other: Operand, swap: bool = False) -> T:
    """Returns a quotient rounded down, or its remainder."""
    lhs, rhs = self._operands(function, other, "iuf")
    lhs, rhs = (rhs, divisor(lhs)) if swap else (lhs, divisor(rhs))
    if code is OpCode.IDIV and lhs.dtype.is_float:
        return result_of(self, function, computed_in(lhs.dtype.compute_dtype, pointwise.floor_divide, (lhs, rhs)), other)
    return result_of(self, function, Op(code, lhs.dtype, (lhs, rhs)), other)


def pow(self: T, exponent: Operand) -> T:
    """Returns self ** exponent; small constant exponents are products, as in PyTorch.

    At zeros and infinities gradients are limits; PyTorch's are NaN there, from 0 times infinity.

    Raises:
      ArgumentError: an integer base with a negative integer exponent.
      DTypeError:    both are bools.

    >>> Tensor([2.0, 3.0]).pow(2)
    Tensor([4., 9.])
    """
    if not isinstance(exponent, (TensorCore, np.ndarray)):
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
    return binary(self, "pow", OpCode.POW, exponent, "iuf")


def __rpow__(self: T, base: Any) -> T:
    return binary(self, "pow", OpCode.POW, base, "iuf", swap=True)


def __add__(self: T, other: Any) -> T:
    return self.add(other) if isinstance(other, OPERANDS) else NotImplemented


def __sub__(self: T, other: Any) -> T:
    return binary(self, "sub", OpCode.SUB, other, "iuf") if isinstance(other, OPERANDS) else NotImplemented


def __mul__(self: T, other: Any) -> T:
    return self.mul(other) if isinstance(other, OPERANDS) else NotImplemented


def __truediv__(self: T, other: Any) -> T:
    return binary(self, "div", OpCode.DIV, other, "f") if isinstance(other, OPERANDS) else NotImplemented


def __floordiv__(self: T, other: Any) -> T:
    return self.floor_divide(other) if isinstance(other, OPERANDS) else NotImplemented


def __mod__(self: T, other: Any) -> T:
    return self.remainder(other) if isinstance(other, OPERANDS) else NotImplemented


def __pow__(self: T, other: Any) -> T:
    return self.pow(other) if isinstance(other, OPERANDS) else NotImplemented


def __radd__(self: T, other: Any) -> T:
    return self.add(other)


def __rsub__(self: T, other: Any) -> T:
    return binary(self, "sub", OpCode.SUB, other, "iuf", swap=True)


def __rmul__(self: T, other: Any) -> T:
    return self.mul(other)


def __rtruediv__(self: T, other: Any) -> T:
    return binary(self, "div", OpCode.DIV, other, "f", swap=True)


def __rfloordiv__(self: T, other: Any) -> T:
    return self._rounded("floor_divide", OpCode.IDIV, other, swap=True)


def __rmod__(self: T, other: Any) -> T:
    return self._rounded("remainder", OpCode.MOD, other, swap=True)


def __neg__(self: T) -> T:
    if self.dtype.kind == "b":
        raise DTypeError(f"neg: bools have no negative, got shape {self.shape}.", hint="use ~x.")
    return self.from_op(unary(OpCode.NEG, self.read()), self.cell.device)


def __pos__(self: T) -> T:
    return self


# ---- comparisons ----
def lt(self: T, other: Operand) -> T:
    """Returns True if self < other, element by element.

    >>> Tensor([1, 2, 3]).lt(2)
    Tensor([ True, False, False])
    """
    return _compare(self, "lt", OpCode.CMPLT, other)


def le(self: T, other: Operand) -> T:
    """Returns True if self <= other, element by element.

    >>> Tensor([1, 2, 3]).le(2)
    Tensor([ True,  True, False])
    """
    return _compare(self, "le", OpCode.CMPLE, other)


def gt(self: T, other: Operand) -> T:
    """Returns True if self > other, element by element.

    >>> Tensor([1, 2, 3]).gt(2)
    Tensor([False, False,  True])
    """
    return _compare(self, "gt", OpCode.CMPLT, other, swap=True)


def ge(self: T, other: Operand) -> T:
    """Returns True if self >= other, element by element.

    >>> Tensor([1, 2, 3]).ge(2)
    Tensor([False,  True,  True])
    """
    return _compare(self, "ge", OpCode.CMPLE, other, swap=True)


def eq(self: T, other: Operand) -> T:
    """Returns True if self == other, element by element.

    >>> Tensor([1, 2, 3]).eq(2)
    Tensor([False,  True, False])
    """
    return _compare(self, "eq", OpCode.CMPEQ, other)


def ne(self: T, other: Operand) -> T:
    """Returns True if self != other, element by element.

    >>> Tensor([1, 2, 3]).ne(2)
    Tensor([ True, False,  True])
    """
    return _compare(self, "ne", OpCode.CMPNE, other)


def __lt__(self: T, other: Any) -> T:
    return _compare(self, "lt", OpCode.CMPLT, other) if isinstance(other, OPERANDS) else NotImplemented


def __le__(self: T, other: Any) -> T:
    return _compare(self, "le", OpCode.CMPLE, other) if isinstance(other, OPERANDS) else NotImplemented


def __gt__(self: T, other: Any) -> T:
    return _compare(self, "gt", OpCode.CMPLT, other, swap=True) if isinstance(other, OPERANDS) else NotImplemented


def __ge__(self: T, other: Any) -> T:
    return _compare(self, "ge", OpCode.CMPLE, other, swap=True) if isinstance(other, OPERANDS) else NotImplemented


def __eq__(self: T, other: Any) -> T:
    return _compare(self, "eq", OpCode.CMPEQ, other) if isinstance(other, OPERANDS) else NotImplemented


def __ne__(self: T, other: Any) -> T:
    return _compare(self, "ne", OpCode.CMPNE, other) if isinstance(other, OPERANDS) else NotImplemented


# ---- bits ----
def __and__(self: T, other: Any) -> T:
    """Returns the bits set in both; for bools: and.

    >>> Tensor([6, 5]) & 3
    Tensor([2, 1])
    """
    return binary(self, "bitwise_and", OpCode.AND, other, "biu")


def __or__(self: T, other: Any) -> T:
    """Returns the bits set in at least one; for bools: or.

    >>> Tensor([6, 5]) | 3
    Tensor([7, 7])
    """
    return binary(self, "bitwise_or", OpCode.OR, other, "biu")


def __xor__(self: T, other: Any) -> T:
    """Returns the bits that differ; for bools: exclusive or.

    >>> Tensor([6, 5]) ^ 3
    Tensor([5, 6])
    """
    return binary(self, "bitwise_xor", OpCode.XOR, other, "biu")


def __lshift__(self: T, other: Any) -> T:
    """Returns self * 2 ** other, wrapping as integers do.

    >>> Tensor([1, 3]) << 2
    Tensor([ 4, 12])
    """
    return binary(self, "bitwise_left_shift", OpCode.SHL, other, "iu")


def __rshift__(self: T, other: Any) -> T:
    """Returns floor(self / 2 ** other).

    >>> Tensor([5, -5]) >> 1
    Tensor([ 2, -3])
    """
    return binary(self, "bitwise_right_shift", OpCode.SHR, other, "iu")


def __rlshift__(self: T, other: Any) -> T:
    return binary(self, "bitwise_left_shift", OpCode.SHL, other, "iu", swap=True)


def __rrshift__(self: T, other: Any) -> T:
    return binary(self, "bitwise_right_shift", OpCode.SHR, other, "iu", swap=True)


def __invert__(self: T) -> T:
    """Returns all bits inverted: -1 - self; for bools: not.

    >>> ~Tensor([0, 5])
    Tensor([-1, -6])
    """
    return binary(self, "bitwise_not", OpCode.XOR, True if self.dtype.kind == "b" else -1, "biu")


__rand__, __ror__, __rxor__ = __and__, __or__, __xor__
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = __and__, __or__, __xor__, __invert__
bitwise_left_shift, bitwise_right_shift = __lshift__, __rshift__


def logical_not(self: T) -> T:
    """Returns True for zeros.

    >>> Tensor([0, 2]).logical_not()
    Tensor([ True, False])
    """
    return self.eq(0)


def logical_and(self: T, other: Operand) -> T:
    """Returns True if both are nonzero.

    >>> Tensor([0, 2]).logical_and(Tensor([1, 1]))
    Tensor([False,  True])
    """
    return self.ne(0) & is_true("logical_and", other)


def logical_or(self: T, other: Operand) -> T:
    """Returns True if at least one is nonzero.

    >>> Tensor([0, 2]).logical_or(Tensor([0, 0]))
    Tensor([False,  True])
    """
    return self.ne(0) | is_true("logical_or", other)


subtract, multiply, divide, true_divide = sub, mul, div, div
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne

# ---- in place ----
add_, sub_, mul_, div_, pow_ = in_place(add), in_place(sub), in_place(mul), in_place(div), in_place(pow)
floor_divide_, remainder_ = in_place(floor_divide), in_place(remainder)
lt_, le_, gt_, ge_, eq_, ne_ = in_place(lt), in_place(le), in_place(gt), in_place(ge), in_place(eq), in_place(ne)
logical_not_, logical_and_, logical_or_ = in_place(logical_not), in_place(logical_and), in_place(logical_or)
bitwise_and_, bitwise_or_ = in_place(__and__, "bitwise_and_"), in_place(__or__, "bitwise_or_")
bitwise_xor_, bitwise_not_ = in_place(__xor__, "bitwise_xor_"), in_place(__invert__, "bitwise_not_")
bitwise_left_shift_ = in_place(__lshift__, "bitwise_left_shift_")
bitwise_right_shift_ = in_place(__rshift__, "bitwise_right_shift_")

subtract_, multiply_, divide_, true_divide_ = sub_, mul_, div_, div_
greater_, greater_equal_, less_, less_equal_, not_equal_ = gt_, ge_, lt_, le_, ne_
__iadd__, __isub__, __imul__, __itruediv__, __ipow__ = add_, sub_, mul_, div_, pow_
__ifloordiv__, __imod__ = floor_divide_, remainder_
__iand__, __ior__, __ixor__ = bitwise_and_, bitwise_or_, bitwise_xor_
__ilshift__, __irshift__ = bitwise_left_shift_, bitwise_right_shift_


def is_true(function: str, other: Operand) -> Operand:
    """Returns whether elements are nonzero."""
    return other.ne(0) if isinstance(other, TensorCore) else bool(scalar_of(function, other))


def scalar_of(function: str, value: Any) -> Scalar:
    """Returns a number as a Python scalar.

    Raises:
      DTypeError: it is not a number.
      ShapeError: it is a symbolic length, which does not have a single value; Python would compare it as an object.
    """
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, Op):
        return operator.index(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    raise DTypeError(
        f"{function}: the other operand must be a Tensor or a number, got {type(value).__name__}.", hint="Tensor(value)"
    )


def scaled(function: str, op: Op, factor: Scalar | TensorCore, name: str = "alpha") -> Op:
    """Returns factor * op in the dtype of op.

    Raises:
      DTypeError: a float factor for integers or bools, or a bool factor for anything but bools.
    """
    if isinstance(factor, TensorCore):
        return op * broadcast_to(cast(factor.read(), op.dtype), op.shape)
    value = scalar_of(function, factor)
    if isinstance(value, float) and not op.dtype.is_float or isinstance(value, bool) and op.dtype.kind != "b":
        raise DTypeError(f"{function}: {name}={value} does not fit {op.dtype}.", hint="an integer, or x.float() first.")
    if op.dtype.kind == "b":
        return op if value else filled(False, op.dtype, op.shape)
    return op if value == 1 else op * value
