"""Each rule of simplify fires on its case, and the evaluator gives the same bits before and after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picograd import dtype as dtypes
from picograd.dtype import ALL, DType
from picograd.evaluator import evaluate
from picograd.ir.arithmetic import fold
from picograd.ir.build import cast, compare, expand, flip, iota, pad, permute, reduce, reshape, scan, shrink, unary, where
from picograd.ir.op import Op, const, filled
from picograd.ir.opcode import BINARY, COMPARE, UNARY, OpCode
from picograd.ir.pattern import Pattern, PatternMatcher
from picograd.rewrites.simplify import is_lossless, simplify, simplify_graph, strip_identity

f32, f64, i32, u8, bool_ = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8, dtypes.bool_
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.1]


def source(dtype: DType, shape: tuple[int, ...], name: str = "x") -> Op:
    return Op(OpCode.BUFFER, dtype, (), (name, shape))


def data(op: Op, rng: np.random.Generator) -> np.ndarray:
    if op.dtype.kind == "b":
        return rng.integers(0, 2, op.shape).astype(bool)
    if op.dtype.is_int:
        info = np.iinfo(op.dtype.numpy)
        return rng.integers(info.min, info.max, op.shape, endpoint=True, dtype=op.dtype.numpy)
    values = rng.standard_normal(op.shape)
    special = rng.choice(SPECIAL, op.shape)
    with np.errstate(over="ignore"):
        return np.where(rng.random(op.shape) < 0.5, values, special).astype(op.dtype.numpy)


def same_bits(a: np.ndarray, b: np.ndarray, signed_zeros: bool = True) -> bool:
    """Equal bits; a NaN equals any NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    equal = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    if signed_zeros:
        equal &= np.isnan(wide_a) | (np.signbit(wide_a) == np.signbit(wide_b))
    return bool(equal.all())


def check(before: Op, after: Op, *inputs: Op, signed_zeros: bool = True) -> None:
    assert after.shape == before.shape and after.dtype is before.dtype
    rng = np.random.default_rng(0)
    for _ in range(4):
        values = {x: data(x, rng) for x in inputs}
        old, new = evaluate([before, after], values)
        assert same_bits(old, new, signed_zeros), f"{before} {old} became {after} {new}"


x, y = source(f32, (4, 6)), source(f32, (4, 6), "y")
wide = source(f32, (4, 9), "left"), source(f32, (4, 9), "right")
joined = where(pad(filled(True, bool_, (4, 6)), ((0, 0), (0, 3))), *wide)
n, b = source(i32, (4, 6)), source(bool_, (4, 6))
c = filled(7, i32, (4, 6))


