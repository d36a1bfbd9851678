"""Small graphs whose plan is known: one walk tells what they are, where the form that a plan is made of takes four.

In:    an Op that somebody wants the value of
Out:   `look_at`: `Seen`, what tells it from other graphs and the memory it reads; `Known`: the plan of such a graph
Called by: engine/realize.py

Eager code computes the same few graphs again and again. What is here is as exact as a form, if less general: what a form
frees of its values (symbolic integers), and what would need its words (an index that may be outside) is left to it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from picograd.engine.plan import MAY_FAIL
from picograd.ir.bodies import WITH_BODY
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Plan

MOST_OPS = 32  # of a graph that is looked at: of a larger one the form is a small part of what it costs
LEFT_TO_FORMS = MAY_FAIL | WITH_BODY | {OpCode.BIND, OpCode.COPY}


class Known(NamedTuple):
    """The plan of a graph.

    takes:  for each input of the plan which of the graph's buffers it is
    """

    plan: Plan
    takes: tuple[int, ...]


class Seen(NamedTuple):
    """A small graph as it is looked at.

    key:      what a plan for it depends on, and the device
    buffers:  what it reads, all of one device
    """

    key: Hashable
    buffers: list[Buffer]


def look_at(root: Op) -> Seen | None:
    """Returns what a graph is; None where only a form can tell, or it is no graph any more.

    The walk goes from the root to the sources, and an Op that it meets again is told by its number: equal walks are of
    equal graphs.
    """
    if root.code is OpCode.BUFFER or root.realized is not None:
        return None
    key: list[Hashable] = []
    number: dict[Op, int] = {}
    slots: dict[Buffer, int] = {}
    stack = [root]
    while stack:
        op = stack.pop()
        if op in number:
            key.append(number[op])
            continue
        number[op] = len(number)
        code = op.code
        leaf = op if code is OpCode.BUFFER else op.realized
        if leaf is not None:
            buffer, shape = leaf.arg
            key.append((slots.setdefault(buffer, len(slots)), leaf.dtype, shape))
        elif code is OpCode.CONST:
            key.append(op)  # which tells -0.0 from 0.0
        elif code in LEFT_TO_FORMS or len(number) > MOST_OPS:
            return None
        else:
            key.append((code, op.dtype, None if code is OpCode.LEAF else op.arg, len(op.src)))
            stack += op.src
    buffers = [*slots]
    if not buffers or len({buffer.device for buffer in buffers}) > 1:
        return None
    key.append(buffers[0].device)
    return Seen(tuple(key), buffers)
