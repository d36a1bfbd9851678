"""Test of the exercise of chapter 11: a cache of 24 lines counts what it fetches."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from types import ModuleType

LINES, LINE, MOST_FETCHES = 24, 4, 600


def test_each_step_is_done_once(exercise: ModuleType) -> None:
    n, steps = range(exercise.N), list(exercise.order())
    missing = set(itertools.product(n, n, n)) - set(steps)
    assert not missing, f"{len(missing)} steps are missing, such as {min(missing)}"
    assert len(steps) == exercise.N**3, f"there are {exercise.N**3} steps; {len(steps)} are done: some twice, or outside"


def test_few_lines_are_fetched(exercise: ModuleType) -> None:
    cache, fetches = OrderedDict[tuple[str, int, int], None](), 0
    for i, j, k in exercise.order():
        for line in (("a", i, k // LINE), ("b", k, j // LINE), ("c", i, j // LINE)):
            fetches += line not in cache
            cache[line] = None
            cache.move_to_end(line)
            if len(cache) > LINES:
                cache.popitem(last=False)
    assert fetches <= MOST_FETCHES, f"{fetches} lines were fetched, at most {MOST_FETCHES} should be"
