"""Cuts a graph into loop nests: what is computed together, and what has to be stored in between.

In:    a simplified graph without identities (LEAF, DETACH), and what to store of it
Out:   `Fused`: nests in an order that works, each with the values it stores
Called by: schedule/create.py.    Next: picograd/schedule/group.py

Ops are visited sources first. Each is one of
  free      a function of stored values at any point: it costs nothing until somebody reads it
  attached  a function of what one nest computes (a reduction, a product), at matching coordinates:
            the nest can go on and compute it too
  stored    a nest writes it to memory; from there on it is free
An Op that reads two nests, or a nest at coordinates that do not match, makes the earlier value stored ("cut").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from picograd.errors import UnsupportedOp
from picograd.ir.coordinates import Coords, flatten, move, placeholder
from picograd.ir.lines import line_of
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SOURCES, TRANSCENDENTAL, OpCode
from picograd.ir.stages import NestKind
from picograd.ir.symbolic import substitute

MAX_DEPTH = 96  # of a chain in one nest: a longer one is stored in between, so that kernels stay small
KINDS = {
    OpCode.REDUCE: NestKind.REDUCE, OpCode.MATMUL: NestKind.MATMUL, OpCode.SCATTER: NestKind.SCATTER,
    OpCode.SCAN: NestKind.SCAN, OpCode.SORT: NestKind.SORT,
}  # fmt: skip
STORES_ITSELF = frozenset({NestKind.SCATTER, NestKind.SCAN, NestKind.SORT})  # nothing is computed on from its values


@dataclass(eq=False)
class Draft:
    """A nest while it grows.

    number:   bit of the nest in sets of nests
    reduced:  axes of `domain` that are reduced
    anchors:  the reductions, or the one product, scatter, scan or sort
    stored:   values it writes to memory
    needs:    set (as bits) of the nests that must run before it
    """

    kind: NestKind
    number: int
    domain: Shape
    reduced: tuple[int, ...]
    anchors: list[Op] = field(default_factory=list)
    stored: list[Op] = field(default_factory=list)
    needs: int = 0

    @property
    def bit(self) -> int:
        return 1 << self.number

    @property
    def row_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.domain)) if axis not in self.reduced)

    @property
    def row_shape(self) -> Shape:
        return tuple(self.domain[axis] for axis in self.row_axes)


@dataclass(frozen=True)
class Attached:
    """Where an Op stands in a nest: for the mapped axes of the domain, the coordinate as a function of its own."""

    nest: Draft
    where: tuple[tuple[int, Dim], ...]


@dataclass(frozen=True)
class Fused:
    """The nests in order, and which nest stores each value."""

    nests: tuple[Draft, ...]
    home: dict[Op, Draft]


def fuse(roots: Sequence[Op]) -> Fused:
    """Cuts the graph of `roots` into nests that store every root that is not in memory yet.

    After:  each stored value belongs to one nest; a nest reads only memory and what it computes itself; the order
            of the nests respects what they read.
    """
    return _Fuser(roots).run()


def in_memory(op: Op) -> bool:
    """True for values that need no nest: buffers and parameters."""
    return op.code in (OpCode.BUFFER, OpCode.PARAM)


class _Fuser:
    def __init__(self, roots: Sequence[Op]):
        self.roots = list(roots)
        self.order = toposort(roots)
        self.nests: list[Draft] = []
        self.num_made = 0
        self.home: dict[Op, Draft] = {}  # stored value -> the nest that stores it
        self.attached: dict[Op, Attached] = {}
        self.depth: dict[Op, int] = {}

    def run(self) -> Fused:
        wanted = set(self.roots)
        for op in self.order:
            self.visit(op)
            if self.depth[op] >= MAX_DEPTH and op.code in ELEMENTWISE:
                self.store(op)
            if op in wanted:
                self.store(op)
        for op in self.roots:
            self.store(op)
        return Fused(tuple(self.in_order()), self.home)

    # ---- one Op ----
    def visit(self, op: Op) -> None:
        self.depth[op] = 1 + max((0 if s in self.home else self.depth[s] for s in op.src), default=0)
        if op.code in SOURCES:
            return
        if op.code in KINDS:
            self.visit_anchor(op)
        elif op.code in MOVEMENT:
            self.visit_movement(op)
        elif op.code in ELEMENTWISE:
            self.visit_elementwise(op)
        elif op.code is OpCode.GATHER:
            for s in op.src:
                self.release(s)
        elif op.code is OpCode.CONTIGUOUS:
            self.release(op.src[0])
            self.store(op)
        else:
            fact = f"{op.code.value}: no kernel is generated for it yet."
            raise UnsupportedOp(fact, "PICOGRAD_DEVICE=NUMPY runs every operation", line_of(op))

    def visit_anchor(self, op: Op) -> None:
        if op.code is OpCode.REDUCE and self.join_rows(op):
            return
        for s in op.src:
            self.release(s)
        kind = KINDS[op.code]
        domain = op.src[0].shape if kind is NestKind.REDUCE else op.shape
        reduced = tuple(sorted(op.arg[1])) if kind is NestKind.REDUCE else ()
        nest = self.new_nest(kind, domain, reduced)
        self.add_anchor(nest, op)
        if kind in STORES_ITSELF:
            self.put(op, nest)

    def visit_movement(self, op: Op) -> None:
        source = op.src[0]
        at = self.attached.get(source)
        if at is None or self.is_free(source):
            return
        if op.code is OpCode.PAD:
            self.release(source)
            return
        moved, _ = move(op, _own(op.shape))
        values = dict(zip(_own(source.shape), moved))
        where = tuple((axis, substitute(dim, _only_ops(values))) for axis, dim in at.where)
        self.attached[op] = Attached(at.nest, where)

    def visit_elementwise(self, op: Op) -> None:
        """Attaches `op` where all its sources meet, cutting what does not match."""
        while True:
            bound = [s for s in dict.fromkeys(op.src) if self.is_bound(s)]
            if not bound:
                return
            nests = list(dict.fromkeys(self.attached[s].nest for s in bound))
            if len(nests) > 1 and not self.merge(nests[0], nests[1]):
                self.release(self.earlier(bound, nests))
                continue
            if len(nests) > 1:
                continue
            nest = nests[0]
            places = {self.attached[s].where for s in bound}
            where = _meet(places)
            free_needs = self.needs_of([s for s in op.src if s not in bound])
            if where is None or free_needs & nest.bit or not self.fits(op, nest, where):
                self.release(bound[0])
                continue
            self.require(nest, free_needs)
            self.attached[op] = Attached(nest, where)
            return

    def earlier(self, bound: list[Op], nests: list[Draft]) -> Op:
        """The source to store where two nests meet: of one the other needs, else of one with rows, which are small."""

        def rank(s: Op) -> tuple[bool, bool, int]:
            nest = self.attached[s].nest
            needed = any(other.needs & nest.bit for other in nests)
            needs_other = any(nest.needs & other.bit for other in nests)
            return (needs_other and not needed, nest.kind is not NestKind.REDUCE, nest.number)

        return min(bound, key=rank)

    def fits(self, op: Op, nest: Draft, where: tuple[tuple[int, Dim], ...]) -> bool:
        """True when `op` is a value of every element of the nest's domain, or of every row."""
        return self.is_element(op, nest, where) or self.is_row(op, nest, where)

    def is_element(self, op: Op, nest: Draft, where: tuple[tuple[int, Dim], ...]) -> bool:
        if len(where) == len(nest.domain):
            return _same_position(where, nest.domain, tuple(range(len(nest.domain))), op.shape)
        return op.shape == nest.domain and all(dim == _own(op.shape)[axis] for axis, dim in where)

    def is_row(self, op: Op, nest: Draft, where: tuple[tuple[int, Dim], ...]) -> bool:
        if nest.kind is not NestKind.REDUCE or tuple(axis for axis, _ in where) != nest.row_axes:
            return False
        return _same_position(where, nest.row_shape, nest.row_axes, op.shape)

    # ---- reductions that share rows ----
    def join_rows(self, op: Op) -> bool:
        """Adds a reduction to a nest with the same rows: one its source is attached to, or one that reads the same."""
        source, reduced = op.src[0], tuple(sorted(op.arg[1]))
        if self.is_bound(source):
            at = self.attached[source]
            joins = at.nest.reduced == reduced and self.is_element(source, at.nest, at.where)
            if joins and at.nest.domain == source.shape and at.nest.kind is NestKind.REDUCE:
                self.add_anchor(at.nest, op)
                return True
            return False
        needs, reads = self.needs_of([source]), self.leaves([source])
        for nest in self.nests:
            if nest.kind is not NestKind.REDUCE or nest.domain != source.shape or nest.reduced != reduced:
                continue
            if not needs & nest.bit and reads & self.leaves([a.src[0] for a in nest.anchors]):
                self.require(nest, needs)
                self.add_anchor(nest, op)
                return True
        return False

    def merge(self, a: Draft, b: Draft) -> bool:
        """Joins two reduce nests over the same rows, if neither needs the other."""
        alike = a.kind is b.kind is NestKind.REDUCE and a.domain == b.domain and a.reduced == b.reduced
        if not alike or a.needs & b.bit or b.needs & a.bit:
            return False
        for op, at in list(self.attached.items()):
            if at.nest is b:
                self.attached[op] = Attached(a, at.where)
        for op in b.stored:
            self.home[op] = a
        a.anchors += b.anchors
        a.stored += b.stored
        self.nests.remove(b)
        for nest in self.nests:
            if nest.needs & b.bit:
                nest.needs |= a.bit
        self.require(a, b.needs)
        return True

    # ---- storing ----
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

    def release(self, op: Op) -> None:
        """Makes `op` free: stores it, or less than it from which it is quickly computed again."""
        if not self.is_bound(op):
            return
        at = self.attached[op]
        rows = self.row_frontier(op, at.nest)
        if rows and sum(_nbytes(r) for r in rows) * 2 <= _nbytes(op):
            for r in rows:
                self.put(r, at.nest)
            return
        while not self.storable(op):
            op = next(s for s in op.src if self.is_bound(s))
        best = op
        while True:
            bound = [s for s in dict.fromkeys(op.src) if self.is_bound(s)]
            if len(bound) != 1 or op.code in KINDS or op.code in TRANSCENDENTAL:
                break
            op = bound[0]
            if self.storable(op) and _nbytes(op) < _nbytes(best):
                best = op
        self.put(best, at.nest)

    def row_frontier(self, op: Op, nest: Draft) -> list[Op]:
        """The values of rows that `op` is computed from, or [] if it needs more than those."""
        found: dict[Op, None] = {}
        stack, seen = [op], set()
        while stack:
            here = stack.pop()
            if here in seen or not self.is_bound(here):
                continue
            seen.add(here)
            if self.is_row(here, nest, self.attached[here].where) and here.code not in MOVEMENT:
                found[here] = None
            elif here.code in KINDS:
                return []
            else:
                stack.extend(here.src)
        return list(found)

    def storable(self, op: Op) -> bool:
        at = self.attached[op]
        return self.fits(op, at.nest, at.where)

    def store(self, op: Op) -> None:
        """Makes sure `op` itself is in memory."""
        if in_memory(op) or op in self.home:
            return
        if self.is_bound(op) and self.storable(op):
            self.put(op, self.attached[op].nest)
            return
        self.release(op)
        if op not in self.home:
            self.put_free(op)

    def put(self, op: Op, nest: Draft) -> None:
        nest.stored.append(op)
        self.home[op] = nest

    def put_free(self, op: Op) -> None:
        """Stores a free value: in an elementwise nest of its shape that reads the same memory, or a new one."""
        needs, reads = self.needs_of([op]), self.leaves([op])
        for nest in reversed(self.nests):
            if nest.kind is not NestKind.ELEMENTWISE or nest.domain != op.shape:
                continue
            if needs & nest.bit:
                rest = self.leaves_beside(op, nest)
                if rest is None or self.needs_of(rest) & nest.bit:
                    continue
                needs = self.needs_of(rest)
            elif not reads & self.leaves(nest.stored):
                continue
            self.require(nest, needs)
            self.put(op, nest)
            return
        nest = self.new_nest(NestKind.ELEMENTWISE, op.shape, ())
        self.require(nest, needs)
        self.put(op, nest)

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

    # ---- the order of nests ----
    def new_nest(self, kind: NestKind, domain: Shape, reduced: tuple[int, ...]) -> Draft:
        self.num_made += 1
        nest = Draft(kind, self.num_made, domain, reduced)
        self.nests.append(nest)
        return nest

    def add_anchor(self, nest: Draft, op: Op) -> None:
        nest.anchors.append(op)
        self.require(nest, self.needs_of(op.src) & ~nest.bit)
        axes = nest.row_axes if nest.kind is NestKind.REDUCE else tuple(range(len(nest.domain)))
        self.attached[op] = Attached(nest, tuple(zip(axes, _own(op.shape))))

    def require(self, nest: Draft, needs: int) -> None:
        """Lets `nest`, and so whatever needs it, run after the nests in `needs`."""
        assert not needs & nest.bit, "fuse: a nest would need itself"
        nest.needs |= needs
        for other in self.nests:
            if other.needs & nest.bit:
                other.needs |= needs

    def needs_of(self, ops: Iterable[Op]) -> int:
        """Returns the nests (with all they need) whose memory the free parts of `ops` read."""
        needs = 0
        for leaf in self.leaves(ops):
            if leaf in self.home:
                needs |= self.home[leaf].bit | self.home[leaf].needs
        return needs

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

    def in_order(self) -> list[Draft]:
        used = [nest for nest in self.nests if nest.stored]
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


