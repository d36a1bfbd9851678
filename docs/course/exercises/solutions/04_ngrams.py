"""A solution of exercise 4."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def smoothed(counts: Array, extra: float) -> Array:
    """Counts, a little more, by their sum."""
    more = counts + extra
    return more / more.sum(axis=1, keepdims=True)


def perplexity(probabilities: Array, sequence: list[int]) -> float:
    """The average of the logarithms, then back by exp."""
    logs = np.log(probabilities[sequence[:-1], sequence[1:]])
    return float(np.exp(-logs.mean()))


def softmax(logits: Array) -> Array:
    """The greatest logit becomes 0, so that every exponential is at most 1."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
