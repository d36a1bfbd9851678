"""The loops of one thread over rows of a reduce nest: the reductions of each, then what is computed from them.

In:    `Rows`, the first of them and how many
Out:   statements in the free form;  `worth_keeping`: values of elements that are stored, for they are read again
Called by: codegen/cpu/reduce.py, codegen/cpu/reduce_both.py, codegen/gpu/reduce.py.
Next: picograd/codegen/cpu/reduce_columns.py

A row is read once for each level of reductions (softmax: the maximum, then the sum, then the result); after the first
time it is in cache. An exponential that two levels need is computed once and kept, and the next row asked for meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest

from picograd.codegen.axes import rest_in_vectors
from picograd.codegen.builder import Builder, read
from picograd.codegen.loops import along, in_smaller_vectors, nested, split
from picograd.codegen.prefetch import prefetch_lines
from picograd.codegen.rows import (
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
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import ELEMENTWISE, IDENTITY, TRANSCENDENTAL, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, mod, mul, subtract
from picograd.record import Record, replace

CACHED = 1024  # elements of a row that stays in the first-level cache with what stands beside it: one at a time
MOST_AT_ONCE, MOST_STEPS = 4, 64  # rows that are written or added up together, and operations of writing all of them
MANY_STEPS = 14  # of an element: more take longer than adding it
MOST_KEPT = 16384  # elements of a row that stay in the second-level cache


def is_cached(rows: Rows) -> bool:
    """True where a row stays in the first-level cache while it is walked again."""
    return is_short(rows, CACHED)


def rows_at_once(rows: Rows, values: Sequence[Op]) -> int:
    """Returns how many rows are written together, so that what they share is read once: few where each takes many steps.

    Args:
      values: what is computed for elements
    """
    if is_cached(rows):
        return 1
    steps = sum(op.shape == rows.nest.domain and op.code in ELEMENTWISE for op in toposort(values))
    return max(1, min(MOST_AT_ONCE, MOST_STEPS // max(1, steps)))


# ---- lanes along a row ----
def some_rows(count: Dim, at_once: int, build: Builder, body: Callable[[Dim, int], None]) -> None:
    """Runs body(first, number) for `count` rows: `at_once` of them as long as there are as many, then one by one."""
    with build.loop(floordiv(count, at_once), AxisKind.LOOP) as index:
        body(mul(index, at_once), at_once)
    rest = mod(count, at_once)
    if rest != 0:
        with build.loop(rest, AxisKind.LOOP) as index:
            body(add(subtract(count, rest), index), 1)


def emit_rows(
    rows: Rows, first: Dim, count: int, build: Builder, lanes: int, kept: Sequence[Sequence[Op]] = (),
    beside: Callable[[list[Dim], list[tuple[list[Dim], Results]]], None] | None = None,
) -> None:  # fmt: skip
    """Writes `count` rows on one thread: the reductions of each, then the values of their elements, then those of the rows.

    Args:
      kept:   for each level, values of elements that are stored, for those after it read them again; of one row
      beside: writes what else is computed at (a column; for each row its position, and what is known of its element)
    """
    places = [split(add(first, number), rows.row_extents) for number in range(count)]
    settled = {r: build.alloc(r.dtype, count, MemorySpace.SHARED) for level in rows.levels for r in level if count > 1}
    with build.loop(count, AxisKind.LOOP) as index:
        at = places[0] if count == 1 else split(add(first, index), rows.row_extents)
        # What is kept is of one row at a time (count is 1), so the next one follows the first.
        after = [split(add(first, 1), rows.row_extents)] if any(kept) else []
        (results,), memories = reduce_rows(rows, [at], build, lanes, kept, after)
        for r, memory in settled.items():
            build.store(memory, index, results[r])
    known = [{r: read(memory, n) for r, memory in settled.items()} or results for n in range(count)]

    def column(columns: list[Dim]) -> None:
        here = [(at, known_at(rows, columns, of_row, memories)) for at, of_row in zip(places, known)]
        if beside is not None:
            beside(columns, here)  # first, so that what all rows read is read before anything of them is written
        for at, of_element in here:
            write_stores(build, element_stores(rows, at, columns, of_element))

    if has_elements(rows) or beside is not None:
        *outer, last = rows.column_loops
        rest = rest_in_vectors(lambda: _of_elements(_outputs(rows), memories)[0], last, lanes)
        nested(build, outer, [], lambda columns: along(build, 0, last, lanes, lambda c: column([*columns, c]), rest=rest))
    for at, of_row in zip(places, known):
        write_stores(build, row_stores(rows, rows.row_coords(at), of_row))


def emit_together(rows: Rows, first: Dim, count: int, build: Builder, lanes: int) -> None:
    """Writes the reductions of `count` rows side by side on one thread, and the values of those rows."""
    places, after = ([split(add(start, n), rows.row_extents) for n in range(count)] for start in (first, add(first, count)))
    results, _ = reduce_rows(rows, places, build, lanes, (), after)
    for at, of_row in zip(places, results):
        write_stores(build, row_stores(rows, rows.row_coords(at), of_row))


def reduce_rows(
    rows: Rows, places: list[list[Dim]], build: Builder, lanes: int, kept: Sequence[Sequence[Op]] = (),
    after: Sequence[list[Dim]] = (),
) -> tuple[list[Results], dict[Op, Op]]:  # fmt: skip
    """Writes the reductions of some rows, level after level; returns them, and memory that holds values of their elements.

    Args:
      places: where the rows stand: one, if values are kept
      after:  the rows that follow, which are asked for meanwhile
    """
    results: list[Results] = [{} for _ in places]
    memories: dict[Op, Op] = {}
    for level, new in zip_longest(rows.levels, kept, fillvalue=()):
        memories |= {value: build.alloc(value.dtype, _length_kept(rows), MemorySpace.SHARED) for value in new}
        next_rows = after if (new or not kept) and not is_cached(rows) else ()
        found = _reduce_level(rows, level, places, results, build, lanes, memories, new, next_rows)
        for of_row, values in zip(results, found):
            of_row |= zip(level, values)
    return results, memories


def known_at(rows: Rows, columns: list[Dim], results: Results, memories: Mapping[Op, Op]) -> Results:
    """Returns what has been computed of a row, and of one of its elements."""
    place = flatten(columns, tuple(rows.column_loops))
    return results | {value: read(memory, place) for value, memory in memories.items()}


def worth_keeping(rows: Rows) -> list[list[Op]]:
    """Returns for each level of reductions which values of elements should be stored: those dear and needed again."""
    if not _length_kept(rows):
        return []
    outputs = _outputs(rows)
    sources = [[r.src[0] for r in level] for level in rows.levels]
    known: set[Op] = set()
    found = []
    for number, roots in enumerate(sources):
        later, elsewhere = _of_elements([*chain(*sources[number + 1 :]), *outputs], known)
        dear: dict[Op, bool] = {}
        for op in _of_elements(roots, known)[0]:
            dear[op] = op.code in TRANSCENDENTAL or any(dear.get(s, False) for s in op.src)
        shared = {op for op, is_dear in dear.items() if is_dear and op in later} - elsewhere
        inner = {s for op in shared for s in op.src}
        found.append([op for op in dear if op in shared - inner])
        known |= set(found[-1])
    return found


def _outputs(rows: Rows) -> list[Op]:
    """Returns what is stored of each element."""
    return [value for _, value in rows.nest.outputs if value.shape == rows.nest.domain]


def _of_elements(roots: Sequence[Op], known: Collection[Op]) -> tuple[dict[Op, None], set[Op]]:
    """Returns the operations computed for an element, sources first, and those of other elements, which are moved.

    What is known, or a reduction, is none of them, nor is what it is computed from.
    """
    here = dict.fromkeys(toposort(roots, sources=lambda op: op.src if _is_computed(op, known) else ()))
    ends = [op for op in here if not _is_computed(op, known) and op not in known and op.code is not OpCode.REDUCE]
    moved = toposort([s for op in ends for s in op.src], sources=lambda op: () if op.code is OpCode.REDUCE else op.src)
    return {op: None for op in here if _is_computed(op, known)}, set(moved)


def _is_computed(op: Op, known: Collection[Op]) -> bool:
    return (op.code in ELEMENTWISE or op.code in IDENTITY) and op not in known


def _length_kept(rows: Rows) -> int:
    """Returns the length of a row of which something may be kept; 0 where nothing should be."""
    length = numel(rows.column_extents)
    return length if isinstance(length, int) and length <= MOST_KEPT else 0


class _Totals(Record):
    """Running totals of some reductions, in registers: of each `copies` vectors for whole ones, and one for the rest."""

    sums: Sequence[Op]
    vectors: Sequence[Op]
    singles: Sequence[Op]
    lanes: int
    copies: int

    @staticmethod
    def new(sums: Sequence[Op], build: Builder, lanes: int, copies: int, use_vectors: bool) -> _Totals:
        """Returns totals of nothing."""
        vectors = [build.alloc(accumulator_dtype(r), lanes * copies, MemorySpace.REGISTER) for r in sums]
        singles = [build.alloc(accumulator_dtype(r), 1, MemorySpace.REGISTER) for r in sums]
        totals = _Totals(sums, vectors, singles, lanes, copies if use_vectors else 0)
        totals.clear(build, vectors if use_vectors else [], singles)
        return totals

    def clear(self, build: Builder, vectors: Sequence[Op], singles: Sequence[Op]) -> None:
        """Stores the start of each reduction."""
        for r, vector, single in zip_longest(self.sums, vectors, singles):
            start = start_of(r.arg[0], accumulator_dtype(r))
            if single is not None:
                build.store(single, 0, start)
            if vector is not None:
                self.each_vector(build, partial(build.store, vector, value=start))

    def each_vector(self, build: Builder, body: Callable[[Dim], None]) -> None:
        """Runs body(place in the vectors of one reduction)."""
        with build.loop(self.copies, AxisKind.UNROLL) as copy, build.loop(self.lanes, AxisKind.VECTOR) as lane:
            body(add(mul(copy, self.lanes), lane))

    def of_line(self, build: Builder) -> _Totals:
        """Returns totals of nothing for a part of a line: its vectors, or where it has none its elements."""
        memories = self.vectors if self.copies else self.singles
        own = [build.alloc(memory.dtype, memory.arg[1], MemorySpace.REGISTER) for memory in memories]
        totals = replace(self, vectors=own) if self.copies else replace(self, singles=own)
        totals.clear(build, own if self.copies else [], [] if self.copies else own)
        return totals

    def add_to(self, total: _Totals, build: Builder) -> None:
        """Adds these to others, unless they are the same memory."""
        for r, part, into in zip(self.sums, self.singles, total.singles):
            if part is not into:
                build.store(into, 0, combined(r.arg[0], build.load(into, 0), build.load(part, 0)))
        for r, part, into in zip(self.sums, self.vectors, total.vectors):
            if part is not into:
                self.each_vector(build, partial(_add, build, r.arg[0], part, into))


def _add(build: Builder, code: OpCode, part: Op, into: Op, where: Dim) -> None:
    build.store(into, where, combined(code, build.load(into, where), build.load(part, where)))


def _reduce_level(
    rows: Rows, level: Sequence[Op], places: list[list[Dim]], results: list[Results], build: Builder, lanes: int,
    memories: dict[Op, Op], new: Collection[Op], next_rows: Sequence[list[Dim]],
) -> list[list[Op]]:  # fmt: skip
    """Runs along some rows once, side by side, and returns the value of each reduction of each row.

    Args:
      memories: values of elements that are kept; those that are `new` are stored now, the others are there
      next_rows: what is read of them is asked for on the way
    """
    *outer, last = rows.column_loops
    # Of a length between bounds those that it needs at most: more of them add zeros.
    use_vectors = lanes > 1 and longest(last) >= lanes
    copies = _num_copies(level)
    copies = 1 if lanes == 1 or longest(last) < copies * lanes else copies
    sums = [r for _ in places for r in level]
    total = _Totals.new(sums, build, lanes, copies, use_vectors)
    copies = total.copies
    is_cut = any(map(is_rounded_sum, level)) and not is_short(rows, UNROLLED)
    there = {value: memory for value, memory in memories.items() if value not in new}

    # Narrow rows of which nothing else is written are a lane each where there are several: one after the other, alone too.
    joins_lanes = use_vectors or has_elements(rows)
    rest = rest_in_vectors(lambda: _of_elements([r.src[0] for r in level], there)[0], last, lanes) if joins_lanes else 0

    def step(memory: Sequence[Op], where: Dim, columns: list[Dim], is_across: bool = False) -> None:
        accumulators = iter(memory)
        for at, of_row in zip(places, results):
            coords, known = rows.coords(at, columns), known_at(rows, columns, of_row, there)
            for value in new:
                build.store(memories[value], flatten(columns, tuple(rows.column_loops)), rows.value(value, coords, known))
            for r, accumulator in zip(level, accumulators):
                value = cast(rows.value(r.src[0], coords, known), accumulator.dtype)
                value = Op(OpCode.REDUCE, value.dtype, (value,), (r.arg[0], ())) if is_across else value
                build.store(accumulator, where, rows.accumulated(r, build.load(accumulator, where), value))

    def line(total: _Totals, columns: list[Dim]) -> None:
        def ask(first: Dim) -> None:
            for row in next_rows:
                values = partial(_values_at, rows, row, columns)
                prefetch_lines(build, values, first, lanes * copies, numel(rows.nest.domain))

        def vector_step(total: _Totals, where: Dim, column: Dim) -> None:
            step(total.vectors, where, [*columns, column])

        def joined_step(total: _Totals, column: Dim, width: int) -> None:
            step(total.singles, 0, [*columns, column], is_across=width > 1)

        _along_line(build, last, total, RUN_STEPS if is_cut else 0, ask, vector_step, joined_step, rest)

    def fresh() -> _Totals:
        return _Totals.new(sums, build, lanes, max(1, copies), use_vectors)

    run = max(1, RUN_STEPS // _steps_of_line(last, lanes, copies)) if is_cut else 0
    in_runs(build, outer, total, fresh, lambda part, into: part.add_to(into, build), line, run)
    joined = [_join(r, v, s, build, lanes, copies) for r, v, s in zip(sums, total.vectors, total.singles)]
    values = [cast(value, r.dtype) for r, value in zip(sums, joined)]
    return [values[i : i + len(level)] for i in range(0, len(sums), len(level))]


def _steps_of_line(length: Dim, lanes: int, copies: int) -> int:
    """Returns how many additions a line makes to one total, as far as they are not cut."""
    most = longest(length)
    vectors = most // (lanes * copies) + copies - 1 if copies else 0
    return max(1, min(RUN_STEPS, max(vectors, most % lanes if copies else most)))


def _values_at(rows: Rows, row: list[Dim], columns: list[Dim], column: Dim) -> list[Op]:
    return rows.element_values(rows.coords(row, [*columns, column]))


def _along_line(
    build: Builder, length: Dim, total: _Totals, run: int, before: Callable[[Dim], None],
    vector: Callable[[_Totals, Dim, Dim], None], joined: Callable[[_Totals, Dim, int], None], in_vectors: Dim,
) -> None:  # fmt: skip
    """Runs along a line: `copies` vectors at a time, then one, then single elements; with no copies those alone.

    Args:
      run:    steps after which totals are added to others; 0: none
      before: called with the first column of several vectors, before they are
      vector: called with totals, a place in their vectors and a column
      joined: called with totals, a column and the width of a vector, whose lanes go into one total
      in_vectors: how many elements behind the whole vectors go in smaller ones; 0: all of these one by one
    """
    lanes, copies = total.lanes, total.copies
    width = lanes * copies

    def in_parts(count: Dim, body: Callable[[_Totals, Dim], None]) -> None:
        in_runs(
            build, [count], total, lambda: total.of_line(build), lambda part, into: part.add_to(into, build),
            lambda part, at: body(part, at[0]), run,
        )  # fmt: skip

    def vectors(part: _Totals, number: Dim) -> None:
        first = mul(number, width)
        before(first)
        part.each_vector(build, lambda where: vector(part, where, add(first, where)))

    whole = floordiv(length, width) if copies else 0
    if whole != 0:
        in_parts(whole, vectors)
    done = mul(whole, width)
    more = floordiv(subtract(length, done), lanes) if copies else 0
    if more != 0:
        with build.loop(more, AxisKind.LOOP) as number, build.loop(lanes, AxisKind.VECTOR) as lane:
            vector(total, lane, add(done, add(mul(number, lanes), lane)))
    done = add(done, mul(more, lanes))
    rest = subtract(length, done)
    if in_vectors != 0:
        in_smaller_vectors(build, done, in_vectors, lanes, partial(joined, total))
    elif rest != 0 and copies:
        with build.loop(rest, AxisKind.LOOP) as index:
            joined(total, add(done, index), 1)
    elif rest != 0:
        in_parts(rest, lambda part, index: joined(part, index, 1))


def _num_copies(level: Sequence[Op]) -> int:
    """How many independent accumulators hide the latency of adding: fewer where each step is long anyway.

    Movements do not count: of one row there are fewer of them than of a batch, and it adds up in the same order.
    """
    steps = [op for op in toposort([r.src[0] for r in level]) if op.code in ELEMENTWISE]
    if len(steps) > MANY_STEPS:
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
