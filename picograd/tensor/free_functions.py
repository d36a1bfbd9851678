"""Functions that are not methods: tensors from data, indices, functions whose first argument may be a number.

Binomial and Poisson counts are drawn by inversion on the host: a uniform number of 53 bits is mapped to the count at that
quantile, so each element takes one draw.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from picograd.ir.build import cast
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import (
    CATEGORY,
    broadcast_shapes,
    broadcast_to,
    detached,
    is_integer,
    not_negative,
    promoted,
    whole,
)
from picograd.tensor.conversions import NAMES
from picograd.tensor.core import Operand, Size
from picograd.tensor.generator import Generator
from picograd.tensor.operators import result_of, scaled
from picograd.tensor.random import random_bits, uniform_op
from picograd.tensor.tensor import Tensor

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor", "add", "as_tensor", "asarray", "binomial", "bitwise_and",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bucketize", "can_cast", "div",
    "divide", "fill", "float_power", "floor_divide", "from_numpy", "is_tensor", "isin", "mul", "multiply", "normal",
    "poisson", "polygamma", "pow", "promote_types", "real", "remainder", "result_type", "rsub", "scalar_tensor",
    "sub", "subtract", "tensor", "to_dlpack", "tril_indices", "triu_indices", "true_divide", "unravel_index", "where",
    "xlogy",
]  # fmt: skip

P = ParamSpec("P")


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
    """Returns `data` itself if it is a tensor of that dtype and device, else a new tensor with its values.

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
    """Returns `obj` as a tensor: itself if it is one, a copy with copy=True.

    Raises:
      ArgumentError: copy=False, and `obj` is not a tensor of that dtype and device.

    >>> asarray([1, 2], dtype=dtypes.float32)
    Tensor([1., 2.])
    """
    result = as_tensor(obj, dtype, device)
    if copy is False and result is not obj:
        raise ArgumentError(f"asarray: a {type(obj).__name__} must be copied, and copy=False.", hint="copy=None")
    if copy and result is obj:
        result = result.clone()
    return result.requires_grad_() if requires_grad else result


def from_numpy(ndarray: Any) -> Tensor:
    """Returns a tensor with a copy of the values of an array; later changes of `ndarray` have no effect.

    PyTorch shares the memory. Here graphs are computed late, so a batch that is refilled before then would change tensors
    built on it. pg.from_dlpack(ndarray) shares the memory, and its docstring says how writes behave.

    Raises:
      ArgumentTypeError: it is not a NumPy array.

    >>> import numpy
    >>> from_numpy(numpy.array([1.0, 2.0]))
    Tensor([1., 2.], dtype=float64)
    """
    if not hasattr(ndarray, "__array__") or isinstance(ndarray, Tensor):
        raise ArgumentTypeError(f"from_numpy: needs a NumPy array, got {type(ndarray).__name__}.", hint="pg.tensor(data)")
    return Tensor(ndarray)


