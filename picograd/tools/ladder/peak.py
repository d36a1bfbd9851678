"""What the processor could do: independent chains of FMAs in registers, with no memory to wait for.

In:    Target, a number of threads
Out:   a Program; the FLOPs it does
Next:  picograd/tools/ladder/programs.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, read
from picograd.codegen.matmul import multiply_add
from picograd.device import Target
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.symbolic import add, mul
from picograd.tools.ladder.registers import Tile, each

CHAINS = 12  # more than the 8 to 10 that are under way at once (latency of 4 or 5 cycles, two begin in each)
STEPS = 20_000
PIECES = 16  # for each thread, so that none waits long for the last


def peak_program(target: Target, num_threads: int) -> Program:
    """Returns chains s = s * x + y in vectors: `num_threads * PIECES` times, shared by the workers where that is not 1.

    It reads x and y from parameter 0, a float32 each, and stores the sums to parameter 1.
    """
    tile = _tile(target)
    numel = CHAINS * tile.lanes
    given = Op(OpCode.PARAM, dtypes.float32, (), (0, (2,)))
    out = Op(OpCode.PARAM, dtypes.float32, (), (1, (numel * num_threads * PIECES,)))
    build = Builder()
    kind = AxisKind.LOOP if num_threads == 1 else AxisKind.GRID
    with build.loop(num_threads * PIECES, kind) as piece:
        sums = build.alloc(dtypes.float32, numel, MemorySpace.REGISTER)
        each(build, tile, lambda row, column, place: build.store(sums, place, read(given, 1)))

        def step(row: Op, column: Dim, place: Dim) -> None:
            total = multiply_add(build.load(sums, place), read(given, 0), read(given, 1), target.has_fma)
            build.store(sums, place, total)

        with build.loop(STEPS, AxisKind.LOOP):
            each(build, tile, step)
        each(
            build, tile,
            lambda row, column, place: build.store(out, add(mul(piece, numel), place), build.load(sums, place)),
        )  # fmt: skip
    params = (Param(dtypes.float32, 2, "in"), Param(dtypes.float32, numel * num_threads * PIECES, "out"))
    return Program("peak", params, (), (build.finish(),))


def peak_flops(target: Target, num_threads: int) -> int:
    """Returns the FLOPs of one run."""
    return 2 * CHAINS * _tile(target).lanes * STEPS * num_threads * PIECES


def _tile(target: Target) -> Tile:
    return Tile(CHAINS, 1, max(1, target.vector_bytes // 4))
