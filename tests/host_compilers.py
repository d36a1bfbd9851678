"""Questions of tests about compilers: whether the machine has one, which kernels ours is given."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache

import pytest

from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import TARGET
from picograd.engine.compiler import Compiler
from picograd.ir.stages import Binary, Executable, Kernel, Source

HAS_COMPILER = any(map(shutil.which, hostcxx.COMPILERS))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler is on PATH, and CUDASIM needs one")


@cache
def simulated(source: Source, *options: str) -> Binary:
    """Returns the simulator's code for a source, which a test runs in several orders of threads."""
    return hostcxx.compile_source(source, TARGET, *options)


def kernels_asked_for(patch: pytest.MonkeyPatch) -> list[Kernel]:
    """Returns a list that receives each kernel once that somebody wants code for."""
    executables, found = Compiler.executables, list[Kernel]()

    def noting(self: Compiler, kernels: Sequence[Kernel], tune: bool = False) -> list[Executable]:
        found.extend(kernel for kernel in dict.fromkeys(kernels) if kernel not in found)
        return executables(self, kernels, tune)

    patch.setattr(Compiler, "executables", noting)
    return found
