"""Elementwise functions of two arrays, or of an array and Python numbers.

In:    arrays, and Python numbers beside an array
Out:   Arrays of the broadcast shape
Next:  picograd/array_api/statistical.py
"""

from __future__ import annotations

from picograd.array_api.array import BITS, BOOL, FLOAT, INTEGER, NUMERIC, Array, array, pair
from picograd.tensor.tensor import Tensor

Operand = Tensor | bool | int | float


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
