"""What folds, what is left to run time, and the edges between; that folded bits are right is in test_simplify.py."""

from __future__ import annotations

import itertools
import math

import pytest

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.ir.arithmetic import ARITHMETIC, COMPARISONS, INTERVALS, TRUTHS, fold
from picograd.ir.opcode import OpCode

f16, f32, f64, i8, i32, i64, u8 = (
    dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8,
)  # fmt: skip
bool_ = dtypes.bool_


def same(found: Scalar | None, expected: Scalar | None) -> bool:
    """Equal values of one type, zeros with their signs; a NaN equals any NaN."""
    if found is None or expected is None:
        return found is expected
    if math.isnan(expected):
        return math.isnan(found)
    return type(found) is type(expected) and found == expected and math.copysign(1, found) == math.copysign(1, expected)


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (f64, f16, 1.5, 1.5),
        (f64, f32, 1e300, math.inf),
        (f32, f64, -0.0, -0.0),
        (f64, f32, 2.0**60, 2.0**60),  # from a float there is one rounding, however large it is
        (i64, f32, 1 << 53, 2.0**53),
        (i64, f32, -(1 << 53), -(2.0**53)),
        (i64, f32, (1 << 53) + 1, None),  # float64 would round it before float32 does
        (i64, f32, -(1 << 53) - 1, None),
        (i64, f64, (1 << 53) + 1, 2.0**53),  # its only rounding
        (i64, i8, 200, -56),
        (f32, i8, 1e9, 127),
        (f32, i8, -math.inf, -128),
        (f32, u8, math.nan, 0),
        (f32, i8, -1.9, -1),
        (bool_, f32, True, 1.0),
        (f32, bool_, 0.5, True),
        (i32, bool_, 0, False),
    ],
)  # fmt: skip
def test_casts(source: DType, target: DType, value: Scalar, expected: Scalar | None) -> None:
    assert same(fold(OpCode.CAST, target, source, [value]), expected)


@pytest.mark.parametrize(
    ("code", "value", "count", "expected"),
    [
        (OpCode.SHL, 3, 0, 3), (OpCode.SHL, 1, 7, -128), (OpCode.SHL, 1, 8, 0), (OpCode.SHL, 1, -1, 0),
        (OpCode.SHR, 3, 0, 3), (OpCode.SHR, -128, 7, -1), (OpCode.SHR, -128, 8, -1), (OpCode.SHR, 100, 8, 0),
        (OpCode.SHR, 100, -1, 0), (OpCode.SHR, 100, 1, 50), (OpCode.SHL, 3, 1, 6),
    ],
)  # fmt: skip
def test_shifts(code: OpCode, value: int, count: int, expected: int) -> None:
    assert fold(code, i8, i8, [value, count]) == expected


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (OpCode.NEG, [-128], -128), (OpCode.ADD, [100, 100], -56), (OpCode.SUB, [-100, 100], 56), (OpCode.MUL, [7, 50], 94),
        (OpCode.IDIV, [-7, 2], -4), (OpCode.IDIV, [7, 0], 0), (OpCode.MOD, [-7, 3], 2), (OpCode.MOD, [7, 0], 0),
        (OpCode.MAX, [3, -5], 3), (OpCode.MIN, [3, -5], -5), (OpCode.AND, [12, 10], 8), (OpCode.OR, [12, 10], 14),
        (OpCode.XOR, [12, 10], 6), (OpCode.FMA, [7, 5, 3], 38), (OpCode.FMA, [100, 2, 1], -55),
    ],
)  # fmt: skip
def test_integers(code: OpCode, values: list[int], expected: int) -> None:
    assert fold(code, i8, i8, values) == expected


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (OpCode.DIV, [1.0, 0.0], math.inf), (OpCode.DIV, [1.0, -0.0], -math.inf), (OpCode.DIV, [-1.0, 0.0], -math.inf),
        (OpCode.DIV, [0.0, 0.0], math.nan), (OpCode.DIV, [math.nan, 0.0], math.nan), (OpCode.DIV, [3.0, 4.0], 0.75),
        (OpCode.RECIPROCAL, [4.0], 0.25), (OpCode.RECIPROCAL, [-0.0], -math.inf),
        (OpCode.SQRT, [0.0], 0.0), (OpCode.SQRT, [-0.0], -0.0), (OpCode.SQRT, [2.25], 1.5), (OpCode.SQRT, [-1.0], None),
        (OpCode.FLOOR, [-0.5], -1.0), (OpCode.FLOOR, [0.5], 0.0), (OpCode.FLOOR, [-0.0], -0.0),
        (OpCode.FLOOR, [-math.inf], -math.inf),
        (OpCode.MAX, [0.0, -0.0], None), (OpCode.MAX, [2.0, -3.0], 2.0), (OpCode.MAX, [1.0, math.nan], math.nan),
        (OpCode.MAX, [0.0, 1.0], 1.0), (OpCode.MAX, [1.0, 1.0], 1.0), (OpCode.MIN, [math.nan, 1.0], math.nan),
        (OpCode.MIN, [2.0, -3.0], -3.0), (OpCode.MIN, [2.0, 0.0], 0.0),
        (OpCode.EXP, [0.0], 1.0), (OpCode.EXP, [1.0], None), (OpCode.LOG, [1.0], 0.0), (OpCode.LOG, [2.0], None),
        (OpCode.EXP2, [100.0], 2.0**100), (OpCode.EXP2, [-100.0], 2.0**-100), (OpCode.EXP2, [101.0], None),
        (OpCode.EXP2, [0.5], None), (OpCode.EXP2, [0.0], 1.0), (OpCode.LOG2, [8.0], 3.0), (OpCode.LOG2, [0.25], -2.0),
        (OpCode.LOG2, [3.0], None), (OpCode.LOG2, [0.0], None),
        (OpCode.SIN, [-0.0], -0.0), (OpCode.SIN, [1.0], None), (OpCode.COS, [-0.0], 1.0), (OpCode.COS, [1.0], None),
        (OpCode.TANH, [-0.0], -0.0), (OpCode.ERF, [0.0], 0.0), (OpCode.ERF, [1.0], None), (OpCode.POW, [2.0, 3.0], None),
    ],
)  # fmt: skip
def test_floats(code: OpCode, values: list[float], expected: float | None) -> None:
    assert same(fold(code, f32, f32, values), expected)


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_bools(a: bool, b: bool) -> None:
    assert fold(OpCode.AND, bool_, bool_, [a, b]) is (a and b)
    assert fold(OpCode.OR, bool_, bool_, [a, b]) is (a or b)
    assert fold(OpCode.XOR, bool_, bool_, [a, b]) is (a != b)