def scalar_tensor(
    s: Scalar, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns the number `s` as a 0-d tensor, float32 by default.

    >>> scalar_tensor(2)
    Tensor(2.)
    """
    return Tensor(s, dtype or dtypes.default_float, device, requires_grad=requires_grad)


def fill(input: Tensor, value: Scalar | Tensor) -> Tensor:  # noqa: A002
    """Returns `value` in the shape and dtype of `input`: a number, or a 0-d tensor, through which gradients flow.

    >>> fill(tensor([1, 2]), 7)
    Tensor([7, 7])
    """
    return Tensor.empty_like(input).fill_(value)


# ---- indices ----
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Returns (2, N) indices of the lower triangle of a (row, col) matrix, up to the diagonal `offset`, row by row.

    >>> tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _places("tril_indices", np.tril_indices, row, col, offset, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Returns (2, N) indices of the upper triangle of a (row, col) matrix, from the diagonal `offset` on, row by row.

    >>> triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _places("triu_indices", np.triu_indices, row, col, offset, dtype, device)


def _places(
    function: str, find: Callable[..., Any], row: int, col: int, offset: int, dtype: DType | None, device: str | None
) -> Tensor:
    """Returns the result of a NumPy function as one tensor."""
    row, col, offset = (whole(function, *named) for named in (("row", row), ("col", col), ("offset", offset)))
    if row < 0 or col < 0:
        raise ShapeError(f"{function}: lengths of axes must not be negative, got ({row}, {col}).")
    return Tensor(np.stack(find(row, offset, col)), dtype or dtypes.default_int, device)


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Returns the index along each axis of positions in the flattened tensor of `shape`.

    Args:
      indices:  integers of any shape
      shape:    lengths of the axes

    Raises:
      DTypeError:    indices are not integers.
      ArgumentError: a length is negative.

    >>> [index.tolist() for index in unravel_index(Tensor([4, 5]), (2, 3))]
    [[1, 1], [1, 2]]
    """
    lengths = [whole("unravel_index", "shape", length) for length in ([shape] if is_integer(shape) else shape)]
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
    requires_grad: bool = False,
) -> Tensor:
    """Returns normal numbers with `mean` and standard deviation `std`: tensors that broadcast, or numbers with a `size`.

    `requires_grad`: makes the numbers of a `size` a leaf.

    Raises:
      ArgumentError: both are numbers and size is not given; std is negative, a tensor's element when it is computed;
                     requires_grad with a tensor.

    >>> normal(5.0, 0.0, (2,))
    Tensor([5., 5.])
    """
    if isinstance(std, Tensor):
        std = Tensor.from_op(not_negative("normal", "std", std.read()), std.cell.device)
    elif std < 0:
        raise ArgumentError(f"normal: std must not be negative, got {std}.")
    known = mean if isinstance(mean, Tensor) else std
    if isinstance(known, Tensor):
        if requires_grad:
            raise ArgumentError("normal: requires_grad needs numbers and a size: a result of tensors is not a leaf.")
        shape, kept = (mean + std).shape, dtype or known.dtype  # type: ignore[union-attr]
        return Tensor.randn(shape, generator=generator, dtype=kept, device=device or known.device) * std + mean
    if size is None:
        raise ArgumentError("normal: mean and std are numbers, so size is needed, e.g. size=(3,).")
    drawn = Tensor.randn(size, generator=generator, dtype=dtype, device=device) * std + mean
    return drawn.requires_grad_() if requires_grad else drawn


# ---- a number may come first ----
def number_first(name: str, method: Callable[Concatenate[Any, P], Tensor]) -> Callable[Concatenate[Operand, P], Tensor]:
    """Makes a function of a method of two operands; the first may be a number if the second is a tensor."""

    @functools.wraps(method)
    def function(input: Operand, *args: P.args, **kwargs: P.kwargs) -> Tensor:  # noqa: A002
        if not isinstance(input, Tensor):
            other = _second(name, next(iter((*args, *kwargs.values())), None))
            input = Tensor.from_op(other._operands(name, input)[1], other.cell.device)  # noqa: A001
        return method(input, *args, **kwargs)

    function.__name__, function.__annotations__ = name, {**method.__annotations__, "self": Operand}
    return function  # type: ignore[return-value]  # the first argument has a name besides


add, sub, mul, div = (number_first(method.__name__, method) for method in (Tensor.add, Tensor.sub, Tensor.mul, Tensor.div))
floor_divide, remainder = number_first("floor_divide", Tensor.floor_divide), number_first("remainder", Tensor.remainder)
pow, xlogy = number_first("pow", Tensor.pow), number_first("xlogy", Tensor.xlogy)  # noqa: A001
bitwise_and, bitwise_or = number_first("bitwise_and", Tensor.bitwise_and), number_first("bitwise_or", Tensor.bitwise_or)
bitwise_xor = number_first("bitwise_xor", Tensor.bitwise_xor)
bitwise_left_shift = number_first("bitwise_left_shift", Tensor.bitwise_left_shift)
bitwise_right_shift = number_first("bitwise_right_shift", Tensor.bitwise_right_shift)
subtract, multiply, divide, true_divide = sub, mul, div, div


