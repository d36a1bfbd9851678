"""Element types and how they promote (as in PyTorch).

In:    names, Python scalars, NumPy dtypes
Out:   `DType` records; `promote`, `dtype_of_scalar`
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from picograd.errors import DTypeError
from picograd.interrupts import cached_property
from picograd.record import Record

Scalar = bool | int | float


class DType(Record, eq=False, dict=True):
    """An element type.

    name:      as users write it, e.g. "float32"
    kind:      "b" bool, "i" signed integer, "u" unsigned integer, "f" float
    itemsize:  bytes per element
    rank:      order within its kind; promotion takes the higher
    precision: of a float, bits of the significand, the leading 1 included: whole numbers up to 2**precision are exact
    """

    name: str
    kind: str
    itemsize: int
    rank: int
    precision: int = 0

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[object, ...]:
        return (dtype_named, (self.name,))

    @cached_property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_floating_point(self) -> bool:
        """True for floats, as PyTorch asks it."""
        return self.is_float

    @property
    def is_signed(self) -> bool:
        """True where there are negative numbers."""
        return self.kind in "if"

    @property
    def is_complex(self) -> bool:
        """False: there are no complex numbers."""
        return False

    @cached_property
    def is_narrow(self) -> bool:
        """True for floats below float32: they are stored as they are and computed with in float32."""
        return self.is_float and self.itemsize < 4

    @cached_property
    def compute_dtype(self) -> DType:
        """The dtype of arithmetic and sums: float32 for narrow floats, else the dtype itself."""
        return float32 if self.is_narrow else self

    @cached_property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @cached_property
    def bits(self) -> int:
        return 1 if self.kind == "b" else 8 * self.itemsize

    @cached_property
    def signed(self) -> DType:
        """The signed integer of as many bytes."""
        return _INTEGERS["i", self.itemsize]

    @cached_property
    def unsigned(self) -> DType:
        """The unsigned integer of as many bytes: it holds the bits of any value."""
        return _INTEGERS["u", self.itemsize]

    # ---- the bits of a float: sign, exponent, mantissa (IEEE 754-2019, section 3.4) ----
    @cached_property
    def mantissa(self) -> int:
        """Stored bits of the significand, whose leading 1 is not."""
        return self.precision - 1

    @cached_property
    def exponent_bias(self) -> int:
        """The number added to an exponent to store it: half of the range of its bits."""
        return (1 << (self.bits - self.precision - 1)) - 1

    @cached_property
    def sign_bit(self) -> int:
        """The highest bit; the bits below it are a float's magnitude."""
        return 1 << (self.bits - 1)

    @cached_property
    def infinity_bits(self) -> int:
        """The bits of infinity: all of the exponent."""
        return self.sign_bit - (1 << self.mantissa)

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the same layout (ml_dtypes for the 16- and 8-bit floats NumPy lacks)."""
        return NUMPY[self]

    @cached_property
    def min(self) -> Scalar:
        """The least value, of floats -inf: the identity of MAX."""
        if self.kind == "f":
            return float("-inf")
        return False if self.kind == "b" else (0 if self.kind == "u" else -(1 << (self.bits - 1)))

    @cached_property
    def max(self) -> Scalar:
        """The largest value, of floats inf: the identity of MIN."""
        if self.kind == "f":
            return float("inf")
        return True if self.kind == "b" else (1 << (self.bits - (self.kind == "i"))) - 1

    @cached_property
    def largest(self) -> float:
        """The largest finite number of a float."""
        return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]

    def scalar(self, value: Scalar) -> Scalar:
        """Returns `value` as the Python type of this dtype, wrapped or rounded to a value of the dtype."""
        if self.kind == "b":
            return bool(value)
        if self is float32:
            return ctypes.c_float(value).value  # a number that is too large becomes inf, without a warning
        if self.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                return float(value) if self is float64 else float(np.float64(value).astype(self.numpy))
        wrapped = int(value) & ((1 << self.bits) - 1)
        return wrapped - (1 << self.bits) if self.kind == "i" and wrapped >> (self.bits - 1) else wrapped


bool_ = DType("bool", "b", 1, 0)
uint8 = DType("uint8", "u", 1, 1)
uint16 = DType("uint16", "u", 2, 2)
uint32 = DType("uint32", "u", 4, 3)
uint64 = DType("uint64", "u", 8, 4)
int8 = DType("int8", "i", 1, 1)
int16 = DType("int16", "i", 2, 2)
int32 = DType("int32", "i", 4, 3)
int64 = DType("int64", "i", 8, 4)
float8_e4m3 = DType("float8_e4m3", "f", 1, 1, precision=4)
float8_e5m2 = DType("float8_e5m2", "f", 1, 1, precision=3)
float16 = DType("float16", "f", 2, 2, precision=11)
bfloat16 = DType("bfloat16", "f", 2, 2, precision=8)
float32 = DType("float32", "f", 4, 3, precision=24)
float64 = DType("float64", "f", 8, 4, precision=53)

ALL: tuple[DType, ...] = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64,
)  # fmt: skip

NUMPY: dict[DType, np.dtype[np.generic]] = {
    t: np.dtype(
        {
            "bfloat16": ml_dtypes.bfloat16,
            "float8_e4m3": ml_dtypes.float8_e4m3fn,
            "float8_e5m2": ml_dtypes.float8_e5m2,
        }.get(t.name, t.name)
    )
    for t in ALL
}
_BY_NAME = {t.name: t for t in ALL}
_INTEGERS = {(t.kind, t.itemsize): t for t in ALL if t.is_int}
_BY_NUMPY = {n: t for t, n in NUMPY.items()}


# ---- limits ----
class FloatInfo(Record):
    """The limits of a float dtype, as torch.finfo names them.

    bits:             of one element
    eps:              from 1 to the next greater number
    max, min:         greatest and least finite number
    smallest_normal:  least positive number with all digits; tiny is another name
    resolution:       of decimal digits
    dtype:            its name
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    resolution: float
    dtype: str

    @property
    def tiny(self) -> float:
        return self.smallest_normal


