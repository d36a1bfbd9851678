"""A reduce nest: how it is walked, and the loops of one thread over rows.

`plan_rows` chooses the axes of a row, the axes of a column, and whether lanes run along rows or over them. A
thread reads a row once for each level of reductions (softmax: the maximum, then the sum, then the result); after the
first time it is in cache. An exponential that two levels need is computed once and kept; the next row is prefetched.

Rows and columns in one pass: the backward pass of a layer norm reduces rows for the gradient of x, and columns for those of
weight and bias. The walk along rows also adds up the columns of a block of rows, in a line of scratch memory; the nest
down the columns adds up these lines. Blocks depend on shapes alone, so sums have the same bits for any number of threads.

Example:  phase 1: reduce (4096, 4096) over 1        phase 1: the same, and sums of 64 rows each, into scratch (64, 4096)
          phase 2: reduce (4096, 4096) over 0   ->   phase 2: reduce (64, 4096) over 0
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, read
from picograd.codegen.index import (
    Groups,
    element_within,
    elements,
    elements_anywhere,
    group_extents,
    index_roots,
    merge_axes,
    put_in_all,
    spread,
)
from picograd.codegen.loops import (
    RUN_STEPS,
    along,
    in_runs,
    in_smaller_vectors,
    longest,
    nested,
    prefetch_lines,
    rest_in_vectors,
)
from picograd.device import Target
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.arithmetic import identity
from picograd.ir.bodies import substitute
from picograd.ir.build import cast, combined, multiply_add, where
from picograd.ir.build import reduce as reduce_axes
from picograd.ir.op import Dim, Op, const, greatest, toposort
from picograd.ir.opcode import ELEMENTWISE, IDENTITY, TRANSCENDENTAL, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest, NestKind
from picograd.ir.symbolic import (
    Coords,
    add,
    ceildiv,
    flatten,
    floordiv,
    mod,
    mul,
    placeholder,
    placeholders,
    strides_in,
    subtract,
    to_op,
    unflatten,
)
from picograd.record import Record, replace

# ---- rows: how a nest is walked ----
PIECE_ELEMENTS = 8192  # elements of one GRID iteration on a CPU
UNROLLED_COLUMNS_MAX = 16  # columns of a row that is unrolled if lanes are rows, and whose sum is one run
TERMS_MAX = 8  # terms of an element that are added to a sum one by one

Results = dict[Op, Op]  # finished reductions, with their values
Stored = tuple[Op, Dim, Op]  # memory, index, value


class Rows(Record, dict=True):
    """A walk over a reduce nest: its axes are merged into loops over rows, and loops along a row, over its columns.

    params:      the kernel's parameters, by slot
    groups:      the loops, each a group of axes of the domain, in the domain's order (`merge_axes`)
    extents:     iterations of each loop
    row_groups, column_groups: positions in `groups`; either may be empty
    levels:      reductions, grouped by the length of the chain of reductions that they depend on
    has_fma:     the target multiplies and adds in one instruction
    """

    nest: Nest
    params: Sequence[Op]
    groups: Groups
    extents: list[Dim]
    row_groups: list[int]
    column_groups: list[int]
    levels: list[list[Op]]
    has_fma: bool

    def coords(self, rows: Sequence[Dim], columns: Sequence[Dim]) -> Coords:
        """Returns the coordinates in the domain of a row's position and a column's."""
        at = dict(zip([*self.row_groups, *self.column_groups], [*rows, *columns]))
        return spread(self.groups, [at[group] for group in range(len(self.groups))], self.nest.domain)

    def row_coords(self, rows: Sequence[Dim]) -> Coords:
        whole = self.coords(rows, self.column_extents)  # any column gives the same row
        return tuple([whole[axis] for axis in self.nest.row_axes])

    def value(self, op: Op, coords: Coords, results: Results) -> Op:
        """Returns the value of `op` at an element of the domain, or at a row."""
        rows = self.nest.row_axes
        return element_within(op, coords, results, rows if op.shape == self.nest.domain else range(len(rows)))

    def element_values(self, coords: Coords) -> list[Op]:
        """Returns all values that are computed for an element, with 0 for every reduction."""
        levels = [r for level in self.levels for r in level]
        known = {r: const(0, r.dtype) for r in levels}
        outputs = [value for _, value in self.of_elements]
        return [self.value(value, coords, known) for value in [*outputs, *(r.src[0] for r in levels)]]

    def accumulated(self, r: Op, total: Op | None, value: Op) -> Op:
        """Returns the total after one more element, or after the first one.

        Terms that are products are added by FMA, with a single rounding each.
        """
        code, terms = r.arg[0], _terms(value)
        if code is not OpCode.ADD or {term.code for term in terms} != {OpCode.MUL}:
            return value if total is None else combined(code, total, value)
        for term in terms:
            total = term if total is None else multiply_add(term.src[0], term.src[1], total, self.has_fma)
        return total or value

    @cached_property
    def row_extents(self) -> list[Dim]:
        return [self.extents[g] for g in self.row_groups]

    @cached_property
    def column_loops(self) -> list[Dim]:
        """Extents of the column loops; [1] if the nest has none."""
        return self.column_extents or [1]

    @cached_property
    def column_extents(self) -> list[Dim]:
        return [self.extents[g] for g in self.column_groups]

    @cached_property
    def columns_max(self) -> int:
        """The largest number of elements of a row."""
        return greatest(numel(self.column_extents))

    @cached_property
    def of_elements(self) -> list[tuple[int, Op]]:
        """The outputs with a value for each element of a row, with their slots."""
        return [(slot, value) for slot, value in self.nest.outputs if value.shape == self.nest.domain]


def _terms(value: Op) -> list[Op]:
    """Returns the terms of a sum, from left to right; the sum itself if it has very many."""
    terms, stack = [], [value]
    while stack:
        term = stack.pop()
        if term.code is OpCode.ADD:
            stack += term.src[::-1]
        else:
            terms.append(term)
        if len(terms) + len(stack) > TERMS_MAX:  # shared terms count once for each reader: perhaps 2^60 times
            return [value]
    return terms


def is_rounded_sum(op: Op) -> bool:
    """True for a reduction whose additions are rounded: a long chain of them is cut in runs (codegen/loops.py)."""
    return op.arg[0] is OpCode.ADD and op.dtype.is_float


def running_dtype(scan: Op) -> DType:
    """Returns the dtype of a scan's running value: float64 for floats, whose rounding errors accumulate along the axis."""
    return dtypes.float64 if scan.dtype.is_float else scan.dtype


