"""Bounds of rounding hold what float32 does, and are no larger than they must be; blocks are what they are cut from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.evaluator import evaluate
from picograd.evaluator.graph import apply
from picograd.ir.build import absolute, expand, reshape
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import FUNCTIONS, OpCode
from picograd.ir.shape import ConvArg
from picograd_lab.fuzz.graphs import any_graph, product_graph
from picograd_lab.verify.blocks import block, every
from picograd_lab.verify.bounds import Bounded, _bounded, bounded, difference
from picograd_lab.verify.passes import in_double, wide

X = Op(OpCode.PARAM, dtypes.float32, (), (0, (50, 400)))
Y = Op(OpCode.PARAM, dtypes.float32, (), (1, (400, 30)))


def drawn(scale: float = 1.0) -> dict[Op, np.ndarray]:
    rng = np.random.default_rng(0)
    return {op: (scale * rng.standard_normal(op.arg[1])).astype(np.float32) for op in (X, Y)}


def test_a_sum_in_float32_in_any_order_is_within_the_bound_and_a_term_less_is_not() -> None:
    arrays = drawn()
    x = arrays[X]
    (meaning,) = bounded([Op(OpCode.REDUCE, dtypes.float32, (X,), (OpCode.ADD, (1,)))], arrays)
    in_order = np.cumsum(x, axis=1, dtype=np.float32)[:, -1]
    backwards = np.cumsum(x[:, ::-1], axis=1, dtype=np.float32)[:, -1]
    for found in (in_order, backwards, x.sum(1, dtype=np.float32)):
        assert difference(found, meaning.value, meaning.error, dtypes.float32).share < 0.5
    assert difference(x[:, 1:].sum(1), meaning.value, meaning.error, dtypes.float32).share > 100


def test_a_difference_of_near_numbers_may_lose_what_they_have_lost() -> None:
    arrays = drawn()
    product = Op(OpCode.MATMUL, dtypes.float32, (X, Y))
    (meaning,) = bounded([product * 3.0 - product * 2.999999], arrays)
    found = (arrays[X] @ arrays[Y]) * np.float32(3.0) - (arrays[X] @ arrays[Y]) * np.float32(2.999999)
    seen = difference(found, meaning.value, meaning.error, dtypes.float32)
    assert seen.ulp > 100 and seen.share < 1


def test_what_is_exact_is_allowed_nothing() -> None:
    arrays = drawn()
    (meaning,) = bounded([Op(OpCode.FLIP, dtypes.float32, (X,), (0,))], arrays)
    assert meaning.error is None
    found = meaning.value.copy()
    found[3, 4] = np.nextafter(found[3, 4], np.float32(9))
    seen = difference(found, meaning.value, None, dtypes.float32)
    assert (seen.ulp, seen.wrong, seen.at) == (1.0, 1, 3 * 400 + 4)


def test_a_comparison_that_rounding_may_change_is_not_certain() -> None:
    arrays = drawn()
    total = Op(OpCode.REDUCE, dtypes.float32, (X,), (OpCode.ADD, (1,)))
    near = Op(OpCode.CMPLT, dtypes.bool_, (total, total + 1e-7))
    far = Op(OpCode.CMPLT, dtypes.bool_, (total, total + 1.0))
    (meaning, other) = bounded([near, far], arrays)
    assert meaning.error is not None and meaning.error.all() and other.error is None


def test_numbers_where_none_should_be_are_found() -> None:
    arrays = drawn()
    (meaning,) = bounded([X * 2.0], arrays)
    found = meaning.value.copy()
    found[0, 0] = np.nan
    assert difference(found, meaning.value, meaning.error, dtypes.float32).wrong == 1
    assert difference(meaning.value, found, meaning.error, dtypes.float32).wrong == 1


INTEGERS = {
    OpCode.NEG: 1, OpCode.ADD: 2, OpCode.SUB: 2, OpCode.MUL: 2, OpCode.MAX: 2, OpCode.MIN: 2, OpCode.IDIV: 2, OpCode.MOD: 2,
    OpCode.CMPLT: 2, OpCode.CMPLE: 2, OpCode.CMPEQ: 2, OpCode.CMPNE: 2, OpCode.AND: 2, OpCode.POW: 2,
}  # fmt: skip


@pytest.mark.parametrize("code", INTEGERS, ids=lambda code: code.name)
def test_integers_that_rounding_may_change_have_an_interval(code: OpCode) -> None:
    """Each operand is a float that is cast, with numbers so near to integers that several are possible."""
    rng = np.random.default_rng(0)
    src = [Op(OpCode.PARAM, dtypes.int32, (), (i, (60,))) for i in range(INTEGERS[code])]
    op = Op(code, dtypes.bool_ if code.name.startswith("CMP") else dtypes.int32, tuple(src))
    values = [rng.integers(-9, 10, 60).astype(np.int32) for _ in src]
    errors = [rng.integers(0, 3, 60).astype(np.float64) for _ in src]
    if code in (OpCode.IDIV, OpCode.MOD):
        values[1], errors[1] = np.abs(values[1]) + 1, np.zeros(60)
    given = [Bounded(value, error if error.any() else None) for value, error in zip(values, errors)]
    bound = _bounded(op, given, {})
    found = [np.zeros(60), np.zeros(60)]
    for steps in itertools.product(range(-2, 3), repeat=len(src)):
        moved = [value + np.clip(step, -error, error).astype(np.int32) for value, error, step in zip(values, errors, steps)]
        far = np.abs(apply(op, moved, {}).astype(np.float64) - bound.value)
        assert (far <= bound.error).all()
        found[0] = np.maximum(found[0], far)
    if code not in (OpCode.MOD, OpCode.AND, OpCode.POW):  # of which all is said where a bound is not needed
        np.testing.assert_array_equal(found[0], bound.error)


def test_what_an_uncertain_index_may_read_is_allowed_and_nothing_else() -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 7)))
    index = Op(OpCode.PARAM, dtypes.int64, (), (1, (3,)))
    values = np.arange(14, dtype=np.float32).reshape(2, 7) ** 2
    given = [Bounded(values, None), Bounded(np.array([3, 0, 6]), np.array([1.0, 0.0, 9.0]))]
    bound = _bounded(Op(OpCode.GATHER, dtypes.float32, (x, index), (1, 0)), given, {})
    np.testing.assert_array_equal(bound.error, [[7.0, 0.0, np.inf], [21.0, 0.0, np.inf]])


def test_what_an_uncertain_index_may_add_is_allowed_where_it_may_come() -> None:
    base = Op(OpCode.PARAM, dtypes.int64, (), (0, (6,)))
    index, updates = (Op(OpCode.PARAM, dtypes.int64, (), (i, (2,))) for i in (1, 2))
    given = [
        Bounded(np.zeros(6, np.int64), None),
        Bounded(np.array([1, 4]), np.array([1.0, 0.0])),
        Bounded(np.array([5, 7]), None),
    ]
    for code, far in ((OpCode.ADD, 5.0), (None, np.inf), (OpCode.MAX, np.inf)):
        bound = _bounded(Op(OpCode.SCATTER, dtypes.int64, (base, index, updates), (code, 0, 0)), given, {})
        np.testing.assert_array_equal(bound.error, [far, far, far, 0, 0, 0])


@pytest.mark.parametrize("descending", [False, True])
def test_an_order_is_certain_where_keys_are_apart(descending: bool) -> None:
    keys = Op(OpCode.PARAM, dtypes.float32, (), (0, (7,)))
    given = [Bounded(np.float32([5, 1, 1.5, np.nan, 9, 9, -4]), np.array([0.1, 0.3, 0.3, np.nan, 0, 0, 0.2]))]
    bound = _bounded(Op(OpCode.SORT, dtypes.int64, (keys,), (0, descending)), given, {})
    uncertain = bound.value[bound.error > 0]
    assert sorted(uncertain) == [1, 2] and np.isinf(bound.error[bound.error > 0]).all()


def test_sums_and_products_of_exact_numbers_have_the_bits_that_ieee_754_defines() -> None:
    """Narrow floats are computed in float32, and an FMA may be rounded twice: these are exact where nothing is rounded."""
    quarters = np.arange(1, 61, dtype=np.float32) / 4
    x, y = (Op(OpCode.PARAM, dtype, (), (i, (60,))) for i, dtype in enumerate((dtypes.float32, dtypes.float16)))
    fused = [Op(OpCode.FMA, dtypes.float32, (x, x.filled(factor), x.filled(0.5))) for factor in (1.25, 1.3)]
    roots = [x * 1.3 / 7.0 - 0.1, Op(OpCode.SQRT, dtypes.float32, (x,)), y * 1.25 + 0.5, fused[0], y * 1.3, fused[1]]
    *exact, narrow, rounded_twice = bounded(roots, {x: quarters, y: quarters.astype(np.float16)})
    assert all(meaning.error is None for meaning in exact)
    for meaning in (narrow, rounded_twice, *bounded([x * 1e-39, x * Op(OpCode.EXP, dtypes.float32, (x,))], {x: quarters})):
        assert meaning.error is not None and np.count_nonzero(meaning.error) > 40


SPECIAL = {
    "the root of a negative number": (OpCode.SQRT, [(-2.0, 0.5)], 0.0),
    "the root of what may be negative": (OpCode.SQRT, [(4.0, 5.0)], 2.0),
    "a power of minus infinity": (OpCode.EXP, [(-np.inf, 0.0)], 0.0),
    "0 of a rounded number": (OpCode.MUL, [(0.0, 0.0), (3.0, 0.5)], 0.0),
    "0 by a rounded number": (OpCode.DIV, [(0.0, 0.0), (3.0, 0.5)], 0.0),
    "a number by 0": (OpCode.DIV, [(3.0, 0.0), (0.0, 0.0)], 0.0),
    "a number by what may be 0": (OpCode.DIV, [(3.0, 0.0), (0.5, 0.5)], np.inf),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_zeros_infinities_and_nan_that_are_certain_are_known(name: str) -> None:
    code, operands, far = SPECIAL[name]
    src = [Op(OpCode.PARAM, dtypes.float32, (), (i, (2,))) for i in range(len(operands))]
    # Beside it is an element that is rounded, so that there is a bound.
    given = [Bounded(np.float32([value, 2.0]), np.array([error, 0.25])) for value, error in operands]
    with np.errstate(all="ignore"):
        bound = _bounded(Op(code, dtypes.float32, tuple(src)), given, {})
    assert bound.error[0] == pytest.approx(far) and bound.error[1] > 0


def test_gradients_of_weights_have_a_bound_where_no_products_are_but_near_ones() -> None:
    """A transform of a tile multiplies what no tap does; such products cancel but for their roundings."""
    x, g = (Op(OpCode.PARAM, dtypes.float32, (), (i, (1, 1, 14, 14))) for i in range(2))
    arrays = {op: np.zeros((1, 1, 14, 14), np.float32) for op in (x, g)}
    arrays[x][0, 0, 2, 2], arrays[g][0, 0, 6, 6] = 3.0, 5.0
    op = Op(OpCode.CONV, dtypes.float32, (x, g), ConvArg((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, True, False))
    (meaning,) = bounded([op], arrays)
    assert not meaning.value.any() and meaning.error is not None and (meaning.error > 1e-6).all()


def test_zeros_add_up_to_zero() -> None:
    rows = np.float32([[0, 0, 0], [1, 2, 3]])
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 3)))
    length = Op(OpCode.SQRT, dtypes.float32, (Op(OpCode.REDUCE, dtypes.float32, (x * x,), (OpCode.ADD, (1,))),))
    (meaning,) = bounded([length], {x: rows})
    assert meaning.error is not None and meaning.error[0] == 0 < meaning.error[1]


@pytest.mark.parametrize("code", [OpCode.REDUCE, OpCode.SCAN, OpCode.MATMUL], ids=lambda code: code.name)
def test_infinities_and_nan_of_a_sum_are_those_of_its_terms(code: OpCode) -> None:
    rows = np.float32([[1, np.inf, 2], [np.nan, 3, 4], [np.inf, 5, -np.inf], [1, 2, 3]])
    x, y = (Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(4, 3), (3, 2)]))
    arg = {OpCode.REDUCE: (OpCode.ADD, (1,)), OpCode.SCAN: (OpCode.ADD, 1), OpCode.MATMUL: None}[code]
    (meaning,) = bounded([Op(code, dtypes.float32, (x, y) if arg is None else (x,), arg)], {x: rows, y: np.ones((3, 2))})
    assert meaning.error is not None and np.isfinite(meaning.error).all()
    np.testing.assert_array_equal(meaning.error[~np.isfinite(meaning.value)], 0.0)


@pytest.mark.parametrize("code", [OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.SHL, OpCode.SHR], ids=lambda code: code.name)
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint16, dtypes.int64], ids=str)
def test_bits_of_integers_that_rounding_may_change_are_within_the_bound(code: OpCode, dtype: dtypes.DType) -> None:
    rng = np.random.default_rng(0)
    src = tuple([Op(OpCode.PARAM, dtype, (), (i, (400,))) for i in range(2)])
    values = [rng.integers(20 if dtype.kind == "u" else -60, 200, 400).astype(dtype.numpy) for _ in src]
    errors = [rng.integers(0, 20, 400).astype(np.float64) for _ in src]
    if code in (OpCode.SHL, OpCode.SHR):
        values[1], errors[1] = rng.integers(0, 9, 400).astype(dtype.numpy), np.zeros(400)
    else:
        errors[1][:200] = 0
    op = Op(code, dtype, src)
    bound = _bounded(op, [Bounded(value, error) for value, error in zip(values, errors)], {})
    assert np.isfinite(bound.error).mean() > 0.7
    for _ in range(200):
        steps = [rng.uniform(-1, 1, 400) * error for error in errors]
        moved = [(value + np.round(step).astype(np.int64)).astype(dtype.numpy) for value, step in zip(values, steps)]
        assert (np.abs(apply(op, moved, {}).astype(np.float64) - bound.value.astype(np.float64)) <= bound.error).all()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_the_size_of_a_rounded_number_is_as_certain_as_the_number(dtype: dtypes.DType) -> None:
    """It is made of bits; of a number whose sign is not certain nothing is said."""
    x = Op(OpCode.PARAM, dtype, (), (0, (3,)))
    given = {x: np.array([0.3, -7.5, 1e-30], dtype.numpy)}
    rounded = Op(OpCode.SIN, dtype, (x,))
    size, itself = bounded([absolute(rounded), rounded], given)
    assert size.error is not None and itself.error is not None and np.isinf(size.error[2])
    np.testing.assert_allclose(size.error[:2], itself.error[:2], rtol=0.2, atol=0)


@pytest.mark.parametrize("code", [OpCode.MAX, OpCode.MIN], ids=lambda code: code.name)
def test_the_place_of_an_extreme_is_certain_where_no_other_is_near(code: OpCode) -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (4, 3)))
    sign = 1 if code is OpCode.MAX else -1
    rows = sign * np.log(np.float32([[1, 2, 5], [5, 5, 1], [3, np.nextafter(np.float32(3), np.float32(4)), 1], [1, 1, 1]]))
    rounded = Op(OpCode.EXP, dtypes.float32, (x,))
    greatest = Op(OpCode.REDUCE, dtypes.float32, (rounded,), (code, (1,)))
    places = Op(OpCode.CMPEQ, dtypes.bool_, (rounded, expand(reshape(greatest, (4, 1)), (4, 3))))
    itself = Op(OpCode.CMPNE, dtypes.bool_, (rounded, rounded))
    found, is_nan = bounded([places, itself], {x: rows.astype(np.float32)})
    assert is_nan.error is None and found.error is not None
    # The last row's terms are exact, and so are their powers only if a device says so.
    np.testing.assert_array_equal(found.error, [[0, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]])


def test_what_may_be_added_anywhere_is_allowed_everywhere() -> None:
    base, updates = (Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(2, 6), (2, 3)]))
    index = Op(OpCode.PARAM, dtypes.int64, (), (2, (2, 3)))
    places = Bounded(np.array([[1, 4, 5], [0, 1, 2]]), np.array([[0, 99.0, 0], [0, 0, 0]]))
    given = [Bounded(np.zeros((2, 6), np.float32), None), places, Bounded(np.float32([[5, 7, 8], [1, 2, 3]]), None)]
    added, stored = (
        _bounded(Op(OpCode.SCATTER, dtypes.float32, (base, index, updates), (code, 1, 1)), given, {})
        for code in (OpCode.ADD, None)
    )
    np.testing.assert_allclose(added.error, [[7] * 6, [0] * 6], atol=1e-5)
    assert np.isinf(stored.error[0]).all() and not stored.error[1].any()


def on_another_device(roots: Sequence[Op], arrays: Mapping[Op, np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Returns values of graphs by a device that adds in float64, and whose functions are off by some units."""
    found: dict[Op, np.ndarray] = {}
    for op in toposort(roots):
        if op in arrays:
            found[op] = arrays[op]
            continue
        args = [found[s] for s in op.src]
        if op.code in (OpCode.REDUCE, OpCode.SCAN, OpCode.SCATTER, OpCode.MATMUL, OpCode.CONV) and op.dtype.is_float:
            params = [Op(OpCode.PARAM, s.dtype, (), (i, s.shape)) for i, s in enumerate(op.src)]
            (double,) = in_double([op.replace(src=tuple(params))])
            wide_args = {p: wide(args[p.arg[0]]) for p in toposort([double]) if p.code is OpCode.PARAM}
            (found[op],) = (value.astype(op.dtype.numpy) for value in evaluate([double], wide_args))
            continue
        value = np.asarray(apply(op, args, {}))
        if op.code in FUNCTIONS - {OpCode.SQRT}:
            value = (value * (1 + 4 * 2.0**-24 * rng.uniform(-1, 1, value.shape))).astype(value.dtype)
        found[op] = value
    return [found[root] for root in roots]


