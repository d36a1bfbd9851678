"""The GPU by torch.cuda's names: availability, memory, synchronization.

Each process has one GPU, number 0, with the device name "CUDA". Nothing is loaded before the first query. Streams cannot be
chosen: kernels run in order, and independent copies overlap with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.engine.devices import compiler_for, compiler_in_use, gpu_named, why_not
from picograd.errors import ArgumentError
from picograd.errors import OutOfMemoryError as OutOfMemoryError
from picograd.record import Record
from picograd.tensor import costs
from picograd.tensor.generator import Generator
from picograd.tensor.generator import manual_seed as seed_all

__all__ = [
    "DeviceProperties", "Event", "OutOfMemoryError", "current_device", "device_count", "empty_cache",
    "get_device_capability", "get_device_name", "get_device_properties", "is_available", "is_bf16_supported",
    "kernel_times", "manual_seed", "manual_seed_all", "max_memory_allocated", "mem_get_info", "memory_allocated",
    "memory_reserved", "reset_peak_memory_stats", "set_device", "synchronize",
]  # fmt: skip

NAME = "CUDA"


def is_available() -> bool:
    """Returns True if this process can use an NVIDIA GPU.

    >>> device = "cuda" if is_available() else "cpu"
    """
    return why_not(NAME) is None


def device_count() -> int:
    """Returns 1 if there is a GPU, else 0: each process uses one.

    >>> device_count() == is_available()
    True
    """
    return int(is_available())


def current_device() -> int:
    """Returns the number of the GPU in use, 0.

    Raises:
      DeviceError: there is none.
    """
    _gpu(None)
    return 0


def set_device(device: str | int) -> None:
    """Checks that a device is this process' GPU; pg.Device.default selects the device of new tensors.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    _gpu(device)


def get_device_name(device: str | int | None = None) -> str:
    """Returns the driver's name of the GPU, e.g. "NVIDIA H100 80GB HBM3".

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    return _gpu(device).device.gpu_name()


def get_device_capability(device: str | int | None = None) -> tuple[int, int]:
    """Returns the compute capability of the GPU: (9, 0) for Hopper.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    digits = _gpu(device).device.target.arch.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])


class DeviceProperties(Record):
    """Properties of a GPU, by torch.cuda's names.

    name:                           the driver's name
    major, minor:                   compute capability: 9, 0 for Hopper
    total_memory:                   bytes
    multi_processor_count:          number of multiprocessors
    shared_memory_per_block_optin:  bytes of shared memory that a block may have
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int


def get_device_properties(device: str | int | None = None) -> DeviceProperties:
    """Returns the properties of the GPU.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    gpu = _gpu(device).device
    _, total = gpu.memory_info()
    made = get_device_name(device), *get_device_capability(device), total
    return DeviceProperties(*made, gpu.num_multiprocessors, gpu.target.shared_bytes)


def is_bf16_supported() -> bool:
    """Returns True if there is a GPU that supports bfloat16: compute capability 8 or later.

    >>> is_bf16_supported() <= is_available()
    True
    """
    return is_available() and get_device_capability() >= (8, 0)


def synchronize(device: str | int | None = None) -> None:
    """Waits until all work submitted to the GPU is done.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is no GPU, or its work failed.
    """
    _gpu(device).device.synchronize()


