"""The CPU device: memory of this process, object files linked into it, plans walked natively.

In:    Binaries, Schedules, host arrays
Out:   `CPUDevice`
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cpu.memory import Memory, MemoryPool
from picograd.devices.cpu.objects import Image, Placed, image_of, place
from picograd.devices.cpu.runner import HostCode, Runner
from picograd.devices.cpu.walker import Walker, bind_walker
from picograd.errors import DeviceError
from picograd.interrupts import cached_property, forks_wait, held_back
from picograd.ir.op import Op
from picograd.ir.stages import REPORT_WORDS, Binary, Executable, Launch, Param, Schedule
from picograd.ir.stages import Runner as RunnerType
from picograd.loading import load_late
from picograd.runtime.launches import Function

FEW_NBYTES = 4096  # that are copied once more: to ask NumPy where they are costs as much
_linking = threading.Lock()
_library_number = itertools.count()


# ---- the device ----
class CPUDevice:
    """Implements ir/backend.py's Device.

    target:  what code generation needs to know
    memory:  the pool blocks come from
    """

    def __init__(self, target: Target, walker: Callable[[], Binary]):
        """`walker` gives `walker_source()` compiled for `target`; it is asked when the first plan is to be run."""
        self.name, self.target, self.memory = target.device, target, MemoryPool()
        self._make_walker = walker

    @cached_property
    def _walker(self) -> Walker:
        return bind_walker(linked(self._make_walker()))

    def allocate(self, nbytes: int) -> Memory:
        """Returns at least `nbytes` bytes, aligned to 64.

        Raises:
          OutOfMemoryError: the system gives no memory.
        """
        return self.memory.allocate(nbytes)

    def allocate_all(self, lengths: Sequence[int]) -> list[Memory]:
        """Returns memory of at least each number of bytes.

        Raises:
          OutOfMemoryError: the system gives no memory.
        """
        return self.memory.allocate_all(lengths)

    def copy_in(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        assert array.flags.c_contiguous and array.nbytes <= memory.nbytes, f"{array.nbytes} bytes into {memory}"
        data = array.tobytes() if array.nbytes <= FEW_NBYTES else array.ctypes.data
        ctypes.memmove(memory.address, data, array.nbytes)

    def copy_out(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`; runs are over when they return."""
        assert array.flags.c_contiguous and array.nbytes <= memory.nbytes, f"{array.nbytes} bytes from {memory}"
        ctypes.memmove(array.ctypes.data, memory.address, array.nbytes)

    def copy(self, target: Memory, source: Memory, nbytes: int) -> None:
        """Copies the first `nbytes` bytes."""
        ctypes.memmove(target.address, source.address, nbytes)

    def load(self, binary: Binary) -> Executable:
        """Links an object file into this process; it is unloaded when the Executable dies. Cost: 0.1 ms."""
        return linked(binary)

    def load_host(
        self, name: str, params: Sequence[Param], variables: Sequence[Op], work: int, run: Function
    ) -> Executable:
        """Makes a function on arrays callable within plans; a report is added to its parameters."""
        given = (*params, Param(dtypes.int64, REPORT_WORDS, "report"))
        code = HostCode(given, variables, run)
        return Executable(name, given, tuple(variables), (Launch(f"{name}_0", 1, 1, work),), (code.address,), code)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> RunnerType:
        """Returns run(inputs, outputs, variables, may_stop); its threads are `config.num_threads()` at this moment."""
        # NOTE: Python calls a bound method more quickly than an object whose class has __call__.
        return Runner(schedule, executables, self._walker, self.memory).__call__


# ---- code that is loaded ----
def linked(binary: Binary) -> Executable:
    """Returns the functions of an object file, in this process for as long as the Executable lives.

    Raises:
      DeviceError: the object file needs a symbol that this process does not have, or the system lets nobody make code.
    """
    image = image_of(binary.data)
    owner = link(binary) if image is None else placed(binary.name, image)
    addresses = tuple(owner[launch.symbol] for launch in binary.launches)
    return Executable(binary.name, binary.params, binary.variables, binary.launches, addresses, owner)


def placed(name: str, image: Image) -> Placed:
    """Returns the code of a kernel in memory.

    Raises:
      DeviceError: the system lets nobody make code.
    """
    with forks_wait(), _linking:
        try:
            return place(image)
        except OSError as error:
            raise DeviceError(f"CPU: kernel {name} cannot be loaded: {os.strerror(error.errno or 0)}.") from None


def link(binary: Binary) -> Any:
    """Returns llvmlite's tracker of an object file that LLVM links: addresses by symbol.

    Raises:
      DeviceError: the object file needs a symbol that this process does not have.
    """
    binding = load_late("llvmlite.binding")
    with held_back(), forks_wait(), _linking:
        builder = binding.JITLibraryBuilder().add_object_img(binary.data).add_current_process()
        for launch in binary.launches:
            builder.export_symbol(launch.symbol)
        try:
            return builder.link(_linker(), f"picograd_{next(_library_number)}")
        except RuntimeError as error:
            raise DeviceError(f"CPU: kernel {binary.name} cannot be linked: {str(error).strip()}") from None


@cache
def _linker() -> Any:
    binding = load_late("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.create_lljit_compiler(use_jit_link=True)
