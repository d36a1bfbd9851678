"""Matrix products.

In:    tensors
Out:   `OPERATORS`
Next:  picograd/onnx/operators/quantization.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.onnx.record import row
from picograd.tensor.products.einsum import einsum as sum_products
from picograd.tensor.tensor import Tensor


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b, batched and broadcast."""
    return a @ b


def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,  # noqa: N803
) -> Tensor:  # fmt: skip
    """Returns alpha * A @ B + beta * C, A and B transposed where that is asked for."""
    product = (a.T if transA else a) @ (b.T if transB else b)
    if alpha != 1.0:
        product = (product * alpha).to(product.dtype)
    if c is None or beta == 0.0:
        return product
    return product + (c if beta == 1.0 else (c * beta).to(c.dtype))


def legacy_gemm(
    a: Tensor, b: Tensor, c: Tensor, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0,  # noqa: N803
) -> Tensor:  # fmt: skip
    """Returns gemm; that C may broadcast is said by an attribute.

    Raises:
      ShapeError: it is not, and C has another shape than the result.
    """
    result = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if not broadcast and c.shape != result.shape:
        raise ShapeError(f"Gemm: C of shape {c.shape} does not broadcast to {result.shape} without broadcast=1.")
    return result


def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """Returns (A - a_zero) @ (B - b_zero) in int32; a zero point for all, for each row of A or column of B."""
    lhs, rhs = a.to(dtypes.int32), b.to(dtypes.int32)
    if a_zero is not None:
        point = a_zero.to(dtypes.int32)
        lhs = lhs - (point.unsqueeze(-1) if point.ndim == 1 and point.shape[0] > 1 else point)
    if b_zero is not None:
        rhs = rhs - b_zero.to(dtypes.int32)
    if lhs.shape != a.shape or rhs.shape != b.shape:
        raise ShapeError(f"MatMulInteger: zero points do not broadcast to {a.shape} and {b.shape}.")
    return lhs @ rhs


def einsum(*operands: Tensor, equation: str) -> Tensor:
    """Returns the sums of products that an equation writes."""
    result: Tensor = sum_products(equation, *operands)
    return result


OPERATORS = [
    row("MatMul", 1, matmul, "1+ 1+"), row("Gemm", 1, legacy_gemm, "2 2 0-2"), row("Gemm", 7, gemm, "2 2 0-2"),
    row("Einsum", 12, einsum), row("Det", 11, Tensor.det, "2+"), row("MatMulInteger", 10, matmul_integer, "1+ 1+"),
]  # fmt: skip
