"""The new values of a step: parameters that share formula and settings are updated by one Op, in a plan with their readers.

    FORMULA (p0, m0, v0, g0, p1, m1, v1, g1, ..., lr, rate, root, beta1, ...), and an OUTPUT for each p, m and v

Adam writes three tensors per parameter. Separate writes in place would each record the user's line, and each would have to
be undone if the step fails.

A pending loss or gradient is computed in the same plan (tensor/unasked.py lists the other results). Its graph is then
dropped; a later backward() through it raises, as PyTorch's does for a variable that was modified in place. A result that
was put off is computed with the next step of the same optimizer if it is still held.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from picograd.engine.realize import copy_of
from picograd.ir.bodies import by_formula
from picograd.ir.build import cast
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, replace_op, trace
from picograd.tensor.compute import compute, compute_unasked
from picograd.tensor.core import TensorCore, leaf_ids
from picograd.tensor.core import realize as realize_tensors
from picograd.tensor.first_values import evaluate_first
from picograd.tensor.gradients import stale_leaves
from picograd.tensor.sharing import is_shared
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import (
    differentiable_cells,
    leaf_tensors,
    living_readers,
    put_off,
    put_off_until_asked,
    waiting,
)

# ---- updates ----
Formula = Callable[..., Sequence[Op]]  # (options, *values of the tensors, gradient, *operands) -> their new values
Key = tuple[Formula, Hashable, int, tuple[Op | float, ...]]  # formula, options, number of tensors, operands


class Updates:
    """Updates collected during a step.

    by_key:  (tensors, gradient) of each parameter, by the formula, options and operands that parameters share
    shared:  operands that several parameters share, by a key of the optimizer
    """

    def __init__(self) -> None:
        self.by_key: dict[Key, list[tuple[Sequence[Tensor], Op]]] = {}
        self.shared: dict[Hashable, tuple[Any, ...]] = {}

    def add(
        self, formula: Formula, options: Hashable, tensors: Sequence[Tensor], grad: Op, operands: tuple[Op | float, ...]
    ) -> None:
        """Notes that the tensors will become formula(options, *tensors, grad, *operands)."""
        self.by_key.setdefault((formula, options, len(tensors), operands), []).append((tensors, grad))

    def once(self, key: Hashable, read: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Returns the operands of a key; the first call reads them."""
        found = self.shared.get(key)
        if found is None:
            found = self.shared[key] = read()
        return found

    def values(self) -> dict[Cell, Op] | None:
        """Returns the new values, as graphs; None if a tensor is a view of others, or of memory that is shared."""
        values: dict[Cell, Op] = {}
        num_values = 0
        for (formula, options, num_tensors, operands), updates in self.by_key.items():
            cells, src = [], []
            for tensors, grad in updates:
                for tensor in tensors:
                    cell = tensor.cell
                    if (tensor.steps and not _is_leaf(tensor)) or is_shared(cell):
                        return None
                    cells.append(cell)
                    src.append(cell.op)
                src.append(grad)
            kinds = tuple([(op.dtype, op.shape) for i, op in enumerate(src) if i % (num_tensors + 1) < num_tensors])
            made = by_formula(_each, (formula, options, num_tensors, len(updates)), [*src, *operands], kinds)
            record(made[0] if len(made) == 1 else made[0].src[0])
            values.update(zip(cells, made))
            num_values += len(cells)
        return values if len(values) == num_values else None

    def write(self) -> None:
        """Writes the new values one by one."""
        for (formula, options, _, operands), updates in self.by_key.items():
            for tensors, grad in updates:
                before = [tensor.read() for tensor in tensors]
                for tensor, value in zip(tensors, formula(options, *before, grad, *operands)):
                    tensor.write("step", value)


def _is_leaf(tensor: Tensor) -> bool:
    """True for a leaf that shows all of its storage."""
    return len(tensor.steps) == 1 and tensor.steps[0][0] is OpCode.LEAF


def _each(options: tuple[Formula, Hashable, int, int], *operands: Any) -> list[Op]:
    """Returns the new values of all parameters, in the dtypes in which they are stored."""
    formula, own, num_tensors, num_parameters = options
    stride = num_tensors + 1
    shared = operands[stride * num_parameters :]
    made = []
    for first in range(0, stride * num_parameters, stride):
        before = operands[first : first + num_tensors]
        values = formula(own, *operands[first : first + stride], *shared)
        made += [cast(value, op.dtype) for value, op in zip(values, before)]
    return made


# ---- with readers of old parameters ----
def realize_apart(tensors: Sequence[TensorCore]) -> None:
    """Computes tensors; those with equal start values, such as zeros, get separate memory.

    The first step then has the form of all later ones and needs no plan or kernels of its own.
    """
    if trace.get() is None:
        evaluate_first([graph for tensor in tensors if isinstance(graph := tensor.cell.content, Op)])
    realize_tensors(tensors)
    taken = set()
    for cell in dict.fromkeys(tensor.cell for tensor in tensors) if trace.get() is None else ():
        held = cell.held()
        if held is not None and held[0] in taken:
            held = copy_of(held[0]), held[1]
            Cell.hold([cell], [held])
        taken.add(held and held[0])


def realize_with_readers(tensors: Iterable[TensorCore], replaced: Sequence[Op], values: Mapping[Cell, Op]) -> None:
    """Computes, in one plan, tensors, pending gradients, and results worth computing that read `replaced`.

    Args:
      values:  new values of cells, stored once everything has been computed
    """
    owner = replaced[0].arg if replaced else None
    _compute_late(owner)
    grads = [leaf._grad for leaf in leaf_tensors.values()]
    pending = [grad.cell for grad in grads if isinstance(grad, TensorCore)]
    wanted, others = living_readers(set(replaced))
    Cell.put(values, compute([tensor.cell for tensor in tensors], [*values.values()], [*pending, *wanted]))
    waiting.clear()
    for cell, op in {**wanted, **others}.items():
        if cell in wanted and op.realized is not None:
            _drop_graph(cell, op, op.realized)
        elif _drop_graph(cell, op):
            put_off_until_asked(cell, op, owner)


def _compute_late(owner: Hashable) -> None:
    """Computes results that the optimizer's last step put off and that are still held, since they hold old parameters."""
    if not put_off.data:
        return
    late = [cell for cell, (_, by) in put_off.items() if by == owner]
    ops = [cell.op for cell in late]
    for cell, op, buffer in zip(late, ops, compute_unasked(ops)):
        if buffer is not None:  # else its error is raised when the user asks for it
            _drop_graph(cell, op, buffer)


def _drop_graph(cell: Cell, op: Op, buffer: Op | None = None) -> bool:
    """Keeps the value of a result without its graph; a backward() through it raises an error.

    Args:
      buffer:  the computed value, if there is one

    Returns:   whether the cell still held the result
    """
    leaf = Op(OpCode.LEAF, op.dtype, (buffer or detached(op),), next(leaf_ids))
    stale_leaves.add(leaf)
    leaf.realized = buffer
    dropped = replace_op(cell, op, leaf)
    if dropped:
        differentiable_cells.discard(cell)
    return dropped
