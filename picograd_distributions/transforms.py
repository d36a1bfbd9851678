"""Functions of draws, and the distributions of their results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd.nn.functional import softplus
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Number, Sizes, summed


class Transform:
    """A function y(x) of each element, with its inverse and log |dy / dx|.

    sign:  of dy / dx
    """

    sign: Number = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """Returns y."""
        raise NotImplementedError

    def inv(self, y: Tensor) -> Tensor:
        """Returns x."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy / dx| of each element."""
        raise NotImplementedError


class AffineTransform(Transform):
    """y = loc + scale x.

    Args:
      loc:    y of 0
      scale:  not 0

    >>> pg.distributions.AffineTransform(1.0, 2.0)(Tensor(3.0))
    Tensor(7.)
    """

    def __init__(self, loc: Number, scale: Number):
        self.loc, self.scale = loc, scale
        self.sign = scale.sign() if isinstance(scale, Tensor) else math.copysign(1.0, scale)

    def __call__(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def inv(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else x.new_full((), float(self.scale))
        return scale.abs().log().expand(x.shape)


class ExpTransform(Transform):
    """y = exp(x).

    >>> pg.distributions.ExpTransform().inv(Tensor(1.0))
    Tensor(0.)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.exp()

    def inv(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)).

    >>> pg.distributions.SigmoidTransform()(Tensor(0.0))
    Tensor(0.5)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def inv(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """y = tanh(x).

    >>> pg.distributions.TanhTransform()(Tensor(0.0))
    Tensor(0.)
    """

    def __init__(self, cache_size: int = 0):
        pass

    def __call__(self, x: Tensor) -> Tensor:
        return x.tanh()

    def inv(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class SoftplusTransform(Transform):
    """y = log(1 + exp(x)).

    >>> pg.distributions.SoftplusTransform()(Tensor(0.0))
    Tensor(0.6931472)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return softplus(x)

    def inv(self, y: Tensor) -> Tensor:
        return y + (-(-y).expm1()).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class PowerTransform(Transform):
    """y = x^exponent of x above 0.

    Args:
      exponent:  not 0

    >>> pg.distributions.PowerTransform(2.0)(Tensor(3.0))
    Tensor(9.)
    """

    def __init__(self, exponent: Number):
        self.exponent = exponent
        self.sign = exponent.sign() if isinstance(exponent, Tensor) else math.copysign(1.0, exponent)

    def __call__(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def inv(self, y: Tensor) -> Tensor:
        return y.pow(1.0 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class CumulativeDistributionTransform(Transform):
    """y = P(X <= x): from the numbers that a distribution gives to [0, 1].

    Args:
      distribution:  of X, which has cdf, icdf and log_prob

    >>> D = pg.distributions
    >>> D.CumulativeDistributionTransform(D.Uniform(0.0, 2.0))(Tensor(0.5))
    Tensor(0.25)
    """

    def __init__(self, distribution: Distribution):
        self.distribution = distribution

    def __call__(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def inv(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


class ComposeTransform(Transform):
    """One function after the other.

    Args:
      parts:  the first one first

    >>> D = pg.distributions
    >>> D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.ExpTransform()])(Tensor(0.0))
    Tensor(1.)
    """

    def __init__(self, parts: Sequence[Transform]):
        self.parts = list(parts)
        self.sign = math.prod(part.sign for part in self.parts)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def inv(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total = x * 0.0
        for part in self.parts:
            after = part(x)
            total, x = total + part.log_abs_det_jacobian(x, after), after
        return total


class TransformedDistribution(Distribution):
    """The distribution of y(x), x of another: log p(y) = log p(x) - log |dy / dx|.

    Args:
      base_distribution:  of x
      transforms:         y, or several, the first one first

    >>> D = pg.distributions
    >>> squashed = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.TanhTransform()])
    >>> squashed.log_prob(Tensor(0.0))
    Tensor(-0.9189385)
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ):
        self.base_dist = base_distribution
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        self.has_rsample = base_distribution.has_rsample  # type: ignore[misc]
        super().__init__(base_distribution.batch_shape, base_distribution.event_shape)

    def expand(self, batch_shape: Sizes) -> TransformedDistribution:
        return TransformedDistribution(self.base_dist.expand(batch_shape), self.transforms)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return ComposeTransform(self.transforms)(self.base_dist.rsample(sample_shape))

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            return ComposeTransform(self.transforms)(self.base_dist.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        whole = ComposeTransform(self.transforms)
        x = whole.inv(value)
        slope = summed(whole.log_abs_det_jacobian(x, value), len(self.event_shape))
        return self.base_dist.log_prob(x) - slope

    def cdf(self, value: Tensor) -> Tensor:
        whole = ComposeTransform(self.transforms)
        below = self.base_dist.cdf(whole.inv(value))
        return whole.sign * (below - 0.5) + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        whole = ComposeTransform(self.transforms)
        return whole(self.base_dist.icdf(whole.sign * (value - 0.5) + 0.5))
