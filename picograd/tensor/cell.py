"""Storage: a mutable cell that holds one immutable Op, read and written through views.

In:    Ops
Out:   `Cell`; `read_through`, `write_through`; grad mode; the trace hook of transforms/jit.py
Next:  picograd/tensor/host.py

A view is a tuple of steps (opcode, arg) applied to the cell's Op: movement, LEAF (gradients are collected here) and
DETACH. A write through a view replaces the cell's Op by the functional update, so that aliases see it and graphs
built earlier keep the old value.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import Any, Protocol

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.ir.build import pad, permute, reshape, where
from picograd.ir.op import Buffer, Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, subtract
from picograd.tensor.build import apply_step, detached

Step = tuple[OpCode, Any]
View = tuple[Step, ...]
Held = tuple[Buffer, Shape]


class Cell:
    """Storage of one tensor and of all its views.

    op:      the value it holds now
    device:  name of the device, or None for constants, which live everywhere
    made_in: the trace that was active when it was made, or None
    """

    __slots__ = ("_value", "_named", "device", "made_in", "__weakref__")

    def __init__(self, op: Op, device: str | None):
        self._value: Op | Held = op
        self._named: tuple[Held, Op] | None = None  # memory it holds, and the Op that was made for it
        self.device, self.made_in = device, trace.get()
        if self.made_in is not None:
            self.made_in.on_make(self)

    @property
    def op(self) -> Op:
        """The value it holds now."""
        value = self._value
        if isinstance(value, Op):
            return value
        named = self._named
        if named is None or named[0] is not value:
            self._named = named = value, Op(OpCode.BUFFER, value[0].dtype, (), value)
        return named[1]

    @op.setter
    def op(self, op: Op) -> None:
        self._value, self._named = op, None

    def hold(self, held: Held) -> None:
        """Replaces the value by memory that a plan has filled; its Op is made when somebody asks for it."""
        self._value, self._named = held, None

    def held(self) -> Buffer | None:
        """Returns the memory that holds the value, or None where the value is a graph."""
        value = self._value
        if isinstance(value, tuple):
            return value[0]
        buffer: Buffer | None = value.arg[0] if value.code is OpCode.BUFFER else None
        return buffer

    def version(self) -> Held | None:
        """Returns the memory that holds the value as it was given to `hold`, or None where the value is an Op.

        The Op made for readers is forgotten: who still uses it holds it.
        """
        self._named = None
        value = self._value
        return None if isinstance(value, Op) else value


class Trace(Protocol):
    """What wants to know of every cell a function touches; see transforms/jit.py."""

    def on_make(self, cell: Cell) -> None:
        """Called when a cell has been made."""
        ...

    def on_read(self, cell: Cell) -> None:
        """Called before `cell.op` enters a graph."""
        ...

    def on_write(self, cell: Cell) -> None:
        """Called before `cell.op` is replaced."""
        ...

    def on_host_read(self, function: str) -> None:
        """Called where a value would be needed on the host, which a trace does not have; raises JitError."""
        ...


trace: ContextVar[Trace | None] = ContextVar("picograd_trace", default=None)
# Written in place and not computed yet (see compute.py): what the cell held before each of these writes.
pending_writes: weakref.WeakKeyDictionary[Cell, list[Op]] = weakref.WeakKeyDictionary()
grad_mode: ContextVar[bool] = ContextVar("picograd_grad_mode", default=True)


def read_through(op: Op, view: View) -> Op:
    """Returns what a view shows of `op`."""
    for code, arg in view:
        op = apply_step(op, code, arg)
    return op


def write_through(op: Op, view: View, value: Op) -> Op:
    """Returns `op` with `value` in the places that a view shows.

    Example: op (3, 4), view PERMUTE (1, 0) then SHRINK rows 0:2, value (2, 3)  ->  columns 0 and 1 of op replaced

    Raises:
      ShapeError: the view shows one place several times (EXPAND).
    """
    shown = [op]
    for code, arg in view:
        shown.append(apply_step(shown[-1], code, arg))
    for (code, arg), before in zip(reversed(view), reversed(shown[:-1])):
        value = _invert(code, arg, before, value)
    return value


def _invert(code: OpCode, arg: Any, before: Op, value: Op) -> Op:
    """Returns the value of `before` after `value` was written through one step."""
    if code is OpCode.RESHAPE:
        return reshape(value, before.shape)
    if code is OpCode.PERMUTE:
        return permute(value, tuple(arg.index(axis) for axis in range(len(arg))))
    if code is OpCode.FLIP:
        return Op(OpCode.FLIP, value.dtype, (value,), arg)
    if code is OpCode.SHRINK:
        margins = tuple((start, subtract(dim, stop)) for (start, stop), dim in zip(arg, before.shape))
        inside = pad(filled(True, dtypes.bool_, value.shape), margins)
        return where(inside, pad(value, margins), before)
    if code is OpCode.PAD:
        block = tuple((left, add(left, dim)) for (left, _), dim in zip(arg, before.shape))
        return Op(OpCode.SHRINK, value.dtype, (value,), block)
    if code is OpCode.LEAF:
        return value if before.needs_grad else detached(value)
    if code is OpCode.DETACH:
        return detached(value)
    raise ShapeError(
        f"in-place: one element of {before.shape} stands for several of {arg}, so it cannot be written through expand.",
        hint="write to x.expand(...).clone(), or to x before it is expanded.",
    )


def set_op(cell: Cell, op: Op) -> None:
    """Replaces the value of a cell."""
    active = trace.get()
    if active is not None:
        active.on_write(cell)
    elif op.code is not OpCode.BUFFER:
        pending_writes.setdefault(cell, []).append(cell.op)
    cell.op = op
