"""`picograd train bag`: names; each character is predicted from the mean of those before it, without their order.

Source: Karpathy, makemore (bag of words).

Letters: B batch, T positions, C features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picograd import nn
from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS
from picograd_programs.models.names import LONGEST_NAME, NamesProgram, NamesSettings


class BagOfWords(nn.Module):
    """logits = (x + mlp(x)) @ W + b,  x_t = e_t + (e_0 + ... + e_t) / (t + 1),  e = embedding + position

    vocabulary:  V
    block:       largest number of positions
    width:       C

    >>> BagOfWords(width=8)(Tensor([[0, 5, 13]])).shape
    (1, 3, 27)
    """

    def __init__(self, vocabulary: int = 27, block: int = LONGEST_NAME, width: int = 64):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Returns the logits (B, T, V), float32, for characters (B, T), integers 0..V-1."""
        length = tokens_BT.shape[1]
        e_BTC: Tensor = self.embedding(tokens_BT) + self.position.weight[:length]
        counts_T1 = Tensor.arange(1, length + 1).unsqueeze(1)
        x_BTC: Tensor = e_BTC + e_BTC.cumsum(1) / counts_T1
        logits_BTV: Tensor = self.out(x_BTC + self.mlp(x_BTC))
        return logits_BTV


@dataclass(frozen=True)
class BagSettings(NamesSettings):
    """Settings of `picograd train bag`."""

    width: int = 64  # features of a character
    out: Path = Path("runs/bag")


class Bag(NamesProgram):
    """Fits the bag of words to names."""

    name, takes = "bag", BagSettings
    about = "Invents first names from the average of the characters so far."

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> BagOfWords:
        """Returns the network."""
        return BagOfWords(len(CHARACTERS), width=facts["width"])
