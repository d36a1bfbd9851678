"""The loops of an elementwise nest on a CPU that reads memory across the order it writes in: tile by tile.

In:    Nest (kind ELEMENTWISE), what of it lies across (codegen/turned.py)
Out:   statements in the free form
Called by: codegen/elementwise.py.    Next: picograd/codegen/gpu/turned.py

A vector of such an operand would take a line of the cache for each of its lanes, and at a distance that is a power of two
all of these fall into a few sets of the cache, which forgets them before their next element is read. So a tile is copied
first, along the order it lies in, to memory that stays in the first-level cache, and is read across from there.

    y[i, j] = x[j, i]      for each 64 of i, for each 64 of j:
                               for j:  t[j, i] = x[j, i]     64 elements side by side
                               for squares of as many i and j as a vector has lanes:  s[i, j] = t[j, i]     in registers
                               for i:  y[i, j] = s[i, j]     64 elements side by side
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from picograd.codegen.builder import Builder, read
from picograd.codegen.index import put_in_all
from picograd.codegen.loops import along, split
from picograd.codegen.turned import Turned, num_tiles
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, minimum, mul, subtract

ACROSS, ALONG = 64, 64  # elements of a tile
GAP = 1  # element between the lines of a copy, so that they lie in different banks of the cache


def emit_tiles(turned: Turned, nest: Nest, params: Sequence[Op], build: Builder, lanes: int) -> None:
    """Writes the loops: GRID over what is before the last group; in it, one tile beside the other."""
    *before, length = turned.extents
    before[turned.across] = num_tiles(before[turned.across], ACROSS)
    of_tile = ALONG * ACROSS
    buffers = [build.alloc(load.dtype, of_tile + ALONG * GAP, MemorySpace.SHARED) for load in turned.loads]
    squares = [build.alloc(load.dtype, of_tile, MemorySpace.SHARED) for load in turned.loads] if lanes > 1 else []
    with build.loop(numel(tuple(before)), AxisKind.GRID) as position:
        at = split(position, before)
        first = mul(at[turned.across], ACROSS)
        height = minimum(subtract(turned.extents[turned.across], first), ACROSS)
        with build.loop(num_tiles(length, ALONG), AxisKind.LOOP) as tile:
            start = mul(tile, ALONG)
            width = minimum(subtract(length, start), ALONG)

            def copy(i: Dim, j: Dim) -> None:
                there = turned.there(at, add(first, i), add(start, j))
                for buffer, value in zip(buffers, put_in_all(turned.loads, there)):
                    build.store(buffer, _place(i, j), value)

            def store(i: Dim, j: Dim) -> None:
                across = [read(square, add(mul(i, ALONG), j)) for square in squares]
                copies = across or [read(buffer, _place(i, j)) for buffer in buffers]
                turned.write(nest, params, build, turned.there(at, add(first, i), add(start, j)), copies)

            with build.loop(width, AxisKind.LOOP) as j:
                along(build, 0, height, lanes, partial(copy, j=j))
            for buffer, square in zip(buffers, squares):  # all of it, also what no result is made of
                with (
                    build.loop(ACROSS // lanes, AxisKind.LOOP) as row,
                    build.loop(ALONG // lanes, AxisKind.LOOP) as column,
                ):
                    top, left = mul(row, lanes), mul(column, lanes)
                    place = add(mul(top, ALONG), left)
                    build.transpose(square, place, ALONG, buffer, _place(top, left), ACROSS + GAP, lanes)
            with build.loop(height, AxisKind.LOOP) as i:
                along(build, 0, width, lanes, partial(store, i))


def _place(i: Dim, j: Dim) -> Dim:
    """Returns where a copy has the element i across and j along."""
    return add(mul(j, ACROSS + GAP), i)
