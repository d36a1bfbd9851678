"""Loads a shared library from bytes.

In:    Binary
Out:   ctypes.CDLL
Called by: runtime/c.py, runtime/cudasim/device.py.    Next: picograd/runtime/c.py
"""

from __future__ import annotations

import ctypes
import os
import tempfile

from picograd.errors import DeviceError
from picograd.ir.stages import Binary


def load_library(binary: Binary, device: str) -> ctypes.CDLL:
    """Loads the library of a kernel, which needs a file only while it is being loaded.

    Raises:
      DeviceError: the system does not take it.
    """
    handle, path = tempfile.mkstemp(prefix="picograd_", suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(binary.data)
        return ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"{device}: kernel {binary.name} cannot be loaded ({error}).") from None
    finally:
        os.unlink(path)
