"""Distributions of matrices, and of vectors whose covariance is diagonal plus low rank."""

from __future__ import annotations

import math

import picograd_distributions.constraints as c
from picograd.errors import ArgumentError, ShapeError
from picograd.linalg import cholesky, inv, solve_triangular
from picograd.special import digamma
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Number, Sizes, either
from picograd_distributions.continuous import MATRICES, lower_factor, one_matrix
from picograd_distributions.gamma_draws import standard_gamma
from picograd_distributions.gammas import Beta

LOG_2 = math.log(2)


def _diagonal(x: Tensor) -> Tensor:
    return x.diagonal(0, -2, -1)


def _log_det(lower: Tensor) -> Tensor:
    """Returns log det of a triangular matrix."""
    return _diagonal(lower).log().sum(-1)


def _solved(lower: Tensor, right: Tensor) -> Tensor:
    """Returns L^-1 times matrices; batches broadcast."""
    batch = Tensor.broadcast_shapes(lower.shape[:-2], right.shape[:-2])
    lower, right = (one.expand((*batch, *one.shape[-2:])) for one in (lower, right))
    return solve_triangular(lower, right, upper=False)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance W W^T + diag(d): K factors plus noise per element.

    Its inverse and its determinant come from the K x K matrix 1 + W^T diag(1 / d) W.

    Args:
      loc:         (..., D), the mean
      cov_factor:  (..., D, K), W
      cov_diag:    (..., D), d, above 0

    Raises:
      ShapeError: the shapes do not match.

    >>> pg.distributions.LowRankMultivariateNormal(pg.zeros(2), pg.ones(2, 1), pg.ones(2)).covariance_matrix.tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """

    has_rsample, support = True, c.real_vector
    arg_constraints = {
        "loc": c.real_vector, "cov_factor": c.independent(c.real, 2), "cov_diag": c.independent(c.positive, 1),
    }  # fmt: skip

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None):
        if not loc.ndim or cov_factor.ndim < 2 or not loc.shape[-1:] == cov_factor.shape[-2:-1] == cov_diag.shape[-1:]:
            raise ShapeError(
                f"LowRankMultivariateNormal: loc (..., D), cov_factor (..., D, K) and cov_diag (..., D) have shapes"
                f" {loc.shape}, {cov_factor.shape} and {cov_diag.shape}."
            )
        batch = Tensor.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        event = loc.shape[-1:]
        self.loc, self.cov_diag = loc.expand((*batch, *event)), cov_diag.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, event, validate_args)

    def _capacitance(self) -> tuple[Tensor, Tensor]:
        """Returns W^T diag(1 / d) (..., K, D), and the Cholesky factor of 1 + W^T diag(1 / d) W."""
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        one = Tensor.eye(scaled.shape[-2], dtype=scaled.dtype, device=str(scaled.device))
        return scaled, cholesky(scaled @ self.cov_factor + one)

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        shape = self._extended(sample_shape)
        noise = Tensor.randn_like(self.loc.expand(shape))
        factors = Tensor.randn_like(self.cov_factor[..., :1, :].expand((*shape[:-1], 1, self.cov_factor.shape[-1])))
        return self.loc + (self.cov_factor @ factors.mT).squeeze(-1) + self.cov_diag.sqrt() * noise

    def _log_prob(self, value: Tensor) -> Tensor:
        off = value - self.loc
        scaled, lower = self._capacitance()
        inner = _solved(lower, scaled @ off.unsqueeze(-1)).squeeze(-1)
        squares = (off * off / self.cov_diag).sum(-1) - inner.square().sum(-1)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + squares) - self.half_log_det()

    def half_log_det(self) -> Tensor:
        """Returns log det of the covariance, halved."""
        return _log_det(self._capacitance()[1]) + 0.5 * self.cov_diag.log().sum(-1)

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.half_log_det()

    @property
    def covariance_matrix(self) -> Tensor:
        """W W^T + diag(d)."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        scaled, lower = self._capacitance()
        inner = _solved(lower, scaled)
        return self.cov_diag.reciprocal().diag_embed() - inner.mT @ inner

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return cholesky(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag


class LKJCholesky(Distribution):
    """The Cholesky factor L of a random correlation matrix, with p(L L^T) ~ det(L L^T)^(concentration - 1).

    Row i has i numbers in a uniformly distributed direction; their sum of squares has the distribution
    Beta(i / 2, concentration + (D - 1 - i) / 2).

    Source: Lewandowski, Kurowicka, Joe 2009, Journal of Multivariate Analysis 100(9), section 3.2 and theorem 5.

    Args:
      dim:            D, number of rows and columns, at least 2
      concentration:  above 0; 1 gives the uniform distribution of correlation matrices

    Raises:
      ArgumentError: dim is below 2.

    >>> pg.distributions.LKJCholesky(2, 1.0).log_prob(pg.eye(2))
    Tensor(-0.6931472)
    """

    arg_constraints, support = {"concentration": c.positive}, c.corr_cholesky

    def __init__(self, dim: int, concentration: Number = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ArgumentError(f"LKJCholesky: dim must be 2 or more, got {dim}.")
        self.dim = dim
        self.concentration = concentration if isinstance(concentration, Tensor) else Tensor(float(concentration))
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _rows(self) -> Tensor:
        """Returns 1, 2, ... D - 1."""
        like = self.concentration
        return Tensor.arange(1, self.dim, dtype=like.dtype, device=str(like.device))

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            rows = self._rows()
            shape = (*sample_shape, *self.batch_shape, self.dim - 1, self.dim - 1)
            first = (0.5 * rows).expand((*self.batch_shape, self.dim - 1))
            rest = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 1 - rows)
            squares = Beta(first, rest, validate_args=False).sample(sample_shape)
            below = Tensor.randn(shape, dtype=rows.dtype, device=str(rows.device)).tril()
            below = below * (squares / below.square().sum(-1)).sqrt().unsqueeze(-1)
            ends = (1 - squares).clamp(min=0.0).sqrt()
            top = Tensor.zeros_like(below[..., :1, :])
            left = Tensor.cat([top, below], -2)
            left = Tensor.cat([left, Tensor.zeros_like(left[..., :1])], -1)
            return left + Tensor.cat([Tensor.ones_like(ends[..., :1]), ends], -1).diag_embed()

    def _log_prob(self, value: Tensor) -> Tensor:
        rows, count = self._rows(), self.dim - 1
        powers = 2 * (self.concentration.unsqueeze(-1) - 1) + (count - rows)
        weighed = (powers * _diagonal(value)[..., 1:].log()).sum(-1)
        whole = self.concentration + 0.5 * count
        level = (whole - 0.5).mvlgamma(count) - count * whole.lgamma() + 0.5 * count * math.log(math.pi)
        return weighed - level


class Wishart(Distribution):
    """The distribution of X X^T, where X has df columns from a normal distribution with covariance L L^T.

    df need not be an integer. A sample is L A A^T L^T, A lower triangular with normal numbers and, on its diagonal, roots
    of Chi2(df - i).

    Source: Bartlett 1933, "On the theory of statistical regression".

    Args:
      df:                 degrees of freedom, above D - 1
      covariance_matrix:  (..., D, D), positive definite
      precision_matrix:   instead: its inverse
      scale_tril:         instead: L, lower triangular with a positive diagonal

    Raises:
      ArgumentError: not exactly one of the three is given.

    >>> pg.distributions.Wishart(3.0, pg.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    has_rsample, support = True, c.positive_definite

    def __init__(
        self, df: Number, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ):  # fmt: skip
        fact = "Wishart: give df and one of covariance_matrix, precision_matrix and scale_tril (..., D, D)."
        name, matrix = one_matrix(fact, covariance_matrix, precision_matrix, scale_tril)
        size = matrix.shape[-1]
        self.df = df if isinstance(df, Tensor) else Tensor(float(df), matrix.dtype, str(matrix.device))
        batch = Tensor.broadcast_shapes(self.df.shape, matrix.shape[:-2])
        self.df = self.df.expand(batch)
        self.arg_constraints = {"df": c.greater_than(size - 1.0), **MATRICES}
        super().__init__(batch, (size, size), validate_args)
        self.scale_tril = lower_factor(self, name, matrix)
        self.parameters = ("df", "scale_tril")

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        size, shape = self.event_shape[0], self._extended(sample_shape)
        order = Tensor.arange(size, dtype=self.df.dtype, device=str(self.df.device))
        halves = 0.5 * (self.df.unsqueeze(-1) - order)
        ends = (2 * standard_gamma(halves.expand(shape[:-1]))).sqrt()
        noise = Tensor.randn_like(self.scale_tril.expand(shape)).tril(-1) + ends.diag_embed()
        root = self.scale_tril @ noise
        return root @ root.mT

    def _log_prob(self, value: Tensor) -> Tensor:
        size, half = self.event_shape[0], 0.5 * self.df
        root = cholesky(value)
        trace = _solved(self.scale_tril, root).square().sum((-2, -1))
        level = self.df * _log_det(self.scale_tril) + half * size * LOG_2 + half.mvlgamma(size)
        return (self.df - size - 1) * _log_det(root) - 0.5 * trace - level

    def entropy(self) -> Tensor:
        size, half = self.event_shape[0], 0.5 * self.df
        slope = digamma(half)
        for i in range(1, size):
            slope = slope + digamma(half - 0.5 * i)
        level = (size + 1) * (_log_det(self.scale_tril) + 0.5 * size * LOG_2) + half.mvlgamma(size)
        return level - 0.5 * (self.df - size - 1) * slope + half * size

    def _scaled(self, factor: Tensor) -> Tensor:
        return factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of L L^T."""
        return inv(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self._scaled(self.df)

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.event_shape[0] - 1
        return self._scaled(either(factor > 0, factor, math.nan))

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        ends = _diagonal(covariance)
        spread = covariance.square() + ends.unsqueeze(-1) * ends.unsqueeze(-2)
        return self.df.unsqueeze(-1).unsqueeze(-1) * spread
