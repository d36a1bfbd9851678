"""The GPU by torch.cuda's names: whether there is one, its memory, waiting for it.

In:    nothing
Out:   is_available device_count synchronize kernel_times empty_cache memory_allocated manual_seed ...

Each process has one GPU, number 0, whose device is "CUDA". Nothing is loaded before something is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.device import device as Device
from picograd.engine.devices import compiler_for, why_not
from picograd.tensor import memory
from picograd.tensor.creation.generator import Generator
from picograd.tensor.creation.generator import manual_seed as seed_all

__all__ = [
    "current_device", "device_count", "empty_cache", "get_device_capability", "is_available", "is_bf16_supported",
    "kernel_times", "manual_seed", "manual_seed_all", "max_memory_allocated", "memory_allocated",
    "reset_peak_memory_stats", "synchronize",
]  # fmt: skip

NAME = "CUDA"


def is_available() -> bool:
    """Returns True where there is an NVIDIA GPU that this process can use.

    >>> device = "cuda" if is_available() else "cpu"
    """
    return why_not(NAME) is None


def device_count() -> int:
    """Returns 1 where there is a GPU, else 0: each process uses one.

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


def get_device_capability(device: str | int | None = None) -> tuple[int, int]:
    """Returns the generation of the GPU: (9, 0) is Hopper's.

    Raises:
      DeviceError: there is none, or none of that number.
    """
    digits = _gpu(device).device.target.arch.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])


def is_bf16_supported() -> bool:
    """Returns True where there is a GPU that computes with bfloat16: of generation 8 or later.

    >>> is_bf16_supported() <= is_available()
    True
    """
    return is_available() and get_device_capability() >= (8, 0)


def synchronize(device: str | int | None = None) -> None:
    """Waits until everything that the GPU was given is done.

    Raises:
      DeviceError: there is no GPU, or what was given failed.
    """
    _gpu(device).device.synchronize()


def kernel_times(work: Callable[[], Any]) -> list[tuple[str, float]]:
    """Returns the name and the time of each kernel that a function has the GPU run, in order, between two events each.

    Kernels are submitted one by one meanwhile, not as a graph. Tensors are lazy: what `work` does not realize does not run.

    Args:
      work: a function of no arguments

    Returns: (name of the kernel's function, seconds) for each

    Raises:
      DeviceError: there is no GPU.

    >>> if is_available():
    ...     for name, seconds in kernel_times(lambda: ones(4, device="cuda").sum().item()):
    ...         print(f"{name:30} {1e6 * seconds:8.1f} us")
    """
    times: list[tuple[str, float]] = _gpu(None).device.kernel_times(work)
    return times


def empty_cache() -> None:
    """Gives memory that no tensor holds back to the driver. Where there is no GPU it does nothing.

    >>> empty_cache()
    """
    if is_available():
        _gpu(None).device.trim()


def memory_allocated(device: str | int | None = None) -> int:
    """Returns the bytes that tensors hold on the GPU now.

    Raises:
      DeviceError: there is none, or none of that number.
    """
    return memory.memory_allocated(_place(device))


def max_memory_allocated(device: str | int | None = None) -> int:
    """Returns the most bytes that tensors held on the GPU at one time.

    Raises:
      DeviceError: there is none, or none of that number.
    """
    return memory.max_memory_allocated(_place(device))


def reset_peak_memory_stats(device: str | int | None = None) -> None:
    """Makes max_memory_allocated start from what the GPU holds now.

    Raises:
      DeviceError: there is none, or none of that number.
    """
    memory.reset_peak_memory_stats(_place(device))


def manual_seed(seed: int) -> Generator:
    """Starts the default generator from `seed`, for every device, as pg.manual_seed does.

    >>> _ = manual_seed(7)
    """
    return seed_all(seed)


manual_seed_all = manual_seed


def _place(device: str | int | None) -> str:
    """Returns the name of the GPU that an argument means."""
    return NAME if device is None else Device(NAME, device) if isinstance(device, int) else Device(device)


def _gpu(device: str | int | None) -> Any:
    """Returns the Compiler of the GPU."""
    return compiler_for(str(_place(device)))
