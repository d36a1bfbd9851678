"""Distributions of integers and classes, each declared by its formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.nn.functional import binary_cross_entropy_with_logits, one_hot, softplus
from picograd.special import xlogy
from picograd.tensor.formulas import of_tensors
from picograd.tensor.free_functions import binomial, poisson
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Elementwise, NoFormulaError, Number, Sizes, entropy_of, together
from picograd_distributions.constraints import (
    Constraint,
    boolean,
    integer_interval,
    multinomial,
    nonnegative,
    nonnegative_integer,
    real,
    real_vector,
    success,
    unit_interval,
    weights,
)
from picograd_distributions.constraints import one_hot as one_hot_vector
from picograd_distributions.utils import logits_to_probs, probs_to_logits


def _along(values: Tensor, batch_shape: Sizes, expand: bool) -> Tensor:
    """Returns the values of a support along a new first axis, before the batch axes."""
    values = values.reshape((-1, *(1,) * len(batch_shape)))
    return values.expand((-1, *batch_shape)) if expand else values


class OfProbability(Elementwise):
    """A distribution with a probability of success, given directly or as its logit log(p / (1 - p)).

    Raises:
      ArgumentError: both are given, or neither.
    """

    arg_constraints: Mapping[str, Constraint] = {"probs": unit_interval, "logits": real}
    probs: Tensor
    logits: Tensor

    def __init__(
        self, probs: Number | None = None, logits: Number | None = None, validate_args: bool | None = None, **others: Number
    ):
        if (probs is None) == (logits is None):
            raise ArgumentError(f"{type(self).__name__}: give one of probs and logits.")
        given = others | ({"probs": probs} if probs is not None else {} if logits is None else {"logits": logits})
        for name, value in zip(given, together(*given.values())):
            setattr(self, name, value)
        shape = (self.probs if logits is None else self.logits).shape
        Distribution.__init__(self, shape, validate_args=validate_args)
        if logits is None:
            self.logits = probs_to_logits(self.probs, is_binary=True)
        else:
            self.probs = logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of probs and logits."""
        return tuple(self.probs.shape)


class Bernoulli(OfProbability):
    """1 with probability p, else 0.

    Args:
      probs:   p
      logits:  instead of probs: log(p / (1 - p))

    >>> pg.distributions.Bernoulli(0.25).log_prob(Tensor([0.0, 1.0])).exp()
    Tensor([0.75, 0.25])
    """

    support, has_enumerate_support = boolean, True

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            return self.probs.expand(self._extended(sample_shape)).bernoulli()

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = together(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns 0 and 1, (2, 1, ...), or with `expand` (2, *batch_shape)."""
        return _along(Tensor([0.0, 1.0], self.probs.dtype, str(self.probs.device)), self.batch_shape, expand)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs)
        return mode.masked_fill(self.probs == 0.5, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Geometric(OfProbability):
    """The number of failures before the first success: P(k) = (1 - p)^k p.

    Args:
      probs:   p
      logits:  instead of probs: log(p / (1 - p))

    >>> pg.distributions.Geometric(0.5).log_prob(Tensor([0.0, 1.0, 2.0])).exp()
    Tensor([0.5  , 0.25 , 0.125])
    """

    arg_constraints, support = {"probs": success, "logits": real}, nonnegative_integer

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            drawn = Tensor.rand_like(self.probs.expand(self._extended(sample_shape)))
            return ((-drawn).log1p() / (-self.probs).log1p()).floor()

    def _log_prob(self, value: Tensor) -> Tensor:
        probs, value = together(self.probs, value)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0.0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs


class Counted(OfProbability):
    """A distribution with a number of trials, total_count, and a probability of success."""

    total_count: Tensor

    def __init__(
        self, total_count: Number = 1, probs: Number | None = None, logits: Number | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        super().__init__(probs, logits, validate_args, total_count=total_count)


class Binomial(Counted):
    """The number of successes in total_count trials.

    Args:
      total_count:  number of trials
      probs:        probability of success
      logits:       instead of probs: log(p / (1 - p))

    >>> pg.distributions.Binomial(2, 0.5).log_prob(Tensor([0.0, 1.0, 2.0])).exp()
    Tensor([0.25, 0.5 , 0.25])
    """

    has_enumerate_support = True
    arg_constraints = {"total_count": nonnegative_integer, "probs": unit_interval, "logits": real}

    def __init__(
        self, total_count: Number = 1, probs: Number | None = None, logits: Number | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        super().__init__(total_count, probs, logits, validate_args)
        self.support = integer_interval(0, self.total_count)

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        shape = self._extended(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape).contiguous(), self.probs.expand(shape).contiguous())

    def _log_prob(self, value: Tensor) -> Tensor:
        n, k, logits = self.total_count, value, self.logits
        ways = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return k * logits + ways - n * softplus(logits)

    def entropy(self) -> Tensor:
        logarithms = self.log_prob(self.enumerate_support(False))
        return -(logarithms.exp() * logarithms.clamp(min=dtypes.finfo(logarithms.dtype).min)).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns 0 to total_count, (total_count + 1, 1, ...), or with `expand` (total_count + 1, *batch_shape).

        Raises:
          NoFormulaError: the numbers of trials differ within the batch.
        """
        least, most = (int(bound.item()) for bound in self.total_count.aminmax())
        if least != most:
            raise NoFormulaError(f"enumerate_support: total_count is {least} to {most}; it must be one number.")
        values = Tensor.arange(most + 1, dtype=self.probs.dtype, device=str(self.probs.device))
        return _along(values, self.batch_shape, expand)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)


