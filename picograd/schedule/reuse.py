"""Orders kernels, and finds outputs that may be written where an input lies.

In:    kernels, the values each reads and writes, the values that are asked for
Out:   `Order`: the kernels in order, for outputs the input they may be written over, and which are written late
Called by: road.py.    Next: picograd/schedule/memory.py

A training step replaces every parameter, a decode step some rows of a cache. Whoever runs the plan knows whether the old
version is still wanted; if not, the new one can have its memory. That is right when each kernel that reads the old
version runs before the one that overwrites it, or is the same and reads each element only to compute that element.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Any

from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE, OpCode
from picograd.ir.stages import Kernel, Nest, NestKind
from picograd.record import Record, Struct, field
from picograd.schedule.draft import in_memory
from picograd.schedule.update import versions_of

ALIGNED = ELEMENTWISE | {OpCode.RESHAPE}  # what computes an element from elements at the same position
# Each element, or row, is done once.
IN_PLACE = frozenset({NestKind.ELEMENTWISE, NestKind.MATMUL, NestKind.CONV, NestKind.REDUCE})


class Step(Record):
    """What runs as one: a kernel, or a loop over a schedule.

    kernel:   None for a loop
    values:   by slot of the kernel what is stored there; of a loop the CALL or LOOP
    phases:   by slot the first and the last phase that reads or writes it
    read:     values it reads; an UPDATE reads its base
    written:  values it stores
    checks:   of the kernel
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
    """What is decided about the kernels.

    steps:    numbers of the kernels in order
    over:     for an output the input whose memory it may have
    also:     other inputs that it could be written over instead
    late:     outputs that are written after every CHECK that may fail
    refused:  UPDATEs that cannot be made in place
    commit:   how many kernels run before the first that may overwrite what was there before the run, where one of them
              may fail; else 0
    """

    steps: list[int] = field(default_factory=list)
    over: dict[Op, Op] = field(default_factory=dict)
    also: dict[Op, tuple[Op, ...]] = field(default_factory=dict)
    late: set[Op] = field(default_factory=set)
    refused: set[Op] = field(default_factory=set)
    commit: int = 0


def order_steps(steps: Sequence[Step], roots: Sequence[Op]) -> Order:
    """Returns the kernels in an order in which UPDATEs see the versions they should, and outputs replace inputs.

    After:  what replaces an input runs after every CHECK that may fail, so that after an error the input is still there.
    """
    found, needs, failing = Order(), _Needs(steps), _may_fail_first(steps)
    for number, step in enumerate(steps):
        for value in step.written:
            if value.code is OpCode.UPDATE:
                before = [*failing, *needs.readers_of(value.src[0])]
                if number in failing or not needs.run_before(before, number):
                    found.refused.add(value)
    if found.refused:
        return found
    choices: list[tuple[Op, list[Op]]] = []
    for root in dict.fromkeys(roots):
        if root.code is OpCode.UPDATE:
            found.over[root] = _buffer_of(root)
        elif not in_memory(root) and needs.home[root] not in failing:
            choices.append((root, needs.replaceable(root, roots)))
    names = Counter(value.arg[0] for value in needs.readers if in_memory(value))
    taken = set(found.over.values())
    for root, inputs in sorted(choices, key=lambda choice: len(choice[1])):
        for value in inputs:
            is_free = value not in taken and names[value.arg[0]] == 1
            if is_free and needs.run_before([*failing, *needs.readers_of(value)], needs.home[root]):
                found.over[root] = value
                taken.add(value)
                break
    found.steps = needs.in_order()
    place = {number: i for i, number in enumerate(found.steps)}
    for root, inputs in choices:
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


def _may_fail_first(steps: Sequence[Step]) -> list[int]:
    """Returns the kernels with a CHECK that no earlier one has, and the loops that have any."""
    failing: list[int] = []
    seen: set[Any] = set()
    for number, step in enumerate(steps):
        if step.may_fail and (step.kernel is None or not seen.issuperset(step.checks)):
            failing.append(number)
        seen.update(step.checks)
    return failing


def _buffer_of(update: Op) -> Op:
    return versions_of(update)[-1].src[0]


class _Needs:
    """Which kernels must run before which.

    home:     for each stored value the number of its kernel
    readers:  for each value the numbers of the kernels that read it
    before:   by kernel, the set (as bits) of all that must run before it
    direct:   by kernel, those that it was given directly
    """

    def __init__(self, steps: Sequence[Step]):
        self.steps = steps
        self.home = {value: number for number, step in enumerate(steps) for value in step.written}
        self.readers: dict[Op, list[int]] = {}
        self.before: list[int] = []
        self.direct: list[set[int]] = []
        for number, step in enumerate(steps):
            self.before.append(0)
            self.direct.append(set())
            for value in step.read:
                self.readers.setdefault(value, []).append(number)
                home = self.home.get(value, number)
                if home != number:
                    self.direct[number].add(home)
                    self.before[number] |= self.before[home] | 1 << home

    def readers_of(self, value: Op) -> list[int]:
        return self.readers.get(value, [])

    def run_before(self, others: Sequence[int], number: int) -> bool:
        """Lets all of `others` run before a kernel, unless one of them needs it."""
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

    def replaceable(self, root: Op, roots: Sequence[Op]) -> list[Op]:
        """Returns the inputs that the kernel of an output reads only to compute the element at the same position."""
        step = self.steps[self.home[root]]
        if step.kernel is None:
            return []
        slot = step.values.index(root)
        nest = next(n for phase in step.kernel.phases for n in phase if any(slot == s for s, _ in n.outputs))
        if nest.kind not in IN_PLACE:
            return []
        inputs = aligned_params(next(value for s, value in nest.outputs if s == slot))
        elsewhere = _read_elsewhere(step.kernel, nest)
        found = [step.values[p.arg[0]] for p in inputs if p not in elsewhere and p.dtype is root.dtype]
        return [v for v in dict.fromkeys(found) if in_memory(v) and v not in roots and v.shape == root.shape]

    def in_order(self) -> list[int]:
        """Returns the kernels so that each runs after those it needs, else as they came."""
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


# ---- what a kernel reads at which positions ----
def aligned_params(value: Op) -> list[Op]:
    """Returns the PARAMs of which element i is read for element i of a value, and for no other."""
    return [op for op in _walk([value])[0] if op.code is OpCode.PARAM]


def _walk(values: Sequence[Op]) -> tuple[list[Op], list[Op]]:
    """Returns the Ops at the same position as `values`, and those that are read by them at others."""
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
    """Returns the PARAMs that a kernel reads outside `nest`, or at other positions than it stores."""
    others = [v for phase in kernel.phases for n in phase if n is not nest for _, v in n.outputs]
    _, moved = _walk([value for _, value in nest.outputs])
    return {op for op in toposort([*others, *moved]) if op.code is OpCode.PARAM}
