"""Transforms of samples, with inverses and Jacobians, and the distributions of their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

import picograd_distributions.constraints as c
from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.linalg import cholesky
from picograd.nn.functional import softplus
from picograd.tensor.cell import trace
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_distributions.base import Distribution, Independent, NoFormulaError, Number, Sizes, summed
from picograd_distributions.constraints import Constraint

Shape = tuple[int, ...]


class Transform:
    """A function y(x) with its inverse and log |det dy / dx|. A user's own defines _call, _inverse and the logarithm.

    domain:     constraint of x
    codomain:   constraint of y
    bijective:  whether each y has a single x; else the inverse returns one of them
    sign:       sign of dy / dx, for functions of numbers

    Args:
      cache_size:  1: keep the last x and y, so that the inverse of that y is exactly x

    Raises:
      ArgumentError: cache_size is neither 0 nor 1.

    >>> pg.distributions.transforms.ExpTransform().inv(Tensor(1.0))
    Tensor(0.)
    """

    domain: Constraint = c.real
    codomain: Constraint = c.real
    bijective: bool = False
    sign: Number = 1
    fields: ClassVar[tuple[str, ...]] = ()  # arguments of the constructor kept as attributes

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ArgumentError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size}.")
        self._cache_size = cache_size
        self._last: tuple[Any, Any] = (None, None)  # x and y
        self._inv: Transform | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Returns y."""
        return self._kept(self._call, x, 0)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._kept(self._inverse, y, 1)

    def _kept(self, function: Callable[[Tensor], Tensor], given: Tensor, place: int) -> Tensor:
        """Returns the function of x (place 0) or of y (place 1), which may be cached.

        A traced function must not keep tensors, since it makes them at each call: it keeps their Ops.
        """
        if not self._cache_size:
            return function(given)
        is_traced = trace.get() is not None
        key, known = given.read() if is_traced else given, self._last[1 - place]
        if self._last[place] is key and known is not None:
            return Tensor.from_op(known, given.cell.device) if is_traced else known
        found = function(given)
        kept = found.read() if is_traced else found
        self._last = (kept, key) if place else (key, kept)
        return found

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: a subclass defines _call(x).")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: a subclass defines _inverse(y).")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |det dy / dx|, summed over the axes of a member."""
        raise NoFormulaError(f"log_abs_det_jacobian: {type(self).__name__} has no formula for it.")

    @property
    def inv(self) -> Transform:
        """The inverse, a Transform."""
        if self._inv is None:
            self._inv = self._inverted()
            self._inv._inv = self
        return self._inv

    def _inverted(self) -> Transform:
        return _InverseTransform(self)

    @property
    def event_dim(self) -> int:
        """The number of axes of a member, if x and y have the same.

        Raises:
          ArgumentError: they differ.
        """
        if self.domain.event_dim != self.codomain.event_dim:
            raise ArgumentError("event_dim: differs between x and y; use domain.event_dim or codomain.event_dim.")
        return self.domain.event_dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the same transform with a different cache_size."""
        if cache_size == self._cache_size:
            return self
        return type(self)(**{name: getattr(self, name) for name in self.fields}, cache_size=cache_size)

    def forward_shape(self, shape: Sizes) -> Shape:
        """Returns the shape of y for a shape of x."""
        return self._shape(tuple(shape), True)

    def inverse_shape(self, shape: Sizes) -> Shape:
        """Returns the shape of x for a shape of y."""
        return self._shape(tuple(shape), False)

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        least = (self.domain if forward else self.codomain).event_dim
        if len(shape) < least:
            raise ShapeError(f"{type(self).__name__}: needs {least} axes at least, got shape {shape}.")
        return shape

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _equal(getattr(self, name), getattr(other, name)) for name in self.fields
        )  # fmt: skip

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"


