"""Host data on its way into a tensor: numbers, nested lists and arrays.

In:    what users pass to Tensor(...)
Out:   `host_array`; `default_device`, `device_named`
Next:  picograd/tensor/build.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.realize import default_device as default_device
from picograd.errors import ArgumentError, DTypeError, ShapeError

Array = np.ndarray[Any, Any]


def host_array(data: Any, dtype: DType | None) -> tuple[Array, DType]:
    """Returns an array of `data` and the dtype it is kept in.

    Raises:
      ShapeError: the list is ragged.
      DTypeError: the data is neither numbers nor bools, or `dtype` is no DType.
    """
    if dtype is not None and not isinstance(dtype, DType):
        raise DTypeError(f"Tensor: dtype must be a picograd dtype, got {dtype!r}.", hint="picograd.dtypes.float32")
    try:
        array = np.asarray(data)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ShapeError(
            "Tensor: the nested list is ragged: lists at one depth must be of one length.",
            hint="pad the short ones.",
        ) from None
    own_dtype = isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__")
    kept = dtypes.from_numpy(array.dtype) if array.dtype.kind in "biufV" else None
    if kept is None:
        raise DTypeError(f"Tensor: needs numbers or bools, got {type(data).__name__} of NumPy dtype {array.dtype}.")
    if dtype is None and not own_dtype and kept is dtypes.float64:
        dtype = dtypes.default_float
    return convert(array, dtype or kept), dtype or kept


def convert(array: Array, dtype: DType) -> Array:
    """Returns `array` in the layout of `dtype`; integers wrap, floats become integers toward zero."""
    if array.dtype == dtype.numpy:
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(dtype.numpy)


def device_named(name: str) -> str:
    """Returns a device's name as picograd spells it ("cuda" is "CUDA").

    Raises:
      ArgumentError: it is not a string.
    """
    if not isinstance(name, str):
        raise ArgumentError(f'device: needs a name such as "CPU", got {name!r}.')
    return name.upper()
