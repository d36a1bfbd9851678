"""The loops of an elementwise nest: one pass over memory, any number of outputs.

In:    Nest (kind ELEMENTWISE)
Out:   statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/turned.py
"""

from __future__ import annotations

from picograd.codegen.axes import group_extents, merge_axes, rest_in_vectors, spread, vector_lanes
from picograd.codegen.builder import Context
from picograd.codegen.cpu.turned import emit_tiles
from picograd.codegen.gpu.turned import emit_turned_gpu, fills_tiles
from picograd.codegen.index import elements_anywhere, elements_within
from picograd.codegen.loops import emit_blocks, grid_of_threads, split
from picograd.codegen.turned import Turned, may_be_turned
from picograd.ir.coordinates import Coords, flatten, placeholders
from picograd.ir.op import toposort
from picograd.ir.opcode import AxisKind
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, mul, to_op


def emit_elementwise(nest: Nest, context: Context) -> None:
    """Writes the loops of an elementwise nest.

    CPU:  GRID over blocks of about 4096 elements; inside, vectors and then a scalar tail.
    GPU:  one thread an access of up to 16 bytes, neighbours side by side.
    Either brings what lies across the results tile by tile.
    """
    params, target = context.params, context.target
    build = context.phase(0)
    slots, roots = [slot for slot, _ in nest.outputs], [value for _, value in nest.outputs]

    def store(coords: Coords) -> None:
        for slot, value in zip(slots, elements_within(roots, coords)):
            build.store(params[slot], flatten(coords, nest.domain), value)

    values = [*elements_anywhere(roots), to_op(flatten(placeholders(nest.domain), nest.domain))]
    groups, factors = merge_axes(nest.domain, values)
    extents = group_extents(groups, nest.domain)
    lanes = vector_lanes(values, target)
    if (lanes > 1 or target.is_gpu) and may_be_turned(factors, extents):
        turned = Turned(roots, groups, extents, nest.domain)
        if target.is_gpu and fills_tiles(turned):
            emit_turned_gpu(turned, nest, params, build, target)
            return
        if turned.loads and not target.is_gpu:
            emit_tiles(turned, nest, params, build, lanes)
            return
    if target.is_gpu:
        *outer, last = extents or [1]
        lanes = lanes if isinstance(last, int) and last % lanes == 0 else 1
        accesses = [*outer, floordiv(last, lanes)]
        with grid_of_threads(build, numel(accesses), target) as position:
            *at, access = split(position, accesses)
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                store(spread(groups, [*at, add(mul(access, lanes), lane)] if extents else [], nest.domain))
        return
    rest = rest_in_vectors(lambda: toposort(roots), extents[-1], lanes) if len(extents) > 1 else 0
    emit_blocks(build, extents, lanes, lambda positions: store(spread(groups, positions, nest.domain)), rest)
