"""Storage: cells that hold one immutable Op each, read and written through views.

A view is a tuple of steps (opcode, arg) applied to the cell's Op: movement, LEAF (gradients are collected here) and
DETACH. A write through a view replaces the cell's Op by the functional update, so aliases see it and graphs built
earlier keep the old value.

A write through a view of a view, `cache[layer][n]`, is a write to one block of the storage: one row is stored, not a whole
layer. For that, each SHRINK is moved before the steps that permute, flip or reshape axes, and adjacent ones are merged.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.host_memory import own_copy, shared
from picograd.engine.realize import Carries
from picograd.errors import ShapeError
from picograd.interrupts import LivingKeys, rlock, whole_at_fork
from picograd.ir.bodies import CustomGradient, mark_of, output, param, sink, substitute
from picograd.ir.build import pad, permute, reshape, where
from picograd.ir.op import Buffer, Dim, Op, Shape, filled, memory_op
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.stages import FixedMemory
from picograd.ir.symbolic import add, subtract
from picograd.record import Record
from picograd.tensor.build import apply_step, detached


# ---- changes that captures see ----
class Change:
    """A counter: while it is the same, no attribute of a Module and no mode, device, dtype or shape of a tensor changed."""

    __slots__ = ("number", "_numbers")

    def __init__(self) -> None:
        self.number, self._numbers = 0, itertools.count(1)

    def note(self) -> None:
        """Counts a change."""
        self.number = next(self._numbers)


last_change = Change()
last_move = Change()  # to another device, dtype or shape


def note_move() -> None:
    """Counts a change of a tensor's device, dtype or shape."""
    last_move.note()
    last_change.note()  # after the move, so that a thread that sees this number sees that one, too


# ---- blocks that views of views show ----
Step = tuple[OpCode, Any]
Cuts = tuple[tuple[Dim, Dim], ...]


