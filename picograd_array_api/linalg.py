"""Products of matrices and vectors, and the extension linalg: factors, solutions, norms.

Matrices are the last two axes, batched over the others. Factors and solutions take floats, products integers, too; several
results are a named tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from picograd import linalg as torch_linalg
from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.tensor.build import axis_of, broadcast_shapes
from picograd.tensor.products import tensordot as torch_tensordot
from picograd.tensor.tensor import Tensor
from picograd_array_api.array import ANY, FLOAT, NUMERIC, Array, Axes, array, axes_given, checked_choice, pair
from picograd_array_api.reductions import accumulated


# ---- products ----
def matmul(x1: Tensor, x2: Tensor, /) -> Array:
    """Returns the product of matrices over the last two axes, the axes before them broadcast.

    Raises:
      ShapeError: the inner dimensions differ.

    >>> matmul(Array([[1, 2], [3, 4]]), Array([1, 1]))
    Array([3, 7])
    """
    a, b = pair("matmul", array("matmul", x1), array("matmul", x2), NUMERIC)
    return a.matmul(b)


def matrix_transpose(x: Tensor, /) -> Array:
    """Returns a view with the last two axes exchanged.

    Raises:
      ShapeError: there are not two.

    >>> matrix_transpose(Array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]])
    """
    return array("matrix_transpose", x).mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Returns the sums of products over pairs of axes.

    Args:
      axes:  how many of the last axes of x1 meet the first ones of x2; or the axes of x1 and those of x2

    Raises:
      ShapeError:    axes that meet are not of one length.
      ArgumentError: an array has no such axes.

    >>> tensordot(Array([[1, 2], [3, 4]]), Array([1, 1]), axes=1)
    Array([3, 7])
    """
    a, b = pair("tensordot", array("tensordot", x1), array("tensordot", x2), NUMERIC)
    dims = axes if isinstance(axes, int) else (tuple(axes[0]), tuple(axes[1]))
    return array("tensordot", torch_tensordot(a, b, dims))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """Returns the dot products of vectors along one axis, the other axes broadcast.

    Raises:
      ShapeError:    the axes are not of one length.
      IndexingError: an array has no such axis.

    >>> vecdot(Array([[1, 2], [3, 4]]), Array([1, 1]))
    Array([3, 7])
    """
    a, b = pair("vecdot", array("vecdot", x1), array("vecdot", x2), NUMERIC)
    lengths = {x.shape[axis_of("vecdot", x.op.shape, axis)] if x.ndim else None for x in (a, b)}
    if None in lengths or len(lengths) > 1:
        raise ShapeError(f"vecdot: axis {axis} of shapes {a.shape} and {b.shape} must have one length.")
    first, second = a.movedim(axis, -1).unsqueeze(-2), b.movedim(axis, -1).unsqueeze(-1)
    return first.matmul(second).squeeze((-2, -1))


# ---- what several results are called ----
class Eigen(NamedTuple):
    """The result of eigh.

    eigenvalues:   (..., n), in rising order
    eigenvectors:  (..., n, n), its columns are the eigenvectors
    """

    eigenvalues: Array
    eigenvectors: Array


class QR(NamedTuple):
    """The result of qr.

    Q:  (..., m, k), whose columns are orthonormal
    R:  (..., k, n), an upper triangle
    """

    Q: Array
    R: Array


class LogDet(NamedTuple):
    """The result of slogdet.

    sign:       -1, 0 or 1
    logabsdet:  log |det|; -inf of a singular matrix
    """

    sign: Array
    logabsdet: Array


class SVD(NamedTuple):
    """The result of svd.

    U:   (..., m, k), whose columns are orthonormal
    S:   (..., k), the singular values in falling order
    Vh:  (..., k, n), whose rows are orthonormal
    """

    U: Array
    S: Array
    Vh: Array


# ---- factors ----
def cholesky(x: Tensor, /, *, upper: bool = False) -> Array:
    """Returns the triangle L with L @ L.T = x, or U with U.T @ U = x if `upper`.

    Raises:
      ShapeError:  the matrices are not square.
      LinAlgError: when the result is computed: x is not positive definite.

    >>> cholesky(Array([[4.0, 0.0], [0.0, 9.0]]))
    Array([[2., 0.],
           [0., 3.]])
    """
    return array("cholesky", torch_linalg.cholesky(array("cholesky", x, FLOAT), upper=upper))


