"""The CPU: LLVM IR, compiled and linked in this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from picograd.compilers import llvm
from picograd.compilers.llvm import host_target
from picograd.config import num_threads
from picograd.device import Target
from picograd.devices.c import compile as c
from picograd.devices.c.render import source_of_given
from picograd.devices.cpu.device import CPUDevice, linked
from picograd.devices.cpu.render import render
from picograd.devices.cpu.walker import walker_source
from picograd.engine.cache import entry_name, kept
from picograd.engine.compiler import Backend, Compiler, ahead
from picograd.errors import CompileError, DeviceError
from picograd.ir.stages import Binary, Executable, Source

HINT = "pip install --force-reinstall llvmlite"


class Processor(CPUDevice):
    """This processor, which runs a user's kernels in C too."""

    def load(self, binary: Binary) -> Executable:
        """Returns the functions of an object file of LLVM's, or of a library that the C compiler made."""
        return c.loaded(binary, self.name) if c.is_library(binary.data) else linked(binary)


def compile_source(source: Source, target: Target) -> Binary:
    """Compiles LLVM IR, or a user's C.

    Raises:
      CompileError: there is no C compiler, or it rejected the source.
    """
    if source.language != "c":
        return llvm.compile_source(source, target)
    try:
        c.compiler()
    except CompileError as error:
        fact = error.fact.replace("C:", "CPU: a kernel in C", 1)
        raise CompileError(fact, "install gcc or clang, or name it in CC.") from None
    return c.compile_source(source, target)


def make_compiler() -> Compiler:
    """Returns the Compiler of this processor."""
    target = host_target()
    return Compiler(Processor(target, plan_walker(target)), Backend(render, compile_source, {"c": source_of_given}))


def plan_walker(target: Target) -> Callable[[], Binary]:
    """Returns a function that gives the code of the plan walker; it is compiled while the first plan is made."""
    begin = partial(llvm.compile_source, target=target)
    make = kept(entry_name("plan_walker", target), lambda: partial(begin, walker_source(target.triple)))
    return ahead(make) if num_threads() > 1 else make


def why_not() -> str | None:
    """Returns None where the CPU can be used, else the reason."""
    try:
        host_target()
    except DeviceError as error:
        return error.fact
    return None
