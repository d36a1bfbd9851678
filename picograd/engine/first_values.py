"""Computes what a program begins with, such as random weights, by the evaluator where that is quicker than a kernel.

A kernel that draws a weight runs once. It takes 10 ms to compile, on a GPU more than 100; NumPy draws a small weight in one
or two. When graphs of a kind come a second time they are left to a plan: they may come a third time. Both have the same
bits, for only Ops are evaluated whose result IEEE 754 rounds in one way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from picograd.autodiff.gradient import written_out
from picograd.dtype import float32, float64
from picograd.engine.known import look_at
from picograd.engine.plan import order_of
from picograd.engine.realize import from_host, to_host
from picograd.evaluator.graph import evaluate
from picograd.interrupts import Latest
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

MOST_ELEMENTS = 1 << 17  # of graphs of one kind together: NumPy draws them in 8 ms
EXACT = frozenset({
    OpCode.LEAF, OpCode.DETACH, OpCode.CONST, OpCode.IOTA, OpCode.THREEFRY, OpCode.RESHAPE, OpCode.PERMUTE, OpCode.EXPAND,
    OpCode.PAD, OpCode.SHRINK, OpCode.CAST, OpCode.BITCAST, OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.NEG,
    OpCode.SQRT, OpCode.SHL, OpCode.SHR, OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.CMPLT, OpCode.CMPNE, OpCode.WHERE,
})  # fmt: skip
_evaluated: Latest[Hashable, None] = Latest(1024)  # short keys of graphs that have been computed here


def evaluate_first(graphs: Sequence[Op]) -> None:
    """Computes small graphs that read memory, and are new, by the evaluator; they then have their value as `realized`."""
    alike: dict[Hashable, list[Op]] = {}
    devices: dict[Hashable, str] = {}
    for op in dict.fromkeys(graphs):
        seen = None if _is_memory(op) else look_at([op])
        if seen is not None and seen.key not in _evaluated:
            alike.setdefault(seen.key, []).append(op)
            devices[seen.key] = seen.buffers[0].device
    for key, ops in alike.items():
        wholes = written_out(ops)
        order = order_of(wholes)
        if sum(op.numel for op in ops) <= MOST_ELEMENTS and all(map(_may_be_evaluated, order)):
            memory = {op: to_host(op.realized or op) for op in order if _is_memory(op)}
            for op, array in zip(ops, evaluate(wholes, memory)):
                op.realized = from_host(array, op.dtype, devices[key])
            _evaluated.put(key, None)


def _is_memory(op: Op) -> bool:
    return op.code is OpCode.BUFFER or op.realized is not None


def _may_be_evaluated(op: Op) -> bool:
    """True for small memory and small Ops of which every device gives the same bits, with lengths that are numbers."""
    is_exact = op.code in EXACT and (op.dtype.kind != "f" or op.dtype in (float32, float64))
    is_small = all(dim.__class__ is int for dim in op.shape) and op.numel <= MOST_ELEMENTS
    return (is_exact or _is_memory(op)) and is_small