class IntInfo(Record):
    """The limits of an integer dtype, as torch.iinfo names them.

    bits:      of one element
    max, min:  greatest and least number
    dtype:     its name
    """

    bits: int
    max: int
    min: int
    dtype: str


def finfo(dtype: DType | None = None) -> FloatInfo:
    """Returns the limits of a float dtype, of float32 unless another is named.

    Raises:
      DTypeError: it is not a float.

    >>> finfo(float16).max
    65504.0
    """
    dtype = default_float if dtype is None else dtype
    if not isinstance(dtype, DType) or not dtype.is_float:
        raise DTypeError(f"finfo: needs a float dtype, got {dtype!r}.", hint="iinfo tells of integers.")
    info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    eps, high, low = float(info.eps), float(info.max), float(info.min)
    return FloatInfo(dtype.bits, eps, high, low, float(info.smallest_normal), float(info.resolution), dtype.name)


def iinfo(dtype: DType) -> IntInfo:
    """Returns the limits of an integer dtype.

    Raises:
      DTypeError: it is not an integer.

    >>> iinfo(int8).max
    127
    """
    if not isinstance(dtype, DType) or not dtype.is_int:
        raise DTypeError(f"iinfo: needs an integer dtype, got {dtype!r}.", hint="finfo tells of floats.")
    return IntInfo(dtype.bits, int(dtype.max), int(dtype.min), dtype.name)


default_float = float32
default_int = int64


def dtype_named(name: str) -> DType:
    """Returns the DType of that name; KeyError if there is none."""
    return _BY_NAME[name]


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """Returns the DType with the layout of a NumPy dtype, or None if picograd has none."""
    return _BY_NUMPY.get(dtype) or _BY_NUMPY.get(np.dtype(dtype).newbyteorder("="))


PYTHONS = {float: float64, int: int64, bool: bool_}  # what Python's own types mean as dtypes, as in PyTorch


def known(function: str, dtype: Any, default: DType) -> DType:
    """Returns the dtype an argument names, or the default where it is None.

    Raises:
      DTypeError: it is not a dtype.
    """
    return default if dtype is None else named(function, dtype)


def named(function: str, dtype: Any) -> DType:
    """Returns the dtype an argument names: one of picograd's, or float, int or bool.

    Raises:
      DTypeError: it is not a dtype.
    """
    found = dtype if isinstance(dtype, DType) else PYTHONS.get(dtype) if isinstance(dtype, type) else None
    if found is None:
        raise DTypeError(f"{function}: dtype must be one of picograd's, got {dtype!r}.", hint="picograd.float32")
    return found


def dtype_of_scalar(value: Scalar) -> DType:
    """Returns the dtype a Python scalar has on its own: bool, int64 or float32."""
    if isinstance(value, bool):
        return bool_
    return default_int if isinstance(value, int) else default_float


def promote(a: DType, b: DType) -> DType:
    """Returns the dtype both operands are cast to, by PyTorch's table.

    A float wins over an integer of any width; signed and unsigned of one width
    meet in the next wider signed type; float16 and bfloat16 meet in float32.

    >>> promote(uint8, int8), promote(int64, float16), promote(float16, bfloat16)
    (int16, float16, float32)
    """
    if a is b:
        return a
    if a.kind == b.kind:
        if a.rank == b.rank:
            return float32 if a.rank == 2 else float16
        return a if a.rank > b.rank else b
    if "f" in (a.kind, b.kind):
        return a if a.kind == "f" else b
    if "b" in (a.kind, b.kind):
        return b if a.kind == "b" else a
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.rank > unsigned.rank:
        return signed
    return (int8, int16, int32, int64, int64)[min(unsigned.rank, 4)]


def promote_scalar(dtype: DType, value: Scalar) -> DType:
    """Returns the dtype of `tensor op scalar`: the tensor's, unless the scalar is of a higher kind."""
    if dtype.kind == "f":
        return dtype
    own = dtype_of_scalar(value)
    return own if own.kind == "f" or dtype.kind == "b" else dtype


class _TypeOfDTypes(ModuleType):
    """The type of this module, so that `pg.dtype` is also PyTorch's: isinstance(x.dtype, pg.dtype), pg.dtype | None."""

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, DType)

    def __or__(self, other: Any) -> Any:
        return DType | other

    def __ror__(self, other: Any) -> Any:
        return other | DType


sys.modules[__name__].__class__ = _TypeOfDTypes
