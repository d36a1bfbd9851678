"""Functions of two tensors, or of a tensor and a number, that have words instead of signs.

In:    tensors and Python scalars
Out:   `atan2`, `hypot`, `fmod`, `gcd`, `isclose`, `addcmul` ..., most with a last _ in place: methods of Tensor
Next:  picograd/tensor/elements/arithmetic.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.errors import ArgumentError, DTypeError
from picograd.ir.op import Op
from picograd.tensor.build import computed_in
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.elements import arithmetic, gamma, inverses
from picograd.tensor.elements.functions import in_one_rounding
from picograd.tensor.elements.operators import is_true, result_of, scalar_of
from picograd.tensor.inplace import in_place, stored

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "addcdiv", "addcmul", "atan2", "copysign", "fmax", "fmin", "fmod", "gcd", "heaviside", "hypot", "igamma",
    "igammac", "is_same_size", "isclose", "lcm", "ldexp", "logaddexp", "logaddexp2", "logical_xor", "nextafter",
]  # fmt: skip


def _pair(self: T, function: str, make: Any, other: Any, kinds: str = "f") -> T:
    """Returns a composition of both operands, of narrow floats in float32."""
    lhs, rhs = self._operands(function, other, kinds)
    return result_of(self, function, computed_in(lhs.dtype.compute_dtype, make, (lhs, rhs)), other)


# ---- of floats ----
def atan2(self: T, other: Operand) -> T:
    """Returns the angle of the point (other, self), in -pi..pi.

    >>> Tensor([1.0, -1.0]).atan2(Tensor([1.0, -1.0]))
    Tensor([ 0.7853981, -2.3561945])
    """
    return _pair(self, "atan2", inverses.atan2, other)


atan2_ = in_place(atan2)


arctan2 = atan2
arctan2_ = atan2_


def hypot(self: T, other: Operand) -> T:
    """Returns sqrt(self^2 + other^2), with no overflow between.

    >>> Tensor([3.0, 5.0]).hypot(Tensor([4.0, 12.0]))
    Tensor([ 5., 13.])
    """
    return _pair(self, "hypot", inverses.hypot, other)


hypot_ = in_place(hypot)


def _incomplete_gamma(self: T, function: str, name: str, other: Operand) -> T:
    is_float = other.dtype.is_float if isinstance(other, TensorCore) else isinstance(other, float)
    if not (self.dtype.is_float or is_float):
        fact = f"{function}: one of both must be a float, got {self.dtype} of shape {self.shape}."
        raise DTypeError(fact, hint="x.float()")
    lhs, rhs = self._operands(function, other, "f")
    result = computed_in(dtypes.float64, lambda a, x: gamma.incomplete(name, a, x), (lhs, rhs))
    return result_of(self, function, result, other)


def igamma(self: T, other: Operand) -> T:
    """Returns the lower incomplete gamma function, of order self up to `other`, as a part of the whole: 0..1.

    1 / gamma(self) times the integral of t^(self - 1) e^-t from 0 to other; NaN where one is negative or both are 0

    Raises:
      DTypeError: both are integers.

    Gradient: by other alone, as in PyTorch.

    >>> Tensor([1.0, 2.0]).igamma(Tensor([1.0, 2.0]))
    Tensor([0.63212055, 0.59399414])
    """
    return _incomplete_gamma(self, "igamma", "gammainc", other)


igamma_ = in_place(igamma)


def igammac(self: T, other: Operand) -> T:
    """Returns the upper incomplete gamma function, 1 - self.igamma(other), with its digits where it vanishes.

    Raises:
      DTypeError: both are integers.

    Gradient: by other alone, as in PyTorch.

    >>> Tensor([1.0, 2.0]).igammac(Tensor([1.0, 2.0]))
    Tensor([0.36787945, 0.40600586])
    """
    return _incomplete_gamma(self, "igammac", "gammaincc", other)


igammac_ = in_place(igammac)


def copysign(self: T, other: Operand) -> T:
    """Returns |self| with the sign of `other`, -0.0 counting as negative.

    >>> Tensor([1.0, -2.0]).copysign(-0.0)
    Tensor([-1., -2.])
    """
    return _pair(self, "copysign", arithmetic.copysign, other)


copysign_ = in_place(copysign)


def nextafter(self: T, other: Operand) -> T:
    """Returns the next float after self in the direction of `other`, with the gradient 1 of self.

    >>> Tensor([1.0]).nextafter(2.0)
    Tensor([1.0000001])
    """
    lhs, rhs = self._operands("nextafter", other, "f")
    return result_of(self, "nextafter", arithmetic.nextafter(lhs, rhs), other)


nextafter_ = in_place(nextafter)


def logaddexp(self: T, other: Operand) -> T:
    """Returns log(e^self + e^other), with no overflow between.

    Equal infinities share the gradient, as equal numbers do; PyTorch's is NaN there.

    >>> Tensor([1000.0]).logaddexp(Tensor([1000.0]))
    Tensor([1000.6932])
    """
    return _pair(self, "logaddexp", arithmetic.logaddexp, other)


def logaddexp2(self: T, other: Operand) -> T:
    """Returns log2(2^self + 2^other), with no overflow between.

    >>> Tensor([1000.0]).logaddexp2(Tensor([1000.0]))
    Tensor([1001.])
    """
    return _pair(self, "logaddexp2", arithmetic.logaddexp2, other)


def xlogy(self: T, other: Operand) -> T:
    """Returns self * log(other), and 0 where self is 0.

    >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0]))
    Tensor([0., 0.])
    """
    return _pair(self, "xlogy", arithmetic.xlogy, other)


xlogy_ = in_place(xlogy)


def float_power(self: T, exponent: Operand) -> T:
    """Returns self ** exponent, computed in float64 and of that dtype.

    >>> Tensor([2, 3]).float_power(2)
    Tensor([4., 9.], dtype=float64)
    """
    exponent = exponent.double() if isinstance(exponent, TensorCore) else scalar_of("float_power", exponent)
    return self.double().pow(exponent)


def float_power_(self: T, exponent: Operand) -> T:
    """Raises to the power `exponent` in place, in float64.

    Raises:
      DTypeError: self is not float64, which the result needs.

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
    """Returns self * 2 ** other; where `other` is a tensor of integers, in the dtype of self, with no overflow between.

    >>> Tensor([0.75, 1e-30]).ldexp(Tensor([2, 200]))
    Tensor([3.000000e+00, 1.606938e+30])
    """
    if not isinstance(other, TensorCore):
        return self * 2.0 ** scalar_of("ldexp", other)
    if not other.dtype.is_int:
        return self * other.__rpow__(2.0)
    dtype = self.dtype if self.dtype.is_float else dtypes.default_float
    wide = dtype.compute_dtype
    reach = 1022 if wide is dtypes.float64 else 126  # powers of two up to here, and three of them, span all floats
    rest, result = other.long().clamp(-3 * reach, 3 * reach), self.to(wide)
    for left in (3, 2, 1):
        part = rest // left
        result, rest = result * part.to(wide).exp2(), rest - part
    return result.to(dtype)


