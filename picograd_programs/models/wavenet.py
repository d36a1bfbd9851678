"""`picograd train wavenet`: names by a tree, in which each layer joins adjacent pairs.

Eight characters become four pairs, two fours and one eight: a dilated causal convolution of width 2, at its last
position only.

Source: van den Oord et al. 2016, arXiv:1609.03499, figure 3; Karpathy, makemore, part 5.

Letters: B batch, T characters, C features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picograd import nn
from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS
from picograd_programs.models.names import NamesProgram, NamesSettings


class JoinPairs(nn.Module):
    """tanh(norm([x_0 x_1] @ W)) for each pair of neighbours: (B, T, C) -> (B, T / 2, D)."""

    def __init__(self, features: int, out: int):
        super().__init__()
        self.linear = nn.Linear(2 * features, out, bias=False)
        self.norm = nn.BatchNorm1d(out)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T / 2, D)."""
        batch, length, features = x_BTC.shape
        joined: Tensor = self.linear(x_BTC.reshape(batch, length // 2, 2 * features))
        normed: Tensor = self.norm(joined.transpose(1, 2)).transpose(1, 2)  # over all of (B, T / 2)
        return normed.tanh()


class WaveNet(nn.Module):
    """logits = pairs(pairs(pairs(embedding[characters]))) @ W + b

    vocabulary:  V
    context:     T, a power of two
    embedding:   features of a character
    width:       features of a pair, a four, an eight

    Raises:
      ArgumentError: the context is not a power of two.

    >>> WaveNet().eval()(Tensor([[0, 0, 0, 0, 0, 5, 13, 13]])).shape
    (1, 27)
    """

    def __init__(self, vocabulary: int = 27, context: int = 8, embedding: int = 24, width: int = 128):
        super().__init__()
        depth = context.bit_length() - 1
        if context != 1 << depth:
            raise ArgumentError(f"WaveNet: context must be a power of two, got {context}.", hint=f"--context {1 << depth}")
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.pairs = nn.Sequential(*(JoinPairs(width if level else embedding, width) for level in range(depth)))
        self.out = nn.Linear(width if depth else embedding, vocabulary)

    def forward(self, contexts_BT: Tensor) -> Tensor:
        """Returns the logits (B, V), float32, for contexts (B, T), integers 0..V-1."""
        x_B1C: Tensor = self.pairs(self.embedding(contexts_BT))
        logits_BV: Tensor = self.out(x_B1C.flatten(1))
        return logits_BV


@dataclass(frozen=True)
class WaveNetSettings(NamesSettings):
    """Settings of `picograd train wavenet`."""

    steps: int = 20_000
    batch: int = 32
    context: int = 8  # number of characters that the model sees, a power of two
    embedding: int = 24  # features of a character
    width: int = 128  # features of a pair, a four, an eight
    eval_every: int = 5000
    save_every: int = 5000
    out: Path = Path("runs/wavenet")


class WaveNetProgram(NamesProgram):
    """Fits the tree to windows of names."""

    name, item, takes = "wavenet", "windows", WaveNetSettings
    about = "Invents first names with a tree of convolutions."

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> WaveNet:
        """Returns the network."""
        return WaveNet(len(CHARACTERS), facts["context"], facts["embedding"], facts["width"])
