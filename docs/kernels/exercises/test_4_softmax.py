"""Test of exercise 4."""

from __future__ import annotations

from types import ModuleType

import pytest

import picograd as pg


@pytest.mark.parametrize("shape", [(1, 1), (3, 32), (4, 100)])
def test_rows_are_normalized(exercise: ModuleType, shape: tuple[int, int]) -> None:
    pg.manual_seed(0)
    report = exercise.softmax.check(pg.randn(*shape))
    assert report, str(report)


@pytest.mark.parametrize("row", [[1000.0, 999.0, -1000.0], [-1000.0, -1001.0, -2000.0]], ids=["large", "small"])
def test_exponentials_neither_overflow_nor_vanish(exercise: ModuleType, row: list[float]) -> None:
    report = exercise.softmax.check(pg.tensor([row]))
    assert report, str(report)


def test_a_warp_needs_no_shared_memory(exercise: ModuleType) -> None:
    counts = exercise.softmax.prepare(pg.zeros(1, 64, device="CUDASIM")).counts()
    assert 10 <= counts["shuffles"] <= 12, "five steps each for the greatest and the sum, and one to tell all at most"
    assert counts["shared_stores"] == 0, f"{counts['shared_stores']} stores to shared memory"
