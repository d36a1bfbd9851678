"""How a reduce nest is walked: which axes make a row, which a column, and on which side lanes run.

In:    Nest (kind REDUCE)
Out:   `Rows`; `plan_rows`; `element_stores`, `row_stores`; what accumulators are of and start from
Called by: the emitters of reductions.    Next: picograd/codegen/runs.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.codegen.axes import Groups, group_extents, index_roots, merge_axes, spread
from picograd.codegen.builder import Builder
from picograd.codegen.index import element_within, elements, put_in_all
from picograd.codegen.scalar import combined
from picograd.codegen.tile import multiply_add
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.arithmetic import identity
from picograd.ir.coordinates import Coords, flatten, placeholder, placeholders
from picograd.ir.op import Dim, Op, const, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import affine, to_op
from picograd.record import Record

PIECE_ELEMENTS = 8192  # of one GRID iteration on a CPU
UNROLLED = 16  # elements of a row that is written out where lanes are rows, and added up in one run
MOST_TERMS = 8  # of an element that are added to a sum one by one

Results = dict[Op, Op]  # reductions that are done, with their values
Where = tuple[Op, Dim, Op]  # memory, index, value


class Rows(Record):
    """How a nest is walked.

    groups:      loops in the order of the domain's axes, from `merge_axes`
    row_groups, column_groups: positions in `groups`
    levels:      reductions by how many other reductions stand below them
    has_fma:     an instruction multiplies and adds
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

    def element_values(self, coords: Coords) -> list[Op]:
        """Returns all that is computed for an element, as if every reduction were 0."""
        levels = [r for level in self.levels for r in level]
        known = {r: const(0, r.dtype) for r in levels}
        outputs = [value for _, value in self.nest.outputs if value.shape == self.nest.domain]
        return [self.value(value, coords, known) for value in [*outputs, *(r.src[0] for r in levels)]]

    def accumulated(self, r: Op, total: Op | None, value: Op) -> Op:
        """Returns what a reduction makes of one more element, or of the first one.

        A product, or several, is added with one rounding each.
        """
        code, terms = r.arg[0], _terms(value)
        if code is not OpCode.ADD or any(term.code is not OpCode.MUL for term in terms):
            return value if total is None else combined(code, total, value)
        for term in terms:
            total = term if total is None else multiply_add(term.src[0], term.src[1], total, self.has_fma)
        return total or value

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


def _terms(value: Op) -> list[Op]:
    """Returns the terms of a sum, from left to right; of one with a great many itself."""
    terms, stack = [], [value]
    while stack:
        term = stack.pop()
        if term.code is OpCode.ADD:
            stack += term.src[::-1]
        else:
            terms.append(term)
        if len(terms) + len(stack) > MOST_TERMS:  # shared ones count as often as they are read: 2^60, maybe
            return [value]
    return terms


def accumulator_dtype(op: Op) -> DType:
    """The dtype a reduction adds in: float32 for the narrower floats."""
    return op.dtype.compute_dtype


def is_rounded_sum(op: Op) -> bool:
    """True for a reduction whose additions lose bits: a long chain of them is cut in runs (codegen/runs.py)."""
    return op.arg[0] is OpCode.ADD and op.dtype.is_float


def running_dtype(scan: Op) -> DType:
    """The dtype of a scan's running value: float64 for floats, whose rounding errors pile up along the axis."""
    return dtypes.float64 if scan.dtype.is_float else scan.dtype


def start_of(code: OpCode, dtype: DType) -> Op:
    """Returns what an accumulator starts from."""
    return const(identity(code, dtype), dtype)


