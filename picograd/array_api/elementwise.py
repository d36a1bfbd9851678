"""Elementwise functions.

In:    arrays, and Python numbers beside an array
Out:   Arrays of the broadcast shape
"""

from __future__ import annotations

from picograd.array_api.array import BITS, BOOL, FLOAT, INTEGER, NUMERIC, Array, array, pair
from picograd.tensor.tensor import Tensor

Operand = Tensor | bool | int | float


# ---- one operand ----
def abs(x: Tensor, /) -> Array:
    """Returns |x|.

    >>> abs(Array([-1.5, 2.0]))
    Array([1.5, 2. ])
    """
    return array("abs", x, NUMERIC).abs()


def acos(x: Tensor, /) -> Array:
    """Returns the angle in [0, pi] whose cosine is x.

    >>> acos(Array([1.0]))
    Array([0.])
    """
    return array("acos", x, FLOAT).acos()


def acosh(x: Tensor, /) -> Array:
    """Returns the number >= 0 whose hyperbolic cosine is x.

    >>> acosh(Array([1.0]))
    Array([0.])
    """
    return array("acosh", x, FLOAT).acosh()


def asin(x: Tensor, /) -> Array:
    """Returns the angle in [-pi/2, pi/2] whose sine is x.

    >>> asin(Array([0.0]))
    Array([0.])
    """
    return array("asin", x, FLOAT).asin()


def asinh(x: Tensor, /) -> Array:
    """Returns the number whose hyperbolic sine is x.

    >>> asinh(Array([0.0]))
    Array([0.])
    """
    return array("asinh", x, FLOAT).asinh()


def atan(x: Tensor, /) -> Array:
    """Returns the angle in [-pi/2, pi/2] whose tangent is x.

    >>> atan(Array([0.0]))
    Array([0.])
    """
    return array("atan", x, FLOAT).atan()


def atanh(x: Tensor, /) -> Array:
    """Returns the number whose hyperbolic tangent is x.

    >>> atanh(Array([0.0]))
    Array([0.])
    """
    return array("atanh", x, FLOAT).atanh()


def bitwise_invert(x: Tensor, /) -> Array:
    """Returns all bits turned over; of bools: not x.

    >>> bitwise_invert(Array([0, 5]))
    Array([-1, -6])
    """
    return array("bitwise_invert", x, BITS).bitwise_not()


def ceil(x: Tensor, /) -> Array:
    """Returns the least integer >= x, in the dtype of x.

    >>> ceil(Array([1.5, -1.5]))
    Array([ 2., -1.])
    """
    return array("ceil", x, NUMERIC).ceil()


def conj(x: Tensor, /) -> Array:
    """Returns x, which is its own complex conjugate.

    >>> conj(Array([1.0]))
    Array([1.])
    """
    return array("conj", x, NUMERIC)


def cos(x: Tensor, /) -> Array:
    """Returns the cosine of x radians.

    >>> cos(Array([0.0]))
    Array([1.])
    """
    return array("cos", x, FLOAT).cos()


def cosh(x: Tensor, /) -> Array:
    """Returns the hyperbolic cosine.

    >>> cosh(Array([0.0]))
    Array([1.])
    """
    return array("cosh", x, FLOAT).cosh()


def exp(x: Tensor, /) -> Array:
    """Returns e to the power x.

    >>> exp(Array([0.0]))
    Array([1.])
    """
    return array("exp", x, FLOAT).exp()


def expm1(x: Tensor, /) -> Array:
    """Returns exp(x) - 1, exact near 0.

    >>> expm1(Array([0.0]))
    Array([0.])
    """
    return array("expm1", x, FLOAT).expm1()


def floor(x: Tensor, /) -> Array:
    """Returns the greatest integer <= x, in the dtype of x.

    >>> floor(Array([1.5, -1.5]))
    Array([ 1., -2.])
    """
    return array("floor", x, NUMERIC).floor()


def isfinite(x: Tensor, /) -> Array:
    """Returns True where x is neither infinite nor NaN.

    >>> isfinite(Array([1.0, float('inf')]))
    Array([ True, False])
    """
    return array("isfinite", x, NUMERIC).isfinite()


