"""Two bigram models of names: by counting, and by gradient descent on the same 27 x 27 table.

In:    pairs of neighbouring characters, as numbers
Out:   the probability of each character after each; the average negative log-likelihood (NLL) of the pairs
Source: Karpathy, makemore, lecture 1.

Letters: N pairs, V vocabulary.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from picograd.nn import functional as F
from picograd.optim.descent import SGD
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit


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
