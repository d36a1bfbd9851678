"""Normalisation as functions: layer norm.

In:    tensors
Out:   tensors with mean 0 and variance 1 along some axes
Next:  picograd/nn/dropout.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.errors import ShapeError
from picograd.tensor import pointwise
from picograd.tensor.build import broadcast_to, cast
from picograd.tensor.reduce import mean_op, variance_op
from picograd.tensor.tensor import Tensor


def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises the last axes to mean 0 and variance 1, then scales and shifts.

    out = (x - mean) / sqrt(var + eps) * weight + bias        (var divides by the count, not the count - 1)

    Args:
      input:             (..., *normalized_shape)  float; 16-bit floats are normalised in float32
      normalized_shape:  the axes at the end that are normalised together
      weight, bias:      (*normalized_shape) or None

    Raises:
      ShapeError: input does not end in normalized_shape, or weight or bias has another shape.

    Source:    Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 3 and 4.

    >>> layer_norm(Tensor([[1.0, 3.0]]), (2,)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(f"layer_norm: input {input.shape} does not end in {shape}.")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"layer_norm: {name} has shape {tensor.shape}, it must be {shape}.")
    op = cast(input.read(), input.dtype.wide)
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    deviation = op - broadcast_to(mean_op(op, axes, keepdim=True), op.shape)
    scale = pointwise.rsqrt(variance_op(op, axes, 0, keepdim=True) + eps)
    result = Tensor.from_op(cast(deviation * broadcast_to(scale, op.shape), input.dtype), input.cell.device)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias
