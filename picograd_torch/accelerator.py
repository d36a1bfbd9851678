"""torch.accelerator by its name: the GPU, for programs that do not name a vendor.

In:    cuda.py
Out:   queries before training, and the device for a model
"""

from __future__ import annotations

from picograd.device import device
from picograd.public import publish
from picograd_torch import cuda
from picograd_torch.cuda import (
    device_count,
    empty_cache,
    get_device_capability,
    is_available,
    max_memory_allocated,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
    synchronize,
)

__all__ = [
    "current_accelerator", "current_device_index", "device_count", "empty_cache", "get_device_capability", "is_available",
    "max_memory_allocated", "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "set_device_index",
    "synchronize",
]  # fmt: skip


def current_accelerator(check_available: bool = False) -> device | None:
    """Returns the device of the GPU, or None if there is none: programs then use "cpu".

    Args:
      check_available:  accepted for PyTorch's programs; a GPU that this process cannot use never counts

    >>> current_accelerator() is None or is_available()
    True
    """
    return device(cuda.NAME) if is_available() else None


def current_device_index() -> int:
    """Returns the number of the GPU in use, 0.

    Raises:
      DeviceError: there is none.
    """
    return cuda.current_device()


def set_device_index(device: str | int) -> None:
    """Checks that a device is this process' GPU.

    Raises:
      ArgumentError: device is something else.
      DeviceError:   there is no GPU, or it has a different number.
    """
    cuda.set_device(device)


publish(globals())
