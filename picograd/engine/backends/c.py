"""This processor by readable C, compiled by the C compiler of this machine.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compilers.hostc import c_target, compile_source, compiler
from picograd.compilers.llvm import host_target
from picograd.engine.backends.cpu import plan_walker
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import CompileError
from picograd.render.c import render
from picograd.runtime.c import CDevice


def make_compiler() -> Compiler:
    """Returns the Compiler of this processor; plans are walked by the same native code as the CPU's."""
    return Compiler(CDevice(c_target(), plan_walker(host_target())), Backend(render, compile_source))


def why_not() -> str | None:
    """Returns None where there is a C compiler, else the reason."""
    try:
        compiler()
    except CompileError as error:
        return error.fact
    return None
