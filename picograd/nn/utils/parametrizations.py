"""Weights as direction and length, and weights whose largest singular value is 1.

In:    a module with a weight
Out:   `weight_norm`, `spectral_norm`; `orthogonal`
Next:  picograd/nn/utils/orthogonal.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.layers.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from picograd.nn.module import Module
from picograd.nn.utils.orthogonal import orthogonal
from picograd.nn.utils.parametrize import register_parametrization
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

TURNED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)  # whose weights have the output channels second


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """Returns the norms of v along all axes but `dim`, which stay with length 1; of all elements for None and -1."""
    if dim is None or dim == -1:
        return v.norm()
    kept = dim % v.ndim
    return v.norm(2, tuple(axis for axis in range(v.ndim) if axis != kept), keepdim=True)


def scaled_by_norm(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    """Returns g v / |v|, the norm along all axes but `dim`."""
    return v * (g / norm_except(v, dim))


class _WeightNorm(Module):
    """g v / |v|, from g and v.

    dim:  the axis along which g has lengths, None for one length
    """

    def __init__(self, dim: int | None = 0):
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """weight_g (..., 1, ...), weight_v (...) -> (...)."""
        return scaled_by_norm(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a weight w = g v / |v|, with g and v trained in its place; returns the module.

    Args:
      module:  whose weight it is
      name:    of the weight
      dim:     g has a length for each place of this axis; None: one for all

    Raises:
      ArgumentError: the module has no such parameter.

    Source: Salimans, Kingma 2016, arXiv:1602.07868, eq. 2.

    >>> net = weight_norm(nn.Linear(3, 2))
    >>> {name: p.shape for name, p in net.named_parameters()}["parametrizations.weight.original0"]
    (2, 1)
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class SpectralPart:
    """The singular vectors u and v of the largest singular value of a weight, followed by power iteration.

    v_first:  as the older form has it, v follows from u, and then u from v
    """

    def __init__(self, steps: int, dim: int, eps: float, v_first: bool = False):
        if steps <= 0:
            raise ArgumentError(f"spectral_norm: n_power_iterations must be at least 1, got {steps}.")
        self.steps, self.dim, self.eps, self.v_first = steps, dim, eps, v_first

    def matrix(self, weight: Tensor) -> Tensor:
        """Returns the weight with `dim` first and all else as the second axis."""
        return weight.movedim(self.dim, 0).flatten(1)

    def start(self, weight: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Returns u and v from a random start."""
        rows, columns = self.matrix(weight).shape
        u, v = (Tensor.randn(n, dtype=weight.dtype, device=weight.device) for n in (rows, columns))
        pair = tuple(functional.normalize(x, dim=0, eps=self.eps) for x in (u, v))
        self.iterate(weight, pair[0], pair[1], steps)
        return pair[0], pair[1]

    def iterate(self, weight: Tensor, u: Tensor, v: Tensor, steps: int) -> None:
        """Moves u and v, in place, towards the singular vectors."""
        with no_grad():
            matrix = self.matrix(weight.detach())
            moves = [(u, matrix, v), (v, matrix.mT, u)]
            for _ in range(steps):
                for moved, turned, start in moves[::-1] if self.v_first else moves:
                    moved.copy_(functional.normalize(turned.mv(start), dim=0, eps=self.eps))

    def divided(self, weight: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Returns the weight over u W v."""
        return weight / u.clone().dot(self.matrix(weight).mv(v.clone()))


class _SpectralNorm(Module):
    """W / sigma, sigma from u and v, which each reading in training moves on."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        if not -weight.ndim <= dim < weight.ndim:
            raise ShapeError(f"spectral_norm: dim {dim} is not an axis of a weight of shape {weight.shape}.")
        self.part = SpectralPart(n_power_iterations, dim % weight.ndim, eps)
        if weight.ndim > 1:
            u, v = self.part.start(weight, 15)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)

    def forward(self, weight: Tensor) -> Tensor:
        """weight -> the same shape."""
        if weight.ndim == 1:
            return functional.normalize(weight, dim=0, eps=self.part.eps)
        if self.training:
            self.part.iterate(weight, self._u, self._v, self.part.steps)
        return self.part.divided(weight, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value, found by power iteration; returns the module.

    Args:
      module:              whose weight it is
      name:                of the weight
      n_power_iterations:  each time it is read in training
      eps:                 least norm when vectors are normalised
      dim:                 the axis of outputs: 0, of transposed convolutions 1

    Raises:
      ArgumentError: the module has no such parameter, or n_power_iterations is below 1.

    Source: Miyato et al. 2018, arXiv:1802.05957, algorithm 1.

    >>> net = spectral_norm(nn.Linear(3, 3))
    >>> round(pg.linalg.svdvals(net.eval().weight.detach())[0].item(), 1)
    1.0
    """
    weight = vars(module).get(name)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}.")
    axis = (1 if isinstance(module, TURNED) else 0) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, axis, eps))
