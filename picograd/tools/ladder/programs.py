"""Takes a Program in the free form down the road that every kernel goes, and runs it on arrays.

In:    Program, arrays
Out:   `text_of`; `Runnable`
Next:  picograd/tools/ladder/blas.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.engine.compiler import Compiler
from picograd.ir.dims import dim_value
from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse, Kernel, Program, Schedule, ScheduleItem
from picograd.ir.text import format_program
from picograd.record import replace
from picograd.road import finish

Array = np.ndarray[Any, Any]
PHASE = "  phase"  # how a phase begins in the text of a Program


def text_of(program: Program) -> str:
    """Returns the text of a Program, to be read by people: each phase names its loops anew."""
    first, *rest = [format_program(replace(program, phases=(phase,))) for phase in program.phases]
    return "\n".join([first, *(text[text.index(PHASE) :] for text in rest)])


class Runnable:
    """A Program as machine code, with memory for its parameters; its threads are those of the moment when it is made.

    program:  in the free form; its parameters are inputs, then one output, then scratch memory
    inputs:   float32
    """

    def __init__(self, program: Program, compiler: Compiler, inputs: Sequence[Array]):
        device, backend = compiler.device, compiler.backend
        source = backend.render(finish(program, device.target), device.target)
        executable = device.load(backend.compile(source, device.target))
        given = [param for param in program.params if param.role != "scratch"]
        self._device = device
        self._buffers = [
            Buffer(device.target.device, p.dtype, dim_value(p.numel, {}), device.allocate(4 * dim_value(p.numel, {})))
            for p in given
        ]
        for buffer, array in zip(self._buffers, inputs):
            device.copy_in(buffer.memory, np.ascontiguousarray(array, np.float32))
        roles = [("input", i) for i in range(len(inputs))] + [("output", 0)]
        uses = tuple(BufferUse(p.dtype, p.numel, role, source) for p, (role, source) in zip(given, roles))
        item = ScheduleItem(Kernel(program.name, program.params, (), ()), tuple(range(len(given))))
        self._run = device.make_runner(Schedule((item,), uses, (), (len(inputs),), 0), (executable,))

    def run(self) -> None:
        """Computes the output."""
        self._run(self._buffers[:-1], self._buffers[-1:], {})

    def result(self) -> Array:
        """Returns the output as a flat array."""
        out = self._buffers[-1]
        array = np.empty(dim_value(out.numel, {}), np.float32)
        self._device.copy_out(out.memory, array)
        return array
