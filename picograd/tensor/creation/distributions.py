"""Random numbers of further distributions, each made of evenly distributed ones, by functions that all devices share.

In:    tensors to fill, and the numbers a distribution is told by
Out:   `bernoulli_`, `exponential_`, `geometric_`, `log_normal_`, `cauchy_`, `random_`: methods of Tensor that fill it
Next:  picograd/tensor/exchange/interop.py
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.build import compare, maximum, minimum, unary
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import broadcast_to, cast, need_float, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.creation.alike import INTEGER, cosine_of_turns, exp_alike, normal_quantile
from picograd.tensor.creation.generator import Generator
from picograd.tensor.creation.probabilities import probabilities, probability
from picograd.tensor.creation.random import exponential_op, integers_op, normal_op, random_bits, store_drawn, uniform_op
from picograd.tensor.meeting import storing_device, value_at

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


def _bits(self: T, generator: Generator | None) -> Op:
    return random_bits(self.op.shape, generator, self.device)


def bernoulli_(self: T, p: float | Tensor = 0.5, *, generator: Generator | None = None) -> T:
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
    uniform = uniform_op(_bits(self, generator), dtypes.float32)
    return store_drawn(self, "bernoulli_", cast(compare(OpCode.CMPLT, uniform, chance), self.dtype))


def exponential_(self: T, lambd: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores numbers x > 0 with density lambd e^(-lambd x) in place: -log(u) / lambd.

    Raises:
      ArgumentError: lambd is not positive.
      DTypeError:    self is no float.

    >>> bool((Tensor.zeros(5).exponential_() > 0).all())
    True
    """
    need_float("exponential_", self.op)
    if not lambd > 0:
        raise ArgumentError(f"exponential_: lambd must be positive, got {lambd}.")
    drawn = exponential_op(_bits(self, generator), self.dtype.compute_dtype)
    return store_drawn(self, "exponential_", drawn * (1.0 / lambd))


def geometric_(self: T, p: float, *, generator: Generator | None = None) -> T:
    """Stores how many tries it takes, 1, 2, ..., until one of probability `p` succeeds, in place.

    Raises:
      ArgumentError: p is not in (0, 1].

    >>> Tensor.zeros(2).geometric_(1.0)
    Tensor([1., 1.])
    """
    if not 0 < p <= 1:
        raise ArgumentError(f"geometric_: a probability lies in (0, 1], got {p}.")
    failures = 0.0 if p == 1 else -1.0 / math.log1p(-p)
    wide = self.dtype.compute_dtype if self.dtype.is_float else dtypes.float32
    drawn = exponential_op(_bits(self, generator), wide)
    return store_drawn(self, "geometric_", unary(OpCode.FLOOR, drawn * failures) + 1.0)


def log_normal_(self: T, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> T:
    """Stores numbers whose logarithms are normal with `mean` and deviation `std`, in place.

    Raises:
      ArgumentError: std is not positive.
      DTypeError:    self is no float.

    >>> bool((Tensor.zeros(5).log_normal_() > 0).all())
    True
    """
    need_float("log_normal_", self.op)
    if not std > 0:
        raise ArgumentError(f"log_normal_: std must be positive, got {std}.")
    op = normal_op(_bits(self, generator), self.dtype.compute_dtype)
    return store_drawn(self, "log_normal_", exp_alike(op * std + mean))


def cauchy_(self: T, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores numbers of Cauchy's distribution, median + sigma * tan(pi (u - 1/2)), in place: a sine over a cosine.

    Raises:
      ArgumentError: sigma is not positive.
      DTypeError:    self is no float.

    >>> Tensor.zeros(2).cauchy_().shape
    (2,)
    """
    need_float("cauchy_", self.op)
    if not sigma > 0:
        raise ArgumentError(f"cauchy_: sigma must be positive, got {sigma}.")
    wide = self.dtype.compute_dtype
    turns = cast(_bits(self, generator), INTEGER[wide])
    half = Op(OpCode.SHR, turns.dtype, (turns, turns.filled(1)))  # from -1/4 of a turn up to 1/4
    quarter = 1 << (turns.dtype.bits - 2)
    tangent = Op(OpCode.DIV, wide, (cosine_of_turns(half - quarter, wide), cosine_of_turns(half, wide)))
    return store_drawn(self, "cauchy_", tangent * sigma + median)


def fill_truncated(self: T, mean: float, std: float, a: float, b: float, generator: Generator | None) -> T:
    """Stores normal numbers between a and b in place: see nn.init.trunc_normal_."""
    need_float("trunc_normal_", self.op)
    if not std > 0:
        raise ArgumentError(f"trunc_normal_: std must be positive, got {std}.")
    if not a <= b:
        raise ArgumentError(f"trunc_normal_: a must not be above b, got {a} and {b}.")
    scale, ends = std, ((a - mean) / std, (b - mean) / std)
    if sum(ends) > 0:  # the mirror image: parts below small numbers have more digits
        scale, ends = -std, (-ends[1], -ends[0])
    low, high = (0.5 * math.erfc(-end / math.sqrt(2)) for end in ends)
    far = high < 2.0**-50  # eight deviations, where the polynomial ends: of float64 it is off by 2e-4 at 20
    wide = dtypes.float64 if far else self.dtype.compute_dtype
    part = uniform_op(_bits(self, generator), wide) * (high - low) + low
    drawn = minimum(maximum(normal_quantile(part) * scale + mean, a), b)
    return store_drawn(self, "trunc_normal_", drawn)


def random_(self: T, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> T:
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
    low, high = whole("random_", "low", low), whole("random_", "high", high)
    if low >= high:
        raise ArgumentError(f"random_: there is no integer from {low} up to but without {high}.")
    op = integers_op(_bits(self, generator), low, high)
    return store_drawn(self, "random_", cast(op, self.dtype))
