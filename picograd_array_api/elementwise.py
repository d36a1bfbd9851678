"""Elementwise functions of one array, of two, or of an array and a Python number.

In:    arrays, and Python numbers beside an array
Out:   Arrays of the same shape, or of the shape they broadcast to

Most are rows: the standard's name, the method of Tensor that computes it, the kinds of dtype it takes, what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.public import renamed
from picograd.tensor.tensor import Tensor
from picograd_array_api.array import ANY, BITS, BOOL, FLOAT, INTEGER, NUMERIC, WORDS, Array, array, pair

Operand = Tensor | bool | int | float


def of_one(name: str, method: Callable[[Any], Any], kinds: str, says: str) -> Callable[[Tensor], Array]:
    """Returns a function of the standard: a method of Tensor, for one array of some kinds of dtype."""

    def function(x: Tensor, /) -> Array:
        return method(array(name, x, kinds))

    return renamed(function, name, f"Returns {says}.\n\nTakes an array of {WORDS[kinds]}.")


def of_two(name: str, method: Callable[[Any, Any], Any], kinds: str, says: str) -> Callable[[Operand, Operand], Array]:
    """Returns a function of the standard: a method of Tensor, for two arrays brought to one dtype, or one and a number."""

    def function(x1: Operand, x2: Operand, /) -> Array:
        a, b = pair(name, x1, x2, kinds)
        return method(a, b)

    return renamed(function, name, f"Returns {says}, broadcast.\n\nTakes {WORDS[kinds]}: two arrays, or one and a number.")


# ---- of one array: name, method, kinds of dtype, what it returns ----
abs = of_one("abs", Tensor.abs, NUMERIC, "|x|")
acos = of_one("acos", Tensor.acos, FLOAT, "the angle in [0, pi] whose cosine is x")
acosh = of_one("acosh", Tensor.acosh, FLOAT, "the number >= 0 whose hyperbolic cosine is x")
asin = of_one("asin", Tensor.asin, FLOAT, "the angle in [-pi/2, pi/2] whose sine is x")
asinh = of_one("asinh", Tensor.asinh, FLOAT, "the number whose hyperbolic sine is x")
atan = of_one("atan", Tensor.atan, FLOAT, "the angle in [-pi/2, pi/2] whose tangent is x")
atanh = of_one("atanh", Tensor.atanh, FLOAT, "the number whose hyperbolic tangent is x")
bitwise_invert = of_one("bitwise_invert", Tensor.__invert__, BITS, "all bits inverted; for bools, not x")
ceil = of_one("ceil", Tensor.ceil, NUMERIC, "the least integer >= x, in the dtype of x")
conj = of_one("conj", Tensor.conj, NUMERIC, "x, which is its own complex conjugate")
cos = of_one("cos", Tensor.cos, FLOAT, "the cosine of x radians")
cosh = of_one("cosh", Tensor.cosh, FLOAT, "the hyperbolic cosine of x")
exp = of_one("exp", Tensor.exp, FLOAT, "e to the power x")
expm1 = of_one("expm1", Tensor.expm1, FLOAT, "exp(x) - 1, exact near 0")
floor = of_one("floor", Tensor.floor, NUMERIC, "the greatest integer <= x, in the dtype of x")
isfinite = of_one("isfinite", Tensor.isfinite, NUMERIC, "True where x is neither infinite nor NaN")
isinf = of_one("isinf", Tensor.isinf, NUMERIC, "True where x is infinite")
isnan = of_one("isnan", Tensor.isnan, NUMERIC, "True where x is NaN")
log = of_one("log", Tensor.log, FLOAT, "the natural logarithm of x")
log10 = of_one("log10", Tensor.log10, FLOAT, "the logarithm of x to base 10")
log1p = of_one("log1p", Tensor.log1p, FLOAT, "log(1 + x), exact near 0")
log2 = of_one("log2", Tensor.log2, FLOAT, "the logarithm of x to base 2")
logical_not = of_one("logical_not", Tensor.logical_not, BOOL, "not x")
negative = of_one("negative", Tensor.neg, NUMERIC, "-x; integers wrap")
positive = of_one("positive", Tensor.positive, NUMERIC, "x")
reciprocal = of_one("reciprocal", Tensor.reciprocal, FLOAT, "1 / x")
round = of_one("round", Tensor.round, NUMERIC, "the integer nearest to x, halves to even, in the dtype of x")
signbit = of_one("signbit", Tensor.signbit, FLOAT, "True where the sign bit of x is set, also of -0.0 and NaN")
sin = of_one("sin", Tensor.sin, FLOAT, "the sine of x radians")
sinh = of_one("sinh", Tensor.sinh, FLOAT, "the hyperbolic sine of x")
sqrt = of_one("sqrt", Tensor.sqrt, FLOAT, "the square root of x")
square = of_one("square", Tensor.square, NUMERIC, "x * x")
tan = of_one("tan", Tensor.tan, FLOAT, "the tangent of x radians")
tanh = of_one("tanh", Tensor.tanh, FLOAT, "the hyperbolic tangent of x")
trunc = of_one("trunc", Tensor.trunc, NUMERIC, "x without its fraction, in the dtype of x")

# ---- of two arrays ----
add = of_two("add", Tensor.add, NUMERIC, "x1 + x2")
atan2 = of_two("atan2", Tensor.atan2, FLOAT, "the angle of the point (x2, x1), in [-pi, pi]")
bitwise_and = of_two("bitwise_and", Tensor.__and__, BITS, "the bits set in both")
bitwise_left_shift = of_two("bitwise_left_shift", Tensor.__lshift__, INTEGER, "x1 * 2 ** x2, modulo the range of the dtype")
bitwise_or = of_two("bitwise_or", Tensor.bitwise_or, BITS, "the bits set in x1 or x2")
bitwise_right_shift = of_two("bitwise_right_shift", Tensor.__rshift__, INTEGER, "floor(x1 / 2 ** x2)")
bitwise_xor = of_two("bitwise_xor", Tensor.__xor__, BITS, "the bits that differ")
copysign = of_two("copysign", Tensor.copysign, FLOAT, "|x1| with the sign of x2")
divide = of_two("divide", Tensor.div, FLOAT, "x1 / x2")
equal = of_two("equal", Tensor.eq, ANY, "True where x1 = x2")
floor_divide = of_two("floor_divide", Tensor.floor_divide, NUMERIC, "x1 / x2 rounded to minus infinity")
greater = of_two("greater", Tensor.gt, NUMERIC, "True where x1 > x2")
greater_equal = of_two("greater_equal", Tensor.ge, NUMERIC, "True where x1 >= x2")
hypot = of_two("hypot", Tensor.hypot, FLOAT, "sqrt(x1 ** 2 + x2 ** 2), with no overflow between")
less = of_two("less", Tensor.lt, NUMERIC, "True where x1 < x2")
less_equal = of_two("less_equal", Tensor.le, NUMERIC, "True where x1 <= x2")
logaddexp = of_two("logaddexp", Tensor.logaddexp, FLOAT, "log(exp(x1) + exp(x2)), with no overflow")
logical_and = of_two("logical_and", Tensor.__and__, BOOL, "True where both hold")
logical_or = of_two("logical_or", Tensor.bitwise_or, BOOL, "True where x1 or x2 holds")
logical_xor = of_two("logical_xor", Tensor.__xor__, BOOL, "True where exactly one of x1 and x2 holds")
maximum = of_two("maximum", Tensor.maximum, NUMERIC, "the greater of x1 and x2; NaN if one is NaN")
minimum = of_two("minimum", Tensor.minimum, NUMERIC, "the smaller of x1 and x2; NaN if one is NaN")
multiply = of_two("multiply", Tensor.mul, NUMERIC, "x1 * x2")
nextafter = of_two("nextafter", Tensor.nextafter, FLOAT, "the next float after x1 in the direction of x2")
not_equal = of_two("not_equal", Tensor.ne, ANY, "True where x1 and x2 differ")
pow = of_two("pow", Tensor.pow, NUMERIC, "x1 ** x2")
remainder = of_two("remainder", Tensor.remainder, NUMERIC, "the remainder of floor_divide, with the sign of x2")
subtract = of_two("subtract", Tensor.sub, NUMERIC, "x1 - x2")


# ---- the others ----
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    """Returns x clamped to [min, max], broadcast, in the dtype of x; None stands for no bound, NaN wins.

    >>> clip(Array([1, 5, 9]), 2, max=6)
    Array([2, 5, 6])
    """
    bounded = array("clip", x, NUMERIC)
    for bound, held in ((min, maximum), (max, minimum)):
        if bound is not None:
            bounded = held(bounded, bound)
    return bounded.cast(x.dtype)


def imag(x: Tensor, /) -> Array:
    """Returns 0, the imaginary part of real numbers.

    >>> imag(Array([1.0]))
    Array([0.])
    """
    return Array.zeros_like(array("imag", x, NUMERIC))


def real(x: Tensor, /) -> Array:
    """Returns x, which is its own real part.

    >>> real(Array([1.0]))
    Array([1.])
    """
    return array("real", x, NUMERIC)


def sign(x: Tensor, /) -> Array:
    """Returns -1, 0 or 1; NaN of NaN.

    >>> sign(Array([-3.0, 0.0]))
    Array([-1.,  0.])
    """
    given = array("sign", x, NUMERIC)
    return given.where(given.ne(given), given.sign())  # PyTorch has 0 for NaN
