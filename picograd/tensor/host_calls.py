"""Linear algebra on Ops: checks of operands, and calls of host functions, whose results become Ops."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DTypeError, ShapeError
from picograd.ir.build import (
    cast,
    diagonal,
    differs,
    equal,
    factors_of,
    gather,
    is_on_diagonal,
    pad_axis,
    positions,
    product,
    reduce,
    reshape,
    shrink_axis,
    swap_last,
    triangle,
    where,
    with_diagonal,
    zeros_like,
)
from picograd.ir.checks import Site
from picograd.ir.host import Options, host_call
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.ir.shape import numel
from picograd.tensor.build import broadcast_shapes, broadcast_to, detached


# ---- operands ----
def floats(function: str, op: Op) -> Op:
    """Returns an operand that is a float of 32 or 64 bits.

    Raises:
      DTypeError: it has a different dtype.
    """
    if op.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{function}: needs float32 or float64, got {op.dtype} of shape {op.shape}.", "x.float()")
    return op


def matrix(function: str, op: Op, square: bool = False) -> Op:
    """Returns an operand that is a stack of float matrices with known rows and columns.

    Raises:
      DTypeError: it is not a float of 32 or 64 bits.
      ShapeError: it has fewer than two axes, a symbolic number of rows or columns, or must be square and is not.
    """
    floats(function, op)
    if len(op.shape) < 2:
        raise ShapeError(f"{function}: needs a matrix, got shape {op.shape}.")
    rows, columns = op.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise ShapeError(f"{function}: rows and columns must be numbers, got a matrix of shape {op.shape}.")
    if square and rows != columns:
        raise ShapeError(f"{function}: the matrix must be square, got shape {op.shape}.")
    return op


def sides(op: Op) -> tuple[int, int]:
    """Returns rows and columns of an Op that `matrix` has checked."""
    rows, columns = op.shape[-2:]
    assert isinstance(rows, int) and isinstance(columns, int)
    return rows, columns


def in_one_batch(function: str, *ops: Op) -> list[Op]:
    """Broadcasts stacks of matrices to common batch axes."""
    batch = broadcast_shapes(function, *(op.shape[:-2] for op in ops))
    return [broadcast_to(op, (*batch, *op.shape[-2:])) for op in ops]


def call(
    name: str, *src: Op, options: Options = (), site: Site | None = None, dtype: DType | None = None
) -> Op:  # fmt: skip
    """Returns an Op that calls a function of the host; it records the user's line."""
    op = host_call(name, dtype or src[0].dtype, src, options, site)
    record(op)
    return op


def refusal(function: str, batch: Shape, what: str, hint: str) -> Site:
    """Returns the text of an error about one matrix of a stack."""
    which = f"matrix {{}} of a stack of {numel(batch)}" if batch else "the matrix"
    return Site(f"{function}: {which} {what}.", hint)


def singular(function: str, op: Op) -> Site:
    """Returns the error text for a matrix without an inverse."""
    return refusal(function, op.shape[:-2], "is singular", "pg.linalg.pinv takes any matrix.")


# ---- systems ----
def inverse(function: str, a: Op) -> Op:
    """Returns the inverse."""
    return call("inv", matrix(function, a, square=True), site=singular(function, a))


def _system(function: str, a: Op, b: Op) -> list[Op]:
    """Returns both sides of a x = b in one batch: (..., n, n) and (..., n, k)."""
    matrix(function, a, square=True)
    matrix(function, b)
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"{function}: A {a.shape} has {a.shape[-1]} columns, B {b.shape} has {b.shape[-2]} rows.")
    return in_one_batch(function, a, b)


def solution(function: str, a: Op, b: Op) -> Op:
    """Returns x with a x = b."""
    a, b = _system(function, a, b)
    return call("solve", a, b, site=singular(function, a))


def triangular(function: str, a: Op, b: Op, upper: bool, unit: bool = False) -> Op:
    """Returns x with a x = b; only one triangle of a is read."""
    return call("solve_triangular", *_system(function, a, b), options=(upper, unit))


# ---- factors ----
def cholesky(function: str, a: Op, upper: bool = False) -> Op:
    """Returns L with L L.T = a, or its transpose."""
    matrix(function, a, square=True)
    site = refusal(function, a.shape[:-2], "is not positive definite", "add a multiple of the identity to it.")
    factor = call("cholesky", swap_last(a) if upper else a, site=site)
    return swap_last(factor) if upper else factor


def eigh(function: str, a: Op, upper: bool = False) -> tuple[Op, Op]:
    """Returns eigenvalues in rising order, and eigenvectors as columns."""
    matrix(function, a, square=True)
    return _values_and_vectors(call("eigh", swap_last(a) if upper else a, site=not_converged(function, a)))


def eig(function: str, a: Op) -> tuple[Op, Op]:
    """Returns eigenvalues in rising order, and eigenvectors as columns, of a matrix with real eigenvalues."""
    matrix(function, a, square=True)
    what = "has complex eigenvalues, or NaN, and there are no complex tensors"
    site = refusal(function, a.shape[:-2], what, "pg.linalg.eigh is for symmetric matrices.")
    return _values_and_vectors(call("eig", a, site=site))


def _values_and_vectors(joined: Op) -> tuple[Op, Op]:
    """Splits a matrix into its first row, as a vector, and the others."""
    n, batch = sides(joined)[1], joined.shape[:-2]
    first = shrink_axis(joined, -2, 0, 1)
    return reshape(first, (*batch, n)), shrink_axis(joined, -2, 1, n + 1)


