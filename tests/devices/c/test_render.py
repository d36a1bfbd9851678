"""C from programs written by hand: the text of two, and what the renderer refuses.

`python -m tests.devices.c.test_render` writes the golden text anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.c.render import render
from picograd.engine.devices import compiler_for
from picograd.errors import VerifyError
from picograd.ir.op import const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.statements import Alloc, For, Shuffle, Statement, Transpose
from tests.gpu_programs import F32, Array, Body, N, loop_range, memory, param, run
from tests.on_devices import device_params

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "render"
TARGET = Target("C", "c", "any", vector_bytes=1)


def sums_of_rows() -> Program:
    """y[r] = sum of row r of n rows of 100, and z = 3 for 300 elements: two GRID loops in one phase."""
    Body.count = 0
    row, column = loop_range(0, AxisKind.GRID, N), loop_range(1, AxisKind.LOOP, 100)
    acc = memory("acc", 1, MemorySpace.REGISTER)
    body, inner, other = Body(), Body(), Body()
    body.add(Alloc(acc))
    body.store(acc, 0, 0.0)
    value = inner.load(param(0, 1 << 20), inner.at(row, 100, column))
    inner.store(acc, 0, inner.let(OpCode.ADD, inner.load(acc, 0), value, dtype=F32))
    body.add(For(column, inner.done()))
    body.store(param(1, 1 << 20), row, body.load(acc, 0))
    three = loop_range(2, AxisKind.GRID, 300)
    other.store(param(2, 300), three, 3.0)
    params = (Param(F32, 1 << 20, "in"), Param(F32, 1 << 20, "out"), Param(F32, 300, "out"))
    return Program("sums_of_rows", params, (N,), ((For(row, body.done()), For(three, other.done())),))


def functions() -> Program:
    """y = where(0 <= x, expf(x), maximum(x, 2)) + float32(float16(x)) for 64 elements."""
    Body.count = 0
    body, i = Body(), loop_range(0, AxisKind.GRID, 64)
    x = body.load(param(0, 64), i)
    positive = body.let(OpCode.CMPLE, const(0.0, F32), x, dtype=dtypes.bool_)
    exp, most = body.let(OpCode.EXP, x, dtype=F32), body.let(OpCode.MAX, x, const(2.0, F32), dtype=F32)
    narrow = body.let(OpCode.CAST, x, dtype=dtypes.float16)
    chosen = body.let(OpCode.WHERE, positive, exp, most, dtype=F32)
    body.store(param(1, 64), i, body.let(OpCode.ADD, chosen, body.let(OpCode.CAST, narrow, dtype=F32), dtype=F32))
    return Program("functions", (Param(F32, 64, "in"), Param(F32, 64, "out")), (), ((For(i, body.done()),),))


PROGRAMS = {"sums_of_rows": sums_of_rows(), "functions": functions()}


def refused(*statements: Statement) -> str:
    loop = For(loop_range(0, AxisKind.GRID, 4), statements)
    with pytest.raises(VerifyError) as caught:
        render(Program("broken", (), (), ((loop,),)), TARGET)
    return caught.value.fact.splitlines()[0].removeprefix("render: kernel broken breaks a rule of the linear form: ")


@pytest.mark.req("G6")
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_golden(name: str) -> None:
    assert render(PROGRAMS[name], TARGET).text == (GOLDEN / f"{name}.c").read_text()


def run_in_c(program: Program, arrays: list[Array], n: int | None = None) -> None:
    compiler = compiler_for("C")
    source = compiler.backend.render(program, compiler.device.target)
    code = compiler.device.load(compiler.backend.compile(source, compiler.device.target))
    run(compiler.device, code, arrays, {} if n is None else {"n": n})


@pytest.mark.parametrize("device", device_params("C"))
@pytest.mark.parametrize("n", [0, 1, 7])
def test_each_grid_loop_runs_its_own_iterations(n: int, device: str) -> None:
    x, y, z = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32), np.zeros(300, np.float32)
    run_in_c(sums_of_rows(), [x, y, z], n)
    assert y[:n].tolist() == [100.0] * n and (z == 3).all()


@pytest.mark.parametrize("device", device_params("C"))
def test_a_transpose_is_two_loops(device: str) -> None:
    Body.count = 0
    square = Transpose(param(1, 24), const(1, dtypes.int64), 5, param(0, 24), const(2, dtypes.int64), 6, 4)
    loop = For(loop_range(0, AxisKind.GRID, 1), (square,))
    program = Program("turned", (Param(F32, 24, "in"), Param(F32, 24, "out")), (), ((loop,),))
    x, y = np.arange(24, dtype=np.float32), np.zeros(24, np.float32)
    run_in_c(program, [x, y])
    for i in range(4):
        assert y[1 + 5 * i : 5 + 5 * i].tolist() == [2 + i + 6 * j for j in range(4)]


def test_what_only_a_gpu_has_is_refused() -> None:
    assert refused(Shuffle(Body.var(F32), const(1.0, F32), 1)) == "a Shuffle is a statement of another kind of machine."
    block = For(loop_range(1, AxisKind.BLOCK, 4), ())
    assert refused(block) == "a BLOCK loop is used where only a LOOP can be."


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        (GOLDEN / f"{name}.c").write_text(render(program, TARGET).text)
