"""Integer operations with the meaning picograd gives them, from those that processors have.

In:    scalar Ops
Out:   scalar Ops: IDIV and MOD are left on unsigned integers with a divisor that is not 0, and on indices known not to
       be negative; SHL and SHR with counts below the width
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.ir.build import (
    absolute,
    and_,
    bitcast,
    both,
    cast,
    differs,
    equal,
    floor,
    less,
    or_,
    shl,
    shr,
    where,
    with_sign_of,
    xor,
)  # fmt: skip
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import bounds, from_op

INDEX_LEAVES = frozenset({OpCode.CONST, OpCode.RANGE, OpCode.VARIABLE, OpCode.BIND})
INDEX_CODES = INDEX_LEAVES | {OpCode.ADD, OpCode.MUL, OpCode.IDIV, OpCode.MOD, OpCode.MIN}


# ---- division ----
def divide(op: Op) -> Op | None:
    """IDIV and MOD: rounds to minus infinity, and gives 0 where the divisor is 0."""
    a, b = op.src
    if op.dtype.is_float:
        return _divide_floats(a, b) if op.code is OpCode.IDIV else None
    never_zero = b.code is OpCode.CONST and b.arg != 0
    if op.dtype.kind == "u":
        if never_zero or _is_guarded(b):
            return _by_power_of_two(op)
        return where(equal(b, 0), 0, Op(op.code, op.dtype, (a, _not_zero(b))))
    if _is_index(op) and bounds(from_op(a))[0] >= 0 and bounds(from_op(b))[0] > 0:
        return None
    return _divide_signed(op.code, a, b, never_zero)


def _is_index(op: Op) -> bool:
    """True for arithmetic of loop variables, whose bounds are known and which does not overflow."""
    if op.dtype is not dtypes.int64:
        return False
    return all(o.code in INDEX_CODES for o in toposort([op], stop=_LEAVES))


class _Leaves:
    """Stops a walk below loop variables: an extent is not part of the index."""

    def __contains__(self, op: Op) -> bool:
        return op.code in INDEX_LEAVES


_LEAVES = _Leaves()


def _not_zero(b: Op) -> Op:
    return where(equal(b, 0), 1, b)


def _is_guarded(b: Op) -> bool:
    """True for WHERE(c == 0, 1, c): what `_not_zero` makes."""
    return b.code is OpCode.WHERE and b.src[0] is equal(b.src[2], 0) and b.src[1] is b.filled(1)


def _by_power_of_two(op: Op) -> Op | None:
    a, b = op.src
    if b.code is not OpCode.CONST or b.arg & (b.arg - 1):
        return None
    return shr(a, b.arg.bit_length() - 1) if op.code is OpCode.IDIV else and_(a, b.arg - 1)


def _divide_signed(code: OpCode, a: Op, b: Op, never_zero: bool) -> Op:
    """Divides magnitudes without sign, so that no quotient overflows, and rounds down where the signs differ."""
    unsigned = a.dtype.unsigned
    if b.code is OpCode.CONST and b.arg > 0 and not b.arg & (b.arg - 1):
        return shr(a, b.arg.bit_length() - 1) if code is OpCode.IDIV else and_(a, b.arg - 1)
    a_size, b_size = (bitcast(where(less(x, 0), -x, x), unsigned) for x in (a, b))
    divisor = b_size if never_zero else _not_zero(b_size)
    quotient = Op(OpCode.IDIV, unsigned, (a_size, divisor))
    rest = a_size - quotient * divisor
    signs_differ = differs(less(a, 0), less(b, 0))
    uneven = differs(rest, 0)
    zero = const(0, unsigned)
    if code is OpCode.IDIV:
        down = quotient + where(uneven, const(1, unsigned), 0)
        result = where(signs_differ, zero - down, quotient)
    else:
        magnitude = where(Op(OpCode.AND, dtypes.bool_, (signs_differ, uneven)), divisor - rest, rest)
        result = where(less(b, 0), zero - magnitude, magnitude)
    signed = bitcast(result, a.dtype)
    return signed if never_zero else where(equal(b, 0), 0, signed)


def _divide_floats(a: Op, b: Op) -> Op:
    """floor(a / b) without the error of the quotient: from the exact remainder, as NumPy's floor_divide."""
    quotient = (a - Op(OpCode.MOD, a.dtype, (a, b))) / b
    down = floor(quotient)
    nearest = where(less(a.filled(0.5), quotient - down), down + 1.0, down)
    ratio = a / b
    nearest = where(equal(quotient, 0.0), with_sign_of(a.filled(0.0), ratio), nearest)
    # by infinity the remainder is infinite too: what is left of a finite a is its sign
    below = both(differs(less(a, 0.0), less(b, 0.0)), both(differs(a, 0.0), less(absolute(a), math.inf)))
    by_infinity = where(below, a.filled(-1.0), ratio)
    return where(equal(b, 0.0), ratio, where(equal(absolute(b), math.inf), by_infinity, nearest))


