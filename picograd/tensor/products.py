"""Products of vectors, matrices and batches of them; their sums with other tensors; and einsum.

In an equation a label names an axis: the code point of a letter, a number of the sublist format, or a negative number for
an axis of an ellipsis, counted from the last. A greedy choice orders the pairs by cost; each pair is multiplied by one
MATMUL.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, diagonal, expand, less_equal, permute, positions, reduce, reshape, where
from picograd.ir.op import Dim, Op, Shape, greatest
from picograd.ir.opcode import OpCode
from picograd.ir.shape import MatmulArg, numel
from picograd.ir.symbolic import mul
from picograd.record import Record
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, is_integer, promoted, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.inplace import in_place
from picograd.tensor.intake import fitting
from picograd.tensor.modes import autocast, lowered, uses_tf32
from picograd.tensor.operators import binary, result_of, scaled

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "addbmm", "addmm", "addmv", "addmv_", "addr", "baddbmm", "bmm", "dot", "einsum", "matmul", "mm", "mv", "outer",
    "tensordot", "tril", "triu",
]  # fmt: skip


# ---- matrices ----
def matmul(self: T, other: Tensor) -> T:
    """Returns the matrix product; leading axes are batch axes and broadcast, a 1-d operand is a row or a column.

    self (..., M, K), other (..., K, N)  ->  (..., M, N)

    Raises:
      ShapeError: K differs, the batch axes do not broadcast, or an operand is 0-d.

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
        raise DTypeError(f"{function}: bools have no matrix product.", hint="cast them: x.int()")
    lhs = lhs if lhs.dtype is dtype else cast(lhs, dtype)
    rhs = rhs if rhs.dtype is dtype else cast(rhs, dtype)
    return result_of(self, function, matmul_op(lhs, rhs, function), other)


def _of_ranks(self: T, function: str, ranks: tuple[int, int], other: Any) -> T:
    """Returns the product of operands of these ranks."""
    found = tensor_of(function, "other", other)
    if (self.ndim, found.ndim) != ranks:
        raise ShapeError(
            f"{function}: needs operands of {ranks[0]} and {ranks[1]} axes, got {self.shape} and {found.shape}.",
            hint="lhs @ rhs takes any number of axes.",
        )
    return _product(self, function, found)


def mm(self: T, mat2: Tensor) -> T:
    """Returns the product of two matrices (M, K) and (K, N): (M, N).

    Args:
      mat2:  the right matrix

    Raises:
      ShapeError: an operand is not a matrix, or K differs.

    >>> Tensor([[1.0, 2.0]]).mm(Tensor([[3.0], [4.0]]))
    Tensor([[11.]])
    """
    return _of_ranks(self, "mm", (2, 2), mat2)


def bmm(self: T, mat2: Tensor) -> T:
    """Returns the products of two stacks of matrices (B, M, K) and (B, K, N): (B, M, N).

    Args:
      mat2:  the right matrices

    Raises:
      ShapeError: an operand does not have three axes, or B or K differs.

    >>> Tensor.ones(2, 1, 3).bmm(Tensor.ones(2, 3, 1)).flatten()
    Tensor([3., 3.])
    """
    other = tensor_of("bmm", "mat2", mat2)
    if self.ndim == other.ndim == 3 and self.shape[0] != other.shape[0]:
        raise ShapeError(f"bmm: the batches of {self.shape} and {other.shape} differ in length.")
    return _of_ranks(self, "bmm", (3, 3), other)


def mv(self: T, vec: Tensor) -> T:
    """Returns this matrix (M, K) times a vector (K,): (M,).

    Args:
      vec:  the vector

    Raises:
      ShapeError: self is not a matrix, or the length of `vec` is not K.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mv(Tensor([1.0, 1.0]))
    Tensor([3., 7.])
    """
    return _of_ranks(self, "mv", (2, 1), vec)