class Poisson(Elementwise):
    """P(k) = rate^k exp(-rate) / k!.

    Args:
      rate:  the mean, at least 0

    >>> pg.distributions.Poisson(2.0).log_prob(Tensor(0.0))
    Tensor(-2.)
    """

    arg_constraints, support = {"rate": nonnegative}, nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Number, validate_args: bool | None = None):
        super().__init__(rate, validate_args=validate_args)

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended(sample_shape)).contiguous())

    def _log_prob(self, value: Tensor) -> Tensor:
        rate, value = together(self.rate, value)
        return xlogy(value, rate) - rate - (value + 1).lgamma()

    @property
    def mean(self) -> Tensor:
        return self.rate

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()


@of_tensors
def _of_weights(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns weights divided by their sum along the last axis, and the logarithms."""
    probs = weights / weights.sum(-1, keepdim=True)
    return probs, probs_to_logits(probs)


@of_tensors
def _of_logits(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns softmax(logits) along the last axis, and its logarithms."""
    logits = logits - logits.logsumexp(-1, keepdim=True)
    return logits_to_probs(logits), logits


@of_tensors
def _logits_of_classes(logits: Tensor, classes: Tensor) -> Tensor:
    """Returns the logits, (..., K), of classes, (...)."""
    index, logits = Tensor.broadcast_tensors(classes.to(dtypes.int64).unsqueeze(-1), logits)
    return logits.gather(-1, index[..., :1]).squeeze(-1)


class Categorical(Distribution):
    """A class from 0 to K - 1, with probabilities along the last axis.

    Args:
      probs:   (..., K), nonnegative; divided by their sum
      logits:  (..., K), instead of probs: softmax(logits) are the probabilities

    Raises:
      ArgumentError: both are given, or neither, or a 0-d one.

    >>> policy = pg.distributions.Categorical(logits=pg.zeros(2, 4))
    >>> policy.log_prob(policy.sample()).tolist(), policy.entropy().tolist()
    ([-1.3862943649291992, -1.3862943649291992], [1.3862943649291992, 1.3862943649291992])
    """

    arg_constraints, has_enumerate_support = {"probs": weights, "logits": real_vector}, True
    probs: Tensor
    logits: Tensor

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None):
        given = probs if probs is not None else logits
        if given is None or (probs is not None and logits is not None):
            raise ArgumentError(f"{type(self).__name__}: give one of probs and logits.")
        if not given.ndim:
            raise ArgumentError(f"{type(self).__name__}: needs an axis of classes, got a tensor without axes.")
        self.num_classes = given.shape[-1]
        setattr(self, "logits" if probs is None else "probs", given)
        self.support = self._support()
        super().__init__(given.shape[:-1], self._event(), validate_args)
        self.probs, self.logits = _of_weights(self.probs) if probs is not None else _of_logits(self.logits)

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of probs and logits."""
        return tuple(self.probs.shape)

    def _event(self) -> Sizes:
        return ()

    def _support(self) -> Constraint:
        return integer_interval(0, self.num_classes - 1)

    def _classes(self, sample_shape: Sizes) -> Tensor:
        """Returns classes, (*sample_shape, *batch_shape) int64."""
        with no_grad():
            num_samples = math.prod(sample_shape)
            rows = self.probs.reshape(-1, self.num_classes).multinomial(num_samples, replacement=True)
            return (rows if num_samples == 1 else rows.T).reshape((*sample_shape, *self.batch_shape))

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        return self._classes(sample_shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        return _logits_of_classes(self.logits, value)

    def entropy(self) -> Tensor:
        return entropy_of(self.probs, self.logits)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns every class, (K, 1, ...), or with `expand` (K, *batch_shape)."""
        return _along(Tensor.arange(self.num_classes, device=str(self.probs.device)), self.batch_shape, expand)

    @property
    def mean(self) -> Tensor:
        return self.probs.sum(-1) * float("nan")

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)


