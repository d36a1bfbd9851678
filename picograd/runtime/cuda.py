"""The CUDA device: one NVIDIA GPU, one stream, through the driver API.

In:    Binaries from compile/nvrtc.py or compile/nvptx.py, Schedules, host arrays
Out:   `CudaDevice`; `capability`; `available`
Called by: engine/backends/cuda.py, engine/backends/ptx.py.    Next: picograd/runtime/opencl.py

Everything runs in order on one stream: memory can be used again as soon as its object dies, because whatever comes
later comes after the kernels that used it.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from picograd.device import Target
from picograd.errors import DeviceError, OutOfMemoryError, PicogradError
from picograd.ir.backend import MemoryCount
from picograd.ir.checks import first_report
from picograd.ir.dims import dim_value
from picograd.ir.op import Buffer
from picograd.ir.stages import REPORT_WORDS, Binary, Executable, Runner, Schedule, Settled
from picograd.runtime.launches import Call, Place, list_launches

INSTEAD = "PICOGRAD_DEVICE=CPU, or NUMPY (the reference), or CUDASIM (the same CUDA C, simulated)"
SMALL_STEP, LARGE_STEP, LARGE = 512, 2 << 20, 1 << 20  # bytes that allocations are rounded up to, below and from LARGE
STATIC_SHARED_NBYTES = 48 * 1024  # of a block, without asking for more at each launch


@cache
def _driver() -> Any:
    """Loads the bindings, which load the driver at their first call."""
    try:
        return import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceError(f"CUDA: cuda-bindings cannot be imported ({error}).", INSTEAD) from None


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the driver API and returns its result: None, one value or a tuple.

    Raises:
      DeviceError: with the function, the status's number and its name.
    """
    driver = _driver()
    try:
        status, *values = getattr(driver, name)(*arguments)
    except RuntimeError as error:
        missing = type(error).__name__ == "DynamicLibNotFoundError"
        reason = "this machine has no NVIDIA driver (libcuda)." if missing else str(error).splitlines()[0]
        raise DeviceError(f"CUDA: {name} cannot be called: {reason}", INSTEAD) from None
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"CUDA: {name} failed with {int(status)} ({status.name}).", INSTEAD)
    return values[0] if len(values) == 1 else tuple(values) or None


def available() -> str | None:
    """Returns None if there is a GPU to use, or the reason why not."""
    try:
        call("cuInit", 0)
        count = call("cuDeviceGetCount")
    except DeviceError as error:
        return error.fact
    return None if count else "CUDA: the driver knows no device."


class CudaMemory:
    """Memory of the GPU; back in the pool when this object dies.

    address:  of the first byte
    nbytes:   asked for
    """

    __slots__ = ("address", "nbytes", "_free", "_owner")

    def __init__(self, address: int, nbytes: int, free: list[int], owner: CudaDevice):
        self.address, self.nbytes, self._free, self._owner = address, nbytes, free, owner

        owner.memory.take(nbytes)

    def __del__(self) -> None:
        self._free.append(self.address)
        self._owner.memory.give(self.nbytes)


@dataclass
class Started:
    """A launch as the driver takes it: `pointers[i]` is the address of `values[i]`, the i-th argument."""

    call: Call
    values: Any
    pointers: Any

    @classmethod
    def of(cls, call: Call) -> Started:
        count = len(call.places) + len(call.variables)
        values = (ctypes.c_int64 * max(1, count))()
        start = ctypes.addressof(values)
        return cls(call, values, (ctypes.c_void_p * max(1, count))(*[start + 8 * i for i in range(count)]))


