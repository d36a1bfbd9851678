"""Functions that are no methods: what makes tensors of anything, indices into shapes, what takes a number first.

In:    tensors, numbers
Out:   functions that picograd/tensor/names.py lists beside the methods
Next:  picograd/tensor/curves.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import INTS, whole
from picograd.tensor.creation.generator import Generator
from picograd.tensor.tensor import Tensor

__all__ = [
    "as_tensor", "asarray", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "fill", "float_power", "from_numpy", "is_tensor", "normal", "polygamma", "pow", "real", "remainder", "rsub",
    "scalar_tensor", "tensor", "to_dlpack", "tril_indices", "triu_indices", "unravel_index", "where", "xlogy",
]  # fmt: skip

Operand = Tensor | Scalar


# ---- tensors of anything ----
def tensor(data: Any, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Returns a tensor with a copy of `data`: a number, nested lists, an array, a tensor.

    >>> tensor([1, 2])
    Tensor([1, 2])
    """
    return Tensor(data, dtype, device, requires_grad)


def is_tensor(obj: object) -> bool:
    """Returns True if `obj` is a tensor.

    >>> is_tensor(1.0)
    False
    """
    return isinstance(obj, Tensor)


def as_tensor(data: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Returns `data` itself where it is a tensor of that dtype and device, else a tensor with its values.

    >>> x = tensor([1, 2])
    >>> as_tensor(x) is x
    True
    """
    return data.to(dtype, device) if isinstance(data, Tensor) else Tensor(data, dtype, device)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Returns `obj` as a tensor: itself where it is one already, a copy where copy=True.

    Raises:
      ArgumentError: copy=False and `obj` is no tensor of that dtype and device, so that only a copy can be one.

    >>> asarray([1, 2], dtype=dtypes.float32)
    Tensor([1., 2.])
    """
    result = as_tensor(obj, dtype, device)
    if copy is False and result is not obj:
        raise ArgumentError(f"asarray: copy=False, but {type(obj).__name__} has to be copied.", hint="copy=None")
    if copy and result is obj:
        result = result.clone()
    return result.requires_grad_() if requires_grad else result


def from_numpy(ndarray: Any) -> Tensor:
    """Returns a tensor with the values of an array. They are copied: later changes of `ndarray` are not seen.

    PyTorch's shares its memory. Here a graph is computed when its value is asked for, so a batch that is filled anew before
    that would change what was built on it. pg.from_dlpack(ndarray) shares the memory, and says what that means.

    Raises:
      ArgumentError: it is no NumPy array.

    >>> import numpy
    >>> from_numpy(numpy.array([1.0, 2.0]))
    Tensor([1., 2.], dtype=float64)
    """
    if not hasattr(ndarray, "__array__") or isinstance(ndarray, Tensor):
        raise ArgumentError(f"from_numpy: needs a NumPy array, got {type(ndarray).__name__}.", hint="pg.tensor(data)")
    return Tensor(ndarray)


def scalar_tensor(
    s: Scalar, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns the number `s` as a tensor with no axis, float32 unless said otherwise.

    >>> scalar_tensor(2)
    Tensor(2.)
    """
    return Tensor(s, dtype or dtypes.default_float, device, requires_grad=requires_grad)


def fill(input: Tensor, value: Scalar) -> Tensor:  # noqa: A002
    """Returns `value` in the shape and dtype of `input`.

    >>> fill(tensor([1, 2]), 7)
    Tensor([7, 7])
    """
    return Tensor.full_like(input, value)


# ---- indices ----
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns (2, N) places of the lower triangle of a (row, col) matrix, up to the diagonal `offset`, row by row.

    >>> tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _places("tril_indices", np.tril_indices, row, col, offset, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns (2, N) places of the upper triangle of a (row, col) matrix, from the diagonal `offset` on, row by row.

    >>> triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _places("triu_indices", np.triu_indices, row, col, offset, dtype, device)


def _places(
    function: str, find: Callable[..., Any], row: int, col: int, offset: int, dtype: DType | None, device: str | None
) -> Tensor:
    """Returns what NumPy's function of that name finds, as one tensor."""
    row, col, offset = (whole(function, *named) for named in (("row", row), ("col", col), ("offset", offset)))
    if row < 0 or col < 0:
        raise ShapeError(f"{function}: lengths of axes must not be negative, got ({row}, {col}).")
    return Tensor(np.stack(find(row, offset, col)), dtype or dtypes.default_int, device)


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Returns the index along each axis of places in a flattened tensor of `shape`.

    Args:
      indices:  integers of any shape
      shape:    lengths of the axes

    Raises:
      DTypeError:    indices are no integers.
      ArgumentError: a length is negative.

    >>> [index.tolist() for index in unravel_index(Tensor([4, 5]), (2, 3))]
    [[1, 1], [1, 2]]
    """
    lengths = [whole("unravel_index", "shape", length) for length in ([shape] if isinstance(shape, INTS) else shape)]
    if not indices.dtype.is_int:
        raise DTypeError(f"unravel_index: indices must be integers, got {indices.dtype}.", hint="indices.long()")
    if any(length < 0 for length in lengths):
        raise ArgumentError(f"unravel_index: lengths must not be negative, got {tuple(lengths)}.")
    flat = indices.long()
    return tuple(flat // math.prod(lengths[axis + 1 :]) % length for axis, length in enumerate(lengths))


# ---- random numbers ----
def normal(
    mean: Operand,
    std: Operand = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Returns normal numbers with `mean` and deviation `std`: tensors that broadcast, or numbers for a shape `size`.

    Raises:
      ArgumentError: both are numbers and size is not given.

    >>> normal(5.0, 0.0, (2,))
    Tensor([5., 5.])
    """
    known = mean if isinstance(mean, Tensor) else std
    if isinstance(known, Tensor):
        shape, kept = (mean + std).shape, dtype or known.dtype  # type: ignore[union-attr]
        return Tensor.randn(shape, generator=generator, dtype=kept, device=device or known.device) * std + mean
    if size is None:
        raise ArgumentError("normal: mean and std are numbers; say how many, e.g. size=(3,).")
    return Tensor.randn(size, generator=generator, dtype=dtype, device=device) * std + mean


# ---- a number may come first ----
def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Any:  # noqa: A002
    """Returns `input` where the condition holds, else `other`, all broadcast; of the condition alone, where it holds.

    Raises:
      ArgumentError: just one of input and other is given.

    >>> where(tensor([True, False]), 1, tensor([5, 6]))
    Tensor([1, 6])
    """
    if input is None and other is None:
        return tuple(condition.nonzero().unbind(1))
    if input is None or other is None:
        raise ArgumentError("where: give both input and other, or neither.")
    return Tensor.choose(condition, input, other)


def pow(input: Operand, exponent: Operand) -> Tensor:  # noqa: A001, A002
    """Returns input ** exponent; one of them may be a number.

    >>> pow(2.0, tensor([1, 2, 3]))
    Tensor([2., 4., 8.])
    """
    return input.pow(exponent) if isinstance(input, Tensor) else _second("pow", exponent).__rpow__(input)


def remainder(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns what floor division of `input` leaves; one of them may be a number.

    >>> remainder(7, tensor([2, 4]))
    Tensor([1, 3])
    """
    return input.remainder(other) if isinstance(input, Tensor) else _second("remainder", other).__rmod__(input)


def rsub(input: Tensor, other: Operand, *, alpha: Scalar = 1) -> Tensor:  # noqa: A002
    """Returns other - alpha * input.

    >>> rsub(tensor([1, 2]), 10)
    Tensor([9, 8])
    """
    return (input if alpha == 1 else input * alpha).__rsub__(other)


def float_power(input: Operand, exponent: Operand) -> Tensor:  # noqa: A002
    """Returns input ** exponent in float64; one of them may be a number.

    >>> float_power(2, tensor([1, 2]))
    Tensor([2., 4.], dtype=float64)
    """
    if isinstance(input, Tensor):
        return input.float_power(exponent)
    return _second("float_power", exponent).double().__rpow__(float(input))


def xlogy(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns input * log(other), and 0 where input is 0; one of them may be a number.

    >>> xlogy(0, tensor([0.0, 1.0]))
    Tensor([0., 0.])
    """
    return tensor_beside("xlogy", input, other).xlogy(other)


def bitwise_and(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns the bits set in both input and other; one of them may be a number.

    >>> bitwise_and(3, tensor([6, 5]))
    Tensor([2, 1])
    """
    return input & other if isinstance(input, Tensor) else _second("bitwise_and", other) & input


def bitwise_or(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns the bits set in input or other; one of them may be a number.

    >>> bitwise_or(3, tensor([6, 5]))
    Tensor([7, 7])
    """
    return input | other if isinstance(input, Tensor) else _second("bitwise_or", other) | input


def bitwise_xor(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns the bits in which input and other differ; one of them may be a number.

    >>> bitwise_xor(3, tensor([6, 5]))
    Tensor([5, 6])
    """
    return input ^ other if isinstance(input, Tensor) else _second("bitwise_xor", other) ^ input


def bitwise_left_shift(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns input * 2 ** other, as integers wrap; one of them may be a number.

    >>> bitwise_left_shift(1, tensor([1, 2]))
    Tensor([2, 4])
    """
    return input << other if isinstance(input, Tensor) else _second("bitwise_left_shift", other).__rlshift__(input)


def bitwise_right_shift(input: Operand, other: Operand) -> Tensor:  # noqa: A002
    """Returns floor(input / 2 ** other); one of them may be a number.

    >>> bitwise_right_shift(8, tensor([1, 2]))
    Tensor([4, 2])
    """
    return input >> other if isinstance(input, Tensor) else _second("bitwise_right_shift", other).__rrshift__(input)


def polygamma(n: int, input: Tensor) -> Tensor:  # noqa: A002
    """Returns the n-th derivative of digamma at input.

    >>> polygamma(1, tensor([2.0]))
    Tensor([0.64493406])
    """
    return input.polygamma(n)


def _second(function: str, operand: Any) -> Tensor:
    """Returns the second operand, which has to be a tensor where the first is a number."""
    if not isinstance(operand, Tensor):
        raise DTypeError(f"{function}: one of both must be a tensor, got {type(operand).__name__} beside a number.")
    return operand


def tensor_beside(function: str, operand: Any, other: Any) -> Tensor:
    """Returns the operand, a number in the dtype it has beside `other`, which then has to be a tensor.

    Raises:
      DTypeError: both are numbers.
    """
    if isinstance(operand, Tensor):
        return operand
    return Tensor(operand, dtypes.promote_scalar(_second(function, other).dtype, operand), other.device)


# ---- other names ----
def real(input: Tensor) -> Tensor:  # noqa: A002
    """Returns `input` itself: there are no complex numbers.

    >>> x = Tensor([1.0])
    >>> real(x) is x
    True
    """
    return tensor_of("real", "input", input)


def to_dlpack(tensor: Tensor) -> Any:
    """Returns a DLPack capsule on the memory of `tensor`, for libraries that take no object with __dlpack__.

    >>> to_dlpack(Tensor([1.0])).__class__.__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()
