"""Offsets that change from run to run: where the blocks of a graph begin, as symbolic integers.

In:    the SHRINKs and PADs of a form
Out:   `Offset`, `offsets_of`; `Moving`: which of them change, and their expressions
Called by: engine/scalars.py, engine/plan.py.    Next: picograd/engine/kept_plans.py

    for i in range(0, 2048, 64):
        step(x[i : i + 64], y[i : i + 64])      # SHRINK (i, i + 64) of two buffers: one symbolic integer, i

Offsets that have moved by equal amounts so far are one symbolic integer plus constants, so that a block is still seen to be
the one that is written, or the one beside it. Where they part they become two. A length stays a number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, subtract
from picograd.record import Record

BLOCKS = frozenset({OpCode.SHRINK, OpCode.PAD})
FIXED = 0  # the group of offsets that have not changed


class Offset(Record):
    """Elements of an axis before a block: those that a SHRINK leaves out, or that a PAD adds.

    op, axis:  where
    value:     now
    room:      its greatest value
    """

    op: Op
    axis: int
    value: int
    room: int

    def block(self) -> Hashable:
        """Returns what tells the block from others of its line; None where no line is known."""
        return (self.op.lines[0], self.op.code, self.op.src[0].shape, self.axis, self.room) if self.op.lines else None


def offsets_of(op: Op, arg: Sequence[tuple[Any, Any]], found: list[Offset]) -> Hashable:
    """Returns the argument of a SHRINK or PAD without its offsets, which are added to `found`.

    Args:
      arg:  the argument, with symbolic integers freed of their values
    """
    rest: list[Hashable] = []
    is_shrink = op.code is OpCode.SHRINK
    for axis, ((start, end), length) in enumerate(zip(arg, op.src[0].shape if is_shrink else op.shape)):
        if start.__class__ is not int or end.__class__ is not int or length.__class__ is not int:
            rest.append((start, end))
            continue
        held = end - start if is_shrink else start + end
        room = length - held if is_shrink else held
        if room:
            found.append(Offset(op, axis, start, room))
        rest.append(held)
    return tuple(rest)


Place = tuple[int, int]  # an axis and a value


def regrouped(groups: Sequence[int], before: Sequence[Place], now: Sequence[Place]) -> tuple[int, ...]:
    """Returns the groups of offsets that have moved alike along one axis, once more values are known.

    >>> regrouped((0, 0, 0, 0), ((0, 5), (0, 6), (0, 7), (1, 8)), ((0, 5), (0, 8), (0, 9), (1, 10)))
    (0, 1, 1, 2)
    """
    numbers: dict[Hashable, int] = {}
    found = []
    for group, (axis, a), (_, b) in zip(groups, before, now):
        moved = group != FIXED or a != b
        found.append(numbers.setdefault((group, axis, b - a), len(numbers) + 1) if moved else FIXED)
    return tuple(found)


class Moving(Record):
    """The offsets of a form, and those of them that change.

    offsets:  all of them
    groups:   of each, by number; FIXED where it does not change
    prefix:   of the names of their symbolic integers
    """

    offsets: tuple[Offset, ...] = ()
    groups: tuple[int, ...] = ()
    prefix: str = "offset"

    def places(self) -> tuple[Place, ...]:
        """Returns axis and value of each offset."""
        return tuple([(offset.axis, offset.value) for offset in self.offsets])

    def constants(self) -> tuple[int, ...]:
        """Returns the values of fixed offsets, and how far each of the others is from the first of its group."""
        firsts = self._firsts()
        return tuple([o.value - firsts.get(group, 0) for o, group in zip(self.offsets, self.groups)])

    def values(self) -> dict[str, int]:
        """Returns the values of the symbolic integers by name."""
        return {self.name(group): value for group, value in self._firsts().items()}

    def arguments(self) -> dict[Op, Any]:
        """Returns the arguments with symbolic offsets, for the Ops that have any."""
        members: dict[int, list[tuple[Offset, int]]] = {}
        for offset, group, constant in zip(self.offsets, self.groups, self.constants()):
            members.setdefault(group, []).append((offset, constant))
        members.pop(FIXED, None)
        found: dict[Op, list[tuple[Dim, Dim]]] = {}
        for group, places in members.items():
            least, greatest = max(-c for _, c in places), min(offset.room - c for offset, c in places)
            variable = Op(OpCode.VARIABLE, dtypes.int64, (), (self.name(group), least, greatest))
            for offset, constant in places:
                arg = found.setdefault(offset.op, list(offset.op.arg))
                start, end = arg[offset.axis]
                moved = add(variable, constant)
                if offset.op.code is OpCode.SHRINK:
                    arg[offset.axis] = moved, add(moved, subtract(end, start))
                else:
                    arg[offset.axis] = moved, subtract(add(start, end), moved)
        return {op: tuple(arg) for op, arg in found.items()}

    def _firsts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for offset, group in zip(self.offsets, self.groups):
            if group != FIXED:
                found.setdefault(group, offset.value)
        return found

    def name(self, group: int) -> str:
        """Returns the name of the symbolic integer of a group."""
        return f"{self.prefix}{group}"


def free_prefix(names: Iterable[str] | Mapping[str, int]) -> str:
    """Returns a beginning of names that none of the user's symbolic integers has.

    >>> free_prefix(["n", "offset2"])
    'offset_'
    """
    prefix = "offset"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix
