"""Parametrized weights: by direction and length, divided by the largest singular value, orthogonal."""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd import dtype as dtypes
from picograd import linalg
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.layers.spatial import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from picograd.nn.module import Module
from picograd.tensor.arguments import at_least
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_training.parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


TURNED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)  # their weights have the output channels second


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """Returns the norms of v along all axes except `dim`, kept with length 1; for None and -1 that of all elements."""
    if dim is None or dim == -1:
        return v.norm()
    kept = dim % v.ndim
    return v.norm(2, tuple(axis for axis in range(v.ndim) if axis != kept), keepdim=True)


def scaled_by_norm(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    """Returns g v / |v|, with the norm along all axes except `dim`."""
    return v * (g / norm_except(v, dim))


class _WeightNorm(Module):
    """g v / |v|, from g and v.

    dim:  axis along which g has lengths; None: a single length
    """

    def __init__(self, dim: int | None = 0):
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """weight_g (..., 1, ...), weight_v (...) -> (...)."""
        return scaled_by_norm(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrizes a weight as w = g v / |v|, and trains g and v; returns the module.

    Args:
      module:  owner of the weight
      name:    name of the weight
      dim:     g has a length for each index of this axis; None: a single length

    Raises:
      ArgumentError: the module has no such parameter.

    Source: Salimans, Kingma 2016, arXiv:1602.07868, eq. 2.

    >>> net = weight_norm(nn.Linear(3, 2))
    >>> {name: p.shape for name, p in net.named_parameters()}["parametrizations.weight.original0"]
    (2, 1)
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class SpectralPart:
    """The singular vectors u and v of a weight's largest singular value, updated by power iteration.

    v_first:  as in the older form, update v from u, then u from v
    """

    def __init__(self, steps: int, dim: int, eps: float, v_first: bool = False):
        at_least("spectral_norm", "n_power_iterations", steps, 1)
        self.steps, self.dim, self.eps, self.v_first = steps, dim, eps, v_first

    def matrix(self, weight: Tensor) -> Tensor:
        """Returns the weight as a matrix with `dim` as first axis."""
        return weight.movedim(self.dim, 0).flatten(1)

    def start(self, weight: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Returns u and v from a random start."""
        rows, columns = self.matrix(weight).shape
        u, v = (Tensor.randn(n, dtype=weight.dtype, device=weight.device) for n in (rows, columns))
        pair = tuple(functional.normalize(x, dim=0, eps=self.eps) for x in (u, v))
        self.iterate(weight, pair[0], pair[1], steps)
        return pair[0], pair[1]

    def iterate(self, weight: Tensor, u: Tensor, v: Tensor, steps: int) -> None:
        """Updates u and v in place, towards the singular vectors."""
        with no_grad():
            matrix = self.matrix(weight.detach())
            moves = [(u, matrix, v), (v, matrix.mT, u)]
            for _ in range(steps):
                for moved, turned, start in moves[::-1] if self.v_first else moves:
                    moved.copy_(functional.normalize(turned.mv(start), dim=0, eps=self.eps))

    def divided(self, weight: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Returns the weight divided by u W v."""
        return weight / u.clone().dot(self.matrix(weight).mv(v.clone()))


class _SpectralNorm(Module):
    """W / sigma, with sigma from u and v, which each access in training updates."""

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
      module:              owner of the weight
      name:                name of the weight
      n_power_iterations:  number of iterations per access in training
      eps:                 lower bound of norms in normalization
      dim:                 axis of outputs: 0, or 1 for transposed convolutions

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


# ---- orthogonal weights ----
MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """Q = base @ map(X) for tall X; the transpose for wide X.

    Letters: n rows and k columns of the tall matrix.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool):
        self.shape, self.orthogonal_map, self.use_trivialization = weight.shape, orthogonal_map, use_trivialization
        self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:  # noqa: N803
        """X (..., n, k) -> the same shape."""
        is_wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if is_wide else X
        q = _reflected(tall) if self.orthogonal_map == "householder" else _rotated(tall, self.orthogonal_map)
        if self.base is not None:
            q = self.base @ q
        return q.mT if is_wide else q

    @no_grad()
    def right_inverse(self, value: Tensor) -> Tensor:
        if value.shape != self.shape:
            raise ShapeError(f"orthogonal: a weight of shape {value.shape} must be {self.shape}.")
        is_wide = value.shape[-2] < value.shape[-1]
        tall = value.mT if is_wide else value
        n, k = tall.shape[-2:]
        if self.use_trivialization:
            more = Tensor.randn(*tall.shape[:-1], n - k, dtype=tall.dtype, device=tall.device)
            self.base = tall.clone() if n == k and _is_orthogonal(tall) else _made_orthogonal(tall.cat([tall, more], -1))
            return -Tensor.eye(*value.shape[-2:], dtype=value.dtype, device=value.device).expand(value.shape).clone()
        if self.orthogonal_map != "householder":
            raise ArgumentError(
                f"orthogonal: {self.orthogonal_map} without use_trivialization has no inverse.",
                hint='orthogonal_map="householder"',
            )
        found = _reflectors(tall)
        return found.mT if is_wide else found


def _rotated(x: Tensor, orthogonal_map: str) -> Tensor:
    """Returns (..., n, k): exp(A), or (I - A / 2)^-1 (I + A / 2), of the skew-symmetric A with lower triangle x."""
    n, k = x.shape[-2:]
    square = x.tril().pad((0, n - k))
    skew = square - square.mT
    if orthogonal_map == "matrix_exp":
        whole = skew.matrix_exp()
    else:
        one = Tensor.eye(n, dtype=x.dtype, device=x.device)
        whole = linalg.solve(one - skew * 0.5, one + skew * 0.5)
    return whole[..., :k]


def _reflected(x: Tensor) -> Tensor:
    """Returns (..., n, k): the product of reflections by the columns of x below the diagonal, with the diagonal's signs."""
    vectors = x.tril(-1)
    tau = 2.0 / (1.0 + (vectors * vectors).sum(-2))
    signs = x.diagonal(0, -2, -1).detach().to(dtypes.int64).unsqueeze(-2)
    return linalg.householder_product(vectors, tau) * signs


def _reflectors(tall: Tensor) -> Tensor:
    """Returns (..., n, k): the X whose `_reflected` is Q of tall = QR, R with positive diagonal."""
    q = _made_orthogonal(tall)
    n, k = q.shape[-2:]
    place = Tensor.arange(n, device=q.device)
    rest, columns, signs = q, [], []
    for i in range(k):  # Householder 1958: v = column + sign e, so v[i] is not small
        column = rest[..., i:, i]
        sign = (column[..., :1] < 0).to(q.dtype) * -2.0 + 1.0
        pivot = column[..., :1] + sign
        vector = (column / pivot).pad((i, 0))
        vector = vector * (place > i) + (place == i).to(q.dtype)
        tau = 2.0 / (vector * vector).sum(-1, keepdim=True)
        rest = rest - (tau * vector).unsqueeze(-1) * (vector.unsqueeze(-2) @ rest)
        columns.append(vector * (place > i))
        signs.append(-sign)
    lower = Tensor.stack(columns, -1)
    return lower + Tensor.cat(signs, -1).diag_embed().pad((0, 0, 0, n - k))


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.shape[-2:]
    off = q.mT @ q - Tensor.eye(k, dtype=q.dtype, device=q.device)
    return bool((off.abs() <= 10.0 * dtypes.finfo(q.dtype).eps * n).all())


def _made_orthogonal(matrix: Tensor) -> Tensor:
    """Returns Q of a matrix QR, R with positive diagonal."""
    q, r = linalg.qr(matrix)
    return q * r.diagonal(0, -2, -1).sign().unsqueeze(-2)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keeps a weight orthogonal: Q.T @ Q is I if it is square or tall, else Q @ Q.T; returns the module.

    Args:
      module:              the owner of the weight
      name:                name of the weight, a matrix or a stack of matrices
      orthogonal_map:      "matrix_exp": exp(A) of a skew-symmetric A. "cayley": (I - A / 2)^-1 (I + A / 2). "householder":
                           a product of reflections. None: "matrix_exp" for square matrices, else "householder"
      use_trivialization:  multiply a fixed matrix by it; its initial value is the orthogonalized weight

    Raises:
      ArgumentError: the module has no such parameter, or the map is unknown.
      ShapeError:    the weight has fewer than two axes.

    Source: Lezcano-Casado 2019, arXiv:1909.09501.

    >>> weight = orthogonal(nn.Linear(2, 3)).weight
    >>> bool(((weight.T @ weight - pg.eye(2)).abs() < 1e-5).all())
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"orthogonal: {type(module).__name__} has no parameter {name!r}.")
    if weight.ndim < 2:
        raise ShapeError(f"orthogonal: needs a matrix or a stack of matrices, got shape {weight.shape}.")
    chosen = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if chosen not in MAPS:
        raise ArgumentError(f"orthogonal: orthogonal_map must be one of {', '.join(MAPS)}, got {orthogonal_map!r}.")
    part = _Orthogonal(weight, chosen, use_trivialization)
    return register_parametrization(module, name, part, unsafe=True)
