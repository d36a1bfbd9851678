"""torch.distributions by its names: draws, densities, entropies and divergences, each from its formula.

A policy gradient is -(distribution.log_prob(action) * reward).mean(), a variational autoencoder's loss has
kl_divergence(posterior, Normal(0, 1)). All of it is lazy and works inside pg.jit.
"""

from picograd_distributions import constraints
from picograd_distributions.base import Distribution, Independent
from picograd_distributions.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Pareto,
    Uniform,
    Weibull,
)
from picograd_distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from picograd_distributions.divergence import kl_divergence, register_kl
from picograd_distributions.gammas import (
    Beta,
    Chi2,
    Dirichlet,
    FisherSnedecor,
    Gamma,
    InverseGamma,
    NegativeBinomial,
    StudentT,
)
from picograd_distributions.mixtures import MixtureSameFamily, RelaxedBernoulli, RelaxedOneHotCategorical
from picograd_distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    TransformedDistribution,
)

__all__ = [
    "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ComposeTransform",
    "CumulativeDistributionTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential", "FisherSnedecor",
    "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Laplace",
    "LogNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
    "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PowerTransform", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "SigmoidTransform", "SoftplusTransform", "StudentT", "TanhTransform", "Transform",
    "TransformedDistribution", "Uniform", "Weibull",
    "constraints", "kl_divergence", "register_kl",
]  # fmt: skip