@pytest.mark.parametrize("seed", range(12))
def test_graphs_on_another_device_are_within_the_bounds(seed: int) -> None:
    graph = (any_graph, product_graph)[seed % 2](seed)
    roots = [root for root in graph.roots if root.dtype is dtypes.float32]
    found = on_another_device(roots, graph.arrays, np.random.default_rng(seed))
    for value, meaning in zip(found, bounded(roots, graph.arrays)):
        assert difference(value, meaning.value, meaning.error, dtypes.float32).share <= 0.5


def test_blocks_of_a_scatter_read_only_its_other_axes() -> None:
    rng = np.random.default_rng(0)
    base, updates = (Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(4, 9, 6), (4, 5, 6)]))
    index = Op(OpCode.PARAM, dtypes.int64, (), (2, (4, 5)))
    arrays = {op: rng.standard_normal(op.arg[1]).astype(np.float32) for op in (base, updates)}
    arrays[index] = rng.integers(0, 9, (4, 5))
    whole = Op(OpCode.SCATTER, dtypes.float32, (base, index, updates), (OpCode.ADD, 1, 1))
    part = block(whole, ((1, 3), (2, 9), (0, 4)))
    (expected, found) = evaluate([whole, part], arrays)
    np.testing.assert_array_equal(found, expected[1:3, 2:9, 0:4])
    (small,) = [op for op in toposort([part]) if op.code is OpCode.SCATTER]
    assert [s.shape for s in small.src] == [(2, 9, 4), (2, 5), (2, 5, 4)]


@pytest.mark.parametrize("seed", range(40))
def test_a_block_is_a_part_of_the_whole(seed: int) -> None:
    graph = any_graph(seed)
    rng = np.random.default_rng(seed)
    for root, whole in zip(graph.roots, evaluate(graph.roots, graph.arrays)):
        if 0 in root.shape:
            continue
        ranges = []
        for _, length in every(root.shape):
            start = int(rng.integers(0, length))
            ranges.append((start, int(rng.integers(start, length)) + 1))
        (part,) = evaluate([block(root, ranges)], graph.arrays)
        np.testing.assert_array_equal(part, whole[tuple(slice(*one) for one in ranges)])
