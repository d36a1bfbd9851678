"""NumPy's arrays, scalars and dtypes in pickles: numbers and bools only, made from the bytes that are there.

In:    arguments and states as NumPy pickles them
Out:   `NUMPY_NAMES`, for an Unpickler
Called by: formats/torch_names.py, data/mnist.py

NumPy itself would take a dtype of objects and read the bytes as their addresses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.formats.pickled import Builder, Unfinished

Array = np.ndarray[Any, Any]
DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|\?|[bBhHiIlLqQefd])")  # as NumPy writes numbers and bools
NDARRAY = Builder("numpy.ndarray")


def numeric_dtype(text: Any) -> np.dtype[Any]:
    """Returns the dtype of numbers or bools that a file names.

    Raises:
      DataError: it is another one: of objects, of text, of records.
    """
    if type(text) is not str or not DTYPE.fullmatch(text):
        raise DataError(f"it has an array of dtype {str(text)[:40]!r}; only numbers and bools are read")
    return np.dtype(text)


def array_from(data: bytes | bytearray, dtype: np.dtype[Any], shape: Any, is_fortran: bool = False) -> Array:
    """Returns an array on the bytes themselves, which many may share.

    Raises:
      DataError: the bytes are not those of the shape.
    """
    if type(shape) is not tuple or not all(type(dim) is int and dim >= 0 for dim in shape) or len(shape) > 64:
        raise DataError(f"it has an array of shape {str(shape)[:40]}")
    if math.prod(shape) * dtype.itemsize != len(data) or any(dim >= 2**63 for dim in shape):
        raise DataError(f"it has {len(data):,} bytes for an array of shape {shape} and dtype {dtype}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def _dtype(text: Any, *flags: Any) -> Unfinished:
    """Returns a dtype without its byte order, which is the second part of its state."""

    def finish(state: Any) -> np.dtype[Any]:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise DataError("it has a dtype of another form than numbers and bools have")
        return dtype.newbyteorder(state[1])

    dtype = numeric_dtype(text)
    return Unfinished(finish)


def _array(kind: Any, shape: Any, code: Any) -> Unfinished:
    """Returns an array whose version, shape, dtype, order and bytes are its state."""
    if kind is not NDARRAY:
        raise DataError("it has an array of another class than numpy.ndarray")

    def finish(state: Any) -> Array:
        *_, shape, dtype, is_fortran, data = state
        return array_from(_bytes(data), _known(dtype), shape, bool(is_fortran))

    return Unfinished(finish)


def _scalar(dtype: Any, data: Any) -> Any:
    return array_from(_bytes(data), _known(dtype), ())[()]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> Array:
    return array_from(_bytes(data), _known(dtype), shape, order == "F")


def _known(dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, np.dtype):
        raise TypeError
    return dtype


def _bytes(data: Any) -> bytes | bytearray:
    """Returns the bytes of an array; Python 2 wrote them as text."""
    if type(data) is str:
        return data.encode("latin1")
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError
    return data


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "multiarray._reconstruct": _array,
    "multiarray.scalar": _scalar,
    "numeric._frombuffer": _from_buffer,
}
NUMPY_NAMES: dict[str, Any] = {
    "numpy.ndarray": NDARRAY,
    "numpy.dtype": Builder("numpy.dtype", _dtype),
    **{
        f"{core}.{name}": Builder(f"{core}.{name}", build)
        for core in ("numpy.core", "numpy._core")  # of NumPy 1 and 2
        for name, build in _FUNCTIONS.items()
    },
}
