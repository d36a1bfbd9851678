"""Short names for the scalar Ops that functions are written with."""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.ir.build import both as both
from picograd.ir.build import cast as cast
from picograd.ir.build import compare
from picograd.ir.build import where as where
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode


def like(value: Scalar, x: Op) -> Op:
    """Returns a constant of the dtype of x."""
    return const(value, x.dtype)


def fma(a: Op, b: Op | float, c: Op | float) -> Op:
    """Returns a * b + c with one rounding."""
    b, c = (v if isinstance(v, Op) else like(v, a) for v in (b, c))
    return Op(OpCode.FMA, a.dtype, (a, b, c))


def multiply_add(a: Op, b: Op, c: Op, has_fma: bool = True) -> Op:
    """Returns a * b + c: for floats with one rounding, or two where no instruction does both."""
    a, b = (cast(x, c.dtype) if x.dtype.is_narrow else x for x in (a, b))
    if c.dtype.is_float and has_fma:
        return Op(OpCode.FMA, c.dtype, (a, b, c))
    if c.dtype is dtypes.bool_:
        return Op(OpCode.OR, c.dtype, (Op(OpCode.AND, c.dtype, (a, b)), c))
    return Op(OpCode.ADD, c.dtype, (Op(OpCode.MUL, c.dtype, (a, b)), c))


def less(a: Op, b: Op | Scalar) -> Op:
    return compare(OpCode.CMPLT, a, b)


def equal(a: Op, b: Op | Scalar) -> Op:
    return compare(OpCode.CMPEQ, a, b)


def differs(a: Op, b: Op | Scalar) -> Op:
    return compare(OpCode.CMPNE, a, b)


def at_most(a: Op, b: Scalar) -> Op:
    """Returns the smaller; NaN stays."""
    return Op(OpCode.MIN, a.dtype, (a, like(b, a)))


def at_least(a: Op, b: Scalar) -> Op:
    """Returns the greater; NaN stays."""
    return Op(OpCode.MAX, a.dtype, (a, like(b, a)))


def floor(a: Op) -> Op:
    return Op(OpCode.FLOOR, a.dtype, (a,))


def bitcast(a: Op, dtype: DType) -> Op:
    return a if a.dtype is dtype else Op(OpCode.BITCAST, dtype, (a,))


def bits_of(a: Op) -> Op:
    """Returns the bits of a float as an unsigned integer."""
    return bitcast(a, a.dtype.unsigned)


def _bitwise(code: OpCode, a: Op, b: Op | int) -> Op:
    return Op(code, a.dtype, (a, b if isinstance(b, Op) else like(b, a)))


def and_(a: Op, b: Op | int) -> Op:
    return _bitwise(OpCode.AND, a, b)


def or_(a: Op, b: Op | int) -> Op:
    return _bitwise(OpCode.OR, a, b)


def xor(a: Op, b: Op | int) -> Op:
    return _bitwise(OpCode.XOR, a, b)


def shl(a: Op, b: Op | int) -> Op:
    return _bitwise(OpCode.SHL, a, b)


def shr(a: Op, b: Op | int) -> Op:
    return _bitwise(OpCode.SHR, a, b)


def absolute(x: Op) -> Op:
    """Returns a float without its sign."""
    return bitcast(and_(bits_of(x), x.dtype.sign_bit - 1), x.dtype)


def with_sign_of(magnitude: Op, x: Op) -> Op:
    """Returns a float >= 0 with the sign of x."""
    return bitcast(or_(bits_of(magnitude), and_(bits_of(x), x.dtype.sign_bit)), x.dtype)


def horner(x: Op, coefficients: Sequence[float]) -> Op:
    """Returns the polynomial with these coefficients, the constant first."""
    result = like(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result
