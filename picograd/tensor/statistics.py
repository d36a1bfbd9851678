"""Statistics: reductions without NaN, running extremes, norms, distances, covariances, histograms.

A histogram takes time linear in elements plus bins: each element is added to its bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import (
    both,
    cast,
    compare,
    diagonal,
    differs,
    expand,
    iota,
    less,
    less_equal,
    minimum,
    move_back,
    move_last,
    pad_axis,
    positions,
    reduce,
    reshape,
    scan,
    scatter,
    shrink,
    shrink_axis,
    unary,
    where,
)
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import ceildiv
from picograd.tensor import pointwise
from picograd.tensor.arguments import at_least, tensor_of
from picograd.tensor.build import (
    axes_of,
    axis_of,
    broadcast_shapes,
    broadcast_to,
    detached,
    guarded,
    need_float,
    one_name,
    promoted,
    static,
    to_float,
    whole,
)
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.elementwise import composed
from picograd.tensor.formulas import of_tensors
from picograd.tensor.indexing import integer_index, needs_dtype
from picograd.tensor.inplace import in_place
from picograd.tensor.operators import result_of
from picograd.tensor.order import places_of
from picograd.tensor.reductions import Axes, MaxResult, norm_op, not_empty, scanned
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "allclose", "aminmax", "bincount", "cdist", "corrcoef", "count_nonzero", "cov", "cross", "cummax", "cummin",
    "diff", "dist", "equal", "histc", "histogram", "logcumsumexp", "nanmean", "nansum", "norm", "renorm",
    "std_mean", "var_mean",
]  # fmt: skip

# ---- reductions made of others ----
RUNNING_BLOCK = 16  # elements whose pairs are all computed; 8 and 32 took 1.4 times as long, with gradients


class MinMaxResult(NamedTuple):
    """The result of aminmax: the smallest and the largest elements, `min` and `max`."""

    min: Any
    max: Any


# ---- along axes ----
def aminmax(self: T, *, dim: int | None = None, keepdim: bool = False, axis: int | None = None) -> MinMaxResult:
    """Returns the smallest and the largest element, of all or along one axis; NaN if there is one, which gets the gradient.

    >>> low, high = Tensor([3, 1, 2]).aminmax()
    >>> low.item(), high.item()
    (1, 3)
    """
    return MinMaxResult(self.amin(dim, keepdim, axis=axis), self.amax(dim, keepdim, axis=axis))


def nansum(
    self: T,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the sum, with NaN counted as 0.

    >>> Tensor([1.0, float("nan"), 2.0]).nansum()
    Tensor(3.)
    """
    return _without_nan(self).sum(dim, keepdim or keepdims, dtype=dtype, axis=axis)


