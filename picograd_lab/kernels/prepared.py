"""A launch of a user's kernel on memory of its own, to be run alone, timed and inspected.

In:    a Kernel and its arguments
Out:   `Prepared`

For measurements. It goes through the same stages as a plan: the same source, the same machine code.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cudasim.device import ORDERS, UNWRITTEN, CudaSimDevice
from picograd.engine.compiler import given_source
from picograd.engine.devices import compiler_for, default_device
from picograd.engine.realize import realize
from picograd.errors import ArgumentError, DeviceError
from picograd.interrupts import cached_property
from picograd.ir.op import Buffer, Op, greatest
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Source
from picograd_lab.ladder.counts import compile_counted, take_counts
from picograd_lab.ladder.gpu import greatest_usage

Array = np.ndarray[Any, Any]


class Prepared:
    """A kernel compiled for one device, with its inputs and results in memory.

    given:       the user's kernel in its KERNEL
    kernel:      the compiler's form of it
    executable:  its code: `functions` has the device's function, `owner` the library or module
    inputs, outputs:  Buffers, by the parameters of the plan
    """

    def __init__(self, call: Op, device: str | None):
        self.name, self.given = device or default_device(), call.arg[0]
        compiler = compiler_for(self.name)
        self.device, self.target = compiler.device, compiler.device.target
        stored = [op for op in call.src if op.code not in (OpCode.CONST, OpCode.BIND)]
        held = realize(stored)
        params = {op: Op(OpCode.PARAM, op.dtype, (), (slot, op.shape)) for slot, op in enumerate(stored)}
        over = call.replace(tuple(params.get(op, op) for op in call.src))
        roots = [Op(OpCode.OUTPUT, dtype, (over,), i) for i, dtype in enumerate(self.given.results)]
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
        self._schedule, self._places = schedule, schedule.outputs
        self._shapes = call.arg[1]
        self._uses = schedule.buffers

    def run(self, count: int = 1, order: str = "forward") -> None:
        """Runs the kernel `count` times; a GPU may still be running when this returns.

        Args:
          order:  of threads and blocks on the simulator: "forward", "backward" or "shuffled"
        """
        if order not in ORDERS:
            raise ArgumentError(f"run: order must be one of {', '.join(ORDERS)}, got {order!r}.")
        if isinstance(self.device, CudaSimDevice):
            self.device.order = ORDERS.index(order)
        try:
            for _ in range(count):
                self._run(self.inputs, self.outputs, {})
        finally:
            if isinstance(self.device, CudaSimDevice):
                self.device.order = 0

    def forget(self) -> None:
        """Fills the results with bytes of 0xFF: NaN in a float, which shows if nothing is written."""
        for buffer in self.outputs:
            self.device.copy_in(buffer.memory, np.full(max(1, buffer.nbytes), UNWRITTEN, np.uint8))

    def wait(self) -> None:
        """Waits for all runs."""
        self.device.copy_out(self.outputs[0].memory, np.empty(1, np.uint8))

    def seconds(self, count: int = 1) -> float:
        """Returns the seconds of one run, as the mean of `count` consecutive ones."""
        if count < 1:
            raise ArgumentError(f"seconds: count must be at least 1, got {count}.")
        self.wait()
        start = time.perf_counter()
        self.run(count)
        self.wait()
        return (time.perf_counter() - start) / count

    @cached_property
    def source(self) -> Source:
        """The compiled text: the user's, and the function around it that a plan launches."""
        source = given_source(self.kernel, compiler_for(self.name).backend)
        assert source is not None, f"{self.name} takes no kernel in this language"
        return source

    def counts(self) -> dict[str, int]:
        """Returns counts of one run on the simulator, by name: loads, stores, sectors (picograd_lab/ladder/counts.h).

        Raises:
          DeviceError: the device is a GPU; or the kernel breaks a rule.
        """
        if not isinstance(self.device, CudaSimDevice):
            raise DeviceError("counts: only the simulator counts.", 'x.to("CUDASIM")')
        counted = self.device.load(compile_counted(self.source))
        self.device.make_runner(self._schedule, [counted])(self.inputs, self.outputs, {})
        return take_counts(counted)

    def resources(self, arch: str = "sm_90a") -> nvrtc.ResourceUsage:
        """Returns registers, shared memory and spills for this machine's GPU, or for `arch`; no GPU is needed for that.

        For several launches it returns the largest of each.

        Raises:
          CompileError: NVRTC is missing, or rejected the source.
        """
        return greatest_usage([self.source], self.target.arch if self.target.device == "CUDA" else arch)

    def results(self) -> list[Array]:
        """Returns the results of the last run."""
        found = []
        for place, shape in zip(self._places, self._shapes):
            buffer = self.outputs[self._uses[place].source]
            array = np.empty(buffer.numel, buffer.dtype.numpy)
            self.device.copy_out(buffer.memory, array)
            found.append(array[: int(np.prod(shape))].reshape(shape))
        return found
