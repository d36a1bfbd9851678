"""Layers that map features: Linear, Embedding, and MLP.

In:    tensors
Out:   tensors
Next:  picograd/nn/norm_layers.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.nn.containers import ModuleList
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.tensor import Tensor


class Linear(Module):
    """y = x @ weight.T + bias, weight (out_features, in_features), drawn evenly from +-1 / sqrt(in_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features) if in_features else 0.0
        self.weight = new_parameter((out_features, in_features), device, dtype)
        init.uniform_(self.weight, -bound, bound)
        self.bias = init.uniform_(new_parameter((out_features,), device, dtype), -bound, bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) -> (..., out_features)."""
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of weight (num_embeddings, embedding_dim) by their numbers, drawn from the normal distribution.

    >>> Embedding(10, 4)(Tensor([1, 2, 3])).shape
    (3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, device: str | None = None, dtype: DType | None = None):
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = init.normal_(new_parameter((num_embeddings, embedding_dim), device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """x (...) integers -> (..., embedding_dim)."""
        return functional.embedding(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class MLP(Module):
    """Linear layers with an activation between them, as in micrograd.

    Args:
      nin:               features of the input
      nouts:             features after each layer
      activation:        between layers
      final_activation:  after the last layer, or None

    >>> sum(p.numel() for p in MLP(2, [16, 16, 1]).parameters())
    337
    """

    def __init__(
        self,
        nin: int,
        nouts: Sequence[int],
        activation: Callable[[Tensor], Tensor] = functional.relu,
        final_activation: Callable[[Tensor], Tensor] | None = None,
        device: str | None = None,
    ):
        widths = [nin, *nouts]
        self.layers = ModuleList(Linear(k, n, device=device) for k, n in zip(widths, widths[1:]))
        self.activation, self.final_activation = activation, final_activation

    def forward(self, x: Tensor) -> Tensor:
        """x (..., nin) -> (..., nouts[-1])."""
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if place < len(self.layers) - 1:
                x = self.activation(x)
        return x if self.final_activation is None else self.final_activation(x)
