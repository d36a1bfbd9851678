"""Random tensors: threefry of (key, element index), so that every device and every order gives the same bits.

In:    shapes, and a Generator whose state is a tensor cell
Out:   `Random`, `Generator`, `manual_seed`
Next:  picograd/tensor/creation/probabilities.py

Draw number n of a generator has the key threefry(n, seed); element i of it has the bits threefry(i, key).
Outside a trace the number is known on the host and enters the graph as a small buffer, so that equal draws are equal
programs. Inside a trace the cell holds it, as state that the captured plan advances. A draw outside a jitted function
advances at once, whatever becomes of what it was drawn for; a jitted call that raises has drawn nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.realize import from_host, realize, to_host
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import compare, iota, reshape, unary
from picograd.ir.op import Op, Shape, const, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import broadcast_to, cast, detached, whole
from picograd.tensor.cell import Cell, set_op, trace
from picograd.tensor.core import TensorCore
from picograd.tensor.creation.constants import Creation, shape_of_sizes
from picograd.tensor.creation.probabilities import not_all_zero, probabilities, probability, weights
from picograd.tensor.exchange.host import default_device, device_named

MANTISSA_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3": 4, "float8_e5m2": 3}


class GeneratorState:
    """Where one device stands in the sequence.

    seed, count:  cells of one uint64 each
    known:        an Op and the count in it: what the host knows while the cell holds that Op (a plan may have advanced it)
    """

    def __init__(self, seed: int, device: str):
        self.seed = Cell(_word(seed, device), device)
        self.count = Cell(_word(0, device), device)
        self.known = self.count.op, 0


class Generator:
    """A sequence of random bits that a seed decides. Each device runs through the same sequence.

    >>> a, b = Generator(1), Generator(1)
    >>> bool((Tensor.rand(3, generator=a) == Tensor.rand(3, generator=b)).all())
    True
    """

    def __init__(self, seed: int | None = None):
        self.states: dict[str, GeneratorState] = {}
        self._made_in = trace.get()
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the sequence of `seed` anew on every device; returns self.

        Raises:
          ArgumentError: seed is no integer.

        >>> a = Generator(1)
        >>> Tensor.rand(2, generator=a)
        Tensor([0.8626317, 0.6300258])
        >>> Tensor.rand(2, generator=a.manual_seed(1))
        Tensor([0.8626317, 0.6300258])
        """
        if trace.get() not in (None, self._made_in):
            self.state(default_device())  # so that the second trace finds what the first finds
        self.initial_seed = whole("manual_seed", "seed", seed) & (2**64 - 1)
        for state in self.states.values():
            device = state.seed.device or default_device()
            set_op(state.seed, _word(self.initial_seed, device))
            set_op(state.count, _word(0, device))
            state.known = state.count.op, 0
        return self

    def state(self, device: str) -> GeneratorState:
        """Returns the state on a device, made when first asked for."""
        if device not in self.states:
            token = trace.set(self._made_in)  # it is as old as its generator, also when a later trace asks first
            try:
                self.states[device] = GeneratorState(self.initial_seed, str(device))
            finally:
                trace.reset(token)
        return self.states[device]

    def next_key(self, device: str) -> Op:
        """Returns the uint64 key of the next draw, and advances."""
        state = self.state(device)
        active = trace.get()
        if active is not None:
            active.on_read(state.seed)
            active.on_read(state.count)
            number = state.count.op
            set_op(state.count, _plus_one(number))
        else:
            number = state.count.op
            held, known = state.known
            known = 1 + (known if held is number else int(to_host(realize([number])[0])))
            state.count.op = after = _word(known, device)
            state.known = after, known
        return Op(OpCode.THREEFRY, dtypes.uint64, (number, state.seed.op))


def _word(value: int, device: str) -> Op:
    return from_host(np.array(value, dtype=np.uint64), dtypes.uint64, device)


