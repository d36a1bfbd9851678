"""The CPU: LLVM IR, compiled and linked in this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from picograd.config import num_threads
from picograd.device import Target
from picograd.devices.c.compile import compile_given
from picograd.devices.c.render import source_of_given
from picograd.devices.compile_llvm import compile_source, host_target
from picograd.devices.cpu.device import CPUDevice
from picograd.devices.cpu.render import render
from picograd.devices.cpu.walker import walker_source
from picograd.engine.cache import entry_name, kept
from picograd.engine.compiler import Backend, Compiler, Given, ahead
from picograd.ir.stages import Binary

HINT = "pip install --force-reinstall llvmlite"


def make_compiler() -> Compiler:
    """Returns the Compiler of this processor."""
    target = host_target()
    backend = Backend(render, compile_source, {"c": Given(source_of_given, compile_given)})
    return Compiler(CPUDevice(target, plan_walker(target)), backend)


def plan_walker(target: Target) -> Callable[[], Binary]:
    """Returns a function that gives the code of the plan walker; it is compiled while the first plan is made."""
    make = kept(entry_name("plan_walker", target), lambda: partial(compile_source, walker_source(target.triple), target))
    return ahead(make) if num_threads() > 1 else make


check_usable = host_target  # raises a DeviceError where LLVM is not here