def dot(self: T, tensor: Tensor) -> T:
    """Returns the sum of products of two vectors of one length.

    Args:
      tensor:  the other vector

    Raises:
      ShapeError: an operand is not a vector.

    >>> Tensor([1.0, 2.0]).dot(Tensor([3.0, 4.0]))
    Tensor(11.)
    """
    return _of_ranks(self, "dot", (1, 1), tensor)


def vdot(self: T, other: Tensor) -> T:
    """Returns the sum of products of two vectors of one length; for real numbers it is dot.

    >>> Tensor([1.0, 2.0]).vdot(Tensor([3.0, 4.0]))
    Tensor(11.)
    """
    return _of_ranks(self, "vdot", (1, 1), other)


def inner(self: T, other: Tensor) -> T:
    """Returns the products along the last axes: (..., K), (*, K) -> (..., *); 0-d operands multiply.

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
      ShapeError: an operand is not a vector.

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
    """Returns `outer`, under its BLAS name.

    Args:
      vec2:  the second vector

    >>> Tensor([1, 2]).ger(Tensor([1, 10])).tolist()
    [[1, 10], [2, 20]]
    """
    return self.outer(vec2)


def kron(self: T, other: Any) -> T:
    """Returns the Kronecker product: each element of self times all of `other`, as blocks.

    out[i * m + j] = self[i] * other[j] along each axis; axes of length 1 are added in front of the shorter shape.

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
    """Returns the sum of the diagonal of a matrix; int64 for integers.

    Raises:
      ShapeError: self is not a matrix.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).trace()
    Tensor(5.)
    """
    if self.ndim != 2:
        raise ShapeError(f"trace: needs a matrix, got shape {self.shape}.")
    return self.from_op(diagonal(self.read()), self.cell.device).sum()


# ---- triangles ----
def tril(self: T, diagonal: int = 0) -> T:
    """Returns the lower triangle of the last two axes, with zeros above the chosen diagonal.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).tril()
    Tensor([[1., 0.],
            [3., 4.]])
    """
    return _triangle(self, "tril", diagonal, lower=True)


tril_ = in_place(tril)


def triu(self: T, diagonal: int = 0) -> T:
    """Returns the upper triangle of the last two axes, with zeros below the chosen diagonal.

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
    kept = less_equal(columns, rows) if lower else less_equal(rows, columns)
    return self.from_op(where(kept, op, 0), self.cell.device)


def matmul_op(lhs: Op, rhs: Op, function: str = "matmul", tf32: bool | None = None) -> Op:
    """Returns the product of Ops of one dtype. With a 2-d right side, the batch and rows of the left side are joined.

    Args:
      tf32:  allow TF32; None: the present setting

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
    """Returns a hint to transpose an operand if matmul would then be possible."""
    if rhs[-1] == lhs[-1]:
        return "lhs @ rhs.mT fits."
    if len(lhs) > 1 and lhs[-2] == rhs[-2]:
        return "lhs.mT @ rhs fits."
    return f"neither side fits after a transpose either; check the sizes {lhs[-1]} and {rhs[-2]}."


# ---- products that are added ----
P = ParamSpec("P")
R = TypeVar("R")


