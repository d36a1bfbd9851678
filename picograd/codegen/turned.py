"""What an elementwise nest reads across the order it writes in, as a transposed matrix.

In:    Nest (kind ELEMENTWISE), its groups of axes
Out:   `may_be_turned`; `Turned`: what lies across
Called by: codegen/elementwise.py, codegen/cpu/turned.py, codegen/gpu/turned.py.    Next: picograd/codegen/cpu/turned.py

Elements that follow each other in the result lie far apart in such an operand: each is in a line of memory of its own. A
CPU and a GPU both bring it tile by tile, along the order it lies in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from picograd.codegen.axes import Groups, spread
from picograd.codegen.builder import Builder
from picograd.codegen.index import elements_within, put_in_all
from picograd.ir.coordinates import flatten, placeholder
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, affine, floordiv, from_op, to_op

FEWEST_ELEMENTS = 1 << 15  # of a domain, below which caches hold all of it
FEWEST = 16  # elements of either group


def may_be_turned(factors: Sequence[Sequence[Dim] | None], extents: Sequence[Dim]) -> bool:
    """True where an index takes steps of one along another group than the last, and both are long enough."""
    count = numel(tuple(extents))
    if not isinstance(count, int) or count < FEWEST_ELEMENTS or greatest(extents[-1]) < FEWEST:
        return False
    for steps in factors:
        if steps is not None and steps[-1] not in (0, 1) and 1 in steps and greatest(extents[steps.index(1)]) >= FEWEST:
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


def num_tiles(extent: Dim, tile: int) -> Dim:
    """Returns how many tiles cover an extent."""
    return floordiv(add(extent, tile - 1), tile)


def _reads(index: Op) -> bool:
    return any(op.code is OpCode.LOAD for op in toposort([index]))
