"""The least and greatest value an integer graph can have: what is certain without computing it.

In:    an Op of an integer dtype
Out:   `value_range`
Called by: ir/simplify.py.    Next: picograd/ir/simplify.py
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.dtype import DType
from picograd.ir.op import Op, greatest, toposort
from picograd.ir.opcode import IDENTITY, OpCode
from picograd.living import LivingKeys

Range = tuple[int, int]
SAME = IDENTITY | {
    OpCode.RESHAPE, OpCode.PERMUTE, OpCode.EXPAND, OpCode.SHRINK, OpCode.FLIP, OpCode.COPY,
}  # fmt: skip

_ranges: LivingKeys[Op, Range] = LivingKeys()


def value_range(root: Op) -> Range:
    """Returns (least, greatest) of the elements of an integer or bool Op; those of its dtype where nothing is known.

    >>> from picograd import dtype as dtypes
    >>> value_range(Op(OpCode.IOTA, dtypes.int64, (), 5))
    (0, 4)
    """
    for op in toposort([root], stop=_ranges):
        if op not in _ranges and not op.dtype.is_float:
            _ranges[op] = _range(op)
    return _ranges[root]


def _range(op: Op) -> Range:
    """Returns bounds of an Op from those of its sources, which are known already."""
    low, high = _whole(op.dtype)
    if op.dtype.kind == "b" and op.code is not OpCode.CONST:
        return 0, 1
    if op.code in _RULES:
        found = _RULES[op.code](op)
    elif op.code in SAME:
        found = _ranges[op.src[0]]
    else:
        return low, high
    # NOTE: a range that leaves the dtype says nothing: the value may have wrapped.
    return found if low <= found[0] and found[1] <= high else (low, high)


def _whole(dtype: DType) -> Range:
    return (0, 1) if dtype.kind == "b" else (int(dtype.min), int(dtype.max))


def _union(*ranges: Range) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _sources(op: Op) -> list[Range]:
    return [_ranges[s] for s in op.src]


def _cast(op: Op) -> Range:
    return _whole(op.dtype) if op.src[0].dtype.is_float else _ranges[op.src[0]]


def _add(op: Op) -> Range:
    a, b = _sources(op)
    return a[0] + b[0], a[1] + b[1]


def _subtract(op: Op) -> Range:
    a, b = _sources(op)
    return a[0] - b[1], a[1] - b[0]


def _multiply(op: Op) -> Range:
    corners = [x * y for x in _ranges[op.src[0]] for y in _ranges[op.src[1]]]
    return min(corners), max(corners)


def _divide(op: Op) -> Range:
    a, b = _sources(op)
    return (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] > 0 else _whole(op.dtype)


def _remainder(op: Op) -> Range:
    a, b = _sources(op)
    if b[0] <= 0:
        return _whole(op.dtype)
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _minimum(op: Op) -> Range:
    a, b = _sources(op)
    return min(a[0], b[0]), min(a[1], b[1])


def _maximum(op: Op) -> Range:
    a, b = _sources(op)
    return max(a[0], b[0]), max(a[1], b[1])


def _and(op: Op) -> Range:
    masks = [high for low, high in _sources(op) if low >= 0]
    return (0, min(masks)) if masks else _whole(op.dtype)


def _shift_right(op: Op) -> Range:
    a, n = _sources(op)
    return (a[0] >> n[0], a[1] >> n[0]) if n[0] == n[1] >= 0 else _whole(op.dtype)


def _where(op: Op) -> Range:
    condition, a, b = op.src
    found = [r for r in (_chosen(a, condition, True), _chosen(b, condition, False)) if r is not None]
    return _union(*found) if found else _whole(op.dtype)


def _chosen(value: Op, condition: Op, holds: bool) -> Range | None:
    """The range of a value, or of one plus something, where p < q holds (or does not); None: that is nowhere."""
    if condition.code is not OpCode.CMPLT or condition.src[0].dtype.is_float:
        return _ranges[value]
    p, q = condition.src
    (p_low, p_high), (q_low, q_high) = _ranges[p], _ranges[q]
    if holds:
        known = {p: (p_low, min(p_high, q_high - 1)), q: (max(q_low, p_low + 1), q_high)}
    else:
        known = {p: (max(p_low, q_low), p_high), q: (q_low, min(q_high, p_high))}
    if any(low > high for low, high in known.values()):
        return None
    if value.code is OpCode.ADD and value.src[0] in known:
        low, high = known[value.src[0]]
        shift = _ranges[value.src[1]]
        return low + shift[0], high + shift[1]
    return known.get(value, _ranges[value])


def _reduce(op: Op) -> Range:
    return _ranges[op.src[0]] if op.arg[0] in (OpCode.MAX, OpCode.MIN) else _whole(op.dtype)


_RULES: dict[OpCode, Callable[[Op], Range]] = {
    OpCode.CONST: lambda op: (int(op.arg), int(op.arg)),
    OpCode.VARIABLE: lambda op: (int(op.arg[1]), int(op.arg[2])),
    OpCode.BIND: lambda op: _ranges[op.src[0]],
    OpCode.IOTA: lambda op: (0, max(0, greatest(op.arg) - 1)),
    OpCode.CAST: _cast,
    OpCode.ADD: _add,
    OpCode.SUB: _subtract,
    OpCode.MUL: _multiply,
    OpCode.IDIV: _divide,
    OpCode.MOD: _remainder,
    OpCode.MIN: _minimum,
    OpCode.MAX: _maximum,
    OpCode.AND: _and,
    OpCode.SHR: _shift_right,
    OpCode.WHERE: _where,
    OpCode.REDUCE: _reduce,
    OpCode.PAD: lambda op: _union((0, 0), _ranges[op.src[0]]),
    OpCode.SORT: lambda op: (0, max(0, greatest(op.src[0].shape[op.arg[0]]) - 1)),
    OpCode.CHECK: lambda op: (0, max(0, greatest(op.arg[1]) - 1)),
    OpCode.GATHER: lambda op: _union((0, 0), _ranges[op.src[0]]),
}
