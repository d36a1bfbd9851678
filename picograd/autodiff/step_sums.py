"""Sums over the steps of a LOOP that are one product: its operands are stacked and multiplied once, after the loop.

In:    what each step would add
Out:   `as_sums`: the products in it;  `contracted`: such a product over all steps
Next:  picograd/autodiff/loops.py

    sum over t of a[t] @ b[t]  =  (a[0] a[1] ...) @ (b[0] over b[1] over ...)         a[t] (M, K), b[t] (K, N)
    sum over t of sum(v[t], axes)  =  sum(v, axes and that of the steps)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.autodiff.split import stored_base
from picograd.ir.build import cast, expand, permute, reduce, reshape
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.shape import numel
from picograd.record import Record


class Sum(Record):
    """A product that each step would add.

    product:  of one step: MATMUL, or REDUCE by ADD
    after:    linear Ops on it, the first one first
    """

    product: Op
    after: tuple[Op, ...]

    def operands(self) -> tuple[Op, ...]:
        """Returns what must be stacked, below views of it."""
        return tuple(stored_base(operand) for operand in self.product.src)


def as_sums(grad: Op) -> tuple[list[Sum], list[Op]]:
    """Returns the products whose sum a gradient is, and the summands that are none."""
    sums: list[Sum] = []
    rest: list[Op] = []
    stack: list[tuple[Op, tuple[Op, ...]]] = [(grad, ())]
    while stack:
        op, after = stack.pop()
        if op.code in MOVEMENT or op.code is OpCode.NEG or (op.code is OpCode.CAST and op.src[0].dtype.is_float):
            stack.append((op.src[0], (op, *after)))
        elif op.code is OpCode.ADD:
            stack += [(op.src[1], after), (op.src[0], after)]
        elif op.code is OpCode.MATMUL or (op.code is OpCode.REDUCE and op.arg[0] is OpCode.ADD):
            sums.append(Sum(op, after))
        else:
            rest.append(_again(op, after))
    return sums, rest


def step_of(part: Sum) -> Op:
    """Returns what one step adds."""
    return _again(part.product, part.after)


def _again(x: Op, after: Sequence[Op]) -> Op:
    for op in after:
        x = op.replace(src=(x,))
    return x


def contracted(part: Sum, rows_of: Callable[[Op], Op], steps: Dim) -> Op:
    """Returns the sum of a product over all steps, from the stacked rows of its operands."""
    stacks = [_rows(operand, rows_of, steps) for operand in part.product.src]
    if part.product.code is OpCode.REDUCE:
        total = reduce(stacks[0], OpCode.ADD, (0, *(axis + 1 for axis in part.product.arg[1])))
        return _again(total, part.after)
    lhs, rhs = stacks
    batch = range(1, len(lhs.shape) - 2)
    row, column = len(lhs.shape) - 2, len(lhs.shape) - 1
    lhs = permute(lhs, (*batch, row, 0, column))  # (..., M, T, K)
    rhs = permute(rhs, (*batch, 0, row, column))  # (..., T, K, N)
    count = numel(lhs.shape[-2:])
    lhs = reshape(lhs, (*lhs.shape[:-2], count))
    rhs = reshape(rhs, (*rhs.shape[:-3], count, rhs.shape[-1]))
    return _again(Op(OpCode.MATMUL, part.product.dtype, (lhs, rhs), part.product.arg), part.after)


def _rows(op: Op, rows_of: Callable[[Op], Op], steps: Dim) -> Op:
    """Returns the rows of `op` from those of its base: the same views, one axis later."""
    views: list[Op] = []
    base = stored_base(op)
    while op is not base:
        views.append(op)
        op = op.src[0]
    rows = rows_of(base)
    for view in reversed(views):
        rows = _later(view, rows, steps)
    return rows


def _later(view: Op, rows: Op, steps: Dim) -> Op:
    """Returns what movement `view` makes of the rows of all steps, which lie along an axis in front."""
    if view.code is OpCode.CAST:
        return cast(rows, view.dtype)
    if view.code is OpCode.RESHAPE:
        return reshape(rows, (steps, *view.shape))
    if view.code is OpCode.PERMUTE:
        return permute(rows, (0, *(axis + 1 for axis in view.arg)))
    if view.code is OpCode.EXPAND:
        if not view.src[0].shape:
            rows = reshape(rows, (steps, *(1,) * len(view.shape)))
        return expand(rows, (steps, *view.shape))
    if view.code is OpCode.FLIP:
        return Op(OpCode.FLIP, rows.dtype, (rows,), tuple(axis + 1 for axis in view.arg))
    whole = (0, 0) if view.code is OpCode.PAD else (0, steps)
    return Op(view.code, rows.dtype, (rows,), (whole, *view.arg))