@of_tensors
def nanmean(
    self: T,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the mean of the elements that are not NaN; NaN if all are.

    >>> Tensor([1.0, float("nan"), 2.0]).nanmean()
    Tensor(1.5)
    """
    need_float("nanmean", self.op)
    keep = keepdim or keepdims
    total = _without_nan(self).sum(dim, keep, dtype=dtype, axis=axis)
    return total / (~self.isnan()).sum(dim, keep, axis=axis).cast(total.dtype)


def _without_nan(self: T) -> T:
    return composed(self, lambda x: where(pointwise.is_nan(x), 0, x)) if self.dtype.is_float else self


def count_nonzero(self: T, dim: Axes = None, *, axis: Axes = None) -> T:
    """Returns the number of nonzero elements, int64.

    >>> Tensor([[0, 1], [2, 3]]).count_nonzero(dim=0)
    Tensor([1, 2])
    """
    return self.ne(0).sum(dim, axis=axis)


def var_mean(
    self: T, dim: Axes = None, correction: float | None = 1, keepdim: bool = False, *, unbiased: bool | None = None,
    axis: Axes = None, keepdims: bool = False,
) -> tuple[T, T]:  # fmt: skip
    """Returns the variance, divided by count - correction, and the mean; unbiased=False means correction=0.

    >>> variance, mean = Tensor([1.0, 3.0]).var_mean()
    >>> variance.item(), mean.item()
    (2.0, 2.0)
    """
    keep = keepdim or keepdims
    return self.var(dim, correction, keep, unbiased=unbiased, axis=axis), _mean_beside(self, dim, keep, axis)


def std_mean(
    self: T, dim: Axes = None, correction: float | None = 1, keepdim: bool = False, *, unbiased: bool | None = None,
    axis: Axes = None, keepdims: bool = False,
) -> tuple[T, T]:  # fmt: skip
    """Returns the standard deviation (division by count - correction) and the mean; unbiased=False: correction=0.

    >>> deviation, mean = Tensor([1.0, 3.0]).std_mean(correction=0)
    >>> deviation.item(), mean.item()
    (1.0, 2.0)
    """
    keep = keepdim or keepdims
    return self.std(dim, correction, keep, unbiased=unbiased, axis=axis), _mean_beside(self, dim, keep, axis)


def _mean_beside(self: T, dim: Axes, keepdim: bool, axis: Axes) -> T:
    return self.mean(None if isinstance(dim, bool) else dim, keepdim, axis=axis)


# ---- running ----
def cummax(self: T, dim: int | None = None, *, axis: int | None = None) -> MaxResult:
    """Returns the largest of all elements up to each along one axis, and the position of its last occurrence, int64.

    >>> values, indices = Tensor([1, 3, 2, 3]).cummax(0)
    >>> values.tolist(), indices.tolist()
    ([1, 3, 3, 3], [0, 1, 1, 3])
    """
    return _running(self, "cummax", OpCode.MAX, one_name("cummax", dim, axis))


def cummin(self: T, dim: int | None = None, *, axis: int | None = None) -> MaxResult:
    """Returns the smallest of all elements up to each along one axis, and the position of its last occurrence, int64.

    >>> values, indices = Tensor([3, 1, 2, 1]).cummin(0)
    >>> values.tolist(), indices.tolist()
    ([3, 1, 1, 1], [0, 1, 1, 3])
    """
    return _running(self, "cummin", OpCode.MIN, one_name("cummin", dim, axis))


def _running(self: T, function: str, code: OpCode, dim: int | None) -> MaxResult:
    """Returns the running extremes along an axis, and the positions of their last occurrences."""
    values = scanned(self, function, code, dim, self.dtype)
    op, running = detached(self.read()), detached(values.read())
    if not op.shape or dim is None:
        return MaxResult(values, self.from_op(filled(0, dtypes.int64, ()), self.cell.device))
    axis = axis_of(function, op.shape, dim)
    place = where(pointwise.is_extreme(op, running), positions(op.shape, axis), 0)
    return MaxResult(values, self.from_op(scan(place, OpCode.MAX, axis), self.cell.device))


@of_tensors
def logcumsumexp(self: T, dim: int | None = None, *, axis: int | None = None) -> T:
    """Returns log(sum(exp(x))) of all elements up to each along one axis, without overflow.

    An infinite element has gradient 0. Cost: 16 exponentials per element: all pairs within blocks of 16.

    Raises:
      ArgumentError: no axis is given.

    >>> Tensor([1000.0, 1000.0]).logcumsumexp(0)
    Tensor([1000.    , 1000.6932])
    """
    chosen = one_name("logcumsumexp", dim, axis)
    if chosen is None:
        raise ArgumentError("logcumsumexp: give the axis, e.g. dim=-1.")
    op = to_float(self.read())
    place = axis_of("logcumsumexp", op.shape, chosen)
    if not op.shape:
        return self.from_op(op, self.cell.device)
    result = _running_logsumexp(cast(move_last(op, place), op.dtype.compute_dtype))
    return self.from_op(cast(move_back(result, place), op.dtype), self.cell.device)


# ---- neighbours ----
@of_tensors
def diff(
    self: T, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None,
    *, axis: int | None = None,
) -> T:  # fmt: skip
    """Returns the difference of each element and the previous one along one axis, n times; for bools whether they differ.

    Args:
      n:                number of times; 0 returns self
      prepend, append:  tensors joined to self first

    Raises:
      ShapeError:    self is 0-d.
      ArgumentError: n is negative.

    >>> Tensor([1, 4, 9, 16]).diff()
    Tensor([3, 5, 7])
    """
    if not self.op.shape:
        raise ShapeError("diff: needs an axis, got a 0-d tensor.")
    at_least("diff", "n", n, 0)
    chosen = axis_of("diff", self.op.shape, one_name("diff", dim, axis, -1))
    parts = [part for part in (prepend, self, append) if part is not None and n]
    result: Any = type(self).cat(parts, chosen) if len(parts) > 1 else self
    for _ in range(min(n, static(result.op.shape[chosen]))):
        later, before = _without_end(result, chosen, 1, 0), _without_end(result, chosen, 0, 1)
        result = later ^ before if result.dtype.kind == "b" else later - before
    return result.clone() if result is self else result


def _without_end(self: T, axis: int, before: int, after: int) -> T:
    """Returns the elements of an axis without the first or without the last."""
    op = self.read()
    stop = static(op.shape[axis]) - after
    return self.from_op(shrink_axis(op, axis, before, max(stop, before)), self.cell.device)


# ---- lengths ----
def norm(
    self: T,
    p: float | str | None = "fro",
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    *,
    axis: Axes = None,
) -> T:
    """Returns (sum |x|^p)^(1/p) over the given axes; p may be inf, -inf, 0 (a count) or "fro", which is 2.

    "nuc" is the sum of the singular values of each matrix. The gradient at 0 is 0, as in PyTorch.

    Raises:
      ArgumentError: an unknown p.
      DTypeError:    self is not a float.

    >>> Tensor([3.0, 4.0]).norm()
    Tensor(5.)
    """
    if dtype is not None:
        return norm(self.cast(dtype), p, dim, keepdim, axis=axis)
    op = need_float("norm", self.read())
    axes = axes_of("norm", op.shape, dim, axis)
    if p == "nuc":
        return _nuclear(self.cast(self.dtype.compute_dtype), axes, keepdim).cast(self.dtype)
    order = 2 if p in ("fro", None) else p
    if not isinstance(order, (int, float)):
        raise ArgumentError(f'norm: p must be a number, "fro" or "nuc", got {p!r}.')
    if math.isinf(order):
        not_empty(self, "norm", dim, axis)
    return self.from_op(norm_op(op, order, axes, keepdim), self.cell.device)


def _nuclear(self: T, axes: tuple[int, ...], keepdim: bool) -> T:
    """Returns the sum of the singular values of the matrices along two axes."""
    if len(axes) != 2 and len(axes) != self.ndim or self.ndim < 2:
        raise ShapeError(f'norm: p="nuc" needs the two axes of matrices, got {axes} of shape {self.shape}.')
    axes = axes if len(axes) == 2 else axes[-2:]
    total: T = self.movedim(axes, (-2, -1)).svd(compute_uv=False).S.sum(-1)
    return total.unsqueeze(axes[0]).unsqueeze(axes[1]) if keepdim else total


@of_tensors
def renorm(self: T, p: float, dim: int, maxnorm: float) -> T:
    """Returns self with each slice along `dim` scaled down to a p-norm of at most `maxnorm`.

    Raises:
      ShapeError:    there are fewer than two axes.
      ArgumentError: p is not above 0, or maxnorm is negative.

    >>> Tensor([[3.0, 4.0], [0.5, 0.0]]).renorm(2, 0, 1.0).round(decimals=3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.5, 0.0]]
    """
    if self.ndim < 2:
        raise ShapeError(f"renorm: needs two axes, got shape {self.shape}.")
    if not p > 0 or maxnorm < 0:
        raise ArgumentError(f"renorm: p must be above 0 and maxnorm at least 0, got p={p}, maxnorm={maxnorm}.")
    kept = axis_of("renorm", self.op.shape, dim)
    axes = tuple(axis for axis in range(self.ndim) if axis != kept)
    length = norm(self, p, axes, keepdim=True)
    return self * self.choose(length > maxnorm, maxnorm / (length + 1e-7), 1.0)


renorm_ = in_place(renorm)


# ---- two tensors ----
def dist(self: T, other: Operand, p: float = 2) -> T:
    """Returns the p-norm of self - other.

    >>> Tensor([3.0, 4.0]).dist(Tensor([0.0, 0.0]))
    Tensor(5.)
    """
    return norm((self - other), p)


def equal(self: T, other: Tensor) -> bool:
    """Returns True if shapes and elements are equal; reads the values.

    >>> Tensor([1, 2]).equal(Tensor([1, 2]))
    True
    """
    return self.shape == other.shape and bool(self.eq(other).all().item())


def allclose(self: T, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Returns True if isclose is true for all elements; rtol, atol and equal_nan as there. Reads the values.

    >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.000001]))
    True
    """
    return bool(self.isclose(other, rtol, atol, equal_nan).all().item())


