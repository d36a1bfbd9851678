"""Random tensors: threefry of (key, element index), so that every device and every order gives the same bits.

LOG, EXP and COS are right to an ulp or two, which each device spends in its own way: by a polynomial, or a library.
Draws are made of integers alone and of operations whose last bit IEEE 754 defines: ADD, SUB, MUL, DIV, SQRT, FLOOR,
MAX, MIN and casts. No pass reorders these, and no compiler may contract them. FMA is left out: a processor without the
instruction rounds it twice. Logarithm, exponential and cosine of this file are right to 2 ulp, and cheap for the range
that draws need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.passes.functions import ATANH, EXP, EXP_RANGE, LN2, LOG2_E, QUANTILE, WAVE
from picograd.dtype import DType
from picograd.engine.devices import default_device, device_or_default
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import (
    and_,
    argsort,
    bitcast,
    both,
    cast,
    iota,
    less,
    less_equal,
    maximum,
    minimum,
    reduce,
    reshape,
    scan,
    shl,
    shr,
    shrink_axis,
    unary,
    xor,
)
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.arguments import check_nonnegative, check_positive, number, storing_device, value_at
from picograd.tensor.build import (
    broadcast_to,
    detached,
    guarded,
    is_integer,
    need_float,
    static,
    static_numel,
    whole,
)  # fmt: skip
from picograd.tensor.compute import settle_choice, settle_step
from picograd.tensor.core import T, TensorCore
from picograd.tensor.creation import shape_of_sizes
from picograd.tensor.formulas import formula
from picograd.tensor.generator import Generator, default_generator
from picograd.tensor.order import lower_bound
from picograd.tensor.pointwise import polynomial

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = [
    "bernoulli", "multinomial",
]  # fmt: skip


# ---- functions alike on every device ----
SQRT_HALF = {dtypes.float32: 0x3F3504F3, dtypes.float64: 0x3FE6A09E667F3BCD}  # bits of the square root of 1/2


def log_alike(x: Op) -> Op:
    """Returns the natural logarithm of a normal float32 or float64 above 0.

    x = 2^n m with m from sqrt(1/2) to sqrt(2);  log x = n log 2 + s p(s^2) with s = (m - 1) / (m + 1)
    """
    dtype, integer, digits = x.dtype, x.dtype.signed, x.dtype.mantissa
    bits = bitcast(x, integer)
    n = shr(bits - SQRT_HALF[dtype], digits)  # rounds down
    m = bitcast(bits - shl(n, digits), dtype)
    s = (m - 1.0) / (m + 1.0)
    return cast(n, dtype) * _held(math.log(2), dtype) + s * polynomial(s * s, (2.0, *ATANH[dtype]))


def exp_alike(x: Op) -> Op:
    """Returns e^x of a float32 or float64: 0 and infinity where it leaves the range.

    x = n log 2 + r with |r| <= log(2) / 2;  e^x = 2^n e^r, in two steps, so that subnormal results are rounded once
    """
    dtype, integer, digits = x.dtype, x.dtype.signed, x.dtype.mantissa
    low, high = EXP_RANGE[dtype]
    x = minimum(maximum(x, low), high)
    n = unary(OpCode.FLOOR, x * _held(LOG2_E, dtype) + 0.5)
    r = x - n * LN2[dtype][0] - n * LN2[dtype][1]
    power = cast(n, integer)
    half = shr(power, 1)
    first, second = (shl(part + dtype.exponent_bias, digits) for part in (half, power - half))
    return polynomial(r, (1.0, 1.0, *EXP[dtype])) * bitcast(first, dtype) * bitcast(second, dtype)


def cosine_of_turns(turns: Op, dtype: DType) -> Op:
    """Returns cos(2 pi turns / 2^32) for int32 `turns`: the sine of the rest within a quarter, which integers hold exactly.

    A negative t has all its bits inverted: -1 - t, its mirror image but for 2^-32 of a turn. A turn of int64 is 2^64.
    """
    places = turns.dtype.bits
    folded = xor(turns, shr(turns, places - 1))
    x = cast(folded - (1 << (places - 2)), dtype) * _held(-math.pi / 2 ** (places - 1), dtype)  # at most pi / 2
    return x * polynomial(x * x, (1.0, *WAVE[dtype]))


def normal_quantile(p: Op) -> Op:
    """Returns the x with a part p of the normal distribution below it, p being a float32 or float64 in [0, 1].

    Right to 4 ulp up to |x| = 8; of 0 and 1, too, it is finite.

    x = c sqrt(2 w + pi / 2) h(t) with c = 2 p - 1, w = -log(1 - c^2) = -log(4 p (1 - p)), t = (5 - w) / (5 + w). The
    middle of the distribution and both its ends make h 1, and it is near 1 between: one polynomial is enough.
    """
    dtype = p.dtype
    w = -log_alike(maximum((-p + 1.0) * p * 4.0, 2.0 ** (1 - dtype.exponent_bias)))
    t = (-w + 5.0) / (w + 5.0)
    scale = unary(OpCode.SQRT, w * 2.0 + _held(math.pi / 2, dtype))
    return (p * 2.0 - 1.0) * scale * polynomial(t, QUANTILE[dtype])


# ---- integers ----
def part_of(count: Op | int, bits: Op) -> Op:
    """Returns the integer below `count` that uint64 `bits` choose: count * bits / 2^64 rounded down, or up to 2 less.

    The product of the lower halves is left out, and each of the other products of halves is rounded for itself.
    """
    upper, lower = _halves(bits)
    most, rest = divmod(count, 2**32) if isinstance(count, int) else _halves(count)
    part = shr(upper * rest, 32)
    return part if most == 0 else part + upper * most + shr(lower * most, 32)


def _halves(x: Op) -> tuple[Op, Op]:
    """Returns the upper and the lower 32 bits of a uint64."""
    return shr(x, 32), and_(x, 2**32 - 1)


def _held(value: float, dtype: DType) -> float:
    """Returns a number as `dtype` holds it, so that no language has to round it."""
    return float(np.dtype(dtype.numpy).type(value))


# ---- probabilities ----
def probability(function: str, name: str, p: float) -> float:
    """Returns an argument that must be a probability.

    Raises:
      ArgumentTypeError: it is not a number.
      ArgumentError:     it is not in [0, 1].
    """
    if not 0.0 <= number(function, name, p) <= 1.0:  # NaN is not either
        raise ArgumentError(f"{function}: {name} must be a probability, got {p}.")
    return p


def probabilities(function: str, op: Op, hint: str | None = None) -> Op:
    """Returns `op`; when it is computed, an element outside of [0, 1], or NaN, is an error with a hint."""
    inside = both(less_equal(0, op), less_equal(op, 1))
    return guarded(op, inside, f"{function}: a probability is not in [0, 1].", hint)


def weights(function: str, op: Op) -> Op:
    """Returns `op`; when it is computed, an element that is negative, infinite or NaN is an error."""
    inside = both(less_equal(0, op), less(op, math.inf))
    return guarded(op, inside, f"{function}: a weight is negative, infinite or NaN.")


# ---- uniform and normal numbers, integers, permutations ----
def rand(
    cls: type[T],
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns numbers of `shape`, or of the shape `size`, evenly from [0, 1), multiples of 2^-24 (float32).

    Raises:
      DTypeError: dtype is not a float.

    >>> Tensor.rand(2, generator=Generator(1))
    Tensor([0.8626317, 0.6300258])
    """
    return _drawn_floats(cls, "rand", _rand_op, (shape, size), generator, dtype, device, requires_grad)


