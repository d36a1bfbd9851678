"""Rows on a GPU: threads enough that each makes four accesses to one, so that a warp has several short ones."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.reduce import plan_rows
from picograd.codegen.reduce_gpu import team_of
from picograd.device import Target
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.evaluator import evaluate
from picograd.ir.build import cast, expand, reduce
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Alloc, CopyAsync, For, Shuffle, walk
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


@pytest.mark.parametrize(
    ("columns", "dtype", "threads", "lanes", "steps"),
    [
        (8, dtypes.float32, 2, 4, 1), (10, dtypes.float32, 4, 2, 2), (27, dtypes.float32, 8, 1, 4),
        (32, dtypes.float32, 2, 4, 4), (64, dtypes.float32, 4, 4, 4), (96, dtypes.float32, 8, 4, 3),
        (64, dtypes.float16, 2, 8, 4), (64, dtypes.float64, 8, 2, 4), (512, dtypes.float32, 32, 4, 4),
        (1024, dtypes.float32, 64, 4, 4), (8192, dtypes.float32, 256, 4, 8), (65536, dtypes.float32, 256, 4, None),
        (16384, dtypes.float16, 256, 8, 8), (32768, dtypes.float16, 256, 8, None),
    ],
)  # fmt: skip
def test_a_team_has_a_thread_for_four_accesses_and_reads_a_sector(
    columns: int, dtype: dtypes.DType, threads: int, lanes: int, steps: int | None
) -> None:
    (item,) = create_schedule([centred(100, columns, dtype)]).kernel_items()
    ((nest,),) = item.kernel.phases
    rows, lies_across = plan_rows(nest, [param(0, 100, columns, dtype=dtype)], TARGET)
    team = team_of(rows, TARGET)
    assert not lies_across and (team.threads, team.lanes, team.steps) == (threads, lanes, steps)


@pytest.mark.parametrize(
    ("columns", "blocks", "shuffles"), [(7, 4, 0), (8, 8, 2), (32, 8, 2), (64, 16, 4), (96, 32, 6), (512, 125, 10)]
)
def test_short_rows_share_warps(columns: int, blocks: int, shuffles: int) -> None:
    """1000 rows in blocks of 256 threads, of which a thread a row would be 4, a warp a row 125."""
    program = lowered(centred(1000, columns))
    statements = [one for phase in program.phases for one in walk(phase)]
    (grid,) = [one.range.src[0].arg for one in statements if isinstance(one, For) and one.range.arg[1] is AxisKind.GRID]
    assert (grid, sum(isinstance(one, Shuffle) for one in statements)) == (blocks, shuffles)
    assert not any(isinstance(one, Alloc) and one.memory.arg[2] is MemorySpace.SHARED for one in statements)


def check_on_simulator(root: Op, target: Target) -> None:
    """Checks what the simulator computes, in each order of threads, against the evaluator."""
    program, given = lowered(root, target), values_for(root)
    binary = hostcxx.compile_source(render(program, target), target)
    expected = evaluate([root], given)[0]
    for order in ORDERS:
        found = np.zeros(root.numel, np.float32)
        arrays = iter(given.values())
        memory = [next(arrays).ravel() if p.role == "in" else found for p in program.params]
        device = CudaSimDevice(order, seed=3)
        run(device, device.load(binary), memory)
        np.testing.assert_allclose(found.reshape(root.shape), expected, rtol=1e-5, atol=1e-6)


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
