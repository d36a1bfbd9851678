"""Compiles LLVM IR to PTX, which NVIDIA's driver compiles for its GPU: neither NVRTC nor a CUDA toolkit is needed.

In:    Source (language "nvptx"), Target (arch "sm_90", features "+ptx78", ...)
Out:   Binary: PTX text and a zero byte;  `gpu_target`

The version of PTX is the first that supports the architecture, so that every driver for that GPU takes it; but a kernel
with hundreds of parameters, such as a sum of as many tensors, needs that of CUDA 12.1. LLVM finds out which pointers are of
shared memory; mul, add, div and sqrt are written as .rn, correctly rounded: nothing contracts them. The passes that a CPU's
code does not need are disabled here, too: with strength reduction a sort spilled registers.
"""

from __future__ import annotations

from functools import cache

from picograd.device import Target
from picograd.devices.compile_llvm import assembly, has_target
from picograd.errors import DeviceError
from picograd.ir.stages import Binary, Source
from picograd.record import replace

TRIPLE = "nvptx64-nvidia-cuda"
# Architecture -> first version of PTX that has it (PTX ISA 9.0, "Release Notes": table of versions and targets).
FIRST_VERSION = {75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 78, 100: 86, 103: 88, 120: 87, 121: 88}
PARAM_NBYTES, LONGER_PARAMS = 4352, 81  # bytes, and the version that allows more (PTX ISA 9.0, ".param space")


def compile_source(source: Source, target: Target) -> Binary:
    """Compiles LLVM IR to PTX.

    Raises:
      CompileError: LLVM rejects the text; the message quotes the line.

    Cost: 3 to 10 ms for a small kernel; the driver compiles when it is loaded.
    """
    text = assembly(source, _with_room_for(source, target)).encode() + b"\0"
    return source.binary(text)


def _with_room_for(source: Source, target: Target) -> Target:
    """Returns the target, with a later version of PTX if the parameters need one."""
    nbytes, number = 8 * (len(source.params) + len(source.variables)), int(target.features.removeprefix("+ptx"))
    return replace(target, features=f"+ptx{LONGER_PARAMS}") if nbytes > PARAM_NBYTES and number < LONGER_PARAMS else target


def gpu_target(major: int, minor: int, shared_bytes: int) -> Target:
    """Describes a GPU by its compute capability; one newer than LLVM as the newest that LLVM supports.

    Raises:
      DeviceError: the GPU is older than all supported ones.

    >>> gpu_target(9, 0, 49152).arch, gpu_target(12, 9, 49152).arch
    ('sm_90', 'sm_121')
    """
    number = 10 * major + minor
    known = [arch for arch in FIRST_VERSION if arch <= number]
    if not known:
        fact = f"PTX: the GPU is an sm_{number}; sm_{min(FIRST_VERSION)} or newer is needed."
        raise DeviceError(fact, "PICOGRAD_DEVICE=CPU")
    arch = max(known)
    return Target(
        device="PTX",
        language="nvptx",
        arch=f"sm_{arch}",
        features=f"+ptx{FIRST_VERSION[arch]}",
        triple=TRIPLE,
        vector_bytes=16,
        block_threads=256,
        shared_bytes=shared_bytes,
        has_mma=arch >= 80,
        has_async_copies=arch >= 80,
    )


@cache
def check_compiler() -> None:
    """Checks that llvmlite's LLVM writes PTX.

    Raises:
      DeviceError: it does not, or llvmlite is not installed.
    """
    if not has_target(TRIPLE):
        fact = "PTX: the LLVM in this llvmlite has no NVPTX target."
        raise DeviceError(fact, "pip install llvmlite (wheels from PyPI have it), or PICOGRAD_DEVICE=CUDA or CPU")
