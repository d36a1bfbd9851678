"""Who still reads a parameter when it is about to be overwritten.

In:    tensors to compute, and the leaf Ops whose values they replace
Out:   everything computed in one plan
Next:  picograd/optim/declared.py

A loss or a gradient that nobody has computed yet reads the old parameters. It is computed in the same plan, so that
the forward pass runs once and the old memory can be used again. Its graph is then dropped; a later backward()
through it says so, where PyTorch says that a variable was modified in place.

Any other result, an activation that a local variable still names, is put off: it is computed from the old parameters if
somebody asks for it, and mostly nobody does. Where somebody has asked, or where a result outlives the next step of its
optimizer, results of that line are computed with the step from then on. So the plan of a step does not depend on which
locals are alive, and stores none of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from picograd.engine.realize import copied
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.living import LivingKeys
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, replace_op, trace
from picograd.tensor.compute import compute, compute_unasked
from picograd.tensor.core import TensorCore, differentiable_cells, leaf_ids, leaf_tensors
from picograd.tensor.core import realize as realize_tensors
from picograd.tensor.gradient_flow import stale_leaves

Place = tuple[Hashable, ...]  # the line that made a result, and the result's kind
_asked_for: set[Place] = set()
_put_off: LivingKeys[Cell, tuple[Place, Hashable]] = LivingKeys()


class PutOff(Cell):
    """Storage of a result that was put off: the first who asks for its value makes it a Cell again."""

    __slots__ = ()

    @property
    def op(self) -> Op:
        """The value, as a graph over the old parameters."""
        self.ask()
        return self.op

    @op.setter
    def op(self, op: Op) -> None:
        self.ask()
        self.op = op

    def ask(self) -> None:
        """Takes note that results of this place are asked for."""
        place, _ = _put_off.pop(self, ((), None))
        _asked_for.add(place)
        self.__class__ = Cell  # type: ignore[assignment]  # of the same slots


def realize_apart(tensors: Sequence[TensorCore]) -> None:
    """Computes tensors; those that begin with equal values, as zeros do, get memory of their own nevertheless.

    So the first step, which reads them, has the form of those after it, and needs no plan and no kernels of its own.
    """
    realize_tensors(tensors)
    taken = set()
    for cell in dict.fromkeys(tensor.cell for tensor in tensors) if trace.get() is None else ():
        held = cell.held()
        if held is not None and held[0] in taken:
            held = copied(held[0]), held[1]
            Cell.hold([cell], [held])
        taken.add(held and held[0])


def realize_with_readers(tensors: Iterable[TensorCore], replaced: Sequence[Op], values: Mapping[Cell, Op]) -> None:
    """Computes tensors, all pending gradients, and what is wanted of the live results that read `replaced`, in one plan.

    Args:
      values:  of cells, which they get once everything has been computed
    """
    owner = replaced[0].arg if replaced else None
    _compute_late(owner)
    # NOTE: other threads make leaves and results meanwhile; only copies made at once can be walked.
    grads = [leaf._grad for leaf in leaf_tensors.values()]
    pending = [grad.cell for grad in grads if isinstance(grad, TensorCore)]
    readers = _readers({cell: cell.op for cell in differentiable_cells.living()}, set(replaced))
    wanted = {cell: op for cell, op in readers.items() if op.shape == () or _place(op) in _asked_for}
    Cell.put(values, compute([tensor.cell for tensor in tensors], [*values.values()], [*pending, *wanted]))
    for cell, op in readers.items():
        if cell in wanted and op.realized is not None:
            _drop_graph(cell, op, op.realized)
        elif _drop_graph(cell, op):
            _put_off[cell] = _place(op), owner
            cell.__class__ = PutOff


def _place(op: Op) -> Place:
    return op.lines[:1], op.code, op.dtype, len(op.shape)


def _compute_late(owner: Hashable) -> None:
    """Computes what the last step of an optimizer put off and somebody still holds: it keeps the old parameters alive."""
    if not _put_off.data:
        return
    late = [cell for cell, (_, by) in _put_off.items() if by == owner]
    ops = [cell.op for cell in late]
    for cell, op, buffer in zip(late, ops, compute_unasked(ops)):
        if buffer is not None:  # or it fails, where somebody asks for it
            _drop_graph(cell, op, buffer)


def _drop_graph(cell: Cell, op: Op, buffer: Op | None = None) -> bool:
    """Keeps the value of a result and marks it: it needs gradients that nobody can compute any more.

    Args:
      buffer:  holds the value, where it has been computed

    Returns:   whether the cell still had the result
    """
    leaf = Op(OpCode.LEAF, op.dtype, (buffer or detached(op),), next(leaf_ids))
    stale_leaves.add(leaf)
    leaf.realized = buffer
    dropped = replace_op(cell, op, leaf)
    if dropped:
        differentiable_cells.discard(cell)
    return dropped


def _readers(cells: Mapping[Cell, Op], replaced: set[Op]) -> dict[Cell, Op]:
    """Returns the cells, with what they hold, whose graphs reach a replaced leaf through differentiable Ops.

    Cost: the Ops of the graphs that reach none, and of the others those on the first way down that does.
    """
    reads: dict[Op, bool] = dict.fromkeys(replaced, True)
    for op in cells.values():
        path = [] if op in reads else [(op, iter(op.src))]
        while path:
            here, sources = path[-1]
            source = next((s for s in sources if s.needs_grad and reads.get(s) is not False), None)
            if source is None:
                reads[here] = False
                path.pop()
            elif source in reads:
                reads.update((above, True) for above, _ in path)
                path = []
            else:
                path.append((source, iter(source.src)))
    return {cell: op for cell, op in cells.items() if reads[op]}
