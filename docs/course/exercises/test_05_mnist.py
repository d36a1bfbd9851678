"""Tests of exercise 5."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


def test_accuracy(exercise: ModuleType) -> None:
    logits = np.array([[1.0, 3.0, 2.0], [5.0, -1.0, 0.0], [0.0, 0.1, 0.2], [9.0, 8.0, 7.0]])
    found = exercise.accuracy(logits, np.array([1, 0, 2, 2]))
    assert found == 0.75, f"the greatest logits are at 1, 0, 2 and 0, the labels are 1, 0, 2 and 2: 0.75, not {found}"


@pytest.mark.parametrize("count,batch", [(10, 5), (10, 4), (3, 8), (7, 1)])
def test_each_example_is_in_one_batch(exercise: ModuleType, count: int, batch: int) -> None:
    found = list(exercise.batches(np.random.default_rng(0), count, batch))
    lengths, wanted = [len(rows) for rows in found], [min(batch, count - start) for start in range(0, count, batch)]
    assert lengths == wanted, f"{count} examples by {batch} are batches of {wanted}, not {lengths}"
    assert sorted(np.concatenate(found).tolist()) == list(range(count)), "an example is missing, or is there twice"


def test_each_epoch_has_another_order(exercise: ModuleType) -> None:
    rng = np.random.default_rng(0)
    first, second = ([*np.concatenate(list(exercise.batches(rng, 100, 10)))] for _ in range(2))
    assert first != sorted(first), "the examples are not shuffled"
    assert first != second, "the second epoch has the order of the first: is the generator that was given used?"


@pytest.mark.parametrize("inputs,outputs", [(400, 300), (100, 500)])
def test_numbers_keep_their_size(exercise: ModuleType, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    weights = exercise.start_weights(rng, inputs, outputs)
    assert weights.shape == (inputs, outputs), f"the shape is {weights.shape}, not {(inputs, outputs)}"
    x = rng.normal(size=(200, inputs))
    x = np.maximum(x, 0)  # as after another relu
    before, after = (x**2).mean(), (np.maximum(x @ weights, 0) ** 2).mean()
    assert after == pytest.approx(before, rel=0.1), (
        f"the mean square is {before:.3f} before the layer and {after:.3f} after it: numbers grow or shrink layer by layer"
    )
