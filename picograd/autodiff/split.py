"""Cuts the gradient of a body in two: what the forward part keeps, and what the backward part computes from that.

In:    graphs of gradients over PARAMs of the body and over the gradients that arrive
Out:   `keep`: the values of the forward part that must be kept;  `RECOMPUTE`, the mark of a body that keeps none
Next:  picograd/autodiff/bodies.py

Not kept is what is there anyway (sources, results), a view of something, and what a few cheap operations make again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from picograd.ir.op import Op, const_value, toposort
from picograd.ir.opcode import COMPARE, IDENTITY, MOVEMENT, OpCode
from picograd.record import Record

RECOMPUTE = "recompute"  # arg of the SINK of a body whose backward part computes it again
CHEAP = COMPARE | IDENTITY | MOVEMENT | {
    OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.NEG, OpCode.DIV, OpCode.RECIPROCAL, OpCode.FMA, OpCode.MAX, OpCode.MIN,
    OpCode.WHERE, OpCode.CAST, OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.FLOOR,
}  # fmt: skip


class Kept(Record):
    """What the backward part reads of the forward part.

    saved:  values that the forward part must give as further results
    reads:  PARAMs, results and saved values that the backward part reads
    """

    saved: tuple[Op, ...]
    reads: tuple[Op, ...]


def keep(gradients: Sequence[Op], seeds: Collection[Op], available: Collection[Op]) -> Kept:
    """Chooses what to keep.

    Args:
      gradients:  graphs over the forward part and `seeds`
      seeds:      PARAMs for the gradients that arrive
      available:  forward values that are there anyway

    Example: gradients [g * tanh(p * 2)], seeds [g], available [p]  ->  saved (tanh(p * 2),)
             gradients [g * (p * 2)]                                ->  saved (), reads (p,)
    """
    order = toposort(gradients, stop=available)
    late = depending(order, seeds, available)
    early = [op for op in order if op not in late]
    read = [s for op in order if op in late for s in op.src]
    needed = {stored_base(op) for op in [*read, *gradients] if op not in late}
    at_hand: set[Op] = set()
    saved: list[Op] = []
    for op in early:
        again = op.code is not OpCode.PARAM and (not op.src or op.code in CHEAP)
        if op in available or (again and at_hand.issuperset(op.src)):
            at_hand.add(op)
        elif op in needed:
            at_hand.add(op)
            saved.append(op)
    return Kept(tuple(saved), reads(gradients, {*available, *saved}))


def depending(order: Sequence[Op], seeds: Collection[Op], available: Collection[Op] = ()) -> set[Op]:
    """Returns those of some Ops, sources first, that depend on the gradients that arrive."""
    late: set[Op] = set()
    for op in order:
        if op in seeds or (op not in available and not late.isdisjoint(op.src)):
            late.add(op)
    return late


def stored_base(op: Op) -> Op:
    """Returns what is stored where `op` is read: what a view shows, what was made wider."""
    while op.code in MOVEMENT or (op.code is OpCode.CAST and op.src[0].dtype.itemsize <= op.dtype.itemsize):
        op = op.src[0]
    return op


def reads(gradients: Sequence[Op], there: Collection[Op]) -> tuple[Op, ...]:
    """Returns which of the values that are there the gradients read."""
    return tuple(op for op in toposort(gradients, stop=there) if op in there)


def constant_part(grad: Op) -> Op | None:
    """Returns a gradient that is one number everywhere, which a body makes itself, else None."""
    return grad if const_value(grad) is not None else None
