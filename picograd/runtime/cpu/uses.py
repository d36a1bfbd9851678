"""Which kernel must wait for which: what each reads and writes, and the last one before it that this conflicts with.

In:    for each item of a plan what it uses, in order
Out:   `Use`; `touched`, `last_conflict`
Called by: runtime/cpu/plan.py.    Next: picograd/runtime/cpu/runner.py
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from picograd.record import Record

LOOK_BACK = 32  # kernels; an older one counts as read or written by everything

Piece = tuple[str, int, int]  # space, start, end


class Use(Record):
    """What a kernel or a loop does with one piece of memory.

    space:      "outer" (inputs and outputs), "arena" or "step" (what differs from step to step of a loop)
    start, end: bytes of the arena; for "outer" and "step" a number, counted from 0
    writes:     False: it only reads
    """

    space: str
    start: int
    end: int
    writes: bool


class Touched(Record):
    """What is read and what is written, in rising order; of either no two pieces overlap."""

    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]


History = list[tuple[Touched, int]]  # what each item used, and the number of entries after it


def touched(uses: Iterable[Use]) -> Touched:
    """Returns the uses of one item in the form that `last_conflict` compares."""
    uses = list(uses)
    reads, writes = (joined((u.space, u.start, u.end) for u in uses if u.writes is kind) for kind in (False, True))
    return Touched(reads, writes)


def joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Returns pieces in rising order, those that overlap as one and those without a byte left out."""
    result: list[Piece] = []
    for space, start, end in sorted(piece for piece in pieces if piece[1] < piece[2]):
        if result and result[-1][0] == space and start < result[-1][2]:
            result[-1] = space, result[-1][1], max(end, result[-1][2])
        else:
            result.append((space, start, end))
    return tuple(result)


def last_conflict(history: History, now: Touched) -> int:
    """Returns how many entries must be done before an item that uses `now` may begin."""
    for before, entries in reversed(history[-LOOK_BACK:]):
        if meet(before.writes, now.writes) or meet(before.writes, now.reads) or meet(before.reads, now.writes):
            return entries
    return history[-LOOK_BACK - 1][1] if len(history) > LOOK_BACK else 0


def meet(some: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    """True when a piece of `some` overlaps one of `others`; both as `joined` returns them."""
    few, many = (some, others) if len(some) < len(others) else (others, some)
    for space, start, end in few:
        last = bisect_left(many, (space, end)) - 1  # the last one that begins before this one ends
        if last >= 0 and many[last][0] == space and many[last][2] > start:
            return True
    return False
