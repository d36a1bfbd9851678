"""Random numbers of further distributions, each made of evenly distributed ones.

In:    tensors to fill, and the numbers a distribution is told by
Out:   `Distributions`
Next:  picograd/tensor/exchange/interop.py
"""

from __future__ import annotations

import math
from typing import Self

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.ir.build import compare, unary
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import broadcast_to, cast, need_float
from picograd.tensor.core import TensorCore
from picograd.tensor.creation.alike import log_alike
from picograd.tensor.creation.generator import Generator
from picograd.tensor.creation.probabilities import probabilities, probability
from picograd.tensor.creation.random import (
    Random,
    integers_op,
    normal_op,
    random_bits,
    uniform_op,
)
from picograd.tensor.elements import pointwise
from picograd.tensor.meeting import storing_device, value_at


class Distributions(Random):
    """bernoulli_ exponential_ geometric_ log_normal_ cauchy_ random_: they fill self and return it."""

    __slots__ = ()

    def _rest(self, generator: Generator | None) -> Op:
        """Returns numbers evenly from (0, 1], in float32 or wider, so that their logarithms are finite."""
        wide = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
        return -uniform_op(random_bits(self.op.shape, generator, self.device), wide) + 1.0

    def bernoulli_(self, p: float | TensorCore = 0.5, *, generator: Generator | None = None) -> Self:
        """Stores 1 with probability `p` (a number, or a tensor of self's shape), else 0, in place.

        Raises:
          ArgumentError: p is not in [0, 1]; of a tensor, when it is computed.

        >>> Tensor.zeros(2).bernoulli_(1.0)
        Tensor([1., 1.])
        """
        if isinstance(p, TensorCore):
            self.cell.device = storing_device("bernoulli_", self, p)
            given = cast(value_at(p, self.cell.device), dtypes.float32)
            chance = broadcast_to(probabilities("bernoulli_", given), self.op.shape)
        else:
            chance = filled(probability("bernoulli_", "p", p), dtypes.float32, self.op.shape)
        uniform = uniform_op(random_bits(self.op.shape, generator, self.device), dtypes.float32)
        return self._store_drawn("bernoulli_", cast(compare(OpCode.CMPLT, uniform, chance), self.dtype))

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Stores numbers x >= 0 with density lambd e^(-lambd x) in place: -log(u) / lambd.

        Raises:
          ArgumentError: lambd is not positive.
          DTypeError:    self is no float.

        >>> bool((Tensor.zeros(5).exponential_() >= 0).all())
        True
        """
        need_float("exponential_", self.op)
        if lambd <= 0:
            raise ArgumentError(f"exponential_: lambd must be positive, got {lambd}.")
        return self._store_drawn("exponential_", log_alike(self._rest(generator)) * (-1.0 / lambd))

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Self:
        """Stores how many tries it takes, 1, 2, ..., until one of probability `p` succeeds, in place.

        Raises:
          ArgumentError: p is not in (0, 1].

        >>> Tensor.zeros(2).geometric_(1.0)
        Tensor([1., 1.])
        """
        if not 0 < p <= 1:
            raise ArgumentError(f"geometric_: a probability lies in (0, 1], got {p}.")
        failures = 0.0 if p == 1 else 1.0 / math.log1p(-p)
        return self._store_drawn("geometric_", pointwise.floor(log_alike(self._rest(generator)) * failures) + 1.0)

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Self:
        """Stores numbers whose logarithms are normal with `mean` and deviation `std`, in place.

        Raises:
          ArgumentError: std is not positive.
          DTypeError:    self is no float.

        >>> bool((Tensor.zeros(5).log_normal_() > 0).all())
        True
        """
        need_float("log_normal_", self.op)
        if std <= 0:
            raise ArgumentError(f"log_normal_: std must be positive, got {std}.")
        op = normal_op(random_bits(self.op.shape, generator, self.device), self.dtype)
        return self._store_drawn("log_normal_", unary(OpCode.EXP, op * std + mean))

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Stores numbers of Cauchy's distribution, median + sigma * tan(pi (u - 1/2)), in place.

        Raises:
          ArgumentError: sigma is not positive.
          DTypeError:    self is no float.

        >>> Tensor.zeros(2).cauchy_().shape
        (2,)
        """
        need_float("cauchy_", self.op)
        if sigma <= 0:
            raise ArgumentError(f"cauchy_: sigma must be positive, got {sigma}.")
        return self._store_drawn("cauchy_", pointwise.tan((self._rest(generator) - 0.5) * math.pi) * sigma + median)

    def random_(self, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Self:
        """Stores integers from `low` up to but without `high`, in place; random_(high) counts from 0.

        Without bounds: up to the greatest of an integer dtype, to 2^digits of a float.

        Raises:
          ArgumentError: there is no integer between low and high.

        >>> Tensor.zeros(2).random_(7, 8)
        Tensor([7., 7.])
        """
        if high is None and low != 0:
            low, high = 0, low
        if high is None:
            high = 1 + (2**self.dtype.precision if self.dtype.is_float else min(int(self.dtype.max), 2**63 - 2))
        if low >= high:
            raise ArgumentError(f"random_: there is no integer from {low} up to but without {high}.")
        op = integers_op(random_bits(self.op.shape, generator, self.device), low, high)
        return self._store_drawn("random_", cast(op, self.dtype))

    @classmethod
    def randint_like(
        cls,
        tensor: TensorCore,
        low: int,
        high: int | None = None,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
    ) -> Self:
        """Returns integers from low up to but without high in the shape, dtype and on the device of `tensor`.

        >>> Tensor.randint_like(Tensor([0.0, 0.0]), 7, 8)
        Tensor([7., 7.])
        """
        place = tensor.device if device is None else device
        if high is None:
            low, high = 0, low
        shape = tensor.op.shape
        return cls.randint(low, high, shape, generator=generator, dtype=dtype or tensor.dtype, device=place)