def isinf(x: Tensor, /) -> Array:
    """Returns True where x is infinite.

    >>> isinf(Array([1.0, float('inf')]))
    Array([False,  True])
    """
    return array("isinf", x, NUMERIC).isinf()


def isnan(x: Tensor, /) -> Array:
    """Returns True where x is NaN.

    >>> isnan(Array([1.0, float('nan')]))
    Array([False,  True])
    """
    return array("isnan", x, NUMERIC).isnan()


def log(x: Tensor, /) -> Array:
    """Returns the natural logarithm.

    >>> log(Array([1.0]))
    Array([0.])
    """
    return array("log", x, FLOAT).log()


def log10(x: Tensor, /) -> Array:
    """Returns the logarithm to base 10.

    >>> log10(Array([1.0]))
    Array([0.])
    """
    return array("log10", x, FLOAT).log10()


def log1p(x: Tensor, /) -> Array:
    """Returns log(1 + x), exact near 0.

    >>> log1p(Array([0.0]))
    Array([0.])
    """
    return array("log1p", x, FLOAT).log1p()


def log2(x: Tensor, /) -> Array:
    """Returns the logarithm to base 2.

    >>> log2(Array([8.0]))
    Array([3.])
    """
    return array("log2", x, FLOAT).log2()


def logical_not(x: Tensor, /) -> Array:
    """Returns not x.

    >>> logical_not(Array([True, False]))
    Array([False,  True])
    """
    return array("logical_not", x, BOOL).logical_not()


def negative(x: Tensor, /) -> Array:
    """Returns -x; integers wrap.

    >>> negative(Array([1, -2]))
    Array([-1,  2])
    """
    return array("negative", x, NUMERIC).neg()


def positive(x: Tensor, /) -> Array:
    """Returns x.

    >>> positive(Array([1, -2]))
    Array([ 1, -2])
    """
    return array("positive", x, NUMERIC)


def real(x: Tensor, /) -> Array:
    """Returns x, which is its own real part.

    >>> real(Array([1.0]))
    Array([1.])
    """
    return array("real", x, NUMERIC)


def reciprocal(x: Tensor, /) -> Array:
    """Returns 1 / x.

    >>> reciprocal(Array([2.0]))
    Array([0.5])
    """
    return array("reciprocal", x, FLOAT).reciprocal()


def round(x: Tensor, /) -> Array:
    """Returns the nearest integer, halves to the even one, in the dtype of x.

    >>> round(Array([0.5, 1.5]))
    Array([0., 2.])
    """
    return array("round", x, NUMERIC).round()


def sign(x: Tensor, /) -> Array:
    """Returns -1, 0 or 1; NaN of NaN.

    >>> sign(Array([-3.0, 0.0]))
    Array([-1.,  0.])
    """
    given = array("sign", x, NUMERIC)
    return given.where(given.ne(given), given.sign())  # PyTorch has 0 for NaN


def signbit(x: Tensor, /) -> Array:
    """Returns True where the sign of x is negative, -0.0 and NaN with that bit too.

    >>> signbit(Array([-0.0, 1.0]))
    Array([ True, False])
    """
    return array("signbit", x, FLOAT).signbit()


def sin(x: Tensor, /) -> Array:
    """Returns the sine of x radians.

    >>> sin(Array([0.0]))
    Array([0.])
    """
    return array("sin", x, FLOAT).sin()


def sinh(x: Tensor, /) -> Array:
    """Returns the hyperbolic sine.

    >>> sinh(Array([0.0]))
    Array([0.])
    """
    return array("sinh", x, FLOAT).sinh()


def sqrt(x: Tensor, /) -> Array:
    """Returns the square root.

    >>> sqrt(Array([4.0]))
    Array([2.])
    """
    return array("sqrt", x, FLOAT).sqrt()


def square(x: Tensor, /) -> Array:
    """Returns x * x.

    >>> square(Array([3.0]))
    Array([9.])
    """
    return array("square", x, NUMERIC).square()


def tan(x: Tensor, /) -> Array:
    """Returns the tangent of x radians.

    >>> tan(Array([0.0]))
    Array([0.])
    """
    return array("tan", x, FLOAT).tan()


