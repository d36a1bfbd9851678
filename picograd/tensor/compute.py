"""When values are computed: what is asked for, and in the same plan what has been decided already.

In:    cells and Ops somebody wants the values of
Out:   `compute`; the cells then hold memory
Next:  picograd/ir/opcode.py

Two things join a plan unasked. A write in place is state: if it stayed a graph, x += 1 in a loop would build an ever
longer one. And the gradients of a loss, once backward() was called, share its forward pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from picograd.engine.realize import realize, realized
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import Cell, pending_writes

# For each loss whose backward() was called, the gradients that are not computed yet.
gradients_of: weakref.WeakKeyDictionary[Cell, list[weakref.ref[Cell]]] = weakref.WeakKeyDictionary()


def compute(cells: Iterable[Cell], ops: Sequence[Op] = ()) -> list[Op]:
    """Computes cells, and Ops for which it returns the BUFFER Ops, in one plan with what is pending.

    A cell that needs gradients keeps its graph, for backward(); later readers find its value all the same.
    """
    wanted = list(dict.fromkeys(cell for cell in cells if cell.op.code is not OpCode.BUFFER))
    if not all(map(_known, [*(cell.op for cell in wanted), *ops])):
        for cell in list(wanted):
            grads = (reference() for reference in gradients_of.pop(cell, ()))
            wanted += [grad for grad in grads if grad is not None]
        wanted += list(pending_writes)
        pending_writes.clear()
        wanted = [cell for cell in dict.fromkeys(wanted) if cell.op.code is not OpCode.BUFFER]
    buffers = realize([*(cell.op for cell in wanted), *ops])
    for cell, buffer in zip(wanted, buffers):
        if not cell.op.needs_grad:
            cell.op = buffer
    return buffers[len(wanted) :]


def _known(op: Op) -> bool:
    return op.code is OpCode.BUFFER or op in realized
