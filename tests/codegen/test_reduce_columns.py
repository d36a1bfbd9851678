"""Reductions down the columns of what lies row by row: strips of neighbours, in any number, in runs, at several levels."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import reduce_cpu
from picograd.codegen.reduce import plan_rows, worth_keeping
from picograd.dtype import DType
from picograd.ir.build import cast, expand, gather, reduce, reshape, unary
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.ir.statements import Alloc, For, Let, Load, lanes_of, walk
from picograd.nn.functions.pooling import max_of_windows, mean_of_bins
from picograd.nn.functions.windows import pooling_windows
from picograd.road import create_schedule, lower
from tests.codegen.test_reduce_cpu import all_of
from tests.same_meaning import CPU_TARGETS, check_same_meaning


def param(slot: int, *shape: int, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def down(x: Op, code: OpCode = OpCode.ADD, axis: int = 0) -> Op:
    return reduce(x, code, (axis,))


def again(total: Op, x: Op) -> Op:
    return expand(reshape(total, (1, *total.shape)), x.shape)


X, W, SCALE = param(0, 45, 50), param(1, 50), param(2, 45)
CENTRED = X - again(down(X, OpCode.MAX), X)
BY_COLUMN = unary(OpCode.SQRT, W * W + 1.0)
ROOTS: dict[str, list[Op]] = {
    "sum": [down(X)],
    "greatest": [down(X, OpCode.MAX)],
    "two at a time": [down(X * 2.0), down(X, OpCode.MIN)],
    "of a batch": [down(param(0, 3, 45, 37), axis=1)],
    "of two axes": [reduce(param(0, 6, 5, 7, 19), OpCode.ADD, (0, 2))],
    "fewer rows than lanes": [down(param(0, 45, 3))],
    "one more than lanes": [down(param(0, 33, 17))],
    "two levels": [down(CENTRED * CENTRED)],
    "with elements": [CENTRED, down(CENTRED)],
    "once for a column": [down(X * expand(reshape(BY_COLUMN, (1, 50)), X.shape))],
    "once for a row": [down(X * expand(reshape(SCALE, (45, 1)), X.shape))],
    "int64": [down(param(0, 45, 50, dtype=dtypes.int64))],
    "half": [down(param(0, 45, 50, dtype=dtypes.float16))],
    "of bools": [down(cast(param(0, 45, 50, dtype=dtypes.bool_), dtypes.int32))],
}


@pytest.mark.variants
@pytest.mark.parametrize("elements", ["in registers", "one by one"])
@pytest.mark.parametrize("name", ROOTS)
def test_it_means_the_same_at_every_level(name: str, elements: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_cpu, "SMALL_ELEMENTS_MAX", 0)
    monkeypatch.setattr(reduce_cpu, "PIECE_ELEMENTS", 256)
    monkeypatch.setattr(reduce_cpu, "STRIP_RUNS", 2)
    if elements == "one by one":
        monkeypatch.setattr(reduce_cpu, "STEPS_AT_ONCE_MAX", 0)
    rng = np.random.default_rng(0)
    params = [op for op in toposort(ROOTS[name]) if op.code is OpCode.PARAM]
    arrays = {op: rng.integers(0, 2 if op.dtype is dtypes.bool_ else 9, op.shape).astype(op.dtype.numpy) for op in params}
    check_same_meaning(ROOTS[name], arrays, tolerance=1e-3 if name == "once for a column" else 0.0)


def test_a_rest_of_short_rows_goes_in_vectors_of_powers_of_two() -> None:
    """Windows side by side, 7 to a line, go in vectors of 4, 2 and 1; a few of them one by one, in less code."""

    def widths(images: int) -> set[int]:
        (item,) = create_schedule([reduce(param(0, images, 2, 7, 2), OpCode.MAX, (1, 3))]).items
        program = lower(item.kernel, CPU_TARGETS[1])
        return {int(load.var.arg[1]) for load in walk(program.phases[0]) if isinstance(load, Load)}

    assert widths(400) == {4, 2, 1} and widths(4) == {1}
    x = param(0, 400, 2, 7, 2)
    arrays = {x: np.random.default_rng(0).standard_normal(x.shape, np.float32)}
    check_same_meaning([reduce(x, OpCode.MAX, (1, 3))], arrays, targets=CPU_TARGETS[1:2])


@pytest.mark.parametrize("columns", [256, 4096, 1000, 48, 24, 7])
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_strips_are_wide_and_there_are_some_for_several_threads(columns: int, target) -> None:
    (item,) = create_schedule([down(param(0, 4096, columns))]).items
    (phase,) = lower(item.kernel, target).phases
    (grid,) = [one for one in phase if isinstance(one, For)]
    lanes = target.vector_bytes // 4
    strip = columns / int(grid.range.src[0].arg)
    assert strip >= min(columns, lanes) / 2
    assert strip <= max(2 * lanes, columns / 4) or columns <= 4 * lanes
    assert strip <= 64 * lanes


def steps(root: Op, code: OpCode) -> list[int]:
    """How many loops stand around each operation of a kind."""
    (item,) = create_schedule([root]).items
    found: list[int] = []

    def walk(body, depth: int) -> None:
        for one in body:
            if isinstance(one, For):
                walk(one.body, depth + 1)
            elif isinstance(one, Let) and one.value.code is code:
                found.append(depth)

    for phase in lower(item.kernel, CPU_TARGETS[1]).phases:
        walk(phase, 0)
    return found


def test_what_all_elements_of_a_row_share_is_computed_once() -> None:
    """The square root of a column's weight, and what its reduction gave, stand in no loop over its elements."""
    assert max(steps(ROOTS["once for a column"][0], OpCode.SQRT)) <= 2
    mean = down(X) / 45.0
    spread = X - again(unary(OpCode.SQRT, mean), X)
    assert max(steps(down(spread * spread), OpCode.SQRT)) <= 2