def _plus_one(number: Op) -> Op:
    """Returns number + 1, with one ADD however often it is applied."""
    if number.code is OpCode.ADD and number.src[1].code is OpCode.CONST:
        return number.src[0] + const(int(number.src[1].arg) + 1, number.dtype)
    return number + const(1, number.dtype)


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Starts the default generator's sequence of `seed`; returns the generator.

    >>> _ = manual_seed(7)
    """
    return default_generator.manual_seed(seed)


class Random(Creation):
    """rand randn randint randperm bernoulli multinomial, and in place uniform_ normal_."""

    __slots__ = ()

    @classmethod
    def rand(
        cls,
        *shape: Any,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Returns numbers of `shape` evenly from [0, 1), multiples of 2^-24 (float32).

        Raises:
          DTypeError: dtype is no float.

        >>> Tensor.rand(2, generator=Generator(1))
        Tensor([0.8626317, 0.6300258])
        """
        return cls._drawn_floats("rand", uniform_op, shape, generator, dtype, device, requires_grad)

    @classmethod
    def randn(
        cls,
        *shape: Any,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Returns numbers of `shape` from the normal distribution, mean 0 and variance 1 (Box and Muller 1958).

        Raises:
          DTypeError: dtype is no float.

        >>> Tensor.randn(2, generator=Generator(1))
        Tensor([-0.49724534, -0.7225695 ])
        """
        return cls._drawn_floats("randn", normal_op, shape, generator, dtype, device, requires_grad)

    @classmethod
    def randint(
        cls,
        low: int,
        high: int | None = None,
        size: Any = (),
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
    ) -> Self:
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
        place = device_named(device) if device is not None else default_device()
        op = integers_op(random_bits(lengths, generator, place), low, high)
        return cls._drawn(cast(op, dtypes.known("randint", dtype, dtypes.int64)), place)

    @classmethod
    def randperm(
        cls, n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: str | None = None
    ) -> Self:
        """Returns the integers 0..n-1 in a random order.

        >>> Tensor.randperm(5, generator=Generator(1))
        Tensor([3, 2, 1, 4, 0])
        """
        place = device_named(device) if device is not None else default_device()
        bits = random_bits(shape_of_sizes("randperm", (whole("randperm", "n", n),)), generator, place)
        order = Op(OpCode.SORT, dtypes.int64, (bits,), (0, False))
        return cls._drawn(cast(order, dtypes.known("randperm", dtype, dtypes.int64)), place)

    @classmethod
    def rand_like(
        cls, tensor: TensorCore, *, generator: Generator | None = None, dtype: DType | None = None,
        device: str | None = None, requires_grad: bool = False,
    ) -> Self:  # fmt: skip
        """Returns uniform numbers in the shape of `tensor`, in its dtype and on its device unless others are given.

        >>> Tensor.rand_like(Tensor([[0.0, 0.0]])).shape
        (1, 2)
        """
        chosen, place = dtype or tensor.dtype, device or tensor.device
        return cls.rand(tensor.op.shape, generator=generator, dtype=chosen, device=place, requires_grad=requires_grad)

    @classmethod
    def randn_like(
        cls, tensor: TensorCore, *, generator: Generator | None = None, dtype: DType | None = None,
        device: str | None = None, requires_grad: bool = False,
    ) -> Self:  # fmt: skip
        """Returns normal numbers in the shape of `tensor`, in its dtype and on its device unless others are given.

        >>> Tensor.randn_like(Tensor([[0.0, 0.0]])).shape
        (1, 2)
        """
        chosen, place = dtype or tensor.dtype, device or tensor.device
        return cls.randn(tensor.op.shape, generator=generator, dtype=chosen, device=place, requires_grad=requires_grad)

    @classmethod
    def _drawn_floats(
        cls, function: str, make: Callable[[Op, DType], Op], shape: tuple[Any, ...], generator: Generator | None,
        dtype: DType | None, device: str | None, requires_grad: bool,
    ) -> Self:  # fmt: skip
        """Returns what `make` makes of fresh random bits."""
        lengths = shape_of_sizes(function, shape)
        place = device_named(device) if device is not None else default_device()
        op = make(random_bits(lengths, generator, place), dtype or dtypes.default_float)
        return cls._drawn(op, place, requires_grad)

    @classmethod
    def _drawn(cls, op: Op, device: str, requires_grad: bool = False) -> Self:
        tensor = cls.from_op(op, device)
        return tensor.requires_grad_() if requires_grad else tensor

    # ---- from probabilities ----
    def bernoulli(self, p: float | None = None, *, generator: Generator | None = None) -> Self:
        """Returns 1 with the probability each element says (or with `p`), else 0, in the dtype of self.

        Raises:
          DTypeError:    the elements are the probabilities and no floats.
          ArgumentError: p is not in [0, 1]; when it is computed: an element is not.

        >>> Tensor([0.0, 1.0]).bernoulli()
        Tensor([0., 1.])
        """
        if p is None and not self.dtype.is_float:
            raise DTypeError(f"bernoulli: probabilities must be floats, got {self.dtype} of shape {self.shape}.")
        uniform = uniform_op(random_bits(self.op.shape, generator, self.device), dtypes.float32)
        if p is None:
            chance = probabilities("bernoulli", self.read())
        else:
            chance = filled(probability("bernoulli", p), dtypes.float32, self.op.shape)
        return self.from_op(cast(compare(OpCode.CMPLT, uniform, chance), self.dtype), self.cell.device)

    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Self:
        """Returns (..., num_samples) positions along the last axis, drawn with its elements as weights.

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
        if self.ndim not in (1, 2) or not self.dtype.is_float:
            raise ShapeError(f"multinomial: needs float weights with one axis or two, got {self.dtype} {self.shape}.")
        classes = self.shape[-1]
        mass = self.from_op(weights("multinomial", detached(self.read())), self.cell.device)
        if not replacement and num_samples > 1:
            if num_samples > classes:
                raise ArgumentError(f"multinomial: without replacement {classes} classes give no {num_samples} samples.")
            uniform = type(self).rand_like(self, generator=generator)
            keys = (-((1 - uniform).log()) / mass).read()
            keys = not_all_zero("multinomial", keys, mass.sum(-1, keepdim=True).read())
            order = self.from_op(Op(OpCode.SORT, dtypes.int64, (keys,), (self.ndim - 1, False)), self.cell.device)
            return order[..., :num_samples]
        bounds = mass.cumsum(-1)
        last = bounds[..., -1:].read()
        total = self.from_op(not_all_zero("multinomial", last, last), self.cell.device)
        uniform = type(self).rand(
            (*self.shape[:-1], num_samples), generator=generator, dtype=self.dtype, device=self.device
        )
        return bounds.searchsorted(uniform * total, right=True).clamp(max=classes - 1)

    # ---- in place ----
    def uniform_(self, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Stores numbers evenly from [low, high) in place.

        Raises:
          ArgumentError: low is above high.

        >>> Tensor.zeros(2).uniform_(1.0, 1.0)
        Tensor([1., 1.])
        """
        if low > high:
            raise ArgumentError(f"uniform_: low must not be above high, got {low} and {high}.")
        op = uniform_op(random_bits(self.op.shape, generator, self.device), self.dtype, "uniform_")
        return self._store_drawn("uniform_", op * (high - low) + low)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Self:
        """Stores numbers of the normal distribution with `mean` and deviation `std` in place.

        Raises:
          ArgumentError: std is negative.

        >>> Tensor.zeros(2).normal_(5.0, 0.0)
        Tensor([5., 5.])
        """
        if std < 0:
            raise ArgumentError(f"normal_: std must not be negative, got {std}.")
        op = normal_op(random_bits(self.op.shape, generator, self.device), self.dtype, "normal_")
        return self._store_drawn("normal_", op * std + mean)

    def _store_drawn(self, function: str, op: Op) -> Self:
        self.cell.device = self.cell.device or default_device()
        return self.write(function, op)


# ---- on Ops ----
def random_bits(shape: Shape, generator: Generator | None, device: str) -> Op:
    """Returns 64 random bits for each element: threefry of its index, with the key of the next draw."""
    key = (generator or default_generator).next_key(device)
    count = 1
    for dim in shape:
        count *= int(dim)
    bits = Op(OpCode.THREEFRY, dtypes.uint64, (iota(count, dtypes.uint64), broadcast_to(key, (count,))))
    return reshape(bits, shape)


def uniform_op(bits: Op, dtype: DType, function: str = "rand") -> Op:
    """Returns the top bits as a fraction in [0, 1): as many as the mantissa holds, so that nothing is rounded."""
    if not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.", hint="Tensor.randint(low, high, size)")
    digits = MANTISSA_BITS[dtype.name]
    wide = dtype if dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    return cast(cast(_shifted(bits, 64 - digits), wide) * 2.0**-digits, dtype)


def normal_op(bits: Op, dtype: DType, function: str = "randn") -> Op:
    """Returns sqrt(-2 ln u) cos(2 pi v), u in (0, 1] from the upper half of the bits and v from the lower."""
    if not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.")
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    upper = (cast(_shifted(bits, 32), wide) + 1.0) * 2.0**-32
    lower = cast(Op(OpCode.AND, bits.dtype, (bits, filled(2**32 - 1, bits.dtype, bits.shape))), wide) * 2.0**-32
    radius = unary(OpCode.SQRT, unary(OpCode.LOG, upper) * -2.0)
    return cast(radius * unary(OpCode.COS, lower * (2 * math.pi)), dtype)


def integers_op(bits: Op, low: int, high: int) -> Op:
    """Returns int64 integers from low up to but without high: the upper bits times the count, shifted back."""
    count = high - low
    if count <= 2**32:
        scaled = _shifted(_shifted(bits, 32) * count, 32)
    else:
        scaled = Op(OpCode.MOD, bits.dtype, (bits, filled(count, bits.dtype, bits.shape)))
    return cast(scaled, dtypes.int64) + low


def _shifted(bits: Op, places: int) -> Op:
    return Op(OpCode.SHR, bits.dtype, (bits, filled(places, bits.dtype, bits.shape)))
