"""Where each rule of simplify ends: the last case it fits, and the first it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.dtype import ALL, DType
from picograd.evaluator import evaluate
from picograd.ir.arithmetic import fold
from picograd.ir.build import cast, compare, expand, flip, pad, permute, reduce, reshape, scan, where
from picograd.ir.op import Op, const, filled
from picograd.ir.opcode import OpCode
from picograd.rewrites.simplify import is_lossless, simplify, simplify_graph

f32, f64, i32, u8, bool_ = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8, dtypes.bool_
RULES = {rule.name: rule for rule in simplify.rules}


def source(dtype: DType, shape: tuple[int, ...], name: str = "x") -> Op:
    return Op(OpCode.BUFFER, dtype, (), (name, shape))


x, y = source(f32, (4, 6)), source(f32, (4, 6), "y")
n, b = source(i32, (4, 6)), source(bool_, (4, 6))


# ---- dtypes ----
PROBES = [
    *(s * (2.0**k) for k in (-149, -133, -126, -24, -17, -16, -14, -10, -9, -6, 0, 15, 16, 100, 1023) for s in (1, -1)),
    *(1 + 2.0**-k for k in (2, 3, 7, 8, 10, 11, 23, 24, 52)), 448.0, 57344.0, 65504.0, 3.3895313892515355e38,
]  # fmt: skip


def values_of(dtype: DType) -> list[bool | int | float]:
    """Values at the edges of what a dtype holds."""
    if dtype.kind == "b":
        return [False, True]
    if dtype.is_int:
        return [dtype.min, dtype.min + 1, 0, 1, dtype.max - 1, dtype.max]
    return [value for value in PROBES if dtype.scalar(value) == value]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_lossless_is_said_where_every_value_is_held_and_nowhere_else(dtype: DType) -> None:
    for target in ALL:
        held = all(fold(OpCode.CAST, target, dtype, [value]) == value for value in values_of(dtype))
        assert is_lossless(dtype, target) == (held and (target.kind != "b" or dtype.kind == "b")), target


i8, u16 = dtypes.int8, dtypes.uint16
WAYS_BACK = [(i8, u8), (i8, u16), (u16, dtypes.int16), (i32, f32), (f32, dtypes.bfloat16)]


@pytest.mark.parametrize(("dtype", "between"), WAYS_BACK, ids=str)
def test_a_cast_by_way_of_what_does_not_hold_every_value_stays(dtype: DType, between: DType) -> None:
    graph = cast(cast(source(dtype, (4,)), between), f64)
    assert simplify_graph([graph]) == [graph]


# ---- reductions ----
@pytest.mark.parametrize(
    ("dtype", "value", "count", "folds"),
    [
        (dtypes.float16, 1.0, 2048, True), (dtypes.float16, 1.0, 2049, False), (dtypes.float16, 2.0, 2048, True),
        (dtypes.float16, 3.0, 682, True), (dtypes.float16, -3.0, 683, False), (dtypes.float16, 32.0, 2047, True),
        (dtypes.float16, 32.0, 2048, False),  # 65536 is infinite
        (dtypes.bfloat16, 0.5, 256, True), (dtypes.bfloat16, 0.5, 257, False),
        (f32, 1.0, 1 << 24, True), (f32, 1.0, (1 << 24) + 1, False),
        (f64, 1.0, 1 << 53, True), (f64, 1.0, (1 << 53) + 1, False),
        (dtypes.float8_e4m3, 1.0, 16, True), (dtypes.float8_e4m3, 1.0, 17, False),
        (dtypes.float8_e5m2, 1.0, 8, True), (dtypes.float8_e5m2, 1.0, 9, False),
        (f32, 0.0, 5, True), (f32, -0.0, 5, False), (f32, np.inf, 5, False), (f32, np.nan, 5, False), (i32, 7, 5, True),
    ],
    ids=str,
)  # fmt: skip
def test_a_sum_of_equal_constants_folds_as_long_as_it_is_exact(dtype: DType, value: float, count: int, folds: bool) -> None:
    graph = reduce(filled(value, dtype, (count, 2)), OpCode.ADD, (0,))
    assert simplify_graph([graph]) == [filled(value * count, dtype, (2,)) if folds else graph]


def test_a_length_known_only_when_a_plan_runs_is_not_certain() -> None:
    length = Op(OpCode.VARIABLE, dtypes.int64, (), ("length", 3, 10))
    for code in (OpCode.ADD, OpCode.MAX):
        graph = reduce(filled(2, i32, (4, length)), code, (0, 1))
        assert simplify_graph([graph]) == [graph]
    for value, inside in ((2, True), (3, False)):
        index = filled(value, dtypes.int64, (3,))
        graph = Op(OpCode.CHECK, dtypes.int64, (index,), (0, length))
        assert simplify_graph([graph]) == [index if inside else graph]


@pytest.mark.parametrize("dtype", [f32, i32], ids=str)
def test_other_reductions_of_equal_constants(dtype: DType) -> None:
    ones, threes = filled(1, dtype, (5, 2)), filled(3, dtype, (5, 2))
    product = reduce(threes, OpCode.MUL, (0,))
    assert simplify_graph([reduce(ones, OpCode.MUL, (0,)), product]) == [filled(1, dtype, (2,)), product]
    for code in (OpCode.MAX, OpCode.MIN):
        assert simplify_graph([reduce(threes, code, (0,))]) == [filled(3, dtype, (2,))]


@pytest.mark.parametrize("value", [True, False])
def test_a_sum_of_equal_bools_is_whether_there_is_one(value: bool) -> None:
    for code in (OpCode.ADD, OpCode.MUL, OpCode.MAX):
        graph = reduce(filled(value, bool_, (5, 2)), code, (0,))
        assert simplify_graph([graph]) in ([filled(value, bool_, (2,))], [graph])
        assert (evaluate([graph], {})[0] == value).all()


def test_only_reductions_of_one_kind_become_one() -> None:
    cube, whole = reshape(x, (4, 3, 2)), reshape(n, (4, 3, 2))
    greatest = reduce(reduce(cube, OpCode.MAX, (1,)), OpCode.MAX, (0,))
    product = reduce(reduce(cube, OpCode.MUL, (2,)), OpCode.MUL, (1,))
    mixed = reduce(reduce(whole, OpCode.MAX, (1,)), OpCode.ADD, (1,))
    assert simplify_graph([greatest, product, mixed]) == [reduce(cube, OpCode.MAX, (0, 1)), product, mixed]
    assert simplify_graph([reduce(reduce(whole, OpCode.MUL, (2,)), OpCode.MUL, (0,))]) == [
        reduce(whole, OpCode.MUL, (0, 2))
    ]


# ---- movement, constants ----
def test_a_movement_that_moves_something_stays() -> None:
    square, tall = source(f32, (4, 4)), source(f32, (1, 4, 1))
    moved = [permute(square, (1, 0)), flip(square, (0,)), Op(OpCode.FLIP, f32, (tall,), (0, 1))]
    assert simplify_graph(moved) == moved
    still = [Op(OpCode.FLIP, f32, (tall,), (0, 2)), Op(OpCode.PERMUTE, f32, (square,), (0, 1))]
    assert simplify_graph(still) == [tall, square]
    assert simplify_graph([flip(flip(square, (0, 1)), (0, 1))]) == [square]


def test_constants_are_expanded_once() -> None:
    once = filled(3, f32, (4, 6))
    assert simplify_graph([once]) == [once] and simplify_graph([expand(reshape(once, (4, 6, 1)), (4, 6, 2))]) == [
        filled(3, f32, (4, 6, 2))
    ]
    assert simplify_graph([pad(filled(-0.0, f32, (4,)), ((1, 2),))]) == [pad(filled(-0.0, f32, (4,)), ((1, 2),))]


def test_a_movement_of_a_constant_is_asked_for_once() -> None:
    """The rule itself: a constant that was only repeated is in its last form already."""
    movement_of_constant = RULES["movement of constant"].action
    once = filled(3, f32, (4, 1))
    assert movement_of_constant(once) is None
    for again in (expand(once, (4, 6)), Op(OpCode.EXPAND, f32, (reshape(once, (4, 1)),), (4, 6))):
        assert movement_of_constant(again) is filled(3, f32, (4, 6))
    assert movement_of_constant(reshape(const(3, f32), (1,))) is filled(3, f32, (1,))
    assert movement_of_constant(reshape(x, (24,))) is None


def test_what_is_not_constant_stays_where_it_is() -> None:
    """Rules that ask for constants leave alone what has none, or has one on the other side."""
    both = filled(1, i32, (4, 6)), filled(2, i32, (4, 6))
    assert RULES["constant right"].action(Op(OpCode.ADD, i32, both)) is None
    other = source(i32, (4, 6), "z")
    graphs = [(n + other) + 1, (n * other) * 3, n - other, where(b, x, y), (n + 1) + other, n + other]
    assert simplify_graph(graphs) == graphs


def test_a_condition_that_is_known_chooses() -> None:
    sure, never = filled(True, bool_, (4, 6)), filled(False, bool_, (4, 6))
    assert simplify_graph([where(sure, x, y), where(never, x, y)]) == [x, y]


def test_zeros_and_ones_of_each_kind() -> None:
    wide = source(f64, (4, 6), "wide")
    squares = [Op(OpCode.POW, op.dtype, (op, filled(2, op.dtype, op.shape))) for op in (x, wide)]
    assert simplify_graph([n + 0, n - 0, n * 1, x * 0.0, *squares]) == [n, n, n, x * 0.0, x * x, squares[1]]


@pytest.mark.parametrize(("value", "length", "inside"), [(0, 5, True), (4, 5, True), (5, 5, False), (-1, 5, False)])
def test_a_check_goes_where_the_index_is_inside(value: int, length: int, inside: bool) -> None:
    index = filled(value, dtypes.int64, (3,))
    graph = Op(OpCode.CHECK, dtypes.int64, (index,), (0, length))
    assert simplify_graph([graph]) == [index if inside else graph]


def test_a_check_is_made_where_its_value_does_not_matter() -> None:
    index = Op(OpCode.CHECK, dtypes.int64, (source(dtypes.int64, (4, 6), "k"),), (0, 5))
    graph = where(compare(OpCode.CMPLT, index, filled(2, dtypes.int64, (4, 6))), x, x)
    assert simplify_graph([graph]) == [graph]


def test_axes_of_length_one_are_not_reduced_or_scanned() -> None:
    cube = source(f32, (1, 4, 1, 6), "cube")
    assert simplify_graph([reduce(cube, OpCode.ADD, (0, 1, 2))]) == [reduce(reshape(cube, (4, 6)), OpCode.ADD, (0,))]
    assert simplify_graph([reduce(cube, OpCode.ADD, (1, 3))]) == [reduce(cube, OpCode.ADD, (1, 3))]
    assert simplify_graph([scan(cube, OpCode.ADD, 1)]) == [scan(cube, OpCode.ADD, 1)]


def test_a_product_over_something_stays() -> None:
    graph = Op(OpCode.MATMUL, f32, (source(f32, (2, 1), "e"), source(f32, (1, 3), "g")))
    assert simplify_graph([graph]) == [graph]
