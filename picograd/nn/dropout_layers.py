"""Layers that leave elements out while training.

In:    tensors
Out:   tensors
Next:  picograd/nn/activation_layers.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd.errors import ArgumentError
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class Dropout(Module):
    """In training: each element with the probability 1 - p, divided by it, else 0.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """

    def __init__(self, p: float = 0.5):
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"Dropout: p must be a probability, got {p}.")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return functional.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
