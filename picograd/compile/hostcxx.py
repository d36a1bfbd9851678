"""Compiles the same CUDA C for the simulator, with the C++ compiler of this machine.

In:    Source (language "cuda")
Out:   Binary: a shared library with one `{symbol}_launch` for each launch
Called by: engine/backends/cudasim.py.    Next: picograd/runtime/cudasim.py
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from picograd.compile.messages import rejected
from picograd.device import Target
from picograd.errors import CompileError
from picograd.ir.stages import Binary, Source

PACKAGE = Path(__file__).parent.parent
COMPILERS = ("c++", "g++", "clang++")

PRIMITIVES = PACKAGE / "kernels" / "cuda" / "primitives.h"

# Contraction off and no fast math, as on the GPU; integers wrap; a kernel may read memory as another type.
OPTIONS = (
    "-std=c++17", "-O1", "-fPIC", "-w", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions",
    "-fno-rtti", f"-I{PRIMITIVES.parent}", f"-I{PACKAGE / 'runtime'}",
)  # fmt: skip


@cache
def compiler() -> str:
    """Returns the path of the C++ compiler.

    Raises:
      CompileError: there is none on PATH.
    """
    found = next((path for name in COMPILERS if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise CompileError(
            f"CUDASIM: needs a C++ compiler, and none of {', '.join(COMPILERS)} is on PATH.", hint="PICOGRAD_DEVICE=CPU"
        )
    return found


@cache
def precompiled(options: tuple[str, ...]) -> TemporaryDirectory[str]:
    """Returns a folder in which GCC finds primitives.h as it is after parsing: two fifths of a small kernel's time.

    It goes with the process. Other compilers look for no such file, and read the header itself.
    """
    folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="picograd_")
    command = [compiler(), *options, "-x", "c++-header", str(PRIMITIVES), "-o", f"{folder.name}/{PRIMITIVES.name}.gch"]
    subprocess.run(command, capture_output=True, check=False)  # what is wrong with it the first kernel says, too
    return folder


def compile_source(source: Source, target: Target, *options: str) -> Binary:
    """Compiles CUDA C to a shared library for the simulator; `options` are more options for the compiler.

    Raises:
      CompileError: there is no compiler, or it rejected the source; the message shows the line.

    Cost: 0.2 to 0.4 s.
    """
    header = precompiled((*OPTIONS, *options)).name
    with TemporaryDirectory(prefix="picograd_") as folder:
        text, library = Path(folder) / f"{source.name}.cu", Path(folder) / "library.so"
        launchers = [f"CUDASIM_LAUNCHER({launch.symbol})" for launch in source.launches]
        text.write_text("\n".join([source.text, *launchers, ""]))
        flags = [f"-I{header}", *OPTIONS, *options, "-shared"]
        command = [compiler(), *flags, "-x", "c++", text.name, "-o", library.name, "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise rejected(Path(compiler()).name, source, target.arch, done.stderr)
        return Binary(source.name, library.read_bytes(), source.params, source.variables, source.launches)
