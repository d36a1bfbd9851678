"""Scatters of many updates on a GPU mean what the Op means and have threads enough; on a CPU places are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import scatter
from picograd.codegen.scatter import RUN_UPDATES_MAX, SORTED_ROWS_MAX, UNSORTED_UPDATES_MAX
from picograd.codegen.sort import THREAD_ELEMENTS_MAX
from picograd.device import Target
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.evaluator import evaluate, evaluate_program
from picograd.ir.build import cast, expand, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel, Program
from picograd.ir.statements import Barrier, For, Let, Statement, lanes_of, walk
from picograd.road import create_schedule, lower
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, ByTurns, check_same_meaning

CODES = (OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN, None)


@dataclass(frozen=True)
class Case:
    """A scatter: base (left, places, right), index (left[:batch], count).

    outside:  how far indices may be beyond either end of the axis
    equal:    all indices are the same
    """

    left: tuple[int, ...]
    places: int
    right: tuple[int, ...]
    count: tuple[int, ...]
    batch: int = 0
    dtype: DType = dtypes.float32
    index_dtype: DType = dtypes.int64
    outside: int = 2
    equal: bool = False

    def graph(self, code: OpCode | None) -> tuple[Op, Op, Op, Op]:
        """Returns the SCATTER, its base, index and updates."""
        base = _param(0, (*self.left, self.places, *self.right), self.dtype)
        index = _param(1, (*self.left[: self.batch], *self.count), self.index_dtype)
        updates = _param(2, (*self.left, *self.count, *self.right), self.dtype)
        arg = (code, len(self.left), self.batch)
        return Op(OpCode.SCATTER, self.dtype, (base, index, updates), arg), base, index, updates

    def arrays(self, code: OpCode | None, seed: int = 0) -> list[Array]:
        """Returns small whole numbers, of which sums are exact; of which products are, too."""
        rng = np.random.default_rng(seed)
        _, base, index, updates = self.graph(code)
        low, high = (-1, 2) if code is OpCode.MUL else (-4, 5)
        low = low if self.index_dtype.kind == "i" and self.dtype.kind in "if" else 0
        values = [rng.integers(low, high, op.shape).astype(op.dtype.numpy) for op in (base, updates)]
        least = -self.outside if self.index_dtype.kind == "i" else 0
        drawn = rng.integers(least, self.places + self.outside, index.shape)
        places = np.full(index.shape, min(1, self.places - 1)) if self.equal else drawn
        return [values[0], places.astype(self.index_dtype.numpy), values[1]]


def _param(slot: int, shape: Sequence[int], dtype: DType) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, tuple(shape)))


def kernel_of(root: Op, target: Target = TARGET) -> Kernel:
    (item,) = create_schedule([root], target).kernel_items()
    return item.kernel


def expected(case: Case, code: OpCode | None, arrays: Sequence[Array]) -> Array:
    root, *params = case.graph(code)
    return evaluate([root], dict(zip(params, arrays)))[0]


SMALL: dict[str, tuple[Case, OpCode | None]] = {  # an evaluator of Programs takes its time
    "a line": (Case((), 2, (), (70,)), OpCode.ADD),
    "batches": (Case((2,), 3, (8,), (5, 7), 1, dtypes.float16), None),
}
CASES = {
    "a line": Case((), 5, (), (40,)),
    "two levels of pieces": Case((), 3, (), (1100,)),
    "rows": Case((), 4, (8,), (70,)),
    "batches": Case((2, 3), 5, (3,), (5, 8), 1),
    "half": Case((2,), 3, (8,), (40,), 1, dtypes.float16),
    "bools": Case((), 3, (), (50,), dtype=dtypes.bool_),
    "all equal": Case((), 9, (4,), (1100,), equal=True),
    "one place": Case((), 1, (), (1100,), outside=0),
    "no place": Case((), 0, (4,), (40,)),
    "most outside": Case((), 2, (), (300,), outside=100),
    "tiles of a sort": Case((2,), 300, (), (2500,), 1),
    "many places": Case((), 3000, (5,), (90,)),
    "axis in the middle": Case((3, 4), 6, (2, 6), (40, 2)),
    "a batch of two axes": Case((2, 3), 6, (), (33,), 2),
    "int8": Case((), 7, (16,), (200,), dtype=dtypes.int8, index_dtype=dtypes.int32),
    "uint64 indices": Case((), 7, (), (200,), dtype=dtypes.int64, index_dtype=dtypes.uint64, outside=1 << 62),
    "int8 indices": Case((), 7, (), (200,), dtype=dtypes.uint32, index_dtype=dtypes.int8),
    "bfloat16": Case((), 7, (24,), (60,), dtype=dtypes.bfloat16),
    "float64": Case((), 7, (6,), (200,), dtype=dtypes.float64),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_loops_mean_what_the_op_means(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "RUN_UPDATES_MAX", 32)
    case, code = SMALL[name]
    arrays = case.arrays(code)
    program = lower(kernel_of(case.graph(code)[0]), GPU_TARGET)
    verify_program(program, after="lower")
    assert program.num_guards == 0
    wanted = expected(case, code, arrays)
    memory = memory_of(program, arrays)
    evaluate_program(program, memory, {}, ByTurns())
    np.testing.assert_array_equal(memory[out_slot(program)].reshape(wanted.shape), wanted)


@pytest.mark.variants(every=31)
@needs_compiler
@pytest.mark.parametrize("code", CODES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_simulator_runs_them(name: str, code: OpCode | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "RUN_UPDATES_MAX", 32)  # so that pieces of pieces come of few updates
    case = CASES[name]
    arrays = case.arrays(code)
    np.testing.assert_array_equal(simulated(case, code, arrays), expected(case, code, arrays))


def simulated(case: Case, code: OpCode | None, arrays: Sequence[Array]) -> Array:
    """Returns what the simulator computes, which is the same in all orders of threads."""
    root = case.graph(code)[0]
    program = lower(kernel_of(root), TARGET)
    assert program.num_guards == 0
    binary, found = hostcxx.compile_source(render(program, TARGET), TARGET), []
    for order in ORDERS:
        device, memory = CudaSimDevice(order, seed=3), memory_of(program, arrays)[: len(arrays) + 1]
        run(device, device.load(binary), memory)
        found.append(memory[out_slot(program)].reshape(root.shape))
    assert len({one.tobytes() for one in found}) == 1
    return found[0]


def out_slot(program: Program) -> int:
    return [p.role for p in program.params].index("out")


def memory_of(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """Returns memory for a program's params; the kernel has its inputs in the order of the graph."""
    given = iter(arrays)
    return [next(given).ravel().copy() if p.role == "in" else np.zeros(int(p.numel), p.dtype.numpy) for p in program.params]


