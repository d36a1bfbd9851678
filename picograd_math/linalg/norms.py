"""Norms of vectors and matrices, condition numbers, ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, equal, less, permute, reduce, repeat_axes, reshape, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor import host_calls, pointwise
from picograd.tensor.build import axes_of, broadcast_to, is_integer, need_float
from picograd.tensor.reductions import norm_op
from picograd.tensor.tensor import Tensor
from picograd_math.linalg.solving import given, least_value, taken

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]

Axes = int | Sequence[int] | None
MATRIX_ORDERS = ("fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2)


def _in_dtype(name: str, op: Op, dtype: DType | None) -> Op:
    """Returns the operand in the dtype of the computation."""
    found = op if dtype is None else cast(op, dtype)
    return need_float(name, found)


def _vector(name: str, op: Op, order: Any, axes: tuple[int, ...], keepdim: bool) -> Op:
    if not isinstance(order, (int, float)) or isinstance(order, bool):
        raise ArgumentError(f"{name}: ord of a vector must be a number, inf or -inf, got {order!r}.")
    if (order < 0 or math.isinf(order)) and any(op.shape[axis] == 0 for axis in axes):
        raise ShapeError(f"{name}: {op.shape} has no elements, so it has no norm of order {order}.")
    return norm_op(op, order, axes, keepdim)


def vector_norm(
    x: Any, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axes = None
) -> Tensor:  # fmt: skip
    """Returns (sum |x|^ord)^(1/ord) over the given axes, by default all.

    Args:
      x:    any shape
      ord:  a number; inf and -inf select the largest and the smallest |x|, 0 counts nonzero elements

    Raises:
      ArgumentError: ord is not a number.
      ShapeError:    x is empty, and ord is inf or negative.
      DTypeError:    x is not a float.

    >>> vector_norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    name, (tensor,) = taken("vector_norm", x)
    op = _in_dtype(name, tensor.read(), dtype)
    return given(_vector(name, op, ord, axes_of(name, op.shape, dim, axis), keepdim), name, tensor)


def _matrix_axes(name: str, op: Op, dim: Any) -> tuple[int, int]:
    """Returns the two axes of a matrix, in the given order."""
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise ArgumentError(f"{name}: dim must be two axes, got {dim!r}.")
    if len(op.shape) < 2:
        raise ShapeError(f"{name}: needs a matrix, got shape {op.shape}.")
    axes_of(name, op.shape, tuple(dim))
    return dim[0] % len(op.shape), dim[1] % len(op.shape)


def _matrix(name: str, op: Op, order: Any, dims: tuple[int, int], keepdim: bool) -> Op:
    """Returns a norm of the matrices along two axes."""
    if order not in MATRIX_ORDERS:
        raise ArgumentError(f'{name}: ord must be "fro", "nuc", inf, -inf, 1, -1, 2 or -2, got {order!r}.')
    if order == "fro":
        return norm_op(op, 2, tuple(sorted(dims)), keepdim)
    others = tuple(i for i in range(len(op.shape)) if i not in dims)
    x = permute(op, (*others, *dims))
    last = len(x.shape) - 1
    if order in ("nuc", 2, -2):
        values = host_calls.singular_values(name, x)
        code = {"nuc": OpCode.ADD, 2: OpCode.MAX, -2: OpCode.MIN}[order]
        result = _reduced(name, values, code, last - 1)
    else:
        summed, code = last - (abs(order) == 1), OpCode.MAX if order > 0 else OpCode.MIN
        result = _reduced(name, reduce(pointwise.absolute(x), OpCode.ADD, (summed,)), code, last - 1)
    shape = tuple(1 if i in dims else dim for i, dim in enumerate(op.shape))
    return reshape(result, shape) if keepdim else result


def _reduced(name: str, x: Op, code: OpCode, axis: int) -> Op:
    if code is not OpCode.ADD and x.shape[axis] == 0:
        raise ShapeError(f"{name}: a matrix without elements has no greatest or least value.")
    return reduce(x, code, (axis,))


