"""A character model of names: an LSTM reads a name and gives logits of the next character at every position.

In:    character numbers
Out:   logits and loss; new names
Source: Hochreiter, Schmidhuber 1997, "Long short-term memory"; Karpathy, makemore.

Letters: B batch, T positions, C width, V vocabulary, L layers.
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd import nn
from picograd.control.flow import scan
from picograd.models.sampling import drawn_from
from picograd.nn import functional as F
from picograd.tensor.generator import Generator
from picograd.tensor.tensor import Tensor


class CharacterLSTM(nn.Module):
    """logits = LSTM(embedding[characters]) @ W + b

    vocabulary:  V
    width:       C, of the embedding and of the state
    layers:      L
    """

    def __init__(self, vocabulary: int = 27, width: int = 128, layers: int = 1):
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor | None = None) -> tuple[Tensor, Any]:
        """Returns the logits (B, T, V), and with targets (B, T) the mean cross-entropy; a target of -1 does not count."""
        states_BTC, _ = self.lstm(self.embedding(tokens_BT))
        logits_BTV: Tensor = self.out(states_BTC)
        if targets_BT is None:
            return logits_BTV, None
        return logits_BTV, F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=-1)

    def draw(self, num: int, length: int, temperature: float = 1.0, generator: Generator | None = None) -> Tensor:
        """Returns (num, length) characters, each drawn after those before it; the first after character 0.

        Args:
          temperature:  below 1 prefers what is likely; 0 always takes the likeliest
        """
        device = self.embedding.weight.device
        state_LBC = Tensor.zeros(self.lstm.num_layers, num, self.lstm.hidden_size, device=device)
        start = Tensor.zeros(num, dtype=dtypes.int64, device=device), (state_LBC, state_LBC)

        def step(carry: tuple[Tensor, tuple[Tensor, Tensor]], _: None) -> tuple[tuple[Tensor, object], Tensor]:
            tokens_B, state = carry
            states_BTC, state = self.lstm(self.embedding(tokens_B).unsqueeze(1), state)
            tokens_B = drawn_from(self.out(states_BTC).squeeze(1), temperature, generator=generator)
            return (tokens_B, state), tokens_B

        _, drawn_TB = scan(step, start, length=length)
        drawn_BT: Tensor = drawn_TB.T
        return drawn_BT
