"""How each Op computes all examples at once: one rule for an opcode, none of which depends on how many there are.

In:    an Op of one example, its operands after the rewrite (one of them, at least, with an axis of examples in front)
Out:   the Op of all examples, their axis in front
Called by: rewrites/vmap.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from picograd.errors import UnsupportedOp
from picograd.ir.attention import outputs
from picograd.ir.build import expand, permute, reshape, static_shape, swap_last
from picograd.ir.host import HostCall
from picograd.ir.op import Op
from picograd.ir.opcode import ELEMENTWISE, IDENTITY, OpCode
from picograd.ir.shape import ConvArg
from picograd.ir.symbolic import mul
from picograd.record import replace
from picograd.rewrites.batch import Examples, Operand, Rule, move_axis


def _elementwise(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace(tuple(operand.each(examples) for operand in operands))


def _leaf(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """Nobody outside collects a gradient at a leaf that was made for one example."""
    return operands[0].op


# ---- movement ----
def _reshape(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return reshape(operands[0].op, (examples.count, *op.shape))


def _permute(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return permute(operands[0].op, (0, *(axis + 1 for axis in op.arg)))


def _expand(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    x = operands[0].op
    if not op.src[0].shape:
        x = reshape(x, (examples.count, *(1 for _ in op.shape)))
    return expand(x, (examples.count, *op.shape))


def _pad(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace((operands[0].op,), ((0, 0), *op.arg))


def _block(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """SHRINK and UPDATE: the block spans all examples."""
    return op.replace(tuple(operand.each(examples) for operand in operands), ((0, examples.count), *op.arg))


def _flip(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace((operands[0].op,), tuple(axis + 1 for axis in op.arg))


# ---- along axes ----
def _reduce(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    operation, axes = op.arg
    return op.replace((operands[0].op,), (operation, tuple(axis + 1 for axis in axes)))


def _scan(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace((operands[0].op,), (op.arg[0], op.arg[1] + 1))


def _sort(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace((operands[0].op,), (op.arg[0] + 1, op.arg[1]))


def _gather(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """x is never repeated: its rows are taken for all examples at once where only the index differs.

    x (batch..., left..., K, right...), index (batch..., J...) -> (batch..., left..., J..., right...)
    """
    (axis, batch), (x, index) = op.arg, operands
    if x.batched and (index.batched or batch):
        return op.replace((x.op, index.each(examples)), (axis + 1, batch + 1))
    if x.batched:
        return op.replace((x.op, index.op), (axis + 1, 0))
    taken = op.replace((x.op, move_axis(index.op, 0, batch)), (axis, batch))  # (batch..., left..., B, J..., right...)
    return move_axis(taken, axis, 0)


def _scatter(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    operation, axis, batch = op.arg
    base, index, updates = operands
    if batch or index.batched:
        return op.replace(tuple(operand.each(examples) for operand in operands), (operation, axis + 1, batch + 1))
    return op.replace((base.each(examples), index.op, updates.each(examples)), (operation, axis + 1, 0))


# ---- contractions ----
def _matmul(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """Examples that share an operand are further rows, or columns, of one product.

    (B, ..., M, K) @ (..., K, N) = (..., B M, K) @ (..., K, N)
    """
    lhs, rhs = operands
    if lhs.batched and rhs.batched:
        return op.replace((lhs.op, rhs.op))
    if rhs.batched:  # (a b)^T = b^T a^T
        return swap_last(_rows_of_all(op, swap_last(rhs.op), swap_last(lhs.op), examples))
    return _rows_of_all(op, lhs.op, rhs.op, examples)


def _rows_of_all(op: Op, lhs: Op, rhs: Op, examples: Examples) -> Op:
    batch = rhs.shape[:-2]
    rows, common = lhs.shape[-2:]
    moved = move_axis(lhs, 0, len(batch))  # (..., B, M, K)
    product = op.replace((reshape(moved, (*batch, mul(examples.count, rows), common)), rhs))
    split = reshape(product, (*batch, examples.count, rows, rhs.shape[-1]))
    return move_axis(split, len(batch), 0)


def _conv(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """Examples are further images where they share w, further outputs where they share x, else further groups."""
    x, w = operands
    arg: ConvArg = op.arg
    count, places = examples.count, op.shape[2:]
    if not w.batched:
        every = reshape(x.op, (mul(count, x.op.shape[1]), *x.op.shape[2:]))
        return reshape(op.replace((every, w.op)), (count, *op.shape))
    outputs, inputs, *taps = static_shape(op.src[1].shape)
    images, each = op.shape[0], outputs // arg.groups
    if not x.batched:
        by_group = move_axis(reshape(w.op, (count, arg.groups, each, inputs, *taps)), 0, 1)  # (groups, B, O / groups, ...)
        made = op.replace((x.op, reshape(by_group, (mul(count, outputs), inputs, *taps))))
        split = move_axis(reshape(made, (images, arg.groups, count, each, *places)), 2, 0)
        return reshape(split, (count, *op.shape))
    channels, *lengths = op.src[0].shape[1:]
    side_by_side = reshape(move_axis(x.op, 0, 1), (images, mul(count, channels), *lengths))
    filters = reshape(w.op, (mul(count, outputs), inputs, *taps))
    (number,) = static_shape((count,))
    made = op.replace((side_by_side, filters), replace(arg, groups=arg.groups * number))
    return move_axis(reshape(made, (images, count, outputs, *places)), 1, 0)


def _custom(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """A function of the host takes any axes in front."""
    if not isinstance(op.arg, HostCall):
        raise UnsupportedOp(f"vmap: the kernel {getattr(op.arg, 'name', op.arg)} has no rule for several examples.")
    return op.replace(tuple(operand.each(examples) for operand in operands))


RULES: Mapping[OpCode, Rule] = {
    **dict.fromkeys(ELEMENTWISE | IDENTITY | {OpCode.COPY}, _elementwise),
    OpCode.LEAF: _leaf,
    OpCode.RESHAPE: _reshape,
    OpCode.PERMUTE: _permute,
    OpCode.EXPAND: _expand,
    OpCode.PAD: _pad,
    OpCode.SHRINK: _block,
    OpCode.FLIP: _flip,
    OpCode.REDUCE: _reduce,
    OpCode.SCAN: _scan,
    OpCode.SORT: _sort,
    OpCode.GATHER: _gather,
    OpCode.SCATTER: _scatter,
    OpCode.UPDATE: _block,
    OpCode.MATMUL: _matmul,
    OpCode.CONV: _conv,
    OpCode.CUSTOM: _custom,
}


def attention(op: Op, operands: Sequence[Operand], examples: Examples) -> list[Op]:
    """Returns the results of the ATTENTION, or its gradients, of all examples, which are further entries of the batch."""
    folded = [operand.each(examples) for operand in operands]
    sources = tuple(reshape(x, (mul(examples.count, x.shape[1]), *x.shape[2:])) for x in folded)
    every = outputs(op.replace(sources))
    return [reshape(result, (examples.count, *one.shape)) for result, one in zip(every, outputs(op))]