@pytest.mark.parametrize("values", [(1, 2), (2, 2), (2, 1)])
def test_comparisons(values: tuple[int, int]) -> None:
    a, b = values
    found = [fold(code, bool_, i32, values) for code in (OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE)]
    assert found == [a < b, a <= b, a == b, a != b]


# ---- intervals ----
ENDS = [(low, high) for low in range(-4, 5) for high in range(low, 5)]


@pytest.mark.parametrize("code", ARITHMETIC, ids=lambda code: code.name)
def test_an_interval_has_every_result_of_its_operands(code: OpCode) -> None:
    """Tight, too; of remainders if every divisor is above all dividends, and no greater than these if none is negative."""
    for a, b in itertools.product(ENDS, ENDS):
        results = [ARITHMETIC[code](x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
        low, high = INTERVALS[code](a, b)
        assert low <= min(results) and max(results) <= high
        is_tight = code is not OpCode.MOD or 0 <= a[0] <= a[1] < b[0]
        assert not is_tight or (low, high) == (min(results), max(results))
        assert code is not OpCode.MOD or min(a[0], b[0]) < 0 or high <= a[1]


def test_an_interval_of_bits_has_every_result_where_it_is_known() -> None:
    """A mask that is not negative has an interval, and so has a shift by a number."""
    for a, b in itertools.product(ENDS, ENDS):
        pairs = list(itertools.product(range(a[0], a[1] + 1), range(b[0], b[1] + 1)))
        masked, shifted = INTERVALS[OpCode.AND](a, b), INTERVALS[OpCode.SHR](a, b)
        assert (masked is None) == (a[0] < 0 and b[0] < 0) and (shifted is None) == (b[0] != b[1] or b[0] < 0)
        assert masked is None or (masked[0] == 0 and {x & y for x, y in pairs} <= {*range(masked[1] + 1)})
        assert shifted is None or shifted == (min(x >> y for x, y in pairs), max(x >> y for x, y in pairs))


@pytest.mark.parametrize("code", TRUTHS, ids=lambda code: code.name)
def test_intervals_decide_a_comparison_where_all_values_do(code: OpCode) -> None:
    for a, b in itertools.product(ENDS, ENDS):
        results = {COMPARISONS[code](x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)}
        assert TRUTHS[code](a, b) is (results.pop() if len(results) == 1 else None), (a, b)
