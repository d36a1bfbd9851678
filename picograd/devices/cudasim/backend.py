"""The simulator: the same CUDA C, compiled by the C++ compiler of this machine."""

from __future__ import annotations

from picograd.devices.cuda.render import render, source_of_given
from picograd.devices.cudasim.compile import compile_source, compiler
from picograd.devices.cudasim.device import CudaSimDevice
from picograd.engine.compiler import Backend, Compiler, Given

HINT = "install a C++ compiler (g++ or clang++), or name it in CXX"


def make_compiler() -> Compiler:
    """Returns the Compiler of the simulator.

    Raises:
      CompileError: there is no C++ compiler.
    """
    compiler()
    given = Given(source_of_given, compile_source)
    return Compiler(CudaSimDevice(), Backend(render, compile_source, {"cuda": given, "c": given}))


check_usable = compiler  # raises a CompileError where there is no C++ compiler
