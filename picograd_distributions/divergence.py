"""kl_divergence: the sum or integral of p log(p / q), by a formula per pair of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from picograd.errors import ArgumentError
from picograd.linalg import solve_triangular
from picograd.nn.functional import softplus
from picograd.special import digamma, xlogy
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Independent, NoFormulaError, either, summed
from picograd_distributions.continuous import (
    EULER,
    Cauchy,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Pareto,
    Uniform,
)
from picograd_distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from picograd_distributions.further import ContinuousBernoulli
from picograd_distributions.gammas import Beta, Dirichlet, Gamma, log_beta
from picograd_distributions.matrices import LowRankMultivariateNormal
from picograd_distributions.transforms import TransformedDistribution

Formula = Callable[[Any, Any], Tensor]
OfVectors = MultivariateNormal | LowRankMultivariateNormal
FORMULAS: dict[tuple[type, type], Formula] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Formula], Formula]:
    """Returns a decorator that makes a function kl_divergence's formula for two classes.

    Args:
      type_p:  class of p
      type_q:  class of q

    >>> class Mine(pg.distributions.Normal):
    ...     pass
    >>> @pg.distributions.register_kl(Mine, Mine)
    ... def kl(p, q):
    ...     return (p.loc - q.loc).abs()
    >>> pg.distributions.kl_divergence(Mine(1.0, 1.0), Mine(3.0, 1.0))
    Tensor(2.)
    """

    def keep(formula: Formula) -> Formula:
        FORMULAS[type_p, type_q] = formula
        return formula

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Returns KL(p || q), of shape batch_shape, in nats.

    Args:
      p:  distribution of the values
      q:  distribution to be compared with it

    Raises:
      NoFormulaError: there is no formula for these classes.

    >>> D = pg.distributions
    >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0))
    Tensor(0.5)
    """
    for mine in type(p).__mro__:
        for other in type(q).__mro__:
            if (mine, other) in FORMULAS:
                return FORMULAS[mine, other](p, q)
    names = f"{type(p).__name__} and {type(q).__name__}"
    raise NoFormulaError(
        f"kl_divergence: there is no formula for {names}.",
        hint="x = p.sample((10_000,)); (p.log_prob(x) - q.log_prob(x)).mean(0)",
    )


