"""Linear and bilinear maps as functions.

In:    tensors and weights
Out:   tensors
Next:  picograd/nn/functions/embedding.py
"""

from __future__ import annotations

from picograd.errors import ShapeError
from picograd.tensor.autocast import precision_mode
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
    if bias is not None and precision_mode.get() is not None:
        bias = bias.to(product.dtype)  # an autocast block: what is added does not widen the result again
    return product if bias is None else product + bias


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns input1 @ weight[n] @ input2 + bias[n] for each n.

    Args:
      input1:  (..., K1)
      input2:  (..., K2)
      weight:  (N, K1, K2)
      bias:    (N,) or None

    Returns:   (..., N)

    Raises:
      ShapeError: the inputs do not fit weight, or each other.

    >>> bilinear(Tensor([[1.0, 2.0]]), Tensor([[3.0]]), Tensor([[[1.0], [1.0]]]))
    Tensor([[9.]])
    """
    fits = weight.ndim == 3 and (input1.shape[-1:], input2.shape[-1:]) == (weight.shape[1:2], weight.shape[2:])
    if not fits or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear: inputs {input1.shape} and {input2.shape} do not fit weight {weight.shape}, which is (N, K1, K2)."
        )
    rows, columns, out = weight.shape[1], weight.shape[2], weight.shape[0]
    first = input1.reshape(-1, rows) @ weight.permute(1, 0, 2).reshape(rows, out * columns)  # (B, N K2)
    product = (first.reshape(-1, out, columns) * input2.reshape(-1, 1, columns)).sum(-1, dtype=first.dtype)
    result = product.reshape(*input1.shape[:-1], out)
    return result if bias is None else result + bias
