"""Makes MATMULs and a softmax of attentions and their gradients where there is no kernel of them.

In:    graphs
Out:   graphs with the same values

What an attention is composed of stands in ir/attention.py: its second derivatives are made of the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from picograd.ir.attention import composed
from picograd.ir.bodies import map_bodies
from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ATTENTIONS, OpCode


def compose_attention(roots: Sequence[Op], has_kernel: Callable[[Op], bool] = lambda op: False) -> list[Op]:
    """Replaces attentions and their gradients, also in the bodies of CALLs and LOOPs.

    Args:
      has_kernel:  whether the device has a kernel of one; none has by default

    After:   no ATTENTION and no ATTENTION_GRAD is left that has no kernel; scores (B, G, R T, S) are values like any other.
    Cost:    one walk where there are none.

    Example: OUTPUT(ATTENTION(q, k, v), 0)  ->  MATMUL(softmax(MATMUL(q, PERMUTE(k)) * scale), v)
    """
    return _compose(map_bodies(roots, partial(_compose, has_kernel=has_kernel)), has_kernel)


def _compose(roots: Sequence[Op], has_kernel: Callable[[Op], bool]) -> list[Op]:
    """Returns the graph with the composition in the place of each attention that has no kernel."""
    order = toposort(roots)
    chosen = {op for op in order if op.code in ATTENTIONS and not has_kernel(op)}
    if not chosen:
        return list(roots)
    became: dict[Op, Op] = {}
    results: dict[Op, list[Op]] = {}
    for op in order:
        if op.code is OpCode.OUTPUT and op.src[0] in results:
            new = results[op.src[0]][op.arg]
        else:
            new = op.replace(tuple(became[s] for s in op.src))
        if op in chosen:
            results[op] = composed(new)
            new = results[op][0]
        became[op] = new
        copy_lines(op, new)
    return [became[root] for root in roots]

