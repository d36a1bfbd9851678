"""Linear and bilinear maps as functions.

In:    tensors and weights
Out:   tensors
Next:  picograd/nn/functions/embedding.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.dtype import DType
from picograd.errors import DTypeError, ShapeError
from picograd.ir.build import permute
from picograd.ir.op import Dim, Op
from picograd.ir.shape import numel
from picograd.tensor.autocast import lowered, precision_mode, uses_tf32
from picograd.tensor.build import broadcast_shapes, broadcast_to, cast, promoted
from picograd.tensor.formulas import formula
from picograd.tensor.products.matmul import matmul_op
from picograd.tensor.tensor import Tensor

__all__ = ["bilinear", "linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """Returns input @ weight.T + bias.

    Args:
      input:   (..., K)
      weight:  (N, K)
      bias:    (N,) or None

    Returns:   (..., N)

    Raises:
      ShapeError: the last axes of input and weight differ.
      DTypeError: they are bools.

    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]]), Tensor([0.5]))
    Tensor([[11.5]])
    """
    x, w = input.read(), weight.read()
    if len(w.shape) != 2 or x.shape[-1:] != w.shape[1:]:
        raise ShapeError(
            f"linear: input {input.shape} does not fit weight {weight.shape}: the last axes must be equal.",
            hint=_hint(x.shape, w.shape),
        )
    device = input.other_device("linear", weight) if bias is None else input.other_device("linear", weight, bias)
    dtype = lowered(promoted(x, w))
    if dtype.kind == "b":
        raise DTypeError("linear: bools have no product of matrices.", hint="cast them: x.int()")
    if bias is None:
        return Tensor.from_op(linear_op(x, w, dtype, uses_tf32(dtype)), device)
    narrow = precision_mode.get() is not None  # an autocast block: what is added does not widen the result again
    return Tensor.from_op(linear_with_bias_op(x, w, bias.read(), dtype, uses_tf32(dtype), narrow), device)


def _hint(shape: Sequence[Dim], weight: Sequence[Dim]) -> str:
    """Returns the likely remedy for an input that the weight does not fit: images that are not flat yet."""
    for axis in range(1, len(shape) - 1):
        if len(weight) == 2 and numel(shape[axis:]) == weight[1]:
            return f"input.flatten({axis}) fits; nn.Flatten() does so within a Sequential."
    return "weight is (out_features, in_features)."


@formula
def linear_op(x: Op, weight: Op, dtype: DType, tf32: bool) -> Op:
    """Returns x @ weight.T, computed in a dtype."""
    return _product(x, weight, dtype, tf32)


@formula
def linear_with_bias_op(x: Op, weight: Op, bias: Op, dtype: DType, tf32: bool, narrow: bool) -> Op:
    """Returns x @ weight.T + bias; `narrow`: in the dtype of the product, however wide the bias is."""
    product = _product(x, weight, dtype, tf32)
    wide = dtype if narrow else promoted(product, bias)
    shape = broadcast_shapes("add", product.shape, bias.shape)
    return broadcast_to(cast(product, wide), shape) + broadcast_to(cast(bias, wide), shape)


def _product(x: Op, weight: Op, dtype: DType, tf32: bool) -> Op:
    return matmul_op(cast(x, dtype), permute(cast(weight, dtype), (1, 0)), "linear", tf32)


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
