"""Layers that leave elements or channels out while training.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/activations.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd.nn.module import Module
from picograd.tensor.creation.probabilities import probability
from picograd.tensor.tensor import Tensor


class _Dropping(Module):
    """What all share: `p`, the probability to be left out, and `inplace`."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        self.p, self.inplace = probability(type(self).__name__, "p", p), inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropping):
    """In training: zeroes each element with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropping):
    """In training: zeroes each channel with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout1d(1.0)(Tensor.ones(1, 2, 1)).flatten()
    Tensor([0., 0.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, L) or (C, L) -> the same shape."""
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropping):
    """In training: zeroes each channel with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout2d(1.0)(Tensor.ones(1, 2, 1, 1)).flatten()
    Tensor([0., 0.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, H, W) or (N, C, L) -> the same shape."""
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropping):
    """In training: zeroes each channel with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout3d(1.0)(Tensor.ones(1, 2, 1, 1, 1)).flatten()
    Tensor([0., 0.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, D, H, W) or (C, D, H, W) -> the same shape."""
        return functional.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropping):
    """In training: selu's least value in place of some elements, scaled and shifted to mean 0 and variance 1.

    `p`: the probability of being replaced; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> AlphaDropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropping):
    """In training: AlphaDropout, each channel as a whole.

    `p`: the probability of being replaced; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> FeatureAlphaDropout(0.5).eval()(Tensor([[1.0, 2.0]]))
    Tensor([[1., 2.]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, ...) -> the same shape."""
        return functional.feature_alpha_dropout(input, self.p, self.training, self.inplace)
