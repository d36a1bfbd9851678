"""Further distributions of numbers and of proportions, each declared by its formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import picograd_distributions.constraints as c
from picograd import dtype as dtypes
from picograd.special import digamma, i0e, i1e
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Elementwise, Number, Sizes, either, together
from picograd_distributions.continuous import EULER, Inverted, Normal
from picograd_distributions.discrete import OfProbability
from picograd_distributions.transforms import StickBreakingTransform, TransformedDistribution

TRIES = 24  # per angle, made at once: all fail once in 10^11 draws


class Kumaraswamy(Inverted):
    """cdf(x) = 1 - (1 - x^a)^b for 0 <= x <= 1: similar to Beta(a, b), but invertible.

    Args:
      concentration1:  a, above 0
      concentration0:  b, above 0

    >>> pg.distributions.Kumaraswamy(1.0, 3.0).mean
    Tensor(0.25)
    """

    arg_constraints, support = {"concentration1": c.positive, "concentration0": c.positive}, c.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(self, concentration1: Number, concentration0: Number, validate_args: bool | None = None):
        super().__init__(concentration1, concentration0, validate_args=validate_args)

    def _uniform(self, sample_shape: Sizes) -> Tensor:
        return super()._uniform(sample_shape).clamp(min=2.0**-25)

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        rest = (-((a * value.log()).expm1())).log()
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * rest

    def _cdf(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return -((b * (-(value**a)).log1p()).expm1())

    def _icdf(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (-(((-value).log1p() / b).expm1())) ** a.reciprocal()

    def _moment(self, n: int) -> Tensor:
        """Returns E x^n = b B(1 + n / a, b)."""
        a, b = self.concentration1, self.concentration0
        first = 1 + n / a
        return (b.log() + first.lgamma() + b.lgamma() - (first + b).lgamma()).exp()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * (digamma(b + 1) + EULER) - a.log() - b.log()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return either((a < 1) | (b < 1), math.nan, ((a - 1) / (a * b - 1)) ** a.reciprocal())

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2


class GeneralizedPareto(Inverted):
    """cdf(x) = 1 - (1 + k z)^(-1 / k), z = (x - loc) / scale, k = concentration; 1 - exp(-z) for k = 0: excesses.

    Args:
      loc:            the smallest value
      scale:          above 0
      concentration:  k; if negative, values end at loc - scale / k

    >>> pg.distributions.GeneralizedPareto(0.0, 2.0, 0.0).mean
    Tensor(2.)
    """

    arg_constraints = {"loc": c.real, "scale": c.positive, "concentration": c.real}
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(self, loc: Number, scale: Number, concentration: Number, validate_args: bool | None = None):
        super().__init__(loc, scale, concentration, validate_args=validate_args)
        k = self.concentration
        self.support = c.interval(self.loc, either(k < 0, self.loc - self.scale / either(k < 0, k, -1.0), math.inf))

    def _near_0(self, z: Tensor, far: Callable[[Tensor], Tensor], series: Sequence[float]) -> Tensor:
        """Returns far(k); for small k z its series, z (1 + c1 k z + c2 (k z)^2 + c3 (k z)^3)."""
        k, edge = self.concentration, dtypes.finfo(z.dtype).eps ** 0.25
        w = k * z
        near = w.abs() < edge
        w = either(near, w, 0.0)
        return either(near, z * (1 + w * (series[0] + w * (series[1] + w * series[2]))), far(either(near, 1.0, k)))

    def _grown(self, x: Tensor) -> Tensor:
        """Returns log(1 + k z) / k; z for k = 0."""
        z = (x - self.loc) / self.scale
        return self._near_0(z, lambda k: (k * z).log1p() / k, (-1 / 2, 1 / 3, -1 / 4))

    def _log_prob(self, value: Tensor) -> Tensor:
        factor = self.concentration + 1  # if 0, the density is uniform: 0 log 0 is 0
        return either(factor == 0, 0.0, -factor * self._grown(value)) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """Returns log(1 - cdf(value))."""
        return -self._grown(self._supported(value))

    def log_cdf(self, value: Tensor) -> Tensor:
        """Returns log(cdf(value))."""
        return self.cdf(value).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return -((-self._grown(value)).expm1())

    def _icdf(self, value: Tensor) -> Tensor:
        rest = -(-value).log1p()
        return self.loc + self.scale * self._near_0(rest, lambda k: (k * rest).expm1() / k, (1 / 2, 1 / 6, 1 / 24))

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return either(k < 1, self.loc + self.scale / (1 - either(k < 1, k, 0.5)), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        k = either(self.concentration < 0.5, self.concentration, 0.25)
        return either(self.concentration < 0.5, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), math.nan)


class ContinuousBernoulli(OfProbability, Inverted):
    """p(x) = l exp(l x) / (exp(l) - 1) for 0 <= x <= 1, l = log(p / (1 - p)): pixels in a variational autoencoder.

    Near l = 0 series replace differences.

    Source: Loaiza-Ganem, Cunningham 2019, arXiv:1907.06845.

    Args:
      probs:   p, not the mean
      logits:  instead of probs: l
      lims:    accepted, without effect: series are used where they have full precision

    >>> pg.distributions.ContinuousBernoulli(0.5).variance
    Tensor(0.08333334)
    """

    support = c.unit_interval

    def __init__(
        self, probs: Number | None = None, logits: Number | None = None, lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ):  # fmt: skip
        OfProbability.__init__(self, probs, logits, validate_args)

    def _by_size(self, far: Tensor, series: tuple[float, ...]) -> Tensor:
        """Returns a series in l^2 for small l, else another value."""
        square, total = self.logits**2, 0.0 * self.logits
        for term in reversed(series):
            total = total * square + term
        return either(self.logits.abs() < 0.25, total, far)

    def _held(self) -> Tensor:
        """Returns l, moved away from 0."""
        return either(self.logits.abs() < 0.25, 1.0, self.logits)

    def level(self) -> Tensor:
        """Returns log((e^l - 1) / l); l x minus this is the log-density."""
        size = self._held().abs()
        far = (-((-size).expm1()) / size).log() - 0.5 * self.logits + self.logits.relu()
        even = self._by_size(far, (0, 1 / 24, -1 / 2880, 1 / 181440, -1 / 9676800))
        return even + 0.5 * self.logits

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.logits * value - self.level()

    def _cdf(self, value: Tensor) -> Tensor:
        slope, flat = self.logits, self.logits.abs() < 1e-4
        size = either(flat, 1.0, slope.abs())
        far = (slope.relu() * (value - 1)).exp() * (-size * value).expm1() / (-size).expm1()
        return either(flat, value + 0.5 * slope * value * (value - 1), far).clamp(0, 1)

    def _icdf(self, value: Tensor) -> Tensor:
        slope, near = self.logits, dtypes.finfo(self.logits.dtype).eps ** 0.25
        flat, rises = slope.abs() < near, slope > 0
        size = either(flat, 1.0, slope.abs())
        part = (either(rises, 1 - value, value) * (-size).expm1()).log1p() / -size
        spread = value * (1 - value)
        near_0 = value + spread * slope * (0.5 + slope * (1 - 2 * value) / 6)
        return either(flat, near_0, either(rises, 1 - part, part))

    def entropy(self) -> Tensor:
        return self.level() - self.logits * self.mean

    @property
    def mean(self) -> Tensor:
        held = self._held()
        far = (-((-held).expm1().reciprocal()) - held.reciprocal() - 0.5) / held
        return 0.5 + self.logits * self._by_size(far, (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160))

    @property
    def variance(self) -> Tensor:
        size = self._held().abs()
        far = size**-2 - (-size).exp() / (-size).expm1() ** 2
        return self._by_size(far, (1 / 12, -1 / 240, 1 / 6048, -1 / 172800, 1 / 5322240))


class VonMises(Elementwise):
    """p(x) = exp(k cos(x - loc)) / (2 pi I0(k)), for angles x in [-pi, pi], k = concentration.

    A sample is the first accepted one of TRIES proposals from a wrapped Cauchy distribution.

    Source: Best, Fisher 1979, Applied Statistics 28(2), section 2.

    Args:
      loc:            angle of the largest density, in radians
      concentration:  k, above 0

    >>> pg.distributions.VonMises(0.0, 1.0).log_prob(Tensor(0.0)).round(decimals=4)
    Tensor(-1.0738)
    """

    arg_constraints, support = {"loc": c.real, "concentration": c.positive}, c.real
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Number, concentration: Number, validate_args: bool | None = None):
        super().__init__(loc, concentration, validate_args=validate_args)

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            k = self.concentration.double()
            root = 1 + (1 + 4 * k * k).sqrt()
            small = (root - (2 * root).sqrt()) / (2 * k)
            r = either(k < 1e-5, 1 / k + k, (1 + small * small) / (2 * small))
            shape = self._extended(sample_shape)
            angle, chance = (Tensor.rand((TRIES, *shape), dtype=dtypes.float64, device=str(k.device)) for _ in range(2))
            z = (angle * math.pi).cos()
            cosine = (1 + r * z) / (r + z)
            part = k * (r - cosine)
            taken = (part.log() + 1 - part >= chance.clamp(min=1e-300).log()).long()
            number = Tensor.arange(TRIES, device=str(k.device)).reshape((TRIES, *(1,) * len(shape)))
            first = either(taken > 0, number, TRIES - 1).amin(0)
            cosine = either(number == first, cosine, 0.0).sum(0).clamp(-1, 1)
            turned = cosine.acos() * (Tensor.rand(shape, dtype=dtypes.float64, device=str(k.device)) - 0.5).sign()
            return ((turned + self.loc + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - i0e(k).log()

    @property
    def mean(self) -> Tensor:
        """The direction of the expected (cos x, sin x)."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        """1 minus the length of the expected (cos x, sin x)."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)


class LogisticNormal(TransformedDistribution):
    """Proportions (..., K + 1) from stick breaking by normal numbers (..., K).

    Args:
      loc:    (..., K), means
      scale:  (..., K), standard deviations, above 0

    >>> pg.distributions.LogisticNormal(pg.zeros(2), pg.ones(2)).event_shape
    (3,)
    """

    arg_constraints = {"loc": c.real_vector, "scale": c.independent(c.positive, 1)}

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None):
        self.loc, self.scale = together(loc, scale)
        base = Normal(self.loc, self.scale, validate_args=False)
        super().__init__(base, StickBreakingTransform(), validate_args)
