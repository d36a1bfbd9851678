"""Linear algebra that PyTorch has in torch, not in torch.linalg."""

from __future__ import annotations

from typing import Any, NamedTuple

from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import flip
from picograd.ir.op import filled
from picograd.tensor import host_calls
from picograd.tensor.arguments import at_least, tensor_of
from picograd.tensor.linear_algebra import order_matrix, rows_of
from picograd.tensor.tensor import Tensor
from picograd_math.linalg.products import multi_dot, powers

__all__ = ["chain_matmul", "lu_unpack", "vander"]


def chain_matmul(*matrices: Any) -> Tensor:
    """Returns the product of matrices, in the order with the fewest multiplications.

    Args:
      matrices:  one or several

    Raises:
      ArgumentError: there are none.
      ShapeError:    one is not a matrix, or neighbours do not match.

    >>> chain_matmul(Tensor.ones(1, 2), Tensor.ones(2, 3), Tensor.ones(3, 1)).item()
    6.0
    """
    if not matrices:
        raise ArgumentError("chain_matmul: needs at least one matrix.")
    found = [tensor_of("chain_matmul", "an operand", value) for value in matrices]
    for x in found:
        if x.ndim != 2:
            raise ShapeError(f"chain_matmul: an operand of shape {x.shape} is not a matrix.")
    return multi_dot(found) if len(found) > 1 else Tensor.from_op(found[0].read(), found[0].cell.device)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """Returns the powers N - 1 to 0 of each element of a vector, as rows.

    Args:
      x:           a vector
      N:           number of columns; by default the number of rows
      increasing:  powers 0 to N - 1

    Raises:
      ShapeError:    x is not a vector.
      ArgumentError: N is negative.

    >>> vander(Tensor([2, 3]), 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    found = tensor_of("vander", "x", x)
    op = found.read()
    if len(op.shape) != 1:
        raise ShapeError(f"vander: needs a vector, got shape {op.shape}.")
    columns = powers(op, op.shape[0] if N is None else at_least("vander", "N", N, 0))
    return Tensor.from_op(columns if increasing else flip(columns, (1,)), found.cell.device)


class Unpacked(NamedTuple):
    """Factors P, L, U of a matrix P L U; those that were not requested are empty."""

    P: Tensor
    L: Tensor
    U: Tensor


def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Unpacked:
    """Returns P (..., m, m), L (..., m, k) and U (..., k, n), from the result of `lu`; k = min(m, n).

    Args:
      LU_data:        (..., m, n)
      LU_pivots:      (..., k)
      unpack_data:    False: L and U are empty
      unpack_pivots:  False: P is empty

    Raises:
      ShapeError: the shapes do not match.

    >>> lu_unpack(*Tensor([[1.0, 2.0], [2.0, 2.0]]).lu()).U.tolist()
    [[2.0, 2.0], [0.0, 1.0]]
    """
    data, pivots = tensor_of("lu_unpack", "LU_data", LU_data), tensor_of("lu_unpack", "LU_pivots", LU_pivots)
    joined, exchanged = data.read(), pivots.read()
    m, n = host_calls.sides(host_calls.matrix("lu_unpack", joined))
    if exchanged.shape != (*joined.shape[:-2], min(m, n)):
        raise ShapeError(f"lu_unpack: LU_data {joined.shape} and LU_pivots {exchanged.shape} do not fit.")
    empty = filled(0, joined.dtype, (0,))
    lower, upper = host_calls.lu_parts(joined) if unpack_data else (empty, empty)
    order = order_matrix(rows_of("lu_unpack", exchanged, m), joined) if unpack_pivots else empty
    device = data.other_device("lu_unpack", pivots)
    return Unpacked(*(Tensor.from_op(op, device) for op in (order, lower, upper)))
