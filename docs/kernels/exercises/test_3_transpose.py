"""Test of exercise 3."""

from __future__ import annotations

from types import ModuleType

import pytest

import picograd as pg

SIDE = 64
SECTORS = SIDE * SIDE * 4 // 32


@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (40, 70)])
def test_it_is_a_transpose(exercise: ModuleType, shape: tuple[int, int]) -> None:
    report = exercise.transpose.check(pg.arange(shape[0] * shape[1]).float().reshape(shape))
    assert report, str(report)


def test_it_moves_whole_sectors(exercise: ModuleType) -> None:
    counts = exercise.transpose.prepare(pg.zeros(SIDE, SIDE, device="CUDASIM")).counts()
    assert counts["loaded_sectors"] == SECTORS, f"loads touch {counts['loaded_sectors']} sectors, {SECTORS} are enough"
    assert counts["stored_sectors"] == SECTORS, f"stores touch {counts['stored_sectors']} sectors, {SECTORS} are enough"


def test_no_bank_is_asked_twice(exercise: ModuleType) -> None:
    counts = exercise.transpose.prepare(pg.zeros(SIDE, SIDE, device="CUDASIM")).counts()
    assert counts["shared_loads"] > 0, "the tile is to be in shared memory"
    assert counts["bank_conflicts"] == 0, f"{counts['bank_conflicts']} bank conflicts"
