"""Systems of equations whose factors are known: LU and triangles, as torch.Tensor has them beside torch.linalg.

In:    tensors
Out:   `lu`, `lu_solve`, `triangular_solve`: methods of Tensor; `pivots_of`, `zero_pivot`, `lu_solution`, `order_matrix`
Next:  picograd/tensor/indexing/brackets.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from picograd import dtype as dtypes
from picograd.errors import DTypeError, ShapeError
from picograd.ir.build import cast, compare, diagonal, gather, positions, reduce, swap_last, where, zeros_like
from picograd.ir.checks import Site, checked
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import broadcast_to, detached
from picograd.tensor.core import T
from picograd.tensor.elements.operators import result_of
from picograd.tensor.products import host_calls
from picograd.tensor.products.linalg import of_op
from picograd.tensor.reductions.measures import common

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["lu", "lu_solve", "triangular_solve"]


class LUData(NamedTuple):
    """L below the diagonal and U, and which rows are exchanged, from 1, one after the other."""

    LU: Any
    pivots: Any


class LUDataInfo(NamedTuple):
    """The same; info is 0, or from 1 the first pivot that is 0."""

    LU: Any
    pivots: Any
    info: Any


class TriangularSolution(NamedTuple):
    """The solution, and the matrix that it is of."""

    solution: Any
    cloned_coefficient: Any


def lu(self: T, pivot: bool = True, get_infos: bool = False) -> Any:
    """Returns L and U in one matrix and the rows that are exchanged, for lu_solve and lu_unpack.

    Args:
      pivot:      False: rows stay
      get_infos:  info is returned too

    Raises:
      ShapeError: there are less than two axes.

    >>> Tensor([[1.0, 2.0], [2.0, 2.0]]).lu().pivots.tolist()
    [2, 2]
    """
    op = host_calls.matrix("lu", self.read())
    joined, _ = host_calls.lu("lu", op, pivot)
    factors = of_op(self, joined), of_op(self, pivots_of(op, pivot))
    return LUDataInfo(*factors, of_op(self, zero_pivot(joined))) if get_infos else LUData(*factors)


def lu_solve(self: T, LU_data: Tensor, LU_pivots: Tensor) -> T:
    """Returns X with A X = self, from what `lu` gave for A.

    Args:
      LU_data:    (..., n, n)
      LU_pivots:  (..., n)

    Raises:
      ShapeError: the shapes do not fit.

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
    """Returns X with A X = self, for a triangular A of which nothing but its triangle is read.

    Args:
      A:              (..., n, n)
      upper:          A is upper triangular, else lower
      transpose:      A.T X = self
      unitriangular:  the diagonal is not read, but taken as ones

    Raises:
      ShapeError: a matrix is not square, or self does not fit it.

    >>> Tensor([[2.0], [3.0]]).triangular_solve(Tensor([[2.0, 0.0], [1.0, 1.0]]), upper=False).solution.tolist()
    [[1.0], [2.0]]
    """
    name = "triangular_solve"
    matrix, right = common(name, tensor_of(name, "A", A), self)
    host_calls.matrix(name, matrix, square=True), host_calls.matrix(name, right)
    matrix, right = host_calls.in_one_batch(name, matrix, right)
    turned = swap_last(matrix) if transpose else matrix
    solution = host_calls.triangular(name, turned, right, bool(upper) != bool(transpose), bool(unitriangular))
    return TriangularSolution(result_of(self, name, solution, A), of_op(self, matrix))


# ---- on Ops ----
def pivots_of(a: Op, pivot: bool) -> Op:
    """Returns which row each column exchanges with its own, from 1, as int32."""
    k = min(host_calls.sides(a))
    shape = (*a.shape[:-2], k)
    found = host_calls.call("lu_pivots", detached(a), dtype=dtypes.int64) if pivot else positions(shape, len(shape) - 1) + 1
    return cast(found, dtypes.int32)


def zero_pivot(joined: Op) -> Op:
    """Returns from 1 the first pivot of LU that is 0, and 0 where there is none; int32."""
    values = diagonal(joined)
    last = len(values.shape) - 1
    k = int(values.shape[last])
    number = where(compare(OpCode.CMPEQ, values, 0), positions(values.shape, last) + 1, k + 1)
    least = reduce(number, OpCode.MIN, (last,)) if k else filled(0, dtypes.int64, values.shape[:-1])
    return cast(where(compare(OpCode.CMPEQ, least, k + 1), zeros_like(least), least), dtypes.int32)


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
        back = Op(OpCode.SORT, dtypes.int64, (rows,), (batch, False))  # where each row went
        return gather(z, back, batch, batch)
    y = host_calls.triangular(name, joined, gather(b, rows, batch, batch), upper=False, unit=True)
    return host_calls.triangular(name, joined, y, upper=True)


def rows_of(name: str, exchanged: Op, n: int) -> Op:
    """Returns the order that `n` rows have after their exchanges, pivots counted from 1.

    Raises:
      DTypeError:    the pivots are no integers.
      IndexingError: when it is computed: a pivot names no row.
    """
    if not exchanged.dtype.is_int:
        raise DTypeError(f"{name}: pivots must be integers, got {exchanged.dtype} of shape {exchanged.shape}.")
    site = Site(f"{name}: a pivot names row {{}}, counted from 0, of {n} rows.", f"pivots are 1 to {n}.")
    places = checked(cast(exchanged, dtypes.int64) - 1, n, site)
    return host_calls.call("rows_of_pivots", places + 1, options=(n,))


def order_matrix(rows: Op, like: Op) -> Op:
    """Returns P (..., m, m) of the dtype of another Op, for which P @ x has row i of x at place rows[i]."""
    m, last = rows.shape[-1], len(rows.shape)
    shape = (*rows.shape, m)
    chosen = broadcast_to(Op(OpCode.RESHAPE, rows.dtype, (rows,), (*rows.shape[:-1], 1, m)), shape)
    return cast(compare(OpCode.CMPEQ, positions(shape, last - 1), chosen), like.dtype)
