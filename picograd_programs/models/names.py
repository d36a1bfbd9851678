"""Models of names, a character at a time: bigrams, the neural language model of Bengio et al., and an LSTM.

In:    character numbers: pairs of neighbours, contexts, or whole names
Out:   logits of the next character, probabilities or a loss; new names
Sources: Karpathy, makemore; Bengio, Ducharme, Vincent, Jauvin 2003, "A neural probabilistic language model", JMLR 3, eq. 1
       without the direct connections (W = 0); Hochreiter, Schmidhuber 1997, "Long short-term memory".

Letters: N pairs, B batch, T context length or positions, E embedding, C width, D hidden units, V vocabulary, L layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd import dtype as dtypes
from picograd import nn
from picograd.control.flow import scan
from picograd.nn import functional as F
from picograd.optim.descent import SGD
from picograd.tensor.generator import Generator
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.models.gpt import drawn_from


# ---- bigrams, by counting and by gradient descent on the same 27 x 27 table ----
def count_bigrams(xs_N: NDArray[np.int32], ys_N: NDArray[np.int32], vocabulary: int = 27) -> Tensor:
    """Returns how often each character follows each: the sum over pairs of one-hot rows times one-hot columns.

    Args:
      xs_N, ys_N:  (N,)  int32, each pair (x, y)

    Returns:       (V, V)  float32, row x, column y; exact up to 2^24 pairs of a kind
    """
    characters_V = Tensor.arange(vocabulary)
    firsts_NV = (Tensor(xs_N).unsqueeze(1) == characters_V).float()
    seconds_NV = (Tensor(ys_N).unsqueeze(1) == characters_V).float()
    return firsts_NV.T @ seconds_NV


def bigram_probabilities(counts_VV: Tensor, added: float = 1.0) -> Tensor:
    """Returns the rows of counts, with `added` to each so that none is zero, divided by their sums: (V, V) float32."""
    smoothed_VV = counts_VV + added
    return smoothed_VV / smoothed_VV.sum(1, keepdim=True)


def average_nll(counts_VV: Tensor, probabilities_VV: Tensor) -> Tensor:
    """Returns the average of -log p over all counted pairs.

    nll = -sum(counts * log p) / sum(counts)

    Args:
      counts_VV, probabilities_VV:  (V, V)  float32, every probability above 0

    Returns:  ()  float32

    The lectures print 2.4543562 for names.txt: they add 228,146 logarithms to one float32, which loses 2e-4 of the
    value, 2.4545768.
    """
    return -(counts_VV * probabilities_VV.log()).sum() / counts_VV.sum()


def train_logistic_bigram(
    xs_N: NDArray[np.int32], ys_N: NDArray[np.int32], weight_VV: Tensor, steps: int = 100, lr: float = 50.0
) -> float:
    """Trains one row of logits for each character on all pairs at once, by plain gradient descent.

    Args:
      xs_N, ys_N:  (N,)    int32, each pair (x, y)
      weight_VV:   (V, V)  float32, the logits, requires_grad; changed in place
      lr:          learning rate: large, for the gradient of an average over all pairs is small

    Returns:       the NLL after the last step, in nats per character
    """
    xs, ys, optimizer = Tensor(xs_N), Tensor(ys_N), SGD([weight_VV], lr=lr)

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(weight_VV[xs], ys)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(steps):
        step()
    with no_grad():
        return float(F.cross_entropy(weight_VV[xs], ys).item())


# ---- characters as vectors, one tanh layer, a logit per next character ----
class BengioModel(nn.Module):
    """logits = tanh([C(w1) ... C(wT)] @ W1 + b1) @ W2 + b2

    vocabulary:  V
    context:     T
    embedding:   E
    hidden:      D
    """

    def __init__(self, vocabulary: int = 27, context: int = 3, embedding: int = 10, hidden: int = 200):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.hidden = nn.Linear(context * embedding, hidden)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, contexts_BT: Tensor) -> Tensor:
        """Returns the logits (B, V), float32, for contexts (B, T), integers 0..V-1."""
        x_BTE: Tensor = self.embedding(contexts_BT)
        hidden_BD: Tensor = self.hidden(x_BTE.flatten(1)).tanh()
        logits_BV: Tensor = self.out(hidden_BD)
        return logits_BV


# ---- an LSTM ----
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
