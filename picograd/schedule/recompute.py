"""Removes values from memory that their readers can compute from other values that they read anyway.

In:    the nests of a graph, when all readers of each stored value are known
Out:   the same nests, which store fewer values and together move fewer bytes

While Ops are visited, sources first, a cut stores the value that is cheapest for the next reader (schedule/fuse.py); other
readers are not known yet. The gradient of a layer norm is cut behind a product:

    dy = d @ W;  a = dy * w * (x - mean);  b = residual + dy * w * rstd;  dx = b + f(sum(a)) * (x - mean) + g(sum(dy * w))

There the product would store a and b for the kernel of rows, and dy for the gradient of w. But from dy that kernel can
compute a and b: the product then stores six times fewer bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from picograd.ir.op import Op
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SOURCES, TRANSCENDENTAL, OpCode
from picograd.ir.stages import NestKind
from picograd.schedule.nest_draft import Draft, Nests, in_memory, require

STEPS_MAX = 32  # Ops that compute a value again
OPS_PER_BYTE = 8  # Ops that a machine computes while it moves a byte
CHEAP = (ELEMENTWISE | MOVEMENT | SOURCES) - TRANSCENDENTAL - {OpCode.CHECK, OpCode.PAD}
IN_PLACE = ELEMENTWISE | {OpCode.REDUCE, OpCode.RESHAPE}  # read each element of a value once, in order
READERS = (NestKind.REDUCE, NestKind.ELEMENTWISE)  # kinds of nests that can compute any value


def compute_again(nests: Nests, candidates: Collection[Op], order: Sequence[Op]) -> None:
    """Unstores the candidates that cost fewer bytes if each of their readers computes them.

    Args:
      candidates:  stored values that need not be in memory
      order:       the Ops of the graph, sources first
    """
    _Prices(nests, candidates, order).run()


class _Prices:
    """The nests with the values that each reads.

    read:     nest -> the values in memory that it reads
    readers:  candidate -> the nests that read it
    """

    def __init__(self, nests: Nests, candidates: Collection[Op], order: Sequence[Op]):
        moved = {s for op in order if op.code not in IN_PLACE for s in op.src}
        self.nests = nests
        self.candidates = [op for op in candidates if op not in moved]
        self.read: dict[Draft, dict[Op, None]] = {}
        self.readers: dict[Op, dict[Draft, None]] = {op: {} for op in self.candidates}

    def run(self) -> None:
        """Visits the candidates, later ones first: unstoring one changes which nests read earlier ones."""
        for nest in self.nests.drafts if self.candidates else ():
            self.read[nest] = self.read_by(nest, nest.stored)
            for op in self.read[nest]:
                if op in self.readers:
                    self.readers[op][nest] = None
        for op in reversed(self.candidates):
            self.visit(op)

    def read_by(self, nest: Draft, values: Sequence[Op]) -> dict[Op, None]:
        """Returns the values in memory that a nest reads to compute some values."""
        home, found = self.nests.home, dict[Op, None]()
        stack, seen = list(values), set(values)
        while stack:
            op = stack.pop()
            if in_memory(op) or home.get(op, nest) is not nest:
                found[op] = None
                continue
            fresh = [s for s in op.src if s not in seen]
            seen.update(fresh)
            stack += fresh
        return found

    def visit(self, op: Op) -> None:
        """Unstores a value if that moves fewer bytes."""
        home, readers, steps = self.nests.home[op], self.readers[op], self.steps(op)
        if not steps or any(nest.kind not in READERS or not self.nests.has_room(nest, len(steps)) for nest in readers):
            return
        leaves = {s: None for step in steps for s in step.src if s in self.nests.home or in_memory(s)}
        rest = self.read_by(home, [value for value in home.stored if value is not op])
        moved = (1 + len(readers)) * op.nbytes + sum([s.nbytes for s in self.read[home] if s not in rest])
        price = sum([leaf.nbytes for nest in readers for leaf in leaves if leaf not in self.read[nest]])
        price += (len(readers) - 1) * len(steps) * op.numel // OPS_PER_BYTE
        if price < moved:
            self.unstore(op, leaves, rest)

    def steps(self, op: Op) -> list[Op]:
        """Returns the Ops that compute a value from memory; [] if it takes a product, a costly function, or too many."""
        found, seen = [op], {op}
        for step in found:  # grows meanwhile
            if step.code not in CHEAP or len(found) > STEPS_MAX:
                return []
            fresh = [s for s in dict.fromkeys(step.src) if s not in seen and s not in self.nests.home and not in_memory(s)]
            seen.update(fresh)
            found += fresh
        return found

    def unstore(self, op: Op, leaves: Mapping[Op, None], rest: dict[Op, None]) -> None:
        """Lets the readers of a value compute it.

        Args:
          leaves:  the memory from which it is computed
          rest:    the memory that the nest that stored it still reads
        """
        home, readers = self.nests.home.pop(op), self.readers[op]
        home.stored.remove(op)
        for nest in readers:
            require(nest, {self.nests.home[leaf]: None for leaf in leaves if leaf in self.nests.home})
            del self.read[nest][op]
            self.read[nest].update(leaves)
            for leaf in leaves:
                if leaf in self.readers:
                    self.readers[leaf][nest] = None
        for leaf in self.read[home]:
            if leaf in self.readers and leaf not in rest:
                del self.readers[leaf][home]
        self.read[home] = rest
