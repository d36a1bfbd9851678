"""The loops of a scatter: a copy of the base, then the updates in their order.

In:    Nest (kind SCATTER), whose anchor is the SCATTER
Out:   two phases of statements in the free form: copy, update
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/scatter.py

Updates of one element follow each other in one thread, so a sum has the same bits on every run. On a GPU that is a thread a
column: for few updates, many rows of indices, and lengths known only when it runs. All else is codegen/gpu/scatter.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Builder, Context
from picograd.codegen.index import element_within
from picograd.codegen.loops import along, emit_blocks, grid_of_threads, nested, split
from picograd.codegen.scalar import combined
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, floordiv, from_op, less, minimum, mul, subtract

PIECE = 1024  # elements of the axes right of the scattered one in one GRID iteration


def emit_scatter(nest: Nest, context: Context) -> None:
    """Writes `out = base` in phase `copy` and `out[..., index, ...] op= updates` in phase `build`."""
    params, target = context.params, context.target
    copy, build = context.phase(0), context.phase(1)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    base, _, updates = anchor.src
    _, axis, _ = anchor.arg
    shape, out = base.shape, params[nest.outputs[0][0]]
    left, right = shape[:axis], shape[axis + 1 :]
    num_index = len(updates.shape) - len(left) - len(right)
    total = numel(shape)

    def put_base(position: Dim) -> None:
        build_at = split(position, list(shape))
        copy.store(out, flatten(build_at, shape), element_within(base, tuple(build_at)))

    def update(at: Sequence[Dim], index_at: Sequence[Dim], column: Dim) -> None:
        _update(anchor, out, at, index_at, split(column, list(right)), build)

    index_shape = list(updates.shape[len(left) : len(left) + num_index])
    if target.is_gpu:
        with grid_of_threads(copy, total, target) as position:
            put_base(position)
        with grid_of_threads(build, numel((*left, *right)), target) as position:
            *at, column = split(position, [*left, numel(right)])
            nested(build, index_shape, [], lambda index_at: update(at, index_at, column))
        return
    lanes = vector_lanes([updates], target)
    emit_blocks(copy, [total], lanes, lambda positions: put_base(positions[0]))
    columns = numel(right)
    pieces = floordiv(add(columns, PIECE - 1), PIECE)
    with build.loop(numel((*left, pieces)), AxisKind.GRID) as position:
        *at, piece = split(position, [*left, pieces])
        start = mul(piece, PIECE)
        count = minimum(subtract(columns, start), PIECE)

        def row(index_at: list[Dim]) -> None:
            along(build, start, count, lanes, lambda column: update(at, index_at, column))

        nested(build, index_shape, [], row)


def _update(
    anchor: Op, out: Op, at: Sequence[Dim], index_at: Sequence[Dim], right_at: Sequence[Dim], build: Builder
) -> None:
    """Writes one update, where its index is inside the base."""
    base, index, updates = anchor.src
    code, axis, batch = anchor.arg
    where = from_op(cast(element_within(index, (*at[:batch], *index_at)), dtypes.int64))
    with build.when(both(less(-1, where), less(where, base.shape[axis]))):
        place = flatten((*at, where, *right_at), base.shape)
        value = element_within(updates, (*at, *index_at, *right_at))
        if code is not None:
            value = combined(code, build.load(out, place), value)
        build.store(out, place, value)
