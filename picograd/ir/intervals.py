"""The least and greatest value of integers in the linear form, so that arithmetic on them can be the cheap kind.

In:    an integer operation, and what is known of the VARs and RANGEs it reads
Out:   `Interval`, `interval_of`, `exact_interval`, `product_interval`; `TRUTHS`: whether a comparison holds
Next:  picograd/ir/dims.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

Interval = tuple[int, int]  # least, greatest
Intervals = Mapping[Op, Interval]


def interval_of(op: Op, known: Intervals) -> Interval:
    """Returns (least, greatest) of an integer, that of its type where nothing is known."""
    found = known.get(op)
    if found is not None:
        return found
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
    if op.code is OpCode.CAST and op.src[0].dtype.kind in "iub":
        exact: Interval | None = interval_of(op.src[0], known) if op.src[0].dtype.is_int else (0, 1)
    else:
        exact = exact_interval(op, known)
    whole = int(op.dtype.min), int(op.dtype.max)
    # NOTE: what leaves the range of its type may have wrapped, so its exact bounds say nothing.
    return exact if exact is not None and whole[0] <= exact[0] and exact[1] <= whole[1] else whole


def exact_interval(op: Op, known: Intervals) -> Interval | None:
    """Returns the bounds of an operation in unlimited integers, or None where they are not known."""
    rule = RULES.get(op.code)
    if rule is None:
        return None
    a, b = interval_of(op.src[0], known), interval_of(op.src[1], known)
    return None if op.code in (OpCode.IDIV, OpCode.MOD) and b[0] < 1 else rule(a, b)


def product_interval(a: Interval, b: Interval) -> Interval:
    """Returns the bounds of a product."""
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def _quotient(a: Interval, b: Interval) -> Interval:
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


RULES: dict[OpCode, Callable[[Interval, Interval], Interval]] = {
    OpCode.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    OpCode.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    OpCode.MUL: product_interval,
    OpCode.IDIV: _quotient,
    OpCode.MOD: lambda a, b: (0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1),
    OpCode.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    OpCode.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


# ---- comparisons: None where some values of the intervals say one thing and some another ----
def _is_less(a: Interval, b: Interval) -> bool | None:
    return True if a[1] < b[0] else False if a[0] >= b[1] else None


def _is_equal(a: Interval, b: Interval) -> bool | None:
    return a[0] == b[1] if a[0] >= b[1] and a[1] <= b[0] else False if a[1] < b[0] or b[1] < a[0] else None


def _differs(a: Interval, b: Interval) -> bool | None:
    equal = _is_equal(a, b)
    return None if equal is None else not equal


TRUTHS: dict[OpCode, Callable[[Interval, Interval], bool | None]] = {
    OpCode.CMPLT: _is_less,
    OpCode.CMPEQ: _is_equal,
    OpCode.CMPNE: _differs,
}
