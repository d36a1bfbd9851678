"""Products, powers, determinants, diagonals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from picograd.dtype import int64
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, equal, positions, repeat_axes, reshape, scan, where
from picograd.ir.build import diagonal as diagonal_op
from picograd.ir.op import Op, greatest
from picograd.ir.opcode import OpCode
from picograd.tensor import host_calls
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, whole
from picograd.tensor.linear_algebra import LogDet, power_op, slogdet_ops
from picograd.tensor.statistics import common, cross_op
from picograd.tensor.tensor import Tensor
from picograd_math.linalg.solving import given, taken

__all__ = [
    "cross", "det", "diagonal", "matmul", "matrix_exp", "matrix_power", "multi_dot", "slogdet", "vander", "vecdot",
]  # fmt: skip


def matmul(input: Any, other: Any) -> Tensor:
    """Returns the matrix product; see `Tensor.matmul`.

    Args:
      input:  (..., M, K)
      other:  (..., K, N)

    >>> matmul(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    _, (a, b) = taken("matmul", input, other)
    return Tensor.from_op(a.read(), a.cell.device).matmul(b)


def vecdot(x: Any, y: Any, *, dim: int = -1) -> Tensor:
    """Returns the sum of products along an axis.

    Args:
      x, y:  tensors that broadcast

    Raises:
      ShapeError: they do not broadcast.
      DTypeError: both are bools.

    >>> vecdot(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    name, (first, second) = taken("vecdot", x, y)
    a, b = common(name, first, second)
    if a.dtype.kind == "b":
        raise DTypeError(f"{name}: bools have no sum of products.", "x.int()")
    shape = broadcast_shapes(name, a.shape, b.shape)
    axis = axis_of(name, shape, dim)
    product = broadcast_to(a, shape) * broadcast_to(b, shape)
    return given(Op(OpCode.REDUCE, a.dtype, (product,), (OpCode.ADD, (axis,))), name, first, second)


def cross(input: Any, other: Any, *, dim: int = -1) -> Tensor:
    """Returns the cross product along an axis of length 3.

    Args:
      input:  a tensor; `other` must have as many axes, and both broadcast

    Raises:
      ShapeError: the shapes do not broadcast, or the axis does not have length 3.

    >>> cross(Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    name, (first, second) = taken("cross", input, other)
    a, b = common(name, first, second)
    return given(cross_op(name, a, b, dim), name, first, second)


# ---- chains ----
def multi_dot(tensors: Sequence[Any]) -> Tensor:
    """Returns the product of several matrices, in the order with the fewest multiplications.

    Args:
      tensors:  at least two matrices; the first and the last may be vectors

    Raises:
      ArgumentError: there are fewer than two.
      ShapeError:    one is not a matrix, or neighbours do not match.

    >>> multi_dot([Tensor([1.0, 2.0]), Tensor([[1.0, 0.0], [0.0, 1.0]]), Tensor([3.0, 4.0])]).item()
    11.0
    """
    if not isinstance(tensors, (list, tuple)) or len(tensors) < 2:
        raise ArgumentError(f"linalg.multi_dot: needs at least two tensors, got {tensors!r}.")
    found = [tensor_of("linalg.multi_dot", "an operand", value) for value in tensors]
    for i, x in enumerate(found):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(found) - 1)):
            raise ShapeError(f"linalg.multi_dot: operand {i} of shape {x.shape} is not a matrix.")
    parts = [Tensor.from_op(x.read(), x.cell.device) for x in found]
    first, last = found[0].ndim == 1, found[-1].ndim == 1
    parts[0] = parts[0].reshape(1, -1) if first else parts[0]
    parts[-1] = parts[-1].reshape(-1, 1) if last else parts[-1]
    result = _in_best_order(parts)
    return result.reshape(*result.shape[first : 2 - last])


def _in_best_order(parts: Sequence[Tensor]) -> Tensor:
    """Returns the product in the best order: Cormen et al., Introduction to Algorithms, section 15.2."""
    sides = [greatest(parts[0].op.shape[0]), *(greatest(x.op.shape[1]) for x in parts)]

    @cache
    def best(i: int, j: int) -> tuple[int, int]:
        """Returns the number of multiplications for the product of i to j, and its last split."""
        if i == j:
            return 0, i
        return min((best(i, k)[0] + best(k + 1, j)[0] + sides[i] * sides[k + 1] * sides[j + 1], k) for k in range(i, j))

    return _split_product(parts, 0, lambda i, j: best(i, j)[1])


def _split_product(parts: Sequence[Tensor], first: int, split_of: Callable[[int, int], int]) -> Tensor:
    """Returns the product of parts; split_of(i, j) is the last part on the left among i to j, counted from `first`."""
    if len(parts) == 1:
        return parts[0]
    count = split_of(first, first + len(parts) - 1) + 1 - first
    left, right = _split_product(parts[:count], first, split_of), _split_product(parts[count:], first + count, split_of)
    return left.matmul(right)


