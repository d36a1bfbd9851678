"""The loops of an elementwise nest that reads memory across the order it writes in, as a transposed matrix: tile by tile.

In:    Nest (kind ELEMENTWISE), its groups of axes
Out:   `may_be_turned`; `Turned`: what lies across;  `emit_tiles`: the loops of a CPU, in the free form
Called by: codegen/elementwise.py, codegen/gpu/turned.py.    Next: picograd/codegen/gpu/turned.py

A vector of such an operand would take a line of the cache for each of its lanes, and at a distance that is a power of two
all of these fall into a few sets of the cache, which forgets them before their next element is read. So a tile is copied
first, along the order it lies in, to memory that stays in the first-level cache, and is read across from there.

    y[i, j] = x[j, i]      for each 64 of i, for each 64 of j:
                               for j:  t[j, i] = x[j, i]     64 elements side by side
                               for squares of as many i and j as a vector has lanes:  s[i, j] = t[j, i]     in registers
                               for i:  y[i, j] = s[i, j]     64 elements side by side
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from picograd.codegen.axes import Groups, spread
from picograd.codegen.builder import Builder, read
from picograd.codegen.index import elements_within, put_in_all
from picograd.codegen.loops import along, split
from picograd.ir.coordinates import flatten, placeholder
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, affine, floordiv, from_op, minimum, mul, subtract, to_op

FEWEST_ELEMENTS = 1 << 15  # of a domain, below which caches hold all of it
FEWEST = 16  # elements of either group
ACROSS, ALONG = 64, 64  # elements of a tile
GAP = 1  # element between the lines of a copy, so that they lie in different banks of the cache


def may_be_turned(factors: Sequence[Sequence[int] | None], extents: Sequence[Dim]) -> bool:
    """True where an index takes steps of one along another group than the last, and both are long enough."""
    size = numel(tuple(extents))
    if not isinstance(size, int) or size < FEWEST_ELEMENTS or greatest(extents[-1]) < FEWEST:
        return False
    for steps in factors:
        if steps is not None and steps[-1] > 1 and 1 in steps and greatest(extents[steps.index(1)]) >= FEWEST:
            return True
    return False


class Turned:
    """An elementwise nest of which some operands lie across the result.

    across:  the group of axes that some operands lie along; the result lies along the last one
    places:  stand for the position in each group
    loads:   of those operands, at `places`
    stored:  where results go and what they are, at `places`
    """

    def __init__(self, roots: Sequence[Op], groups: Groups, extents: Sequence[Dim], domain: Shape):
        self.extents = extents
        free = len(domain)  # axes of no domain
        self.places = [placeholder(free + i, extent) for i, extent in enumerate(extents)]
        coords = spread(groups, self.places, domain)
        self.stored = [to_op(flatten(coords, domain)), *elements_within(roots, coords)]
        self.across, self.loads = self._turned()

    def _turned(self) -> tuple[int, list[Op]]:
        """Returns the group that most operands lie along which do not lie along the last, and these."""
        found: dict[int, list[Op]] = {}
        for op in toposort(self.stored[1:]):
            if op.code is OpCode.LOAD and len(op.src) == 2 and not _reads(op.src[1]):
                terms, _ = affine(op.src[1])
                steps = [terms.get(place, 0) for place in self.places]
                apart = all(atom in self.places for atom in terms)
                if apart and steps[-1] > 1 and 1 in steps and greatest(self.extents[steps.index(1)]) >= FEWEST:
                    found.setdefault(steps.index(1), []).append(op)
        return max(found.items(), key=lambda item: len(item[1]), default=(-1, []))

    def there(self, before: Sequence[Dim], across: Dim, last: Dim) -> dict[Op, Dim]:
        """Returns the position in each group, where those in the groups before the last are given but for one."""
        where = [*before, last]
        where[self.across] = across
        return dict(zip(self.places, where))

    def write(
        self, nest: Nest, params: Sequence[Op], build: Builder, there: Mapping[Op, Dim], copies: Sequence[Op]
    ) -> None:
        """Writes the results of a position, with copies in place of what the first loads read."""
        where, *values = put_in_all(self.stored, {**there, **dict(zip(self.loads, copies))})
        for (slot, _), value in zip(nest.outputs, values):
            build.store(params[slot], from_op(where), value)


def emit_tiles(turned: Turned, nest: Nest, params: Sequence[Op], build: Builder, lanes: int) -> None:
    """Writes the loops: GRID over what is before the last group; in it, one tile beside the other."""
    *before, length = turned.extents
    before[turned.across] = num_tiles(before[turned.across], ACROSS)
    size = ALONG * ACROSS
    buffers = [build.alloc(load.dtype, size + ALONG * GAP, MemorySpace.SHARED) for load in turned.loads]
    squares = [build.alloc(load.dtype, size, MemorySpace.SHARED) for load in turned.loads] if lanes > 1 else []
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


def num_tiles(extent: Dim, tile: int) -> Dim:
    """Returns how many tiles cover an extent."""
    return floordiv(add(extent, tile - 1), tile)


def _reads(index: Op) -> bool:
    return any(op.code is OpCode.LOAD for op in toposort([index]))
