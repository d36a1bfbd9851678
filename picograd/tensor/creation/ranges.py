"""Numbers in a row: counted up from a start, or at equal distances between two ends.

In:    starts, ends and steps, which may be symbolic integers
Out:   `Ranges`
Next:  picograd/tensor/creation/generator.py
"""

from __future__ import annotations

import math
import operator
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError
from picograd.ir.build import compare, iota, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import bounds, subtract
from picograd.tensor.build import broadcast_to, cast, whole
from picograd.tensor.core import T
from picograd.tensor.creation.constants import made
from picograd.tensor.variable import Length, held


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
    """Returns start, start + step, ... up to but without `end`; arange(n) counts from 0.

    Both ends may be symbolic integers, in steps of 1.

    Raises:
      ArgumentError: step is 0 or leads away from `end`, or a number is not finite.
      ShapeError:    an end is symbolic, and the step is not 1.

    >>> Tensor.arange(1, 7, 2).tolist()
    [1, 3, 5]
    """
    if end is None:
        start, end = 0, start
    if isinstance(start, Op | Length) or isinstance(end, Op | Length):
        return made(cls, _between(start, end, step, dtype), device, requires_grad)
    if not all(map(math.isfinite, (start, end, step))):
        raise ArgumentError(f"arange: start, end and step must be finite, got {start}, {end}, {step}.")
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(f"arange: step {step} does not lead from {start} to {end}.")
    whole = all(isinstance(value, int) for value in (start, end, step))
    chosen = dtypes.known("arange", dtype, dtypes.default_int if whole else dtypes.default_float)
    length = math.ceil((end - start) / step) if not whole else -(-(int(end) - int(start)) // int(step))
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
    """Returns `steps` numbers from `start` to `end`, both included, at equal distances.

    Raises:
      ArgumentError: steps is negative, or no integer.

    >>> Tensor.linspace(0.0, 1.0, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    steps = whole("linspace", "steps", steps)
    if steps < 0:
        raise ArgumentError(f"linspace: steps must not be negative, got {steps}.")
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
    """Returns base ** x for `steps` numbers x from `start` to `end`, both included, at equal distances.

    Raises:
      ArgumentError: steps is negative, or no integer.

    >>> Tensor.logspace(0.0, 2.0, 3)
    Tensor([  1.,  10., 100.])
    """
    steps = whole("logspace", "steps", steps)
    if steps < 0:
        raise ArgumentError(f"logspace: steps must not be negative, got {steps}.")
    chosen = dtypes.known("logspace", dtype, dtypes.default_float)
    exponent = _evenly(start, end, steps, chosen)
    op = Op(OpCode.POW, exponent.dtype, (filled(base, exponent.dtype, exponent.shape), exponent))
    return made(cls, cast(op, chosen), device, requires_grad)


def _between(start: Any, end: Any, step: Any, dtype: DType | None) -> Op:
    """Returns start, start + 1, ... up to but without end, one of them or both symbolic integers."""
    first, last = held((start, end))
    if step != 1 or not all(isinstance(dim, int | Op) for dim in (first, last)):
        operator.index(end if isinstance(end, Op | Length) else start)  # raises: it stands where a number is needed
    count = subtract(last, first)
    if bounds(count)[1] < 0:
        raise ArgumentError(f"arange: step 1 does not lead from {start} to {end}.")
    op = iota(count)
    if first != 0:
        op = op + (broadcast_to(first, op.shape) if isinstance(first, Op) else first)
    return cast(op, dtypes.known("arange", dtype, dtypes.default_int))


def _evenly(start: float, end: float, steps: int, dtype: DType) -> Op:
    """Returns numbers at equal distances in float64, counted from the nearer end, so that both ends are exact.

    The ends are of `dtype`: for integers they lose their fractions first.
    """
    start, end = (start, end) if dtype.is_float else (int(start), int(end))
    place = iota(steps)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    rising = cast(place, dtypes.float64) * step + start
    falling = cast(-place + (steps - 1), dtypes.float64) * -step + end
    return where(compare(OpCode.CMPLT, place, (steps + 1) // 2), rising, falling)
