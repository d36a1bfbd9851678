"""Inverse trigonometric and hyperbolic functions, made of quotients, roots, logarithms and one short series.

In:    Ops of one shape and a dtype of 32 or 64 bits
Out:   Ops
Next:  picograd/tensor/elements/gamma.py

Series are Taylor's, not minimax polynomials: their derivatives, which the chain rules take, are as exact as they are.
What holds for one sign is used for both by turning the sign over and back, not by |x|, whose derivative at 0 is 0.
Where a function is infinitely steep it is the leading term of its series, whose derivatives of all orders are the limits:
those of a composition would be infinity - infinity or 0 infinity.
"""

from __future__ import annotations

import math

from picograd.dtype import DType, float64, int8, int16, int32, int64
from picograd.ir.build import both, compare, either, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.elements.pointwise import absolute, is_infinite, log1p, polynomial

BITS: dict[int, DType] = {1: int8, 2: int16, 4: int32, 8: int64}  # the integer that holds the bits of a float
MOST_OF_SQUARE = {True: 1e150, False: 1e18}  # below this the square of a float64, or of a float32, is finite


def is_negative(x: Op) -> Op:
    """True where the sign bit is set, of -0.0 and of a negative NaN too; of any number."""
    if x.dtype.is_float:
        x = Op(OpCode.BITCAST, BITS[x.dtype.itemsize], (x,))
    return compare(OpCode.CMPLT, x, 0)


def negated(condition: Op, x: Op) -> Op:
    """-x where the condition holds, else x."""
    return where(condition, -x, x)


# ---- angles ----
def _angle(t: Op) -> Op:
    """atan(t) for 0 <= t <= 1: above tan(pi / 12) the angle pi / 6 is taken off, and a series gives the rest."""
    far = compare(OpCode.CMPLT, math.tan(math.pi / 12), t)
    rest = where(far, (t * math.sqrt(3) - 1.0) / (t + math.sqrt(3)), t)
    square = rest * rest  # < 0.0718, so that seven terms leave 2^-30, fourteen 2^-58
    terms = 14 if t.dtype is float64 else 7
    angle = rest * polynomial(square, [(-1) ** k / (2 * k + 1) for k in range(terms)])
    return where(far, angle + math.pi / 6, angle)


def atan(x: Op) -> Op:
    """The angle with the tangent x: pi / 2 - atan(1 / x) where x > 1."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far = compare(OpCode.CMPLT, 1.0, magnitude)
    angle = _angle(where(far, unary(OpCode.RECIPROCAL, where(far, magnitude, 1.0)), magnitude))
    return negated(below, where(far, -angle + math.pi / 2, angle))


def atan2(y: Op, x: Op) -> Op:
    """The angle of the point (x, y), in -pi..pi; signs of zeros count. The gradient at (0, 0) is 0, as in PyTorch."""
    low, left = is_negative(y), is_negative(x)
    a, b = negated(low, y), negated(left, x)
    steep = compare(OpCode.CMPLT, b, a)
    num, den = where(steep, b, a), where(steep, a, b)
    diagonal = both(is_infinite(num), is_infinite(den))
    nothing = both(compare(OpCode.CMPEQ, num, 0.0), compare(OpCode.CMPEQ, den, 0.0))
    ratio = where(nothing, 0.0, where(diagonal, 1.0, num) / where(diagonal, 1.0, where(nothing, 1.0, den)))
    angle = _angle(ratio)
    angle = where(steep, -angle + math.pi / 2, angle)
    return negated(low, where(left, -angle + math.pi, angle))


def _arc(z: Op) -> Op:
    """asin(z) for |z| <= 1/2: the angle with the tangent z / sqrt(1 - z^2)."""
    return atan(z / unary(OpCode.SQRT, -(z * z) + 1.0))


def _arc_or_half(magnitude: Op) -> tuple[Op, Op]:
    """Returns where |x| > 1/2, and acos(|x|) / 2 = asin(sqrt((1 - |x|) / 2)) there, asin(|x|) elsewhere."""
    far, end = compare(OpCode.CMPLT, 0.5, magnitude), compare(OpCode.CMPEQ, magnitude, 1.0)
    half = unary(OpCode.SQRT, where(far, -magnitude + 1.0, 0.5) * 0.5)
    return far, where(end, half, _arc(where(end, 0.0, where(far, half, magnitude))))


def asin(x: Op) -> Op:
    """The angle with the sine x; near the ends pi / 2 - 2 asin(sqrt((1 - |x|) / 2)), where x itself is steep."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far, angle = _arc_or_half(magnitude)
    return negated(below, where(far, angle * -2.0 + math.pi / 2, angle))


def acos(x: Op) -> Op:
    """The angle with the cosine x; near the ends 2 asin(sqrt((1 - |x|) / 2)), or pi less that."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far, angle = _arc_or_half(magnitude)
    return where(far, where(below, angle * -2.0 + math.pi, angle * 2.0), -negated(below, angle) + math.pi / 2)


# ---- hyperbolic ----
def asinh(x: Op) -> Op:
    """log(x + sqrt(x^2 + 1)), exact near 0: log1p(x + x^2 / (1 + sqrt(x^2 + 1))); log(2 x) where x^2 overflows."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far, m = _held(magnitude, MOST_OF_SQUARE[x.dtype is float64])
    root = unary(OpCode.SQRT, m * m + 1.0)
    near = log1p(m * (m / (root + 1.0) + 1.0))
    return negated(below, where(far, _log_of_double(magnitude, far), near))


def acosh(x: Op) -> Op:
    """log(x + sqrt(x^2 - 1)), exact near 1: log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1; NaN below 1."""
    far, t = _held(x - 1.0, MOST_OF_SQUARE[x.dtype is float64])
    end, root = compare(OpCode.CMPEQ, t, 0.0), unary(OpCode.SQRT, t)
    inner = where(end, 1.0, t)
    near = log1p(inner + where(end, 1.0, root) * unary(OpCode.SQRT, inner + 2.0))
    return where(far, _log_of_double(x, far), where(end, root * math.sqrt(2), near))


def atanh(x: Op) -> Op:
    """(log(1 + x) - log(1 - x)) / 2; NaN beyond 1."""
    return (log1p(x) - log1p(-x)) * 0.5


def _held(x: Op, bound: float) -> tuple[Op, Op]:
    """Returns where x is beyond the bound, and x with 1 in its place there."""
    far = compare(OpCode.CMPLT, bound, x)
    return far, where(far, 1.0, x)


def _log_of_double(x: Op, far: Op) -> Op:
    return unary(OpCode.LOG, where(far, x, 1.0)) + math.log(2)


# ---- two legs ----
def hypot(a: Op, b: Op) -> Op:
    """sqrt(a^2 + b^2) without overflow: m sqrt(1 + (n / m)^2) with m the longer one; inf and NaN give inf.

    The gradient at (0, 0) is 0, as that of a norm.
    """
    infinite = either(is_infinite(a), is_infinite(b))
    x, y = negated(is_negative(a), a), negated(is_negative(b), b)
    steep = compare(OpCode.CMPLT, x, y)
    longer, shorter = where(steep, y, x), where(steep, x, y)
    nothing = both(compare(OpCode.CMPEQ, a, 0.0), compare(OpCode.CMPEQ, b, 0.0))
    held = where(nothing, 1.0, longer)
    ratio = where(infinite, 0.0, shorter / held)
    length = where(nothing, 0.0, held * unary(OpCode.SQRT, ratio * ratio + 1.0))
    return where(infinite, absolute(where(is_infinite(a), a, b)), length)
