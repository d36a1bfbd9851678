"""The standard's array, its data types, and the namespace's inspection.

Tensor follows PyTorch. An Array differs from it only in this:
- a 0-d array takes part in type promotion like any other (PyTorch: it only lifts the other operand to its category);
- integers and floats do not mix, except for Python numbers, nor do numbers and bools;
- floor division with infinity is floor(x1 / x2): 1 // -inf is -0 (PyTorch: -1, as in Python);
- `size` is the number of elements (PyTorch: a method);
- `T` requires two axes (PyTorch: reverses any number);
- a mask may have an axis of length 0 where the array's is longer: it selects nothing (PyTorch: IndexError).

Every function converts its arguments to Arrays of one dtype by `array`, `pair` and `promote`.
"""

from __future__ import annotations

import math
from typing import Any, Self

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.devices import default_device, device_named, usable_for_values
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.build import static
from picograd.tensor.operators import binary
from picograd.tensor.tensor import Tensor

ANY, NUMERIC, BITS, INTEGER, FLOAT, BOOL = "biuf", "iuf", "biu", "iu", "f", "b"  # kinds of dtype that a function takes
WORDS = {
    ANY: "any dtype", NUMERIC: "numbers", BITS: "integers or bools", INTEGER: "integers", FLOAT: "floats", BOOL: "bools"
}  # fmt: skip
BESIDE: dict[type, str] = {bool: "b", int: "iuf", float: "f"}  # Python type -> kinds of array with which it mixes


Axes = int | tuple[int, ...] | None  # axes of a reduction; None: all


