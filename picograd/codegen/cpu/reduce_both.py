"""The loops of two reduce nests over the same data, along its rows and down its columns: one pass over memory.

In:    the phases of a Kernel: a reduce nest whose rows are the columns of another, in its phase or the next
Out:   `in_one_pass`: the phases with partial sums in place of the other;  statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/reduce.py

The backward pass of a layer norm reduces rows for the gradient of x, and columns for those of weight and bias. A block of
rows adds up its own columns while they are in the cache, in a line of scratch memory, run by run (codegen/runs.py); a nest
in the other's place adds up the lines. Blocks depend on shapes alone, so sums have the same bits for any number of threads.

Example:  phase 1: reduce (4096, 4096) over 1        phase 1: the same, and sums of 64 rows each, into scratch (64, 4096)
          phase 2: reduce (4096, 4096) over 0   ->   phase 2: reduce (64, 4096) over 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.index import elements_anywhere, put_in_all
from picograd.codegen.loops import along
from picograd.codegen.row_loops import MOST_AT_ONCE, emit_rows, rows_at_once, worth_keeping
from picograd.codegen.rows import (
    PIECE_ELEMENTS,
    Results,
    Rows,
    accumulator_dtype,
    is_rounded_sum,
    plan_rows,
    start_of,
)
from picograd.codegen.runs import in_runs
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.ir.bodies import substitute
from picograd.ir.build import cast, reduce
from picograd.ir.coordinates import Coords, flatten, placeholders
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest, NestKind
from picograd.ir.symbolic import add, bounds, floordiv, minimum, mul, subtract
from picograd.record import Record

Phases = tuple[tuple[Nest, ...], ...]

FEW_ELEMENTS = 1 << 15  # of a domain: no time to be saved
FEWEST_ROWS = 32  # of a block: its partial sums are little beside them; and of a run, whose sums are added to others
MOST_BLOCKS = 64
MOST_WIDE = 1 << 14  # elements of a row: runs of wider ones would fill the stack, so a block is one run
FEWEST_BLOCKS = 8  # for as many threads, where there were as many before


class Both(Record):
    """A reduce nest along rows, and what is added up down the columns meanwhile.

    rows:      how it is walked;  lanes: of a vector
    block:     rows whose columns are added up in one line
    columns:   the axes of the domain that number the columns
    sums:      a reduction down the columns -> memory with a line of its partial results for each block
    values:    of each of these reductions what an element adds, at placeholders of the domain
    own:       LOADs in `values` that name what the nest itself stores there -> that value
    """

    rows: Rows
    lanes: int
    block: int
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
        return floordiv(add(numel(self.rows.row_extents), self.block - 1), self.block)


# ---- which nests go together ----
def in_one_pass(phases: Phases, params: Sequence[Op], target: Target, scratch: Scratch) -> tuple[Phases, dict[Nest, Both]]:
    """Finds nests along rows and down the columns of the same data.

    Returns: the phases, in which nests down columns only add up partial results; and for nests along rows what is added up
             beside them.
    """
    found: dict[Nest, Both] = {}
    if target.is_gpu:
        return phases, found
    made = [list(part) for nests in phases for part in (nests, ())]  # what is added up in a phase is whole behind it
    for rows, number, columns, place in _crossed(phases):
        if rows not in made[2 * number] or columns not in made[2 * place] or not found.keys().isdisjoint((rows, columns)):
            continue  # one of them is in another pair
        stored = {slot for nest in phases[number] for slot, _ in nest.outputs}
        both = _joined(rows, columns, stored, params, target, scratch)
        if both is not None:
            found[rows] = both
            made[2 * place].remove(columns)
            made[2 * place + (place == number)].append(_totals(columns, both))
    return tuple([tuple(nests) for nests in made if nests]), found


def _crossed(phases: Phases) -> Iterator[tuple[Nest, int, Nest, int]]:
    """Yields two reduce nests and their phases: the rows of the first, cut into blocks, are the columns of the second."""
    reductions = [(nest, number) for number, nests in enumerate(phases) for nest in nests if nest.kind is NestKind.REDUCE]
    for rows, number in reductions:
        wide = {axis for axis, dim in enumerate(rows.domain) if dim != 1}
        for columns, place in reductions:
            crossed = wide.intersection(rows.reduced) == wide.intersection(columns.row_axes)
            if crossed and rows.domain == columns.domain and 0 <= place - number <= 1 and _rows_of_block(rows):
                yield rows, number, columns, place


def _reductions(nest: Nest) -> list[Op]:
    return [op for op in toposort([value for _, value in nest.outputs]) if op.code is OpCode.REDUCE]


def _joined(
    nest: Nest, columns: Nest, stored: set[int], params: Sequence[Op], target: Target, scratch: Scratch
) -> Both | None:  # fmt: skip
    """Returns how a nest along rows adds up columns, or None where it cannot.

    Args:
      stored: slots that the phase of `nest` writes: of these an element may only read what its own row has just stored
    """
    reductions = _reductions(columns)
    sources = [r.src[0] for r in reductions]
    has_elements = any(value.shape == columns.domain for _, value in columns.outputs)
    if has_elements or any(op.code is OpCode.REDUCE for op in toposort(sources)):
        return None  # it goes over its columns more than once
    values = elements_anywhere(sources)
    own = _stored_here(nest, params)
    loads = {op for op in toposort(values) if op.code is OpCode.LOAD and op.src[0].arg[0] in stored}
    rows, lanes_on_rows = plan_rows(nest, params, target, sources)
    lanes = vector_lanes([value for _, value in nest.outputs], target)
    runs_along_rows = not lanes_on_rows and not plan_rows(nest, params, target)[1]
    if not runs_along_rows or not loads <= own.keys() or vector_lanes(sources, target) < lanes:
        return None  # a row is added up as it is where there are fewer, and nothing goes together
    block = _rows_of_block(nest)
    num_blocks = floordiv(add(numel(nest.row_shape), block - 1), block)
    sums = {r: scratch(accumulator_dtype(r), mul(num_blocks, numel(r.shape))) for r in reductions}
    return Both(rows, lanes, block, columns.row_axes, sums, values, {load: own[load] for load in loads})


def _stored_here(nest: Nest, params: Sequence[Op]) -> dict[Op, Op]:
    """Returns what an element reads where it reads what a nest stores for it or for its row, with the value stored."""
    coords = placeholders(nest.domain)
    row = [coords[axis] for axis in nest.row_axes]
    found = {}
    for slot, value in nest.outputs:
        is_of_element = value.shape == nest.domain
        found[read(params[slot], flatten(coords if is_of_element else row, value.shape))] = value
    return found


def _rows_of_block(nest: Nest) -> int:
    """Returns how many rows add up their columns together: 0 where rows are too few for that, or of a symbolic length.

    Where their number is symbolic, it has to be as many for the least and for the greatest.
    """
    if not all(isinstance(nest.domain[axis], int) for axis in nest.reduced):
        return 0
    least, greatest = (_rows_of(*counts) for counts in zip(bounds(numel(nest.row_shape)), bounds(numel(nest.domain))))
    return least if least == greatest else 0


def _rows_of(total: int, domain: int) -> int:
    if domain < FEW_ELEMENTS:
        return 0
    of_piece = max(1, PIECE_ELEMENTS * total // domain)  # of a nest alone
    block = max(FEWEST_ROWS, of_piece, -(-total // MOST_BLOCKS)) if domain <= total * MOST_WIDE else FEWEST_ROWS
    block += -block % MOST_AT_ONCE
    return block if -(-total // block) >= max(2, min(FEWEST_BLOCKS, -(-total // of_piece))) else 0


def _totals(columns: Nest, both: Both) -> Nest:
    """Returns the nest that adds up the partial results."""
    totals = {}
    for r, memory in both.sums.items():
        lines = Op(OpCode.PARAM, memory.dtype, (), (memory.arg[0], (both.num_blocks, *r.shape)))
        totals[r] = cast(reduce(lines, r.arg[0], (0,)), r.dtype)
    slots, values = zip(*columns.outputs)
    outputs = tuple(zip(slots, substitute(values, totals)))
    return Nest(NestKind.REDUCE, (both.num_blocks, *columns.row_shape), (0,), None, outputs)


# ---- their loops ----
def emit_reduce_both(both: Both, build: Builder) -> None:
    """Writes the loops: GRID over blocks of rows, some rows at a time, whose columns are added up in runs."""
    rows, kept = both.rows, worth_keeping(both.rows)
    elements = [value for _, value in rows.nest.outputs if value.shape == rows.nest.domain]
    at_once = 1 if any(kept) else rows_at_once(rows, [*elements, *(r.src[0] for r in both.sums)])
    width = int(both.width)
    with build.loop(both.num_blocks, AxisKind.GRID) as number:
        start = mul(number, both.block)
        count = minimum(subtract(numel(rows.row_extents), start), both.block)

        def write(line: Line, n: Dim, count: int) -> None:
            emit_rows(rows, add(start, n), count, build, both.lanes, kept, partial(_add_up, both, line, build))

        def fresh() -> Line:
            return cleared(Line({r: build.alloc(m.dtype, width, MemorySpace.SHARED) for r, m in both.sums.items()}, 0))

        def cleared(line: Line) -> Line:
            line.put(both, build, lambda r, _: start_of(r.arg[0], line.memories[r].dtype))
            return line

        def join(part: Line, total: Line) -> None:
            total.put(both, build, lambda r, at: combined(r.arg[0], total.load(build, r, at), part.load(build, r, at)))

        total = cleared(Line(both.sums, mul(number, width)))
        run = FEWEST_ROWS // at_once if any(map(is_rounded_sum, both.sums)) else 0
        together = floordiv(count, at_once)
        in_runs(build, [together], total, fresh, join, lambda line, at: write(line, mul(at[0], at_once), at_once), run)
        done = mul(together, at_once)
        with build.loop(subtract(count, done), AxisKind.LOOP) as index:
            write(total, add(done, index), 1)


class Line(Record):
    """Sums of each column over some rows.

    memories:  reduction -> where they are
    first:     place of that of the first column
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


