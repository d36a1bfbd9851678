"""The interface of a device for the engine.

In:    Binaries, Schedules, host arrays
Out:   `Device`, the protocol that devices implement; `HostDevice`, `LibraryDevice`, which some do; `MemoryUse`,
       `MemoryCount`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from picograd.device import Target
from picograd.interrupts import AtDeath, finish_later, later, lock
from picograd.ir.op import Op
from picograd.ir.opts import Library, PlainProduct
from picograd.ir.stages import Binary, Executable, Param, Runner, Schedule

ALIGNMENT = 64  # bytes: a device's memory begins at a multiple of a cache line, which is as long as the widest vector


class MemoryUse(Protocol):
    """Bytes of a device's memory in living objects, counted as they were asked for."""

    @property
    def in_use(self) -> int:
        """Bytes held now."""
        ...

    @property
    def peak(self) -> int:
        """The most bytes held at one time since the last `reset_peak`."""
        ...

    @property
    def peak_with_scratch(self) -> int:
        """The most bytes held at one time, scratch memory of kernels included; some devices have that in every figure."""
        ...

    def reset_peak(self) -> None:
        """Starts the peaks from the memory held now."""
        ...


GIVEN_SIZES_MAX = 256  # numbers of bytes that are added up later


class MemoryCount:
    """Implements MemoryUse for devices whose allocator does not count. Safe for many threads.

    >>> count = MemoryCount()
    >>> held = count.take(100)
    >>> del held
    >>> count.in_use, count.peak
    (0, 100)
    """

    def __init__(self) -> None:
        self._lock = lock()
        self._given: deque[int] = deque()  # bytes that were taken, and minus those given back
        self._in_use = self._peak = 0

    def take(self, nbytes: int) -> AtDeath:
        """Counts memory for as long as somebody holds the returned object."""
        if later:
            finish_later()
        held, give_back = AtDeath.__new__(AtDeath), partial(self._given.append, -nbytes)
        given = self._given
        given += (nbytes,)  # NOTE: no call between this and the next, where an interrupt might come
        held.__del__ = give_back  # type: ignore[assignment]
        if len(given) > GIVEN_SIZES_MAX:
            with self._lock:
                self._collect()
        return held

    def _collect(self) -> None:
        given = self._given
        while given:
            nbytes = given[0]
            del given[0]
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)

    @property
    def in_use(self) -> int:
        """Bytes held now."""
        finish_later()
        with self._lock:
            self._collect()
            return self._in_use

    @property
    def peak(self) -> int:
        """The most bytes held at one time since the last `reset_peak`."""
        with self._lock:
            self._collect()
            return self._peak

    peak_with_scratch = peak

    def reset_peak(self) -> None:
        """Starts the peak from the memory held now."""
        with self._lock:
            self._collect()
            self._peak = self._in_use


class Device(Protocol):
    """Memory, code and launches of one machine.

    name:    as users write it
    target:  what code generation needs to know
    """

    name: str
    target: Target

    @property
    def memory(self) -> MemoryUse:
        """The memory in use."""
        ...

    def allocate(self, nbytes: int) -> Any:
        """Returns memory of at least `nbytes` bytes, at a multiple of ALIGNMENT; it is free again when the object dies.

        Raises:
          OutOfMemoryError: the device has no memory left.
        """
        ...

    def allocate_all(self, lengths: Sequence[int]) -> list[Any]:
        """Returns memory of at least each number of bytes, as `allocate` would."""
        ...

    def copy_in(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        ...

    def copy_out(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`, after all work submitted before."""
        ...

    def copy(self, target: Any, source: Any, nbytes: int) -> None:
        """Copies the start of one memory to that of another, after all work submitted before."""
        ...

    def load(self, binary: Binary) -> Executable:
        """Makes code callable."""
        ...

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables, may_stop), which runs the whole schedule once, in order.

        inputs and outputs are Buffers with memory, by the indices of `Schedule.inputs` and of the BufferUses with
        role "output"; variables are the values of symbolic integers by name. The arena for temporaries is kept from
        run to run.
        """
        ...


@runtime_checkable
class HostDevice(Protocol):
    """A Device whose plans can call a function of Python, on arrays of the host."""

    def load_host(
        self, name: str, params: Sequence[Param], variables: Sequence[Op], work: int,
        run: Callable[[Sequence[np.ndarray[Any, Any]], Mapping[str, int]], None],
    ) -> Executable:  # fmt: skip
        """Makes a function callable within plans.

        Args:
          params:     what it takes, by slot
          variables:  symbolic integers whose values it takes
          work:       rough cost, in the unit of `Launch.work`
          run:        (a flat array for each slot, values of symbolic integers by name): what it does; it may raise Refused
        """
        ...


@runtime_checkable
class LibraryDevice(Protocol):
    """A Device that may have a vendor's library of matrix products: then `load` takes calls of it, too."""

    def library(self) -> str | None:
        """Returns the name of the library, with its version; None where there is none."""
        ...

    def way_of(self, product: PlainProduct) -> Library:
        """Returns how the library would compute a product; the same for the same product, GPU and version.

        Raises:
          DeviceError: it would not.
        """
        ...


def library_of(device: Device) -> str:
    """Returns the name of the library whose kernels are candidates on a device, with its version; "" where none is.

    PICOGRAD_PLAIN_SUMS=1 leaves it out, for users who want the sums of generated kernels: their order is written down,
    and the same in every version.
    """
    if device.target.plain_sums or not isinstance(device, LibraryDevice):
        return ""
    return device.library() or ""
