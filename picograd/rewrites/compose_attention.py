"""Makes MATMULs and a softmax of every ATTENTION and every ATTENTION_GRAD, for devices without a kernel of them.

In:    graphs
Out:   graphs with the same values
Next:  picograd/ir/attention.py

What an attention is composed of stands in ir/attention.py: its second derivatives are made of the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.ir.attention import composed
from picograd.ir.bodies import map_bodies
from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ATTENTIONS, OpCode


def compose_attention(roots: Sequence[Op]) -> list[Op]:
    """Replaces attentions and their gradients, also in the bodies of CALLs and LOOPs.

    After:   no ATTENTION and no ATTENTION_GRAD is left; scores (B, G, R T, S) are values like any other.
    Cost:    one walk where there are none.

    Example: OUTPUT(ATTENTION(q, k, v), 0)  ->  MATMUL(softmax(MATMUL(q, PERMUTE(k)) * scale), v)
    """
    return _compose(map_bodies(roots, _compose))


def _compose(roots: Sequence[Op]) -> list[Op]:
    order = toposort(roots)
    if ATTENTIONS.isdisjoint([op.code for op in order]):
        return list(roots)
    became: dict[Op, Op] = {}
    results: dict[Op, list[Op]] = {}
    for op in order:
        if op.code is OpCode.OUTPUT and op.src[0] in results:
            new = results[op.src[0]][op.arg]
        else:
            new = op.replace(tuple(became[s] for s in op.src))
        if op.code in ATTENTIONS:
            results[op] = composed(new)
            new = results[op][0]
        became[op] = new
        copy_lines(op, new)
    return [became[root] for root in roots]