# name of the rule: (a graph it fits, its inputs, what it becomes)
CASES: dict[str, tuple[Op, tuple[Op, ...], Op]] = {
    "nothing": (
        Op(OpCode.FLIP, f32, (source(f32, (2, 0), "e"),), (0,)), (source(f32, (2, 0), "e"),), filled(0, f32, (2, 0))
    ),
    "fold constants": (filled(2.5, f32, (3,)) * filled(0.1, f32, (3,)), (), filled(0.25, f32, (3,))),
    "movement of constant": (reshape(filled(3, f32, (4, 6)), (24,)), (), filled(3, f32, (24,))),
    "pad of zeros": (pad(filled(0, f32, (4,)), ((1, 2),)), (), filled(0, f32, (7,))),
    "constant right": (Op(OpCode.MUL, f32, (filled(2, f32, (4, 6)), x)), (x,), x * 2),
    "add zero": (x + -0.0, (x,), x),
    "sub zero": (x - 0.0, (x,), x),
    "mul one": (x * 1.0, (x,), x),
    "mul zero": (n * 0, (n,), filled(0, i32, (4, 6))),
    "div one": (x / 1.0, (x,), x),
    "idiv one": (Op(OpCode.IDIV, i32, (n, filled(1, i32, (4, 6)))), (n,), n),
    "sub constant": (n - 3, (n,), n + -3),
    "add add": (n + 199 + 200, (n,), n + 399),
    "mul mul": (n * 3 * 5, (n,), n * 15),
    "neg neg": (unary(OpCode.NEG, -x), (x,), x),
    "and true": (Op(OpCode.AND, bool_, (b, filled(True, bool_, (4, 6)))), (b,), b),
    "or false": (Op(OpCode.OR, bool_, (b, filled(False, bool_, (4, 6)))), (b,), b),
    "bool beside zero": (compare(OpCode.CMPEQ, cast(b, i32), 0), (b,), compare(OpCode.CMPEQ, b, False)),
    "pow one": (Op(OpCode.POW, f32, (x, filled(1, f32, (4, 6)))), (x,), x),
    "pow two": (Op(OpCode.POW, f32, (x, filled(2, f32, (4, 6)))), (x,), x * x),
    "cast same": (Op(OpCode.CAST, f32, (x,)), (x,), x),
    "cast cast": (cast(cast(x, f64), dtypes.float16), (x,), cast(x, dtypes.float16)),
    "where constant": (where(filled(False, bool_, (4, 6)), x, y), (x, y), y),
    "where same": (where(b, x, x), (b, x), x),
    "check of what is inside": (
        Op(OpCode.CHECK, dtypes.int64, (filled(3, dtypes.int64, (4, 6)),), (0, 5)),
        (),
        filled(3, dtypes.int64, (4, 6)),
    ),
    "compare what is certain": (
        compare(OpCode.CMPLT, Op(OpCode.AND, i32, (n, filled(15, i32, (4, 6)))), filled(16, i32, (4, 6))),
        (n,),
        filled(True, bool_, (4, 6)),
    ),
    "same movement": (Op(OpCode.FLIP, f32, (reshape(x, (1, 24)),), (0,)), (x,), reshape(x, (1, 24))),
    "reshape reshape": (Op(OpCode.RESHAPE, f32, (reshape(x, (24,)),), (8, 3)), (x,), reshape(x, (8, 3))),
    "permute permute": (
        Op(OpCode.PERMUTE, f32, (permute(reshape(x, (4, 3, 2)), (2, 0, 1)),), (1, 0, 2)),
        (x,),
        permute(reshape(x, (4, 3, 2)), (0, 2, 1)),
    ),
    "expand expand": (
        expand(expand(reshape(x, (1, 24, 1)), (3, 24, 1)), (3, 24, 2)),
        (x,),
        expand(reshape(x, (1, 24, 1)), (3, 24, 2)),
    ),
    "shrink shrink": (
        shrink(shrink(x, ((1, 4), (2, 6))), ((1, 2), (1, 3))),
        (x,),
        shrink(x, ((2, 3), (3, 5))),
    ),
    "shrink joined": (shrink(joined, ((1, 3), (2, 6))), wide, shrink(wide[0], ((1, 3), (2, 6)))),
    "pad pad": (pad(pad(x, ((1, 0), (2, 3))), ((1, 1), (0, 4))), (x,), pad(x, ((2, 1), (2, 7)))),
    "flip flip": (flip(flip(x, (0, 1)), (1,)), (x,), flip(x, (0,))),
    "diagonal matrix": (
        reshape(
            shrink(reshape(pad(reshape(x, (4, 6, 1)), ((0, 0), (0, 0), (0, 6))), (4, 42)), ((0, 4), (0, 36))), (4, 6, 6)
        ),
        (x,),
        where(
            compare(OpCode.CMPEQ, *(expand(reshape(iota(6), s), (4, 6, 6)) for s in ((1, 6, 1), (1, 1, 6)))),
            expand(reshape(x, (4, 6, 1)), (4, 6, 6)),
            0,
        ),
    ),
    "contiguous twice": (
        Op(OpCode.CONTIGUOUS, f32, (Op(OpCode.CONTIGUOUS, f32, (x,)),)),
        (x,),
        Op(OpCode.CONTIGUOUS, f32, (x,)),
    ),
    "detach twice": (Op(OpCode.DETACH, f32, (Op(OpCode.DETACH, f32, (x,)),)), (x,), Op(OpCode.DETACH, f32, (x,))),
    "reduce short": (
        reduce(reshape(x, (4, 1, 6)), OpCode.MAX, (1, 2)),
        (x,),
        reduce(x, OpCode.MAX, (1,)),
    ),
    "scan short": (scan(reshape(x, (4, 1, 6)), OpCode.ADD, 1), (x,), reshape(x, (4, 1, 6))),
    "reduce constant": (reduce(filled(0.75, f32, (4, 6)), OpCode.ADD, (1,)), (), filled(4.5, f32, (4,))),
    "reduce reduce": (
        reduce(reduce(reshape(n, (4, 3, 2)), OpCode.ADD, (1,)), OpCode.ADD, (1,)),
        (n,),
        reduce(reshape(n, (4, 3, 2)), OpCode.ADD, (1, 2)),
    ),
    "matmul of nothing": (
        Op(OpCode.MATMUL, f32, (source(f32, (2, 0), "e"), source(f32, (0, 3), "g"))),
        (source(f32, (2, 0), "e"), source(f32, (0, 3), "g")),
        filled(0, f32, (2, 3)),
    ),
    "strip leaf": (Op(OpCode.LEAF, f32, (x,), "id"), (x,), x),
    "strip detach": (Op(OpCode.DETACH, f32, (x,)), (x,), x),
}
FOLDED = sorted((UNARY | BINARY) - {OpCode.CAST}, key=lambda code: code.name)
RULES = {rule.name: rule for rule in [*simplify.rules, *strip_identity.rules]}