class OneHotCategorical(Categorical):
    """A class from 0 to K - 1 as a one-hot vector.

    Args:
      probs:   (..., K), nonnegative; divided by their sum
      logits:  (..., K), instead of probs: softmax(logits) are the probabilities

    >>> pg.distributions.OneHotCategorical(Tensor([0.0, 1.0, 0.0])).sample()
    Tensor([0., 1., 0.])
    """

    def _event(self) -> Sizes:
        return (self.num_classes,)

    def _support(self) -> Constraint:
        return one_hot_vector

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        return one_hot(self._classes(sample_shape), self.num_classes).to(self.probs.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        return super()._log_prob(value.argmax(-1))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns every vector, (K, 1, ..., K), or with `expand` (K, *batch_shape, K)."""
        return one_hot(super().enumerate_support(expand), self.num_classes).to(self.probs.dtype)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self.num_classes).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples pass their gradient to the probabilities (Bengio et al. 2013, arXiv:1308.3432).

    Args:
      probs:   (..., K), nonnegative; divided by their sum
      logits:  (..., K), instead of probs: softmax(logits) are the probabilities

    >>> logits = pg.zeros(2, requires_grad=True)
    >>> pg.distributions.OneHotCategoricalStraightThrough(logits=logits).rsample()[0].backward()
    >>> logits.grad
    Tensor([ 0.25, -0.25])
    """

    has_rsample = True

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(Categorical):
    """Counts of K classes in total_count draws.

    Args:
      total_count:  number of draws
      probs:        (..., K), nonnegative; divided by their sum
      logits:       (..., K), instead of probs: softmax(logits) are the probabilities

    >>> pg.distributions.Multinomial(2, Tensor([0.5, 0.5])).log_prob(Tensor([1.0, 1.0])).exp().item()
    0.5
    """

    has_enumerate_support = False

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    def _event(self) -> Sizes:
        return (self.num_classes,)

    def _support(self) -> Constraint:
        return multinomial(self.total_count)

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        drawn = self._classes((self.total_count, *sample_shape))
        return one_hot(drawn, self.num_classes).sum(0).to(self.probs.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        logits = self.logits.masked_fill((value == 0) & (self.logits == -float("inf")), 0.0)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        counts = Binomial(self.total_count, self.probs)  # of each class separately
        values = counts.enumerate_support(False)[1:]
        ways = (counts.log_prob(values).exp() * (values + 1).lgamma()).sum((0, -1))
        return self.total_count * super().entropy() - math.lgamma(self.total_count + 1) + ways

    def enumerate_support(self, expand: bool = True) -> Tensor:
        raise self._lacks("enumerate_support")

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def mode(self) -> Tensor:
        raise self._lacks("mode")

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)
