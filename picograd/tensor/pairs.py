"""Functions of two tensors, or of a tensor and a number, without an operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast
from picograd.ir.build import where as where_op
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor import pointwise, special_formulas
from picograd.tensor.arguments import brought_to, meeting_device, value_at
from picograd.tensor.build import broadcast_shapes, broadcast_to, computed_in, divisor, to_float
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.elementwise import in_one_rounding
from picograd.tensor.formulas import formula, of_tensors
from picograd.tensor.inplace import fitting_op, in_place, stored
from picograd.tensor.intake import fitting
from picograd.tensor.modes import precision_mode
from picograd.tensor.operators import binary, is_true, result_of, scalar_of

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "addcdiv", "addcmul", "arctan2", "atan2", "clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min",
    "clamp_min_", "clip", "clip_", "copysign", "fmax", "fmin", "fmod", "gcd", "gcd_", "heaviside", "hypot",
    "igamma", "igammac", "is_same_size", "isclose", "lcm", "lcm_", "ldexp", "ldexp_", "lerp", "logaddexp",
    "logaddexp2", "logical_xor", "masked_fill", "maximum", "minimum", "nextafter", "xlogy_",
]  # fmt: skip


# ---- extremes, bounds, conditions ----
def maximum(self: T, other: Operand) -> T:
    """Returns the larger of both; NaN if one is NaN.

    >>> Tensor([1, 5]).maximum(3)
    Tensor([3, 5])
    """
    return binary(self, "maximum", OpCode.MAX, other)


def minimum(self: T, other: Operand) -> T:
    """Returns the smaller of both; NaN if one is NaN.

    >>> Tensor([1, 5]).minimum(3)
    Tensor([1, 3])
    """
    return binary(self, "minimum", OpCode.MIN, other)


def clamp(self: T, min: Operand | None = None, max: Operand | None = None) -> T:  # noqa: A002
    """Returns x clamped to [`min`, `max`], tensors or numbers; NaN if a bound is NaN.

    Raises:
      ArgumentError: no bound is given, or no value of an integer dtype is within a bound.

    >>> Tensor([-1.5, 0.0, 2.5]).clamp(min=-1.0, max=1.0)
    Tensor([-1.,  0.,  1.])
    """
    if min is None and max is None:
        raise ArgumentError("clamp: give min, max or both.")
    result = self
    if not self.dtype.is_float and (isinstance(min, float) or isinstance(max, float)):
        result = self.from_op(to_float(self.read()), self.cell.device)  # both bounds are in the final dtype
    for bound, low in ((min, True), (max, False)):
        if bound is not None and not _beyond(result.dtype, bound, low):
            x, limit = result._operands("clamp", bound)
            result = result_of(result, "clamp", pointwise.clamp_to(x, limit, low), bound)
    return result


def clamp_min(self: T, min: Operand) -> T:  # noqa: A002
    """Returns x, or `min` if that is larger.

    >>> Tensor([-1.0, 2.0]).clamp_min(0.0)
    Tensor([0., 2.])
    """
    return self.clamp(min=min)


def clamp_max(self: T, max: Operand) -> T:  # noqa: A002
    """Returns x, or `max` if that is smaller.

    >>> Tensor([-1.0, 2.0]).clamp_max(0.0)
    Tensor([-1.,  0.])
    """
    return self.clamp(max=max)


def where(self: T, condition: Tensor, other: Operand) -> T:
    """Returns self if the condition is true, else `other`, all broadcast.

    Raises:
      DTypeError: the condition is not bool.

    >>> Tensor([1, 2]).where(Tensor([True, False]), 0)
    Tensor([1, 0])
    """
    return self.choose(condition, self, other)


def choose(cls: type[T], condition: Tensor, a: Operand, b: Operand) -> T:
    """Returns `a` if the condition is true, else `b`, all broadcast: `pg.where`.

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
    start = a if a.cell.device == device else cls.from_op(value_at(a, device), device)
    if isinstance(b, TensorCore):
        b = b if b.cell.device == device else cls.from_op(value_at(b, device), device)
    else:
        fitting("where", b, dtypes.promote_scalar(start.dtype, b))
    x, y = start._operands("where", b)
    shape = broadcast_shapes("where", condition.op.shape, x.shape)
    mask = broadcast_to(value_at(condition, device), shape)
    return cls.from_op(where_op(mask, broadcast_to(x, shape), broadcast_to(y, shape)), device)


