"""`.data`: what storage holds, seen without gradients; put aside, replaced, brought back.

In:    a tensor, and what is to take the place of its storage's value
Out:   `StoredData`
Next:  picograd/tensor/gradients.py
"""

from __future__ import annotations

from typing import Self

from picograd.annotations import shown
from picograd.errors import ArgumentTypeError, DTypeError
from picograd.ir.lines import record
from picograd.ir.opcode import OpCode
from picograd.living import LivingKeys, LivingValues
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, set_op, trace
from picograd.tensor.change import note_move
from picograd.tensor.core import TensorCore
from picograd.tensor.exchange.sharing import is_shared
from picograd.tensor.growth import settle

Kept = LivingValues[tuple[int, int], TensorCore]  # by the trace in which it was made, and itself
kept_data: LivingKeys[Cell, Kept] = LivingKeys()  # what `.data` has shown of storage


class StoredData(TensorCore):
    """data."""

    __slots__ = ()

    @property
    def data(self) -> Self:
        """The same storage with no gradient; what is assigned takes the storage's place, of any shape and dtype.

        Assigning leaves what `.data` gave before as it was: values can be put aside and brought back.

        >>> weight = Tensor([1.0, 2.0], requires_grad=True)
        >>> kept = weight.data
        >>> weight.data = Tensor([3.0, 4.0])
        >>> kept
        Tensor([1., 2.])
        """
        kept = self.detach()
        kept_data.setdefault(self.cell, Kept())[id(trace.get()), id(kept)] = kept
        return kept

    @data.setter
    def data(self, value: TensorCore) -> None:
        if not isinstance(value, TensorCore):
            raise ArgumentTypeError(f"data: must be a tensor, got {shown(value)}.", hint="Tensor(value)")
        op, device = detached(value.read()), value.cell.device
        self._leave_behind()
        is_view = any(code not in (OpCode.LEAF, OpCode.DETACH) for code, _ in self.steps)
        if trace.get() is not None or is_view or is_shared(self.cell):
            self.detach().assign(value)
            return
        if self.requires_grad and not value.dtype.is_float:
            raise DTypeError(f"data: only floats have gradients, got {value.dtype} of shape {value.shape}.")
        before, self.cell.device = self.cell.kind(), device or self.cell.device
        set_op(self.cell, op)
        if self.cell.kind() != before:
            note_move()
        record(op)
        settle(self.cell, op)

    def _leave_behind(self) -> None:
        """Gives what `.data` has shown of this storage, and is still held, the value as storage of its own."""
        active, shown = trace.get(), kept_data.get(self.cell, Kept())
        kept = {key: one for key, one in shown.items() if key[0] == id(active)}
        if not kept:
            return
        if active is not None:
            active.on_read(self.cell)
        cell = Cell(detached(self.cell.op), self.cell.device)
        kept_data[cell] = left = Kept()
        for key, one in kept.items():
            one.cell, one._shown = cell, None
            left[key] = one
            del shown[key]
