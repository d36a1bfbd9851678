"""Test of the exercise of chapter 20: a shortened tape gives the same results in the fewest steps."""

from __future__ import annotations

import operator
from types import ModuleType

import pytest

FUNCTIONS = {"add": operator.add, "mul": operator.mul, "sub": operator.sub, "neg": operator.neg}
Step = tuple[str, tuple[int, ...], int]

CASES: dict[str, tuple[list[Step], list[int], int]] = {  # steps, results, the fewest steps
    "nothing to do": ([("add", (0, 1), 2), ("mul", (2, 0), 3)], [3], 2),
    "a value that nobody reads": ([("add", (0, 1), 2), ("mul", (0, 1), 3), ("neg", (3,), 4)], [2], 1),
    "the same twice": ([("add", (0, 1), 2), ("add", (0, 1), 3), ("mul", (2, 3), 4)], [4], 2),
    "the same by what it reads": (
        [("add", (0, 1), 2), ("neg", (2,), 3), ("add", (0, 1), 4), ("neg", (4,), 5), ("mul", (3, 5), 6)], [6], 3,
    ),
    "not the same": ([("sub", (0, 1), 2), ("sub", (1, 0), 3), ("mul", (2, 3), 4)], [4], 3),
    "a result that is the same": ([("add", (0, 1), 2), ("add", (0, 1), 3)], [2, 3], 1),
    "a result in the middle": ([("add", (0, 1), 2), ("neg", (2,), 3)], [2], 1),
}  # fmt: skip


def run(steps: list[Step], results: list[int]) -> list[int]:
    """Runs a tape with the arguments 5 and 7."""
    memory = {0: 5, 1: 7}
    for name, operands, out in steps:
        absent = set(operands) - memory.keys()
        assert not absent, f"{name} reads {absent}, which no step before it writes: {steps}"
        memory[out] = FUNCTIONS[name](*[memory[place] for place in operands])
    absent = set(results) - memory.keys()
    assert not absent, f"the results are at {results}, and no step writes {absent}: {steps}"
    return [memory[place] for place in results]


@pytest.mark.parametrize("case", CASES)
def test_the_tape_is_shorter_and_gives_the_same(exercise: ModuleType, case: str) -> None:
    steps, results, fewest = CASES[case]
    shorter, places = exercise.shorten(list(steps), list(results))
    found, wanted = run(shorter, places), run(steps, results)
    assert found == wanted, f"of 5 and 7 the results are {wanted}; the shorter tape gives {found}: {shorter}"
    assert len(shorter) == fewest, f"{len(shorter)} steps are left, {fewest} are enough: {shorter}"
