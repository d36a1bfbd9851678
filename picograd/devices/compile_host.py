"""Shared libraries by the compiler of this machine, for C and for CUDA C on the simulator; errors of all compilers of text.

In:    Source, the compiler's command, its log
Out:   bytes of the library;  `find_compiler`;  `rejected`: the CompileError with the line that the first complaint is about
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from picograd.config import users_setting
from picograd.errors import CompileError
from picograd.ir.host import lines_of_files
from picograd.ir.stages import Source


def rejected(compiler: str, source: Source, arch: str, log: str, suffix: str = "cu") -> CompileError:
    """Returns the error for a source that a compiler rejected.

    `log` names lines as `{name}.cu(14): error: ...` (NVRTC) or `{name}.cu:14:3: error: ...` (GCC, Clang), with the
    file's `suffix`.
    """
    facts = [f"{compiler} rejected kernel {source.name} for {arch}."]
    lines = lines_of_files(source.text, f"{source.name}.{suffix}")
    files = "|".join(re.escape(file) for file in dict.fromkeys(file for file, _ in lines))
    found = re.search(rf"({files})[(:](\d+)\)?[:\d]*\s*(?:fatal )?error:?\s*(.*)", log)
    if found is None:  # an error of a template: where it is used
        found = re.search(rf"({files})[(:](\d+)\)?[:\d]*\s*required from here\n.*?error: ([^\n]*)", log, re.DOTALL)
    if found is None:
        return CompileError("\n".join([facts[0], *(f"  {line}" for line in log.strip().splitlines()[:20])]))
    file, number = found[1], int(found[2])
    facts.append(f"  {file}:{number}: error: {found[3].strip()}")
    if (file, number) in lines:
        facts.append(f"     {number} | {lines[file, number]}")
    return CompileError("\n".join(facts))


def find_compiler(device: str, language: str, variable: str, names: Sequence[str]) -> str:
    """Returns the path of a compiler: of the one that an environment variable names, else of the first on PATH.

    Raises:
      CompileError: there is none.
    """
    chosen = users_setting(variable)
    candidates = (chosen, *names) if chosen else names
    found = next((path for name in candidates if (path := shutil.which(name)) is not None), None)
    if found is None:
        fact = f"{device}: needs a {language} compiler, and none of {', '.join(candidates)} is on PATH."
        raise CompileError(fact, hint="PICOGRAD_DEVICE=CPU")
    return found


def compile_library(
    compiler: str, options: Sequence[str], source: Source, arch: str, suffix: str, wrappers: Sequence[str],
    written: str | None = None, refused: tuple[str, str] | None = None, linked: Sequence[str] = ("-lm",),
) -> bytes:  # fmt: skip
    """Returns the shared library of a source.

    Args:
      suffix:    of the file, by which messages name it
      wrappers:  lines after the text
      written:   a text with the same lines that is compiled instead
      refused:   a regular expression of warnings that are errors, and the hint of their errors
      linked:    objects and libraries after the text

    Raises:
      CompileError: the compiler rejected the source, and the message shows the line; or there is no room for its files.
    """
    try:
        with TemporaryDirectory(prefix="picograd_") as folder:
            text, library = Path(folder) / f"{source.name}.{suffix}", Path(folder) / "library.so"
            text.write_text("\n".join([source.text if written is None else written, *wrappers, ""]))
            command = [compiler, *options, "-shared", text.name, "-o", library.name, *linked]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                log = done.stderr.strip() or f"it ended with status {done.returncode} and said nothing"
                raise rejected(Path(compiler).name, source, arch, log, suffix)
            if refused is not None and (warned := re.search(refused[0], done.stderr)) is not None:
                log = warned[0].replace("warning:", "error:")
                raise CompileError(rejected(Path(compiler).name, source, arch, log, suffix).fact, hint=refused[1])
            return library.read_bytes()
    except OSError as error:
        fact = f"{Path(compiler).name} cannot be given kernel {source.name} in {gettempdir()} ({error.strerror})."
        raise CompileError(fact, hint="TMPDIR names another folder for what lives only while it compiles") from None
