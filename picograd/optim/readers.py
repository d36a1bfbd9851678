"""Who still reads a parameter when it is about to be overwritten.

In:    tensors to compute, and the leaf Ops whose values they replace
Out:   everything computed in one plan
Next:  picograd/optim/counted.py

A loss or a gradient that nobody has computed yet reads the old parameters. It is computed in the same plan, so that
the forward pass runs once and the old memory can be used again. Its graph is then dropped; a later backward()
through it says so, where PyTorch says that a variable was modified in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from picograd.engine.realize import realized
from picograd.ir.checks import Refused
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import Cell, replace_op
from picograd.tensor.compute import compute
from picograd.tensor.core import TensorCore, differentiable_cells, leaf_ids, leaf_tensors
from picograd.tensor.gradient_flow import stale_leaves


def realize_with_readers(tensors: Iterable[TensorCore], replaced: Iterable[Op]) -> None:
    """Computes tensors, all pending gradients and all live results that read `replaced`, in one plan."""
    cells = [tensor.cell for tensor in tensors]
    # NOTE: other threads make leaves and results meanwhile; only copies made at once can be walked.
    leaves = [reference() for reference in leaf_tensors.valuerefs()]
    cells += [leaf._grad.cell for leaf in leaves if leaf is not None and leaf._grad is not None]
    results = [reference() for reference in list(differentiable_cells.data)]  # type: ignore[attr-defined]
    readers = _readers({cell: cell.op for cell in results if cell is not None}, set(replaced))
    try:
        buffers = compute(cells, list(readers.values()))
    except Refused as error:
        for cell, op in readers.items():  # or they would fail every later step too, for as long as somebody holds them
            if error.check in toposort([op], stop=realized):
                differentiable_cells.discard(cell)
        raise
    for (cell, op), buffer in zip(readers.items(), buffers):
        _drop_graph(cell, op, buffer)


def _drop_graph(cell: Cell, op: Op, buffer: Op) -> None:
    """Keeps the value of a result and marks it: it needs gradients that nobody can compute any more."""
    leaf = Op(OpCode.LEAF, buffer.dtype, (buffer,), next(leaf_ids))
    stale_leaves.add(leaf)
    leaf.realized = buffer
    if replace_op(cell, op, leaf):
        differentiable_cells.discard(cell)


def _readers(cells: Mapping[Cell, Op], replaced: set[Op]) -> dict[Cell, Op]:
    """Returns the cells, with what they hold, whose graphs reach a replaced leaf through differentiable Ops."""
    reads: dict[Op, bool] = dict.fromkeys(replaced, True)
    for op in cells.values():
        stack = [op]
        while stack:
            op = stack[-1]
            if op not in reads:
                found = False
                for s in op.src:
                    if s.needs_grad and s not in reads:
                        stack.append(s)
                    elif s.needs_grad and reads[s]:
                        found = True
                if stack[-1] is not op:  # it waits for what stands above it
                    continue
                reads[op] = found
            stack.pop()
    return {cell: op for cell, op in cells.items() if reads[op]}
