"""The text of three small kernels, and what the renderer refuses.

`python -m tests.devices.cuda.test_render` writes the golden text anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda.render import render
from picograd.errors import VerifyError
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Launch, Param, Program
from picograd.ir.statements import Alloc, Barrier, For, If, Load, Shuffle, Statement, Store
from picograd.ir.symbolic import with_values
from tests.gpu_programs import F32, I64, Body, N, elementwise, loop_range, matmul, memory, param, row_sums

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "render"
TARGET = Target(device="CUDA", language="cuda", arch="sm_90a", vector_bytes=16, block_threads=256, shared_bytes=48 * 1024)


def two_grids() -> Program:
    """Two nests in one phase: y = 2 for 300 elements by 128 threads, and z = 3 for n elements by 64."""
    Body.count = 0
    loops = []
    for number, threads, total, slot, value in ((0, 128, const(300, N.dtype), 0, 2.0), (2, 64, N, 1, 3.0)):
        extent: Op | int = -(-300 // threads) if total is not N else N
        grid, thread = loop_range(number, AxisKind.GRID, extent), loop_range(number + 1, AxisKind.BLOCK, threads)
        body, inside = Body(), Body()
        at = body.at(grid, threads, thread)
        inside.store(param(slot, 1 << 20), at, value)
        body.add(If(body.let(OpCode.CMPLT, at, total, dtype=dtypes.bool_), inside.done()))
        loops.append(For(grid, (For(thread, body.done()),)))
    return Program("two_grids", (Param(F32, 300, "out"), Param(F32, N, "out")), (N,), (tuple(loops),))


PROGRAMS = {"elementwise": elementwise(), "row_sums": row_sums(8, 100, threads=2), "two_grids": two_grids()}


def block_program(*body: Statement, threads: int = 64, grid: Dim = 4) -> Program:
    """A phase of one GRID loop around `body`, and a parameter to store to."""
    loop = For(loop_range(0, AxisKind.GRID, grid), body)
    return Program("broken", (Param(F32, 64, "out"),), (N,), ((loop,),))


@pytest.mark.req("G6")
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_golden(name: str) -> None:
    assert render(PROGRAMS[name], TARGET).text == (GOLDEN / f"{name}.cu").read_text()


def test_launch_counts_blocks_of_all_grid_loops() -> None:
    (launch,) = render(two_grids(), TARGET).launches
    assert (launch.symbol, launch.block) == ("two_grids_0", 128)
    assert with_values(launch.grid, {N: 10}) == 3 + 10


def test_grid_named_before_its_loop_is_an_expression_of_variables() -> None:
    (launch,) = render(elementwise(threads=256), TARGET).launches
    assert [with_values(launch.grid, {N: n}) for n in (0, 1, 256, 257)] == [0, 1, 1, 2]


def test_tiled_matmul_has_one_launch() -> None:
    (launch,) = render(matmul(128, 64, 32), TARGET).launches
    assert (launch.grid, launch.block) == (2 * 4, 256)
    assert isinstance(launch, Launch) and launch.work > 256 * 2 * 16 * 4


def test_store_outside_of_block_loops_is_done_by_one_thread() -> None:
    body, threads = Body(), Body()
    body.store(param(0, 64), 0, 1.0)
    threads.store(param(0, 64), loop_range(1, AxisKind.BLOCK, 64), 2.0)
    text = render(block_program(*body.done(), For(loop_range(1, AxisKind.BLOCK, 64), threads.done())), TARGET).text
    assert "if (threadIdx.x == 0) {\n    p0[0] = 1.0f;\n  }\n" in text


def test_integer_arithmetic_that_may_overflow_wraps() -> None:
    body = Body()
    x = body.load(param(1, 64, dtypes.int64), 0)
    body.let(OpCode.ADD, x, 1)
    body.let(OpCode.MOD, loop_range(0, AxisKind.GRID, 4), 3)
    text = render(block_program(*body.done()), TARGET).text
    assert "(int64)((uint64)" in text and "g0 % 3;" in text


@pytest.mark.parametrize(("chooses", "written_out"), [(False, [10]), (True, [20, 10])], ids=["one", "many"])
def test_loops_are_written_out_together_only_where_their_counters_choose_registers(
    chooses: bool, written_out: list[int]
) -> None:
    """So the text that NVRTC makes of loops in loops is bounded: turns multiply."""
    outer, inner = loop_range(1, AxisKind.LOOP, 20), loop_range(2, AxisKind.LOOP, 10)
    sums, turn, step = memory("sums", 20, MemorySpace.REGISTER), Body(), Body()
    own = turn.let(OpCode.MUL, outer, 1) if chooses else const(0, I64)
    x = step.load(param(0, 64), inner)
    step.store(sums, own, step.let(OpCode.ADD, step.load(sums, own), x, dtype=F32))
    turn.add(For(inner, step.done()))
    text = render(block_program(Alloc(sums), For(outer, turn.done())), TARGET).text
    assert [int(each.split(";")[1].split("<")[1]) for each in text.split("#pragma unroll\n")[1:]] == written_out


def refused(program: Program) -> str:
    with pytest.raises(VerifyError) as caught:
        render(program, TARGET)
    return caught.value.fact.splitlines()[0].removeprefix("render: kernel broken breaks a rule of the linear form: ")


def test_barrier_that_not_all_threads_reach_is_refused() -> None:
    whole, half = (For(loop_range(i, AxisKind.BLOCK, extent), (Barrier(),)) for i, extent in ((1, 64), (2, 32)))
    assert refused(block_program(whole, half)) == "a Barrier is in a BLOCK loop that not all threads run."


def test_too_much_shared_memory_is_refused() -> None:
    tile = Alloc(memory("tile", 16 * 1024, MemorySpace.SHARED))
    expected = "a block of CUDA shares 49152 bytes, with tile it needs 65536."
    assert refused(block_program(tile)) == expected


def test_lanes_are_one_access_where_their_number_divides_the_index() -> None:
    Body.count, body = 0, Body()
    thread = loop_range(1, AxisKind.BLOCK, 16)
    for index in (body.let(OpCode.MUL, thread, 4), body.let(OpCode.MUL, thread, 3)):
        four = Op(OpCode.VAR, F32, (), (f"x{index.arg[0]}", 4))
        body.add(Load(four, param(0, 64), index), Store(param(0, 64), index, four))
    text = render(block_program(For(thread, body.done())), TARGET).text
    assert "Lanes<float32, 4> xv1 = load_lanes<4>(p0, v1);" in text and "store_lanes(p0, v1, xv1);" in text
    assert "xv2 = {p0[v2], p0[v2 + 1], p0[v2 + 2], p0[v2 + 3]};" in text and "p0[v2 + 3] = xv2.at[3];" in text


def test_a_reduction_over_lanes_joins_halves() -> None:
    body = Body()
    thread, four = loop_range(1, AxisKind.BLOCK, 16), Op(OpCode.VAR, F32, (), ("x", 4))
    body.add(Load(four, param(0, 64), body.let(OpCode.MUL, thread, 4)))
    body.store(param(0, 64), thread, body.let(OpCode.REDUCE, four, dtype=F32, arg=(OpCode.ADD, 4)))
    text = render(block_program(For(thread, body.done())), TARGET).text
    assert "((x.at[0] + x.at[2]) + (x.at[1] + x.at[3]));" in text


def test_a_shuffle_that_not_all_threads_reach_is_refused() -> None:
    whole, half = (
        For(loop_range(i, AxisKind.BLOCK, extent), (Shuffle(Body.var(F32), const(1.0, F32), 1),))
        for i, extent in ((1, 64), (2, 32))
    )
    assert refused(block_program(whole, half)) == "a Shuffle is in a BLOCK loop that not all threads run."


def test_block_of_too_many_threads_is_refused() -> None:
    program = block_program(For(loop_range(1, AxisKind.BLOCK, 2048), ()))
    assert refused(program) == "a block has at most 1024 threads, this BLOCK loop up to 2048."


def test_phase_without_grid_is_refused() -> None:
    program = Program("broken", (), (), ((Barrier(),),))
    assert refused(program) == "a phase consists of named values and GRID loops, found Barrier."


def test_grid_that_depends_on_data_is_refused() -> None:
    before = Body()
    count = before.load(param(0, 1, dtypes.int64), 0)
    program = Program("broken", (), (), ((*before.done(), For(loop_range(0, AxisKind.GRID, count), ())),))
    assert refused(program) == "the extent of a GRID loop depends on a value in memory."


def test_operation_without_a_row_is_refused() -> None:
    body = Body()
    body.let(OpCode.SQRT, body.load(param(1, 4, dtypes.int64), 0))
    assert refused(block_program(*body.done())) == "no row of the table writes SQRT of int64."


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        (GOLDEN / f"{name}.cu").write_text(render(program, TARGET).text)
