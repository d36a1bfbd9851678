"""Layers that leave elements or channels out while training.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/activations.py
"""

from __future__ import annotations

from typing import Any

import picograd.nn.functional as functional
from picograd.nn.layers.layer import Unary, layer
from picograd.tensor.creation.probabilities import probability

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


@layer(shown="p={p}, inplace={inplace}")
class _Dropping(Unary):
    p: float = 0.5
    inplace: bool = False

    def _keep(self, given: dict[str, Any]) -> None:
        super()._keep({**given, "p": probability(type(self).__name__, "p", given["p"])})


@layer(functional.dropout)
class Dropout(_Dropping):
    """In training: zeroes each element with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """


@layer(functional.dropout1d)
class Dropout1d(_Dropping):
    """In training: zeroes each channel with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout1d(1.0)(Tensor.ones(1, 2, 1)).flatten()
    Tensor([0., 0.])
    """


@layer(functional.dropout2d)
class Dropout2d(_Dropping):
    """In training: zeroes each channel with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout2d(1.0)(Tensor.ones(1, 2, 1, 1)).flatten()
    Tensor([0., 0.])
    """


@layer(functional.dropout3d)
class Dropout3d(_Dropping):
    """In training: zeroes each channel with probability p, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout3d(1.0)(Tensor.ones(1, 2, 1, 1, 1)).flatten()
    Tensor([0., 0.])
    """


@layer(functional.alpha_dropout)
class AlphaDropout(_Dropping):
    """In training: selu's least value in place of some elements, scaled and shifted to mean 0 and variance 1.

    `p`: the probability of being replaced; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> AlphaDropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """


@layer(functional.feature_alpha_dropout)
class FeatureAlphaDropout(_Dropping):
    """In training: AlphaDropout, each channel as a whole.

    `p`: the probability of being replaced; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> FeatureAlphaDropout(0.5).eval()(Tensor([[1.0, 2.0]]))
    Tensor([[1., 2.]])
    """
