"""Places of values: outputs that are written in place, the order of kernels that this needs, and an arena for the rest.

In:    a simplified graph; the kernels, with the values that each reads and writes; temporaries, with first and last use
Out:   `write_blocks`: the graph with UPDATEs;  `Order`: the kernels in order, with the inputs that outputs may replace in
       memory, and the outputs that are written late;  `place_temporaries`: a byte offset for each, or its output

A write through a view, cache[:, n] = row, is built as a new value of the whole cache. It becomes an UPDATE, which writes
only the block, in the memory of `cache`; several writes to one buffer are a chain, all in that memory:

    WHERE(PAD(True), PAD(row), cache)  ->  UPDATE(cache, row)

A training step replaces every parameter, a decode step some rows of a cache. The caller of a plan knows whether the old
version is still wanted; if not, the new one can have its memory. That is correct if each kernel that reads the old version
runs before the one that overwrites it, or is that kernel and reads each element only to compute the same element. If no
order of kernels allows it, the UPDATE is refused: its value stays as it was built, and is written to memory of its own.

Temporaries that do not live at the same time share the memory of one arena; some are put in outputs before these are
written.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Container, Sequence
from heapq import heappop, heappush
from typing import Any

from picograd.ir.backend import ALIGNMENT
from picograd.ir.build import shrink
from picograd.ir.op import Dim, Op, const_value, toposort
from picograd.ir.opcode import ELEMENTWISE, OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.stages import Kernel, Nest, NestKind
from picograd.ir.symbolic import add, ceildiv
from picograd.record import Record, Struct, field
from picograd.schedule.nest_draft import KINDS, in_memory

# ---- writes in place ----
Block = tuple[tuple[Dim, Dim], ...]


class _Write(Record):
    """One step of a chain: `base` with `value` in a block."""

    base: Op
    value: Op
    block: Block


def write_blocks(roots: Sequence[Op], refused: Collection[int]) -> list[Op]:
    """Returns the graphs with UPDATEs for the roots that are chains of writes to a buffer.

    Args:
      refused: numbers of roots that must not be written in place
    """
    order = toposort(roots)
    writes: dict[Op, _Write] = {}
    taken: set[int] = set()  # slots of buffers that are written in place
    for number, root in enumerate(roots):
        chain = _chain(root)
        if not chain or number in refused or roots.count(root) > 1:
            continue
        buffer = chain[-1][1].base
        views = {op for op in order if in_memory(op) and op.arg[0] == buffer.arg[0]}
        inner = {op for op, _ in chain[1:]}
        if views != {buffer} or buffer in roots or inner & set(roots) or buffer.arg[0] in taken:
            continue
        taken.add(buffer.arg[0])
        writes.update(chain)
    return _rebuilt(roots, writes) if writes else list(roots)


def versions_of(root: Op) -> list[Op]:
    """Returns the successive values of a chain of UPDATEs, the last first, without the original buffer."""
    found: list[Op] = []
    while root.code is OpCode.UPDATE:
        found.append(root)
        root = root.src[0]
    return found


def _chain(root: Op) -> list[tuple[Op, _Write]]:
    """Returns the writes that lead from a buffer to `root`, the last one first; [] if `root` is not such a value."""
    found: list[tuple[Op, _Write]] = []
    op = root
    while not in_memory(op):
        write = _write(op)
        if write is None:
            return []
        found.append((op, write))
        op = write.base
    return found


def _write(op: Op) -> _Write | None:
    """Takes WHERE(PAD(True), x, base) apart."""
    if op.code is not OpCode.WHERE:
        return None
    inside, chosen, base = op.src
    if inside.code is not OpCode.PAD or const_value(inside.src[0]) is not True:
        return None
    ends = zip(inside.arg, inside.src[0].shape)
    block = tuple((before, add(before, length)) for (before, _), length in ends)
    same = chosen.code is OpCode.PAD and chosen.arg == inside.arg
    return _Write(base, chosen.src[0] if same else shrink(chosen, block), block)


def _rebuilt(roots: Sequence[Op], writes: dict[Op, _Write]) -> list[Op]:
    """Returns the graphs with each write as an UPDATE; a written value that is computed from the buffer is stored first."""
    versions = {*writes, *(write.base for write in writes.values())}
    became: dict[Op, Op] = {}

    def sources(op: Op) -> tuple[Op, ...]:
        return (writes[op].base, writes[op].value) if op in writes else op.src

    for op in toposort(roots, sources=sources):
        write = writes.get(op)
        if write is None:
            became[op] = op.replace(src=tuple(became[s] for s in op.src))
        else:
            value = became[write.value]
            if _reads(write.value, versions):
                value = Op(OpCode.CONTIGUOUS, value.dtype, (value,))
            became[op] = Op(OpCode.UPDATE, op.dtype, (became[write.base], value), write.block)
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


def _reads(value: Op, versions: set[Op]) -> bool:
    """True if the loops that store `value` may read one of these versions of a buffer."""
    ends = {*versions, *(op for op in toposort([value]) if op.code in KINDS)}
    return any(op in versions for op in toposort([value], stop=ends))


# ---- order of kernels ----
ALIGNED = ELEMENTWISE | {OpCode.RESHAPE}  # compute an element from elements at the same position
# Each element, or row, is done once.
IN_PLACE = frozenset({NestKind.ELEMENTWISE, NestKind.MATMUL, NestKind.CONV, NestKind.REDUCE})


class Unit(Record):
    """A unit of execution: a kernel, or a loop over a schedule.

    kernel:   the kernel; None for a loop
    values:   the value in each slot of the kernel; for a loop its CALL or LOOP
    phases:   for each slot the first and the last phase that reads or writes it
    read:     values that it reads; an UPDATE reads its base
    written:  values that it stores
    checks:   CHECKs of the kernel
    may_fail: it has CHECKs
    """

    kernel: Kernel | None
    values: tuple[Op, ...]
    phases: tuple[tuple[int, int], ...]
    read: tuple[Op, ...]
    written: tuple[Op, ...]
    checks: tuple[Any, ...]
    may_fail: bool


class Order(Struct):
    """Decisions about the kernels.

    units:    numbers of the kernels in order
    over:     for an output the input whose memory it may have
    also:     other inputs whose memory it may have instead
    late:     outputs that are written after every CHECK that may fail
    refused:  UPDATEs that cannot be made in place
    commit:   number of kernels before the first that may overwrite values from before the run, if one of those may fail;
              else 0
    """

    units: list[int] = field(default_factory=list)
    over: dict[Op, Op] = field(default_factory=dict)
    also: dict[Op, tuple[Op, ...]] = field(default_factory=dict)
    late: set[Op] = field(default_factory=set)
    refused: set[Op] = field(default_factory=set)
    commit: int = 0


def order_units(units: Sequence[Unit], roots: Sequence[Op]) -> Order:
    """Returns the kernels in an order in which UPDATEs read the versions that they should, and outputs can replace inputs.

    After:  a kernel that replaces an input runs after every CHECK that may fail: after an error the input is still there.
    """
    found, needs, failing = Order(), _Needs(units), _may_fail_first(units)
    found.refused |= _refused_updates(units, needs, failing)
    if found.refused:
        return found
    outputs, names = dict.fromkeys(roots), Counter(value.arg[0] for value in needs.readers if in_memory(value))
    found.over |= {root: _buffer_of(root) for root in outputs if root.code is OpCode.UPDATE}
    new = [root for root in outputs if root.code is not OpCode.UPDATE and not in_memory(root)]
    choices = {root: needs.replaceable(root, outputs) for root in new if needs.home[root] not in failing}
    taken = set(found.over.values())
    for root, inputs in sorted(choices.items(), key=lambda choice: len(choice[1])):
        for value in inputs:
            is_free = value not in taken and names[value.arg[0]] == 1
            if is_free and needs.run_before([*failing, *needs.readers_of(value)], needs.home[root]):
                found.over[root] = value
                taken.add(value)
                break
    found.units = needs.in_order()
    place = {number: i for i, number in enumerate(found.units)}
    for root, inputs in choices.items():
        home = needs.home[root]
        others = [value for value in inputs if value is not found.over.get(root) and names[value.arg[0]] == 1]
        found.also[root] = tuple(
            value
            for value in others
            if all(place[other] < place[home] for other in [*failing, *needs.readers_of(value)] if other != home)
        )
        if all(place[other] < place[home] for other in failing):
            found.late.add(root)
    if failing and (found.over or found.late):
        found.commit = 1 + max(place[number] for number in failing)
    return found


def _refused_updates(units: Sequence[Unit], needs: _Needs, failing: Sequence[int]) -> set[Op]:
    """Orders UPDATEs after the readers of the values they overwrite, and after CHECKs; returns those that cannot."""
    refused = set()
    for number, unit in enumerate(units):
        for value in unit.written:
            if value.code is OpCode.UPDATE:
                before = [*failing, *needs.readers_of(value.src[0])]
                if number in failing or not needs.run_before(before, number):
                    refused.add(value)
    return refused


def _may_fail_first(units: Sequence[Unit]) -> list[int]:
    """Returns the kernels with a CHECK that no earlier kernel has, and the loops with any CHECK."""
    failing: list[int] = []
    seen: set[Any] = set()
    for number, unit in enumerate(units):
        if unit.may_fail and (unit.kernel is None or not seen.issuperset(unit.checks)):
            failing.append(number)
        seen.update(unit.checks)
    return failing


def _buffer_of(update: Op) -> Op:
    return versions_of(update)[-1].src[0]


class _Needs:
    """The order that kernels must keep.

    home:     for each stored value the number of its kernel
    readers:  for each value the numbers of the kernels that read it
    before:   for each kernel the set (as bits) of all that must run before it
    direct:   for each kernel those that `run_before` was given for it
    """

    def __init__(self, units: Sequence[Unit]):
        self.units = units
        self.home = {value: number for number, unit in enumerate(units) for value in unit.written}
        self.readers: dict[Op, list[int]] = {}
        self.before: list[int] = []
        self.direct: list[set[int]] = []
        for number, unit in enumerate(units):
            self.before.append(0)
            self.direct.append(set())
            for value in unit.read:
                self.readers.setdefault(value, []).append(number)
                home = self.home.get(value, number)
                if home != number:
                    self.direct[number].add(home)
                    self.before[number] |= self.before[home] | 1 << home

    def readers_of(self, value: Op) -> list[int]:
        return self.readers.get(value, [])

    def run_before(self, others: Sequence[int], number: int) -> bool:
        """Makes all of `others` run before a kernel; returns False, and changes nothing, if one of them needs it."""
        others = [other for other in others if other != number]
        if any(self.before[other] >> number & 1 for other in others):
            return False
        new = 0
        for other in others:
            self.direct[number].add(other)
            new |= self.before[other] | 1 << other
        if new & ~self.before[number]:
            for later, before in enumerate(self.before):
                if later == number or before >> number & 1:
                    self.before[later] |= new
        return True

    def replaceable(self, root: Op, roots: Container[Op]) -> list[Op]:
        """Returns the inputs of an output's kernel that it reads only to compute the element at the same position."""
        unit = self.units[self.home[root]]
        like = [v for v in unit.read if v.shape == root.shape and v.dtype is root.dtype and in_memory(v) and v not in roots]
        if unit.kernel is None or not like:
            return []
        slot = unit.values.index(root)
        nest = next(n for phase in unit.kernel.phases for n in phase if any(slot == s for s, _ in n.outputs))
        if nest.kind not in IN_PLACE:
            return []
        inputs = aligned_params(next(value for s, value in nest.outputs if s == slot))
        elsewhere = _read_elsewhere(unit.kernel, nest)
        found = [unit.values[p.arg[0]] for p in inputs if p not in elsewhere]
        return [v for v in dict.fromkeys(found) if v in like]

    def in_order(self) -> list[int]:
        """Returns the kernels so that each is after those that it needs, and otherwise in their original order."""
        waits = [len(direct) for direct in self.direct]
        after: list[list[int]] = [[] for _ in waits]
        for number, direct in enumerate(self.direct):
            for other in direct:
                after[other].append(number)
        ready = [number for number, count in enumerate(waits) if not count]
        order: list[int] = []
        while ready:
            order.append(heapq.heappop(ready))
            for number in after[order[-1]]:
                waits[number] -= 1
                if not waits[number]:
                    heapq.heappush(ready, number)
        assert len(order) == len(waits), "reuse: kernels need each other"
        return order


