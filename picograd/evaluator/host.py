"""The meaning of the functions of ir/host.py: NumPy's, or a few lines of it, on stacks of matrices and of signals.

In:    the arrays of a CUSTOM's operands, its options
Out:   the array of its result, factors one after the other; `Failed` where the values have none
Next:  picograd/evaluator/graph.py

Matrices are computed in their own precision, as LAPACK does. A function of several matrices fails by the number of the
first one in its batch that has no result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.evaluator.bessel import BESSEL
from picograd.evaluator.elementwise import Array
from picograd.evaluator.iterated import ITERATED


class Failed(Exception):
    """A matrix has no result.

    number:  of the matrix in its batch
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def _each(function: Callable[..., Any], *stacks: Array) -> Any:
    """Returns function(*stacks); where LAPACK refuses one of the matrices, Failed with its number."""
    try:
        return function(*stacks)
    except np.linalg.LinAlgError:
        flat = [_flat(stack) for stack in stacks]
        for number, one in enumerate(zip(*flat)):
            try:
                function(*one)
            except np.linalg.LinAlgError:
                raise Failed(number) from None
        raise


def _joined(*factors: Array) -> Array:
    """Returns factors (..., a, b) or (..., a) flat, one after the other; each has its batch axes in front."""
    batch = factors[1].shape[:-1]
    return np.concatenate([factor.reshape(*batch, -1) for factor in factors], -1)


def _flat(stack: Array) -> Array:
    """Returns a stack of matrices with one batch axis."""
    return stack.reshape(math.prod(stack.shape[:-2]), *stack.shape[-2:])


