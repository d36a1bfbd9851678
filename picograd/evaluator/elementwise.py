"""The meaning of elementwise Ops: one NumPy function each.

In:    an Op and the arrays of its sources, of one shape
Out:   the array of its result, in the precision of the computation; `rounded` converts it to the Op's dtype

float16, bfloat16 and float8 are computed in float32, functions other than + - * / sqrt in float64, and rounded once at the
end. So results are correctly rounded, except for the error of NumPy's own float64 functions (below 1 ulp of float64).
float64 is converted to bfloat16 and float8 through float32, as in ml_dtypes. Integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from picograd.dtype import DType
from picograd.ir.checks import refusal_of
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

Array = np.ndarray[Any, np.dtype[Any]]
ElementwiseRule = Callable[[Op, Sequence[Array]], Any]


def rounded(value: Any, dtype: DType) -> Array:
    """Returns `value` as an array of `dtype`, rounded to nearest even."""
    array = np.asarray(value)
    return array if array.dtype == dtype.numpy else array.astype(dtype.numpy)


def widened(array: Array, dtype: DType) -> Array:
    """Returns an array in the precision of its + - * /: float32 for narrower floats."""
    return array.astype(np.float32) if dtype.is_narrow else array


def double(array: Array, dtype: DType) -> Array:
    """Returns a float array as float64, any other unchanged."""
    return array.astype(np.float64) if dtype.kind == "f" else array


def _plain(function: Callable[..., Any]) -> ElementwiseRule:
    def rule(op: Op, args: Sequence[Array]) -> Any:
        return function(*[widened(a, s.dtype) for a, s in zip(args, op.src)])

    return rule


def _in_double(function: Callable[..., Any]) -> ElementwiseRule:
    def rule(op: Op, args: Sequence[Array]) -> Any:
        return function(*[double(a, s.dtype) for a, s in zip(args, op.src)])

    return rule


# math.erf is the C library's, within 1 ulp of float64 (glibc manual, "Errors in Math Functions").
_erf = np.frompyfunc(math.erf, 1, 1)


def _erf_rule(op: Op, args: Sequence[Array]) -> Any:
    return np.asarray(_erf(args[0].astype(np.float64))).astype(np.float64)


def _floor(op: Op, args: Sequence[Array]) -> Any:
    return np.floor(widened(args[0], op.dtype)) if op.dtype.is_float else args[0]


def cast(op: Op, args: Sequence[Array]) -> Any:
    """Converts to a dtype. Floats are truncated to integers; values out of range saturate, and NaN becomes 0.

    Why: LLVM's fptosi.sat and PTX's cvt.rzi do so, and devices must agree; C leaves it undefined.
    """
    source, target = op.src[0].dtype, op.dtype
    array = args[0]
    if source.is_float and target.kind == "b":
        return widened(array, source) != 0
    if not source.is_float or not target.is_int:
        return array
    exact = np.trunc(array.astype(np.float64))
    # NOTE: 2.0**63 is a float64, 2**63 - 1 is not: compare with the power, then store the limit.
    above, below = exact >= float(2 ** (target.bits - (target.kind == "i"))), exact < float(target.min)
    inside = np.where(above | below | np.isnan(exact), 0.0, exact).astype(target.numpy)
    return np.where(above, target.numpy.type(target.max), np.where(below, target.numpy.type(target.min), inside))


def _bitcast(op: Op, args: Sequence[Array]) -> Any:
    return np.asarray(args[0]).view(op.dtype.numpy)


def _idiv(op: Op, args: Sequence[Array]) -> Any:
    a, b = (widened(x, op.dtype) for x in args)
    return np.floor_divide(a, b)  # an integer divided by 0 is 0


def _mod(op: Op, args: Sequence[Array]) -> Any:
    a, b = (widened(x, op.dtype) for x in args)
    return np.mod(a, b)  # an integer modulo 0 is 0


def _pow(op: Op, args: Sequence[Array]) -> Any:
    base, exponent = args
    if op.dtype.is_float:
        return np.power(base.astype(np.float64), exponent.astype(np.float64))
    if op.dtype.kind != "i":
        return np.power(base, exponent)
    # With a negative exponent only 1 and -1 have an integer power; the others round to 0.
    negative = exponent < 0
    unit = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
    return np.where(negative, unit, np.power(base, np.where(negative, 0, exponent)))


def _shift(left: bool) -> ElementwiseRule:
    def rule(op: Op, args: Sequence[Array]) -> Any:
        value, count = args
        inside = (count >= 0) & (count < op.dtype.bits)
        if left:
            return np.where(inside, np.left_shift(value, np.where(inside, count, 0)), 0)
        return np.right_shift(value, np.where(inside, count, op.dtype.bits - 1)) * (inside | (value < 0))

    return rule


def check(op: Op, args: Sequence[Array], length: int) -> Array:
    """Returns the indices.

    Raises:
      Refused: an index is outside 0 .. length - 1.
    """
    index = np.asarray(args[0])
    outside = (index < 0) | (index >= length)
    if outside.any():
        raise refusal_of(op.arg[0])(op.arg[0], int(index[outside].flat[0]), length)
    return index


def _where(op: Op, args: Sequence[Array]) -> Any:
    return np.where(args[0], args[1], args[2])


# ---- a * b + c with one rounding ----
def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the rounded sum and its exact error (Knuth, The Art of Computer Programming 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the rounded float64 product and its exact error (Dekker 1971, with Veltkamp's splitting)."""

    def split(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0  # 2**27 + 1
        high = scaled - (scaled - x)
        return high, x - high

    product = a * b
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _odd_sum(a: Array, b: Array) -> Array:
    """Returns a + b in float64 rounded to odd: an inexact sum ends in a 1 bit, so that a second rounding is correct."""
    total, error = _two_sum(a, b)
    even = (np.asarray(total).view(np.int64) & 1) == 0
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0)
    return np.where(inexact & even, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def _fma(op: Op, args: Sequence[Array]) -> Any:
    """a * b + c with one rounding to float32 (then to a narrower dtype), or to float64.

    Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms using
    rounding to odd", fig. 4 and 6.
    """
    if not op.dtype.is_float:
        return args[0] * args[1] + args[2]
    a, b, c = (np.asarray(x.astype(np.float64)) for x in args)
    if op.dtype.itemsize < 8:
        return _odd_sum(a * b, c).astype(np.float32)  # 24 + 24 bits: the product is exact
    high, low = _two_product(a, b)
    partial, partial_low = _two_sum(c, low)
    total, total_low = _two_sum(high, partial)
    result = total + _odd_sum(partial_low, total_low)
    return np.where(np.isfinite(low) & np.isfinite(result), result, a * b + c)


# ---- random bits ----
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(op: Op, args: Sequence[Array]) -> Any:
    """Threefry-2x32 with 20 rounds. Words of counter, key and result: the high 32 bits are word 0.

    Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", and Random123's
    threefry.h (rotations R_32x2, parity 0x1BD11BDA).
    """
    low = np.uint64(0xFFFFFFFF)
    x = [(args[0] >> np.uint64(32)).astype(np.uint32), (args[0] & low).astype(np.uint32)]
    key = [(args[1] >> np.uint64(32)).astype(np.uint32), (args[1] & low).astype(np.uint32)]
    key.append(key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x = [x[0] + key[0], x[1] + key[1]]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x[0] = x[0] + x[1]
            x[1] = (x[1] << np.uint32(rotation)) | (x[1] >> np.uint32(32 - rotation))
            x[1] = x[1] ^ x[0]
        x[0] = x[0] + key[(group + 1) % 3]
        x[1] = x[1] + key[(group + 2) % 3] + np.uint32(group + 1)
    return (x[0].astype(np.uint64) << np.uint64(32)) | x[1].astype(np.uint64)


ELEMENTWISE_RULES: dict[OpCode, ElementwiseRule] = {
    OpCode.NEG: _plain(np.negative),
    OpCode.RECIPROCAL: _plain(np.reciprocal),
    OpCode.EXP: _in_double(np.exp),
    OpCode.EXP2: _in_double(np.exp2),
    OpCode.LOG: _in_double(np.log),
    OpCode.LOG2: _in_double(np.log2),
    OpCode.SIN: _in_double(np.sin),
    OpCode.COS: _in_double(np.cos),
    OpCode.TANH: _in_double(np.tanh),
    OpCode.ERF: _erf_rule,
    OpCode.SQRT: _plain(np.sqrt),
    OpCode.FLOOR: _floor,
    OpCode.CAST: cast,
    OpCode.BITCAST: _bitcast,
    OpCode.ADD: _plain(np.add),
    OpCode.SUB: _plain(np.subtract),
    OpCode.MUL: _plain(np.multiply),
    OpCode.DIV: _plain(np.divide),
    OpCode.IDIV: _idiv,
    OpCode.MOD: _mod,
    OpCode.POW: _pow,
    OpCode.MAX: _plain(np.maximum),
    OpCode.MIN: _plain(np.minimum),
    OpCode.CMPLT: _plain(np.less),
    OpCode.CMPLE: _plain(np.less_equal),
    OpCode.CMPEQ: _plain(np.equal),
    OpCode.CMPNE: _plain(np.not_equal),
    OpCode.AND: _plain(np.bitwise_and),
    OpCode.OR: _plain(np.bitwise_or),
    OpCode.XOR: _plain(np.bitwise_xor),
    OpCode.SHL: _shift(left=True),
    OpCode.SHR: _shift(left=False),
    OpCode.THREEFRY: _threefry,
    OpCode.WHERE: _where,
    OpCode.FMA: _fma,
}
