"""Counts drawn at random, each by a rate or a chance of its own.

In:    tensors of rates, of numbers of tries, of chances
Out:   `poisson`, `binomial`
Next:  picograd/tensor/promotion.py

A uniform number of 53 bits is turned into the count of that rank, on the host, so that each element has one draw.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.errors import DTypeError
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.tensor.build import broadcast_shapes, broadcast_to, cast, detached
from picograd.tensor.creation.generator import Generator
from picograd.tensor.creation.random import random_bits, uniform_op
from picograd.tensor.tensor import Tensor

__all__ = ["binomial", "poisson"]


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
    """Returns for each rate a count of Poisson's distribution: k with probability rate^k e^-rate / k!.

    Args:
      input:  rates, not negative

    Raises:
      DTypeError: they are no floats.

    >>> poisson(Tensor([0.0, 0.0]))
    Tensor([0., 0.])
    """
    return _drawn("poisson", generator, input)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns how many of `count` tries succeed, each with probability `prob`.

    Args:
      count:  whole numbers as floats
      prob:   chances in 0..1; both broadcast

    Raises:
      DTypeError: one is no float.

    >>> binomial(Tensor([3.0, 4.0]), Tensor([1.0, 0.0]))
    Tensor([3., 0.])
    """
    return _drawn("binomial", generator, count, prob)
