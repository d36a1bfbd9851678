"""Linear maps as functions: linear.

In:    tensors and weights
Out:   tensors
Next:  picograd/nn/embedding.py
"""

from __future__ import annotations

from picograd.errors import ShapeError
from picograd.tensor.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """Returns input @ weight.T + bias.

    Args:
      input:   (..., K)
      weight:  (N, K)
      bias:    (N,) or None

    Returns:   (..., N)

    Raises:
      ShapeError: the last axes of input and weight differ.

    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]]), Tensor([0.5]))
    Tensor([[11.5]])
    """
    if weight.ndim != 2 or input.shape[-1:] != weight.shape[1:]:
        raise ShapeError(
            f"linear: input {input.shape} does not fit weight {weight.shape}: the last axes must be equal.",
            hint="weight is (out_features, in_features).",
        )
    product = input @ weight.T
    return product if bias is None else product + bias
