"""Calls of the CUDA driver API, each checked; and what the first GPU of this machine can do.

In:    names and arguments of the driver's functions
Out:   `call`; `available`; `capability`
Called by: runtime/cuda/device.py and its parts.    Next: picograd/runtime/cuda/code.py

Nothing is loaded before the first call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from picograd.errors import DeviceError

INSTEAD = "PICOGRAD_DEVICE=CPU, or NUMPY (the reference), or CUDASIM (the same CUDA C, simulated)"

# After one of these every call of the process fails: CUDA Driver API, "Data types used by CUDA driver", CUresult.
LOST = frozenset(
    "CUDA_ERROR_" + name
    for name in (
        "ECC_UNCORRECTABLE", "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED", "CONTAINED", "TENSOR_MEMORY_LEAK",
    )
)  # fmt: skip
START_AGAIN = "this process cannot use the GPU any more: start it again; with PICOGRAD_DEVICE=CUDASIM the access is named"


@cache
def driver() -> Any:
    """Loads the bindings, which load the driver at their first call.

    Raises:
      DeviceError: the package is not installed.
    """
    try:
        return import_module("cuda.bindings.driver")
    except ImportError as error:
        hint = f'pip install "picograd[cuda]" where there is a GPU; else {INSTEAD}'
        raise DeviceError(f"CUDA: cuda-bindings cannot be imported ({error}).", hint) from None


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the driver API and returns its result: None, one value or a tuple.

    Raises:
      DeviceError: with the function, the status's number and its name.
    """
    bindings = driver()
    try:
        status, *values = getattr(bindings, name)(*arguments)
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        missing = type(error).__name__ == "DynamicLibNotFoundError" or "dlopen libcuda" in text  # by version
        reason = "this machine has no NVIDIA driver (libcuda)." if missing else text
        raise DeviceError(f"CUDA: {name} cannot be called: {reason}", INSTEAD) from None
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise failed(name, status)
    return values[0] if len(values) == 1 else tuple(values) or None


def failed(name: str, status: Any) -> DeviceError:
    """Returns the error for a call that gave another status than success."""
    if status.name in LOST:
        return DeviceError(f"CUDA: {name} failed with {int(status)} ({status.name}): a kernel before it did.", START_AGAIN)
    return DeviceError(f"CUDA: {name} failed with {int(status)} ({status.name}).", INSTEAD)


def available() -> str | None:
    """Returns None if there is a GPU to use, or the reason why not."""
    try:
        call("cuInit", 0)
        count = call("cuDeviceGetCount")
    except DeviceError as error:
        return error.fact
    return None if count else "CUDA: the driver knows no device."


@dataclass(frozen=True)
class Capability:
    """What the first GPU of this machine can do.

    major, minor:  its architecture: 9, 0 is sm_90
    shared_bytes:  memory one block shares where its launch asks for it
    """

    major: int
    minor: int
    shared_bytes: int


def capability() -> Capability:
    """Asks the driver what the first GPU can do.

    Raises:
      DeviceError: there is no driver or no GPU.
    """
    call("cuInit", 0)
    device, kinds = call("cuDeviceGet", 0), driver().CUdevice_attribute
    major = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    shared = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)
    return Capability(int(major), int(minor), int(shared))
