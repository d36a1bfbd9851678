"""First values, such as random weights and zeros, which are computed before the steps of a program.

In:    first values of leaves and of tensors that are written to, and constants that need memory of their own
Out:   `compute_first`: has them computed before the next plan;  `take_starts`: those of them that need a kernel;
       `begin_apart`: makes a constant one tensor's own;  `store_if_apart`;  `evaluate_first`, `evaluated`

A kernel that draws weights runs once, but takes 10 ms to compile, on a GPU more than 100; NumPy draws a small tensor in one
or two. So the evaluator computes small first values. Graphs of a form that comes a second time are left to a plan, since
they may come again. Both give the same bits, because only Ops whose rounding IEEE 754 fixes are evaluated.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

from picograd.autodiff.gradient import written_out
from picograd.dtype import float32, float64
from picograd.engine.devices import default_device
from picograd.engine.known import look_at
from picograd.engine.plan import order_of
from picograd.engine.realize import devices_of, from_host, to_host
from picograd.errors import OutOfMemoryError
from picograd.evaluator.graph import evaluate
from picograd.interrupts import Latest
from picograd.ir.op import Op, is_memory, unshared
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import Cell, pending, replace_op, trace

ELEMENTS_MAX = 1 << 17  # of all graphs of one form: NumPy draws them in 8 ms
EXACT = frozenset({
    OpCode.LEAF, OpCode.DETACH, OpCode.CONST, OpCode.IOTA, OpCode.THREEFRY, OpCode.RESHAPE, OpCode.PERMUTE, OpCode.EXPAND,
    OpCode.PAD, OpCode.SHRINK, OpCode.CAST, OpCode.BITCAST, OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.NEG,
    OpCode.SQRT, OpCode.SHL, OpCode.SHR, OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.CMPLT, OpCode.CMPNE, OpCode.WHERE,
})  # fmt: skip
COMPOSED = frozenset({OpCode.FORMULA, OpCode.OUTPUT})  # they are asked when they are written out
_met: Latest[Hashable, None] = Latest(1024)  # keys of graphs that were computed here, or that need kernels


# ---- values that begin something ----
def compute_first(starts: Iterable[tuple[Op, str | None]]) -> None:
    """Marks values to be computed before the next plan, in a plan of their own; constants only if they `begin_apart`.

    A network begins with them. One kernel makes its random numbers, not each kernel that reads them, and the plan of its
    first step is that of later steps, which find these values in memory.

    Args:
      starts:  values, each with the device of its tensor
    """
    pending.starts += [
        (weakref.ref(op), device)
        for op, device in starts
        if not is_memory(op) and (begins_apart(op) or devices_of([op])[0] is not None)
    ]


def take_starts() -> list[Op]:
    """Takes all first values; stores constants, evaluates small graphs, and returns those that need a kernel.

    Constants are stored from the host.
    """
    starts, pending.starts = [(reference(), device) for reference, device in pending.starts], []
    left = {op: device for op, device in starts if op is not None and not is_memory(op)}
    for op, device in left.items():
        store_if_apart(op, device)
    rest = [op for op in left if not begins_apart(op)]
    evaluate_first(rest)
    return [op for op in rest if op.realized is None]


def evaluate_beginnings() -> None:
    """Computes values written before the first plan, such as random weights, if that needs no kernel."""
    evaluate_first([cell.op for cell in pending.writes.living()])


# ---- constants with memory of their own ----
def begin_apart(cell: Cell) -> None:
    """Gives a constant that will be trained or written to, such as zeros, an Op and memory of its own.

    Equal constants otherwise share one Op.
    """
    op = cell.op
    if is_fill(op) and trace.get() is None:
        replace_op(cell, op, apart(op))


def apart(fill: Op) -> Op:
    """Returns the same constant as an Op that no other tensor has."""
    return unshared(fill.code, fill.dtype, fill.src, fill.arg, fill.shape, False)


def begins_apart(op: Op) -> bool:
    """True for a constant with an Op of its own."""
    return is_fill(op) and Op(op.code, op.dtype, op.src, op.arg) is not op


def store_if_apart(op: Op, device: str | None) -> bool:
    """Stores a constant with an Op of its own, as a plan would compute equal ones once; returns whether it did.

    It stays a constant if there is no memory.
    """
    if op.realized is None and begins_apart(op):
        with suppress(OutOfMemoryError):
            op.realized = stored_fill(op, device)
    return op.realized is not None


def is_fill(op: Op) -> bool:
    """True for one value broadcast to a fixed shape."""
    return op.code is OpCode.EXPAND and op.src[0].code is OpCode.CONST and all(dim.__class__ is int for dim in op.shape)


def stored_fill(fill: Op, device: str | None) -> Op:
    """Returns memory that holds a constant, written by the host, since a kernel would run only once."""
    value = np.broadcast_to(np.asarray(fill.src[0].arg, fill.dtype.numpy), cast("tuple[int, ...]", fill.shape))
    return from_host(value, fill.dtype, device or default_device())


# ---- the evaluator ----
def evaluate_first(graphs: Sequence[Op]) -> None:
    """Computes small new graphs that read memory by the evaluator; they then have their value as `realized`."""
    alike: dict[Hashable, list[Op]] = {}
    devices: dict[Hashable, str] = {}
    for op in dict.fromkeys(graphs):
        seen = None if is_memory(op) else look_at([op])
        if seen is not None and seen.key not in _met:
            alike.setdefault(seen.key, []).append(op)
            devices[seen.key] = seen.buffers[0].device
    for key, ops in alike.items():
        for op, array in zip(ops, evaluated(ops) or ()):
            op.realized = from_host(array, op.dtype, devices[key])
        _met.put(key, None)


def evaluated(graphs: Sequence[Op]) -> Sequence[np.ndarray[Any, Any]] | None:
    """Returns the values of small graphs by the evaluator; None if a kernel might give other bits."""
    if not all(op.code in COMPOSED or _may_be_evaluated(op) for op in order_of(graphs)):
        return None  # before a long graph is written out in vain
    wholes = written_out(graphs)
    order = order_of(wholes)
    if sum(op.numel for op in graphs) > ELEMENTS_MAX or not all(map(_may_be_evaluated, order)):
        return None
    return evaluate(wholes, {op: to_host(op.realized or op) for op in order if is_memory(op)})


def _may_be_evaluated(op: Op) -> bool:
    """True for small memory, and for small Ops with numbers as lengths for which every device gives the same bits."""
    is_exact = op.code in EXACT and (op.dtype.kind != "f" or op.dtype in (float32, float64))
    is_small = all(dim.__class__ is int for dim in op.shape) and op.numel <= ELEMENTS_MAX
    return (is_exact or is_memory(op)) and is_small
