"""Kernels with memory for what they read and write: loaded once, run as often as wanted.

In:    an Executable and arrays, or a Schedule, its Executables and buffers; the device that has loaded them
Out:   `Runnable`, one kernel;  `Planned`, those of a schedule
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse, Executable, Kernel, Param, Schedule, ScheduleItem
from picograd.ir.symbolic import dim_value

Array = np.ndarray[Any, Any]
UNWRITTEN = 0xFF  # every byte of an output before the first run: NaN in a float


class Planned:
    """The kernels of a schedule and their memory. Their threads are those of the moment when it is made.

    executables:  by `schedule.kernel_items()`
    inputs:       with memory, by the schedule's inputs
    parts:        how many of the schedule's outputs follow each other in each result; by default one
    """

    def __init__(
        self, device: Any, schedule: Schedule, executables: Sequence[Executable], inputs: Sequence[Buffer],
        parts: Sequence[int] = (),
    ):  # fmt: skip
        self.executables = tuple(executables)
        self._device, self._inputs = device, list(inputs)
        self._outputs = [_buffer(device, use) for use in schedule.written()]
        for out in self._outputs:
            device.copy_in(out.memory, np.full(max(1, out.nbytes), UNWRITTEN, np.uint8))
        places = iter(schedule.outputs)
        self._results = [
            [self._outputs[schedule.buffers[place].source] for place in islice(places, count)]
            for count in parts or [1] * len(schedule.outputs)
        ]
        self._run = device.make_runner(schedule, self.executables)

    def run(self) -> None:
        """Computes the outputs."""
        self._run(self._inputs, self._outputs, {})

    def results(self) -> list[Array]:
        """Returns the results as flat arrays."""
        return [np.concatenate([self._array(part) for part in result]) for result in self._results]

    def _array(self, buffer: Buffer) -> Array:
        array: Array = np.empty(dim_value(buffer.numel, {}), buffer.dtype.numpy)
        self._device.copy_out(buffer.memory, array)
        return array


class Runnable(Planned):
    """A kernel and its memory.

    inputs:  an array for each parameter "in", in their order; parameters "out" and "scratch" come after them
    """

    def __init__(self, device: Any, executable: Executable, inputs: Sequence[Array]):
        params = [param for param in executable.params if param.role != "scratch"]
        places = [("input", i) for i in range(len(inputs))] + [("output", i) for i in range(len(params) - len(inputs))]
        uses = tuple(BufferUse(p.dtype, p.numel, role, source) for p, (role, source) in zip(params, places))
        item = ScheduleItem(Kernel(executable.name, executable.params, (), ()), tuple(range(len(params))))
        buffers = [_buffer(device, param) for param in params[: len(inputs)]]
        for buffer, array in zip(buffers, inputs):
            device.copy_in(buffer.memory, np.ascontiguousarray(array))
        outputs = tuple(range(len(inputs), len(params)))
        super().__init__(device, Schedule((item,), uses, (), outputs, 0), (executable,), buffers)


def _buffer(device: Any, use: BufferUse | Param) -> Buffer:
    numel = dim_value(use.numel, {})
    return Buffer(device.target.device, use.dtype, numel, device.allocate(numel * use.dtype.itemsize))
