"""Compiles the same CUDA C for the simulator, with the C++ compiler of this machine.

In:    Source (language "cuda")
Out:   Binary: a shared library with one `{symbol}_launch` for each launch

A user's plain CUDA C has pointers and arrays, which C++ does not check. `checked` replaces them by classes of plain.h, word
by word, so lines keep their numbers.

Two thirds of a small kernel's compilation would be the same for all kernels: parsing headers, and the simulator's own
functions. Both are compiled once per set of options (`prepared`), and cached.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from picograd.config import cache_folder
from picograd.device import Target
from picograd.devices.compile_host import compile_library, find_compiler
from picograd.errors import CompileError
from picograd.files import is_ours
from picograd.interrupts import lock
from picograd.ir.host import GIVEN_TEXT, INCLUDES_GIVEN, without_comments
from picograd.ir.stages import Binary, Source

DEVICES = Path(__file__).parents[1]
COMPILERS = ("c++", "g++", "clang++")

PRIMITIVES, GIVEN = DEVICES / "cuda" / "primitives.h", DEVICES / "cuda" / "given.h"
SIMULATOR = DEVICES / "cudasim" / "simulator.cpp"

# Contraction off and no fast math, as on the GPU; integers wrap; a kernel may read memory as another type.
OPTIONS = (
    "-std=c++17", "-Og", "-fPIC", "-w", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions",
    "-fno-rtti", "-fvisibility=hidden", f"-I{PRIMITIVES.parent}", f"-I{DEVICES}",
)  # fmt: skip
# Our own kernels do not need C++'s library, which would cost the linker 7 ms.
NO_CXX_LIBRARY = ("-nodefaultlibs", "-lm", "-lc", "-lgcc") if sys.platform == "linux" else ("-lm",)
CXX_LIBRARY = ("-lstdc++", *NO_CXX_LIBRARY) if sys.platform == "linux" else ("-lm",)


# ---- plain CUDA C ----
NUMBERS = r"(?:(?:unsigned|signed|long|short|int|char)\s+)*(?:unsigned|signed|long|short|int|char|float|double|bool)\d?"
OTHERS = r"u?int(?:8|16|32|64)(?:_t)?|float(?:16|32|64)|(?:__)?half|bfloat16|__nv_bfloat16|size_t|(?:uint|uchar|ushort)\d"
DECLARED = re.compile(r"\b(?:typename|class|struct|using)\s+(\w+)|\btypedef\b[^;]*?(\w+)\s*;")
# In `c ? x[i] : 0` a float of memory, which is a class here, would become an integer; on a GPU the 0 becomes a float.
TURNS_TO_INTEGER = (
    r"[^\n]*warning: (?:conversion from [^\n]*\b(?:float|double)\b[^\n]* to [^\n]*\b(?:int|short|char)\b[^\n]* may "
    r"change value|implicit conversion turns floating-point number into integer)[^\n]*"
)
KEEP_FLOAT = "write 0.0f for 0 where the other branch is an element of memory, or (int) where an integer is meant"
AUTO = re.compile(r"\bauto\s+\w+\s*=(?!=)[^;{}]*")
NAMED = re.compile(r"(\bauto\s+\w+|,\s*\w+)\s*=(?!=)")  # a variable of `auto`, which gets the value of an element
VOLATILE = re.compile(r"\bvolatile\b")  # each access is one here
SEVERAL = re.compile(r"\bPointer<[^<>;{}]*> \w+[^;{}]*;")
SHARED = re.compile(
    r"(?P<extern>\bextern\s+)?\b__shared__\s+(?:__align__\s*\([^()]*\)\s*|alignas\s*\([^()]*\)\s*)?"
    r"(?P<type>[\w\s:<>]+?)\s*(?P<names>\b\w+\s*(?:\[[^;]*)?);"
)


def checked(text: str) -> str:
    """Returns plain CUDA C in which pointers and shared arrays are replaced by classes that check accesses.

    >>> checked("__shared__ float s[4][5]; const float *x = y; a = b * c;")
    'SHARED_ARRAY(float, s, (4), (5)); Pointer<const float> x = y; a = b * c;'
    """
    names = {name for found in DECLARED.finditer(text) for name in found.groups() if name}
    text = AUTO.sub(lambda found: NAMED.sub(r"\1 = cudasim::Value() =", found[0]), VOLATILE.sub("", text))
    base = "|".join([NUMBERS, OTHERS, *map(re.escape, sorted(names))])
    kind = rf"\b((?:const\s+)?(?:{base})(?:\s+const)?)"
    pointer = re.compile(rf"{kind}\s*\*(?:\s*\b(?:__restrict__|__restrict|const)\b)*\s*")
    # Parameters only: the brackets of a variable are followed by neither a parenthesis nor another type.
    array = re.compile(rf"{kind}\s+(\w+)\s*\[[^][]*\](?=\s*(?:\)|,\s*(?:const|{base})\b))")
    return SEVERAL.sub(_each, array.sub(r"Pointer<\1> \2", pointer.sub(r"Pointer<\1> ", SHARED.sub(_shared, text))))


def _each(found: re.Match[str]) -> str:
    """Returns a declaration of pointers without the stars of the second and later ones: `Pointer<int> a, *b`."""
    text, depth = "", 0
    for letter in found[0]:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        is_star = letter == "*" and depth == 0 and text.rstrip().endswith(",")
        text += "" if is_star else letter
    return text


def _shared(found: re.Match[str]) -> str:
    """Returns the declaration of arrays in shared memory; several of one statement stay on their lines."""
    arrays = []
    for declared in re.split(r",(?![^\[]*\])", found["names"]):
        name, *lengths = re.split(r"\[([^\]]*)\]", declared)
        extents = "".join(f", ({length.strip()})" for length in lengths[::2])
        if found["extern"]:
            arrays.append(f"DYNAMIC_SHARED({found['type']}, {name.strip()});")
        else:
            arrays.append(f"SHARED_ARRAY({found['type']}, {name.strip()}{extents});")
    return " ".join(arrays)


@cache
def compiler() -> str:
    """Returns the path of the C++ compiler.

    Raises:
      CompileError: there is none on PATH.
    """
    return find_compiler("CUDASIM", "C++", "CXX", COMPILERS)


@cache
def watched() -> tuple[str, ...]:
    """Returns the options that instrument a user's kernel; simulator.cpp defines what they call, in place of libraries.

    Functions of headers, which every access calls, are not instrumented.
    """
    is_clang = sys.platform == "darwin" or "clang" in Path(compiler()).name
    own = ["-after-inlining"] if is_clang else ["", "-exclude-file-list=/devices/,/include/"]
    return "-fsanitize=bounds,integer-divide-by-zero", *[f"-finstrument-functions{which}" for which in own]


# ---- what kernels share ----
_preparing = lock()
_not_cached: set[str] = set()  # names of headers that could not be made in the cache
# File time of a header's includer: Clang requires the same for all processes, and the cache evicts the oldest files.
LATEST = 2**31 - 1


def prepared(options: tuple[str, ...], header: Path = PRIMITIVES) -> Path:
    """Returns a file {name}.h that includes a header; {name}.h.gch is its precompiled form, {name}.o the simulator.

    Raises:
      CompileError: the compiler rejected them.

    Cost: a second on two processors, unless the cache has them.
    """
    name = _digest(compiler(), options, header)
    with _preparing:
        try:
            return _prepared(_including(header, name), options, header)
        except CompileError:
            if name in _not_cached:
                raise
            _not_cached.add(name)  # the cache's disk may be full
            return _prepared(_including(header, name), options, header)


def _prepared(first: Path, options: tuple[str, ...], header: Path) -> Path:
    """Returns the file that includes a header, once what belongs to it is there."""
    made: dict[Path, tuple[str, ...]] = {
        Path(f"{first}.gch"): ("-x", "c++-header", str(first)),
        first.with_suffix(".o"): ("-DSIMULATOR", "-include", str(header), "-c", str(SIMULATOR)),
    }
    if all(path.exists() for path in made):
        for path in made:  # mark them as used: the cache evicts what was unused longest
            with suppress(OSError):
                os.utime(path)
        return first
    # The simulator is compiled once, run by each kernel, and not watched itself.
    faster = ["-O2" if option == "-Og" else option for option in options if option not in watched()]
    running = [
        subprocess.Popen(
            [compiler(), *(faster if path.suffix == ".o" else options), *inputs, "-o", str(_part(path))],
            stderr=subprocess.PIPE, text=True,
        )
        for path, inputs in made.items()
    ]  # fmt: skip
    logs = [process.communicate()[1] for process in running]
    for process, log in zip(running, logs):
        if process.returncode != 0:
            for path in made:  # what is half written would keep a full disk full
                with suppress(OSError):
                    _part(path).unlink(missing_ok=True)
            facts = [f"{Path(compiler()).name} rejected the simulator.", *log.strip().splitlines()[:20]]
            raise CompileError("\n  ".join(facts))
    for path in made:
        os.replace(_part(path), path)
    return first


def _part(path: Path) -> Path:
    """Returns the name under which this process writes a file, before it is renamed when complete."""
    return path.with_name(f"{path.name}.{os.getpid()}.part")


@cache
def _digest(compiler: str, options: tuple[str, ...], header: Path) -> str:
    """Returns the digest of the inputs of all shared parts; with file times, since Clang compares them."""
    texts = [header, *sorted(PRIMITIVES.parent.glob("*.h")), *sorted(SIMULATOR.parent.glob("*.[hc]*"))]
    times = [path.stat().st_mtime_ns for path in (Path(compiler), Path("/usr/include"), *texts) if path.exists()]
    return sha256(repr((compiler, options, times, [path.read_bytes() for path in texts])).encode()).hexdigest()


def _including(header: Path, name: str) -> Path:
    """Returns a file that includes a header, in the cache if only this user can write there, else in a temporary folder."""
    with suppress(OSError):
        if name not in _not_cached and (folder := cache_folder()) is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "headers").mkdir(mode=0o700, exist_ok=True)
            if is_ours((folder / "headers").stat()):
                return _written(folder / "headers" / name[0] / f"{name}.h", header)
    return _written(Path(_own_folder().name, f"{name}.h"), header)


def _written(first: Path, header: Path) -> Path:
    first.parent.mkdir(mode=0o700, exist_ok=True)
    if not first.exists():
        _part(first).write_text(f'#include "{header}"\n')
        os.utime(_part(first), (LATEST, LATEST))
        os.replace(_part(first), first)
    return first


@cache
def _own_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="picograd_")


def compile_source(source: Source, target: Target, *options: str, header: Path | None = None) -> Binary:
    """Compiles CUDA C to a shared library for the simulator.

    Args:
      options:  further options for the compiler
      header:   a header that includes primitives.h; None: that, or given.h if the text includes it. It precedes the text,
                since GCC takes a precompiled header only before any C++

    Raises:
      CompileError: there is no compiler, or it rejected the source; the message shows the line.

    Cost: 0.05 to 0.3 s.
    """
    is_given = INCLUDES_GIVEN in source.text
    options = (*options, *watched()) if is_given else options
    first = prepared((*OPTIONS, *options), header or (GIVEN if is_given else PRIMITIVES))
    launchers = [f"CUDASIM_LAUNCHER({launch.symbol})" for launch in source.launches]
    flags = [*OPTIONS, *options, "-include", str(first), "-x", "c++"]
    libraries = NO_CXX_LIBRARY
    written = refused = None
    if is_given:
        launchers.append(f'SEEN_OUTSIDE const char {GIVEN_TEXT}[] = R"{GIVEN_TEXT}({source.text}){GIVEN_TEXT}";')
        written, refused = checked(without_comments(source.text)), (TURNS_TO_INTEGER, KEEP_FLOAT)
        flags = [*[flag for flag in flags if flag != "-w"], "-Wfloat-conversion"]
        libraries = CXX_LIBRARY
    linked = ("-x", "none", str(first.with_suffix(".o")), *libraries)
    library = compile_library(compiler(), flags, source, target.arch, "cu", launchers, written, refused, linked)
    return source.binary(library)
