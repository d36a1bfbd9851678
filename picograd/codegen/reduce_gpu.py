"""Reductions on a GPU: a team of threads per row, or for neighbouring rows a few rows per thread.

A short row takes one thread. Otherwise a team of up to 256 threads walks a row, each by accesses of up to 16 bytes, and a
warp has several teams if rows are short. Rows that read common values, such as the weights of a layer norm or x in a @ x,
are walked two or four at a time, so that common values are read once. A row of known length that fits stays in the team's
registers, read once for all levels of reductions. A longer one stays in shared memory, such as logits of 50304 classes:
each thread copies its part, in the background and all at once. Values are combined lane by lane, then by shuffles in a
warp, then through shared memory from warp to warp (always through shared memory if the target has no shuffles).

Neighbouring rows, as in a sum over axis 0: a thread has one access of up to 16 bytes of them. Several threads share the
same rows, walk every n-th column, and combine their values through shared memory. If rows are too few to fill a GPU, blocks
share them, too: each stores its part in scratch memory, and a second phase combines the parts.

Rows and columns of the same data in one pass, as in the gradients of a norm: a thread has the same columns of all rows that
its team walks, so column totals stay in its registers; a block stores one line of them (codegen/reduce.py).

The order of a float sum depends on shapes only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from math import gcd

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.index import element_anywhere
from picograd.codegen.loops import BLOCKS_WANTED, RUN_STEPS, access_lanes, grid_of_threads, in_runs, vector_lanes
from picograd.codegen.reduce import (
    Both,
    Results,
    Rows,
    Totals,
    Walk,
    element_stores,
    emit_rows,
    is_rounded_sum,
    known_at,
    plan_rows,
    row_stores,
    summands,
    write_stores,
)
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, combined, differs, equal, where
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import MOVEMENT, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.statements import COPY_BYTES, WARP_THREADS
from picograd.ir.symbolic import (
    Coords,
    add,
    affine,
    both,
    ceildiv,
    flatten,
    floordiv,
    less,
    minimum,
    mod,
    mul,
    placeholder,
    placeholders,
    subtract,
    to_op,
    unflatten,
)
from picograd.record import Record, replace

# ---- a team of threads for each row, or for a few ----
THREAD_ROW_COLUMNS_MAX = 7  # longer rows take a team: up to here the reads of a row are a sector of 32 bytes
ACCESSES_OF_A_SECTOR = 2  # of 16 or 8 bytes: memory is read by sectors of 32 (CUDA C++ Best Practices Guide, 10.2.1)
THREAD_ACCESSES = 4  # accesses of a thread to a row: reads in flight at once
THREAD_ACCESSES_MANY = 8  # the same for whole warps, if there are enough rows: a warp then takes a row of 1024 floats
REGISTER_ACCESSES_MAX = 16  # of a thread to a row kept in registers; a longer row is read again for each level
REGISTER_ELEMENTS_MAX = 64  # elements of these accesses, of all rows of a team
TEAM_ROWS_MAX = 4  # if they read common values
TEAM_ROWS_WASTE = 4  # at most one in four of the rows of all teams is missing
TEAM_BLOCKS_MIN = 8  # with fewer, a team gets more threads, or fewer rows


class Team(Record):
    """Threads that walk a row together, or a few rows that read common values.

    threads:  a power of two: part of a warp, or whole warps
    lanes:    elements per access
    steps:    accesses of a thread to a row, unrolled; None: a loop
    order:    number of threads that defines the order of a row's sum: the maximum. If there are fewer, each has the totals
              of several, so that the bits of a row do not depend on the number of rows
    rows:     a power of two
    """

    threads: int
    lanes: int
    steps: int | None
    order: int
    rows: int = 1

    @property
    def totals(self) -> int:
        """Number of a thread's totals; step s adds to total s % totals."""
        return self.order // self.threads


def emit_reduce_gpu(nest: Nest, context: Context) -> None:
    """Writes the loops of a reduce nest: a team of threads per row, or a thread per few rows."""
    params, target, scratch = context.params, context.target, context.scratch
    build, second = context.phase(0), context.phase(1)
    rows, lanes_on_rows = plan_rows(nest, params, target)
    if lanes_on_rows:
        emit_columns_gpu(rows, build, second, target, scratch)
        return
    if rows.columns_max > THREAD_ROW_COLUMNS_MAX:
        team = team_of(rows, target)
        _TeamRows(rows, team, build, target, _threads_of_block(rows, team, target) if context.is_alone else None).emit()
        return
    with grid_of_threads(build, numel(rows.row_extents), target) as position:
        emit_rows(rows, position, 1, build, 1)