@pytest.mark.parametrize(("elements", "expected"), [(X, 8), (X * X + X, 8), (unary(OpCode.EXP2, X * X), 8)])
def test_a_total_is_kept_in_a_register_for_several_elements(
    elements: Op, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce_cpu, "SMALL_ELEMENTS_MAX", 0)
    (item,) = create_schedule([down(elements)]).items
    program = lower(item.kernel, CPU_TARGETS[1])
    sums = [one for one in all_of(program.phases[0]) if isinstance(one, Let) and one.value.code is OpCode.ADD]
    in_vectors = [one for one in sums if one.var.arg[1] == 8 and one.var.dtype is dtypes.float32]
    assert len(in_vectors) >= expected
    monkeypatch.setattr(reduce_cpu, "SMALL_ELEMENTS_MAX", 45 * 50)
    few = [one for one in all_of(lower(item.kernel, CPU_TARGETS[1]).phases[0]) if isinstance(one, Let)]
    assert sum(one.value.code is OpCode.ADD and one.var.arg[1] == 8 for one in few) < len(in_vectors)


def test_lanes_run_along_a_bin_that_begins_at_a_quotient() -> None:
    x = param(0, 4, 16, 1000)
    item = create_schedule([mean_of_bins(x, 2, 7)]).items[0]
    params = [Op(OpCode.PARAM, p.dtype, (), (i, (p.numel,))) for i, p in enumerate(item.kernel.params)]
    (nest,) = [nest for nest in item.kernel.phases[0] if nest.domain[-1] > 7]
    assert not plan_rows(nest, params, CPU_TARGETS[0])[1]


# ---- exponentials that several levels need ----
ROW = param(0, 9, 100)
POWERS = unary(OpCode.EXP, ROW - expand(reshape(reduce(ROW, OpCode.MAX, (1,)), (9, 1)), ROW.shape))
TOTAL = expand(reshape(reduce(POWERS, OpCode.ADD, (1,)), (9, 1)), ROW.shape)


def kept(roots: list[Op]) -> list[list[OpCode]]:
    (item,) = create_schedule(roots).items
    (nests,) = item.kernel.phases
    params = [Op(OpCode.PARAM, p.dtype, (), (i, (p.numel,))) for i, p in enumerate(item.kernel.params)]
    rows, _ = plan_rows(nests[0], params, CPU_TARGETS[0])
    return [[op.code for op in level] for level in worth_keeping(rows)]


