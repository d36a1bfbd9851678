"""The nests made so far: what each stores, what is attached to each, and which must run before which.

In:    Ops in an order that works, and where fusion puts each
Out:   `Nests`
Called by: schedule/fuse.py.    Next: picograd/schedule/draft.py
"""

from __future__ import annotations

from collections.abc import Iterable

from picograd.ir.coordinates import placeholders
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import ELEMENTWISE, OpCode
from picograd.ir.stages import NestKind
from picograd.schedule.draft import KINDS, Attached, Coordinates, Draft, fits, in_memory


class Nests:
    """What is known of the part of the graph visited so far.

    drafts:  the nests, those that run first not always first
    home:    for each stored value the nest that stores it
    attached: for each attached Op the nest it is attached to, and where it stands there
    """

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.home: dict[Op, Draft] = {}
        self.attached: dict[Op, Attached] = {}
        self._num_made = 0

    def new(self, kind: NestKind, domain: Shape, reduced: tuple[int, ...]) -> Draft:
        """Returns an empty nest."""
        self._num_made += 1
        nest = Draft(kind, self._num_made, domain, reduced)
        self.drafts.append(nest)
        return nest

    def add_anchor(self, nest: Draft, op: Op) -> None:
        """Makes `op` one of the reductions of `nest`, or its product, scatter, scan or sort."""
        nest.anchors.append(op)
        self.require(nest, self.needs_of(op.src) & ~nest.bit)
        axes = nest.row_axes if nest.kind is NestKind.REDUCE else tuple(range(len(nest.domain)))
        self.attach(op, nest, tuple(zip(axes, placeholders(op.shape))))

    def attach(self, op: Op, nest: Draft, where: Coordinates) -> None:
        """Lets `nest` compute `op` too."""
        self.attached[op] = Attached(nest, where)

    def put(self, op: Op, nest: Draft) -> None:
        """Lets `nest` store `op`, which is attached to it or free."""
        nest.stored.append(op)
        self.home[op] = nest

    # ---- attached, free, stored ----
    def is_bound(self, op: Op) -> bool:
        """True when `op` is attached to a nest and cannot be had from memory."""
        return op in self.attached and not self.is_free(op)

    def is_free(self, op: Op) -> bool:
        """True when `op` can be computed from stored values alone."""
        stack, seen = [op], set()
        while stack:
            here = stack.pop()
            if here in seen or here in self.home:
                continue
            seen.add(here)
            if here.code in KINDS:
                return False
            if here in self.attached or here is op:
                stack.extend(here.src)
        return True

    def is_storable(self, op: Op) -> bool:
        """True when the nest `op` is attached to can store it."""
        at = self.attached[op]
        return fits(op, at.nest, at.where)

    # ---- what is read, and what must run before ----
    def leaves(self, ops: Iterable[Op]) -> set[Op]:
        """Returns the memory that `ops` read where they are not bound to a nest."""
        found: set[Op] = set()
        stack, seen = list(ops), set()
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            if op in self.home or in_memory(op):
                found.add(op)
            elif op.code not in KINDS:
                stack.extend(op.src)
        return found

    def leaves_beside(self, op: Op, nest: Draft) -> list[Op] | None:
        """What `op` reads when `nest` goes on to compute it from its own values, or None if it needs them elsewhere."""
        rest: list[Op] = []
        stack, seen = [op], set()
        while stack:
            here = stack.pop()
            if here in seen or (self.home.get(here) is nest and here.code is not OpCode.CONTIGUOUS):
                continue
            seen.add(here)
            if here is op or (here.code in ELEMENTWISE and here not in self.home):
                stack.extend(here.src)
            else:
                rest.append(here)
        return None if any(self.home.get(leaf) is nest for leaf in self.leaves(rest)) else rest

    def needs_of(self, ops: Iterable[Op]) -> int:
        """Returns the nests (with all they need) whose memory the free parts of `ops` read."""
        needs = 0
        for leaf in self.leaves(ops):
            if leaf in self.home:
                needs |= self.home[leaf].bit | self.home[leaf].needs
        return needs

    def require(self, nest: Draft, needs: int) -> None:
        """Lets `nest`, and so whatever needs it, run after the nests in `needs`."""
        assert not needs & nest.bit, "fuse: a nest would need itself"
        nest.needs |= needs
        for other in self.drafts:
            if other.needs & nest.bit:
                other.needs |= needs

    def merge(self, a: Draft, b: Draft) -> bool:
        """Joins two reduce nests over the same rows, if neither needs the other."""
        alike = a.kind is b.kind is NestKind.REDUCE and a.domain == b.domain and a.reduced == b.reduced
        if not alike or a.needs & b.bit or b.needs & a.bit:
            return False
        for op, at in list(self.attached.items()):
            if at.nest is b:
                self.attach(op, a, at.where)
        for op in b.stored:
            self.home[op] = a
        a.anchors += b.anchors
        a.stored += b.stored
        self.drafts.remove(b)
        for nest in self.drafts:
            if nest.needs & b.bit:
                nest.needs |= a.bit
        self.require(a, b.needs)
        return True

    def in_order(self) -> list[Draft]:
        """Returns the nests that store something, each after those it needs."""
        used = [nest for nest in self.drafts if nest.stored]
        left = 0
        for nest in used:
            left |= nest.bit
        order: list[Draft] = []
        while used:
            ready = [nest for nest in used if not nest.needs & left]
            assert ready, "fuse: nests need each other"
            for nest in ready:
                order.append(nest)
                used.remove(nest)
                left &= ~nest.bit
        return order