def _equal(a: Any, b: Any) -> bool:
    """Returns whether two arguments of constructors are equal; tensors are read."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return bool((a == b).all())
    return bool(a == b)


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform):
        super().__init__(transform._cache_size)
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective, self.sign = transform.bijective, transform.sign

    def __call__(self, x: Tensor) -> Tensor:
        return self.inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.inv.log_abs_det_jacobian(y, x)

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self.inv.with_cache(cache_size).inv

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        return self.inv._shape(shape, not forward)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self.inv == other.inv

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{self.inv!r}.inv"


# ---- of numbers ----
class _OfNumbers(Transform):
    """A transform of each element; its parameters broadcast."""

    bijective = True

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        parameters = [getattr(self, name) for name in self.fields]
        lengths = [one.shape for one in parameters if isinstance(one, Tensor)]
        return tuple(Tensor.broadcast_shapes(super()._shape(shape, forward), *lengths))


class AffineTransform(_OfNumbers):
    """y = loc + scale x.

    Args:
      loc:        value of y at 0
      scale:      not 0
      event_dim:  number of axes over which the Jacobian's logarithm is summed
      cache_size: as in Transform

    >>> pg.distributions.AffineTransform(1.0, 2.0)(Tensor(3.0))
    Tensor(7.)
    """

    fields = ("loc", "scale", "event_dim")

    def __init__(self, loc: Number, scale: Number, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        self.domain = self.codomain = c.independent(c.real, event_dim)
        self.sign = scale.sign() if isinstance(scale, Tensor) else int(scale > 0) - int(scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else x.new_full((), float(self.scale))
        return summed(scale.abs().log().expand(x.shape), self.event_dim)


class ExpTransform(_OfNumbers):
    """y = exp(x).

    >>> pg.distributions.ExpTransform().inv(Tensor(1.0))
    Tensor(0.)
    """

    codomain = c.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def _inside(x: Tensor) -> Tensor:
    """Returns numbers in [0, 1], clamped away from both ends."""
    info = dtypes.finfo(x.dtype)
    return x.clamp(info.tiny, 1 - info.eps)


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """Returns sigmoid(x), kept above 0 and below 1: encoders of users apply it, too."""
    return _inside(x.sigmoid())


class SigmoidTransform(_OfNumbers):
    """y = 1 / (1 + exp(-x)), kept above 0 and below 1 despite rounding.

    >>> pg.distributions.SigmoidTransform()(Tensor(0.0))
    Tensor(0.5)
    """

    codomain = c.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        y = _inside(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(_OfNumbers):
    """y = tanh(x); with cache_size=1 the inverse of a y that rounds to 1 is its x.

    >>> pg.distributions.TanhTransform()(Tensor(0.0))
    Tensor(0.)
    """

    codomain = c.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class SoftplusTransform(_OfNumbers):
    """y = log(1 + exp(x)).

    >>> pg.distributions.SoftplusTransform()(Tensor(0.0))
    Tensor(0.6931472)
    """

    codomain = c.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y + (-(-y).expm1()).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class PowerTransform(_OfNumbers):
    """y = x^exponent for x above 0.

    Args:
      exponent:    not 0
      cache_size:  as in Transform

    >>> pg.distributions.PowerTransform(2.0)(Tensor(3.0))
    Tensor(9.)
    """

    domain = codomain = c.positive
    fields = ("exponent",)

    def __init__(self, exponent: Number, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent
        self.sign = exponent.sign() if isinstance(exponent, Tensor) else int(exponent > 0) - int(exponent < 0)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1.0 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class AbsTransform(Transform):
    """y = |x|; its inverse returns the nonnegative x.

    >>> pg.distributions.AbsTransform()(Tensor(-2.0))
    Tensor(2.)
    """

    codomain = c.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class CumulativeDistributionTransform(_OfNumbers):
    """y = P(X <= x): from values of a distribution to [0, 1].

    Args:
      distribution:  distribution of X, with cdf, icdf and log_prob
      cache_size:    as in Transform

    >>> D = pg.distributions
    >>> D.CumulativeDistributionTransform(D.Uniform(0.0, 2.0))(Tensor(0.5))
    Tensor(0.25)
    """

    codomain = c.unit_interval
    fields = ("distribution",)

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution = distribution
        self.domain = distribution.support or c.real

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


# ---- of vectors and matrices ----
class SoftmaxTransform(Transform):
    """y = softmax(x) along the last axis; the inverse is log(y).

    >>> pg.distributions.SoftmaxTransform()(pg.zeros(2))
    Tensor([0.5, 0.5])
    """

    domain, codomain = c.real_vector, c.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """Proportions y (..., K + 1) from x (..., K): y_k is the fraction sigmoid(x_k - log(K - k)) of the rest.

    >>> pg.distributions.StickBreakingTransform()(pg.zeros(1))
    Tensor([0.5, 0.5])
    """

    domain, codomain, bijective = c.real_vector, c.simplex, True

    def _moved(self, x: Tensor) -> Tensor:
        return x - _left(x)

    def _call(self, x: Tensor) -> Tensor:
        u = self._moved(x)
        one = Tensor.ones_like(x[..., :1])
        left = (-softplus(u)).cumsum(-1).exp()
        return Tensor.cat([u.sigmoid(), one], -1) * Tensor.cat([one, left], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        after = y.flip(-1).cumsum(-1).flip(-1)[..., 1:]
        return (y[..., :-1] / after).log() + _left(y[..., :-1])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (y[..., :-1].log() - softplus(self._moved(x))).sum(-1)

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        *batch, length = super()._shape(shape, forward)
        return (*batch, length + (1 if forward else -1))


def _left(x: Tensor) -> Tensor:
    """Returns log(K), log(K - 1), ... log(1)."""
    return Tensor.arange(x.shape[-1], 0, -1, dtype=x.dtype, device=str(x.device)).log()


class LowerCholeskyTransform(Transform):
    """The lower triangle of a matrix x (..., D, D), with exp on its diagonal.

    >>> pg.distributions.LowerCholeskyTransform()(pg.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain, codomain = c.independent(c.real, 2), c.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """L L^T of a matrix x (..., D, D), L its LowerCholeskyTransform.

    >>> pg.distributions.PositiveDefiniteTransform()(pg.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain, codomain = c.independent(c.real, 2), c.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """The Cholesky factor y (..., D, D) of a correlation matrix, from a vector x (..., D (D - 1) / 2).

    Row i has the direction cosines r_j sqrt((1 - r_0^2) ... (1 - r_{j - 1}^2)) of r = tanh(its part of x), and a diagonal
    that makes its length 1. The Jacobian is that of the lower triangle of y.

    Source: Lewandowski, Kurowicka, Joe 2009, section 2: partial correlations are r.

    >>> pg.distributions.CorrCholeskyTransform()(pg.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain, codomain, bijective = c.real_vector, c.corr_cholesky, True

    def _call(self, x: Tensor) -> Tensor:
        size = self._shape(tuple(x.shape), True)[-1]
        places, below = np.zeros((size, size), np.int64), np.tri(size, k=-1, dtype=bool)
        places[below] = np.arange(x.shape[-1])
        device = str(x.device)
        if size == 1:
            return x.new_full((*x.shape[:-1], 1, 1), 1.0)
        r = x[..., Tensor(places.reshape(-1), device=device)].reshape((*x.shape[:-1], size, size)).tanh()
        r = r.masked_fill(Tensor(~below, device=device), 0.0)
        left = (1 - r * r).sqrt().cumprod(-1)
        before = Tensor.cat([Tensor.ones_like(left[..., :1]), left[..., :-1]], -1)
        return (r + Tensor.eye(size, dtype=x.dtype, device=device)) * before

    def _inverse(self, y: Tensor) -> Tensor:
        rest = (y * y).flip(-1).cumsum(-1).flip(-1)  # 1 minus the squares before
        return _below(y / rest.clamp(min=1e-38).sqrt(), -1).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rest = (y * y).flip(-1).cumsum(-1).flip(-1)
        slopes = 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))
        return 0.5 * _below(rest, -1).log().sum(-1) + slopes.sum(-1)

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        shape = super()._shape(shape, forward)
        if not forward:
            if shape[-1] != shape[-2]:
                raise ShapeError(f"CorrCholeskyTransform: a matrix must be square, got shape {shape}.")
            return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
        size = round(math.sqrt(0.25 + 2 * shape[-1]) + 0.5)
        if size * (size - 1) // 2 != shape[-1]:
            raise ShapeError(f"CorrCholeskyTransform: {shape[-1]} elements are not a triangle below a diagonal.")
        return (*shape[:-1], size, size)


