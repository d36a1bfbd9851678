"""Activations as modules.

In:    tensors
Out:   tensors
Next:  picograd/nn/recurrent.py
"""

from __future__ import annotations

from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class ReLU(Module):
    """0 where x <= 0, else x.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.relu()


class Tanh(Module):
    """Hyperbolic tangent.

    >>> Tanh()(Tensor([0.0]))
    Tensor([0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.sigmoid()


class GELU(Module):
    """x * Phi(x), or with approximate="tanh" its cheaper form.

    >>> GELU()(Tensor([0.0]))
    Tensor([0.])
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.gelu(self.approximate)


class SiLU(Module):
    """x * sigmoid(x).

    >>> SiLU()(Tensor([0.0]))
    Tensor([0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.silu()