def _own(shape: Shape) -> Coords:
    """The coordinates of an Op as placeholders, with 0 for axes of length 1."""
    return tuple(0 if dim == 1 else placeholder(axis, dim) for axis, dim in enumerate(shape))


def _only_ops(values: dict[Dim, Dim]) -> dict[Op, Dim]:
    return {key: value for key, value in values.items() if isinstance(key, Op)}


def _meet(places: set[tuple[tuple[int, Dim], ...]]) -> tuple[tuple[int, Dim], ...] | None:
    """Joins what sources know of their place in the domain, or None where they contradict each other."""
    joined: dict[int, Dim] = {}
    for place in places:
        for axis, dim in place:
            if joined.setdefault(axis, dim) is not dim and joined[axis] != dim:
                return None
    return tuple(sorted(joined.items()))


def _same_position(where: tuple[tuple[int, Dim], ...], extents: Shape, axes: tuple[int, ...], shape: Shape) -> bool:
    """True when walking `shape` in order walks `extents` in order."""
    if tuple(axis for axis, _ in where) != axes:
        return False
    there = flatten([dim for _, dim in where], extents)
    here = flatten(_own(shape), shape)
    total = 1
    for dim in extents:
        total *= greatest(dim)
    count = 1
    for dim in shape:
        count *= greatest(dim)
    return total == count and (there is here or there == here)


def _nbytes(op: Op) -> int:
    return op.numel * op.dtype.itemsize

