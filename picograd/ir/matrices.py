"""Constructors for stacks of matrices (..., m, n): triangles, diagonals, factors that lie one after the other.

In:    Ops
Out:   Ops
Next:  picograd/ir/attention.py
"""

from __future__ import annotations

from picograd.ir.build import (
    compare,
    pad_axis,
    positions,
    reduce,
    repeat_axes,
    reshape,
    shrink_axis,
    static_shape,
    where,
    zeros_like,
)
from picograd.ir.host import lengths
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, mul


def product(*factors: Op) -> Op:
    """Returns the product of matrices, from left to right."""
    result, *rest = factors
    for factor in rest:
        result = Op(OpCode.MATMUL, result.dtype, (result, factor))
    return result


def triangle(x: Op, lower: bool, diagonal: float = 1.0) -> Op:
    """Returns one triangle of x, and so much of its diagonal."""
    last = len(x.shape) - 1
    row, column = positions(x.shape, last - 1), positions(x.shape, last)
    inside = compare(OpCode.CMPLT, column, row) if lower else compare(OpCode.CMPLT, row, column)
    on = zeros_like(x) if not diagonal else x if diagonal == 1.0 else x * diagonal
    return where(inside, x, where(compare(OpCode.CMPEQ, row, column), on, zeros_like(x)))


def with_diagonal(x: Op, values: Op) -> Op:
    """Returns x with `values` on its diagonal."""
    last = len(x.shape) - 1
    on = compare(OpCode.CMPEQ, positions(x.shape, last - 1), positions(x.shape, last))
    return where(on, along_rows(values, x), x)


def along_rows(values: Op, x: Op) -> Op:
    """Returns a vector (..., n) as each row of a matrix like x (..., m, n)."""
    return repeat_axes(values, (len(x.shape) - 2,), x.shape)


def along_columns(values: Op, x: Op) -> Op:
    """Returns a vector (..., m) as each column of a matrix like x (..., m, n)."""
    return repeat_axes(values, (len(x.shape) - 1,), x.shape)


def everywhere(values: Op, x: Op) -> Op:
    """Returns a number for each matrix of x, at each of its elements."""
    last = len(x.shape)
    return repeat_axes(values, (last - 2, last - 1), x.shape)


def total(x: Op) -> Op:
    """Returns the sum of the elements of each matrix."""
    return reduce(x, OpCode.ADD, (len(x.shape) - 2, len(x.shape) - 1))


def factors_of(x: Op, m: int, n: int) -> tuple[Op, Op, Op]:
    """Returns the factors (..., m, k), (..., k) and (..., k, n) that lie one after the other in x."""
    first, middle, _ = lengths(m, n)
    batch, k = x.shape[:-1], min(m, n)
    u, s = shrink_axis(x, -1, 0, first), shrink_axis(x, -1, first, first + middle)
    return reshape(u, (*batch, m, k)), s, reshape(shrink_axis(x, -1, first + middle, sum(lengths(m, n))), (*batch, k, n))


def rows_columns(x: Op) -> tuple[int, int]:
    m, n = static_shape(x.shape[-2:])
    return m, n


def diagonal(x: Op) -> Op:
    """Returns the diagonal (..., min(m, n)) of x (..., m, n), whose lengths may be symbolic where they are one.

    k x k elements and k zeros, in rows longer by one: the diagonal is the first column.
    """
    k, batch = x.shape[-1], x.shape[:-2]
    if x.shape[-2] is not k and x.shape[-2] != k:
        k = min(rows_columns(x))
        x = shrink_axis(shrink_axis(x, -2, 0, k), -1, 0, k)
    flat = pad_axis(reshape(x, (*batch, mul(k, k))), -1, 0, k)
    return reshape(shrink_axis(reshape(flat, (*batch, k, add(k, 1))), -1, 0, 1), (*batch, k))
