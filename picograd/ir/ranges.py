"""Values that an integer can have, and numbers that divide it: certain without computing it.

Intervals come first. One table says what an Op makes of the intervals of its sources, in graphs, in the linear form of
Programs and in index expressions; each of these walks in a way of its own: `value_range` through a graph, whose Ops it
remembers; `interval_of` through one operation of a Program, given what is known of VARs and RANGEs; `bounds`
(ir/symbolic.py) through sums, of which it adds up the terms first; and `greatest` (ir/op.py) through a length. The
rules for operations on intervals are in ir/arithmetic.py. Where intervals do not decide, and several integers are
compared, codegen/passes/inequalities.py looks for a proof.

    t = t1 * 4 + g0 * 1024,  t1 in 0..31,  g0 in 0..7        t is in 0..7292, and 4 divides it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import gcd

from picograd.interrupts import LivingKeys
from picograd.ir.arithmetic import INTERVALS, Interval, whole_interval
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import IDENTITY, OpCode

Intervals = Mapping[Op, Interval]
Of = Callable[[Op], Interval]

DIVISIONS = frozenset({OpCode.IDIV, OpCode.MOD})
# In Programs these compute data, which stays as wide as it is: to make it int32 on a GPU costs more steps than it saves.
OF_DATA = frozenset({OpCode.NEG, OpCode.AND, OpCode.SHR, OpCode.WHERE, OpCode.REDUCE})

_ranges: LivingKeys[Op, Interval] = LivingKeys()


def value_range(root: Op) -> Interval:
    """Returns (least, greatest) of the elements of an integer or bool Op; those of its dtype where nothing is known.

    >>> from picograd import dtype as dtypes
    >>> value_range(Op(OpCode.IOTA, dtypes.int64, (), 5))
    (0, 4)
    """
    for op in toposort([root], stop=_ranges):
        if op not in _ranges and not op.dtype.is_float:
            # A graph has no loops. In an expression of a loop its variable may be any integer of its dtype.
            _ranges[op] = whole_interval(op.dtype) if op.code is OpCode.RANGE else _in_graph(op, _ranges)
    return _ranges[root]


def _in_graph(op: Op, known: Intervals | LivingKeys[Op, Interval]) -> Interval:
    """Returns the interval of an Op, given those of its sources."""
    found = known.get(op)
    return _within(op, from_sources(op, partial(_in_graph, known=known))) if found is None else found


def interval_of(op: Op, known: Intervals) -> Interval:
    """Returns (least, greatest) of an integer of a Program, that of its type where nothing is known."""
    if op.code is OpCode.CONST:  # nearly half of the questions
        return int(op.arg), int(op.arg)
    found = known.get(op)
    return _within(op, exact_interval(op, known)) if found is None else found


def exact_interval(op: Op, known: Intervals) -> Interval | None:
    """Returns the bounds of an operation of a Program in unlimited integers, or None where they are not known."""
    return None if op.code in OF_DATA else from_sources(op, partial(interval_of, known=known))


def _within(op: Op, exact: Interval | None) -> Interval:
    whole = whole_interval(op.dtype)
    # NOTE: what leaves the range of its type may have wrapped, so its exact bounds say nothing.
    return exact if exact is not None and whole[0] <= exact[0] and exact[1] <= whole[1] else whole


def from_sources(op: Op, of: Of) -> Interval | None:
    """Returns the bounds of an operation in unlimited integers, from those of its sources; None where nothing is known."""
    rule = RULES.get(op.code)
    if rule is not None:
        return rule(op, of)
    operands = list(map(of, op.src)) if op.code in INTERVALS else []
    if not operands or (op.code in DIVISIONS and operands[1][0] < 1):  # what is divided by 0 is 0 only once it is legal
        return None
    return INTERVALS[op.code](*operands)


# ---- what an Op makes of the intervals of its sources ----
def _union(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def _below(length: Dim, of: Of) -> Interval:
    """Returns the interval of a position along an axis."""
    return 0, max(0, (length if isinstance(length, int) else of(length)[1]) - 1)


def _same(op: Op, of: Of) -> Interval:
    return of(op.src[0])


def _same_or_0(op: Op, of: Of) -> Interval:
    return _union((0, 0), of(op.src[0]))


def _cast(op: Op, of: Of) -> Interval | None:
    return None if op.src[0].dtype.is_float else of(op.src[0])


def _reduce(op: Op, of: Of) -> Interval | None:
    return of(op.src[0]) if op.arg[0] in (OpCode.MAX, OpCode.MIN) else None


def _where(op: Op, of: Of) -> Interval | None:
    condition, a, b = op.src
    found = [each for each in (_chosen(a, condition, True, of), _chosen(b, condition, False, of)) if each is not None]
    return _union(found[0], found[-1]) if found else None


def _chosen(value: Op, condition: Op, holds: bool, of: Of) -> Interval | None:
    """The interval of a value, or of one plus something, where p < q holds (or does not); None: that is nowhere."""
    if condition.code is not OpCode.CMPLT or condition.src[0].dtype.is_float:
        return of(value)
    p, q = condition.src
    (p_low, p_high), (q_low, q_high) = of(p), of(q)
    if holds:
        known = {p: (p_low, min(p_high, q_high - 1)), q: (max(q_low, p_low + 1), q_high)}
    else:
        known = {p: (max(p_low, q_low), p_high), q: (q_low, min(q_high, p_high))}
    if any(low > high for low, high in known.values()):
        return None
    if value.code is OpCode.ADD and value.src[0] in known:
        low, high = known[value.src[0]]
        shift = of(value.src[1])
        return low + shift[0], high + shift[1]
    return known.get(value) or of(value)


RULES: dict[OpCode, Callable[[Op, Of], Interval | None]] = {
    OpCode.CONST: lambda op, of: (int(op.arg), int(op.arg)),
    OpCode.VARIABLE: lambda op, of: (int(op.arg[1]), int(op.arg[2])),
    OpCode.RANGE: lambda op, of: _below(op.src[0], of),
    OpCode.LANES: lambda op, of: _below(op.arg, of),
    OpCode.IOTA: lambda op, of: _below(op.arg, of),
    OpCode.CHECK: lambda op, of: _below(op.arg[1], of),
    OpCode.SORT: lambda op, of: _below(op.src[0].shape[op.arg[0]], of),
    OpCode.CAST: _cast,
    OpCode.WHERE: _where,
    OpCode.REDUCE: _reduce,
    OpCode.PAD: _same_or_0,
    OpCode.GATHER: _same_or_0,
    **dict.fromkeys(
        (*IDENTITY, OpCode.BIND, OpCode.COPY, OpCode.RESHAPE, OpCode.PERMUTE, OpCode.EXPAND, OpCode.SHRINK, OpCode.FLIP),
        _same,
    ),
}


# ---- divisors ----
def divisor_of(op: Op, known: Mapping[Op, int]) -> int:
    """Returns a divisor of an integer, 1 where nothing is known, 0 where it is 0, which all numbers divide.

    It tells that an address is aligned: where v3 = t1 * 4 and v4 = g0 * 1024, 4 divides v3 + v4.

    NOTE: powers of two stay divisors where arithmetic wraps; callers ask for these.
    """
    found = known.get(op)
    if found is not None:
        return found
    if op.code is OpCode.CONST:
        return abs(int(op.arg))
    below = [divisor_of(s, known) for s in op.src] if op.code in WITH_DIVISOR else []
    if op.code is OpCode.MUL:
        return below[0] * below[1]
    if op.code in (OpCode.ADD, OpCode.SUB, OpCode.MIN, OpCode.MAX):
        return gcd(*below)
    if op.code is OpCode.WHERE:
        return gcd(below[1], below[2])
    if op.code is OpCode.BIND:
        return below[0]
    if op.code in (OpCode.IDIV, OpCode.MOD) and op.src[1].code is OpCode.CONST and op.src[1].arg > 0:
        divisor = int(op.src[1].arg)
        if op.code is OpCode.MOD:
            return gcd(below[0], divisor)
        return below[0] // divisor if below[0] % divisor == 0 else 1
    return 1


WITH_DIVISOR = frozenset(
    {OpCode.MUL, OpCode.ADD, OpCode.SUB, OpCode.MIN, OpCode.MAX, OpCode.WHERE, OpCode.BIND, OpCode.IDIV, OpCode.MOD}
)
