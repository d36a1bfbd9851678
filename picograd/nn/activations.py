"""Activations: functions of each element, and softmax.

In:    tensors
Out:   tensors
Next:  picograd/nn/losses.py
"""

from __future__ import annotations

from picograd.dtype import DType
from picograd.tensor.tensor import Tensor


def relu(input: Tensor) -> Tensor:  # noqa: A002
    """Returns 0 where input <= 0, else input.

    >>> relu(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """
    return input.relu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002
    """Returns input * Phi(input); `approximate` as in Tensor.gelu.

    >>> gelu(Tensor([0.0, 2.0]))
    Tensor([0.       , 1.9544997])
    """
    return input.gelu(approximate)


def silu(input: Tensor) -> Tensor:  # noqa: A002
    """Returns input * sigmoid(input).

    >>> silu(Tensor([0.0, 2.0]))
    Tensor([0.      , 1.761594])
    """
    return input.silu()


def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns exp(input) / sum(exp(input)) along one axis.

    >>> softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([0.5, 0.5])
    """
    return input.softmax(dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns input - log(sum(exp(input))) along one axis.

    >>> log_softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([-0.6931472, -0.6931472])
    """
    return input.log_softmax(dim, dtype)
