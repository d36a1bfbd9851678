"""Dtypes and devices of a tensor, and conversions to others."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.devices import default_device, gpu_named, usable_device
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast as cast_op
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.public import renamed
from picograd.tensor.build import as_bits, axis_of, static
from picograd.tensor.core import T, TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

S = TypeVar("S")

__all__ = [
    "get_device", "is_complex", "is_conj", "is_floating_point", "is_neg", "is_nonzero", "is_signed",
]  # fmt: skip


# ---- questions ----
def is_floating_point(self: T) -> builtins.bool:
    """Returns True for floats.

    >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
    (True, False)
    """
    return self.dtype.is_float


def is_signed(self: T) -> builtins.bool:
    """Returns True if the dtype has negative numbers.

    >>> Tensor([1]).is_signed(), Tensor([True]).is_signed()
    (True, False)
    """
    return self.dtype.kind in "if"


def is_nonzero(self: T) -> builtins.bool:
    """Returns True if the one element is not 0; reads it.

    Raises:
      ShapeError: it does not have exactly one element.

    >>> Tensor([2.0]).is_nonzero()
    True
    """
    if self.numel() != 1:
        raise ShapeError(f"is_nonzero: needs exactly one element, got shape {self.shape}.", hint="x.any() or x.all()")
    return builtins.bool(self.item())


def nelement(self: T) -> builtins.int:
    """Returns the number of elements.

    >>> Tensor.zeros(2, 3).nelement()
    6
    """
    return self.numel()


def ndimension(self: T) -> builtins.int:
    """Returns the number of axes.

    >>> Tensor.zeros(2, 3).ndimension()
    2
    """
    return self.ndim


# ---- questions that have one answer here ----
def one_answer(name: str, answer: S, why: str) -> Callable[[Any], S]:
    """Returns a method with one answer for every tensor; its docstring gives the reason."""

    def method(self: Any) -> S:
        return answer

    return renamed(method, name, f"Returns {answer}: {why}.\n\n    >>> Tensor([1.0]).{name}()\n    {answer}\n    ")


is_complex = one_answer("is_complex", False, "picograd has no complex numbers")
is_conj = one_answer("is_conj", False, "conjugation is never deferred")
is_neg = one_answer("is_neg", False, "negation is never deferred")
is_contiguous = one_answer("is_contiguous", True, "elements are always in row-major order")
storage_offset = one_answer("storage_offset", 0, "the first element is always at the beginning")
is_pinned = one_answer("is_pinned", False, "memory of the host is never pinned")
is_inference = one_answer("is_inference", False, "inference_mode makes ordinary tensors")


# ---- its layout: elements are in order, for any view, since nothing is stored before it is computed ----
def stride(self: T, dim: builtins.int | None = None) -> Any:
    """Returns the distance in elements between neighbours along each axis, or along axis `dim`, for row-major order.

    In PyTorch strides describe memory. Here a view has no memory of its own, so they follow from the shape alone.

    Raises:
      IndexingError: there is no axis `dim`.

    >>> Tensor.zeros(2, 3).stride(), Tensor.zeros(2, 3).T.stride()
    ((3, 1), (2, 1))
    """
    lengths = [max(static(length), 1) for length in self.op.shape]
    found = tuple(math.prod(lengths[axis + 1 :]) for axis in range(len(lengths)))
    return found if dim is None else found[axis_of("stride", self.shape, dim)]


def pin_memory(self: T) -> T:
    """Returns the tensor itself: copies to a GPU are complete when they return, from any memory.

    >>> x = Tensor([1.0])
    >>> x.pin_memory() is x
    True
    """
    return self


def get_device(self: T) -> builtins.int:
    """Returns the number of its GPU, 0, or -1 for the host.

    >>> Tensor([1.0]).get_device()
    -1
    """
    return 0 if self.is_cuda else -1


# ---- conversions ----
NAMES = {  # PyTorch's words for dtypes
    dtypes.float32: "Float", dtypes.float64: "Double", dtypes.float16: "Half", dtypes.bfloat16: "BFloat16",
    dtypes.uint8: "Byte", dtypes.int8: "Char", dtypes.int16: "Short", dtypes.int32: "Int", dtypes.int64: "Long",
    dtypes.bool_: "Bool",
}  # fmt: skip


def cast(self: T, dtype: DType) -> T:
    """Returns the elements cast to another dtype; floats are truncated toward zero to become integers.

    Raises:
      DTypeError: `dtype` is not a picograd dtype.

    >>> Tensor([1.5, -1.5]).cast(dtypes.int32)
    Tensor([ 1, -1], dtype=int32)
    """
    if dtype is self.dtype:
        return self
    return self.from_op(cast_op(self.read(), dtypes.named("cast", dtype)), self.cell.device)


def bitcast(self: T, dtype: DType) -> T:
    """Returns the same bits as another dtype of the same width.

    Raises:
      DTypeError: the widths differ.

    >>> Tensor([1.0]).bitcast(dtypes.uint32)
    Tensor([1065353216], dtype=uint32)
    """
    dtype = dtypes.named("bitcast", dtype)
    if dtype.itemsize != self.dtype.itemsize:
        raise DTypeError(f"bitcast: {self.dtype} has {self.dtype.itemsize} bytes, {dtype} has {dtype.itemsize}.")
    return self.from_op(as_bits(self.read(), dtype), self.cell.device)


def to(
    self: T,
    *targets: Any,
    dtype: DType | None = None,
    device: str | None = None,
    non_blocking: builtins.bool = False,
    copy: builtins.bool = False,
) -> T:
    """Returns the tensor on the device and in the dtype that `targets` name, or those of another tensor.

    copy=True copies in any case; non_blocking is always the case and changes nothing.

    Raises:
      ArgumentError: a target is neither a device, a dtype nor a tensor.

    >>> Tensor([1.5]).to(dtypes.int32).tolist()
    [1]
    """
    result = self
    for target in (*targets, dtype, device):
        if isinstance(target, TensorCore):
            result = result.to(target.device, target.dtype)
        elif isinstance(target, (DType, builtins.type)):
            result = result.cast(target)  # type: ignore[arg-type]  # float, int and bool are names of dtypes
        elif isinstance(target, str):
            result = _to_device(result, usable_device(target))
        elif target is not None:
            raise ArgumentError(f"to: needs a device name or a dtype, got {target!r}.")
    return self.clone() if copy and result is self else result


def _to_device(self: T, device: str) -> T:
    own = self.cell.device
    if own == device:
        return self
    op = self.read()
    if own is None and device == default_device():
        return self.from_op(op, device)
    return self.from_op(Op(OpCode.COPY, op.dtype, (op,), device), device)


def cpu(self: T) -> T:
    """Returns the tensor on the CPU.

    >>> Tensor([1]).cpu().device
    device(type='cpu')
    """
    return self.to("CPU")


def cuda(self: T, device: str | builtins.int | None = None, non_blocking: builtins.bool = False) -> T:
    """Returns the tensor on the CUDA device.

    Args:
      device:        0, "cuda" or "cuda:0": each process has one GPU
      non_blocking:  always the case: changes nothing

    Raises:
      ArgumentError: `device` is not a CUDA device.
      DeviceError:   its number is not 0.
    """
    return _to_device(self, gpu_named(device))


def type(self: T, dtype: Any = None, non_blocking: builtins.bool = False) -> Any:
    """Returns the name of the tensor's type, or the elements cast to another dtype.

    Args:
      dtype:         a dtype, Tensor (the default float) or a name like "picograd.FloatTensor"; None: the name is returned
      non_blocking:  changes nothing

    Raises:
      DTypeError: `dtype` is neither a dtype nor the name of a type.

    >>> Tensor([1, 2]).type()
    'picograd.LongTensor'
    >>> Tensor([1, 2]).type(dtypes.float32)
    Tensor([1., 2.])
    """
    if dtype is None:
        return f"picograd.{NAMES.get(self.dtype, self.dtype.name.capitalize())}Tensor"
    if isinstance(dtype, str):
        short = dtype.rpartition(".")[2].removesuffix("Tensor")
        found = [kind for kind, name in NAMES.items() if name == short]
        if not found:
            raise DTypeError(f"type: there is no tensor type {dtype!r}.", hint='"picograd.FloatTensor", or a dtype')
        return self.cast(found[0])
    return self.cast(dtypes.default_float if dtype in builtins.type(self).__mro__ else dtype)  # x.type(Tensor)


def type_as(self: T, other: Tensor) -> T:
    """Returns the elements cast to the dtype of `other`.

    >>> Tensor([1, 2]).type_as(Tensor([0.5]))
    Tensor([1., 2.])
    """
    return self.cast(other.dtype)


# ---- by name ----
def named_cast(dtype: DType, about: str, example: str, via: str = "to") -> Callable[[S], S]:
    """Returns a method named after a dtype, by NAMES, which calls the method `via` with that dtype.

    Args:
      about:    first words of its docstring: its result
      example:  doctest of a call, with {} for the name, except the dtype at its end
    """

    def method(self: S) -> S:
        return getattr(self, via)(dtype)

    name = NAMES[dtype].lower()
    text = f"{about} {dtype}.\n\n    >>> {example.format(name)}.dtype\n    {dtype}\n    "
    return renamed(method, name, text)


_OF_TENSORS = "Returns the elements as", "Tensor([1.5, 0.0]).{}()", "cast"
float, double = named_cast(dtypes.float32, *_OF_TENSORS), named_cast(dtypes.float64, *_OF_TENSORS)
half, bfloat16 = named_cast(dtypes.float16, *_OF_TENSORS), named_cast(dtypes.bfloat16, *_OF_TENSORS)
int, short = named_cast(dtypes.int32, *_OF_TENSORS), named_cast(dtypes.int16, *_OF_TENSORS)
char, byte = named_cast(dtypes.int8, *_OF_TENSORS), named_cast(dtypes.uint8, *_OF_TENSORS)
long, bool = named_cast(dtypes.int64, *_OF_TENSORS), named_cast(dtypes.bool_, *_OF_TENSORS)
