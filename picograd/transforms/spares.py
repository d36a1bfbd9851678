"""Memory of small results that a replay wrote before, written again where nobody reads it any more.

In:    what each call of a replay wrote
Out:   `Spares`: buffers to write to
Called by: transforms/capture.py.    Next: picograd/transforms/returned.py

A training step returns a loss. Asking the allocator for its memory costs more Python than a small network takes to
compute, so a replay writes each small result (and small state that it cannot write over, see tensor/cell.py) where its
last one was, if nobody reads that any more. Else there are two versions, written in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.dtype import float32
from picograd.ir.op import Buffer
from picograd.tensor.cell import Held
from picograd.transforms.readers import COUNTS_TELL, unread

MOST_NBYTES = 4096  # of one state: what is larger takes longer to compute than to allocate
_NOTHING: Held = (Buffer("", float32, 0, object()), ())  # known here, so it is never given


class Spares:
    """The last version of small results and state, and the one before where it was read when the last was written.

    places:  of these, among all that a call has to find memory for
    results: which of the results of a call they are
    older:   the version before
    newer:   what the last call wrote
    """

    def __init__(self, count: int, written: Sequence[tuple[int, int, int]]):
        """written: (place among `count`, number among the results, bytes) of each result or state that a call makes."""
        small = [(place, result) for place, result, nbytes in written if nbytes <= MOST_NBYTES and COUNTS_TELL]
        self.places = tuple(place for place, _ in small)
        self.results = tuple(result for _, result in small)
        self.nothing: list[Buffer | None] = [None] * count
        self.older: list[Held] = [_NOTHING] * len(small)
        self.newer: list[Held] = self.older.copy()

    def given(self) -> list[Buffer | None]:
        """Returns a buffer that nobody reads in each place that has one: where there are two, what is newer."""
        found = self.nothing.copy()
        for n, place in enumerate(self.places):
            found[place] = unread(self.newer, n) or unread(self.older, n)
        return found

    def keep(self, results: Sequence[Held]) -> None:
        """Takes note of what a call has written: over the last version, or beside it."""
        newer, older = self.newer, self.older
        for n, number in enumerate(self.results):
            version, last = results[number], newer[n]
            older[n] = _NOTHING if version[0] is last[0] else last
            newer[n] = version
