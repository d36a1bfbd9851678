"""Traces a Python function, and cuts its graphs from the outside: a body over PARAMs, with outside values that it reads as
sources.

`FunctionTrace` notes the cells that a function makes, reads and writes in one run, in which nothing is computed. In a
`BodyTrace` each cell made before that the function reads holds a stand-in: a BUFFER without memory. So the graphs
it builds end at stand-ins. `close` cuts them there. A value that depends on no argument, and on no cell that the
function writes, is computed outside and becomes a source; constants stay inside. Views of outside values are made
inside, where they cost nothing.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Self

from picograd.dtype import DType
from picograd.engine.devices import default_device
from picograd.errors import DeviceError, JitError
from picograd.interrupts import LivingSet, held_back
from picograd.ir.bodies import param
from picograd.ir.op import Buffer, Op, Shape, const_value, greatest_numel, memory_op, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.origin import copy_lines, line_of
from picograd.record import Record
from picograd.tensor.cell import Cell, Trace, View, set_op, trace
from picograd.tensor.core import leaf_ids
from picograd.tensor.hooks import LeafNumber
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import differentiable_cells

# Functions whose result's length depends on values -> that part of it. They read a value, but do not return one.
WITH_LENGTHS_OF_VALUES = {
    "bincount": "if the greatest number n is known: pg.zeros(n + 1).index_add(0, x, pg.ones(len(x))).",
    "index": "pg.where(mask, x, 0) keeps the shape; the length of x[mask] depends on values.",
    "masked_select": "pg.where(mask, x, 0) keeps the shape; the length of the result depends on values.",
    "nonzero": "pg.where(x != 0, ...) keeps the shape; the number of places depends on values.",
    "one_hot": "give the number of classes: one_hot(x, num_classes=n).",
    "repeat_interleave": "give the length of the result: repeat_interleave(x, repeats, output_size=n).",
    "unique": "call it before, and pass its result as an argument: its length depends on values.",
}


class FunctionTrace:
    """The record of a traced function's cells.

    transform:  name of the function that the user called, for errors
    function:   name of the user's function, for errors
    before:     cells made before that the function read or wrote, in order, with their values before
    written:    cells made before that the function wrote to, in order, with their last value inside
    """

    waits = False

    def __init__(self, transform: str, function: str):
        self.transform, self.function = transform, function
        self.before: dict[Cell, Op] = {}
        self.written: dict[Cell, Op] = {}
        self._made: LivingSet[Cell] = LivingSet()
        self._around = trace.get()
        self._hold = held_back()

    def __enter__(self) -> Self:
        self._hold.__enter__()
        trace.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        trace.set(self._around)
        self.leave()
        self._hold.__exit__()

    def leave(self) -> None:
        """Gives cells made before their values back, and keeps their values inside in `written`."""
        for cell, op in self.before.items():
            if cell in self.written:
                self.written[cell] = cell.op
                cell.op = op

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function in a `with` block of the trace: an interrupt ends it, but waits while cells are restored."""
        return self._hold.let_in(function, *args, **kwargs)

    def enter(self, cell: Cell) -> None:
        """Notes in `before` the value of a cell that is touched for the first time; may give it another value."""
        raise NotImplementedError

    # ---- events of cells ----
    def on_make(self, cell: Cell) -> None:
        self._made.add(cell)

    def on_read(self, cell: Cell) -> None:
        if cell.made_in is not self and cell not in self.before:
            self.enter(cell)

    def on_write(self, cell: Cell) -> None:
        if cell.made_in is not self:
            self.on_read(cell)
            self.written[cell] = cell.op

    def on_look(self, leaf: Any) -> None:
        if self._around is not None:
            self._around.on_look(leaf)

    def on_forget(self, leaf: Any) -> None:
        if self._around is not None:
            self._around.on_forget(leaf)

    def on_backward(self) -> None:
        if self._around is not None:
            self._around.on_backward()

    def on_host_read(self, function: str) -> None:
        raise JitError(
            f"{self.transform}: {function}() asks for a value while {self.function} is traced; there is none yet.",
            WITH_LENGTHS_OF_VALUES.get(function, "return the tensor and read it outside."),
        )

    # ---- afterwards ----
    def check_kept(self, known: Iterable[Tensor], fault: str, hint: str) -> None:
        """Raises JitError if a tensor that the function made, and that is not `known`, outlives the trace."""
        accounted = {tensor.cell for tensor in known}
        if all(cell in accounted for cell in self._made.living()):
            return
        gc.collect()  # tensors that only reference cycles keep alive do not count
        kept = next((cell for cell in self._made.living() if cell not in accounted), None)
        if kept is not None:
            raise JitError(
                f"{self.transform}: {self.function} keeps a tensor of shape {kept.op.shape} that it made; {fault}",
                hint,
                line=line_of(kept.op),
            )


