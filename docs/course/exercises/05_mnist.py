"""Exercise 5: what a training needs besides a network.

Test it:  python -m pytest docs/course/exercises/test_05_mnist.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray


def accuracy(logits: Array, labels: Array) -> float:
    """The share of rows whose greatest logit is that of the label.

    logits:  (N, classes)
    labels:  (N,)
    """
    raise NotImplementedError("gap 1")


def batches(rng: np.random.Generator, count: int, batch: int) -> Iterator[Array]:
    """Yields arrays of example numbers: each of 0 .. count - 1 once, shuffled, `batch` of them at a time.

    The last one has what is left.
    """
    raise NotImplementedError("gap 2: rng.permutation(count), then slices of it")


def start_weights(rng: np.random.Generator, inputs: int, outputs: int) -> Array:
    """Random weights (inputs, outputs), normal, with Kaiming's spread: relu(x @ w) is as large as x was."""
    raise NotImplementedError("gap 3: rng.normal(size=...) has a spread of 1")
