"""The neural language model of Bengio et al.: characters as vectors, one tanh layer, a logit per next character.

In:    contexts of character numbers
Out:   logits of the next character
Source: Bengio, Ducharme, Vincent, Jauvin 2003, "A neural probabilistic language model", JMLR 3, eq. 1 without the
       direct connections (W = 0).

Letters: B batch, T context length, E embedding, D hidden units, V vocabulary.
"""

from __future__ import annotations

from picograd import nn
from picograd.tensor.tensor import Tensor


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
