"""Functions that every device computes to the same bit: what is drawn is made of them.

In:    Ops
Out:   `log_alike`, `exp_alike`, `cosine_of_turns`, `normal_quantile`; `part_of`
Next:  picograd/tensor/creation/places.py

LOG, EXP and COS are right to an ulp or two, which each device spends in its own way: by a polynomial, or a library. Here
nothing is used but integers and what IEEE 754 says the last bit of: ADD, SUB, MUL, DIV, SQRT, FLOOR, MAX, MIN and casts.
No pass reorders these, and no compiler may contract them. FMA is left out: a processor without the instruction rounds it
twice. Logarithm, exponential and cosine are right to 2 ulp, and cost less where they know what they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.passes.functions import ATANH, EXP, EXP_RANGE, LN2, LOG2_E, QUANTILE, WAVE
from picograd.dtype import DType
from picograd.ir.build import cast, maximum, minimum, unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

INTEGER = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}  # of the same width
SQRT_HALF = {dtypes.float32: 0x3F3504F3, dtypes.float64: 0x3FE6A09E667F3BCD}  # bits of the square root of 1/2


def log_alike(x: Op) -> Op:
    """Returns the natural logarithm of a normal float32 or float64 above 0.

    x = 2^n m with m from sqrt(1/2) to sqrt(2);  log x = n log 2 + s p(s^2) with s = (m - 1) / (m + 1)
    """
    dtype, integer, digits = x.dtype, INTEGER[x.dtype], x.dtype.precision - 1
    bits = _same_bits(x, integer)
    n = _shift(OpCode.SHR, bits - SQRT_HALF[dtype], digits)  # rounds down
    m = _same_bits(bits - _shift(OpCode.SHL, n, digits), dtype)
    s = Op(OpCode.DIV, dtype, (m - 1.0, m + 1.0))
    return cast(n, dtype) * _held(math.log(2), dtype) + s * _polynomial(s * s, (2.0, *ATANH[dtype]))


def exp_alike(x: Op) -> Op:
    """Returns e^x of a float32 or float64: 0 and infinity where it leaves the range.

    x = n log 2 + r with |r| <= log(2) / 2;  e^x = 2^n e^r, in two steps, so that subnormal results are rounded once
    """
    dtype, integer, digits = x.dtype, INTEGER[x.dtype], x.dtype.precision - 1
    low, high = EXP_RANGE[dtype]
    x = minimum(maximum(x, low), high)
    n = unary(OpCode.FLOOR, x * _held(LOG2_E, dtype) + 0.5)
    r = x - n * LN2[dtype][0] - n * LN2[dtype][1]
    power = cast(n, integer)
    half = _shift(OpCode.SHR, power, 1)
    first, second = (_shift(OpCode.SHL, part + dtype.exponent_bias, digits) for part in (half, power - half))
    return _polynomial(r, (1.0, 1.0, *EXP[dtype])) * _same_bits(first, dtype) * _same_bits(second, dtype)


def cosine_of_turns(turns: Op, dtype: DType) -> Op:
    """Returns cos(2 pi turns / 2^32) for int32 `turns`: the sine of what is left to a quarter, which integers hold exactly.

    A negative t has all its bits turned over: -1 - t, its mirror image but for 2^-32 of a turn. Of int64 a turn has 2^64.
    """
    places = turns.dtype.bits
    folded = Op(OpCode.XOR, turns.dtype, (turns, _shift(OpCode.SHR, turns, places - 1)))
    x = cast(folded - (1 << (places - 2)), dtype) * _held(-math.pi / 2 ** (places - 1), dtype)  # at most pi / 2
    return x * _polynomial(x * x, (1.0, *WAVE[dtype]))


def normal_quantile(p: Op) -> Op:
    """Returns the x below which a part p of the normal distribution lies, p being a float32 or float64 in [0, 1].

    Right to 4 ulp up to |x| = 8; of 0 and 1, too, it is finite.

    x = c sqrt(2 w + pi / 2) h(t) with c = 2 p - 1, w = -log(1 - c^2) = -log(4 p (1 - p)), t = (5 - w) / (5 + w). The
    middle of the distribution and both its ends make h 1, and it is near 1 between: one polynomial is enough.
    """
    dtype = p.dtype
    w = -log_alike(maximum((-p + 1.0) * p * 4.0, 2.0 ** (1 - dtype.exponent_bias)))
    t = (-w + 5.0) / (w + 5.0)
    scale = unary(OpCode.SQRT, w * 2.0 + _held(math.pi / 2, dtype))
    return (p * 2.0 - 1.0) * scale * _polynomial(t, QUANTILE[dtype])


# ---- integers ----
def part_of(count: Op | int, bits: Op) -> Op:
    """Returns the integer below `count` that uint64 `bits` choose: count * bits / 2^64 rounded down, or up to 2 less.

    Of the products of halves that of the lower ones is left out, and each of the others is rounded for itself.
    """
    upper, lower = _halves(bits)
    most, rest = divmod(count, 2**32) if isinstance(count, int) else _halves(count)
    part = _shift(OpCode.SHR, upper * rest, 32)
    return part if most == 0 else part + upper * most + _shift(OpCode.SHR, lower * most, 32)


def _halves(x: Op) -> tuple[Op, Op]:
    """Returns the upper and the lower 32 bits of a uint64."""
    return _shift(OpCode.SHR, x, 32), Op(OpCode.AND, x.dtype, (x, x.filled(2**32 - 1)))


def _polynomial(x: Op, coefficients: Sequence[float]) -> Op:
    """Returns the value of a polynomial, the constant term first, by Horner's rule in rounded steps."""
    value = x.filled(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def _held(value: float, dtype: DType) -> float:
    """Returns a number as `dtype` holds it, so that no language has to round it."""
    return float(np.dtype(dtype.numpy).type(value))


def _same_bits(x: Op, dtype: DType) -> Op:
    return Op(OpCode.BITCAST, dtype, (x,))


def _shift(code: OpCode, x: Op, places: int) -> Op:
    return Op(code, x.dtype, (x, x.filled(places)))
