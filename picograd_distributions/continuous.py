"""Distributions of real numbers, each declared by its formulas, and the multivariate normal distribution."""

from __future__ import annotations

import math

from picograd.errors import ArgumentError
from picograd.linalg import cholesky, inv, solve_triangular
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Elementwise, Number, Sizes, either, together
from picograd_distributions.constraints import (
    greater_than,
    greater_than_eq,
    interval,
    is_known,
    lower_cholesky,
    nonnegative,
    positive,
    positive_definite,
    real,
    real_vector,
    symmetric,
)

EULER = 0.5772156649015329  # Euler's constant


class Inverted(Elementwise):
    """A distribution sampled by its icdf at uniform numbers."""

    has_rsample = True

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        """Returns samples through which gradients flow to the parameters."""
        return self.icdf(self._uniform(sample_shape))

    def _uniform(self, sample_shape: Sizes) -> Tensor:
        """Returns uniform numbers in [0, 1)."""
        return Tensor.rand_like(getattr(self, self.parameters[0]).expand(self._extended(sample_shape)))


class _Located(Inverted):
    """A distribution with a location and a scale."""

    arg_constraints, support = {"loc": real, "scale": positive}, real
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Number, scale: Number, validate_args: bool | None = None):
        super().__init__(loc, scale, validate_args=validate_args)

    def _uniform(self, sample_shape: Sizes) -> Tensor:
        """Returns uniform numbers in (0, 1): a 0, one of 2^24 results, becomes half a step."""
        return super()._uniform(sample_shape).clamp(min=2.0**-25)


class Normal(_Located):
    """p(x) = exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)).

    Args:
      loc:    the mean
      scale:  the standard deviation, above 0

    >>> pg.distributions.Normal(1.0, 2.0).log_prob(Tensor(1.0))
    Tensor(-1.6120857)
    """

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.loc + Tensor.randn_like(self.loc.expand(self._extended(sample_shape))) * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def _cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((value - self.loc) / self.scale / math.sqrt(2)).erf())

    def _icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2


