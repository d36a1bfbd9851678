"""Which values change when others do, by way of differentiable Ops, through graphs and through the steps of a LOOP.

In:    graphs, bodies, and the Ops or PARAMs that change
Out:   `varying`, `active_slots`
Next:  picograd/autodiff/derivative.py
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode


def is_differentiable(op: Op) -> bool:
    """True where a change of its sources may change an Op smoothly."""
    return (op.dtype.kind == "f" or op.code in SEVERAL_RESULTS) and op.code is not OpCode.DETACH


def varying(roots: Iterable[Op], start: Collection[Op] | Collection[int]) -> set[Op]:
    """Returns the Ops below `roots` that change with those in `start`, which are Ops or slots of PARAMs."""
    found: set[Op] = set()
    for op in toposort(roots):
        begins = op in start or (op.code is OpCode.PARAM and op.arg[0] in start)
        if begins or (is_differentiable(op) and not found.isdisjoint(op.src)):
            found.add(op)
    return found


def active_slots(body: Op, num_carry: int, start: Collection[int]) -> set[int]:
    """Returns the slots of a LOOP's body that change, at some step, with those in `start`."""
    slots = set(start)
    while True:
        found = varying(body.src, slots)
        more = {i for i in range(num_carry) if body.src[i] in found} - slots
        if not more:
            return slots
        slots |= more