def test_every_rule_has_a_case() -> None:
    assert list(CASES) == list(RULES)


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    before, inputs, expected = CASES[name]
    found: dict[str, Op] = {}
    assert RULES[name].pattern.match(before, found)
    after = RULES[name].action(**found)
    assert isinstance(after, Op) and after is not before
    check(before, after, *inputs)
    if not name.startswith("strip"):
        assert simplify_graph([before]) == [expected]


# ---- G3 ----
@pytest.mark.req("G3")
def test_199_plus_200_folds_to_399_and_equal_graphs_are_the_same_object() -> None:
    total = const(199, dtypes.int64) + const(200, dtypes.int64)
    assert simplify_graph([total])[0] is const(399, dtypes.int64)
    assert const(199, dtypes.int64) + const(200, dtypes.int64) is total


@pytest.mark.req("G3")
def test_a_user_adds_a_rule_and_it_is_asked_first() -> None:
    mine = PatternMatcher([("exp log", Pattern(OpCode.EXP, (Pattern(OpCode.LOG, (Pattern(name="x"),)),)), lambda x: x)])
    graph = Op(OpCode.EXP, f32, (Op(OpCode.LOG, f32, (x * 1.0,)),))
    assert simplify_graph([graph]) == [Op(OpCode.EXP, f32, (Op(OpCode.LOG, f32, (x,)),))]
    assert simplify_graph([graph], simplify + mine) == [x]


@pytest.mark.req("G2")
def test_two_integer_constants_become_one() -> None:
    assert simplify_graph([(n + 4) + 3]) == [n + 7]


# ---- what must not happen ----
def test_a_part_of_several_joined_values_stays() -> None:
    """A part of one of them is a part of that one, on either side of the border."""
    for bounds, chosen in (((4, 6), wide[0]), ((6, 9), wide[1]), ((5, 7), None)):
        part = shrink(joined, ((0, 4), bounds))
        expected = part if chosen is None else shrink(chosen, ((0, 4), bounds))
        assert simplify_graph([part]) == [expected]
        check(part, expected, *wide)


def test_floats_do_not_reassociate() -> None:
    graph = (x + 0.1) + 0.2
    assert simplify_graph([graph]) == [graph]


def test_adding_positive_zero_to_a_float_stays() -> None:
    assert simplify_graph([x + 0.0, x - -0.0, x * 0.0]) == [x + 0.0, x - -0.0, x * 0.0]


def test_a_sum_of_rounded_constants_stays() -> None:
    graph = reduce(filled(0.1, f32, (1000,)), OpCode.ADD, (0,))
    assert simplify_graph([graph]) == [graph]


def test_leaf_and_detach_stay() -> None:
    leaf = Op(OpCode.LEAF, f32, (x,), "id")
    assert simplify_graph([leaf, Op(OpCode.DETACH, f32, (leaf,))]) == [leaf, Op(OpCode.DETACH, f32, (leaf,))]


def test_a_cast_that_loses_stays() -> None:
    graph = cast(cast(x, dtypes.float16), f32)
    assert simplify_graph([graph]) == [graph]


def test_float_sums_of_sums_stay() -> None:
    graph = reduce(reduce(x, OpCode.ADD, (1,)), OpCode.ADD, (0,))
    assert simplify_graph([graph]) == [graph]


def test_pow_two_of_float64_stays() -> None:
    graph = Op(OpCode.POW, f64, (source(f64, (3,)), filled(2, f64, (3,))))
    assert simplify_graph([graph]) == [graph]


def test_sum_over_a_short_axis_keeps_its_value() -> None:
    graph = reduce(reshape(x, (4, 6, 1)), OpCode.ADD, (2,))
    (after,) = simplify_graph([graph])
    assert after is x
    check(graph, after, x, signed_zeros=False)


