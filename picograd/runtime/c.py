"""The C device: the CPU's memory, plans and threads, with kernels from shared libraries.

In:    Binaries from compilers/hostc.py
Out:   `CDevice`
Called by: engine/backends/c.py.    Next: picograd/runtime/cudasim/device.py
"""

from __future__ import annotations

import ctypes

from picograd.ir.stages import Binary, Executable
from picograd.runtime.cpu.device import CPUDevice
from picograd.runtime.libraries import load_library


class CDevice(CPUDevice):
    """Implements ir/backend.py's Device."""

    def load(self, binary: Binary) -> Executable:
        """Loads the shared library of a kernel; it stays loaded."""
        library = load_library(binary, self.name)
        functions = [library[f"{launch.symbol}_words"] for launch in binary.launches]
        addresses = tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
        return Executable(binary.name, binary.params, binary.variables, binary.launches, addresses, library)