def _running_logsumexp(op: Op) -> Op:
    """Returns the running log of sums of exponentials along the last axis.

    Blocks of RUNNING_BLOCK elements are computed separately, then joined with the running value of all earlier blocks.
    """
    *front, dim = op.shape
    last, length = len(front), static(dim)
    if length <= RUNNING_BLOCK:
        return _logsumexp_of_pairs(op)
    num_blocks = ceildiv(length, RUNNING_BLOCK)
    padded = pad_axis(op, last, 0, num_blocks * RUNNING_BLOCK - length)
    within = _logsumexp_of_pairs(reshape(padded, (*front, num_blocks, RUNNING_BLOCK)))
    totals = reshape(shrink_axis(within, last + 1, RUNNING_BLOCK - 1, RUNNING_BLOCK), (*front, num_blocks))
    earlier = pad_axis(_running_logsumexp(shrink_axis(totals, last, 0, num_blocks - 1)), last, 1, 0)
    is_first = compare(OpCode.CMPEQ, positions(earlier.shape, last), 0)
    earlier = where(is_first, -math.inf, earlier)  # before the first block the sum is 0
    joined = pointwise.joined_logs(within, expand(reshape(earlier, (*earlier.shape, 1)), within.shape))
    return shrink_axis(reshape(joined, padded.shape), last, 0, length)


