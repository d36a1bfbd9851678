"""Choices between two numbers: extremes, bounds, conditions, and what lies between.

In:    tensors and Python scalars
Out:   `Choices`
Next:  picograd/tensor/elements/pointwise.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import where as where_op
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.autocast import precision_mode
from picograd.tensor.build import broadcast_shapes, broadcast_to, cast, computed_in, to_float
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.elements import pointwise
from picograd.tensor.elements.functions import in_one_rounding
from picograd.tensor.elements.operators import binary, result_of, scalar_of
from picograd.tensor.exchange.host import fitting
from picograd.tensor.formulas import formula
from picograd.tensor.inplace import fitting_op, in_place, stored
from picograd.tensor.meeting import brought_to, meeting_device, value_at

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


def maximum(self: T, other: Operand) -> T:
    """Returns the greater of both; NaN wins.

    >>> Tensor([1, 5]).maximum(3)
    Tensor([3, 5])
    """
    return binary(self, "maximum", OpCode.MAX, other)


def minimum(self: T, other: Operand) -> T:
    """Returns the smaller of both; NaN wins.

    >>> Tensor([1, 5]).minimum(3)
    Tensor([1, 3])
    """
    return binary(self, "minimum", OpCode.MIN, other)


def clamp(self: T, min: Operand | None = None, max: Operand | None = None) -> T:  # noqa: A002
    """Returns x held between `min` and `max`, tensors or numbers; NaN where a bound is NaN.

    Raises:
      ArgumentError: neither bound is given, or an integer dtype has no value within one.

    >>> Tensor([-1.5, 0.0, 2.5]).clamp(min=-1.0, max=1.0)
    Tensor([-1.,  0.,  1.])
    """
    if min is None and max is None:
        raise ArgumentError("clamp: give min, max or both.")
    result = self
    if not self.dtype.is_float and (isinstance(min, float) or isinstance(max, float)):
        result = self.from_op(to_float(self.read()), self.cell.device)  # both bounds count in the final dtype
    for bound, low in ((min, True), (max, False)):
        if bound is not None and not _beyond(result.dtype, bound, low):
            x, limit = result._operands("clamp", bound)
            result = result_of(result, "clamp", pointwise.clamp_to(x, limit, low), bound)
    return result


clamp_ = in_place(clamp)


def clamp_min(self: T, min: Operand) -> T:  # noqa: A002
    """Returns x, or `min` where that is greater.

    >>> Tensor([-1.0, 2.0]).clamp_min(0.0)
    Tensor([0., 2.])
    """
    return self.clamp(min=min)


clamp_min_ = in_place(clamp_min)


def clamp_max(self: T, max: Operand) -> T:  # noqa: A002
    """Returns x, or `max` where that is smaller.

    >>> Tensor([-1.0, 2.0]).clamp_max(0.0)
    Tensor([-1.,  0.])
    """
    return self.clamp(max=max)


clamp_max_ = in_place(clamp_max)

clip, clip_ = clamp, clamp_


def where(self: T, condition: Tensor, other: Operand) -> T:
    """Returns self where the condition holds, else `other`, all broadcast.

    Raises:
      DTypeError: the condition is not bool.

    >>> Tensor([1, 2]).where(Tensor([True, False]), 0)
    Tensor([1, 0])
    """
    return self.choose(condition, self, other)


def choose(cls: type[T], condition: Tensor, a: Operand, b: Operand) -> T:
    """Returns `a` where the condition holds, else `b`, all broadcast: `pg.where`.

    Raises:
      DTypeError: the condition is not bool.

    >>> Tensor.choose(Tensor([True, False]), 1, Tensor([5, 6])).tolist()
    [1, 6]
    """
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(f"where: the condition must be bool, got {condition.dtype} of shape {condition.shape}.")
    if not isinstance(a, TensorCore):
        other = b.dtype if isinstance(b, TensorCore) else dtypes.dtype_of_scalar(b)
        chosen = dtypes.promote_scalar(other, a)
        a = cls.from_op(filled(fitting("where", a, chosen), chosen, ()), None)
    device = meeting_device("where", condition, *(part for part in (a, b) if isinstance(part, TensorCore)))
    start = cls.from_op(value_at(a, device), device)
    if isinstance(b, TensorCore):
        b = cls.from_op(value_at(b, device), device)
    else:
        fitting("where", b, dtypes.promote_scalar(start.dtype, b))
    x, y = start._operands("where", b)
    shape = broadcast_shapes("where", condition.op.shape, x.shape)
    mask = broadcast_to(value_at(condition, device), shape)
    return cls.from_op(where_op(mask, broadcast_to(x, shape), broadcast_to(y, shape)), device)


def prelu(self: T, weight: Tensor) -> T:
    """Returns x where it is positive, else x * weight: nn.functional.prelu, which says what shapes there are.

    Args:
      weight:  one slope, or one for each channel

    Raises:
      ShapeError: weight is neither one number nor one for each channel.
      DTypeError: the dtypes differ, or are no floats.

    >>> Tensor([-1.0, 2.0]).prelu(Tensor([0.5]))
    Tensor([-0.5,  2. ])
    """
    if precision_mode.get() is not None and weight.dtype.is_float and self.dtype.is_float:
        weight = weight.from_op(cast(weight.read(), self.dtype), weight.device)  # a layer's stays float32
    if not self.dtype.is_float or weight.dtype is not self.dtype:
        raise DTypeError(f"prelu: input and weight must be floats of one dtype, got {self.dtype} and {weight.dtype}.")
    slopes: Tensor = weight
    if weight.ndim > 1 or (weight.ndim == 1 and weight.shape[0] != 1):
        channels = self.shape[1 if self.ndim > 1 else 0] if self.ndim else 1
        if weight.ndim > 1 or weight.shape[0] != channels:
            raise ShapeError(f"prelu: weight {weight.shape} must be (1,) or ({channels},) for input {self.shape}.")
        slopes = weight.reshape(-1, *(1,) * (self.ndim - 2)) if self.ndim > 1 else weight
    elif not self.ndim:
        slopes = weight.reshape(())
    above = self > 0
    return self.choose(above, self, self.choose(above, 0.0, self) * slopes)


def masked_fill(self: T, mask: Tensor, value: Operand) -> T:
    """Returns `value` where the mask holds, else self, both broadcast.

    Raises:
      ShapeError: a tensor as value has axes.

    >>> Tensor([1, 2]).masked_fill(Tensor([True, False]), 0)
    Tensor([0, 2])
    """
    device = self.other_device("masked_fill", mask)
    if isinstance(value, TensorCore):
        if value.ndim:
            raise ShapeError(f"masked_fill: a tensor as value must have no axes, got shape {value.shape}.")
        device = brought_to("masked_fill", mask if self.cell.device is None else self, value)
        chosen = cast(value_at(value, device), self.dtype)
    else:
        chosen = filled(fitting("masked_fill", value, self.dtype), self.dtype, ())
    return self.choose(mask, self.from_op(chosen, device), self)


def lerp(self: T, end: Tensor, weight: Operand) -> T:
    """Returns self + weight * (end - self).

    >>> Tensor([0.0, 10.0]).lerp(Tensor([10.0, 20.0]), 0.25)
    Tensor([ 2.5, 12.5])
    """
    op = _between(self, end, weight)
    return in_one_rounding(_towards, self, end, weight) if op is None else result_of(self, "lerp", op, end)


def lerp_(self: T, end: Tensor, weight: Operand) -> T:
    """Stores self + weight * (end - self) in place.

    >>> Tensor([0.0, 10.0]).lerp_(Tensor([10.0, 20.0]), 0.25)
    Tensor([ 2.5, 12.5])
    """
    op = _between(self, end, weight)
    if op is None or end.cell.device is not self.cell.device:
        return stored("lerp_", self, self.lerp(end, weight))
    return self.write("lerp_", fitting_op("lerp_", self, op))


def _between(self: T, end: Tensor, weight: Operand) -> Op | None:
    """Returns what lies between floats, for a weight that is a number; else None."""
    start, last = self._operands("lerp", end, "iuf")
    if isinstance(weight, TensorCore) or start.dtype.kind != "f":
        return None
    wide = start.dtype.compute_dtype
    return computed_in(wide, between, (start, last), filled(scalar_of("lerp", weight), wide, ()))


def _towards(start: Any, end: Any, weight: Any) -> Any:
    return start + (end - start) * weight


@formula
def between(start: Op, last: Op, weight: Op) -> Op:
    """start + weight * (last - start), for a weight of no axes."""
    return start + (last - start) * broadcast_to(weight, start.shape)


def _beyond(dtype: DType, bound: Operand, low: bool) -> bool:
    """True for a bound that no value of an integer dtype reaches; ArgumentError where every value is past it."""
    if isinstance(bound, TensorCore) or dtype.kind not in "iu" or dtype.min <= bound <= dtype.max:
        return False
    if (bound < dtype.min) != low:
        raise ArgumentError(f"clamp: no {dtype} is {'>=' if low else '<='} {bound}.", hint="x.long().clamp(...)")
    return True
