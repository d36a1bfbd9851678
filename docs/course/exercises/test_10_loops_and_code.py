"""Test of the exercise of chapter 10: unrolled loops compute the same, with fewer jumps."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

# out[i] = sum over k of x[7 i + k] * y[k], for i < 3 and k < 7
SUM = ("add", "total", ("*", ("load", "x", ("+", ("*", "i", 7), "k")), ("load", "y", "k")))
LOOPS = [("for", "i", 3, [("set", "total", 0), ("for", "k", 7, [SUM]), ("store", "out", "i", "total")])]


def run(statements: Any, memory: dict[str, list[int]], names: dict[str, int]) -> int:
    """Runs statements, and returns how many iterations of loops there were."""

    def value(e: Any) -> int:
        if isinstance(e, tuple):
            if e[0] == "load":
                return memory[e[1]][value(e[2])]
            return value(e[1]) + value(e[2]) if e[0] == "+" else value(e[1]) * value(e[2])
        return names[e] if isinstance(e, str) else e

    count = 0
    for kind, name, *rest in statements:
        if kind == "for":
            for names[name] in range(rest[0]):
                count += 1 + run(rest[1], memory, names)
        elif kind == "store":
            memory[name][value(rest[0])] = value(rest[1])
        else:
            names[name] = value(rest[0]) + (names[name] if kind == "add" else 0)
    return count


@pytest.mark.parametrize(("times", "iterations"), [(1, 3 * 8), (2, 3 * 4), (3, 3 * 3), (7, 3 * 2), (9, 3)])
def test_the_result_is_the_same_in_fewer_iterations(exercise: ModuleType, times: int, iterations: int) -> None:
    memory = {"x": list(range(21)), "y": [1, 2, 3, 4, 5, 6, 7], "out": [0, 0, 0]}
    counted = run(exercise.unroll(LOOPS, times), memory, {})
    wanted = [sum((7 * i + k) * (k + 1) for k in range(7)) for i in range(3)]
    assert memory["out"] == wanted, (
        f"the three sums are {wanted}, not {memory['out']}: which k are left out, or done twice?"
    )
    assert counted == iterations, f"unrolled {times} times it should take {iterations} iterations, not {counted}"
