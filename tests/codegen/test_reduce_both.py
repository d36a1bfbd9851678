"""Reductions along rows and down the columns of the same data in one pass: what is joined, what is not, what it means."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import reduce as reduce_rows
from picograd.codegen import reduce_cpu, reduce_gpu
from picograd.codegen.reduce import Both, in_one_pass, rows_at_once
from picograd.codegen.reduce_cpu import walk_both
from picograd.codegen.reduce_gpu import walk_both_gpu
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, expand, permute, reduce, reshape, unary
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.statements import Load, Store
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.codegen.test_reduce_cpu import all_of
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning


def param(slot: int, *shape: Dim, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def along(x: Op, code: OpCode = OpCode.MAX) -> Op:
    """The reduction of the last axis, repeated along it."""
    total = reduce(x, code, (len(x.shape) - 1,))
    return expand(reshape(total, (*total.shape, 1)), x.shape)


def down(x: Op, code: OpCode = OpCode.ADD) -> Op:
    """The reduction of all axes but the last."""
    return reduce(x, code, tuple(range(len(x.shape) - 1)))


def gradients(x: Op, grad: Op) -> list[Op]:
    """As of a layer norm: one of x's shape, after two levels of reductions along rows; two of a column each."""
    centred = x - along(x)
    return [centred * 2.0 - along(centred * grad, OpCode.ADD), down(grad * centred), down(grad)]


def of(*shape: Dim, dtype: DType = dtypes.float32) -> list[Op]:
    return gradients(param(0, *shape, dtype=dtype), param(1, *shape, dtype=dtype))


X, GRAD, WEIGHT = param(0, 45, 50), param(1, 45, 50), param(2, 50)
BY_COLUMN, BY_ROW = expand(reshape(WEIGHT, (1, 50)), X.shape), expand(reshape(param(3, 45), (45, 1)), X.shape)
EXP = unary(OpCode.EXP2, X - along(X))
FLIPPED = Op(OpCode.FLIP, dtypes.float32, (reduce(X, OpCode.MAX, (1,)),), (0,))
CENTRED_DOWN = X - expand(reshape(down(X, OpCode.MAX), (1, 50)), X.shape)

