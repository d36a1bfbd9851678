"""kl_divergence: sum or integral of p log(p / q), by a formula for each pair of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from picograd.errors import ArgumentError
from picograd.linalg import solve_triangular
from picograd.nn.functional import softplus
from picograd.special import digamma
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
    Uniform,
)
from picograd_distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from picograd_distributions.gammas import Beta, Dirichlet, Gamma, log_beta

Formula = Callable[[Any, Any], Tensor]
FORMULAS: dict[tuple[type, type], Formula] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Formula], Formula]:
    """Returns a decorator that makes a function the formula of kl_divergence for two classes.

    Args:
      type_p:  of p
      type_q:  of q

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
      p:  the distribution of the values
      q:  the one that is compared with it

    Raises:
      NoFormulaError: there is no formula for the two.

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
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    count = p.event_shape[0]
    batch = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    lower = q.scale_tril.expand((*batch, count, count))
    whitened = solve_triangular(lower, p.scale_tril.expand((*batch, count, count)), upper=False)
    moved = solve_triangular(lower, (q.loc - p.loc).expand((*batch, count)).unsqueeze(-1), upper=False)
    squares = whitened.square().sum((-2, -1)) + moved.square().sum((-2, -1))
    return q.half_log_det() - p.half_log_det() + 0.5 * (squares - count)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError(f"kl_divergence: events of shapes {p.event_shape} and {q.event_shape} differ in their axes.")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
