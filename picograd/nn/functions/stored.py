"""Activations that store their result in their input: relu_(x) is relu(x, inplace=True).

In:    a tensor
Out:   the same tensor
Next:  picograd/nn/functions/activations.py
"""

from __future__ import annotations

import picograd.nn.functions.rectifiers as rectifiers
from picograd.tensor.creation.generator import Generator
from picograd.tensor.tensor import Tensor

__all__ = ["celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_", "threshold_"]


def relu_(input: Tensor) -> Tensor:  # noqa: A002
    """Stores relu(input) in input, and returns it.

    >>> relu_(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """
    return rectifiers.relu(input, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:  # noqa: A002
    """Stores elu(input, alpha) in input, and returns it.

    >>> elu_(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """
    return rectifiers.elu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:  # noqa: A002
    """Stores selu(input) in input, and returns it.

    >>> selu_(Tensor([0.0, 2.0])).round(4)
    Tensor([0.    , 2.1014])
    """
    return rectifiers.selu(input, inplace=True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:  # noqa: A002
    """Stores celu(input, alpha) in input, and returns it.

    >>> celu_(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """
    return rectifiers.celu(input, alpha, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:  # noqa: A002
    """Stores leaky_relu(input, negative_slope) in input, and returns it.

    >>> leaky_relu_(Tensor([-1.0, 2.0]), 0.5)
    Tensor([-0.5,  2. ])
    """
    return rectifiers.leaky_relu(input, negative_slope, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:  # noqa: A002
    """Stores hardtanh(input, min_val, max_val) in input, and returns it.

    >>> hardtanh_(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5])
    """
    return rectifiers.hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:  # noqa: A002
    """Stores threshold(input, threshold, value) in input, and returns it.

    >>> threshold_(Tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.])
    """
    return rectifiers.threshold(input, threshold, value, inplace=True)


def rrelu_(
    input: Tensor,  # noqa: A002
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Stores rrelu(input, lower, upper, training) in input, and returns it.

    >>> rrelu_(Tensor([-3.0, 2.0]), 0.25, 0.75)
    Tensor([-1.5,  2. ])
    """
    return rectifiers.rrelu(input, lower, upper, training, inplace=True, generator=generator)
