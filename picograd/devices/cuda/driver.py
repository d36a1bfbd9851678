"""Calls of the CUDA driver API, each checked; abilities of the first GPU; handles of driver objects.

In:    names and arguments of the driver's functions
Out:   `call`; `ask`, for callers that handle other statuses than success; `available`; `capability`
       `Events`, which are reused; `Handles`; `Loader`, which keeps code loaded while an executable needs it

Nothing is loaded before the first call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from picograd.device import Target
from picograd.errors import DeviceError, OutOfMemoryError
from picograd.interrupts import AtDeath
from picograd.ir.stages import Launch
from picograd.record import Record

INSTEAD = "PICOGRAD_DEVICE=CPU, or NUMPY (the reference), or CUDASIM (the same CUDA C, simulated)"
DRIVER_VERSION_MIN = 12000  # it has all functions used here, and takes arrays by tile maps
NEWER = f"pip install --upgrade cuda-bindings, which then names it; else {INSTEAD}"
UPDATE = f"update the NVIDIA driver; until then {INSTEAD}"

# After one of these all calls of the process fail: CUDA Driver API, "Data types used by CUDA driver", CUresult.
LOST = frozenset(
    "CUDA_ERROR_" + name
    for name in (
        "ECC_UNCORRECTABLE", "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED", "CONTAINED", "TENSOR_MEMORY_LEAK",
        "NVLINK_UNCORRECTABLE", "MPS_CLIENT_TERMINATED", "EXTERNAL_DEVICE", "CONTEXT_IS_DESTROYED",
    )
)  # fmt: skip
START_AGAIN = "this process can no longer use the GPU: start it again; PICOGRAD_DEVICE=CUDASIM names the faulty access"
HIDDEN = f"nvidia-smi lists the GPUs, and CUDA_VISIBLE_DEVICES hides those that it does not name; else {INSTEAD}"
# Hints by status, if another device is not the remedy. Source: as above.
HINTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "release tensors or use smaller batches; nvidia-smi lists other processes that hold memory",
    "CUDA_ERROR_NO_DEVICE": HIDDEN,
    "CUDA_ERROR_INVALID_DEVICE": HIDDEN,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": f"another process has the GPU for itself (nvidia-smi lists them); else {INSTEAD}",
    "CUDA_ERROR_STUB_LIBRARY": "libcuda is the toolkit's stub: LD_LIBRARY_PATH must find the driver's library first",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver was updated while it was loaded: restart the machine",
    "CUDA_ERROR_UNKNOWN": f"nvidia-smi says whether the GPU answers; restart the machine if it does not; else {INSTEAD}",
    **dict.fromkeys(LOST, START_AGAIN),
}


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


def ask(name: str, *arguments: Any) -> tuple[Any, ...]:
    """Calls a function of the driver API and returns its status and results.

    Raises:
      DeviceError: it cannot be called, or its status is unknown.
    """
    function = getattr(driver(), name)
    try:
        return function(*arguments)
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        if type(error).__name__ == "DynamicLibNotFoundError" or "dlopen libcuda" in text:  # depends on the version
            reason, hint = "this machine has no NVIDIA driver (libcuda).", INSTEAD
        else:
            reason, hint = f"{text.rstrip('.')}.", UPDATE
        raise DeviceError(f"CUDA: {name} cannot be called: {reason}", hint) from None
    except ValueError as error:  # from the bindings' enum
        raise _nameless(name, error) from None


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the driver API and returns its result: None, a value or a tuple.

    Raises:
      DeviceError:      with the function, the status's number and its name.
      OutOfMemoryError: the driver is out of memory.
    """
    status, *values = ask(name, *arguments)
    if status != driver().CUresult.CUDA_SUCCESS:
        raise failed(name, status)
    return values[0] if len(values) == 1 else tuple(values) or None


def failed(name: str, status: Any) -> DeviceError | OutOfMemoryError:
    """Returns the error for a status other than success, in the bindings' form or as a number."""
    try:
        status = driver().CUresult(status)
    except ValueError as error:
        return _nameless(name, error)
    fact = f"CUDA: {name} failed with {int(status)} ({status.name})"
    made = OutOfMemoryError if status.name == "CUDA_ERROR_OUT_OF_MEMORY" else DeviceError
    return made(f"{fact}: a kernel before it did." if status.name in LOST else f"{fact}.", HINTS.get(status.name, INSTEAD))


def _nameless(name: str, error: ValueError) -> DeviceError:
    return DeviceError(f"CUDA: {name} failed with a status that cuda-bindings cannot name ({error}).", NEWER)


def _start() -> None:
    """Initializes the driver.

    Raises:
      DeviceError: there is none, it is too old, or it finds no GPU.
    """
    call("cuInit", 0)
    version = call("cuDriverGetVersion")
    if version < DRIVER_VERSION_MIN:
        known, needed = version_text(version), version_text(DRIVER_VERSION_MIN)
        raise DeviceError(f"CUDA: the driver is made for CUDA {known} and older, and {needed} is needed.", UPDATE)
    if not call("cuDeviceGetCount"):
        raise DeviceError("CUDA: the driver knows no device.", HIDDEN)


