"""A traced call, and how it is run again: what a call needs is worked out once, so that little Python is left of it.

In:    the graphs and cells of one trace; later the arguments of a call
Out:   `Capture`; its `replay(arguments)` gives what the function returned
Called by: transforms/jit.py.    Next: picograd/transforms/spares.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from picograd.control.structure import PLACE, mapped
from picograd.engine.devices import EVALUATOR
from picograd.engine.plan import Template, bound
from picograd.engine.realize import new_outputs, realize, run
from picograd.ir.op import Buffer, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Plan
from picograd.tensor.cell import Cell
from picograd.tensor.tensor import Tensor
from picograd.transforms.guards import Guards
from picograd.transforms.spares import Spares, sole_version


@dataclass(frozen=True)
class Capture:
    """A traced call.

    form:      the graphs it builds, as a template
    roots:     returned values, then what written cells and updated arguments hold; () once it is checked
    sources:   for each buffer of the form where it comes from: ("arg", i), ("state", i) or ("constant", i)
    state:     cells it reads
    constants: buffers it made itself
    written:   cells it writes
    updated:   which arguments it writes in place
    returned:  what the function returned, with a mark for each Tensor
    shapes:    dtype and shape of each root
    guards:    what must mean the same at every call
    """

    form: Template
    roots: tuple[Op, ...]
    sources: tuple[tuple[str, int], ...]
    state: tuple[Cell, ...]
    constants: tuple[Buffer, ...]
    written: tuple[Cell, ...]
    updated: tuple[int, ...]
    returned: Any
    shapes: tuple[tuple[Any, Any], ...]
    device: str
    guards: Guards
    plan: Plan | None = None

    def with_plan(self, plan: Plan) -> Capture:
        """Returns the capture as it is kept: with the plan, and without the graphs, which would keep memory alive."""
        return replace(self, plan=plan, form=self.form.bare(), roots=())

    @cached_property
    def replay(self) -> Replay:
        """Runs the plan on the Tensors of a call."""
        return Replay(self)


class Replay:
    """A capture in the form a call needs.

    arguments:  (input of the plan, which argument it is)
    cells:      (input of the plan, the state it is)
    constants:  the plan's inputs, with the buffers the function made itself in their places
    over:       (output of the plan, state) where a new version may be written over the old one
    spares:     memory of small state that earlier calls wrote
    results:    for each root: whether it is an output of the plan (or an input, unchanged), which one, and its shape
    """

    def __init__(self, capture: Capture):
        plan = capture.plan
        assert plan is not None
        self.capture, self.plan, self.device = capture, plan, capture.device
        takes = [capture.sources[op.arg[0]] for op in plan.schedule.inputs]
        self.constants = [capture.constants[i] if kind == "constant" else None for kind, i in takes]
        self.arguments = tuple((at, i) for at, (kind, i) in enumerate(takes) if kind == "arg")
        self.cells = tuple((at, capture.state[i]) for at, (kind, i) in enumerate(takes) if kind == "state")
        uses = [plan.schedule.buffers[index] for index in plan.schedule.outputs]
        self.results = tuple((use.role == "output", use.source, s) for use, (_, s) in zip(uses, capture.shapes))
        self.num_returned = len(self.results) - len(capture.written) - len(capture.updated)
        self.no_outputs: list[Buffer | None] = [None] * len(plan.outputs)
        self.has_symbolic_shapes = any(isinstance(dim, Op) for _, _, shape in self.results for dim in shape)
        self._find_state(plan, takes)

    def _find_state(self, plan: Plan, takes: Sequence[tuple[str, int]]) -> None:
        """Finds the state that is an output of its own: what can be written over its old version, and what is small."""
        made = Counter(i for is_made, i, _ in self.results if is_made)
        state = self.results[self.num_returned : self.num_returned + len(self.capture.written)]
        own = {k: i for k, (is_made, i, _) in enumerate(state) if is_made and made[i] == 1}
        over: list[tuple[int, Cell]] = []
        for k, i in list(own.items()):
            at = plan.outputs[i].over
            if at is not None and takes[at][0] == "state":
                cell = self.capture.state[takes[at][1]]
                if cell is self.capture.written[k]:
                    over.append((i, cell))
                    del own[k]
        self.over = tuple(over)
        lengths = plan.fixed_lengths if self.device != EVALUATOR else ()  # () where they are not fixed
        self.spares = Spares([(i, lengths[i]) for i in own.values()] if lengths else [])
        number = {i: self.num_returned + k for k, i in own.items()}
        self.small = tuple(number[i] for i in self.spares.outputs)  # among the results

    def __call__(self, arguments: Sequence[Tensor], variables: Mapping[str, int]) -> Any:
        """Runs the plan on these arguments, these symbolic integers and what the state's cells hold now."""
        form = self.capture.form
        if variables:
            form = replace(form, variables={**form.variables, **variables})
        taken, free = self.constants.copy(), self.no_outputs.copy()
        for output, cell in self.over:
            free[output] = sole_version(cell)
        for at, cell in self.cells:
            taken[at] = cell.held() or cell_buffer(cell)
        for at, i in self.arguments:
            taken[at] = buffer_of(arguments[i])
        inputs = cast(list[Buffer], taken)
        self.spares.give(free)
        outputs = new_outputs(self.plan, self.device, form.variables, inputs, free)
        run(self.plan, inputs, outputs, form)
        held = [((outputs if made else inputs)[i], shape) for made, i, shape in self.results]
        if self.has_symbolic_shapes:
            held = [(buffer, bound(shape, form.variables)) for buffer, shape in held]
        self.spares.keep([held[k] for k in self.small])
        capture, first = self.capture, self.num_returned
        for cell, value in zip(capture.written, held[first:]):
            cell.hold(value)
        for i, value in zip(capture.updated, held[first + len(capture.written) :]):
            arguments[i].write("jit", _named(value))
        if capture.returned is PLACE:
            return Tensor.from_op(_named(held[0]), self.device)
        values = iter(held)
        return mapped(capture.returned, lambda _: Tensor.from_op(_named(next(values)), self.device))


def _named(held: tuple[Buffer, Shape]) -> Op:
    return Op(OpCode.BUFFER, held[0].dtype, (), held)


# ---- memory of tensors and cells ----
def buffer_of(tensor: Tensor) -> Buffer:
    """Returns the buffer that holds what a tensor shows, computed now if need be."""
    op = tensor.op
    if op.code is not OpCode.BUFFER:
        op = realize([op])[0]
    return cast(Buffer, op.arg[0])


def cell_buffer(cell: Cell) -> Buffer:
    """Returns the buffer that holds the value of a cell, computed now if need be."""
    op = cell.op
    if op.code is not OpCode.BUFFER:
        op = realize([op])[0]
        if not cell.op.needs_grad:
            cell.op = op
    return cast(Buffer, op.arg[0])