class LogNormal(_Located):
    """The distribution of exp(y), y from Normal(loc, scale).

    Args:
      loc:    mean of y
      scale:  standard deviation of y, above 0

    >>> pg.distributions.LogNormal(0.0, 1.0).mode.item()
    0.3678794503211975
    """

    support = positive

    @property
    def base_dist(self) -> Normal:
        """The distribution of y."""
        return Normal(self.loc, self.scale, validate_args=False)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).exp()

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.base_dist._log_prob(value.log()) - value.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return self.base_dist._cdf(value.log())

    def _icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf(value).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        return (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp()


class _Half(Elementwise):
    """The distribution of |y|, y from a distribution symmetric around 0."""

    arg_constraints, support, has_rsample = {"scale": positive}, nonnegative, True
    scale: Tensor

    def __init__(self, scale: Number, validate_args: bool | None = None):
        super().__init__(scale, validate_args=validate_args)

    @property
    def base_dist(self) -> Normal | Cauchy:
        """The distribution of y."""
        raise self._lacks("base_dist")

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def _log_prob(self, value: Tensor) -> Tensor:
        return either(value >= 0, self.base_dist._log_prob(value) + math.log(2), -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist._cdf(value) - 1

    def _icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)

    @property
    def mode(self) -> Tensor:
        return self.scale * 0


class HalfNormal(_Half):
    """The distribution of |y|, y from Normal(0, scale).

    Args:
      scale:  standard deviation of y, above 0

    >>> pg.distributions.HalfNormal(1.0).mean.item()
    0.7978845834732056
    """

    @property
    def base_dist(self) -> Normal:
        return Normal(0.0, self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class Uniform(Inverted):
    """p(x) = 1 / (high - low) for low <= x < high.

    Args:
      low:   the smallest value
      high:  upper bound, above low

    >>> pg.distributions.Uniform(0.0, 2.0).cdf(Tensor([-1.0, 0.5, 3.0]))
    Tensor([0.  , 0.25, 1.  ])
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: Number, high: Number, validate_args: bool | None = None):
        low, high = together(low, high)
        self.arg_constraints = {"low": real, "high": greater_than(low)}
        super().__init__(low, high, validate_args=validate_args)
        self.support = interval(self.low, self.high)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= value) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def _icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12


class Exponential(Inverted):
    """p(x) = rate exp(-rate x) for x >= 0.

    Args:
      rate:  the inverse of the mean, above 0

    >>> pg.distributions.Exponential(2.0).mean
    Tensor(0.5)
    """

    arg_constraints, support = {"rate": positive}, nonnegative
    rate: Tensor

    def __init__(self, rate: Number, validate_args: bool | None = None):
        super().__init__(rate, validate_args=validate_args)

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def _icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return self.rate * 0

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate**-2.0


class Laplace(_Located):
    """p(x) = exp(-|x - loc| / scale) / (2 scale).

    Args:
      loc:    the mean
      scale:  above 0

    >>> pg.distributions.Laplace(0.0, 1.0).variance
    Tensor(2.)
    """

    def _log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value: Tensor) -> Tensor:
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * (-distance.abs() / self.scale).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2


class Cauchy(_Located):
    """p(x) = 1 / (pi scale (1 + ((x - loc) / scale)^2)); it has no mean, and an infinite variance.

    Args:
      loc:    the median
      scale:  half the width at half the maximum, above 0

    >>> pg.distributions.Cauchy(0.0, 1.0).cdf(Tensor(1.0))
    Tensor(0.75)
    """

    def _log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def _icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale * math.inf


class HalfCauchy(_Half):
    """The distribution of |y|, y from Cauchy(0, scale).

    Args:
      scale:  above 0

    >>> pg.distributions.HalfCauchy(1.0).cdf(Tensor(1.0))
    Tensor(0.5)
    """

    @property
    def base_dist(self) -> Cauchy:
        return Cauchy(0.0, self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.inf

    @property
    def variance(self) -> Tensor:
        return self.scale * math.inf


class Gumbel(_Located):
    """p(x) = exp(-z - exp(-z)) / scale, z = (x - loc) / scale; a distribution of maxima.

    Args:
      loc:    the mode
      scale:  above 0

    >>> pg.distributions.Gumbel(0.0, 1.0).mean
    Tensor(0.5772157)
    """

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - value) / self.scale
        return (z - z.exp()) - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return (-((self.loc - value) / self.scale).exp()).exp()

    def _icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2


class Pareto(Inverted):
    """p(x) = alpha scale^alpha / x^(alpha + 1) for x >= scale.

    Args:
      scale:  the smallest value, above 0
      alpha:  above 0

    >>> pg.distributions.Pareto(1.0, 2.0).mean
    Tensor(2.)
    """

    arg_constraints = {"scale": positive, "alpha": positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Number, alpha: Number, validate_args: bool | None = None):
        super().__init__(scale, alpha, validate_args=validate_args)
        self.support = greater_than_eq(self.scale)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()
        return either(value < self.scale, -math.inf, inside)

    def _cdf(self, value: Tensor) -> Tensor:
        return either(value < self.scale, 0.0, 1 - (self.scale / value) ** self.alpha)

    def _icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))


class Weibull(Inverted):
    """cdf(x) = 1 - exp(-(x / scale)^k) for x >= 0, k = concentration.

    Args:
      scale:          above 0
      concentration:  k, above 0

    >>> pg.distributions.Weibull(2.0, 1.0).mean
    Tensor(2.)
    """

    arg_constraints, support = {"scale": positive, "concentration": positive}, positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Number, concentration: Number, validate_args: bool | None = None):
        super().__init__(scale, concentration, validate_args=validate_args)

    def _log_prob(self, value: Tensor) -> Tensor:
        k, z = self.concentration, value / self.scale
        return (k / self.scale).log() + (k - 1) * z.log() - z**k

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (-((value / self.scale) ** self.concentration)).exp()

    def _icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return EULER * (1 - inverse) + (self.scale * inverse).log() + 1

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration.reciprocal()).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return self.scale**2 * ((1 + 2 * inverse).lgamma().exp() - (2 * (1 + inverse).lgamma()).exp())


# ---- vectors ----
MATRICES = {"covariance_matrix": positive_definite, "precision_matrix": positive_definite, "scale_tril": lower_cholesky}


def one_matrix(fact: str, *matrices: Tensor | None) -> tuple[str, Tensor]:
    """Returns the only given one of the three MATRICES, and its name; else raises `fact` as an error."""
    given = [(name, matrix) for name, matrix in zip(MATRICES, matrices) if matrix is not None and matrix.ndim >= 2]
    if len(given) != 1 or sum(matrix is not None for matrix in matrices) != 1:
        raise ArgumentError(fact)
    return given[0]


def lower_factor(distribution: Distribution, name: str, matrix: Tensor) -> Tensor:
    """Returns the Cholesky factor of a covariance, from that, its inverse or the factor, once per matrix of the batch."""
    # A matrix without a Cholesky factor is detected when the factor is computed.
    later = symmetric if name != "scale_tril" and not is_known(matrix) else None
    matrix = distribution._checked(name, matrix, later)
    if name != "scale_tril":
        matrix = cholesky(inv(matrix) if name == "precision_matrix" else matrix)
    return matrix.expand((*distribution.batch_shape, *matrix.shape[-2:]))


class MultivariateNormal(Distribution):
    """p(x) = exp(-|L^-1 (x - loc)|^2 / 2) / (det L (2 pi)^(D / 2)), L L^T the covariance.

    Args:
      loc:                (..., D), the mean
      covariance_matrix:  (..., D, D), positive definite
      precision_matrix:   instead: its inverse
      scale_tril:         instead: L, lower triangular with a positive diagonal

    Raises:
      ArgumentError: not exactly one of the three is given, or loc is 0-d.

    >>> pg.distributions.MultivariateNormal(pg.zeros(2), pg.eye(2)).log_prob(pg.zeros(2))
    Tensor(-1.837877)
    """

    has_rsample, support = True, real_vector
    arg_constraints = {"loc": real_vector, **MATRICES}

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ):  # fmt: skip
        fact = "MultivariateNormal: give loc (..., D) and one of covariance_matrix, precision_matrix and scale_tril."
        name, matrix = one_matrix(fact, covariance_matrix, precision_matrix, scale_tril)
        if not loc.ndim:
            raise ArgumentError(fact)
        self.loc = loc
        super().__init__(Tensor.broadcast_shapes(loc.shape[:-1], matrix.shape[:-2]), loc.shape[-1:], validate_args)
        self.loc = self.loc.expand((*self.batch_shape, *self.event_shape))
        self.scale_tril = lower_factor(self, name, matrix)
        self.parameters = ("loc", "scale_tril")

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        noise = Tensor.randn_like(self.loc.expand(self._extended(sample_shape)))
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        part = solve_triangular(self.scale_tril, (value - self.loc).unsqueeze(-1), upper=False).squeeze(-1)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + part.square().sum(-1)) - self.half_log_det()

    def half_log_det(self) -> Tensor:
        """Returns log det L."""
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.half_log_det()

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return inv(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)
