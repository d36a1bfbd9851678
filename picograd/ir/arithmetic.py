"""Arithmetic of operations on Python's numbers, and on intervals of whole numbers.

`fold` computes elementwise Ops of constants: the same bits as the evaluator, or nothing. Sums, products, quotients and
square roots of narrow floats are computed in float64 and rounded by `dtype.scalar`: the second rounding is innocuous
(Figueroa 1995, "When is double rounding innocuous?"). Transcendental functions fold only where the result is exact. Whether
a NaN is folded with its own payload is unspecified, as it is on devices.

`INTERVALS` gives the least and greatest result of an operation from those of its operands: the one table of interval
arithmetic, from which ir/ranges.py, ir/symbolic.py and codegen/passes/inequalities.py tell which integers something can be.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache

from picograd.dtype import DType, Scalar, float64
from picograd.ir.opcode import COMPARE, OpCode

Values = Sequence[Scalar]


def fold(code: OpCode, dtype: DType, source: DType, values: Values) -> Scalar | None:
    """Returns the value of `code` on constants of dtype `source` as `dtype` holds it, or None.

    >>> fold(OpCode.ADD, uint8, uint8, [200, 100])
    44
    """
    if code is OpCode.CAST:
        return _cast(dtype, source, values[0])
    table = {"f": FLOATS, "b": BOOLS}.get(source.kind, INTEGERS)
    if code in COMPARE:
        return bool(COMPARISONS[code](*values))
    rule = table.get(code)
    result = rule(values, dtype) if rule is not None else None
    return None if result is None else dtype.scalar(result)


def _cast(dtype: DType, source: DType, value: Scalar) -> Scalar | None:
    """Floats become integers by truncation, saturating, NaN as 0; integers wrap."""
    if source.kind == "f" and dtype.is_int:
        if math.isnan(value):
            return 0
        return int(max(dtype.min, min(dtype.max, value if math.isinf(value) else int(value))))
    if dtype.kind == "f" and dtype is not float64 and abs(value) > 1 << 53 and source.kind != "f":
        return None  # `scalar` would round twice, by way of float64
    return dtype.scalar(value)


def identity(code: OpCode, dtype: DType) -> Scalar:
    """Returns the neutral element of ADD, MUL, MAX or MIN: combined with any value it leaves that value.

    >>> identity(OpCode.MAX, int8)
    -128
    """
    return {OpCode.ADD: 0, OpCode.MUL: 1, OpCode.MAX: dtype.min, OpCode.MIN: dtype.max}[code]


# ---- integers: wrap; x // 0 and x % 0 are 0, as in kernels ----
ARITHMETIC: dict[OpCode, Callable[[int, int], int]] = {
    OpCode.ADD: operator.add,
    OpCode.SUB: operator.sub,
    OpCode.MUL: operator.mul,
    OpCode.IDIV: lambda a, b: a // b if b else 0,
    OpCode.MOD: lambda a, b: a % b if b else 0,
    OpCode.MIN: min,
    OpCode.MAX: max,
}


def _of_two(function: Callable[[int, int], int]) -> Callable[[Values, DType], Scalar]:
    return lambda values, dtype: function(*values)  # type: ignore[arg-type]


def _shift_left(values: Values, dtype: DType) -> Scalar:
    value, count = values
    return int(value) << int(count) if 0 <= count < dtype.bits else 0


def _shift_right(values: Values, dtype: DType) -> Scalar:
    value, count = values
    return int(value) >> (int(count) if 0 <= count < dtype.bits else dtype.bits)


# ---- floats ----
def _divide(values: Values, dtype: DType) -> Scalar:
    a, b = values
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _square_root(values: Values, dtype: DType) -> Scalar | None:
    return math.sqrt(values[0]) if values[0] >= 0 else None


def _floor(values: Values, dtype: DType) -> Scalar:
    value = values[0]
    return math.copysign(math.floor(value), value) if math.isfinite(value) else value


def _chosen(choose: Callable[[Scalar, Scalar], Scalar]) -> Callable[[Values, DType], Scalar | None]:
    def rule(values: Values, dtype: DType) -> Scalar | None:
        a, b = values
        if math.isnan(a) or math.isnan(b):
            return math.nan
        return None if a == b == 0 else choose(a, b)  # which of two zeros is chosen is unspecified

    return rule


def _at(point: float, result: float | None) -> Callable[[Values, DType], Scalar | None]:
    """A function whose result is exact at one point; None: it is the point itself, with its sign."""

    def rule(values: Values, dtype: DType) -> Scalar | None:
        if values[0] != point:
            return None
        return values[0] if result is None else result

    return rule


def _power_of_two(values: Values, dtype: DType) -> Scalar | None:
    exponent = values[0]
    return math.ldexp(1.0, int(exponent)) if abs(exponent) <= 100 and exponent == int(exponent) else None


def _logarithm(values: Values, dtype: DType) -> Scalar | None:
    mantissa, exponent = math.frexp(values[0])
    return exponent - 1 if mantissa == 0.5 else None


COMPARISONS: dict[OpCode, Callable[[Scalar, Scalar], bool]] = {
    OpCode.CMPLT: operator.lt,
    OpCode.CMPLE: operator.le,
    OpCode.CMPEQ: operator.eq,
    OpCode.CMPNE: operator.ne,
}
BOOLS: dict[OpCode, Callable[[Values, DType], Scalar | None]] = {
    OpCode.AND: lambda values, dtype: values[0] and values[1],
    OpCode.OR: lambda values, dtype: values[0] or values[1],
    OpCode.XOR: lambda values, dtype: values[0] != values[1],
}
INTEGERS: dict[OpCode, Callable[[Values, DType], Scalar | None]] = {
    OpCode.NEG: lambda values, dtype: -values[0],
    **{code: _of_two(function) for code, function in ARITHMETIC.items()},
    OpCode.AND: lambda values, dtype: int(values[0]) & int(values[1]),
    OpCode.OR: lambda values, dtype: int(values[0]) | int(values[1]),
    OpCode.XOR: lambda values, dtype: int(values[0]) ^ int(values[1]),
    OpCode.SHL: _shift_left,
    OpCode.SHR: _shift_right,
    OpCode.FMA: lambda values, dtype: values[0] * values[1] + values[2],
}
FLOATS: dict[OpCode, Callable[[Values, DType], Scalar | None]] = {
    OpCode.NEG: lambda values, dtype: -values[0],
    OpCode.ADD: lambda values, dtype: values[0] + values[1],
    OpCode.SUB: lambda values, dtype: values[0] - values[1],
    OpCode.MUL: lambda values, dtype: values[0] * values[1],
    OpCode.DIV: _divide,
    OpCode.RECIPROCAL: lambda values, dtype: _divide((1.0, values[0]), dtype),
    OpCode.SQRT: _square_root,
    OpCode.FLOOR: _floor,
    OpCode.MAX: _chosen(max),
    OpCode.MIN: _chosen(min),
    OpCode.EXP: _at(0.0, 1.0),
    OpCode.EXP2: _power_of_two,
    OpCode.LOG: _at(1.0, 0.0),
    OpCode.LOG2: _logarithm,
    OpCode.SIN: _at(0.0, None),
    OpCode.COS: _at(0.0, 1.0),
    OpCode.TANH: _at(0.0, None),
    OpCode.ERF: _at(0.0, None),
}


# ---- intervals of whole numbers ----
Interval = tuple[int, int]  # least, greatest


@cache
def whole_interval(dtype: DType) -> Interval:
    """Returns the interval of all values of an integer type, or of bool."""
    return int(dtype.min), int(dtype.max)


def product_interval(a: Interval, b: Interval) -> Interval:
    """Returns the bounds of a product."""
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def _quotient(a: Interval, b: Interval) -> Interval:
    """The quotient grows or falls with the divisor on each side of 0, so its extremes are at the ends of both sides."""
    divisors = [y for y in {b[0], -1, 1, b[1]} if y and b[0] <= y <= b[1]]
    corners = [x // y for x in a for y in divisors] + [0] * (b[0] <= 0 <= b[1])
    return min(corners), max(corners)


def _remainder(a: Interval, b: Interval) -> Interval:
    """The remainder has the sign of the divisor."""
    if a[0] >= 0 and a[1] < b[0]:
        return a
    high = max(0, b[1] - 1)
    return min(0, b[0] + 1), min(a[1], high) if a[0] >= 0 and b[0] >= 0 else high


def _masked(a: Interval, b: Interval) -> Interval | None:
    masks = [high for low, high in (a, b) if low >= 0]
    return (0, min(masks)) if masks else None


def _shifted(a: Interval, n: Interval) -> Interval | None:
    return (a[0] >> n[0], a[1] >> n[0]) if n[0] == n[1] >= 0 else None


# In unlimited integers; None: nothing is known.
INTERVALS: dict[OpCode, Callable[..., Interval | None]] = {
    OpCode.NEG: lambda a: (-a[1], -a[0]),
    OpCode.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    OpCode.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    OpCode.MUL: product_interval,
    OpCode.IDIV: _quotient,
    OpCode.MOD: _remainder,
    OpCode.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    OpCode.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    OpCode.AND: _masked,
    OpCode.SHR: _shifted,
}


# ---- comparisons of intervals: None where some values say one thing and some another ----
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
