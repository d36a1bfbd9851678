"""Puts Ops in the place of others: how bodies get their arguments, and arguments their PARAMs.

In:    graphs, and what stands for some of their Ops
Out:   the graphs with these Ops replaced
Next:  picograd/ir/formula.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode


def substitute(roots: Sequence[Op], places: Mapping[Op, Op]) -> list[Op]:
    """Returns the roots with each Op in `places` replaced; below such an Op nothing is looked at.

    >>> x, y = (Op(OpCode.PARAM, dtypes.float32, (), (slot, ())) for slot in (0, 1))
    >>> substitute([x * x], {x: y}) == [y * y]
    True
    """
    became = dict(places)
    for op in toposort(roots, stop=places):
        if op not in became:
            src = tuple(became[s] for s in op.src)
            became[op] = op.replace(src=src)
            copy_lines(op, became[op])
    return [became[root] for root in roots]


def param(like: Op, slot: int, rows: bool = False) -> Op:
    """Returns PARAM `slot` that stands for `like`, or for one of its rows."""
    return Op(OpCode.PARAM, like.dtype, (), (slot, like.shape[1:] if rows else like.shape))


def numbered(roots: Sequence[Op], inputs: Sequence[Op]) -> tuple[Op, ...]:
    """Returns the roots with PARAM i for the i-th of `inputs`."""
    return tuple(substitute(roots, {op: param(op, slot) for slot, op in enumerate(inputs)}))
