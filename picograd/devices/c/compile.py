"""Compiles C with the C compiler of this machine.

In:    Source (language "c"), Target
Out:   Binary: a shared library with a `{symbol}_words(words, begin, end)` for each launch;  `c_target`
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from picograd.device import Target
from picograd.devices.compile_host import compile_library, find_compiler
from picograd.devices.compile_llvm import host_target
from picograd.errors import CompileError
from picograd.ir.stages import Binary, Source

PRIMITIVES = Path(__file__).parents[1] / "primitives.h"
COMPILERS = ("cc", "gcc", "clang")

# No fast math: contraction off. Integers wrap, and a kernel may read memory as another type. No code reads errno or traps
# on float exceptions, so loops with square roots or conditions can be vectorized.
OPTIONS = (
    "-std=c11", "-O2", "-ftree-vectorize", "-fPIC", "-w", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing",
    "-fno-math-errno", "-fno-trapping-math", f"-I{PRIMITIVES.parent}",
)  # fmt: skip
NATIVE = "-march=native"
PROBE = "__VERSION__ | __FP_FAST_FMAF __FMA__ __ARM_FEATURE_FMA"  # a macro that is not defined is left as it is


@cache
def compiler() -> str:
    """Returns the path of the C compiler.

    Raises:
      CompileError: there is none on PATH.
    """
    return find_compiler("C", "C", "CC", COMPILERS)


@cache
def options() -> tuple[str, ...]:
    """Returns the options of the compiler, with those for this very processor if it supports them."""
    return (*OPTIONS, NATIVE) if _probe(*OPTIONS, NATIVE) is not None else OPTIONS


def _probe(*flags: str) -> str | None:
    """Returns PROBE after preprocessing, or None if the compiler rejects the flags."""
    command = [compiler(), *flags, "-E", "-P", "-x", "c", "-"]
    done = subprocess.run(command, input=PROBE, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def c_target() -> Target:
    """Returns the C compiler's description of this processor: scalars, which the compiler vectorizes.

    Raises:
      CompileError: there is no compiler, or it does not work.
    """
    answer, host = _probe(*options()), host_target()
    if answer is None:
        raise CompileError(f"C: {compiler()} does not compile C for this machine.", hint="PICOGRAD_DEVICE=CPU")
    version, _, macros = answer.rpartition("|")
    version = version.strip(' "')
    named = f"{Path(compiler()).resolve().name} {version}"
    has_fma = any(not word.startswith("__") for word in macros.split())
    return Target(
        "C", "c", host.arch, vector_bytes=1, features=host.features, triple=host.triple, has_fma=has_fma, compiler=named
    )


def compile_source(source: Source, target: Target) -> Binary:
    """Compiles C to a shared library.

    Raises:
      CompileError: there is no compiler, or it rejected the source; the message shows the line.

    Cost: 40 to 200 ms.
    """
    words = [f"words[{slot}]" for slot in range(len(source.params))]
    words += [f"(int64)words[{len(words) + i}]" for i in range(len(source.variables))]
    wrappers = [
        f"void {launch.symbol}_words(void **words, int64 begin, int64 end) "
        f"{{ {launch.symbol}({', '.join([*words, 'begin', 'end'])}); }}"
        for launch in source.launches
    ]
    # A function that nobody declares is an error with its line, not one of the loader; -w would silence it.
    flags = [*[option for option in options() if option != "-w"], "-Werror=implicit-function-declaration"]
    library = compile_library(compiler(), flags, source, target.arch, "c", wrappers)
    return source.binary(library)


def compile_given(source: Source, target: Target) -> Binary:
    """Compiles a user's kernel for a device that does not need a C compiler otherwise.

    Raises:
      CompileError: there is no compiler, or it rejected the source; the message shows the line.
    """
    try:
        compiler()
    except CompileError as error:
        fact = error.fact.replace("C:", f"{target.device}: a kernel in C", 1)
        raise CompileError(fact, hint="install gcc or clang, or name it in CC.") from None
    return compile_source(source, target)
