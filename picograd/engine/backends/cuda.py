"""An NVIDIA GPU: CUDA C, compiled by NVRTC to machine code.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compile.nvrtc import check_architecture, compile_source, version
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import PicogradError
from picograd.render.cuda import render
from picograd.runtime.cuda.device import CudaDevice, target_of
from picograd.runtime.cuda.driver import available, capability


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU.

    Raises:
      DeviceError: there is none.
      CompileError: NVRTC is not installed, or makes no code for it.
    """
    gpu = capability()
    target = target_of(gpu, "nvrtc {}.{}".format(*version()))
    check_architecture(target.arch)
    return Compiler(CudaDevice(target), Backend(render, compile_source))


def why_not() -> str | None:
    """Returns None where there is a GPU to use, and NVRTC makes code for it, else the reason."""
    reason = available()
    if reason is not None:
        return reason
    try:
        check_architecture(target_of(capability()).arch)
    except PicogradError as error:
        return error.fact
    return None
