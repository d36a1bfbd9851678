"""Test of the exercise of chapter 23: times of functions that call each other."""

from __future__ import annotations

from types import ModuleType

import pytest

Event = tuple[int, str, str]

CASES: dict[str, tuple[list[Event], dict[str, int]]] = {
    "one call": ([(0, "begin", "f"), (7, "end", "f")], {"f": 7}),
    "one after the other": ([(0, "begin", "f"), (2, "end", "f"), (5, "begin", "g"), (9, "end", "g")], {"f": 2, "g": 4}),
    "one in the other": ([(0, "begin", "f"), (2, "begin", "g"), (5, "end", "g"), (9, "end", "f")], {"f": 6, "g": 3}),
    "twice": (
        [(0, "begin", "f"), (1, "begin", "g"), (2, "end", "g"), (4, "begin", "g"), (7, "end", "g"), (8, "end", "f")],
        {"f": 4, "g": 4},
    ),
    "a function that calls itself": (
        [(0, "begin", "f"), (1, "begin", "f"), (3, "begin", "g"), (4, "end", "g"), (6, "end", "f"), (10, "end", "f")],
        {"f": 9, "g": 1},
    ),
    "no time at all": ([(3, "begin", "f"), (3, "begin", "g"), (3, "end", "g"), (5, "end", "f")], {"f": 2, "g": 0}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_own_times(exercise: ModuleType, case: str) -> None:
    events, expected = CASES[case]
    found = exercise.own_times(events)
    assert found == expected, f"the times are {expected}, not {found}, in\n" + "\n".join(map(str, events))
