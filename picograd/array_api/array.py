"""The array of the standard: a Tensor whose operators promote as the Python array API says.

In:    tensors and Python scalars, as the functions of this namespace are given them
Out:   `Array`; `array`, `pair`, `promote`: arguments checked and brought to one dtype
Next:  picograd/array_api/data_types.py

Tensor follows PyTorch. An Array differs from it in this, and in nothing else:
- a 0-d array takes part in type promotion like any other (PyTorch: it only lifts the other operand to its category);
- no integer meets a float but as a Python number, nor a bool a number;
- floor division by infinity, or of it, is floor(x1 / x2): 1 // -inf is -0 (PyTorch: -1, as in Python);
- `size` is the number of elements (PyTorch: a method);
- `T` wants two axes (PyTorch: reverses any number);
- a mask may have an axis of length 0 where the array's is longer: it chooses nothing (PyTorch: IndexError).
"""

from __future__ import annotations

import math
from typing import Any, Self

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor

ANY, NUMERIC, BITS, INTEGER, FLOAT, BOOL = "biuf", "iuf", "biu", "iu", "f", "b"  # kinds of dtype a function takes
WORDS = {
    ANY: "any dtype", NUMERIC: "numbers", BITS: "integers or bools", INTEGER: "integers", FLOAT: "floats", BOOL: "bools"
}  # fmt: skip
BESIDE: dict[type, str] = {bool: "b", int: "iuf", float: "f"}  # Python number -> kinds of array that it goes with


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
          ShapeError: there are not two.
        """
        if self.ndim != 2:
            raise ShapeError(f"T: needs two axes, got shape {self.shape}.", hint="permute_dims(x, axes)")
        return self.transpose(0, 1)

    def __getitem__(self, index: Any) -> Self:
        return super().__getitem__(self._whole_mask(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(self._whole_mask(index), value)

    def _whole_mask(self, index: Any) -> Any:
        """Returns a mask that has no elements, though the axes it stands for have some, with all of them: none chosen."""
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

    def _floor_divided(self, other: Any, swap: bool = False) -> Self:
        result = super()._floor_divided(other, swap)
        if not result.dtype.is_float:
            return result
        quotient = self._binary("floor_divide", OpCode.DIV, other, FLOAT, swap)
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
      DTypeError: it is no tensor, or its dtype is not of `kinds`.
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
      DTypeError: neither is an array, or the dtypes do not promote, or to none of `kinds`.
    """
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        names = f"{type(x1).__name__} and {type(x2).__name__}"
        raise DTypeError(f"{function}: one of both must be an array, got {names}.", hint="asarray(x)")
    a = array(function, x1, kinds) if isinstance(x1, Tensor) else number(function, x1, array(function, x2, kinds))
    b = array(function, x2, kinds) if isinstance(x2, Tensor) else number(function, x2, a)
    dtype = promote(function, a.dtype, b.dtype)
    return a.cast(dtype), b.cast(dtype)


def number(function: str, value: Any, beside: Array) -> Array:
    """Returns a Python number as a 0-d Array of the dtype and device of the array beside it.

    Raises:
      DTypeError: it is no number, or of a higher kind than the array.
    """
    kinds = BESIDE.get(type(value))
    if kinds is None:
        raise DTypeError(f"{function}: needs an array or a Python number, got {type(value).__name__}.", hint="asarray(x)")
    if beside.dtype.kind not in kinds:
        raise DTypeError(
            f"{function}: {value!r} does not go with an array of {beside.dtype}.", hint="astype(x, dtype) first."
        )
    return Array.full((), value, dtype=beside.dtype, device=beside.cell.device)


def promote(function: str, a: DType, b: DType) -> DType:
    """Returns the dtype of an operation on two arrays, by the table of the standard.

    Raises:
      DTypeError: the standard gives none: a bool and a number, an integer and a float, uint64 and a signed integer.
    """
    kinds = {a.kind, b.kind}
    if len(kinds) > 1 and (kinds != {"i", "u"} or dtypes.uint64 in (a, b)):
        raise DTypeError(f"{function}: {a} and {b} have no common dtype in the standard.", hint="astype(x, dtype)")
    return dtypes.promote(a, b)


def axes_given(axis: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
    """Returns `axis` as methods of Tensor take it."""
    return tuple(axis) if isinstance(axis, (tuple, list)) else axis


def checked_dtype(function: str, dtype: Any) -> DType:
    """Returns `dtype`.

    Raises:
      DTypeError: it is no dtype of picograd.
    """
    if not isinstance(dtype, DType):
        raise DTypeError(f"{function}: needs a dtype, got {dtype!r}.", hint="picograd.array_api.float32")
    return dtype


def checked_choice(function: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Checks an argument that is one of a few words.

    Raises:
      ArgumentError: it is none of them.
    """
    if value not in choices:
        raise ArgumentError(f"{function}: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