# ---- formulas ----
@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(LogNormal, LogNormal)
@register_kl(HalfNormal, HalfNormal)
def _of_normals(p: LogNormal | HalfNormal, q: LogNormal | HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    shift = (q.loc - p.loc) / q.scale
    growth = (shift + (1 + ratio).lgamma()).exp()
    return -ratio.log() - shift + ratio * EULER + growth - (1 + EULER)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    level = log_beta(c, d) - log_beta(a, b)
    return level + (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - (a + b)) * digamma(a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    whole = a.sum(-1)
    level = whole.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return level + ((a - b) * (digamma(a) - digamma(whole).unsqueeze(-1))).sum(-1)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = ((q.high - q.low) / (p.high - p.low)).log()
    return either((q.low > p.low) | (q.high < p.high), math.inf, inside)


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> Tensor:
    width = p.high - p.low
    spread = (width / (q.scale * math.sqrt(math.pi * 2))).log()
    return 0.5 * (p.variance + (p.mean - q.loc) ** 2) / q.scale**2 - spread


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    yes = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    no = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    yes = either(q.probs == 0, math.inf, yes)
    no = either(q.probs == 1, math.inf, no)
    return either(p.probs == 0, 0.0, yes) + either(p.probs == 1, 0.0, no)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return either(p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    each = p.probs * (p.logits - q.logits)
    each = either(q.probs == 0, math.inf, each)
    return either(p.probs == 0, 0.0, each).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate(p: OfVectors, q: OfVectors) -> Tensor:
    count = p.event_shape[0]
    batch = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    lower = q.scale_tril.expand((*batch, count, count))
    whitened = solve_triangular(lower, p.scale_tril.expand((*batch, count, count)), upper=False)
    moved = solve_triangular(lower, (q.loc - p.loc).expand((*batch, count)).unsqueeze(-1), upper=False)
    squares = whitened.square().sum((-2, -1)) + moved.square().sum((-2, -1))
    return q.half_log_det() - p.half_log_det() + 0.5 * (squares - count)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NoFormulaError("kl_divergence: there is no formula for distributions with different transforms.")
    return summed(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    inside = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return either(p.scale < q.scale, math.inf, inside)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    return p.mean * (p.logits - q.logits) - p.level() + q.level()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    distance = p.scale * (math.sqrt(2 / math.pi) * (-0.5 * z * z).exp() + z * (z / math.sqrt(2)).erf())  # E |x - loc|
    return distance / q.scale + (2 * q.scale).log() - p.entropy()


# ---- of two families: -H(p) - E log q, by expectations of p ----
def _logarithms(p: Any) -> tuple[Tensor, Tensor]:
    """Returns E log x and, for numbers in [0, 1], E log(1 - x)."""
    if isinstance(p, Uniform):
        return tuple((_x_log_x(high) - _x_log_x(low)) / (p.high - p.low) - 1
                     for high, low in ((p.high, p.low), (1 - p.low, 1 - p.high)))  # type: ignore[return-value]  # fmt: skip
    if isinstance(p, Beta):
        a, b = p.concentration1, p.concentration0
        return digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    log = p.scale.log() + p.alpha.reciprocal() if isinstance(p, Pareto) else -EULER - p.rate.log()
    return log, log * math.nan


def _x_log_x(x: Tensor) -> Tensor:
    return xlogy(x, x)


def _decay(p: Any, rate: Tensor) -> Tensor:
    """Returns E exp(-rate x)."""
    found: Tensor
    if isinstance(p, Normal):
        found = (0.5 * (rate * p.scale) ** 2 - rate * p.loc).exp()
    elif isinstance(p, Uniform):
        found = ((-rate * p.low).exp() - (-rate * p.high).exp()) / (rate * (p.high - p.low))
    else:
        found = (p.rate / (p.rate + rate)) ** (p.concentration if isinstance(p, Gamma) else 1.0)
    return found


def _by_normal(p: Distribution, q: Normal) -> Tensor:
    return -q.scale.log() - 0.5 * math.log(2 * math.pi) - 0.5 * (p.variance + (p.mean - q.loc) ** 2) / q.scale**2


def _by_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate.log() - q.rate * p.mean


def _by_gamma(p: Distribution, q: Gamma) -> Tensor:
    a = q.concentration
    return a * q.rate.log() - a.lgamma() + (a - 1) * _logarithms(p)[0] - q.rate * p.mean


def _by_gumbel(p: Distribution, q: Gumbel) -> Tensor:
    rate = q.scale.reciprocal()
    return -q.scale.log() - (p.mean - q.loc) * rate - _decay(p, rate) * (q.loc * rate).exp()


def _by_beta(p: Distribution, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    below, above = _logarithms(p)
    return (a - 1) * below + (b - 1) * above - log_beta(a, b)


def _by_pareto(p: Distribution, q: Pareto) -> Tensor:
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _logarithms(p)[0]


def _by_continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    return q.logits * p.mean - q.level()


def _by_uniform(p: Distribution, q: Uniform) -> Tensor:
    return -(q.high - q.low).log()


def _register_cross(type_p: Any, type_q: Any, cross: Formula) -> None:
    """Registers a formula for E log q, valid if p's support is within q's; otherwise the divergence is infinite."""

    @register_kl(type_p, type_q)
    def formula(p: Any, q: Any) -> Tensor:
        found: Tensor = -p.entropy() - cross(p, q)
        zero = Tensor.zeros_like(found)
        (low, high), (least, most) = _ends(p), _ends(q)
        return either((zero + low < zero + least) | (zero + high > zero + most), math.inf, found)


def _ends(p: Any) -> tuple[Any, Any]:
    """Returns the bounds of a support."""
    if isinstance(p, Uniform):
        return p.low, p.high
    if isinstance(p, Beta | ContinuousBernoulli):
        return 0.0, 1.0
    return (p.scale if isinstance(p, Pareto) else 0.0 if isinstance(p, Exponential | Gamma) else -math.inf), math.inf


CROSS: tuple[tuple[type, Formula, tuple[type, ...]], ...] = (  # q, E log q, and each p for which it is known
    (Normal, _by_normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto)),
    (Exponential, _by_exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform)),
    (Gamma, _by_gamma, (Beta, Exponential, Pareto, Uniform)),
    (Gumbel, _by_gumbel, (Exponential, Gamma, Normal, Uniform)),
    (Beta, _by_beta, (Uniform,)), (Pareto, _by_pareto, (Uniform,)),
    (ContinuousBernoulli, _by_continuous_bernoulli, (Beta, Uniform)),
    (Uniform, _by_uniform, (Beta, ContinuousBernoulli)),
)  # fmt: skip
for type_q, cross, types_p in CROSS:
    for type_p in types_p:
        _register_cross(type_p, type_q, cross)

OF_ALL, OF_POSITIVE, OF_UNIT = (Gumbel, Laplace, Normal), (Exponential, Gamma), (Beta, ContinuousBernoulli)
INFINITE: tuple[tuple[tuple[type, ...], tuple[type, ...]], ...] = (  # each p has values outside q's support
    (OF_ALL, (*OF_UNIT, *OF_POSITIVE, Pareto, Uniform)), (OF_POSITIVE, (*OF_UNIT, Pareto, Uniform)),
    (OF_UNIT, (Pareto,)), ((Pareto,), (*OF_UNIT, Uniform)), ((Poisson,), (Bernoulli, Binomial)),
)  # fmt: skip


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    return Tensor.full_like(p.mean + 0.0 * q.mean, math.inf)


for types_p, types_q in INFINITE:
    for type_p in types_p:
        for type_q in types_q:
            register_kl(type_p, type_q)(_infinite)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError(f"kl_divergence: events of shapes {p.event_shape} and {q.event_shape} differ in their axes.")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