# ---- positions at which a kernel reads ----
def aligned_params(value: Op) -> list[Op]:
    """Returns the PARAMs that are read at element i for element i of a value, and at no other."""
    return [op for op in _walk([value])[0] if op.code is OpCode.PARAM]


def _walk(values: Sequence[Op]) -> tuple[list[Op], list[Op]]:
    """Returns the Ops at the same position as `values`, and the Ops that these read at other positions."""
    here: dict[Op, None] = {}
    there: list[Op] = []
    stack = list(values)
    while stack:
        op = stack.pop()
        if op in here:
            continue
        here[op] = None
        (stack if op.code in ALIGNED else there).extend(op.src)
    return list(here), there


def _read_elsewhere(kernel: Kernel, nest: Nest) -> set[Op]:
    """Returns the PARAMs that a kernel reads outside of `nest`, or at other positions than those it stores."""
    others = [v for phase in kernel.phases for n in phase if n is not nest for _, v in n.outputs]
    _, moved = _walk([value for _, value in nest.outputs])
    return {op for op in toposort([*others, *moved]) if op.code is OpCode.PARAM}


# ---- places of temporaries ----
SEARCHED_TEMPORARIES_MAX = 1024  # for more of them the best place is not worth its search


class Lifetime(Record):
    """The time during which a temporary holds data. A moment is a phase of a kernel, or a loop.

    nbytes:    its length
    first:     the moment that writes it
    last:      the last moment that reads it
    in_arena:  it must be in the arena
    """

    nbytes: int
    first: int
    last: int
    in_arena: bool = False


