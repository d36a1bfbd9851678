"""Graphs that grow without bound: noticed, computed, and mentioned once for each line.

In:    a value just made
Out:   `expect`, `settle_choice`, `settle_step`; `settle`: computes it where its graph is very long, as in
       x = x * 0.9 + 1  in a loop that never reads x
Called by: tensor/core.py, tensor/autograd.py, tensor/stored_data.py, tensor/creation/random.py,
           tensor/reductions/reduce.py.
Next: picograd/tensor/exchange/sharing.py

Results are the same, only computed earlier. A value that needs gradients keeps its graph, for backward(); that the graph
grows is mentioned all the same.
"""

from __future__ import annotations

import warnings
from itertools import islice

from picograd.errors import Line, user_line
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.living import LivingSet
from picograd.tensor.cell import Cell, grad_mode, trace
from picograd.tensor.compute import compute, compute_writes

MAX_DEPTH = 20_000  # of a graph that is not computed yet: a network of 100 layers has half of that, gradients included
MAX_LIVE = 50_000  # Ops alive: with more of them, it is measured now and then whether one graph has most of them
MOST_WRITES = 32  # in place to one tensor, as in  counts[a, b] += 1  in a loop, before they are computed
CHOICE_OPS = 64  # of a graph that is computed once something is chosen by it
STEP_OPS = 256  # of a graph that is computed before numbers are drawn again
NEWEST = 16  # values of which one may be what a loop carries on
EVERY = 16  # a graph is measured where the depth of its root is a multiple of this

long_gradients: LivingSet[Cell] = LivingSet()  # of a deep network, maybe not computed yet
plain_cells: LivingSet[Cell] = LivingSet()  # made where no gradients are recorded, maybe not computed yet
_mentioned: set[Line | None] = set()


class _Watch:
    """When to look for a long graph next.

    limit:  graphs are measured once so many Ops are alive
    left:   how many Ops may still be counted, in graphs of which none has most of them, before `limit` is raised
    """

    limit = MAX_LIVE
    left = EVERY * MAX_LIVE


def settle(cell: Cell, op: Op, num_writes: int = 0) -> None:
    """Computes `op`, the value of `cell`, if that is a graph that has grown step by step. Mostly three comparisons.

    Args:
      num_writes:  in place that it consists of
    """
    if num_writes >= MOST_WRITES and not op.needs_grad:
        compute_writes(cell)
        return
    if op.depth >= MAX_DEPTH and not op.needs_grad:
        is_long = unrealized(op, MAX_DEPTH // 4) >= MAX_DEPTH // 4
    elif len(Op.interned) >= _Watch.limit and op.depth % EVERY == 0:
        is_long = _has_most(op)
    else:
        return
    if not is_long or trace.get() is not None:
        return
    line = user_line()
    if not op.needs_grad:
        compute([cell], (), long_gradients.living())  # what they share is computed once
        long_gradients.clear()
        _Watch.limit, _Watch.left = MAX_LIVE, EVERY * MAX_LIVE
    if line not in _mentioned:
        _mentioned.add(line)
        _mention(op, line)


def settle_choice(chosen: Cell) -> None:
    """Computes what was drawn or chosen where no gradients are recorded, and all that is alive of what was made there.

    A loop that goes on from its own choices, as one that writes text does, would be one graph of all its steps. What lives
    on, such as a cache, is what PyTorch would hold in memory.
    """
    if not grad_mode.get() and trace.get() is None and unrealized(chosen.op, CHOICE_OPS) >= CHOICE_OPS:
        compute([chosen], (), plain_cells.living())
        plain_cells.clear()


def settle_step() -> None:
    """Computes what is alive where numbers are drawn again and no gradients are recorded, if that is a long graph.

    A loop that takes noise away step by step would be one graph of all its steps, each a network and each with numbers of
    its own; step by step, they have one form.
    """
    if grad_mode.get() or trace.get() is not None:
        return
    references = islice(reversed(list(plain_cells.values())), NEWEST)
    newest = [cell for reference in references if (cell := reference()) is not None]
    graphs = [op for cell in newest if isinstance(op := cell.content, Op) and op.depth >= STEP_OPS // 8]
    if any(unrealized(op, STEP_OPS) >= STEP_OPS for op in graphs):
        compute((), (), plain_cells.living())
        plain_cells.clear()


def expect(cell: Cell) -> None:
    """Leaves the gradient in `cell` a graph; if it is a long one, it is computed with the next value that is."""
    if cell.op.depth >= MAX_DEPTH // 2:
        long_gradients.add(cell)


def _has_most(op: Op) -> bool:
    """True when the graph of `op` alone has half as many Ops as `limit`."""
    most = _Watch.limit // 2
    num_ops = unrealized(op, most)
    _Watch.left -= num_ops
    has_most = num_ops >= most
    if has_most and not op.needs_grad:
        return True
    # A graph for backward() is not computed here, and many small graphs are no long one: either way the Ops stay. So that
    # they are not measured again and again, the next look is when half as many more are alive.
    if has_most or _Watch.left < 0:
        _Watch.limit = 3 * max(_Watch.limit, len(Op.interned)) // 2
        _Watch.left = EVERY * _Watch.limit
    return has_most


def unrealized(root: Op, most: int) -> int:
    """Returns how many Ops have to be computed for `root`, counted up to `most`."""
    seen = {root}
    stack = [root]
    left = most
    while stack and len(seen) < left:
        op = stack.pop()
        if op.realized is None:
            if op.code is OpCode.FORMULA:
                left -= op.arg.num_ops - 1
            for s in op.src:
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
    return len(seen) + most - left


def _mention(op: Op, line: Line | None) -> None:
    """Warns of a graph that grows, on the user's line."""
    if op.needs_grad:
        fact = (
            f"a result of shape {op.shape} has a graph of more than {MAX_LIVE // 2} operations that grows from step to step"
            " and is kept for backward()."
        )
        hint = "total += loss.detach() or loss.item(), or backward() now and then, lets go of it."
    else:
        fact = (
            f"a value of shape {op.shape} depends on a very long graph that was never computed, as one carried through a "
            "loop does; it is computed now, and every time it has grown as long again."
        )
        hint = "x.realize() in the loop computes it step by step."
    text = "\n".join([fact, *([f"  at {line}"] if line is not None else []), f"  hint: {hint}"])
    if line is None:
        warnings.warn(text, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, line.file, line.number)