def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Any:  # noqa: A002
    """Returns `input` if the condition is true, else `other`, all broadcast; with the condition alone its true positions.

    Raises:
      ArgumentError: only one of input and other is given.

    >>> where(tensor([True, False]), 1, tensor([5, 6]))
    Tensor([1, 6])
    """
    if input is None and other is None:
        return tuple(condition.nonzero().unbind(1))
    if input is None or other is None:
        raise ArgumentError("where: give both input and other, or neither.")
    return Tensor.choose(condition, input, other)


def rsub(input: Tensor, other: Operand, *, alpha: Scalar = 1) -> Tensor:  # noqa: A002
    """Returns other - alpha * input.

    >>> rsub(tensor([1, 2]), 10)
    Tensor([9, 8])
    """
    lhs, rhs = input._operands("rsub", other, "iuf")
    return result_of(input, "rsub", rhs - scaled("rsub", lhs, alpha), other)


def float_power(input: Operand, exponent: Operand) -> Tensor:  # noqa: A002
    """Returns input ** exponent in float64; one of them may be a number.

    >>> float_power(2, tensor([1, 2]))
    Tensor([2., 4.], dtype=float64)
    """
    if isinstance(input, Tensor):
        return input.float_power(exponent)
    return _second("float_power", exponent).double().__rpow__(float(input))


