"""An NVIDIA GPU with nothing but its driver: LLVM IR, compiled by LLVM to PTX, which the driver compiles.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compile.nvptx import check_compiler, compile_source, gpu_target
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import DeviceError
from picograd.render.nvptx import render
from picograd.runtime.cuda import CudaDevice
from picograd.runtime.cuda_driver import available, capability


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU."""
    check_compiler()
    gpu = capability()
    target = gpu_target(gpu.major, gpu.minor, gpu.shared_bytes)
    return Compiler(CudaDevice(target), Backend(render, compile_source))


def why_not() -> str | None:
    """Returns None where there is a GPU to use, and LLVM writes PTX, else the reason."""
    try:
        check_compiler()
    except DeviceError as error:
        return error.fact
    return available()
