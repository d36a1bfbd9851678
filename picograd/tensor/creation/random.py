"""Random tensors: threefry of (key, element index), so that every device and every order gives the same bits.

In:    shapes, and a Generator
Out:   `Random`; `random_bits` and what is made of them
Next:  picograd/tensor/creation/alike.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import compare, iota, maximum, reduce, reshape, shrink_axis, unary
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import broadcast_to, cast, detached, need_float, static, static_numel, whole
from picograd.tensor.core import T
from picograd.tensor.creation.alike import cosine_of_turns, log_alike, part_of
from picograd.tensor.creation.constants import shape_of_sizes
from picograd.tensor.creation.generator import Generator, default_generator
from picograd.tensor.creation.places import lower_bound
from picograd.tensor.creation.probabilities import not_all_zero, probabilities, probability, weights
from picograd.tensor.exchange.host import default_device, device_or_default
from picograd.tensor.formulas import formula
from picograd.tensor.growth import settle_choice, settle_step

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


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
      DTypeError: dtype is no float.

    >>> Tensor.rand(2, generator=Generator(1))
    Tensor([0.8626317, 0.6300258])
    """
    return _drawn_floats(cls, uniform_op, shape_of_sizes("rand", shape, size), generator, dtype, device, requires_grad)


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
      DTypeError: dtype is no float.

    >>> Tensor.randn(2, generator=Generator(1))
    Tensor([-0.49724522, -0.72256964])
    """
    return _drawn_floats(cls, normal_op, shape_of_sizes("randn", shape, size), generator, dtype, device, requires_grad)


def randint(
    cls: type[T],
    low: int,
    high: int | None = None,
    size: Any = (),
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
) -> T:
    """Returns integers of shape `size` from low up to but without high; randint(high, size=...) counts from 0.

    Raises:
      ArgumentError: there is no integer between low and high.

    >>> Tensor.randint(10, size=(4,), generator=Generator(1))
    Tensor([8, 6, 1, 0])
    """
    if high is None or not isinstance(high, int):
        low, high, size = 0, low, size if high is None else high
    low, high = whole("randint", "low", low), whole("randint", "high", high)
    if low >= high:
        raise ArgumentError(f"randint: there is no integer from {low} up to but without {high}.")
    lengths = shape_of_sizes("randint", (size,))
    place = device_or_default(device)
    op = integers_op(random_bits(lengths, generator, place), low, high)
    return _drawn(cls, cast(op, dtypes.known("randint", dtype, dtypes.int64)), place)


def randperm(
    cls: type[T], n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: str | None = None
) -> T:
    """Returns the integers 0..n-1 in a random order.

    >>> Tensor.randperm(5, generator=Generator(1))
    Tensor([3, 2, 1, 4, 0])
    """
    place = device_or_default(device)
    bits = random_bits(shape_of_sizes("randperm", (whole("randperm", "n", n),)), generator, place)
    order = Op(OpCode.SORT, dtypes.int64, (bits,), (0, False))
    return _drawn(cls, cast(order, dtypes.known("randperm", dtype, dtypes.int64)), place)


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
    cls: type[T], make: Callable[[Op, DType], Op], shape: Shape, generator: Generator | None,
    dtype: DType | None, device: str | None, requires_grad: bool,
) -> T:  # fmt: skip
    """Returns what `make` makes of fresh random bits."""
    place = device_or_default(device)
    op = make(random_bits(shape, generator, place), dtype or dtypes.default_float)
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
      ArgumentError: p is not in [0, 1]; when it is computed: an element is not.

    >>> Tensor([0.0, 1.0]).bernoulli()
    Tensor([0., 1.])
    """
    if p is None:
        chance = probabilities("bernoulli", cast(need_float("bernoulli", self.read()), dtypes.float32))
    else:
        chance = filled(probability("bernoulli", "p", p), dtypes.float32, self.op.shape)
    uniform = uniform_op(random_bits(self.op.shape, generator, self.device), dtypes.float32)
    return self.from_op(cast(compare(OpCode.CMPLT, uniform, chance), self.dtype), self.cell.device)


