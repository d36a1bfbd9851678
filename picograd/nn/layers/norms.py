"""Layers that normalise features, groups of channels, or channels by their neighbours.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/batch_norm.py
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.nn.layers.layer import Unary, layer
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.build import INTS
from picograd.tensor.tensor import Tensor

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    """Normalises the last axes to mean 0 and variance 1, then scales by weight (ones) and shifts by bias (zeros).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      normalized_shape:    lengths of the last axes, or of the last axis
      elementwise_affine:  False: neither weight nor bias

    >>> LayerNorm(2)(Tensor([[1.0, 3.0]])).round(3)
    Tensor([[-1.,  1.]], requires_grad=True)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, INTS) else tuple(normalized_shape)
        self.eps = eps
        affine = self.elementwise_affine = elementwise_affine
        self.weight = init.ones_(new_parameter(self.normalized_shape, device, dtype)) if affine else None
        self.bias = init.zeros_(new_parameter(self.normalized_shape, device, dtype)) if affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *normalized_shape) -> the same shape."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        shown = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{shown}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divides the last axes by the root of the mean of their squares, then scales by weight (ones).

    out = x / sqrt(mean(x^2) + eps) * weight

    Args:
      normalized_shape:    lengths of the last axes, or of the last axis
      eps:                 as in functional.rms_norm
      elementwise_affine:  False: no weight

    >>> RMSNorm(2)(Tensor([[3.0, 4.0]])).detach().round(3)
    Tensor([[0.849, 1.131]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, INTS) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = init.ones_(new_parameter(self.normalized_shape, device, dtype)) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape) -> the same shape."""
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises each group of neighbouring channels of (N, C, ...), then scales and shifts each channel.

    Args:
      num_groups:    divides num_channels
      num_channels:  C
      eps:           in the units of var
      affine:        False: neither weight nor bias
      bias:          False: weight alone

    Raises:
      ArgumentError: num_groups does not divide num_channels.

    >>> GroupNorm(2, 4)(Tensor([[1.0, 3.0, 10.0, 30.0]])).detach().round(3)
    Tensor([[-1.,  1., -1.,  1.]])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: {num_channels} channels do not make {num_groups} groups.")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = init.ones_(new_parameter((num_channels,), device, dtype)) if affine else None
        self.bias = init.zeros_(new_parameter((num_channels,), device, dtype)) if affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, ...) -> the same shape."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}" + (
            f", bias={self.bias is not None}"
        )


@layer(functional.local_response_norm, shown="{size}, alpha={alpha}, beta={beta}, k={k}")
class LocalResponseNorm(Unary):
    """x / (`k` + `alpha` * mean of x^2 over `size` neighbouring channels) ** `beta`.

    >>> LocalResponseNorm(2, alpha=1.0, beta=1.0)(Tensor([[[2.0], [0.0]]])).round(3).flatten()
    Tensor([0.667, 0.   ])
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0
