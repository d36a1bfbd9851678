"""Elementwise functions of one array.

In:    arrays
Out:   Arrays of the same shape
Next:  picograd/array_api/pairs.py
"""

from __future__ import annotations

from picograd.array_api.array import BITS, BOOL, FLOAT, NUMERIC, Array, array
from picograd.tensor.tensor import Tensor


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