ldexp_ = in_place(ldexp)


# ---- of any number ----
def fmod(self: T, other: Operand) -> T:
    """Returns what division rounded toward zero leaves; it has the sign of self.

    Raises:
      DTypeError: bools.

    >>> Tensor([7, -7]).fmod(3)
    Tensor([ 1, -1])
    """
    lhs, rhs = self._operands("fmod", other, "iuf")
    return result_of(self, "fmod", arithmetic.fmod(lhs, rhs), other)


fmod_ = in_place(fmod)


def fmax(self: T, other: Operand) -> T:
    """Returns the greater of both; a number wins over NaN.

    >>> Tensor([1.0, float("nan")]).fmax(0.0)
    Tensor([1., 0.])
    """
    lhs, rhs = self._operands("fmax", other)
    return result_of(self, "fmax", arithmetic.fmax(lhs, rhs), other)


def fmin(self: T, other: Operand) -> T:
    """Returns the smaller of both; a number wins over NaN.

    >>> Tensor([1.0, float("nan")]).fmin(0.0)
    Tensor([0., 0.])
    """
    lhs, rhs = self._operands("fmin", other)
    return result_of(self, "fmin", arithmetic.fmin(lhs, rhs), other)


def heaviside(self: T, values: Tensor) -> T:
    """Returns 0 where self < 0, 1 where self > 0, and `values` where self is 0.

    >>> Tensor([-1.0, 0.0, 2.0]).heaviside(Tensor(0.5))
    Tensor([0. , 0.5, 1. ])
    """
    lhs, rhs = self._operands("heaviside", values)
    return result_of(self, "heaviside", arithmetic.heaviside(lhs, rhs), values)