def multinomial(self: T, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> T:
    """Returns (..., num_samples) positions along the last axis, drawn with its elements as weights.

    Weights are added up as integers, the greatest being 2^62 / classes or a bit less: every device has the same sums.
    Without replacement: the places of the least -log(u) / weight (Efraimidis, Spirakis 2006).

    Raises:
      ShapeError:    self has neither one axis nor two.
      ArgumentError: no sample, or more than classes, without replacement; when it is computed: a weight is
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
    classes, is_ordered = self.shape[-1], not replacement and num_samples > 1
    if (1 if replacement else num_samples) > classes:
        how = "with" if replacement else "without"
        raise ArgumentError(f"multinomial: {how} replacement {classes} classes give no {num_samples} samples.")
    place = self.cell.device or default_device()
    bits = random_bits(shape if is_ordered else (*shape[:-1], num_samples), generator, place)
    if is_ordered:
        return _chosen(self, order_op(mass, bits))[..., :num_samples]
    return _chosen(self, places_op(mass, bits))


def _chosen(self: T, op: Op) -> T:
    """Returns what was drawn with these weights, which a loop may go on from."""
    chosen = self.from_op(op, self.cell.device)
    settle_choice(chosen.cell)
    return chosen


# ---- in place ----
def randint_like(
    cls: type[T],
    tensor: Tensor,
    low: int,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
) -> T:
    """Returns integers from low up to but without high in the shape, dtype and on the device of `tensor`.

    >>> Tensor.randint_like(Tensor([0.0, 0.0]), 7, 8)
    Tensor([7., 7.])
    """
    place = tensor.device if device is None else device
    if high is None:
        low, high = 0, low
    shape = tensor.op.shape
    return cls.randint(low, high, shape, generator=generator, dtype=dtype or tensor.dtype, device=place)


def uniform_(self: T, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> T:
    """Stores numbers evenly from [low, high) in place.

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
    if not std >= 0:
        raise ArgumentError(f"normal_: std must not be negative, got {std}.")
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
    return cast(cast(_shifted(bits, 64 - digits), dtype.compute_dtype) * 2.0**-digits, dtype)


@formula
def normal_op(bits: Op, dtype: DType, function: str = "randn") -> Op:
    """Returns sqrt(-2 ln u) cos(2 pi v), u in (0, 1] from the upper half of the bits and v from the lower.

    Every device gives the same bits: SQRT is rounded correctly, and the rest is in tensor/creation/alike.py.
    """
    if not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.")
    wide = dtype.compute_dtype
    upper = (cast(cast(_shifted(bits, 32), dtypes.uint32), wide) + 1.0) * 2.0**-32
    radius = unary(OpCode.SQRT, log_alike(upper) * -2.0)
    return cast(radius * cosine_of_turns(cast(bits, dtypes.int32), wide), dtype)


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
    return Op(OpCode.SORT, dtypes.int64, (keys,), (len(mass.shape) - 1, False))


@formula
def places_op(mass: Op, bits: Op) -> Op:
    """Returns places along the last axis (..., N) drawn with its elements as weights, one for each of `bits` (..., M)."""
    last, classes = len(mass.shape) - 1, static(mass.shape[-1])
    shares = cast(_shares(mass) * 2.0 ** (62 - classes.bit_length()), dtypes.int64)
    bounds = Op(OpCode.SCAN, dtypes.int64, (shares,), (OpCode.ADD, last))
    total = broadcast_to(cast(shrink_axis(bounds, last, classes - 1, classes), dtypes.uint64), bits.shape)
    return lower_bound(bounds, cast(part_of(total, bits), dtypes.int64), classes, True)


def _shares(mass: Op) -> Op:
    """Returns weights as parts of the greatest of a row; when they are computed, one that is none is an error."""
    mass = weights("multinomial", cast(mass, mass.dtype.compute_dtype))
    greatest = reduce(mass, OpCode.MAX, (len(mass.shape) - 1,), keepdim=True)
    return mass / broadcast_to(not_all_zero("multinomial", greatest, greatest), mass.shape)


def integers_op(bits: Op, low: int, high: int) -> Op:
    """Returns int64 integers from low up to but without high."""
    return cast(part_of(high - low, bits), dtypes.int64) + low


def _shifted(bits: Op, places: int) -> Op:
    return Op(OpCode.SHR, bits.dtype, (bits, bits.filled(places)))