def matrix_norm(
    A: Any, ord: float | str = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:  # fmt: skip
    """Returns a norm of each matrix.

    Args:
      A:    (..., m, n), or other axes given by dim
      ord:  "fro": the root of the sum of squares; "nuc": the sum of the singular values; 2, -2: the largest, the smallest
            singular value; inf, -inf: the largest, the smallest sum of |a row|; 1, -1: of |a column|

    Raises:
      ArgumentError: ord or dim is another one.
      ShapeError:    there are fewer than two axes.
      DTypeError:    A is not a float.

    >>> matrix_norm(Tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    name, (a,) = taken("matrix_norm", A)
    op = _in_dtype(name, a.read(), dtype)
    return given(_matrix(name, op, ord, _matrix_axes(name, op, dim), keepdim), name, a)


def norm(
    A: Any, ord: float | str | None = None, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:  # fmt: skip
    """Returns the norm of vectors along one axis, or of matrices along two.

    Args:
      A:    any shape; with ord, but without dim, one or two axes; without both, all elements as one vector
      ord:  as in `vector_norm` or `matrix_norm`; None: 2, or "fro"

    Raises:
      ArgumentError: ord does not exist for the number of axes.
      ShapeError:    there are more than two axes, and ord is given without dim.

    >>> norm(Tensor([[3.0, 0.0], [0.0, 4.0]]), 2).item()
    4.0
    """
    name, (a,) = taken("norm", A)
    op = _in_dtype(name, a.read(), dtype)
    if dim is None and ord is not None and len(op.shape) not in (1, 2):
        raise ShapeError(f"{name}: with ord and without dim, A must have one or two axes, got {op.shape}.", "name dim.")
    dims = tuple(range(len(op.shape))) if dim is None else (dim,) if is_integer(dim) else tuple(dim)
    if len(dims) == 2 and ord is not None:
        return given(_matrix(name, op, ord, _matrix_axes(name, op, dims), keepdim), name, a)
    return given(_vector(name, op, 2 if ord is None else ord, axes_of(name, op.shape, dims), keepdim), name, a)


def cond(A: Any, p: float | str | None = None) -> Tensor:
    """Returns the condition number of each matrix: its norm times its inverse's; inf for a singular matrix.

    Args:
      A:  (..., n, n); for p None, 2 or -2 any (..., m, n)
      p:  as in `matrix_norm`; None: 2, the largest singular value divided by the smallest

    Raises:
      ArgumentError: p is another one.
      ShapeError:    a matrix is not square although p requires it.

    >>> cond(Tensor([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    name, (a,) = taken("cond", A)
    op = host_calls.matrix(name, a.read())
    if p in (None, 2, -2):
        values = host_calls.singular_values(name, op)
        axis = len(values.shape) - 1
        greatest, least = (_reduced(name, values, code, axis) for code in (OpCode.MAX, OpCode.MIN))
        return given(least / greatest if p == -2 else greatest / least, name, a)
    host_calls.matrix(name, op, square=True)
    dims = (len(op.shape) - 2, len(op.shape) - 1)
    info = host_calls.first_zero_pivot(name, op)
    inverse = host_calls.inverse(name, host_calls.where_possible(op, info))
    product = _matrix(name, op, p, dims, False) * _matrix(name, inverse, p, dims, False)
    return given(where(equal(info, 0), product, product.filled(math.inf)), name, a)


def matrix_rank(A: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """Returns the number of nonzero singular values of each matrix, int64.

    Args:
      A:          (..., m, n)
      atol:       singular values up to this count as 0: a number or a tensor
      rtol:       the same times the largest one; by default max(m, n) eps, or 0 if atol is given
      hermitian:  A is symmetric

    Raises:
      ArgumentError: a tolerance is not a number.

    >>> matrix_rank(Tensor([[1.0, 1.0], [1.0, 1.0]])).item()
    1
    """
    name, (a,) = taken("matrix_rank", A)
    op = host_calls.matrix(name, a.read(), square=hermitian)
    values = host_calls.singular_values(name, op)
    axis = len(values.shape) - 1
    least = repeat_axes(broadcast_to(least_value(name, op, atol, rtol), values.shape[:-1]), (axis,), values.shape)
    kept = cast(less(least, values), dtypes.int64)
    return given(reduce(kept, OpCode.ADD, (axis,)), name, a)
