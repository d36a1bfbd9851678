"""The nests made so far: what each stores, and what is attached to each.

In:    Ops in an order that works, and where fusion puts each
Out:   `Nests`
Called by: schedule/fuse.py.    Next: picograd/schedule/edges.py

Nothing here walks more than one nest, or the expression of one value, whose length is limited: so fusing a graph takes
time linear in its Ops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from picograd.ir.coordinates import placeholders
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import ELEMENTWISE, SOURCES, OpCode
from picograd.ir.stages import NestKind
from picograd.schedule.draft import KINDS, Attached, Coordinates, Draft, fits, in_memory, is_block
from picograd.schedule.edges import can_replace, can_require, depends, replace, require

MAX_OPS = 256  # of the expression of one value: a longer one is stored in between
MAX_NEST_OPS = 512  # of a nest: one that is full goes on in another, so that kernels stay small
MAX_STORED = 32  # values of a nest
MAX_CANDIDATES = 16  # nests looked at to find one to join

Leaves = dict[Op, None]  # a set that keeps its order, so that every process decides the same
Rows = tuple[Shape, tuple[int, ...], Op]  # domain, reduced axes, and memory that is read


class Nests:
    """What is known of the part of the graph visited so far.

    drafts:   the nests, in the order in which they were begun
    home:     for each stored value the nest that stores it
    attached: for each attached Op the nest it is attached to, and where it stands there
    """

    def __init__(self) -> None:
        self.drafts: dict[Draft, None] = {}
        self.home: dict[Op, Draft] = {}
        self.attached: dict[Op, Attached] = {}
        self._num_made = 0
        self._bound: dict[Op, int] = {}  # what is bound to a nest -> how many bound sources it has; an anchor has one more
        self._readers: dict[Op, list[Op]] = {}  # what is bound -> the attached Ops that read it
        self._num_ops: dict[Op, int] = {}  # at least the length of an expression; what it uses twice may count twice
        self._by_rows: dict[Rows, list[Draft]] = {}
        self._merged_into: dict[Draft, Draft] = {}

    def new(self, kind: NestKind, domain: Shape, reduced: tuple[int, ...]) -> Draft:
        """Returns an empty nest."""
        self._num_made += 1
        nest = Draft(kind, self._num_made, domain, reduced)
        self.drafts[nest] = None
        return nest

    def add_anchor(self, nest: Draft, op: Op) -> None:
        """Makes `op` one of the reductions of `nest`, or its product, scatter, scan or sort."""
        free = [s for s in op.src if not self.is_bound(s)]
        nest.anchors.append(op)
        require(nest, self.needs_of(free))
        axes = nest.row_axes if nest.kind is NestKind.REDUCE else tuple(range(len(nest.domain)))
        self.attach(op, nest, tuple(zip(axes, placeholders(op.shape))))
        if nest.kind is NestKind.REDUCE:
            for leaf in self.leaves(free):
                alike = self._by_rows.setdefault((nest.domain, nest.reduced, leaf), [])
                if not alike or alike[-1] is not nest:
                    alike.append(nest)

    def attach(self, op: Op, nest: Draft, where: Coordinates) -> None:
        """Lets `nest` compute `op` too; its sources are free, or bound to that nest."""
        self.attached[op] = Attached(nest, where)
        nest.members.append(op)
        nest.num_ops += self.added_ops(op)
        sources = [s for s in dict.fromkeys(op.src) if s in self._bound]
        self._bound[op] = len(sources) + (op.code in KINDS)
        for s in sources:
            self._readers.setdefault(s, []).append(op)

    def put(self, op: Op, nest: Draft) -> None:
        """Lets `nest` store `op`, which is attached to it or free."""
        if op not in self._bound:
            nest.num_ops += self._num_ops[op]
        nest.stored.append(op)
        self.home[op] = nest
        freed = [op] if self._bound.pop(op, None) is not None else []
        while freed:
            for reader in self._readers.pop(freed.pop(), ()):
                left = self._bound.get(reader)
                if left is not None:
                    self._bound[reader] = left - 1
                    if left == 1:
                        del self._bound[reader]
                        freed.append(reader)

    # ---- attached, free, stored ----
    def is_bound(self, op: Op) -> bool:
        """True when `op` is attached to a nest and cannot be had from memory, nor computed from what is there."""
        return op in self._bound

    def is_storable(self, op: Op) -> bool:
        """True when the nest `op` is attached to can store it."""
        at = self.attached[op]
        return fits(op, at.nest, at.where)

    # ---- how much there is to compute ----
    def count(self, op: Op) -> int:
        """Returns how many Ops compute `op` from memory and the anchors of nests, and remembers that."""
        num_ops = 0
        if op.code not in SOURCES:
            num_ops = 1 if op.code in KINDS else 1 + sum(map(self._length, dict.fromkeys(op.src)))
        if num_ops > MAX_OPS:  # some may have counted twice
            num_ops = len(self._expression(op))
        self._num_ops[op] = num_ops
        return num_ops

    def added_ops(self, op: Op) -> int:
        """Returns how many Ops a nest has to compute for `op` besides those of bound sources."""
        return 1 + sum([self._length(s) for s in dict.fromkeys(op.src) if s not in self._bound])

    def num_ops(self, op: Op) -> int:
        """Returns what `count` found."""
        return self._num_ops[op]

    def _length(self, op: Op) -> int:
        return 0 if op in self.home else self._num_ops[op]

    def _expression(self, op: Op) -> set[Op]:
        """Returns the Ops between `op` and memory or anchors; `op` itself whatever it is."""
        stack, seen = [op], {op}
        while stack:
            for s in stack.pop().src:
                if s not in seen and s not in self.home and s.code not in KINDS:
                    seen.add(s)
                    stack.append(s)
        return seen

    def has_room(self, nest: Draft, num_ops: int) -> bool:
        """True when `nest` may compute so many Ops more."""
        return nest.num_ops + num_ops <= MAX_NEST_OPS and len(nest.stored) < MAX_STORED

    # ---- what is read, and what must run before ----
    def leaves(self, ops: Iterable[Op], stored: Collection[Op] = (), blocks: bool = False) -> Leaves:
        """Returns the memory that free `ops` read; where `stored` were in memory, they and no bound value.

        Args:
          blocks:  of a block of rows the SHRINK that reads it, not all of its memory
        """
        found: Leaves = {}
        stack, seen = list(ops), set()
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            if op in self.home or in_memory(op) or op in stored or (blocks and is_block(op)):
                found[op] = None
            else:
                stack.extend(op.src)
        return found

    def leaves_beside(self, op: Op, nest: Draft) -> Leaves | None:
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
        leaves = self.leaves(rest)
        return None if any(self.home.get(leaf) is nest for leaf in leaves) else leaves

    def needs_of(self, ops: Iterable[Op]) -> dict[Draft, None]:
        """Returns the nests that store what free `ops` read."""
        return {self.home[leaf]: None for leaf in self.leaves(ops) if leaf in self.home}

    # ---- nests to join ----
    def goes_on(self, op: Op) -> Draft | None:
        """Returns an elementwise nest that can go on to store the free value `op` from what it stores already.

        Where several store what `op` is computed from, as the two averages of Adam, they become one.
        """
        near = {nest.number: nest for nest in self.needs_of([op]) if self._may_go_on(nest, op)}
        nests = [nest for _, nest in sorted(near.items(), reverse=True)[:MAX_CANDIDATES]]
        for i, nest in enumerate(nests):
            rest = self.leaves_beside(op, nest)
            if rest is None or not can_require(nest, self.needs_of(rest)):
                continue
            for other in nests[i + 1 :]:
                others = self.leaves_beside(op, other)
                if others is not None and not depends([need for need in self.needs_of(others) if need is not nest], other):
                    self.merge(nest, other)
            rest = self.leaves_beside(op, nest) or {}
            needs = self.needs_of(rest)
            if can_require(nest, needs):
                require(nest, needs)
                return nest
        return None

    def _may_go_on(self, nest: Draft, op: Op) -> bool:
        alike = nest.kind is NestKind.ELEMENTWISE and nest.domain == op.shape
        return alike and self.has_room(nest, self._num_ops[op])

    def with_rows(self, source: Op, reduced: tuple[int, ...]) -> Draft | None:
        """Returns a reduce nest over the rows of the free value `source` that reads some of the same memory."""
        needs, alike = self.needs_of([source]), dict[int, Draft]()
        for leaf in self.leaves([source]):
            for nest in self._by_rows.get((source.shape, reduced, leaf), [])[-MAX_CANDIDATES:]:
                while nest in self._merged_into:
                    nest = self._merged_into[nest]
                if self.has_room(nest, 1 + self._length(source)):
                    alike[nest.number] = nest
        for _, nest in sorted(alike.items())[:MAX_CANDIDATES]:
            if can_require(nest, needs):
                require(nest, needs)
                return nest
        return None

    def merge(self, a: Draft, b: Draft) -> bool:
        """Joins two nests of elements, or two that reduce the same rows, if neither needs the other."""
        alike = a.kind is b.kind and a.kind in (NestKind.ELEMENTWISE, NestKind.REDUCE)
        alike = alike and a.domain == b.domain and a.reduced == b.reduced
        small = a.num_ops + b.num_ops <= MAX_NEST_OPS and len(a.stored) + len(b.stored) <= MAX_STORED
        if not alike or not small or not can_replace(b, a):
            return False
        replace(b, a)
        for op in b.members:
            self.attached[op] = Attached(a, self.attached[op].where)
        for op in b.stored:
            self.home[op] = a
        a.anchors += b.anchors
        a.stored += b.stored
        a.members += b.members
        a.num_ops += b.num_ops
        del self.drafts[b]
        self._merged_into[b] = a
        return True

    def in_order(self) -> list[Draft]:
        """Returns the nests that store something, each after those it needs."""
        return sorted((nest for nest in self.drafts if nest.stored), key=lambda nest: nest.level)
