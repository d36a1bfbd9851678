"""Values in storage: seen without gradients, put aside, replaced, brought back; written from a tensor or a number.

In:    a tensor, and what is to take the place of its storage's value
Out:   `StoredData`
Next:  picograd/tensor/gradients.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from picograd.annotations import shown
from picograd.dtype import Scalar
from picograd.errors import ArgumentTypeError, DTypeError, ShapeError
from picograd.ir.lines import record
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.living import LivingKeys, LivingValues
from picograd.tensor.build import broadcast_to, detached
from picograd.tensor.cell import Cell, set_op, trace
from picograd.tensor.change import note_move
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.elements.operators import scalar_of
from picograd.tensor.exchange.host import default_device, fitting
from picograd.tensor.exchange.sharing import is_shared
from picograd.tensor.growth import settle
from picograd.tensor.meeting import value_at

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

if TYPE_CHECKING:
    pass


Kept = LivingValues[tuple[int, int], TensorCore]  # by the trace in which it was made, and itself
kept_data: LivingKeys[Cell, Kept] = LivingKeys()  # what `.data` has shown of storage


def shared_data(self: T) -> T:
    """Returns `x.data`: the same storage with no gradient."""
    kept = self.detach()
    kept_data.setdefault(self.cell, Kept())[id(trace.get()), id(kept)] = kept
    return kept


def replace_data(self: Tensor, value: Tensor) -> None:
    """Puts a value of any shape and dtype in the place of the storage's; what `.data` gave before stays as it was."""
    if not isinstance(value, TensorCore):
        raise ArgumentTypeError(f"data: must be a tensor, got {shown(value)}.", hint="Tensor(value)")
    op, device = detached(value.read()), value.cell.device
    _leave_behind(self)
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


def copy_(self: T, source: Operand) -> T:
    """Stores `source`, a tensor or a number, broadcast and cast to this tensor's shape and dtype, in place.

    A tensor of another device is moved to this one's first.

    Raises:
      ShapeError: the source does not broadcast to this shape.

    >>> Tensor.zeros(2).copy_(Tensor([1, 2]))
    Tensor([1., 2.])
    """
    if not isinstance(source, TensorCore):
        return self.fill_(scalar_of("copy_", source))
    if source.cell.device is not None:
        self.cell.device = self.cell.device or default_device()
    value, shape = value_at(source, self.cell.device), self.op.shape
    if len(value.shape) > len(shape) or any(n not in (1, m) for n, m in zip(value.shape[::-1], shape[::-1])):
        raise ShapeError(
            f"copy_: a source of shape {source.shape} does not broadcast to {self.shape}.",
            hint="it may have fewer axes, and length 1 where this tensor is longer.",
        )
    return self.write("copy_", broadcast_to(value, shape))


def fill_(self: T, value: Scalar) -> T:
    """Stores the number `value` everywhere, in place.

    >>> Tensor.zeros(2).fill_(7)
    Tensor([7., 7.])
    """
    return self.write("fill_", filled(fitting("fill_", value, self.dtype), self.dtype, self.op.shape))


def zero_(self: T) -> T:
    """Stores 0 everywhere, in place.

    >>> Tensor([1, 2]).zero_()
    Tensor([0, 0])
    """
    return self.write("zero_", filled(0, self.dtype, self.op.shape))


def _leave_behind(self: T) -> None:
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