@of_tensors
def prelu(self: T, weight: Tensor) -> T:
    """Returns x if it is positive, else x * weight; nn.functional.prelu documents the shapes.

    Args:
      weight:  one slope, or one per channel

    Raises:
      ShapeError: weight is neither a single number nor one per channel.
      DTypeError: the dtypes differ, or are not floats.

    >>> Tensor([-1.0, 2.0]).prelu(Tensor([0.5]))
    Tensor([-0.5,  2. ])
    """
    if precision_mode.get() is not None and weight.dtype.is_float and self.dtype.is_float:
        weight = weight.from_op(cast(weight.read(), self.dtype), weight.device)  # a layer's weight stays float32
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
    """Returns `value` where the mask is true, else self, both broadcast.

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
    """Returns self + weight * (end - self); from a weight of 1/2 on end - (1 - weight) * (end - self), exact at 1.

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
    """Returns the interpolation of floats for a Python number as weight; else None."""
    start, last = self._operands("lerp", end, "iuf")
    if isinstance(weight, TensorCore) or start.dtype.kind != "f":
        return None
    wide, number = start.dtype.compute_dtype, scalar_of("lerp", weight)
    is_near = abs(number) < 0.5
    rule, share = (between, number) if is_near else (back_from, number - 1)
    return computed_in(wide, rule, (start, last), filled(share, wide, ()))


def _towards(start: Any, end: Any, weight: Any) -> Any:
    is_near = abs(weight) < 0.5
    if isinstance(is_near, bool):
        return start + (end - start) * weight if is_near else end + (end - start) * (weight - 1)
    return start.where(is_near, end) + (end - start) * weight.where(is_near, weight - 1)


@formula
def between(start: Op, last: Op, weight: Op) -> Op:
    """start + weight * (last - start), for a 0-d weight."""
    return start + (last - start) * broadcast_to(weight, start.shape)


@formula
def back_from(start: Op, last: Op, share: Op) -> Op:
    """last + share * (last - start), for a 0-d share: interpolation by 1 + share."""
    return last + (last - start) * broadcast_to(share, start.shape)


def _beyond(dtype: DType, bound: Operand, low: bool) -> bool:
    """True for a bound outside the range of an integer dtype; ArgumentError if it excludes every value."""
    if isinstance(bound, TensorCore) or dtype.kind not in "iu" or dtype.min <= bound <= dtype.max:
        return False
    if (bound < dtype.min) != low:
        raise ArgumentError(f"clamp: no {dtype} is {'>=' if low else '<='} {bound}.", hint="x.long().clamp(...)")
    return True


# ---- arithmetic of two ----
def _pair(self: T, function: str, make: Any, other: Any) -> T:
    """Applies a formula to both operands as floats; 16-bit floats are computed in float32."""
    lhs, rhs = self._operands(function, other, "f")
    return result_of(self, function, computed_in(lhs.dtype.compute_dtype, make, (lhs, rhs)), other)


# ---- of floats ----
def atan2(self: T, other: Operand) -> T:
    """Returns the angle of the point (other, self), in [-pi, pi].

    >>> Tensor([1.0, -1.0]).atan2(Tensor([1.0, -1.0]))
    Tensor([ 0.7853981, -2.3561945])
    """
    return _pair(self, "atan2", pointwise.atan2, other)


def hypot(self: T, other: Operand) -> T:
    """Returns sqrt(self^2 + other^2) without overflow.

    >>> Tensor([3.0, 5.0]).hypot(Tensor([4.0, 12.0]))
    Tensor([ 5., 13.])
    """
    return _pair(self, "hypot", pointwise.hypot, other)