def test_an_exponential_that_is_needed_again_is_kept() -> None:
    assert kept([POWERS / TOTAL]) == [[], [OpCode.EXP]]
    assert kept([reduce(POWERS, OpCode.ADD, (1,))]) == [[], []]
    shares = POWERS / TOTAL
    dot = expand(reshape(reduce(shares * ROW, OpCode.ADD, (1,)), (9, 1)), ROW.shape)
    assert kept([shares * (ROW - dot)]) == [[], [OpCode.EXP], []]
    assert kept([ROW * 2.0 - expand(reshape(reduce(ROW * 2.0, OpCode.ADD, (1,)), (9, 1)), ROW.shape)]) == [[]]


def test_an_exponential_that_is_needed_elsewhere_too_is_not_kept() -> None:
    """What is kept is that of the element at hand; turned round, another one is asked for."""
    turned = Op(OpCode.FLIP, POWERS.dtype, (POWERS,), (1,))
    assert kept([turned / TOTAL]) == [[], []]
    assert kept([(turned + POWERS) / TOTAL]) == [[], []]
    values = np.random.default_rng(0).standard_normal((9, 100)).astype(np.float32)
    check_same_meaning([(turned + POWERS) / TOTAL], {ROW: values}, tolerance=1e-6)


def test_a_kept_exponential_is_computed_once_and_means_the_same() -> None:
    root = POWERS / TOTAL
    check_same_meaning([root], {ROW: np.random.default_rng(0).standard_normal((9, 100)).astype(np.float32)}, tolerance=1e-6)
    (item,) = create_schedule([root]).items
    program = lower(item.kernel, CPU_TARGETS[1])
    statements = [one for phase in program.phases for one in all_of(phase)]
    memory = [one for one in statements if isinstance(one, Alloc) and one.memory.arg[2] is MemorySpace.SHARED]
    assert [one.memory.arg[1] for one in memory] == [100]


def test_of_a_row_that_no_cache_holds_nothing_is_kept() -> None:
    long = param(0, 2, 20000)
    powers = unary(OpCode.EXP, long)
    total = expand(reshape(reduce(powers, OpCode.ADD, (1,)), (2, 1)), long.shape)
    assert kept([powers / total]) == []


@pytest.mark.parametrize("shape", [(1, 5), (9, 5)], ids=str)
def test_sums_of_chosen_rows_read_them_along_their_elements(shape: tuple[int, ...]) -> None:
    """The mean of a sentence's embeddings, a node's neighbours: a vector is elements of one row, not one of many rows."""
    table, chosen = param(0, 11, 48), param(1, *shape, dtype=dtypes.int64)
    root = reduce(gather(table, chosen, 0, 0), OpCode.ADD, (1,))
    rng = np.random.default_rng(0)
    arrays = {table: rng.integers(-4, 5, (11, 48)).astype(np.float32), chosen: rng.integers(0, 11, shape)}
    check_same_meaning([root], arrays)
    for target in CPU_TARGETS:
        (item,) = create_schedule([root], target).items
        loads = [one for phase in lower(item.kernel, target).phases for one in walk(phase) if isinstance(one, Load)]
        of_table = [load for load in loads if load.memory.arg[0] == 0 and load.memory.code is OpCode.PARAM]
        assert of_table and all(lanes_of(load.index) == 1 for load in of_table)
        assert {lanes_of(load.var) for load in of_table} == {target.vector_bytes // 4}


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_windows_of_symbolic_images_are_proved_and_divide_nothing_for_each_element(ceil_mode: bool) -> None:
    h, w = (Op(OpCode.VARIABLE, dtypes.int64, (), (name, 32, 63)) for name in "hw")
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 20, h, w)))
    roots = max_of_windows(x, pooling_windows("max_pool2d", x, (3, 2, 0, 1), ceil_mode))
    for item in create_schedule([*roots]).kernel_items():
        program = lower(item.kernel, CPU_TARGETS[-1])
        named = [one for one in walk(program.phases[0]) if isinstance(one, Let)]
        divisions = [one.var for one in named if one.value.code in (OpCode.IDIV, OpCode.MOD)]
        assert program.num_guards == 0 and all(lanes_of(var) == 1 for var in divisions)
    values = {x: np.random.default_rng(0).standard_normal((2, 20, 37, 44), np.float32)}
    check_same_meaning([*roots], values, targets=CPU_TARGETS, variables={"h": 37, "w": 44})
