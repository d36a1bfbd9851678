"""An NVIDIA GPU with only its driver: LLVM compiles LLVM IR to PTX, which the driver compiles."""

from __future__ import annotations

from picograd.device import Target
from picograd.devices.cuda.backend import make_device
from picograd.devices.cuda.driver import capability
from picograd.devices.ptx.compile import check_compiler, compile_source, gpu_target
from picograd.devices.ptx.render import render
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import DeviceError

HINT = "install or update the NVIDIA driver, then pip install cuda-bindings"


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU.

    Raises:
      DeviceError: there is no driver or no GPU, or LLVM does not write PTX for it.
    """
    return Compiler(make_device(_target()), Backend(render, compile_source))


def _target() -> Target:
    """Returns the target of the present GPU."""
    check_compiler()
    try:
        gpu = capability()
    except DeviceError as error:
        raise DeviceError(_of_ptx(error.fact), error.hint) from None
    return gpu_target(gpu.major, gpu.minor, gpu.shared_bytes)


check_usable = _target


def _of_ptx(fact: str) -> str:
    """Returns the text of a driver error with PTX instead of CUDA as the device's name."""
    return f"PTX: {fact.removeprefix('CUDA: ')}"
