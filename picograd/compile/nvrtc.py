"""Compiles CUDA C to machine code for an NVIDIA GPU. No GPU and no driver is needed for it.

In:    Source (language "cuda"), Target (arch "sm_90a", ...)
Out:   Binary: a cubin
Called by: engine/backends/cuda.py.    Next: picograd/compile/messages.py

NVRTC comes from the nvidia-cuda-nvrtc package, or from a CUDA toolkit; cuda.pathfinder finds it. It writes a cubin,
not PTX: a driver older than NVRTC may not take its PTX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from picograd.compile.messages import rejected
from picograd.device import Target
from picograd.errors import CompileError
from picograd.ir.stages import Binary, Source

KERNELS = Path(__file__).parent.parent / "kernels" / "cuda"

# No fast math: contraction off, division and square root correctly rounded, denormals kept.
OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")


@dataclass(frozen=True)
class ResourceUsage:
    """What the assembler reports of one kernel function.

    registers:      of one thread
    shared_nbytes:  of one block
    stack_nbytes:   of one thread, in local memory
    spill_nbytes:   stored to and loaded from local memory for want of registers
    """

    registers: int
    shared_nbytes: int
    stack_nbytes: int
    spill_nbytes: int


def compile_source(source: Source, target: Target) -> Binary:
    """Compiles CUDA C to a cubin.

    Raises:
      CompileError: NVRTC is not installed, or does not know the GPU, or rejected the source, whose line is shown.

    Cost: 50 to 100 ms for a small kernel.
    """
    cubin, _ = _compile(source, target)
    return Binary(source.name, cubin, source.params, source.variables, source.launches)


def ptx_of(source: Source, target: Target) -> str:
    """Returns the PTX that NVRTC makes of CUDA C on its way to a target's machine code."""
    text, _ = _compile(source, target, form="PTX")
    return text.rstrip(b"\0").decode()


def resource_usage(source: Source, target: Target) -> dict[str, ResourceUsage]:
    """Returns what each function of a source needs on a target, by symbol."""
    _, log = _compile(source, target, "--ptxas-options=-v")
    return read_usage(log)


def read_usage(log: str) -> dict[str, ResourceUsage]:
    """Reads the report that ptxas -v writes."""
    usage = {}
    for part in log.split("Compiling entry function '")[1:]:
        stack = _number(r"(\d+) bytes stack frame", part)
        spills = _number(r"(\d+) bytes spill stores", part) + _number(r"(\d+) bytes spill loads", part)
        shared = _number(r"(\d+) bytes smem", part)
        usage[part[: part.index("'")]] = ResourceUsage(_number(r"Used (\d+) registers", part), shared, stack, spills)
    return usage


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def version() -> tuple[int, int]:
    """Returns NVRTC's version."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return int(major), int(minor)


@cache
def _nvrtc() -> Any:
    """Loads NVRTC, once."""
    try:
        nvrtc = import_module("cuda.bindings.nvrtc")
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
        return nvrtc
    except (ImportError, RuntimeError, OSError) as error:
        reason, hint = str(error).splitlines()[0], 'pip install "picograd[cuda]"; PICOGRAD_DEVICE=PTX needs no NVRTC'
        raise CompileError(f"nvrtc: cannot be loaded ({reason}).", hint) from None


@cache
def _headers() -> dict[bytes, bytes]:
    """Returns the text of each header that a source may include, by its name."""
    return {path.name.encode(): path.read_bytes() for path in sorted(KERNELS.glob("*.h"))}


def _check_architecture(nvrtc: Any, arch: str) -> None:
    """Raises CompileError where NVRTC makes no code for an architecture, such as "sm_90a"."""
    known = _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs())
    if int(re.sub(r"\D", "", arch)) not in known:
        number, names = ".".join(map(str, version())), ", ".join(f"sm_{each}" for each in known)
        raise CompileError(
            f"nvrtc: {number} makes no code for {arch}, only for {names}.",
            "install the nvidia-cuda-nvrtc that belongs to the GPU, or use PICOGRAD_DEVICE=PTX, or CPU",
        )


def _compile(source: Source, target: Target, *options: str, form: str = "CUBIN") -> tuple[bytes, str]:
    """Returns the cubin and the log; or of the form "PTX", which is made for the architecture without machine code."""
    nvrtc = _nvrtc()
    arch = target.arch if form == "CUBIN" else target.arch.replace("sm_", "compute_")
    _check_architecture(nvrtc, target.arch)
    file_name, headers = f"{source.name}.cu".encode(), _headers()
    texts, names = list(headers.values()), list(headers)
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.text.encode(), file_name, len(headers), texts, names))
    try:
        given = [option.encode() for option in (f"--gpu-architecture={arch}", *OPTIONS, *options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        log = _text(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode().rstrip("\0 \n")
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            raise rejected("nvrtc", source, target.arch, log)
        _checked(nvrtc, (status,))
        get_nbytes, get = (getattr(nvrtc, f"nvrtcGet{form}{what}") for what in ("Size", ""))
        return _text(nvrtc, get_nbytes, get, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(nvrtc: Any, get_nbytes: Any, get: Any, program: Any) -> bytes:
    # NOTE: the call writes into `data`. A bytes object will not do: b" " * 1 is the one that the whole process shares.
    data = bytearray(int(_checked(nvrtc, get_nbytes(program))))
    _checked(nvrtc, get(program, data))
    return bytes(data)


def _checked(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """Returns what an NVRTC call gave, or raises with its status."""
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"nvrtc: a call failed with {int(status)} ({status.name}).")
    return values[0] if values else None