def version_text(number: int) -> str:
    """Returns a version of CUDA in the usual form.

    >>> version_text(12040)
    '12.4'
    """
    return f"{number // 1000}.{number % 1000 // 10}"


class Capability(Record):
    """The abilities of the first GPU of this machine.

    major, minor:  its architecture: 9, 0 is sm_90
    shared_bytes:  shared memory that a block may request
    multiprocessors: their number
    """

    major: int
    minor: int
    shared_bytes: int
    multiprocessors: int


def capability() -> Capability:
    """Returns the abilities of the first GPU.

    Raises:
      DeviceError: there is no driver or no GPU.
    """
    _start()
    device, kinds = call("cuDeviceGet", 0), driver().CUdevice_attribute
    major = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    shared = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)
    multiprocessors = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
    return Capability(int(major), int(minor), int(shared), int(multiprocessors))


# ---- events and handles ----
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Events:
    """A pool of event handles without timing.

    spare:  those not in use
    """

    def __init__(self) -> None:
        self.spare: list[int] = []

    def recorded(self, stream: Any) -> int:
        """Returns an event after everything submitted to a stream."""
        self.give(self.take())  # so it stays in the pool if it cannot be recorded
        call("cuEventRecord", self.spare[-1], stream)
        return self.spare.pop()

    def take(self) -> int:
        """Returns an event that the caller records."""
        return self.spare.pop() if self.spare else int(call("cuEventCreate", NO_TIMING))

    def give(self, event: int) -> None:
        """Takes an event back; streams that wait for it wait for the work recorded then."""
        self.spare.append(event)


class Handles:
    """Driver objects of one kind; unneeded ones are collected here.

    Args:
      undo:  function that destroys one
    """

    def __init__(self, undo: str):
        self.undo = undo
        self._dropped: deque[Any] = deque()

    def hold(self, value: Any) -> Handle:
        """Returns a handle that keeps an object alive."""
        return Handle(value, self._dropped)

    def __len__(self) -> int:
        return len(self._dropped)

    def give_back(self, count: int) -> None:
        """Destroys the first `count` unneeded objects; one thread at a time, with the context current."""
        for _ in range(count):
            call(self.undo, self._dropped.popleft())


class Handle:
    """Keeps a driver object alive.

    Its finalizer does not call the driver, since it may run in a thread without a context, or at the process' end.
    """

    __slots__ = ("value", "_dropped")

    def __init__(self, value: Any, dropped: deque[Any]):
        self.value, self._dropped = value, AtDeath(dropped.append, value)


# ---- code ----
OTHER_CODE = "update the driver, or install a nvidia-cuda-nvrtc of its version, or use PICOGRAD_DEVICE=PTX"
LOG_NBYTES = 1 << 14  # of messages of the driver's compiler


class Loader:
    """Loads and unloads code for one device.

    modules:  loaded code; code that no executable needs waits here until its kernels have run
    """

    def __init__(self, target: Target):
        self._target, self.modules = target, Handles("cuModuleUnload")
        self._version = version_text(call("cuDriverGetVersion"))

    def load(self, name: str, code: bytes, launches: Sequence[Launch]) -> tuple[Handle, tuple[Any, ...]]:
        """Returns loaded code, and the function of each launch.

        Args:
          code:  a cubin, or PTX text that ends with a zero byte

        Raises:
          DeviceError: the driver rejects it.
        """
        log = bytearray(LOG_NBYTES)
        try:
            module = self.modules.hold(_loaded(code, log))
            return module, tuple(_function(module.value, launch) for launch in launches)
        except DeviceError as error:
            if error.hint == START_AGAIN:
                raise
            raise DeviceError(
                f"{self._target.device}: kernel {name} cannot be loaded: {error.fact} "
                f"{_said_in(log)}The driver is made for CUDA {self._version} and older.",
                "update the driver, or use PICOGRAD_DEVICE=CPU" if self._target.language == "nvptx" else OTHER_CODE,
            ) from None

    def unload(self, wait: Callable[[], None]) -> None:
        """Unloads dropped code once none of it runs; one thread at a time.

        Args:
          wait:  waits until everything submitted is done; code dropped meanwhile stays loaded
        """
        count = len(self.modules)
        if count:
            wait()
        self.modules.give_back(count)


def _function(module: Any, launch: Launch) -> Any:
    """Returns a function of loaded code, with the shared memory that its launch requests allowed."""
    function = call("cuModuleGetFunction", module, launch.symbol.encode())
    if launch.shared_nbytes:
        most = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", function, most, launch.shared_nbytes)
    return function


def _loaded(code: bytes, log: bytearray) -> Any:
    """Loads code by the driver; complaints of its compiler about PTX text go to `log`."""
    if code.startswith(b"\x7fELF"):
        return call("cuModuleLoadData", code)
    kinds = driver().CUjit_option
    options = [kinds.CU_JIT_ERROR_LOG_BUFFER, kinds.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    return call("cuModuleLoadDataEx", code, len(options), options, [log, len(log)])


def _said_in(log: bytearray) -> str:
    """Returns the first complaint of the driver's compiler, or ""."""
    said = log.partition(b"\0")[0].decode(errors="replace").strip().splitlines()
    return f'Its compiler says "{said[0]}". ' if said else ""