@dataclass(frozen=True)
class Capability:
    """What the first GPU of this machine can do.

    major, minor:  its architecture: 9, 0 is sm_90
    shared_bytes:  memory one block shares, without asking for more at each launch
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
    device, kinds = call("cuDeviceGet", 0), _driver().CUdevice_attribute
    major = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    shared = call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device)
    return Capability(int(major), int(minor), min(int(shared), STATIC_SHARED_NBYTES))


class CudaDevice:
    """The first GPU of this machine. Making it initialises the driver.

    target:  what code is made for; CUDA C for this GPU unless another is given

    Raises:
      DeviceError: there is no driver or no GPU.
    """

    def __init__(self, target: Target | None = None) -> None:
        self.target = _target_of(capability()) if target is None else target
        self.name = self.target.device
        call("cuInit", 0)
        device = call("cuDeviceGet", 0)
        self._context = call("cuDevicePrimaryCtxRetain", device)
        self._enter()
        self._stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING: it does not wait for other libraries' work
        self._free: dict[int, list[int]] = defaultdict(list)  # addresses by allocated bytes
        self._held_nbytes = 0
        self.memory = MemoryCount()

    def _enter(self) -> None:
        """Makes the context current in the calling thread."""
        call("cuCtxSetCurrent", self._context)

    # ---- memory ----
    def allocate(self, nbytes: int) -> CudaMemory:
        """Returns memory of at least `nbytes` bytes, aligned to 256.

        Raises:
          OutOfMemoryError: the GPU has no more, after giving back what the pool held.
        """
        step = SMALL_STEP if nbytes < LARGE else LARGE_STEP
        rounded = max(1, -(-nbytes // step)) * step
        free = self._free[rounded]
        if free:
            return CudaMemory(free.pop(), nbytes, free, self)
        self._enter()
        address = self._new_memory(rounded)
        if address is None:
            self.trim()
            address = self._new_memory(rounded)
        if address is None:
            left, total = call("cuMemGetInfo")
            raise OutOfMemoryError(
                f"CUDA: cannot allocate {nbytes} bytes: {left} of {total} are free, picograd holds {self._held_nbytes}."
            )
        self._held_nbytes += rounded
        return CudaMemory(address, nbytes, free, self)

    def allocate_all(self, lengths: Sequence[int]) -> list[CudaMemory]:
        """Returns memory of at least each number of bytes."""
        return [self.allocate(nbytes) for nbytes in lengths]

    def _new_memory(self, nbytes: int) -> int | None:
        driver = _driver()
        status, address = driver.cuMemAlloc(nbytes)
        if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        if status != driver.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"CUDA: cuMemAlloc failed with {int(status)} ({status.name}).", INSTEAD)
        return int(address)

    def trim(self) -> None:
        """Gives the memory that no object owns back to the driver."""
        self._enter()
        self.synchronize()
        for nbytes, addresses in self._free.items():
            while addresses:
                call("cuMemFree", addresses.pop())
                self._held_nbytes -= nbytes

    def copy_in(self, memory: CudaMemory, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        if array.nbytes:
            self._enter()
            call("cuMemcpyHtoDAsync", memory.address, array.ctypes.data, array.nbytes, self._stream)
            self.synchronize()

    def copy_out(self, memory: CudaMemory, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`, after all work submitted before."""
        if array.nbytes:
            self._enter()
            call("cuMemcpyDtoHAsync", array.ctypes.data, memory.address, array.nbytes, self._stream)
            self.synchronize()

    def copy(self, target: CudaMemory, source: CudaMemory, nbytes: int) -> None:
        """Copies the first `nbytes` bytes, after all work submitted before and before what is submitted later."""
        if nbytes:
            self._enter()
            call("cuMemcpyDtoDAsync", target.address, source.address, nbytes, self._stream)

    def synchronize(self) -> None:
        """Waits until everything submitted is done; a kernel that failed is reported here."""
        try:
            call("cuStreamSynchronize", self._stream)
        except DeviceError as error:
            hint = "run it again with PICOGRAD_DEVICE=CUDASIM, which names the access at fault"
            raise DeviceError(f"{error.fact} A kernel launched before this failed.", hint) from None

    def timed(self, work: Callable[[], Any]) -> float:
        """Returns the seconds from the first to the last kernel that `work` submits, by events of the stream."""
        self._enter()
        start, stop = (call("cuEventCreate", 0) for _ in range(2))
        try:
            call("cuEventRecord", start, self._stream)
            work()
            call("cuEventRecord", stop, self._stream)
            call("cuEventSynchronize", stop)
            return float(call("cuEventElapsedTime", start, stop)) / 1e3  # it answers in milliseconds
        finally:
            for event in (start, stop):
                call("cuEventDestroy", event)

    # ---- code ----
    def load(self, binary: Binary) -> Executable:
        """Loads a cubin, or PTX text that ends with a zero byte, which the driver compiles."""
        self._enter()
        try:
            module = _Module(call("cuModuleLoadData", binary.data))
            functions = [call("cuModuleGetFunction", module.handle, x.symbol.encode()) for x in binary.launches]
        except PicogradError as error:
            raise DeviceError(f"CUDA: kernel {binary.name} cannot be loaded: {error.args[0].splitlines()[0]}") from None
        return Executable(binary.name, binary.params, binary.variables, binary.launches, tuple(functions), module)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables), which submits every launch; it does not wait for them."""
        listed = list_launches(schedule, executables)
        arena = self.allocate(listed.temporary_nbytes)
        parts = [[Started.of(each) for each in calls] for calls in listed.parts]
        kept = tuple(executables)  # their modules must stay loaded
        reports = _Reports(self, listed.checks) if listed.checks else None

        def run(
            inputs: Sequence[Buffer],
            outputs: Sequence[Buffer],
            variables: Mapping[str, int],
            may_stop: bool = True,
            settled: Settled | None = None,
        ) -> None:
            assert len(kept) == len(executables)
            self._enter()
            groups = {"input": inputs, "output": outputs}

            def address_of(place: Place) -> int:
                if place.group == "temporary":
                    return arena.address + place.at
                if place.group == "report" and reports is not None:
                    return reports.memory.address + place.at
                return int(groups[place.group][place.at].memory.address) + place.offset

            for part in parts:
                for each in part:
                    self._start(each, [address_of(place) for place in each.call.places], variables)
                if reports is not None:
                    reports.look()

        return run

    def _start(self, started: Started, addresses: list[int], variables: Mapping[str, int]) -> None:
        """Launches one phase of a kernel; a grid of no blocks is left out."""
        launch, names = started.call.launch, started.call.variables
        grid = dim_value(launch.grid, variables)
        if grid <= 0:
            return
        for i, value in enumerate([*addresses, *[variables[v.arg[0]] for v in names]]):
            started.values[i] = value
        pointers = ctypes.addressof(started.pointers)
        call(
            "cuLaunchKernel", started.call.function, grid, 1, 1, launch.block, 1, 1, 0, self._stream, pointers, 0
        )  # fmt: skip


class _Reports:
    """What the Checks of a plan have reported. NOTE: to know it, a plan that has Checks is waited for."""

    def __init__(self, device: CudaDevice, checks: Sequence[Sequence[int]]):
        self.device, self.checks = device, checks
        self.words = np.zeros((len(checks), REPORT_WORDS), np.int64)
        self.memory = device.allocate(self.words.nbytes)
        device.copy_in(self.memory, self.words)

    def look(self) -> None:
        """Raises the first report, if there is one, and forgets all."""
        self.device.copy_out(self.memory, self.words)
        if self.words.any():
            found = self.words.tolist()
            self.words[:] = 0
            self.device.copy_in(self.memory, self.words)
            raise first_report(found, self.checks)


class _Module:
    """Loaded code, unloaded when no executable needs it any more."""

    def __init__(self, handle: Any):
        self.handle = handle

    def __del__(self) -> None:
        if not sys.is_finalizing():  # then the driver may be gone already, and its memory goes with the process
            _driver().cuModuleUnload(self.handle)


def _target_of(gpu: Capability) -> Target:
    """Describes a GPU as code generation sees it."""
    # From 9.0 on, "a" adds what only that generation has (wgmma on Hopper).
    arch, has_mma = f"sm_{gpu.major}{gpu.minor}{'a' if gpu.major >= 9 else ''}", gpu.major >= 8
    return Target("CUDA", "cuda", arch, vector_bytes=16, block_threads=256, shared_bytes=gpu.shared_bytes, has_mma=has_mma)
