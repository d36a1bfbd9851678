"""Joins loop nests into kernels, so that small steps do not each pay for a launch.

In:    nests in order (schedule/fuse.py)
Out:   groups: lists of phases, each a list of nests
Called by: road.py.    Next: picograd/schedule/loops.py

Two reasons to join: elementwise nests that do not need each other become one kernel (the update of every
parameter of a network); and a nest that only works on what the rows of a reduction left, or down the columns of
the same data, becomes a later phase of its kernel (the mean of a loss, the weight gradients of a layer norm), as a
small reduction becomes an earlier phase of what reads it (the number of targets that count in a loss).
"""

from __future__ import annotations

from collections.abc import Collection

from picograd.ir.op import Op, Shape, greatest_numel
from picograd.ir.opcode import TRANSCENDENTAL, OpCode
from picograd.ir.stages import NestKind
from picograd.record import Struct, field
from picograd.schedule.draft import Draft, Fused, in_memory

MAX_VALUES = 64  # that a kernel of several nests reads or stores: its parameters. Nine weights' updates by Adam
MAX_KERNEL_OPS = 1024  # of a kernel
MAX_CANDIDATES = 16  # kernels looked at to find one to join
MAX_LONG = 4  # Ops of many instructions side by side: a nest of its own is compiled once with all that equal it
LONG_OPS = 80  # Ops of few instructions that are as many as one of those becomes
MAX_BESIDE = 1 << 15  # elements of a nest that stands beside others: a larger one's launch is little beside its work
SMALL = 4  # one nest this many times smaller than the other: they may be phases of one kernel


class Group(Struct, eq=False):
    """The nests of one kernel by phase.

    index:     its place in the order of kernels
    values:    in memory that its nests read or store
    num_ops:   Ops they compute
    num_long:  of those, Ops of many instructions each
    """

    index: int
    phases: list[list[Draft]] = field(default_factory=list)
    values: set[Op] = field(default_factory=set)
    num_ops: int = 0
    num_long: int = 0

    @property
    def first(self) -> Draft:
        return self.phases[0][0]

    @property
    def nests(self) -> list[Draft]:
        return [nest for phase in self.phases for nest in phase]

    def has_room(self, nest: Draft, values: Collection[Op]) -> bool:
        """True when the kernel stays short with `nest` in it, which reads or stores `values`."""
        return len(self.values.union(values)) <= MAX_VALUES and self.num_ops + nest.num_ops <= MAX_KERNEL_OPS

    def add(self, nest: Draft, values: Collection[Op], phase: int) -> None:
        """Puts `nest` into a phase, at most one behind the last."""
        if phase == len(self.phases):
            self.phases.append([])
        self.phases[phase].append(nest)
        self.values.update(values)
        self.num_ops += nest.num_ops


def group(fused: Fused) -> list[Group]:
    """Returns the kernels in order.

    After:  whatever a nest needs is in an earlier group, or in an earlier phase of its own. What stands beside each
            other is small and short; other nests make equal kernels where they are equal, compiled once.
    """
    return _Grouper(fused).run()


