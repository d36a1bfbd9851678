"""Inverses and systems of equations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, less, less_equal, maximum, positions, reduce, repeat_axes, reshape, swap_last, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor import host_calls
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import axis_of, broadcast_to, detached, is_integer, whole
from picograd.tensor.core import TensorCore
from picograd.tensor.linear_algebra import greatest_value
from picograd.tensor.statistics import common
from picograd.tensor.tensor import Tensor

__all__ = ["inv", "inv_ex", "lstsq", "pinv", "solve", "solve_ex", "solve_triangular", "tensorinv", "tensorsolve"]

EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}  # distance from 1 to the next number


class InverseInfo(NamedTuple):
    """The result of `inv_ex`; info is 0, or the number, from 1, of the zero pivot."""

    inverse: Tensor
    info: Tensor


class SolveInfo(NamedTuple):
    """The result of `solve_ex`; info is 0, or the number, from 1, of the zero pivot."""

    result: Tensor
    info: Tensor


class LeastSquares(NamedTuple):
    """The result of `lstsq`."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def taken(function: str, *values: Any) -> tuple[str, tuple[Tensor, ...]]:
    """Returns the name for errors, and the operands, which must be tensors."""
    name = f"linalg.{function}"
    return name, tuple(tensor_of(name, "an operand", value) for value in values)


def given(op: Op, name: str, *operands: Tensor) -> Tensor:
    """Returns a tensor on the device of the operands."""
    return Tensor.from_op(op, operands[0].other_device(name, *operands[1:]))