def _below(x: Tensor, diagonal: int) -> Tensor:
    """Returns the elements below the diagonal of matrices, row by row."""
    size = x.shape[-1]
    rows, columns = np.tril_indices(size, diagonal)
    return x.reshape((*x.shape[:-2], size * size))[..., Tensor(rows * size + columns, device=str(x.device))]


class ReshapeTransform(Transform):
    """x with its last axes in another shape; log |det| is 0.

    Args:
      in_shape:    shape of the last axes of x
      out_shape:   shape of the last axes of y
      cache_size:  as in Transform

    Raises:
      ShapeError: the numbers of elements differ.

    >>> pg.distributions.ReshapeTransform((4,), (2, 2)).forward_shape((3, 4))
    (3, 2, 2)
    """

    bijective = True
    fields = ("in_shape", "out_shape")

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(in_shape) != math.prod(out_shape):
            raise ShapeError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} differ in their numbers of elements.")
        self.domain = c.independent(c.real, len(self.in_shape))
        self.codomain = c.independent(c.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_full(x.shape[: x.ndim - len(self.in_shape)], 0.0)

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        shape = super()._shape(shape, forward)
        old, new = (self.in_shape, self.out_shape) if forward else (self.out_shape, self.in_shape)
        cut = len(shape) - len(old)
        if shape[cut:] != old:
            raise ShapeError(f"ReshapeTransform: the last axes must be {old}, got shape {shape}.")
        return shape[:cut] + new


# ---- of transforms ----
class IndependentTransform(Transform):
    """A transform whose last batch axes become axes of a member: the Jacobians' logarithms are summed over them.

    Args:
      base_transform:             transform of single members
      reinterpreted_batch_ndims:  number of these axes
      cache_size:                 as in Transform

    >>> D = pg.distributions
    >>> D.IndependentTransform(D.ExpTransform(), 1).log_abs_det_jacobian(pg.ones(3), pg.ones(3))
    Tensor(3.)
    """

    fields = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size) if cache_size else base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.domain = c.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = c.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective, self.sign = base_transform.bijective, base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        super()._shape(tuple(x.shape), True)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        super()._shape(tuple(y.shape), False)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        return self.base_transform._shape(super()._shape(shape, forward), forward)


