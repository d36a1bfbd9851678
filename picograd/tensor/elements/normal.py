"""The error function's complement and inverse, and the normal distribution made of them.

In:    float64 Ops of one shape
Out:   float64 Ops
Next:  picograd/tensor/elements/bessel.py

In float64 also for float32 results: 1 - erf(x) then has digits enough where erf is all the machine has.
"""

from __future__ import annotations

import math

from picograd.ir.build import compare, either, minimum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.elements.inverses import is_negative, negated
from picograd.tensor.elements.pointwise import log1p

# Chebyshev coefficients of (1 + 2 x) e^(x^2) erfc(x) in t = (x - 3.75) / (x + 3.75), x >= 0, by our own fit with 40
# digits; the form is that of Shepherd and Laframboise 1981, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x".
SCALED = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189, -0.026658668435305753,
    0.009074997670705265, -0.002413163540417608, 0.0004907758365258086, -6.916973302501207e-05, 4.13902798607301e-06,
    7.74038306619849e-07, -2.1886401049234397e-07, 1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13, 3.2525481481487395e-14,
    3.3478119482868056e-14, -1.8645628804193134e-15, -1.2507950530688652e-15, 7.418235256624011e-17, 5.0681489047960876e-17,
)  # fmt: skip
SHAPE = 0.147  # of Winitzki's formula, right to 2e-3 (2008, "A handy approximation for the error function and its inverse")


def chebyshev(t: Op, coefficients: tuple[float, ...]) -> Op:
    """Returns c0 + c1 T1(t) + c2 T2(t) + ... by Clenshaw's recurrence."""
    before, last = t.filled(0.0), t.filled(coefficients[-1])
    double = t * 2.0
    for coefficient in reversed(coefficients[1:-1]):
        before, last = last, double * last - before + coefficient
    return t * last - before + coefficients[0]


def _scaled_right(x: Op) -> Op:
    """e^(x^2) erfc(x) for x >= 0."""
    held = minimum(x, 1e9)
    return chebyshev((held - 3.75) / (held + 3.75), SCALED) / (x * 2.0 + 1.0)


def _bell(x: Op) -> Op:
    """e^(-x^2), with the rounding error of the square made up for."""
    square = x * x
    rest = detached(Op(OpCode.FMA, x.dtype, (x, x, -square)))
    held = compare(OpCode.CMPLT, square, 750.0)  # beyond, the result is 0 and the rest may be NaN
    return unary(OpCode.EXP, -square) * (where(held, -rest, 0.0) + 1.0)


def erfcx(x: Op) -> Op:
    """e^(x^2) erfc(x); of a negative number 2 e^(x^2) - erfcx(-x)."""
    low = is_negative(x)
    right = _scaled_right(negated(low, x))
    square = where(low, x, 0.0)
    rest = detached(Op(OpCode.FMA, x.dtype, (square, square, -(square * square))))
    finite = compare(OpCode.CMPLT, square * square, 750.0)
    return where(low, unary(OpCode.EXP, square * square) * (where(finite, rest, 0.0) + 1.0) * 2.0 - right, right)


def erfc(x: Op) -> Op:
    """1 - erf(x), with all its digits where erf(x) is almost 1."""
    far = compare(OpCode.CMPLT, 0.5, x)
    nothing = compare(OpCode.CMPLE, 30.0, x)
    held = where(nothing, 1.0, where(far, x, 1.0))
    tail = where(nothing, 0.0, _bell(held) * _scaled_right(held))
    return where(far, tail, -unary(OpCode.ERF, where(far, 0.5, x)) + 1.0)


# ---- inverses ----
def _inverse(value: Op, rest: Op) -> Op:
    """Returns y >= 0 with erf(y) = value and erfc(y) = rest, which add up to 1; their difference has all its digits.

    Winitzki's formula is a start; from a point y the inverse is y + u + y u^2 + (1 + 4 y^2) u^3 / 3 + ..., with u the
    distance in value over the slope of erf. The last step gives the derivatives, too: of three orders.
    """
    log = log1p(-(value * value)) * 0.5
    log = where(compare(OpCode.CMPLT, rest, 0.5), unary(OpCode.LOG, rest * (value + 1.0)) * 0.5, log)
    middle = log + 2 / (math.pi * SHAPE)
    start = unary(OpCode.SQRT, unary(OpCode.SQRT, middle * middle - log * (2 / SHAPE)) - middle)
    y = detached(start)
    for _ in range(2):
        y = detached(y)
        near = compare(OpCode.CMPLT, value, 0.5)
        slope = unary(OpCode.EXP, y * y) * (math.sqrt(math.pi) / 2)
        distance = where(near, (value - unary(OpCode.ERF, y)) * slope, erfcx(y) * (math.sqrt(math.pi) / 2) - rest * slope)
        y = y + distance * (y * distance + 1.0 + (y * y * 4.0 + 1.0) * (distance * distance) / 3.0)
    return y


def erfinv(x: Op) -> Op:
    """y with erf(y) = x; infinite at -1 and 1, NaN beyond."""
    low = is_negative(x)
    magnitude = negated(low, x)
    inside = compare(OpCode.CMPLT, magnitude, 1.0)
    held = where(inside, magnitude, 0.25)
    return negated(low, where(inside, _inverse(held, -held + 1.0), _infinite(inside, -magnitude + 1.0)))


def _infinite(inside: Op, distance: Op) -> Op:
    """1 / distance, infinite at the end of a range, and NaN beyond it: with such derivatives of all orders."""
    at_end = compare(OpCode.CMPEQ, distance, 0.0)
    held = where(inside, 1.0, distance + 0.0)  # of -0, too
    return unary(OpCode.RECIPROCAL, held) * where(either(inside, at_end), held.filled(1.0), math.nan)


# ---- the normal distribution ----
def ndtr(x: Op) -> Op:
    """The part of the normal distribution below x: erfc(-x / sqrt(2)) / 2."""
    return erfc(x * -math.sqrt(0.5)) * 0.5


def log_ndtr(x: Op) -> Op:
    """log(ndtr(x)), where ndtr itself is 0 too."""
    low = compare(OpCode.CMPLT, x, -1.0)
    left, right = where(low, x, -1.0), where(low, 0.0, x)
    tail = unary(OpCode.LOG, _scaled_right(left * -math.sqrt(0.5)) * 0.5) - left * left * 0.5
    return where(low, tail, log1p(erfc(right * math.sqrt(0.5)) * -0.5))


def ndtri(p: Op) -> Op:
    """x with ndtr(x) = p; infinite at 0 and 1, NaN beyond."""
    low = compare(OpCode.CMPLT, p, 0.5)
    tail = where(low, p, -p + 1.0) * 2.0
    inside = compare(OpCode.CMPLT, 0.0, tail)
    held = where(inside, tail, 0.75)
    return negated(low, where(inside, _inverse(-held + 1.0, held) * math.sqrt(2), _infinite(inside, tail)))
