"""Tests of exercise 4."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

COUNTS = np.array([[0.0, 3.0, 1.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])


def test_rows_add_up_to_one_also_those_without_counts(exercise: ModuleType) -> None:
    table = exercise.smoothed(COUNTS, 1.0)
    assert np.allclose(table.sum(axis=1), 1.0), f"the rows add up to {table.sum(axis=1)}"
    wanted = np.array([[1 / 7, 4 / 7, 2 / 7], [3 / 7, 3 / 7, 1 / 7], [1 / 3, 1 / 3, 1 / 3]])
    assert np.allclose(table, wanted), (
        f"the counts are\n{COUNTS}\nwith 1 added to each, the shares are\n{wanted}\nnot\n{table}"
    )


def test_the_counts_are_not_changed(exercise: ModuleType) -> None:
    before = COUNTS.copy()
    exercise.smoothed(COUNTS, 0.5)
    assert (before == COUNTS).all(), "the caller's array was changed: += writes into it"


def test_perplexity_of_a_fair_die_is_its_number_of_sides(exercise: ModuleType) -> None:
    found = exercise.perplexity(np.full((6, 6), 1 / 6), [0, 3, 5, 2, 2])
    assert found == pytest.approx(6.0), (
        f"each of the four pairs has probability 1 / 6; the perplexity is 6, not {found:.4g}"
    )


def test_perplexity_is_a_geometric_mean(exercise: ModuleType) -> None:
    table = np.array([[0.75, 0.25], [0.125, 0.875]])
    found, wanted = exercise.perplexity(table, [0, 0, 1, 1]), (1 / 0.75 / 0.25 / 0.875) ** (1 / 3)
    assert found == pytest.approx(wanted), (
        f"0 then 0, 0 then 1, 1 then 1: (1 / 0.75 / 0.25 / 0.875) ** (1 / 3), not {found:.4g}"
    )


def test_softmax_along_the_last_axis(exercise: ModuleType) -> None:
    found = exercise.softmax(np.log([[1.0, 2.0, 5.0], [4.0, 4.0, 0.5]]))
    assert np.allclose(found, [[1 / 8, 2 / 8, 5 / 8], [4 / 8.5, 4 / 8.5, 0.5 / 8.5]]), (
        f"powers of 1, 2, 5 and 4, 4, 0.5 have these shares of their row: 1/8, 2/8, 5/8 and 8/17, 8/17, 1/17; not\n{found}"
    )
    assert np.allclose(exercise.softmax(np.log([1.0, 2.0, 5.0])), found[0]), "the last axis of a vector is its only one"


def test_softmax_of_large_logits(exercise: ModuleType) -> None:
    with np.errstate(all="raise"):
        found = exercise.softmax(np.array([[1000.0, 1000.0, 999.0], [-1000.0, -1000.0, -1001.0]]))
    assert np.allclose(found, [np.array([1, 1, np.exp(-1)]) / (2 + np.exp(-1))] * 2), "each row has a maximum of its own"
