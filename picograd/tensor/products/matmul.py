"""Products of vectors, matrices and batches of them.

In:    tensors
Out:   `Products`; `matmul_op`
Next:  picograd/tensor/products/added.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from picograd.errors import DTypeError, ShapeError
from picograd.ir.build import compare, diagonal, positions, reshape, where
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.shape import MatmulArg, numel
from picograd.ir.symbolic import mul
from picograd.tensor.arguments import tensor_of
from picograd.tensor.autocast import lowered, uses_tf32
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, cast, promoted, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.elements.operators import binary, result_of
from picograd.tensor.inplace import in_place

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


def matmul(self: T, other: Tensor) -> T:
    """Returns the matrix product; leading axes are a batch and broadcast, a 1-d operand is a row or a column.

    self (..., M, K), other (..., K, N)  ->  (..., M, N)

    Raises:
      ShapeError: K differs, the batch axes do not broadcast, or an operand has no axis.

    >>> (Tensor([1.0, 2.0]) @ Tensor([3.0, 4.0])).item()
    11.0
    """
    return _product(self, "matmul", other if isinstance(other, TensorCore) else tensor_of("matmul", "other", other))


def __matmul__(self: T, other: Any) -> T:
    if isinstance(other, np.ndarray):
        other = type(self)(other, device=self.device)
    return _product(self, "matmul", other) if isinstance(other, TensorCore) else NotImplemented


def __rmatmul__(self: T, other: Any) -> T:
    if isinstance(other, np.ndarray):
        return type(self)(other, device=self.device).matmul(self)
    return type(self).matmul(other, self) if isinstance(other, type(self)) else NotImplemented


def _product(self: T, function: str, other: TensorCore) -> T:
    """Returns the matrix product, with errors that name `function`."""
    lhs, rhs = self.read(), other.read()
    if not lhs.shape or not rhs.shape:
        raise ShapeError(
            f"{function}: both operands need at least one axis, got {lhs.shape} and {rhs.shape}.", hint="lhs * rhs"
        )
    dtype = lowered(lhs.dtype if lhs.dtype is rhs.dtype else promoted(lhs, rhs))
    if dtype.kind == "b":
        raise DTypeError(f"{function}: bools have no product of matrices.", hint="cast them: x.int()")
    lhs = lhs if lhs.dtype is dtype else cast(lhs, dtype)
    rhs = rhs if rhs.dtype is dtype else cast(rhs, dtype)
    return result_of(self, function, matmul_op(lhs, rhs, function), other)


def _of_ranks(self: T, function: str, ranks: tuple[int, int], other: Any) -> T:
    """Returns the product of operands with so many axes."""
    found = tensor_of(function, "other", other)
    if (self.ndim, found.ndim) != ranks:
        raise ShapeError(
            f"{function}: needs operands of {ranks[0]} and {ranks[1]} axes, got {self.shape} and {found.shape}.",
            hint="lhs @ rhs takes any.",
        )
    return _product(self, function, found)


def mm(self: T, mat2: Tensor) -> T:
    """Returns the product of two matrices (M, K) and (K, N): (M, N).

    Args:
      mat2:  the right one

    Raises:
      ShapeError: an operand is no matrix, or K differs.

    >>> Tensor([[1.0, 2.0]]).mm(Tensor([[3.0], [4.0]]))
    Tensor([[11.]])
    """
    return _of_ranks(self, "mm", (2, 2), mat2)


def bmm(self: T, mat2: Tensor) -> T:
    """Returns the products of two stacks of matrices (B, M, K) and (B, K, N): (B, M, N).

    Args:
      mat2:  the right ones

    Raises:
      ShapeError: an operand has not three axes, or B or K differs.

    >>> Tensor.ones(2, 1, 3).bmm(Tensor.ones(2, 3, 1)).flatten()
    Tensor([3., 3.])
    """
    other = tensor_of("bmm", "mat2", mat2)
    if self.ndim == other.ndim == 3 and self.shape[0] != other.shape[0]:
        raise ShapeError(f"bmm: the stacks {self.shape} and {other.shape} differ in their first axis.")
    return _of_ranks(self, "bmm", (3, 3), other)


def mv(self: T, vec: Tensor) -> T:
    """Returns this matrix (M, K) times a vector (K,): (M,).

    Args:
      vec:  the vector

    Raises:
      ShapeError: self is no matrix, or `vec` none of its length.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mv(Tensor([1.0, 1.0]))
    Tensor([3., 7.])
    """
    return _of_ranks(self, "mv", (2, 1), vec)


def dot(self: T, tensor: Tensor) -> T:
    """Returns the sum of products of two vectors of one length.

    Args:
      tensor:  the other vector

    Raises:
      ShapeError: an operand is no vector.

    >>> Tensor([1.0, 2.0]).dot(Tensor([3.0, 4.0]))
    Tensor(11.)
    """
    return _of_ranks(self, "dot", (1, 1), tensor)


def vdot(self: T, other: Tensor) -> T:
    """Returns the sum of products of two vectors of one length: of real numbers the same as dot.

    >>> Tensor([1.0, 2.0]).vdot(Tensor([3.0, 4.0]))
    Tensor(11.)
    """
    return _of_ranks(self, "vdot", (1, 1), other)


def inner(self: T, other: Tensor) -> T:
    """Returns the products along the last axes: (..., K), (*, K) -> (..., *); a 0-d operand multiplies.

    Raises:
      ShapeError: K differs.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).inner(Tensor([1.0, 10.0]))
    Tensor([21., 43.])
    """
    rhs = tensor_of("inner", "other", other)
    if not self.ndim or not rhs.ndim:
        return binary(self, "inner", OpCode.MUL, rhs, "iuf")
    if self.shape[-1] != rhs.shape[-1]:
        raise ShapeError(f"inner: the last axes of {self.shape} and {rhs.shape} differ in length.")
    columns = self.from_op(reshape(rhs.read(), (numel(rhs.shape[:-1]), rhs.shape[-1])), rhs.cell.device).T
    return _product(self, "inner", columns).reshape(*self.shape[:-1], *rhs.shape[:-1])


def outer(self: T, vec2: Any) -> T:
    """Returns all products of the elements of two vectors (M,) and (N,): (M, N).

    Args:
      vec2:  the second vector

    Raises:
      ShapeError: an operand is no vector.

    >>> Tensor([1, 2]).outer(Tensor([1, 10]))
    Tensor([[ 1, 10],
            [ 2, 20]])
    """
    other = tensor_of("outer", "vec2", vec2)
    if self.ndim != 1 or other.ndim != 1:
        raise ShapeError(f"outer: needs two vectors, got {self.shape} and {other.shape}.")
    row = self.from_op(reshape(other.read(), (1, *other.shape)), other.cell.device)
    return self.reshape(-1, 1).mul(row)


def ger(self: T, vec2: Any) -> T:
    """Returns `outer`, by its name in BLAS.

    Args:
      vec2:  the second vector

    >>> Tensor([1, 2]).ger(Tensor([1, 10])).tolist()
    [[1, 10], [2, 20]]
    """
    return self.outer(vec2)


def kron(self: T, other: Any) -> T:
    """Returns the Kronecker product: each element of self times all of `other`, as blocks.

    out[i * m + j] = self[i] * other[j], along each axis; the operand with fewer axes gets axes of length 1 in front.

    >>> Tensor([1, 10]).kron(Tensor([1, 2, 3]))
    Tensor([ 1,  2,  3, 10, 20, 30])
    """
    lhs, rhs = self.read(), tensor_of("kron", "other", other).read()
    rank = max(len(lhs.shape), len(rhs.shape))
    left, right = ((1,) * (rank - len(op.shape)) + op.shape for op in (lhs, rhs))
    blocks = tuple(dim for a in left for dim in (a, 1)), tuple(dim for b in right for dim in (1, b))
    spread = self.from_op(reshape(lhs, blocks[0]), self.cell.device)
    product = spread.mul(self.from_op(reshape(rhs, blocks[1]), other.cell.device))
    return product.reshape(*(mul(a, b) for a, b in zip(left, right)))


def trace(self: T) -> T:
    """Returns the sum of the diagonal of a matrix; of integers as int64.

    Raises:
      ShapeError: self is no matrix.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).trace()
    Tensor(5.)
    """
    if self.ndim != 2:
        raise ShapeError(f"trace: needs a matrix, got shape {self.shape}.")
    return self.from_op(diagonal(self.read()), self.cell.device).sum()


# ---- triangles ----
def tril(self: T, diagonal: int = 0) -> T:
    """Returns the lower triangle of the last two axes, zeros above the diagonal chosen.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).tril()
    Tensor([[1., 0.],
            [3., 4.]])
    """
    return _triangle(self, "tril", diagonal, lower=True)


tril_ = in_place(tril)


def triu(self: T, diagonal: int = 0) -> T:
    """Returns the upper triangle of the last two axes, zeros below the diagonal chosen.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).triu(1)
    Tensor([[0., 2.],
            [0., 0.]])
    """
    return _triangle(self, "triu", diagonal, lower=False)


triu_ = in_place(triu)


def _triangle(self: T, function: str, diagonal: int, lower: bool) -> T:
    op = self.read()
    if len(op.shape) < 2:
        raise ShapeError(f"{function}: needs two axes, got shape {op.shape}.")
    row, column = (axis_of(function, op.shape, axis) for axis in (-2, -1))
    rows, columns = positions(op.shape, row) + whole(function, "diagonal", diagonal), positions(op.shape, column)
    kept = compare(OpCode.CMPLE, columns, rows) if lower else compare(OpCode.CMPLE, rows, columns)
    return self.from_op(where(kept, op, 0), self.cell.device)


def matmul_op(lhs: Op, rhs: Op, function: str = "matmul", tf32: bool | None = None) -> Op:
    """Returns the product of Ops of one dtype. A 2-d right side makes the batch of the left side rows of one matrix.

    Args:
      tf32:  whether it may be computed in TF32; None: as it is set now

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
            f"{function}: inner dimensions differ: lhs {lhs.shape} has K={inner}, rhs {shown} has K={outer}.",
            hint=_remedy(lhs.shape, rhs.shape),
        )
    if len(lhs.shape) == 1:
        lhs = reshape(lhs, (1, *lhs.shape))
    if len(rhs.shape) == 2:
        batch = lhs.shape[:-2]
        lhs = reshape(lhs, (numel(lhs.shape[:-1]), inner))
    else:
        batch = broadcast_shapes(function, lhs.shape[:-2], rhs.shape[:-2])
        lhs, rhs = broadcast_to(lhs, (*batch, *lhs.shape[-2:])), broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
    arg = MatmulArg(tf32=True) if (uses_tf32(lhs.dtype) if tf32 is None else tf32) else None
    return reshape(Op(OpCode.MATMUL, lhs.dtype, (lhs, rhs), arg), (*batch, *rows, *columns))


def _remedy(lhs: Shape, rhs: Shape) -> str:
    """Returns which transposition would make matmul fit, if one does."""
    if rhs[-1] == lhs[-1]:
        return "lhs @ rhs.mT fits."
    if len(lhs) > 1 and lhs[-2] == rhs[-2]:
        return "lhs.mT @ rhs fits."
    return f"neither side fits after a transpose either; check the sizes {lhs[-1]} and {rhs[-2]}."