TOGETHER: dict[str, list[Op]] = {
    "gradients": of(45, 50),
    "whole blocks": of(48, 64),
    "a row more than a block": of(9, 50),
    "fewer columns than lanes": of(45, 3),
    "one more than lanes": of(45, 17),
    "of a batch": of(5, 9, 37),
    "with axes of length 1": of(45, 1, 50),
    "half": of(45, 50, dtype=dtypes.float16),
    "int64": of(45, 50, dtype=dtypes.int64),
    "sums of both ways": [reduce(X, OpCode.ADD, (1,)), down(X)],
    "sums of both ways of a transpose": [reduce(permute(X, (1, 0)), OpCode.ADD, (1,)), down(permute(X, (1, 0)))],
    "each may be walked beside the other": [reduce(BY_COLUMN, OpCode.MAX, (1,)), down(BY_ROW - BY_COLUMN)],
    "greatest and least": [X - along(X), down(X - along(X), OpCode.MAX), down(X, OpCode.MIN)],
    "scaled afterwards": [X - along(X), down(X - along(X)) * WEIGHT + 1.0],
    "by columns": [(X - along(X)) * BY_COLUMN, down(GRAD * (X - along(X)))],
    "an exponential that is kept": [EXP - along(EXP, OpCode.ADD), down(EXP)],
    "of two bytes into four": [cast(X, dtypes.float16), down(X - along(X))],
}
APART: dict[str, list[Op]] = {
    "one row": of(1, 50),
    "three rows": of(3, 50),
    "what another row has stored": [
        X - along(X), reduce(X, OpCode.MAX, (1,)), down(GRAD - expand(reshape(FLIPPED, (45, 1)), X.shape)),
    ],
    "two levels down the columns": [X - along(X), down(CENTRED_DOWN)],
    "elements by their columns": [X - along(X), CENTRED_DOWN],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of eight rows, several rows at a time."""
    for name, value in {"SMALL_ELEMENTS_MAX": 0, "BLOCK_ROWS_MIN": 8, "PIECE_ELEMENTS": 64, "BLOCKS_MIN": 2}.items():
        monkeypatch.setattr(reduce_cpu, name, value)
    monkeypatch.setattr(reduce_rows, "CACHED_COLUMNS_MAX", 0)


def joined(roots: list[Op], target: Target = CPU_TARGETS[0]) -> list[Both]:
    """Returns what is computed in one pass."""
    found: list[Both] = []
    for item in create_schedule(roots).kernel_items():
        params = [Op(OpCode.PARAM, p.dtype, (), (i, (p.numel,))) for i, p in enumerate(item.kernel.params)]
        walk_of = partial(walk_both_gpu if target.is_gpu else walk_both, params=params, target=target)
        found += in_one_pass(item.kernel.phases, params, walk_of, scratch)[1].values()
    return found


def scratch(dtype: DType, numel: Dim) -> Op:
    return Op(OpCode.PARAM, dtype, (), (-1, (numel,)))


def check(roots: list[Op]) -> None:
    """Whole numbers so small that sums are exact, but for those of exponentials."""
    rng = np.random.default_rng(0)
    params = [op for op in toposort(roots) if op.code is OpCode.PARAM]
    arrays = {op: rng.integers(0, 5, [int(n) for n in op.shape]).astype(op.dtype.numpy) for op in params}
    check_same_meaning(roots, arrays)


@pytest.mark.variants(every=34)
@pytest.mark.parametrize("cached", [0, 1024], ids=["several rows at a time", "one row at a time"])
@pytest.mark.parametrize("name", TOGETHER)
def test_what_goes_together_means_the_same(name: str, cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_rows, "CACHED_COLUMNS_MAX", cached)
    assert len(joined(TOGETHER[name])) == 1
    check(TOGETHER[name])


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", APART)
def test_what_does_not_go_together_means_the_same(name: str) -> None:
    assert not joined(APART[name])
    check(APART[name])


@pytest.mark.parametrize("rows", [48, 45, 3])
def test_rows_that_share_a_weight_are_written_together(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is read once for four of them: not where they are few, or where nothing is shared."""
    x, weight = param(0, rows, 50), expand(reshape(param(1, 50), (1, 50)), (rows, 50))
    shared, alone = [(x - along(x)) * weight], [x - along(x)]
    check(shared)
    for roots, expected in ((shared, 4 if rows >= 32 else 1), (alone, 1)):
        (item,) = create_schedule(roots).items
        stores = [one for one in all_of(lower(item.kernel, CPU_TARGETS[0]).phases[0]) if isinstance(one, Store)]
        in_vectors = [one for one in stores if one.memory.code is OpCode.PARAM and one.value.arg[1] == 4]
        assert len(in_vectors) == expected + (expected > 1 and rows % 4 > 0)


# On a GPU a block has at least so many rows as teams: of 50 columns 32.
ON_A_GPU: dict[str, list[Op]] = {
    **{name: TOGETHER[name] for name in TOGETHER if name not in ("a row more than a block", "fewer columns than lanes")},
    "several turns of a team": of(700, 50),
    "a last line of few rows": of(1030, 50),
    "a team of a warp": of(17, 384),
    "a team of several warps": of(67, 1000),
    "three sums": [*of(45, 50), down(X - along(X), OpCode.MAX)],
    "the sum of what is stored": [(stored := cast(X - along(X), dtypes.float16)), down(stored), down(X * GRAD)],
}


@pytest.mark.variants(every=8)
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu_teams_keep_the_totals_of_their_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound, value in {"LINES_MAX": 4, "LINES_MIN": 2, "JOINT_ELEMENTS_MIN": 0}.items():
        monkeypatch.setattr(reduce_gpu, bound, value)
    assert len(joined(ON_A_GPU[name], GPU_TARGET)) == 1
    check(ON_A_GPU[name])


def test_on_a_gpu_few_rows_and_rows_that_registers_do_not_hold_have_their_own_pass() -> None:
    target = replace(GPU_TARGET, block_threads=256)
    assert not joined(of(8, 4096), target) and not joined(of(4096, 20000), target)
    assert not joined(of(64, 4096), target)  # eight blocks where there were 64
    assert [len(joined(of(rows, 512), target)) for rows in (63, 64)] == [0, 1]  # of so many elements that reads are saved


def test_rows_of_a_number_that_is_not_known_have_their_own_pass() -> None:
    rows = Op(OpCode.VARIABLE, dtypes.int64, (), ("rows", 1, 60))
    x, grad = param(0, rows, 50), param(1, rows, 50)
    assert not joined(gradients(x, grad))
    arrays = {op: np.ones((41, 50), np.float32) for op in (x, grad)}
    check_same_meaning(gradients(x, grad), arrays, targets=CPU_TARGETS[:1], variables={"rows": 41}, device=False)


@pytest.mark.parametrize("shape", [(4096, 4096), (16384, 1024), (768, 128), (64, 12, 384), (300, 700)])
def test_blocks_are_long_and_there_are_some_for_several_threads(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (both,) = joined(of(*shape), CPU_TARGETS[2])
    assert 8 <= int(both.num_blocks) <= 64
    assert both.block >= 32
    assert rows_at_once(both.rows, []) == (1 if shape[-1] <= 1024 else 4)


def test_they_are_of_so_many_elements_that_time_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [len(joined(of(256, columns), CPU_TARGETS[2])) for columns in (127, 128)] == [0, 1]


def test_partial_sums_are_read_once_for_several_rows() -> None:
    """And what a row has just stored is not read again."""
    (item,) = create_schedule(of(48, 64)).items
    program = lower(item.kernel, CPU_TARGETS[1])
    loads = [one for one in all_of(program.phases[0]) if isinstance(one, Load)]
    scratch = {i for i, p in enumerate(program.params) if p.role == "scratch"}
    written = {i for i, p in enumerate(program.params) if p.role == "out"}
    assert sum(one.memory.arg[0] in scratch for one in loads if one.memory.code is OpCode.PARAM) == 2
    assert not any(one.memory.arg[0] in written for one in loads if one.memory.code is OpCode.PARAM)


@pytest.mark.parametrize("shape", [(48, 64), (45, 50), (9, 50), (5, 9, 37)])
def test_no_row_beyond_the_last_is_computed(shape: tuple[int, ...]) -> None:
    """It would have a guard."""
    (item,) = create_schedule(of(*shape)).items
    assert [lower(item.kernel, target).num_guards for target in CPU_TARGETS] == [0, 0, 0]