class Event:
    """A point in the work of the GPU, with torch.cuda.Event's methods.

    Tensors are lazy: values that are not realized before `record` are computed later.

    Args:
      enable_timing:  allow `elapsed_time`
      blocking:       has no effect: waiting threads always yield
      interprocess:   must be False

    Raises:
      ArgumentError: interprocess is True.

    >>> if is_available():
    ...     start, stop = Event(enable_timing=True), Event(enable_timing=True)
    ...     start.record()
    ...     y = ones(1000, 1000, device="cuda").exp().realize()
    ...     stop.record()
    ...     print(f"{start.elapsed_time(stop):.3f} ms")
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if interprocess:
            raise ArgumentError("Event: interprocess must be False: a process has its GPU for itself.")
        self.enable_timing = enable_timing
        self._moment: Any = None  # of the last record

    def record(self) -> None:
        """Records the event after all work submitted to the GPU so far.

        Raises:
          DeviceError: there is no GPU.

        >>> if is_available():
        ...     Event().record()
        """
        self._moment = _gpu(None).device.mark()

    def query(self) -> bool:
        """Returns True if that work is done, or the event was not recorded.

        >>> Event().query()
        True
        """
        return self._moment is None or bool(self._moment.has_come())

    def synchronize(self) -> None:
        """Waits until that work is done.

        Raises:
          DeviceError: work of the GPU failed.

        >>> Event().synchronize()
        """
        if self._moment is not None:
            self._moment.wait()

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds from this event to a later one, after waiting for that.

        Args:
          end_event: the later event

        Raises:
          ArgumentError: an event was made without enable_timing, or not recorded.

        >>> if is_available():
        ...     start, stop = Event(enable_timing=True), Event(enable_timing=True)
        ...     start.record()
        ...     stop.record()
        ...     assert start.elapsed_time(stop) >= 0
        """
        for which, event in (("the first", self), ("the second", end_event)):
            if not event.enable_timing:
                raise ArgumentError(f"elapsed_time: {which} event has no time.", "make it by Event(enable_timing=True).")
            if event._moment is None:
                raise ArgumentError(f"elapsed_time: {which} event was never recorded.", "call its record() first.")
        return 1e3 * float(self._moment.seconds_until(end_event._moment))


def kernel_times(work: Callable[[], Any]) -> list[tuple[str, float]]:
    """Returns name and time of each kernel that a function runs on the GPU, in order, measured by events.

    Kernels are then submitted one by one, not as a graph. Tensors are lazy: values that `work` does not realize are not
    computed.

    Args:
      work: a function without arguments

    Returns: (name of the kernel's function, seconds) per kernel

    Raises:
      DeviceError: there is no GPU.

    >>> if is_available():
    ...     for name, seconds in kernel_times(lambda: ones(4, device="cuda").sum().item()):
    ...         print(f"{name:30} {1e6 * seconds:8.1f} us")
    """
    return _gpu(None).device.kernel_times(work)


def empty_cache() -> None:
    """Frees memory that no tensor holds; does nothing if the GPU has not been used.

    Raises:
      DeviceError: work of the GPU failed.

    >>> empty_cache()
    """
    used: Any = compiler_in_use(NAME)
    if used is not None:
        used.device.trim()


def memory_allocated(device: str | int | None = None) -> int:
    """Returns the bytes that tensors hold on the GPU now.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    return costs.memory_allocated(gpu_named(device))


def memory_reserved(device: str | int | None = None) -> int:
    """Returns the bytes allocated from the driver: those of tensors, and those kept for reuse.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    return _gpu(device).device.held


def mem_get_info(device: str | int | None = None) -> tuple[int, int]:
    """Returns the free and the total bytes of the GPU; memory that picograd keeps for reuse is not free.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    return _gpu(device).device.memory_info()


def max_memory_allocated(device: str | int | None = None) -> int:
    """Returns the peak of bytes that tensors held on the GPU.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    return costs.max_memory_allocated(gpu_named(device))


def reset_peak_memory_stats(device: str | int | None = None) -> None:
    """Makes max_memory_allocated start from the present memory of the GPU.

    Raises:
      ArgumentError: another device is named.
      DeviceError:   there is none, or none of that number.
    """
    costs.reset_peak_memory_stats(gpu_named(device))


def manual_seed(seed: int) -> Generator:
    """Restarts the default generator with `seed`, on all devices, as pg.manual_seed does.

    >>> _ = manual_seed(7)
    """
    return seed_all(seed)


manual_seed_all = manual_seed


def _gpu(device: str | int | None) -> Any:
    """Returns the Compiler of the GPU given by a user's argument."""
    return compiler_for(gpu_named(device))