def _incomplete_gamma(self: T, function: str, name: str, other: Operand) -> T:
    is_float = other.dtype.is_float if isinstance(other, TensorCore) else isinstance(other, float)
    if not (self.dtype.is_float or is_float):
        fact = f"{function}: one operand must be a float, got {self.dtype} of shape {self.shape}."
        raise DTypeError(fact, hint="x.float()")
    lhs, rhs = self._operands(function, other, "f")
    result = computed_in(dtypes.float64, lambda a, x: special_formulas.incomplete(name, a, x), (lhs, rhs))
    return result_of(self, function, result, other)


def igamma(self: T, other: Operand) -> T:
    """Returns the regularized lower incomplete gamma function of order self at `other`, in [0, 1].

    1 / gamma(self) times the integral of t^(self - 1) e^-t from 0 to other; NaN if one is negative or both are 0

    Raises:
      DTypeError: both are integers.

    Gradient: with respect to other only, as in PyTorch.

    >>> Tensor([1.0, 2.0]).igamma(Tensor([1.0, 2.0]))
    Tensor([0.63212055, 0.59399414])
    """
    return _incomplete_gamma(self, "igamma", "gammainc", other)


def igammac(self: T, other: Operand) -> T:
    """Returns the upper incomplete gamma function, 1 - self.igamma(other), accurate where it is small.

    Raises:
      DTypeError: both are integers.

    Gradient: with respect to other only, as in PyTorch.

    >>> Tensor([1.0, 2.0]).igammac(Tensor([1.0, 2.0]))
    Tensor([0.36787945, 0.40600586])
    """
    return _incomplete_gamma(self, "igammac", "gammaincc", other)


def copysign(self: T, other: Operand) -> T:
    """Returns |self| with the sign of `other`; -0.0 counts as negative.

    >>> Tensor([1.0, -2.0]).copysign(-0.0)
    Tensor([-1., -2.])
    """
    return _pair(self, "copysign", pointwise.copysign, other)


def nextafter(self: T, other: Operand) -> T:
    """Returns the next float after self in the direction of `other`; its gradient is self's.

    >>> Tensor([1.0]).nextafter(2.0)
    Tensor([1.0000001])
    """
    lhs, rhs = self._operands("nextafter", other, "f")
    return result_of(self, "nextafter", pointwise.nextafter(lhs, rhs), other)


def logaddexp(self: T, other: Operand) -> T:
    """Returns log(e^self + e^other) without overflow.

    Equal infinities share the gradient, as equal numbers do; PyTorch's is NaN there.

    >>> Tensor([1000.0]).logaddexp(Tensor([1000.0]))
    Tensor([1000.6932])
    """
    return _pair(self, "logaddexp", pointwise.logaddexp, other)


def logaddexp2(self: T, other: Operand) -> T:
    """Returns log2(2^self + 2^other) without overflow.

    >>> Tensor([1000.0]).logaddexp2(Tensor([1000.0]))
    Tensor([1001.])
    """
    return _pair(self, "logaddexp2", pointwise.logaddexp2, other)


def xlogy(self: T, other: Operand) -> T:
    """Returns self * log(other), and 0 if self is 0.

    >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0]))
    Tensor([0., 0.])
    """
    return _pair(self, "xlogy", pointwise.xlogy, other)


def float_power(self: T, exponent: Operand) -> T:
    """Returns self ** exponent in float64; gradients at its edges are those of `pow`.

    >>> Tensor([2, 3]).float_power(2)
    Tensor([4., 9.], dtype=float64)
    """
    exponent = exponent.double() if isinstance(exponent, TensorCore) else scalar_of("float_power", exponent)
    return self.double().pow(exponent)


