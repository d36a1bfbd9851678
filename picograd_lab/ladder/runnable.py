"""A kernel with memory for what it reads and writes: loaded once, run as often as wanted.

In:    an Executable, the device that has loaded it, arrays
Out:   `Runnable`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse, Executable, Kernel, Schedule, ScheduleItem
from picograd.ir.symbolic import dim_value

Array = np.ndarray[Any, Any]
UNWRITTEN = 0xFF  # every byte of an output before the first run: NaN in a float


class Runnable:
    """A kernel and its memory. Its threads are those of the moment when it is made.

    inputs:  an array for each parameter "in", in their order; parameters "out" and "scratch" come after them
    """

    def __init__(self, device: Any, executable: Executable, inputs: Sequence[Array]):
        params = [param for param in executable.params if param.role != "scratch"]
        numels = [dim_value(param.numel, {}) for param in params]
        self._device, self._num_inputs = device, len(inputs)
        self._buffers = [
            Buffer(device.target.device, param.dtype, numel, device.allocate(numel * param.dtype.itemsize))
            for param, numel in zip(params, numels)
        ]
        unwritten = [np.full(numel * p.dtype.itemsize, UNWRITTEN, np.uint8) for p, numel in zip(params, numels)]
        for buffer, array in zip(self._buffers, [*inputs, *unwritten[len(inputs) :]]):
            device.copy_in(buffer.memory, np.ascontiguousarray(array))
        roles = [("input", i) for i in range(len(inputs))] + [("output", i) for i in range(len(params) - len(inputs))]
        uses = tuple(BufferUse(p.dtype, p.numel, role, source) for p, (role, source) in zip(params, roles))
        item = ScheduleItem(Kernel(executable.name, executable.params, (), ()), tuple(range(len(params))))
        self._run = device.make_runner(Schedule((item,), uses, (), (len(inputs),), 0), (executable,))

    def run(self) -> None:
        """Computes the outputs."""
        self._run(self._buffers[: self._num_inputs], self._buffers[self._num_inputs :], {})

    def results(self) -> list[Array]:
        """Returns the outputs as flat arrays."""
        arrays = []
        for out in self._buffers[self._num_inputs :]:
            arrays.append(np.empty(dim_value(out.numel, {}), out.dtype.numpy))
            self._device.copy_out(out.memory, arrays[-1])
        return arrays
