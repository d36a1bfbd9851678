"""Distributions sampled from gammas, each declared by its formulas."""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.nn.functional import softplus
from picograd.special import digamma, xlogy
from picograd.tensor.free_functions import poisson
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Elementwise, Number, Sizes, either
from picograd_distributions.constraints import (
    half_open_interval,
    independent,
    nonnegative,
    nonnegative_integer,
    positive,
    real,
    simplex,
    unit_interval,
)
from picograd_distributions.discrete import Counted
from picograd_distributions.gamma_draws import shares, standard_gamma


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """Returns log B(a, b)."""
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


class Gamma(Elementwise):
    """p(x) = rate^a x^(a - 1) exp(-rate x) / Gamma(a) for x > 0, a = concentration.

    Args:
      concentration:  a, above 0
      rate:           above 0

    >>> pg.distributions.Gamma(2.0, 4.0).mean
    Tensor(0.5)
    """

    has_rsample = True
    arg_constraints, support = {"concentration": positive, "rate": positive}, nonnegative
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Number, rate: Number, validate_args: bool | None = None):
        super().__init__(concentration, rate, validate_args=validate_args)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        drawn = standard_gamma(self.concentration.expand(self._extended(sample_shape))) / self.rate
        return drawn.clamp(min=dtypes.finfo(drawn.dtype).tiny)

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1, value) - rate * value - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * digamma(a)

    def _cdf(self, value: Tensor) -> Tensor:
        return self.concentration.igamma(self.rate * value)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2