def _logsumexp_of_pairs(op: Op) -> Op:
    """Returns running values of a short last axis by all pairs of its elements: (..., n) -> (..., n, n) -> (..., n).

    NOTE: infinity - infinity is NaN, which would enter the gradients of all others: it counts as 0.
    """
    axis = len(op.shape)
    pairs = (*op.shape, op.shape[-1])
    is_later = less(positions(pairs, axis - 1), positions(pairs, axis))
    terms = where(is_later, -math.inf, expand(reshape(op, (*op.shape[:-1], 1, op.shape[-1])), pairs))
    greatest = detached(reduce(terms, OpCode.MAX, (axis,), keepdim=True))
    of_each = expand(greatest, pairs)
    is_infinity = both(compare(OpCode.CMPEQ, terms, of_each), pointwise.is_infinite(of_each))
    powers = unary(OpCode.EXP, where(is_infinity, 0.0, terms - of_each))
    return reshape(unary(OpCode.LOG, reduce(powers, OpCode.ADD, (axis,), keepdim=True)) + greatest, op.shape)


# ---- on Ops ----
def _from_place(x: Op, axis: int, by: int) -> Op:
    """Returns three elements along an axis, beginning with the one at `by`."""

    def piece(start: int, stop: int, before: int) -> Op:
        return pad_axis(shrink_axis(x, axis, start, stop), axis, before, 3 - before - (stop - start))

    return piece(by, 3, 0) + piece(0, by, 3 - by)


