"""Compiles the same CUDA C for the simulator, with the C++ compiler of this machine.

In:    Source (language "cuda")
Out:   Binary: a shared library with one `{symbol}_launch` for each launch

What a user has written in plain CUDA C has pointers and arrays, which C++ does not check. `checked` writes classes of
plain.h in their place, word by word, so that lines stay where they are.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from picograd.compilers.host_compiler import compile_library, find_compiler
from picograd.device import Target
from picograd.ir.host import GIVEN_TEXT, INCLUDES_GIVEN, without_comments
from picograd.ir.stages import Binary, Source

DEVICES = Path(__file__).parents[1]
COMPILERS = ("c++", "g++", "clang++")

PRIMITIVES = DEVICES / "cuda" / "primitives.h"

# Contraction off and no fast math, as on the GPU; integers wrap; a kernel may read memory as another type.
OPTIONS = (
    "-std=c++17", "-Og", "-fPIC", "-w", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions",
    "-fno-rtti", f"-I{PRIMITIVES.parent}", f"-I{DEVICES}",
)  # fmt: skip


# ---- plain CUDA C ----
NUMBERS = r"(?:(?:unsigned|signed|long|short|int|char)\s+)*(?:unsigned|signed|long|short|int|char|float|double|bool)\d?"
OTHERS = r"u?int(?:8|16|32|64)(?:_t)?|float(?:16|32|64)|(?:__)?half|bfloat16|__nv_bfloat16|size_t|(?:uint|uchar|ushort)\d"
DECLARED = re.compile(r"\b(?:typename|class|struct|using)\s+(\w+)|\btypedef\b[^;]*?(\w+)\s*;")
# In `c ? x[i] : 0` a float of memory would become an integer, for it is of a class here; on a GPU the 0 becomes a float.
TURNS_TO_INTEGER = (
    r"[^\n]*warning: (?:conversion from [^\n]*\b(?:float|double)\b[^\n]* to [^\n]*\b(?:int|short|char)\b[^\n]* may "
    r"change value|implicit conversion turns floating-point number into integer)[^\n]*"
)
KEEP_FLOAT = "write 0.0f for 0 where the other branch is an element of memory, or (int) where an integer is meant"
SEVERAL = re.compile(r"\bPointer<[^<>;{}]*> \w+[^;{}]*;")
SHARED = re.compile(
    r"(?P<extern>\bextern\s+)?\b__shared__\s+(?:__align__\s*\([^()]*\)\s*|alignas\s*\([^()]*\)\s*)?"
    r"(?P<type>[\w\s:<>]+?)\s*(?P<names>\b\w+\s*(?:\[[^;]*)?);"
)


def checked(text: str) -> str:
    """Returns plain CUDA C with classes that check accesses in place of pointers and of shared arrays.

    >>> checked("__shared__ float s[4][5]; const float *x = y; a = b * c;")
    'SHARED_ARRAY(float, s, (4), (5)); Pointer<const float> x = y; a = b * c;'
    """
    names = {name for found in DECLARED.finditer(text) for name in found.groups() if name}
    base = "|".join([NUMBERS, OTHERS, *map(re.escape, sorted(names))])
    kind = rf"\b((?:const\s+)?(?:{base})(?:\s+const)?)"
    pointer = re.compile(rf"{kind}\s*\*(?:\s*\b(?:__restrict__|__restrict|const)\b)*\s*")
    # Only of a parameter: behind a variable's brackets there is neither a parenthesis nor another type.
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
    """Returns the declaration of arrays in shared memory; several in one statement stay on their lines."""
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


_folders: dict[tuple[Path, tuple[str, ...]], TemporaryDirectory[str]] = {}  # with a header after parsing, by options


def precompiled(options: tuple[str, ...], header: Path = PRIMITIVES) -> TemporaryDirectory[str]:
    """Returns a folder with a file that includes a header, and with what GCC or Clang has of it after parsing.

    That saves half of a small kernel's time. The folder goes with the process.
    """
    if (header, options) in _folders:
        return _folders[header, options]
    folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="picograd_")
    first = Path(folder.name) / "first.h"
    first.write_text(f'#include "{header}"\n')
    command = [compiler(), *options, "-x", "c++-header", str(first), "-o", f"{first}.gch"]
    subprocess.run(command, capture_output=True, check=False)  # what is wrong with it the first kernel says, too
    kept = _folders.setdefault((header, options), folder)
    if kept is not folder:  # another thread was faster
        folder.cleanup()
    return kept


def compile_source(source: Source, target: Target, *options: str, header: Path = PRIMITIVES) -> Binary:
    """Compiles CUDA C to a shared library for the simulator.

    Args:
      options:  more options for the compiler
      header:   primitives.h, or one that includes it; it precedes the text, for GCC takes nothing that is precompiled once
                it has seen a word of C++

    Raises:
      CompileError: there is no compiler, or it rejected the source; the message shows the line.

    Cost: 0.15 to 0.4 s.
    """
    first = f"{precompiled((*OPTIONS, *options), header).name}/first.h"
    launchers = [f"CUDASIM_LAUNCHER({launch.symbol})" for launch in source.launches]
    flags = [*OPTIONS, *options, "-include", first, "-x", "c++"]
    written = refused = None
    if INCLUDES_GIVEN in source.text:
        launchers.append(f'extern "C" const char {GIVEN_TEXT}[] = R"{GIVEN_TEXT}({source.text}){GIVEN_TEXT}";')
        written, refused = checked(without_comments(source.text)), (TURNS_TO_INTEGER, KEEP_FLOAT)
        flags = [*[flag for flag in flags if flag != "-w"], "-Wfloat-conversion"]
    library = compile_library(compiler(), flags, source, target.arch, "cu", launchers, written, refused)
    return Binary(source.name, library, source.params, source.variables, source.launches)
