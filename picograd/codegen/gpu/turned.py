"""The loops of an elementwise nest on a GPU that reads memory across the order it writes in: tiles in shared memory.

In:    Nest (kind ELEMENTWISE), what of it lies across (codegen/turned.py)
Out:   statements in the free form
Called by: codegen/elementwise.py.    Next: picograd/codegen/cpu/reduce.py

Neighbouring threads that read such an operand where they write would touch a line of memory each. So a block brings a tile
of it with neighbours along the order it lies in, and reads that across: each access to memory is of elements side by side.

    y[i, j] = x[j, i] + b[j]     a block, of 32 i and 32 j:
                                     thread (i, j):   t[j, i] = x[j, i]           neighbours along i
                                     barrier
                                     thread (j, i):   y[i, j] = t[j, i] + b[j]    neighbours along j
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder
from picograd.codegen.index import put_in_all
from picograd.codegen.loops import split
from picograd.codegen.turned import Turned, num_tiles
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.ir.op import Dim, Op, greatest
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul

TILE = 32  # elements either way, and threads side by side
LINE = TILE + 1  # elements of shared memory, so that what stands below each other lies in different banks
MOST = DECLARED_SHARED_BYTES // (TILE * LINE * 8)  # operands that are brought


def fills_tiles(turned: Turned) -> bool:
    """True where something lies across and tiles are not mostly empty: the elements of short lines are in caches anyway."""
    return bool(turned.loads) and all(greatest(turned.extents[group]) >= TILE for group in (turned.across, -1))


def emit_turned_gpu(turned: Turned, nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes the grid: a block a tile."""
    *before, length = turned.extents
    across, loads, high = before[turned.across], turned.loads[:MOST], target.block_threads // TILE
    before[turned.across] = num_tiles(across, TILE)
    grid = [*before, num_tiles(length, TILE)]
    with build.loop(numel(tuple(grid)), AxisKind.GRID) as block:
        *at, tile = split(block, grid)
        top, left = mul(at[turned.across], TILE), mul(tile, TILE)
        copies = [build.alloc(load.dtype, TILE * LINE, MemorySpace.SHARED) for load in loads]
        with build.loop(target.block_threads, AxisKind.BLOCK) as thread:
            side, line = mod(thread, TILE), floordiv(thread, TILE)

            def each_line(body: Callable[[Dim], None]) -> None:
                with build.loop(TILE // high, AxisKind.LOOP) as step:
                    body(add(mul(step, high), line))

            def bring(j: Dim) -> None:
                i, last = add(top, side), add(left, j)
                with build.when(both(less(i, across), less(last, length))):
                    for copy, value in zip(copies, put_in_all(loads, turned.there(at, i, last))):
                        build.store(copy, add(mul(j, LINE), side), value)

            def leave(i: Dim) -> None:
                place, last = add(top, i), add(left, side)
                with build.when(both(less(place, across), less(last, length))):
                    brought = [build.load(copy, add(mul(side, LINE), i)) for copy in copies]
                    turned.write(nest, params, build, turned.there(at, place, last), brought)

            each_line(bring)
            build.barrier()
            each_line(leave)
