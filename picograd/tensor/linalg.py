"""Products of vectors, matrices and batches of them.

In:    tensors
Out:   `Linalg`
Next:  picograd/tensor/indexing.py
"""

from __future__ import annotations

from typing import Any, Self

from picograd.errors import ShapeError
from picograd.ir.build import compare, positions, reshape, where
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, cast, promoted
from picograd.tensor.core import TensorCore
from picograd.tensor.inplace_pairs import InPlacePairs


class Linalg(InPlacePairs):
    """matmul dot mv outer tril triu."""

    __slots__ = ()

    def matmul(self, other: TensorCore) -> Self:
        """Returns the matrix product; leading axes are a batch and broadcast, a 1-d operand is a row or a column.

        self (..., M, K), other (..., K, N)  ->  (..., M, N)

        Raises:
          ShapeError: K differs, or the batch axes do not broadcast.

        >>> (Tensor([1.0, 2.0]) @ Tensor([3.0, 4.0])).item()
        11.0
        """
        lhs, rhs = self.read(), other.read()
        if not lhs.shape or not rhs.shape:
            raise ShapeError(
                f"matmul: both operands need at least one axis, got {lhs.shape} and {rhs.shape}.", hint="lhs * rhs"
            )
        dtype = promoted(lhs, rhs)
        op = matmul_op(cast(lhs, dtype), cast(rhs, dtype))
        return self._result("matmul", op, other)

    def __matmul__(self, other: Any) -> Self:
        return self.matmul(other) if isinstance(other, TensorCore) else NotImplemented

    mm = bmm = matmul

    def dot(self, other: TensorCore) -> Self:
        """Returns the sum of products of two vectors of one length.

        Raises:
          ShapeError: an operand is no vector.

        >>> Tensor([1.0, 2.0]).dot(Tensor([3.0, 4.0]))
        Tensor(11.)
        """
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(f"dot: needs two vectors, got {self.shape} and {other.shape}.", hint="lhs @ rhs")
        return self.matmul(other)

    def mv(self, vector: TensorCore) -> Self:
        """Returns this matrix (M, K) times a vector (K,): (M,).

        Raises:
          ShapeError: self is no matrix, or `vector` none of its length.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mv(Tensor([1.0, 1.0]))
        Tensor([3., 7.])
        """
        if self.ndim != 2 or vector.ndim != 1:
            raise ShapeError(f"mv: needs a matrix and a vector, got {self.shape} and {vector.shape}.")
        return self.matmul(vector)

    def outer(self, other: Any) -> Self:
        """Returns all products of the elements of two vectors (M,) and (N,): (M, N).

        Raises:
          ShapeError: an operand is no vector.

        >>> Tensor([1, 2]).outer(Tensor([1, 10]))
        Tensor([[ 1, 10],
                [ 2, 20]])
        """
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(f"outer: needs two vectors, got {self.shape} and {other.shape}.")
        return self.reshape(-1, 1)._binary("outer", OpCode.MUL, other.reshape(1, -1))

    # ---- triangles ----
    def tril(self, diagonal: int = 0) -> Self:
        """Returns the lower triangle of the last two axes, zeros above the diagonal chosen.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).tril()
        Tensor([[1., 0.],
                [3., 4.]])
        """
        return self._triangle("tril", diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """Returns the upper triangle of the last two axes, zeros below the diagonal chosen.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).triu(1)
        Tensor([[0., 2.],
                [0., 0.]])
        """
        return self._triangle("triu", diagonal, lower=False)

    def _triangle(self, function: str, diagonal: int, lower: bool) -> Self:
        op = self.read()
        if len(op.shape) < 2:
            raise ShapeError(f"{function}: needs two axes, got shape {op.shape}.")
        row, column = (axis_of(function, op.shape, axis) for axis in (-2, -1))
        rows, columns = positions(op.shape, row) + diagonal, positions(op.shape, column)
        kept = compare(OpCode.CMPLE, columns, rows) if lower else compare(OpCode.CMPLE, rows, columns)
        return self.from_op(where(kept, op, 0), self.cell.device)


def matmul_op(lhs: Op, rhs: Op) -> Op:
    """Returns the product of Ops of one dtype. A 2-d right side makes the batch of the left side rows of one matrix.

    Raises:
      ShapeError: the inner dimensions differ, or the batch axes do not broadcast.
    """
    columns: Shape = rhs.shape[-1:] if len(rhs.shape) > 1 else ()
    rows: Shape = lhs.shape[-2:-1]
    if len(rhs.shape) == 1:
        rhs = reshape(rhs, (*rhs.shape, 1))
    inner, outer = lhs.shape[-1], rhs.shape[-2]
    if inner != outer:
        shown = rhs.shape if columns else rhs.shape[:1]
        raise ShapeError(
            f"matmul: inner dimensions differ: lhs {lhs.shape} has K={inner}, rhs {shown} has K={outer}.",
            hint=_remedy(lhs.shape, rhs.shape),
        )
    if len(lhs.shape) == 1:
        lhs = reshape(lhs, (1, *lhs.shape))
    if len(rhs.shape) == 2:
        batch = lhs.shape[:-2]
        lhs = reshape(lhs, (numel(lhs.shape[:-1]), inner))
    else:
        batch = broadcast_shapes("matmul", lhs.shape[:-2], rhs.shape[:-2])
        lhs, rhs = broadcast_to(lhs, (*batch, *lhs.shape[-2:])), broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
    return reshape(Op(OpCode.MATMUL, lhs.dtype, (lhs, rhs)), (*batch, *rows, *columns))


def _remedy(lhs: Shape, rhs: Shape) -> str:
    """Returns which transposition would make matmul fit, if one does."""
    if rhs[-1] == lhs[-1]:
        return "lhs @ rhs.mT fits."
    if len(lhs) > 1 and lhs[-2] == rhs[-2]:
        return "lhs.mT @ rhs fits."
    return f"neither side fits after a transpose either; check the sizes {lhs[-1]} and {rhs[-2]}."
