"""Data types: conversion, promotion, ranges.

In:    arrays and dtypes
Out:   arrays, dtypes, facts of dtypes
Next:  picograd/array_api/constants.py
"""

from __future__ import annotations

import builtins

from picograd import dtype as dtypes
from picograd.array_api.array import BESIDE, Array, array, checked_dtype, promote
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError
from picograd.record import Record
from picograd.tensor.tensor import Tensor

# What the standard names. picograd's float16, bfloat16 and float8 are used through picograd.dtypes.
STANDARD: dict[str, DType] = {
    "bool": dtypes.bool_, "int8": dtypes.int8, "int16": dtypes.int16, "int32": dtypes.int32, "int64": dtypes.int64,
    "uint8": dtypes.uint8, "uint16": dtypes.uint16, "uint32": dtypes.uint32, "uint64": dtypes.uint64,
    "float32": dtypes.float32, "float64": dtypes.float64,
}  # fmt: skip
# Names of kinds, as isdtype and __array_namespace_info__().dtypes take them; picograd has no complex dtype.
KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "",
    "numeric": "iuf",
}


class FloatInfo(Record):
    """Facts of a float dtype; those of dtypes.finfo, as PyTorch has them, name the dtype by a string.

    bits:             of an element
    eps:              from 1 to the next greater number
    max, min:         the greatest and the least finite number
    smallest_normal:  the least positive number of full precision
    dtype:            whose facts these are
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(Record):
    """Facts of an integer dtype; those of dtypes.iinfo, as PyTorch has them, name the dtype by a string.

    bits:      of an element
    max, min:  the greatest and the least number
    dtype:     whose facts these are
    """

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: str | None = None) -> Array:
    """Returns x as another dtype, on a device; floats become integers toward zero.

    Args:
      copy:  False: x itself is returned where it is of that dtype and on that device

    >>> astype(Array([1.5, 0.0]), dtypes.bool_)
    Array([ True, False])
    """
    result = array("astype", x).cast(checked_dtype("astype", dtype))
    result = result if device is None else result.to(device)
    return result.clone() if copy and result.cell is x.cell else result


def can_cast(from_: DType | Tensor, to: DType, /) -> builtins.bool:
    """Returns whether promotion of `from_` with some dtype gives `to`.

    >>> can_cast(dtypes.int8, dtypes.int16), can_cast(dtypes.int64, dtypes.float32)
    (True, False)
    """
    start = from_.dtype if isinstance(from_, Tensor) else checked_dtype("can_cast", from_)
    end = checked_dtype("can_cast", to)
    try:
        return promote("can_cast", start, end) is end
    except DTypeError:
        return False


def finfo(type: DType | Tensor, /) -> FloatInfo:  # noqa: A002
    """Returns the facts of a float dtype.

    Raises:
      DTypeError: `type` is no float dtype, nor an array of one.

    >>> finfo(dtypes.float32).eps
    1.1920928955078125e-07
    """
    dtype = type.dtype if isinstance(type, Tensor) else checked_dtype("finfo", type)
    if not dtype.is_float:
        raise DTypeError(f"finfo: needs a float dtype, got {dtype}.", hint="iinfo(type)")
    facts = dtypes.finfo(dtype)
    return FloatInfo(facts.bits, facts.eps, facts.max, facts.min, facts.smallest_normal, dtype)


def iinfo(type: DType | Tensor, /) -> IntegerInfo:  # noqa: A002
    """Returns the facts of an integer dtype.

    Raises:
      DTypeError: `type` is no integer dtype, nor an array of one.

    >>> iinfo(dtypes.int8).max
    127
    """
    dtype = type.dtype if isinstance(type, Tensor) else checked_dtype("iinfo", type)
    if not dtype.is_int:
        raise DTypeError(f"iinfo: needs an integer dtype, got {dtype}.", hint="finfo(type)")
    facts = dtypes.iinfo(dtype)
    return IntegerInfo(facts.bits, facts.max, facts.min, dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Returns whether a dtype is of a kind, or of one of several.

    Args:
      kind:  a dtype, "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
             "numeric", or a tuple of these

    Raises:
      ArgumentError: another kind.

    >>> isdtype(dtypes.int8, "integral"), isdtype(dtypes.int8, ("bool", dtypes.int16))
    (True, False)
    """
    checked_dtype("isdtype", dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in KINDS:
        raise ArgumentError(f"isdtype: kind must be a dtype or one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
    return dtype.kind in KINDS[kind]


def result_type(*arrays_and_dtypes: Tensor | builtins.bool | int | float | DType) -> DType:
    """Returns the dtype that an operation on these arrays, dtypes and Python numbers would give.

    Raises:
      ArgumentError: there is neither an array nor a dtype.
      DTypeError:    they have no common dtype.

    >>> result_type(Array([1], dtype=dtypes.int8), dtypes.uint8, 3)
    int16
    """
    found: DType | None = None
    numbers = []
    for given in arrays_and_dtypes:
        if isinstance(given, (builtins.bool, int, float)):
            numbers.append(given)
        else:
            dtype = given.dtype if isinstance(given, Tensor) else checked_dtype("result_type", given)
            found = dtype if found is None else promote("result_type", found, dtype)
    if found is None:
        raise ArgumentError("result_type: needs at least one array or dtype.")
    for value in numbers:
        if found.kind not in BESIDE[type(value)]:
            raise DTypeError(f"result_type: {value!r} does not go with {found}.", hint="give a dtype instead.")
    return found