def float_power_(self: T, exponent: Operand) -> T:
    """Raises to the power `exponent` in place, in float64.

    Raises:
      DTypeError: self is not float64, the dtype of the result.

    >>> Tensor([2.0, 3.0], dtype=dtypes.float64).float_power_(2)
    Tensor([4., 9.], dtype=float64)
    """
    if self.dtype is not dtypes.float64:
        raise DTypeError(
            f"float_power_: the result is float64 and does not fit in place into {self.dtype}.",
            hint="x = x.float_power(exponent)",
        )
    return stored("float_power_", self, float_power(self, exponent))


def ldexp(self: T, other: Operand) -> T:
    """Returns self * 2 ** other; if `other` is an integer tensor, in the dtype of self and without intermediate overflow.

    >>> Tensor([0.75, 1e-30]).ldexp(Tensor([2, 200]))
    Tensor([3.000000e+00, 1.606938e+30])
    """
    if not isinstance(other, TensorCore):
        number = scalar_of("ldexp", other)
        return self * (2.0**number if number < 1024 else math.inf)
    if not other.dtype.is_int:
        return self * other.__rpow__(2.0)
    dtype = self.dtype if self.dtype.is_float else dtypes.default_float
    wide = dtype.compute_dtype
    reach = 1022 if wide is dtypes.float64 else 126  # largest exponent of a factor: three such factors span all floats
    rest, result = other.long().clamp(-3 * reach, 3 * reach), self.to(wide)
    for left in (3, 2, 1):
        part = rest // left
        result, rest = result * part.to(wide).exp2(), rest - part
    return result.to(dtype)


# ---- of any number ----
def fmod(self: T, other: Operand) -> T:
    """Returns the remainder of division rounded toward zero; it has the sign of self.

    Raises:
      DTypeError:    both operands are bools.
      ArgumentError: an integer divided by 0 (a tensor: when it is computed).

    >>> Tensor([7, -7]).fmod(3)
    Tensor([ 1, -1])
    """
    lhs, rhs = self._operands("fmod", other, "iuf")
    return result_of(self, "fmod", pointwise.fmod(lhs, divisor(rhs)), other)


def fmax(self: T, other: Operand) -> T:
    """Returns the larger of both; a number is preferred to NaN.

    >>> Tensor([1.0, float("nan")]).fmax(0.0)
    Tensor([1., 0.])
    """
    lhs, rhs = self._operands("fmax", other)
    return result_of(self, "fmax", pointwise.fmax(lhs, rhs), other)


def fmin(self: T, other: Operand) -> T:
    """Returns the smaller of both; a number is preferred to NaN.

    >>> Tensor([1.0, float("nan")]).fmin(0.0)
    Tensor([0., 0.])
    """
    lhs, rhs = self._operands("fmin", other)
    return result_of(self, "fmin", pointwise.fmin(lhs, rhs), other)


def heaviside(self: T, values: Tensor) -> T:
    """Returns 0 if self < 0, 1 if self > 0, and `values` if self is 0.

    >>> Tensor([-1.0, 0.0, 2.0]).heaviside(Tensor(0.5))
    Tensor([0. , 0.5, 1. ])
    """
    lhs, rhs = self._operands("heaviside", values)
    return result_of(self, "heaviside", pointwise.heaviside(lhs, rhs), values)


def gcd(self: T, other: Operand) -> T:
    """Returns the greatest common divisor of integers.

    Raises:
      DTypeError: an operand is a float or bool.

    Cost: NumPy computes it on the host.

    >>> Tensor([12, -9]).gcd(Tensor([18, 6]))
    Tensor([6, 3])
    """
    lhs, rhs = _integers(self, "gcd", other)
    return result_of(self, "gcd", pointwise.gcd(lhs, rhs), other)


def lcm(self: T, other: Operand) -> T:
    """Returns the least common multiple of integers; overflow wraps around, as for products.

    Raises:
      DTypeError: an operand is a float or bool.

    >>> Tensor([4, 6]).lcm(Tensor([6, 0]))
    Tensor([12,  0])
    """
    lhs, rhs = _integers(self, "lcm", other)
    return result_of(self, "lcm", pointwise.lcm(lhs, rhs), other)


