"""The text of a CompileError: the compiler's first complaint, with the line it is about.

In:    a compiler's log, the source
Out:   CompileError
Called by: compilers/nvrtc.py, compilers/libraries.py, compilers/opencl.py.    Next: picograd/runtime/cuda/device.py
"""

from __future__ import annotations

import re

from picograd.errors import CompileError
from picograd.ir.stages import Source


def rejected(compiler: str, source: Source, arch: str, log: str, suffix: str = "cu") -> CompileError:
    """Returns the error for a source that a compiler rejected.

    `log` names lines as `{name}.cu(14): error: ...` (NVRTC) or `{name}.cu:14:3: error: ...` (GCC, Clang), with the
    file's `suffix`.
    """
    facts = [f"{compiler} rejected kernel {source.name} for {arch}."]
    found = re.search(rf"{re.escape(source.name)}\.{suffix}[(:](\d+)\)?[:\d]*\s*(?:fatal )?error:?\s*(.*)", log)
    if found is None:
        return CompileError("\n".join([facts[0], *(f"  {line}" for line in log.strip().splitlines()[:20])]))
    number = int(found[1])
    lines = source.text.splitlines()
    facts.append(f"  {source.name}.{suffix}:{number}: error: {found[2].strip()}")
    if number <= len(lines):
        facts.append(f"     {number} | {lines[number - 1]}")
    return CompileError("\n".join(facts))
