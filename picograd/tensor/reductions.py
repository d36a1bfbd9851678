"""Reductions along axes, running sums, softmax, and the norms and moments that they need.

The mean m' of x is rounded, so differences d = x - m' do not sum to 0. Their mean is the error of m'; corrected by it,

    variance = (sum d^2 - (sum d)^2 / n) / (n - correction)

Both sums take one pass. In exact arithmetic sum d is 0 for any x, so its derivatives are 0: it is detached.

The square of a float32 may be outside the range of float32: 1e20 squared is infinite, 1e-30 squared is 0. So is the
variance of such numbers, but not their standard deviation: its squares are summed in float64.

Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance", The American Statistician 37(3), eq. 1.7.

`dim` and `axis`, `keepdim` and `keepdims` are two names of one argument. Without `dim` all axes are reduced.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from picograd import dtype as dtypes
from picograd.dtype import DType, float64
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import (
    cast,
    differs,
    equal,
    maximum,
    minimum,
    number_like,
    positions,
    reduce,
    reshape,
    unary,
    where,
    zeros_like,
)
from picograd.ir.op import Dim, Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import bounds, subtract
from picograd.tensor import pointwise
from picograd.tensor.build import axes_of, axis_of, broadcast_to, detached, need_float, one_name, to_float
from picograd.tensor.compute import settle_choice
from picograd.tensor.core import T, TensorCore
from picograd.tensor.formulas import formula
from picograd.tensor.inplace import in_place

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logsumexp", "max",
    "mean", "min", "prod", "softmax", "std", "sum", "var",
]  # fmt: skip


# ---- moments on Ops ----
@formula
def mean_op(op: Op, axes: tuple[int, ...], keepdim: bool = False) -> Op:
    """Returns the mean over `axes`; 16-bit floats are rounded once, since their sum may overflow."""
    total = reduce(cast(op, op.dtype.compute_dtype), OpCode.ADD, axes, keepdim)
    return cast(_over_count(total, _count(op, axes)), op.dtype)


@formula
def nearest_mean(op: Op, axes: tuple[int, ...]) -> Op:
    """Returns the mean over `axes`, kept with length 1, accurate nearly to the last bit."""
    mean = mean_op(op, axes, keepdim=True)
    return mean + detached(mean_op(op - broadcast_to(mean, op.shape), axes, keepdim=True))


@formula
def variance_op(op: Op, axes: tuple[int, ...], correction: float, keepdim: bool = False) -> Op:
    """Returns the sum of squared deviations from the mean over `axes`, divided by count - correction."""
    return cast(_variance(op, axes, correction, keepdim, op.dtype.compute_dtype), op.dtype)


@formula
def deviation_op(op: Op, axes: tuple[int, ...], correction: float, keepdim: bool = False) -> Op:
    """Returns the square root of the variance, summed in float64; the gradient of equal elements is 0."""
    return cast(pointwise.flat_sqrt(_variance(op, axes, correction, keepdim, float64)), op.dtype)


def _variance(op: Op, axes: tuple[int, ...], correction: float, keepdim: bool, wide: DType) -> Op:
    """Returns the variance in `wide`; mean and deviations are in the dtype in which `op` is computed."""
    op = cast(op, op.dtype.compute_dtype)
    deviation = cast(op - broadcast_to(mean_op(op, axes, keepdim=True), op.shape), wide)
    squares = reduce(deviation * deviation, OpCode.ADD, axes, keepdim)
    rest = reduce(deviation, OpCode.ADD, axes, keepdim)
    count = _count(deviation, axes)
    total = squares - detached(minimum(rest * _over_count(rest, count), squares))  # 0 for equal elements
    if isinstance(count, int):
        return total / float(builtins.max(0, count - correction))
    if isinstance(correction, int):
        return _over_count(total, maximum(subtract(count, correction), 0))  # type: ignore[arg-type]
    return total / broadcast_to(maximum(cast(count, total.dtype) + -correction, 0.0), total.shape)


def squeezed(op: Op, axes: tuple[int, ...]) -> Op:
    """Returns `op` without `axes`, each of length 1."""
    shape = tuple(dim for axis, dim in enumerate(op.shape) if axis not in axes)
    return reshape(op, shape)


def _count(op: Op, axes: tuple[int, ...]) -> Dim:
    return numel(tuple(op.shape[axis] for axis in axes))


def _over_count(total: Op, count: Dim) -> Op:
    return total / number_like(total, count)


# ---- the p-norm on Ops ----
@formula
def norm_op(x: Op, p: float, axes: tuple[int, ...], keepdim: bool = False) -> Op:
    """Returns (sum |x|^p)^(1/p) along axes; p = 0 counts nonzeros, inf and -inf select the largest and the smallest |x|.

    Gradients are 0 where x is 0, as in PyTorch, except for p = 0 and 0 < p < 1. 16-bit floats are computed in float32: the
    square of 300 exceeds float16.
    """
    if p == 0:
        return cast(reduce(cast(differs(x, 0), x.dtype.compute_dtype), OpCode.ADD, axes, keepdim), x.dtype)
    wide = cast(x, x.dtype.compute_dtype)
    if p == 2:
        return cast(pointwise.flat_sqrt(reduce(wide * wide, OpCode.ADD, axes, keepdim)), x.dtype)
    magnitude = pointwise.absolute(wide)
    if math.isinf(p) or p == 1:
        code = OpCode.ADD if p == 1 else OpCode.MAX if p > 0 else OpCode.MIN
        return cast(reduce(magnitude, code, axes, keepdim), x.dtype)
    return cast(_root(reduce(_powers(magnitude, p), OpCode.ADD, axes, keepdim), p), x.dtype)


def _powers(magnitude: Op, p: float) -> Op:
    """Returns |x|^p; at 0 a constant, with derivative 0."""
    is_zero = equal(magnitude, 0)
    safe = where(is_zero, magnitude.filled(1), magnitude)
    return where(is_zero, magnitude.filled(0.0 if p > 0 else math.inf), Op(OpCode.POW, safe.dtype, (safe, safe.filled(p))))


def _root(total: Op, p: float) -> Op:
    """Returns total^(1/p) with derivative 0 at 0."""
    is_zero = equal(total, 0)
    some = where(is_zero, total.filled(1), total)
    return where(is_zero, zeros_like(total), Op(OpCode.POW, some.dtype, (some, some.filled(1 / p))))


# ---- reductions and scans ----
Axes = int | Sequence[int] | None


class MaxResult(NamedTuple):
    """The result of max and min along one axis.

    values:   the extremes
    indices:  position of the first of them, int64
    """

    values: Any
    indices: Any


def _reduced(self: T, function: str, code: OpCode, op: Op, dim: Axes, keepdim: bool, axis: Axes) -> T:
    is_whole = dim is None and axis is None
    axes = tuple(range(len(op.shape))) if is_whole else axes_of(function, op.shape, dim, axis)
    return self.from_op(reduce(op, code, axes, keepdim), self.cell.device)


# ---- sums ----
def sum(
    self: T,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the sum; int64 for bools and integers.

    >>> Tensor([[1, 2], [3, 4]]).sum(dim=0).tolist()
    [4, 6]
    """
    op = self.read()
    if dtype is not None or not op.dtype.is_float:
        op = cast(op, dtypes.int64 if dtype is None else dtypes.named("sum", dtype))
    return _reduced(self, "sum", OpCode.ADD, op, dim, keepdim or keepdims, axis)