def _as_it_is(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a method that computes in its tensor's dtype, even under autocast."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with autocast(enabled=False):
            return function(*args, **kwargs)

    return call


def _added(
    self: T,
    function: str,
    ranks: tuple[int, int],
    lhs: Any,
    rhs: Any,
    beta: Scalar,
    alpha: Scalar,
    over_batch: bool = False,
) -> T:
    """Returns beta * self + alpha * lhs @ rhs; with over_batch the products are summed over the batch."""
    left, right = (tensor_of(function, "each operand", operand) for operand in (lhs, rhs))
    a, b = left.read(), right.read()
    if (len(a.shape), len(b.shape)) != ranks:
        raise ShapeError(
            f"{function}: needs operands of {ranks[0]} and {ranks[1]} axes, got {a.shape} and {b.shape}.",
            hint="beta * x + alpha * (lhs @ rhs) takes any.",
        )
    base = self.read()
    dtype = lowered(base.dtype if base.dtype is promoted(a, b) else promoted(base, cast(a, promoted(a, b))))
    if not dtype.is_float and function != "addr":
        alpha, beta = (int(fitting(function, factor, dtype)) for factor in (alpha, beta))
    a, b = cast(a, dtype), cast(b, dtype)
    product = matmul_op(a, b, function)  # only for its checks if it is not the result
    if over_batch:  # one sum over B and K, rounded once
        (count, rows, inner), columns = a.shape, b.shape[2]
        line = mul(count, inner)
        a = reshape(permute(a, (1, 0, 2)), (rows, line))
        product = matmul_op(a, reshape(b, (line, columns)), function)
    if broadcast_shapes(function, base.shape, product.shape) != product.shape:
        raise ShapeError(f"{function}: self of shape {base.shape} does not broadcast to the product's {product.shape}.")
    result = scaled(function, product, alpha)
    if beta:
        result = scaled(function, broadcast_to(cast(base, dtype), product.shape), beta, "beta") + result
    return self.from_op(result, self.other_device(function, left, right))


def addmm(self: T, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * mat1 @ mat2, for matrices (M, K) and (K, N).

    Args:
      mat1, mat2:   the matrices
      beta, alpha:  numbers; truncated for integer tensors, as in PyTorch

    Raises:
      ShapeError: an operand is not a matrix, K differs, or self does not broadcast to (M, N).

    >>> Tensor([1.0]).addmm(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]]), alpha=2)
    Tensor([[23.]])
    """
    return _added(self, "addmm", (2, 2), mat1, mat2, beta, alpha)


def addmv(self: T, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * mat @ vec, for a matrix (M, K) and a vector (K,).

    Args:
      mat, vec:     the operands
      beta, alpha:  numbers; truncated for integer tensors, as in PyTorch

    Raises:
      ShapeError: the operands are not a matrix and a vector, K differs, or self does not broadcast to (M,).

    >>> Tensor([1.0, 2.0]).addmv(Tensor([[1.0, 0.0], [0.0, 1.0]]), Tensor([3.0, 4.0]))
    Tensor([4., 6.])
    """
    return _added(self, "addmv", (2, 1), mat, vec, beta, alpha)


