"""Settings of the process by PyTorch's names: default device and dtype, threads, reproducibility.

`with pg.device("cuda"):` sets the device for a block (picograd/device.py). Existing tensors stay on their device.
"""

from __future__ import annotations

from picograd import config
from picograd import dtype as dtypes
from picograd.device import choices, device
from picograd.dtype import DType
from picograd.engine import devices
from picograd.engine.devices import default_device, usable_device
from picograd.errors import ArgumentError, DTypeError
from picograd.tensor.arguments import at_least
from picograd.tensor.cell import last_change

__all__ = [
    "are_deterministic_algorithms_enabled", "get_default_dtype", "get_num_threads", "set_default_dtype",
    "set_num_threads", "use_deterministic_algorithms",
]  # fmt: skip


# ---- devices of new tensors ----
def set_default_device(device: str | None) -> None:
    """Sets the device of new tensors in this thread; inside a `with pg.device(...)` block until its end.

    Args:
      device: its name; None: that of PICOGRAD_DEVICE

    Raises:
      DeviceError: the device is unknown, or this machine cannot use it.

    >>> pg.set_default_device("numpy")
    >>> pg.zeros(2).device
    device(type='numpy')
    >>> pg.set_default_device(None)
    """
    made = (*choices.get()[:-1], None if device is None else usable_device(device))
    choices.set(() if made == (None,) else made)  # the state before any choice, by which jit identifies its captures


def get_default_device() -> device:
    """Returns the device of new tensors.

    >>> with pg.device("numpy"):
    ...     pg.get_default_device()
    device(type='numpy')
    """
    return device(default_device())


class Devices:
    """The devices of this process.

    default:  the device of new tensors; assigning to it is set_default_device
    usable:   names of the devices that this machine can use
    """

    @property
    def default(self) -> device:
        return get_default_device()

    @default.setter
    def default(self, name: str | None) -> None:
        set_default_device(name)

    @property
    def usable(self) -> tuple[str, ...]:
        return devices.usable_for_values()

    def __repr__(self) -> str:
        return f"Device(default={str(self.default)!r}, usable={self.usable})"


Device = Devices()


# ---- numbers, threads, reproducibility ----
def get_default_dtype() -> DType:
    """Returns the dtype of Python floats, and of new tensors without a given one: float32 until it is set.

    >>> get_default_dtype()
    float32
    """
    return dtypes.default_float


def set_default_dtype(d: DType) -> None:
    """Makes `d` the dtype of Python floats, and of new tensors and layers without a given one, in all threads.

    Existing tensors keep their dtype; jitted functions are captured again.

    Raises:
      DTypeError: it is not a float of 16, 32 or 64 bits.

    >>> set_default_dtype(pg.float64)
    >>> Tensor([1.0]).dtype, pg.nn.Linear(2, 3).weight.dtype
    (float64, float64)
    >>> set_default_dtype(pg.float32)
    """
    found = dtypes.named("set_default_dtype", d)
    if not found.is_float or found.bits < 16:
        raise DTypeError(f"set_default_dtype: needs a float of 16, 32 or 64 bits, got {found}.", hint="pg.float64")
    dtypes.default_float = found
    last_change.note()


def set_num_threads(number: int) -> None:
    """Sets the number of threads with which the CPU computes, for plans made from now on.

    A plan keeps its number of threads. Results have the same bits for every number.

    Raises:
      ArgumentError: it is below 1, or above 1024.

    >>> before = pg.get_num_threads()
    >>> pg.set_num_threads(1)
    >>> pg.get_num_threads()
    1
    >>> pg.set_num_threads(before)
    """
    count = at_least("set_num_threads", "number", number, 1)
    if count > config.THREADS_MAX:
        raise ArgumentError(f"set_num_threads: number must be at most {config.THREADS_MAX}, got {count}.")
    config.set_num_threads(count)


def get_num_threads() -> int:
    """Returns the number of threads with which the CPU computes: PICOGRAD_THREADS, or one per processor of this process.

    >>> pg.get_num_threads() >= 1
    True
    """
    return config.num_threads()


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Does nothing: all runs give the same bits, with any settings and any number of threads.

    Args:
      mode:       True or False
      warn_only:  has no effect

    >>> pg.use_deterministic_algorithms(True)
    """


def are_deterministic_algorithms_enabled() -> bool:
    """Returns True: all runs give the same bits.

    >>> pg.are_deterministic_algorithms_enabled()
    True
    """
    return True
