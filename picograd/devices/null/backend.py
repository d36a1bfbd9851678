"""A device that compiles for this processor and never runs: for tests and timings of the compiler, and for `view`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.device import Target
from picograd.devices.compile_llvm import compile_source, host_target
from picograd.devices.cpu.render import render
from picograd.engine.compiler import Backend, Compiler
from picograd.ir.backend import MemoryCount
from picograd.ir.op import Op
from picograd.ir.stages import Binary, Executable, Launch, Param, Runner, Schedule
from picograd.record import Record, replace


class NoMemory(Record):
    """Stands for memory that is never touched."""

    nbytes: int


class NullDevice:
    """Implements ir/backend.py's Device: copies to the host are zeros."""

    def __init__(self, target: Target):
        self.name, self.target = "NULL", replace(target, device="NULL")
        self.memory = MemoryCount()  # stays at 0

    def allocate(self, nbytes: int) -> NoMemory:
        return NoMemory(nbytes)

    def allocate_all(self, lengths: Sequence[int]) -> list[NoMemory]:
        """Returns memory of at least each number of bytes."""
        return [self.allocate(nbytes) for nbytes in lengths]

    def copy_in(self, memory: NoMemory, array: np.ndarray[Any, Any]) -> None:
        """Does nothing."""

    def copy_out(self, memory: NoMemory, array: np.ndarray[Any, Any]) -> None:
        """Fills the array with zeros."""
        array.fill(0)

    def copy(self, target: NoMemory, source: NoMemory, nbytes: int) -> None:
        """Does nothing."""

    def load(self, binary: Binary) -> Executable:
        return binary.executable((None,) * len(binary.launches))

    def load_host(self, name: str, params: Sequence[Param], variables: Sequence[Op], work: int, run: Any) -> Executable:
        return Executable(name, tuple(params), tuple(variables), (Launch(f"{name}_0", 1, 1, work),), (None,))

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns a runner that does nothing."""
        return lambda *_: None


def make_compiler() -> Compiler:
    """Returns a Compiler whose kernels do nothing."""
    return Compiler(NullDevice(host_target()), Backend(render, compile_source))


check_usable = host_target  # raises a DeviceError if LLVM is missing
