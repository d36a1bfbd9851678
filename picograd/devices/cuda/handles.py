"""Handles of what the CUDA driver makes: events, which are used again, and code and graphs, which are given back.

In:    streams to record; cubins, or PTX text, which the driver compiles
Out:   `Events`; `Handles`; `Loader`, whose code is loaded for as long as an executable needs it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from picograd.device import Target
from picograd.devices.cuda.driver import START_AGAIN, call, driver, version_text
from picograd.errors import DeviceError
from picograd.ir.stages import Launch
from picograd.living import AtDeath

# ---- events and handles ----
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Events:
    """Events without a time, by their handles, for those who need one.

    spare:  those that nobody needs
    """

    def __init__(self) -> None:
        self.spare: list[int] = []

    def recorded(self, stream: Any) -> int:
        """Returns an event behind all that a stream was given."""
        self.give(self.take())  # where it stays if it cannot be recorded
        call("cuEventRecord", self.spare[-1], stream)
        return self.spare.pop()

    def take(self) -> int:
        """Returns an event that the caller records."""
        return self.spare.pop() if self.spare else int(call("cuEventCreate", NO_TIMING))

    def give(self, event: int) -> None:
        """Takes one back; who waits for it in a stream waits for what it was recorded for then."""
        self.spare.append(event)


class Handles:
    """Things of the driver's of one kind; those that nobody needs any more wait here.

    Args:
      undo:  the function that gives one back
    """

    def __init__(self, undo: str):
        self.undo = undo
        self._dropped: deque[Any] = deque()

    def hold(self, value: Any) -> Handle:
        """Returns a handle that holds a thing as long as it lives."""
        return Handle(value, self._dropped)

    def __len__(self) -> int:
        return len(self._dropped)

    def give_back(self, count: int) -> None:
        """Gives the driver the first handle that nobody needs. A context has to be current."""
        for _ in range(count):
            call(self.undo, self._dropped.popleft())


class Handle:
    """Holds something of the driver's.

    No driver is called when it dies, for it may die in a thread without a context, or while the process ends.
    """

    __slots__ = ("value", "_dropped")

    def __init__(self, value: Any, dropped: deque[Any]):
        self.value, self._dropped = value, AtDeath(dropped.append, value)


# ---- code ----
OTHER_CODE = "update the driver, or install a nvidia-cuda-nvrtc of its version, or use PICOGRAD_DEVICE=PTX"
LOG_NBYTES = 1 << 14  # of the message of the driver's compiler


class Loader:
    """A loader of code for one device, which unloads it, too.

    modules:  loaded code, and code that no executable needs and that waits; its kernels may run still
    """

    def __init__(self, target: Target):
        self._target, self.modules = target, Handles("cuModuleUnload")
        self._version = version_text(call("cuDriverGetVersion"))

    def load(self, name: str, code: bytes, launches: Sequence[Launch]) -> tuple[Handle, tuple[Any, ...]]:
        """Returns loaded code, and the function of each launch.

        Args:
          code:  a cubin, or PTX text that ends with a zero byte

        Raises:
          DeviceError: the driver does not take it.
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
        """Unloads what has been dropped, once none of it runs any more. One thread at a time may call it.

        Args:
          wait:  returns when everything submitted is done; what is dropped meanwhile stays loaded
        """
        count = len(self.modules)
        if count:
            wait()
        self.modules.give_back(count)


def _function(module: Any, launch: Launch) -> Any:
    """Returns a function of loaded code, which may have the shared memory that its launch asks for."""
    function = call("cuModuleGetFunction", module, launch.symbol.encode())
    if launch.shared_nbytes:
        most = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", function, most, launch.shared_nbytes)
    return function


def _loaded(code: bytes, log: bytearray) -> Any:
    """Has the driver load code; what its compiler complains of in PTX text goes to `log`."""
    if code.startswith(b"\x7fELF"):
        return call("cuModuleLoadData", code)
    kinds = driver().CUjit_option
    options = [kinds.CU_JIT_ERROR_LOG_BUFFER, kinds.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    return call("cuModuleLoadDataEx", code, len(options), options, [log, len(log)])


def _said_in(log: bytearray) -> str:
    """Returns the first complaint of the driver's compiler; "" where it has none."""
    said = log.partition(b"\0")[0].decode(errors="replace").strip().splitlines()
    return f'Its compiler says "{said[0]}". ' if said else ""
