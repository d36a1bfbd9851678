"""Reductions and running values made of those beside it: without NaN, in pairs, between neighbours.

In:    tensors
Out:   `aminmax`, `nansum`, `std_mean`, `cummax`, `diff`, `norm`, `renorm`, `dist`, `allclose` ...: methods of Tensor
Next:  picograd/tensor/reductions/norms.py
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import (
    both,
    compare,
    expand,
    move_back,
    move_last,
    pad_axis,
    positions,
    reduce,
    reshape,
    scan,
    shrink_axis,
    unary,
    where,
)
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axes_of, axis_of, cast, detached, need_float, one_name, static, to_float
from picograd.tensor.core import Operand, T
from picograd.tensor.elements import arithmetic, pointwise
from picograd.tensor.elements.functions import composed
from picograd.tensor.inplace import in_place
from picograd.tensor.reductions.norms import norm_op
from picograd.tensor.reductions.reduce import Axes, MaxResult, not_empty, scanned

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "allclose", "aminmax", "count_nonzero", "cummax", "cummin", "diff", "dist", "equal", "logcumsumexp", "nanmean",
    "nansum", "norm", "renorm", "std_mean", "var_mean",
]  # fmt: skip


RUNNING_BLOCK = 16  # elements whose pairs are all computed; 8 and 32 took 1.4 times as long, with gradients


class MinMaxResult(NamedTuple):
    """What aminmax returns: the least and the greatest elements, `min` and `max`."""

    min: Any
    max: Any


# ---- along axes ----
def aminmax(self: T, *, dim: int | None = None, keepdim: bool = False, axis: int | None = None) -> MinMaxResult:
    """Returns the least and the greatest element, of all or along one axis.

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
    """Returns the sum, with NaN as 0.

    >>> Tensor([1.0, float("nan"), 2.0]).nansum()
    Tensor(3.)
    """
    return _without_nan(self).sum(dim, keepdim or keepdims, dtype=dtype, axis=axis)


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
    """Returns the number of elements that are not 0, int64.

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
    """Returns the deviation, divided by count - correction before the root, and the mean; unbiased=False: correction=0.

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
    """Returns the greatest of all elements up to each along one axis, and where the last such stands, int64.

    >>> values, indices = Tensor([1, 3, 2, 3]).cummax(0)
    >>> values.tolist(), indices.tolist()
    ([1, 3, 3, 3], [0, 1, 1, 3])
    """
    return _running(self, "cummax", OpCode.MAX, one_name("cummax", dim, axis))


def cummin(self: T, dim: int | None = None, *, axis: int | None = None) -> MaxResult:
    """Returns the smallest of all elements up to each along one axis, and where the last such stands, int64.

    >>> values, indices = Tensor([3, 1, 2, 1]).cummin(0)
    >>> values.tolist(), indices.tolist()
    ([3, 1, 1, 1], [0, 1, 1, 3])
    """
    return _running(self, "cummin", OpCode.MIN, one_name("cummin", dim, axis))


def _running(self: T, function: str, code: OpCode, dim: int | None) -> MaxResult:
    """Returns the running extremes along an axis and where each was met last."""
    values = scanned(self, function, code, dim, self.dtype)
    op, running = detached(self.read()), detached(values.read())
    if not op.shape or dim is None:
        return MaxResult(values, self.from_op(filled(0, dtypes.int64, ()), self.cell.device))
    axis = axis_of(function, op.shape, dim)
    place = where(pointwise.is_extreme(op, running), positions(op.shape, axis), 0)
    return MaxResult(values, self.from_op(scan(place, OpCode.MAX, axis), self.cell.device))


def logcumsumexp(self: T, dim: int | None = None, *, axis: int | None = None) -> T:
    """Returns log(sum(exp(x))) of all elements up to each along one axis, with no overflow.

    An infinite element has a gradient of 0. Cost: 16 exponentials an element: all pairs within blocks of 16.

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
def diff(
    self: T, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None,
    *, axis: int | None = None,
) -> T:  # fmt: skip
    """Returns each element less the one before it along one axis, n times; of bools where they differ.

    Args:
      n:                how often; 0 leaves self as it is
      prepend, append:  what is joined to self before

    Raises:
      ShapeError:    self has no axis.
      ArgumentError: n is negative.

    >>> Tensor([1, 4, 9, 16]).diff()
    Tensor([3, 5, 7])
    """
    if not self.op.shape:
        raise ShapeError("diff: needs an axis, got a 0-d tensor.")
    if n < 0:
        raise ArgumentError(f"diff: n must not be negative, got {n}.")
    chosen = axis_of("diff", self.op.shape, one_name("diff", dim, axis, -1))
    parts = [part for part in (prepend, self, append) if part is not None and n]
    result: Any = type(self).cat(parts, chosen) if len(parts) > 1 else self
    for _ in range(min(n, static(result.op.shape[chosen]))):
        later, before = _without_end(result, chosen, 1, 0), _without_end(result, chosen, 0, 1)
        result = later ^ before if result.dtype.kind == "b" else later - before
    return result.clone() if result is self else result


def _without_end(self: T, axis: int, before: int, after: int) -> T:
    """Returns the part of the axis without the first or last element."""
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
    """Returns (sum |x|^p)^(1/p) over all axes named; p may be inf, -inf, 0 (a count) or "fro", which is 2.

    With "nuc" it is the sum of the singular values of each matrix. The gradient at 0 is 0, as in PyTorch.

    Raises:
      ArgumentError: another p.
      DTypeError:    integers.

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
    """Returns the sum of the singular values of the matrices along two axes, the last two of all."""
    if len(axes) != 2 and len(axes) != self.ndim or self.ndim < 2:
        raise ShapeError(f'norm: p="nuc" needs the two axes of matrices, got {axes} of shape {self.shape}.')
    axes = axes if len(axes) == 2 else axes[-2:]
    total: T = self.movedim(axes, (-2, -1)).svd(compute_uv=False).S.sum(-1)
    return total.unsqueeze(axes[0]).unsqueeze(axes[1]) if keepdim else total