class ComposeTransform(Transform):
    """The composition of transforms.

    Args:
      parts:       transforms, the first one is applied first
      cache_size:  as in Transform, for each part

    >>> D = pg.distributions
    >>> D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.ExpTransform()])(Tensor(0.0))
    Tensor(1.)
    """

    fields = ("parts",)

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        self.sign = math.prod(part.sign for part in self.parts)
        if self.parts:
            pairs = [(part.domain.event_dim, part.codomain.event_dim) for part in self.parts]
            self.domain = _with_axes(self.parts[0].domain, _axes([pair[::-1] for pair in pairs[::-1]]))
            self.codomain = _with_axes(self.parts[-1].codomain, _axes(pairs))

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def _inverted(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return Tensor.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Number = 0.0
        axes = self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:]):
            total = total + summed(part.log_abs_det_jacobian(before, after), axes - part.domain.event_dim)
            axes += part.codomain.event_dim - part.domain.event_dim
        assert isinstance(total, Tensor), "a part has a logarithm"
        return total

    def _shape(self, shape: Shape, forward: bool) -> Shape:
        for part in self.parts if forward else reversed(self.parts):
            shape = part._shape(shape, forward)
        return shape


def _axes(pairs: Sequence[tuple[int, int]]) -> int:
    """Returns the number of axes of a member after these functions."""
    axes = pairs[0][0]
    for before, after in pairs:
        axes = max(axes, before) - before + after
    return axes


def _with_axes(constraint: Constraint, axes: int) -> Constraint:
    """Returns a constraint for members with more axes."""
    return c.independent(constraint, axes - constraint.event_dim) if axes > constraint.event_dim else constraint


identity_transform = ComposeTransform([])