def plan_rows(nest: Nest, params: Sequence[Op], target: Target, beside: Sequence[Op] = ()) -> tuple[Rows, bool]:
    """Returns how to walk a nest, and whether lanes should run over rows rather than along them.

    Args:
      beside: other values of its elements that are computed meanwhile
    """
    reductions = [op for op in toposort([v for _, v in nest.outputs]) if op.code is OpCode.REDUCE]
    coords = placeholders(nest.domain)
    row = tuple([coords[axis] for axis in nest.row_axes])
    known = {r: (row, const(0, r.dtype)) for r in reductions}
    whole = [value for _, value in nest.outputs if value.shape == nest.domain]
    of_rows = [value for _, value in nest.outputs if value.shape != nest.domain]
    values = elements([*(r.src[0] for r in reductions), *whole, *beside], coords, known) + elements(of_rows, row, known)
    stored = ((whole, coords, nest.domain), (of_rows, row, nest.row_shape))
    values += [to_op(flatten(at, shape)) for outputs, at, shape in stored if outputs]
    groups, _ = merge_axes(nest.domain, values, frozenset(nest.reduced))
    columns = [g for g, group in enumerate(groups) if group[0] in nest.reduced]
    row_groups = [g for g, group in enumerate(groups) if group[0] not in nest.reduced]
    extents = group_extents(groups, nest.domain)
    rows = Rows(nest, params, groups, extents, row_groups, columns, _levels(reductions), target.has_fma)
    return rows, _runs_over_rows(rows, values)


def _runs_over_rows(rows: Rows, values: Sequence[Op]) -> bool:
    """True where more indices step by one from row to row than along a row.

    Axis 0 may be a batch, whose rows add up in the same order alone or together. So indices are counted as those of one
    row of it; and rows that are numbered by it alone are beside each other only where their elements are. What is divided
    is not counted: of one row it may be simpler.
    """
    if not rows.row_groups:
        return False
    if not rows.column_groups:
        return True
    nest, groups = rows.nest, rows.groups
    places = [placeholder(axis, extent) for axis, extent in enumerate(nest.domain)]
    last, along = groups[rows.row_groups[-1]][-1], places[groups[rows.column_groups[-1]][-1]]
    indices = index_roots(put_in_all(values, {places[0]: 0}) if last and 0 in nest.row_axes else values)
    steps = _walks(indices)
    across = [terms for terms in steps if terms.get(places[last]) == 1]
    if last == 0 and not any(terms.get(along) for terms in across):
        return False
    return len(across) > sum(terms.get(along) == 1 for terms in steps)


def _walks(indices: Sequence[Op]) -> list[dict[Op, int]]:
    """Returns by how much each index steps from place to place; indices that differ in where they begin alone are one.

    A row that is read as a view begins elsewhere than one that stands alone, at a number or at one that is an input.
    """
    found: dict[frozenset[tuple[Op, int]], dict[Op, int]] = {}
    for terms, _ in map(affine, indices):
        moving = {atom: step for atom, step in terms.items() if any(op.code is OpCode.RANGE for op in toposort([atom]))}
        if all(atom.code is OpCode.RANGE for atom in moving):
            found.setdefault(frozenset(moving.items()), moving)
    return list(found.values())


def _levels(reductions: list[Op]) -> list[list[Op]]:
    level: dict[Op, int] = {}
    for op in toposort(reductions):
        below = max((level[s] for s in op.src), default=0)
        level[op] = below + (op.code is OpCode.REDUCE)
    found = sorted({level[r] for r in reductions})
    return [[r for r in reductions if level[r] == n] for n in found]


def is_short(rows: Rows, limit: int) -> bool:
    """True for rows of no more than so many elements, whatever their length is."""
    return greatest(numel(rows.column_extents)) <= limit


def element_stores(rows: Rows, at: Sequence[Dim], columns: Sequence[Dim], results: Results) -> list[Where]:
    """Returns what is computed for an element of a row, and where it goes."""
    coords = rows.coords(at, columns)
    found = [(slot, value) for slot, value in rows.nest.outputs if value.shape == rows.nest.domain]
    index = flatten(coords, rows.nest.domain)
    return [(rows.params[slot], index, rows.value(value, coords, results)) for slot, value in found]


def row_stores(rows: Rows, here: Coords, results: Results) -> list[Where]:
    """Returns what is computed for a row, and where it goes."""
    found = [(slot, value) for slot, value in rows.nest.outputs if value.shape != rows.nest.domain]
    index = flatten(here, rows.nest.row_shape)
    return [(rows.params[slot], index, rows.value(value, here, results)) for slot, value in found]


def write_stores(build: Builder, stores: Sequence[Where]) -> None:
    """Writes values to their places."""
    for memory, index, value in stores:
        build.store(memory, index, value)


def has_elements(rows: Rows) -> bool:
    """True where something is computed for each element of a row."""
    return any(value.shape == rows.nest.domain for _, value in rows.nest.outputs)
