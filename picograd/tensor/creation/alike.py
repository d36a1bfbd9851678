"""Functions that every device computes to the same bit: normal numbers are made of them.

In:    Ops
Out:   `log_alike`, `cosine_of_turns`
Next:  picograd/tensor/creation/probabilities.py

LOG and COS are right to an ulp or two, which each device spends in its own way: by a polynomial, or a library. Here nothing
is used but integers and what IEEE 754 says the last bit of: ADD, SUB, MUL, DIV and casts. No pass reorders these, and no
compiler may contract them. FMA is left out: a processor without the instruction rounds it twice. Both are right to 2 ulp,
and cost less than LOG and COS, for they know what they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.passes.polynomials import ATANH, WAVE
from picograd.dtype import DType
from picograd.ir.build import cast
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


def cosine_of_turns(turns: Op, dtype: DType) -> Op:
    """Returns cos(2 pi turns / 2^32) for int32 `turns`: the sine of what is left to a quarter, which integers hold exactly.

    A negative t has all its bits turned over: -1 - t, its mirror image but for 2^-32 of a turn.
    """
    folded = Op(OpCode.XOR, turns.dtype, (turns, _shift(OpCode.SHR, turns, 31)))
    x = cast(folded - (1 << 30), dtype) * _held(-math.pi / 2**31, dtype)  # at most pi / 2
    return x * _polynomial(x * x, (1.0, *WAVE[dtype]))


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
