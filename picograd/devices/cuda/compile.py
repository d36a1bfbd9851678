"""Compiles CUDA C to machine code for an NVIDIA GPU. No GPU and no driver is needed for it.

In:    Source (language "cuda"), Target (arch "sm_90a", ...)
Out:   Binary: a cubin

NVRTC comes from the nvidia-cuda-nvrtc package, or from a CUDA toolkit; cuda.pathfinder finds it. It writes a cubin,
not PTX: a driver older than NVRTC may not take its PTX.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from picograd.device import Target
from picograd.devices.compile_host import rejected
from picograd.errors import CompileError
from picograd.ir.host import INCLUDES_GIVEN
from picograd.ir.stages import Binary, Source
from picograd.record import Record

WITHOUT = "PICOGRAD_DEVICE=PTX needs no NVRTC"
HEADERS = Path(__file__).parent

OLDEST_BY_LLVM = 75  # the architecture from which on LLVM makes code (devices/ptx/compile.py)
# No fast math: contraction off, division and square root correctly rounded, denormals kept.
NO_CONTRACTION = "--fmad=false"  # the results of a user's kernel are its own
OPTIONS = ("--std=c++17", NO_CONTRACTION, "--prec-div=true", "--prec-sqrt=true", "--ftz=false")


class ResourceUsage(Record):
    """Resources of one kernel function, as the assembler reports them.

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
    cubin, _ = compiled(source, target)
    return source.binary(cubin)


def resource_usage(source: Source, target: Target) -> dict[str, ResourceUsage]:
    """Returns the resources of each function of a source on a target, by symbol."""
    _, log = compiled(source, target, "--ptxas-options=-v")
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
    major, minor = _checked(nvrtc, "nvrtcVersion")
    return int(major), int(minor)


def check_architecture(arch: str) -> None:
    """Checks that NVRTC is here and makes code for an architecture, such as "sm_90a".

    Raises:
      CompileError: it is not, or does not.
    """
    nvrtc = _nvrtc()
    known, wanted = list(_checked(nvrtc, "nvrtcGetSupportedArchs")), int(re.sub(r"\D", "", arch))
    if wanted in known:
        return
    number, names = ".".join(map(str, version())), ", ".join(f"sm_{each}" for each in known)
    which = "an older nvidia-cuda-nvrtc that still knows the GPU" if wanted < min(known) else "a newer nvidia-cuda-nvrtc"
    other = ", or use PICOGRAD_DEVICE=PTX" if wanted >= OLDEST_BY_LLVM else ""
    raise CompileError(
        f"nvrtc: {number} makes no code for {arch}, only for {names}.",
        f"install {which}{other}, or use PICOGRAD_DEVICE=CPU",
    )


@cache
def _nvrtc() -> Any:
    """Loads NVRTC, once."""
    try:
        nvrtc = import_module("cuda.bindings.nvrtc")
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
        return nvrtc
    except (ImportError, AttributeError, RuntimeError, OSError) as error:  # an AttributeError: the packages are too old
        reason, hint = str(error).splitlines()[0], f'pip install "picograd[cuda]"; {WITHOUT}'
        raise CompileError(f"nvrtc: cannot be loaded ({reason}).", hint) from None


@cache
def _headers() -> dict[bytes, bytes]:
    """Returns the text of each header that a source may include, by its name."""
    return {path.name.encode(): path.read_bytes() for path in sorted(HEADERS.glob("*.h"))}


def compiled(source: Source, target: Target, *options: str, form: str = "CUBIN") -> tuple[bytes, str]:
    """Returns the cubin and the log; or of the form "PTX", which is made for the architecture without machine code."""
    nvrtc = _nvrtc()
    arch = target.arch if form == "CUBIN" else target.arch.replace("sm_", "compute_")
    check_architecture(target.arch)
    file_name, headers = f"{source.name}.cu".encode(), _headers()
    texts, names = list(headers.values()), list(headers)
    program = _checked(nvrtc, "nvrtcCreateProgram", source.text.encode(), file_name, len(headers), texts, names)
    try:
        own = [each for each in OPTIONS if each != NO_CONTRACTION or INCLUDES_GIVEN not in source.text]
        given = [option.encode() for option in (f"--gpu-architecture={arch}", *own, *options)]
        (status,) = _asked(nvrtc, "nvrtcCompileProgram", program, len(given), given)
        log = _text(nvrtc, "ProgramLog", program).decode().rstrip("\0 \n")
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            raise rejected("nvrtc", source, target.arch, log)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _failed("nvrtcCompileProgram", status)
        return _text(nvrtc, form, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)  # whose one error is that there is no such program


def _text(nvrtc: Any, what: str, program: Any) -> bytes:
    # NOTE: the call writes into `data`. A bytes object will not do: b" " * 1 is the one that the whole process shares.
    data = bytearray(int(_checked(nvrtc, f"nvrtcGet{what}Size", program)))
    _checked(nvrtc, f"nvrtcGet{what}", program, data)
    return bytes(data)


def _checked(nvrtc: Any, name: str, *arguments: Any) -> Any:
    """Calls a function of NVRTC and returns its result: None, one value or a tuple; or raises with its status."""
    status, *values = _asked(nvrtc, name, *arguments)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise _failed(name, status)
    return values[0] if len(values) == 1 else tuple(values) or None


def _asked(nvrtc: Any, name: str, *arguments: Any) -> tuple[Any, ...]:
    """Calls a function of NVRTC and returns its status and what it gives."""
    try:
        return getattr(nvrtc, name)(*arguments)
    except (RuntimeError, ValueError) as error:  # the library has no such function; the bindings do not know the status
        raise CompileError(f"nvrtc: {name} cannot be called ({error}).", WITHOUT) from None


def _failed(name: str, status: Any) -> CompileError:
    return CompileError(f"nvrtc: {name} failed with {int(status)} ({status.name}).", WITHOUT)
