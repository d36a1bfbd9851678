"""The loops of a reduce nest: all reductions that share rows, and what is computed from them, in one go over each row.

In:    Nest (kind REDUCE)
Out:   statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/reduce_gpu.py

A row is read once for each level of reductions (softmax: the maximum, then the sum, then the result); after the
first time it is in cache. The order in which a float sum adds depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from picograd.codegen.axes import Groups, group_extents, merge_axes, spread, vector_lanes
from picograd.codegen.builder import Builder
from picograd.codegen.elementwise import along, nested, split
from picograd.codegen.index import element_within, elements
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.coordinates import Coords, flatten, placeholders
from picograd.ir.fold import identity
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import TRANSCENDENTAL, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract, to_op

PIECE_ELEMENTS = 8192  # of one GRID iteration on a CPU
RUN = 4096  # sums longer than this are sums of sums, so that rounding errors do not pile up
UNROLLED = 16  # as short a row is written out

Results = dict[Op, Op]  # reductions that are done, with their values


@dataclass(frozen=True)
class Rows:
    """How a nest is walked.

    groups:      loops in the order of the domain's axes, from `merge_axes`
    row_groups, column_groups: positions in `groups`
    levels:      reductions by how many other reductions stand below them
    """

    nest: Nest
    params: Sequence[Op]
    groups: Groups
    extents: list[Dim]
    row_groups: list[int]
    column_groups: list[int]
    levels: list[list[Op]]

    def coords(self, rows: Sequence[Dim], columns: Sequence[Dim]) -> Coords:
        """Returns the coordinates in the domain of a row's and a column's position."""
        at = dict(zip([*self.row_groups, *self.column_groups], [*rows, *columns]))
        return spread(self.groups, [at[group] for group in range(len(self.groups))], self.nest.domain)

    def row_coords(self, rows: Sequence[Dim]) -> Coords:
        whole = self.coords(rows, self.column_extents)  # any columns: those of a row are the same
        return tuple([whole[axis] for axis in self.nest.row_axes])

    def value(self, op: Op, coords: Coords, results: Results) -> Op:
        """Returns the value of an element of the domain, or of a row, at its coordinates."""
        rows = self.nest.row_axes
        return element_within(op, coords, results, rows if op.shape == self.nest.domain else range(len(rows)))

    @property
    def row_extents(self) -> list[Dim]:
        return [self.extents[g] for g in self.row_groups]

    @property
    def column_loops(self) -> list[Dim]:
        """Returns the extents of the loops over columns, of which there is always one."""
        return self.column_extents or [1]

    @property
    def column_extents(self) -> list[Dim]:
        return [self.extents[g] for g in self.column_groups]


def accumulator_dtype(op: Op) -> DType:
    """The dtype a reduction adds in: float32 for the narrower floats."""
    return op.dtype.compute_dtype


def start_of(code: OpCode, dtype: DType) -> Op:
    """Returns what an accumulator starts from."""
    return const(identity(code, dtype), dtype)


def emit_reduce(nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes the loops of a reduce nest for a CPU: GRID over pieces of rows.

    Lanes run along the row where it is contiguous and not too short, else over neighbouring rows.
    """
    rows, lanes_on_rows = plan_rows(nest, params)
    values = [value for _, value in nest.outputs] + [r.src[0] for level in rows.levels for r in level]
    lanes = vector_lanes(values, target)
    if lanes_on_rows or _is_narrow(rows, lanes):
        _emit_lanes_of_rows(rows, build, lanes)
        return
    total, below = numel(rows.row_extents), numel(rows.column_extents)
    per_piece = max(1, PIECE_ELEMENTS // max(1, below)) if isinstance(below, int) else 1
    with build.loop(floordiv(add(total, per_piece - 1), per_piece), AxisKind.GRID) as piece:
        start = mul(piece, per_piece)
        with build.loop(minimum(subtract(total, start), per_piece), AxisKind.LOOP) as index:
            emit_row(rows, split(add(start, index), rows.row_extents), build, lanes)


def plan_rows(nest: Nest, params: Sequence[Op]) -> tuple[Rows, bool]:
    """Returns how to walk a nest, and whether lanes should run over rows rather than along them."""
    reductions = [op for op in toposort([v for _, v in nest.outputs]) if op.code is OpCode.REDUCE]
    coords = placeholders(nest.domain)
    row = tuple([coords[axis] for axis in nest.row_axes])
    known = {r: (row, const(0, r.dtype)) for r in reductions}
    whole = [value for _, value in nest.outputs if value.shape == nest.domain]
    of_rows = [value for _, value in nest.outputs if value.shape != nest.domain]
    values = elements([*(r.src[0] for r in reductions), *whole], coords, known) + elements(of_rows, row, known)
    stored = ((whole, coords, nest.domain), (of_rows, row, nest.row_shape))
    values += [to_op(flatten(at, shape)) for outputs, at, shape in stored if outputs]
    groups, factors = merge_axes(nest.domain, values, frozenset(nest.reduced))
    columns = [g for g, group in enumerate(groups) if group[0] in nest.reduced]
    row_groups = [g for g, group in enumerate(groups) if group[0] not in nest.reduced]

    def unit_strides(group: list[int]) -> int:
        return sum(f is not None and f[group[-1]] == 1 for f in factors) if group else -1

    rows = Rows(nest, params, groups, group_extents(groups, nest.domain), row_groups, columns, _levels(reductions))
    return rows, unit_strides(row_groups) > unit_strides(columns)


def _levels(reductions: list[Op]) -> list[list[Op]]:
    level: dict[Op, int] = {}
    for op in toposort(reductions):
        below = max((level[s] for s in op.src), default=0)
        level[op] = below + (op.code is OpCode.REDUCE)
    found = sorted({level[r] for r in reductions})
    return [[r for r in reductions if level[r] == n] for n in found]


def _is_narrow(rows: Rows, lanes: int) -> bool:
    """Whether rows are so short that each is better one lane of many than a loop of its own."""
    last = rows.column_extents[-1:]
    fills_no_vector = all(isinstance(extent, int) and extent < lanes for extent in last) and is_short(rows, UNROLLED)
    return fills_no_vector and bool(rows.row_groups) and all(v.shape != rows.nest.domain for _, v in rows.nest.outputs)


def is_short(rows: Rows, limit: int) -> bool:
    columns = numel(rows.column_extents)
    return isinstance(columns, int) and columns <= limit


# ---- one row after the other, lanes along it ----
def emit_row(rows: Rows, at: list[Dim], build: Builder, lanes: int) -> None:
    """Writes one row on one thread: each level of reductions, then the values of its elements, then those of the row."""
    here = rows.row_coords(at)
    results: Results = {}
    for level in rows.levels:
        results |= zip(level, _reduce_level(rows, level, at, results, build, lanes))
    whole = [(slot, value) for slot, value in rows.nest.outputs if value.shape == rows.nest.domain]
    if whole:
        *outer, last = rows.column_loops

        def store(columns: list[Dim]) -> None:
            coords = rows.coords(at, columns)
            for slot, value in whole:
                build.store(rows.params[slot], flatten(coords, rows.nest.domain), rows.value(value, coords, results))

        nested(build, outer, [], lambda cs: along(build, 0, last, lanes, lambda c: store([*cs, c])))
    store_rows(rows, here, results, build)


def store_rows(rows: Rows, here: Coords, results: Results, build: Builder) -> None:
    for slot, value in rows.nest.outputs:
        if value.shape != rows.nest.domain:
            build.store(rows.params[slot], flatten(here, rows.nest.row_shape), rows.value(value, here, results))


def _reduce_level(rows: Rows, level: list[Op], at: list[Dim], results: Results, build: Builder, lanes: int) -> list[Op]:
    """Runs along one row once and returns the value of each reduction."""
    *outer, last = rows.column_loops
    copies = 1 if lanes == 1 or not isinstance(last, int) or last < 4 * lanes else _num_copies(level)
    width = lanes * copies
    vectors = [build.alloc(accumulator_dtype(r), width, MemorySpace.REGISTER) for r in level]
    singles = [build.alloc(accumulator_dtype(r), 1, MemorySpace.REGISTER) for r in level]
    use_vectors = lanes > 1 and (not isinstance(last, int) or last >= lanes)
    for r, vector, single in zip(level, vectors, singles):
        start = start_of(r.arg[0], accumulator_dtype(r))
        build.store(single, 0, start)
        if use_vectors:
            with build.loop(copies, AxisKind.UNROLL) as copy, build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(vector, add(mul(copy, lanes), lane), start)

    def step(memory: list[Op], where: Dim, columns: list[Dim]) -> None:
        coords = rows.coords(at, columns)
        for r, accumulator in zip(level, memory):
            value = cast(rows.value(r.src[0], coords, results), accumulator.dtype)
            build.store(accumulator, where, combined(r.arg[0], build.load(accumulator, where), value))

    def line(columns: list[Dim]) -> None:
        whole = floordiv(last, width) if use_vectors else 0
        if whole != 0:
            with (
                build.loop(whole, AxisKind.LOOP) as vector,
                build.loop(copies, AxisKind.UNROLL) as copy,
                build.loop(lanes, AxisKind.VECTOR) as lane,
            ):
                where = add(mul(copy, lanes), lane)
                step(vectors, where, [*columns, add(mul(vector, width), where)])
        done = mul(whole, width)
        if use_vectors:
            more = floordiv(subtract(last, done), lanes)
            if more != 0:
                with build.loop(more, AxisKind.LOOP) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
                    step(vectors, lane, [*columns, add(done, add(mul(vector, lanes), lane))])
            done = add(done, mul(more, lanes))
        rest = subtract(last, done)
        if rest != 0:
            with build.loop(rest, AxisKind.LOOP) as index:
                step(singles, 0, [*columns, add(done, index)])

    nested(build, outer, [], line)
    joined = [_join(r, v, s, build, lanes, copies if use_vectors else 0) for r, v, s in zip(level, vectors, singles)]
    return [value if value.dtype is r.dtype else Op(OpCode.CAST, r.dtype, (value,)) for r, value in zip(level, joined)]


def _num_copies(level: list[Op]) -> int:
    """How many independent accumulators hide the latency of adding: fewer where each step is long anyway."""
    steps = toposort([r.src[0] for r in level])
    if len(steps) > 40:
        return 1
    return 2 if any(op.code in TRANSCENDENTAL for op in steps) else 4


def _join(r: Op, vector: Op, single: Op, build: Builder, lanes: int, copies: int) -> Op:
    """Joins accumulators: copies by halves, then lanes by halves, then the elements left over."""
    step = copies // 2
    while step:
        with build.loop(step, AxisKind.UNROLL) as copy, build.loop(lanes, AxisKind.VECTOR) as lane:
            low, high = add(mul(copy, lanes), lane), add(mul(add(copy, step), lanes), lane)
            build.store(vector, low, combined(r.arg[0], build.load(vector, low), build.load(vector, high)))
        step //= 2
    if copies:
        with build.loop(lanes, AxisKind.VECTOR) as lane:
            across = Op(OpCode.REDUCE, vector.dtype, (build.load(vector, lane),), (r.arg[0], ()))
            build.store(single, 0, combined(r.arg[0], across, build.load(single, 0)))
    return build.load(single, 0)


# ---- neighbouring rows side by side ----
def _emit_lanes_of_rows(rows: Rows, build: Builder, lanes: int) -> None:
    """Each lane is a row of its own: for reductions down the columns of a matrix, and for rows too short for lanes."""
    *outer, last = rows.row_extents
    below = numel(rows.column_extents)
    per_piece = max(lanes, PIECE_ELEMENTS // max(1, below) // lanes * lanes) if isinstance(below, int) else lanes
    if isinstance(last, int) and 0 < last <= per_piece:  # whole lines of rows, several to a piece
        lines, total = per_piece // last, numel(outer)
        with build.loop(floordiv(add(total, lines - 1), lines), AxisKind.GRID) as block:
            first = mul(block, lines)
            with build.loop(minimum(subtract(total, first), lines), AxisKind.LOOP) as line:
                _line_of_rows(rows, split(add(first, line), outer), 0, last, build, lanes)
        return
    pieces = floordiv(add(last, per_piece - 1), per_piece)
    with build.loop(numel((*outer, pieces)), AxisKind.GRID) as position:
        *at, piece = split(position, [*outer, pieces])
        start = mul(piece, per_piece)
        _line_of_rows(rows, at, start, minimum(subtract(last, start), per_piece), build, lanes)


def _line_of_rows(rows: Rows, at: list[Dim], start: Dim, count: Dim, build: Builder, lanes: int) -> None:
    """Writes `count` neighbouring rows from `start` on: whole vectors, then what is left one by one."""
    whole = floordiv(count, lanes) if lanes > 1 else 0
    if whole != 0:
        with build.loop(whole, AxisKind.LOOP) as group, build.loop(lanes, AxisKind.VECTOR) as lane:
            _emit_lane(rows, [*at, add(start, add(mul(group, lanes), lane))], build, lanes, lane)
    rest = subtract(count, mul(whole, lanes))
    if rest != 0:
        with build.loop(rest, AxisKind.LOOP) as index:
            _emit_lane(rows, [*at, add(start, add(mul(whole, lanes), index))], build, 1, 0)


def _emit_lane(rows: Rows, at: list[Dim], build: Builder, lanes: int, lane: Dim) -> None:
    """Writes one row as one lane of a vector of rows: columns one after the other."""
    here = rows.row_coords(at)
    results: Results = {}
    for level in rows.levels:
        totals = [build.alloc(accumulator_dtype(r), lanes, MemorySpace.REGISTER) for r in level]
        for r, total in zip(level, totals):
            build.store(total, lane, start_of(r.arg[0], total.dtype))
        add_up = _columns_written_out if is_short(rows, UNROLLED) else _columns_in_runs
        add_up(rows, level, at, results, build, lane, totals)
        for r, total in zip(level, totals):
            value = build.load(total, lane)
            results[r] = cast(value, r.dtype)
    _each_column(rows, rows.nest, at, results, build)
    store_rows(rows, here, results, build)


def _columns_in_runs(
    rows: Rows, level: list[Op], at: list[Dim], results: Results, build: Builder, lane: Dim, totals: list[Op]
) -> None:
    """Adds up runs of columns, then the runs."""
    parts = [build.alloc(total.dtype, total.arg[1], MemorySpace.REGISTER) for total in totals]
    *outer, last = rows.column_loops
    run = min(RUN, last) if isinstance(last, int) else RUN
    num_runs = floordiv(add(last, run - 1), run) if run else 0

    def one_run(columns: list[Dim]) -> None:
        for r, part in zip(level, parts):
            build.store(part, lane, start_of(r.arg[0], part.dtype))
        start = mul(columns[-1], run)
        with build.loop(minimum(subtract(last, start), run), AxisKind.LOOP) as index:
            coords = rows.coords(at, [*columns[:-1], add(start, index)])
            for r, part in zip(level, parts):
                value = cast(rows.value(r.src[0], coords, results), part.dtype)
                build.store(part, lane, combined(r.arg[0], build.load(part, lane), value))
        for r, part, total in zip(level, parts, totals):
            build.store(total, lane, combined(r.arg[0], build.load(total, lane), build.load(part, lane)))

    nested(build, [*outer, num_runs], [], one_run)


def _columns_written_out(
    rows: Rows, level: list[Op], at: list[Dim], results: Results, build: Builder, lane: Dim, totals: list[Op]
) -> None:
    """Adds up a few columns, each a copy of the body."""
    with build.loop(numel(rows.column_extents), AxisKind.UNROLL) as index:
        coords = rows.coords(at, split(index, rows.column_extents))
        for r, total in zip(level, totals):
            value = cast(rows.value(r.src[0], coords, results), total.dtype)
            build.store(total, lane, combined(r.arg[0], build.load(total, lane), value))


def _each_column(rows: Rows, nest: Nest, at: list[Dim], results: Results, build: Builder) -> None:
    whole = [(slot, value) for slot, value in nest.outputs if value.shape == nest.domain]

    def store(columns: list[Dim]) -> None:
        coords = rows.coords(at, columns)
        for slot, value in whole:
            build.store(rows.params[slot], flatten(coords, nest.domain), rows.value(value, coords, results))

    if whole:
        nested(build, rows.column_extents, [], store)