heaviside_ = in_place(heaviside)


def gcd(self: T, other: Operand) -> T:
    """Returns the greatest common divisor of integers.

    Raises:
      DTypeError: floats or bools.

    Cost: as many divisions of each element as the dtype can need: 46 for int32, 92 for int64.

    >>> Tensor([12, -9]).gcd(Tensor([18, 6]))
    Tensor([6, 3])
    """
    lhs, rhs = _integers(self, "gcd", other)
    return result_of(self, "gcd", arithmetic.gcd(lhs, rhs), other)


gcd_ = in_place(gcd)


def lcm(self: T, other: Operand) -> T:
    """Returns the least common multiple of integers; one that overflows wraps around, as a product does.

    Raises:
      DTypeError: floats or bools.

    >>> Tensor([4, 6]).lcm(Tensor([6, 0]))
    Tensor([12,  0])
    """
    lhs, rhs = _integers(self, "lcm", other)
    return result_of(self, "lcm", arithmetic.lcm(lhs, rhs), other)


lcm_ = in_place(lcm)


def _integers(self: T, function: str, other: Any) -> tuple[Op, Op]:
    lhs, rhs = self._operands(function, other, "biu")
    if lhs.dtype.kind == "b":
        raise DTypeError(f"{function}: needs integers, got bools of shape {self.shape}.", hint="x.long()")
    return lhs, rhs


# ---- nearness ----
def isclose(self: T, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> T:
    """Returns True where |self - other| <= atol + rtol * |other|; NaN is close to NaN only with equal_nan.

    Raises:
      ArgumentError: rtol or atol is negative.

    >>> Tensor([1.0, 2.0]).isclose(Tensor([1.000001, 2.1]))
    Tensor([ True, False])
    """
    if not (rtol >= 0 and atol >= 0):
        raise ArgumentError(f"isclose: rtol and atol must not be negative, got rtol={rtol}, atol={atol}.")
    lhs, rhs = self._operands("isclose", other)
    return result_of(self, "isclose", arithmetic.is_close(lhs, rhs, rtol, atol, equal_nan), other)


def logical_xor(self: T, other: Operand) -> T:
    """Returns True where just one of both is not zero.

    >>> Tensor([0, 2]).logical_xor(Tensor([1, 1]))
    Tensor([ True, False])
    """
    return self.ne(0) ^ is_true("logical_xor", other)


logical_xor_ = in_place(logical_xor)


# ---- three operands ----
def addcmul(self: T, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> T:
    """Returns self + value * tensor1 * tensor2, broadcast.

    >>> Tensor([1.0]).addcmul(Tensor([2.0]), Tensor([3.0]), value=0.5)
    Tensor([4.])
    """
    return in_one_rounding(lambda x, a, b: x + (a if value == 1 else a * value) * b, self, tensor1, tensor2)


addcmul_ = in_place(addcmul)


def addcdiv(self: T, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> T:
    """Returns self + value * tensor1 / tensor2, broadcast.

    Raises:
      DTypeError: both divided tensors are integers.

    >>> Tensor([1.0]).addcdiv(Tensor([6.0]), Tensor([3.0]), value=0.5)
    Tensor([2.])
    """
    if not (tensor1.dtype.is_float or tensor2.dtype.is_float):
        raise DTypeError(
            f"addcdiv: {tensor1.dtype} / {tensor2.dtype} has no one meaning: a quotient or a rounded one.",
            hint="x + value * t1 / t2, or t1.div(t2, rounding_mode=...)",
        )
    return in_one_rounding(lambda x, a, b: x + (a if value == 1 else a * value) / b, self, tensor1, tensor2)


addcdiv_ = in_place(addcdiv)


def is_same_size(self: T, other: Tensor) -> bool:
    """Returns True if both have one shape.

    >>> Tensor([1, 2]).is_same_size(Tensor([0.5, 1.5]))
    True
    """
    return self.op.shape == other.op.shape
