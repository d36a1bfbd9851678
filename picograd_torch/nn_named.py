"""Functions of networks that PyTorch also has at its top level: torch.conv2d is picograd.conv2d.

Those defined here take their arguments in another order than torch.nn.functional: pg.dropout(input, p, train).
"""
# ruff: noqa: I001  (several names a line)

from __future__ import annotations

from picograd.nn import functional
from picograd.nn.functional import (
    adaptive_avg_pool1d, avg_pool1d, celu, celu_, channel_shuffle, conv1d, conv2d, conv3d, conv_transpose1d,
    conv_transpose2d, conv_transpose3d, cosine_similarity, group_norm, layer_norm, max_pool1d, max_pool2d,
    max_pool3d, pairwise_distance, pdist, pixel_shuffle, pixel_unshuffle, prelu, rms_norm, selu, selu_, threshold,
    threshold_,
)  # fmt: skip
from picograd.tensor.generator import Generator
from picograd.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "alpha_dropout", "avg_pool1d", "batch_norm", "bilinear", "celu", "celu_", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
    "dropout", "embedding", "feature_dropout", "group_norm", "layer_norm", "max_pool1d", "max_pool2d", "max_pool3d",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm", "rrelu", "selu", "selu_",
    "threshold", "threshold_",
]  # fmt: skip

bilinear = functional.bilinear


def dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """Zeroes elements with probability p, and divides the others by 1 - p: nn.functional.dropout.

    Args:
      input:  any shape, float
      p:      in [0, 1]
      train:  False: input itself

    >>> pg.dropout(Tensor([1.0, 2.0]), 0.5, False)
    Tensor([1., 2.])
    """
    return functional.dropout(input, p, train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """Drops elements and preserves mean and variance: nn.functional.alpha_dropout.

    Args:
      input:  any shape, float
      p:      in [0, 1)
      train:  False: input itself

    >>> pg.alpha_dropout(Tensor([1.0, 2.0]), 0.5, False)
    Tensor([1., 2.])
    """
    return functional.alpha_dropout(input, p, train)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """Zeroes whole channels of input (N, C, ...) with probability p, and divides the others by 1 - p.

    Args:
      input:  (N, C, ...)  float
      p:      in [0, 1]
      train:  False: input itself

    >>> pg.feature_dropout(pg.ones(1, 2, 2), 0.5, False).sum().item()
    4.0
    """
    return input * functional.dropout(input.new_ones(*input.shape[:2], *(1,) * (input.ndim - 2)), p, train)


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,  # noqa: A002
    training: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """Calls nn.functional.batch_norm, which takes the running statistics before weight and bias.

    Args:
      input, weight, bias, running_mean, running_var, training, momentum, eps: as in nn.functional.batch_norm
      cudnn_enabled:  has no effect

    >>> pg.batch_norm(Tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 0.0).tolist()
    [[-1.0], [1.0]]
    """
    return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Returns the rows of weight (V, D) with these indices: nn.functional.embedding takes indices first.

    Args:
      weight:              (V, D)
      indices:             integers
      padding_idx:         a row without gradient; -1: no row
      scale_grad_by_freq, sparse: as in nn.functional.embedding

    >>> pg.embedding(Tensor([[1.0], [2.0]]), Tensor([1, 1])).tolist()
    [[2.0], [2.0]]
    """
    padding = None if padding_idx < 0 else padding_idx
    return functional.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,  # noqa: A002
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Returns input if it is positive, else input * a, a from [lower, upper): nn.functional.rrelu.

    Args:
      input, lower, upper, training: as in nn.functional.rrelu

    >>> pg.rrelu(Tensor([-6.0, 1.0]), 0.0, 1.0)
    Tensor([-3.,  1.])
    """
    return functional.rrelu(input, lower, upper, training, generator=generator)