def cross_op(function: str, a: Op, b: Op, axis: int) -> Op:
    """Returns a x b along an axis of length 3.

    Raises:
      ShapeError: the shapes do not broadcast, differ in their number of axes, or the axis does not have length 3.
    """
    if len(a.shape) != len(b.shape):
        raise ShapeError(f"{function}: both need the same number of axes, got {a.shape} and {b.shape}.")
    shape = broadcast_shapes(function, a.shape, b.shape)
    place = axis_of(function, shape, axis)
    for given in (a.shape, b.shape):
        if given[place] != 3:
            raise ShapeError(f"{function}: axis {axis} of {given} must have length 3, it has {given[place]}.")
    a, b = broadcast_to(a, shape), broadcast_to(b, shape)
    return _from_place(a, place, 1) * _from_place(b, place, 2) - _from_place(a, place, 2) * _from_place(b, place, 1)


def common(function: str, *tensors: Tensor) -> list[Op]:
    """Returns the values of tensors in their common dtype."""
    ops = [tensor.read() for tensor in tensors]
    dtype = ops[0].dtype
    for op in ops[1:]:
        dtype = promoted(cast(ops[0], dtype), op)
    return [cast(op, dtype) for op in ops]


def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """Returns the distance of each vector of x1 from each of x2: (..., P, M), (..., R, M) -> (..., P, R).

    out[i, j] = (sum |x1[i] - x2[j]|^p)^(1/p)

    Args:
      x1, x2:        stacks of vectors; leading axes broadcast
      p:             at least 0, or inf
      compute_mode:  accepted, without effect: differences are computed in the kernel of their sum

    Raises:
      ShapeError:    there are fewer than two axes, or M differs.
      ArgumentError: p is negative.

    >>> cdist(Tensor([[0.0, 0.0], [3.0, 4.0]]), Tensor([[0.0, 0.0]]))
    Tensor([[0.],
            [5.]])
    """
    first, second = tensor_of("cdist", "x1", x1), tensor_of("cdist", "x2", x2)
    a, b = common("cdist", first, second)
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: needs (..., P, M) and (..., R, M), got {a.shape} and {b.shape}.")
    if not isinstance(p, (int, float)) or not p >= 0:
        raise ArgumentError(f"cdist: p must be 0 or more, got {p!r}.")
    rows = (*a.shape[:-1], 1, a.shape[-1])
    columns = (*b.shape[:-2], 1, *b.shape[-2:])
    shape = broadcast_shapes("cdist", rows, columns)
    difference = broadcast_to(reshape(to_float(a), rows), shape) - broadcast_to(reshape(to_float(b), columns), shape)
    op = norm_op(difference, p, (len(shape) - 1,))
    return first.from_op(op, first.other_device("cdist", second))


@of_tensors
def cross(self: T, other: Any, dim: int | None = None, *, axis: int | None = None) -> T:
    """Returns the cross product along an axis of length 3, by default the first such axis.

    Raises:
      ShapeError: the shapes do not broadcast, or there is no such axis.

    >>> Tensor([1.0, 0.0, 0.0]).cross(Tensor([0.0, 1.0, 0.0]))
    Tensor([0., 0., 1.])
    """
    found = tensor_of("cross", "other", other)
    a, b = common("cross", self, found)
    chosen = one_name("cross", dim, axis)
    if chosen is None:
        shape = broadcast_shapes("cross", a.shape, b.shape)
        if 3 not in shape:
            raise ShapeError(f"cross: needs an axis of length 3, got {a.shape} and {b.shape}.")
        chosen = shape.index(3)
    return result_of(self, "cross", cross_op("cross", a, b, chosen), found)


