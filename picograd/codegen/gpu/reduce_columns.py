"""The loops of a reduce nest on a GPU whose rows lie side by side in memory, as those of a sum over axis 0.

In:    Rows, Target
Out:   statements in the free form
Called by: codegen/gpu/reduce.py.    Next: picograd/codegen/tile.py

A thread has a few neighbouring rows, as many as one access of up to 16 bytes reads, and its neighbours the next ones.
Several threads share the same rows, walk every so many columns, and join what they have found through shared memory.
Where there are too few rows to fill a GPU, blocks share them too: each leaves its part in scratch memory, and a second
phase joins these. How a sum is cut depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.loops import grid_of_threads, split
from picograd.codegen.rows import (
    Results,
    Rows,
    accumulator_dtype,
    element_stores,
    has_elements,
    is_rounded_sum,
    row_stores,
    start_of,
    write_stores,
)
from picograd.codegen.runs import RUN_STEPS, in_runs
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, minimum, mod, mul, subtract
from picograd.record import Record

FEW_COLUMNS = 4  # of a thread, at least, before others share its rows
MANY_BLOCKS = 512  # some for each multiprocessor, so that they hide each other's waits for memory; not measured
PART = 32  # columns of each thread, at least, before blocks share rows
MOST_SHARED = 16 * 1024  # bytes, of what threads that share rows have found: several blocks fit into a multiprocessor


class Layout(Record):
    """Who does what.

    lanes:    rows of a thread
    wide:     threads side by side, each with rows of its own
    high:     threads that share rows, walking every high-th column; a power of two, as is wide
    parts:    blocks that share rows
    columns:  of a part
    """

    lanes: int
    wide: int
    high: int
    parts: int
    columns: Dim


def emit_columns_gpu(rows: Rows, first: Builder, second: Builder, target: Target, scratch: Scratch) -> None:
    """Writes rows that lie side by side; where several blocks share rows, what these leave is joined in `second`."""
    layout = _layout(rows, target)
    partials = {}
    if layout.parts > 1:
        total = numel(rows.row_extents)
        partials = {r: scratch(accumulator_dtype(r), mul(layout.parts, total)) for r in rows.levels[0]}
    _SideBySide(rows, layout, first, target).emit(partials)
    if partials:
        _join_parts(rows, layout, partials, second, target)


def _layout(rows: Rows, target: Target) -> Layout:
    """Returns how threads and blocks divide the rows and columns of a nest."""
    values = [value for _, value in rows.nest.outputs] + [r.src[0] for level in rows.levels for r in level]
    last, lanes = (rows.row_extents or [1])[-1], vector_lanes(values, target)
    lanes = lanes if isinstance(last, int) and last % lanes == 0 else 1
    columns, accesses = numel(rows.column_extents), numel([*rows.row_extents[:-1], floordiv(last, lanes)])
    nbytes = target.block_threads * lanes * sum(accumulator_dtype(r).itemsize for level in rows.levels for r in level)
    high = _num_sharing(accesses, columns, target.block_threads) if nbytes <= MOST_SHARED else 1
    wide = target.block_threads // high
    if not isinstance(accesses, int) or not isinstance(columns, int) or len(rows.levels) != 1 or has_elements(rows):
        return Layout(lanes, wide, high, 1, columns)  # blocks that share rows know what they found in the next phase alone
    wanted = min(-(-MANY_BLOCKS // max(1, -(-accesses // wide))), columns // (high * PART))
    length = -(-columns // max(1, wanted))
    return Layout(lanes, wide, high, max(1, -(-columns // max(1, length))), length)


def _num_sharing(accesses: Dim, columns: Dim, threads: int) -> int:
    """Returns how many threads of a block share rows: as many as leave a warp side by side, each with some columns."""
    wide = high = 1
    while wide < min(accesses if isinstance(accesses, int) else WARP_THREADS, WARP_THREADS):
        wide *= 2
    most = columns // FEW_COLUMNS if isinstance(columns, int) else threads
    while high * 2 <= min(most, threads // wide):
        high *= 2
    return high


class _SideBySide:
    """Blocks of wide x high threads.

    accesses:  extents of the rows, the last one in accesses
    mark:      the lanes of the rows of a thread, once there are some
    """

    def __init__(self, rows: Rows, layout: Layout, build: Builder, target: Target):
        self.rows, self.layout, self.build, self.threads = rows, layout, build, target.block_threads
        *outer, last = rows.row_extents or [1]
        self.accesses = [*outer, floordiv(last, layout.lanes)]
        self.mark: Op | None = None
        self.results: Results = {}

    def emit(self, partials: Mapping[Op, Op]) -> None:
        """Writes the grid.

        NOTE: threads without rows compute the last ones again, for a barrier waits for all threads; they store nothing.

        Args:
          partials: memory for what each part finds; {} where there is one part
        """
        build, layout, levels = self.build, self.layout, self.rows.levels
        num_accesses = numel(self.accesses)
        row_blocks = floordiv(add(num_accesses, layout.wide - 1), layout.wide)
        with build.loop(mul(row_blocks, layout.parts), AxisKind.GRID) as position:
            part, block = split(position, [layout.parts, row_blocks])
            shared = self.shared_memory()
            with build.loop(self.threads, AxisKind.BLOCK) as self.thread:
                self.side, self.height = mod(self.thread, layout.wide), floordiv(self.thread, layout.wide)
                access = add(mul(block, layout.wide), self.side)
                inside, self.access = less(access, num_accesses), minimum(access, subtract(num_accesses, 1))
                for level in levels:
                    self.reduce(level, mul(part, layout.columns), shared)
                if has_elements(self.rows):
                    with build.when(inside):
                        self.each_column(0, self.store_elements)
                with build.when(both(inside, less(self.height, 1))), self.lanes() as lane:
                    self.store_rows(lane, part, partials)

    def shared_memory(self) -> dict[Op, Op]:
        """Makes memory in which threads that share rows meet."""
        reductions = [r for level in self.rows.levels for r in level if self.layout.high > 1]
        length = self.threads * self.layout.lanes
        return {r: self.build.alloc(accumulator_dtype(r), length, MemorySpace.SHARED) for r in reductions}

    @contextmanager
    def lanes(self) -> Iterator[Op]:
        """Opens the loop over the rows of a thread."""
        build = self.build
        with build.loop(self.layout.lanes, AxisKind.VECTOR) if self.mark is None else build.again(self.mark) as lane:
            self.mark = lane
            yield lane

    def at(self, lane: Op) -> list[Dim]:
        """Returns the position of a row of the thread."""
        *outer, last = split(self.access, self.accesses)
        return [*outer, add(mul(last, self.layout.lanes), lane)] if self.rows.row_groups else []

    def num_steps(self, start: Dim) -> Dim:
        """Returns how many columns of the part from `start` on are the thread's: every high-th."""
        count = minimum(self.layout.columns, subtract(numel(self.rows.column_extents), start))
        return floordiv(subtract(add(count, self.layout.high - 1), self.height), self.layout.high)

    def in_lanes(self, start: Dim, step: Dim, body: Callable[[list[Dim], list[Dim]], None]) -> None:
        """Runs body(row, column) for one of the thread's columns."""
        column = add(start, add(mul(step, self.layout.high), self.height))
        with self.lanes() as lane:
            body(self.at(lane), split(column, self.rows.column_extents))

    def each_column(self, start: Dim, body: Callable[[list[Dim], list[Dim]], None]) -> None:
        """Runs body(row, column) for the thread's columns from `start` on."""
        with self.build.loop(self.num_steps(start), AxisKind.LOOP) as step:
            self.in_lanes(start, step, body)

    def reduce(self, level: list[Op], start: Dim, shared: Mapping[Op, Op]) -> None:
        """Writes the reductions of a level over the columns of a part; all threads of the rows know the results."""
        build, rows, lanes = self.build, self.rows, self.layout.lanes

        def fresh() -> dict[Op, Op]:
            own = {r: build.alloc(accumulator_dtype(r), lanes, MemorySpace.REGISTER) for r in level}
            with self.lanes() as lane:
                for r in level:
                    build.store(own[r], lane, start_of(r.arg[0], own[r].dtype))
            return own

        def accumulate(own: Mapping[Op, Op], at: list[Dim], columns: list[Dim]) -> None:
            coords, lane = rows.coords(at, columns), self.mark
            assert lane is not None, "the lanes of a thread are open"
            for r in level:
                value = cast(rows.value(r.src[0], coords, self.results), own[r].dtype)
                build.store(own[r], lane, rows.accumulated(r, build.load(own[r], lane), value))

        def join(part: Mapping[Op, Op], total: Mapping[Op, Op]) -> None:
            with self.lanes() as lane:
                for r, memory in total.items():
                    build.store(memory, lane, combined(r.arg[0], build.load(memory, lane), build.load(part[r], lane)))

        own = fresh()
        in_runs(
            build, [self.num_steps(start)], own, fresh, join,
            lambda into, at: self.in_lanes(start, at[0], partial(accumulate, into)),
            RUN_STEPS if any(map(is_rounded_sum, level)) else 0,
        )  # fmt: skip
        if shared:
            self.join(level, own, shared)
        with self.lanes() as lane:
            self.results |= {r: cast(read(own[r], lane), r.dtype) for r in level}

    def join(self, level: list[Op], own: Mapping[Op, Op], shared: Mapping[Op, Op]) -> None:
        """Has each thread read what those that share its rows have found, and join it by halves."""
        build, layout = self.build, self.layout
        with self.lanes() as lane:
            for r in level:
                place = add(mul(self.thread, layout.lanes), lane)
                build.store(shared[r], place, build.load(own[r], lane))
        build.barrier()
        with self.lanes() as lane:
            for r in level:
                places = [add(mul(self.side, layout.lanes), lane)]
                places = [add(places[0], n * layout.wide * layout.lanes) for n in range(layout.high)]
                build.store(own[r], lane, joined(r.arg[0], [build.load(shared[r], place) for place in places]))

    # ---- what is stored ----
    def store_elements(self, at: list[Dim], columns: list[Dim]) -> None:
        write_stores(self.build, element_stores(self.rows, at, columns, self.results))

    def store_rows(self, lane: Op, part: Dim, partials: Mapping[Op, Op]) -> None:
        """Writes what is of the rows themselves, or of a part of them."""
        at = self.at(lane)
        if not partials:
            write_stores(self.build, row_stores(self.rows, self.rows.row_coords(at), self.results))
        for r, memory in partials.items():
            row = add(mul(part, numel(self.rows.row_extents)), flatten(tuple(at), tuple(self.rows.row_extents)))
            self.build.store(memory, row, cast(self.results[r], memory.dtype))


