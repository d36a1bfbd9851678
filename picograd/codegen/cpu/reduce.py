"""The loops of a reduce nest on a CPU: all reductions that share rows, and what is computed from them, row by row.

In:    Nest (kind REDUCE)
Out:   statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/rows.py

Threads take pieces of the rows. Elements of several long rows that share a weight are written together, and rows that
share a vector are added up together. The order in which a float sum adds depends on shapes alone.
"""

from __future__ import annotations

from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Context
from picograd.codegen.cpu.reduce_columns import emit_columns
from picograd.codegen.row_loops import (
    MOST_AT_ONCE,
    emit_rows,
    emit_together,
    is_cached,
    rows_at_once,
    some_rows,
    worth_keeping,
)
from picograd.codegen.rows import PIECE_ELEMENTS, UNROLLED, Rows, has_elements, is_short, plan_rows
from picograd.device import Target
from picograd.ir.coordinates import placeholders
from picograd.ir.op import Dim, const, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

FEWEST_ROWS = 32  # of which some go together: pieces for several threads


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
    together = _rows_together(rows, target)
    at_once = together or (rows_at_once(rows, values) if _share_elements(rows) and not any(kept) else 1)
    per_piece += -per_piece % at_once

    def write(first: Dim, count: int) -> None:
        if together:
            emit_together(rows, first, count, build, lanes)
        else:
            emit_rows(rows, first, count, build, lanes, kept)

    with build.loop(floordiv(add(total, per_piece - 1), per_piece), AxisKind.GRID) as piece:
        start = mul(piece, per_piece)
        count = minimum(subtract(total, start), per_piece)
        some_rows(count, at_once, build, lambda n, number: write(add(start, n), number))


def _is_narrow(rows: Rows, lanes: int) -> bool:
    """Whether rows are so short that each is better one lane of many than a loop of its own."""
    last = rows.column_extents[-1:]
    fills_no_vector = all(isinstance(extent, int) and extent < lanes for extent in last) and is_short(rows, UNROLLED)
    return fills_no_vector and bool(rows.row_groups) and not has_elements(rows)


def _share_elements(rows: Rows) -> bool:
    """Whether elements read what is the same for all rows, such as a weight, and rows are long, and enough for pieces."""
    total = numel(rows.row_extents)
    if is_cached(rows) or not has_elements(rows) or not isinstance(total, int) or total < FEWEST_ROWS:
        return False
    domain = rows.nest.domain
    values = [value for _, value in rows.nest.outputs if value.shape == domain]
    coords = placeholders(domain)
    results = {r: const(0, r.dtype) for level in rows.levels for r in level}
    row = {coords[axis] for axis in rows.nest.row_axes}
    loads = [op for op in toposort([rows.value(v, coords, results) for v in values]) if op.code is OpCode.LOAD]
    return any(row.isdisjoint(index := toposort([op.src[1]])) and not set(coords).isdisjoint(index) for op in loads)


def _rows_together(rows: Rows, target: Target) -> int:
    """Returns how many rows are added up side by side, as where all are multiplied with one vector; 0 for none.

    What they share is read once for all, and the processor has several lines of memory to wait for.
    """
    total = numel(rows.row_extents)
    if len(rows.levels) != 1 or has_elements(rows) or len(rows.row_groups) != 1:
        return 0
    if not isinstance(total, int) or total < FEWEST_ROWS:
        return 0
    coords = placeholders(rows.nest.domain)
    row = {coords[axis] for axis in rows.groups[rows.row_groups[0]]}
    values = rows.element_values(coords)
    indices = [set(toposort([op.src[1]])) for op in toposort(values) if op.code is OpCode.LOAD]
    shared = [index for index in indices if index.isdisjoint(row) and not index.isdisjoint(coords)]
    return MOST_AT_ONCE // (1 if target.num_registers >= 32 else 2) if 0 < len(shared) < len(indices) else 0
