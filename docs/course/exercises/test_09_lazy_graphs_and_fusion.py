"""Tests of exercise 9."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


def test_the_rules_alone(exercise: ModuleType) -> None:
    Node = exercise.Node
    x, zero = Node("input", (), "x"), Node("const", (), 0)
    assert exercise.simplify(Node("sub", (x, x))) == zero
    assert exercise.simplify(Node("add", (zero, x))) == x
    assert exercise.simplify(Node("sub", (x, zero))) == Node("sub", (x, zero)), "only x - x is 0"


def test_rules_that_make_room_for_each_other(exercise: ModuleType) -> None:
    Node = exercise.Node
    x, y = Node("input", (), "x"), Node("input", (), "y")
    nothing = Node("sub", (x, x))
    assert exercise.simplify(Node("exp", (Node("add", (nothing, y)),))) == Node("exp", (y,))
    assert exercise.simplify(Node("sub", (Node("add", (nothing, y)), y))) == Node("const", (), 0)
    assert exercise.simplify(Node("add", (Node("add", (nothing, nothing)), x))) == x


def chain(exercise: ModuleType, *ops: str) -> Any:
    node = exercise.Node("input", (), "x")
    for op in ops:
        node = exercise.Node(op, (node,))
    return node


@pytest.mark.parametrize("ops,phase", [("", 0), ("exp", 0), ("sum", 0), ("sum exp", 1), ("max exp sum exp", 2)])
def test_phases_of_a_chain(exercise: ModuleType, ops: str, phase: int) -> None:
    assert exercise.phase(chain(exercise, *ops.split())) == phase


def test_the_latest_source_decides(exercise: ModuleType) -> None:
    x, total = chain(exercise), chain(exercise, "sum")
    assert exercise.phase(exercise.Node("sub", (x, total))) == 1
    assert exercise.phase(exercise.Node("sub", (total, x))) == 1


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
    assert exercise.is_stored(nbytes, readers, read_nbytes) is stored
