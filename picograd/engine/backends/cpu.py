"""The CPU: LLVM IR, compiled and linked in this process.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compile.llvm import compile_source, host_target
from picograd.engine.cache import kept
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import DeviceError
from picograd.render.llvm import render
from picograd.runtime.cpu import CPUDevice
from picograd.runtime.cpu_walker import walker_source


def make_compiler() -> Compiler:
    """Returns the Compiler of this processor."""
    target = host_target()
    walker = kept("plan_walker", target, lambda: compile_source(walker_source(target.triple), target))
    return Compiler(CPUDevice(target, walker), Backend(render, compile_source))


def why_not() -> str | None:
    """Returns None where the CPU can be used, else the reason."""
    try:
        host_target()
    except DeviceError as error:
        return error.fact
    return None