# ---- bodies ----
class BodyTrace(FunctionTrace):
    """A context in which cells made before it hold stand-ins; afterwards `written` has the values left in them.

    stands:   stand-in -> its cell
    needing:  cells whose stand-in needs gradients whether their value does or not
    """

    def __init__(self, transform: str, function: str, needing: Collection[Cell] = ()):
        super().__init__(transform, function)
        self.needing = needing
        self.outer: Trace | None = trace.get()
        self.stands: dict[Op, Cell] = {}
        self._stand: dict[Cell, Op] = {}
        self._lent: list[tuple[Tensor, Cell, View]] = []

    def leave(self) -> None:
        """Gives cells made before the trace their values back; all that were touched had a stand-in."""
        super().leave()
        while self._lent:
            tensor, cell, steps = self._lent.pop()
            tensor.cell, tensor.steps, tensor._shown = cell, steps, None
        for cell, op in self.before.items():
            cell.op = op

    def enter(self, cell: Cell) -> None:
        """Gives a cell a stand-in."""
        if self.outer is not None:
            self.outer.on_read(cell)
        self.before[cell] = before = cell.op
        cell.op = stand = stand_in(before.dtype, before.shape, cell.device, before.needs_grad or cell in self.needing)
        self.stands[stand], self._stand[cell] = cell, stand

    def lend(self, tensor: Tensor, stand: Op) -> None:
        """Gives a tensor a value of its own until the trace ends, a leaf if it needs gradients."""
        self._lent.append((tensor, tensor.cell, tensor.steps))
        tensor.cell, tensor.steps, tensor._shown = Cell(stand, tensor.cell.device), (), None

    def changed(self) -> list[Cell]:
        """Returns the cells made before whose value has changed."""
        return [cell for cell, op in self.written.items() if self.stands.get(op) is not cell]

    def stand_of(self, cell: Cell) -> Op:
        """Returns the value that a cell had while the function ran."""
        return self._stand[cell]

    def check_arguments(self, given: Iterable[Tensor]) -> None:
        """Raises JitError if the function wrote to storage of which it was given a view: it saw the old value."""
        changed = set(self.changed())
        for tensor in given:
            if tensor.cell in changed:
                raise JitError(
                    f"{self.transform}: {self.function} writes in place to a tensor of shape {tensor.cell.op.shape} that it"
                    " is also given as an argument, which would not change.",
                    "let the function read it as a closure alone, or pass x.clone().",
                )

    def check_returned(self, returned: Iterable[Tensor]) -> None:
        """Raises JitError if a tensor that the function made outlives it without being returned."""
        hint = "return it, or write it in place to a Tensor made before."
        self.check_kept(returned, "each step makes a new one.", hint)


def stand_in(dtype: DType, shape: Shape, device: str | None, needs_grad: bool) -> Op:
    """Returns an Op that is equal to no other, and through which gradients flow if it `needs_grad`."""
    buffer = Buffer(device or default_device(), dtype, greatest_numel(shape))
    stand = memory_op(buffer, shape)
    # NOTE: without the LEAF, detach() and no_grad() inside would find nothing to detach.
    return Op(OpCode.LEAF, dtype, (stand,), next(leaf_ids)) if needs_grad else stand


def store(cell: Cell, op: Op) -> None:
    """Gives a cell the value that a body left in it."""
    set_op(cell, op)
    if op.needs_grad:
        differentiable_cells.add(cell)


# ---- cutting ----
class Side(Enum):
    """The side of a cut on which a value is computed."""

    INSIDE = "inside"  # at each step, at each call
    OUTSIDE = "outside"  # once: a source
    ANYWHERE = "anywhere"  # made of constants alone


class Closed(Record):
    """Graphs cut from the outside.

    roots:    graphs over PARAMs
    sources:  the values of the invariant PARAMs, in the order of their slots
    """

    roots: tuple[Op, ...]
    sources: tuple[Op, ...]