class Lender(Record):
    """The time during which the memory of an output may be lent to temporaries.

    nbytes:  its length
    first:   the first moment that may write there
    end:     the moment that writes the output
    """

    nbytes: int
    first: int
    end: int


def place_temporaries(lifetimes: list[Lifetime], lenders: list[Lender]) -> tuple[list[int | None], list[int], int]:
    """Returns for each lifetime its lender or None, for each its offset if it is in the arena, and the arena's bytes.

    Outputs lend memory only if that makes the arena shorter.

    >>> place_temporaries([Lifetime(64, 0, 1), Lifetime(64, 1, 2)], [Lender(64, 0, 2)])
    ([0, None], [0, 0], 64)
    """
    if not lifetimes:
        return [], [], 0
    offsets, nbytes = plan_memory(lifetimes)
    nowhere: list[int | None] = [None] * len(lifetimes)
    chosen = _lent(lifetimes, lenders) if len(lifetimes) <= SEARCHED_TEMPORARIES_MAX else nowhere
    left = [i for i, lender in enumerate(chosen) if lender is None]
    fewer, less = plan_memory([lifetimes[i] for i in left])
    if less >= nbytes:
        return nowhere, offsets, nbytes
    found = [0] * len(lifetimes)
    for i, offset in zip(left, fewer):
        found[i] = offset
    return chosen, found, less


