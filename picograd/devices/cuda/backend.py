"""An NVIDIA GPU: CUDA C, compiled by NVRTC to machine code."""

from __future__ import annotations

from functools import partial

from picograd.device import Target
from picograd.devices import compile_llvm as llvm
from picograd.devices.cuda.commands import CALLER, caller_source
from picograd.devices.cuda.compile import check_architecture, compile_source, version
from picograd.devices.cuda.device import CudaDevice, target_of
from picograd.devices.cuda.driver import capability
from picograd.devices.cuda.render import render, source_of_given
from picograd.engine.cache import entry_name, kept
from picograd.engine.compiler import Backend, Compiler, Given

HINT = "install or update the NVIDIA driver, then pip install 'picograd[cuda]'"


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU.

    Raises:
      DeviceError: there is none.
      CompileError: NVRTC is missing, or does not support the GPU.
    """
    gpu = capability()
    target = target_of(gpu, "nvrtc {}.{}".format(*version()))
    check_architecture(target.arch)
    return Compiler(make_device(target), Backend(render, compile_source, {"cuda": Given(source_of_given, compile_source)}))


def make_device(target: Target | None = None) -> CudaDevice:
    """Returns the first GPU, for code of this target."""
    host = llvm.host_target()
    return CudaDevice(kept(entry_name(CALLER, host), lambda: partial(llvm.compile_source, caller_source(), host))(), target)


def check_usable() -> None:
    """Checks that there is a GPU, and that NVRTC supports it.

    Raises:
      DeviceError:  there is no driver or no GPU.
      CompileError: NVRTC is missing, or does not support the GPU.
    """
    check_architecture(target_of(capability()).arch)