def tanh(x: Tensor, /) -> Array:
    """Returns the hyperbolic tangent.

    >>> tanh(Array([0.0]))
    Array([0.])
    """
    return array("tanh", x, FLOAT).tanh()


def trunc(x: Tensor, /) -> Array:
    """Returns x without its fraction, in the dtype of x.

    >>> trunc(Array([1.5, -1.5]))
    Array([ 1., -1.])
    """
    return array("trunc", x, NUMERIC).trunc()


def imag(x: Tensor, /) -> Array:
    """Returns 0, the imaginary part of real numbers.

    >>> imag(Array([1.0]))
    Array([0.])
    """
    return Array.zeros_like(array("imag", x, NUMERIC))


# ---- two operands ----

def add(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 + x2.

    >>> add(Array([1, 2]), 3)
    Array([4, 5])
    """
    a, b = pair("add", x1, x2, NUMERIC)
    return a.add(b)


def atan2(x1: Operand, x2: Operand, /) -> Array:
    """Returns the angle of the point (x2, x1), in [-pi, pi].

    >>> atan2(Array([0.0]), 1.0)
    Array([0.])
    """
    a, b = pair("atan2", x1, x2, FLOAT)
    return a.atan2(b)


def bitwise_and(x1: Operand, x2: Operand, /) -> Array:
    """Returns the bits set in both.

    >>> bitwise_and(Array([6, 5]), 3)
    Array([2, 1])
    """
    a, b = pair("bitwise_and", x1, x2, BITS)
    return a & b


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 * 2 ** x2; what leaves the dtype is lost.

    >>> bitwise_left_shift(Array([1, 3]), 2)
    Array([ 4, 12])
    """
    a, b = pair("bitwise_left_shift", x1, x2, INTEGER)
    return a << b


def bitwise_or(x1: Operand, x2: Operand, /) -> Array:
    """Returns the bits set in one of both.

    >>> bitwise_or(Array([6, 5]), 3)
    Array([7, 7])
    """
    a, b = pair("bitwise_or", x1, x2, BITS)
    return a | b


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Array:
    """Returns floor(x1 / 2 ** x2).

    >>> bitwise_right_shift(Array([5, -5]), 1)
    Array([ 2, -3])
    """
    a, b = pair("bitwise_right_shift", x1, x2, INTEGER)
    return a >> b


def bitwise_xor(x1: Operand, x2: Operand, /) -> Array:
    """Returns the bits that differ.

    >>> bitwise_xor(Array([6, 5]), 3)
    Array([5, 6])
    """
    a, b = pair("bitwise_xor", x1, x2, BITS)
    return a ^ b


def copysign(x1: Operand, x2: Operand, /) -> Array:
    """Returns |x1| with the sign of x2.

    >>> copysign(Array([1.0]), -2.0)
    Array([-1.])
    """
    a, b = pair("copysign", x1, x2, FLOAT)
    return a.copysign(b)


def divide(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 / x2.

    >>> divide(Array([1.0, 3.0]), 2.0)
    Array([0.5, 1.5])
    """
    a, b = pair("divide", x1, x2, FLOAT)
    return a.div(b)


def equal(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where x1 = x2.

    >>> equal(Array([1, 2]), 2)
    Array([False,  True])
    """
    a, b = pair("equal", x1, x2)
    return a.eq(b)


def floor_divide(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 / x2 rounded to minus infinity.

    >>> floor_divide(Array([7, -7]), 2)
    Array([ 3, -4])
    """
    a, b = pair("floor_divide", x1, x2, NUMERIC)
    return a.floor_divide(b)


def greater(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where x1 > x2.

    >>> greater(Array([1, 2, 3]), 2)
    Array([False, False,  True])
    """
    a, b = pair("greater", x1, x2, NUMERIC)
    return a.gt(b)


def greater_equal(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where x1 >= x2.

    >>> greater_equal(Array([1, 2, 3]), 2)
    Array([False,  True,  True])
    """
    a, b = pair("greater_equal", x1, x2, NUMERIC)
    return a.ge(b)


def hypot(x1: Operand, x2: Operand, /) -> Array:
    """Returns sqrt(x1 ** 2 + x2 ** 2), with no overflow between.

    >>> hypot(Array([3.0]), 4.0)
    Array([5.])
    """
    a, b = pair("hypot", x1, x2, FLOAT)
    return a.hypot(b)


def less(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where x1 < x2.

    >>> less(Array([1, 2, 3]), 2)
    Array([ True, False, False])
    """
    a, b = pair("less", x1, x2, NUMERIC)
    return a.lt(b)


def less_equal(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where x1 <= x2.

    >>> less_equal(Array([1, 2, 3]), 2)
    Array([ True,  True, False])
    """
    a, b = pair("less_equal", x1, x2, NUMERIC)
    return a.le(b)


def logaddexp(x1: Operand, x2: Operand, /) -> Array:
    """Returns log(exp(x1) + exp(x2)), with no overflow.

    >>> logaddexp(Array([1000.0]), 0.0)
    Array([1000.])
    """
    a, b = pair("logaddexp", x1, x2, FLOAT)
    return a.logaddexp(b)


def logical_and(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where both hold.

    >>> logical_and(Array([True, False]), True)
    Array([ True, False])
    """
    a, b = pair("logical_and", x1, x2, BOOL)
    return a & b


def logical_or(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where one of both holds.

    >>> logical_or(Array([True, False]), False)
    Array([ True, False])
    """
    a, b = pair("logical_or", x1, x2, BOOL)
    return a | b


def logical_xor(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where just one of both holds.

    >>> logical_xor(Array([True, False]), True)
    Array([False,  True])
    """
    a, b = pair("logical_xor", x1, x2, BOOL)
    return a ^ b


def maximum(x1: Operand, x2: Operand, /) -> Array:
    """Returns the greater of both; NaN wins.

    >>> maximum(Array([1, 5]), 3)
    Array([3, 5])
    """
    a, b = pair("maximum", x1, x2, NUMERIC)
    return a.maximum(b)


def minimum(x1: Operand, x2: Operand, /) -> Array:
    """Returns the smaller of both; NaN wins.

    >>> minimum(Array([1, 5]), 3)
    Array([1, 3])
    """
    a, b = pair("minimum", x1, x2, NUMERIC)
    return a.minimum(b)


def multiply(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 * x2.

    >>> multiply(Array([1, 2]), 3)
    Array([3, 6])
    """
    a, b = pair("multiply", x1, x2, NUMERIC)
    return a.mul(b)


def nextafter(x1: Operand, x2: Operand, /) -> Array:
    """Returns the next float after x1 in the direction of x2.

    >>> nextafter(Array([0.0]), 0.0)
    Array([0.])
    """
    a, b = pair("nextafter", x1, x2, FLOAT)
    return a.nextafter(b)


def not_equal(x1: Operand, x2: Operand, /) -> Array:
    """Returns True where x1 and x2 differ.

    >>> not_equal(Array([1, 2]), 2)
    Array([ True, False])
    """
    a, b = pair("not_equal", x1, x2)
    return a.ne(b)


def pow(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 ** x2.

    >>> pow(Array([2, 3]), 2)
    Array([4, 9])
    """
    a, b = pair("pow", x1, x2, NUMERIC)
    return a.pow(b)


def remainder(x1: Operand, x2: Operand, /) -> Array:
    """Returns what floor_divide leaves; it has the sign of x2.

    >>> remainder(Array([7, -7]), 3)
    Array([1, 2])
    """
    a, b = pair("remainder", x1, x2, NUMERIC)
    return a.remainder(b)


def subtract(x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 - x2.

    >>> subtract(Array([1, 2]), 3)
    Array([-2, -1])
    """
    a, b = pair("subtract", x1, x2, NUMERIC)
    return a.sub(b)


def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    """Returns x held between min and max, broadcast, in the dtype of x; None is no bound, NaN wins.

    >>> clip(Array([1, 5, 9]), 2, max=6)
    Array([2, 5, 6])
    """
    bounded = array("clip", x, NUMERIC)
    for bound, held in ((min, maximum), (max, minimum)):
        if bound is not None:
            bounded = held(bounded, bound)
    return bounded.cast(x.dtype)