def _lent(lifetimes: list[Lifetime], lenders: list[Lender]) -> list[int | None]:
    """Returns the lender of each lifetime: the longest choose first, of equal ones the last.

    Values that the output's kernel still reads cannot be in the output.
    """
    chosen: list[int | None] = [None] * len(lifetimes)
    inside: list[list[Lifetime]] = [[] for _ in lenders]
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, -lifetimes[i].last, i)):
        own = lifetimes[i]
        for number, lender in enumerate(lenders):
            in_time = lender.first <= own.first and own.last < lender.end
            fits = own.nbytes <= lender.nbytes and not own.in_arena
            if fits and in_time and all(other.last < own.first or own.last < other.first for other in inside[number]):
                chosen[i] = number
                inside[number].append(own)
                break
    return chosen


def plan_memory(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Returns an offset for each lifetime, and the bytes needed for all.

    The longest are placed first, each at the lowest offset that is free during its lifetime. If there are very many, they
    are placed in the order of their first use, which needs no search.

    >>> plan_memory([Lifetime(64, 0, 1), Lifetime(64, 1, 2), Lifetime(64, 2, 3)])
    ([0, 64, 0], 128)
    """
    return _by_length(lifetimes) if len(lifetimes) <= SEARCHED_TEMPORARIES_MAX else _by_time(lifetimes)


def _by_length(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Places the longest first, each at the lowest offset that is free. Cost: quadratic."""
    offsets, lengths = [0] * len(lifetimes), [aligned(lifetime.nbytes) for lifetime in lifetimes]
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i)):
        own, length = lifetimes[i], lengths[i]
        neighbours = [j for j in placed if lifetimes[j].first <= own.last and own.first <= lifetimes[j].last]
        offset = 0
        for j in sorted(neighbours, key=offsets.__getitem__):
            if offset + length <= offsets[j]:
                break
            if offset < (end := offsets[j] + lengths[j]):
                offset = end
        offsets[i] = offset
        placed.append(i)
        total = max(total, offset + length)
    return offsets, total


