"""Matrices as products of simpler ones: LU, Cholesky, QR, eigenvalues and singular values, with their vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, equal, positions, reshape, shrink_axis, swap_last, triangle
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor import host_calls
from picograd.tensor.build import broadcast_to, detached
from picograd.tensor.linear_algebra import QR, complete_qr, lu_solution, order_matrix, pivots_of
from picograd.tensor.statistics import common
from picograd.tensor.tensor import Tensor
from picograd_math.linalg.solving import given, taken

__all__ = [
    "cholesky", "cholesky_ex", "eig", "eigh", "eigvals", "eigvalsh", "householder_product", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "qr", "svd", "svdvals",
]  # fmt: skip


class CholeskyInfo(NamedTuple):
    """The result of `cholesky_ex`; info is 0, or the order of the first leading minor that is not positive definite."""

    L: Tensor
    info: Tensor


class LU(NamedTuple):
    """Factors P, L, U of a matrix P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """L below the diagonal and U, and the exchanges of rows, counted from 1, in order."""

    LU: Tensor
    pivots: Tensor


class LUFactorInfo(NamedTuple):
    """LUFactor with info: 0, or the number, from 1, of the first zero pivot."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


# ---- Cholesky ----
def cholesky(A: Any, *, upper: bool = False) -> Tensor:
    """Returns the lower triangular L with L @ L.T = A, for symmetric positive definite matrices.

    Args:
      A:      (..., n, n); only the lower triangle is read
      upper:  read the upper triangle, and return L.T

    Raises:
      ShapeError: a matrix is not square.

    A matrix that is not positive definite raises LinAlgError when its value is computed.

    >>> cholesky(Tensor([[4.0, 0.0], [0.0, 9.0]])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    name, (a,) = taken("cholesky", A)
    return given(host_calls.cholesky(name, a.read(), upper), name, a)


def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> CholeskyInfo:
    """Returns the Cholesky factor, and 0 or the order of a leading minor that is not positive definite.

    Args:
      A, upper:      as in `cholesky`
      check_errors:  raise LinAlgError as `cholesky` does

    >>> cholesky_ex(Tensor([[1.0, 2.0], [2.0, 1.0]])).info.item()
    2
    """
    name, (a,) = taken("cholesky_ex", A)
    op = host_calls.matrix(name, a.read(), square=True)
    order = host_calls.call("cholesky_order", detached(swap_last(op) if upper else op), dtype=dtypes.int64)
    info = cast(order, dtypes.int32)
    possible = op if check_errors else host_calls.where_possible(op, info)
    return CholeskyInfo(given(host_calls.cholesky(name, possible, upper), name, a), given(info, name, a))


# ---- LU ----
def lu(A: Any, *, pivot: bool = True) -> LU:
    """Returns P (..., m, m), L (..., m, k) with ones on its diagonal and U (..., k, n) with P @ L @ U = A; k = min(m, n).

    Args:
      A:      (..., m, n)
      pivot:  False: rows are not exchanged, and P is empty

    Raises:
      ShapeError: there are fewer than two axes.

    >>> lu(Tensor([[1.0, 2.0], [2.0, 2.0]])).U.tolist()
    [[2.0, 2.0], [0.0, 1.0]]
    """
    name, (a,) = taken("lu", A)
    joined, rows = host_calls.lu(name, a.read(), pivot)
    lower, upper = host_calls.lu_parts(joined)
    order = order_matrix(rows, joined) if pivot else filled(0, joined.dtype, (0,))
    return LU(*(given(op, name, a) for op in (order, lower, upper)))


def lu_factor(A: Any, *, pivot: bool = True) -> LUFactor:
    """Returns L and U in one matrix, and the exchanges of rows, for `lu_solve`.

    Args:
      A:      (..., m, n)
      pivot:  False: rows are not exchanged

    Raises:
      ShapeError: there are fewer than two axes.

    >>> lu_factor(Tensor([[1.0, 2.0], [2.0, 2.0]])).pivots.tolist()
    [2, 2]
    """
    name, (a,) = taken("lu_factor", A)
    op = host_calls.matrix(name, a.read())
    joined, _ = host_calls.lu(name, op, pivot)
    return LUFactor(given(joined, name, a), given(pivots_of(op, pivot), name, a))


def lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False) -> LUFactorInfo:
    """Returns the result of `lu_factor`, and 0 or the number of a zero pivot.

    Args:
      A, pivot:      as in `lu_factor`
      check_errors:  must be False: a zero pivot is not an error of the factors

    Raises:
      ArgumentError: check_errors is True.

    >>> lu_factor_ex(Tensor([[0.0, 0.0], [0.0, 1.0]])).info.item()
    1
    """
    if check_errors:
        raise ArgumentError("linalg.lu_factor_ex: check_errors must be False; look at info.")
    name, (a,) = taken("lu_factor_ex", A)
    factored = lu_factor(A, pivot=pivot)
    return LUFactorInfo(*factored, given(host_calls.zero_pivot(factored.LU.read()), name, a))


def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Returns X with A X = B, from the result of `lu_factor` for A.

    Args:
      LU:       (..., n, n)
      pivots:   (..., n)
      B:        (..., n, k), or (..., k, n) with left=False
      left:     False: X A = B
      adjoint:  use A.T instead of A

    Raises:
      ShapeError: the shapes do not match.

    >>> factors = lu_factor(Tensor([[1.0, 2.0], [2.0, 2.0]]))
    >>> lu_solve(*factors, Tensor([[3.0], [4.0]])).tolist()
    [[1.0], [1.0]]
    """
    name, (factors, exchanged, right) = taken("lu_solve", LU, pivots, B)
    joined, b = common(name, factors, right)
    if not left:
        b, adjoint = swap_last(host_calls.matrix(name, b)), not adjoint
    x = lu_solution(name, joined, b, exchanged.read(), adjoint)
    return given(x if left else swap_last(x), name, factors, right)


# ---- QR ----
def qr(A: Any, mode: str = "reduced") -> QR:
    """Returns orthonormal Q and upper triangular R with Q @ R = A.

    Args:
      A:     (..., m, n)
      mode:  "reduced": Q (..., m, k), R (..., k, n) with k = min(m, n); "complete": Q (..., m, m), R (..., m, n);
             "r": R alone, and an empty Q

    Raises:
      ArgumentError: the mode is unknown.

    Gradient: for full rank; for "complete" through the first k columns of Q only.

    >>> q, r = qr(Tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).round(decimals=4).tolist()
    [[3.0, 1.0], [4.0, 2.0]]
    """
    name, (a,) = taken("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f'{name}: mode must be "reduced", "complete" or "r", got {mode!r}.')
    q, r = (complete_qr if mode == "complete" else host_calls.qr)(name, a.read())
    if mode == "r":
        q = filled(0, q.dtype, (0,))
    return QR(given(q, name, a), given(r, name, a))


def householder_product(A: Any, tau: Any) -> Tensor:
    """Returns the first n columns of the product of the reflections I - tau[i] v v.T, v being column i of A.

    Args:
      A:    (..., m, n), m >= n; 0 above the diagonal and 1 on it are assumed
      tau:  (..., k), k <= n

    Raises:
      ShapeError: m < n, or the shape of tau does not match.

    >>> householder_product(Tensor([[1.0], [1.0]]), Tensor([1.0])).tolist()
    [[0.0], [-1.0]]
    """
    name, (matrix, factors) = taken("householder_product", A, tau)
    a, t = common(name, matrix, factors)
    m, n = host_calls.sides(host_calls.matrix(name, a))
    k = t.shape[-1] if t.shape else -1
    if m < n or not isinstance(k, int) or not 0 <= k <= n or t.shape[:-1] != a.shape[:-2]:
        raise ShapeError(f"{name}: A {a.shape} and tau {t.shape} do not fit (..., m, n) and (..., k) with m >= n >= k.")
    row, column = (positions(a.shape, len(a.shape) - 2 + i) for i in range(2))
    product = cast(equal(row, column), a.dtype)
    below = triangle(a, True, 0.0)
    for i in reversed(range(k)):
        unit = cast(equal(positions((*a.shape[:-1], 1), len(a.shape) - 2), i), a.dtype)
        v = shrink_axis(below, -1, i, i + 1) + unit
        scale = reshape(shrink_axis(t, -1, i, i + 1), (*t.shape[:-1], 1, 1))
        inner = Op(OpCode.MATMUL, a.dtype, (swap_last(v), product))
        outer = Op(OpCode.MATMUL, a.dtype, (v, inner * broadcast_to(scale, inner.shape)))
        product = product - outer
    return given(product, name, matrix, factors)


# ---- eigenvalues ----
class Eigen(NamedTuple):
    """Eigenvalues in rising order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _is_upper(name: str, UPLO: str) -> bool:
    if UPLO not in ("L", "U", "l", "u"):
        raise ArgumentError(f'{name}: UPLO must be "L" or "U", got {UPLO!r}.')
    return UPLO in "Uu"


def eigh(A: Any, UPLO: str = "L") -> Eigen:
    """Returns eigenvalues (..., n), in rising order, and eigenvectors (..., n, n), as columns, of symmetric matrices.

    Args:
      A:     (..., n, n)
      UPLO:  "L": read the lower triangle, "U": the upper one

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: UPLO is neither.

    Gradient: for distinct eigenvalues; an eigenvector's sign is arbitrary, and values that depend on it are meaningless.

    >>> eigh(Tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    name, (a,) = taken("eigh", A)
    return Eigen(*(given(op, name, a) for op in host_calls.eigh(name, a.read(), _is_upper(name, UPLO))))


def eigvalsh(A: Any, UPLO: str = "L") -> Tensor:
    """Returns the eigenvalues (..., n), in rising order, of symmetric matrices; equal ones have gradients, too.

    Args:
      A:     (..., n, n)
      UPLO:  "L": read the lower triangle, "U": the upper one

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: UPLO is neither.

    >>> eigvalsh(Tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    name, (a,) = taken("eigvalsh", A)
    return given(host_calls.eigenvalues(name, a.read(), _is_upper(name, UPLO)), name, a)


def eig(A: Any) -> Eigen:
    """Returns real eigenvalues (..., n), in rising order, and eigenvectors (..., n, n), as columns of length 1.

    A V = V diag(w). PyTorch's results are always complex; picograd has no complex tensors.

    Args:
      A:  (..., n, n), with real eigenvalues

    Raises:
      ShapeError:  a matrix is not square.
      LinAlgError: a matrix has complex eigenvalues, or a NaN.

    Gradient: for distinct eigenvalues; an eigenvector's sign is arbitrary, and values that depend on it are meaningless.

    >>> eig(Tensor([[2.0, 1.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    name, (a,) = taken("eig", A)
    return Eigen(*(given(op, name, a) for op in host_calls.eig(name, a.read())))


def eigvals(A: Any) -> Tensor:
    """Returns the eigenvalues (..., n), in rising order, of matrices with real eigenvalues.

    Args:
      A:  (..., n, n)

    Raises:
      ShapeError:  a matrix is not square.
      LinAlgError: a matrix has complex eigenvalues, or a NaN.

    >>> eigvals(Tensor([[2.0, 1.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    name, (a,) = taken("eigvals", A)
    return given(host_calls.eig(name, a.read())[0], name, a)


# ---- singular values ----
class Singular(NamedTuple):
    """Singular value decomposition of a matrix U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(A: Any, full_matrices: bool = True, *, driver: str | None = None) -> Singular:
    """Returns U, S, in falling order, and Vh with U @ diag(S) @ Vh = A.

    Args:
      A:              (..., m, n)
      full_matrices:  U (..., m, m) and Vh (..., n, n); else U (..., m, k) and Vh (..., k, n), k = min(m, n)
      driver:         must be None: the only method is LAPACK's gesdd

    Raises:
      ArgumentError: driver is given.

    Gradient: for distinct nonzero singular values; through the first k columns of U and V only. The sign of a pair of
    vectors is arbitrary, and values that depend on it are meaningless.

    >>> svd(Tensor([[3.0, 0.0], [0.0, -2.0]])).S.tolist()
    [3.0, 2.0]
    """
    name, (a,) = taken("svd", A)
    _no_driver(name, driver)
    u, s, vh = host_calls.svd(name, a.read())
    if full_matrices:
        u, vh = host_calls.completed(u), swap_last(host_calls.completed(swap_last(vh)))
    return Singular(*(given(op, name, a) for op in (u, s, vh)))


def _no_driver(name: str, driver: str | None) -> None:
    if driver is not None:
        raise ArgumentError(f"{name}: driver={driver!r} is for CUDA; leave it out.")


def svdvals(A: Any, *, driver: str | None = None) -> Tensor:
    """Returns the singular values (..., min(m, n)), in falling order; equal ones have gradients, too.

    Args:
      A:       (..., m, n)
      driver:  must be None: the only method is LAPACK's gesdd

    Raises:
      ArgumentError: driver is given.

    >>> svdvals(Tensor([[3.0, 0.0], [0.0, -2.0]])).tolist()
    [3.0, 2.0]
    """
    name, (a,) = taken("svdvals", A)
    _no_driver(name, driver)
    return given(host_calls.singular_values(name, a.read()), name, a)