def bucketize(input: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:  # noqa: A002
    """Returns the bucket index of each element of `input`, which may be a number.

    Args:
      boundaries: bounds between consecutive buckets
      out_int32:  return int32, else int64
      right:      an element equal to a boundary comes after it

    >>> bucketize(4, tensor([1, 3, 5]))
    Tensor(2)
    """
    return tensor_beside("bucketize", input, boundaries).bucketize(boundaries, out_int32=out_int32, right=right)


def isin(elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Returns True for each of `elements` that is in `test_elements`; one of them may be a number.

    Args:
      assume_unique:  promises that elements are distinct; without effect
      invert:         return the opposite

    >>> isin(3, tensor([1, 3]))
    Tensor(True)
    """
    found = tensor_beside("isin", elements, test_elements)
    return found.isin(test_elements, assume_unique=assume_unique, invert=invert)


def polygamma(n: int, input: Tensor) -> Tensor:  # noqa: A002
    """Returns the n-th derivative of digamma at input.

    >>> polygamma(1, tensor([2.0]))
    Tensor([0.64493406])
    """
    return input.polygamma(n)


def _second(function: str, operand: Any) -> Tensor:
    """Returns the second operand; raises an error if it is not a tensor although the first is a number."""
    if not isinstance(operand, Tensor):
        raise DTypeError(f"{function}: one operand must be a tensor, got {type(operand).__name__} beside a number.")
    return operand


def tensor_beside(function: str, operand: Any, other: Any) -> Tensor:
    """Returns the operand as a tensor; a number gets the dtype that it has next to `other`, which must be a tensor.

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


# ---- dtypes of results ----
def promote_types(type1: DType, type2: DType) -> DType:
    """Returns the common dtype of tensors of `type1` and `type2`, both with axes.

    >>> promote_types(dtypes.int32, dtypes.float16)
    float16
    """
    return dtypes.promote(type1, type2)


def result_type(tensor1: Operand, tensor2: Operand) -> DType:
    """Returns the dtype that an operation of `tensor1` and `tensor2`, tensors or numbers, computes in.

    >>> result_type(tensor([1, 2]), 1.5)
    float32
    """
    if isinstance(tensor1, Tensor) and isinstance(tensor2, Tensor):
        return promoted(tensor1.op, tensor2.op)
    if isinstance(tensor1, Tensor):
        return dtypes.promote_scalar(tensor1.dtype, tensor2)  # type: ignore[arg-type]
    if isinstance(tensor2, Tensor):
        return dtypes.promote_scalar(tensor2.dtype, tensor1)
    return dtypes.promote(dtypes.dtype_of_scalar(tensor1), dtypes.dtype_of_scalar(tensor2))


def can_cast(from_: DType, to: DType) -> bool:
    """Returns True if a result of dtype `from_` may be stored in place as `to`; floats never as integers, numbers as bools.

    >>> can_cast(dtypes.float64, dtypes.float32), can_cast(dtypes.float32, dtypes.int64)
    (True, False)
    """
    return CATEGORY[from_.kind] <= CATEGORY[to.kind]


# ---- counts drawn at random ----
def _drawn(function: str, generator: Generator | None, *parameters: Tensor) -> Tensor:
    """Returns counts in the dtype of the first parameter."""
    first, *others = parameters
    for parameter in parameters:
        if not parameter.dtype.is_float:
            fact = f"{function}: needs floats, got {parameter.dtype} of shape {parameter.shape}."
            raise DTypeError(fact, hint="x.float()")
    device = first.other_device(function, *others)
    shape = broadcast_shapes(function, *(parameter.op.shape for parameter in parameters))
    wide: list[Op] = [broadcast_to(cast(detached(each.read()), dtypes.float64), shape) for each in parameters]
    uniform = uniform_op(random_bits(shape, generator, first.device), dtypes.float64)
    return Tensor.from_op(cast(host_call(function, dtypes.float64, (uniform, *wide)), first.dtype), device)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:  # noqa: A002
    """Returns a Poisson count for each rate: k with probability rate^k e^-rate / k!.

    Args:
      input:  nonnegative rates

    Raises:
      DTypeError:    input is not a float.
      ArgumentError: when the result is computed: a rate is negative.

    >>> poisson(Tensor([0.0, 0.0]))
    Tensor([0., 0.])
    """
    return _drawn("poisson", generator, Tensor.from_op(not_negative("poisson", "input", input.read()), input.cell.device))


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns the number of successes in `count` tries with probability `prob` each.

    Args:
      count:  whole numbers as floats
      prob:   probabilities; both broadcast

    Raises:
      DTypeError: one is not a float.

    >>> binomial(Tensor([3.0, 4.0]), Tensor([1.0, 0.0]))
    Tensor([3., 0.])
    """
    return _drawn("binomial", generator, count, prob)


# ---- constructors by dtype ----
class OldType(str):
    """A tensor type by PyTorch's old name; calling it makes tensors: f(2, 3) or f(Size), to be overwritten, or f([1, 2]).

    dtype:  dtype of the tensors

    >>> FloatTensor(2, 3).shape, LongTensor([1.5, 2.0])
    ((2, 3), Tensor([1, 2]))
    >>> Tensor([1.5]).type(IntTensor)
    Tensor([1], dtype=int32)
    >>> isinstance(Tensor([1.5]), FloatTensor)
    True
    """

    dtype: DType

    def __new__(cls, dtype: DType) -> OldType:
        self = super().__new__(cls, f"picograd.{NAMES[dtype]}Tensor")
        self.dtype = dtype
        return self

    def __call__(self, *args: Any) -> Tensor:
        args = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
        is_data = len(args) == 1 and not isinstance(args[0], (int, np.integer))
        return Tensor(args[0], self.dtype) if is_data else Tensor.empty(*(args or (0,)), dtype=self.dtype)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is self.dtype

    def __or__(self, other: Any) -> Any:
        return Tensor | other

    def __ror__(self, other: Any) -> Any:
        return other | Tensor

    def __repr__(self) -> str:
        return str(self)


FloatTensor, DoubleTensor, HalfTensor = OldType(dtypes.float32), OldType(dtypes.float64), OldType(dtypes.float16)
BFloat16Tensor, ByteTensor, CharTensor = OldType(dtypes.bfloat16), OldType(dtypes.uint8), OldType(dtypes.int8)
ShortTensor, IntTensor, LongTensor = OldType(dtypes.int16), OldType(dtypes.int32), OldType(dtypes.int64)
BoolTensor = OldType(dtypes.bool_)
