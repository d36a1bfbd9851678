"""`picograd train rnn`, `gru` and `lstm`: names, character by character, with a recurrent state.

Source: Elman 1990, "Finding structure in time"; Cho et al. 2014, arXiv:1406.1078 (GRU); Hochreiter, Schmidhuber 1997,
       "Long short-term memory".

Letters: B batch, T positions, C width, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from picograd import nn
from picograd.tensor.tensor import Tensor
from picograd_programs.data.names import CHARACTERS
from picograd_programs.models.names import NamesProgram, NamesSettings


class CharacterRNN(nn.Module):
    """logits = layer(embedding[characters]) @ W + b

    layer:       nn.RNN, nn.GRU or nn.LSTM
    vocabulary:  V
    width:       C, of the embedding and of the state
    layers:      L

    >>> CharacterRNN(nn.GRU, width=8)(Tensor([[0, 5, 13]])).shape
    (1, 3, 27)
    """

    def __init__(self, layer: Any = nn.LSTM, vocabulary: int = 27, width: int = 128, layers: int = 1):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layer = layer(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Returns the logits (B, T, V), float32, for characters (B, T), integers 0..V-1."""
        states_BTC, _ = self.layer(self.embedding(tokens_BT))
        logits_BTV: Tensor = self.out(states_BTC)
        return logits_BTV


@dataclass(frozen=True)
class RecurrentSettings(NamesSettings):
    """Settings of `picograd train rnn`, `gru` and `lstm`."""

    steps: int = 4000
    batch: int = 64
    width: int = 128  # features of a character, and of the state
    layers: int = 1  # each layer reads the states of the one before
    lr: float = 5e-3
    warmup: int = 100
    clip: float = 1.0


@dataclass(frozen=True)
class RnnSettings(RecurrentSettings):
    """Settings of `picograd train rnn`."""

    lr: float = 2e-3
    out: Path = Path("runs/rnn")


@dataclass(frozen=True)
class GruSettings(RecurrentSettings):
    """Settings of `picograd train gru`."""

    out: Path = Path("runs/gru")


@dataclass(frozen=True)
class LstmSettings(RecurrentSettings):
    """Settings of `picograd train lstm`."""

    out: Path = Path("runs/lstm")


class Recurrent(NamesProgram):
    """Fits a recurrent network to names."""

    layer: ClassVar[Any]

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> CharacterRNN:
        """Returns the network."""
        return CharacterRNN(cls.layer, len(CHARACTERS), facts["width"], facts["layers"])


class Rnn(Recurrent):
    """h_t = tanh(W x_t + U h_(t-1) + b)"""

    name, layer, takes = "rnn", nn.RNN, RnnSettings
    about = "Invents first names with a recurrent network."


class Gru(Recurrent):
    """h_t = (1 - z_t) n_t + z_t h_(t-1), with a gate z_t"""

    name, layer, takes = "gru", nn.GRU, GruSettings
    about = "Invents first names with gated recurrent units."


class Lstm(Recurrent):
    """c_t = f_t c_(t-1) + i_t g_t;  h_t = o_t tanh(c_t), with gates i, f, o"""

    name, layer, takes = "lstm", nn.LSTM, LstmSettings
    about = "Invents first names with an LSTM."
