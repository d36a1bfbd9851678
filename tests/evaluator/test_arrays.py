"""Movement, reductions, scans, sorting and indexing against NumPy and torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.checks import OutOfRange, Site
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

FLOATS = [t for t in dtypes.ALL if t.is_float]
INTS = [t for t in dtypes.ALL if t.is_int]


def run(code: OpCode, *arrays: np.ndarray[Any, Any], arg: Any = None, dtype: DType | None = None) -> Any:
    src = tuple(
        Op(OpCode.PARAM, dtypes.from_numpy(a.dtype), (), (i, a.shape)) for i, a in enumerate(arrays)
    )  # fmt: skip
    return evaluate([Op(code, dtype or src[0].dtype, src, arg)], dict(zip(src, arrays)))[0]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


# ---- movement ----
@pytest.mark.parametrize(
    "code, arg, expected",
    [
        (OpCode.RESHAPE, (4, 6), X.reshape(4, 6)),
        (OpCode.PERMUTE, (2, 0, 1), X.transpose(2, 0, 1)),
        (OpCode.PAD, ((1, 0), (0, 2), (0, 0)), np.pad(X, ((1, 0), (0, 2), (0, 0)))),
        (OpCode.SHRINK, ((0, 1), (1, 3), (2, 2)), X[0:1, 1:3, 2:2]),
        (OpCode.FLIP, (0, 2), X[::-1, :, ::-1]),
    ],
)
def test_movement(code: OpCode, arg: Any, expected: Any) -> None:
    np.testing.assert_array_equal(run(code, X, arg=arg), expected)


def test_expand_repeats_axes_of_length_one_and_scalars() -> None:
    np.testing.assert_array_equal(run(OpCode.EXPAND, X[:, :1], arg=(2, 5, 4)), np.repeat(X[:, :1], 5, 1))
    np.testing.assert_array_equal(run(OpCode.EXPAND, np.array(2.0, np.float32), arg=(2, 2)), np.full((2, 2), 2.0))


def test_movement_of_a_scalar() -> None:
    one = np.array(1.0, np.float32)
    assert run(OpCode.RESHAPE, one, arg=(1, 1)).tolist() == [[1.0]]
    assert run(OpCode.PERMUTE, one, arg=()).shape == run(OpCode.PAD, one, arg=()).shape == ()


def test_results_alias_neither_inputs_nor_each_other() -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 3, 4)))
    flat = Op(OpCode.RESHAPE, dtypes.float32, (x,), (24,))
    mine = X.copy()
    results = evaluate([x, flat, flat], {x: mine})
    for i, result in enumerate(results):
        assert not np.shares_memory(result, mine)
        assert not any(np.shares_memory(result, other) for other in results[:i])


# ---- reductions ----
@pytest.mark.parametrize("axes", [(), (0,), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("code", [OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN], ids=lambda c: c.name)
def test_reduce(code: OpCode, axes: tuple[int, ...]) -> None:
    function = {OpCode.ADD: np.sum, OpCode.MUL: np.prod, OpCode.MAX: np.max, OpCode.MIN: np.min}[code]
    x = X.astype(np.int64) % 7 + 1
    np.testing.assert_array_equal(run(OpCode.REDUCE, x, arg=(code, axes)), function(x, axis=axes))


@pytest.mark.parametrize("dtype", [t for t in FLOATS if t.itemsize < 8], ids=repr)
def test_float_sums_are_exact_and_rounded_once(dtype: DType, rng: np.random.Generator) -> None:
    x = rng.normal(size=1000).astype(dtype.numpy)
    exact = math.fsum(x.astype(np.float64))
    assert float(run(OpCode.REDUCE, x, arg=(OpCode.ADD, (0,)))) == float(np.asarray(exact).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_reducing_nothing_gives_the_identity(dtype: DType) -> None:
    nothing = np.zeros((0, 2), dtype.numpy)
    for code, identity in ((OpCode.ADD, 0), (OpCode.MUL, 1), (OpCode.MAX, dtype.min), (OpCode.MIN, dtype.max)):
        result = run(OpCode.REDUCE, nothing, arg=(code, (0,)))
        assert result.dtype == dtype.numpy
        expected = np.full(2, identity).astype(np.float64).astype(dtype.numpy) if dtype.is_float else [identity] * 2
        assert np.array_equal(result.astype(object), np.array(expected).astype(object), equal_nan=False) or (
            dtype is dtypes.float8_e4m3 and np.isnan(result.astype(np.float32)).all()  # it has no infinity
        )


def test_integer_sums_wrap_and_bools_stay_bool() -> None:
    assert run(OpCode.REDUCE, np.full(3, 100, np.int8), arg=(OpCode.ADD, (0,))) == 44
    assert run(OpCode.REDUCE, np.array([True, True]), arg=(OpCode.ADD, (0,))).tolist() is True
    assert run(OpCode.REDUCE, np.array([True, False]), arg=(OpCode.MUL, (0,))).tolist() is False


def test_nan_wins_in_maxima_and_minima() -> None:
    x = np.array([1.0, math.nan, 2.0], np.float32)
    for code in (OpCode.MAX, OpCode.MIN):
        assert np.isnan(run(OpCode.REDUCE, x, arg=(code, (0,))))
        assert np.isnan(run(OpCode.SCAN, x, arg=(code, 0))).tolist() == [False, True, True]


@pytest.mark.parametrize("axis", [0, 1])
def test_scan_is_inclusive(axis: int) -> None:
    x = np.array([[1, 2, 3], [4, -5, 6]], np.int32)
    np.testing.assert_array_equal(run(OpCode.SCAN, x, arg=(OpCode.ADD, axis)), np.cumsum(x, axis))
    np.testing.assert_array_equal(run(OpCode.SCAN, x, arg=(OpCode.MUL, axis)), np.cumprod(x, axis))
    np.testing.assert_array_equal(run(OpCode.SCAN, x, arg=(OpCode.MAX, axis)), np.maximum.accumulate(x, axis))


# ---- sorting ----
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.uint8, dtypes.bool_], ids=repr)
def test_sort_is_torchs_stable_argsort(dtype: DType, descending: bool, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, (4, 9)).astype(dtype.numpy)
    for axis in (0, 1):
        plain = torch.tensor(x.astype(np.float32 if dtype.is_float else dtype.numpy))
        expected = torch.sort(plain, dim=axis, descending=descending, stable=True).indices.numpy()
        result = run(OpCode.SORT, x, arg=(axis, descending), dtype=dtypes.int64)
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_the_greatest_when_sorting(descending: bool) -> None:
    x = np.array([1.0, math.nan, -math.inf, math.inf, math.nan, 0.0], np.float32)
    expected = torch.sort(torch.tensor(x), descending=descending, stable=True).indices
    assert run(OpCode.SORT, x, arg=(0, descending), dtype=dtypes.int64).tolist() == expected.tolist()


# ---- indexing ----
def test_gather_rows() -> None:
    index = np.array([[2, 0], [1, 1]])
    np.testing.assert_array_equal(run(OpCode.GATHER, X[0], index, arg=(0, 0)), X[0][index])


def test_gather_along_a_later_axis() -> None:
    index = np.array([3, 0, 3], np.uint8)
    np.testing.assert_array_equal(run(OpCode.GATHER, X, index, arg=(2, 0)), X[:, :, index])


def test_gather_with_batch_axes() -> None:
    index = np.array([[2, 0], [1, 1]])
    expected = np.stack([X[b][index[b]] for b in range(2)])
    np.testing.assert_array_equal(run(OpCode.GATHER, X, index, arg=(1, 1)), expected)
    expected = np.stack([X[b][:, index[b]] for b in range(2)])
    np.testing.assert_array_equal(run(OpCode.GATHER, X, index, arg=(2, 1)), expected)


def test_gather_by_a_scalar_takes_an_axis_away() -> None:
    np.testing.assert_array_equal(run(OpCode.GATHER, X, np.array(1), arg=(1, 0)), X[:, 1])


def scatter(base: Any, index: Any, updates: Any, code: OpCode | None, axis: int = 0, batch: int = 0) -> Any:
    return run(OpCode.SCATTER, np.array(base), np.array(index), np.array(updates), arg=(code, axis, batch))


def test_scatter_stores_in_order_so_the_last_wins() -> None:
    assert scatter([0.0, 0.0, 0.0], [1, 2, 1], [5.0, 6.0, 7.0], None).tolist() == [0.0, 7.0, 6.0]


@pytest.mark.parametrize(
    "code, expected",
    [(OpCode.ADD, [1, 15, 6]), (OpCode.MUL, [1, 70, 6]), (OpCode.MAX, [1, 7, 3]), (OpCode.MIN, [1, 2, 2])],
)
def test_scatter_combines_equal_indices(code: OpCode, expected: list[int]) -> None:
    updates = [5, 3 if code in (OpCode.ADD, OpCode.MAX) else 2, 7]
    base = [1, 3, 3] if code is OpCode.ADD else ([1, 2, 3])
    assert scatter(base, [1, 2, 1], updates, code).tolist() == expected


def test_scatter_is_the_transpose_of_gather(rng: np.random.Generator) -> None:
    """sum(gather(x) * u) == sum(x * scatter_add(0, u)) in integers, for axes and batches."""
    for shape, axis, batch, index_shape in [
        ((5, 3), 0, 0, (4,)),
        ((2, 3, 5, 2), 2, 1, (2, 3)),
        ((2, 5), 1, 1, (2, 2, 2)),
    ]:
        x, index = rng.integers(-9, 9, shape), rng.integers(0, 5, index_shape)
        gathered = run(OpCode.GATHER, x, index, arg=(axis, batch))
        u = rng.integers(-9, 9, gathered.shape)
        back = scatter(np.zeros(shape, np.int64), index, u, OpCode.ADD, axis, batch)
        assert (gathered * u).sum() == (x * back).sum()


def test_scattered_sums_are_exact_and_rounded_once() -> None:
    base, updates = np.zeros(1, np.float32), np.array([2.0**30, 1.0, -(2.0**30)], np.float32)
    assert scatter(base, [0, 0, 0], updates, OpCode.ADD).tolist() == [1.0]


@pytest.mark.parametrize("wrong", [5, -1])
def test_an_index_outside_its_axis_names_nothing(wrong: int) -> None:
    index = np.array([[0, 4], [wrong, 1]])
    found = run(OpCode.GATHER, np.ones((2, 5)), index, arg=(1, 1))
    assert found.tolist() == [[1, 1], [0, 1]]
    assert scatter(np.zeros(5), [wrong, 1], [1.0, 2.0], None).tolist() == [0, 2, 0, 0, 0]
    assert run(OpCode.GATHER, np.ones((0, 3)), np.array([wrong]), arg=(0, 0)).tolist() == [[0, 0, 0]]


@pytest.mark.req("B6")
@pytest.mark.parametrize("wrong", [5, -1])
def test_a_check_names_what_it_does_not_let_pass(wrong: int) -> None:
    site = Site("rows: {} is not one of 5.", "take another.")
    assert run(OpCode.CHECK, np.array([0, 4]), arg=(site, 5)).tolist() == [0, 4]
    with pytest.raises(OutOfRange) as raised:
        run(OpCode.CHECK, np.array([0, wrong, 7]), arg=(site, 5))
    assert (raised.value.fact, raised.value.value) == (f"rows: {wrong} is not one of 5.", wrong)


def test_nothing_can_be_gathered_from_nowhere() -> None:
    assert run(OpCode.GATHER, np.zeros((0, 3)), np.zeros(0, np.int64), arg=(0, 0)).shape == (0, 3)