def _mirrored(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


# ---- systems ----
def _solve(a: Array, b: Array) -> Array:
    solution: Array = _each(np.linalg.solve, a, b)
    return solution


def _solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Substitutes row by row, in the order in which rows depend on each other; what is beside the triangle is not read."""
    x, n = np.array(b), a.shape[-1]
    for i in reversed(range(n)) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        x[..., i, :] -= (a[..., i, None, known] @ x[..., known, :])[..., 0, :]
        if not unit:
            x[..., i, :] /= a[..., i, i, None]
    return x


def _pinv(a: Array, absolute: Array, relative: Array) -> Array:
    """Inverts the singular values greater than `absolute`, and than `relative` times the first; the others become 0."""
    u, s, vh = _each(_thin_svd, a)
    kept = s > np.maximum(absolute[..., None], s[..., :1] * relative[..., None])
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    result: Array = _mirrored(vh) @ (inverse[..., None] * _mirrored(u))
    return result


# ---- factors ----
def _eigh(a: Array) -> Array:
    values, vectors = _each(np.linalg.eigh, a)
    return np.concatenate([values[..., None, :], vectors], -2)


def _thin_svd(a: Array) -> Any:
    return np.linalg.svd(a, full_matrices=False)


def _svd(a: Array) -> Array:
    return _joined(*_each(_thin_svd, a))


def _svdvals(a: Array) -> Any:
    return _each(lambda stack: np.linalg.svd(stack, compute_uv=False), a)


def _qr(a: Array) -> Array:
    q, r = np.linalg.qr(a)
    batch = a.shape[:-2]
    return np.concatenate([q.reshape(*batch, q.shape[-2] * q.shape[-1]), r.reshape(*batch, r.shape[-2] * r.shape[-1])], -1)


def _complement(q: Array) -> Array:
    """The columns that a complete QR of orthonormal columns adds to them."""
    complete, _ = np.linalg.qr(q, "complete")
    added: Array = complete[..., q.shape[-1] :]
    return added


def _cholesky(a: Array) -> Any:
    return _each(np.linalg.cholesky, a)


def _slogdet(a: Array) -> Array:
    sign, logarithm = np.linalg.slogdet(a)
    return np.stack([sign, logarithm], -1)


def _cofactor(a: Array) -> Array:
    """det(u) det(v) u (products of the singular values but one) vh: no quotient, so a may be singular."""
    u, s, vh = _each(_thin_svd, a)
    n = a.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1).astype(a.dtype)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    result: Array = sign[..., None, None] * (u * others[..., None, :]) @ vh
    return result


def _cholesky_order(a: Array) -> Array:
    """The order of the first leading minor that is not positive definite, 0 where all are."""
    flat = _flat(a)
    orders = [next((k for k in range(1, a.shape[-1] + 1) if not _is_positive(one[:k, :k])), 0) for one in flat]
    return np.array(orders, np.int64).reshape(a.shape[:-2])


def _is_positive(a: Array) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


def _lu_pivots(a: Array) -> Array:
    """For each column the row that is exchanged with the next one: the greatest of what is left, the first of equals."""
    m, n = a.shape[-2:]
    left = _flat(np.array(a))
    every, pivots = np.arange(len(left)), np.zeros((len(left), min(m, n)), np.int64)
    for i in range(min(m, n)):
        chosen = i + np.abs(left[:, i:, i]).argmax(-1)
        pivots[:, i] = chosen + 1
        left[every, chosen], left[:, i] = left[:, i].copy(), left[every, chosen]
        _eliminate(left, i)
    return pivots.reshape(*a.shape[:-2], min(m, n))


def _rows_of_pivots(pivots: Array, m: int) -> Array:
    """The order of rows that the exchanges, one after the other, end in."""
    flat = _flat(pivots[..., None])[..., 0]
    every, rows = np.arange(len(flat)), np.tile(np.arange(m), (len(flat), 1))
    for i, chosen in enumerate(flat.T - 1):
        rows[every, chosen], rows[:, i] = rows[:, i].copy(), rows[every, chosen]
    return rows.reshape(*pivots.shape[:-1], m)


def _lu_rows(a: Array) -> Array:
    return _rows_of_pivots(_lu_pivots(a), a.shape[-2])


def _lu(a: Array) -> Array:
    """L below the diagonal, U on it and above, of rows that stand in a good order."""
    left = np.array(a)
    for i in range(a.shape[-1]):
        _eliminate(left, i)
    return left


def _eliminate(left: Array, i: int) -> None:
    """Makes one step of LU in place; a column of zeros gives zeros."""
    pivot = left[..., i, None, i]
    left[..., i + 1 :, i] /= np.where(pivot == 0, 1, pivot)
    left[..., i + 1 :, i + 1 :] -= left[..., i + 1 :, i, None] * left[..., i, None, i + 1 :]


PADE_13 = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
LEAST_NORM = 5.371920351148152  # below which the approximant is exact to float64


def _matrix_exp(a: Array) -> Array:
    """Scaling and squaring, Pade approximant of degree 13: Higham 2005, SIAM J. Matrix Anal. 26(4), algorithm 2.3."""
    norm = np.abs(a).sum(-2).max(-1, initial=0)
    squarings = np.ceil(np.log2(np.maximum(norm / LEAST_NORM, 1))).astype(int)
    squarings = np.where(np.isfinite(norm), squarings, 0)
    x = a.astype(np.float64) / 2.0 ** squarings[..., None, None]
    one = np.eye(a.shape[-1])
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    b = PADE_13
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    result: Array = np.linalg.solve(even - odd, even + odd)
    for i in range(int(squarings.max(initial=0))):
        result = np.where((i < squarings)[..., None, None], result @ result, result)
    return result.astype(a.dtype)


# ---- transforms ----
def _complex(x: Array) -> Array:
    """Returns pairs (..., 2) as complex numbers."""
    pairs = np.ascontiguousarray(x)
    return pairs.view(np.result_type(x.dtype, np.complex64))[..., 0]


def _pairs(z: Array) -> Array:
    return np.stack([z.real, z.imag], -1)


def _fft(x: Array, axes: int, sign: int) -> Array:
    """Transforms the last `axes` axes before the pairs; neither direction is scaled."""
    z, over = _complex(x), tuple(range(-axes, 0))
    return _pairs(np.fft.fftn(z, axes=over) if sign < 0 else np.fft.ifftn(z, axes=over, norm="forward"))


def _rfft(x: Array, length: int) -> Array:
    return _pairs(np.fft.rfft(x, length))


def _irfft(x: Array, length: int) -> Array:
    return np.fft.irfft(_complex(x), length, norm="forward")


HOST_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv": lambda a: _each(np.linalg.inv, a),
    "solve": _solve,
    "solve_triangular": _solve_triangular,
    "cholesky": _cholesky,
    "det": np.linalg.det,
    "cofactor": _cofactor,
    "slogdet": _slogdet,
    "cholesky_order": _cholesky_order,
    "lu_rows": _lu_rows,
    "lu_pivots": _lu_pivots,
    "rows_of_pivots": _rows_of_pivots,
    "lu": _lu,
    "qr": _qr,
    "complement": _complement,
    "eigh": _eigh,
    "eigvalsh": lambda a: _each(np.linalg.eigvalsh, a),
    "svd": _svd,
    "svdvals": _svdvals,
    "pinv": _pinv,
    "matrix_exp": _matrix_exp,
    "fft": _fft,
    "rfft": _rfft,
    "irfft": _irfft,
    **ITERATED,
    **BESSEL,
}