def randn(
    cls: type[T],
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns numbers of `shape`, or of the shape `size`: normal, of mean 0 and variance 1 (Box and Muller 1958).

    Raises:
      DTypeError: dtype is not a float.

    >>> Tensor.randn(2, generator=Generator(1))
    Tensor([-0.49724522, -0.72256964])
    """
    return _drawn_floats(cls, "randn", _randn_op, (shape, size), generator, dtype, device, requires_grad)


def randint(
    cls: type[T],
    low: int = 0,
    high: int | None = None,
    size: Any = (),
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns integers of shape `size` from low up to but without high; randint(high, size=...) counts from 0.

    Raises:
      ArgumentError: there is no integer between low and high.
      DTypeError:    requires_grad of a dtype that is not a float.

    >>> Tensor.randint(10, size=(4,), generator=Generator(1))
    Tensor([8, 6, 1, 0])
    """
    if high is None or not is_integer(high):
        low, high, size = 0, low, size if high is None else high
    low, high = whole("randint", "low", low), whole("randint", "high", high)
    if low >= high:
        raise ArgumentError(f"randint: there is no integer from {low} up to but without {high}.")
    lengths = shape_of_sizes("randint", (size,))
    place = device_or_default(device)
    key = (generator or default_generator).next_key(place)
    op = _randint_op(key, lengths, low, high, dtypes.known("randint", dtype, dtypes.int64))
    return _drawn(cls, op, place, requires_grad)


def randperm(
    cls: type[T], n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: str | None = None,
    requires_grad: bool = False,
) -> T:  # fmt: skip
    """Returns the integers 0..n-1 in a random order.

    Raises:
      DTypeError: requires_grad of a dtype that is not a float.

    >>> Tensor.randperm(5, generator=Generator(1))
    Tensor([3, 2, 1, 4, 0])
    """
    place = device_or_default(device)
    bits = random_bits(shape_of_sizes("randperm", (whole("randperm", "n", n),)), generator, place)
    order = argsort(bits, 0)
    return _drawn(cls, cast(order, dtypes.known("randperm", dtype, dtypes.int64)), place, requires_grad)


def rand_like(
    cls: type[T], tensor: Tensor, *, generator: Generator | None = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> T:  # fmt: skip
    """Returns uniform numbers in the shape of `tensor`, in its dtype and on its device unless others are given.

    >>> Tensor.rand_like(Tensor([[0.0, 0.0]])).shape
    (1, 2)
    """
    chosen, place = dtype or tensor.dtype, device or tensor.device
    return cls.rand(tensor.op.shape, generator=generator, dtype=chosen, device=place, requires_grad=requires_grad)


def randn_like(
    cls: type[T], tensor: Tensor, *, generator: Generator | None = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> T:  # fmt: skip
    """Returns normal numbers in the shape of `tensor`, in its dtype and on its device unless others are given.

    >>> Tensor.randn_like(Tensor([[0.0, 0.0]])).shape
    (1, 2)
    """
    chosen, place = dtype or tensor.dtype, device or tensor.device
    return cls.randn(tensor.op.shape, generator=generator, dtype=chosen, device=place, requires_grad=requires_grad)


def _drawn_floats(
    cls: type[T], function: str, make: Callable[[Op, Shape, DType], Op], sizes: tuple[Any, Any],
    generator: Generator | None, dtype: DType | None, device: str | None, requires_grad: bool,
) -> T:  # fmt: skip
    """Returns the tensor that `make` gives for the key of the next draw."""
    place, shape = device_or_default(device), shape_of_sizes(function, *sizes)
    key = (generator or default_generator).next_key(place)
    op = make(key, shape, dtypes.known(function, dtype, dtypes.default_float))
    return _drawn(cls, op, place, requires_grad)


def _drawn(cls: type[T], op: Op, device: str, requires_grad: bool = False) -> T:
    settle_step()
    tensor = cls.from_op(op, device)
    return tensor.requires_grad_() if requires_grad else tensor


# ---- from probabilities ----
def bernoulli(self: T, p: float | None = None, *, generator: Generator | None = None) -> T:
    """Returns 1 with the probability each element says (or with `p`), else 0, in the dtype of self.

    Raises:
      DTypeError:    the elements are the probabilities and no floats.
      ArgumentError: p is not in [0, 1]; when the result is computed: an element is not.

    >>> Tensor([0.0, 1.0]).bernoulli()
    Tensor([0., 1.])
    """
    if p is None:
        chance = probabilities("bernoulli", cast(need_float("bernoulli", self.read()), dtypes.float32))
    else:
        chance = filled(probability("bernoulli", "p", p), dtypes.float32, self.op.shape)
    uniform = uniform_op(random_bits(self.op.shape, generator, self.device), dtypes.float32)
    return self.from_op(cast(less(uniform, chance), self.dtype), self.cell.device)


def multinomial(self: T, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> T:
    """Returns (..., num_samples) positions along the last axis, drawn with its elements as weights.

    Weights are added up as integers, the largest being 2^62 / classes or a bit less: every device has the same sums.
    Without replacement: the places of the least -log(u) / weight (Efraimidis, Spirakis 2006).

    Raises:
      ShapeError:    self has neither one axis nor two.
      ArgumentError: no sample, or more than classes, without replacement; when the result is computed: a weight is
                     negative, infinite or NaN, or all of a row are 0.

    >>> Tensor([0.0, 1.0, 0.0]).multinomial(1)
    Tensor([1])
    """
    num_samples = whole("multinomial", "num_samples", num_samples)
    if num_samples < 1:
        raise ArgumentError(f"multinomial: needs at least one sample, got {num_samples}.")
    mass = detached(self.read())
    shape = mass.shape
    if len(shape) not in (1, 2) or mass.dtype.kind != "f":
        raise ShapeError(f"multinomial: needs float weights with one axis or two, got {mass.dtype} {shape}.")
    classes, is_ordered = shape[-1], not replacement and num_samples > 1
    if (1 if replacement else num_samples) > classes:
        how = "with" if replacement else "without"
        raise ArgumentError(f"multinomial: {how} replacement {classes} classes give no {num_samples} samples.")
    place = self.cell.device or default_device()
    bits = random_bits(shape if is_ordered else (*shape[:-1], num_samples), generator, place)
    if is_ordered:
        return _chosen(self, order_op(mass, bits))[..., :num_samples]
    return _chosen(self, places_op(mass, bits))


def _chosen(self: T, op: Op) -> T:
    """Returns the tensor drawn with these weights, which a loop may go on from."""
    chosen = self.from_op(op, self.cell.device)
    settle_choice(chosen.cell)
    return chosen


# ---- in place ----
def randint_like(
    cls: type[T],
    tensor: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Returns integers from low up to but without high in the shape, dtype and on the device of `tensor`.

    >>> Tensor.randint_like(Tensor([0.0, 0.0]), 7, 8)
    Tensor([7., 7.])
    """
    place = tensor.device if device is None else device
    if high is None:
        low, high = 0, low
    shape = tensor.op.shape
    made = cls.randint(low, high, shape, generator=generator, dtype=dtype or tensor.dtype, device=place)
    return made.requires_grad_() if requires_grad else made


def uniform_(self: T, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores uniform numbers from [low, high) in place.

    Raises:
      ArgumentError: low is above high.

    >>> Tensor.zeros(2).uniform_(1.0, 1.0)
    Tensor([1., 1.])
    """
    if not low <= high:
        raise ArgumentError(f"uniform_: low must not be above high, got {low} and {high}.")
    op = uniform_op(random_bits(self.op.shape, generator, self.device), self.dtype, "uniform_")
    return store_drawn(self, "uniform_", op * (high - low) + low)


def normal_(self: T, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores numbers of the normal distribution with `mean` and deviation `std` in place.

    Raises:
      ArgumentError: std is negative, or NaN.

    >>> Tensor.zeros(2).normal_(5.0, 0.0)
    Tensor([5., 5.])
    """
    check_nonnegative("normal_", "std", std)
    op = normal_op(random_bits(self.op.shape, generator, self.device), self.dtype, "normal_")
    return store_drawn(self, "normal_", op * std + mean)


def store_drawn(self: T, function: str, op: Op) -> T:
    self.cell.device = self.cell.device or default_device()
    return self.write(function, op)


# ---- on Ops ----
def random_bits(shape: Shape, generator: Generator | None, device: str) -> Op:
    """Returns 64 random bits for each element: threefry of its index, with the key of the next draw."""
    return _bits_of((generator or default_generator).next_key(device), shape)


@formula
def _bits_of(key: Op, shape: Shape) -> Op:
    count = static_numel(shape)
    bits = Op(OpCode.THREEFRY, dtypes.uint64, (iota(count, dtypes.uint64), broadcast_to(key, (count,))))
    return reshape(bits, shape)


@formula
def uniform_op(bits: Op, dtype: DType, function: str = "rand") -> Op:
    """Returns the top bits as a fraction in [0, 1): as many as the mantissa holds, so that nothing is rounded."""
    if not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.", hint="Tensor.randint(low, high, size)")
    digits = dtype.precision
    return cast(cast(shr(bits, 64 - digits), dtype.compute_dtype) * 2.0**-digits, dtype)


@formula
def normal_op(bits: Op, dtype: DType, function: str = "randn") -> Op:
    """Returns sqrt(-2 ln u) cos(2 pi v), u in (0, 1] from the upper half of the bits and v from the lower.

    Every device gives the same bits: SQRT is rounded correctly, and the rest is in tensor/random.py.
    """
    if not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.")
    wide = dtype.compute_dtype
    upper = (cast(cast(shr(bits, 32), dtypes.uint32), wide) + 1.0) * 2.0**-32
    radius = unary(OpCode.SQRT, log_alike(upper) * -2.0)
    return cast(radius * cosine_of_turns(cast(bits, dtypes.int32), wide), dtype)


@formula
def _rand_op(key: Op, shape: Shape, dtype: DType) -> Op:
    return uniform_op(_bits_of(key, shape), dtype)


@formula
def _randn_op(key: Op, shape: Shape, dtype: DType) -> Op:
    return normal_op(_bits_of(key, shape), dtype)


@formula
def _randint_op(key: Op, shape: Shape, low: int, high: int, dtype: DType) -> Op:
    return cast(integers_op(_bits_of(key, shape), low, high), dtype)


@formula
def exponential_op(bits: Op, dtype: DType) -> Op:
    """Returns -log(u) with u evenly from (0, 1], in float32 or float64; above 0 where u is 1, as if u were just below."""
    return maximum(-log_alike(-uniform_op(bits, dtype) + 1.0), 2.0 ** -(dtype.precision + 1))


@formula
def gumbel_op(bits: Op, dtype: DType) -> Op:
    """Returns numbers of Gumbel's distribution, -log(-log(u)), in a float dtype."""
    return cast(-log_alike(exponential_op(bits, dtype.compute_dtype)), dtype)


@formula
def order_op(mass: Op, bits: Op) -> Op:
    """Returns the places along the last axis in a random order, those of greater weights sooner."""
    mass = _shares(mass)
    keys = exponential_op(bits, mass.dtype) / mass
    return argsort(keys, len(mass.shape) - 1)


@formula
def places_op(mass: Op, bits: Op) -> Op:
    """Returns places along the last axis (..., N) drawn with its elements as weights, one for each of `bits` (..., M)."""
    last, classes = len(mass.shape) - 1, static(mass.shape[-1])
    shares = cast(_shares(mass) * 2.0 ** (62 - classes.bit_length()), dtypes.int64)
    bounds = scan(shares, OpCode.ADD, last)
    total = broadcast_to(cast(shrink_axis(bounds, last, classes - 1, classes), dtypes.uint64), bits.shape)
    return lower_bound(bounds, cast(part_of(total, bits), dtypes.int64), classes, True)


def _shares(mass: Op) -> Op:
    """Returns weights as parts of the largest of a row; when computed, a negative, infinite or NaN one is an error."""
    mass = weights("multinomial", cast(mass, mass.dtype.compute_dtype))
    greatest = reduce(mass, OpCode.MAX, (len(mass.shape) - 1,), keepdim=True)
    is_above_0 = less(0, greatest)
    return mass / broadcast_to(guarded(greatest, is_above_0, "multinomial: all weights of a row are 0."), mass.shape)


def integers_op(bits: Op, low: int, high: int) -> Op:
    """Returns int64 integers from low up to but without high."""
    return cast(part_of(high - low, bits), dtypes.int64) + low


# ---- further distributions ----
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
    return store_drawn(self, "bernoulli_", cast(less(uniform, chance), self.dtype))


def exponential_(self: T, lambd: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores numbers x > 0 with density lambd e^(-lambd x) in place: -log(u) / lambd.

    Raises:
      ArgumentError: lambd is not positive.
      DTypeError:    self is not a float.

    >>> bool((Tensor.zeros(5).exponential_() > 0).all())
    True
    """
    need_float("exponential_", self.op)
    check_positive("exponential_", "lambd", lambd)
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
      DTypeError:    self is not a float.

    >>> bool((Tensor.zeros(5).log_normal_() > 0).all())
    True
    """
    need_float("log_normal_", self.op)
    check_positive("log_normal_", "std", std)
    op = normal_op(_bits(self, generator), self.dtype.compute_dtype)
    return store_drawn(self, "log_normal_", exp_alike(op * std + mean))


def cauchy_(self: T, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores numbers of Cauchy's distribution, median + sigma * tan(pi (u - 1/2)), in place: a sine over a cosine.

    Raises:
      ArgumentError: sigma is not positive.
      DTypeError:    self is not a float.

    >>> Tensor.zeros(2).cauchy_().shape
    (2,)
    """
    need_float("cauchy_", self.op)
    check_positive("cauchy_", "sigma", sigma)
    wide = self.dtype.compute_dtype
    turns = cast(_bits(self, generator), wide.signed)
    half = shr(turns, 1)  # from -1/4 of a turn up to 1/4
    quarter = 1 << (turns.dtype.bits - 2)
    tangent = cosine_of_turns(half - quarter, wide) / cosine_of_turns(half, wide)
    return store_drawn(self, "cauchy_", tangent * sigma + median)


def fill_truncated(self: T, mean: float, std: float, a: float, b: float, generator: Generator | None) -> T:
    """Stores normal numbers between a and b in place: see nn.init.trunc_normal_."""
    need_float("trunc_normal_", self.op)
    check_positive("trunc_normal_", "std", std)
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

    Without bounds: up to the largest of an integer dtype, to 2^digits of a float.

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
