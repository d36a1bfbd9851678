"""Counts of a kernel in the simulator: instructions of warps, sectors, bank conflicts, bytes by memory space.

In:    a Source of CUDA C; its library, loaded by CudaSimDevice
Out:   `compile_counted`;  `take_counts`: the counts since the last call, by name

counts.h defines what is counted, and how. A kernel that is compiled otherwise counts nothing and has no extra cost.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import TARGET
from picograd.ir.stages import Binary, Executable, Source

HEADER = Path(__file__).parent / "counts.h"
WARP_THREADS, SECTOR_BYTES = 32, 32


def compile_counted(source: Source) -> Binary:
    """Compiles CUDA C for the simulator, with counts.

    Raises:
      CompileError: the compiler is missing, or rejected the source; the message shows the line.
    """
    return simulated.compile_source(source, TARGET, header=HEADER)


def take_counts(executable: Executable) -> dict[str, int]:
    """Returns the counts since the last call, by name, and sets them to 0.

    Names are those of counts.h in lower case. Multiply-adds and exponentials are counted per thread, all other
    instructions per warp.
    """
    library = executable.owner
    library.picograd_counter_names.restype = ctypes.c_char_p
    names = library.picograd_counter_names().decode().split()
    values = (ctypes.c_longlong * len(names))()
    library.picograd_take_counts(values)
    return {name.lower(): value for name, value in zip(names, values)}
