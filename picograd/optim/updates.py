"""Updates of a step, put together: all parameters that share formula and settings are one Op.

In:    for each parameter the tensors that a formula writes, and its gradient
Out:   `Updates`: new values by cell, which nobody sees before they have been computed
Next:  picograd/optim/readers.py

    FORMULA (p0, m0, v0, g0, p1, m1, v1, g1, ..., lr, rate, root, beta1, ...), and an OUTPUT for each p, m and v

A step writes three tensors for each parameter of Adam. Written one by one they would be noted as writes in place, each
on the user's line, and taken back one by one where the step fails.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from picograd.ir.formula import by_formula
from picograd.ir.lines import record
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import cast
from picograd.tensor.cell import Cell
from picograd.tensor.exchange.sharing import is_shared
from picograd.tensor.tensor import Tensor

Formula = Callable[..., Sequence[Op]]  # (options, *values of the tensors, gradient, *operands) -> their new values
Key = tuple[Formula, Hashable, int, tuple[Op | float, ...]]  # formula, options, number of tensors, operands


class Updates:
    """Updates that wait for the end of a step.

    by_key:  tensors and gradient of each parameter, by what parameters have in common
    shared:  operands of parameters that have them in common, once they have been read
    """

    def __init__(self) -> None:
        self.by_key: dict[Key, list[tuple[Sequence[Tensor], Op]]] = {}
        self.shared: dict[Hashable, tuple[Any, ...]] = {}

    def add(
        self, formula: Formula, options: Hashable, tensors: Sequence[Tensor], grad: Op, operands: tuple[Op | float, ...]
    ) -> None:
        """Has formula(options, *tensors, grad, *operands) become the values of the tensors."""
        self.by_key.setdefault((formula, options, len(tensors), operands), []).append((tensors, grad))

    def once(self, key: Hashable, read: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Returns the operands of a key, read when the first parameter asks for them."""
        found = self.shared.get(key)
        if found is None:
            found = self.shared[key] = read()
        return found

    def values(self) -> dict[Cell, Op] | None:
        """Returns the new values, as graphs; None where a tensor is a view of others, or of memory somebody else knows."""
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
        """Writes the new values to the tensors, one by one."""
        for (formula, options, _, operands), updates in self.by_key.items():
            for tensors, grad in updates:
                before = [tensor.read() for tensor in tensors]
                for tensor, value in zip(tensors, formula(options, *before, grad, *operands)):
                    tensor.write("step", value)


def _is_leaf(tensor: Tensor) -> bool:
    """Returns whether a tensor shows all of its storage, where gradients are collected."""
    return len(tensor.steps) == 1 and tensor.steps[0][0] is OpCode.LEAF


def _each(options: tuple[Formula, Hashable, int, int], *operands: Any) -> list[Op]:
    """Returns the values of all parameters after their step, in the dtypes in which they are kept."""
    formula, own, num_tensors, num_parameters = options
    stride = num_tensors + 1
    shared = operands[stride * num_parameters :]
    made = []
    for first in range(0, stride * num_parameters, stride):
        before = operands[first : first + num_tensors]
        values = formula(own, *operands[first : first + stride], *shared)
        made += [cast(value, op.dtype) for value, op in zip(values, before)]
    return made
