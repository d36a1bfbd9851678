"""`picograd train bigram`: which character follows which in first names, by counting and by gradient descent.

The logits of a character are a row of a 27 x 27 table. Gradient descent on it converges to the counts' solution.

Source: Karpathy, makemore, part 1; Shannon 1948, "A mathematical theory of communication", section 3.

Letters: N pairs, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd import dtype as dtypes
from picograd import nn
from picograd.optim.descent import SGD
from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS, Sequences, bigrams, load_names
from picograd_programs.models.names import NamesProgram, NamesSettings, cross_entropy, new_names
from picograd_programs.train.program import NoOption


def count_bigrams(xs_N: NDArray[np.int32], ys_N: NDArray[np.int32], vocabulary: int = 27) -> Tensor:
    """Returns the counts of pairs: the sum over pairs of one-hot rows times one-hot columns.

    Args:
      xs_N, ys_N:  (N,)  int32, each pair (x, y)

    Returns:       (V, V)  float32, row x, column y; exact up to 2^24 equal pairs
    """
    characters_V = Tensor.arange(vocabulary)
    firsts_NV = (Tensor(xs_N).unsqueeze(1) == characters_V).float()
    seconds_NV = (Tensor(ys_N).unsqueeze(1) == characters_V).float()
    return firsts_NV.T @ seconds_NV


def bigram_probabilities(counts_VV: Tensor, added: float = 1.0) -> Tensor:
    """Returns the rows of counts plus `added`, which avoids zeros, divided by their sums: (V, V)."""
    smoothed_VV = counts_VV + added
    return smoothed_VV / smoothed_VV.sum(1, keepdim=True)


def average_nll(counts_VV: Tensor, probabilities_VV: Tensor) -> Tensor:
    """Returns the average of -log p over all counted pairs.

    nll = -sum(counts * log p) / sum(counts)

    Args:
      counts_VV, probabilities_VV:  (V, V), every probability above 0

    Returns:  ()

    The lectures print 2.4543562 for names.txt: they add 228,146 logarithms to one float32, which loses 2e-4 of the
    value, 2.4545768.
    """
    return -(counts_VV * probabilities_VV.log()).sum() / counts_VV.sum()


class LogisticBigram(nn.Module):
    """logits = W[character], with W initialized from a normal distribution

    vocabulary:  V
    """

    def __init__(self, vocabulary: int = 27):
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, contexts_N1: Tensor) -> Tensor:
        """Returns the logits (N, V), float32, for characters (N, 1), integers 0..V-1."""
        logits_N1V: Tensor = self.table(contexts_N1)
        return logits_N1V.squeeze(1)


@dataclass(frozen=True)
class BigramSettings(NamesSettings):
    """Settings of `picograd train bigram`; a step sees all pairs of all names."""

    steps: int = 100
    context: NoOption[int] = 1  # number of characters that the model sees
    lr: float = 50.0  # large, as the gradient of a mean over all pairs is small; constant
    eval_every: int = 100
    batch: NoOption[int] = 32
    warmup: NoOption[int] = 0
    weight_decay: NoOption[float] = 0.0
    out: Path = Path("runs/bigram")


class Bigram(NamesProgram):
    """Fits the table by plain gradient descent on all pairs at once, and compares it with counting."""

    name, item, takes = "bigram", "pairs", BigramSettings
    about = "Counts which character follows which in first names, and learns it by gradient descent."

    def __init__(self, settings: BigramSettings):
        self.pairs = Sequences(*bigrams(load_names()))
        super().__init__(settings)

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> LogisticBigram:
        """Returns the network."""
        return LogisticBigram(len(CHARACTERS))

    def make_optimizer(self, settings: BigramSettings) -> SGD:
        """Returns gradient descent without momentum and decay."""
        return SGD(self.model.parameters(), lr=settings.lr)

    def schedule(self, step: int) -> float:
        """Returns 1: the learning rate is constant."""
        return 1.0

    def batch(self, number: int) -> Sequences:
        """Returns all pairs."""
        return self.pairs

    def describe(self) -> str:
        """Returns the numbers of pairs and of weights."""
        return f"{len(self.pairs.tokens):,} pairs, {super(NamesProgram, self).describe()}"

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns no figures: all names are counted, without a held-out part."""
        return {}

    def report(self, model: nn.Module) -> str:
        """Returns both mean losses in nats per character, and new names."""
        counts_VV = count_bigrams(self.pairs.tokens[:, 0], self.pairs.targets).to(dtypes.float64)
        counted = average_nll(counts_VV, bigram_probabilities(counts_VV)).item()
        fitted = cross_entropy(model(Tensor(self.pairs.tokens)), Tensor(self.pairs.targets)).item()
        drawn = new_names(model, self.settings.samples, 1.0, self.settings.seed, 1)
        return f"loss by counting: {counted:.7f}; by gradient descent: {fitted:.4f}\nnew names: {', '.join(drawn)}"
