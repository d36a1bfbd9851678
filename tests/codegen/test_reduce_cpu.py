"""Which way the lanes of a reduction run: along a row that is contiguous, else side by side over rows that are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.reduce import _walks, num_copies
from picograd.device import Target
from picograd.ir.build import expand, pad, permute, reduce, reshape, shrink, unary, where
from picograd.ir.op import Op, const, filled, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.statements import Alloc, For, If, Let, Load, Prefetch, Shuffle, Statement, lanes_of
from picograd.ir.symbolic import add, floordiv, mul
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

X = Op(OpCode.PARAM, dtypes.float32, (), (0, (64, 96)))


def all_of(statements: Sequence[Statement]) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        if isinstance(statement, For | If):
            yield from all_of(statement.body)


@pytest.mark.parametrize(
    ("value", "axis", "joined"),
    [(X, 1, True), (permute(X, (1, 0)), 0, True), (X, 0, False), (permute(X, (1, 0)), 1, False)],
    ids=["rows", "columns of the transpose", "columns", "rows of the transpose"],
)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_lanes_read_what_is_side_by_side(value: Op, axis: int, joined: bool, target: object) -> None:
    """No gather, whichever way; lanes are joined only where they ran along the row."""
    (item,) = create_schedule([reduce(value, OpCode.ADD, (axis,))]).items
    program = lower(item.kernel, target)  # type: ignore[arg-type]
    statements = [one for phase in program.phases for one in all_of(phase)]
    loads = [one for one in statements if isinstance(one, Load) and one.memory.code is OpCode.PARAM]
    assert any(load.var.arg[1] > 1 for load in loads), "not one vector"
    assert all(load.index.code is not OpCode.VAR or load.index.arg[1] == 1 for load in loads), "a gather"
    assert joined == any(isinstance(one, Let) and one.value.code is OpCode.REDUCE for one in statements)


@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (3,), (1,), (0, 1)])
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_rows_of_images_of_a_symbolic_length_are_not_gathered(axes: tuple[int, ...], target: Target) -> None:
    """A stride that is a product of lengths is no quotient: an index with one counts."""
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 2, 255))
    images = Op(OpCode.PARAM, dtypes.float32, (), (0, (3, 40, n, n)))
    root = reduce(images, OpCode.ADD, axes)
    (item,) = create_schedule([root]).kernel_items()
    loads = [one for phase in lower(item.kernel, target).phases for one in all_of(phase) if isinstance(one, Load)]
    of_images = [load for load in loads if load.memory.code is OpCode.PARAM]
    assert any(lanes_of(load.var) > 1 for load in of_images) and all(lanes_of(load.index) == 1 for load in of_images)
    values = {images: np.random.default_rng(0).standard_normal((3, 40, 9, 9), np.float32)}
    check_same_meaning([root], values, targets=CPU_TARGETS, variables={"n": 9}, tolerance=1e-4)


@pytest.mark.parametrize(("columns", "pieces"), [(2048, 2), (4096, 3), (4097, 6), (9000, 6)])
def test_a_piece_has_as_many_rows_as_fit_and_at_least_one(columns: int, pieces: int) -> None:
    """Six rows; 8192 elements fit."""
    rows = Op(OpCode.PARAM, dtypes.float32, (), (0, (6, columns)))
    (item,) = create_schedule([reduce(rows, OpCode.ADD, (1,))]).items
    (phase,) = lower(item.kernel, CPU_TARGETS[2]).phases
    assert [one.range.src[0].arg for one in phase if isinstance(one, For)] == [pieces]


@pytest.mark.parametrize(("columns", "asked"), [(2048, 1), (1024, 0)])
def test_the_next_long_row_is_asked_for_while_the_exponentials_of_one_are_computed(columns: int, asked: int) -> None:
    """Of the row, not of the weight that all rows share; once, in the loop that computes them."""
    x, weight = (Op(OpCode.PARAM, dtypes.float32, (), (slot, (n, columns))) for slot, n in enumerate((64, 1)))

    def repeated(value: Op) -> Op:
        return expand(value, x.shape)

    powers = unary(OpCode.EXP, x * repeated(weight) - repeated(reduce(x, OpCode.MAX, (1,), keepdim=True)))
    (item,) = create_schedule([powers / repeated(reduce(powers, OpCode.ADD, (1,), keepdim=True))]).items
    program = lower(item.kernel, CPU_TARGETS[2])
    bodies = [one.body for phase in program.phases for one in all_of(phase) if isinstance(one, For)]
    found = [one for body in bodies for one in body if isinstance(one, Prefetch)]
    assert len({one.index for one in found}) == len(found) == asked * 2, "one for each vector of a step"
    assert {item.kernel.params[one.memory.arg[0]].numel for one in found} <= {64 * columns}


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", ["every other", "turned round", "with a transpose", "with every other"])
def test_a_next_row_that_is_not_side_by_side_is_not_asked_for(name: str, rng: np.random.Generator) -> None:
    shapes = [(3, 4096), (2048, 3), (3, 2048)]
    x, y, z = (Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate(shapes))
    every_other = reshape(shrink(reshape(x, (3, 2048, 2)), ((0, 3), (0, 2048), (0, 1))), (3, 2048))
    value = {
        "every other": every_other, "turned round": Op(OpCode.FLIP, z.dtype, (z,), (1,)),
        "with a transpose": z + permute(y, (1, 0)), "with every other": z + every_other,
    }[name]  # fmt: skip

    def repeated(value: Op) -> Op:
        return expand(value, (3, 2048))

    powers = unary(OpCode.EXP, value - repeated(reduce(value, OpCode.MAX, (1,), keepdim=True)))
    root = powers / repeated(reduce(powers, OpCode.ADD, (1,), keepdim=True))
    params = [op for op in toposort([root]) if op.code is OpCode.PARAM]
    arrays = {p: rng.standard_normal(p.shape).astype(np.float32) for p in params}
    check_same_meaning([root], arrays, tolerance=1e-6, targets=CPU_TARGETS[2:])


@pytest.mark.parametrize(("columns", "shared"), [(16, False), (1000, True)])
def test_on_a_gpu_a_long_row_is_the_work_of_a_block_and_a_short_one_of_a_thread(columns: int, shared: bool) -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (64, columns)))
    (item,) = create_schedule([reduce(x, OpCode.ADD, (1,))]).items
    target = Target(device="CUDA", language="cuda", arch="sm_90a", block_threads=256, shared_bytes=1 << 15)
    program = lower(item.kernel, target)
    memory = [one.memory for phase in program.phases for one in all_of(phase) if isinstance(one, Alloc)]
    assert any(one.arg[2] is MemorySpace.SHARED for one in memory) == shared


GPU_CASES = {
    # name: shape, axes; rows of a team of one warp and of several, written out and in loops, ragged and not
    "one warp a row": ((5, 256), (1,)),
    "several warps a row": ((3, 2048), (1,)),
    "a row in a loop": ((1, 2100), (1,)),
    "ragged accesses": ((3, 1001), (1,)),
    "a team too many": ((9, 64), (1,)),
    "rows side by side": ((70, 24), (0,)),
    "ragged rows side by side": ((40, 33), (0,)),
    "parts of rows side by side": ((700, 8), (0,)),
    "a middle axis": ((3, 20, 8), (1,)),
}


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("has_shuffle", [True, False], ids=["shuffles", "memory"])
@pytest.mark.parametrize("name", GPU_CASES)
def test_on_a_gpu_rows_are_shared_by_threads(name: str, has_shuffle: bool, rng: np.random.Generator) -> None:
    """Sums and a softmax over the axes, for blocks of one warp and of four; whole numbers add up exactly."""
    shape, axes = GPU_CASES[name]
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, shape))
    total = reduce(x, OpCode.ADD, axes)
    top = reduce(x, OpCode.MAX, axes, keepdim=True)
    whole = rng.integers(-8, 9, shape).astype(np.float32)
    for threads in (32, 128):
        target = replace(GPU_TARGET, block_threads=threads, has_shuffle=has_shuffle)
        check_same_meaning([total], {x: whole}, targets=[target], device=False)
        check_same_meaning([x - expand(top, shape)], {x: whole}, targets=[target], device=False)


def test_without_shuffles_reductions_of_one_type_meet_in_the_same_memory() -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (3, 256)))
    deviations = x - expand(reduce(x, OpCode.MAX, (1,), keepdim=True), (3, 256))
    (item,) = create_schedule([reduce(unary(OpCode.EXP, deviations), OpCode.ADD, (1,))]).items
    program = lower(item.kernel, replace(GPU_TARGET, has_shuffle=False))
    found = [one for phase in program.phases for one in all_of(phase)]
    assert not any(isinstance(one, Shuffle) for one in found)
    assert sum(isinstance(one, Alloc) and one.memory.arg[2] is MemorySpace.SHARED for one in found) == 1


def test_an_index_of_a_view_walks_as_one_from_the_start() -> None:
    """A summand, be it a number or an input, does not move; a quotient of a loop is left out."""
    i, j = (Op(OpCode.RANGE, dtypes.int64, (const(64, dtypes.int64),), (number, AxisKind.LOOP)) for number in range(2))
    begin = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 64))
    whole = add(mul(i, 64), j)
    assert _walks([whole, add(whole, 5)], i) == _walks([add(whole, begin)], i) == [{i: 64, j: 1}]
    assert _walks([floordiv(whole, 3)], i) == []


@pytest.mark.parametrize("length", [5, 20, 23, 31])
@pytest.mark.parametrize("code", [OpCode.ADD, OpCode.MUL, OpCode.MAX], ids=lambda code: code.name)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_what_does_not_vary_along_a_row_is_counted_in_every_lane(
    length: int, code: OpCode, target: Target, rng: np.random.Generator
) -> None:
    """The rest of a row, joined as one vector of 4 lanes or 2, counts it once for each lane, too."""
    x, own = (Op(OpCode.PARAM, dtypes.float64, (), (slot, (2, n))) for slot, n in enumerate((length, 1)))
    given = {x: rng.standard_normal((2, length)), own: rng.uniform(0.5, 1.0, (2, 1))}
    total = reduce(unary(OpCode.EXP, x), OpCode.ADD, (1,), keepdim=True)
    for same in (filled(0.7, dtypes.float64, (2, length)), expand(own, (2, length))):  # in all rows, and in each
        sums = total + reduce(same, code, (1,), keepdim=True)
        check_same_meaning([x * expand(sums, (2, length))], given, 1e-12, [target])


@pytest.mark.parametrize("sums", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_rows_are_added_up_together_as_far_as_their_sums_fit_into_registers(sums: int, target: Target) -> None:
    """A matrix times some vectors, in one walk: sums of one walk take half of the registers, or those of one row."""
    vectors = [Op(OpCode.PARAM, dtypes.float32, (), (1 + number, (96,))) for number in range(sums)]
    nest = [reduce(X * expand(reshape(vector, (1, 96)), X.shape), OpCode.ADD, (1,)) for vector in vectors]
    (item,) = create_schedule(nest).items
    program = lower(item.kernel, target)
    assert [nest.domain for phase in item.kernel.phases for nest in phase] == [X.shape], "all in one nest"
    allocs = [one.memory for phase in program.phases for one in all_of(phase) if isinstance(one, Alloc)]
    lanes = target.vector_bytes // 4
    held = sum(int(memory.arg[1]) // lanes for memory in allocs if memory.arg[2] is MemorySpace.REGISTER)
    of_row = num_copies([reduce(X, OpCode.ADD, (1,))] * sums, 96, lanes) * sums
    assert 0 < held <= 2 * max(target.num_registers // 2, of_row), "whole rows, and what is left of them"
    rng = np.random.default_rng(0)
    check_same_meaning(nest, {op: rng.normal(size=op.shape).astype(np.float32) for op in (X, *vectors)}, 1e-5)


def test_a_row_is_added_up_in_one_order_however_many_rows_are_stacked() -> None:
    """Each at a place of its own, as the positions of texts that are read together."""

    def stacked(num: int) -> Op:
        places = [Op(OpCode.VARIABLE, dtypes.int64, (), (f"place{row}", 0, 63)) for row in range(num)]
        rows = [shrink(X, ((place, place + const(1, dtypes.int64)), (0, 96))) for place in places]
        value = pad(rows[0], ((0, num - 1), (0, 0)))
        for row in range(1, num):
            is_there = pad(filled(True, dtypes.bool_, (1, 96)), ((row, num - 1 - row), (0, 0)))
            value = where(is_there, pad(rows[row], ((row, num - 1 - row), (0, 0))), value)
        return reduce(value * value, OpCode.ADD, (1,))

    assert [num_copies([stacked(num)], 96, 8) for num in (1, 2, 33)] == [4, 4, 4]