def _integers(self: T, function: str, other: Any) -> tuple[Op, Op]:
    lhs, rhs = self._operands(function, other, "biu")
    if lhs.dtype.kind == "b":
        raise DTypeError(f"{function}: needs integers, got bools of shape {self.shape}.", hint="x.long()")
    return lhs, rhs


# ---- nearness ----
def isclose(self: T, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> T:
    """Returns True if |self - other| <= atol + rtol * |other|; NaN is close to NaN only with equal_nan.

    Raises:
      ArgumentError: rtol or atol is negative.

    >>> Tensor([1.0, 2.0]).isclose(Tensor([1.000001, 2.1]))
    Tensor([ True, False])
    """
    if not (rtol >= 0 and atol >= 0):
        raise ArgumentError(f"isclose: rtol and atol must not be negative, got rtol={rtol}, atol={atol}.")
    lhs, rhs = self._operands("isclose", other)
    return result_of(self, "isclose", pointwise.is_close(lhs, rhs, rtol, atol, equal_nan), other)


def logical_xor(self: T, other: Operand) -> T:
    """Returns True if exactly one of both is nonzero.

    >>> Tensor([0, 2]).logical_xor(Tensor([1, 1]))
    Tensor([ True, False])
    """
    return self.ne(0) ^ is_true("logical_xor", other)


# ---- three operands ----
def addcmul(self: T, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> T:
    """Returns self + value * tensor1 * tensor2, broadcast; for integers `value` is truncated, as in PyTorch.

    >>> Tensor([1.0]).addcmul(Tensor([2.0]), Tensor([3.0]), value=0.5)
    Tensor([4.])
    """
    whole = (not one.dtype.is_float for one in (self, tensor1, tensor2) if isinstance(one, TensorCore))
    if isinstance(value, float) and all(whole):
        value = int(fitting("addcmul", value, self.dtype))
    return in_one_rounding(lambda x, a, b: x + (a if value == 1 else a * value) * b, self, tensor1, tensor2)


def addcdiv(self: T, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> T:
    """Returns self + value * tensor1 / tensor2, broadcast.

    Raises:
      DTypeError: tensor1 and tensor2 are integers.

    >>> Tensor([1.0]).addcdiv(Tensor([6.0]), Tensor([3.0]), value=0.5)
    Tensor([2.])
    """
    if not (tensor1.dtype.is_float or tensor2.dtype.is_float):
        raise DTypeError(
            f"addcdiv: {tensor1.dtype} / {tensor2.dtype} is ambiguous: a true or a rounded quotient.",
            hint="x + value * t1 / t2, or t1.div(t2, rounding_mode=...)",
        )
    return in_one_rounding(lambda x, a, b: x + (a if value == 1 else a * value) / b, self, tensor1, tensor2)


def is_same_size(self: T, other: Tensor) -> bool:
    """Returns True if the shapes are equal.

    >>> Tensor([1, 2]).is_same_size(Tensor([0.5, 1.5]))
    True
    """
    return self.op.shape == other.op.shape


# ---- twins in place, and other names ----
clamp_, clamp_min_, clamp_max_ = in_place(clamp), in_place(clamp_min), in_place(clamp_max)
atan2_, hypot_, igamma_ = in_place(atan2), in_place(hypot), in_place(igamma)
igammac_, copysign_, nextafter_ = in_place(igammac), in_place(copysign), in_place(nextafter)
xlogy_, ldexp_, fmod_ = in_place(xlogy), in_place(ldexp), in_place(fmod)
heaviside_, gcd_, lcm_ = in_place(heaviside), in_place(gcd), in_place(lcm)
logical_xor_, addcmul_, addcdiv_ = in_place(logical_xor), in_place(addcmul), in_place(addcdiv)
clip, clip_ = clamp, clamp_
arctan2 = atan2
arctan2_ = atan2_
