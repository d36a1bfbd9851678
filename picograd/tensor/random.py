"""Random tensors: threefry of (key, element index), so that all devices and orders of evaluation give the same bits.

Devices differ in the last bits of LOG, EXP and COS, which are polynomials or library calls. Random numbers are therefore
made only from integers and from operations that IEEE 754 rounds exactly: ADD, SUB, MUL, DIV, SQRT, FLOOR, MAX, MIN and
casts. No pass reorders these, and no compiler may contract them. FMA is excluded: a processor without the instruction
rounds twice. Logarithm, exponential and cosine of this file are accurate to 2 ulp, and cheap in the range that is needed.
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
    """Returns the natural logarithm of a positive normal float32 or float64.

    x = 2^n m with m from sqrt(1/2) to sqrt(2);  log x = n log 2 + s p(s^2) with s = (m - 1) / (m + 1)
    """
    dtype, integer, digits = x.dtype, x.dtype.signed, x.dtype.mantissa
    bits = bitcast(x, integer)
    n = shr(bits - SQRT_HALF[dtype], digits)  # rounds down
    m = bitcast(bits - shl(n, digits), dtype)
    s = (m - 1.0) / (m + 1.0)
    return cast(n, dtype) * _held(math.log(2), dtype) + s * polynomial(s * s, (2.0, *ATANH[dtype]))


def exp_alike(x: Op) -> Op:
    """Returns e^x of a float32 or float64, with underflow to 0 and overflow to infinity.

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
    """Returns cos(2 pi turns / 2^32) for int32 `turns`, as a sine in a quarter turn, whose angle integers hold exactly.

    Negative t are inverted bit by bit: -1 - t, their mirror image up to 2^-32 of a turn. A turn of int64 is 2^64.
    """
    places = turns.dtype.bits
    folded = xor(turns, shr(turns, places - 1))
    x = cast(folded - (1 << (places - 2)), dtype) * _held(-math.pi / 2 ** (places - 1), dtype)  # at most pi / 2
    return x * polynomial(x * x, (1.0, *WAVE[dtype]))


def normal_quantile(p: Op) -> Op:
    """Returns the quantile of the normal distribution at p, a float32 or float64 in [0, 1].

    Accurate to 4 ulp up to |x| = 8; finite at 0 and 1, too.

    x = c sqrt(2 w + pi / 2) h(t) with c = 2 p - 1, w = -log(1 - c^2) = -log(4 p (1 - p)), t = (5 - w) / (5 + w). In the
    middle and at both ends of the distribution h is 1, and near 1 elsewhere, so one polynomial is enough.
    """
    dtype = p.dtype
    w = -log_alike(maximum((-p + 1.0) * p * 4.0, 2.0 ** (1 - dtype.exponent_bias)))
    t = (-w + 5.0) / (w + 5.0)
    scale = unary(OpCode.SQRT, w * 2.0 + _held(math.pi / 2, dtype))
    return (p * 2.0 - 1.0) * scale * polynomial(t, QUANTILE[dtype])


# ---- integers ----
def part_of(count: Op | int, bits: Op) -> Op:
    """Returns floor(count * bits / 2^64), or up to 2 less, for uint64 `bits`: an integer below `count`.

    The product of the lower halves is left out, and the other products of halves are rounded separately.
    """
    upper, lower = _halves(bits)
    most, rest = divmod(count, 2**32) if isinstance(count, int) else _halves(count)
    part = shr(upper * rest, 32)
    return part if most == 0 else part + upper * most + shr(lower * most, 32)


def _halves(x: Op) -> tuple[Op, Op]:
    """Returns the upper and the lower 32 bits of a uint64."""
    return shr(x, 32), and_(x, 2**32 - 1)


def _held(value: float, dtype: DType) -> float:
    """Returns a number as a constant of `dtype`, rounded here and not by a language."""
    return float(np.dtype(dtype.numpy).type(value))


