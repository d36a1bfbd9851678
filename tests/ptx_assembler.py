"""A real assembler for PTX, where there is one: nvJitLink (a wheel of the extra `test`; needs no driver), or ptxas.

`assemble(ptx, arch)` gives what each kernel needs of registers and memory, or raises with the assembler's message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from picograd.devices.cuda.compile import ResourceUsage, read_usage


class AssemblerError(Exception):
    """PTX that the assembler does not take."""


@cache
def _linker() -> Any:
    """Returns the bindings of nvJitLink, or None."""
    try:
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvJitLink")
        return import_module("cuda.bindings.nvjitlink")
    except (ImportError, RuntimeError, OSError):
        return None


@cache
def _ptxas() -> str | None:
    """Returns the path of ptxas: of PATH, of CUDA_HOME, of the usual place."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    places = [home / "bin" for home in [*homes, *sorted(Path("/usr/local").glob("cuda*"), reverse=True)]]
    return shutil.which("ptxas") or next(filter(None, (shutil.which("ptxas", path=str(place)) for place in places)), None)


def is_there() -> bool:
    return _linker() is not None or _ptxas() is not None


needs_assembler = pytest.mark.skipif(not is_there(), reason="neither nvJitLink (nvidia-nvjitlink) nor ptxas is here")


def assemble(ptx: str, arch: str) -> dict[str, ResourceUsage]:
    """Assembles PTX text for an architecture; returns what each kernel function needs.

    Raises:
      AssemblerError: it is not taken.
    """
    return read_usage(_link(ptx, arch) if _linker() is not None else _run_ptxas(ptx, arch))


def _link(ptx: str, arch: str) -> str:
    """Returns nvJitLink's log."""
    linker, data = _linker(), ptx.encode()
    handle = linker.create(3, [f"-arch={arch}", "-O3", "-verbose"])
    try:
        linker.add_data(handle, linker.InputType.PTX, data, len(data), "kernel")
        linker.complete(handle)
        return _log(linker.get_info_log_size, linker.get_info_log, handle)
    except linker.nvJitLinkError as error:
        message = _log(linker.get_error_log_size, linker.get_error_log, handle)
        raise AssemblerError(f"{error}\n{message}") from None
    finally:
        linker.destroy(handle)


def _log(nbytes_of: Any, read: Any, handle: Any) -> str:
    text = bytearray(nbytes_of(handle))
    if text:
        read(handle, text)
    return text.decode().rstrip("\0")


def _run_ptxas(ptx: str, arch: str) -> str:
    """Returns what ptxas -v writes."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        command = [str(_ptxas()), "-v", "-O3", f"-arch={arch}", "kernel.ptx", "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssemblerError(done.stderr + done.stdout)
        return done.stderr + done.stdout
