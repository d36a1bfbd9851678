"""Test of the exercise of chapter 18: words one by one give what the whole text gives."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


class Counted(np.ndarray):
    """A weight that counts the vectors it was multiplied with by @; its transpose has the same `counts`."""

    def __array_finalize__(self, source: Any) -> None:
        self.counts = getattr(source, "counts", [0])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is np.matmul:
            self.counts[0] += sum(np.size(x) // len(self) for x in inputs if x is not self)
        return getattr(ufunc, method)(*map(np.asarray, inputs), **options)


def test_each_word_gives_what_the_whole_text_gives(exercise: ModuleType) -> None:
    rng = np.random.default_rng(2)
    x, weights = rng.standard_normal((7, 8)), [rng.standard_normal((8, 8)) for _ in range(3)]
    expected, cache = exercise.attention(x, *weights), None
    for t, word in enumerate(x):
        found, cache = exercise.step(word, cache, *weights)
        np.testing.assert_allclose(found, expected[t], rtol=1e-9, err_msg=f"word {t}")


def test_a_step_multiplies_one_vector_with_each_weight(exercise: ModuleType) -> None:
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((4, 4)).view(Counted) for _ in range(3)]
    cache = None
    for t in range(6):
        _, cache = exercise.step(rng.standard_normal(4), cache, *weights)
        assert max(weight.counts[0] for weight in weights) <= t + 1, "old words were multiplied again"
