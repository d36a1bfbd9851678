"""DLPack: arrays of other libraries as NumPy arrays on their memory, and back.

In:    objects with __dlpack__, NumPy arrays
Out:   `array_of`; `capsule_of`
Next:  picograd/tensor/exchange/einops.py

NumPy makes and consumes the capsules, and gives memory back when its last user is gone. What it has no dtype for travels as
unsigned integers: only the name of the dtype in the capsule is changed.
Source: DLPack 1.1, dlpack.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DTypeError, SharingError

CPU = 1  # kDLCPU
CUDA = 2  # kDLCUDA
VERSION = (1, 0)  # the newest whose layout is known here
FOREIGN = {(4, 16): dtypes.bfloat16, (10, 8): dtypes.float8_e4m3, (12, 8): dtypes.float8_e5m2}  # by code and bits
CODES = {dtype: code for (code, _), dtype in FOREIGN.items()}
UNSIGNED = 1  # kDLUInt


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("dtype", _DType), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class _Carrier:
    """A capsule as the object NumPy asks for."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def array_of(x: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """Returns an array on the memory of an object with __dlpack__; it may be read-only.

    Args:
      copy:  what the object is asked for: True, a copy; False, never one

    Raises:
      SharingError: its memory is not the CPU's, and it makes no copy there.
      DTypeError:   its elements are none of picograd's dtypes.
    """
    capsule = _asked(x, copy)
    kind = _dtype_in(capsule)
    found = FOREIGN.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if found is not None:
        kind.code = UNSIGNED
        return np.from_dlpack(_Carrier(capsule)).view(found.numpy)
    try:
        array = np.from_dlpack(_Carrier(capsule))
    except (BufferError, RuntimeError):
        array = None
    if array is None or dtypes.from_numpy(array.dtype) is None:
        fact = f"from_dlpack: elements of DLPack type (code {kind.code}, {kind.bits} bits, {kind.lanes} lanes)"
        raise DTypeError(f"{fact} have no picograd dtype.", hint="convert them before.")
    return array


def capsule_of(array: np.ndarray[Any, Any], dtype: DType, max_version: tuple[int, int] | None) -> Any:
    """Returns a capsule on the memory of an array with elements of `dtype`.

    Raises:
      SharingError: the array is read-only, and a consumer of this version could not be told.
    """
    code = CODES.get(dtype)
    carried: Any = array if code is None else array.view(np.uint8 if dtype.itemsize == 1 else np.uint16)
    versioned = max_version is not None and max_version[0] >= 1
    if not versioned and not array.flags.writeable:
        raise SharingError(
            "__dlpack__: read-only memory needs a consumer of DLPack 1.0 or newer.", hint="__dlpack__(copy=True)"
        )
    capsule = carried.__dlpack__(max_version=VERSION if versioned else None)
    if code is not None:
        _dtype_in(capsule).code = code
    return capsule


def _asked(x: Any, copy: bool | None) -> Any:
    """Returns the capsule of an object, in the newest layout it knows."""
    kind, _ = x.__dlpack_device__()
    wanted: dict[str, Any] = {"max_version": VERSION}
    if copy is not None:
        wanted["copy"] = copy
    if int(kind) != CPU:
        if copy is False:
            raise SharingError(f"from_dlpack: memory of DLPack device type {int(kind)} is not the CPU's, and copy=False.")
        wanted["dl_device"] = (CPU, 0)
    try:
        return x.__dlpack__(**wanted)
    except TypeError:
        if int(kind) != CPU:  # an object of an older version makes no copies
            fact = f"from_dlpack: memory of DLPack device type {int(kind)} is not the CPU's."
            raise SharingError(fact, hint="copy it to the CPU before.") from None
        return x.__dlpack__()


def _dtype_in(capsule: Any) -> _DType:
    """Returns the dtype that stands in a capsule; to be used only while that lives."""
    if _is_valid(capsule, b"dltensor_versioned"):
        return _Versioned.from_address(_pointer(capsule, b"dltensor_versioned")).tensor.dtype  # type: ignore[no-any-return]
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor")).dtype  # type: ignore[no-any-return]
    raise SharingError(f"from_dlpack: __dlpack__ must return an unused DLPack capsule, got {type(capsule).__name__}.")
