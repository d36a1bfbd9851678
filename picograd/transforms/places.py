"""The order in which a plan takes memory, and which of it a call brings, in the form that is quickest to follow.

In:    places
Out:   `in_order`, `side_by_side`
Called by: transforms/capture.py.    Next: picograd/transforms/kinds.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

LEAST_RUN = 4  # neighbours that go as one: a slice costs as much as three that go alone


def in_order(places: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns what puts things in another order: item `places[i]` comes at i."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


def side_by_side(pairs: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[slice, slice]]]:
    """Returns pairs of places that stand alone, and those that are neighbours in both, as slices."""
    alone: list[tuple[int, int]] = []
    runs: list[tuple[slice, slice]] = []
    # Neighbours are those for which the distance to their number is the same in both.
    for _, group in groupby(enumerate(pairs), lambda pair: (pair[1][0] - pair[0], pair[1][1] - pair[0])):
        found = [pair for _, pair in group]
        if len(found) < LEAST_RUN:
            alone += found
        else:
            (a, b), count = found[0], len(found)
            runs.append((slice(a, a + count), slice(b, b + count)))
    return alone, runs
