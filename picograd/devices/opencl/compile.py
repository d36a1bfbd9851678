"""Compiles OpenCL C with the compiler of an OpenCL driver.

In:    Source (language "opencl"), Target, an OpenCL context
Out:   Binary: machine code from the driver
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from picograd.device import Target
from picograd.devices.compile_host import rejected
from picograd.errors import CompileError
from picograd.interrupts import lock
from picograd.ir.stages import Binary, Source

PRIMITIVES = Path(__file__).parents[1] / "primitives.h"
INCLUDE = '#include "primitives.h"\n'
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
_compiling = lock()  # not all drivers' compilers are thread-safe


def compile_source(source: Source, target: Target, context: Any) -> Binary:
    """Compiles OpenCL C.

    Raises:
      CompileError: the driver rejected the source (the message shows the line), or the device lacks float64.
    """
    import pyopencl

    cl: Any = pyopencl
    features = target.features.split(",")
    if "float64" in source.text and "fp64" not in features:
        fact = f"OPENCL: kernel {source.name} computes in float64, and {target.arch} has no cl_khr_fp64."
        raise CompileError(fact, hint="cast to float32, or use PICOGRAD_DEVICE=CPU")
    options = ["-cl-std=CL1.2", "-w", *([ROUNDED] if "rounded" in features else [])]
    with _compiling:
        program = cl.Program(context, text_of(source))
        try:
            program.build(options, cache_dir=False)
        except cl.RuntimeError:
            log = program.get_build_info(context.devices[0], cl.program_build_info.LOG)
            # PoCL's form is "error: name.cl:4:3: ...", others are like Clang's
            log = re.sub(r"^error: (\S+:\d+:\d+):", r"\1: error:", log, flags=re.MULTILINE)
            raise rejected("opencl", source, target.arch, log, "cl") from None
        (data,) = program.get_info(cl.program_info.BINARIES)
    return source.binary(data)


def text_of(source: Source) -> str:
    """Returns the text with the header inserted, since not every driver reads files; lines keep their numbers."""
    text = source.text.replace(INCLUDE, "\n", 1)
    return f'{_primitives()}#line 1 "{source.name}.cl"\n{text}'


@cache
def _primitives() -> str:
    return PRIMITIVES.read_text()
