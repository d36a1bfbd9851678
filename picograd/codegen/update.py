"""The loops of an update: one block of memory is written, the rest stays as it is.

In:    Nest (kind UPDATE), whose anchor is the UPDATE
Out:   statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/passes/tables.py
"""

from __future__ import annotations

from picograd.codegen.axes import group_extents, merge_axes, spread, vector_lanes
from picograd.codegen.builder import Context
from picograd.codegen.index import element_anywhere, element_within
from picograd.codegen.loops import emit_blocks, grid_of_threads, split
from picograd.ir.coordinates import Coords, flatten, placeholders
from picograd.ir.op import Dim
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, to_op


def emit_update(nest: Nest, context: Context) -> None:
    """Writes `memory[block] = value`, for memory that holds the base already."""
    params, target = context.params, context.target
    build = context.phase(0)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    base, value = anchor.src
    memory = params[nest.outputs[0][0]]

    def place(coords: Coords) -> Dim:
        return flatten([add(start, coord) for (start, _), coord in zip(anchor.arg, coords)], base.shape)

    def store(coords: Coords) -> None:
        build.store(memory, place(coords), element_within(value, coords))

    values = [element_anywhere(value), to_op(place(placeholders(value.shape)))]
    groups, _ = merge_axes(value.shape, values)
    extents = group_extents(groups, value.shape)
    if target.is_gpu:
        with grid_of_threads(build, numel(extents), target) as position:
            store(spread(groups, split(position, extents), value.shape))
        return
    lanes = vector_lanes(values, target)
    emit_blocks(build, extents, lanes, lambda positions: store(spread(groups, positions, value.shape)))
