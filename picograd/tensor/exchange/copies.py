"""Copies and pickles of tensors: what shares memory shares it in the copy.

In:    a tensor
Out:   `copied`, `deep_copied`, `reduced`: __copy__, __deepcopy__ and __reduce__ of Tensor
Next:  picograd/tensor/exchange/ufuncs.py

A deep copy has all of the storage that its original is a view of, as in PyTorch, and so all views of one storage that are
copied together. A pickle has it where the view shows all of it; a part, such as a row of a data set, is pickled alone.
Graphs are neither copied nor pickled. As in PyTorch a deep copy of a result that needs gradients is refused, and one that
is pickled comes back as a leaf.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd.dtype import DType
from picograd.errors import GradientError
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, View
from picograd.tensor.core import T, TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


def copied(self: T) -> T:
    """Returns what copy.copy gives: a view of the same storage."""
    return _with_role(self.from_cell(self.cell, self.steps), self)


def deep_copied(self: T, memo: dict[int, Any]) -> T:
    """Returns what copy.deepcopy gives: a view of a copy of the storage, one for all views that `memo` knows."""
    if self.requires_grad and not self.is_leaf:
        raise GradientError(
            f"deepcopy: a tensor of shape {self.shape} is the result of a graph, which a copy would not have.",
            hint="x.detach().clone() has its values; x.clone() is part of the graph.",
        )
    whole = memo.get(id(self.cell))
    if whole is None:
        whole = memo[id(self.cell)] = type(self).from_op(detached(self.cell.op), self.cell.device)
    copy = _with_role(self.from_cell(whole.cell, shown_steps(self)), self)
    memo[id(self)] = copy
    if self.requires_grad:
        copy.requires_grad_()
    if isinstance(self._grad, TensorCore):
        copy._grad = deep_copied(self._grad, memo)
    return copy


def reduced(self: Tensor) -> tuple[Any, ...]:
    """Returns how a tensor is made again; pickle calls it."""
    cell, steps = self.cell, shown_steps(self)
    known = all(isinstance(dim, int) for dim in (*self.op.shape, *cell.op.shape))
    if not known or self.op.numel < cell.op.numel:
        cell, steps = self.from_op(detached(self.op), cell.device).cell, ()
    return _rebuilt, (type(self), cell, steps, self.requires_grad, getattr(self, "_role", None))


def shown_steps(tensor: Tensor) -> View:
    """Returns the steps of a view that change what is shown: none of those that concern gradients."""
    return tuple(step for step in tensor.steps if step[0] not in (OpCode.LEAF, OpCode.DETACH))


def _reduce_cell(cell: Cell) -> tuple[Any, ...]:
    """Returns how a cell is made again; pickle does so once for all of its views."""
    return _cell_of, (TensorCore.from_cell(cell)._host("pickle"), cell.op.dtype)


def _cell_of(array: np.ndarray[Any, Any], dtype: DType) -> Cell:
    return TensorCore(array, dtype).cell


copyreg.pickle(Cell, _reduce_cell)


def _rebuilt(cls: type[T], cell: Cell, steps: View, requires_grad: bool, role: str | None) -> T:
    tensor = cls.from_cell(cell, steps)
    if role is not None:
        tensor._role = role
    return tensor.requires_grad_() if requires_grad else tensor


def _with_role(tensor: T, original: T) -> T:
    """Returns a copy that modules hold as they hold the original."""
    if hasattr(original, "_role"):
        tensor._role = original._role
    return tensor
