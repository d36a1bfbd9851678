"""Products of matrices that are added to a tensor, scaled: where beta is 0, what the tensor holds does not matter.

In:    tensors
Out:   `addmm`, `addmv`, `addr`, `addbmm`, `baddbmm`, and with a last _ in place: methods of Tensor
Next:  picograd/tensor/products/einsum.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from picograd.dtype import Scalar
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import permute, reshape
from picograd.ir.symbolic import mul
from picograd.tensor.arguments import tensor_of
from picograd.tensor.autocast import autocast, lowered
from picograd.tensor.build import broadcast_shapes, broadcast_to, cast, promoted
from picograd.tensor.core import T
from picograd.tensor.inplace import in_place
from picograd.tensor.products.matmul import matmul_op

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["addbmm", "addmm", "addmv", "addr", "baddbmm"]

P = ParamSpec("P")
R = TypeVar("R")


def _as_it_is(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a method that computes in the dtype of what is there: an autocast block changes nothing."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with autocast(enabled=False):
            return function(*args, **kwargs)

    return call


def _added(
    self: T,
    function: str,
    ranks: tuple[int, int],
    lhs: Any,
    rhs: Any,
    beta: Scalar,
    alpha: Scalar,
    over_batch: bool = False,
) -> T:
    """Returns beta * self + alpha * lhs @ rhs, summed over the batch where asked for."""
    left, right = (tensor_of(function, "each operand", operand) for operand in (lhs, rhs))
    a, b = left.read(), right.read()
    if (len(a.shape), len(b.shape)) != ranks:
        raise ShapeError(
            f"{function}: needs operands of {ranks[0]} and {ranks[1]} axes, got {a.shape} and {b.shape}.",
            hint="beta * x + alpha * (lhs @ rhs) takes any.",
        )
    base = self.read()
    dtype = lowered(base.dtype if base.dtype is promoted(a, b) else promoted(base, cast(a, promoted(a, b))))
    for name, value in (("beta", beta), ("alpha", alpha)):
        if not isinstance(value, (int, float)) or (dtype.kind != "f" and isinstance(value, float)):
            raise ArgumentError(f"{function}: {name}={value!r} does not suit {dtype}; it must be a number of its kind.")
    a, b = cast(a, dtype), cast(b, dtype)
    product = matmul_op(a, b, function)
    if over_batch:  # one sum over B and K, rounded once
        (count, rows, inner), columns = a.shape, b.shape[2]
        line = mul(count, inner)
        a = reshape(permute(a, (1, 0, 2)), (rows, line))
        product = matmul_op(a, reshape(b, (line, columns)), function)
    if broadcast_shapes(function, base.shape, product.shape) != product.shape:
        raise ShapeError(f"{function}: self of shape {base.shape} does not broadcast to the product's {product.shape}.")
    result = product if alpha == 1 else product * alpha
    if beta:
        added = broadcast_to(cast(base, dtype), product.shape)
        result = (added if beta == 1 else added * beta) + result
    return self.from_op(result, self.other_device(function, left, right))


def addmm(self: T, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * mat1 @ mat2, for matrices (M, K) and (K, N).

    Args:
      mat1, mat2:   the matrices
      beta, alpha:  numbers, integers where the tensors are

    Raises:
      ShapeError: an operand is no matrix, K differs, or self does not broadcast to (M, N).

    >>> Tensor([1.0]).addmm(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]]), alpha=2)
    Tensor([[23.]])
    """
    return _added(self, "addmm", (2, 2), mat1, mat2, beta, alpha)


def addmv(self: T, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * mat @ vec, for a matrix (M, K) and a vector (K,).

    Args:
      mat, vec:     the operands
      beta, alpha:  numbers, integers where the tensors are

    Raises:
      ShapeError: the operands are no matrix and vector, K differs, or self does not broadcast to (M,).

    >>> Tensor([1.0, 2.0]).addmv(Tensor([[1.0, 0.0], [0.0, 1.0]]), Tensor([3.0, 4.0]))
    Tensor([4., 6.])
    """
    return _added(self, "addmv", (2, 1), mat, vec, beta, alpha)


def addr(self: T, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * outer(vec1, vec2), for vectors (M,) and (N,).

    Args:
      vec1, vec2:   the vectors
      beta, alpha:  numbers, integers where the tensors are

    Raises:
      ShapeError: an operand is no vector, or self does not broadcast to (M, N).

    >>> Tensor.zeros(2, 2).addr(Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    Tensor([[ 1., 10.],
            [ 2., 20.]])
    """
    column, row = tensor_of("addr", "vec1", vec1), tensor_of("addr", "vec2", vec2)
    if column.ndim != 1 or row.ndim != 1:
        raise ShapeError(f"addr: needs two vectors, got {column.shape} and {row.shape}.")
    left = self.from_op(column.read(), column.cell.device).reshape(-1, 1)
    right = self.from_op(row.read(), row.cell.device).reshape(1, -1)
    return _added(self, "addr", (2, 2), left, right, beta, alpha)


def addbmm(self: T, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * the sum over B of batch1 @ batch2, for stacks (B, M, K) and (B, K, N).

    Args:
      batch1, batch2:  the stacks
      beta, alpha:     numbers, integers where the tensors are

    Raises:
      ShapeError: an operand has not three axes, B or K differs, or self does not broadcast to (M, N).

    >>> Tensor.zeros(1, 1).addbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1))
    Tensor([[6.]])
    """
    return _added(self, "addbmm", (3, 3), batch1, batch2, beta, alpha, over_batch=True)


def baddbmm(self: T, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * batch1 @ batch2, for stacks (B, M, K) and (B, K, N).

    Args:
      batch1, batch2:  the stacks
      beta, alpha:     numbers, integers where the tensors are

    Raises:
      ShapeError: an operand has not three axes, B or K differs, or self does not broadcast to (B, M, N).

    >>> Tensor([1.0]).baddbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1)).flatten()
    Tensor([4., 4.])
    """
    return _added(self, "baddbmm", (3, 3), batch1, batch2, beta, alpha)


# ---- in place ----
addmm_, addmv_, addr_ = in_place(_as_it_is(addmm)), in_place(_as_it_is(addmv)), in_place(_as_it_is(addr))
addbmm_, baddbmm_ = in_place(_as_it_is(addbmm)), in_place(_as_it_is(baddbmm))