class Array(Tensor):
    """A Tensor with the operators of the Python array API standard; gradients flow through it.

    Functions of `picograd.array_api` take Tensors and Arrays, and return Arrays.

    >>> x = Array([1, 2, 3], dtype=dtypes.int8)
    >>> (x + Array(1, dtype=dtypes.int16)).dtype, x.size
    (int16, 3)
    """

    __slots__ = ()

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of elements."""
        return math.prod(map(static, self.op.shape))

    @property
    def T(self) -> Self:
        """View with both axes exchanged.

        Raises:
          ShapeError: there are not exactly two axes.
        """
        if self.ndim != 2:
            raise ShapeError(f"T: needs two axes, got shape {self.shape}.", hint="permute_dims(x, axes)")
        return self.transpose(0, 1)

    def __getitem__(self, index: Any) -> Self:
        return super().__getitem__(self._whole_mask(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(self._whole_mask(index), value)

    def _whole_mask(self, index: Any) -> Any:
        """Returns a mask without elements broadcast to nonempty axes, with all elements False."""
        if not isinstance(index, Tensor) or index.dtype is not dtypes.bool_ or 0 not in index.shape:
            return index
        axes = self.op.shape[: index.ndim]
        if index.ndim > self.ndim or any(length not in (0, dim) for length, dim in zip(index.op.shape, axes)):
            return index
        return Tensor.zeros(axes, dtype=dtypes.bool_, device=self.device)

    def _operands(self, function: str, other: Any, kinds: str = ANY) -> tuple[Op, Op]:
        if isinstance(other, Tensor) and other.dtype is not self.dtype:
            dtype = promote(function, self.dtype, other.dtype)
            return super(Array, self.cast(dtype))._operands(function, other.cast(dtype), kinds)
        return super()._operands(function, other, kinds)

    def _rounded(self, function: str, code: OpCode, other: Any, swap: bool = False) -> Self:
        result = super()._rounded(function, code, other, swap)
        if code is OpCode.MOD or not result.dtype.is_float:
            return result
        quotient = binary(self, function, OpCode.DIV, other, FLOAT, swap)
        endless = self.isinf() | (other.isinf() if isinstance(other, Tensor) else math.isinf(other))
        return quotient.floor().where(endless, result)

    def __matmul__(self, other: Any) -> Self:
        if isinstance(other, Tensor) and other.dtype is not self.dtype:
            dtype = promote("matmul", self.dtype, other.dtype)
            return self.cast(dtype).matmul(other.cast(dtype))
        return super().__matmul__(other)


# ---- arguments ----
def array(function: str, x: Any, kinds: str = ANY) -> Array:
    """Returns an argument as an Array on the same storage.

    Raises:
      DTypeError: it is not a tensor, or its dtype is not one of `kinds`.
    """
    if not isinstance(x, Tensor):
        raise DTypeError(f"{function}: needs an array, got {type(x).__name__}.", hint="asarray(x)")
    if x.dtype.kind not in kinds:
        raise DTypeError(f"{function}: needs {WORDS[kinds]}, got {x.dtype} of shape {x.shape}.", hint="astype(x, dtype)")
    if isinstance(x, Array):
        return x
    return Array.from_cell(x.cell, x.steps)


def pair(function: str, x1: Any, x2: Any, kinds: str = ANY) -> tuple[Array, Array]:
    """Returns two arguments, one of which may be a Python number, as Arrays of one dtype.

    Raises:
      DTypeError: neither is an array, or the dtypes do not promote to one of `kinds`.
    """
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        names = f"{type(x1).__name__} and {type(x2).__name__}"
        raise DTypeError(f"{function}: one operand must be an array, got {names}.", hint="asarray(x)")
    a = array(function, x1, kinds) if isinstance(x1, Tensor) else number(function, x1, array(function, x2, kinds))
    b = array(function, x2, kinds) if isinstance(x2, Tensor) else number(function, x2, a)
    dtype = promote(function, a.dtype, b.dtype)
    return a.cast(dtype), b.cast(dtype)


def number(function: str, value: Any, beside: Array) -> Array:
    """Returns a Python number as a 0-d Array with the dtype and device of `array`.

    Raises:
      DTypeError: it is not a number, or its kind is higher than the array's.
    """
    kinds = BESIDE.get(type(value))
    if kinds is None:
        raise DTypeError(f"{function}: needs an array or a Python number, got {type(value).__name__}.", hint="asarray(x)")
    if beside.dtype.kind not in kinds:
        raise DTypeError(
            f"{function}: {value!r} cannot be combined with an array of {beside.dtype}.", hint="astype(x, dtype) first."
        )
    return Array.full((), value, dtype=beside.dtype, device=beside.cell.device)


def promote(function: str, a: DType, b: DType) -> DType:
    """Returns the dtype of an operation on two arrays, by the table of the standard.

    Raises:
      DTypeError: the standard has no rule: a bool and a number, an integer and a float, uint64 and a signed integer.
    """
    kinds = {a.kind, b.kind}
    if len(kinds) > 1 and (kinds != {"i", "u"} or dtypes.uint64 in (a, b)):
        raise DTypeError(f"{function}: {a} and {b} have no common dtype in the standard.", hint="astype(x, dtype)")
    return dtypes.promote(a, b)


def axes_given(axis: Axes) -> int | tuple[int, ...] | None:
    """Returns `axis` in the form that Tensor's methods take."""
    return tuple(axis) if isinstance(axis, (tuple, list)) else axis


def checked_dtype(function: str, dtype: Any) -> DType:
    """Returns `dtype`.

    Raises:
      DTypeError: it is not a dtype of picograd.
    """
    if not isinstance(dtype, DType):
        raise DTypeError(f"{function}: needs a dtype, got {dtype!r}.", hint="picograd.array_api.float32")
    return dtype


