"""A product with few rows: the sums of a product with many, from a matrix that is read once, where it lies."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.codegen.emit import candidates, guess
from picograd.codegen.matmul_cpu import has_few_rows
from picograd.codegen.panels import columns_apart
from picograd.dtype import DType
from picograd.ir.build import cast, expand, gather, pad, shrink, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.opts import Opts
from picograd.ir.stages import NestKind
from picograd.ir.statements import Transpose, walk
from picograd.ir.symbolic import add, floordiv, mul
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

SHAPES = [(64, 64), (33, 17), (100, 50), (7, 3), (1, 5), (48, 200), (130, 16)]  # K, N: whole vectors, rests, and both


def param(slot: int, *shape: int, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.variants(every=23)
@pytest.mark.parametrize(("k", "n"), SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["columns", "K", "K computed", "K of halves", "padded", "masked"])
def test_it_means_the_same_however_the_matrix_lies(k: int, n: int, layout: str) -> None:
    row, scale = param(0, 1, k), param(1, 1, n)
    dtype = dtypes.float16 if layout == "K of halves" else dtypes.float32
    mask = param(3, n, k, dtype=dtypes.bool_)
    w = param(2, k, n) if layout == "columns" else param(2, n, k, dtype=dtype)
    matrix = {
        "columns": lambda: w,
        "K": lambda: swap_last(w),
        "K computed": lambda: swap_last(w) * expand(scale, (k, n)),
        "K of halves": lambda: swap_last(cast(w, dtypes.float32)),
        "masked": lambda: swap_last(Op(OpCode.WHERE, w.dtype, (mask, w, w * 2))),
        "padded": lambda: swap_last(pad(shrink(w, ((0, n), (1, k))), ((0, 0), (1, 0)))),
    }[layout]()  # fmt: skip
    root = Op(OpCode.MATMUL, dtypes.float32, (row, matrix)) + scale
    arrays = {row: whole_numbers(1, k), scale: whole_numbers(1, n), w: whole_numbers(*w.shape).astype(dtype.numpy)}
    arrays[mask] = np.random.default_rng(1).integers(0, 2, (n, k)).astype(bool)
    check_same_meaning([root], arrays, tolerance=1e-5)


@pytest.mark.variants(every=12)
@pytest.mark.parametrize("m", [2, 5])
@pytest.mark.parametrize("layout", ["columns", "K", "K of bytes"])
@pytest.mark.parametrize(("k", "n"), [(17, 75), (40, 64)], ids=str)
def test_few_rows_mean_the_same(m: int, layout: str, k: int, n: int) -> None:
    """Of rows and a matrix that are computed, with a bias and an activation behind them."""
    rows, bias, scale = param(0, m, k), param(1, 1, n), param(2, 1, n)
    w = param(3, *((k, n) if layout == "columns" else (n, k)), dtype=dtypes.int8 if "bytes" in layout else dtypes.float32)
    matrix = w if layout == "columns" else swap_last(w)
    matrix = cast(matrix, dtypes.float32) * expand(scale, (k, n)) if "bytes" in layout else matrix
    total = Op(OpCode.MATMUL, dtypes.float32, (rows + rows, matrix)) + expand(bias, (m, n))
    root = Op(OpCode.MAX, dtypes.float32, (total, total * 0.5))
    arrays = {op: whole_numbers(*op.shape).astype(op.dtype.numpy) for op in (rows, bias, scale, w)}
    check_same_meaning([root], arrays, tolerance=1e-5)


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("layout", ["columns", "K"])
@pytest.mark.parametrize("is_chosen", [False, True], ids=["own matrices", "chosen matrices"])
def test_few_rows_of_a_batch_mean_the_same(layout: str, is_chosen: bool) -> None:
    """Each of a batch has a matrix of its own, or one that a number chooses, as an expert of a mixture."""
    k = 20
    rows, numbers = param(0, 1, 2, 2, k), param(1, 1, 2, dtype=dtypes.int64)
    w = param(2, *((1, 2) if not is_chosen else (3,)), *((k, 67) if layout == "columns" else (67, k)))
    matrices = gather(w, numbers, 0, 0) if is_chosen else w
    root = Op(OpCode.MATMUL, dtypes.float32, (rows + rows, matrices if layout == "columns" else swap_last(matrices)))
    (item,) = create_schedule([root]).items
    ((nest,),) = item.kernel.phases
    assert has_few_rows(nest, CPU_TARGETS[2])
    arrays = {rows: whole_numbers(*rows.shape), w: whole_numbers(*w.shape), numbers: np.array([[2, 0]])}
    check_same_meaning([root], arrays if is_chosen else {rows: arrays[rows], w: arrays[w]}, tolerance=1e-5)


def test_few_rows_of_a_batch_read_matrices_where_they_are() -> None:
    w, numbers = param(1, 16, 128, 60), param(2, 8, dtype=dtypes.int64)
    for matrices in (param(1, 8, 128, 60), gather(w, numbers, 0, 0)):
        for m in (12, 24, 25):
            root = Op(OpCode.MATMUL, dtypes.float32, (param(0, 8, m, 60), swap_last(matrices)))
            (item,) = create_schedule([root]).items
            ((nest,),) = item.kernel.phases
            assert has_few_rows(nest, CPU_TARGETS[2]) == (m <= 24)
            if m <= 24:
                assert [p.role for p in lower(item.kernel, CPU_TARGETS[2]).params if p.role == "scratch"] == []


def test_columns_behind_a_condition_are_not_read_in_squares() -> None:
    """They are halves and lie along K, as squares do that are transposed in registers."""
    x, w = param(0, 24, 20), param(1, 30, 20, dtype=dtypes.float16)
    padded = swap_last(pad(cast(w, dtypes.float32), ((3, 2), (0, 0))))
    arrays = {op: whole_numbers(*op.shape).astype(op.dtype.numpy) for op in (x, w)}
    check_same_meaning([Op(OpCode.MATMUL, dtypes.float32, (x, padded))], arrays, targets=CPU_TARGETS[1:2])


@pytest.mark.parametrize(
    ("m", "n", "few"),
    [(1, 1000, "all"), (2, 1000, "CPU"), (24, 1000, "32 registers"), (25, 1000, ""), (2, 10, "")],
    ids=str,
)
def test_which_rows_are_few(m: int, n: int, few: str) -> None:
    """As many as the registers hold vectors of sums; not where columns fill no few vectors."""
    (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (param(0, m, 64), param(1, 64, n)))]).items
    ((nest,),) = item.kernel.phases
    for target in (*CPU_TARGETS, GPU_TARGET):
        is_wide = not target.is_gpu and target.num_registers >= 32
        assert has_few_rows(nest, target) == (few == "all" or few == "CPU" and not target.is_gpu or few != "" and is_wide)


def test_rows_of_a_power_of_two_are_spread_over_the_cache() -> None:
    """Of 1024 elements each they would begin in the same set: a copy of them has more between two."""
    for k, extra in ((1024, [2 * (1024 + 16)]), (1000, [])):
        (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (param(0, 2, k), param(1, k, 64)))]).items
        program = lower(item.kernel, CPU_TARGETS[2])
        assert [int(p.numel) for p in program.params if p.role == "scratch"] == extra


@pytest.mark.variants(every=23)
@pytest.mark.parametrize(("k", "n"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [pg.float32, pg.float64, pg.float16, pg.bfloat16, pg.int32], ids=lambda d: d.name)
@pytest.mark.parametrize("is_turned", [True, False], ids=["K", "columns"])
def test_a_row_has_the_same_bits_alone_and_among_others(k: int, n: int, dtype: DType, is_turned: bool) -> None:
    x = (pg.randn(30, k) * 3).to(dtype).realize()
    w = (pg.randn(n, k).T if is_turned else pg.randn(k, n)).to(dtype)
    bias = pg.randn(n).to(dtype)

    def layer(rows: pg.Tensor) -> pg.Tensor:
        return rows @ w + bias

    together = layer(x).float().numpy()
    for first, last in ((0, 1), (1, 3), (3, 8), (8, 30)):
        alone = layer(x[first:last]).float().numpy()
        np.testing.assert_array_equal(alone, together[first:last], err_msg=f"rows {first} to {last}")


@pytest.mark.parametrize("k", [40, 600, 1024])
@pytest.mark.parametrize("is_turned", [True, False], ids=["K", "columns"])
def test_a_row_of_a_batch_has_the_same_bits_alone_and_among_others(k: int, is_turned: bool) -> None:
    x, numbers = pg.randn(6, 30, k).realize(), pg.tensor([3, 0, 0, 2, 1, 3])
    w = pg.randn(4, 70, k).realize().transpose(1, 2) if is_turned else pg.randn(4, k, 70).realize()
    together = (x @ w[numbers]).numpy()
    for first, last in ((0, 2), (2, 8), (8, 30)):
        alone = (x[:, first:last] @ w[numbers]).numpy()
        np.testing.assert_array_equal(alone, together[:, first:last], err_msg=f"rows {first} to {last}")


def test_a_row_that_is_computed_is_computed_once() -> None:
    row, w = param(0, 1, 300), param(1, 500, 300)
    (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (row * row, swap_last(w)))]).items
    program = lower(item.kernel, CPU_TARGETS[2])
    assert [int(p.numel) for p in program.params if p.role == "scratch"] == [300] and len(program.phases) == 2


def test_what_is_transposed_lies_in_its_own_dtype() -> None:
    """Halves are turned as halves, and made wide where their columns stand side by side."""
    row, w = param(0, 1, 64), param(1, 64, 64, dtype=dtypes.float16)
    matrix = swap_last(cast(w, dtypes.float32))
    (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (row, matrix))]).items
    program = lower(item.kernel, CPU_TARGETS[2])
    (square,) = [s for phase in program.phases for s in walk(phase) if isinstance(s, Transpose)]
    assert square.memory.dtype is square.into.dtype is dtypes.float16
    assert (square.stride, square.lanes) == (64, 16)


def test_there_is_nothing_to_choose() -> None:
    root = Op(OpCode.MATMUL, dtypes.float32, (param(0, 1, 64), param(1, 64, 64)))
    (item,) = create_schedule([root]).items
    assert [nest.kind for nest in item.kernel.phases[0]] == [NestKind.MATMUL]
    for target in (*CPU_TARGETS, GPU_TARGET):
        assert guess(item.kernel, target) == Opts(()) and candidates(item.kernel, target) == (Opts(()),)


def test_a_matrix_of_bytes_and_a_batch_of_rows_are_sums_along_rows() -> None:
    """int8 is added up along K twice as fast as it is turned; each of a batch has a matrix of its own."""
    w = cast(swap_last(param(1, 32, 64, dtype=dtypes.int8)), dtypes.float32)
    bytes_ = Op(OpCode.MATMUL, dtypes.float32, (param(0, 1, 64), w))
    batch = Op(OpCode.MATMUL, dtypes.float32, (param(0, 3, 1, 64), param(1, 3, 64, 32)))
    for root in (bytes_, batch):
        (item,) = create_schedule([root]).items
        assert [nest.kind for nest in item.kernel.phases[0]] == [NestKind.REDUCE]


def test_columns_are_apart_by_a_stride_where_k_is_contiguous_in_each() -> None:
    """Not where an axis is in a quotient, too: there the next element of K may be anywhere."""
    k, column = (Op(OpCode.RANGE, dtypes.int64, (const(64, dtypes.int64),), (number, AxisKind.LOOP)) for number in range(2))

    def apart(place: Dim) -> int | None:
        return columns_apart(Op(OpCode.LOAD, dtypes.float32, (param(0, 9999), place)), k, column, 16)  # type: ignore[arg-type]

    place = add(k, mul(column, 64))
    assert apart(place) == apart(add(place, 5)) == 64
    assert apart(add(k, mul(column, 8))) is None and apart(add(mul(k, 2), mul(column, 64))) is None
    assert apart(add(place, mul(floordiv(k, 4), 4))) is None and apart(add(place, mul(floordiv(column, 4), 4))) is None
