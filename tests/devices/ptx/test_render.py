"""LLVM IR for a GPU: the text of two small kernels, what it is made of, and what the renderer refuses.

`python -m tests.devices.ptx.test_render` writes the golden text anew. That it means what it should is tested in
tests/engine/test_ptx_device.py, by running it; that it assembles, in tests/devices/ptx/test_compile.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from picograd import dtype as dtypes
from picograd.devices.cuda import render as cuda
from picograd.devices.ptx.compile import gpu_target
from picograd.devices.ptx.render import render
from picograd.errors import VerifyError
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.statements import Alloc, Barrier, Check, For, Load, Shuffle, Statement, Store
from picograd.ir.symbolic import with_values
from picograd.record import replace
from tests.devices.cuda.test_render import TARGET as CUDA_TARGET
from tests.devices.cuda.test_render import block_program, two_grids
from tests.gpu_programs import F32, Body, N, loop_range, matmul, memory, param, row_sums

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "render"
TARGET = gpu_target(9, 0, 48 * 1024)
PROGRAMS = {"row_sums": row_sums(8, 100, threads=2), "two_grids": two_grids()}


def threads_program(*body: Statement, threads: int = 64) -> Program:
    """A phase of one GRID loop around a BLOCK loop of all threads."""
    return block_program(For(loop_range(1, AxisKind.BLOCK, threads), body))


def text_of(*body: Statement) -> str:
    return render(threads_program(*body), TARGET).text


@pytest.mark.req("G6")
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_golden(name: str) -> None:
    assert render(PROGRAMS[name], TARGET).text == (GOLDEN / f"{name}.nvptx.ll").read_text()


@pytest.mark.parametrize("program", [row_sums(8, 100), matmul(128, 64, 32), two_grids()], ids=lambda p: p.name)
def test_launches_are_those_of_cuda_c(program: Program) -> None:
    ours, theirs = render(program, TARGET), cuda.render(program, CUDA_TARGET)
    assert ours.launches == theirs.launches and ours.language == "nvptx"
    if program.variables:
        assert with_values(ours.launches[0].grid, {N: 10}) == 3 + 10


def test_registers_are_values_and_no_memory() -> None:
    text = render(matmul(128, 64, 32), TARGET).text
    assert "alloca" not in text and text.count("phi float") == 4, "a sum for each of a thread's rows"


def test_a_register_may_be_written_by_lanes_and_read_one_by_one() -> None:
    Body.count, body = 0, Body()
    own, four = memory("own", 4, MemorySpace.REGISTER), Op(OpCode.VAR, F32, (), ("x", 4))
    body.add(Alloc(own), Load(four, param(1, 64), const(0, N.dtype)), Store(own, const(0, N.dtype), four))
    body.store(param(0, 64), loop_range(1, AxisKind.BLOCK, 64), body.load(own, 3))
    assert "extractelement <4 x float> %t1, i64 3" in text_of(*body.done())


def test_store_outside_of_block_loops_is_done_by_one_thread() -> None:
    body, threads = Body(), Body()
    body.store(param(0, 64), 0, 1.0)
    threads.store(param(0, 64), loop_range(1, AxisKind.BLOCK, 64), 2.0)
    loop = For(loop_range(1, AxisKind.BLOCK, 64), threads.done())
    text = render(block_program(*body.done(), loop), TARGET).text
    assert "br i1 %first, label %if1, label %if1.done\nif1:\n  store float 0x3FF0000000000000, ptr %p0, align 4" in text


def test_lanes_are_one_access_where_their_number_divides_the_index_and_memory_is_aligned() -> None:
    Body.count, body = 0, Body()
    thread = loop_range(1, AxisKind.BLOCK, 64)
    for index in (body.let(OpCode.MUL, thread, 4), body.let(OpCode.MUL, thread, 3)):
        four = Op(OpCode.VAR, F32, (), (f"x{index.arg[0]}", 4))
        body.add(Load(four, param(0, 64), index), Store(param(0, 64), index, four))
    head, aligned, apart = text_of(*body.done()).replace("\naligned:", "\nHERE").replace("\napart:", "\nHERE").split("HERE")
    assert "%is.aligned = icmp eq i64 %apart.bytes, 0\n  br i1 %is.aligned, label %aligned, label %apart" in head
    assert aligned.count("load <4 x float>") == aligned.count("store <4 x float>") == 1 and "align 16" in aligned
    assert aligned.count("load float") == 4, "a multiple of 3 is no multiple of 4"
    assert "<4 x float>, ptr" not in apart and apart.count("load float") == 8


def test_shared_memory_is_aligned_and_needs_no_second_body() -> None:
    Body.count, body = 0, Body()
    tile, four = memory("tile", 256, MemorySpace.SHARED), Op(OpCode.VAR, F32, (), ("x", 4))
    index = body.let(OpCode.MUL, loop_range(1, AxisKind.BLOCK, 64), 4)
    body.add(Load(four, tile, index), Store(tile, index, four))
    loop = For(loop_range(1, AxisKind.BLOCK, 64), body.done())
    text = render(block_program(Alloc(tile), loop), TARGET).text
    assert "@broken_0_tile = internal addrspace(3) global [256 x float] poison, align 16" in text
    assert "load <4 x float>, ptr" in text and "apart" not in text


def test_a_condition_branches_around_an_access() -> None:
    Body.count, body = 0, Body()
    thread = loop_range(1, AxisKind.BLOCK, 64)
    inside = body.let(OpCode.CMPLT, thread, 10, dtype=dtypes.bool_)
    body.store(param(0, 64), thread, body.load(param(1, 64), thread, inside), inside)
    text = text_of(*body.done())
    assert text.count("br i1 %t1, label") == 2 and "phi float [ %t3, %if1 ], [ zeroinitializer, %aligned ]" in text


SHUFFLES = [(dtypes.float32, 1), (dtypes.float64, 2), (dtypes.int64, 2), (dtypes.bool_, 1), (dtypes.int8, 1)]


@pytest.mark.parametrize(("dtype", "shuffles"), SHUFFLES)
def test_a_shuffle_exchanges_32_bits_at_a_time(dtype: dtypes.DType, shuffles: int) -> None:
    text = text_of(Shuffle(Body.var(dtype), const(1, dtype), 16))
    assert text.count("@llvm.nvvm.shfl.sync.bfly.i32(i32 -1, ") == shuffles and text.count("i32 16, i32 31)") == shuffles


def test_the_remainder_of_floats_is_a_function_of_the_text() -> None:
    body = Body()
    body.let(OpCode.MOD, body.load(param(1, 64), 0), body.load(param(1, 64), 1), dtype=F32)
    text = text_of(*body.done())
    assert "frem" not in text and text.count("define internal float @remainder_f32(") == 1 and "remainder_f64" not in text


def test_a_check_keeps_the_first_report() -> None:
    thread = loop_range(1, AxisKind.BLOCK, 64)
    body = Body()
    inside = body.let(OpCode.CMPLT, thread, 10, dtype=dtypes.bool_)
    body.add(Check(inside, thread, 2))
    program = replace(threads_program(*body.done()), params=(Param(F32, 64, "out"), Param(dtypes.int64, 2, "report")))
    text = render(program, TARGET).text
    assert "cmpxchg ptr %p1, i64 0, i64 3 monotonic monotonic, align 8" in text and text.endswith("i32 1048576, i32 1}\n")


# ---- what is refused ----
def refused(program: Program) -> str:
    with pytest.raises(VerifyError) as caught:
        render(program, TARGET)
    return caught.value.fact.splitlines()[0].removeprefix("render: kernel broken breaks a rule of the linear form: ")


def test_barrier_that_not_all_threads_reach_is_refused() -> None:
    whole, half = (For(loop_range(i, AxisKind.BLOCK, extent), (Barrier(),)) for i, extent in ((1, 64), (2, 32)))
    assert refused(block_program(whole, half)) == "a Barrier is in a BLOCK loop that not all threads run."


def test_a_shuffle_that_not_all_threads_reach_is_refused() -> None:
    whole, half = (
        For(loop_range(i, AxisKind.BLOCK, extent), (Shuffle(Body.var(F32), const(1.0, F32), 1),))
        for i, extent in ((1, 64), (2, 32))
    )
    assert refused(block_program(whole, half)) == "a Shuffle is in a BLOCK loop that not all threads run."


def test_a_block_loop_in_another_is_refused() -> None:
    inner = For(loop_range(2, AxisKind.BLOCK, 32), ())
    assert refused(threads_program(inner)) == "a BLOCK loop is nested in another."


def test_too_much_shared_memory_is_refused() -> None:
    tile = Alloc(memory("tile", 16 * 1024, MemorySpace.SHARED))
    assert refused(block_program(tile)) == "a block of PTX shares 49152 bytes, with tile it needs 65536."


def test_global_memory_is_only_a_parameter() -> None:
    tile = Alloc(memory("tile", 16, MemorySpace.GLOBAL))
    assert refused(block_program(tile)) == "tile is GLOBAL memory, which only a parameter can be."


def test_a_register_at_a_computed_place_is_refused() -> None:
    own = memory("own", 4, MemorySpace.REGISTER)
    store = Store(own, loop_range(1, AxisKind.BLOCK, 64), const(1.0, F32))
    assert refused(threads_program(Alloc(own), store)).endswith("is not a constant.")


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        (GOLDEN / f"{name}.nvptx.ll").write_text(render(program, TARGET).text)