def start_of(code: OpCode, dtype: DType) -> Op:
    """Returns the initial value of an accumulator."""
    return const(identity(code, dtype), dtype)


def plan_rows(nest: Nest, params: Sequence[Op], target: Target, others: Sequence[Op] = ()) -> tuple[Rows, bool]:
    """Returns the walk over a nest, and whether lanes should run over rows instead of along them.

    Args:
      others: other values of its elements that are computed in the same walk
    """
    reductions = [op for op in toposort([v for _, v in nest.outputs]) if op.code is OpCode.REDUCE]
    axes = [axis for axis, dim in enumerate(nest.domain) if dim != 1]
    groups: Groups = tuple((axis,) for axis in axes)
    values: list[Op] = []
    if len(axes) > 1:
        values = _values_at_placeholders(nest, reductions, others)
        groups, _ = merge_axes(nest.domain, values, frozenset(nest.reduced))
    columns = [g for g, group in enumerate(groups) if group[0] in nest.reduced]
    row_groups = [g for g, group in enumerate(groups) if group[0] not in nest.reduced]
    extents = group_extents(groups, nest.domain)
    rows = Rows(nest, params, groups, extents, row_groups, columns, _levels(reductions), target.has_fma)
    return rows, _runs_over_rows(rows, values)


def _values_at_placeholders(nest: Nest, reductions: Sequence[Op], others: Sequence[Op]) -> list[Op]:
    """Returns all values that a nest computes for an element and for a row, and the places of its outputs."""
    coords = placeholders(nest.domain)
    row = tuple([coords[axis] for axis in nest.row_axes])
    known = {r: (row, const(0, r.dtype)) for r in reductions}
    whole = [value for _, value in nest.outputs if value.shape == nest.domain]
    of_rows = [value for _, value in nest.outputs if value.shape != nest.domain]
    values = elements([*(r.src[0] for r in reductions), *whole, *others], coords, known) + elements(of_rows, row, known)
    stored = ((whole, coords, nest.domain), (of_rows, row, nest.row_shape))
    return values + [to_op(flatten(at, shape)) for outputs, at, shape in stored if outputs]


def _runs_over_rows(rows: Rows, values: Sequence[Op]) -> bool:
    """True if more indices step by one from row to row than along a row.

    Axis 0 may be a batch, and a row must add up in the same order alone as in a batch. So indices are taken at its row 0:
    for x.sum(1) of a (B, N) tensor they step along the row, whatever B is. If rows are numbered by axis 0 alone, they count
    as neighbours only if some index steps along the row as well. An index with a quotient of axis 0 is left out, as it may
    become simpler in a batch of one row.
    """
    if not rows.row_groups:
        return False
    if not rows.column_groups:
        return True
    nest, groups = rows.nest, rows.groups
    places = [placeholder(axis, extent) for axis, extent in enumerate(nest.domain)]
    last, along = groups[rows.row_groups[-1]][-1], places[groups[rows.column_groups[-1]][-1]]
    indices = index_roots(put_in_all(values, {places[0]: 0}) if last and 0 in nest.row_axes else values)
    steps = _walks(indices, places[0])
    across = [terms for terms in steps if terms.get(places[last]) == 1]
    if last == 0 and not any(terms.get(along) for terms in across):
        return False
    return len(across) > sum(terms.get(along) == 1 for terms in steps)