def cut_first(shape: Shape, view: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps of an equal view in which each SHRINK comes as early as it can.

    Example: SHRINK 1:2, 0:9; RESHAPE (9,); SHRINK 3:4  ->  SHRINK 1:2, 3:4; RESHAPE (1,)
    """
    found: list[tuple[Shape, Step]] = []  # with the shape before each step
    for step in view:
        if step[0] is OpCode.SHRINK:
            found = _with_cut(found, shape, step[1])
        else:
            found.append((shape, step))
        shape = shape_after(shape, step)
    return tuple(step for _, step in found)


def _with_cut(steps: list[tuple[Shape, Step]], shape: Shape, cuts: Cuts) -> list[tuple[Shape, Step]]:
    """Returns `steps`, which lead to `shape`, with a SHRINK inserted as early as possible."""
    behind: list[Step] = []
    for done in range(len(steps), 0, -1):
        before, (code, arg) = steps[done - 1]
        if code is OpCode.SHRINK:
            merged = tuple((add(a, start), add(a, stop)) for (a, _), (start, stop) in zip(arg, cuts))
            return _joined([*steps[: done - 1], (before, (code, merged))], behind)
        moved = _before(code, arg, before, cuts)
        if moved is None:
            return _joined([*steps[:done], (shape, (OpCode.SHRINK, cuts))], behind)
        behind.append((code, _lengths(cuts) if code is OpCode.RESHAPE else arg))
        shape, cuts = before, moved
    return _joined([(shape, (OpCode.SHRINK, cuts))], behind)


def _joined(steps: list[tuple[Shape, Step]], behind: list[Step]) -> list[tuple[Shape, Step]]:
    """Returns `steps` followed by those `behind` the SHRINK, which are listed in reverse."""
    shape, last = steps[-1]
    shape = shape_after(shape, last)
    for step in reversed(behind):
        steps.append((shape, step))
        shape = shape_after(shape, step)
    return steps


def _before(code: OpCode, arg: Any, before: Shape, cuts: Cuts) -> Cuts | None:
    """Returns the cuts before a step that select the same elements as `cuts` after it; None if there are none."""
    if code is OpCode.PERMUTE:
        return tuple(cuts[arg.index(axis)] for axis in range(len(arg)))
    if code is OpCode.FLIP:
        return tuple(
            (subtract(dim, stop), subtract(dim, start)) if axis in arg else (start, stop)
            for axis, (dim, (start, stop)) in enumerate(zip(before, cuts))
        )
    if code is not OpCode.RESHAPE or [d for d in before if d != 1] != [d for d in arg if d != 1]:
        return None
    if any(dim == 1 and cut != (0, 1) for dim, cut in zip(arg, cuts)):
        return None
    rest = iter([cut for dim, cut in zip(arg, cuts) if dim != 1])
    return tuple((0, 1) if dim == 1 else next(rest) for dim in before)


def _lengths(cuts: Cuts) -> Shape:
    return tuple(subtract(stop, start) for start, stop in cuts)


def shape_after(shape: Shape, step: Step) -> Shape:
    """Returns the shape of a step's result for a tensor of this shape."""
    code, arg = step
    if code in (OpCode.RESHAPE, OpCode.EXPAND):
        return tuple(arg)
    if code is OpCode.PERMUTE:
        return tuple(shape[axis] for axis in arg)
    if code is OpCode.SHRINK:
        return _lengths(arg)
    if code is OpCode.PAD:
        return tuple(add(dim, add(left, right)) for dim, (left, right) in zip(shape, arg))
    return shape


# ---- cells ----
View = tuple[Step, ...]
Held = tuple[Buffer, Shape]
CellKind = tuple[str | None, DType, Shape]


class Cell:
    """Storage of one tensor and of all its views.

    content: memory with a shape, a graph, or the TakenBuffers that have its memory
    op:      its present value
    device:  name of the device; None for constants, which belong to no device
    made_in: the trace that was active when it was made, or None
    computed_with:  cells that are computed together with it, unasked
    turn:    `Carries.turn` when it was made or last read; None for memory that was not read
    """

    __slots__ = ("content", "_named", "device", "made_in", "computed_with", "turn", "__weakref__")

    def __init__(self, value: Op | Held, device: str | None):
        """A cell that holds a graph, or memory with a shape."""
        self.content: Op | Held | TakenBuffers  # an Op only where it is a graph, not memory
        self._named: tuple[Held, Op] | None = None  # memory it holds, and the Op that was made for it
        if isinstance(value, tuple):
            self.content = value
        else:
            self._set(value)
        self.device, self.made_in = device, trace.get()
        self.turn: int | None = Carries.turn
        self.computed_with: Sequence[weakref.ref[Cell]] = ()
        if self.made_in is not None:
            self.made_in.on_make(self)

    @property
    def op(self) -> Op:
        """The value it holds now."""
        value = self.content
        if type(value) is Op:
            return value
        if type(value) is not tuple:  # a plan has taken its memory
            value = self._released()
            if isinstance(value, Op):
                return value
        named = self._named
        if named is None or named[0] is not value:
            self._named = named = value, memory_op(*value)
        return named[1]

    @op.setter
    def op(self, op: Op) -> None:
        while True:
            with changing:
                if type(self.content) is not TakenBuffers:  # else that would keep the memory, and count the cell as not out
                    return self._set(op)
            self._released()

    def _set(self, op: Op) -> None:
        if op.code is OpCode.BUFFER:
            if shared.data and (known := shared.get(op.arg[0])) is not None and known.home() is not self:
                op = own_copy(op)
            self.content, self._named = op.arg, (op.arg, op)
        else:
            self.content, self._named = op, None

    @staticmethod
    def hold(cells: Iterable[Cell], held: Iterable[Held]) -> None:
        """Replaces values by memory that a plan has filled; their Ops are made when they are read."""
        with changing:
            for cell, value in zip(cells, held):
                if type(before := cell.content) is TakenBuffers:
                    before.lose(cell)  # NOTE: waits for no plan: that of another function may be running
                cell.content, cell._named = value, None

    @staticmethod
    def put(cells: Iterable[Cell], values: Iterable[Op]) -> None:
        """Replaces the values of cells by graphs that have no other reader."""
        with changing:
            for cell, op in zip(cells, values):
                if type(before := cell.content) is TakenBuffers:
                    before.lose(cell)
                cell._set(op)

    def held(self) -> Held | None:
        """Returns the memory that holds the value, and its shape; None where the value is a graph."""
        value = self.content
        if type(value) is tuple:
            return value
        op = self.op
        return op.arg if op.code is OpCode.BUFFER else None

    def kind(self) -> CellKind:
        """Returns device, dtype and shape of the value; a cell whose buffer is taken stays so."""
        with changing:
            value = self.content
            if isinstance(value, TakenBuffers):
                value = value.of(self)
            if isinstance(value, tuple):
                return self.device, value[0].dtype, value[1]
        return self.device, self.op.dtype, self.op.shape

    def give_away(self, kind: type[Cell], words: str) -> Op | Held:
        """Moves the value out. The cell becomes a `kind`; reading it raises an error that says `words`."""
        value = self._released()
        self.content, self._named = words, None  # type: ignore[assignment]
        self.__class__ = kind
        return value

    def _released(self) -> Op | Held:
        """Returns the value; takes the buffer back from a plan that has it, and waits while that plan runs."""
        while isinstance(value := self.content, TakenBuffers):
            value.leave(self)
        return value


class Arranged(Record, eq=False):
    """Inputs and outputs of a plan that are the same memory in every run; None for those that differ."""

    inputs: list[Any]
    outputs: list[Any]
    fixed: FixedMemory


class TakenBuffers:
    """Memory of some cells that a plan has taken over and writes to, run after run, until one of the cells is read.

    A cell whose buffer is taken has no value of its own. Reading the cell takes its buffer back, once no plan is running:
    the cell is out then. So a cell that is not out when the next run begins has not been read since the last one.

    cells:    the cells; [] once the function is gone, or they would keep each other alive
    shapes:   shapes of their values
    buffers:  the memory of each cell; None or outdated for one that is out
    out:      places of the cells that are out
    arranged: the buffers as arguments of the plan, until one of them leaves
    running:  a lock that is held while the plan runs
    """

    __slots__ = ("cells", "shapes", "buffers", "out", "arranged", "running", "_places", "__weakref__")

    def __init__(self, cells: Sequence[Cell], shapes: Sequence[Shape]):
        self.cells, self.shapes = list(cells), list(shapes)
        self.buffers: list[Buffer | None] = [None] * len(self.cells)
        self.out = set(range(len(self.cells)))
        self.arranged: Arranged | None = None
        self.running = rlock()  # a signal handler may read a cell while this thread runs the plan
        self._places: LivingKeys[Cell, int] = LivingKeys()
        for place, cell in enumerate(self.cells):
            self._places[cell] = place

    def take(self, places: Iterable[int]) -> None:
        """Takes the memory of cells that hold memory, and drops the Ops that were made for it: readers hold their own."""
        with changing:
            for place in places:
                cell = self.cells[place]
                if type(value := cell.content) is tuple:
                    self.buffers[place], self.shapes[place] = value
                    self._enter(place)

    def put(self, places: Iterable[int], buffers: Iterable[Buffer | None]) -> None:
        """Takes buffers with new values of cells; nothing else refers to these buffers."""
        with changing:
            for place, buffer in zip(places, buffers):
                self.buffers[place] = buffer
                self._enter(place)

    def _enter(self, place: int) -> None:
        """Notes in a cell that its buffer is taken by this, and by no other."""
        cell = self.cells[place]
        if type(before := cell.content) is TakenBuffers and before is not self:
            before.lose(cell)
        cell.content, cell._named, self.arranged = self, None, None
        self.out.discard(place)

    def of(self, cell: Cell) -> Held:
        """Returns the memory that was taken of a cell, and its shape."""
        place = self._places[cell]
        buffer = self.buffers[place]
        assert buffer is not None, "cell: taken without memory"
        return buffer, self.shapes[place]

    def lose(self, cell: Cell) -> None:
        """Notes that a cell is about to get a new value."""
        self.out.add(self._places[cell])
        self.arranged = None

    def dissolve(self) -> None:
        """Gives all cells their values back."""
        for cell in self._places.living():
            if cell.content is self:
                self.leave(cell)

    def leave(self, cell: Cell) -> None:
        """Gives a cell its value back; waits for a running plan."""
        with self.running, changing:  # else a buffer that is taken meanwhile would be cleared
            if cell.content is self:
                place, cell.content = self._places[cell], self.of(cell)
                self.out.add(place)
                self.arranged = None  # it has the buffer
                self.buffers[place] = None


class Trace(Protocol):
    """A watcher of every cell that a function touches; see transforms/jit.py.

    waits: gradients and functions of long lists are written out only after the trace, when loops have been rolled up
    """

    waits: bool

    def on_make(self, cell: Cell) -> None:
        """Called when a cell has been made."""
        ...

    def on_read(self, cell: Cell) -> None:
        """Called before `cell.op` enters a graph."""
        ...

    def on_write(self, cell: Cell) -> None:
        """Called before `cell.op` is replaced."""
        ...

    def on_look(self, leaf: Any) -> None:
        """Called before the gradient of a tensor is read."""
        ...

    def on_forget(self, leaf: Any) -> None:
        """Called before the gradient of a tensor is replaced."""
        ...

    def on_backward(self) -> None:
        """Called before backward() adds to the `.grad` of leaves."""
        ...

    def on_host_read(self, function: str) -> None:
        """Called before a value is read on the host; raises JitError, since a trace has no values."""
        ...


trace: ContextVar[Trace | None] = ContextVar("picograd_trace", default=None)
changing = threading.RLock()  # held for a moment, while a cell gets another value; nobody waits for a plan with it


whole_at_fork(changing.acquire, changing.release)


class Pending(threading.local):
    """Work that this thread has not computed yet (see compute.py).

    writes:  for each cell that was written in place its values before each of these writes
    starts:  first values of leaves that backward() has reached and of cells that were written to, each with its device
    """

    def __init__(self) -> None:
        self.writes: LivingKeys[Cell, list[Op]] = LivingKeys()
        self.starts: list[tuple[weakref.ref[Op], str | None]] = []


pending = Pending()
grad_mode: ContextVar[bool] = ContextVar("picograd_grad_mode", default=True)
own_places: ContextVar[bool] = ContextVar("picograd_own_places", default=True)  # tensors share no Op that one was given


def read_through(op: Op, view: View) -> Op:
    """Returns a view's value, from the storage's `op`."""
    for code, arg in view:
        op = apply_step(op, code, arg)
    return op


def write_through(op: Op, view: View, value: Op) -> Op:
    """Returns `op` with `value` in the places that a view shows.

    Example: op (3, 4), view PERMUTE (1, 0) then SHRINK rows 0:2, value (2, 3)  ->  columns 0 and 1 of op replaced

    Raises:
      ShapeError: the view shows one place several times (EXPAND).
    """
    if not any(code in MOVEMENT for code, _ in view):
        return value if op.needs_grad and (OpCode.DETACH, None) not in view else detached(value)
    if 0 in value.shape:
        return op
    shown, view = [op], cut_first(op.shape, view)
    for code, arg in view:
        shown.append(apply_step(shown[-1], code, arg))
    for (code, arg), before in zip(reversed(view), reversed(shown[:-1])):
        value = _invert(code, arg, before, value)
    return value


def changed_through(op: Op, view: View, value: Op) -> Op:
    """Returns the storage's Op after a write; a result that is changed without gradients keeps its history."""
    if op.needs_grad and (not grad_mode.get() or (OpCode.DETACH, None) in view):
        return with_history_of(op, write_through(detached(op), view, detached(value)))
    return write_through(op, view, value)


def with_history_of(before: Op, value: Op) -> Op:
    """Returns a value with the gradient of `before`, for a result that is changed while no gradients are recorded."""
    gradient = CustomGradient(sink([param(before, 0)]), (), 1, (0, None))
    stored = Op(OpCode.CONTIGUOUS, value.dtype, (param(value, 1),))
    body = sink([stored], mark_of(gradient))
    if before.code is OpCode.OUTPUT and before.src[0].code is OpCode.CALL and before.src[0].arg is body:
        if before.realized is not None:  # else each change would keep the values before it
            value = substitute([value], {detached(before): before.realized})[0]
        before = before.src[0].src[0]
    return output(Op(OpCode.CALL, value.dtype, (before, value), body), 0)


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
        f"in-place: {before.shape} expanded to {arg} repeats elements, so it cannot be written through expand.",
        hint="write to x.expand(...).clone(), or to x before it is expanded.",
    )


