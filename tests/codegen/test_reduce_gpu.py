"""Rows on a GPU: threads enough that each makes four accesses to one, or eight, so that a warp has several short ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.codegen.reduce import Rows, plan_rows
from picograd.codegen.reduce_gpu import Team, team_of
from picograd.device import Target
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.evaluator import evaluate
from picograd.ir.build import cast, expand, reduce, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Alloc, CopyAsync, For, Shuffle, walk
from picograd.look import watch
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.codegen.test_transposed_cpu import param, values_for
from tests.gpu_programs import run
from tests.host_compilers import needs_compiler

WITHOUT_SHUFFLES = replace(TARGET, has_shuffle=False, has_mma=False)


def centred(rows: int, columns: int, dtype: dtypes.DType = dtypes.float32) -> Op:
    """Each element less the largest of its row, over the sum of the row: two levels, and elements behind them."""
    x = param(0, rows, columns, dtype=dtype)
    most = expand(reduce(x, OpCode.MAX, (1,), keepdim=True), x.shape)
    return (x - most) / expand(reduce(x - most, OpCode.ADD, (1,), keepdim=True) - 1, x.shape)


def lowered(root: Op, target: Target = TARGET) -> Program:
    (item,) = create_schedule([root]).kernel_items()
    return lower(item.kernel, target)


def planned(root: Op, *params: Op) -> tuple[Rows, Team]:
    """Returns the rows of a graph's one nest, and their team."""
    (item,) = create_schedule([root]).kernel_items()
    ((nest,),) = item.kernel.phases
    rows, lies_across = plan_rows(nest, params, TARGET)
    assert not lies_across
    return rows, team_of(rows, TARGET)


@pytest.mark.parametrize(
    ("columns", "dtype", "threads", "lanes", "steps", "order"),
    [
        (8, dtypes.float32, 2, 4, 1, 2), (10, dtypes.float32, 4, 2, 2, 4), (27, dtypes.float32, 8, 1, 4, 8),
        (32, dtypes.float32, 2, 4, 4, 2), (64, dtypes.float32, 4, 4, 4, 4), (96, dtypes.float32, 8, 4, 3, 8),
        (64, dtypes.float16, 2, 8, 4, 2), (64, dtypes.float64, 8, 2, 4, 8), (512, dtypes.float32, 32, 4, 4, 32),
        (1024, dtypes.float32, 32, 4, 8, 64), (8192, dtypes.float32, 256, 4, 8, 256),
        (256, dtypes.int8, 8, 8, 4, 8), (768, dtypes.float32, 32, 4, 6, 64),
        (65536, dtypes.float32, 256, 4, None, 256), (16384, dtypes.float16, 256, 8, 8, 256),
        (32768, dtypes.float16, 256, 8, None, 256), (16384, dtypes.float32, 256, 4, 16, 256),
    ],
)  # fmt: skip
def test_a_team_is_a_warp_or_has_a_thread_for_four_accesses_and_reads_a_sector(
    columns: int, dtype: dtypes.DType, threads: int, lanes: int, steps: int | None, order: int
) -> None:
    _, team = planned(centred(2000, columns, dtype), param(0, 2000, columns, dtype=dtype))
    assert (team.threads, team.lanes, team.steps, team.order, team.rows) == (threads, lanes, steps, order, 1)


