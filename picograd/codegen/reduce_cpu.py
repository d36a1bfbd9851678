"""A reduce nest on a CPU: lanes along rows, lanes over neighbouring rows, or rows and columns of the same data at once.

Lanes along rows: each thread takes pieces of the rows. Several long rows that share a weight are written together, and rows
that share a vector are added up together. The order of a float sum depends on shapes alone.

Lanes over rows, as in a sum down the columns of a matrix: not the elements of a row are contiguous, but neighbouring rows.
So a strip of neighbouring rows is walked at a time: one element of each, then the next of each, with a total for
each row in the first-level cache. A wide strip reads long pieces of memory, which makes it fast: 64 bytes at a time of a
matrix of 64 MiB are read at 6 GB/s, 4 KiB at a time at the speed of memory. A strip that is read again, for further
reductions, is narrow enough for the second-level cache. Rows that are too short for strips are written out, with totals
in registers.

Rows and columns (codegen/reduce.py): a block of rows adds up its own columns while they are in the cache, in a line of
scratch memory, run by run (codegen/loops.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import or_

from picograd.codegen.builder import Builder, Context, read
from picograd.codegen.index import put_in_all
from picograd.codegen.loops import (
    RUN_STEPS,
    STRIP_VECTORS_MAX,
    STRIPS_MIN,
    along,
    in_runs,
    in_smaller_vectors,
    longest,
    nested,
    rest_in_vectors,
    some_lanes,
    vector_lanes,
)
from picograd.codegen.reduce import (
    PIECE_ELEMENTS,
    ROWS_AT_ONCE_MAX,
    UNROLLED_COLUMNS_MAX,
    Both,
    KnownRow,
    Results,
    Rows,
    Totals,
    Walk,
    element_stores,
    emit_rows,
    emit_together,
    is_cached,
    is_rounded_sum,
    num_copies,
    plan_rows,
    row_stores,
    rows_at_once,
    some_rows,
    start_of,
    summands,
    worth_keeping,
    write_stores,
)
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, combined
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import ELEMENTWISE, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import (
    add,
    bounds,
    ceildiv,
    flatten,
    floordiv,
    from_op,
    minimum,
    mod,
    mul,
    placeholder,
    placeholders,
    subtract,
    to_op,
    unflatten,
)
from picograd.record import Record

# ---- lanes along a row ----
SHARING_ROWS_MIN = 32  # fewer rows, some taken together, would be too few pieces for several threads


def emit_reduce(nest: Nest, context: Context) -> None:
    """Writes the loops of a reduce nest for a CPU: GRID over pieces of rows.

    Lanes run along the row where it is contiguous and not too short, else over neighbouring rows.
    """
    params, target = context.params, context.target
    build = context.phase(0)
    rows, lanes_on_rows = plan_rows(nest, params, target)
    values = [value for _, value in nest.outputs] + [r.src[0] for level in rows.levels for r in level]
    lanes = vector_lanes(values, target)
    if lanes_on_rows or _is_narrow(rows, lanes):
        emit_columns(rows, build, lanes)
        return
    total, below = numel(rows.row_extents), numel(rows.column_extents)
    per_piece = max(1, PIECE_ELEMENTS // max(1, below)) if isinstance(below, int) else 1
    kept = worth_keeping(rows)
    together = _rows_together(rows, lanes, target)
    at_once = together or (rows_at_once(rows, values) if _share_elements(rows) and not any(kept) else 1)
    per_piece += -per_piece % at_once

    def write(first: Dim, count: int) -> None:
        if together:
            emit_together(rows, first, count, build, lanes)
        else:
            emit_rows(rows, first, count, build, lanes, kept)

    with build.loop(ceildiv(total, per_piece), AxisKind.GRID) as piece:
        start = mul(piece, per_piece)
        count = minimum(subtract(total, start), per_piece)
        some_rows(count, at_once, build, lambda n, number: write(add(start, n), number))


def _is_narrow(rows: Rows, lanes: int) -> bool:
    """True for rows so short that a lane for each is faster than a loop for each."""
    last = rows.column_extents[-1:]
    fills_no_vector = all(isinstance(extent, int) and extent < lanes for extent in last)
    is_unrolled = rows.columns_max <= UNROLLED_COLUMNS_MAX
    return fills_no_vector and is_unrolled and bool(rows.row_groups) and not rows.of_elements


def _share_elements(rows: Rows) -> bool:
    """True if all rows share an operand, such as a weight, and rows are long and numerous enough for several pieces."""
    total = numel(rows.row_extents)
    if is_cached(rows) or not rows.of_elements or not isinstance(total, int) or total < SHARING_ROWS_MIN:
        return False
    domain = rows.nest.domain
    values = [value for _, value in rows.nest.outputs if value.shape == domain]
    coords = placeholders(domain)
    results = {r: const(0, r.dtype) for level in rows.levels for r in level}
    row = {coords[axis] for axis in rows.nest.row_axes}
    loads = [op for op in toposort([rows.value(v, coords, results) for v in values]) if op.code is OpCode.LOAD]
    return any(row.isdisjoint(index := toposort([op.src[1]])) and not set(coords).isdisjoint(index) for op in loads)


def _rows_together(rows: Rows, lanes: int, target: Target) -> int:
    """Returns the number of rows that are added up in one walk, as when all are multiplied by one vector; 0: each alone.

    A shared operand is read once, while several lines of memory are under way; sums take at most half of the registers.
    """
    total = numel(rows.row_extents)
    if len(rows.levels) != 1 or rows.of_elements or len(rows.row_groups) != 1:
        return 0
    if not isinstance(total, int) or total < SHARING_ROWS_MIN:
        return 0
    coords = placeholders(rows.nest.domain)
    row = {coords[axis] for axis in rows.groups[rows.row_groups[0]]}
    values = rows.element_values(coords)
    indices = [set(toposort([op.src[1]])) for op in toposort(values) if op.code is OpCode.LOAD]
    shared = [index for index in indices if index.isdisjoint(row) and not index.isdisjoint(coords)]
    most = ROWS_AT_ONCE_MAX // (1 if target.num_registers >= 32 else 2)
    sums = num_copies(rows.levels[0], rows.column_loops[-1], lanes) * len(rows.levels[0])  # vectors of a row
    return max(1, min(most, target.num_registers // 2 // sums)) if 0 < len(shared) < len(indices) else 0


# ---- lanes over neighbouring rows ----
CACHED_ELEMENTS_MAX = 1 << 16  # elements of a strip that is read again
SMALL_ELEMENTS_MAX = 1 << 15  # elements of a domain that is not worth the effort
REST_ELEMENTS_MIN = 1 << 13  # elements of a domain whose last rows are worth code for narrower vectors
STRIP_RUNS = 16  # runs whose totals are added up before their sum is added to the total
STEPS_AT_ONCE_MAX = 32  # operations of the elements of a row that are added together


def emit_columns(rows: Rows, build: Builder, lanes: int) -> None:
    """Writes the loops: GRID over pieces of neighbouring rows."""
    *outer, last = rows.row_extents
    per_piece = _rows_of_piece(rows, lanes)
    if isinstance(last, int) and 0 < last <= per_piece:  # whole lines of rows, several to a piece
        lines, total = per_piece // last, numel(outer)
        with build.loop(ceildiv(total, lines), AxisKind.GRID) as block:
            first = mul(block, lines)
            with build.loop(minimum(subtract(total, first), lines), AxisKind.LOOP) as line:
                _strip(rows, unflatten(add(first, line), outer), 0, last, last, build, lanes)
        return
    pieces = ceildiv(last, per_piece)
    with build.loop(numel((*outer, pieces)), AxisKind.GRID) as position:
        *at, piece = unflatten(position, [*outer, pieces])
        start = mul(piece, per_piece)
        _strip(rows, at, start, minimum(subtract(last, start), per_piece), per_piece, build, lanes)


def _rows_of_piece(rows: Rows, lanes: int) -> int:
    """Returns the number of neighbouring rows that one GRID iteration reduces."""
    last, below = rows.row_extents[-1], numel(rows.column_extents)
    if not isinstance(below, int):
        return 2 * lanes
    wanted = max(1, PIECE_ELEMENTS // max(1, below) // lanes)
    if rows.columns_max <= UNROLLED_COLUMNS_MAX or not isinstance(last, int):
        return wanted * lanes
    is_read_again = len(rows.levels) > 1 or rows.of_elements
    most = max(1, CACHED_ELEMENTS_MAX // below // lanes) if is_read_again else STRIP_VECTORS_MAX
    wanted = max(wanted, min(most, max(2, last // lanes // STRIPS_MIN)))
    even = [n for n in range(wanted // 2 + 1, 2 * wanted) if last % (n * lanes) == 0]  # all strips are equally long
    return min(even, key=lambda n: abs(n - wanted), default=wanted) * lanes


def _strip(rows: Rows, at: Sequence[Dim], start: Dim, count: Dim, most: int, build: Builder, lanes: int) -> None:
    """Writes `count` neighbouring rows, at most `most`, from `start` on."""
    if rows.columns_max > UNROLLED_COLUMNS_MAX or not isinstance(numel(rows.column_extents), int):
        _Strip(rows, at, start, count, most, build, lanes).write()
        return
    whole = floordiv(count, lanes) if lanes > 1 else 0
    if whole != 0:
        with build.loop(whole, AxisKind.LOOP) as group, build.loop(lanes, AxisKind.VECTOR) as lane:
            _written_out(rows, [*at, add(start, add(mul(group, lanes), lane))], build, lane, lanes)
    rest, behind = subtract(count, mul(whole, lanes)), add(start, mul(whole, lanes))
    num_elements = numel(rows.nest.domain)
    is_worth_it = isinstance(num_elements, int) and num_elements > REST_ELEMENTS_MIN
    if is_worth_it and isinstance(rest, int) and rest >= 2 * rest.bit_count():

        def some(index: Dim, width: int) -> None:
            _written_out(rows, [*at, index], build, mod(subtract(index, behind), width), width)

        in_smaller_vectors(build, behind, rest, lanes, some)
    elif lanes > 1 and not isinstance(rest, int):
        with some_lanes(build, rest, lanes) as lane:
            _written_out(rows, [*at, add(behind, lane)], build, lane, lanes)
    elif rest != 0:
        with build.loop(rest, AxisKind.LOOP) as index:
            _written_out(rows, [*at, add(behind, index)], build, 0, 1)


# ---- long rows ----
class _Strip:
    """A strip of neighbouring rows under construction.

    place:    placeholder of the place of a row in the strip
    columns:  placeholders of the places of an element in its row
    totals:   reduction -> memory that holds its result for each row
    """

    def __init__(self, rows: Rows, at: Sequence[Dim], start: Dim, count: Dim, most: int, build: Builder, lanes: int):
        self.rows, self.count, self.most, self.build, self.lanes = rows, count, most, build, lanes
        outputs = [value for _, value in rows.nest.outputs]
        # All strips except the last are whole vectors.
        self.rest = rest_in_vectors(lambda: toposort(outputs), rows.row_extents[-1], lanes)
        free = len(rows.nest.domain)  # numbers of axes that the domain does not have
        self.place = placeholder(free, most)
        self.columns = [placeholder(free + 1 + i, extent) for i, extent in enumerate(rows.column_loops)]
        self.at = [*at, add(start, self.place)]
        self.totals: dict[Op, Op] = {}  # of finished levels: reduction -> memory with a number for each row

    def write(self) -> None:
        """Writes each level of reductions, then the outputs for elements, then those for rows."""
        for level in self.rows.levels:
            self.totals |= _LevelOfStrip(self, level).add_up()
        if self.rows.of_elements:
            memories, indices, values = zip(*element_stores(self.rows, self.at, self.columns, self.results()))
            found = [*map(to_op, indices), *self.shared_once(values)]
            nested(
                self.build, self.rows.column_extents, [],
                lambda columns: self.across(lambda i: self.store(memories, self.put_in(found, i, columns))),
            )  # fmt: skip
        if stores := row_stores(self.rows, self.rows.row_coords(self.at), self.results()):
            memories, indices, values = zip(*stores)
            self.across(lambda i: self.store(memories, self.put_in([*map(to_op, indices), *values], i, ())))

    def memory(self, dtype: DType) -> Op:
        """Makes memory of one number for each row of the strip."""
        return self.build.alloc(dtype, self.most, MemorySpace.SHARED)

    def store(self, memories: Sequence[Op], found: Sequence[Op]) -> None:
        """Stores values in `memories`: `found` are their places, then the values."""
        for memory, index, value in zip(memories, found, found[len(memories) :]):
            self.build.store(memory, from_op(index), value)

    def across(self, body: Callable[[Dim], None]) -> None:
        """Runs body(place) for every row."""
        along(self.build, 0, self.count, self.lanes, body, rest=self.rest)

    def results(self) -> Results:
        return {r: cast(read(total, self.place), r.dtype) for r, total in self.totals.items()}

    def put_in(self, values: Sequence[Op], place: Dim, columns: Sequence[Dim]) -> list[Op]:
        """Returns expressions at a row and an element."""
        return put_in_all(values, {self.place: place, **dict(zip(self.columns, columns))})

    def shared_once(self, values: Sequence[Op]) -> list[Op]:
        """Returns expressions of an element; parts that are the same for its whole row are computed before it."""
        of_row, of_element = 1, 2
        depends: dict[Op, int] = {self.place: of_row, **dict.fromkeys(self.columns, of_element)}
        kept: dict[Op, Op] = {}
        for op in toposort(values):
            if op in depends:
                continue
            depends[op] = reduce(or_, map(depends.__getitem__, op.src), 0)
            for s in op.src if depends[op] & of_element else ():
                if depends[s] == of_row and s.dtype.is_float and s.code in ELEMENTWISE and s.code is not OpCode.CAST:
                    kept[s] = read(self.memory(s.dtype), self.place)
        if not kept:
            return list(values)
        memories = [memory.src[0] for memory in kept.values()]
        self.across(lambda i: self.store(memories, [*[to_op(i)] * len(kept), *self.put_in(list(kept), i, ())]))
        return put_in_all(values, kept)



class _LevelOfStrip:
    """The totals of one level of reductions of a strip: of runs of a row's elements, and of runs of runs.

    values:      the values of an element, for each reduction
    at_once:     elements of a row that are added between reading and writing its total: a divisor of RUN_STEPS
    is_rounded:  runs have totals of their own
    """

    def __init__(self, strip: _Strip, level: Sequence[Op]):
        self.strip, self.level, self.build = strip, level, strip.build
        self.memories = {r: strip.memory(r.dtype.compute_dtype) for r in level}
        coords, known = strip.rows.coords(strip.at, strip.columns), strip.results()
        values = [cast(strip.rows.value(r.src[0], coords, known), total.dtype) for r, total in self.memories.items()]
        self.values = strip.shared_once(values)
        self.at_once, self.is_rounded = self._at_once(), any(map(is_rounded_sum, level))
        last = strip.rows.column_loops[-1]
        self.whole_runs, self.rest = floordiv(last, RUN_STEPS), mod(last, RUN_STEPS)

    def _at_once(self) -> int:
        """Returns the number of elements added before a total is stored: with 1 a sum of 4096 x 4096 took twice as long."""
        num_elements = numel(self.strip.rows.nest.domain)
        if not isinstance(num_elements, int) or num_elements <= SMALL_ELEMENTS_MAX:
            return 1
        steps = sum(op.dtype.is_float and op.code in ELEMENTWISE for op in toposort(self.values))
        return next(n for n in (RUN_STEPS, 4, 2, 1) if n == 1 or n * steps <= STEPS_AT_ONCE_MAX)

    def add_up(self) -> dict[Op, Op]:
        """Walks down the strip once; returns the totals of each row."""
        outer = self.strip.rows.column_loops[:-1]
        run = max(1, RUN_STEPS // max(1, longest(add(self.whole_runs, self.rest))))
        totals = Totals(self.memories, self.build, self.strip.across)
        totals.clear()
        self._in_runs(outer, totals, self._line, run)
        return self.memories

    def _new(self) -> Totals:
        return Totals.new(self.build, self.level, self.strip.most, MemorySpace.SHARED, self.strip.across)

    def _in_runs(self, extents: Sequence[Dim], into: Totals, body: Callable[[Totals, list[Dim]], None], run: int) -> None:
        """Walks elements, or runs of them; if sums are rounded, `run` of them are added up before they join the total."""
        levels = run if self.is_rounded else 0
        in_runs(self.build, extents, into, self._new, lambda part, whole: whole.join(part), body, levels)

    def _line(self, total: Totals, outside: list[Dim]) -> None:
        """Adds a line of elements: whole runs, then the remaining elements one by one."""
        self._in_runs([self.whole_runs], total, lambda into, at: self._run(into, [*outside, *at]), STRIP_RUNS)
        with self.build.loop(self.rest, AxisKind.LOOP) as index:
            column = add(mul(self.whole_runs, RUN_STEPS), index)
            self.strip.across(lambda i: self._step(total, i, [*outside, column], 1, False))

    def _run(self, total: Totals, columns: list[Dim]) -> None:
        *outside, number = columns
        first, at_once = mul(number, RUN_STEPS), self.at_once
        if at_once == RUN_STEPS:
            self.strip.across(lambda i: self._step(total, i, [*outside, first], at_once, self.is_rounded))
            return
        own = self._new() if self.is_rounded else total
        with self.build.loop(RUN_STEPS // at_once, AxisKind.LOOP) as index:
            start = add(first, mul(index, at_once))
            self.strip.across(lambda i: self._step(own, i, [*outside, start], at_once, False))
        if own is not total:
            total.join(own)

    def _step(self, into: Totals, i: Dim, columns: list[Dim], count: int, has_own: bool) -> None:
        """Adds `count` elements of a row to its totals, one by one or as a total of their own."""
        build, (*outside, first) = self.build, columns
        before = [build.load(total, i) for total in into.memories.values()]
        here = [self.strip.put_in(self.values, i, [*outside, add(first, number)]) for number in range(count)]
        for number, (r, total) in enumerate(into.memories.items()):
            added = partial(self.strip.rows.accumulated, r)
            elements = [line[number] for line in here]
            if not has_own:
                build.store(total, i, reduce(added, elements, before[number]))
            else:
                own = reduce(added, elements[1:], added(None, elements[0]))
                build.store(total, i, combined(r.arg[0], before[number], own))


# ---- short rows ----
def _written_out(rows: Rows, at: list[Dim], build: Builder, lane: Dim, lanes: int) -> None:
    """Writes one row, or one vector of rows: a copy of the body for each element, with totals in registers, in runs."""
    results: Results = {}

    def fresh(level: Sequence[Op]) -> Totals:
        return Totals.new(build, level, lanes, MemorySpace.REGISTER, lambda body: body(lane))

    for level in rows.levels:
        totals = fresh(level)
        length, run = numel(rows.column_extents), RUN_STEPS if any(map(is_rounded_sum, level)) else UNROLLED_COLUMNS_MAX
        assert isinstance(length, int), f"a row of {length} elements cannot be written out"
        for first in range(0, length, run):
            is_run = first > 0 and first + run <= length
            own = fresh(level) if is_run else totals
            with build.loop(min(run, length - first), AxisKind.UNROLL) as index:
                own.add(lane, rows, rows.coords(at, unflatten(add(first, index), rows.column_extents)), results)
            if is_run:
                totals.join(own)
        results |= totals.results(lane)
    if rows.of_elements:
        nested(
            build, rows.column_extents, [],
            lambda columns: write_stores(build, element_stores(rows, at, columns, results)),
        )  # fmt: skip
    write_stores(build, row_stores(rows, rows.row_coords(at), results))


# ---- rows and columns in one pass ----
BLOCK_ROWS_MIN = 32  # so that a block's partial sums are small compared with it; also the rows of a run with its own sums
BLOCKS_MAX = 64
RUN_WIDTH_MAX = 1 << 14  # elements of a row: sums of a run of wider ones would fill the stack, so a block is one run
BLOCKS_MIN = 8  # so that as many threads have work


def walk_both(nest: Nest, others: Sequence[Op], params: Sequence[Op], target: Target) -> Walk | None:
    """Returns the walk of a nest along rows that adds up the columns of other values, too; None if there is none."""
    block = _rows_of_block(nest)
    if not block:
        return None
    rows, lanes_on_rows = plan_rows(nest, params, target, others)
    lanes = vector_lanes([value for _, value in nest.outputs], target)
    runs_along_rows = not lanes_on_rows and not plan_rows(nest, params, target)[1]
    if not runs_along_rows or vector_lanes(others, target) < lanes:
        return None  # a row must be added up as in a smaller batch, where rows and columns are not walked together
    return Walk(rows, lanes, block)


def _rows_of_block(nest: Nest) -> int:
    """Returns the number of rows that add up their columns together; 0 if rows are too few, or have a symbolic length.

    If there is a symbolic number of rows, the least and the largest must give the same result.
    """
    if not all(isinstance(nest.domain[axis], int) for axis in nest.reduced):
        return 0
    least, greatest = (_rows_of(*counts) for counts in zip(bounds(numel(nest.row_shape)), bounds(numel(nest.domain))))
    return least if least == greatest else 0


def _rows_of(total: int, domain: int) -> int:
    if domain < SMALL_ELEMENTS_MAX:
        return 0
    of_piece = max(1, PIECE_ELEMENTS * total // domain)  # as for rows alone
    block = max(BLOCK_ROWS_MIN, of_piece, ceildiv(total, BLOCKS_MAX)) if domain <= total * RUN_WIDTH_MAX else BLOCK_ROWS_MIN
    block += -block % ROWS_AT_ONCE_MAX
    return block if ceildiv(total, block) >= max(2, min(BLOCKS_MIN, ceildiv(total, of_piece))) else 0


# ---- their loops ----
def emit_reduce_both(both: Both, build: Builder) -> None:
    """Writes the loops: GRID over blocks of rows, some rows at a time; columns are added up in runs of rows."""
    rows, kept = both.rows, worth_keeping(both.rows)
    elements = [value for _, value in rows.nest.outputs if value.shape == rows.nest.domain]
    at_once = 1 if any(kept) else rows_at_once(rows, [*elements, *(r.src[0] for r in both.sums)])
    width = int(both.width)
    with build.loop(both.num_blocks, AxisKind.GRID) as number:
        start = mul(number, both.block)
        count = minimum(subtract(numel(rows.row_extents), start), both.block)

        def write(line: Line, n: Dim, count: int) -> None:
            emit_rows(rows, add(start, n), count, build, both.lanes, kept, partial(_add_down_columns, both, line, build))

        def fresh() -> Line:
            return cleared(Line({r: build.alloc(m.dtype, width, MemorySpace.SHARED) for r, m in both.sums.items()}, 0))

        def cleared(line: Line) -> Line:
            line.put(both, build, lambda r, _: start_of(r.arg[0], line.memories[r].dtype))
            return line

        def join(part: Line, total: Line) -> None:
            total.put(both, build, lambda r, at: combined(r.arg[0], total.load(build, r, at), part.load(build, r, at)))

        total = cleared(Line(both.sums, mul(number, width)))
        run = BLOCK_ROWS_MIN // at_once if any(map(is_rounded_sum, both.sums)) else 0
        together = floordiv(count, at_once)
        in_runs(build, [together], total, fresh, join, lambda line, at: write(line, mul(at[0], at_once), at_once), run)
        done = mul(together, at_once)
        with build.loop(subtract(count, done), AxisKind.LOOP) as index:
            write(total, add(done, index), 1)


class Line(Record):
    """Sums of each column over some rows.

    memories:  reduction -> memory of its sums
    first:     place of the first column's sum
    """

    memories: Mapping[Op, Op]
    first: Dim

    def load(self, build: Builder, r: Op, column: Dim) -> Op:
        return build.load(self.memories[r], add(self.first, column))

    def put(self, both: Both, build: Builder, value: Callable[[Op, Dim], Op]) -> None:
        """Stores value(reduction, column) for each column."""
        for r, memory in self.memories.items():

            def put(at: Dim, r: Op = r, memory: Op = memory) -> None:
                build.store(memory, add(self.first, at), value(r, at))

            along(build, 0, both.width, both.lanes, put)


def _add_down_columns(both: Both, line: Line, build: Builder, columns: list[Dim], here: list[KnownRow]) -> None:
    """Adds each row's element at a column to the sums down that column, in the order of the rows."""
    rows = both.rows
    coords, shape = rows.coords(here[0][0], columns), tuple([rows.nest.domain[axis] for axis in both.columns])
    column = flatten([coords[axis] for axis in both.columns], shape)
    found = {r: line.load(build, r, column) for r in line.memories}
    for at, known in here:
        for r, value in zip(found, summands(both, rows.coords(at, columns), rows.row_coords(at), known)):
            found[r] = rows.accumulated(r, found[r], cast(value, found[r].dtype))
    for r, memory in line.memories.items():
        build.store(memory, add(line.first, column), found[r])