def eigh(x: Tensor, /) -> Eigen:
    """Returns the eigenvalues and eigenvectors of symmetric matrices.

    Raises:
      ShapeError: the matrices are not square.

    >>> eigh(Array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([1., 2.])
    """
    values, vectors = torch_linalg.eigh(array("eigh", x, FLOAT))
    return Eigen(array("eigh", values), array("eigh", vectors))


def eigvalsh(x: Tensor, /) -> Array:
    """Returns the eigenvalues of symmetric matrices, in rising order.

    Raises:
      ShapeError: the matrices are not square.

    >>> eigvalsh(Array([[2.0, 0.0], [0.0, 1.0]]))
    Array([1., 2.])
    """
    return array("eigvalsh", torch_linalg.eigvalsh(array("eigvalsh", x, FLOAT)))


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """Returns Q and R with Q @ R = x.

    Args:
      mode:  "reduced": k = min(m, n); "complete": k = m

    Raises:
      ArgumentError: an unknown mode.

    >>> qr(Array([[2.0, 1.0], [0.0, 1.0]])).R.shape
    (2, 2)
    """
    checked_choice("qr", "mode", mode, ("reduced", "complete"))
    q, r = torch_linalg.qr(array("qr", x, FLOAT), mode)
    return QR(array("qr", q), array("qr", r))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """Returns U, S and Vh with U @ diag(S) @ Vh = x.

    Args:
      full_matrices:  U (..., m, m) and Vh (..., n, n); else k = min(m, n)

    >>> svd(Array([[3.0, 0.0], [0.0, 4.0]])).S
    Array([4., 3.])
    """
    u, s, vh = torch_linalg.svd(array("svd", x, FLOAT), full_matrices)
    return SVD(array("svd", u), array("svd", s), array("svd", vh))


def svdvals(x: Tensor, /) -> Array:
    """Returns the singular values in falling order.

    >>> svdvals(Array([[3.0, 0.0], [0.0, 4.0]]))
    Array([4., 3.])
    """
    return array("svdvals", torch_linalg.svdvals(array("svdvals", x, FLOAT)))


# ---- solutions ----
def det(x: Tensor, /) -> Array:
    """Returns the determinants.

    Raises:
      ShapeError: the matrices are not square.

    >>> det(Array([[3.0, 0.0], [0.0, 4.0]]))
    Array(12.)
    """
    return array("det", torch_linalg.det(array("det", x, FLOAT)))