class Chi2(Gamma):
    """The distribution of a sum of df squared standard normal numbers: Gamma(df / 2, 1 / 2).

    Args:
      df:  degrees of freedom, above 0

    >>> pg.distributions.Chi2(3.0).mean
    Tensor(3.)
    """

    arg_constraints = {"df": positive}
    df: Tensor

    def __init__(self, df: Number, validate_args: bool | None = None):
        Elementwise.__init__(self, df, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:  # type: ignore[override]
        return 0.5 * self.df

    @property
    def rate(self) -> Tensor:  # type: ignore[override]
        return Tensor.full_like(self.df, 0.5)


class InverseGamma(Elementwise):
    """The distribution of 1 / y, y from Gamma(concentration, rate).

    Args:
      concentration:  above 0
      rate:           above 0

    >>> pg.distributions.InverseGamma(3.0, 4.0).mean
    Tensor(2.)
    """

    has_rsample = True
    arg_constraints, support = {"concentration": positive, "rate": positive}, positive
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Number, rate: Number, validate_args: bool | None = None):
        super().__init__(concentration, rate, validate_args=validate_args)

    @property
    def base_dist(self) -> Gamma:
        """The distribution of y."""
        return Gamma(self.concentration, self.rate, validate_args=False)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).reciprocal()

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.base_dist._log_prob(value.reciprocal()) - 2 * value.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return self.concentration.igammac(self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * digamma(a)

    @property
    def mean(self) -> Tensor:
        return either(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return either(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)


class Beta(Elementwise):
    """p(x) = x^(a - 1) (1 - x)^(b - 1) / B(a, b) for 0 < x < 1.

    Args:
      concentration1:  a, above 0
      concentration0:  b, above 0

    >>> pg.distributions.Beta(1.0, 3.0).mean
    Tensor(0.25)
    """

    has_rsample = True
    arg_constraints, support = {"concentration1": positive, "concentration0": positive}, unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(self, concentration1: Number, concentration0: Number, validate_args: bool | None = None):
        super().__init__(concentration1, concentration0, validate_args=validate_args)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        shape = self._extended(sample_shape)
        both = Tensor.stack([self.concentration1.expand(shape), self.concentration0.expand(shape)], -1)
        return shares(both)[..., 0]

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1.0, value) + xlogy(b - 1.0, 1.0 - value) - log_beta(a, b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inner = either((a < 1) | (b < 1), either(a < b, 0.0, 1.0), (a - 1) / (a + b - 2))
        return either(((a < 1) & (b < 1)) | ((a == 1) & (b == 1)), math.nan, inner)

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        total = a + b
        return a * b / (total**2 * (total + 1))


class Dirichlet(Distribution):
    """p(x) = prod of x_i^(a_i - 1) / B(a), for proportions x that sum to 1.

    Args:
      concentration:  (..., K), above 0

    Raises:
      ArgumentError: the concentration is 0-d.

    >>> pg.distributions.Dirichlet(Tensor([1.0, 3.0])).mean
    Tensor([0.25, 0.75])
    """

    has_rsample = True
    arg_constraints, support = {"concentration": independent(positive, 1)}, simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if not concentration.ndim:
            raise ArgumentError("Dirichlet: concentration needs an axis, got a tensor without axes.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return shares(self.concentration.expand(self._extended(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return xlogy(a - 1.0, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, count = self.concentration, self.event_shape[0]
        total = a.sum(-1)
        parts = (a.lgamma() - (a - 1.0) * digamma(a)).sum(-1)
        return parts - total.lgamma() - (count - total) * digamma(total)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, keepdim=True)
        edge = (self.concentration < 1).all(-1, keepdim=True)
        corner = Tensor.arange(self.event_shape[0], device=str(mode.device)) == self.concentration.argmax(-1, keepdim=True)
        return either(edge, corner.to(mode.dtype), mode)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1, keepdim=True)
        return a * (total - a) / (total**2 * (total + 1))


class StudentT(Elementwise):
    """The distribution of loc + scale y / sqrt(z / df), y standard normal, z from Chi2(df).

    Args:
      df:     degrees of freedom, above 0
      loc:    the median
      scale:  above 0

    >>> pg.distributions.StudentT(3.0).variance
    Tensor(3.)
    """

    has_rsample = True
    arg_constraints, support = {"df": positive, "loc": real, "scale": positive}, real
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(self, df: Number, loc: Number = 0.0, scale: Number = 1.0, validate_args: bool | None = None):
        super().__init__(df, loc, scale, validate_args=validate_args)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        noise = Tensor.randn_like(self.loc.expand(self._extended(sample_shape)))
        spread = Chi2(self.df, validate_args=False).rsample(sample_shape) / self.df
        return self.loc + self.scale * noise / spread.sqrt()

    def _log_prob(self, value: Tensor) -> Tensor:
        z, df = (value - self.loc) / self.scale, self.df
        level = self.scale.log() + 0.5 * (df.log() + math.log(math.pi)) + (0.5 * df).lgamma() - (0.5 * (df + 1)).lgamma()
        return -0.5 * (df + 1) * (z**2 / df).log1p() - level

    def entropy(self) -> Tensor:
        df = self.df
        level = (0.5 * df).lgamma() + math.log(math.sqrt(math.pi)) - (0.5 * (df + 1)).lgamma()
        rate = 0.5 * (df + 1) * (digamma(0.5 * (df + 1)) - digamma(0.5 * df))
        return self.scale.log() + rate + 0.5 * df.log() + level

    @property
    def mean(self) -> Tensor:
        return either(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = self.df
        finite = self.scale**2 * df / (df - 2)
        return either(df > 2, finite, either(df > 1, math.inf, math.nan))


class FisherSnedecor(Elementwise):
    """The distribution of (y / df1) / (z / df2), y from Chi2(df1), z from Chi2(df2).

    Args:
      df1:  degrees of freedom of the numerator, above 0
      df2:  degrees of freedom of the denominator, above 0

    >>> pg.distributions.FisherSnedecor(2.0, 4.0).mean
    Tensor(2.)
    """

    has_rsample = True
    arg_constraints, support = {"df1": positive, "df2": positive}, positive
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Number, df2: Number, validate_args: bool | None = None):
        super().__init__(df1, df2, validate_args=validate_args)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        above, below = (Chi2(df, validate_args=False).rsample(sample_shape) / df for df in (self.df1, self.df2))
        return (above / below).clamp(min=dtypes.finfo(above.dtype).tiny)

    def _log_prob(self, value: Tensor) -> Tensor:
        half1, half2, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        return (
            (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
            + half1 * ratio.log() + (half1 - 1) * value.log() - (half1 + half2) * (ratio * value).log1p()
        )  # fmt: skip

    @property
    def mean(self) -> Tensor:
        return either(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        return either(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan)

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2
        return either(n > 4, 2 * n**2 * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4)), math.nan)


class NegativeBinomial(Counted):
    """The number of successes before the total_count-th failure: P(k) = C(k + r - 1, k) p^k (1 - p)^r, r = total_count.

    Args:
      total_count:  r, above 0
      probs:        p, probability of success
      logits:       instead of probs: log(p / (1 - p))

    >>> pg.distributions.NegativeBinomial(2.0, 0.5).mean
    Tensor(2.)
    """

    arg_constraints = {"total_count": nonnegative, "probs": half_open_interval(0.0, 1.0), "logits": real}
    support = nonnegative_integer

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            return poisson(Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        r = self.total_count
        ways = (r + value).lgamma() - (1.0 + value).lgamma() - r.lgamma()
        ways = either(r + value == 0.0, 0.0, ways)
        return ways - r * softplus(self.logits) - value * softplus(-self.logits)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()