@of_tensors
def cov(self: T, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> T:
    """Returns the covariances of the rows; a row is a variable, a column an observation.

    C = (X - mean) diag(w) (X - mean).T / (sum w - correction * sum w a / sum w), w = fweights * aweights

    Args:
      correction:  1 for an unbiased estimate, 0 for a mean over observations
      fweights:    number of occurrences of each observation, integers
      aweights:    weight of each observation, floats

    Raises:
      ShapeError: self has more than two axes, or weights are not one per observation.
      DTypeError: fweights are not integers, or aweights are not floats.

    >>> Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).cov()
    Tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if self.ndim > 2:
        raise ShapeError(f"cov: needs at most two axes, got shape {self.shape}.")
    x = self if self.dtype.is_float else self.cast(dtypes.default_float)
    x = x.reshape(1, -1) if x.ndim < 2 else x
    weights = _weights(self, fweights, aweights, x.shape[1:])
    if weights is None:
        total: Any = x.shape[-1]
        mean, norm = x.sum(1, keepdim=True) / total, total - correction
    else:
        total = weights.sum()
        mean = (x * weights).sum(1, keepdim=True) / total
        norm = total - correction * ((weights * aweights).sum() / total if aweights is not None else 1)
    centred = x - mean
    rest = centred if weights is None else centred * weights
    centred = centred - rest.sum(1, keepdim=True) / total  # the rounding of a large mean
    right = (centred if weights is None else centred * weights).T
    norm = norm.cast(x.dtype).clamp(min=0) if isinstance(norm, type(self)) else max(norm, 0)
    result: T = centred.matmul(right).div(norm)
    return result.squeeze()


def _weights(self: T, fweights: Any, aweights: Any, shape: Shape) -> Any:
    """Returns the product of the given weights, one per observation, or None."""
    given: list[Any] = []
    for name, value, kinds in (("fweights", fweights, "iu"), ("aweights", aweights, "f")):
        if value is None:
            continue
        weights = tensor_of("cov", name, value)
        if weights.shape != shape:
            raise ShapeError(f"cov: {name} of shape {weights.shape} must have one weight for each of {shape} observations.")
        if weights.dtype.kind not in kinds:
            raise DTypeError(f"cov: {name} must be {'floats' if kinds == 'f' else 'integers'}, got {weights.dtype}.")
        given.append(weights)
    if len(given) == 2:
        return given[0] * given[1]
    return given[0] if given else None


@of_tensors
def corrcoef(self: T) -> T:
    """Returns the correlations of the rows, in [-1, 1]: covariances divided by the roots of the variances.

    Raises:
      ShapeError: self has more than two axes.

    >>> Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).corrcoef()
    Tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if self.ndim > 2:
        raise ShapeError(f"corrcoef: needs at most two axes, got shape {self.shape}.")
    covariance = cov(self)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = self.from_op(unary(OpCode.SQRT, diagonal(covariance.read())), covariance.cell.device)
    return (covariance / deviation.reshape(-1, 1) / deviation.reshape(1, -1)).clamp(-1, 1)


# ---- counts ----
class HistogramResult(NamedTuple):
    """The result of histogram.

    hist:       number of elements, or total weight, in each bin
    bin_edges:  left edges of the bins, and the right edge of the last
    """

    hist: Any
    bin_edges: Any


def bincount(self: T, weights: Tensor | None = None, minlength: int = 0) -> T:
    """Returns the number of occurrences of 0, 1, ... in a vector, int64; computes it, to find the largest.

    Args:
      weights:    weight of each element; the result is float64, float32 for float32, and int64 if self is empty
      minlength:  minimum length of the result

    Raises:
      ShapeError:    self is not a vector, or the shape of weights differs.
      DTypeError:    self is not an integer tensor.
      ArgumentError: an element or minlength is negative.

    >>> Tensor([1, 1, 3]).bincount()
    Tensor([0, 2, 0, 1])
    """
    op = integer_index("bincount", self)
    if self.ndim != 1 or (weights is not None and weights.shape != self.shape):
        shown = f", weights {weights.shape}" if weights is not None else ""
        raise ShapeError(f"bincount: needs a vector and weights of the same shape; got {self.shape}{shown}.")
    minlength = at_least("bincount", "minlength", minlength, 0)
    found = self._host("bincount")
    if found.size and found.min() < 0:
        raise ArgumentError(f"bincount: elements must not be negative, got {found.min()}.")
    length = max(minlength, int(found.max()) + 1 if found.size else 0)
    if weights is None:
        counts = np.bincount(found.astype(np.int64, copy=False), minlength=length)
        return type(self)(counts, dtypes.int64, self.device)
    if not found.size:
        return self.from_op(filled(0, dtypes.int64, (length,)), self.other_device("bincount", weights))
    dtype = weights.dtype if weights.dtype is dtypes.float32 else dtypes.float64
    counted, device = detached(cast(weights.read(), dtype)), self.other_device("bincount", weights)
    return self.from_op(_added(cast(op, dtypes.int64), counted, length), device)


