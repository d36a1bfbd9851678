"""Tests of exercise 9."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


def test_the_rules_alone(exercise: ModuleType) -> None:
    Node = exercise.Node
    x, zero = Node("input", (), "x"), Node("const", (), 0)
    assert exercise.simplify(Node("sub", (x, x))) == zero, "x - x is the constant 0"
    assert exercise.simplify(Node("add", (zero, x))) == x, "0 + x is x"
    assert exercise.simplify(Node("sub", (x, zero))) == Node("sub", (x, zero)), "only x - x is 0"


def test_rules_that_make_room_for_each_other(exercise: ModuleType) -> None:
    Node = exercise.Node
    x, y = Node("input", (), "x"), Node("input", (), "y")
    nothing = Node("sub", (x, x))
    deep = exercise.simplify(Node("exp", (Node("add", (nothing, y)),)))
    assert deep == Node("exp", (y,)), (
        f"exp((x - x) + y) is exp(y), not\n{deep}\nare sources simplified before rules are tried?"
    )
    again = exercise.simplify(Node("sub", (Node("add", (nothing, y)), y)))
    assert again == Node("const", (), 0), f"((x - x) + y) - y is 0, not\n{again}\nare rules tried on simplified sources?"
    zeros = exercise.simplify(Node("add", (Node("add", (nothing, nothing)), x)))
    assert zeros == x, f"((x - x) + (x - x)) + x is x, not\n{zeros}"


def chain(exercise: ModuleType, *ops: str) -> Any:
    node = exercise.Node("input", (), "x")
    for op in ops:
        node = exercise.Node(op, (node,))
    return node


@pytest.mark.parametrize("ops,phase", [("", 0), ("exp", 0), ("sum", 0), ("sum exp", 1), ("max exp sum exp", 2)])
def test_phases_of_a_chain(exercise: ModuleType, ops: str, phase: int) -> None:
    found = exercise.phase(chain(exercise, *ops.split()))
    assert found == phase, f"{'('.join([*reversed(ops.split()), 'x'])} begins after {phase} reductions, not {found}"


def test_the_latest_source_decides(exercise: ModuleType) -> None:
    x, total = chain(exercise), chain(exercise, "sum")
    for sources in ((x, total), (total, x)):
        found = exercise.phase(exercise.Node("sub", sources))
        assert found == 1, f"a difference that reads a sum begins after one reduction, not {found}"


@pytest.mark.parametrize(
    "nbytes,readers,read_nbytes,stored",
    [
        (16, 1, 16, False),  # an exponential of one array
        (16, 1, 32, False),  # a sum of two arrays, read once: the same bytes
        (16, 1, 48, True),
        (16, 3, 32, True),  # of two arrays, read three times
        (16, 3, 20, False),  # each of the three would read the stored value, too
        (4, 1, 4096, True),  # a total
        (16, 2, 0, False),  # a range: nothing to read
    ],
)
def test_stored_or_computed_again(exercise: ModuleType, nbytes: int, readers: int, read_nbytes: int, stored: bool) -> None:
    moved = (
        f"stored: {nbytes} written and {readers} times {nbytes} read; computed again: {readers} times {read_nbytes} read"
    )
    assert exercise.is_stored(nbytes, readers, read_nbytes) is stored, moved