def team_of(rows: Rows, target: Target) -> Team:
    """Returns the team of a row, or of a few: threads that read a sector together, leaving some blocks.

    If rows are longer than a block's threads, each thread makes more accesses.
    """
    nest, coords = rows.nest, placeholders(rows.nest.domain)
    stored, along = [value.dtype for _, value in rows.of_elements], {coords[axis] for axis in nest.reduced}
    values = rows.element_values(coords)
    last, most_lanes = rows.column_loops[-1], access_lanes(values, stored, along, target)
    lanes = gcd(last, most_lanes) if isinstance(last, int) else 1
    columns = numel(rows.column_extents)
    block = target.block_threads
    if not isinstance(columns, int):
        return Team(block, lanes, None, block)
    accesses = columns // lanes
    least = min(ACCESSES_OF_A_SECTOR * most_lanes // lanes, 1 << (accesses - 1).bit_length())
    order = _threads(least, accesses, THREAD_ACCESSES, block)
    few = min(order, _threads(WARP_THREADS, accesses, min(THREAD_ACCESSES_MANY, REGISTER_ELEMENTS_MAX // lanes), block))
    team = _kept(Team(few, lanes, ceildiv(accesses, few), order))
    if target.has_shuffle and _share_reads(rows, values, coords, along):
        team = replace(team, rows=_rows_together(rows, team))
    while (team.rows > 1 or team.threads < order) and _num_blocks(rows, team, block) < TEAM_BLOCKS_MIN:
        if team.rows > 1:
            team = replace(team, rows=team.rows // 2)
        else:
            team = _kept(replace(team, threads=2 * team.threads, steps=ceildiv(accesses, 2 * team.threads)))
    return team


def _threads(least: int, accesses: int, most: int, block: int) -> int:
    """Returns the threads that need at most `most` accesses each, if the block has them."""
    while least < block and least * most < accesses:
        least *= 2
    return least


def _kept(team: Team) -> Team:
    """Returns a team whose steps are a loop if the row does not fit into registers."""
    assert team.steps is not None
    is_kept = team.steps <= REGISTER_ACCESSES_MAX and team.steps * team.lanes <= REGISTER_ELEMENTS_MAX
    return team if is_kept else replace(team, steps=None)


def _share_reads(rows: Rows, values: Sequence[Op], coords: Coords, along: AbstractSet[Dim]) -> bool:
    """True if neighbouring rows read the same element, as x in the product of a matrix and x."""
    if not rows.row_groups:
        return False
    moves = {coords[axis] for axis in rows.groups[rows.row_groups[-1]]}
    loads = [op for op in toposort(values) if op.code is OpCode.LOAD]
    for op in loads if len(loads) > 1 else ():
        read_at: set[Dim] = set(toposort(op.src[1:]))
        if moves.isdisjoint(read_at) and not read_at.isdisjoint(along):
            return True
    return False


def _rows_together(rows: Rows, team: Team) -> int:
    """Returns how many neighbouring rows a team may take: as many as fit into registers, if they must."""
    last, is_walked_once = rows.row_extents[-1], len(rows.levels) == 1 and not rows.of_elements
    most = TEAM_ROWS_MAX if is_walked_once else REGISTER_ELEMENTS_MAX // (team.steps * team.lanes) if team.steps else 1
    found = 1
    while 2 * found <= min(most, TEAM_ROWS_MAX, team.threads):
        room = 2 * found * ceildiv(last, 2 * found) if isinstance(last, int) else 0
        if isinstance(last, int) and (room - last) * TEAM_ROWS_WASTE > room:
            break
        found *= 2
    return found


def _num_blocks(rows: Rows, team: Team, block_threads: int) -> int:
    """Returns the maximum number of blocks."""
    return ceildiv(greatest(numel(_row_tiles(rows, team))) * team.threads, block_threads)


def _threads_of_block(rows: Rows, team: Team, target: Target) -> int:
    """Returns the threads of a block: of a few teams, down to a warp, where more of them leave multiprocessors idle."""
    threads = target.block_threads
    while threads > max(WARP_THREADS, team.threads) and _num_blocks(rows, team, threads) < BLOCKS_WANTED:
        threads //= 2
    return threads


def _row_tiles(rows: Rows, team: Team) -> list[Dim]:
    """Returns the extents of the rows, the last one in teams' groups of rows."""
    *outer, last = rows.row_extents or [1]
    return [*outer, ceildiv(last, team.rows)]


class _TeamRows:
    """Rows of a nest, distributed over the teams of a block.

    tiles:    extents of the rows, the last one in groups of a team
    accesses: extents of a row, the last one in accesses
    marks:    lanes of each unrolled step
    block_threads:  threads of a block; by default the target's
    results:  results of each row of the team
    """

    def __init__(self, rows: Rows, team: Team, build: Builder, target: Target, block_threads: int | None = None):
        self.rows, self.team, self.build = rows, team, build
        self.tiles = _row_tiles(rows, team)
        self.block_threads, self.has_shuffle = block_threads or target.block_threads, target.has_shuffle
        *outer, last = rows.column_loops
        self.accesses = [*outer, floordiv(last, team.lanes)]
        self.num_accesses = numel(self.accesses)
        self.marks: dict[int, Op] = {}
        self.kept: dict[Op, Op] = {}  # a value of each element -> shared memory for a row of it
        self.walked_again = _walked_again(rows, team, target)

    def emit(self) -> None:
        """Writes the grid: a block has one group of rows per team.

        NOTE: teams without a row compute the last one again, without storing, since barriers wait for all threads.
        """
        build, threads = self.build, self.team.threads
        teams = self.block_threads // threads
        total = numel(self.tiles)
        levels = [r for level in self.rows.levels for r in level]
        with build.loop(ceildiv(total, teams), AxisKind.GRID) as block:
            shared = self.shared_memory(levels)
            length = self.rows.columns_max
            self.kept = {op: build.alloc(op.dtype, length, MemorySpace.SHARED) for op in self.walked_again}
            with build.loop(self.block_threads, AxisKind.BLOCK) as thread:
                self.thread, self.member = thread, mod(thread, threads)
                self.write_rows(add(mul(block, teams), floordiv(thread, threads)), shared)

    def write_rows(self, tile: Dim, shared: Mapping[Op, Op]) -> None:
        """Writes the rows of a team: their reductions, and the outputs of existing rows."""
        total = numel(self.tiles)
        self.tile = unflatten(minimum(tile, subtract(total, 1)), self.tiles)
        self.at, self.are_there = zip(*[self.row(number) for number in range(self.team.rows)])
        self.results: list[Results] = [{} for _ in self.at]
        self.bring()
        for level in self.rows.levels:
            self.reduce(level, shared)
        with self.build.when(less(tile, total)):
            self.store()

    def row(self, number: Dim) -> tuple[list[Dim], Op | bool]:
        """Returns the position of one of the team's rows, or of the last row, and whether the row exists."""
        if not self.rows.row_groups:
            return [], True
        *outer, tile = self.tile
        last, place = self.rows.row_extents[-1], add(mul(tile, self.team.rows), number)
        if mod(last, self.team.rows) == 0:
            return [*outer, place], True
        return [*outer, minimum(place, subtract(last, 1))], less(place, last)

    def shared_memory(self, levels: list[Op]) -> dict[Op, Op]:
        """Allocates memory for combining values: of warps, or of threads for all reductions of a dtype."""
        build = self.build
        if not self.has_shuffle:
            dtypes = dict.fromkeys(r.dtype.compute_dtype for r in levels)
            meeting = {dtype: build.alloc(dtype, self.block_threads, MemorySpace.SHARED) for dtype in dtypes}
            return {r: meeting[r.dtype.compute_dtype] for r in levels}
        num_warps = self.block_threads // WARP_THREADS if self.team.threads > WARP_THREADS else 0
        length = num_warps * self.team.rows
        return {r: build.alloc(r.dtype.compute_dtype, length, MemorySpace.SHARED) for r in levels if length}

    def columns(self, access: Dim, lane: Dim) -> list[Dim]:
        """Returns the column of a lane of an access."""
        *outer, last = unflatten(access, self.accesses)
        return [*outer, add(mul(last, self.team.lanes), lane)] if self.rows.column_groups else []

    def bring(self) -> None:
        """Copies each thread's part of a row; no other thread reads it, so there is no barrier."""
        if not self.kept:
            return
        build, lanes, (at,) = self.build, self.team.lanes, self.at
        with build.loop(self.num_steps(), AxisKind.LOOP) as step:
            columns = self.columns(add(mul(step, self.team.threads), self.member), 0)
            for op, memory in self.kept.items():
                source = self.rows.value(op, self.rows.coords(at, columns), {})
                build.copy_async(memory, columns[0], source, lanes)
        build.commit_copies()
        build.wait_for_copies(0)

    # ---- what a thread does for itself ----
    def each_step(self, body: Callable[[int, Dim, Op, Op | bool], None]) -> None:
        """Runs body(number, access, lane, whether it is inside the row) for a thread's accesses.

        Past the end of the row, body gets the last access, which can be read. Unrolled steps open the same loops over lanes
        at each level of reductions, so that what one level has read is in registers for the next. In a loop every number is
        0.
        """
        team, build = self.team, self.build
        if team.steps is None:
            with build.loop(self.num_steps(), AxisKind.LOOP) as step, build.loop(team.lanes, AxisKind.VECTOR) as lane:
                body(0, add(mul(step, team.threads), self.member), lane, True)
            return
        for number in range(team.steps):
            access = add(self.member, number * team.threads)
            inside = less(access, self.num_accesses)
            here = access if inside is True else minimum(access, subtract(self.num_accesses, 1))
            mark = self.marks.get(number)
            with build.loop(team.lanes, AxisKind.VECTOR) if mark is None else build.again(mark) as lane:
                self.marks[number] = lane
                body(number, here, lane, inside)

    def num_steps(self) -> Dim:
        """Returns the number of a thread's accesses to a row, if they are a loop."""
        return floordiv(subtract(add(self.num_accesses, self.team.threads - 1), self.member), self.team.threads)

    def reduce(self, level: list[Op], shared: Mapping[Op, Op]) -> None:
        """Writes the reductions of a level over a row; all threads of the team get the results."""
        own = self.find(level)
        for r in level:
            values = self.join(r, [values[r] for values in own], shared.get(r))
            for results, value in zip(self.results, values):
                results[r] = cast(value, r.dtype)

    def find(self, level: list[Op]) -> list[dict[Op, Op]]:
        """Writes a thread's reductions of its part of each row; returns the results, by reduction."""
        build, lanes, totals = self.build, self.team.lanes, self.team.totals

        def place(number: int, lane: Op) -> Dim:
            return add(number % totals * lanes, lane) if number % totals else lane

        def each_place(body: Callable[[Dim], None]) -> None:
            for number in range(totals):
                with build.loop(lanes, AxisKind.VECTOR) as lane:
                    body(place(number, lane))

        def fresh() -> list[Totals]:
            return [Totals.new(build, level, totals * lanes, MemorySpace.REGISTER, each_place) for _ in self.at]

        def step(own: list[Totals], number: int, access: Dim, lane: Op, inside: Op | bool) -> None:
            columns = self.columns(access, lane)
            for at, results, of_row in zip(self.at, self.results, own):
                known = known_at(self.rows, columns, results, self.kept)
                of_row.add(place(number, lane), self.rows, self.rows.coords(at, columns), known, inside)

        def in_lanes(into: list[Totals], at: list[Dim]) -> None:
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                step(into, 0, add(mul(at[0], threads), self.member), lane, True)

        def join(part: list[Totals], total: list[Totals]) -> None:
            for of_part, into in zip(part, total):
                into.join(of_part)

        own, threads = fresh(), self.team.threads
        if self.team.steps is not None or not any(map(is_rounded_sum, level)):
            self.each_step(partial(step, own))
        else:
            in_runs(build, [self.num_steps()], own, fresh, join, in_lanes)
        return [{r: self.over_places(r.arg[0], memory) for r, memory in of_row.memories.items()} for of_row in own]

    def over_places(self, code: OpCode, memory: Op) -> Op:
        """Returns a thread's totals combined to one value: the lanes of each by halves, then the totals."""
        lanes = self.team.lanes
        firsts = range(0, self.team.totals * lanes, lanes)
        return joined(code, [joined(code, [self.build.load(memory, first + i) for i in range(lanes)]) for first in firsts])

    # ---- what threads do together ----
    def join(self, r: Op, values: list[Op], memory: Op | None) -> list[Op]:
        """Combines a value of each row over all threads of the team; all of them get the results.

        Args:
          memory: an element per warp of the block and row, if a team has several warps; per thread without shuffles
        """
        code, num_rows = r.arg[0], len(values)
        if memory is not None and not self.has_shuffle:
            (value,) = values
            return [self.through_memory(code, value, memory)]
        distances = _halves(min(self.team.threads, WARP_THREADS))
        value = self.over_threads(code, values, distances)
        if memory is None:
            return self.to_all(value, distances[: num_rows.bit_length() - 1])
        build, warps = self.build, self.team.threads // WARP_THREADS
        lane, warp = mod(self.thread, WARP_THREADS), floordiv(self.thread, WARP_THREADS)
        each = WARP_THREADS // num_rows  # neighbours in a warp that hold one row's value
        with build.when(equal(mod(lane, each), 0)):
            build.store(memory, add(mul(warp, num_rows), floordiv(lane, each)), value)
        build.barrier()
        first = mul(floordiv(self.thread, self.team.threads), warps * num_rows)
        value = build.load(memory, add(first, mod(self.thread, warps * num_rows)))
        value = self.over_threads(code, [value], [num_rows * distance for distance in _halves(warps)])
        return self.to_all(value, _halves(num_rows))

    def through_memory(self, code: OpCode, value: Op, memory: Op) -> Op:
        """Returns a team's values, combined in shared memory with the one at half the distance, then a quarter."""
        build, distance = self.build, self.team.threads // 2
        build.barrier()  # the previous reduction's values have been read
        build.store(memory, self.thread, value)
        while distance:
            build.barrier()
            with build.when(less(self.member, distance)):
                both = [build.load(memory, place) for place in (self.thread, add(self.thread, distance))]
                build.store(memory, self.thread, combined(code, *both))
            distance //= 2
        build.barrier()
        return build.load(memory, subtract(self.thread, self.member))

    def over_threads(self, code: OpCode, values: list[Op], distances: Sequence[int]) -> Op:
        """Returns the values of neighbouring threads, combined with the one at half the distance, then a quarter.

        Among several values a thread keeps half at each distance and gives the others away: those of the rows whose number
        differs from the thread's in the bit of this distance.
        """
        build = self.build
        for distance in distances:
            if len(values) == 1:
                values = [combined(code, values[0], build.shuffle(values[0], distance))]
                continue
            half, is_upper = len(values) // 2, self.has_bit(distance)
            pairs = list(zip(values[:half], values[half:]))
            given = [build.shuffle(where(is_upper, low, high), distance) for low, high in pairs]
            values = [combined(code, where(is_upper, high, low), other) for (low, high), other in zip(pairs, given)]
        (value,) = values
        return value

    def to_all(self, value: Op, distances: Sequence[int]) -> list[Op]:
        """Returns the values of all rows; a thread holds that of the row with its own bits at these distances."""
        values = [value]
        for distance in reversed(distances):
            is_upper = self.has_bit(distance)
            pairs = [(each, self.build.shuffle(each, distance)) for each in values]
            values = [where(is_upper, other, own) for own, other in pairs] + [where(is_upper, *pair) for pair in pairs]
        return values

    def has_bit(self, distance: int) -> Op:
        """Returns whether the thread's number has this bit."""
        return differs(mod(floordiv(self.thread, distance), 2), 0)

    adds_down_columns = False

    def add_down_columns(self, number: int, lane: Op, at: list[Dim], columns: list[Dim], known: Results) -> None:
        """Adds an element to sums along its column, if there are any."""

    # ---- outputs ----
    def store(self) -> None:
        """Writes the outputs per element, then those per row."""
        build, rows = self.build, self.rows

        def step(number: int, access: Dim, lane: Op, inside: Op | bool) -> None:
            columns = self.columns(access, lane)
            for is_there, at, results in zip(self.are_there, self.at, self.results):
                with build.when(both(inside, is_there)):
                    known = known_at(rows, columns, results, self.kept)
                    self.add_down_columns(number, lane, at, columns, known)  # before its operands may be overwritten
                    write_stores(build, element_stores(rows, at, columns, known))

        if rows.of_elements or self.adds_down_columns:
            self.each_step(step)
        at, is_there, results = self.at[0], self.are_there[0], self.results[0]
        if self.team.rows > 1:  # each row has a thread that stores its outputs
            at, is_there = self.row(self.member)
            for number, others in enumerate(self.results):
                is_this = equal(to_op(self.member), number)
                results = {r: where(is_this, value, results[r]) for r, value in others.items()}
        with build.when(both(less(self.member, self.team.rows), is_there)):
            write_stores(build, row_stores(rows, rows.row_coords(at), results))


# ---- rows and columns in one pass ----
JOINT_ELEMENTS_MIN = 1 << 15  # smaller domains are cheaper to read twice than to write lines for
COLUMN_TOTALS_MAX = 64  # of a thread: registers besides those of its row
LINES_MAX = 256  # of blocks, if a team has few rows: two per multiprocessor
LINES_MIN = 64  # of blocks whose teams are most of a block, and have several rows each
LINE_ROWS_MIN = 8  # of a block: a line is written and read again
TEAM_LINE_ROWS_MAX = 64  # of a team, added one after the other


def walk_both_gpu(nest: Nest, others: Sequence[Op], params: Sequence[Op], target: Target) -> Walk | None:
    """Returns the plan for a nest along rows that also sums columns of other values, or None."""
    elements, count = numel(nest.domain), numel(nest.row_shape)
    if not isinstance(elements, int) or not isinstance(count, int) or elements < JOINT_ELEMENTS_MIN:
        return None
    rows, lanes_on_rows = plan_rows(nest, params, target, others)
    if lanes_on_rows or plan_rows(nest, params, target)[1] or rows.columns_max <= THREAD_ROW_COLUMNS_MAX:
        return None
    team = _team_of_both(rows, len(others), target)
    if team is None:
        return None
    teams = target.block_threads // team.threads
    each = max(1, min(TEAM_LINE_ROWS_MAX, count // (teams * LINES_MAX)))
    if teams * each < LINE_ROWS_MIN:
        each = LINE_ROWS_MIN // teams
        if count < LINES_MIN * teams * each:
            return None
    return Walk(rows, team.lanes, teams * each) if count > teams * each else None


def _team_of_both(rows: Rows, num_sums: int, target: Target) -> Team | None:
    """Returns the team of a row whose threads keep the totals of all their columns; None if registers do not suffice."""
    team = replace(team_of(rows, target), rows=1)
    while team.steps is not None and team.steps * team.lanes * num_sums > COLUMN_TOTALS_MAX:
        if team.threads == team.order:
            return None
        team = _kept(replace(team, threads=2 * team.threads, steps=ceildiv(team.steps, 2)))
    return None if team.steps is None else team


def emit_reduce_both_gpu(joint: Both, build: Builder, target: Target) -> None:
    """Writes rows, and for each block of them a line of column sums."""
    team = _team_of_both(joint.rows, len(joint.sums), target)
    assert team is not None, "rows of this kind are walked together with their columns"
    _TeamRowsAndColumns(joint, team, build, target).emit()


class _TeamRowsAndColumns(_TeamRows):
    """Rows that a block's teams walk one after the other; a thread has the same columns of each, and their totals.

    down:  reduction -> a thread's totals
    """

    adds_down_columns = True

    def __init__(self, joint: Both, team: Team, build: Builder, target: Target):
        super().__init__(joint.rows, team, build, target)
        self.joint, self.down = joint, dict[Op, Op]()

    def emit(self) -> None:
        """Writes the grid: a line per block."""
        build, threads, joint = self.build, self.team.threads, self.joint
        teams, levels = self.block_threads // threads, [r for level in self.rows.levels for r in level]
        with build.loop(joint.num_blocks, AxisKind.GRID) as block:
            shared, meeting = self.shared_memory(levels), dict[DType, Op]()
            for memory in joint.sums.values() if teams > 1 else ():
                if memory.dtype not in meeting:
                    meeting[memory.dtype] = build.alloc(memory.dtype, 2 * self.num_meeting, MemorySpace.SHARED)
            with build.loop(self.block_threads, AxisKind.BLOCK) as thread:
                self.thread, self.member = thread, mod(thread, threads)
                self.down = Totals.new(
                    build, [*joint.sums], self.team_steps * self.team.lanes, MemorySpace.REGISTER, self.each_column
                ).memories
                with build.loop(joint.block // teams, AxisKind.LOOP) as turn:
                    tile = add(mul(block, joint.block), add(mul(turn, teams), floordiv(thread, threads)))
                    self.write_rows(tile, shared)
                    if shared:
                        build.barrier()  # values of the previous rows have been read
                self.store_line(block, meeting)

    @property
    def num_meeting(self) -> int:
        """Elements of a step of all threads, combined in shared memory."""
        return self.block_threads * self.team.lanes

    @property
    def team_steps(self) -> int:
        assert self.team.steps is not None, "a team with totals of columns holds its row in registers"
        return self.team.steps

    def each_column(self, body: Callable[[Dim], None]) -> None:
        """Runs body(index) for each of the thread's totals."""
        for number in range(self.team_steps):
            with self.build.loop(self.team.lanes, AxisKind.VECTOR) as lane:
                body(add(number * self.team.lanes, lane))

    def add_down_columns(self, number: int, lane: Op, at: list[Dim], columns: list[Dim], known: Results) -> None:
        build, rows, place = self.build, self.rows, add(number * self.team.lanes, lane)
        added = summands(self.joint, rows.coords(at, columns), rows.row_coords(at), known)
        for (r, memory), value in zip(self.down.items(), added):
            build.store(memory, place, rows.accumulated(r, build.load(memory, place), cast(value, memory.dtype)))

    def store_line(self, block: Op, meeting: Mapping[DType, Op]) -> None:
        """Combines the totals of all teams, with the one at half the distance, then a quarter, and stores them."""
        build, lanes = self.build, self.team.lanes
        width, of_team, of_step = numel(self.rows.column_extents), self.team.threads * lanes, 0
        for number in range(self.team_steps):
            first = number * of_team
            for r, memory in self.down.items():
                if not meeting:
                    access = add(self.member, number * self.team.threads)
                    with build.when(less(access, self.num_accesses)), build.loop(lanes, AxisKind.VECTOR) as lane:
                        value = build.load(memory, add(number * lanes, lane))
                        self.store_total(r, block, add(mul(access, lanes), lane), value)
                    continue
                there, start = meeting[memory.dtype], of_step * self.num_meeting
                of_step = 1 - of_step  # two buffers in turn, so one barrier is enough
                with build.loop(lanes, AxisKind.VECTOR) as lane:
                    value = build.load(memory, add(number * lanes, lane))
                    build.store(there, add(start, add(mul(self.thread, lanes), lane)), value)
                build.barrier()
                for group in range(0, of_team, self.block_threads):
                    place = add(group, self.thread)
                    at = add(first, place)
                    with build.when(both(less(place, of_team), less(at, width))):
                        parts = [build.load(there, add(start + n, place)) for n in range(0, self.num_meeting, of_team)]
                        self.store_total(r, block, at, joined(r.arg[0], parts))

    def store_total(self, r: Op, block: Op, at: Dim, value: Op) -> None:
        """Stores a block's total of a column, counted along the row."""
        joint, rows = self.joint, self.rows
        coords = rows.coords(rows.row_extents, unflatten(at, rows.column_extents))  # all rows have the same columns
        shape = tuple([rows.nest.domain[axis] for axis in joint.columns])
        column = flatten([coords[axis] for axis in joint.columns], shape)
        self.build.store(joint.sums[r], add(mul(block, joint.width), column), value)


def _halves(count: int) -> list[int]:
    """Returns the distances at which a power of two of values is combined.

    >>> _halves(8)
    [4, 2, 1]
    """
    return [count >> shift for shift in range(1, count.bit_length())]


def _walked_again(rows: Rows, team: Team, target: Target) -> list[Op]:
    """Returns the values in memory to copy, for a row that is walked several times and too long for registers.

    Two blocks fit into a multiprocessor, so one computes while the other waits.
    """
    nest, columns = rows.nest, numel(rows.column_extents)
    if team.steps is not None or not target.has_async_copies or not isinstance(columns, int):
        return []
    reductions = {r for level in rows.levels for r in level}
    walks = [[r.src[0] for r in level] for level in rows.levels] + [[value for _, value in rows.of_elements]]
    times: dict[Op, int] = {}
    for values in walks:
        for op in _reads(values, reductions, nest.domain):
            times[op] = times.get(op, 0) + 1
    found, left = [], target.shared_bytes // 2 - target.block_threads * 16  # room for combining threads' values
    for op, count in times.items():
        nbytes = columns * op.dtype.itemsize
        if count > 1 and nbytes <= left and _begins_whole(rows, op, team.lanes):
            found.append(op)
            left -= nbytes
    return found


def _reads(values: Sequence[Op], reductions: Collection[Op], domain: Shape) -> list[Op]:
    """Returns the values in memory that a domain's elements read at the element's own coordinates."""
    order = toposort(values, stop=reductions)
    in_memory = {op for op in order if op.code is OpCode.PARAM}
    for op in order:
        if op.code in MOVEMENT and op.code is not OpCode.PAD and op.src[0] in in_memory:
            in_memory.add(op)
    read = {s for op in order for s in op.src if op.code not in MOVEMENT} | set(values)
    return [op for op in order if op in in_memory and op in read and op.shape == domain]


def _begins_whole(rows: Rows, op: Op, lanes: int) -> bool:
    """True if a row of a value is contiguous and begins at a multiple of the lanes."""
    load, (axis, *others) = element_anywhere(op), [axis for group in rows.column_groups for axis in rows.groups[group]]
    if others or load.code is not OpCode.LOAD or len(load.src) != 2 or op.dtype.itemsize * lanes not in COPY_BYTES:
        return False
    terms, first = affine(load.src[1])
    along = placeholder(axis, rows.nest.domain[axis])
    return terms.get(along) == 1 and all(step % lanes == 0 for step in (first, *terms.values()) if step != 1)


# ---- neighbouring rows for each thread ----
THREAD_COLUMNS_MIN = 4  # of a thread, before others share its rows
RESIDENT_BLOCKS_WANTED = 512  # some per multiprocessor, to hide each other's waits for memory; not measured
PART_COLUMNS_MIN = 32  # of each thread, before blocks share rows
SHARED_BYTES_MAX = 16 * 1024  # for the totals of threads that share rows: several blocks fit into a multiprocessor


class Layout(Record):
    """The division of rows and columns among threads and blocks.

    lanes:    rows per thread
    wide:     number of threads with different rows
    high:     number of threads that share rows, walking every high-th column; a power of two, as is wide
    parts:    number of blocks that share rows
    columns:  number of columns of a part
    """

    lanes: int
    wide: int
    high: int
    parts: int
    columns: Dim


def emit_columns_gpu(rows: Rows, first: Builder, second: Builder, target: Target, scratch: Scratch) -> None:
    """Writes rows that are neighbours in memory; if blocks share rows, `second` combines their parts."""
    layout = _layout(rows, target)
    partials = {}
    if layout.parts > 1:
        total = numel(rows.row_extents)
        partials = {r: scratch(r.dtype.compute_dtype, mul(layout.parts, total)) for r in rows.levels[0]}
    _NeighbourRows(rows, layout, first, target).emit(partials)
    if partials:
        _join_parts(rows, layout, partials, second, target)


def _layout(rows: Rows, target: Target) -> Layout:
    """Returns the division of a nest's rows and columns."""
    values = [value for _, value in rows.nest.outputs] + [r.src[0] for level in rows.levels for r in level]
    last, lanes = (rows.row_extents or [1])[-1], vector_lanes(values, target)
    lanes = lanes if isinstance(last, int) and last % lanes == 0 else 1
    columns, accesses = numel(rows.column_extents), numel([*rows.row_extents[:-1], floordiv(last, lanes)])
    nbytes = target.block_threads * lanes * sum(r.dtype.compute_dtype.itemsize for level in rows.levels for r in level)
    high = _num_sharing(accesses, columns, target.block_threads) if nbytes <= SHARED_BYTES_MAX else 1
    wide = target.block_threads // high
    if not isinstance(accesses, int) or not isinstance(columns, int) or len(rows.levels) != 1 or rows.of_elements:
        return Layout(lanes, wide, high, 1, columns)  # with shared rows the results would be in the next phase
    wanted = min(ceildiv(RESIDENT_BLOCKS_WANTED, max(1, ceildiv(accesses, wide))), columns // (high * PART_COLUMNS_MIN))
    length = ceildiv(columns, max(1, wanted))
    return Layout(lanes, wide, high, max(1, ceildiv(columns, max(1, length))), length)


def _num_sharing(accesses: Dim, columns: Dim, threads: int) -> int:
    """Returns the number of threads that share rows: as many as leave a warp of neighbours, and some columns each."""
    wide = high = 1
    while wide < min(accesses if isinstance(accesses, int) else WARP_THREADS, WARP_THREADS):
        wide *= 2
    most = columns // THREAD_COLUMNS_MIN if isinstance(columns, int) else threads
    while high * 2 <= min(most, threads // wide):
        high *= 2
    return high


class _NeighbourRows:
    """Blocks of wide x high threads.

    accesses:  extents of the rows, the last one in accesses
    mark:      lanes of a thread's rows, once written
    """

    def __init__(self, rows: Rows, layout: Layout, build: Builder, target: Target):
        self.rows, self.layout, self.build, self.threads = rows, layout, build, target.block_threads
        *outer, last = rows.row_extents or [1]
        self.accesses = [*outer, floordiv(last, layout.lanes)]
        self.mark: Op | None = None
        self.results: Results = {}

    def emit(self, partials: Mapping[Op, Op]) -> None:
        """Writes the grid.

        NOTE: threads without rows compute the last ones again, without storing, since barriers wait for all threads.

        Args:
          partials: memory for the results of parts; {} for a single part
        """
        build, layout, levels = self.build, self.layout, self.rows.levels
        num_accesses = numel(self.accesses)
        row_blocks = ceildiv(num_accesses, layout.wide)
        with build.loop(mul(row_blocks, layout.parts), AxisKind.GRID) as position:
            part, block = unflatten(position, [layout.parts, row_blocks])
            shared = self.shared_memory()
            with build.loop(self.threads, AxisKind.BLOCK) as self.thread:
                self.side, self.height = mod(self.thread, layout.wide), floordiv(self.thread, layout.wide)
                access = add(mul(block, layout.wide), self.side)
                inside, self.access = less(access, num_accesses), minimum(access, subtract(num_accesses, 1))
                for level in levels:
                    self.reduce(level, mul(part, layout.columns), shared)
                if self.rows.of_elements:
                    with build.when(inside):
                        self.store_columns()
                with build.when(both(inside, less(self.height, 1))), self.lanes() as lane:
                    self.store_rows(lane, part, partials)

    def shared_memory(self) -> dict[Op, Op]:
        """Allocates memory for combining the values of threads that share rows."""
        reductions = [r for level in self.rows.levels for r in level if self.layout.high > 1]
        length = self.threads * self.layout.lanes
        return {r: self.build.alloc(r.dtype.compute_dtype, length, MemorySpace.SHARED) for r in reductions}

    @contextmanager
    def lanes(self) -> Iterator[Op]:
        """Opens the loop over a thread's rows."""
        build = self.build
        with build.loop(self.layout.lanes, AxisKind.VECTOR) if self.mark is None else build.again(self.mark) as lane:
            self.mark = lane
            yield lane

    def at(self, lane: Op) -> list[Dim]:
        """Returns the position of a thread's row."""
        *outer, last = unflatten(self.access, self.accesses)
        return [*outer, add(mul(last, self.layout.lanes), lane)] if self.rows.row_groups else []

    def num_steps(self, start: Dim) -> Dim:
        """Returns how many columns of the part from `start` on are the thread's: every high-th."""
        count = minimum(self.layout.columns, subtract(numel(self.rows.column_extents), start))
        return floordiv(subtract(add(count, self.layout.high - 1), self.height), self.layout.high)

    def in_lanes(self, start: Dim, step: Dim, body: Callable[[list[Dim], list[Dim]], None]) -> None:
        """Runs body(row, column) for a thread's column."""
        column = add(start, add(mul(step, self.layout.high), self.height))
        with self.lanes() as lane:
            body(self.at(lane), [*unflatten(column, self.rows.column_extents)])

    def reduce(self, level: list[Op], start: Dim, shared: Mapping[Op, Op]) -> None:
        """Writes the reductions of a level over the columns of a part; all threads of the rows get the results."""
        build, rows, lanes = self.build, self.rows, self.layout.lanes

        def each_lane(body: Callable[[Dim], None]) -> None:
            with self.lanes() as lane:
                body(lane)

        def fresh() -> Totals:
            return Totals.new(build, level, lanes, MemorySpace.REGISTER, each_lane)

        def accumulate(own: Totals, at: list[Dim], columns: list[Dim]) -> None:
            assert self.mark is not None, "the lanes of a thread are open"
            own.add(self.mark, rows, rows.coords(at, columns), self.results)

        totals = fresh()
        in_runs(
            build, [self.num_steps(start)], totals, fresh, lambda part, total: total.join(part),
            lambda into, at: self.in_lanes(start, at[0], partial(accumulate, into)),
            RUN_STEPS if any(map(is_rounded_sum, level)) else 0,
        )  # fmt: skip
        own = totals.memories
        if shared:
            self.join(level, own, shared)
        with self.lanes() as lane:
            self.results |= {r: cast(read(own[r], lane), r.dtype) for r in level}

    def join(self, level: list[Op], own: Mapping[Op, Op], shared: Mapping[Op, Op]) -> None:
        """Combines by halves the values of the threads that share rows."""
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

    # ---- outputs ----
    def store_columns(self) -> None:
        """Stores the outputs per element, for all of a thread's columns."""
        with self.build.loop(self.num_steps(0), AxisKind.LOOP) as step:
            self.in_lanes(0, step, self.store_elements)

    def store_elements(self, at: list[Dim], columns: list[Dim]) -> None:
        write_stores(self.build, element_stores(self.rows, at, columns, self.results))

    def store_rows(self, lane: Op, part: Dim, partials: Mapping[Op, Op]) -> None:
        """Stores the outputs per row, or the partial results of this part."""
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
    """Writes the phase that combines parts in order, a thread per row, and stores the outputs per row."""
    num_rows = numel(rows.row_extents)
    with grid_of_threads(build, num_rows, target) as row:

        def fresh() -> Totals:
            return Totals.new(build, [*partials], 1, MemorySpace.REGISTER, lambda body: body(0))

        def add_part(own: Totals, at: list[Dim]) -> None:
            for r, memory in own.memories.items():
                value = build.load(memory, 0)
                part = build.load(partials[r], add(mul(at[0], num_rows), row))
                build.store(memory, 0, combined(r.arg[0], value, part))

        own = fresh()
        in_runs(build, [layout.parts], own, fresh, lambda part, total: total.join(part), add_part)
        here = rows.row_coords(unflatten(row, rows.row_extents))
        write_stores(build, row_stores(rows, here, own.results(0)))
