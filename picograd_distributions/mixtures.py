"""Distributions built from classes: mixtures, and relaxed samples with gradients."""

from __future__ import annotations

import math
from typing import Self

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functional import softplus
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Number, Sizes
from picograd_distributions.constraints import (
    MixtureSameFamilyConstraint,
    positive,
    real,
    real_vector,
    simplex,
    unit_interval,
    weights,
)
from picograd_distributions.discrete import Categorical, OfProbability


class MixtureSameFamily(Distribution):
    """p(x) = sum over k of P(k) p_k(x): a sample is one of K components, chosen by the weights.

    Args:
      mixture_distribution:    a Categorical with K classes: the weights
      component_distribution:  a batch with K as its last axis: the components

    Raises:
      ArgumentError: the weights are not a Categorical.
      ShapeError:    the numbers of components and weights differ, or their batches do not match.

    >>> D = pg.distributions
    >>> two = D.MixtureSameFamily(D.Categorical(Tensor([0.25, 0.75])), D.Normal(Tensor([0.0, 4.0]), 1.0))
    >>> two.mean
    Tensor(3.)
    """

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ):
        mixture, component = mixture_distribution, component_distribution
        if type(mixture) is not Categorical:
            raise ArgumentError(f"MixtureSameFamily: the weights must be a Categorical, got {type(mixture).__name__}.")
        batch = component.batch_shape
        if batch[-1:] != (mixture.num_classes,) or mixture.batch_shape not in ((), batch[:-1]):
            raise ShapeError(
                f"MixtureSameFamily: {mixture.num_classes} weights in a batch of shape {mixture.batch_shape} do not fit"
                f" components in a batch of shape {batch}."
            )
        self.mixture_distribution, self.component_distribution = mixture, component
        self.support = component.support and MixtureSameFamilyConstraint(component.support)
        super().__init__(batch[:-1], component.event_shape, validate_args)

    def _weights(self, of: Tensor) -> Tensor:
        """Returns the components' values with axes of length 1 for the event's."""
        return of.reshape((*of.shape, *(1,) * len(self.event_shape)))

    def _each(self, value: Number) -> Tensor:
        """Returns a value with an axis for the components."""
        return self._as_tensor(value).unsqueeze(-1 - len(self.event_shape))

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        axis = len(sample_shape) + len(self.batch_shape)
        drawn = self.component_distribution.sample(sample_shape)
        chosen = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape).unsqueeze(-1)
        shape = (*drawn.shape[:axis], 1, *self.event_shape)
        return drawn.gather(axis, self._weights(chosen).expand(shape)).squeeze(axis)

    def log_prob(self, value: Number) -> Tensor:
        return (self.component_distribution.log_prob(self._each(value)) + self.mixture_distribution.logits).logsumexp(-1)

    def cdf(self, value: Number) -> Tensor:
        return (self.component_distribution.cdf(self._each(value)) * self.mixture_distribution.probs).sum(-1)

    @property
    def mean(self) -> Tensor:
        axis = -1 - len(self.event_shape)
        return (self._weights(self.mixture_distribution.probs) * self.component_distribution.mean).sum(axis)

    @property
    def variance(self) -> Tensor:
        axis, parts = -1 - len(self.event_shape), self.component_distribution
        spread = parts.variance + (parts.mean - self._each(self.mean)) ** 2
        return (self._weights(self.mixture_distribution.probs) * spread).sum(axis)

    def expand(self, batch_shape: Sizes, _instance: Self | None = None) -> Self:
        """Returns the distribution with its parts broadcast to batch_shape."""
        made, count = super().expand(batch_shape, _instance), self.mixture_distribution.num_classes
        made.mixture_distribution = self.mixture_distribution.expand(batch_shape)
        made.component_distribution = self.component_distribution.expand((*batch_shape, count))
        return made

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"


def _uniform(like: Tensor) -> Tensor:
    """Returns uniform numbers in (0, 1)."""
    eps = dtypes.finfo(like.dtype).eps
    return Tensor.rand_like(like).clamp(eps, 1 - eps)


class RelaxedBernoulli(OfProbability):
    """sigmoid((logits + L) / temperature), L logistic: near 0 or 1 at low temperatures, with a gradient.

    Source: Maddison, Mnih, Teh 2017, arXiv:1611.00712, appendix B.

    Args:
      temperature:  above 0
      probs:        probability of values near 1
      logits:       instead of probs: log(p / (1 - p))

    >>> logits = pg.zeros(2, requires_grad=True)
    >>> pg.distributions.RelaxedBernoulli(0.5, logits=logits).rsample().sum().backward()
    >>> logits.grad.shape
    (2,)
    """

    has_rsample = True
    arg_constraints, support = {"temperature": positive, "probs": unit_interval, "logits": real}, unit_interval
    temperature: Tensor

    def __init__(
        self, temperature: Number, probs: Number | None = None, logits: Number | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        super().__init__(probs, logits, validate_args, temperature=temperature)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        uniform = _uniform(self.logits.expand(self._extended(sample_shape)))
        return ((self.logits + uniform.log() - (-uniform).log1p()) / self.temperature).sigmoid()

    def _log_prob(self, value: Tensor) -> Tensor:
        place = value.log() - (-value).log1p()
        off = self.logits - place * self.temperature
        return self.temperature.log() + off - 2 * softplus(off) + softplus(place) + softplus(-place)


class RelaxedOneHotCategorical(Distribution):
    """softmax((logits + G) / temperature), G from Gumbel: near a one-hot vector at low temperatures, with a gradient.

    Source: Maddison, Mnih, Teh 2017, arXiv:1611.00712, equation 10; Jang, Gu, Poole 2017, arXiv:1611.01144.

    Args:
      temperature:  above 0, a single number
      probs:        (..., K), nonnegative; divided by their sum
      logits:       (..., K), instead of probs: softmax(logits) are the probabilities

    >>> drawn = pg.distributions.RelaxedOneHotCategorical(0.1, logits=pg.zeros(3)).rsample()
    >>> round(drawn.sum().item(), 3)
    1.0
    """

    has_rsample = True
    arg_constraints, support = {"temperature": positive, "probs": weights, "logits": real_vector}, simplex
    temperature: Tensor
    probs: Tensor
    logits: Tensor

    def __init__(
        self, temperature: Number, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        self.temperature = temperature if isinstance(temperature, Tensor) else Tensor(float(temperature))
        classes = Categorical(probs, logits, validate_args)
        self.probs, self.logits = classes.probs, classes.logits
        super().__init__(classes.batch_shape, (classes.num_classes,), validate_args)

    def expand(self, batch_shape: Sizes, _instance: Self | None = None) -> Self:
        made = super().expand(batch_shape, _instance)
        made.temperature = self.temperature
        return made

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        gumbel = -(-_uniform(self.logits.expand(self._extended(sample_shape))).log()).log()
        return ((self.logits + gumbel) / self.temperature).softmax(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        count, places = self.event_shape[-1], value.log()
        scores = (self.logits - places * self.temperature).log_softmax(-1) - places
        return scores.sum(-1) + math.lgamma(count) + (count - 1) * self.temperature.log()

