"""Error bounds of integers as bit patterns, and of floats made from them.

In:    a BITCAST, AND, OR, XOR, SHL or SHR, the arrays of its sources, and their bounds
Out:   the bound of its result

Of an integer in an interval, the bits above the highest bit in which its ends differ are known, the others unknown:

    0110 1001 .. 0110 1100   0110 1???   AND 0000 1111: the same distance;  AND 1111 0000: certain

So exponent and sign of a rounded number have bounds, since they are made from its bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from picograd.evaluator.elementwise import ELEMENTWISE_RULES, Array
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

BITWISE = frozenset({OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.SHL, OpCode.SHR, OpCode.BITCAST})
REACH_MAX = 2.0**52  # largest reach of an integer: float64 counts up to here exactly


def of_bits(op: Op, value: Array, args: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Returns the error bound of a result; infinity if unknown."""
    if op.code is OpCode.BITCAST and op.src[0].dtype.is_float:
        wide = args[0].astype(np.float64)
        ends = [(wide + sign * errors[0]).astype(args[0].dtype).view(op.dtype.numpy) for sign in (-1, 1)]
        is_known = np.isfinite(wide) & (_sign(ends[0]) == _sign(ends[1]))
        slack = 1.0  # for an end that is rounded
    else:
        ends = _ends(args[0], errors[0])
        does_not_wrap = (ends[0] <= args[0]) & (args[0] <= ends[1]) & (_sign(ends[0]) == _sign(ends[1]))
        is_known = does_not_wrap & (errors[0] <= REACH_MAX)
        slack = 0.0
    if op.code in (OpCode.AND, OpCode.OR, OpCode.XOR):
        found = _of_patterns(op, args, errors)
    elif op.code is OpCode.BITCAST:
        found = np.maximum(*[_steps(end.view(op.dtype.numpy), value) for end in ends]) + slack
    else:
        moved = [ELEMENTWISE_RULES[op.code](op, (end, args[1])) for end in ends]
        found = np.maximum(*[_steps(end, value) for end in moved])
        is_known = is_known & (errors[1] == 0)
        if op.code is OpCode.SHL:  # no bit may be shifted out
            is_known &= np.logical_and(*[_shifted_back(op, end, args[1]) == start for end, start in zip(moved, ends)])
    certain = np.logical_and.reduce([np.broadcast_to(error == 0, value.shape) for error in errors])
    return np.where(certain, 0.0, np.where(is_known & np.isfinite(found), found, np.inf))


def _sign(x: Array) -> Array:
    return np.signbit(x) if x.dtype.kind == "f" else x < 0


def _ends(value: Array, error: Array) -> list[Array]:
    """Returns the ends of an interval of integers, in their dtype."""
    reach = np.where(error > REACH_MAX, 0, error).astype(value.dtype)
    return [value - reach, value + reach]


def _steps(a: Array, b: Array) -> Array:
    """Returns |a - b| of integers without overflow."""
    if a.dtype.kind == "f":
        return np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(a > b, a - b, b - a).astype(np.float64)


def _shifted_back(op: Op, value: Array, count: Array) -> Array:
    return np.asarray(ELEMENTWISE_RULES[OpCode.SHR](op, (value, count)))


def _of_patterns(op: Op, args: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Returns the bound of AND, OR and XOR from the unknown bits."""
    open_bits = [_open_bits(value, error) for value, error in zip(args, errors)]
    both = open_bits[0] | open_bits[1]
    found = both.astype(np.float64)
    for i, (own, other) in enumerate(((0, 1), (1, 0))):
        keeps = args[other] if op.code is OpCode.AND else ~args[other]
        if op.code is not OpCode.XOR:  # an exact operand masks bits
            passes = open_bits[own] & keeps.view(both.dtype)
            is_alone = open_bits[other] == 0
            found = np.where(is_alone & (passes == open_bits[own]), errors[i], np.where(is_alone, passes, found))
    is_known = (errors[0] <= REACH_MAX) & (errors[1] <= REACH_MAX) & (both <= REACH_MAX)
    return np.where(is_known, found, np.inf)


def _open_bits(value: Array, error: Array) -> Array:
    """Returns the mask of unknown bits: from the highest bit in which the ends of an interval differ."""
    low, high = _ends(value, error)
    found = (low ^ high).view(f"u{value.dtype.itemsize}")
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < 8 * value.dtype.itemsize:
            found = found | (found >> found.dtype.type(shift))
    return found
