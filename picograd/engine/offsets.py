"""Offsets that change from run to run: where the blocks of a graph begin, as symbolic integers.

In:    the SHRINKs and PADs of a form
Out:   `Offset`, `offsets_of`; `Moving`: which of them change, and their expressions
Called by: engine/scalars.py, engine/plan.py.    Next: picograd/engine/kept_plans.py

    for i in range(0, 2048, 64):
        step(x[i : i + 64], y[i : i + 64])      # SHRINK (i, i + 64) of two buffers: one symbolic integer, i

Offsets that have moved by equal amounts so far are one symbolic integer plus constants, so that a block is still seen to be
the one that is written, or the one beside it. Where they part they become two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, bounds, subtract
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


def offsets_of(op: Op, arg: Sequence[tuple[Any, Any]], found: list[Offset], lengths: list[int]) -> Hashable:
    """Returns the argument of a SHRINK or PAD without its offsets and lengths, which are added to `found` and `lengths`.

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
        if held > 1:
            lengths.append(held)
        rest.append((room > 0, held if held < 2 else None))
    return tuple(rest)


def with_held(op: Op, dims: Iterator[Dim]) -> list[tuple[Dim, Dim]]:
    """Returns the argument of a SHRINK or PAD with other lengths of its blocks, or other numbers of zeros."""
    is_shrink, found = op.code is OpCode.SHRINK, []
    for (start, end), length in zip(op.arg, op.src[0].shape):
        if start.__class__ is int and end.__class__ is int and length.__class__ is int:
            number = end - start if is_shrink else start + end
            held = next(dims) if number > 1 else number
            end = add(start, held) if is_shrink else subtract(held, start)
        found.append((start, end))
    return found


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
    groups:   of each, by number; FIXED where it does not change by itself
    prefix:   of the names of their symbolic integers
    starts:   of each, where it follows from symbolic lengths, else None
    rooms:    of each, where lengths are symbolic
    """

    offsets: tuple[Offset, ...] = ()
    groups: tuple[int, ...] = ()
    prefix: str = "offset"
    starts: tuple[Dim | None, ...] = ()
    rooms: tuple[Dim | None, ...] = ()

    def places(self) -> tuple[Place, ...]:
        """Returns axis and value of each offset."""
        return tuple([(offset.axis, offset.value) for offset in self.offsets])

    def constants(self) -> tuple[int, ...]:
        """Returns the values of fixed offsets, and how far each of the others is from the first of its group."""
        firsts = self._firsts()
        found = [o.value - firsts.get(group, 0) for o, group in zip(self.offsets, self.groups)]
        return tuple([0 if start is not None else value for value, start in zip_longest(found, self.starts)])

    def values(self) -> dict[str, int]:
        """Returns the values of the symbolic integers by name."""
        return {self.name(group): value for group, value in self._firsts().items()}

    def arguments(self, lengths: Mapping[Op, Any] = MappingProxyType({})) -> dict[Op, Any]:
        """Returns the arguments with symbolic offsets, for the Ops that have any.

        Args:
          lengths:  arguments of Ops that have symbolic lengths
        """
        found = dict(lengths)
        members: dict[int, list[tuple[Offset, int, Dim]]] = {}
        for offset, group, constant, start, room in zip_longest(
            self.offsets, self.groups, self.constants(), self.starts, self.rooms
        ):
            if start is not None:
                _begin(found, offset, start)
            members.setdefault(group, []).append((offset, constant, offset.room if room is None else room))
        members.pop(FIXED, None)
        for group, places in members.items():
            least, greatest = max(-c for _, c, _ in places), min(bounds(room)[1] - c for _, c, room in places)
            variable = Op(OpCode.VARIABLE, dtypes.int64, (), (self.name(group), least, greatest))
            for offset, constant, _ in places:
                _begin(found, offset, add(variable, constant))
        return {op: tuple(arg) if op.code in BLOCKS else arg for op, arg in found.items()}

    def _firsts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for offset, group in zip(self.offsets, self.groups):
            if group != FIXED:
                found.setdefault(group, offset.value)
        return found

    def name(self, group: int) -> str:
        """Returns the name of the symbolic integer of a group."""
        return f"{self.prefix}{group}"


def _begin(arguments: dict[Op, Any], offset: Offset, at: Dim) -> None:
    """Has a block begin at another place."""
    op = offset.op
    arg = arguments[op] = list(arguments.get(op, op.arg))
    start, end = arg[offset.axis]
    if op.code is OpCode.SHRINK:
        arg[offset.axis] = at, add(at, subtract(end, start))
    else:
        arg[offset.axis] = at, subtract(add(start, end), at)


def free_prefix(names: Iterable[str] | Mapping[str, int], prefix: str = "offset") -> str:
    """Returns a beginning of names that none of the user's symbolic integers has.

    >>> free_prefix(["n", "offset2"])
    'offset_'
    """
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix
