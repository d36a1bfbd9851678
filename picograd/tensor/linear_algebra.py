"""Linear algebra that torch.Tensor has as methods; picograd_math/linalg/ has all of torch.linalg, on the same Ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from picograd import dtype as dtypes
from picograd.errors import DTypeError, ShapeError
from picograd.ir.build import (
    argsort,
    cast,
    diagonal,
    differs,
    equal,
    gather,
    less,
    positions,
    product,
    reshape,
    shrink_axis,
    swap_last,
    where,
    with_diagonal,
)
from picograd.ir.checks import Site, checked
from picograd.ir.op import Op, filled
from picograd.tensor import host_calls
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import broadcast_to, detached, guarded, whole
from picograd.tensor.core import T
from picograd.tensor.operators import result_of
from picograd.tensor.statistics import common

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu", "lu_solve", "matrix_exp",
    "matrix_power", "pinverse", "qr", "slogdet", "svd", "triangular_solve",
]  # fmt: skip


# ---- inverses, determinants, factors ----
class QR(NamedTuple):
    """Orthonormal columns Q and a triangle R whose product is the matrix."""

    Q: Any
    R: Any


class SVD(NamedTuple):
    """The result of `Tensor.svd`: U diag(S) V.T is the matrix."""

    U: Any
    S: Any
    V: Any


class LogDet(NamedTuple):
    """A determinant as sign * exp(logabsdet)."""

    sign: Any
    logabsdet: Any


def of_op(self: T, op: Op) -> T:
    """Returns an Op as a tensor on the device of `self`."""
    return self.from_op(op, self.cell.device)


# ---- determinants and powers ----
def inverse(self: T) -> T:
    """Returns the inverse of each matrix (..., n, n).

    Raises:
      ShapeError: a matrix is not square.
      DTypeError: self is not a float of 32 or 64 bits.

    A singular matrix raises LinAlgError when its value is computed.

    >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inverse().tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return of_op(self, host_calls.inverse("inverse", self.read()))


def det(self: T) -> T:
    """Returns the determinant of each matrix (..., n, n): (...).

    Raises:
      ShapeError: a matrix is not square.

    >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).det().item()
    8.0
    """
    op = host_calls.matrix("det", self.read(), square=True)
    return of_op(self, host_calls.call("det", op, site=host_calls.singular("det", op)))


def slogdet(self: T) -> LogDet:
    """Returns sign and logarithm of |determinant| of each matrix: 0 and -inf for a singular one.

    Raises:
      ShapeError: a matrix is not square.

    >>> Tensor([[0.0, 1.0], [1.0, 0.0]]).slogdet().sign.item()
    -1.0
    """
    return LogDet(*(of_op(self, op) for op in slogdet_ops("slogdet", self.read())))


def logdet(self: T) -> T:
    """Returns the logarithm of the determinant of each matrix: NaN if the determinant is negative.

    Raises:
      ShapeError: a matrix is not square.

    >>> Tensor([[1.0, 0.0], [0.0, 1.0]]).logdet().item()
    0.0
    """
    sign, logarithm = slogdet_ops("logdet", self.read())
    negative = less(sign, 0)
    return of_op(self, where(negative, sign.filled(float("nan")), logarithm))


def matrix_power(self: T, n: int) -> T:
    """Returns each matrix raised to the power n; a negative n inverts it; n = 0 gives the identity.

    Args:
      n:  an integer

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: n is not an integer.

    Cost:      at most 2 log2 |n| products.

    >>> Tensor([[1.0, 1.0], [0.0, 1.0]]).matrix_power(3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    n = whole("matrix_power", "n", n)
    op = self.read()
    if len(op.shape) < 2 or op.shape[-1] != op.shape[-2]:
        raise ShapeError(f"matrix_power: needs square matrices, got shape {op.shape}.")
    if n < 0:
        op = host_calls.inverse("matrix_power", op)
    return of_op(self, power_op(op, abs(n)))


def matrix_exp(self: T) -> T:
    """Returns the sum of A^i / i! of each matrix (..., n, n).

    Raises:
      ShapeError: a matrix is not square.

    >>> Tensor([[0.0, 1.0], [0.0, 0.0]]).matrix_exp().tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return of_op(self, host_calls.call("matrix_exp", host_calls.matrix("matrix_exp", self.read(), square=True)))