def _add_up(both: Both, line: Line, build: Builder, columns: list[Dim], here: list[tuple[list[Dim], Results]]) -> None:
    """Adds one element of each of some rows to sums: in the order the rows stand in."""
    rows = both.rows
    coords, shape = rows.coords(here[0][0], columns), tuple([rows.nest.domain[axis] for axis in both.columns])
    column = flatten([coords[axis] for axis in both.columns], shape)
    found = {r: line.load(build, r, column) for r in line.memories}
    for at, known in here:
        for r, value in zip(found, _values_at(both, rows.coords(at, columns), rows.row_coords(at), known)):
            found[r] = rows.accumulated(r, found[r], cast(value, found[r].dtype))
    for r, memory in line.memories.items():
        build.store(memory, add(line.first, column), found[r])


def _values_at(both: Both, coords: Coords, row: Coords, known: Results) -> list[Op]:
    """Returns what an element adds to each sum; what its row has stored is not read again."""
    marks = placeholders(both.rows.nest.domain)
    there: dict[Op, Dim] = {mark: coord for mark, coord in zip(marks, coords) if isinstance(mark, Op)}
    for load, value in both.own.items():
        there[load] = both.rows.value(value, coords if value.shape == both.rows.nest.domain else row, known)
    return put_in_all(both.values, there)
