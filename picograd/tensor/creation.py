"""New tensors: constants, evenly spaced numbers, and identity matrices.

Each is a constant graph: it takes no memory until it is realized, and fuses with its readers.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.device import chosen_device
from picograd.dtype import DType, Scalar
from picograd.engine.devices import default_device, usable_device
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, equal, iota, less, positions, where
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import bounds, subtract
from picograd.tensor.arguments import at_least
from picograd.tensor.build import broadcast_to, is_integer, sizes
from picograd.tensor.core import T
from picograd.tensor.intake import fitting
from picograd.tensor.variable import Length, held

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- constants ----
def made(cls: type[T], op: Op, device: str | None, requires_grad: bool = False) -> T:
    """Returns a tensor of a constant graph, by default on the default device."""
    chosen = device if device is not None else chosen_device()
    place = usable_device(chosen) if chosen is not None else None
    if place is not None and place != default_device():
        op = Op(OpCode.COPY, op.dtype, (op,), place)
    tensor = cls.from_op(op, place)
    return tensor.requires_grad_() if requires_grad else tensor


def full(
    cls: type[T],
    size: Any,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns `fill_value` broadcast to the shape `size`; the default dtype is the number's.

    >>> Tensor.full((2,), 7)
    Tensor([7, 7])
    """
    chosen = dtypes.known("full", dtype, dtypes.dtype_of_scalar(fill_value))
    lengths = shape_of_sizes("full", (size,))
    return made(cls, filled(fitting("full", fill_value, chosen), chosen, lengths), device, requires_grad)