# ---- of one matrix ----
def det(A: Any) -> Tensor:
    """Returns the determinant of each matrix (..., n, n): (...).

    Args:
      A:  (..., n, n)

    Raises:
      ShapeError: a matrix is not square.

    Gradient: the cofactors, so it exists for singular matrices; their second-order gradient is an error.

    >>> det(Tensor([[2.0, 0.0], [0.0, 4.0]])).item()
    8.0
    """
    name, (a,) = taken("det", A)
    op = host_calls.matrix(name, a.read(), square=True)
    return given(host_calls.call("det", op, site=host_calls.singular(name, op)), name, a)


def slogdet(A: Any) -> LogDet:
    """Returns sign and logarithm of |determinant| of each matrix: 0 and -inf for a singular one.

    Args:
      A:  (..., n, n)

    Raises:
      ShapeError: a matrix is not square.

    >>> slogdet(Tensor([[0.0, 1.0], [1.0, 0.0]])).sign.item()
    -1.0
    """
    name, (a,) = taken("slogdet", A)
    return LogDet(*(given(op, name, a) for op in slogdet_ops(name, a.read())))


def matrix_power(A: Any, n: int) -> Tensor:
    """Returns each matrix raised to the power n; a negative n inverts it; n = 0 gives the identity.

    Args:
      A:  (..., n, n)
      n:  an integer

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: n is not an integer.

    >>> matrix_power(Tensor([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    name, (a,) = taken("matrix_power", A)
    n = whole(name, "n", n)
    op = a.read()
    if len(op.shape) < 2 or op.shape[-1] != op.shape[-2]:
        raise ShapeError(f"{name}: needs square matrices, got shape {op.shape}.")
    return given(power_op(host_calls.inverse(name, op) if n < 0 else op, abs(n)), name, a)


def matrix_exp(A: Any) -> Tensor:
    """Returns the sum of A^i / i! of each matrix (..., n, n).

    Args:
      A:  (..., n, n)

    Raises:
      ShapeError: a matrix is not square.

    >>> matrix_exp(Tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    name, (a,) = taken("matrix_exp", A)
    return given(host_calls.call("matrix_exp", host_calls.matrix(name, a.read(), square=True)), name, a)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns a diagonal of each matrix, as the last axis.

    Args:
      A:           (..., m, n), or with the matrices along dim1 and dim2
      offset:      number of diagonals above the main one; negative: below it
      dim1, dim2:  axes

    Raises:
      ArgumentError: dim1 and dim2 are the same axis.

    >>> diagonal(Tensor([[1.0, 2.0], [3.0, 4.0]]), offset=1).tolist()
    [2.0]
    """
    name, (a,) = taken("diagonal", A)
    first, second = (axis_of(name, a.op.shape, axis) for axis in (dim1, dim2))
    if first == second:
        raise ArgumentError(f"{name}: dim1={dim1} and dim2={dim2} are one axis of {a.shape}.")
    x = Tensor.from_op(a.read(), a.cell.device)
    x = x.permute(*(i for i in range(x.ndim) if i not in (first, second)), first, second)
    m, n = x.shape[-2:]
    offset = whole("linalg.diagonal", "offset", offset)
    row, column = max(0, -offset), max(0, offset)
    length = max(0, min(m - row, n - column))
    kept = x[..., row : row + length, column : column + length]
    return given(diagonal_op(kept.read()), name, a)


def vander(x: Any, N: int | None = None) -> Tensor:
    """Returns the powers 0 to N - 1 of each element, along a new last axis.

    Args:
      x:  (..., n); a number counts as a vector of one
      N:  number of powers, by default n

    Raises:
      ShapeError:    x is 0-d, and N is not given.
      ArgumentError: N is less than 2.

    >>> vander(Tensor([2.0, 3.0])).tolist()
    [[1.0, 2.0], [1.0, 3.0]]
    """
    name, (a,) = taken("vander", x)
    op = a.read()
    if N is None and not op.shape:
        raise ShapeError(f"{name}: needs at least one axis, got a tensor without axes.")
    op = op if op.shape else reshape(op, (1,))
    count = op.shape[-1] if N is None else whole(name, "N", N)
    if N is not None and count < 2:
        raise ArgumentError(f"{name}: N must be 2 or more, got {N!r}.")
    return given(powers(op, count), name, a)


def powers(op: Op, count: Any) -> Op:
    """Returns the powers 0 to count - 1 along a new last axis, as running products, which have gradients at 0.

    Powers of integers are int64.
    """
    op = op if op.dtype.is_float else cast(op, int64)
    shape, last = (*op.shape, count), len(op.shape)
    factors = repeat_axes(op, (last,), shape)
    ones = factors.filled(1)
    return scan(where(equal(positions(shape, last), 0), ones, factors), OpCode.MUL, last)

