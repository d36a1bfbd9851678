"""An NVIDIA GPU: CUDA C, compiled by NVRTC to machine code.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compile.nvrtc import compile_source
from picograd.engine.compiler import Backend, Compiler
from picograd.render.cuda import render
from picograd.runtime.cuda import CudaDevice
from picograd.runtime.cuda_driver import available


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU."""
    return Compiler(CudaDevice(), Backend(render, compile_source))


def why_not() -> str | None:
    """Returns None where there is a GPU to use, else the reason."""
    return available()