def prod(
    self: T,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the product; int64 for bools and integers.

    >>> Tensor([[1, 2], [3, 4]]).prod(dim=0)
    Tensor([3, 8])
    """
    op = cast(self.read(), dtypes.known("prod", dtype, _sum_dtype(self.dtype)))
    return _reduced(self, "prod", OpCode.MUL, op, dim, keepdim or keepdims, axis)


def mean(
    self: T,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the sum divided by the number of elements.

    Raises:
      DTypeError: self is not a float; the mean of integers is not an integer.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mean(dim=1)
    Tensor([1.5, 3.5])
    """
    if dtype is not None and not dtype.is_float:
        raise DTypeError(f"mean: dtype must be a float, got {dtype}.")
    op = cast(self.read(), dtype) if dtype is not None else need_float("mean", self.read())
    axes = axes_of("mean", op.shape, dim, axis)
    return self.from_op(mean_op(op, axes, keepdim or keepdims), self.cell.device)


def var(
    self: T,
    dim: Axes = None,
    correction: float | None = 1,
    keepdim: bool = False,
    *,
    unbiased: bool | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the squared deviations' sum, divided by count - correction; unbiased=False means correction=0.

    >>> Tensor([1.0, 2.0, 3.0, 4.0]).var().item()
    1.6666666269302368
    """
    return _spread(self, "var", variance_op, dim, correction, keepdim or keepdims, unbiased, axis)


def std(
    self: T,
    dim: Axes = None,
    correction: float | None = 1,
    keepdim: bool = False,
    *,
    unbiased: bool | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> T:
    """Returns the standard deviation, with division by count - correction; unbiased=False means correction=0.

    The gradient of equal elements is 0, as in PyTorch. Squares are summed in float64: those of 1e20 and 1e-30 are outside
    the range of float32.

    >>> Tensor([1.0, 3.0]).std()
    Tensor(1.4142135)
    """
    return _spread(self, "std", deviation_op, dim, correction, keepdim or keepdims, unbiased, axis)


def _spread(
    self: T, function: str, of: Callable[[Op, tuple[int, ...], float, bool], Op], dim: Axes, correction: float | None,
    keepdim: bool, unbiased: bool | None, axis: Axes,
) -> T:  # fmt: skip
    op = need_float(function, self.read())
    if isinstance(dim, bool):  # x.var(False)
        dim, unbiased = None, dim
    given = 1 if correction is None else correction
    less = given if unbiased is None else int(unbiased)
    return self.from_op(of(op, axes_of(function, op.shape, dim, axis), less, keepdim), self.cell.device)


# ---- extremes ----
def amax(self: T, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> T:
    """Returns the largest element; NaN if there is one.

    Raises:
      ShapeError: there are no elements.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).amax(dim=0)
    Tensor([3., 4.])
    """
    op = not_empty(self, "amax", dim, axis)
    return _reduced(self, "amax", OpCode.MAX, op, dim, keepdim or keepdims, axis)


def amin(self: T, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> T:
    """Returns the smallest element; NaN if there is one.

    Raises:
      ShapeError: there are no elements.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).amin(dim=0, keepdim=True)
    Tensor([[1., 2.]])
    """
    op = not_empty(self, "amin", dim, axis)
    return _reduced(self, "amin", OpCode.MIN, op, dim, keepdim or keepdims, axis)


def not_empty(self: T, function: str, dim: Axes, axis: Axes) -> Op:
    op = self.read()
    if builtins.any(op.shape[a] == 0 for a in axes_of(function, op.shape, dim, axis)):
        named = one_name(function, dim, axis)
        along = "" if named is None else f" along dim {named}"
        raise ShapeError(f"{function}: shape {op.shape} has no element{along}.")
    return op


def max(
    self: T, dim: int | Tensor | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False
) -> Any:
    """Returns the largest element; along one axis (values, indices); with a tensor the larger of both.

    >>> Tensor([[1, 5], [7, 2]]).max(dim=1).indices.tolist()
    [1, 0]
    """
    if isinstance(dim, TensorCore):
        return self.maximum(dim)
    if dim is None and axis is None:
        return self.amax()
    return _along(self, "max", OpCode.MAX, one_name("max", dim, axis), keepdim or keepdims)


def min(
    self: T, dim: int | Tensor | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False
) -> Any:
    """Returns the smallest element; along one axis (values, indices); with a tensor the smaller of both.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).min(dim=1).values
    Tensor([1., 3.])
    """
    if isinstance(dim, TensorCore):
        return self.minimum(dim)
    if dim is None and axis is None:
        return self.amin()
    return _along(self, "min", OpCode.MIN, one_name("min", dim, axis), keepdim or keepdims)


def _along(self: T, function: str, code: OpCode, dim: int, keepdim: bool) -> MaxResult:
    """Returns extremes along one axis and their positions; of equal elements the one there gets the gradient."""
    op = not_empty(self, function, dim, None)
    axis = axis_of(function, op.shape, dim)
    places = _position(self, function, code, axis, keepdim)
    if not op.shape or not op.needs_grad:
        return MaxResult(_reduced(self, function, code, op, axis, keepdim, None), places)
    # A masked sum, not a gather: it and its gradient are fused with the kernels that read them.
    is_it = equal(positions(op.shape, axis), broadcast_to(_place(detached(op), code, axis, True), op.shape))
    return MaxResult(self.from_op(reduce(where(is_it, op, 0.0), OpCode.ADD, (axis,), keepdim), self.cell.device), places)


def argmax(self: T, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False) -> T:
    """Returns the position of the first largest element, int64; without `dim` in the flattened tensor.

    >>> Tensor([1, 5, 5]).argmax()
    Tensor(1)
    """
    return _position(self, "argmax", OpCode.MAX, one_name("argmax", dim, axis), keepdim or keepdims)


def argmin(self: T, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False) -> T:
    """Returns the position of the first smallest element, int64; without `dim` in the flattened tensor.

    >>> Tensor([[1, 5], [7, 2]]).argmin(dim=1)
    Tensor([0, 1])
    """
    return _position(self, "argmin", OpCode.MIN, one_name("argmin", dim, axis), keepdim or keepdims)


def _position(self: T, function: str, code: OpCode, dim: int | None, keepdim: bool) -> T:
    """Returns the first position of an extreme: the minimum of the positions that hold it."""
    if dim is None:
        flat = _position(self.flatten(), function, code, 0, False)
        return flat.reshape((1,) * self.ndim) if keepdim else flat
    op = detached(not_empty(self, function, dim, None))
    if not op.shape:
        return self.from_op(filled(0, dtypes.int64, ()), self.cell.device)
    chosen = self.from_op(_place(op, code, axis_of(function, op.shape, dim), keepdim), self.cell.device)
    settle_choice(chosen.cell)
    return chosen


def _place(op: Op, code: OpCode, axis: int, keepdim: bool) -> Op:
    """Returns the first position along an axis at which the extreme is."""
    extreme = broadcast_to(reduce(op, code, (axis,), keepdim=True), op.shape)
    place = where(pointwise.is_extreme(op, extreme), positions(op.shape, axis), bounds(op.shape[axis])[1] - 1)
    return reduce(place, OpCode.MIN, (axis,), keepdim)


# ---- truth ----
def any(self: T, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> T:
    """Returns True if at least one element is nonzero.

    >>> Tensor([0, 2]).any()
    Tensor(True)
    """
    return _truth(self, "any", OpCode.MAX, dim, keepdim or keepdims, axis)


def all(self: T, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> T:
    """Returns True if all elements are nonzero.

    >>> Tensor([0, 2]).all()
    Tensor(False)
    """
    return _truth(self, "all", OpCode.MIN, dim, keepdim or keepdims, axis)


def _truth(self: T, function: str, code: OpCode, dim: Axes, keepdim: bool, axis: Axes) -> T:
    """Returns bools; for uint8 uint8, as in PyTorch."""
    found = _reduced(self, function, code, cast(self.read(), dtypes.bool_), dim, keepdim, axis)
    return found.cast(dtypes.uint8) if self.dtype is dtypes.uint8 else found


# ---- exponentials ----
def logsumexp(self: T, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None) -> T:
    """Returns log(sum(exp(x))) without overflow; integers become float32, as in PyTorch.

    The gradient is softmax(x); NaN if all x are -inf, or several are inf, as in PyTorch.

    >>> Tensor([1000.0, 1000.0]).logsumexp(0)
    Tensor(1000.6932)
    """
    op = to_float(self.read())
    return self.from_op(logsumexp_op(op, axes_of("logsumexp", op.shape, dim, axis), keepdim), self.cell.device)


def softmax(self: T, dim: int | None = None, dtype: DType | None = None, *, axis: int | None = None) -> T:
    """Returns exp(x) / sum(exp(x)) along one axis, by default the last.

    >>> Tensor([0.0, 0.0]).softmax(-1).tolist()
    [0.5, 0.5]
    """
    return self.from_op(softmax_op(*_along_one(self, "softmax", dim, dtype, axis)), self.cell.device)


def log_softmax(self: T, dim: int | None = None, dtype: DType | None = None, *, axis: int | None = None) -> T:
    """Returns x - log(sum(exp(x))) along one axis, by default the last.

    >>> Tensor([0.0, 0.0]).log_softmax(-1)
    Tensor([-0.6931472, -0.6931472])
    """
    return self.from_op(log_softmax_op(*_along_one(self, "log_softmax", dim, dtype, axis)), self.cell.device)


def _along_one(
    self: T, function: str, dim: int | None, dtype: DType | None, axis: int | None
) -> tuple[Op, tuple[int, ...]]:
    """Returns the operand, cast if a dtype is given, and the axis to normalize, by default the last."""
    op = self.read() if dtype is None else cast(self.read(), dtypes.named(function, dtype))
    return op, axes_of(function, op.shape, -1 if dim is None and axis is None else dim, axis)


# ---- running ----
def cumsum(self: T, dim: int | None = None, dtype: DType | None = None, *, axis: int | None = None) -> T:
    """Returns the sums of all elements up to each along one axis; int64 for integers.

    >>> Tensor([1, 2, 3]).cumsum(0)
    Tensor([1, 3, 6])
    """
    chosen = dtypes.known("cumsum", dtype, _sum_dtype(self.dtype))
    return scanned(self, "cumsum", OpCode.ADD, one_name("cumsum", dim, axis), chosen)


cumsum_ = in_place(cumsum)


def cumprod(self: T, dim: int | None = None, dtype: DType | None = None, *, axis: int | None = None) -> T:
    """Returns the products of all elements up to each along one axis; int64 for integers.

    >>> Tensor([1, 2, 3]).cumprod(0)
    Tensor([1, 2, 6])
    """
    chosen = dtypes.known("cumprod", dtype, _sum_dtype(self.dtype))
    return scanned(self, "cumprod", OpCode.MUL, one_name("cumprod", dim, axis), chosen)


cumprod_ = in_place(cumprod)


def scanned(self: T, function: str, code: OpCode, dim: int | None, dtype: DType) -> T:
    if dim is None:
        raise ArgumentError(f"{function}: give the axis, e.g. dim=-1.")
    op = cast(self.read(), dtype)
    axis = axis_of(function, op.shape, dim)
    if not op.shape:
        return self.from_op(op, self.cell.device)
    return self.from_op(Op(OpCode.SCAN, op.dtype, (op,), (code, axis)), self.cell.device)


def _sum_dtype(dtype: DType) -> DType:
    return dtype if dtype.is_float else dtypes.int64


# ---- on Ops ----
@formula
def softmax_op(op: Op, axes: tuple[int, ...]) -> Op:
    """Returns exp(x) / sum(exp(x)) over `axes`."""
    need_float("softmax", op)
    powers, total, _ = _shifted(op, axes)
    # One division per row, not per element; 16-bit floats would show the second rounding.
    is_narrow = total.dtype.itemsize < 4
    factor = broadcast_to(total if is_narrow else unary(OpCode.RECIPROCAL, total), powers.shape)
    return powers / factor if is_narrow else powers * factor


@formula
def log_softmax_op(op: Op, axes: tuple[int, ...]) -> Op:
    """Returns x - log(sum(exp(x))) over `axes`; 16-bit floats are rounded once."""
    need_float("log_softmax", op)
    _, total, shifted = _shifted(cast(op, op.dtype.compute_dtype), axes)
    return cast(shifted - broadcast_to(unary(OpCode.LOG, total), shifted.shape), op.dtype)


def _shifted(op: Op, axes: tuple[int, ...]) -> tuple[Op, Op, Op]:
    """Returns exp(x - max), its sum over axes, kept with length 1, and x - max."""
    greatest = detached(reduce(op, OpCode.MAX, axes, keepdim=True))
    shifted = op - broadcast_to(greatest, op.shape)
    powers = unary(OpCode.EXP, shifted)
    return powers, reduce(powers, OpCode.ADD, axes, keepdim=True), shifted


@formula
def logsumexp_op(op: Op, axes: tuple[int, ...], keepdim: bool = False) -> Op:
    """Returns log(sum(exp(x))) over `axes`; an infinite maximum is not subtracted."""
    wide = cast(op, op.dtype.compute_dtype)
    greatest = detached(reduce(wide, OpCode.MAX, axes, keepdim=True))
    greatest = where(pointwise.is_finite(greatest), greatest, 0.0)
    powers = unary(OpCode.EXP, wide - broadcast_to(greatest, op.shape))
    result = cast(unary(OpCode.LOG, reduce(powers, OpCode.ADD, axes, keepdim=True)) + greatest, op.dtype)
    return result if keepdim else squeezed(result, axes)
