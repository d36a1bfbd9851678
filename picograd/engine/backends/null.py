"""Compiles for this processor and never runs: for tests and timings of the compiler.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compilers.llvm import compile_source, host_target
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import DeviceError
from picograd.render.llvm import render
from picograd.runtime.null import NullDevice


def make_compiler() -> Compiler:
    """Returns a Compiler whose kernels do nothing."""
    return Compiler(NullDevice(host_target()), Backend(render, compile_source))


def why_not() -> str | None:
    """Returns None where LLVM is here, else the reason."""
    try:
        host_target()
    except DeviceError as error:
        return error.fact
    return None