def test_reductions_of_nothing_are_identities() -> None:
    empty = source(i32, (3, 0))
    for code, value in ((OpCode.ADD, 0), (OpCode.MUL, 1), (OpCode.MAX, i32.min), (OpCode.MIN, i32.max)):
        graph = reduce(empty, code, (1,))
        (after,) = simplify_graph([graph])
        assert after is filled(value, i32, (3,))
        check(graph, after, empty)


def test_a_deep_graph_is_simplified_without_recursion() -> None:
    deep = n
    for _ in range(20_000):
        deep = deep + 1
    assert simplify_graph([deep]) == [n + 20_000]


# ---- folding equals the evaluator ----
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_folding_gives_the_bits_of_the_evaluator(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    for code in [code for code in FOLDED for _ in range(40)]:
        arity = 1 if code in UNARY else 2
        result = bool_ if code in COMPARE else dtype
        sources = tuple(const(data(source(dtype, ()), rng).item(), dtype) for _ in range(arity))
        folded = fold(code, result, dtype, [s.arg for s in sources])
        if folded is not None:
            (expected,) = evaluate([Op(code, result, sources)], {})
            got = np.asarray(evaluate([const(folded, result)], {})[0])
            assert same_bits(expected, got), f"{code} {[s.arg for s in sources]}: {expected}, folded {folded}"


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_folded_casts_give_the_bits_of_the_evaluator(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    for target in [target for target in ALL for _ in range(40)]:
        value = const(data(source(dtype, ()), rng).item(), dtype)
        folded = fold(OpCode.CAST, target, dtype, [value.arg])
        if folded is not None:
            (expected,) = evaluate([Op(OpCode.CAST, target, (value,))], {})
            assert same_bits(expected, evaluate([const(folded, target)], {})[0]), (target, value.arg, expected, folded)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_lossless_cast_comes_back(dtype: DType) -> None:
    value = source(dtype, (200,))
    for target in (target for target in ALL if is_lossless(dtype, target)):
        check(cast(cast(value, target), dtype), value, value)


@pytest.mark.parametrize("value", [0.5, -3.0, 0.1, 2.0**-140, 65504.0, np.inf, -0.0, 0.0])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, f32, f64], ids=str)
def test_sums_of_constants_fold_only_to_what_any_order_gives(dtype: DType, value: float) -> None:
    for count in (1, 3, 256, 5000):
        graph = reduce(filled(value, dtype, (count, 2)), OpCode.ADD, (0,))
        (after,) = simplify_graph([graph])
        check(graph, after, signed_zeros=False)
        if after is not graph and np.isfinite(value) and count > 1:
            running = dtype.scalar(0.0)
            for _ in range(count):
                running = dtype.scalar(running + dtype.scalar(value))
            assert running == after.src[0].arg


# ---- random graphs ----
STEPS: list[Callable[[Op, int], Op]] = [
    lambda op, k: op + (0, 1, -0.0, 3)[k],
    lambda op, k: op - (0, 1, -0.0, 3)[k],
    lambda op, k: op * (0, 1, 2, 3)[k],
    lambda op, k: Op(OpCode.ADD, op.dtype, (filled(k, op.dtype, op.shape), op)),
    lambda op, k: -op,
    lambda op, k: flip(op, ((0,), (1,), (0, 1), (0,))[k]),
    lambda op, k: permute(op, (1, 0)),
    lambda op, k: reshape(op, op.shape[::-1]),
    lambda op, k: pad(op, ((k, 0), (0, 1))),
    lambda op, k: shrink(op, ((0, max(1, int(op.shape[0]) - k)), (0, op.shape[1]))),
    lambda op, k: cast(cast(op, (f64, dtypes.float16, dtypes.int64, f32)[k]), op.dtype),
    lambda op, k: where(compare(OpCode.CMPLT, op, filled(k, op.dtype, op.shape)), op, op * 1),
    lambda op, k: reshape(reduce(op, OpCode.MAX if k % 2 else OpCode.ADD, (k // 2,)), (1, op.shape[1 - k // 2])),
    lambda op, k: op + filled(k, op.dtype, op.shape) * 2,
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 3)), max_size=12), st.sampled_from([f32, i32, u8])
)
def test_random_graphs_keep_their_meaning(steps: list[tuple[int, int]], dtype: DType) -> None:
    start = source(dtype, (3, 4))
    graph = start
    for step, k in steps:
        graph = STEPS[step](graph, k)
    (after,) = simplify_graph([graph])
    check(graph, after, start, signed_zeros=False)
    assert simplify_graph([after]) == [after]
