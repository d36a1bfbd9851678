"""Kernels with memory for their operands: loaded once, run repeatedly.

In:    an Executable and arrays, or a Schedule, its Executables and buffers; the device that has loaded them
Out:   `Runnable`, one kernel;  `Planned`, the kernels of a schedule
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
UNWRITTEN = 0xFF  # fills outputs before the first run: NaN as a float


class Planned:
    """The kernels of a schedule and their memory, with the number of threads at its construction.

    executables:  in the order of `schedule.kernel_items()`
    inputs:       buffers of the schedule's inputs
    parts:        number of consecutive outputs of the schedule in each result; by default one
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

    inputs:  an array for each "in" parameter, in order; "out" and "scratch" parameters follow them
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
