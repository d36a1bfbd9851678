"""Memory of small results that a replay wrote before, written again where nobody reads it any more.

In:    what each call of a replay wrote
Out:   `Spares`: versions to write over
Called by: transforms/capture.py, transforms/straight.py.    Next: picograd/transforms/straight.py

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

    places:  (number among these, place among all that a call has to find memory for)
    results: which of the results of a call they are
    older:   the version before
    newer:   what the last call wrote
    """

    def __init__(self, count: int, written: Sequence[tuple[int, int, int]]):
        """written: (place among `count`, number among the results, bytes) of each result or state that a call makes."""
        small = [(place, result) for place, result, nbytes in written if nbytes <= MOST_NBYTES and COUNTS_TELL]
        self.places = tuple((n, place) for n, (place, _) in enumerate(small))
        self.results = tuple(result for _, result in small)
        self.nothing: list[Held | None] = [None] * count
        self.older: list[Held] = [_NOTHING] * len(small)
        self.newer: list[Held] = self.older.copy()

    def given(self) -> list[Held | None]:
        """Returns a version that nobody reads in each place that has one: where there are two, the newer.

        It is the newer from now on, and the other is kept where somebody reads it.
        """
        found, newer, older = self.nothing.copy(), self.newer, self.older
        for n, place in self.places:
            version = unread(newer, n)
            if version is not None:
                older[n] = _NOTHING
            elif (version := unread(older, n)) is not None:
                newer[n], older[n] = version, newer[n]
            found[place] = version
        return found

    def keep(self, results: Sequence[Held]) -> None:
        """Takes note of what a call has written: over a version that was given, or beside the last."""
        newer, older = self.newer, self.older
        for n, number in enumerate(self.results):
            version, last = results[number], newer[n]
            if version[0] is not last[0]:
                older[n] = last
            newer[n] = version
