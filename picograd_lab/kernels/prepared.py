"""One launch of a user's kernel on memory of its own: to be run alone, timed, and asked what it is made of.

In:    a Kernel and its arguments
Out:   `Prepared`

This is the handle for measuring. It goes by the same stages as a plan: the same source, the same machine code.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from picograd.engine.devices import compiler_for
from picograd.engine.realize import default_device, realize
from picograd.ir.op import Buffer, Op, greatest
from picograd.ir.opcode import OpCode

Array = np.ndarray[Any, Any]


class Prepared:
    """A kernel, compiled for one device, with its inputs in memory and memory for its results.

    kernel:      as the compiler has it
    executable:  its code: `functions` has the device's function, `owner` the library or module
    inputs, outputs:  Buffers, by the parameters of the plan
    """

    def __init__(self, call: Op, device: str | None):
        self.name = device or default_device()
        compiler = compiler_for(self.name)
        self.device, self.target = compiler.device, compiler.device.target
        stored = [op for op in call.src if op.code not in (OpCode.CONST, OpCode.BIND)]
        held = realize(stored)
        params = {op: Op(OpCode.PARAM, op.dtype, (), (slot, op.shape)) for slot, op in enumerate(stored)}
        over = call.replace(tuple(params.get(op, op) for op in call.src))
        roots = [Op(OpCode.OUTPUT, dtype, (over,), i) for i, (dtype, _) in enumerate(call.arg.outputs)]
        schedule = compiler.schedule(roots)
        kernels = [item.kernel for item in schedule.kernel_items()]
        (self.kernel,) = kernels
        (self.executable,) = executables = compiler.executables(kernels)
        self._run = self.device.make_runner(schedule, executables)
        self.inputs = [held[op.arg[0]].arg[0] for op in schedule.inputs]
        self.outputs = []
        for use in schedule.written():
            numel = greatest(use.numel)
            memory = self.device.allocate(max(1, numel * use.dtype.itemsize))
            self.outputs.append(Buffer(self.name, use.dtype, numel, memory))
        self._places = schedule.outputs
        self._shapes = [shape for _, shape in call.arg.outputs]
        self._uses = schedule.buffers

    def run(self, count: int = 1) -> None:
        """Runs the kernel so many times; a GPU may still be at work when this returns."""
        for _ in range(count):
            self._run(self.inputs, self.outputs, {})

    def wait(self) -> None:
        """Waits for all runs."""
        self.device.copy_out(self.outputs[0].memory, np.empty(1, np.uint8))

    def seconds(self, count: int = 1) -> float:
        """Returns the seconds of one run, the mean of `count` that follow each other."""
        self.wait()
        start = time.perf_counter()
        self.run(count)
        self.wait()
        return (time.perf_counter() - start) / count

    def results(self) -> list[Array]:
        """Returns the results of the last run."""
        found = []
        for place, shape in zip(self._places, self._shapes):
            buffer = self.outputs[self._uses[place].source]
            array = np.empty(buffer.numel, buffer.dtype.numpy)
            self.device.copy_out(buffer.memory, array)
            found.append(array[: int(np.prod(shape))].reshape(shape))
        return found
