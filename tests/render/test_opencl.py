"""OpenCL C from programs written by hand: the text of two, and what the renderer refuses.

`python -m tests.render.test_opencl` writes the golden text anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.engine.devices import compiler_for
from picograd.errors import VerifyError
from picograd.ir.op import const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.stages import Param, Program
from picograd.ir.statements import Alloc, Barrier, For, Shuffle
from picograd.render.opencl import render
from tests.gpu_programs import F32, Body, check_matmul, check_row_sums, loop_range, matmul, memory, param, row_sums
from tests.on_devices import device_params
from tests.render.test_cuda import block_program, two_grids

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "render"
TARGET = Target("OPENCL", "opencl", "any", 4, block_threads=256, shared_bytes=48 * 1024, has_shuffle=False)
PROGRAMS = {"row_sums": row_sums(8, 100, threads=2), "two_grids": two_grids()}


def refused(program: Program) -> str:
    with pytest.raises(VerifyError) as caught:
        render(program, TARGET)
    return caught.value.fact.splitlines()[0].removeprefix("render: kernel broken breaks a rule of the linear form: ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_golden(name: str) -> None:
    assert render(PROGRAMS[name], TARGET).text == (GOLDEN / f"{name}.cl").read_text()


def test_local_memory_is_declared_before_all_statements() -> None:
    tiles = [Alloc(memory(f"tile{i}", 16, MemorySpace.SHARED)) for i in range(2)]
    loops = tuple(For(loop_range(i, AxisKind.GRID, 4), (tile,)) for i, tile in enumerate(tiles))
    lines = render(Program("two", (Param(F32, 64, "out"),), (), (loops,)), TARGET).text.splitlines()
    assert lines[4:6] == ["  local float32 tile0[16];", "  local float32 tile1[16];"]


def test_bools_lie_in_bytes() -> None:
    flag = param(0, 64, dtypes.bool_)
    body = Body()
    body.store(flag, 0, True)
    loop = For(loop_range(0, AxisKind.GRID, 4), body.done())
    text = render(Program("flags", (Param(dtypes.bool_, 64, "out"),), (), ((loop,),)), TARGET).text
    assert "global uint8 *buffer0, int64 at0" in text and "p0[0] = true;" in text


def test_a_shuffle_is_refused() -> None:
    block = For(loop_range(1, AxisKind.BLOCK, 64), (Shuffle(Body.var(F32), const(1.0, F32), 1),))
    assert refused(block_program(block)) == "only CUDA has a Shuffle."


def test_a_barrier_that_not_all_threads_reach_is_refused() -> None:
    whole, half = (For(loop_range(i, AxisKind.BLOCK, extent), (Barrier(),)) for i, extent in ((1, 64), (2, 32)))
    assert refused(block_program(whole, half)) == "a Barrier stands in a BLOCK loop that not all threads run."


@pytest.mark.parametrize("name", device_params("OPENCL"))
def test_programs_with_local_memory_and_barriers_compute(name: str) -> None:
    compiler = compiler_for(name)
    device, backend = compiler.device, compiler.backend
    codes = [
        device.load(backend.compile(backend.render(program, device.target), device.target))
        for program in (row_sums(7, 1000), matmul(64, 32, 48))
    ]
    check_row_sums(device, codes[0], 7, 1000)
    check_matmul(device, codes[1], 64, 32, 48)


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        (GOLDEN / f"{name}.cl").write_text(render(program, TARGET).text)
