"""Perplexity and bits per byte: by their definitions, whatever the batches and the vocabulary."""

from __future__ import annotations

import math

import numpy as np
import pytest

from picograd import Tensor, train
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F


@pytest.mark.req("J1")
def test_a_uniform_guess_has_the_vocabulary_as_perplexity() -> None:
    losses = F.cross_entropy(Tensor.zeros(6, 50), Tensor([0, 3, 9, 1, 49, 7]), reduction="none")
    assert train.perplexity(losses) == pytest.approx(50.0, rel=1e-6)
    assert train.perplexity(losses.mean()) == pytest.approx(50.0, rel=1e-6)
    assert train.perplexity([1e4]) == math.inf


@pytest.mark.req("J1")
def test_bits_per_byte_do_not_depend_on_how_a_text_is_cut(rng: np.random.Generator) -> None:
    of_bytes = rng.random(12) * 3
    lengths = np.array([3, 1, 4, 2, 2])
    of_tokens = np.add.reduceat(of_bytes, np.cumsum(lengths) - lengths)  # a token has the probability of its bytes
    expected = of_bytes.sum() / math.log(2.0) / 12
    assert train.bits_per_byte(of_bytes, np.ones(12)) == pytest.approx(expected)
    assert train.bits_per_byte(of_tokens, lengths) == pytest.approx(expected)
    with_mark = train.bits_per_byte(Tensor([*of_tokens, 9.0]).reshape(2, 3), Tensor([*lengths.tolist(), 0]).reshape(2, 3))
    assert with_mark == pytest.approx(expected, rel=1e-6)


def test_no_tokens_and_other_tokens_are_refused() -> None:
    with pytest.raises(ArgumentError, match="perplexity: there are no tokens."):
        train.perplexity([])
    with pytest.raises(ArgumentError, match="no token has bytes"):
        train.bits_per_byte([1.0], [0])
    with pytest.raises(ShapeError, match=r"losses \(2,\) and nbytes \(1,\)"):
        train.bits_per_byte([1.0, 2.0], [1])