@pytest.mark.parametrize(("rows", "threads"), [(1, 64), (63, 32), (56, 64), (57, 32), (1000, 32)])
def test_few_rows_have_a_thread_for_four_accesses(rows: int, threads: int) -> None:
    _, team = planned(centred(rows, 1024), param(0, rows, 1024))
    assert (team.threads, team.steps, team.totals) == (threads, 256 // threads, 64 // threads)


@pytest.mark.parametrize(
    ("columns", "blocks", "threads", "shuffles"),
    [(7, 4, 256, 0), (8, 63, 32, 2), (32, 63, 32, 2), (64, 125, 32, 4), (96, 250, 32, 6), (512, 250, 128, 10)],
)
def test_short_rows_share_warps(columns: int, blocks: int, threads: int, shuffles: int) -> None:
    """1000 rows by teams of 2 threads to a warp; a block has as few as a warp while there are fewer than 128 of them."""
    program = lowered(centred(1000, columns))
    statements = [one for phase in program.phases for one in walk(phase)]
    loops = {one.range.arg[1]: one.range.src[0].arg for one in statements if isinstance(one, For)}
    found = loops[AxisKind.GRID], loops[AxisKind.BLOCK], sum(isinstance(one, Shuffle) for one in statements)
    assert found == (blocks, threads, shuffles)
    assert not any(isinstance(one, Alloc) and one.memory.arg[2] is MemorySpace.SHARED for one in statements)


# ---- rows that share what they read ----
@needs_compiler
def test_a_launch_of_rows_and_columns_has_blocks_of_one_length() -> None:
    """A block of a warp would be a part of the other's block, in which no thread may wait for all."""
    x = pg.arange(8 * 300, device="CUDASIM").float().reshape(8, 300).sin().realize()
    with watch() as counts:
        pg.realize([rows := x.softmax(1), columns := x.sum(0)])
    assert counts.launches == 1
    np.testing.assert_allclose(rows.numpy().sum(1), np.ones(8), rtol=1e-5)
    np.testing.assert_allclose(columns.numpy(), x.numpy().sum(0), atol=1e-5)


def weighted(rows: int, columns: int, dtype: dtypes.DType = dtypes.float32) -> Op:
    """Returns a @ x."""
    a, x = param(0, rows, columns, dtype=dtype), param(1, columns, dtype=dtype)
    return reduce(
        cast(a, dtypes.float32) * cast(expand(reshape(x, (1, columns)), a.shape), dtypes.float32), OpCode.ADD, (1,)
    )


def scaled(rows: int, columns: int) -> Op:
    """Returns rows over their sums, each element times a weight of its column: two walks of a row."""
    x, weight = param(0, rows, columns), param(1, columns)
    return x / expand(reduce(x, OpCode.ADD, (1,), keepdim=True), x.shape) * expand(reshape(weight, (1, columns)), x.shape)


@pytest.mark.parametrize(
    ("make", "rows", "columns", "together"),
    [
        (weighted, 256, 1024, 4), (weighted, 255, 1024, 4), (weighted, 128, 1024, 2), (weighted, 64, 1024, 1),
        (weighted, 4096, 65536, 4), (weighted, 4097, 64, 4), (scaled, 64, 1024, 1), (scaled, 2000, 1024, 2),
        (scaled, 2000, 512, 4), (scaled, 2000, 256, 4), (scaled, 5000, 8, 2), (scaled, 2000, 65536, 1),
        (centred, 5000, 1024, 1),
    ],
)  # fmt: skip
def test_rows_that_share_what_they_read_have_a_team(
    make: Callable[[int, int], Op], rows: int, columns: int, together: int
) -> None:
    _, team = planned(make(rows, columns), param(0, rows, columns), param(1, columns))
    assert team.rows == together


@pytest.mark.parametrize("rows", range(2, 40))
def test_a_quarter_of_the_rows_of_teams_is_none_at_most(rows: int) -> None:
    """A batch of matrices that each have a vector: only the rows of one matrix share."""
    batch, columns = 1000, 256
    a, x = param(0, batch, rows, columns), param(1, batch, columns)
    root = reduce(a * expand(reshape(x, (batch, 1, columns)), a.shape), OpCode.ADD, (2,))
    _, team = planned(root, a, x)
    room = team.rows * -(-rows // team.rows)
    assert room - rows <= room / 4 and team.rows == max(n for n in (1, 2, 4) if n == 1 or -rows % n * 4 <= rows + -rows % n)


def on_simulator(root: Op, target: Target, given: dict[Op, np.ndarray]) -> list[np.ndarray]:
    """Returns what the simulator computes, in each order of threads."""
    program = lowered(root, target)
    binary = hostcxx.compile_source(render(program, target), target)
    results = []
    for order in ORDERS:
        found = np.zeros(root.numel, np.float32)
        arrays = iter(given.values())
        memory = [next(arrays).ravel() if p.role == "in" else found for p in program.params]
        device = CudaSimDevice(order, seed=3)
        run(device, device.load(binary), memory)
        results.append(found.reshape(root.shape))
    return results


def check_on_simulator(root: Op, target: Target) -> None:
    """Checks what the simulator computes, in each order of threads, against the evaluator."""
    given = values_for(root)
    expected = evaluate([root], given)[0]
    for found in on_simulator(root, target, given):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.variants(every=5)
@needs_compiler
@pytest.mark.parametrize("target", [TARGET, WITHOUT_SHUFFLES], ids=["shuffles", "shared memory"])
@pytest.mark.parametrize("shape", [(5, 8), (33, 9), (70, 10), (3, 16), (9, 27), (41, 32), (17, 60), (1, 64), (6, 96)])
def test_the_simulator_runs_them(shape: tuple[int, int], target: Target) -> None:
    check_on_simulator(centred(*shape), target)


def from_column(first: int, rows: int, columns: int) -> Op:
    """Returns rows of 16-bit floats that begin at a column of longer ones."""
    x = param(0, rows, columns + 16, dtype=dtypes.float16)
    return Op(OpCode.SHRINK, x.dtype, (x,), ((0, rows), (first, first + columns)))


@needs_compiler
@pytest.mark.parametrize(("first", "columns", "num_copies"), [(4, 20480, 1), (2, 20480, 0), (0, 20481, 0), (8, 24576, 0)])
def test_a_row_too_long_for_registers_is_copied_to_shared_memory(first: int, columns: int, num_copies: int) -> None:
    """Unless it begins or ends within an access, or two blocks would not fit into a multiprocessor."""
    x = cast(from_column(first, 2, columns), dtypes.float32)
    root = x - expand(reduce(x, OpCode.MAX, (1,), keepdim=True), x.shape)
    root = root * expand(reduce(root, OpCode.MAX, (1,), keepdim=True) + 2, x.shape)
    statements = [one for phase in lowered(root).phases for one in walk(phase)]
    assert sum(isinstance(one, CopyAsync) for one in statements) == num_copies
    check_on_simulator(root, TARGET)


# Teams of a part of a warp, of a warp and of several, of two rows and of four, whose last ones are not all there.
SHARING = [
    (weighted, 2060, 24), (weighted, 2101, 8), (weighted, 255, 1024), (weighted, 70, 4096), (weighted, 35, 20000),
    (scaled, 2061, 24), (scaled, 255, 1024), (scaled, 33, 4096),
]  # fmt: skip


@pytest.mark.variants(every=4)
@needs_compiler
@pytest.mark.parametrize(("make", "rows", "columns"), SHARING)
def test_the_simulator_runs_rows_together(make: Callable[[int, int], Op], rows: int, columns: int) -> None:
    _, team = planned(make(rows, columns), param(0, rows, columns), param(1, columns))
    assert team.rows > 1
    check_on_simulator(make(rows, columns), TARGET)


@pytest.mark.variants(every=3)
@needs_compiler
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32])
@pytest.mark.parametrize("columns", [64, 1024, 1500, 4096])
def test_bits_of_a_row_do_not_depend_on_how_many_there_are(columns: int, dtype: dtypes.DType) -> None:
    many = weighted(600, columns, dtype)
    given = values_for(many)
    (_, x), (of_a, of_x) = given, given.values()
    results = {600: on_simulator(many, TARGET, given)[0]}
    for count in (1, 2, 37, 300):
        few = weighted(count, columns, dtype)
        results[count] = on_simulator(few, TARGET, {param(0, count, columns): of_a[:count], x: of_x})[0]
    for count, result in results.items():
        assert np.array_equal(result, results[600][:count]), count


@needs_compiler
@pytest.mark.parametrize("is_least", [False, True])
def test_joining_rows_knows_other_codes(is_least: bool) -> None:
    rows, columns = 2061, 24
    x, weight = param(0, rows, columns), param(1, columns)
    greater = Op(OpCode.MAX, x.dtype, (x, expand(reshape(weight, (1, columns)), x.shape)))
    check_on_simulator(reduce(greater, OpCode.MIN if is_least else OpCode.MAX, (1,)), TARGET)
