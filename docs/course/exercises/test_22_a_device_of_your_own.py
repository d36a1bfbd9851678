"""Test of the exercise of chapter 22: the text of each row, run on arrays."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

MEMORY = np.arange(20, dtype=np.float32) / 4


def value_of(text: str, **names: Any) -> Any:
    """Evaluates Python text."""
    return eval(text, {"np": np, **names})


def test_expand(exercise: ModuleType) -> None:
    found = value_of(exercise.expand("v1", 4), v1=np.float32(2.5))
    assert isinstance(found, np.ndarray), f"a vector is an array of NumPy, not a {type(found).__name__}"
    assert found.tolist() == [2.5] * 4 and found.dtype == np.float32, f"four lanes of 2.5 in float32, not {found!r}"


def test_load(exercise: ModuleType) -> None:
    memory = MEMORY.copy()
    found = value_of(exercise.load("p0", "(i1 + 1)", 4), p0=memory, i1=2)
    assert found.tolist() == MEMORY[3:7].tolist(), f"four elements from 3 on are {MEMORY[3:7]}, not {found}"
    memory[:] = 0
    assert found.tolist() == MEMORY[3:7].tolist(), "a later store changes what was loaded"


def test_gather(exercise: ModuleType) -> None:
    found = value_of(exercise.gather("p0", "v3"), p0=MEMORY, v3=np.array([7, 0, 7, 19]))
    assert found.tolist() == [1.75, 0.0, 1.75, 4.75], f"elements 7, 0, 7 and 19 are {MEMORY[[7, 0, 7, 19]]}, not {found}"


def test_store(exercise: ModuleType) -> None:
    memory = MEMORY.copy()
    exec(exercise.store("p1", "i1", 4, "v2"), {"np": np, "p1": memory, "i1": 8, "v2": np.full(4, -1.0, np.float32)})
    assert memory[8:12].tolist() == [-1.0] * 4, f"elements 8 to 11 are to be -1; they are {memory[8:12]}"
    others = np.r_[0:8, 12:20]
    assert memory[others].tolist() == MEMORY[others].tolist(), "elements before 8 or after 11 have changed"


def test_where(exercise: ModuleType) -> None:
    names = {"v1": np.array([True, False, True]), "v2": np.array([1, 2, 3]), "v3": np.array([4, 5, 6])}
    found = value_of(exercise.where("v1", "v2", "v3"), **names).tolist()
    assert found == [1, 5, 3], f"True, False, True of (1, 2, 3) and (4, 5, 6) is [1, 5, 3], not {found}"


def test_reduce_add_has_the_bits_of_halves(exercise: ModuleType) -> None:
    rng = np.random.default_rng(0)
    for lanes in (2, 8, 16, 32):
        numbers = (rng.standard_normal(lanes) * 10.0 ** rng.integers(-3, 4, lanes)).astype(np.float32)
        halves = numbers
        while len(halves) > 1:
            halves = halves[: len(halves) // 2] + halves[len(halves) // 2 :]
        assert value_of(exercise.reduce_add("v1", lanes), v1=numbers) == halves[0], (
            f"{lanes} lanes are added in another order"
        )
