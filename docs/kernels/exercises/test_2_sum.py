"""Test of exercise 2."""

from __future__ import annotations

from types import ModuleType

import pytest

import picograd as pg


@pytest.mark.parametrize("shape", [(1, 1), (3, 128), (4, 1000)])
def test_rows_are_summed_without_a_race(exercise: ModuleType, shape: tuple[int, int]) -> None:
    pg.manual_seed(0)
    report = exercise.row_sums.check(pg.randn(*shape))
    assert report, str(report)


def test_threads_share_the_work(exercise: ModuleType) -> None:
    counts = exercise.row_sums.prepare(pg.ones(1, 1024, device="CUDASIM")).counts()
    assert counts["global_loads"] <= 32, "a warp needs one load for 32 elements"
    assert counts["shared_loads"] <= 64, "a tree of 128 sums takes 16 to 50 loads of warps, one thread alone 128"