def addr(self: T, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * outer(vec1, vec2), for vectors (M,) and (N,).

    Args:
      vec1, vec2:   the vectors
      beta, alpha:  numbers; integers for integer tensors

    Raises:
      ShapeError: an operand is not a vector, or self does not broadcast to (M, N).

    >>> Tensor.zeros(2, 2).addr(Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    Tensor([[ 1., 10.],
            [ 2., 20.]])
    """
    column, row = tensor_of("addr", "vec1", vec1), tensor_of("addr", "vec2", vec2)
    if column.ndim != 1 or row.ndim != 1:
        raise ShapeError(f"addr: needs two vectors, got {column.shape} and {row.shape}.")
    left = self.from_op(column.read(), column.cell.device).reshape(-1, 1)
    right = self.from_op(row.read(), row.cell.device).reshape(1, -1)
    return _added(self, "addr", (2, 2), left, right, beta, alpha)


def addbmm(self: T, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * the sum over B of batch1 @ batch2, for stacks (B, M, K) and (B, K, N).

    Args:
      batch1, batch2:  the stacks
      beta, alpha:     numbers; truncated for integer tensors, as in PyTorch

    Raises:
      ShapeError: an operand does not have three axes, B or K differs, or self does not broadcast to (M, N).

    >>> Tensor.zeros(1, 1).addbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1))
    Tensor([[6.]])
    """
    return _added(self, "addbmm", (3, 3), batch1, batch2, beta, alpha, over_batch=True)


def baddbmm(self: T, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> T:
    """Returns beta * self + alpha * batch1 @ batch2, for stacks (B, M, K) and (B, K, N).

    Args:
      batch1, batch2:  the stacks
      beta, alpha:     numbers; truncated for integer tensors, as in PyTorch

    Raises:
      ShapeError: an operand does not have three axes, B or K differs, or self does not broadcast to (B, M, N).

    >>> Tensor([1.0]).baddbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1)).flatten()
    Tensor([4., 4.])
    """
    return _added(self, "baddbmm", (3, 3), batch1, batch2, beta, alpha)


# ---- in place ----
addmm_, addmv_, addr_ = in_place(_as_it_is(addmm)), in_place(_as_it_is(addmv)), in_place(_as_it_is(addr))
addbmm_, baddbmm_ = in_place(_as_it_is(addbmm)), in_place(_as_it_is(baddbmm))


# ---- named axes ----
Labels = tuple[int, ...]


class Equation(Record):
    """The labels of an einsum's inputs and output.

    inputs:  labels of the axes of each operand
    output:  labels of the axes of the result; the others are summed over
    """

    inputs: tuple[Labels, ...]
    output: Labels


class Operand(Record):
    """An intermediate factor: an Op, and the distinct labels of its axes."""

    op: Op
    labels: Labels


# ---- equations ----
def parse(equation: str, ranks: Sequence[int]) -> Equation:
    """Returns the labels of "ij,jk->ik" for operands of these ranks.

    Raises:
      ArgumentError: a syntax error, or the operands do not match.
    """
    text = equation.replace(" ", "")
    terms, arrow, result = text.partition("->")
    parts = terms.split(",")
    if len(parts) != len(ranks):
        raise ArgumentError(f"einsum: {equation!r} has {len(parts)} terms, but there are {len(ranks)} operands.")
    symbols = [_symbols(equation, part) for part in [*parts, result]]
    return _equation(equation, symbols[:-1], symbols[-1] if arrow else None, ranks)


def _symbols(equation: str, term: str) -> list[int | None]:
    """Returns the labels of a term; None stands for an ellipsis."""
    pieces = term.split("...")
    if len(pieces) > 2 or any(not letter.isascii() or not letter.isalpha() for piece in pieces for letter in piece):
        raise ArgumentError(
            f"einsum: {term!r} in {equation!r} must be letters, with at most one ellipsis '...'.",
            hint="an equation is like 'bij,bjk->bik'.",
        )
    found: list[int | None] = list(map(ord, pieces[0]))
    return found + [None, *map(ord, pieces[1])] if len(pieces) == 2 else found


def _equation(
    shown: object, terms: Sequence[Sequence[int | None]], result: Sequence[int | None] | None, ranks: Sequence[int]
) -> Equation:
    """Returns an equation in which ellipses are replaced by labels."""
    inputs: list[Labels] = []
    for term, rank in zip(terms, ranks):
        hidden = rank - len(term) + (None in term)
        if hidden < 0 or (hidden and None not in term):
            raise ArgumentError(f"einsum: an operand of {shown} has {rank} axes, its term names {rank - hidden}.")
        inputs.append(_spelled(term, hidden))
    width = max([sum(label < 0 for label in labels) for labels in inputs], default=0)
    if result is None:
        counts = Counter(label for labels in inputs for label in labels if label >= 0)
        output = (*range(-width, 0), *sorted(label for label, count in counts.items() if count == 1))
    else:
        output = _spelled(result, width)
    known = {label for labels in inputs for label in labels}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise ArgumentError(f"einsum: each label of the result of {shown} must occur there once, and in an operand.")
    return Equation(tuple(inputs), output)


def _spelled(term: Sequence[int | None], hidden: int) -> Labels:
    return tuple(label for symbol in term for label in (range(-hidden, 0) if symbol is None else (symbol,)))


def _sublists(args: Sequence[Any]) -> tuple[list[Tensor], Equation]:
    """Returns operands and equation for the format einsum(x, [0, 1], y, [1, 2], [0, 2])."""
    result = args[-1] if len(args) % 2 else None
    operands = [tensor_of("einsum", "an operand", value) for value in args[: len(args) // 2 * 2 : 2]]
    lists = [*args[1 : len(args) // 2 * 2 : 2], *([result] if result is not None else [])]
    terms: list[list[int | None]] = []
    for each in lists:
        if not isinstance(each, (list, tuple)) or any(s is not ... and not (type(s) is int and 0 <= s < 52) for s in each):
            raise ArgumentError(f"einsum: a sublist must hold numbers from 0 to 51, or an Ellipsis, got {each!r}.")
        terms.append([None if symbol is ... else symbol for symbol in each])
    named = terms[: len(operands)]
    return operands, _equation("the sublists", named, terms[-1] if result is not None else None, [x.ndim for x in operands])


# ---- one operand ----
def _diagonals(op: Op, labels: Labels) -> Operand:
    """Returns an operand with distinct labels: axes of one label become their diagonal."""
    for label, count in Counter(labels).items():
        for _ in range(count - 1):
            first, second = [i for i, other in enumerate(labels) if other == label][:2]
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            if op.shape[first] != op.shape[second]:
                raise ShapeError(f"einsum: a label names axes {first} and {second} of {op.shape}, which differ.")
            op = diagonal(permute(op, (*rest, first, second)))
            labels = (*(labels[i] for i in rest), label)
    return Operand(op, labels)


def _summed(x: Operand, kept: set[int]) -> Operand:
    """Returns an operand summed over axes whose labels occur nowhere else."""
    axes = tuple(i for i, label in enumerate(x.labels) if label not in kept)
    return Operand(reduce(x.op, OpCode.ADD, axes), tuple(label for label in x.labels if label in kept)) if axes else x


def _lengths(operands: Sequence[Operand]) -> dict[int, Dim]:
    """Returns the length of each label; axes of length 1 broadcast."""
    found: dict[int, Dim] = {}
    for x in operands:
        for label, dim in zip(x.labels, x.op.shape):
            before = found.get(label, 1)
            if before != 1 and dim != 1 and before != dim:
                name = chr(label) if label > 51 else f"number {label}" if label >= 0 else f"{label} of the ellipsis"
                raise ShapeError(f"einsum: axes with label {name} have lengths {before} and {dim}.")
            found[label] = dim if before == 1 else before
    return found


def _without_repeats(x: Operand, lengths: dict[int, Dim]) -> Operand:
    """Returns an operand without the axes of length 1 that broadcast."""
    kept = [i for i, label in enumerate(x.labels) if x.op.shape[i] == lengths[label]]
    return Operand(reshape(x.op, tuple(x.op.shape[i] for i in kept)), tuple(x.labels[i] for i in kept))


# ---- pairs ----
def _arranged(x: Operand, *groups: Sequence[int]) -> tuple[Op, list[Shape]]:
    """Returns an operand with one axis per group of labels, and the lengths in each group."""
    place = {label: i for i, label in enumerate(x.labels)}
    shapes = [tuple(x.op.shape[place[label]] for label in group) for group in groups]
    moved = permute(x.op, tuple(place[label] for group in groups for label in group))
    return reshape(moved, tuple(numel(shape) for shape in shapes)), shapes


def _pair(a: Operand, b: Operand, kept: set[int]) -> Operand:
    """Returns the product of two operands, summed over labels that are not kept, in one MATMUL."""
    shared = [label for label in a.labels if label in b.labels]
    batch, inner = ([label for label in shared if (label in kept) is wanted] for wanted in (True, False))
    rows, columns = ([label for label in x.labels if label not in shared] for x in (a, b))
    lhs, (batch_shape, row_shape, _) = _arranged(a, batch, rows, inner)
    rhs, (_, _, column_shape) = _arranged(b, batch, inner, columns)
    if inner:
        product = Op(OpCode.MATMUL, lhs.dtype, (lhs, rhs), MatmulArg(tf32=True) if uses_tf32(lhs.dtype) else None)
    else:
        shape = (*lhs.shape[:2], rhs.shape[2])
        product = expand(lhs, shape) * expand(rhs, shape)
    return Operand(reshape(product, (*batch_shape, *row_shape, *column_shape)), (*batch, *rows, *columns))


def _cost(a: Operand, b: Operand, kept: set[int]) -> tuple[int, int]:
    """Returns the increase in size by a pair's product, and its number of multiplications."""
    lengths = {label: greatest(dim) for x in (a, b) for label, dim in zip(x.labels, x.op.shape)}

    def elements(labels: set[int]) -> int:
        count = 1
        for label in labels:
            count *= lengths[label]
        return count

    left, right = set(a.labels), set(b.labels)
    return elements((left | right) & kept) - elements(left) - elements(right), elements(left | right)


def contract(equation: Equation, ops: Sequence[Op]) -> Op:
    """Returns the sum of products of Ops of one dtype.

    Raises:
      ShapeError: axes with one label have different lengths.
    """
    left = [_diagonals(op, labels) for op, labels in zip(ops, equation.inputs)]
    lengths = _lengths(left)
    left = [_without_repeats(x, lengths) for x in left]

    def needed(*pair: Operand) -> set[int]:
        return set(equation.output).union(*(x.labels for x in left if not any(x is other for other in pair)))

    while True:
        left = [_summed(x, needed(x)) for x in left]
        if len(left) == 1:
            break
        # NOTE: among equal choices the first, so that the graph depends on the equation only.
        pairs = itertools.combinations(left, 2)
        a, b = min(pairs, key=lambda pair: _cost(pair[0], pair[1], needed(*pair)))
        product = _pair(a, b, needed(a, b))
        left = [*(x for x in left if x is not a and x is not b), product]
    return _in_order(left[0], equation.output, lengths)


def _in_order(x: Operand, output: Labels, lengths: dict[int, Dim]) -> Op:
    """Returns the result with its axes in order; labels that all operands have with length 1 are there already."""
    present = [label for label in output if label in x.labels]
    op = permute(x.op, tuple(x.labels.index(label) for label in present))
    return reshape(op, tuple(lengths[label] for label in output))


# ---- what users call ----
def _common(function: str, tensors: Sequence[TensorCore]) -> list[Op]:
    """Returns the values in one dtype, under autocast in 16 bits."""
    ops = [tensor.read() for tensor in tensors]
    widest = ops[0]
    for op in ops[1:]:
        widest = cast(widest, promoted(widest, op))
    if widest.dtype.kind == "b":
        raise DTypeError(f"{function}: bools have no sum of products.", hint="cast them: x.int()")
    return [cast(op, lowered(widest.dtype)) for op in ops]


def _factors(tensors: Sequence[TensorCore], plan: Equation) -> list[Op]:
    """Returns the operands of einsum in one dtype: int64 if an axis of a single integer operand is summed."""
    ops = [tensors[0].read()] if len(tensors) == 1 else _common("einsum", tensors)
    counts = Counter(label for labels in plan.inputs for label in set(labels))
    summed = any(
        counts[label] == 1 and label not in plan.output and (dim != 1 or len(ops) == 1)
        for op, labels in zip(ops, plan.inputs)
        for label, dim in zip(labels, op.shape)
    )
    return [cast(op, dtypes.int64) for op in ops] if summed and not ops[0].dtype.is_float else ops


def einsum(equation: str | Tensor, *operands: Any) -> Any:
    """Returns the sum of products given by an equation: "ij,jk->ik" is the product of two matrices.

    out[output labels] = sum over all other labels of the product of the operands at their labels

    Args:
      equation:  terms of letters, one per operand, separated by commas, then optionally "->" and the labels of the result;
                 by default those that occur once, in alphabetical order. A letter that occurs twice in a term is a
                 diagonal; "..." stands for any number of leading axes, which broadcast. Or an operand: einsum(x, [0, 1],
                 [1, 0]) labels axes by numbers
      operands:  tensors, or a list of them

    Raises:
      ArgumentError: a syntax error in the equation, or the operands do not match.
      ShapeError:    axes with one label have different lengths greater than 1.
      DTypeError:    an operand is bool.

    Cost:      one MATMUL less than there are operands. The pair with the smallest product is multiplied next.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> einsum("ij,ij->i", x, x), einsum("ii", x)
    (Tensor([ 5., 25.]), Tensor(5.))
    """
    if isinstance(equation, str):
        given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
        tensors = [tensor_of("einsum", "an operand", value) for value in given]
        if not tensors:
            raise ArgumentError("einsum: needs at least one operand.")
        plan = parse(equation, [tensor.ndim for tensor in tensors])
    else:
        tensors, plan = _sublists((equation, *operands))
    op = contract(plan, _factors(tensors, plan))
    return tensors[0].from_op(op, tensors[0].other_device("einsum", *tensors[1:]))


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Returns the sum of products over pairs of axes; the other axes of a, then those of b, remain.

    Args:
      a, b:  tensors
      dims:  a number: the last axes of a with the first of b; or two lists of axes of equal length. Axes of length 1
             broadcast

    Raises:
      ArgumentError: `dims` is something else, or its lists differ in length.
      ShapeError:    the lengths of a pair differ.

    >>> tensordot(Tensor.ones(2, 3, 4), Tensor.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    (2, 5)
    """
    lhs, rhs = (tensor_of("tensordot", name, value) for name, value in (("a", a), ("b", b)))
    first, second = _pairs_of_axes(lhs, rhs, dims)
    for i, j in zip(first, second):
        if lhs.shape[i] == 1 != rhs.shape[j]:
            rhs = rhs.sum(j, keepdim=True, dtype=rhs.dtype)
        elif rhs.shape[j] == 1 != lhs.shape[i]:
            lhs = lhs.sum(i, keepdim=True, dtype=lhs.dtype)
        elif lhs.shape[i] != rhs.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {lhs.shape} has length {lhs.shape[i]}, axis {j} of {rhs.shape} has {rhs.shape[j]}."
            )
    left = list(range(lhs.ndim))
    right = [lhs.ndim + j if j not in second else first[second.index(j)] for j in range(rhs.ndim)]
    output = (*(i for i in left if i not in first), *(j for j in right if j >= lhs.ndim))
    op = contract(Equation((tuple(left), tuple(right)), output), _common("tensordot", [lhs, rhs]))
    return lhs.from_op(op, lhs.other_device("tensordot", rhs))


def _pairs_of_axes(a: TensorCore, b: TensorCore, dims: Any) -> tuple[list[int], list[int]]:
    """Returns the axes of a and of b that are summed over, pair by pair."""
    if is_integer(dims):
        dims = whole("tensordot", "dims", dims)
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ArgumentError(f"tensordot: dims={dims} axes are more than {a.shape} or {b.shape} has.")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    both = list(dims) if isinstance(dims, (list, tuple)) else []
    if len(both) != 2 or not all(is_integer(part) or isinstance(part, (list, tuple)) for part in both):
        raise ArgumentError(f"tensordot: dims must be a number or two lists of axes, got {dims!r}.")
    first, second = ([part] if is_integer(part) else list(part) for part in both)
    if len(first) != len(second):
        raise ArgumentError(f"tensordot: dims={dims!r} names {len(first)} axes of a and {len(second)} of b.")
    found = []
    for axes, x in ((first, a), (second, b)):
        if any(not is_integer(axis) or not -x.ndim <= axis < x.ndim for axis in axes):
            raise ArgumentError(f"tensordot: axes {axes} are not all axes of {x.shape}.")
        found.append([int(axis) % x.ndim for axis in axes])
        if len(set(found[-1])) != len(axes):
            raise ArgumentError(f"tensordot: axes {axes} of {x.shape} name one axis twice.")
    return found[0], found[1]
