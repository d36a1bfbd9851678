"""Traces a function into a body: a graph over PARAMs, with whatever it reads of the world outside made a source.

In:    a Python function, and graphs for its arguments
Out:   `BodyTrace`: a context in which the function runs on stand-ins;  `Closed`: its graphs cut from the outside
Called by: control/scan.py, control/outline.py, control/accumulate.py, control/custom.py.    Next: picograd/control/trace.py

While the function runs, each cell made before that it reads holds a stand-in: a BUFFER of nobody's memory. So the graphs
it builds end at stand-ins. What does not depend on an argument, or on a cell that the function writes, is computed
outside and becomes a source; constants stay inside. Views of what is outside are made inside, where they cost nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from picograd.control.trace import FunctionTrace
from picograd.dtype import DType
from picograd.engine.realize import default_device
from picograd.errors import DeviceError, JitError
from picograd.ir.lines import copy_lines, line_of
from picograd.ir.op import Buffer, Op, Shape, const_value, greatest_numel, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.record import Record
from picograd.tensor.cell import Cell, Trace, set_op, trace
from picograd.tensor.core import differentiable_cells, leaf_ids
from picograd.tensor.tensor import Tensor


class BodyTrace(FunctionTrace):
    """A context in which cells made before it hold stand-ins; `written` says afterwards what the function left in them.

    stands:   stand-in -> its cell
    needing:  cells whose stand-in needs gradients whether their value does or not
    """

    def __init__(self, transform: str, function: str, needing: Collection[Cell] = ()):
        super().__init__(transform, function)
        self.needing = needing
        self.outer: Trace | None = trace.get()
        self.stands: dict[Op, Cell] = {}
        self._stand: dict[Cell, Op] = {}

    def leave(self) -> None:
        """Gives cells made before the trace their values again; all that were touched had a stand-in."""
        super().leave()
        for cell, op in self.before.items():
            cell.op = op

    def enter(self, cell: Cell) -> None:
        """Gives a cell a stand-in."""
        if self.outer is not None:
            self.outer.on_read(cell)
        self.before[cell] = before = cell.op
        cell.op = stand = stand_in(before.dtype, before.shape, cell.device, before.needs_grad or cell in self.needing)
        self.stands[stand], self._stand[cell] = cell, stand

    def changed(self) -> list[Cell]:
        """Returns the cells made before that hold another value afterwards."""
        return [cell for cell, op in self.written.items() if self.stands.get(op) is not cell]

    def stand_of(self, cell: Cell) -> Op:
        """Returns what a cell held while the function ran."""
        return self._stand[cell]

    def check_arguments(self, given: Iterable[Tensor]) -> None:
        """Raises JitError where the function wrote to storage that it was given a view of: it saw the value before."""
        changed = set(self.changed())
        for tensor in given:
            if tensor.cell in changed:
                raise JitError(
                    f"{self.transform}: {self.function} writes in place to a tensor of shape {tensor.cell.op.shape} that it"
                    " is also given as an argument, which would not change.",
                    "let the function read it as a closure alone, or pass x.clone().",
                )

    def check_returned(self, returned: Iterable[Tensor]) -> None:
        """Raises JitError where a tensor that the function made outlives it without being returned."""
        hint = "return it, or write it in place to a Tensor made before."
        self.check_kept(returned, "it is none of any one step.", hint)


def stand_in(dtype: DType, shape: Shape, device: str | None, needs_grad: bool) -> Op:
    """Returns an Op equal to no other, through which gradients flow or do not."""
    buffer = Buffer(device or default_device(), dtype, greatest_numel(shape))
    stand = Op(OpCode.BUFFER, dtype, (), (buffer, shape))
    # NOTE: without the LEAF, detach() and no_grad() inside would find nothing to detach.
    return Op(OpCode.LEAF, dtype, (stand,), next(leaf_ids)) if needs_grad else stand


def store(cell: Cell, op: Op) -> None:
    """Gives a cell the value that a body left in it."""
    set_op(cell, op)
    if op.needs_grad:
        differentiable_cells.add(cell)


# ---- cutting ----
class Place(Enum):
    """Where a value is computed."""

    INSIDE = "inside"  # at each step, at each call
    OUTSIDE = "outside"  # once: a source
    ANYWHERE = "anywhere"  # made of constants alone


class Closed(Record):
    """Graphs cut from the outside.

    roots:    over PARAMs
    sources:  what the invariant PARAMs stand for, from the first of their slots on
    """

    roots: tuple[Op, ...]
    sources: tuple[Op, ...]


def close(watch: BodyTrace, roots: Sequence[Op], first: Sequence[Op], last: Sequence[Op] = ()) -> Closed:
    """Cuts graphs from the outside: `first` become PARAM 0, 1, ..., then stand the invariants, then `last`.

    Raises:
      DeviceError: a value is copied to another device inside.
    """
    cut = _Cut(watch, roots, [*first, *last])
    slots = {stand: i for i, stand in enumerate([*first, *cut.invariants])}
    slots.update({stand: len(slots) + i for i, stand in enumerate(last)})
    became = {op: Op(OpCode.PARAM, op.dtype, (), (slot, op.shape)) for op, slot in slots.items()}
    for op in cut.order:
        if op in became:
            continue
        if op.code is OpCode.LEAF and cut.place[op] is Place.INSIDE:
            became[op] = became[op.src[0]]
        elif cut.place[op] is Place.ANYWHERE:
            became[op] = cut.true[op]
        elif cut.place[op] is Place.INSIDE or (op.code in MOVEMENT and op.src[0] in became):
            became[op] = op.replace(src=tuple(became[s] for s in op.src))
            copy_lines(op, became[op])
    return Closed(tuple(became[root] for root in roots), tuple(cut.true[op] for op in cut.invariants))


class _Cut:
    """Where each Op is computed.

    order:       all Ops, sources first
    place:       by Op
    true:        what an Op outside is, with the values of cells in place of their stand-ins
    invariants:  the Ops outside that the inside reads
    """

    def __init__(self, watch: BodyTrace, roots: Sequence[Op], inside: Sequence[Op]):
        stop = {*inside, *watch.stands}
        self.order = toposort(roots, stop=stop)
        self.place: dict[Op, Place] = dict.fromkeys(inside, Place.INSIDE)
        self.true: dict[Op, Op] = {}
        for op in self.order:
            if op not in self.place:
                self._look(op, watch.stands, watch.before)
        self.invariants = list(self._frontier(roots, stop))

    def _look(self, op: Op, stands: Mapping[Op, Cell], before: Mapping[Cell, Op]) -> None:
        """Decides where an Op is computed: inside the body, outside of it, or in either place, as constants are."""
        cell = stands.get(op)
        if cell is not None:
            self.true[op] = value = before[cell]
            self.place[op] = Place.OUTSIDE if const_value(value) is None else Place.ANYWHERE
            return
        places = {self.place[s] for s in op.src}
        if Place.INSIDE in places:
            if op.code is OpCode.COPY:
                raise DeviceError(
                    f"a value of shape {op.shape} is copied to {op.arg} inside a body, which runs on one device.",
                    hint="copy it before, or return it and copy it afterwards.",
                    line=line_of(op),
                )
            self.place[op] = Place.INSIDE
            return
        anywhere = Place.OUTSIDE not in places and op.code not in ONLY_OUTSIDE
        self.place[op] = Place.ANYWHERE if anywhere else Place.OUTSIDE
        self.true[op] = op.replace(src=tuple(self.true[s] for s in op.src))

    def _frontier(self, roots: Sequence[Op], stop: Collection[Op]) -> dict[Op, None]:
        """Returns what is outside and read inside, below its views."""
        readers = (op for op in self.order if self.place[op] is Place.INSIDE and op not in stop)
        read = itertools.chain.from_iterable(op.src for op in readers)
        found: dict[Op, None] = {}
        for op in [*read, *roots]:
            if self.place[op] is Place.OUTSIDE:
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