def inv(A: Any) -> Tensor:
    """Returns the inverse of each matrix (..., n, n).

    Args:
      A:  (..., n, n)

    Raises:
      ShapeError: a matrix is not square.

    A singular matrix raises LinAlgError when its value is computed. Gradient: -X.T G X.T.

    >>> inv(Tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    name, (a,) = taken("inv", A)
    return given(host_calls.inverse(name, a.read()), name, a)


def _checked(check_errors: bool, name: str, a: Op) -> tuple[Op, Op]:
    """Returns the matrices, with singular ones replaced unless they are an error, and which ones are singular."""
    info = host_calls.first_zero_pivot(name, host_calls.matrix(name, a, square=True))
    return (a if check_errors else host_calls.where_possible(a, info)), info


def inv_ex(A: Any, *, check_errors: bool = False) -> InverseInfo:
    """Returns the inverse of each matrix, and 0 or the number of the zero pivot; a singular one has a meaningless inverse.

    Args:
      A:             (..., n, n)
      check_errors:  raise LinAlgError for a singular matrix, as `inv` does

    >>> inv_ex(Tensor([[0.0, 0.0], [0.0, 1.0]])).info.item()
    1
    """
    name, (a,) = taken("inv_ex", A)
    matrices, info = _checked(check_errors, name, a.read())
    return InverseInfo(given(host_calls.inverse(name, matrices), name, a), given(info, name, a))


def _is_vector(a: Op, b: Op) -> bool:
    """True if b is a single column per matrix, without an axis for it."""
    return len(b.shape) == 1 or (len(a.shape) - 1 == len(b.shape) and b.shape == a.shape[:-1])


def _solved(name: str, a: Op, b: Op, left: bool) -> Op:
    if not left:
        return swap_last(host_calls.solution(name, swap_last(a), swap_last(b)))
    if _is_vector(a, b):
        column = reshape(b, (*b.shape, 1))
        solution = host_calls.solution(name, a, column)
        return reshape(solution, solution.shape[:-1])
    return host_calls.solution(name, a, b)


def solve(A: Any, B: Any, *, left: bool = True) -> Tensor:
    """Returns X with A X = B, or with left=False X A = B.

    Args:
      A:     (..., n, n)
      B:     (..., n, k) or (..., n), or (..., k, n) with left=False
      left:  the side of X on which the matrix is

    Raises:
      ShapeError: a matrix is not square, or the shape of B does not match.

    A singular matrix raises LinAlgError when its value is computed.

    >>> solve(Tensor([[2.0, 0.0], [0.0, 4.0]]), Tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    name, (a, b) = taken("solve", A, B)
    left_side, right_side = common(name, a, b)
    return given(_solved(name, left_side, right_side, left), name, a, b)


def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> SolveInfo:
    """Returns X with A X = B, and 0 or the number of the zero pivot; for a singular matrix X is meaningless.

    Args:
      A, B, left:    as in `solve`
      check_errors:  raise LinAlgError for a singular matrix

    >>> solve_ex(Tensor([[2.0]]), Tensor([[4.0]])).result.item()
    2.0
    """
    name, (a, b) = taken("solve_ex", A, B)
    left_side, right_side = common(name, a, b)
    matrices, info = _checked(check_errors, name, left_side)
    return SolveInfo(given(_solved(name, matrices, right_side, left), name, a, b), given(info, name, a))


def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """Returns X with A X = B for a triangular A; the other triangle is not read.

    Args:
      A:              (..., n, n)
      B:              (..., n, k), or (..., k, n) with left=False
      upper:          A is upper triangular, else lower
      left:           False: X A = B
      unitriangular:  assume ones on the diagonal

    Raises:
      ShapeError: a matrix is not square, or the shape of B does not match.

    A 0 on the diagonal gives inf or NaN, as in PyTorch.

    >>> solve_triangular(Tensor([[2.0, 0.0], [1.0, 1.0]]), Tensor([[2.0], [3.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    name, (a, b) = taken("solve_triangular", A, B)
    matrix, right = common(name, a, b)
    if left:
        op = host_calls.triangular(name, matrix, right, upper, unitriangular)
    else:
        host_calls.matrix(name, matrix, square=True), host_calls.matrix(name, right)
        op = swap_last(host_calls.triangular(name, swap_last(matrix), swap_last(right), not upper, unitriangular))
    return given(op, name, a, b)


# ---- least squares ----
def tolerances(name: str, a: Op, atol: Any, rtol: Any) -> list[Op]:
    """Returns the tolerances below which singular values count as 0: absolute, and relative to the largest."""
    m, n = host_calls.sides(host_calls.matrix(name, a))
    if rtol is None:
        rtol = 0.0 if atol is not None and not _is_zero(atol) else max(m, n) * EPSILON[a.dtype]
    bounds = [_bound(name, value, a) for value in (0.0 if atol is None else atol, rtol)]
    return [detached(broadcast_to(bound, a.shape[:-2])) for bound in bounds]


def least_value(name: str, a: Op, atol: Any, rtol: Any) -> Op:
    """Returns the bound up to which singular values count as 0."""
    absolute, relative = tolerances(name, a, atol, rtol)
    return maximum(absolute, greatest_value(name, a) * relative)


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _bound(name: str, value: Any, a: Op) -> Op:
    if isinstance(value, TensorCore):
        return cast(value.read(), a.dtype)
    if not isinstance(value, (int, float)):
        raise ArgumentError(f"{name}: a tolerance must be a number or a tensor, got {value!r}.")
    return filled(float(value), a.dtype, ())


def pinv(A: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, rcond: Any = None) -> Tensor:
    """Returns the pseudoinverse of each matrix (..., m, n): (..., n, m).

    Args:
      A:          (..., m, n)
      atol:       singular values up to this count as 0: a number or a tensor
      rtol:       the same times the largest one; by default max(m, n) eps, or 0 if atol is given
      hermitian:  A is symmetric: only its lower triangle is read
      rcond:      old name of rtol

    Raises:
      ArgumentError: a tolerance is not a number, or both rtol and rcond are given.

    Gradient: for constant rank (Golub, Pereyra 1973).

    >>> pinv(Tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    name, (a,) = taken("pinv", A)
    if rcond is not None and rtol is not None:
        raise ArgumentError(f"{name}: rtol and rcond are two names of one argument; give one.")
    op = host_calls.matrix(name, a.read(), square=hermitian)
    if hermitian:
        rows, columns = (positions(op.shape, len(op.shape) - 2 + side) for side in (0, 1))
        op = where(less_equal(columns, rows), op, swap_last(op))
    return given(host_calls.pseudoinverse(name, op, *tolerances(name, op, atol, rcond if rtol is None else rtol)), name, a)


DRIVERS = ("gelsy", "gelsd", "gelss", "gels")


def lstsq(A: Any, B: Any, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """Returns the X that minimizes |A X - B|; among several, the shortest.

    Args:
      A:       (..., m, n)
      B:       (..., m, k) or (..., m)
      rcond:   singular values up to this times the largest count as 0; by default max(m, n) eps
      driver:  "gelsy", "gelsd", "gelss" or "gels": they differ in their further results

    Returns:   solution (..., n, k); residuals (..., k), the sums of squares if m > n, except for gelsy; rank (...), int64,
             except for gels; singular_values (..., min(m, n)) for gelsd and gelss. Missing results are (0,)

    Raises:
      ShapeError:    A and B differ in their number of rows.
      ArgumentError: the driver is unknown.

    >>> lstsq(Tensor([[1.0], [1.0]]), Tensor([[1.0], [3.0]])).solution.round(decimals=4).item()
    2.0
    """
    name, (first, second) = taken("lstsq", A, B)
    if driver is not None and driver not in DRIVERS:
        raise ArgumentError(f"{name}: driver must be one of {', '.join(DRIVERS)}, got {driver!r}.")
    a, b = common(name, first, second)
    m, n = host_calls.sides(host_calls.matrix(name, a))
    is_vector = _is_vector_of_rows(a, b)
    b = reshape(b, (*b.shape, 1)) if is_vector else b
    if len(b.shape) < 2 or b.shape[-2] != m:
        raise ShapeError(f"{name}: A {a.shape} has {m} rows, B {second.shape} has another number.")
    values = host_calls.singular_values(name, a)
    least = least_value(name, a, None, rcond)
    inverse = Tensor.from_op(host_calls.pseudoinverse(name, a, *tolerances(name, a, None, rcond)))
    solution = inverse.matmul(Tensor.from_op(b))
    rest = Tensor.from_op(a).matmul(solution) - Tensor.from_op(b)
    empty = filled(0, a.dtype, (0,))
    residuals = (rest * rest).sum(-2).read() if m > n and driver in ("gels", "gelsd", "gelss") else empty
    last = len(values.shape) - 1
    kept = less(repeat_axes(least, (last,), values.shape), values)
    rank = reduce(cast(kept, dtypes.int64), OpCode.ADD, (last,)) if driver != "gels" else filled(0, dtypes.int64, (0,))
    shown = detached(values) if driver in ("gelsd", "gelss") else empty
    result = solution.read()
    if is_vector:
        result = reshape(result, result.shape[:-1])
    found = (given(op, name, first, second) for op in (result, residuals, rank, shown))
    return LeastSquares(*found)


def _is_vector_of_rows(a: Op, b: Op) -> bool:
    return len(b.shape) == len(a.shape) - 1 and b.shape == a.shape[:-1]


# ---- tensors as matrices ----
def tensorinv(A: Any, ind: int = 2) -> Tensor:
    """Returns the inverse of a tensor, as a matrix with its first `ind` axes as rows.

    Args:
      A:    a tensor whose first axes have as many elements as the others
      ind:  at least 1

    Raises:
      ArgumentError: ind is less than 1.
      ShapeError:    the numbers of elements of the first axes and of the others differ.

    >>> tensorinv(Tensor.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    name, (a,) = taken("tensorinv", A)
    ind = whole(name, "ind", ind)
    if ind < 1:
        raise ArgumentError(f"{name}: ind must be 1 or more, got {ind!r}.")
    op = a.read()
    rows, columns = math.prod(a.shape[:ind]), math.prod(a.shape[ind:])
    if rows != columns:
        raise ShapeError(f"{name}: the first {ind} axes of {op.shape} have {rows} elements, the others {columns}.")
    inverse = host_calls.inverse(name, reshape(op, (rows, columns)))
    return given(reshape(inverse, (*op.shape[ind:], *op.shape[:ind])), name, a)


def tensorsolve(A: Any, B: Any, dims: int | Sequence[int] | None = None) -> Tensor:
    """Returns X with tensordot(A, X, X.ndim) = B.

    Args:
      A:     its first axes have the shape of B, after `dims` are moved to the end
      B:     any shape
      dims:  axes of A

    Raises:
      ShapeError: the shapes do not match.

    >>> tensorsolve(Tensor.eye(4).reshape(2, 2, 4) * 2, Tensor.ones(2, 2)).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    name, (first, second) = taken("tensorsolve", A, B)
    a, b = (Tensor.from_op(op) for op in common(name, first, second))
    if dims is not None:
        axes = [axis_of(name, a.shape, axis) for axis in ([dims] if is_integer(dims) else dims)]
        a = a.permute(*(i for i in range(a.ndim) if i not in axes), *axes)
    shape = a.shape[b.ndim :]
    if math.prod(shape) != b.numel() or a.numel() != b.numel() ** 2:
        raise ShapeError(f"{name}: A {first.shape} does not fit B {second.shape}.")
    matrix = a.reshape(b.numel(), b.numel())
    found = host_calls.solution(name, matrix.read(), b.reshape(-1, 1).read())
    return given(reshape(found, shape), name, first, second)