class _Joined(Transform):
    """Transforms of the parts of a tensor along an axis.

    tseq:  transforms
    dim:   the axis
    """

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int):
        super().__init__(cache_size)
        self.tseq = [part.with_cache(cache_size) for part in tseq] if cache_size else list(tseq)
        self.dim, self.bijective = dim, all(part.bijective for part in self.tseq)

    def _cut(self, x: Tensor, forward: bool) -> list[Tensor]:
        """Returns the part of x or y that belongs to each transform."""
        raise NotImplementedError

    def _join(self, parts: list[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([part(one) for part, one in zip(self.tseq, self._cut(x, True))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([part.inv(one) for part, one in zip(self.tseq, self._cut(y, False))], self.dim)


class CatTransform(_Joined):
    """Transforms of consecutive parts of an axis, as Tensor.cat joins them.

    Args:
      tseq:        transforms that keep lengths
      dim:         the axis
      lengths:     lengths of the parts; None: 1 each
      cache_size:  as in Transform, for each part

    Raises:
      ShapeError: the number of parts, or the sum of their lengths, is wrong.

    >>> D = pg.distributions
    >>> D.CatTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)], 0, [1, 2])(Tensor([0.0, 1.0, 2.0]))
    Tensor([1., 2., 4.])
    """

    fields = ("tseq", "dim", "lengths")

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ):
        super().__init__(tseq, dim, cache_size)
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.tseq)
        if len(self.lengths) != len(self.tseq):
            raise ShapeError(f"CatTransform: {len(self.lengths)} lengths for {len(self.tseq)} transforms.")
        self.length = sum(self.lengths)
        self.domain = c.cat([part.domain for part in self.tseq], dim, self.lengths)
        self.codomain = c.cat([part.codomain for part in self.tseq], dim, self.lengths)

    def _cut(self, x: Tensor, forward: bool) -> list[Tensor]:
        if x.shape[self.dim] != self.length:
            raise ShapeError(f"CatTransform: axis {self.dim} must be {self.length} long, got shape {x.shape}.")
        return list(x.split(self.lengths, self.dim))

    def _join(self, parts: list[Tensor], dim: int) -> Tensor:
        return Tensor.cat(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        axes, found = self.domain.event_dim, []
        for part, before, after in zip(self.tseq, self._cut(x, True), self._cut(y, False)):
            found.append(summed(part.log_abs_det_jacobian(before, after), axes - part.domain.event_dim))
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        dim += axes
        if dim < 0:
            return Tensor.cat(found, dim)
        total = found[0]
        for one in found[1:]:
            total = total + one
        return total


class StackTransform(_Joined):
    """A transform for each index of an axis, as Tensor.stack joins them.

    Args:
      tseq:        transforms
      dim:         the axis
      cache_size:  as in Transform, for each part

    Raises:
      ShapeError: the axis has a different length.

    >>> D = pg.distributions
    >>> D.StackTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)])(Tensor([0.0, 1.0]))
    Tensor([1., 2.])
    """

    fields = ("tseq", "dim")

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(tseq, dim, cache_size)
        self.domain = c.stack([part.domain for part in self.tseq], dim)
        self.codomain = c.stack([part.codomain for part in self.tseq], dim)

    def _cut(self, x: Tensor, forward: bool) -> list[Tensor]:
        if x.shape[self.dim] != len(self.tseq):
            raise ShapeError(f"StackTransform: axis {self.dim} must be {len(self.tseq)} long, got shape {x.shape}.")
        return list(x.unbind(self.dim))

    def _join(self, parts: list[Tensor], dim: int) -> Tensor:
        return Tensor.stack(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.tseq, self._cut(x, True), self._cut(y, False))
        return self._join([part.log_abs_det_jacobian(before, after) for part, before, after in parts], self.dim)


# ---- distributions ----
class TransformedDistribution(Distribution):
    """The distribution of y(x) for x from another one: log p(y) = log p(x) - log |det dy / dx|.

    Args:
      base_distribution:  distribution of x
      transforms:         y, or several transforms, the first one applied first

    Raises:
      ShapeError: the shape of x does not match.

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
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        whole, base = ComposeTransform(self.transforms), base_distribution
        shape, axes = base.batch_shape + base.event_shape, len(base.event_shape)
        after = whole.forward_shape(shape)
        before = whole.inverse_shape(after)
        if before != shape:
            base = base.expand(before[: len(before) - axes])
        if (more := whole.domain.event_dim - axes) > 0:
            base = Independent(base, more)
        cut = len(after) - whole.codomain.event_dim - max(-more, 0)
        self.base_dist, self.has_rsample = base, base.has_rsample  # type: ignore[misc]
        self.support = _with_axes(whole.codomain, len(after) - cut) if self.transforms else base.support
        super().__init__(after[:cut], after[cut:], validate_args)

    def expand(self, batch_shape: Sizes, _instance: Self | None = None) -> Self:
        made = super().expand(batch_shape, _instance)
        whole = ComposeTransform(self.transforms)
        before = whole.inverse_shape((*batch_shape, *self.event_shape))
        made.base_dist = self.base_dist.expand(before[: len(before) - len(self.base_dist.event_shape)])
        return made

    def rsample(self, sample_shape: Sizes = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def sample(self, sample_shape: Sizes = ()) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _log_prob(self, value: Tensor) -> Tensor:
        total: Number = 0.0
        axes = len(self.event_shape)
        for transform in reversed(self.transforms):
            before = transform.inv(value)
            axes += transform.domain.event_dim - transform.codomain.event_dim
            total = total - summed(transform.log_abs_det_jacobian(before, value), axes - transform.domain.event_dim)
            value = before
        return total + summed(self.base_dist.log_prob(value), axes - len(self.base_dist.event_shape))

    def _cdf(self, value: Tensor) -> Tensor:
        whole = ComposeTransform(self.transforms)
        below = self.base_dist.cdf(whole.inv(value))
        return whole.sign * (below - 0.5) + 0.5

    def _icdf(self, value: Tensor) -> Tensor:
        whole = ComposeTransform(self.transforms)
        return whole(self.base_dist.icdf(whole.sign * (value - 0.5) + 0.5))
