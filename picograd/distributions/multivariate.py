"""The normal distribution of vectors.

In:    a mean, and a covariance, its inverse or its Cholesky factor
Out:   MultivariateNormal
"""

from __future__ import annotations

import math

from picograd.distributions.base import Distribution, Sizes
from picograd.distributions.constraints import is_known, lower_cholesky, positive_definite, real_vector, symmetric
from picograd.errors import ArgumentError
from picograd.linalg import cholesky, inv, solve_triangular
from picograd.tensor.tensor import Tensor


class MultivariateNormal(Distribution):
    """p(x) = exp(-|L^-1 (x - loc)|^2 / 2) / (det L (2 pi)^(D / 2)), L L^T the covariance.

    Args:
      loc:                (..., D), the mean
      covariance_matrix:  (..., D, D), positive definite
      precision_matrix:   in its place its inverse
      scale_tril:         in its place L, lower triangular with a positive diagonal

    Raises:
      ArgumentError: not one of the three is given, or loc has no axis.

    >>> pg.distributions.MultivariateNormal(pg.zeros(2), pg.eye(2)).log_prob(pg.zeros(2))
    Tensor(-1.837877)
    """

    has_rsample, support = True, real_vector
    arg_constraints = {
        "loc": real_vector, "covariance_matrix": positive_definite, "precision_matrix": positive_definite,
        "scale_tril": lower_cholesky,
    }  # fmt: skip

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ):  # fmt: skip
        factors = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = [(name, matrix) for name, matrix in factors.items() if matrix is not None]
        if len(given) != 1 or not loc.ndim:
            raise ArgumentError(
                "MultivariateNormal: give loc (..., D) and one of covariance_matrix, precision_matrix and scale_tril."
            )
        (name, matrix), self.loc = given[0], loc
        batch = Tensor.broadcast_shapes(loc.shape[:-1], matrix.shape[:-2])
        super().__init__(batch, loc.shape[-1:], validate_args)
        # That a matrix has a Cholesky factor is seen when that is computed.
        later = symmetric if name != "scale_tril" and not is_known(matrix) else None
        matrix = self._checked(name, matrix, later)
        if scale_tril is None:
            matrix = cholesky(matrix if precision_matrix is None else inv(matrix))
        self.loc = self.loc.expand((*self.batch_shape, *self.event_shape))
        self.scale_tril = matrix.expand((*self.batch_shape, *matrix.shape[-2:]))
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
        inverse: Tensor = inv(self.covariance_matrix)
        return inverse

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)