def inv(x: Tensor, /) -> Array:
    """Returns the inverses.

    Raises:
      ShapeError:  the matrices are not square.
      LinAlgError: when the result is computed: a matrix is singular.

    >>> inv(Array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return array("inv", torch_linalg.inv(array("inv", x, FLOAT)))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Array:
    """Returns the pseudoinverses.

    Args:
      rtol:  singular values up to this times the largest count as 0: a number, or one for each matrix; by default
             max(m, n) eps

    >>> pinv(Array([[2.0], [0.0]]))
    Array([[0.5, 0. ]])
    """
    return array("pinv", torch_linalg.pinv(array("pinv", x, FLOAT), rtol=rtol))


def slogdet(x: Tensor, /) -> LogDet:
    """Returns the signs and the logarithms of the determinants.

    Raises:
      ShapeError: the matrices are not square.

    >>> slogdet(Array([[1.0, 0.0], [0.0, -1.0]])).sign
    Array(-1.)
    """
    sign, logarithm = torch_linalg.slogdet(array("slogdet", x, FLOAT))
    return LogDet(array("slogdet", sign), array("slogdet", logarithm))


def solve(x1: Tensor, x2: Tensor, /) -> Array:
    """Returns the y with x1 @ y = x2.

    Args:
      x1:  (..., n, n)
      x2:  (n,), a vector; or (..., n, k)

    Raises:
      ShapeError:  the matrices are not square, or x2 does not fit.
      LinAlgError: when the result is computed: a matrix is singular.

    >>> solve(Array([[2.0, 0.0], [0.0, 4.0]]), Array([2.0, 2.0]))
    Array([1. , 0.5])
    """
    a, b = pair("solve", array("solve", x1, FLOAT), array("solve", x2, FLOAT), FLOAT)
    if b.ndim == 1:  # a vector even where torch.linalg would take it for a batch
        return array("solve", torch_linalg.solve(a, b.unsqueeze(-1))).squeeze(-1)
    if a.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"solve: x1 {a.shape} and x2 {b.shape} do not fit: x2 must have {a.shape[-1:]} rows.")
    batch = broadcast_shapes("solve", a.op.shape[:-2], b.op.shape[:-2])  # torch.linalg may take x2 for a batch of vectors
    wide = b.broadcast_to((*batch, *b.op.shape[-2:]))  # type: ignore[arg-type]
    return array("solve", torch_linalg.solve(a.broadcast_to((*batch, *a.op.shape[-2:])), wide))  # type: ignore[arg-type]


# ---- products and powers ----
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """Returns the cross products of vectors of 3 along one axis, the other axes broadcast.

    Raises:
      ShapeError: the axis does not have length 3.

    >>> cross(Array([1, 0, 0]), Array([0, 1, 0]))
    Array([0, 0, 1])
    """
    a, b = pair("cross", array("cross", x1), array("cross", x2), NUMERIC)
    rank = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * (rank - x.ndim) + tuple(x.op.shape)) for x in (a, b))
    return array("cross", torch_linalg.cross(a, b, dim=axis))


def diagonal(x: Tensor, /, *, offset: int = 0) -> Array:
    """Returns a diagonal of each matrix: the one `offset` above the main one.

    >>> diagonal(Array([[1, 2], [3, 4]]))
    Array([1, 4])
    """
    return array("diagonal", torch_linalg.diagonal(array("diagonal", x, ANY), offset=offset))


def matrix_power(x: Tensor, n: int, /) -> Array:
    """Returns x @ x @ ... n times; of the inverse for negative n.

    Raises:
      ShapeError:  the matrices are not square.
      LinAlgError: when the result is computed: n is negative and a matrix singular.

    >>> matrix_power(Array([[1.0, 1.0], [0.0, 1.0]]), 3)
    Array([[1., 3.],
           [0., 1.]])
    """
    return array("matrix_power", torch_linalg.matrix_power(array("matrix_power", x, FLOAT), n))


def outer(x1: Tensor, x2: Tensor, /) -> Array:
    """Returns the products of each element of one vector with each of the other.

    Raises:
      ShapeError: they are not vectors.

    >>> outer(Array([1, 2]), Array([3, 4]))
    Array([[3, 4],
           [6, 8]])
    """
    a, b = pair("outer", array("outer", x1), array("outer", x2), NUMERIC)
    return a.outer(b)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """Returns the sum of a diagonal of each matrix: the one `offset` above the main one.

    >>> trace(Array([[1, 2], [3, 4]]))
    Array(5)
    """
    source = array("trace", x, NUMERIC)
    return diagonal(source, offset=offset).sum(-1, dtype=accumulated(source.dtype, dtype))


# ---- norms and ranks ----
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: int | float | str | None = "fro") -> Array:
    """Returns a norm of each matrix.

    Args:
      ord:  "fro": the root of the sum of squares; "nuc": the sum of the singular values; 2, -2: the largest, the least of
            them; inf, -inf: the largest, the least sum of |a row|; 1, -1: of |a column|

    >>> matrix_norm(Array([[3.0, 0.0], [0.0, 4.0]]))
    Array(5.)
    """
    return array("matrix_norm", torch_linalg.matrix_norm(array("matrix_norm", x, FLOAT), ord or "fro", keepdim=keepdims))


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Array:
    """Returns how many singular values of each matrix are not 0.

    Args:
      rtol:  those up to this times the largest count as 0: a number, or one for each matrix; by default max(m, n) eps

    >>> matrix_rank(Array([[1.0, 1.0], [1.0, 1.0]]))
    Array(1)
    """
    return array("matrix_rank", torch_linalg.matrix_rank(array("matrix_rank", x, FLOAT), rtol=rtol))


def vector_norm(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: int | float = 2) -> Array:
    """Returns (sum |x| ** ord) ** (1 / ord) along `axis`, or of all elements.

    Args:
      ord:  inf and -inf are the largest and the least |x|, and 0 counts what is not 0

    >>> vector_norm(Array([3.0, 4.0]))
    Array(5.)
    """
    source = array("vector_norm", x, FLOAT)
    return array("vector_norm", torch_linalg.vector_norm(source, ord, axes_given(axis), keepdims))