# ---- probabilities ----
def probability(function: str, name: str, p: float) -> float:
    """Returns an argument that is a probability.

    Raises:
      ArgumentTypeError: it is not a number.
      ArgumentError:     it is not in [0, 1].
    """
    if not 0.0 <= number(function, name, p) <= 1.0:  # also refuses NaN
        raise ArgumentError(f"{function}: {name} must be a probability, got {p}.")
    return p


def probabilities(function: str, op: Op, hint: str | None = None) -> Op:
    """Returns `op`; computing it raises an error with a hint for elements outside [0, 1] and for NaN."""
    inside = both(less_equal(0, op), less_equal(op, 1))
    return guarded(op, inside, f"{function}: a probability is not in [0, 1].", hint)


def weights(function: str, op: Op) -> Op:
    """Returns `op`; computing it raises an error for negative, infinite and NaN elements."""
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
    """Returns uniform numbers in [0, 1) of `shape`, or of the shape `size`: multiples of 2^-24 (float32).

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
    """Returns integers in [low, high) of shape `size`; randint(high, size=...) begins at 0.

    Raises:
      ArgumentError: [low, high) is empty.
      DTypeError:    requires_grad for a dtype that is not a float.

    >>> Tensor.randint(10, size=(4,), generator=Generator(1))
    Tensor([8, 6, 1, 0])
    """
    if high is None or not is_integer(high):
        low, high, size = 0, low, size if high is None else high
    low, high = whole("randint", "low", low), whole("randint", "high", high)
    if low >= high:
        raise ArgumentError(f"randint: no integer is at least {low} and below {high}.")
    lengths = shape_of_sizes("randint", (size,))
    place = device_or_default(device)
    key = (generator or default_generator).next_key(place)
    op = _randint_op(key, lengths, low, high, dtypes.known("randint", dtype, dtypes.int64))
    return _drawn(cls, op, place, requires_grad)


def randperm(
    cls: type[T], n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: str | None = None,
    requires_grad: bool = False,
) -> T:  # fmt: skip
    """Returns a random permutation of 0..n-1.

    Raises:
      DTypeError: requires_grad for a dtype that is not a float.

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
    """Returns uniform numbers in the shape of `tensor`, by default in its dtype and on its device.

    >>> Tensor.rand_like(Tensor([[0.0, 0.0]])).shape
    (1, 2)
    """
    chosen, place = dtype or tensor.dtype, device or tensor.device
    return cls.rand(tensor.op.shape, generator=generator, dtype=chosen, device=place, requires_grad=requires_grad)


