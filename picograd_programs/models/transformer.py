"""`picograd train transformer`: names through a GPT of four layers.

Source: Vaswani et al. 2017, arXiv:1706.03762; Karpathy, makemore (sizes, learning rate).

Letters: B batch, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS
from picograd_programs.models.gpt import GPT, GPTConfig
from picograd_programs.models.names import LONGEST_NAME, NamesProgram, NamesSettings

START_STD = 0.08  # of weights, about that of makemore's torch.nn.Linear for 64 features


class NameTransformer(GPT):
    """A GPT that returns only its logits.

    >>> NameTransformer(GPTConfig(27, 20, 1, 2, 8))(Tensor([[0, 5, 13]])).shape
    (1, 3, 27)
    """

    def forward(self, tokens_BT: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the logits (B, T, V), float32, for characters (B, T), integers 0..V-1."""
        return self.logits(self.hidden(tokens_BT))


@dataclass(frozen=True)
class TransformerSettings(NamesSettings):
    """Settings of `picograd train transformer`."""

    steps: int = 25_000
    batch: int = 64
    layers: int = 4  # blocks
    heads: int = 4  # of attention; divide the width
    width: int = 64  # features of a position
    dropout: float = 0.15  # of dropout in training
    lr: float = 3e-3
    warmup: int = 200
    weight_decay: float = 0.1
    ema: float = 0.999
    out: Path = Path("runs/transformer")


class Transformer(NamesProgram):
    """Fits a Transformer to names."""

    name, takes = "transformer", TransformerSettings
    about = "Invents first names with a Transformer."
    same = (*NamesProgram.same, "heads")

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> NameTransformer:
        """Returns the network."""
        shape = {name: facts[name] for name in ("layers", "heads", "width", "dropout")}
        return NameTransformer(GPTConfig(len(CHARACTERS), LONGEST_NAME, **shape, bias=False, start_std=START_STD))
