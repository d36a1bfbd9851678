"""Compiles CUDA C to machine code for an NVIDIA GPU, without a GPU or a driver.

In:    Source (language "cuda"), Target (arch "sm_90a", ...)
Out:   Binary: a cubin

NVRTC comes from the nvidia-cuda-nvrtc package, or from a CUDA toolkit; cuda.pathfinder finds it. It writes a cubin, not
PTX, since a driver older than NVRTC may reject its PTX.
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

OLDEST_BY_LLVM = 75  # first architecture that LLVM supports (devices/ptx/compile.py)
# No fast math: contraction off, division and square root correctly rounded, denormals kept.
NO_CONTRACTION = "--fmad=false"  # so that a user's kernel has its own results
OPTIONS = ("--std=c++17", NO_CONTRACTION, "--prec-div=true", "--prec-sqrt=true", "--ftz=false")


class ResourceUsage(Record):
    """Resources of one kernel function, as the assembler reports them.

    registers:      per thread
    shared_nbytes:  per block
    stack_nbytes:   local memory per thread
    spill_nbytes:   stored to and loaded from local memory for lack of registers
    """

    registers: int
    shared_nbytes: int
    stack_nbytes: int
    spill_nbytes: int


def compile_source(source: Source, target: Target) -> Binary:
    """Compiles CUDA C to a cubin.

    Raises:
      CompileError: NVRTC is missing, does not support the GPU, or rejected the source (the message shows the line).

    Cost: 50 to 100 ms for a small kernel.
    """
    cubin, _ = compiled(source, target)
    return source.binary(cubin)


def resource_usage(source: Source, target: Target) -> dict[str, ResourceUsage]:
    """Returns the resources of each function of a source, by symbol."""
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
    """Checks that NVRTC is installed and supports an architecture, such as "sm_90a".

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
    except (ImportError, AttributeError, RuntimeError, OSError) as error:  # AttributeError: the packages are too old
        reason, hint = str(error).splitlines()[0], f'pip install "picograd[cuda]"; {WITHOUT}'
        raise CompileError(f"nvrtc: cannot be loaded ({reason}).", hint) from None


@cache
def _headers() -> dict[bytes, bytes]:
    """Returns the text of each header that sources may include, by name."""
    return {path.name.encode(): path.read_bytes() for path in sorted(HEADERS.glob("*.h"))}


def compiled(source: Source, target: Target, *options: str, form: str = "CUBIN") -> tuple[bytes, str]:
    """Returns the cubin and the log; form="PTX": PTX for the architecture instead of machine code."""
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
        nvrtc.nvrtcDestroyProgram(program)  # its only error: no such program


def _text(nvrtc: Any, what: str, program: Any) -> bytes:
    # NOTE: the call writes into `data`. A bytes object would be unsafe: b" " * 1 is shared by the whole process.
    data = bytearray(int(_checked(nvrtc, f"nvrtcGet{what}Size", program)))
    _checked(nvrtc, f"nvrtcGet{what}", program, data)
    return bytes(data)


def _checked(nvrtc: Any, name: str, *arguments: Any) -> Any:
    """Calls a function of NVRTC and returns its result: None, a value or a tuple; raises an error for its status."""
    status, *values = _asked(nvrtc, name, *arguments)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise _failed(name, status)
    return values[0] if len(values) == 1 else tuple(values) or None


def _asked(nvrtc: Any, name: str, *arguments: Any) -> tuple[Any, ...]:
    """Calls a function of NVRTC and returns its status and results."""
    try:
        return getattr(nvrtc, name)(*arguments)
    except (RuntimeError, ValueError) as error:  # the library lacks the function, or the bindings the status
        raise CompileError(f"nvrtc: {name} cannot be called ({error}).", WITHOUT) from None


def _failed(name: str, status: Any) -> CompileError:
    return CompileError(f"nvrtc: {name} failed with {int(status)} ({status.name}).", WITHOUT)