def set_op(cell: Cell, op: Op) -> int:
    """Replaces the value of a cell; returns the number of pending writes to it."""
    active, num_pending = trace.get(), 0
    if active is not None:
        active.on_write(cell)
    while True:
        with changing:
            if not isinstance(cell.content, TakenBuffers):  # else a plan has it
                if active is None and op.code is not OpCode.BUFFER:
                    # Moved to the end: writes of a step are then in the step's order, also after pending first values.
                    before = pending.writes.pop(cell, [])
                    before.append(cell.op)
                    pending.writes[cell] = before
                    num_pending = len(before)
                cell._set(op)
                return num_pending
        cell._released()


def replace_ops(values: Iterable[tuple[Cell, Op, Op]]) -> None:
    """Replaces values of cells by other forms of the same values, those of a plan at once: see `replace_op`."""
    late = []
    with changing:
        for cell, before, op in values:
            if cell.content is before:
                cell._set(op)
            else:
                late.append((cell, before, op))
    for value in late:
        replace_op(*value)


def replace_op(cell: Cell, before: Op, op: Op) -> bool:
    """Replaces the value of a cell by another form of the same value; False where another thread has written meanwhile."""
    while True:
        with changing:
            if cell.content is before:
                cell._set(op)
                return True
        cell._released()
        with changing:
            if isinstance(cell.content, TakenBuffers):
                continue  # a plan was faster
            if cell.content is not before and cell.op is not before:
                return False
            cell._set(op)
            return True
