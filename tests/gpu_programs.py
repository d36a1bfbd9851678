"""Programs in the linear form, written by hand: what the tests of render, compile and runtime run on.

`elementwise`:  y = exp(x) + b, a thread an element, for any n (a variable)
`row_sums`:     y[r] = sum of row r, a block a row, joined through shared memory by halves
`matmul`:       c = a @ b, tiles of both in shared memory, each thread accumulates `rows` results in registers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.ir.op import Buffer, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import BufferUse, Executable, Kernel, Param, Program, Schedule, ScheduleItem
from picograd.ir.statements import Alloc, Barrier, For, If, Let, Load, Statement, Store

Array = np.ndarray[Any, Any]
I64, F32 = dtypes.int64, dtypes.float32
N = Op(OpCode.VARIABLE, I64, (), ("n", 0, 1 << 20))


class Body:
    """Names values one after the other, as codegen/passes/linearize.py does."""

    count = 0

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    @classmethod
    def var(cls, dtype: DType) -> Op:
        Body.count += 1
        return Op(OpCode.VAR, dtype, (), (f"v{Body.count}", 1))

    def let(self, code: OpCode, *src: Op | int, dtype: DType = I64, arg: object = None) -> Op:
        """Adds `var = code(src)`."""
        sources = tuple(const(s, I64) if isinstance(s, int) else s for s in src)
        var = self.var(dtype)
        self.statements.append(Let(var, Op(code, dtype, sources, arg)))
        return var

    def at(self, row: Op, width: int, column: Op | int = 0) -> Op:
        """Adds `var = row * width + column`."""
        return self.let(OpCode.ADD, self.let(OpCode.MUL, row, width), column)

    def load(self, memory: Op, index: Op | int, valid: Op | None = None) -> Op:
        var = self.var(memory.dtype)
        self.statements.append(Load(var, memory, const(index, I64) if isinstance(index, int) else index, valid))
        return var

    def store(self, memory: Op, index: Op | int, value: Op | Scalar, valid: Op | None = None) -> None:
        value = value if isinstance(value, Op) else const(value, memory.dtype)
        self.statements.append(Store(memory, const(index, I64) if isinstance(index, int) else index, value, valid))

    def add(self, *statements: Statement) -> None:
        self.statements += statements

    def done(self) -> tuple[Statement, ...]:
        return tuple(self.statements)


def param(slot: int, numel: int, dtype: DType = F32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, (numel,)))


def loop_range(number: int, kind: AxisKind, extent: Op | int) -> Op:
    return Op(OpCode.RANGE, I64, (const(extent, I64) if isinstance(extent, int) else extent,), (number, kind))


def memory(name: str, numel: int, space: MemorySpace, dtype: DType = F32) -> Op:
    return Op(OpCode.ALLOC, dtype, (), (name, numel, space))


# ---- the three programs ----
def elementwise(threads: int = 256) -> Program:
    Body.count = 0
    before, body, inside = Body(), Body(), Body()
    blocks = before.let(OpCode.IDIV, before.let(OpCode.ADD, N, threads - 1), threads)
    bias = before.load(param(1, 1), 0)
    grid, thread = loop_range(0, AxisKind.GRID, blocks), loop_range(1, AxisKind.BLOCK, threads)
    at = body.at(grid, threads, thread)
    here = body.let(OpCode.CMPLT, at, N, dtype=dtypes.bool_)
    x = inside.load(param(0, 1 << 20), at)
    inside.store(param(2, 1 << 20), at, inside.let(OpCode.ADD, inside.let(OpCode.EXP, x, dtype=F32), bias, dtype=F32))
    body.add(If(here, inside.done()))
    before.add(For(grid, (For(thread, body.done()),)))
    params = (Param(F32, N, "in"), Param(F32, 1, "in"), Param(F32, N, "out"))
    return Program("exp_add", params, (N,), (before.done(),))


def row_sums(rows: int, columns: int, threads: int = 64, barriers: bool = True) -> Program:
    """`barriers=False` leaves out what makes it right."""
    Body.count = 0
    grid, thread = loop_range(0, AxisKind.GRID, rows), loop_range(1, AxisKind.BLOCK, threads)
    partial, own = memory("partial", threads, MemorySpace.SHARED), memory("own", 1, MemorySpace.REGISTER)
    body, each = Body(), Body()
    steps = body.let(OpCode.IDIV, body.let(OpCode.SUB, columns + threads - 1, thread), threads)
    start = body.at(grid, columns, thread)
    step = loop_range(2, AxisKind.LOOP, steps)
    body.store(own, 0, 0.0)
    x = each.load(param(0, rows * columns), each.let(OpCode.ADD, start, each.let(OpCode.MUL, step, threads)))
    each.store(own, 0, each.let(OpCode.ADD, each.load(own, 0), x, dtype=F32))
    body.add(For(step, each.done()))
    body.store(partial, thread, body.load(own, 0))
    half = threads // 2
    while half:
        if barriers:
            body.add(Barrier())
        join = Body()
        both = join.load(partial, thread), join.load(partial, join.let(OpCode.ADD, thread, half))
        join.store(partial, thread, join.let(OpCode.ADD, *both, dtype=F32))
        body.add(If(body.let(OpCode.CMPLT, thread, half, dtype=dtypes.bool_), join.done()))
        half //= 2
    first = body.let(OpCode.CMPEQ, thread, 0, dtype=dtypes.bool_)
    last = Body()
    last.store(param(1, rows), grid, last.load(partial, 0))
    body.add(If(first, last.done()))
    phase = (For(grid, (Alloc(partial), For(thread, (Alloc(own), *body.done())))),)
    params = (Param(F32, rows * columns, "in"), Param(F32, rows, "out"))
    return Program(f"row_sums_{rows}_{columns}", params, (), (phase,))


def matmul(m: int, n: int, k: int, tile: int = 16, rows: int = 4) -> Program:
    """Tiles of tile*rows by tile results; a and b tiles of depth `tile`; m, n, k are multiples of them."""
    Body.count = 0
    height = tile * rows
    grid = loop_range(0, AxisKind.GRID, (m // height) * (n // tile))
    thread = loop_range(1, AxisKind.BLOCK, tile * tile)
    depth = loop_range(2, AxisKind.LOOP, k // tile)
    a_tile = memory("a_tile", height * tile, MemorySpace.SHARED)
    b_tile = memory("b_tile", tile * tile, MemorySpace.SHARED)
    sums = memory("sums", rows, MemorySpace.REGISTER)
    a, b, c = param(0, m * k), param(1, k * n), param(2, m * n)
    head, body, step = Body(), Body(), Body()
    top = head.let(OpCode.MUL, head.let(OpCode.IDIV, grid, n // tile), height)
    left = head.let(OpCode.MUL, head.let(OpCode.MOD, grid, n // tile), tile)
    y, x = body.let(OpCode.IDIV, thread, tile), body.let(OpCode.MOD, thread, tile)
    for r in range(rows):
        body.store(sums, r, 0.0)
    along = step.let(OpCode.MUL, depth, tile)
    for r in range(rows):
        row = step.let(OpCode.ADD, y, r * tile)
        source = step.at(step.let(OpCode.ADD, top, row), k, step.let(OpCode.ADD, along, x))
        step.store(a_tile, step.at(row, tile, x), step.load(a, source))
    source = step.at(step.let(OpCode.ADD, along, y), n, step.let(OpCode.ADD, left, x))
    step.store(b_tile, step.at(y, tile, x), step.load(b, source))
    step.add(Barrier())
    for i in range(tile):
        factor = step.load(b_tile, step.let(OpCode.ADD, x, i * tile))
        for r in range(rows):
            other = step.load(a_tile, step.at(step.let(OpCode.ADD, y, r * tile), tile, i))
            step.store(sums, r, step.let(OpCode.FMA, other, factor, step.load(sums, r), dtype=F32))
    step.add(Barrier())
    body.add(For(depth, step.done()))
    for r in range(rows):
        row = body.let(OpCode.ADD, body.let(OpCode.ADD, top, y), r * tile)
        body.store(c, body.at(row, n, body.let(OpCode.ADD, left, x)), body.load(sums, r))
    threads = For(thread, (Alloc(sums), *body.done()))
    params = (Param(F32, m * k, "in"), Param(F32, k * n, "in"), Param(F32, m * n, "out"))
    phase = (For(grid, (*head.done(), Alloc(a_tile), Alloc(b_tile), threads)),)
    return Program(f"matmul_{m}_{n}_{k}", params, (), (phase,))


# ---- running one program ----
def run(device: Any, executable: Executable, arrays: Sequence[Array], variables: dict[str, int] | None = None) -> None:
    """Runs a program on host arrays, one for each parameter but scratch: those with role "out" are filled."""
    params = executable.params[: len(arrays)]
    groups: dict[str, list[Buffer]] = {"in": [], "out": []}
    uses = []
    for array, p in zip(arrays, params):
        buffer = Buffer(device.name, p.dtype, array.size, device.allocate(array.nbytes))
        if p.role == "in":
            device.copy_in(buffer.memory, np.ascontiguousarray(array))
        uses.append(BufferUse(p.dtype, p.numel, {"in": "input", "out": "output"}[p.role], len(groups[p.role])))
        groups[p.role].append(buffer)
    kernel = Kernel(executable.name, params, executable.variables, ())
    schedule = Schedule((ScheduleItem(kernel, tuple(range(len(params)))),), tuple(uses), (), (), 0)
    device.make_runner(schedule, [executable])(groups["in"], groups["out"], variables or {})
    outputs = [array for array, p in zip(arrays, params) if p.role == "out"]
    for array, buffer in zip(outputs, groups["out"]):
        device.copy_out(buffer.memory, array)


# ---- what they compute, on some numbers ----
def check_elementwise(device: Any, executable: Executable) -> None:
    """Runs `elementwise` on counts of elements below, at and above whole blocks."""
    rng = np.random.default_rng(1)
    for n in (1, 255, 256, 1000):
        x, bias, y = rng.standard_normal(n, np.float32), np.full(1, 0.5, np.float32), np.zeros(n, np.float32)
        run(device, executable, [x, bias, y], {"n": n})
        np.testing.assert_allclose(y, np.exp(x) + bias, rtol=4e-7)  # expf is within 2 ulp, then one rounding


def check_row_sums(device: Any, executable: Executable, rows: int, columns: int) -> None:
    x, y = np.random.default_rng(2).standard_normal((rows, columns), np.float32), np.zeros(rows, np.float32)
    run(device, executable, [x, y])
    np.testing.assert_allclose(y, x.sum(axis=1, dtype=np.float64), atol=columns * 2**-24 * np.abs(x).max())


def check_matmul(device: Any, executable: Executable, m: int, n: int, k: int) -> None:
    """Small integers: every sum is exact, whatever its order."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float32)
    run(device, executable, [a, b, c])
    np.testing.assert_array_equal(c, a @ b)
