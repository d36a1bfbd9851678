"""Joins loop nests into kernels, so that small steps do not each pay for a launch.

In:    nests in order (schedule/fuse.py)
Out:   groups: lists of phases, each a list of nests
Called by: schedule/create.py.    Next: picograd/schedule/loops.py

Two reasons to join: elementwise nests that do not need each other become one kernel (the update of every
parameter of a network); and a nest that only works on what the rows of a reduction left, or down the columns of
the same data, becomes a later phase of its kernel (the mean of a loss, the weight gradients of a layer norm), as a
small reduction becomes an earlier phase of what reads it (the number of targets that count in a loss).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from picograd.ir.op import Op, greatest_numel, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import NestKind
from picograd.schedule.draft import Draft, Fused, in_memory

MAX_OUTPUTS = 32  # of an elementwise kernel
SMALL = 4  # one nest this many times smaller than the other: they may be phases of one kernel


@dataclass(eq=False)
class Group:
    """The nests of one kernel by phase."""

    phases: list[list[Draft]] = field(default_factory=list)

    @property
    def nests(self) -> list[Draft]:
        return [nest for phase in self.phases for nest in phase]


def group(fused: Fused) -> list[Group]:
    """Returns the kernels in order.

    After:  whatever a nest needs is in an earlier group, or in an earlier phase of its own.
    """
    groups: list[Group] = []
    home: dict[int, Group] = {}  # bit of a nest -> its group
    for nest in fused.nests:
        earliest = max((groups.index(home[bit]) for bit in home if nest.needs & bit), default=-1)
        for chosen in groups[max(0, earliest) :][::-1]:
            if _may_join(nest, chosen, fused) and _ready(nest, chosen, groups, home):
                _join(nest, chosen)
                break
        else:
            chosen = Group([[nest]])
            groups.append(chosen)
        home[nest.bit] = chosen
    return groups


def _ready(nest: Draft, chosen: Group, groups: list[Group], home: dict[int, Group]) -> bool:
    """True when all that `nest` needs is done before `chosen`, or in it."""
    last = groups.index(chosen)
    return all(groups.index(home[bit]) <= last for bit in home if nest.needs & bit)


def _may_join(nest: Draft, chosen: Group, fused: Fused) -> bool:
    """True when one kernel may hold `nest` besides the nests of `chosen`; see the two reasons above."""
    if any(op.code is OpCode.CONTIGUOUS and fused.home.get(op) in chosen.nests for op in memory_read(nest, fused)):
        return False  # the user asked for a cut here
    kinds = {n.kind for n in chosen.nests}
    needs_chosen = any(nest.needs & n.bit for n in chosen.nests)
    if nest.kind is NestKind.ELEMENTWISE and kinds == {NestKind.ELEMENTWISE} and not needs_chosen:
        return sum(len(n.stored) for n in chosen.nests) + len(nest.stored) <= MAX_OUTPUTS
    if NestKind.REDUCE not in kinds or nest.kind not in (NestKind.REDUCE, NestKind.ELEMENTWISE):
        return False
    first = chosen.phases[0][0]
    if nest.kind is NestKind.REDUCE and nest.domain == first.domain:
        return needs_chosen or bool(memory_read(nest, fused) & memory_read(first, fused))
    small, large = sorted((greatest_numel(nest.domain), greatest_numel(first.domain)))
    return needs_chosen and small * SMALL <= large


def _join(nest: Draft, chosen: Group) -> None:
    phase = 0
    for i, nests in enumerate(chosen.phases):
        if any(nest.needs & n.bit for n in nests):
            phase = i + 1
    if phase == len(chosen.phases):
        chosen.phases.append([])
    chosen.phases[phase].append(nest)


def memory_read(nest: Draft, fused: Fused) -> set[Op]:
    """Returns the values in memory that a nest reads: buffers, and what other nests have stored."""
    stop = {op for op, home in fused.home.items() if home is not nest}
    found = toposort(nest.stored, stop=stop)
    return {op for op in found if op in stop or in_memory(op)}
