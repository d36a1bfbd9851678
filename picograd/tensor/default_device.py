"""Where new tensors are made: the device that the program chooses for its thread, else PICOGRAD_DEVICE's.

In:    names of devices
Out:   `set_default_device`, `get_default_device`; `Device`, which says the same as an attribute
Next:  picograd/tensor/autocast.py

`with pg.device("cuda"):` chooses for a block (picograd/device.py). What is there already stays where it is.
"""

from __future__ import annotations

from picograd.device import choices, device
from picograd.engine import devices
from picograd.engine.realize import default_device
from picograd.tensor.exchange.host import usable_device


def set_default_device(device: str | None) -> None:
    """Makes a device the one of new tensors, in this thread; inside a `with pg.device(...)` block until its end.

    Args:
      device: its name; None: the one of PICOGRAD_DEVICE again

    Raises:
      DeviceError: there is no such device, or this machine cannot use it.

    >>> pg.set_default_device("numpy")
    >>> pg.zeros(2).device
    device(type='numpy')
    >>> pg.set_default_device(None)
    """
    made = (*choices.get()[:-1], None if device is None else usable_device(device))
    choices.set(() if made == (None,) else made)  # as before anything was chosen, which is how jit knows its captures


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
    usable:   the names of those on which this machine can compute
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
