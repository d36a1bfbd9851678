"""Code on a GPU: loaded for as long as an executable needs it, unloaded when none of it runs any more.

In:    cubins, or PTX text, which the driver compiles
Out:   `Loader`
Called by: runtime/cuda/device.py.    Next: picograd/runtime/cuda/memory.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from picograd.errors import DeviceError, PicogradError
from picograd.ir.stages import Launch
from picograd.runtime.cuda.driver import call, driver

LOG_NBYTES = 1 << 14  # of what the driver's compiler says


class Module:
    """Loaded code. When no executable needs it any more it goes to those that are unloaded before the next is loaded.

    NOTE: its kernels may run still, and a __del__ may run in a thread without a context: it may only append to a deque.
    """

    def __init__(self, handle: Any, dropped: deque[Any]):
        self.handle, self._dropped = handle, dropped

    def __del__(self) -> None:
        self._dropped.append(self.handle)


class Loader:
    """What loads code of one device, and unloads it.

    dropped:  loaded code that no executable needs any more
    """

    def __init__(self, device: str):
        self._device, self.dropped = device, deque[Any]()

    def load(self, name: str, code: bytes, launches: Sequence[Launch]) -> tuple[Module, tuple[Any, ...]]:
        """Returns loaded code, and the function of each launch.

        Args:
          code:  a cubin, or PTX text that ends with a zero byte

        Raises:
          DeviceError: the driver does not take it.
        """
        try:
            module = Module(call("cuModuleLoadData", code), self.dropped)
            return module, tuple(_function(module.handle, launch) for launch in launches)
        except PicogradError as error:
            version = _version_text(call("cuDriverGetVersion"))
            raise DeviceError(
                f"{self._device}: kernel {name} cannot be loaded: {error.args[0].splitlines()[0]} "
                f"{_said_of(code)}The driver is made for CUDA {version} and older.",
                "update the driver, or install a nvidia-cuda-nvrtc of its version, or use PICOGRAD_DEVICE=PTX",
            ) from None

    def unload(self, wait: Callable[[], None]) -> None:
        """Unloads what has been dropped, once none of it runs any more. One thread at a time may call it.

        Args:
          wait:  returns when everything submitted is done; what is dropped meanwhile stays loaded
        """
        count = len(self.dropped)
        if count:
            wait()
        for _ in range(count):
            call("cuModuleUnload", self.dropped.popleft())


def _function(module: Any, launch: Launch) -> Any:
    """Returns a function of loaded code, which may have the shared memory that its launch asks for."""
    function = call("cuModuleGetFunction", module, launch.symbol.encode())
    if launch.shared_nbytes:
        most = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", function, most, launch.shared_nbytes)
    return function


def _said_of(data: bytes) -> str:
    """Returns the first complaint of the driver's compiler about PTX text, which it has refused; "" where it has none."""
    if data.startswith(b"\x7fELF"):
        return ""
    kinds, log = driver().CUjit_option, bytearray(LOG_NBYTES)
    options = [kinds.CU_JIT_ERROR_LOG_BUFFER, kinds.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    driver().cuModuleLoadDataEx(data, len(options), options, [log, len(log)])
    said = log.partition(b"\0")[0].decode(errors="replace").strip().splitlines()
    return f'Its compiler says "{said[0]}". ' if said else ""


def _version_text(number: int) -> str:
    """Returns a version of CUDA as people write it.

    >>> _version_text(12040)
    '12.4'
    """
    return f"{number // 1000}.{number % 1000 // 10}"