def not_converged(function: str, a: Op) -> Site:
    """Returns the error text for a matrix whose iteration does not converge, usually because of NaN."""
    return refusal(function, a.shape[:-2], "has no factors: the iteration did not converge", "look for NaN and inf in it.")


def eigenvalues(function: str, a: Op, upper: bool) -> Op:
    """Returns the eigenvalues of a symmetric matrix in rising order."""
    matrix(function, a, square=True)
    return call("eigvalsh", swap_last(a) if upper else a, site=not_converged(function, a))


def svd(function: str, a: Op) -> tuple[Op, Op, Op]:
    """Returns u (..., m, k), singular values (..., k) in falling order, and vh (..., k, n), k = min(m, n)."""
    rows, columns = sides(matrix(function, a))
    return factors_of(call("svd", a, site=not_converged(function, a)), rows, columns)


def singular_values(function: str, a: Op) -> Op:
    """Returns the singular values in falling order."""
    return call("svdvals", matrix(function, a), site=not_converged(function, a))


def completed(q: Op) -> Op:
    """Completes orthonormal columns to a basis; gradients flow to the given ones only."""
    rows, columns = sides(q)
    return q if rows <= columns else beside(q, call("complement", detached(q)))


def beside(a: Op, b: Op, axis: int = -1) -> Op:
    """Concatenates two matrices along columns (-1) or rows (-2)."""
    left, right = sides(a)[axis], sides(b)[axis]
    return pad_axis(a, axis, 0, right) + pad_axis(b, axis, left, 0) if left and right else a if left else b


def qr(function: str, a: Op) -> tuple[Op, Op]:
    """Returns q (..., m, k) and r (..., k, n), with k = min(m, n)."""
    m, n = sides(matrix(function, a))
    k, batch = min(m, n), a.shape[:-2]
    joined = call("qr", shrink_axis(a, -1, 0, k))
    q = reshape(shrink_axis(joined, -1, 0, m * k), (*batch, m, k))
    r = reshape(shrink_axis(joined, -1, m * k, m * k + k * k), (*batch, k, k))
    if n > k:  # the other columns in terms of q
        r = beside(r, product(swap_last(q), shrink_axis(a, -1, k, n)))
    return q, r


def lu(function: str, a: Op, pivot: bool = True) -> tuple[Op, Op]:
    """Returns L below the diagonal and U on and above it, in one matrix of pivoted rows, and the rows' order (..., m)."""
    m, n = sides(matrix(function, a))
    k, rank = min(m, n), len(a.shape)
    if pivot:
        rows = call("rows_of_pivots", call("lu_pivots", detached(a), dtype=dtypes.int64), options=(m,))
        a = gather(a, rows, rank - 2, rank - 2)
    else:
        rows = positions(a.shape[:-1], rank - 2)
    corner = call("lu", shrink_axis(shrink_axis(a, -2, 0, k), -1, 0, k))
    joined = corner
    if n > k:
        joined = beside(corner, call("solve_triangular", corner, shrink_axis(a, -1, k, n), options=(False, True)))
    if m > k:
        # NOTE: a column without a pivot is 0 from the diagonal on, and so are its factors.
        pivots = diagonal(corner)
        some = where(equal(pivots, 0), pivots.filled(1), pivots)
        upper = swap_last(with_diagonal(triangle(corner, False), some))
        below = call("solve_triangular", upper, swap_last(shrink_axis(a, -2, k, m)), options=(False, False))
        joined = beside(joined, swap_last(below), -2)
    return joined, rows


def lu_parts(joined: Op) -> tuple[Op, Op]:
    """Returns L (..., m, k), with ones on its diagonal, and U (..., k, n)."""
    m, n = sides(joined)
    k = min(m, n)
    lower = triangle(shrink_axis(joined, -1, 0, k), True, 0.0)
    lower = where(is_on_diagonal(lower.shape), lower.filled(1), lower)
    return lower, triangle(shrink_axis(joined, -2, 0, k), False)


def first_zero_pivot(function: str, a: Op) -> Op:
    """Returns `zero_pivot` of the LU factors of matrices: 0 for invertible ones."""
    return zero_pivot(lu(function, detached(a))[0])


def zero_pivot(joined: Op) -> Op:
    """Returns the number, from 1, of LU's first pivot that is 0; 0 if all are nonzero; int32."""
    pivots = diagonal(joined)
    last = len(pivots.shape) - 1
    count = int(pivots.shape[last])
    number = where(equal(pivots, 0), positions(pivots.shape, last) + 1, count + 1)
    least = reduce(number, OpCode.MIN, (last,)) if count else filled(0, dtypes.int64, pivots.shape[:-1])
    return cast(where(equal(least, count + 1), zeros_like(least), least), dtypes.int32)


def where_possible(a: Op, info: Op) -> Op:
    """Returns matrices with info 0 unchanged, and the identity for the others."""
    impossible = differs(info, 0)
    whole = broadcast_to(reshape(impossible, (*impossible.shape, 1, 1)), a.shape)
    one = with_diagonal(zeros_like(a), filled(1, a.dtype, a.shape[:-1]))
    return where(whole, one, a)


def pseudoinverse(function: str, a: Op, absolute: Op, relative: Op) -> Op:
    """Returns the pseudoinverse; singular values up to `absolute`, or `relative` times the largest, count as 0."""
    matrix(function, a)
    return call("pinv", a, absolute, relative, site=not_converged(function, a))