def randn_like(
    cls: type[T], tensor: Tensor, *, generator: Generator | None = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> T:  # fmt: skip
    """Returns normal numbers in the shape of `tensor`, by default in its dtype and on its device.

    >>> Tensor.randn_like(Tensor([[0.0, 0.0]])).shape
    (1, 2)
    """
    chosen, place = dtype or tensor.dtype, device or tensor.device
    return cls.randn(tensor.op.shape, generator=generator, dtype=chosen, device=place, requires_grad=requires_grad)


def _drawn_floats(
    cls: type[T], function: str, make: Callable[[Op, Shape, DType], Op], sizes: tuple[Any, Any],
    generator: Generator | None, dtype: DType | None, device: str | None, requires_grad: bool,
) -> T:  # fmt: skip
    """Returns the tensor that `make` returns for the key of the next draw."""
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
    """Returns 1 with the probability in each element (or with `p`), else 0, in the dtype of self.

    Raises:
      DTypeError:    self has the probabilities and is not a float.
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
    """Returns (..., num_samples) positions along the last axis, drawn with the elements as weights.

    Weights are summed as integers, the largest near 2^62 / classes, so all devices have the same sums. Without replacement
    the positions with the least -log(u) / weight are drawn (Efraimidis, Spirakis 2006).

    Raises:
      ShapeError:    self has neither one axis nor two.
      ArgumentError: no sample, or without replacement more than classes; when the result is computed: a weight is negative,
                     infinite or NaN, or a row has only zeros.

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
        raise ArgumentError(f"multinomial: {num_samples} samples cannot be drawn {how} replacement from {classes} classes.")
    place = self.cell.device or default_device()
    bits = random_bits(shape if is_ordered else (*shape[:-1], num_samples), generator, place)
    if is_ordered:
        return _chosen(self, order_op(mass, bits))[..., :num_samples]
    return _chosen(self, places_op(mass, bits))


def _chosen(self: T, op: Op) -> T:
    """Returns the drawn tensor, on which a loop may continue."""
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
    """Returns integers in [low, high) in the shape, dtype and on the device of `tensor`.

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
    """Stores uniform numbers in [low, high) in place.

    Raises:
      ArgumentError: low is above high.

    >>> Tensor.zeros(2).uniform_(1.0, 1.0)
    Tensor([1., 1.])
    """
    if not low <= high:
        raise ArgumentError(f"uniform_: low must be at most high, got {low} and {high}.")
    op = uniform_op(random_bits(self.op.shape, generator, self.device), self.dtype, "uniform_")
    return store_drawn(self, "uniform_", op * (high - low) + low)


def normal_(self: T, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores normal numbers of the given `mean` and standard deviation `std` in place.

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
    """Returns 64 random bits per element: threefry of its index, with the key of the next draw."""
    return _bits_of((generator or default_generator).next_key(device), shape)


@formula
def _bits_of(key: Op, shape: Shape) -> Op:
    count = static_numel(shape)
    bits = Op(OpCode.THREEFRY, dtypes.uint64, (iota(count, dtypes.uint64), broadcast_to(key, (count,))))
    return reshape(bits, shape)


@formula
def uniform_op(bits: Op, dtype: DType, function: str = "rand") -> Op:
    """Returns the top bits as a fraction in [0, 1), as many as the mantissa holds, so without rounding."""
    if not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.", hint="Tensor.randint(low, high, size)")
    digits = dtype.precision
    return cast(cast(shr(bits, 64 - digits), dtype.compute_dtype) * 2.0**-digits, dtype)


@formula
def normal_op(bits: Op, dtype: DType, function: str = "randn") -> Op:
    """Returns sqrt(-2 ln u) cos(2 pi v), u in (0, 1] from the upper half of the bits and v from the lower.

    All devices give the same bits: SQRT is rounded correctly, and the other functions are this file's.
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
    """Returns -log(u) with u uniform in (0, 1], in float32 or float64; always above 0."""
    return maximum(-log_alike(-uniform_op(bits, dtype) + 1.0), 2.0 ** -(dtype.precision + 1))


@formula
def gumbel_op(bits: Op, dtype: DType) -> Op:
    """Returns numbers of the Gumbel distribution, -log(-log(u)), in a float dtype."""
    return cast(-log_alike(exponential_op(bits, dtype.compute_dtype)), dtype)


@formula
def order_op(mass: Op, bits: Op) -> Op:
    """Returns a random permutation along the last axis, in which larger weights tend to be earlier."""
    mass = _shares(mass)
    keys = exponential_op(bits, mass.dtype) / mass
    return argsort(keys, len(mass.shape) - 1)


@formula
def places_op(mass: Op, bits: Op) -> Op:
    """Returns positions along the last axis (..., N), drawn with the elements as weights, for `bits` (..., M)."""
    last, classes = len(mass.shape) - 1, static(mass.shape[-1])
    shares = cast(_shares(mass) * 2.0 ** (62 - classes.bit_length()), dtypes.int64)
    bounds = scan(shares, OpCode.ADD, last)
    total = broadcast_to(cast(shrink_axis(bounds, last, classes - 1, classes), dtypes.uint64), bits.shape)
    return lower_bound(bounds, cast(part_of(total, bits), dtypes.int64), classes, True)


def _shares(mass: Op) -> Op:
    """Returns weights as fractions of the row's largest; negative, infinite and NaN ones raise an error when computed."""
    mass = weights("multinomial", cast(mass, mass.dtype.compute_dtype))
    greatest = reduce(mass, OpCode.MAX, (len(mass.shape) - 1,), keepdim=True)
    is_above_0 = less(0, greatest)
    return mass / broadcast_to(guarded(greatest, is_above_0, "multinomial: all weights of a row are 0."), mass.shape)


def integers_op(bits: Op, low: int, high: int) -> Op:
    """Returns int64 integers in [low, high)."""
    return cast(part_of(high - low, bits), dtypes.int64) + low


# ---- further distributions ----
def _bits(self: T, generator: Generator | None) -> Op:
    return random_bits(self.op.shape, generator, self.device)


def bernoulli_(self: T, p: float | Tensor = 0.5, *, generator: Generator | None = None) -> T:
    """Stores 1 with probability `p` (a number, or a tensor of self's shape), else 0, in place.

    Raises:
      ArgumentError: p is not in [0, 1] (a tensor: when it is computed).

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
    """Stores the number of tries, 1, 2, ..., until the first success with probability `p`, in place.

    Raises:
      ArgumentError: p is not in (0, 1].

    >>> Tensor.zeros(2).geometric_(1.0)
    Tensor([1., 1.])
    """
    if not 0 < p <= 1:
        raise ArgumentError(f"geometric_: p must be in (0, 1], got {p}.")
    failures = 0.0 if p == 1 else -1.0 / math.log1p(-p)
    wide = self.dtype.compute_dtype if self.dtype.is_float else dtypes.float32
    drawn = exponential_op(_bits(self, generator), wide)
    return store_drawn(self, "geometric_", unary(OpCode.FLOOR, drawn * failures) + 1.0)


def log_normal_(self: T, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> T:
    """Stores exp of normal numbers with the given `mean` and standard deviation `std`, in place.

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
    """Stores numbers of the Cauchy distribution, median + sigma * tan(pi (u - 1/2)), in place: a sine over a cosine.

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
    """Stores normal numbers truncated to [a, b] in place: see nn.init.trunc_normal_."""
    need_float("trunc_normal_", self.op)
    check_positive("trunc_normal_", "std", std)
    if not a <= b:
        raise ArgumentError(f"trunc_normal_: a must be at most b, got {a} and {b}.")
    scale, ends = std, ((a - mean) / std, (b - mean) / std)
    if sum(ends) > 0:  # the mirror image: small probabilities have more digits
        scale, ends = -std, (-ends[1], -ends[0])
    low, high = (0.5 * math.erfc(-end / math.sqrt(2)) for end in ends)
    far = high < 2.0**-50  # eight standard deviations, where the polynomial ends: in float64 it is off by 2e-4 at 20
    wide = dtypes.float64 if far else self.dtype.compute_dtype
    part = uniform_op(_bits(self, generator), wide) * (high - low) + low
    drawn = minimum(maximum(normal_quantile(part) * scale + mean, a), b)
    return store_drawn(self, "trunc_normal_", drawn)


def random_(self: T, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> T:
    """Stores integers in [low, high) in place; random_(high) begins at 0.

    Default bounds: up to the maximum of an integer dtype, or to 2^digits for a float.

    Raises:
      ArgumentError: [low, high) is empty.

    >>> Tensor.zeros(2).random_(7, 8)
    Tensor([7., 7.])
    """
    if high is None and low != 0:
        low, high = 0, low
    if high is None:
        high = 1 + (2**self.dtype.precision if self.dtype.is_float else min(int(self.dtype.max), 2**63 - 2))
    low, high = whole("random_", "low", low), whole("random_", "high", high)
    if low >= high:
        raise ArgumentError(f"random_: no integer is at least {low} and below {high}.")
    op = integers_op(_bits(self, generator), low, high)
    return store_drawn(self, "random_", cast(op, self.dtype))
