"""A traced call, and how it is run again: what a call needs is worked out once, so that little Python is left of it.

In:    the graphs and cells of one trace; later the arguments of a call
Out:   `Capture`; its `replay(arguments)` gives what the function returned
Called by: transforms/jit.py, transforms/traced.py.    Next: picograd/transforms/donate.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from picograd.control.structure import PLACE, mapped
from picograd.engine.devices import EVALUATOR
from picograd.engine.plan import Template, bound
from picograd.engine.realize import new_outputs, realize, run
from picograd.errors import JitError
from picograd.ir.op import Buffer, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Plan
from picograd.tensor.cell import Cell, Claim, Held
from picograd.tensor.tensor import Tensor
from picograd.transforms.containers import Arguments
from picograd.transforms.donate import give_donated
from picograd.transforms.guards import Guards
from picograd.transforms.spares import ALONE, Spares, sole_versions


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
    name:      of the function
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
    name: str
    guards: Guards
    plan: Plan | None = None

    def with_plan(self, plan: Plan) -> Capture:
        """Returns the capture as it is kept: with the plan, and without the graphs, which would keep memory alive."""
        return replace(self, plan=plan, form=self.form.bare(), roots=())

    @cached_property
    def replay(self) -> Replay:
        """Runs the plan on the Tensors of a call."""
        return Replay(self)


def two_ways(name: str, shape: Shape) -> JitError:
    """Returns the error for a tensor that a function writes and also reads by another name."""
    return JitError(
        f"jit: {name} writes to a tensor of shape {shape} that reaches it in two ways.",
        "pass it once, or use it as a closure only.",
    )


class Replay:
    """A capture in the form a call needs.

    arguments:  (input of the plan, which argument it is)
    cells:      state that the plan reads, and which inputs of the plan it is
    constants:  the plan's inputs, with the buffers the function made itself in their places
    over:       outputs of the plan, its inputs, and state, where a new version may be written over the old one
    donatable:  (output of the plan, argument) where a result may be written over what is given away
    spares:     memory of small results and state that earlier calls wrote
    results:    for each root: whether it is an output of the plan (or an input, unchanged), which one, and its shape
    """

    def __init__(self, capture: Capture):
        plan = capture.plan
        assert plan is not None
        # NOTE: a copy, which does not know this Replay: a cycle would keep what a trace wrote until it is found.
        self.capture, self.plan, self.device = replace(capture), plan, capture.device
        takes = [capture.sources[op.arg[0]] for op in plan.schedule.inputs]
        self.constants = [capture.constants[i] if kind == "constant" else None for kind, i in takes]
        self.arguments = tuple((at, i) for at, (kind, i) in enumerate(takes) if kind == "arg")
        self.cells = tuple(capture.state[i] for kind, i in takes if kind == "state")
        self.cells_at = tuple(at for at, (kind, _) in enumerate(takes) if kind == "state")
        uses = [plan.schedule.buffers[index] for index in plan.schedule.outputs]
        self.results = tuple((use.role == "output", use.source, s) for use, (_, s) in zip(uses, capture.shapes))
        self.num_returned = len(self.results) - len(capture.written) - len(capture.updated)
        self.no_outputs: list[Buffer | None] = [None] * len(plan.outputs)
        self.has_symbolic_shapes = any(isinstance(dim, Op) for _, _, shape in self.results for dim in shape)
        self.has_writes = bool(capture.written or capture.updated)
        self.written = frozenset(capture.written)
        self._find_memory(plan, takes)

    def _find_memory(self, plan: Plan, takes: Sequence[tuple[str, int]]) -> None:
        """Finds the outputs that may lie where something else was: over state, over arguments, in spare memory."""
        made = Counter(i for is_made, i, _ in self.results if is_made)
        number = {i: k for k, (is_made, i, _) in enumerate(self.results) if is_made and made[i] == 1}
        self.over_outputs: list[int] = []
        self.over_inputs: list[int] = []
        self.over_cells: list[Cell] = []
        self.donatable: list[tuple[int, int]] = []
        for i, k in list(number.items()):
            use = plan.outputs[i]
            places = [at for at in (use.over, *use.also) if at is not None]
            self.donatable += [(i, takes[at][1]) for at in places if takes[at][0] == "arg"]
            own = next((at for at in places if takes[at][0] == "state" and self._writes(k, takes[at][1])), None)
            if own is not None and ALONE is not None:
                self.over_outputs.append(i)
                self.over_inputs.append(own)
                self.over_cells.append(self.capture.state[takes[own][1]])
                del number[i]
        lengths = plan.fixed_lengths if self.device != EVALUATOR else ()  # () where they are not fixed
        # An output that keeps what its input holds cannot start from an earlier version.
        self.spares = Spares([(i, lengths[i]) for i in number if not plan.outputs[i].keeps] if lengths else [])
        self.small = tuple(number[i] for i in self.spares.outputs)  # among the results

    def _writes(self, result: int, state: int) -> bool:
        """True when a root is the new value of a state."""
        place, capture = result - self.num_returned, self.capture
        return 0 <= place < len(capture.written) and capture.written[place] is capture.state[state]

    def __call__(self, given: Arguments) -> Any:
        """Runs the plan on these arguments and on what the state's cells hold now."""
        form = self.capture.form
        if given.variables:
            form = replace(form, variables={**form.variables, **given.variables})
        if self.has_writes:
            self._check_aliases(given.tensors)
        free = self.no_outputs.copy()
        self.spares.give(free)
        if given.donated:
            give_donated(given, self.donatable, self.capture.state, self.capture.name, free)
        inputs = self._inputs(given.buffers)
        if self.over_cells:
            held = self._run_over_state(form, inputs, free)
        else:
            held = self._run(form, inputs, free)
        self.spares.keep([held[k] for k in self.small])
        return self._returned(held, given.tensors)

    def _run_over_state(self, form: Template, inputs: list[Buffer], free: list[Buffer | None]) -> list[Held]:
        """Runs the plan, writing new versions of state over the old ones where nobody else reads these."""
        # NOTE: inputs are there before the claim: a thread that waited with a claim of its own could wait for ever.
        claim = Claim(self.over_cells)
        try:
            claim.take()
            for output, buffer in zip(self.over_outputs, sole_versions(claim, inputs, self.over_inputs)):
                free[output] = buffer
            return self._run(form, inputs, free)
        finally:
            claim.release()

    def _run(self, form: Template, inputs: list[Buffer], free: list[Buffer | None]) -> list[Held]:
        """Runs the plan and gives state its new values; returns the memory of all results."""
        outputs = new_outputs(self.plan, self.device, form.variables, inputs, free)
        run(self.plan, inputs, outputs, form)
        held = [((outputs if made else inputs)[i], shape) for made, i, shape in self.results]
        if self.has_symbolic_shapes:
            held = [(buffer, bound(shape, form.variables)) for buffer, shape in held]
        if self.capture.written:
            Cell.hold(self.capture.written, held[self.num_returned :])
        return held

    def _check_aliases(self, tensors: Sequence[Tensor]) -> None:
        """Raises where a tensor that is written reaches the function in two ways, which it did not when it was traced."""
        cells = [tensor.cell for tensor in tensors]
        again = [cell for cell in cells if cell in self.written]
        again += [cells[i] for i in self.capture.updated if cells.count(cells[i]) > 1 or cells[i] in self.capture.state]
        if again:
            raise two_ways(self.capture.name, again[0].op.shape)

    def _inputs(self, arguments: list[Buffer]) -> list[Buffer]:
        """Returns what the plan reads, by its inputs."""
        taken = self.constants.copy()
        for at, buffer, cell in zip(self.cells_at, Cell.held(self.cells), self.cells):
            taken[at] = buffer or cell_buffer(cell)
        for at, i in self.arguments:
            taken[at] = arguments[i]
        return taken  # type: ignore[return-value]  # no place is left empty

    def _returned(self, held: list[Held], tensors: Sequence[Tensor]) -> Any:
        """Gives updated arguments their new values; returns what the function returned."""
        capture, first = self.capture, self.num_returned
        for i, value in zip(capture.updated, held[first + len(capture.written) :]):
            tensors[i].write("jit", Op(OpCode.BUFFER, value[0].dtype, (), value))
        if capture.returned is PLACE:
            return Tensor.from_memory(held[0], self.device)
        values = iter(held)
        return mapped(capture.returned, lambda _: Tensor.from_memory(next(values), self.device))


def cell_buffer(cell: Cell) -> Buffer:
    """Returns the buffer that holds the value of a cell, computed now if need be."""
    op = cell.op
    if op.code is not OpCode.BUFFER:
        op = realize([op])[0]
        if not cell.op.needs_grad:
            cell.op = op
    return cast(Buffer, op.arg[0])
