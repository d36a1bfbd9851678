"""Counts what a graph computes: how many operations forward and reverse mode cost.

In:    roots, and Ops whose values are already there
Out:   `count_ops`
Next:  picograd/engine/realize.py
"""

from __future__ import annotations

from collections.abc import Iterable

from picograd.ir.op import Op, toposort
from picograd.ir.opcode import IDENTITY, MOVEMENT, SOURCES, OpCode

FREE = SOURCES | MOVEMENT | IDENTITY | {OpCode.OUTPUT, OpCode.SINK}


def count_ops(roots: Iterable[Op], known: Iterable[Op] = ()) -> dict[OpCode, int]:
    """Returns how many Ops of each code compute `roots`, without those that `known` is computed by.

    Sources, movement and identities compute nothing and are not counted.

    >>> x = Op(OpCode.BUFFER, dtypes.float32, (), ("x", ()))
    >>> count_ops([x * x + x])
    {OpCode.MUL: 1, OpCode.ADD: 1}
    """
    before = set(toposort(known))
    counts: dict[OpCode, int] = {}
    for op in toposort(roots):
        if op.code not in FREE and op not in before:
            counts[op.code] = counts.get(op.code, 0) + 1
    return counts
