"""Mean, variance and standard deviation on Ops, as exact for a large mean as for a small one.

In:    Ops of floats, axes
Out:   `mean_op`, `nearest_mean`, `variance_op`, `deviation_op`
Next:  picograd/tensor/reductions/statistics.py

The mean m' of x is rounded, so differences d = x - m' do not add up to 0. Their mean is the error of m', and without it

    variance = (sum d^2 - (sum d)^2 / n) / (n - correction)

Both sums are one walk. In exact arithmetic sum d is 0 whatever x is, so its derivatives are 0: it is detached.

The square of a float32 may be no float32: of 1e20 it is infinite, of 1e-30 it is 0. A variance of such numbers is no
float32 either, but their deviation is: its squares are added in float64.

Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance", The American Statistician 37(3), eq. 1.7.
"""

from __future__ import annotations

from picograd.dtype import DType, float64
from picograd.ir.build import maximum, minimum, reduce
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import subtract
from picograd.tensor.build import broadcast_to, cast, detached
from picograd.tensor.elements import pointwise
from picograd.tensor.formulas import formula


@formula
def mean_op(op: Op, axes: tuple[int, ...], keepdim: bool = False) -> Op:
    """Returns the mean over `axes`: of narrow floats rounded once, for their sum may be too large for them."""
    total = reduce(cast(op, op.dtype.compute_dtype), OpCode.ADD, axes, keepdim)
    return cast(_over_count(total, _count(op, axes)), op.dtype)


@formula
def nearest_mean(op: Op, axes: tuple[int, ...]) -> Op:
    """Returns the mean over `axes`, which stay, off by little more than its last rounding."""
    mean = mean_op(op, axes, keepdim=True)
    return mean + detached(mean_op(op - broadcast_to(mean, op.shape), axes, keepdim=True))


@formula
def variance_op(op: Op, axes: tuple[int, ...], correction: float, keepdim: bool = False) -> Op:
    """Returns the mean squared deviation from the mean over `axes`, divided by count - correction."""
    return cast(_variance(op, axes, correction, keepdim, op.dtype.compute_dtype), op.dtype)


@formula
def deviation_op(op: Op, axes: tuple[int, ...], correction: float, keepdim: bool = False) -> Op:
    """Returns the square root of the variance, added in float64; the gradient of equal elements is 0."""
    return cast(pointwise.flat_sqrt(_variance(op, axes, correction, keepdim, float64)), op.dtype)


def _variance(op: Op, axes: tuple[int, ...], correction: float, keepdim: bool, wide: DType) -> Op:
    """Returns the variance in `wide`; mean and deviations are of the dtype that `op` computes in."""
    op = cast(op, op.dtype.compute_dtype)
    deviation = cast(op - broadcast_to(mean_op(op, axes, keepdim=True), op.shape), wide)
    squares = reduce(deviation * deviation, OpCode.ADD, axes, keepdim)
    rest = reduce(deviation, OpCode.ADD, axes, keepdim)
    count = _count(deviation, axes)
    total = squares - detached(minimum(rest * _over_count(rest, count), squares))  # of equal elements 0, not below
    if isinstance(count, int):
        return total / float(max(0, count - correction))
    if isinstance(correction, int):
        return _over_count(total, maximum(subtract(count, correction), 0))  # type: ignore[arg-type]
    return total / broadcast_to(maximum(cast(count, total.dtype) + -correction, 0.0), total.shape)


def squeezed(op: Op, axes: tuple[int, ...]) -> Op:
    """Returns `op` without `axes`, each of length 1."""
    shape = tuple(dim for axis, dim in enumerate(op.shape) if axis not in axes)
    return op if shape == op.shape else Op(OpCode.RESHAPE, op.dtype, (op,), shape)


def _count(op: Op, axes: tuple[int, ...]) -> Dim:
    return numel(tuple(op.shape[axis] for axis in axes))


def _over_count(total: Op, count: Dim) -> Op:
    if isinstance(count, int):
        return total / float(count)
    return total / broadcast_to(cast(count, total.dtype), total.shape)
