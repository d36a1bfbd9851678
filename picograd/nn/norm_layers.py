"""Layers that normalise.

In:    tensors
Out:   tensors
Next:  picograd/nn/dropout_layers.py
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.tensor import Tensor


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
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        affine = elementwise_affine
        self.weight = init.ones_(new_parameter(self.normalized_shape, device, dtype)) if affine else None
        self.bias = init.zeros_(new_parameter(self.normalized_shape, device, dtype)) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape) -> the same shape."""
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"