# ---- shifts ----
def shift(op: Op) -> Op | None:
    """SHL and SHR by a count outside 0..width-1: nothing is left but the sign."""
    value, count = op.src
    bits = op.dtype.bits
    if _largest_count(count) < bits:
        return None
    unsigned_count = bitcast(count, count.dtype.unsigned)
    inside = less(unsigned_count, bits)
    if op.code is OpCode.SHR and op.dtype.kind == "i":
        return Op(op.code, op.dtype, (value, and_(where(inside, count, bits - 1), bits - 1)))
    return where(inside, Op(op.code, op.dtype, (value, and_(count, bits - 1))), 0)


def _largest_count(count: Op) -> float:
    """Returns the most a count can be, where its form shows it; infinity elsewhere."""
    if count.code is OpCode.CONST:
        return int(count.arg) if count.arg >= 0 else math.inf
    if count.code is OpCode.AND and count.src[1].code is OpCode.CONST and count.src[1].arg >= 0:
        return int(count.src[1].arg)
    if count.code is OpCode.SUB and count.src[0].code is OpCode.CONST:
        most = int(count.src[0].arg)
        return most if _largest_count(count.src[1]) <= most else math.inf
    return math.inf


# ---- powers ----
def int_power(op: Op) -> Op:
    """POW of integers by squaring; it wraps. To a negative exponent only 1 and -1 have a power, the others give 0."""
    base, exponent = op.src
    one = base.filled(1)
    bits = op.dtype.bits - (op.dtype.kind == "i")
    if exponent.code is OpCode.CONST:
        bits = max(0, int(exponent.arg)).bit_length()
    result, square = one, base
    for i in range(bits):
        has = differs(and_(exponent, 1 << i), 0)
        if exponent.code is OpCode.CONST:
            result = result * square if exponent.arg >> i & 1 else result
        else:
            result = result * where(has, square, one)
        square = square * square
    if op.dtype.kind != "i" or (exponent.code is OpCode.CONST and exponent.arg >= 0):
        return result
    sign = where(equal(and_(exponent, 1), 0), one, base.filled(-1))
    unit = where(equal(base, 1), one, where(equal(base, -1), sign, 0))
    return where(less(exponent, 0), unit, result)


# ---- random bits ----
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(counter: Op, key: Op) -> Op:
    """Threefry-2x32 with 20 rounds on the halves of two uint64, the high half first.

    Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3;
            rotations R_32x2 and parity from Random123's threefry.h.
    """
    keys = list(_halves(key))
    keys.append(xor(xor(keys[0], keys[1]), PARITY))
    a, b = (half + k for half, k in zip(_halves(counter), keys))
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            a = a + b
            b = xor(or_(shl(b, rotation), shr(b, 32 - rotation)), a)
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + (group + 1)
    return or_(shl(cast(a, dtypes.uint64), 32), cast(b, dtypes.uint64))


def _halves(word: Op) -> Sequence[Op]:
    return cast(shr(word, 32), dtypes.uint32), cast(word, dtypes.uint32)
