"""What torch has of linear algebra beside torch.linalg, by its names: Tensor's methods, and functions of several tensors.

In:    tensors
Out:   the names in `__all__`, which `picograd` re-exports
Next:  picograd/tensor/tensor.py
"""

from __future__ import annotations

from typing import Any

from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import flip
from picograd.linalg.products import multi_dot, powers
from picograd.tensor.einsum import einsum, tensordot
from picograd.tensor.measures import cdist
from picograd.tensor.products import tensor_of
from picograd.tensor.tensor import Tensor

addbmm, addmm, addmv, addr, baddbmm = Tensor.addbmm, Tensor.addmm, Tensor.addmv, Tensor.addr, Tensor.baddbmm
ger, inner, kron, trace, vdot = Tensor.ger, Tensor.inner, Tensor.kron, Tensor.trace, Tensor.vdot
corrcoef, cov, cross = Tensor.corrcoef, Tensor.cov, Tensor.cross
det, inverse, logdet, matrix_exp = Tensor.det, Tensor.inverse, Tensor.logdet, Tensor.matrix_exp
matrix_power, pinverse, slogdet = Tensor.matrix_power, Tensor.pinverse, Tensor.slogdet
cholesky, cholesky_inverse, cholesky_solve = Tensor.cholesky, Tensor.cholesky_inverse, Tensor.cholesky_solve
qr, svd = Tensor.qr, Tensor.svd

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "cdist", "chain_matmul", "cholesky", "cholesky_inverse",
    "cholesky_solve", "corrcoef", "cov", "cross", "det", "einsum", "ger", "inner", "inverse", "kron", "logdet",
    "matrix_exp", "matrix_power", "pinverse", "qr", "slogdet", "svd", "tensordot", "trace", "vander", "vdot",
]  # fmt: skip


def chain_matmul(*matrices: Any) -> Tensor:
    """Returns the product of matrices, in the order that takes the fewest multiplications.

    Args:
      matrices:  one or more

    Raises:
      ArgumentError: there are none.
      ShapeError:    one is no matrix, or two neighbours do not fit.

    >>> chain_matmul(Tensor.ones(1, 2), Tensor.ones(2, 3), Tensor.ones(3, 1)).item()
    6.0
    """
    if not matrices:
        raise ArgumentError("chain_matmul: needs at least one matrix.")
    found = [tensor_of("chain_matmul", "an operand", value) for value in matrices]
    for x in found:
        if x.ndim != 2:
            raise ShapeError(f"chain_matmul: an operand of shape {x.shape} is no matrix.")
    return multi_dot(found) if len(found) > 1 else Tensor.from_op(found[0].read(), found[0].cell.device)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """Returns the powers N - 1 to 0 of each element of a vector, as rows.

    Args:
      x:           a vector
      N:           how many columns; as many as rows by default
      increasing:  the powers rise from 0

    Raises:
      ShapeError:    x is no vector.
      ArgumentError: N is negative.

    >>> vander(Tensor([2, 3]), 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    found = tensor_of("vander", "x", x)
    op = found.read()
    if len(op.shape) != 1:
        raise ShapeError(f"vander: needs a vector, got shape {op.shape}.")
    if N is not None and (not isinstance(N, int) or N < 0):
        raise ArgumentError(f"vander: N must be 0 or more, got {N!r}.")
    columns = powers(op, op.shape[0] if N is None else N)
    return Tensor.from_op(columns if increasing else flip(columns, (1,)), found.cell.device)
