"""float16, bfloat16 and float8: computed in float32 and rounded to nearest even, by integer operations.

In:    scalar Ops that touch floats narrower than float32
Out:   scalar Ops on float32 and integers; a narrow float is only loaded, stored, chosen and converted
Called by: codegen/passes/legalize.py.    Next: picograd/codegen/passes/without_fma.py

A narrow float becomes float32 by moving its bits, and back by adding half of the last place it keeps. What both
directions do with NaN, infinity and subnormals is what ml_dtypes does.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.scalar import (
    FORMATS,
    absolute,
    and_,
    bitcast,
    bits_of,
    both,
    cast,
    differs,
    equal,
    less,
    like,
    or_,
    shl,
    shr,
    where,
)  # fmt: skip
from picograd.dtype import DType
from picograd.ir.op import Op, const
from picograd.ir.opcode import COMPARE, OpCode

SINGLE = FORMATS[dtypes.float32]
MOVES = frozenset({OpCode.WHERE, OpCode.BITCAST, OpCode.CAST})


def compute_wide(op: Op) -> Op | None:
    """Any arithmetic on narrow floats: the same in float32, rounded once. Extrema choose one of the operands."""
    if op.code in MOVES or True not in [s.dtype.is_narrow for s in op.src]:
        return None
    wide = tuple(cast(s, dtypes.float32) if s.dtype.is_narrow else s for s in op.src)
    if op.code in COMPARE:
        return Op(op.code, op.dtype, wide, op.arg)
    if op.code in (OpCode.MAX, OpCode.MIN):
        (a, b), (wide_a, wide_b) = op.src, wide
        takes_a = less(wide_b, wide_a) if op.code is OpCode.MAX else less(wide_a, wide_b)
        return where(Op(OpCode.OR, dtypes.bool_, (takes_a, differs(wide_a, wide_a))), a, b)
    return cast(Op(op.code, dtypes.float32, wide, op.arg), op.dtype)


def convert(op: Op, half_in_hardware: bool) -> Op | None:
    """CAST to or from a narrow float."""
    x, target = op.src[0], op.dtype
    if not (x.dtype.is_narrow or target.is_narrow) or x.dtype is target:
        return None
    if half_in_hardware and {x.dtype, target} == {dtypes.float16, dtypes.float32}:
        return None
    if x.dtype.is_narrow:
        if target is not dtypes.float32:
            return cast(cast(x, dtypes.float32), target)
        return _widen_bfloat16(x) if x.dtype is dtypes.bfloat16 else _widen(x)
    if x.dtype is dtypes.float64 and target is dtypes.float16:
        return cast(_to_odd(x), target)
    if x.dtype is not dtypes.float32:
        return cast(cast(x, dtypes.float32), target)
    return _round_bfloat16(x) if target is dtypes.bfloat16 else _round(x, target)


def _widen_bfloat16(x: Op) -> Op:
    return bitcast(shl(cast(bits_of(x), dtypes.uint32), 16), dtypes.float32)


def _round_bfloat16(x: Op) -> Op:
    """Adds half of the last bit kept, less one where that bit is even; NaN keeps its sign and upper bits."""
    bits = bits_of(x)
    even = and_(shr(bits, 16), 1)
    rounded = shr(bits + even + 0x7FFF, 16)
    upper = where(differs(x, x), or_(shr(bits, 16), 0x40), rounded)
    return bitcast(cast(upper, dtypes.uint16), dtypes.bfloat16)


def _has_infinity(dtype: DType) -> bool:
    return dtype is not dtypes.float8_e4m3


def _widen(x: Op) -> Op:
    """Moves exponent and mantissa into place; a factor corrects the bias, also of subnormals."""
    form = FORMATS[x.dtype]
    bits = cast(bits_of(x), dtypes.uint32)
    magnitude = and_(bits, form.sign - 1)
    scaled = bitcast(shl(magnitude, SINGLE.mantissa - form.mantissa), dtypes.float32) * 2.0 ** (SINGLE.bias - form.bias)
    if _has_infinity(x.dtype):
        beyond = or_(shl(magnitude, SINGLE.mantissa - form.mantissa), SINGLE.infinity)
        value = where(less(magnitude, form.infinity), bits_of(scaled), beyond)
    else:
        value = where(less(magnitude, form.sign - 1), bits_of(scaled), const(0x7FC00000, dtypes.uint32))
    sign = shl(and_(bits, form.sign), 32 - 8 * x.dtype.itemsize)
    return bitcast(or_(value, sign), dtypes.float32)


def _round(x: Op, target: DType) -> Op:
    """Rounds a float32 to float16 or float8.

    Normal numbers: half of the last bit kept is added to the bits, and the exponent's bias changed. Below them: adding
    a power of two whose last place is the target's least number rounds in the adder, and leaves the bits wanted.
    """
    form = FORMATS[target]
    bits = bits_of(x)
    magnitude = and_(bits, SINGLE.sign - 1)
    dropped = SINGLE.mantissa - form.mantissa
    even = and_(shr(magnitude, dropped), 1)
    normal = shr(magnitude + even + ((1 << (dropped - 1)) - 1), dropped) - ((SINGLE.bias - form.bias) << form.mantissa)
    adder = 2.0 ** (1 - form.bias - form.mantissa + SINGLE.mantissa)
    subnormal = bits_of(bitcast(magnitude, dtypes.float32) + adder) - bits_of(like(adder, x))
    is_normal = less(bitcast(magnitude, dtypes.float32), 2.0 ** (1 - form.bias))
    result = where(is_normal, subnormal, normal)
    if _has_infinity(target):
        limit = form.infinity
        result = where(less(normal, limit), result, like(limit, result))
        result = where(is_normal, subnormal, result)
        nan = form.infinity | 1 << (form.mantissa - 1)
    else:
        nan = form.sign - 1
        result = where(is_normal, subnormal, where(less(normal, nan), result, like(nan, result)))
    result = where(differs(x, x), like(nan, result), result)
    sign = shr(and_(bits, SINGLE.sign), 32 - 8 * target.itemsize)
    return bitcast(cast(or_(result, sign), form.unsigned), target)


def _to_odd(x: Op) -> Op:
    """float64 to float32 rounded to odd: what is not exact ends in a 1, so that rounding again does no harm.

    Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums", section 3.
    """
    single = cast(x, dtypes.float32)
    back = cast(single, dtypes.float64)
    bits = bitcast(single, dtypes.int32)
    too_far = less(absolute(x), absolute(back))
    step = where(too_far, const(-1, dtypes.int32), 1)
    inexact = both(differs(back, x), less(absolute(x), float("inf")))
    moves = both(equal(and_(bits, 1), 0), inexact)
    return bitcast(where(moves, bits + step, bits), dtypes.float32)