def zeros(
    cls: type[T],
    *shape: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns zeros of `shape`, given as zeros(2, 3), zeros((2, 3)) or zeros(size=(2, 3)); float32 by default.

    >>> Tensor.zeros(2, 3)
    Tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    lengths = shape_of_sizes("zeros", shape, size)
    return made(cls, filled(0, dtypes.known("zeros", dtype, dtypes.default_float), lengths), device, requires_grad)


def ones(
    cls: type[T],
    *shape: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns ones of `shape`, or of the shape `size`; float32 by default.

    >>> Tensor.ones((2,), dtype=dtypes.int32)
    Tensor([1, 1], dtype=int32)
    """
    lengths = shape_of_sizes("ones", shape, size)
    return made(cls, filled(1, dtypes.known("ones", dtype, dtypes.default_float), lengths), device, requires_grad)


def empty(
    cls: type[T],
    *shape: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns a tensor of `shape`, or of the shape `size`, to be overwritten; it holds zeros.

    >>> Tensor.empty(2, 3).shape
    (2, 3)
    """
    return cls.zeros(*shape, size=size, dtype=dtype, device=device, requires_grad=requires_grad)


def eye(
    cls: type[T],
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns the (n, m) matrix with ones on the diagonal, zeros elsewhere.

    >>> Tensor.eye(2)
    Tensor([[1., 0.],
            [0., 1.]])
    """
    shape = shape_of_sizes("eye", (n, n if m is None else m))
    diagonal = equal(positions(shape, 0), positions(shape, 1))
    return made(cls, cast(diagonal, dtypes.known("eye", dtype, dtypes.default_float)), device, requires_grad)


# ---- like another ----
def full_like(
    cls: type[T],
    tensor: Tensor,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns `fill_value` in the shape, dtype and on the device of `tensor`.

    >>> Tensor.full_like(Tensor([1, 2]), 7)
    Tensor([7, 7])
    """
    chosen = dtypes.known("full_like", dtype, tensor.dtype)
    op = filled(fitting("full_like", fill_value, chosen), chosen, tensor.op.shape)
    return made(cls, op, tensor.cell.device if device is None else device, requires_grad)


def zeros_like(
    cls: type[T],
    tensor: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns zeros in the shape, dtype and on the device of `tensor`.

    >>> Tensor.zeros_like(Tensor([1, 2]))
    Tensor([0, 0])
    """
    return cls.full_like(tensor, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    cls: type[T],
    tensor: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns ones in the shape, dtype and on the device of `tensor`.

    >>> Tensor.ones_like(Tensor([1.0, 2.0]))
    Tensor([1., 1.])
    """
    return cls.full_like(tensor, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    cls: type[T],
    tensor: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns a tensor of the shape of `tensor`, to be overwritten; it holds zeros.

    >>> Tensor.empty_like(Tensor([1, 2])).shape
    (2,)
    """
    return cls.full_like(tensor, 0, dtype=dtype, device=device, requires_grad=requires_grad)


# ---- of this dtype, on this device ----
def new_full(
    self: T,
    size: Any,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns `fill_value` in the shape `size`, by default with this tensor's dtype and device.

    >>> Tensor([1, 2]).new_full((3,), 7)
    Tensor([7, 7, 7])
    """
    place = self.cell.device if device is None else device
    return self.full(size, fill_value, dtype=dtype or self.dtype, device=place, requires_grad=requires_grad)


def new_zeros(
    self: T,
    *shape: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns zeros of `shape`, or of the shape `size`, by default with this tensor's dtype and device.

    >>> Tensor([1, 2]).new_zeros(3)
    Tensor([0, 0, 0])
    """
    return self.new_full(sizes("new_zeros", shape, size), 0, dtype=dtype, device=device, requires_grad=requires_grad)


def new_ones(
    self: T,
    *shape: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns ones of `shape`, or of the shape `size`, by default with this tensor's dtype and device.

    >>> Tensor([1, 2]).new_ones(3)
    Tensor([1, 1, 1])
    """
    return self.new_full(sizes("new_ones", shape, size), 1, dtype=dtype, device=device, requires_grad=requires_grad)


def new_empty(
    self: T,
    *shape: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns a tensor of `shape`, or of the shape `size`, to be overwritten; by default with this dtype and device.

    >>> Tensor([1, 2]).new_empty(3)
    Tensor([0, 0, 0])
    """
    return self.new_full(sizes("new_empty", shape, size), 0, dtype=dtype, device=device, requires_grad=requires_grad)


def new_tensor(
    self: T, data: Any, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> T:
    """Returns a copy of `data`, by default with this tensor's dtype and device.

    >>> Tensor([1.0, 2.0]).new_tensor([3, 4])
    Tensor([3., 4.])
    """
    return type(self)(data, dtype or self.dtype, self.device if device is None else device, requires_grad)


def shape_of_sizes(function: str, args: tuple[Any, ...], named: Any = None) -> Shape:
    """Returns the shape given as f(2, 3), as f((2, 3)) or by name.

    Raises:
      ShapeError: a length is negative or not an integer.
    """
    given = held(sizes(function, args, named))
    found = tuple([n if isinstance(n, Op) else int(n) if is_integer(n) else -1 for n in given])
    if any(not isinstance(n, Op) and n < 0 for n in found):
        raise ShapeError(f"{function}: lengths of axes must be integers >= 0, got {given}.")
    return found


# ---- ranges ----
def arange(
    cls: type[T],
    start: Scalar,
    end: Scalar | None = None,
    step: Scalar = 1,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns start, start + step, ... below `end`; arange(n) counts from 0.

    Both ends may be symbolic integers, in steps of 1.

    Raises:
      ArgumentError: step is 0 or has the wrong sign for `end`, or a number is not finite.
      ShapeError:    an end is symbolic, and the step is not 1.

    >>> Tensor.arange(1, 7, 2).tolist()
    [1, 3, 5]
    """
    if end is None:
        start, end = 0, start
    if isinstance(start, Op | Length) or isinstance(end, Op | Length):
        return made(cls, _between(start, end, step, dtype), device, requires_grad)
    start, end, step = (int(n) if is_integer(n) else float(n) for n in (start, end, step))
    if not all(map(math.isfinite, (start, end, step))):
        raise ArgumentError(f"arange: start, end and step must be finite, got {start}, {end}, {step}.")
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(f"arange: step {step} leads away from end: start is {start}, end {end}.")
    whole = all(isinstance(value, int) for value in (start, end, step))
    chosen = dtypes.known("arange", dtype, dtypes.default_int if whole else dtypes.default_float)
    length = math.ceil((end - start) / step) if not whole else int(-(-(end - start) // step))
    op = cast(iota(length), dtypes.int64 if whole else dtypes.float64)
    if step != 1:
        op = op * step
    if start != 0:
        op = op + start
    return made(cls, cast(op, chosen), device, requires_grad)


def linspace(
    cls: type[T],
    start: float,
    end: float,
    steps: int,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns `steps` equally spaced numbers from `start` to `end`, both included.

    Raises:
      ArgumentError: steps is negative or not an integer.

    >>> Tensor.linspace(0.0, 1.0, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    steps = at_least("linspace", "steps", steps, 0)
    chosen = dtypes.known("linspace", dtype, dtypes.default_float)
    return made(cls, cast(_evenly(start, end, steps, chosen), chosen), device, requires_grad)


def logspace(
    cls: type[T],
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns base ** x for `steps` equally spaced numbers x from `start` to `end`, both included.

    Raises:
      ArgumentError: steps is negative or not an integer.

    >>> Tensor.logspace(0.0, 2.0, 3)
    Tensor([  1.,  10., 100.])
    """
    steps = at_least("logspace", "steps", steps, 0)
    chosen = dtypes.known("logspace", dtype, dtypes.default_float)
    exponent = _evenly(start, end, steps, chosen)
    op = Op(OpCode.POW, exponent.dtype, (filled(base, exponent.dtype, exponent.shape), exponent))
    return made(cls, cast(op, chosen), device, requires_grad)


def _between(start: Any, end: Any, step: Any, dtype: DType | None) -> Op:
    """Returns start, start + 1, ... below end; at least one of them is a symbolic integer."""
    first, last = held((start, end))
    if step != 1 or not all(isinstance(dim, int | Op) for dim in (first, last)):
        operator.index(end if isinstance(end, Op | Length) else start)  # raises: a symbolic integer cannot be converted
    count = subtract(last, first)
    if bounds(count)[1] < 0:
        raise ArgumentError(f"arange: step 1 leads away from end: start is {start}, end {end}.")
    op = iota(count)
    if first != 0:
        op = op + (broadcast_to(first, op.shape) if isinstance(first, Op) else first)
    return cast(op, dtypes.known("arange", dtype, dtypes.default_int))


def _evenly(start: float, end: float, steps: int, dtype: DType) -> Op:
    """Returns equally spaced numbers in float64, computed from the nearer end, so that both ends are exact.

    The ends are of `dtype`: for integers they lose their fractions first.
    """
    start, end = (start, end) if dtype.is_float else (int(start), int(end))
    place = iota(steps)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    rising = cast(place, dtypes.float64) * step + start
    falling = cast(-place + (steps - 1), dtypes.float64) * -step + end
    return where(less(place, (steps + 1) // 2), rising, falling)