def renorm(self: T, p: float, dim: int, maxnorm: float) -> T:
    """Returns self with each slice along `dim` whose p-norm is above `maxnorm` scaled down to that.

    Raises:
      ShapeError:    there are less than two axes.
      ArgumentError: p is not above 0, or maxnorm negative.

    >>> Tensor([[3.0, 4.0], [0.5, 0.0]]).renorm(2, 0, 1.0).round(decimals=3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.5, 0.0]]
    """
    if self.ndim < 2:
        raise ShapeError(f"renorm: needs two axes, got shape {self.shape}.")
    if not p > 0 or maxnorm < 0:
        raise ArgumentError(f"renorm: p must be above 0 and maxnorm not below, got p={p}, maxnorm={maxnorm}.")
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
    """Returns True if both have one shape and equal elements; reads the values.

    >>> Tensor([1, 2]).equal(Tensor([1, 2]))
    True
    """
    return self.shape == other.shape and bool(self.eq(other).all().item())


def allclose(self: T, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Returns True where isclose holds for all elements; rtol, atol and equal_nan as there. Reads the values.

    >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.000001]))
    True
    """
    return bool(self.isclose(other, rtol, atol, equal_nan).all().item())


def _running_logsumexp(op: Op) -> Op:
    """Returns the running log of sums of exponentials along the last axis.

    Each block of RUNNING_BLOCK has its own; joined to it is that of all earlier blocks, which is the same of their totals.
    """
    *front, dim = op.shape
    last, length = len(front), static(dim)
    if length <= RUNNING_BLOCK:
        return _logsumexp_of_pairs(op)
    num_blocks = -(-length // RUNNING_BLOCK)
    padded = pad_axis(op, last, 0, num_blocks * RUNNING_BLOCK - length)
    within = _logsumexp_of_pairs(reshape(padded, (*front, num_blocks, RUNNING_BLOCK)))
    totals = reshape(shrink_axis(within, last + 1, RUNNING_BLOCK - 1, RUNNING_BLOCK), (*front, num_blocks))
    earlier = pad_axis(_running_logsumexp(shrink_axis(totals, last, 0, num_blocks - 1)), last, 1, 0)
    is_first = compare(OpCode.CMPEQ, positions(earlier.shape, last), 0)
    earlier = where(is_first, -math.inf, earlier)  # before the first block is nothing: the log of 0
    joined = arithmetic.joined_logs(within, expand(reshape(earlier, (*earlier.shape, 1)), within.shape))
    return shrink_axis(reshape(joined, padded.shape), last, 0, length)


def _logsumexp_of_pairs(op: Op) -> Op:
    """Returns the same of a short last axis by all pairs of its elements: (..., n) -> (..., n, n) -> (..., n).

    NOTE: an infinity less itself is NaN, which would come to the gradients of all others: it counts as 0.
    """
    axis = len(op.shape)
    pairs = (*op.shape, op.shape[-1])
    is_later = compare(OpCode.CMPLT, positions(pairs, axis - 1), positions(pairs, axis))
    terms = where(is_later, -math.inf, expand(reshape(op, (*op.shape[:-1], 1, op.shape[-1])), pairs))
    greatest = detached(reduce(terms, OpCode.MAX, (axis,), keepdim=True))
    of_each = expand(greatest, pairs)
    is_infinity = both(compare(OpCode.CMPEQ, terms, of_each), pointwise.is_infinite(of_each))
    powers = unary(OpCode.EXP, where(is_infinity, 0.0, terms - of_each))
    return reshape(unary(OpCode.LOG, reduce(powers, OpCode.ADD, (axis,), keepdim=True)) + greatest, op.shape)
