"""Values of storage: saved, replaced, filled from a tensor or a number; shapes from strides and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.annotations import shown
from picograd.dtype import Scalar
from picograd.engine.devices import default_device
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, GradientError, ShapeError
from picograd.interrupts import LivingKeys, LivingValues
from picograd.ir.build import gather, positions, reshape
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.tensor.arguments import value_at
from picograd.tensor.build import broadcast_to, broadcasts, detached, sizes, static
from picograd.tensor.cell import Cell, note_move, set_op, trace, with_history_of
from picograd.tensor.compute import settle
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.inplace import become_view
from picograd.tensor.intake import fitting
from picograd.tensor.operators import scalar_of
from picograd.tensor.sharing import is_shared

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = ["as_strided", "fill_", "resize_as_", "zero_"]


# ---- values ----
Kept = LivingValues[tuple[int, int], TensorCore]  # by the ids of the tensor and of the trace that made it
kept_data: LivingKeys[Cell, Kept] = LivingKeys()  # tensors returned by `.data`, by their storage


def shared_data(self: T) -> T:
    """Returns `x.data`: a tensor on the same storage, without gradient."""
    kept = self.detach()
    kept_data.setdefault(self.cell, Kept())[id(trace.get()), id(kept)] = kept
    return kept


def replace_data(self: Tensor, value: Tensor) -> None:
    """Replaces the storage's value, also by another shape and dtype; tensors that `.data` returned keep the old one."""
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
    history, before, self.cell.device = self.cell.op, self.cell.kind(), device or self.cell.device
    if history.needs_grad and (history.dtype, history.shape) == (op.dtype, op.shape):
        op = with_history_of(history, op)
    set_op(self.cell, op)
    if self.cell.kind() != before:
        note_move()
    record(op)
    settle(self.cell, op)


