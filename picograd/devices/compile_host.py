"""Shared libraries by the host's compiler, for C and for CUDA C on the simulator; errors of all text compilers.

In:    Source, the compiler's command, its log
Out:   bytes of the library;  `find_compiler`;  `rejected`: the CompileError with the line of the first complaint
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
    if found is None:  # an error in a template: the line that uses it
        found = re.search(rf"({files})[(:](\d+)\)?[:\d]*\s*required from here\n.*?error: ([^\n]*)", log, re.DOTALL)
    if found is None:
        return CompileError("\n".join([facts[0], *(f"  {line}" for line in log.strip().splitlines()[:20])]))
    file, number = found[1], int(found[2])
    facts.append(f"  {file}:{number}: error: {found[3].strip()}")
    if (file, number) in lines:
        facts.append(f"     {number} | {lines[file, number]}")
    return CompileError("\n".join(facts), hint=_of_open_bracket(lines, file))


def _of_open_bracket(lines: dict[tuple[str, int], str], file: str) -> str | None:
    """Returns the hint for an error in a file behind others, one of which leaves a bracket open; None where none does."""
    closed, open_at = {")": "(", "]": "[", "}": "{"}, list[tuple[str, str]]()
    for (name, number), line in lines.items():
        for letter in "" if name == file else re.sub(r"//.*|\"(?:\\.|[^\"])*\"|'(?:\\.|[^'])'", "", line):
            if letter in "([{":
                open_at.append((letter, f"{name}:{number}"))
            elif letter in closed and open_at and open_at[-1][0] == closed[letter]:
                open_at.pop()
    return f"the {open_at[-1][0]} of {open_at[-1][1]} is never closed." if open_at else None


def find_compiler(device: str, language: str, variable: str, names: Sequence[str]) -> str:
    """Returns the path of a compiler: the one in an environment variable, else the first on PATH.

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
      suffix:    of the source file's name, which messages contain
      wrappers:  lines appended to the text
      written:   a text with the same lines, compiled instead
      refused:   a regular expression of warnings treated as errors, and the hint of these errors
      linked:    objects and libraries, after the text

    Raises:
      CompileError: the compiler rejected the source (the message shows the line), or its files cannot be written.
    """
    try:
        with TemporaryDirectory(prefix="picograd_") as folder:
            text, library = Path(folder) / f"{source.name}.{suffix}", Path(folder) / "library.so"
            text.write_text("\n".join([source.text if written is None else written, *wrappers, ""]))
            command = [compiler, *options, "-shared", text.name, "-o", library.name, *linked]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                log = done.stderr.strip() or f"it ended with status {done.returncode} and no message"
                raise rejected(Path(compiler).name, source, arch, log, suffix)
            if refused is not None and (warned := re.search(refused[0], done.stderr)) is not None:
                log = warned[0].replace("warning:", "error:")
                raise CompileError(rejected(Path(compiler).name, source, arch, log, suffix).fact, hint=refused[1])
            return library.read_bytes()
    except OSError as error:
        fact = f"{Path(compiler).name} cannot compile kernel {source.name} in {gettempdir()} ({error.strerror})."
        raise CompileError(fact, hint="TMPDIR names another folder for temporary files") from None