def checked_choice(function: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Checks an argument that must be one of a few words.

    Raises:
      ArgumentError: it is another word.
    """
    if value not in choices:
        raise ArgumentError(f"{function}: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


# ---- data types ----
# Dtypes of the standard. picograd's float16, bfloat16 and float8 are available through picograd.dtypes.
STANDARD: dict[str, DType] = {
    "bool": dtypes.bool_, "int8": dtypes.int8, "int16": dtypes.int16, "int32": dtypes.int32, "int64": dtypes.int64,
    "uint8": dtypes.uint8, "uint16": dtypes.uint16, "uint32": dtypes.uint32, "uint64": dtypes.uint64,
    "float32": dtypes.float32, "float64": dtypes.float64,
}  # fmt: skip
# Kinds, as in isdtype and __array_namespace_info__().dtypes; picograd has no complex dtype.
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
    """Properties of a float dtype; dtypes.finfo, as in PyTorch, has the dtype as a string.

    bits:             of an element
    eps:              distance from 1 to the next larger number
    max, min:         the largest and the least finite number
    smallest_normal:  smallest positive number of full precision
    dtype:            the dtype
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(Record):
    """Properties of an integer dtype; dtypes.iinfo, as in PyTorch, has the dtype as a string.

    bits:      of an element
    max, min:  the largest and the least number
    dtype:     the dtype
    """

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: str | None = None) -> Array:
    """Returns x cast to another dtype, on a device; floats are truncated to integers.

    Args:
      copy:  False: return x itself if dtype and device are unchanged

    >>> astype(Array([1.5, 0.0]), dtypes.bool_)
    Array([ True, False])
    """
    result = array("astype", x).cast(checked_dtype("astype", dtype))
    result = result if device is None else result.to(device)
    return result.clone() if copy and result.cell is x.cell else result


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Returns whether promotion of `from_` with some dtype may give `to`.

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
    """Returns the properties of a float dtype.

    Raises:
      DTypeError: `type` is not a float dtype, nor an array of one.

    >>> finfo(dtypes.float32).eps
    1.1920928955078125e-07
    """
    dtype = type.dtype if isinstance(type, Tensor) else checked_dtype("finfo", type)
    if not dtype.is_float:
        raise DTypeError(f"finfo: needs a float dtype, got {dtype}.", hint="iinfo(type)")
    facts = dtypes.finfo(dtype)
    return FloatInfo(facts.bits, facts.eps, facts.max, facts.min, facts.smallest_normal, dtype)


def iinfo(type: DType | Tensor, /) -> IntegerInfo:  # noqa: A002
    """Returns the properties of an integer dtype.

    Raises:
      DTypeError: `type` is not an integer dtype, nor an array of one.

    >>> iinfo(dtypes.int8).max
    127
    """
    dtype = type.dtype if isinstance(type, Tensor) else checked_dtype("iinfo", type)
    if not dtype.is_int:
        raise DTypeError(f"iinfo: needs an integer dtype, got {dtype}.", hint="finfo(type)")
    facts = dtypes.iinfo(dtype)
    return IntegerInfo(facts.bits, facts.max, facts.min, dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
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


def result_type(*arrays_and_dtypes: Tensor | bool | int | float | DType) -> DType:
    """Returns the result dtype of an operation on these arrays, dtypes and Python numbers.

    Raises:
      ArgumentError: there is neither an array nor a dtype.
      DTypeError:    they have no common dtype.

    >>> result_type(Array([1], dtype=dtypes.int8), dtypes.uint8, 3)
    int16
    """
    found: DType | None = None
    numbers = []
    for given in arrays_and_dtypes:
        if isinstance(given, (bool, int, float)):
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


# ---- what the namespace can do ----
class Info:
    """Results of the inspection functions.

    >>> Info().default_dtypes()["real floating"]
    float32
    """

    def capabilities(self) -> dict[str, bool | int | None]:
        """Returns the capabilities that differ between libraries: boolean indexing, shapes from values, at most 64 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Returns the device of new arrays, from PICOGRAD_DEVICE."""
        return default_device()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Returns the default dtype of each kind, on every device."""
        if device is not None:
            device_named(device)
        integer = dtypes.default_int
        return {"real floating": dtypes.default_float, "integral": integer, "indexing": dtypes.int64}

    def devices(self) -> tuple[str, ...]:
        """Returns the names of the devices that this machine can use."""
        return usable_for_values()

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Returns the standard's dtypes by name, or those of some kinds, on every device.

        Args:
          kind:  "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
                 or a tuple of these

        Raises:
          ArgumentError: another kind.
        """
        if device is not None:
            device_named(device)
        wanted = tuple(KINDS) if kind is None else (kind,) if isinstance(kind, str) else kind
        for one in wanted:
            checked_choice("dtypes", "kind", one, tuple(KINDS))
        letters = "".join(KINDS[one] for one in wanted)
        return {name: dtype for name, dtype in STANDARD.items() if dtype.kind in letters}


def __array_namespace_info__() -> Info:
    """Returns the inspection object of this namespace.

    >>> __array_namespace_info__().capabilities()["boolean indexing"]
    True
    """
    return Info()
