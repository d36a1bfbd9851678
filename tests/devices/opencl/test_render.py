"""OpenCL C from programs written by hand: the text of two, and what the renderer refuses.

`python -m tests.devices.opencl.test_render` writes the golden text anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.opencl.device import OpenClDevice, library
from picograd.devices.opencl.render import render
from picograd.dtype import DType
from picograd.engine.devices import compiler_for
from picograd.errors import VerifyError
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.statements import Alloc, Barrier, For, Load, Shuffle, Store
from tests.devices.cuda.test_render import block_program, two_grids
from tests.gpu_programs import F32, Body, check_matmul, check_row_sums, loop_range, matmul, memory, param, row_sums
from tests.on_devices import device_params

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "render"
TARGET = Target("OPENCL", "opencl", "any", 16, block_threads=256, shared_bytes=48 * 1024, has_shuffle=False)
PROGRAMS = {"row_sums": row_sums(8, 100, threads=2), "two_grids": two_grids()}


def refused(program: Program) -> str:
    with pytest.raises(VerifyError) as caught:
        render(program, TARGET)
    return caught.value.fact.splitlines()[0].removeprefix("render: kernel broken breaks a rule of the linear form: ")


@pytest.mark.req("G6")
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_golden(name: str) -> None:
    assert render(PROGRAMS[name], TARGET).text == (GOLDEN / f"{name}.cl").read_text()


def test_local_memory_is_declared_before_all_statements() -> None:
    tiles = [Alloc(memory(f"tile{i}", 16, MemorySpace.SHARED)) for i in range(2)]
    loops = tuple(For(loop_range(i, AxisKind.GRID, 4), (tile,)) for i, tile in enumerate(tiles))
    lines = render(Program("two", (Param(F32, 64, "out"),), (), (loops,)), TARGET).text.splitlines()
    assert lines[4:6] == [f"  local float32 tile{i}[16] __attribute__((aligned(16)));" for i in range(2)]


def test_bools_lie_in_bytes() -> None:
    flag = param(0, 64, dtypes.bool_)
    body = Body()
    body.store(flag, 0, True)
    loop = For(loop_range(0, AxisKind.GRID, 4), body.done())
    text = render(Program("flags", (Param(dtypes.bool_, 64, "out"),), (), ((loop,),)), TARGET).text
    assert "global uint8 *buffer0, int64 at0" in text and "p0[0] = true;" in text


# ---- lanes ----
def turned(dtype: DType, lanes: int, step: int) -> Program:
    """16 pieces of so many lanes, each `step` elements from the one before, in the other order, by way of shared memory."""
    Body.count, body = 0, Body()
    thread, count = loop_range(1, AxisKind.BLOCK, 16), 16 * step
    tile = memory("tile", count, MemorySpace.SHARED, dtype)
    there = body.let(OpCode.MUL, thread, step)
    back = body.let(OpCode.SUB, const(count - step, dtypes.int64), there)
    first, second = (Op(OpCode.VAR, dtype, (), (name, lanes)) for name in ("a", "b"))
    body.add(Load(first, param(0, count, dtype), there), Store(tile, there, first), Barrier())
    body.add(Load(second, tile, back), Store(param(1, count, dtype), there, second))
    grid = For(loop_range(0, AxisKind.GRID, 1), (Alloc(tile), For(thread, body.done())))
    return Program("turned", (Param(dtype, count, "in"), Param(dtype, count, "out")), (), ((grid,),))


def test_lanes_are_one_access_where_their_number_divides_the_index() -> None:
    text = render(turned(F32, 4, 4), TARGET).text
    assert text.splitlines()[1] == "LANES(float32, 4, uint4)"
    assert "  const float32x4 a = load_float32x4(p0, v1);\n  store_local_float32x4(tile, v1, a);\n" in text
    assert "  const float32x4 b = load_local_float32x4(tile, v2);\n  store_float32x4(p1, v1, b);\n" in text
    apart = render(turned(F32, 4, 5), TARGET).text
    assert "const float32x4 a = {p0[v1], p0[v1 + 1], p0[v1 + 2], p0[v1 + 3]};" in apart
    assert "p1[v1 + 3] = b.at[3];" in apart


def test_lanes_of_bools_are_bytes() -> None:
    text = render(turned(dtypes.bool_, 8, 8), TARGET).text
    assert "LANES(uint8, 8, uint2)" in text and "const uint8x8 a = load_uint8x8(p0, v1);" in text


LANES = [
    ("float32", 4), ("float64", 4), ("float16", 8), ("bfloat16", 2), ("int8", 16), ("bool_", 8), ("uint64", 2),
    ("float8_e4m3", 4),
]  # fmt: skip


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", device_params("OPENCL"))
@pytest.mark.parametrize(("dtype", "lanes"), LANES)
def test_lanes_move_from_memory_that_begins_anywhere(dtype: str, lanes: int, name: str, rng: np.random.Generator) -> None:
    element = getattr(dtypes, dtype)
    device, backend = compiler_for(name).device, compiler_for(name).backend
    assert isinstance(device, OpenClDevice)
    queue = library().CommandQueue(device.context)
    for step in (lanes, lanes + 1):
        source = backend.render(turned(element, lanes, step), device.target)
        (function,) = device.load(backend.compile(source, device.target)).functions
        for at in (0, element.itemsize):
            pieces = rng.integers(0, 2, (16, step, element.itemsize), np.uint8)
            x, y = (device.allocate(at + pieces.nbytes) for _ in range(2))
            device.copy_in(x, np.concatenate([np.zeros(at, np.uint8), pieces.reshape(-1)]))
            function.set_args(x.buffer, np.int64(at), y.buffer, np.int64(at))
            library().enqueue_nd_range_kernel(queue, function, (16,), (16,)).wait()
            got = np.zeros(at + pieces.nbytes, np.uint8)
            device.copy_out(y, got)
            np.testing.assert_array_equal(got[at:].reshape(pieces.shape)[:, :lanes], pieces[::-1, :lanes])


def test_a_shuffle_is_refused() -> None:
    block = For(loop_range(1, AxisKind.BLOCK, 64), (Shuffle(Body.var(F32), const(1.0, F32), 1),))
    assert refused(block_program(block)) == "a Shuffle is a statement of another kind of machine."


def test_a_barrier_that_not_all_threads_reach_is_refused() -> None:
    whole, half = (For(loop_range(i, AxisKind.BLOCK, extent), (Barrier(),)) for i, extent in ((1, 64), (2, 32)))
    assert refused(block_program(whole, half)) == "a Barrier is in a BLOCK loop that not all threads run."


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
