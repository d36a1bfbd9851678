"""The loops of a reduce nest on a GPU: a block of threads a row, or a thread.

In:    Nest (kind REDUCE)
Out:   statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/tile.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.codegen.elementwise import grid_of_threads
from picograd.codegen.loops import split
from picograd.codegen.reduce import emit_rows
from picograd.codegen.rows import Results, Rows, accumulator_dtype, is_short, plan_rows, row_stores, start_of, write_stores
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, mul, subtract

FEW = 31  # a row no longer than this is one thread's


def emit_reduce_gpu(nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes the loops of a reduce nest: a block a row, joined through shared memory; short or strided rows a thread."""
    rows, lanes_on_rows = plan_rows(nest, params, target)
    if not lanes_on_rows and not is_short(rows, FEW):
        _emit_block_rows(rows, build, target)
        return
    with grid_of_threads(build, numel(rows.row_extents), target) as position:
        emit_rows(rows, position, 1, build, 1)


def _emit_block_rows(rows: Rows, build: Builder, target: Target) -> None:
    """Writes rows on a GPU: a block for each row, its threads side by side along the columns."""
    threads = target.block_threads
    columns = numel(rows.column_extents)
    with build.loop(numel(rows.row_extents), AxisKind.GRID) as position:
        at = split(position, rows.row_extents)
        here = rows.row_coords(at)
        results: Results = {}
        reductions = [r for level in rows.levels for r in level]
        memory = {r: build.alloc(accumulator_dtype(r), threads, MemorySpace.SHARED) for r in reductions}
        with build.loop(threads, AxisKind.BLOCK) as thread:
            for level in rows.levels:
                _block_partials(rows, level, at, results, build, thread, threads, columns, memory)
                for r in level:
                    results[r] = cast(build.load(memory[r], 0), r.dtype)
            strided(build, thread, threads, columns, lambda c: _store_columns(rows, at, c, results, build))
            with build.when(Op(OpCode.CMPEQ, dtypes.bool_, (thread, const(0, dtypes.int64)))):
                write_stores(build, row_stores(rows, here, results))


def _store_columns(rows: Rows, at: list[Dim], column: Dim, results: Results, build: Builder) -> None:
    coords = rows.coords(at, split(column, rows.column_extents))
    for slot, value in rows.nest.outputs:
        if value.shape == rows.nest.domain:
            build.store(rows.params[slot], flatten(coords, rows.nest.domain), rows.value(value, coords, results))


def strided(build: Builder, thread: Op, threads: int, count: Dim, body: Callable[[Dim], None]) -> None:
    """Runs `body` for thread, thread + threads, ... below count."""
    with build.loop(floordiv(subtract(add(count, threads - 1), thread), threads), AxisKind.LOOP) as step:
        body(add(mul(step, threads), thread))


def _block_partials(
    rows: Rows, level: list[Op], at: list[Dim], results: Results, build: Builder,
    thread: Op, threads: int, columns: Dim, memory: dict[Op, Op],
) -> None:  # fmt: skip
    """Each thread reduces every threads-th column; shared memory joins the threads by halves."""
    own = {r: build.alloc(accumulator_dtype(r), 1, MemorySpace.REGISTER) for r in level}
    for r in level:
        build.store(own[r], 0, start_of(r.arg[0], own[r].dtype))

    def step(column: Dim) -> None:
        coords = rows.coords(at, split(column, rows.column_extents))
        for r in level:
            value = cast(rows.value(r.src[0], coords, results), own[r].dtype)
            build.store(own[r], 0, rows.accumulated(r, build.load(own[r], 0), value))

    strided(build, thread, threads, columns, step)
    for r in level:
        build.store(memory[r], thread, build.load(own[r], 0))
    half = threads // 2
    while half:
        build.barrier()
        with build.when(Op(OpCode.CMPLT, dtypes.bool_, (thread, const(half, dtypes.int64)))):
            for r in level:
                low, high = build.load(memory[r], thread), build.load(memory[r], add(thread, half))
                build.store(memory[r], thread, combined(r.arg[0], low, high))
        half //= 2
    build.barrier()
