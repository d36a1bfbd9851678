"""Exercise 4: probabilities.

Test it:  python -m pytest docs/course/exercises/test_04_ngrams.py
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def smoothed(counts: Array, extra: float) -> Array:
    """Probabilities of a table of counts, (V, V), after `extra` was added to each count. Rows add up to 1."""
    raise NotImplementedError("gap 1")


def perplexity(probabilities: Array, sequence: list[int]) -> float:
    """exp of the average negative log-likelihood of all pairs of neighbours in a sequence of numbers.

    probabilities:  (V, V), row: the first of a pair, column: the second
    """
    raise NotImplementedError("gap 2")


def softmax(logits: Array) -> Array:
    """exp(x) / sum(exp(x)) along the last axis, for logits as large as 1000, too.

    A hint: softmax does not change if the same number is subtracted from all logits of a row. Which one keeps exp small?
    """
    raise NotImplementedError("gap 3")