def joined(code: OpCode, parts: list[Op]) -> Op:
    """Returns 2**n values combined: the first with the one half as far on, then a quarter."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combined(code, low, high) for low, high in zip(parts[:half], parts[half:])]
    return parts[0]


def _join_parts(rows: Rows, layout: Layout, partials: Mapping[Op, Op], build: Builder, target: Target) -> None:
    """Writes the phase that joins parts in order, a thread a row, and stores what is of the rows."""
    total = numel(rows.row_extents)
    with grid_of_threads(build, total, target) as row:

        def fresh() -> dict[Op, Op]:
            own = {r: build.alloc(memory.dtype, 1, MemorySpace.REGISTER) for r, memory in partials.items()}
            for r, memory in own.items():
                build.store(memory, 0, start_of(r.arg[0], memory.dtype))
            return own

        def add_to(own: Mapping[Op, Op], found: Callable[[Op], Op]) -> None:
            for r, memory in own.items():
                build.store(memory, 0, combined(r.arg[0], build.load(memory, 0), found(r)))

        def add_part(own: Mapping[Op, Op], at: list[Dim]) -> None:
            add_to(own, lambda r: build.load(partials[r], add(mul(at[0], total), row)))

        own = fresh()
        in_runs(
            build, [layout.parts], own, fresh, lambda part, into: add_to(into, lambda r: build.load(part[r], 0)), add_part
        )
        results = {r: cast(build.load(memory, 0), r.dtype) for r, memory in own.items()}
        here = rows.row_coords(split(row, rows.row_extents))
        write_stores(build, row_stores(rows, here, results))
