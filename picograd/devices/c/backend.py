"""This processor by readable C, compiled by the C compiler of this machine; plans, memory and threads are the CPU's."""

from __future__ import annotations

from picograd.devices.c.compile import c_target, compile_source, compiler
from picograd.devices.c.render import render, source_of_given
from picograd.devices.compile_llvm import host_target
from picograd.devices.cpu.backend import plan_walker
from picograd.devices.cpu.device import CPUDevice
from picograd.devices.launches import words_of
from picograd.engine.compiler import Backend, Compiler, Given
from picograd.ir.stages import Binary, Executable

HINT = "install a C compiler (gcc or clang), or name it in CC"


class CDevice(CPUDevice):
    """Implements ir/backend.py's Device."""

    def load(self, binary: Binary) -> Executable:
        """Loads the shared library of a kernel; it stays loaded."""
        words = words_of(binary)
        return binary.executable(tuple(words.values()), words)


def make_compiler() -> Compiler:
    """Returns the Compiler of this processor; plans are walked by the same native code as the CPU's."""
    backend = Backend(render, compile_source, {"c": Given(source_of_given, compile_source)})
    return Compiler(CDevice(c_target(), plan_walker(host_target())), backend)


check_usable = compiler  # raises a CompileError where there is no C compiler
