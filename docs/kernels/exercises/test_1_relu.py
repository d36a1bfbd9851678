"""Test of exercise 1."""

from __future__ import annotations

from types import ModuleType

import pytest

import picograd as pg


@pytest.mark.parametrize("count", [1, 64, 1000])
def test_every_element_is_computed_and_no_other_memory_is_touched(exercise: ModuleType, count: int) -> None:
    report = exercise.squared_relu.check(pg.linspace(-2, 3, count))
    assert report, str(report)


def test_a_thread_has_an_element(exercise: ModuleType) -> None:
    counts = exercise.squared_relu.prepare(pg.ones(1000, device="CUDASIM")).counts()
    assert counts["global_stores"] <= 32, "a warp needs one store for 32 elements: does each thread have its own?"


def test_a_tensor_of_several_axes_is_its_elements(exercise: ModuleType) -> None:
    report = exercise.squared_relu.check(pg.linspace(-2, 3, 105).reshape(5, 3, 7))
    assert report, str(report)
