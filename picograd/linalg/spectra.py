"""Eigenvalues and singular values, with their vectors.

In:    stacks of matrices
Out:   `eigh`, `eig`, `svd` and their relatives
Next:  picograd/linalg/norms.py
"""

from __future__ import annotations

from typing import Any, NamedTuple

from picograd.errors import ArgumentError, UnsupportedOp
from picograd.ir.build import swap_last
from picograd.linalg.solving import given, taken
from picograd.tensor.products import host_calls
from picograd.tensor.tensor import Tensor

__all__ = ["eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals"]


class Eigen(NamedTuple):
    """Eigenvalues, rising, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Singular(NamedTuple):
    """U diag(S) Vh is the matrix."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# ---- eigenvalues ----
def _is_upper(name: str, UPLO: str) -> bool:
    if UPLO not in ("L", "U", "l", "u"):
        raise ArgumentError(f'{name}: UPLO must be "L" or "U", got {UPLO!r}.')
    return UPLO in "Uu"


def eigh(A: Any, UPLO: str = "L") -> Eigen:
    """Returns eigenvalues (..., n), rising, and eigenvectors (..., n, n), as columns, of symmetric matrices.

    Args:
      A:     (..., n, n)
      UPLO:  "L": the lower triangle is read, "U": the upper one

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: UPLO is neither.

    Gradient: of different eigenvalues; a sign of an eigenvector is free, and what depends on it has no meaning.

    >>> eigh(Tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    name, (a,) = taken("eigh", A)
    return Eigen(*(given(op, name, a) for op in host_calls.eigh(name, a.read(), _is_upper(name, UPLO))))


def eigvalsh(A: Any, UPLO: str = "L") -> Tensor:
    """Returns the eigenvalues (..., n), rising, of symmetric matrices; equal ones have gradients, too.

    Args:
      A:     (..., n, n)
      UPLO:  "L": the lower triangle is read, "U": the upper one

    Raises:
      ShapeError:    a matrix is not square.
      ArgumentError: UPLO is neither.

    >>> eigvalsh(Tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    name, (a,) = taken("eigvalsh", A)
    return given(host_calls.eigenvalues(name, a.read(), _is_upper(name, UPLO)), name, a)


def eig(A: Any) -> Any:
    """Raises: eigenvalues of a real matrix may be complex, and picograd has no complex numbers.

    Args:
      A:  (..., n, n)

    Raises:
      UnsupportedOp: always.

    >>> eig(Tensor.eye(2))
    Traceback (most recent call last):
    picograd.errors.UnsupportedOp: linalg.eig: they may be complex, and there are no complex tensors.
    ...
    """
    raise _complex("eig", "eigh")


def eigvals(A: Any) -> Any:
    """Raises: eigenvalues of a real matrix may be complex, and picograd has no complex numbers.

    Args:
      A:  (..., n, n)

    Raises:
      UnsupportedOp: always.

    >>> eigvals(Tensor.eye(2))
    Traceback (most recent call last):
    picograd.errors.UnsupportedOp: linalg.eigvals: they may be complex, and there are no complex tensors.
    ...
    """
    raise _complex("eigvals", "eigvalsh")


def _complex(function: str, symmetric: str) -> UnsupportedOp:
    """Returns the error of a function with complex results, of which only the one for symmetric matrices is here."""
    return UnsupportedOp(
        f"linalg.{function}: they may be complex, and there are no complex tensors.",
        f"pg.linalg.{symmetric} is for symmetric matrices.",
    )


# ---- singular values ----
def svd(A: Any, full_matrices: bool = True, *, driver: str | None = None) -> Singular:
    """Returns U, S, falling, and Vh with U @ diag(S) @ Vh = A.

    Args:
      A:              (..., m, n)
      full_matrices:  U (..., m, m) and Vh (..., n, n); else U (..., m, k) and Vh (..., k, n), k = min(m, n)
      driver:         None: there is one way, LAPACK's gesdd

    Raises:
      ArgumentError: a driver is named.

    Gradient: of different singular values that are not 0; through the first k columns of U and V alone. A sign of a pair
    of vectors is free, and what depends on it has no meaning.

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
    """Returns the singular values (..., min(m, n)), falling; equal ones have gradients, too.

    Args:
      A:       (..., m, n)
      driver:  None: there is one way, LAPACK's gesdd

    Raises:
      ArgumentError: a driver is named.

    >>> svdvals(Tensor([[3.0, 0.0], [0.0, -2.0]])).tolist()
    [3.0, 2.0]
    """
    name, (a,) = taken("svdvals", A)
    _no_driver(name, driver)
    return given(host_calls.singular_values(name, a.read()), name, a)
