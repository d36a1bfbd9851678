"""Conversion of host values: numbers, nested lists and arrays become arrays of a dtype, or are refused."""

from __future__ import annotations

import math
from contextvars import Context
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.annotations import fits, shown
from picograd.dtype import DType, Scalar
from picograd.errors import DTypeError, ShapeError
from picograd.ir.shape import ARRAY_NDIM_MAX

Array = np.ndarray[Any, Any]


def host_array(data: Any, dtype: Any) -> tuple[Array, DType]:
    """Returns `data` as an array, and its dtype.

    Raises:
      ShapeError: the list is ragged.
      DTypeError: the data is neither numbers nor bools, `dtype` is not a DType, or Python integers are out of its range.
    """
    if isinstance(data, int) and isinstance(dtype, int):  # NOTE: not a DType: PyTorch's Tensor(5, 4)
        raise DTypeError(f"Tensor: takes data and a dtype, got {data} and {dtype}.", hint=f"empty({data}, {dtype}, ...)")
    if dtype is not None:
        dtype = dtypes.known("Tensor", dtype, dtypes.default_float)
    try:
        array = np.asarray(data)
    except ValueError as error:
        if "maximum number of dimension" in str(error):
            fact = f"Tensor: NumPy's arrays have up to {ARRAY_NDIM_MAX} axes, these lists are nested deeper."
            raise ShapeError(fact, hint="pass the numbers as one list, and reshape.") from None
        if "inhomogeneous" not in str(error):
            raise
        raise ShapeError(
            "Tensor: the nested list is ragged: lists at one depth must have equal lengths.",
            hint="pad the short ones.",
        ) from None
    own_dtype = isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__")
    kept = dtypes.from_numpy(array.dtype) if array.dtype.kind in "biufV" else None
    if kept is None:
        raise DTypeError(f"Tensor: needs real numbers or bools, got {_said(data, array)}.", _instead(array))
    if dtype is None and not own_dtype and kept is dtypes.float64:
        dtype = dtypes.default_float
    if dtype is not None and not own_dtype and array.dtype.kind in "iu" and array.size and dtype.kind in "iu":
        fitting("Tensor", int(array.min()), dtype)
        fitting("Tensor", int(array.max()), dtype)
    return convert(array, dtype or kept), dtype or kept


def _said(data: Any, array: np.ndarray[Any, Any]) -> str:
    """Returns the first item that is not a number, or the first integer of more than 64 bits."""
    for one in array.flat if array.dtype.kind == "O" else ():
        if not fits(one, float):
            return shown(one)
        if isinstance(one, int) and not -(2**63) <= one < 2**64:
            return f"{one}, which does not fit 64 bits"
    return f"{type(data).__name__} of NumPy dtype {array.dtype}"


def _instead(array: np.ndarray[Any, Any]) -> str | None:
    """Returns a hint for an array that no tensor can hold."""
    if array.dtype.kind == "c":
        return "the real and the imaginary part are two tensors; pg.fft takes such pairs."
    if array.dtype.kind == "O" and all(one is None or fits(one, float) for one in array.flat):
        return "np.asarray(data, float)"
    return "number the words first: one integer per word." if array.dtype.kind == "U" else None


def array_of(value: Any) -> Array:
    """Returns a number, an array, or a tensor of another library (also one that needs gradients) as an array."""
    return np.asarray(value.detach().cpu()) if hasattr(value, "detach") else np.asarray(value)


_quiet = Context()  # NumPy gives no warnings in it; copying it is cheaper than an np.errstate
_quiet.run(np.seterr, invalid="ignore", over="ignore")


def convert(array: Array, dtype: DType) -> Array:
    """Converts `array` to `dtype`; integers wrap, floats are truncated toward zero."""
    if array.dtype == dtype.numpy:
        return array
    return _quiet.copy().run(array.astype, dtype.numpy)


def fitting(function: str, value: Scalar, dtype: DType) -> Scalar:
    """Returns a number for storage as `dtype`.

    Raises:
      DTypeError: an integer dtype cannot hold it (floats lose their fraction; -1 wraps in an unsigned one).
    """
    if dtype.kind not in "iu":
        return value
    low, high = (-dtype.max if dtype.kind == "u" else dtype.min), dtype.max
    if (isinstance(value, float) and not math.isfinite(value)) or not low <= int(value) <= high:
        raise DTypeError(f"{function}: {value} does not fit {dtype}, whose range is {dtype.min} to {dtype.max}.")
    return value
