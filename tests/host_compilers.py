"""Questions of tests about compilers: whether the machine has one, which kernels ours is given."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from picograd.config import cache_folder
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import TARGET
from picograd.engine.compiler import Compiler
from picograd.ir.stages import Binary, Executable, Kernel, Source

HAS_COMPILER = any(map(shutil.which, hostcxx.COMPILERS))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler is on PATH, and CUDASIM needs one")


def empty_cache(folder: Path) -> str:
    """Returns `folder` as a cache without kernels and plans, but with what all kernels of the simulator share."""
    if (shared := cache_folder()) is not None:
        (shared / "headers").mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "headers").symlink_to((shared / "headers").resolve())
    return str(folder)


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