def _walks(indices: Sequence[Op], batch: Op) -> list[dict[Op, Dim]]:
    """Returns the strides of each index; indices that differ only in their constant count once, as of x[1:] and x.

    An axis has no stride if a load or a quotient depends on it: x[i[j], c] and x[j * 9 // 4 + c] have strides along c
    alone. An index with a quotient of the batch's axis is left out.
    """
    found: dict[frozenset[tuple[Op, Dim]], dict[Op, Dim]] = {}
    for strides in map(strides_in, indices):
        below = {atom: toposort([atom]) for atom in strides}
        moving = {atom: step for atom, step in strides.items() if any(op.code is OpCode.RANGE for op in below[atom])}
        parts = [(below[atom], {op.code for op in below[atom]}) for atom in moving if atom.code is not OpCode.RANGE]
        read = {op for ops, codes in parts if batch not in ops or OpCode.LOAD in codes for op in ops}
        steps = {atom: step for atom, step in moving.items() if atom not in read}
        if all(atom.code is OpCode.RANGE for atom in steps):
            found.setdefault(frozenset(moving.items()), steps)
    return list(found.values())


def _levels(reductions: list[Op]) -> list[list[Op]]:
    if len(reductions) == 1:
        return [reductions]
    level: dict[Op, int] = {}
    for op in toposort(reductions):
        below = max((level[s] for s in op.src), default=0)
        level[op] = below + (op.code is OpCode.REDUCE)
    found = sorted({level[r] for r in reductions})
    return [[r for r in reductions if level[r] == n] for n in found]


def element_stores(rows: Rows, at: Sequence[Dim], columns: Sequence[Dim], results: Results) -> list[Stored]:
    """Returns the values computed per element of a row, and their places."""
    coords = rows.coords(at, columns)
    index = flatten(coords, rows.nest.domain)
    return [(rows.params[slot], index, rows.value(value, coords, results)) for slot, value in rows.of_elements]


def row_stores(rows: Rows, here: Coords, results: Results) -> list[Stored]:
    """Returns the values computed per row, and their places."""
    found = [(slot, value) for slot, value in rows.nest.outputs if value.shape != rows.nest.domain]
    index = flatten(here, rows.nest.row_shape)
    return [(rows.params[slot], index, rows.value(value, here, results)) for slot, value in found]


def write_stores(build: Builder, stores: Sequence[Stored]) -> None:
    """Writes values to their places."""
    for memory, index, value in stores:
        build.store(memory, index, value)


# ---- places of running values ----
EachPlace = Callable[[Callable[[Dim], None]], None]  # runs body(place) for each place


class Totals(Record):
    """Running values of some reductions, one for each place: a row of a strip, a lane of a thread, or a thread.

    memories:  reduction -> memory with a value for each place
    each:      opens the loop over places
    """

    memories: dict[Op, Op]
    build: Builder
    each: EachPlace

    @staticmethod
    def new(build: Builder, level: Sequence[Op], count: int, space: MemorySpace, each: EachPlace) -> Totals:
        """Makes totals that hold the identity of their reduction, at `count` places."""
        totals = Totals({r: build.alloc(r.dtype.compute_dtype, count, space) for r in level}, build, each)
        totals.clear()
        return totals

    def clear(self) -> None:
        """Stores the identity of each reduction."""

        def put(place: Dim) -> None:
            for r, memory in self.memories.items():
                self.build.store(memory, place, start_of(r.arg[0], memory.dtype))

        self.each(put)

    def add(self, place: Dim, rows: Rows, coords: Coords, results: Results, inside: Op | bool = True) -> None:
        """Adds an element of the domain to one place, if it is `inside`."""
        for r, memory in self.memories.items():
            value = cast(rows.value(r.src[0], coords, results), memory.dtype)
            if isinstance(inside, Op):
                value = where(inside, value, start_of(r.arg[0], value.dtype))
            self.build.store(memory, place, rows.accumulated(r, self.build.load(memory, place), value))

    def join(self, part: Totals) -> None:
        """Adds the totals of a part to these."""
        build = self.build

        def put(place: Dim) -> None:
            for r, memory in self.memories.items():
                other = part.memories[r]
                build.store(memory, place, combined(r.arg[0], build.load(memory, place), build.load(other, place)))

        self.each(put)

    def results(self, place: Dim) -> Results:
        """Returns the present values at a place."""
        return {r: cast(self.build.load(memory, place), r.dtype) for r, memory in self.memories.items()}


# ---- rows of one thread ----
CACHED_COLUMNS_MAX = 1024  # elements of a row that stays in the first-level cache with its operands
ROWS_AT_ONCE_MAX, ROWS_STEPS_MAX = 4, 64  # rows that are written or added up together, and operations of these
ADDING_STEPS_MAX = 14  # operations of an element: more take longer than adding it
KEPT_COLUMNS_MAX = 16384  # elements of a row that stay in the second-level cache


def is_cached(rows: Rows) -> bool:
    """True if a row stays in the first-level cache until it is walked again."""
    return rows.columns_max <= CACHED_COLUMNS_MAX


