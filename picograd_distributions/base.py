"""The common part of distributions: shapes, sampling and moments, from each distribution's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.core import Size
from picograd.tensor.free_functions import where
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.constraints import Constraint, independent, satisfied

Number = Tensor | float
Sizes = Sequence[int]


class NoFormulaError(ArgumentError, NotImplementedError):
    """A moment, density, divergence or sample for which a distribution has no formula."""


class Distribution:
    """A distribution of values of shape event_shape, for each index of batch_shape.

    A sample has the shape sample_shape + batch_shape + event_shape; log_prob sums over the event.

    Parameters and the arguments of log_prob and cdf are checked, unless validate_args is False: an ArgumentError names the
    parameter, the rule, and a number that breaks it. By default only values that the host knows are checked: numbers, and
    tensors computed on the CPU. Pending results, such as a network's, and arguments of traced functions are not checked, so
    a check never computes anything early or additionally. With validate_args=True these are checked, too, by the kernels
    that read them, also inside jit; the error comes when they are computed and names the line that made the distribution.
    PyTorch always checks, and waits for the values.

    has_rsample:      whether gradients flow from samples to the parameters
    has_enumerate_support:  whether the support can be enumerated
    arg_constraints:  the rule of each parameter, by name, in the order of the constructor
    support:          the rule of a value; None: no rule
    parameters:       names of the given parameters
    """

    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    arg_constraints: Mapping[str, Constraint] = {}
    support: Constraint | None = None
    _validate_args: bool | None = None  # None: check values that the host knows

    def __init__(self, batch_shape: Sizes = (), event_shape: Sizes = (), validate_args: bool | None = None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        self.parameters = tuple([name for name in self.arg_constraints if name in vars(self)])
        for name in self.parameters:
            setattr(self, name, self._checked(name, getattr(self, name)))

    @staticmethod
    def set_default_validate_args(value: bool | None) -> None:
        """Sets the default of validate_args.

        Args:
          value:  True: check everything; False: nothing; None, the default: values that the host knows

        >>> pg.distributions.Distribution.set_default_validate_args(False)
        >>> pg.distributions.Normal(0.0, -1.0).scale
        Tensor(-1.)
        >>> pg.distributions.Distribution.set_default_validate_args(None)
        """
        Distribution._validate_args = value

    def _checked(self, name: str, value: Tensor, constraint: Constraint | None = None) -> Tensor:
        """Returns a parameter, with an error if it violates its constraint, or the given one."""
        if self._validate_args is False:
            return value
        constraint = constraint or self.arg_constraints[name]
        return cast(Tensor, satisfied(type(self).__name__, name, constraint, value, self._validate_args is True))

    def _supported(self, value: Number) -> Tensor:
        """Returns a value as a tensor, with an error if it is outside the support."""
        value = self._as_tensor(value)
        if self._validate_args is False or self.support is None:
            return value
        return cast(Tensor, satisfied(type(self).__name__, "value", self.support, value, self._validate_args is True))

    def _as_tensor(self, value: Number) -> Tensor:
        """Returns a value as a tensor; a number gets the dtype and device of the parameters."""
        if isinstance(value, Tensor):
            return value
        given = [one for one in vars(self).values() if isinstance(one, Tensor) and one.dtype.is_float]
        return given[0].new_tensor(value) if given else Tensor(value, dtypes.default_float)

    # ---- draws ----
    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        """Returns samples, without gradient.

        Args:
          sample_shape: shape of independent samples

        >>> pg.distributions.Normal(0.0, 1.0).sample((2, 3)).shape
        (2, 3)
        """
        with no_grad():
            return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        """Returns samples through which gradients flow to the parameters.

        Args:
          sample_shape: shape of independent samples

        Raises:
          NoFormulaError: this distribution does not have such samples.

        >>> mean = Tensor(0.0, requires_grad=True)
        >>> pg.distributions.Normal(mean, 1.0).rsample((4,)).sum().backward()
        >>> mean.grad
        Tensor(4.)
        """
        raise NoFormulaError(
            f"rsample: no gradient flows through a draw of {type(self).__name__}.",
            hint="(distribution.log_prob(distribution.sample()) * reward).mean() has one.",
        )

    def sample_n(self, n: int) -> Tensor:
        """Returns n samples: sample((n,))."""
        return self.sample((n,))

    # ---- formulas ----
    def log_prob(self, value: Number) -> Tensor:
        """Returns the logarithm of a value's density or probability: sample_shape + batch_shape.

        Raises:
          ArgumentError: the value is outside the support.
        """
        return self._log_prob(self._supported(value))

    def _log_prob(self, value: Tensor) -> Tensor:
        raise self._lacks("log_prob")

    def cdf(self, value: Number) -> Tensor:
        """Returns the probability that a sample is at most a value."""
        return self._cdf(self._supported(value))

    def _cdf(self, value: Tensor) -> Tensor:
        raise self._lacks("cdf")

    def icdf(self, value: Number) -> Tensor:
        """Returns the x with cdf(x) = value."""
        return self._icdf(self._as_tensor(value))

    def _icdf(self, value: Tensor) -> Tensor:
        raise self._lacks("icdf")

    def entropy(self) -> Tensor:
        """Returns -E log_prob, of shape batch_shape, in nats."""
        raise self._lacks("entropy")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns every value of a finite support, along a new first axis.

        Args:
          expand:  False: keep the axes of batch_shape at length 1
        """
        raise self._lacks("enumerate_support")

    @property
    def mean(self) -> Tensor:
        """The expectation."""
        raise self._lacks("mean")

    @property
    def mode(self) -> Tensor:
        """The value with the largest density."""
        raise self._lacks("mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared deviation from the mean."""
        raise self._lacks("variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def perplexity(self) -> Tensor:
        """Returns exp of the entropy."""
        return self.entropy().exp()

    def _lacks(self, name: str) -> NoFormulaError:
        return NoFormulaError(f"{name}: {type(self).__name__} has no formula for it.")

    # ---- shapes ----
    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape

    def expand(self, batch_shape: Sizes, _instance: Self | None = None) -> Self:
        """Returns the distribution with its parameters broadcast to batch_shape.

        Args:
          batch_shape:  the new shape
          _instance:    the result, an object that a subclass has made; it keeps the attributes that it has

        >>> pg.distributions.Normal(0.0, 1.0).expand((3,)).batch_shape
        (3,)
        """
        made, shape, before = _instance or type(self).__new__(type(self)), Size(batch_shape), len(self.batch_shape)
        for name, value in vars(self).items():
            if name not in vars(made):
                vars(made)[name] = value.expand((*shape, *value.shape[before:])) if isinstance(value, Tensor) else value
        made._batch_shape = shape
        return made

    def _extended(self, sample_shape: Sizes) -> tuple[int, ...]:
        """Returns the shape of samples."""
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    # ---- names that classes written for PyTorch use ----
    _extended_shape = _extended

    def _validate_sample(self, value: Tensor) -> None:
        self._supported(value)

    def _get_checked_instance(self, cls: Any, instance: Self | None = None) -> Self:
        """Returns a new distribution without parameters, for a user's expand() to fill.

        Raises:
          NoFormulaError: a subclass has a different constructor, and no expand().
        """
        if instance is None and type(self).__init__ is not cls.__init__:
            raise NoFormulaError(f"{type(self).__name__} defines its constructor, so it must define expand(), too.")
        return type(self).__new__(type(self)) if instance is None else instance

    def __repr__(self) -> str:
        parts = [f"{name}: {_shown(getattr(self, name))}" for name in self.parameters]
        return f"{type(self).__name__}({', '.join(parts)})"


def _shown(value: Tensor) -> str:
    """Returns a parameter's number as text, or the shape of a long one."""
    return str(value.item()) if value.numel() == 1 else f"shape {value.shape}"


class Elementwise(Distribution):
    """A distribution of numbers, whose parameters broadcast to batch_shape."""

    def __init__(self, *values: Number, validate_args: bool | None = None):
        tensors = together(*values)
        for name, value in zip(self.arg_constraints, tensors):
            setattr(self, name, value)
        super().__init__(tensors[0].shape, validate_args=validate_args)


class Independent(Distribution):
    """A distribution whose last axes of batch_shape become axes of the event: their log_probs are summed.

    Args:
      base_distribution:            distribution of single values
      reinterpreted_batch_ndims:    number of these axes

    Raises:
      ShapeError: the batch has fewer axes.

    >>> D = pg.distributions
    >>> D.Independent(D.Normal(pg.zeros(3), 1.0), 1).log_prob(pg.zeros(3))
    Tensor(-2.7568154)
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None):
        base, count = base_distribution, reinterpreted_batch_ndims
        if not 0 <= count <= len(base.batch_shape):
            raise ShapeError(f"Independent: a batch of shape {base.batch_shape} does not have {count} axes.")
        kept = len(base.batch_shape) - count
        self.base_dist, self.reinterpreted_batch_ndims = base, count
        self.has_rsample = base.has_rsample  # type: ignore[misc]
        self.support = base.support and independent(base.support, count)
        super().__init__(base.batch_shape[:kept], (*base.batch_shape[kept:], *base.event_shape))

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Number) -> Tensor:
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def expand(self, batch_shape: Sizes, _instance: Self | None = None) -> Self:
        made, more = super().expand(batch_shape, _instance), self.event_shape[: self.reinterpreted_batch_ndims]
        made.base_dist = self.base_dist.expand((*batch_shape, *more))
        return made

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


# ---- numbers and tensors ----
def together(*values: Number) -> tuple[Tensor, ...]:
    """Returns numbers and tensors as tensors of one shape and dtype; numbers alone get the default dtype."""
    like = next((value for value in values if isinstance(value, Tensor) and value.dtype.is_float), None)
    dtype, device = (dtypes.default_float, None) if like is None else (like.dtype, str(like.device))
    tensors = [value if isinstance(value, Tensor) else Tensor(value, dtype, device) for value in values]
    return tuple(Tensor.broadcast_tensors(*[one if one.dtype.is_float else one.to(dtype) for one in tensors]))


def either(condition: Tensor, yes: Number, no: Number) -> Tensor:
    """Returns pg.where(condition, a, b)."""
    return where(condition, yes, no)


def summed(value: Tensor, count: int) -> Tensor:
    """Returns the sum over the last `count` axes."""
    return value.sum(tuple(range(-count, 0))) if count else value


def entropy_of(probabilities: Tensor, logarithms: Tensor) -> Tensor:
    """Returns -sum p log p over the last axis, where 0 log 0 is 0."""
    least = dtypes.finfo(logarithms.dtype).min
    return -(probabilities * logarithms.clamp(min=least)).sum(-1)