def _by_time(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Places buffers by first use, the largest of equals first, each in the smallest gap that holds it. Cost: n log n."""
    offsets = [0] * len(lifetimes)
    gaps = _Gaps()
    ending: list[tuple[int, int]] = []  # heap of (last use, number)
    for i in sorted(range(len(lifetimes)), key=lambda i: (lifetimes[i].first, -lifetimes[i].nbytes, i)):
        while ending and ending[0][0] < lifetimes[i].first:
            _, gone = heappop(ending)
            gaps.give(offsets[gone], aligned(lifetimes[gone].nbytes))
        offsets[i] = gaps.take(aligned(lifetimes[i].nbytes))
        heappush(ending, (lifetimes[i].last, i))
    return offsets, gaps.total


class _Gaps:
    """The free parts of an arena, as time goes on.

    total:  bytes of the arena so far
    """

    def __init__(self) -> None:
        self.total = 0
        self._by_length: list[tuple[int, int]] = []  # sorted (length, start)
        self._length: dict[int, int] = {}  # start -> length
        self._start: dict[int, int] = {}  # end -> start

    def take(self, length: int) -> int:
        """Returns the start of `length` bytes: in the shortest gap that is long enough, else at the end of the arena."""
        if not length:
            return 0
        place = bisect_left(self._by_length, (length, 0))
        if place < len(self._by_length):
            found, start = self._by_length[place]
            self._remove(start, found)
            self._add(start + length, found - length)
            return start
        start = self._start.get(self.total, self.total)  # a gap at the end is extended
        if start < self.total:
            self._remove(start, self.total - start)
        self.total = start + length
        return start

    def give(self, start: int, length: int) -> None:
        """Frees memory that was taken, merging it with the gaps at its sides."""
        end = start + length
        if end in self._length:
            behind = self._length[end]
            self._remove(end, behind)
            length += behind
        if start in self._start:
            before = self._start[start]
            self._remove(before, start - before)
            length += start - before
            start = before
        self._add(start, length)

    def _add(self, start: int, length: int) -> None:
        if length:
            insort(self._by_length, (length, start))
            self._length[start], self._start[start + length] = length, start

    def _remove(self, start: int, length: int) -> None:
        del self._by_length[bisect_left(self._by_length, (length, start))]
        del self._length[start], self._start[start + length]


def aligned(nbytes: int) -> int:
    """Returns the bytes that a temporary takes up in an arena."""
    return ceildiv(nbytes, ALIGNMENT) * ALIGNMENT
