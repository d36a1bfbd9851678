"""The replay of most functions: Tensors of fixed shapes in, Tensors out, and no state but what is only read.

In:    a plan and where its inputs come from; later the memory of a call's arguments
Out:   `straight`: what is called with that memory, and gives what the function returned
Called by: transforms/capture.py.    Next: picograd/transforms/returned.py

A call of a small kernel is mostly Python. What other replays ask at each call (has state left its claim, how long is a
symbolic axis, is memory donated, is a number on another device, is an argument written) has the answer no here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from picograd.control.structure import PLACE, mapped
from picograd.engine.plan import Template
from picograd.engine.realize import new_outputs
from picograd.engine.watch import active
from picograd.ir.checks import Refused
from picograd.ir.graphless import Graphless
from picograd.ir.op import Buffer, Shape
from picograd.ir.stages import Plan, Settled
from picograd.tensor.cell import Cell, Held
from picograd.tensor.compute import cell_buffer
from picograd.tensor.tensor import Tensor
from picograd.transforms.spares import Spares

StraightCall = Callable[[list[Buffer]], Any]


def straight(
    plan: Plan, device: str, form: Template, settled: Settled, constants: Sequence[Buffer], reads: Sequence[Cell],
    inputs_of: Callable[[list[Any]], Sequence[Any]], spares: Spares, shapes: Sequence[Shape], returned: Any,
    graphless: Mapping[int, str],
) -> StraightCall:  # fmt: skip
    """Returns what runs a plan whose outputs are the results, in order.

    Args:
      device:     where it runs
      form:       of its graphs
      settled:    which inputs and outputs are other memory at each call
      constants:  buffers that the function made itself
      reads:      state that it reads
      inputs_of:  [*constants, *memory of state, *of arguments]  ->  the plan's inputs
      spares:     memory of small results of earlier calls
      shapes:     of the results
      returned:   what the function returned, with a mark for each Tensor
      graphless:  numbers of the results that would have a graph without jit, with the name of the function
    """
    is_one, run, variables = returned is PLACE, plan.run, form.variables

    def new_results(inputs: Sequence[Any], held: list[Held | None]) -> list[Held]:
        """Returns memory for results, new where no version of an earlier call is free."""
        missing = [number for number, version in enumerate(held) if version is None]
        made = dict(zip(missing, new_outputs(plan, device, {}, inputs, missing)))
        made |= {number: Graphless.of(made[number], graphless[number]) for number in missing if number in graphless}
        return [version or (made[number], shapes[number]) for number, version in enumerate(held)]

    def call(buffers: list[Buffer]) -> Any:
        others = [*constants]
        for cell in reads:
            content = cell.content
            others.append(content[0] if type(content) is tuple else cell_buffer(cell))
        inputs = inputs_of(others + buffers)
        held: list[Any] = spares.given()
        if None in held:
            held = new_results(inputs, held)
            spares.keep(held)
        version = held[0]
        try:
            run(inputs, version[:1] if is_one else [buffer for buffer, _ in held], variables, True, settled)
        except Refused as report:
            raise form.error(report) from None
        for counts in active():
            counts.add_run(plan)
        if is_one:
            return Tensor.from_memory(version, device)
        results = map(Tensor.from_memory, held, [device] * len(held))
        return mapped(returned, lambda _: next(results))

    return call