# ---- form ----
SORT_TILE = TARGET.block_threads * THREAD_ELEMENTS_MAX


def grids_of(program: Program) -> list[tuple[int, Sequence[Statement]]]:
    """Returns for each phase how many blocks it has, and its statements."""
    grids = [next(s for s in phase if isinstance(s, For)) for phase in program.phases]
    assert all(grid.range.arg[1] is AxisKind.GRID for grid in grids)
    return [(grid.range.src[0].arg, walk(grid.body)) for grid in grids]


def test_every_access_of_an_embedding_gradient_has_a_thread() -> None:
    case = Case((), 50257, (768,), (16, 512))
    sort, *merges, begins, totals, combine = grids_of(lower(kernel_of(case.graph(OpCode.ADD)[0]), TARGET))
    threads, accesses = TARGET.block_threads, 768 // 4
    assert (sort[0], [blocks for blocks, _ in merges]) == (8192 // SORT_TILE, [8192 // threads] * 2)
    assert begins[0] == -(-50258 // threads)
    assert totals[0] == 8192 // 32 * accesses // threads
    assert combine[0] == -(-50257 * accesses // threads)


def test_what_is_stored_needs_no_totals() -> None:
    case = Case((), 50, (), (2 * SORT_TILE,))
    assert len(lower(kernel_of(case.graph(None)[0]), TARGET).phases) == len(["tiles", "merge", "begins", "combine"])


def test_few_updates_are_walked_as_they_come() -> None:
    for count, is_sorted in ((UNSORTED_UPDATES_MAX, False), (UNSORTED_UPDATES_MAX + 1, True)):
        assert has_barriers(Case((), 50, (8,), (count,)), OpCode.ADD) == is_sorted


def has_barriers(case: Case, code: OpCode | None) -> bool:
    """True where indices are sorted, which a block does together."""
    program = lower(kernel_of(case.graph(code)[0]), TARGET)
    return any(isinstance(one, Barrier) for phase in program.phases for one in walk(phase))


def test_many_rows_are_walked_where_that_is_the_same_order() -> None:
    for rows, is_many in ((SORTED_ROWS_MAX, False), (SORTED_ROWS_MAX + 1, True)):
        short, long = (Case((rows,), 9, (), (count,), 1) for count in (RUN_UPDATES_MAX, RUN_UPDATES_MAX + 1))
        for code in CODES:
            assert has_barriers(short, code) != is_many
            assert has_barriers(replace(long, dtype=dtypes.int32), code) != is_many
            is_sum = code in (OpCode.ADD, OpCode.MUL)
            assert has_barriers(long, code) == (is_sum or not is_many)
            assert has_barriers(replace(short, dtype=dtypes.float16), code) == (is_sum or not is_many)


@needs_compiler
def test_a_sum_of_many_halves_is_rounded_once() -> None:
    """1 + 2000 * 0.0001 in float16 is 1 where each step is rounded."""
    case = Case((), 1, (), (2000,), dtype=dtypes.float16)
    small = np.full(2000, 1e-4, np.float16)
    found = simulated(case, OpCode.ADD, [np.ones(1, np.float16), np.zeros(2000, np.int64), small])
    assert abs(float(found[0]) - 1 - 2000 * float(small[0])) <= 2**-11


@needs_compiler
@pytest.mark.parametrize(("rows", "count"), [(3, RUN_UPDATES_MAX + 100), (SORTED_ROWS_MAX + 1, 40)])
def test_a_row_has_the_same_bits_alone_as_in_a_batch(rows: int, count: int) -> None:
    rng = np.random.default_rng(5)
    case, index = Case((rows,), 4, (), (count,), 1), rng.integers(0, 4, (rows, count))
    base, updates = rng.standard_normal((rows, 4), np.float32), rng.standard_normal((rows, count), np.float32)
    together = simulated(case, OpCode.ADD, [base, index, updates])
    alone = simulated(replace(case, left=(1,)), OpCode.ADD, [base[1:2], index[1:2], updates[1:2]])
    np.testing.assert_array_equal(together[1:2], alone)
    np.testing.assert_allclose(together, expected(case, OpCode.ADD, [base, index, updates]), atol=1e-4)


# ---- places that are computed, on a CPU ----
def computed(left: tuple[int, ...], batch: int, count: int, code: OpCode | None) -> tuple[Op, dict[Op, Array]]:
    """Returns a scatter of computed updates to computed places, some of them outside, and its arrays."""
    rng = np.random.default_rng(0)
    base, x = _param(0, (*left, 7), dtypes.float32), _param(1, (*left[:batch], count), dtypes.float32)
    share = _param(2, (*left, count), dtypes.float32)
    place = cast(Op(OpCode.FLOOR, x.dtype, (x * 2.0 + 1.0,)), dtypes.int64)
    place = place + place * place
    alike = reshape(x * 2.0 - x * x, (*left[:batch], *[1] * (len(left) - batch), count))
    updates = share * expand(alike + 1.0, share.shape)
    root = Op(OpCode.SCATTER, base.dtype, (base, place, updates), (code, len(left), batch))
    arrays = {op: rng.integers(-3, 4, op.shape).astype(np.float32) for op in (base, x, share)}
    return root, {op: array / 2 if op is x else array for op, array in arrays.items()}


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("code", [OpCode.ADD, OpCode.MAX, None], ids=str)
@pytest.mark.parametrize(("left", "batch"), [((), 0), ((3,), 1), ((2, 9), 1), ((9, 2), 0)], ids=str)
@pytest.mark.parametrize("count", [5, 40, 300])
def test_computed_places_mean_the_same(left: tuple[int, ...], batch: int, count: int, code: OpCode | None) -> None:
    root, arrays = computed(left, batch, count, code)
    check_same_meaning([root], arrays)


def test_places_that_rows_share_are_computed_in_vectors_and_once() -> None:
    """The channels of an image go to the same places: these are computed outside of the loop over channels."""
    root, _ = computed((4, 64), 1, 1000, OpCode.ADD)
    program = lower(kernel_of(root, CPU_TARGETS[2]), CPU_TARGETS[2])

    def loops_around(statements: Sequence[Statement], around: int) -> list[tuple[int, int]]:
        """Returns, for each FLOOR, its lanes and how many loops it is in."""
        found = []
        for statement in statements:
            if isinstance(statement, Let) and statement.value.code is OpCode.FLOOR:
                found.append((lanes_of(statement.var), around))
            elif isinstance(statement, For):
                found += loops_around(statement.body, around + 1)
        return found

    assert [found for phase in program.phases for found in loops_around(phase, 0)] == [(16, 3), (1, 3)]
    assert not program.num_guards