def copy_(self: T, source: Operand, non_blocking: bool = False) -> T:
    """Stores `source`, a tensor or a number, broadcast and cast to this tensor's shape and dtype, in place.

    A tensor of another device is copied to this one's first. `non_blocking`: accepted, without effect.

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
    if not broadcasts(value.shape, shape):
        raise ShapeError(
            f"copy_: a source of shape {source.shape} does not broadcast to {self.shape}.",
            hint="it may have fewer axes, and length 1 where this tensor is longer.",
        )
    return self.write("copy_", broadcast_to(value, shape))


def fill_(self: T, value: Scalar | Tensor) -> T:
    """Stores `value` in all elements: a number, or a 0-d tensor, through which gradients flow.

    Raises:
      ShapeError: value is not 0-d.

    >>> Tensor.zeros(2).fill_(7)
    Tensor([7., 7.])
    """
    if isinstance(value, TensorCore):
        if value.op.shape:
            raise ShapeError(f"fill_: value must be a number or of no axes, got shape {value.shape}.", hint="copy_(value)")
        return copy_(self, value)
    return self.write("fill_", filled(fitting("fill_", value, self.dtype), self.dtype, self.op.shape))


def zero_(self: T) -> T:
    """Stores 0 in all elements.

    >>> Tensor([1, 2]).zero_()
    Tensor([0, 0])
    """
    return self.write("zero_", filled(0, self.dtype, self.op.shape))


def _leave_behind(self: T) -> None:
    """Gives living tensors that `.data` returned for this storage a storage of their own, with its value."""
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


# ---- other shapes ----
def as_strided(self: T, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0) -> T:
    """Returns the elements at storage_offset + i stride[0] + j stride[1] + ... of this tensor's storage.

    The storage is the tensor that this is a view of, in row-major order; a result has storage of its own. Unlike PyTorch's,
    the returned tensor is a copy: later writes have no effect on it. Gradients of repeated elements add up; those of
    elements outside this view of the storage count, too, where PyTorch drops them.

    Args:
      size:            lengths of the axes
      stride:          for each axis the nonnegative distance between elements
      storage_offset:  position of the first element

    Raises:
      ShapeError: size and stride differ in length, a number is negative, or an element is outside the storage.

    >>> Tensor([1.0, 2.0, 3.0, 4.0]).as_strided((3, 2), (1, 1))
    Tensor([[1., 2.],
            [2., 3.],
            [3., 4.]])
    """
    lengths, strides = tuple(map(int, size)), tuple(map(int, stride))
    if len(lengths) != len(strides) or min((0, storage_offset, *lengths, *strides)) < 0:
        raise ShapeError(
            f"as_strided: size {lengths} and stride {strides} must be as many numbers, and these and the"
            f" offset {storage_offset} not negative."
        )
    op = _storage(self).read()
    last = storage_offset + sum((n - 1) * step for n, step in zip(lengths, strides))
    if 0 not in lengths and last >= op.numel:
        raise ShapeError(f"as_strided: element {last} is outside storage of shape {op.shape}, {op.numel} elements.")
    place = filled(storage_offset, dtypes.int64, lengths)
    for axis, step in enumerate(strides):
        place = place + positions(lengths, axis) * step
    flat = gather(reshape(op, (op.numel,)), reshape(place, (math.prod(lengths),)), 0, 0)
    return self.from_op(reshape(flat, lengths), self.cell.device)


def _storage(self: T) -> T:
    """Returns the tensor that this is a view of, up to the last step at which gradients are collected or cut off."""
    kept = [i + 1 for i, (code, _) in enumerate(self.steps) if code in (OpCode.LEAF, OpCode.DETACH)]
    return self.from_cell(self.cell, self.steps[: max(kept, default=0)])


def sum_to_size(self: T, *size: Any) -> T:
    """Returns the sum over the axes that broadcasting `size` to this shape would lengthen.

    Raises:
      ShapeError: `size` does not broadcast to this shape.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).sum_to_size(1, 2)
    Tensor([[4., 6.]])
    """
    wanted = sizes("sum_to_size", size)
    more = self.ndim - len(wanted)
    if more < 0 or any(n not in (1, m) for n, m in zip(wanted, self.shape[more:])):
        raise ShapeError(f"sum_to_size: {wanted} does not broadcast to {self.shape}.")
    longer = [more + i for i, n in enumerate(wanted) if n != self.shape[more + i]]
    axes = [*range(more), *longer]
    return self.sum(axes, keepdim=True).reshape(wanted) if axes else self


def resize_(self: T, *size: Any) -> T:
    """Changes the shape in place: keeps the first elements, as many as fit, and fills the rest with zeros.

    Args:
      size: the new lengths

    Raises:
      GradientError: gradients flow here.

    >>> Tensor([1, 2, 3, 4]).resize_(2, 3)
    Tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    lengths = tuple(map(int, sizes("resize_", size)))
    if self.requires_grad:
        raise GradientError(f"resize_: the shape {self.shape} of a tensor that needs gradients cannot change.")
    count = math.prod(lengths)
    if count == self.numel():
        return become_view("resize_", self, type(self).reshape, lengths)
    flat = self.flatten()[:count]
    self.data = flat.cat((flat, self.new_zeros(count - flat.numel()))).reshape(lengths)
    return self


def resize_as_(self: T, other: Tensor) -> T:
    """Changes the shape in place to that of `other`, as `resize_` does.

    Raises:
      GradientError: gradients flow here.

    >>> Tensor([1, 2, 3, 4]).resize_as_(Tensor.zeros(2, 1)).tolist()
    [[1], [2]]
    """
    return self.resize_(tuple(map(static, other.op.shape)))


# ---- by Python ----
def apply_(self: T, function: Callable[[Any], Any]) -> T:
    """Replaces each element in place by the result of a Python function; slow.

    Raises:
      ArgumentError: `function` is not callable.

    >>> Tensor([1, 2]).apply_(lambda number: number * 10)
    Tensor([10, 20])
    """
    if not callable(function):
        raise ArgumentError(f"apply_: needs a function of one number, got {function!r}.", hint="x.apply_(math.sqrt)")
    array = self.detach()._host("apply_")
    new = np.array([function(number) for number in array.ravel().tolist()], dtype=array.dtype)
    return self.copy_(type(self)(new.reshape(array.shape), self.dtype, self.device))


def to_dense(self: T) -> T:
    """Returns this tensor: no tensor is sparse.

    >>> Tensor([1.0]).to_dense()
    Tensor([1.])
    """
    return self
