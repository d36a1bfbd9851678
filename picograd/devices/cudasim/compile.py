"""Compiles the same CUDA C for the simulator, with the C++ compiler of this machine.

In:    Source (language "cuda")
Out:   Binary: a shared library with one `{symbol}_launch` for each launch
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from picograd.compilers.host_compiler import compile_library, find_compiler
from picograd.device import Target
from picograd.ir.stages import Binary, Source

DEVICES = Path(__file__).parents[1]
COMPILERS = ("c++", "g++", "clang++")

PRIMITIVES = DEVICES / "cuda" / "primitives.h"

# Contraction off and no fast math, as on the GPU; integers wrap; a kernel may read memory as another type.
OPTIONS = (
    "-std=c++17", "-Og", "-fPIC", "-w", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions",
    "-fno-rtti", f"-I{PRIMITIVES.parent}", f"-I{DEVICES}",
)  # fmt: skip


@cache
def compiler() -> str:
    """Returns the path of the C++ compiler.

    Raises:
      CompileError: there is none on PATH.
    """
    return find_compiler("CUDASIM", "C++", "CXX", COMPILERS)


_folders: dict[tuple[str, ...], TemporaryDirectory[str]] = {}  # with the header after parsing, by options


def precompiled(options: tuple[str, ...]) -> TemporaryDirectory[str]:
    """Returns a folder in which GCC finds primitives.h as it is after parsing: two fifths of a small kernel's time.

    It goes with the process. Other compilers look for no such file, and read the header itself.
    """
    if options in _folders:
        return _folders[options]
    folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="picograd_")
    command = [compiler(), *options, "-x", "c++-header", str(PRIMITIVES), "-o", f"{folder.name}/{PRIMITIVES.name}.gch"]
    subprocess.run(command, capture_output=True, check=False)  # what is wrong with it the first kernel says, too
    kept = _folders.setdefault(options, folder)
    if kept is not folder:  # another thread was faster
        folder.cleanup()
    return kept


def compile_source(source: Source, target: Target, *options: str) -> Binary:
    """Compiles CUDA C to a shared library for the simulator; `options` are more options for the compiler.

    Raises:
      CompileError: there is no compiler, or it rejected the source; the message shows the line.

    Cost: 0.2 to 0.4 s.
    """
    header = precompiled((*OPTIONS, *options)).name
    launchers = [f"CUDASIM_LAUNCHER({launch.symbol})" for launch in source.launches]
    flags = [f"-I{header}", *OPTIONS, *options, "-x", "c++"]
    library = compile_library(compiler(), flags, source, target.arch, "cu", launchers)
    return Binary(source.name, library, source.params, source.variables, source.launches)