class _Grouper:
    """One visit of the nests in order. A nest joins no group before the last one that it needs."""

    def __init__(self, fused: Fused):
        self.fused = fused
        self.groups: list[Group] = []
        self.home: dict[Draft, tuple[Group, int]] = {}  # a nest -> its group, and the phase
        self.open: list[Group] = []  # elementwise nests alone, with room for more
        self.by_rows: dict[tuple[Shape, Op], list[Group]] = {}  # domain of a first reduction, memory that it reads

    def run(self) -> list[Group]:
        """Finds each nest a group, or makes one."""
        for nest in self.fused.nests:
            read = memory_read(nest, self.fused)
            chosen = self.find(nest, read)
            if chosen is None:
                chosen = Group(len(self.groups))
                self.groups.append(chosen)
                self.note(nest, read, chosen)
            phases = [phase for home, phase in map(self.home.__getitem__, nest.needs) if home is chosen]
            phase = max(phases, default=-1) + 1
            chosen.add(nest, [*read, *nest.stored], phase)
            chosen.num_long += num_long_ops(nest, self.fused) if nest.kind is NestKind.ELEMENTWISE else 0
            self.home[nest] = chosen, phase
        return self.groups

    def note(self, nest: Draft, read: Collection[Op], made: Group) -> None:
        """Remembers what may join a new group, which `nest` is the first of."""
        if nest.kind is NestKind.ELEMENTWISE and greatest_numel(nest.domain) <= MAX_BESIDE:
            self.open.append(made)
        elif nest.kind is NestKind.REDUCE:
            for leaf in read:
                self.by_rows.setdefault((nest.domain, leaf), []).append(made)

    def find(self, nest: Draft, read: Collection[Op]) -> Group | None:
        """Returns the last group that `nest` may join."""
        needed = max((self.home[need][0] for need in nest.needs), key=lambda home: home.index, default=None)
        found: Group | None = None
        if nest.kind is NestKind.ELEMENTWISE and greatest_numel(nest.domain) <= MAX_BESIDE:
            found = self.beside(nest, read)
        elif nest.kind is NestKind.REDUCE:
            found = self.over_the_same(nest, read)
        if needed is None or (found is not None and found.index > needed.index):
            return found
        return needed if self.goes_on(nest, read, needed) else None

    def beside(self, nest: Draft, read: Collection[Op]) -> Group | None:
        """The last elementwise group with room."""
        num_long = num_long_ops(nest, self.fused)
        values = [*read, *nest.stored]
        self.open[-MAX_CANDIDATES:] = [g for g in self.open[-MAX_CANDIDATES:] if len(g.values) < MAX_VALUES]
        for found in reversed(self.open[-MAX_CANDIDATES:]):
            if found.has_room(nest, values) and (num_long == 0 or found.num_long + num_long <= MAX_LONG):
                return found
        return None

    def over_the_same(self, nest: Draft, read: Collection[Op]) -> Group | None:
        """The last group that reduces some of the same memory over the same domain."""
        last: Group | None = None
        for leaf in read:
            for found in self.by_rows.get((nest.domain, leaf), [])[-MAX_CANDIDATES:]:
                if found.has_room(nest, [*read, *nest.stored]) and (last is None or found.index > last.index):
                    last = found
        return last

    def goes_on(self, nest: Draft, read: Collection[Op], needed: Group) -> bool:
        """True when `nest` may be a later phase of a group with a reduction that it needs."""
        if nest.kind not in (NestKind.REDUCE, NestKind.ELEMENTWISE) or not needed.has_room(nest, [*read, *nest.stored]):
            return False
        if all(n.kind is not NestKind.REDUCE for n in needed.nests):
            return False
        for op in read:
            if op.code is OpCode.CONTIGUOUS and op in self.fused.home and self.home[self.fused.home[op]][0] is needed:
                return False  # the user asked for a cut here
        if nest.kind is NestKind.REDUCE and nest.domain == needed.first.domain:
            return True
        small, large = sorted((greatest_numel(nest.domain), greatest_numel(needed.first.domain)))
        return small * SMALL <= large


def num_long_ops(nest: Draft, fused: Fused) -> int:
    """Returns how many Ops a nest computes that become many instructions each; a great many others count as one of them.

    Random bits count as two; their key, which may be computed beside them, as none.
    """
    computed = _walk(nest, fused)
    long = sum([op.code in TRANSCENDENTAL and op.code is not OpCode.THREEFRY for op in computed])
    random = sum([op.code is OpCode.THREEFRY and op.shape != () for op in computed])
    return long + 2 * random + len(computed) // LONG_OPS


def memory_read(nest: Draft, fused: Fused) -> dict[Op, None]:
    """Returns the values in memory that a nest reads: buffers, and what other nests have stored."""
    return {op: None for op in _walk(nest, fused) if in_memory(op) or fused.home.get(op, nest) is not nest}


def _walk(nest: Draft, fused: Fused) -> list[Op]:
    """Returns what a nest computes, and the values in memory that it reads."""
    found = list(nest.stored)
    seen = set(found)
    for op in found:  # which grows meanwhile
        if not (in_memory(op) or fused.home.get(op, nest) is not nest):
            fresh = [s for s in dict.fromkeys(op.src) if s not in seen]
            seen.update(fresh)
            found += fresh
    return found
