"""A solution of exercise 5."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray


def accuracy(logits: Array, labels: Array) -> float:
    """The mean of True and False is a share."""
    return float((logits.argmax(axis=1) == labels).mean())


def batches(rng: np.random.Generator, count: int, batch: int) -> Iterator[Array]:
    """A slice at the end is as short as it must be."""
    order = rng.permutation(count)
    for start in range(0, count, batch):
        yield order[start : start + batch]


def start_weights(rng: np.random.Generator, inputs: int, outputs: int) -> Array:
    """sqrt(2 / inputs): the number of products in each sum, and relu's half."""
    return rng.normal(size=(inputs, outputs)) * np.sqrt(2 / inputs)
