"""Programs in the linear form with vectors, written by hand, and what runs them: the way from text to results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.devices.compile_llvm import compile_source, host_target
from picograd.devices.cpu.device import CPUDevice
from picograd.devices.cpu.render import render
from picograd.devices.cpu.walker import walker_source
from picograd.dtype import DType, Scalar
from picograd.ir.op import Buffer, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import BufferUse, Kernel, Param, Program, Schedule, ScheduleItem
from picograd.ir.statements import For, If, Let, Load, Statement, Store

Array = np.ndarray[Any, Any]
I64, F32, BOOL = dtypes.int64, dtypes.float32, dtypes.bool_


class Body:
    """Names values one after the other, as codegen/passes/linearize.py does; `lanes` > 1 makes vectors."""

    count = 0

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def _var(self, dtype: DType, lanes: int) -> Op:
        Body.count += 1
        return Op(OpCode.VAR, dtype, (), (f"v{Body.count}", lanes))

    def let(self, code: OpCode, *src: Op | int, dtype: DType = I64, arg: object = None, lanes: int = 1) -> Op:
        sources = tuple(const(s, I64) if isinstance(s, int) else s for s in src)
        var = self._var(dtype, lanes)
        self.statements.append(Let(var, Op(code, dtype, sources, arg)))
        return var

    def at(self, row: Op, width: int, column: Op | int = 0) -> Op:
        """Adds `row * width + column`."""
        return self.let(OpCode.ADD, self.let(OpCode.MUL, row, width), column)

    def load(self, memory: Op, index: Op | int, valid: Op | None = None, lanes: int = 1) -> Op:
        var = self._var(memory.dtype, lanes)
        self.statements.append(Load(var, memory, const(index, I64) if isinstance(index, int) else index, valid))
        return var

    def store(self, memory: Op, index: Op | int, value: Op | Scalar, valid: Op | None = None) -> None:
        value = value if isinstance(value, Op) else const(value, memory.dtype)
        self.statements.append(Store(memory, const(index, I64) if isinstance(index, int) else index, value, valid))

    def loop(self, number: int, extent: Op | int, kind: AxisKind, body: Body) -> None:
        self.statements.append(For(loop_range(number, extent, kind), body.done()))

    def when(self, condition: Op, body: Body) -> None:
        self.statements.append(If(condition, body.done()))

    def add(self, *statements: Statement) -> None:
        self.statements += statements

    def done(self) -> tuple[Statement, ...]:
        return tuple(self.statements)


def param(slot: int, numel: int, dtype: DType = F32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, (numel,)))


def loop_range(number: int, extent: Op | int, kind: AxisKind = AxisKind.LOOP) -> Op:
    return Op(OpCode.RANGE, I64, (const(extent, I64) if isinstance(extent, int) else extent,), (number, kind))


def memory(name: str, numel: int, space: MemorySpace = MemorySpace.REGISTER, dtype: DType = F32) -> Op:
    return Op(OpCode.ALLOC, dtype, (), (name, numel, space))


def one_phase(name: str, params: Sequence[tuple[DType, int, str]], body: Body, variables: Sequence[Op] = ()) -> Program:
    return Program(name, tuple(Param(*p) for p in params), tuple(variables), (body.done(),))


# ---- running ----
@cache
def device() -> CPUDevice:
    target = host_target()
    return CPUDevice(target, lambda: compile_source(walker_source(), target))


def buffer_of(array: Array, dtype: DType) -> Buffer:
    """Returns device memory with a copy of an array."""
    held = device().allocate(max(1, array.nbytes))
    device().copy_in(held, np.ascontiguousarray(array))
    return Buffer("CPU", dtype, array.size, held)


def array_of(buffer: Buffer) -> Array:
    array = np.empty(buffer.numel, buffer.dtype.numpy)
    device().copy_out(buffer.memory, array)
    return array


def schedule_of(programs: Sequence[tuple[Program, tuple[int, ...]]], uses: Sequence[BufferUse], arena: int) -> Schedule:
    """Returns a schedule of programs on buffers; every "output" use is an output."""
    items = tuple(ScheduleItem(Kernel(p.name, p.params, p.variables, ()), buffers) for p, buffers in programs)
    outputs = tuple(i for i, use in enumerate(uses) if use.role == "output")
    return Schedule(items, tuple(uses), (), outputs, arena)


def make_runner(
    programs: Sequence[tuple[Program, tuple[int, ...]]], uses: Sequence[BufferUse], arena: int = 0
) -> Any:
    executables = [device().load(compile_source(render(p, host_target()), host_target())) for p, _ in programs]
    return device().make_runner(schedule_of(programs, uses, arena), executables).__self__  # type: ignore[attr-defined]


def run(program: Program, arrays: Sequence[Array], variables: dict[str, int] | None = None) -> list[Array]:
    """Runs a program; `arrays` are the parameters' first contents. Returns those of the "out" parameters."""
    roles = [(p.role, i) for i, p in enumerate(program.params) if p.role != "scratch"]
    ins, outs = ([i for role, i in roles if role == wanted] for wanted in ("in", "out"))
    uses = [
        BufferUse(p.dtype, p.numel, "input" if p.role == "in" else "output", (ins if p.role == "in" else outs).index(i))
        for i, p in enumerate(program.params[: len(roles)])
    ]
    runner = make_runner([(program, tuple(range(len(roles))))], uses)
    buffers = [buffer_of(a, p.dtype) for a, p in zip(arrays, program.params)]
    runner([buffers[i] for i in ins], [buffers[i] for i in outs], variables or {})
    return [array_of(buffers[i]) for i in outs]


# ---- programs that several tests run ----
def scale_add(lanes: int = 8, numel: int | Op = 20) -> Program:
    """y = x * 2 + 1: whole vectors, then a tail."""
    Body.count = 0
    body, vectors, tail = Body(), Body(), Body()
    most = 1 << 20 if isinstance(numel, Op) else numel
    whole = body.let(OpCode.IDIV, numel, lanes)
    rest = body.let(OpCode.MOD, numel, lanes)

    def write(into: Body, at: Op, width: int) -> None:
        x = into.load(param(0, most), at, lanes=width)
        y = into.let(OpCode.FMA, x, const(2.0, F32), const(1.0, F32), dtype=F32, lanes=width)
        into.store(param(1, most), at, y)

    write(vectors, vectors.let(OpCode.MUL, loop_range(0, whole, AxisKind.GRID), lanes), lanes)
    body.loop(0, whole, AxisKind.GRID, vectors)
    start = tail.let(OpCode.MUL, whole, lanes)
    write(tail, tail.let(OpCode.ADD, start, loop_range(1, rest, AxisKind.GRID)), 1)
    body.loop(1, rest, AxisKind.GRID, tail)
    variables = (numel,) if isinstance(numel, Op) else ()
    return one_phase("scale_add", [(F32, most, "in"), (F32, most, "out")], body, variables)
