"""The least and greatest value of index arithmetic in the linear form, so that divisions can be cheap ones.

In:    a Let's value, and what is known of the VARs it reads
Out:   `Interval`
Called by: picograd/render/llvm.py.    Next: picograd/compile/llvm.py
"""

from __future__ import annotations

from collections.abc import Mapping

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import LARGE

Interval = tuple[int, int]
UNKNOWN: Interval = (-LARGE, LARGE)


def interval_of(op: Op, known: Mapping[Op, Interval]) -> Interval:
    """Returns (least, greatest) of an int64 operation; UNKNOWN where nothing is certain."""
    if op in known:
        return known[op]
    if op.code is OpCode.CONST:
        return int(op.arg), int(op.arg)
    if op.code is OpCode.VARIABLE:
        return int(op.arg[1]), int(op.arg[2])
    if op.code is OpCode.RANGE:
        return 0, max(0, interval_of(op.src[0], known)[1] - 1)
    if op.code is OpCode.LANES:
        return 0, int(op.arg) - 1
    if op.code in (OpCode.EXPAND, OpCode.BIND):
        return interval_of(op.src[0], known)
    if op.code not in _RULES:
        return UNKNOWN
    low, high = _RULES[op.code](*(interval_of(s, known) for s in op.src))
    # NOTE: an interval that leaves the range of int64 on the way says nothing: the sum may have wrapped.
    return (low, high) if low > -LARGE and high < LARGE else UNKNOWN


def _add(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _multiply(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _divide(a: Interval, b: Interval) -> Interval:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else UNKNOWN


def _remainder(a: Interval, b: Interval) -> Interval:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else UNKNOWN


def _minimum(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), min(a[1], b[1])


_RULES = {
    OpCode.ADD: _add,
    OpCode.MUL: _multiply,
    OpCode.IDIV: _divide,
    OpCode.MOD: _remainder,
    OpCode.MIN: _minimum,
}