@of_tensors
def histc(self: T, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> T:  # noqa: A002
    """Returns the number of elements in each of `bins` equal bins from `min` to `max`, in the dtype of x.

    Elements outside and NaN are left out. If min = max, the bins span the smallest to the largest element.

    Raises:
      DTypeError:    self is not a float.
      ArgumentError: bins is below 1, or max < min; when the result is computed: min = max and an element is not finite.

    >>> Tensor([1.0, 2.0, 2.5, 4.0]).histc(3, 1, 4)
    Tensor([1., 2., 1.])
    """
    op = detached(_float_line(self, "histc"))
    bins = whole("histc", "bins", bins)
    if bins < 1 or not (math.isfinite(min) and math.isfinite(max) and min <= max):
        raise ArgumentError(f"histc: needs bins >= 1 and finite min <= max, got {bins}, {min} and {max}.")
    if not op.numel:
        return self.from_op(filled(0, self.dtype, (bins,)), self.cell.device)
    low, high = (op.filled(float(bound)) for bound in (min, max)) if min < max else _extent("histc", op, 1.0)
    hist = _added(_bins(op, low, high, bins), filled(1, dtypes.int64, op.shape), bins)
    return self.from_op(cast(hist, self.dtype), self.cell.device)


@partial(of_tensors, container=HistogramResult)
def histogram(
    self: T,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramResult:
    """Returns the number of elements in each bin, and the edges of the bins; elements outside are left out.

    A bin contains its left edge, the last one both edges.

    Args:
      bins:     a number of equal bins, or a rising vector of edges
      range:    bounds of equal bins; by default the smallest and the largest element, each moved by half a unit if they are
                equal
      weight:   weight of each element
      density:  divide by width and total, so that the sum of hist * width is 1

    Raises:
      DTypeError:    self is not a float, or the dtype of weight or edges differs.
      ShapeError:    the shape of weight differs, or the edges are not a vector of at least two.
      ArgumentError: bins is below 1, or a range is given with edges, or does not rise; when the result is computed: neither
                     is given, and an element is not finite.

    >>> Tensor([1.0, 2.0, 2.5, 4.0]).histogram(2, range=(1, 3))
    HistogramResult(hist=Tensor([1., 2.]), bin_edges=Tensor([1., 2., 3.]))
    """
    op = detached(_float_line(self, "histogram"))
    counted = filled(1, self.dtype, op.shape)
    if weight is not None:
        needs_dtype(self, "histogram", "weight", weight)
        if weight.shape != self.shape:
            raise ShapeError(f"histogram: weight must have the shape {self.shape} of x, got {weight.shape}.")
        counted = detached(reshape(weight.read(), op.shape))
    if isinstance(bins, TensorCore):
        edges, places = _between_edges(self, op, bins, range)
    else:
        edges, places = _equal_bins(self, op, bins, range)
    hist = _added(places, counted, static(edges.shape[0]) - 1)
    if density:
        width = _differences(edges)
        total = broadcast_to(reduce(hist, OpCode.ADD, (0,)), hist.shape)
        hist = hist / total / width
    device = self.cell.device
    return HistogramResult(self.from_op(hist, device), self.from_op(edges, device))


def _float_line(self: T, function: str) -> Op:
    """Returns all elements of a float tensor as one vector."""
    return reshape(need_float(function, self.read()), (numel(self.op.shape),))


def _equal_bins(self: T, op: Op, bins: int, bounds: Sequence[float] | None) -> tuple[Op, Op]:
    """Returns (edges, bin of each element)."""
    bins = whole("histogram", "bins", bins)
    if bins < 1:
        raise ArgumentError(f"histogram: needs at least one bin, got {bins}.")
    if bounds is not None and (len(bounds) != 2 or not bounds[0] <= bounds[1]):
        raise ArgumentError(f"histogram: range must be (least, greatest), got {tuple(bounds)}.")
    if bounds is not None and bounds[0] < bounds[1]:
        low, high = (filled(float(bound), op.dtype, ()) for bound in bounds)
    elif op.shape != (0,) and bounds is None:
        low, high = (reduce(bound, OpCode.MAX, (0,)) for bound in _extent("histogram", op, 0.5))
    else:
        middle = float(bounds[0]) if bounds is not None else 0.5
        low, high = filled(middle - 0.5, op.dtype, ()), filled(middle + 0.5, op.dtype, ())
    part = cast(iota(bins + 1), op.dtype) * (1.0 / bins)
    edges = broadcast_to(low, part.shape) + part * broadcast_to(high - low, part.shape)
    edges = where(compare(OpCode.CMPEQ, iota(bins + 1), bins), broadcast_to(high, part.shape), edges)
    return edges, _bins(op, broadcast_to(low, op.shape), broadcast_to(high, op.shape), bins)


def _between_edges(self: T, op: Op, bins: TensorCore, bounds: Sequence[float] | None) -> tuple[Op, Op]:
    """Returns (edges, bin of each element)."""
    needs_dtype(self, "histogram", "bins", bins)
    if bounds is not None:
        raise ArgumentError("histogram: edges already give a range; leave range out.")
    if bins.ndim != 1 or known("histogram", bins.shape, 0) < 2:
        raise ShapeError(f"histogram: edges must be a vector of two or more, got shape {bins.shape}.")
    edges, count = detached(bins.read()), bins.shape[0] - 1
    rows = type(self).from_op(edges, bins.cell.device)
    place = places_of(rows, "histogram", self.from_op(op, self.cell.device), True, False).op - 1
    last = broadcast_to(reshape(shrink(edges, ((count, count + 1),)), ()), op.shape)
    return edges, where(compare(OpCode.CMPEQ, op, last), count - 1, place)


# ---- on Ops ----
def _added(places: Op, counted: Op, length: int) -> Op:
    """Returns the sum of the values for each bin; values without a bin are left out."""
    return scatter(filled(0, counted.dtype, (length,)), places, counted, OpCode.ADD, 0, 0)


def _extent(function: str, op: Op, room: float) -> tuple[Op, Op]:
    """Returns the smallest and the largest element, broadcast; half a unit further apart on both sides if they are equal.

    Computing them raises an error if an element is not finite.
    """
    finite = reduce(cast(pointwise.is_finite(op), dtypes.int64), OpCode.MIN, (0,))
    fact = f"{function}: an element is infinite or NaN, so bins have no widths."
    op = guarded(op, differs(finite, 0), fact, "give the range of the bins.")
    low, high = (broadcast_to(reduce(op, code, (0,)), op.shape) for code in (OpCode.MIN, OpCode.MAX))
    equal = compare(OpCode.CMPEQ, low, high)
    return where(equal, low - room, low), where(equal, high + room, high)


def _bins(op: Op, low: Op, high: Op, count: int) -> Op:
    """Returns the bin of each element among `count` equal ones; -1 outside."""
    place = cast(pointwise.floor((op - low) * float(count) / (high - low)), dtypes.int64)
    place = minimum(place, count - 1)
    return where(both(less_equal(low, op), less_equal(op, high)), place, -1)


def _differences(edges: Op) -> Op:
    (length,) = edges.shape
    assert isinstance(length, int)
    return shrink(edges, ((1, length),)) - shrink(edges, ((0, length - 1),))