def rows_at_once(rows: Rows, values: Sequence[Op]) -> int:
    """Returns the number of rows that are written together to read shared operands once; few if each takes many steps.

    Args:
      values: values that are computed for elements
    """
    if is_cached(rows):
        return 1
    steps = sum(op.shape == rows.nest.domain and op.code in ELEMENTWISE for op in toposort(values))
    return max(1, min(ROWS_AT_ONCE_MAX, ROWS_STEPS_MAX // max(1, steps)))


# ---- lanes along a row ----
def some_rows(count: Dim, at_once: int, build: Builder, body: Callable[[Dim, int], None]) -> None:
    """Runs body(first, number) for `count` rows: `at_once` of them at a time, then the remaining ones one by one."""
    with build.loop(floordiv(count, at_once), AxisKind.LOOP) as index:
        body(mul(index, at_once), at_once)
    rest = mod(count, at_once)
    if rest != 0:
        with build.loop(rest, AxisKind.LOOP) as index:
            body(add(subtract(count, rest), index), 1)


KnownRow = tuple[Sequence[Dim], Results]  # a row's position, with its results and those of its element at a column
AtColumn = Callable[[list[Dim], Sequence[KnownRow]], None]  # adds elements of several rows to the sums down a column


def emit_rows(
    rows: Rows, first: Dim, count: int, build: Builder, lanes: int, kept: Sequence[Sequence[Op]] = (),
    down_columns: AtColumn | None = None,
) -> None:  # fmt: skip
    """Writes `count` rows on one thread: the reductions of each, then the values of their elements, then those of the rows.

    Args:
      kept:         for each level, values of elements that are stored because later levels need them; for one row only
      down_columns: adds the rows' elements at a column to the sums down that column, if there are such sums
    """
    places = [unflatten(add(first, number), rows.row_extents) for number in range(count)]
    memories = {r: build.alloc(r.dtype, count, MemorySpace.SHARED) for level in rows.levels for r in level if count > 1}
    with build.loop(count, AxisKind.LOOP) as index:
        at = places[0] if count == 1 else unflatten(add(first, index), rows.row_extents)
        # Values are kept for one row at a time (count is 1), so the next row follows the first.
        next_rows = [unflatten(add(first, 1), rows.row_extents)] if any(kept) else []
        (results,), values = reduce_rows(rows, [at], build, lanes, kept, next_rows)
        for r, memory in memories.items():
            build.store(memory, index, results[r])
    known = [{r: read(memory, n) for r, memory in memories.items()} or results for n in range(count)]

    def column(columns: list[Dim]) -> None:
        here = [(at, known_at(rows, columns, of_row, values)) for at, of_row in zip(places, known)]
        if down_columns is not None:
            down_columns(columns, here)  # first, so that operands that all rows share are read before anything is written
        for at, of_element in here:
            write_stores(build, element_stores(rows, at, columns, of_element))

    if rows.of_elements or down_columns is not None:
        *outer, last = rows.column_loops
        rest = rest_in_vectors(lambda: _of_elements([value for _, value in rows.of_elements], values)[0], last, lanes)
        nested(build, outer, [], lambda columns: along(build, 0, last, lanes, lambda c: column([*columns, c]), rest=rest))
    for at, of_row in zip(places, known):
        write_stores(build, row_stores(rows, rows.row_coords(at), of_row))


def emit_together(rows: Rows, first: Dim, count: int, build: Builder, lanes: int) -> None:
    """Writes the reductions of `count` rows in one walk of one thread, and the values of those rows."""
    here, behind = ([unflatten(add(at, n), rows.row_extents) for n in range(count)] for at in (first, add(first, count)))
    results, _ = reduce_rows(rows, here, build, lanes, (), behind)
    for at, of_row in zip(here, results):
        write_stores(build, row_stores(rows, rows.row_coords(at), of_row))


def reduce_rows(
    rows: Rows, places: Sequence[Sequence[Dim]], build: Builder, lanes: int, kept: Sequence[Sequence[Op]],
    next_rows: Sequence[Sequence[Dim]],
) -> tuple[list[Results], dict[Op, Op]]:  # fmt: skip
    """Writes the reductions of some rows, a walk for each level; returns them, and memory with the kept values.

    Args:
      places:    positions of the rows: one, if values are kept
      next_rows: rows that are prefetched meanwhile
    """
    results: list[Results] = [{} for _ in places]
    memories: dict[Op, Op] = {}
    for level, new in zip_longest(rows.levels, kept, fillvalue=()):
        memories |= {value: build.alloc(value.dtype, _length_kept(rows), MemorySpace.SHARED) for value in new}
        prefetched = next_rows if (new or not kept) and not is_cached(rows) else ()
        found = _Walk(rows, level, places, results, build, lanes, memories, new, prefetched).run()
        for of_row, values in zip(results, found):
            of_row |= zip(level, values)
    return results, memories


def known_at(rows: Rows, columns: list[Dim], results: Results, memories: Mapping[Op, Op]) -> Results:
    """Returns the results of a row, with the kept values of one of its elements."""
    if not memories:
        return results
    place = flatten(columns, tuple(rows.column_loops))
    return results | {value: read(memory, place) for value, memory in memories.items()}


def worth_keeping(rows: Rows) -> list[list[Op]]:
    """Returns for each level of reductions the values of elements to store: costly ones that later levels need again."""
    if not _length_kept(rows) or not (rows.of_elements or len(rows.levels) > 1):
        return []
    outputs = [value for _, value in rows.of_elements]
    sources = [[r.src[0] for r in level] for level in rows.levels]
    known: set[Op] = set()
    found = []
    for number, roots in enumerate(sources):
        later, elsewhere = _of_elements([*chain(*sources[number + 1 :]), *outputs], known)
        costly: dict[Op, bool] = {}
        for op in _of_elements(roots, known)[0]:
            costly[op] = op.code in TRANSCENDENTAL or any(costly.get(s, False) for s in op.src)
        shared = {op for op, is_costly in costly.items() if is_costly and op in later} - elsewhere
        inner = {s for op in shared for s in op.src}
        found.append([op for op in costly if op in shared - inner])
        known |= set(found[-1])
    return found


def _of_elements(roots: Sequence[Op], known: Collection[Op]) -> tuple[dict[Op, None], set[Op]]:
    """Returns the operations of an element, sources first, and those of other elements, which are read through movement.

    The walk over sources stops at known values and at reductions.
    """
    here = dict.fromkeys(toposort(roots, sources=lambda op: op.src if _is_computed(op, known) else ()))
    ends = [op for op in here if not _is_computed(op, known) and op not in known and op.code is not OpCode.REDUCE]
    moved = toposort([s for op in ends for s in op.src], sources=lambda op: () if op.code is OpCode.REDUCE else op.src)
    return {op: None for op in here if _is_computed(op, known)}, set(moved)


def _is_computed(op: Op, known: Collection[Op]) -> bool:
    return (op.code in ELEMENTWISE or op.code in IDENTITY) and op not in known


def _length_kept(rows: Rows) -> int:
    """Returns the length of a row whose values may be kept; 0 if none should be."""
    length = numel(rows.column_extents)
    return length if isinstance(length, int) and length <= KEPT_COLUMNS_MAX else 0


class _LineTotals(Record):
    """Running totals of some reductions, in registers.

    vectors:  for each reduction memory of `copies` vectors; () if a row is too short for a vector
    singles:  for each reduction memory of one element, for the elements behind the last vector
    """

    sums: Sequence[Op]
    vectors: Sequence[Op]
    singles: Sequence[Op]
    lanes: int
    copies: int

    @staticmethod
    def new(sums: Sequence[Op], build: Builder, lanes: int, copies: int, use_vectors: bool) -> _LineTotals:
        """Returns totals that hold the identity of their reduction."""
        of_vectors = sums if use_vectors else []
        vectors = [build.alloc(r.dtype.compute_dtype, lanes * copies, MemorySpace.REGISTER) for r in of_vectors]
        singles = [build.alloc(r.dtype.compute_dtype, 1, MemorySpace.REGISTER) for r in sums]
        totals = _LineTotals(sums, vectors, singles, lanes, copies if use_vectors else 0)
        totals.clear(build, vectors, singles)
        return totals

    def clear(self, build: Builder, vectors: Sequence[Op], singles: Sequence[Op]) -> None:
        """Stores the identity of each reduction."""
        for r, vector, single in zip_longest(self.sums, vectors, singles):
            start = start_of(r.arg[0], r.dtype.compute_dtype)
            if single is not None:
                build.store(single, 0, start)
            if vector is not None:
                self.each_vector(build, partial(build.store, vector, value=start))

    def each_vector(self, build: Builder, body: Callable[[Dim], None]) -> None:
        """Runs body(place in the vectors of one reduction)."""
        with build.loop(self.copies, AxisKind.UNROLL) as copy, build.loop(self.lanes, AxisKind.VECTOR) as lane:
            body(add(mul(copy, self.lanes), lane))

    def of_line(self, build: Builder) -> _LineTotals:
        """Returns fresh totals for a part of a line: for its vectors, or if it has none for its elements."""
        memories = self.vectors if self.copies else self.singles
        own = [build.alloc(memory.dtype, memory.arg[1], MemorySpace.REGISTER) for memory in memories]
        totals = replace(self, vectors=own) if self.copies else replace(self, singles=own)
        totals.clear(build, own if self.copies else [], [] if self.copies else own)
        return totals

    def add_to(self, total: _LineTotals, build: Builder) -> None:
        """Adds these to other totals, unless both are the same memory."""
        for r, part, into in zip(self.sums, self.singles, total.singles):
            if part is not into:
                build.store(into, 0, combined(r.arg[0], build.load(into, 0), build.load(part, 0)))
        for r, part, into in zip(self.sums, self.vectors, total.vectors):
            if part is not into:
                self.each_vector(build, partial(_add, build, r.arg[0], part, into))


def _add(build: Builder, code: OpCode, part: Op, into: Op, where: Dim) -> None:
    build.store(into, where, combined(code, build.load(into, where), build.load(part, where)))


class _Walk:
    """One walk along some rows at once, for the reductions of one level.

    places:    positions of the rows
    results:   for each row the reductions of earlier levels
    known:     values of elements that were kept by earlier walks -> their memory
    new:       values of elements that this walk keeps -> their memory
    next_rows: rows that are prefetched on the way
    """

    def __init__(
        self, rows: Rows, level: Sequence[Op], places: Sequence[Sequence[Dim]], results: list[Results], build: Builder,
        lanes: int, memories: dict[Op, Op], new: Collection[Op], next_rows: Sequence[Sequence[Dim]],
    ):  # fmt: skip
        self.rows, self.level, self.places, self.results = rows, level, places, results
        self.build, self.lanes, self.next_rows = build, lanes, next_rows
        self.known = {value: memory for value, memory in memories.items() if value not in new}
        self.new = {value: memories[value] for value in new}
        self.sums = [r for _ in places for r in level]
        self.is_cut = any(map(is_rounded_sum, level)) and rows.columns_max > UNROLLED_COLUMNS_MAX

    def run(self) -> list[list[Op]]:
        """Writes the walk and returns the value of each reduction of each row."""
        build, lanes, level, (*outer, last) = self.build, self.lanes, self.level, self.rows.column_loops
        # A symbolic length gets as many accumulators as its greatest value needs; the surplus ones add zeros.
        self.use_vectors = lanes > 1 and longest(last) >= lanes
        self.copies = num_copies(level, last, lanes)
        total = self.fresh()
        # Several rows that are shorter than a vector, without outputs for elements, are a lane each; so a single
        # such row must be added one element at a time, in the same order.
        joins_lanes = self.use_vectors or self.rows.of_elements
        values = [r.src[0] for r in level]
        self.rest = rest_in_vectors(lambda: _of_elements(values, self.known)[0], last, lanes) if joins_lanes else 0
        run = max(1, RUN_STEPS // _steps_of_line(last, lanes, total.copies)) if self.is_cut else 0
        in_runs(build, outer, total, self.fresh, lambda part, into: part.add_to(into, build), self.line, run)
        accumulators = zip_longest(self.sums, total.vectors, total.singles)
        joined = [_join(r, vector, single, build, lanes, total.copies) for r, vector, single in accumulators]
        found = [cast(value, r.dtype) for r, value in zip(self.sums, joined)]
        return [found[i : i + len(level)] for i in range(0, len(found), len(level))]

    def fresh(self) -> _LineTotals:
        """Returns fresh totals."""
        return _LineTotals.new(self.sums, self.build, self.lanes, self.copies, self.use_vectors)

    def line(self, total: _LineTotals, outer: list[Dim]) -> None:
        """Writes the loops along the last axis: `copies` vectors at a time, then single vectors, then single elements."""
        build, lanes, length = self.build, self.lanes, self.rows.column_loops[-1]
        width = lanes * total.copies

        def vectors(part: _LineTotals, number: Dim) -> None:
            first = mul(number, width)
            self.prefetch(outer, first, width)
            part.each_vector(build, lambda where: self.add(part.vectors, where, [*outer, add(first, where)]))

        whole = floordiv(length, width) if total.copies else 0
        if whole != 0:
            self.in_parts(total, whole, vectors)
        done = mul(whole, width)
        more = floordiv(subtract(length, done), lanes) if total.copies else 0
        if more != 0:
            with build.loop(more, AxisKind.LOOP) as number, build.loop(lanes, AxisKind.VECTOR) as lane:
                self.add(total.vectors, lane, [*outer, add(done, add(mul(number, lanes), lane))])
        done = add(done, mul(more, lanes))
        rest = subtract(length, done)
        if self.rest != 0:
            in_smaller_vectors(build, done, self.rest, lanes, partial(self.add_joined, total, outer))
        elif rest != 0 and total.copies:
            with build.loop(rest, AxisKind.LOOP) as index:
                self.add_joined(total, outer, add(done, index), 1)
        elif rest != 0:
            self.in_parts(total, rest, lambda part, index: self.add_joined(part, outer, index, 1))

    def in_parts(self, total: _LineTotals, count: Dim, body: Callable[[_LineTotals, Dim], None]) -> None:
        """Runs body(totals, number) for a part of a line, in runs if sums are rounded."""
        build = self.build
        in_runs(
            build, [count], total, lambda: total.of_line(build), lambda part, into: part.add_to(into, build),
            lambda part, at: body(part, at[0]), RUN_STEPS if self.is_cut else 0,
        )  # fmt: skip

    def prefetch(self, outer: list[Dim], first: Dim, width: int) -> None:
        """Prefetches the values that the next rows read at some columns."""
        for row in self.next_rows:
            values = partial(_values_at, self.rows, row, outer)
            prefetch_lines(self.build, values, first, width, numel(self.rows.nest.domain))

    def add(self, accumulators: Sequence[Op], where: Dim, columns: list[Dim], width: int = 1) -> None:
        """Adds an element of each row to a place of its accumulators, and keeps its new values.

        Args:
          width:  above 1 the elements are lanes of a vector, which are joined before they are added
        """
        build, rows, memories = self.build, self.rows, iter(accumulators)
        for at, of_row in zip(self.places, self.results):
            coords, known = rows.coords(at, columns), known_at(rows, columns, of_row, self.known)
            for value, memory in self.new.items():
                build.store(memory, flatten(columns, tuple(rows.column_loops)), rows.value(value, coords, known))
            for r, memory in zip(self.level, memories):
                value = cast(rows.value(r.src[0], coords, known), memory.dtype)
                value = _joined_lanes(r.arg[0], value, width)
                build.store(memory, where, rows.accumulated(r, build.load(memory, where), value))

    def add_joined(self, total: _LineTotals, outer: list[Dim], column: Dim, width: int) -> None:
        """Adds a vector of elements, its lanes joined, or one element, to the totals of single elements."""
        self.add(total.singles, 0, [*outer, column], width)


def _joined_lanes(code: OpCode, value: Op, width: int) -> Op:
    """Returns the lanes of a vector joined by halves; a value that all lanes share is joined with itself as often."""
    if width > 1 and any(op.code is OpCode.RANGE and op.arg[1] is AxisKind.VECTOR for op in toposort([value])):
        return Op(OpCode.REDUCE, value.dtype, (value,), (code, ()))
    while width > 1:
        value, width = combined(code, value, value), width // 2
    return value


def _steps_of_line(length: Dim, lanes: int, copies: int) -> int:
    """Returns the number of additions to one total in a line, if it is not cut into runs."""
    most = longest(length)
    vectors = most // (lanes * copies) + copies - 1 if copies else 0
    return max(1, min(RUN_STEPS, max(vectors, most % lanes if copies else most)))


def _values_at(rows: Rows, row: Sequence[Dim], columns: list[Dim], column: Dim) -> list[Op]:
    return rows.element_values(rows.coords(row, [*columns, column]))


def num_copies(level: Sequence[Op], last: Dim, lanes: int) -> int:
    """Returns the number of accumulators that hide the latency of adding: fewer if a step is long, one for a short line."""
    # Movements, choices between parts of a stack, and integers of positions do not count: one row has fewer of them than a
    # batch, and must add up in the same order. Unpacking a number from its bits is long for one row as for several.
    steps = [op.code for op in toposort([r.src[0] for r in level]) if op.code in ELEMENTWISE - {OpCode.WHERE} and op.shape]
    copies = 1 if len(steps) > ADDING_STEPS_MAX or OpCode.BITCAST in steps else 4 if TRANSCENDENTAL.isdisjoint(steps) else 2
    return 1 if lanes == 1 or longest(last) < copies * lanes else copies


def _join(r: Op, vector: Op | None, single: Op, build: Builder, lanes: int, copies: int) -> Op:
    """Joins accumulators: copies by halves, then lanes by halves, then the elements left over."""
    if vector is None:
        return build.load(single, 0)
    step = copies // 2
    while step:
        with build.loop(step, AxisKind.UNROLL) as copy, build.loop(lanes, AxisKind.VECTOR) as lane:
            low, high = add(mul(copy, lanes), lane), add(mul(add(copy, step), lanes), lane)
            build.store(vector, low, combined(r.arg[0], build.load(vector, low), build.load(vector, high)))
        step //= 2
    with build.loop(lanes, AxisKind.VECTOR) as lane:
        across = Op(OpCode.REDUCE, vector.dtype, (build.load(vector, lane),), (r.arg[0], ()))
        build.store(single, 0, combined(r.arg[0], across, build.load(single, 0)))
    return build.load(single, 0)


# ---- rows and columns in one pass ----
Phases = tuple[tuple[Nest, ...], ...]


class Walk(Record):
    """A walk along rows that can add up columns, too.

    lanes:  lanes of a vector
    block:  rows whose columns are added up in one line
    """

    rows: Rows
    lanes: int
    block: int


class Both(Walk):
    """A reduce nest along rows, and the sums down the columns that its loops compute, too.

    columns:   the axes of the domain that number the columns
    sums:      reduction down the columns -> memory with a line of partial results for each block
    values:    for each of these reductions the summand of an element, at placeholders of the domain
    own:       LOADs in `values` of elements that the nest itself stores -> the value stored
    """

    columns: tuple[int, ...]
    sums: dict[Op, Op]
    values: list[Op]
    own: dict[Op, Op]

    @property
    def width(self) -> Dim:
        """Elements of a line."""
        return numel(self.rows.nest.domain[axis] for axis in self.columns)

    @property
    def num_blocks(self) -> Dim:
        return ceildiv(numel(self.rows.row_extents), self.block)


# Returns the walk of a nest that also adds up these values down their columns; None where a
# machine has none.
WalkOf = Callable[[Nest, Sequence[Op]], "Walk | None"]


def in_one_pass(
    phases: Phases, params: Sequence[Op], walk_of: WalkOf, scratch: Callable[[DType, Dim], Op]
) -> tuple[Phases, dict[Nest, Both]]:
    """Finds nests along the rows and down the columns of the same data.

    Returns: the phases, in which nests down columns only add up partial sums; and the nests along rows, with the sums that
             each computes down the columns.
    """
    found: dict[Nest, Both] = {}
    joined: set[Nest] = set()
    made = [list(part) for nests in phases for part in (nests, ())]  # the sums of a phase are complete after it
    for rows, number in _reductions_along(phases):
        walk, together, values = None, list[tuple[Nest, int]](), list[Op]()
        crossing = [] if rows in joined else [each for each in _crossing(rows, number, phases) if each[0] not in joined]
        own: dict[Op, Op] = {}
        for columns, place in crossing:
            wider = walk_of(rows, [r.src[0] for nest, _ in (*together, (columns, place)) for r in _reductions(nest)])
            if wider is None:
                continue
            own = own or _stored_here(rows, params)
            if added := _added_once(columns, phases[number], own):
                walk, together, values = wider, [*together, (columns, place)], values + added
        if walk is None:
            continue
        both = found[rows] = _both(walk, [columns for columns, _ in together], values, own, scratch)
        joined.update([rows, *(columns for columns, _ in together)])
        for columns, place in together:
            made[2 * place].remove(columns)
            made[2 * place + (place == number)].append(_totals(columns, both))
    return tuple([tuple(nests) for nests in made if nests]), found


def _reductions_along(phases: Phases) -> list[tuple[Nest, int]]:
    """Returns the reduce nests of all phases, each with the number of its phase."""
    return [(nest, number) for number, nests in enumerate(phases) for nest in nests if nest.kind is NestKind.REDUCE]


def _crossing(rows: Nest, number: int, phases: Phases) -> list[tuple[Nest, int]]:
    """Returns the nests of this phase and the next that walk once down the columns of data whose rows `rows` walks."""
    wide = {axis for axis, dim in enumerate(rows.domain) if dim != 1}
    return [
        (columns, place) for columns, place in _reductions_along(phases)
        if 0 <= place - number <= 1 and rows.domain == columns.domain
        and wide.intersection(rows.reduced) == wide.intersection(columns.row_axes) and _goes_once(columns)
    ]  # fmt: skip


def _goes_once(nest: Nest) -> bool:
    has_elements = any(value.shape == nest.domain for _, value in nest.outputs)
    return not has_elements and not any(op.code is OpCode.REDUCE for op in toposort([r.src[0] for r in _reductions(nest)]))


def _reductions(nest: Nest) -> list[Op]:
    return [op for op in toposort([value for _, value in nest.outputs]) if op.code is OpCode.REDUCE]


def _added_once(columns: Nest, phase: Sequence[Nest], own: Mapping[Op, Op]) -> list[Op]:
    """Returns the summands of an element for each sum of a nest down columns, at placeholders.

    A summand may read values that the phase of the rows stores for the same row; [] if it reads those of other rows.
    """
    values = elements_anywhere([r.src[0] for r in _reductions(columns)])
    stored = {slot for nest in phase for slot, _ in nest.outputs}
    loads = {op for op in toposort(values) if op.code is OpCode.LOAD and op.src[0].arg[0] in stored}
    return values if loads <= own.keys() else []


def _both(
    walk: Walk, nests: Sequence[Nest], values: list[Op], own: Mapping[Op, Op], scratch: Callable[[DType, Dim], Op]
) -> Both:
    """Returns the walk along rows that adds up the columns of some nests."""
    rows, reductions = walk.rows, [r for nest in nests for r in _reductions(nest)]
    num_blocks = ceildiv(numel(rows.nest.row_shape), walk.block)
    sums = {r: scratch(r.dtype.compute_dtype, mul(num_blocks, numel(r.shape))) for r in reductions}
    read_here = {op: own[op] for op in toposort(values) if op in own}
    return Both(rows, walk.lanes, walk.block, nests[0].row_axes, sums, values, read_here)


def _stored_here(nest: Nest, params: Sequence[Op]) -> dict[Op, Op]:
    """Maps the load of each of the nest's outputs, at the element's own coordinates, to the value stored there."""
    coords = placeholders(nest.domain)
    row = [coords[axis] for axis in nest.row_axes]
    found = {}
    for slot, value in nest.outputs:
        is_of_element = value.shape == nest.domain
        found[read(params[slot], flatten(coords if is_of_element else row, value.shape))] = value
    return found


def _totals(columns: Nest, both: Both) -> Nest:
    """Returns the nest that adds up the partial results of one of the nests down the columns."""
    totals = {}
    for r in _reductions(columns):
        memory = both.sums[r]
        lines = Op(OpCode.PARAM, memory.dtype, (), (memory.arg[0], (both.num_blocks, *r.shape)))
        totals[r] = cast(reduce_axes(lines, r.arg[0], (0,)), r.dtype)
    slots, values = zip(*columns.outputs)
    outputs = tuple(zip(slots, substitute(values, totals)))
    return Nest(NestKind.REDUCE, (both.num_blocks, *columns.row_shape), (0,), None, outputs)


def summands(both: Both, coords: Coords, row: Coords, known: Results) -> list[Op]:
    """Returns the summands of an element, for each sum down its column; values that its row has stored are not read."""
    marks = placeholders(both.rows.nest.domain)
    there: dict[Op, Dim] = {mark: coord for mark, coord in zip(marks, coords) if isinstance(mark, Op)}
    for load, value in both.own.items():
        there[load] = both.rows.value(value, coords if value.shape == both.rows.nest.domain else row, known)
    return put_in_all(both.values, there)
