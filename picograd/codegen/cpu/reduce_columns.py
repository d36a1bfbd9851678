"""The loops of a reduce nest whose lanes run over neighbouring rows, as where a matrix is added up down its columns.

In:    `Rows`
Out:   statements in the free form
Called by: codegen/cpu/reduce.py.    Next: picograd/codegen/cpu/reduce_both.py

What is contiguous in memory is not the row that is reduced but its neighbours. So a strip of neighbouring rows is walked at
a time: one element of each, then the next of each, with a total for each row in the first-level cache. A strip that is
wider reads longer pieces of memory, which is what makes it fast: 64 bytes at a time of a matrix of 64 MiB come at
6 GB/s, 4 KiB at a time at the speed of memory. A strip that is read again, for a second level of reductions, is rather as
narrow as the second-level cache wants it. Rows too short for that are written out, with totals in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import or_

from picograd.codegen.axes import rest_in_vectors
from picograd.codegen.builder import Builder, read
from picograd.codegen.index import put_in_all
from picograd.codegen.loops import along, in_smaller_vectors, nested, split
from picograd.codegen.rows import (
    PIECE_ELEMENTS,
    UNROLLED,
    Results,
    Rows,
    accumulator_dtype,
    element_stores,
    has_elements,
    is_rounded_sum,
    is_short,
    row_stores,
    start_of,
    write_stores,
)
from picograd.codegen.runs import RUN_STEPS, in_runs, longest
from picograd.codegen.scalar import combined
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import ELEMENTWISE, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, from_op, minimum, mod, mul, subtract, to_op

MOST_STRIP = 64  # vectors: 4 KiB of the widest
FEWEST_STRIPS = 8  # for as many threads, where the rows suffice
CACHED_ELEMENTS = 1 << 16  # of a strip that is read again
FEW_ELEMENTS = 1 << 15  # of a domain: no time to be saved
MANY = 1 << 13  # elements of a domain: worth more code, for a rest of rows in vectors of powers of two, fewer by half
RUNS = 16  # of a strip whose totals, in memory, are added up before these are added to others
MOST_STEPS = 32  # operations for all elements of a row that are added at once

Totals = dict[Op, Op]  # reduction -> memory of one number for each row of a strip


def emit_columns(rows: Rows, build: Builder, lanes: int) -> None:
    """Writes the loops: GRID over pieces of neighbouring rows."""
    *outer, last = rows.row_extents
    per_piece = _rows_of_piece(rows, lanes)
    if isinstance(last, int) and 0 < last <= per_piece:  # whole lines of rows, several to a piece
        lines, total = per_piece // last, numel(outer)
        with build.loop(floordiv(add(total, lines - 1), lines), AxisKind.GRID) as block:
            first = mul(block, lines)
            with build.loop(minimum(subtract(total, first), lines), AxisKind.LOOP) as line:
                _strip(rows, split(add(first, line), outer), 0, last, last, build, lanes)
        return
    pieces = floordiv(add(last, per_piece - 1), per_piece)
    with build.loop(numel((*outer, pieces)), AxisKind.GRID) as position:
        *at, piece = split(position, [*outer, pieces])
        start = mul(piece, per_piece)
        _strip(rows, at, start, minimum(subtract(last, start), per_piece), per_piece, build, lanes)


def _rows_of_piece(rows: Rows, lanes: int) -> int:
    """Returns how many neighbouring rows one GRID iteration reduces."""
    last, below = rows.row_extents[-1], numel(rows.column_extents)
    if not isinstance(below, int):
        return 2 * lanes
    wanted = max(1, PIECE_ELEMENTS // max(1, below) // lanes)
    if is_short(rows, UNROLLED) or not isinstance(last, int):
        return wanted * lanes
    is_read_again = len(rows.levels) > 1 or has_elements(rows)
    most = max(1, CACHED_ELEMENTS // below // lanes) if is_read_again else MOST_STRIP
    wanted = max(wanted, min(most, max(2, last // lanes // FEWEST_STRIPS)))
    even = [n for n in range(wanted // 2 + 1, 2 * wanted) if last % (n * lanes) == 0]  # strips of one length: no rests
    return min(even, key=lambda n: abs(n - wanted), default=wanted) * lanes


def _strip(rows: Rows, at: list[Dim], start: Dim, count: Dim, most: int, build: Builder, lanes: int) -> None:
    """Writes `count` neighbouring rows from `start` on, no more than `most`."""
    if not is_short(rows, UNROLLED) or not isinstance(numel(rows.column_extents), int):
        _Strip(rows, at, start, count, most, build, lanes).write()
        return
    whole = floordiv(count, lanes) if lanes > 1 else 0
    if whole != 0:
        with build.loop(whole, AxisKind.LOOP) as group, build.loop(lanes, AxisKind.VECTOR) as lane:
            _written_out(rows, [*at, add(start, add(mul(group, lanes), lane))], build, lane, lanes)
    rest, behind = subtract(count, mul(whole, lanes)), add(start, mul(whole, lanes))
    num_elements = numel(rows.nest.domain)
    if isinstance(rest, int) and isinstance(num_elements, int) and rest >= 2 * rest.bit_count() and num_elements > MANY:

        def some(index: Dim, width: int) -> None:
            _written_out(rows, [*at, index], build, mod(subtract(index, behind), width), width)

        in_smaller_vectors(build, behind, rest, lanes, some)
    elif rest != 0:
        with build.loop(rest, AxisKind.LOOP) as index:
            _written_out(rows, [*at, add(behind, index)], build, 0, 1)


# ---- long rows ----
class _Strip:
    """A strip of neighbouring rows that is being written.

    place:    stands for the place of a row in the strip
    columns:  stand for the places of an element in its row
    totals:   reduction -> memory that holds its result for each row
    """

    def __init__(self, rows: Rows, at: list[Dim], start: Dim, count: Dim, most: int, build: Builder, lanes: int):
        self.rows, self.count, self.most, self.build, self.lanes = rows, count, most, build, lanes
        outputs = [value for _, value in rows.nest.outputs]
        # Strips but for the last are whole vectors.
        self.rest = rest_in_vectors(lambda: toposort(outputs), rows.row_extents[-1], lanes)
        free = len(rows.nest.domain)  # axes of no domain, so that they are not taken for its own
        self.place = placeholder(free, most)
        self.columns = [placeholder(free + 1 + i, extent) for i, extent in enumerate(rows.column_loops)]
        self.at = [*at, add(start, self.place)]
        self.totals: Totals = {}

    def write(self) -> None:
        """Writes each level of reductions, then what is computed for elements, then what is computed for rows."""
        for level in self.rows.levels:
            totals = {r: self.memory(accumulator_dtype(r)) for r in level}
            self.add_up(totals)
            self.totals |= totals
        if has_elements(self.rows):
            memories, indices, values = zip(*element_stores(self.rows, self.at, self.columns, self.results()))
            found = [*map(to_op, indices), *self.settled(values)]
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
        """Writes values to places: `found` are the places, then the values."""
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

    def at_once(self, values: Sequence[Op]) -> int:
        """Returns how many elements of a row are added between reading and writing its total: a divisor of RUN_STEPS.

        A total that is read and written for each waits for itself: of a sum of 4096 x 4096, that took twice as long.
        """
        num_elements = numel(self.rows.nest.domain)
        if not isinstance(num_elements, int) or num_elements <= FEW_ELEMENTS:
            return 1
        steps = sum(op.dtype.is_float and op.code in ELEMENTWISE for op in toposort(values))
        return next(n for n in (RUN_STEPS, 4, 2, 1) if n == 1 or n * steps <= MOST_STEPS)

    def settled(self, values: Sequence[Op]) -> list[Op]:
        """Returns expressions of an element in which what its whole row shares is computed once, before, and kept."""
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

    def add_up(self, totals: Totals) -> None:
        """Runs down the strip once and fills the totals of each row: in runs of its elements, and in runs of runs."""
        build, (*outer, last) = self.build, self.rows.column_loops
        coords, known = self.rows.coords(self.at, self.columns), self.results()
        values = self.settled([cast(self.rows.value(r.src[0], coords, known), t.dtype) for r, t in totals.items()])
        at_once, is_rounded = self.at_once(values), any(map(is_rounded_sum, totals))
        whole, rest = floordiv(last, RUN_STEPS), mod(last, RUN_STEPS)

        def step(into: Totals, i: Dim, columns: list[Dim], count: int, has_own: bool) -> None:
            """Adds `count` elements of a row to its totals, one by one or what they have given together."""
            *outside, first = columns
            before = [build.load(total, i) for total in into.values()]
            here = [self.put_in(values, i, [*outside, add(first, number)]) for number in range(count)]
            for number, (r, total) in enumerate(into.items()):
                added = partial(self.rows.accumulated, r)
                elements = [line[number] for line in here]
                if not has_own:
                    build.store(total, i, reduce(added, elements, before[number]))
                else:
                    own = reduce(added, elements[1:], added(None, elements[0]))
                    build.store(total, i, combined(r.arg[0], before[number], own))

        def one_run(total: Totals, columns: list[Dim]) -> None:
            *outside, number = columns
            first = mul(number, RUN_STEPS)
            if at_once == RUN_STEPS:
                self.across(lambda i: step(total, i, [*outside, first], at_once, is_rounded))
                return
            own = self.fresh(totals) if is_rounded else total
            with build.loop(RUN_STEPS // at_once, AxisKind.LOOP) as index:
                start = add(first, mul(index, at_once))
                self.across(lambda i: step(own, i, [*outside, start], at_once, False))
            if own is not total:
                self.join(own, total)

        def line(total: Totals, outside: list[Dim]) -> None:
            in_runs(
                build, [whole], total, lambda: self.fresh(totals), self.join,
                lambda into, at: one_run(into, [*outside, *at]), RUNS if is_rounded else 0,
            )  # fmt: skip
            with build.loop(rest, AxisKind.LOOP) as index:
                column = add(mul(whole, RUN_STEPS), index)
                self.across(lambda i: step(total, i, [*outside, column], 1, False))

        steps = add(whole, rest)
        run = max(1, RUN_STEPS // max(1, longest(steps)))
        self.clear(totals)
        in_runs(build, outer, totals, lambda: self.fresh(totals), self.join, line, run if is_rounded else 0)

    def clear(self, totals: Totals) -> None:
        """Stores the start of each reduction."""

        def put(i: Dim) -> None:
            for r, total in totals.items():
                self.build.store(total, i, start_of(r.arg[0], total.dtype))

        self.across(put)

    def fresh(self, totals: Totals) -> Totals:
        """Returns other totals of the same reductions, of nothing."""
        own = {r: self.memory(total.dtype) for r, total in totals.items()}
        self.clear(own)
        return own

    def join(self, part: Totals, totals: Totals) -> None:
        """Adds totals to others."""
        build = self.build

        def put(i: Dim) -> None:
            for r, total in totals.items():
                build.store(total, i, combined(r.arg[0], build.load(total, i), build.load(part[r], i)))

        self.across(put)


# ---- short rows ----
def _written_out(rows: Rows, at: list[Dim], build: Builder, lane: Dim, lanes: int) -> None:
    """Writes one row, or one vector of rows: each element a copy of the body, totals in registers, cut as in a strip."""
    results: Results = {}
    for level in rows.levels:
        totals = _registers(level, build, lane, lanes)
        length, run = numel(rows.column_extents), RUN_STEPS if any(map(is_rounded_sum, level)) else UNROLLED
        assert isinstance(length, int), f"a row of {length} elements cannot be written out"
        for first in range(0, length, run):
            is_run = first > 0 and first + run <= length
            own = _registers(level, build, lane, lanes) if is_run else totals
            with build.loop(min(run, length - first), AxisKind.UNROLL) as index:
                coords = rows.coords(at, split(add(first, index), rows.column_extents))
                for r, total in zip(level, own):
                    value = cast(rows.value(r.src[0], coords, results), total.dtype)
                    build.store(total, lane, rows.accumulated(r, build.load(total, lane), value))
            for r, total, part in zip(level, totals, own) if is_run else ():
                build.store(total, lane, combined(r.arg[0], build.load(total, lane), build.load(part, lane)))
        results |= {r: cast(build.load(total, lane), r.dtype) for r, total in zip(level, totals)}
    if has_elements(rows):
        nested(
            build, rows.column_extents, [],
            lambda columns: write_stores(build, element_stores(rows, at, columns, results)),
        )  # fmt: skip
    write_stores(build, row_stores(rows, rows.row_coords(at), results))


def _registers(level: Sequence[Op], build: Builder, lane: Dim, lanes: int) -> list[Op]:
    """Makes totals of nothing."""
    totals = [build.alloc(accumulator_dtype(r), lanes, MemorySpace.REGISTER) for r in level]
    for r, total in zip(level, totals):
        build.store(total, lane, start_of(r.arg[0], total.dtype))
    return totals
