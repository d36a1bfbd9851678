"""Memory of small results that a replay wrote two calls ago, written again where nobody reads it any more.

In:    what each call of a replay wrote; memory of claimed state
Out:   `Spares`: buffers to write to;  `has_readers`
Called by: transforms/capture.py.    Next: picograd/transforms/guards.py

A training step returns a loss. Asking the allocator for its memory costs more Python than a small network takes to
compute, so a replay keeps two versions of each small result (and of small state that it cannot write over, see
tensor/cell.py) and writes them in turn. That nobody reads a version is known from reference counts: of the tuple that a
cell holds, of the Buffer in it, of its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from picograd.dtype import float32
from picograd.ir.op import Buffer
from picograd.tensor.cell import Held

MOST_NBYTES = 4096  # of one state: what is larger takes longer to compute than to allocate


def _with_references(held: Sequence[Held]) -> list[tuple[Buffer, tuple[int, int, int]]]:
    """Returns buffers, and how many references there are to what leads to each."""
    # NOTE: the references are taken before they are counted, so of two threads that look at once neither is alone.
    return [
        (buffer := version[0], (getrefcount(version), getrefcount(buffer), getrefcount(buffer.memory)))
        for version in held
    ]


def _references_of_one_reader() -> tuple[int, int, int] | None:
    """Returns the counts of a version that only a list knows, or None where counts tell nothing."""
    # NOTE: from Python 3.14 on, and without the interpreter's lock, an object in use may have fewer counts than users.
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    return _with_references([(Buffer("", float32, 0, object()), ())])[0][1]


ALONE = _references_of_one_reader()


def has_readers(buffers: Sequence[Buffer | None], place: int) -> bool:
    """Returns whether anything but this list, the one of a claim, may know a buffer or its memory."""
    return _ALONE_IN_CLAIM is None or _references(buffers, place) != _ALONE_IN_CLAIM


def _references(buffers: Sequence[Any], place: int) -> tuple[int, int]:
    return getrefcount(buffers[place]), getrefcount(buffers[place].memory)


_ALONE_IN_CLAIM = None if ALONE is None else _references([Buffer("", float32, 0, object())], 0)


class Spares:
    """The last two versions of small results and state.

    places:  of these, among all that a call has to find memory for
    results: which of the results of a call they are
    older:   what the call before the last one wrote to them; () before there was one
    newer:   what the last call wrote
    """

    def __init__(self, count: int, written: Sequence[tuple[int, int, int]]):
        """written: (place among `count`, number among the results, bytes) of each result or state that a call makes."""
        small = [(place, result) for place, result, nbytes in written if nbytes <= MOST_NBYTES and ALONE is not None]
        self.places = tuple(place for place, _ in small)
        self.results = tuple(result for _, result in small)
        self.nothing: list[Buffer | None] = [None] * count
        self.older: Sequence[Held] = ()
        self.newer: Sequence[Held] = ()

    def given(self) -> list[Buffer | None]:
        """Returns a buffer that nobody reads in each place that has one."""
        found = self.nothing.copy()
        for place, (buffer, references) in zip(self.places, _with_references(self.older)):
            if references == ALONE:
                found[place] = buffer
        return found

    def keep(self, results: Sequence[Held]) -> None:
        """Takes note of what a call has written."""
        self.older, self.newer = self.newer, [results[number] for number in self.results]
