"""The loops of a reduce nest on a GPU: some threads a row, which join what each has found.

In:    Nest (kind REDUCE)
Out:   statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/reduce_columns.py

A short row is a thread's own; rows beside each other in memory are codegen/gpu/reduce_columns.py's. Else a team of up to
256 threads walks a row, each an access of up to 16 bytes at a time, and a warp has several teams where rows have few. A row
of known length that fits lies in the team's registers from then on, read once however many levels of reductions follow.
Values are joined lane by lane, then by shuffles in a warp, then through shared memory from warp to warp (all through shared
memory where the target has no shuffles). The order of a float sum depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import gcd

from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Builder, Context
from picograd.codegen.gpu.reduce_columns import emit_columns_gpu, joined
from picograd.codegen.loops import grid_of_threads, split
from picograd.codegen.row_loops import emit_rows
from picograd.codegen.rows import (
    Results,
    Rows,
    accumulator_dtype,
    element_stores,
    has_elements,
    is_rounded_sum,
    is_short,
    plan_rows,
    row_stores,
    start_of,
    write_stores,
)
from picograd.codegen.runs import in_runs
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.ir.build import cast, compare, where
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, floordiv, less, minimum, mod, mul, subtract, to_op
from picograd.record import Record

FEW = 7  # a row no longer than this is one thread's: a sector of 32 bytes at most has what it reads
ACCESSES_OF_A_SECTOR = 2  # of 16 bytes, 8 for 16-bit floats: memory is read by 32 (CUDA C++ Best Practices Guide, 10.2.1)
OWN = 4  # accesses of a thread to a row: reads that are under way at once
MOST_OWN = 16  # accesses of a thread to a row that lies in registers; a longer one is read again for each level


class Team(Record):
    """The threads that walk a row together.

    threads:  a power of two: a part of a warp, or whole warps
    lanes:    elements of one access
    steps:    accesses of a thread, written out one after the other; None where it loops
    """

    threads: int
    lanes: int
    steps: int | None


def emit_reduce_gpu(nest: Nest, context: Context) -> None:
    """Writes the loops of a reduce nest: a team of threads a row, or a thread a few rows."""
    params, target, scratch = context.params, context.target, context.scratch
    build, second = context.phase(0), context.phase(1)
    rows, lanes_on_rows = plan_rows(nest, params, target)
    if lanes_on_rows:
        emit_columns_gpu(rows, build, second, target, scratch)
        return
    if not is_short(rows, FEW):
        _TeamRows(rows, team_of(rows, target), build, target).emit()
        return
    with grid_of_threads(build, numel(rows.row_extents), target) as position:
        emit_rows(rows, position, 1, build, 1)


def team_of(rows: Rows, target: Target) -> Team:
    """Returns who walks a row: threads that read a sector together, and so many that each makes OWN accesses at most.

    For longer rows than the block has threads for each makes more.
    """
    values = [value for _, value in rows.nest.outputs] + [r.src[0] for level in rows.levels for r in level]
    last, most_lanes = rows.column_loops[-1], vector_lanes(values, target)
    lanes = gcd(last, most_lanes) if isinstance(last, int) else 1
    columns = numel(rows.column_extents)
    if not isinstance(columns, int):
        return Team(target.block_threads, lanes, None)
    accesses = columns // lanes
    threads = min(ACCESSES_OF_A_SECTOR * most_lanes // lanes, 1 << (accesses - 1).bit_length())
    while threads < target.block_threads and threads * OWN < accesses:
        threads *= 2
    steps = -(-accesses // threads)
    return Team(threads, lanes, steps if steps <= MOST_OWN else None)


class _TeamRows:
    """Rows of a nest, a team of the block's threads each.

    accesses:  the extents of a row, the last one in accesses
    marks:     the lanes of each step that is written out
    """

    def __init__(self, rows: Rows, team: Team, build: Builder, target: Target):
        self.rows, self.team, self.build = rows, team, build
        self.block_threads, self.has_shuffle = target.block_threads, target.has_shuffle
        *outer, last = rows.column_loops
        self.accesses = [*outer, floordiv(last, team.lanes)]
        self.num_accesses = numel(self.accesses)
        self.marks: dict[int, Op] = {}

    def emit(self) -> None:
        """Writes the grid: as many rows a block as it has teams.

        NOTE: teams without a row compute the last one again, for a barrier waits for all threads; they store nothing.
        """
        build, threads = self.build, self.team.threads
        teams = self.block_threads // threads
        total = numel(self.rows.row_extents)
        levels = [r for level in self.rows.levels for r in level]
        with build.loop(floordiv(add(total, teams - 1), teams), AxisKind.GRID) as block:
            joined = self.shared_memory(levels)
            with build.loop(self.block_threads, AxisKind.BLOCK) as thread:
                self.thread, self.member = thread, mod(thread, threads)
                row = add(mul(block, teams), floordiv(thread, threads))
                self.at = split(minimum(row, subtract(total, 1)), self.rows.row_extents)
                self.results: Results = {}
                for level in self.rows.levels:
                    own = self.reduce(level)
                    for r in level:
                        self.results[r] = cast(self.join(r, own[r], joined.get(r)), r.dtype)
                with build.when(less(row, total)):
                    self.store()

    def shared_memory(self, levels: list[Op]) -> dict[Op, Op]:
        """Makes memory in which the values of a reduction meet: of warps; or of threads, for all reductions of a type."""
        build = self.build
        if not self.has_shuffle:
            dtypes = dict.fromkeys(accumulator_dtype(r) for r in levels)
            meeting = {dtype: build.alloc(dtype, self.block_threads, MemorySpace.SHARED) for dtype in dtypes}
            return {r: meeting[accumulator_dtype(r)] for r in levels}
        num_warps = self.block_threads // WARP_THREADS if self.team.threads > WARP_THREADS else 0
        return {r: build.alloc(accumulator_dtype(r), num_warps, MemorySpace.SHARED) for r in levels if num_warps}

    def columns(self, access: Dim, lane: Dim) -> list[Dim]:
        """Returns the column of a lane of an access."""
        *outer, last = split(access, self.accesses)
        return [*outer, add(mul(last, self.team.lanes), lane)] if self.rows.column_groups else []

    # ---- what a thread does for itself ----
    def each_step(self, body: Callable[[Dim, Op, Op | bool], None]) -> None:
        """Runs body(access, lane, whether the row has that access) for a thread's accesses.

        Where the row ends sooner, body gets its last access, which can be read. Steps that are written out open the same
        loops over lanes at each level of reductions, so that what a level has read is in registers for those after it.
        """
        team, build = self.team, self.build
        if team.steps is None:
            with build.loop(self.num_steps(), AxisKind.LOOP) as step, build.loop(team.lanes, AxisKind.VECTOR) as lane:
                body(add(mul(step, team.threads), self.member), lane, True)
            return
        for number in range(team.steps):
            access = add(self.member, number * team.threads)
            inside = less(access, self.num_accesses)
            here = access if inside is True else minimum(access, subtract(self.num_accesses, 1))
            mark = self.marks.get(number)
            with build.loop(team.lanes, AxisKind.VECTOR) if mark is None else build.again(mark) as lane:
                self.marks[number] = lane
                body(here, lane, inside)

    def num_steps(self) -> Dim:
        """Returns how many accesses of a row that is not written out are the thread's."""
        return floordiv(subtract(add(self.num_accesses, self.team.threads - 1), self.member), self.team.threads)

    def reduce(self, level: list[Op]) -> dict[Op, Op]:
        """Writes what a thread finds in its part of the row; returns it, by reduction."""
        build, lanes = self.build, self.team.lanes

        def fresh() -> dict[Op, Op]:
            own = {r: build.alloc(accumulator_dtype(r), lanes, MemorySpace.REGISTER) for r in level}
            for r in level:
                with build.loop(lanes, AxisKind.VECTOR) as lane:
                    build.store(own[r], lane, start_of(r.arg[0], own[r].dtype))
            return own

        def step(own: Mapping[Op, Op], access: Dim, lane: Op, inside: Op | bool) -> None:
            coords = self.rows.coords(self.at, self.columns(access, lane))
            for r in level:
                value = cast(self.rows.value(r.src[0], coords, self.results), own[r].dtype)
                if isinstance(inside, Op):
                    value = where(inside, value, start_of(r.arg[0], value.dtype))
                build.store(own[r], lane, self.rows.accumulated(r, build.load(own[r], lane), value))

        own, threads = fresh(), self.team.threads
        if self.team.steps is not None or not any(map(is_rounded_sum, level)):
            self.each_step(partial(step, own))
            return {r: self.over_lanes(r.arg[0], own[r]) for r in level}

        def in_lanes(into: Mapping[Op, Op], at: list[Dim]) -> None:
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                step(into, add(mul(at[0], threads), self.member), lane, True)

        in_runs(build, [self.num_steps()], own, fresh, self.add_lanes, in_lanes)
        return {r: self.over_lanes(r.arg[0], own[r]) for r in level}

    def add_lanes(self, part: Mapping[Op, Op], total: Mapping[Op, Op]) -> None:
        """Adds what each lane has found to others."""
        build = self.build
        with build.loop(self.team.lanes, AxisKind.VECTOR) as lane:
            for r, memory in total.items():
                build.store(memory, lane, combined(r.arg[0], build.load(memory, lane), build.load(part[r], lane)))

    def over_lanes(self, code: OpCode, memory: Op) -> Op:
        """Returns the lanes of an accumulator joined by halves."""
        return joined(code, [self.build.load(memory, lane) for lane in range(self.team.lanes)])

    # ---- what threads do together ----
    def join(self, r: Op, value: Op, memory: Op | None) -> Op:
        """Returns what all threads of the team have found together; every one of them gets it.

        Args:
          memory: an element for each warp of the block, where a team has several; for each thread without shuffles
        """
        code = r.arg[0]
        if memory is not None and not self.has_shuffle:
            return self.through_memory(code, value, memory)
        value = self.over_threads(code, value, min(self.team.threads, WARP_THREADS))
        if memory is None:
            return value
        build, warps = self.build, self.team.threads // WARP_THREADS
        with build.when(compare(OpCode.CMPEQ, mod(self.thread, WARP_THREADS), 0)):
            build.store(memory, floordiv(self.thread, WARP_THREADS), value)
        build.barrier()
        first = mul(floordiv(self.thread, self.team.threads), warps)
        return self.over_threads(code, build.load(memory, add(first, mod(self.thread, warps))), warps)

    def through_memory(self, code: OpCode, value: Op, memory: Op) -> Op:
        """Returns the values of a team joined in shared memory: each with the one half as far away, then a quarter."""
        build, distance = self.build, self.team.threads // 2
        build.barrier()  # what another reduction left there has been read
        build.store(memory, self.thread, value)
        while distance:
            build.barrier()
            with build.when(less(self.member, distance)):
                both = [build.load(memory, place) for place in (self.thread, add(self.thread, distance))]
                build.store(memory, self.thread, combined(code, *both))
            distance //= 2
        build.barrier()
        return build.load(memory, subtract(self.thread, self.member))

    def over_threads(self, code: OpCode, value: Op, count: int) -> Op:
        """Returns the values of `count` neighbouring threads joined: each with the one half as far away, then a quarter."""
        distance = count // 2
        while distance:
            value = combined(code, value, self.build.shuffle(value, distance))
            distance //= 2
        return value

    # ---- what is stored ----
    def store(self) -> None:
        """Writes the elements of the row, then what is of the row itself."""
        build, rows = self.build, self.rows

        def step(access: Dim, lane: Op, inside: Op | bool) -> None:
            with build.when(inside):
                write_stores(build, element_stores(rows, self.at, self.columns(access, lane), self.results))

        if has_elements(rows):
            self.each_step(step)
        with build.when(compare(OpCode.CMPEQ, to_op(self.member), 0)):
            write_stores(build, row_stores(rows, rows.row_coords(self.at), self.results))
