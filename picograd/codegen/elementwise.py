"""The loops of an elementwise nest: one pass over memory, any number of outputs.

In:    Nest (kind ELEMENTWISE)
Out:   statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/cpu/turned.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from picograd.codegen.axes import group_extents, merge_axes, spread, vector_lanes
from picograd.codegen.builder import Builder
from picograd.codegen.cpu.turned import Turned, emit_tiles, may_be_turned
from picograd.codegen.gpu.turned import emit_turned_gpu, fills_tiles
from picograd.codegen.index import elements_anywhere, elements_within
from picograd.codegen.loops import along, nested, split
from picograd.device import Target
from picograd.ir.coordinates import Coords, flatten, placeholders
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, less, minimum, mul, subtract, to_op

BLOCK_ELEMENTS = 4096  # of one GRID iteration on a CPU: a few microseconds of work, well inside L1


def emit_elementwise(nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes the loops of an elementwise nest.

    CPU:  GRID over blocks of about 4096 elements; inside, vectors and then a scalar tail.
    GPU:  one thread an access of up to 16 bytes, neighbours side by side.
    Either brings what lies across the results tile by tile.
    """
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
    emit_blocks(build, extents, lanes, lambda positions: store(spread(groups, positions, nest.domain)))


@contextmanager
def grid_of_threads(build: Builder, total: Dim, target: Target) -> Iterator[Dim]:
    """Opens a block that runs once for each position < total, a thread each."""
    threads = target.block_threads
    num_blocks = floordiv(add(total, threads - 1), threads)
    with build.loop(num_blocks, AxisKind.GRID) as block, build.loop(threads, AxisKind.BLOCK) as thread:
        position = add(mul(block, threads), thread)
        with build.when(less(position, total)):
            yield position


def emit_blocks(build: Builder, extents: list[Dim], lanes: int, body: Callable[[list[Dim]], None]) -> None:
    """Writes the loops of a CPU over `extents`: GRID over pieces of the outermost axis, vectors along the innermost."""
    if len(extents) <= 1:
        total = extents[0] if extents else 1
        with build.loop(_num_pieces(total, BLOCK_ELEMENTS), AxisKind.GRID) as block:
            start = mul(block, BLOCK_ELEMENTS)
            count = minimum(subtract(total, start), BLOCK_ELEMENTS) if _is_long(total) else total
            along(build, start if _is_long(total) else 0, count, lanes, lambda i: body([i] if extents else []))
        return
    outer, inner, last = extents[0], extents[1:-1], extents[-1]
    below = numel(extents[1:])
    per_piece = max(1, BLOCK_ELEMENTS // max(1, below)) if isinstance(below, int) else 1
    with build.loop(_num_pieces(outer, per_piece), AxisKind.GRID) as piece:
        start = mul(piece, per_piece)
        with build.loop(minimum(subtract(outer, start), per_piece), AxisKind.LOOP) as row:
            nested(build, inner, [add(start, row)], lambda at: along(build, 0, last, lanes, lambda i: body([*at, i])))


def _is_long(total: Dim) -> bool:
    return not isinstance(total, int) or total > 2 * BLOCK_ELEMENTS


def _num_pieces(total: Dim, piece: int) -> Dim:
    if piece == BLOCK_ELEMENTS and not _is_long(total):
        return 1
    return floordiv(add(total, piece - 1), piece)