# ---- factors ----
def cholesky(self: T, upper: bool = False) -> T:
    """Returns the lower triangular L with L @ L.T = self, for symmetric positive definite matrices.

    Args:
      upper:  read the upper triangle, and return L.T

    Raises:
      ShapeError: a matrix is not square.

    A matrix that is not positive definite raises LinAlgError when its value is computed.

    >>> Tensor([[4.0, 0.0], [0.0, 9.0]]).cholesky().tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return of_op(self, host_calls.cholesky("cholesky", self.read(), upper))


def cholesky_solve(self: T, input2: Any, upper: bool = False) -> T:
    """Returns X with A X = self, where L is the Cholesky factor of A.

    Args:
      input2:  L (..., n, n), the result of `cholesky`
      upper:   input2 is upper triangular

    Raises:
      ShapeError: the shapes do not match.

    >>> Tensor([[4.0]]).cholesky_solve(Tensor([[2.0]])).item()
    1.0
    """
    factor = tensor_of("cholesky_solve", "L", input2).read()
    return result_of(self, "cholesky_solve", cholesky_solution("cholesky_solve", self.read(), factor, upper), input2)


def cholesky_inverse(self: T, upper: bool = False) -> T:
    """Returns the inverse of the matrix with this Cholesky factor.

    Args:
      upper:  self is upper triangular

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: when the result is computed: an element of the diagonal is 0.

    >>> Tensor([[2.0]]).cholesky_inverse().item()
    0.25
    """
    factor = host_calls.matrix("cholesky_inverse", self.read(), square=True)
    fact = "cholesky_inverse: an element of the diagonal is 0, so there is no inverse."
    pivots = reshape(diagonal(factor), (*factor.shape[:-2], 1, factor.shape[-1]))
    factor = guarded(factor, differs(pivots, 0), fact)
    return of_op(self, cholesky_solution("cholesky_inverse", identity_like(factor), factor, upper))


def qr(self: T, some: bool = True) -> QR:
    """Returns orthonormal Q (..., m, k) and upper triangular R (..., k, n) with Q @ R = self; k = min(m, n).

    Args:
      some:  False: Q (..., m, m) and R (..., m, n)

    Raises:
      ShapeError: there are fewer than two axes.

    >>> q, r = Tensor([[3.0, 1.0], [4.0, 2.0]]).qr()
    >>> (q @ r).round(decimals=4).tolist()
    [[3.0, 1.0], [4.0, 2.0]]
    """
    q, r = host_calls.qr("qr", self.read()) if some else complete_qr("qr", self.read())
    return QR(of_op(self, q), of_op(self, r))


def svd(self: T, some: bool = True, compute_uv: bool = True) -> SVD:
    """Returns U, S and V with U @ diag(S) @ V.T = self; S is in falling order. NOTE: pg.linalg.svd returns V.T.

    Args:
      some:        False: full U (..., m, m) and V (..., n, n)
      compute_uv:  False: U and V are zeros

    Raises:
      ShapeError: there are fewer than two axes.

    >>> Tensor([[3.0, 0.0], [0.0, -2.0]]).svd().S.tolist()
    [3.0, 2.0]
    """
    a = self.read()
    if not compute_uv:
        m, n = host_calls.sides(host_calls.matrix("svd", a))
        values = host_calls.singular_values("svd", a)
        zeros = (filled(0, a.dtype, (*a.shape[:-2], side, side)) for side in (m, n))
        u, v = (of_op(self, zero) for zero in zeros)
        return SVD(u, of_op(self, values), v)
    left, values, right = host_calls.svd("svd", a)
    left, right = (left, swap_last(right)) if some else map(host_calls.completed, (left, swap_last(right)))
    return SVD(of_op(self, left), of_op(self, values), of_op(self, right))


def pinverse(self: T, rcond: float = 1e-15) -> T:
    """Returns the pseudoinverse of each matrix (..., m, n): (..., n, m).

    Args:
      rcond:  singular values up to this, times the largest, count as 0

    Raises:
      ShapeError: there are fewer than two axes.

    >>> Tensor([[2.0], [0.0]]).pinverse().tolist()
    [[0.5, 0.0]]
    """
    a = host_calls.matrix("pinverse", self.read())
    bounds = (filled(bound, a.dtype, a.shape[:-2]) for bound in (0.0, float(rcond)))
    return of_op(self, host_calls.pseudoinverse("pinverse", a, *bounds))


# ---- on Ops ----
def slogdet_ops(function: str, a: Op) -> tuple[Op, Op]:
    """Returns sign and logarithm of the determinant."""
    joined = host_calls.call("slogdet", host_calls.matrix(function, a, square=True), site=host_calls.singular(function, a))
    batch = a.shape[:-2]
    sign, logarithm = (shrink_axis(joined, -1, i, i + 1) for i in range(2))
    return detached(reshape(sign, batch)), reshape(logarithm, batch)



def identity_like(a: Op) -> Op:
    """Returns the identity for each matrix of a stack."""
    return with_diagonal(a.filled(0), filled(1, a.dtype, a.shape[:-1]))


def power_op(a: Op, n: int) -> Op:
    """Returns a^n for n >= 0, by squaring."""
    if n == 0:
        return identity_like(a)
    result: Op | None = None
    while True:
        if n & 1:
            result = a if result is None else product(result, a)
        n >>= 1
        if not n:
            assert result is not None
            return result
        a = product(a, a)


def cholesky_solution(function: str, b: Op, factor: Op, upper: bool) -> Op:
    """Returns x with L L.T x = b, or with upper U.T U x = b."""
    lower = swap_last(factor) if upper else factor
    first = host_calls.triangular(function, lower, b, upper=False)
    return host_calls.triangular(function, swap_last(lower), first, upper=True)


def complete_qr(function: str, a: Op) -> tuple[Op, Op]:
    """Returns q (..., m, m) and r (..., m, n)."""
    q, r = host_calls.qr(function, a)
    m, n = host_calls.sides(a)
    if m > n:
        r = host_calls.beside(r, filled(0, a.dtype, (*a.shape[:-2], m - n, n)), -2)
    return host_calls.completed(q), r


def greatest_value(function: str, a: Op) -> Op:
    """Returns the largest singular value of each matrix, without gradient; 0 for empty matrices."""
    values = host_calls.singular_values(function, detached(a))
    if values.shape[-1] == 0:
        return filled(0, a.dtype, a.shape[:-2])
    return reshape(shrink_axis(values, -1, 0, 1), a.shape[:-2])


# ---- solutions by factors ----
class LUData(NamedTuple):
    """L below the diagonal and U; for each column the number, from 1, of the row exchanged with its own."""

    LU: Any
    pivots: Any


class LUDataInfo(NamedTuple):
    """L and U and the exchanges of rows, as in LUData; info is the number, from 1, of the first zero pivot, or 0."""

    LU: Any
    pivots: Any
    info: Any


class TriangularSolution(NamedTuple):
    """The solution, and the triangular matrix."""

    solution: Any
    cloned_coefficient: Any


def lu(self: T, pivot: bool = True, get_infos: bool = False) -> Any:
    """Returns L and U in one matrix, and the exchanges of rows, for lu_solve and lu_unpack.

    Args:
      pivot:      False: rows are not exchanged
      get_infos:  return info, too

    Raises:
      ShapeError: there are fewer than two axes.

    >>> Tensor([[1.0, 2.0], [2.0, 2.0]]).lu().pivots.tolist()
    [2, 2]
    """
    op = host_calls.matrix("lu", self.read())
    joined, _ = host_calls.lu("lu", op, pivot)
    factors = of_op(self, joined), of_op(self, pivots_of(op, pivot))
    return LUDataInfo(*factors, of_op(self, host_calls.zero_pivot(joined))) if get_infos else LUData(*factors)


def lu_solve(self: T, LU_data: Tensor, LU_pivots: Tensor) -> T:
    """Returns X with A X = self, from the result of `lu` for A.

    Args:
      LU_data:    (..., n, n)
      LU_pivots:  (..., n)

    Raises:
      ShapeError: the shapes do not match.

    >>> factors = Tensor([[1.0, 2.0], [2.0, 2.0]]).lu()
    >>> Tensor([[3.0], [4.0]]).lu_solve(*factors).tolist()
    [[1.0], [1.0]]
    """
    factors, exchanged = tensor_of("lu_solve", "LU_data", LU_data), tensor_of("lu_solve", "LU_pivots", LU_pivots)
    joined, b = common("lu_solve", factors, self)
    return result_of(self, "lu_solve", lu_solution("lu_solve", joined, b, exchanged.read()), factors)


def triangular_solve(
    self: T, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """Returns X with A X = self for a triangular A; the other triangle is not read.

    Args:
      A:              (..., n, n)
      upper:          A is upper triangular, else lower
      transpose:      A.T X = self
      unitriangular:  assume ones on the diagonal

    Raises:
      ShapeError: a matrix is not square, or the shapes do not match.

    >>> Tensor([[2.0], [3.0]]).triangular_solve(Tensor([[2.0, 0.0], [1.0, 1.0]]), upper=False).solution.tolist()
    [[1.0], [2.0]]
    """
    name = "triangular_solve"
    matrix, right = common(name, tensor_of(name, "A", A), self)
    host_calls.matrix(name, matrix, square=True), host_calls.matrix(name, right)
    matrix, right = host_calls.in_one_batch(name, matrix, right)
    given = swap_last(matrix) if transpose else matrix
    solution = host_calls.triangular(name, given, right, bool(upper) != bool(transpose), bool(unitriangular))
    return TriangularSolution(result_of(self, name, solution, A), of_op(self, matrix))


# ---- on Ops ----
def pivots_of(a: Op, pivot: bool) -> Op:
    """Returns the number, from 1, of the row that each column exchanges with its own, int32."""
    k = min(host_calls.sides(a))
    shape = (*a.shape[:-2], k)
    found = host_calls.call("lu_pivots", detached(a), dtype=dtypes.int64) if pivot else positions(shape, len(shape) - 1) + 1
    return cast(found, dtypes.int32)


def lu_solution(name: str, joined: Op, b: Op, exchanged: Op, adjoint: bool = False) -> Op:
    """Returns x with A x = b, or A.T x = b, from the factors and pivots of A."""
    n = host_calls.sides(host_calls.matrix(name, joined, square=True))[0]
    host_calls.matrix(name, b)
    if b.shape[-2] != n:
        raise ShapeError(f"{name}: LU {joined.shape} and B {b.shape} do not fit.")
    joined, b = host_calls.in_one_batch(name, joined, b)
    rows = broadcast_to(rows_of(name, exchanged, n), joined.shape[:-1])
    batch = len(rows.shape) - 1
    if adjoint:  # U.T L.T P.T x = b
        y = host_calls.triangular(name, swap_last(joined), b, upper=False)
        z = host_calls.triangular(name, swap_last(joined), y, upper=True, unit=True)
        back = argsort(rows, batch)  # new position of each row
        return gather(z, back, batch, batch)
    y = host_calls.triangular(name, joined, gather(b, rows, batch, batch), upper=False, unit=True)
    return host_calls.triangular(name, joined, y, upper=True)


def rows_of(name: str, exchanged: Op, n: int) -> Op:
    """Returns the order of `n` rows after their exchanges; pivots count from 1.

    Raises:
      DTypeError:    the pivots are not integers.
      IndexingError: when the result is computed: a pivot is not a row.
    """
    if not exchanged.dtype.is_int:
        raise DTypeError(f"{name}: pivots must be integers, got {exchanged.dtype} of shape {exchanged.shape}.")
    site = Site(f"{name}: a pivot names row {{}}, counted from 0, of {n} rows.", f"pivots are 1 to {n}.")
    places = checked(cast(exchanged, dtypes.int64) - 1, n, site)
    return host_calls.call("rows_of_pivots", places + 1, options=(n,))


def order_matrix(rows: Op, like: Op) -> Op:
    """Returns P (..., m, m) in the dtype of another Op, with row i of x at position rows[i] of P @ x."""
    m, last = rows.shape[-1], len(rows.shape)
    shape = (*rows.shape, m)
    chosen = broadcast_to(reshape(rows, (*rows.shape[:-1], 1, m)), shape)
    return cast(equal(positions(shape, last - 1), chosen), like.dtype)