def close(watch: BodyTrace, roots: Sequence[Op], first: Sequence[Op], last: Sequence[Op] = ()) -> Closed:
    """Cuts graphs from the outside: `first` become PARAM 0, 1, ..., then come the invariants, then `last`.

    Raises:
      DeviceError: a value is copied to another device inside.
      JitError:    a tensor made inside has a hook.
    """
    cut = _Cut(watch, roots, [*first, *last])
    slots = {stand: i for i, stand in enumerate([*first, *cut.invariants])}
    slots.update({stand: len(slots) + i for i, stand in enumerate(last)})
    became = {op: param(op, slot) for op, slot in slots.items()}
    for op in cut.order:
        if op in became:
            continue
        if op.code is OpCode.LEAF and cut.place[op] is Side.INSIDE:
            if isinstance(op.arg, LeafNumber) and op.arg.hooks:
                fact = f"{watch.transform}: {watch.function} registers a hook on a tensor of shape {op.shape} that it made;"
                raise JitError(f"{fact} no gradient would reach the hook.", f"do not use {watch.transform}.")
            became[op] = became[op.src[0]]
        elif cut.place[op] is Side.ANYWHERE:
            became[op] = cut.true[op]
        elif cut.place[op] is Side.INSIDE or (op.code in MOVEMENT and op.src[0] in became):
            became[op] = op.replace(src=tuple(became[s] for s in op.src))
            copy_lines(op, became[op])
    return Closed(tuple(became[root] for root in roots), tuple(cut.true[op] for op in cut.invariants))


class _Cut:
    """The place of each Op: inside the body or outside.

    order:       all Ops, sources first
    place:       the side of each Op
    true:        Op outside -> the same with the values of cells in place of their stand-ins
    invariants:  the Ops outside that the inside reads
    """

    def __init__(self, watch: BodyTrace, roots: Sequence[Op], inside: Sequence[Op]):
        stop = {*inside, *watch.stands}
        self.order = toposort(roots, stop=stop)
        self.place: dict[Op, Side] = dict.fromkeys(inside, Side.INSIDE)
        self.true: dict[Op, Op] = {}
        for op in self.order:
            if op not in self.place:
                self._look(op, watch.stands, watch.before)
        self.invariants = list(self._frontier(roots, stop))

    def _look(self, op: Op, stands: Mapping[Op, Cell], before: Mapping[Cell, Op]) -> None:
        """Decides where an Op is computed: inside the body, outside of it, or, like constants, anywhere."""
        cell = stands.get(op)
        if cell is not None:
            self.true[op] = value = before[cell]
            self.place[op] = Side.OUTSIDE if const_value(value) is None else Side.ANYWHERE
            return
        places = {self.place[s] for s in op.src}
        if Side.INSIDE in places:
            if op.code is OpCode.COPY:
                raise DeviceError(
                    f"a value of shape {op.shape} is copied to {op.arg} inside a body; a body runs on one device.",
                    hint="copy it before, or return it and copy it afterwards.",
                    line=line_of(op),
                )
            self.place[op] = Side.INSIDE
            return
        anywhere = Side.OUTSIDE not in places and op.code not in ONLY_OUTSIDE
        self.place[op] = Side.ANYWHERE if anywhere else Side.OUTSIDE
        self.true[op] = op.replace(src=tuple(self.true[s] for s in op.src))

    def _frontier(self, roots: Sequence[Op], stop: Collection[Op]) -> dict[Op, None]:
        """Returns the values computed outside and read inside, below their views."""
        readers = (op for op in self.order if self.place[op] is Side.INSIDE and op not in stop)
        read = itertools.chain.from_iterable(op.src for op in readers)
        found: dict[Op, None] = {}
        for op in [*read, *roots]:
            if self.place[op] is Side.OUTSIDE:
                while op.code in MOVEMENT:
                    op = op.src[0]
                found[op] = None
        return found


ONLY_OUTSIDE = frozenset({OpCode.BUFFER, OpCode.LEAF, OpCode.COPY, OpCode.VARIABLE, OpCode.BIND})


def described(op: Op) -> str:
    """Returns an Op as errors name it."""
    return f"{op.dtype} of shape {op.shape}"


def name_of(function: Any) -> str:
    """Returns the name of the user's function."""
    return str(getattr(function, "__name__", type(function).__name__))
