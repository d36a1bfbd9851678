"""Formulas of elementwise functions from few opcodes, accurate where it matters, with gradients free of NaN.

If a formula holds on one side only, its input is replaced on the other side, so that the unused branch never multiplies a
zero gradient by infinity.

Series are Taylor's, not minimax polynomials: their derivatives, taken by the chain rules, are as accurate as they are. A
formula for one sign serves both by negating x and the result, not by |x|, whose derivative at 0 is 0. Where a function is
infinitely steep, the formula is the leading term of its series, whose derivatives of all orders are the limits: those of a
composition would be infinity - infinity or 0 infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from picograd.dtype import Scalar, float32, float64, int32, int64
from picograd.ir.build import (
    and_,
    bitcast,
    both,
    cast,
    differs,
    either,
    equal,
    floordiv,
    less,
    less_equal,
    maximum,
    minimum,
    mod,
    shr,
    unary,
    where,
    xor,
)
from picograd.ir.host import host_call
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.formulas import formula

# ---- exponentials, activations, bounds ----
Function = Callable[..., Op]


@formula
def absolute(x: Op) -> Op:
    """|x| of any number; the derivative at 0 is 0."""
    if x.dtype.kind in "bu":
        return x
    greater = maximum(x, -x)
    return greater + 0.0 if x.dtype.is_float else greater  # the maximum of 0.0 and -0.0 may be either; the sum is 0.0


@formula
def sign(x: Op) -> Op:
    """-1, 0 or 1 for any number. For floats it is a flat function of x, not a constant: its gradient is 0, not None."""
    minus_one, zero, one = (x.filled(value) for value in (-1, 0, 1))
    positive = where(less(zero, x), one, flat_zero(x) if x.dtype.is_float else zero)
    return positive if x.dtype.kind in "bu" else where(less(x, zero), minus_one, positive)


def flat_zero(x: Op) -> Op:
    """0.0 as a flat function of floats: its gradient is 0, not none."""
    return where(equal(x, 0.0), unary(OpCode.FLOOR, x) + 0.0, 0.0)


# ---- rounding ----
def floor(x: Op) -> Op:
    """Largest integer <= x; integers are unchanged."""
    return unary(OpCode.FLOOR, x) if x.dtype.is_float else x


def ceil(x: Op) -> Op:
    """Smallest integer >= x; integers are unchanged."""
    return -unary(OpCode.FLOOR, -x) if x.dtype.is_float else x


@formula
def trunc(x: Op) -> Op:
    """x rounded toward zero; integers are unchanged."""
    return where(less(x, 0), ceil(x), floor(x)) if x.dtype.is_float else x


@formula
def round_even(x: Op) -> Op:
    """Nearest integer, halves to the even one; integers are unchanged."""
    if not x.dtype.is_float:
        return x
    if x.dtype.is_narrow:  # each of these steps would be rounded
        return cast(round_even(cast(x, float32)), x.dtype)
    low = floor(x)
    rest = x - low
    odd = differs(floor(low * 0.5) * 2.0, low)
    up = either(less(0.5, rest), both(equal(rest, 0.5), odd))
    return where(up, ceil(x), low)  # not low + 1, which makes 0.0 of -0.5


@formula
def floor_divide(a: Op, b: Op) -> Op:
    """a / b rounded down, from the exact remainder as Python and PyTorch do."""
    quotient = (a - mod(a, b)) / b
    nearest = round_even(quotient)
    signed = where(equal(nearest, 0.0), a / b * 0.0, nearest)  # a zero gets the sign of a / b
    result = where(equal(b, 0.0), a / b, where(is_infinite(quotient), quotient, signed))
    apart = less(where(is_infinite(b), a * sign(b), a), 0.0)  # for a number and infinity: -1 or 0
    return where(both(is_infinite(b), is_finite(a)), where(apart, a.filled(-1.0), a / b), result)


@formula
def trunc_divide(a: Op, b: Op) -> Op:
    """a / b rounded toward zero; exact for integers, without floats in between."""
    if a.dtype.is_float:
        return trunc(a / b)
    low = floordiv(a, b)
    if a.dtype.kind == "u":
        return low
    rest = differs(mod(a, b), 0)
    below = less(xor(a, b), 0)  # the signs differ, and floor is one too small
    return low + cast(both(rest, below), a.dtype)


# ---- tests ----
def is_nan(x: Op) -> Op:
    """True for NaN."""
    return differs(x, x)


def nan_unless(condition: Op, x: Op) -> Op:
    """x if the condition is true, else NaN, with derivative NaN."""
    return x * where(condition, x.filled(1.0), math.nan)


def is_infinite(x: Op) -> Op:
    """True for plus and minus infinity."""
    return equal(absolute(x), math.inf)


def is_finite(x: Op) -> Op:
    """True for neither NaN nor infinity."""
    return less(absolute(x), math.inf)


def is_extreme(x: Op, extreme: Op) -> Op:
    """True where x is the extreme of its elements, for any number; NaN counts as the extreme."""
    found = equal(x, extreme)
    return either(found, is_nan(x)) if x.dtype.is_float else found


# ---- powers and logarithms ----
def polynomial(x: Op, coefficients: Sequence[float]) -> Op:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    total = x.filled(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def constant_power(x: Op, exponent: Scalar) -> Op | None:
    """x ** exponent for exponents that are products, roots or quotients; None for others."""
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if not x.dtype.is_float:
        return None
    if exponent == 0.5:
        return unary(OpCode.SQRT, x)
    if exponent == -0.5:
        return rsqrt(x)
    if exponent == -1:
        return unary(OpCode.RECIPROCAL, x)
    if exponent == -2:  # not 1 / (x * x): its derivative has the factor 0 infinity at 0 and at infinity
        return unary(OpCode.RECIPROCAL, x) * unary(OpCode.RECIPROCAL, x)
    return None


@formula
def rsqrt(x: Op) -> Op:
    """1 / sqrt(x)."""
    return unary(OpCode.RECIPROCAL, unary(OpCode.SQRT, x))


@formula
def flat_sqrt(x: Op) -> Op:
    """sqrt(x) with derivative 0 at 0, for norms: 0 * infinity would make the gradient of the square NaN."""
    zero = equal(x, 0.0)
    return where(zero, 0.0, unary(OpCode.SQRT, where(zero, 1.0, x)))


def log10(x: Op) -> Op:
    """Logarithm to base 10."""
    return unary(OpCode.LOG2, x) * math.log10(2)


@formula
def log1p(x: Op) -> Op:
    """log(1 + x), accurate near 0: log1p(x) = 2 artanh(s) with s = x / (2 + x), a series in s^2."""
    near = less(absolute(x), 0.25)
    small = where(near, x, 0.0)
    s = small / (small + 2.0)
    square = s * s  # s^2 < 0.0205, so six terms leave 2^-30, twelve 2^-64
    terms = 12 if x.dtype is float64 else 6
    series = polynomial(square, [1 / (2 * k + 1) for k in range(terms + 1)])
    held = where(near, 1.0, x)
    total = held + 1.0
    divisor = where(equal(total, 0.0), 1.0, total)
    lost = detached((held - (total - 1.0)) / divisor)  # the rounding error of the sum, as a fraction of it
    lost = where(less(absolute(held), 2.0**52), lost, 0.0)
    return where(near, s * series * 2.0, unary(OpCode.LOG, total) + lost)


@formula
def expm1(x: Op) -> Op:
    """exp(x) - 1, accurate near 0: 2 t / (1 - t) with t = tanh(x / 2)."""
    near = less(absolute(x), 0.5)
    t = unary(OpCode.TANH, where(near, x, 0.0) * 0.5)
    return where(near, t * 2.0 / (-t + 1.0), unary(OpCode.EXP, x) - 1.0)


# ---- trigonometry ----
@formula
def tan(x: Op) -> Op:
    """sin(x) / cos(x)."""
    return unary(OpCode.SIN, x) / unary(OpCode.COS, x)


@formula
def sinh(x: Op) -> Op:
    """(exp(x) - exp(-x)) / 2, accurate near 0."""
    near = less(absolute(x), 0.5)
    e = expm1(where(near, x, 0.0))
    far, large = _half_exp(x)
    held = where(far, 0.0, x)
    middle = (unary(OpCode.EXP, held) - unary(OpCode.EXP, -held)) * 0.5
    return where(near, (e + e / (e + 1.0)) * 0.5, where(far, where(less(x, 0), -large, large), middle))


@formula
def cosh(x: Op) -> Op:
    """(exp(x) + exp(-x)) / 2."""
    far, large = _half_exp(x)
    held = where(far, 0.0, x)
    return where(far, large, (unary(OpCode.EXP, held) + unary(OpCode.EXP, -held)) * 0.5)


def _half_exp(x: Op) -> tuple[Op, Op]:
    """Returns whether exp(|x|) may overflow, and exp(|x|) / 2 if so."""
    magnitude = absolute(x)
    far = less(_exp_limit(x) - 1, magnitude)
    root = unary(OpCode.EXP, where(far, magnitude, 0.0) * 0.5)
    return far, root * 0.5 * root


@formula
def sinc(x: Op) -> Op:
    """sin(pi x) / (pi x); near 0 its series in x^2, since derivatives of the quotient lose digits there."""
    near = less(absolute(x), 0.15)
    small = where(near, x, 0.0) * math.pi
    terms = 9 if x.dtype is float64 else 5
    series = polynomial(small * small, [(-1) ** k / math.factorial(2 * k + 1) for k in range(terms)])
    held = where(near, 1.0, x)
    whole = round_even(held)
    sine = unary(OpCode.SIN, (held - whole) * math.pi)  # of the fraction of a turn: pi x has too few digits
    odd = differs(floor(whole * 0.5) * 2.0, whole)
    return where(near, series, where(odd, -sine, sine) / (held * math.pi))


@formula
def logit(x: Op, eps: float | None) -> Op:
    """log(x / (1 - x)) of x clamped to [eps, 1 - eps]; near 1/2 it is 2 artanh(2 x - 1), which is accurate there."""
    if eps is not None:
        x = clamp(x, eps, 1.0 - eps)
    else:
        x = nan_unless(both(less_equal(0.0, x), less_equal(x, 1.0)), x)
    centered = x * 2.0 - 1.0
    near = less(absolute(centered), 0.5)
    z, held = where(near, centered, 0.0), where(near, 0.5, x)
    terms = 28 if x.dtype is float64 else 14  # z^2 < 1/4, so two orders of derivatives are accurate
    series = polynomial(z * z, [1 / (2 * k + 1) for k in range(terms)])
    return where(near, z * series * 2.0, unary(OpCode.LOG, held) - unary(OpCode.LOG, -held + 1.0))


def nan_to_num(x: Op, nan: float, posinf: float, neginf: float) -> Op:
    """x with NaN and infinities replaced by numbers."""
    x = where(is_nan(x), nan, x)
    x = where(equal(x, math.inf), posinf, x)
    return where(equal(x, -math.inf), neginf, x)


# ---- activations ----
@formula
def relu(x: Op) -> Op:
    """0 if x <= 0, else x, for any number; NaN for NaN."""
    return where(less_equal(x, 0), 0, x)


@formula
def sigmoid(x: Op) -> Op:
    """1 / (1 + exp(-x))."""
    return _logistic(_not_overflowing(x))


@formula
def silu(x: Op) -> Op:
    """x * sigmoid(x); 0 for -inf and numbers near it."""
    held = _not_overflowing(x)
    return held * _logistic(held)


@formula
def mish(x: Op) -> Op:
    """x * tanh(softplus(x)); 0 for -inf and numbers near it."""
    held = _not_overflowing(x)
    return held * unary(OpCode.TANH, softplus(held, 1.0, 20.0))


def _not_overflowing(x: Op) -> Op:
    """max(x, the least number whose exp(-x) is finite), so that the gradient below is 0, not NaN."""
    least = -_exp_limit(x)
    return where(less(x, least), least, x)


def _exp_limit(x: Op) -> int:
    """Largest integer whose exponential is finite."""
    return math.floor(math.log(x.dtype.largest))


def _logistic(x: Op) -> Op:
    return unary(OpCode.RECIPROCAL, unary(OpCode.EXP, -x) + 1.0)


@formula
def softplus(x: Op, beta: float, threshold: float) -> Op:
    """log(1 + exp(beta x)) / beta; x itself if beta x > threshold."""
    scaled = x * beta
    large = less(threshold, scaled)
    return where(large, x, log1p(unary(OpCode.EXP, where(large, 0.0, scaled))) / beta)


@formula
def gelu(x: Op, approximate: bool) -> Op:
    """x times the normal distribution function of x (Hendrycks, Gimpel 2016, arXiv:1606.08415), or its tanh form."""
    if approximate:
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (unary(OpCode.TANH, inner) + 1.0)
    return x * 0.5 * (unary(OpCode.ERF, x * math.sqrt(0.5)) + 1.0)


def clamp(x: Op, low: Any, high: Any) -> Op:
    """x clamped to [low, high (scalars or None)]; the gradient at a bound is 1, as in PyTorch."""
    if low is not None:
        x = where(less(x, low), low, x)
    if high is not None:
        x = where(less(high, x), high, x)
    return x


def clamp_to(x: Op, limit: Op, low: bool) -> Op:
    """The maximum or minimum of x and a limit; NaN if the limit is NaN."""
    past = less(x, limit) if low else less(limit, x)
    return where(either(past, is_nan(limit)) if x.dtype.is_float else past, limit, x)


# ---- inverse functions ----
SQUARED_MAX = {True: 1e150, False: 1e18}  # below this the square of a float64, or of a float32, is finite


def is_negative(x: Op) -> Op:
    """True if the sign bit is set, also of -0.0 and negative NaN, for any number."""
    if x.dtype.is_float:
        x = bitcast(x, x.dtype.signed)
    return less(x, 0)


def negated(condition: Op, x: Op) -> Op:
    """-x if the condition is true, else x."""
    return where(condition, -x, x)


# ---- angles ----
def _angle(t: Op) -> Op:
    """atan(t) for 0 <= t <= 1: above tan(pi / 12) by subtracting the angle pi / 6; the rest by a series."""
    far = less(math.tan(math.pi / 12), t)
    rest = where(far, (t * math.sqrt(3) - 1.0) / (t + math.sqrt(3)), t)
    square = rest * rest  # < 0.0718, so seven terms leave 2^-30, fourteen 2^-58
    terms = 14 if t.dtype is float64 else 7
    angle = rest * polynomial(square, [(-1) ** k / (2 * k + 1) for k in range(terms)])
    return where(far, angle + math.pi / 6, angle)


@formula
def atan(x: Op) -> Op:
    """The angle whose tangent is x; pi / 2 - atan(1 / x) for x > 1."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far = less(1.0, magnitude)
    angle = _angle(where(far, unary(OpCode.RECIPROCAL, where(far, magnitude, 1.0)), magnitude))
    return negated(below, where(far, -angle + math.pi / 2, angle))


@formula
def atan2(y: Op, x: Op) -> Op:
    """The angle of the point (x, y), in [-pi, pi]; signs of zeros count. The gradient at (0, 0) is 0, as in PyTorch."""
    low, left = is_negative(y), is_negative(x)
    a, b = negated(low, y), negated(left, x)
    steep = less(b, a)
    num, den = where(steep, b, a), where(steep, a, b)
    diagonal = both(is_infinite(num), is_infinite(den))
    nothing = both(equal(num, 0.0), equal(den, 0.0))
    ratio = where(nothing, 0.0, where(diagonal, 1.0, num) / where(diagonal, 1.0, where(nothing, 1.0, den)))
    angle = _angle(ratio)
    angle = where(steep, -angle + math.pi / 2, angle)
    return negated(low, where(left, -angle + math.pi, angle))


def _arc(z: Op) -> Op:
    """asin(z) for |z| <= 1/2: the angle whose tangent is z / sqrt(1 - z^2)."""
    return atan(z / unary(OpCode.SQRT, -(z * z) + 1.0))


def _arc_or_half(magnitude: Op) -> tuple[Op, Op]:
    """Returns whether |x| > 1/2, and acos(|x|) / 2 = asin(sqrt((1 - |x|) / 2)) if so, else asin(|x|)."""
    far, end = less(0.5, magnitude), equal(magnitude, 1.0)
    half = unary(OpCode.SQRT, where(far, -magnitude + 1.0, 0.5) * 0.5)
    return far, where(end, half, _arc(where(end, 0.0, where(far, half, magnitude))))


@formula
def asin(x: Op) -> Op:
    """The angle whose sine is x; pi / 2 - 2 asin(sqrt((1 - |x|) / 2)) near the ends, where asin is steep."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far, angle = _arc_or_half(magnitude)
    return negated(below, where(far, angle * -2.0 + math.pi / 2, angle))


@formula
def acos(x: Op) -> Op:
    """The angle whose cosine is x; near the ends 2 asin(sqrt((1 - |x|) / 2)), or pi minus that."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far, angle = _arc_or_half(magnitude)
    return where(far, where(below, angle * -2.0 + math.pi, angle * 2.0), -negated(below, angle) + math.pi / 2)


# ---- hyperbolic ----
@formula
def asinh(x: Op) -> Op:
    """log(x + sqrt(x^2 + 1)), near 0 log1p(x + x^2 / (1 + sqrt(x^2 + 1))); log(2 x) if x^2 overflows."""
    below = is_negative(x)
    magnitude = negated(below, x)
    far, m = _within(magnitude, SQUARED_MAX[x.dtype is float64])
    root = unary(OpCode.SQRT, m * m + 1.0)
    near = log1p(m * (m / (root + 1.0) + 1.0))
    return negated(below, where(far, _log_of_double(magnitude, far), near))


@formula
def acosh(x: Op) -> Op:
    """log(x + sqrt(x^2 - 1)), near 1 log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1; NaN below 1."""
    far, t = _within(x - 1.0, SQUARED_MAX[x.dtype is float64])
    end, root = equal(t, 0.0), unary(OpCode.SQRT, t)
    inner = where(end, 1.0, t)
    near = log1p(inner + where(end, 1.0, root) * unary(OpCode.SQRT, inner + 2.0))
    return where(far, _log_of_double(x, far), where(end, root * math.sqrt(2), near))


@formula
def atanh(x: Op) -> Op:
    """(log(1 + x) - log(1 - x)) / 2; NaN beyond 1."""
    return (log1p(x) - log1p(-x)) * 0.5


def _within(x: Op, bound: float) -> tuple[Op, Op]:
    """Returns whether |x| is beyond the bound, and x with 1 in these places."""
    far = less(bound, x)
    return far, where(far, 1.0, x)


def _log_of_double(x: Op, far: Op) -> Op:
    return unary(OpCode.LOG, where(far, x, 1.0)) + math.log(2)


# ---- two legs ----
@formula
def hypot(a: Op, b: Op) -> Op:
    """sqrt(a^2 + b^2) without overflow: m sqrt(1 + (n / m)^2), |m| >= |n|; infinite if one is, even beside NaN.

    The gradient at (0, 0) is 0, as for norms.
    """
    infinite = either(is_infinite(a), is_infinite(b))
    x, y = negated(is_negative(a), a), negated(is_negative(b), b)
    steep = less(x, y)
    longer, shorter = where(steep, y, x), where(steep, x, y)
    nothing = both(equal(a, 0.0), equal(b, 0.0))
    held = where(nothing, 1.0, longer)
    ratio = where(infinite, 0.0, shorter / held)
    length = where(nothing, 0.0, held * unary(OpCode.SQRT, ratio * ratio + 1.0))
    return where(infinite, absolute(where(is_infinite(a), a, b)), length)


# ---- remainders and divisors ----
def fmod(a: Op, b: Op) -> Op:
    """Remainder of division rounded toward zero; it has the sign of a."""
    if not a.dtype.is_float:
        return a - trunc_divide(a, b) * b
    below = is_negative(a)
    return negated(below, mod(negated(below, a), negated(is_negative(b), b)))


def gcd(a: Op, b: Op) -> Op:
    """Greatest common divisor, never negative; computed on the host, since Euclid's loop has no fixed length."""
    return host_call("gcd", a.dtype, (a, b))


def lcm(a: Op, b: Op) -> Op:
    """Least common multiple of integers, 0 if one of them is 0; overflow wraps around, as for products."""
    divisor = gcd(a, b)
    return trunc_divide(absolute(a), where(equal(divisor, 0), 1, divisor)) * absolute(b)


# ---- choices ----
def fmax(a: Op, b: Op) -> Op:
    """The larger of both; a number is preferred to NaN. If both are equal, a gets the gradient, as in PyTorch."""
    return where(either(less_equal(b, a), is_nan(b)), a, b) if a.dtype.is_float else maximum(a, b)


def fmin(a: Op, b: Op) -> Op:
    """The smaller of both; a number is preferred to NaN. If both are equal, a gets the gradient, as in PyTorch."""
    return where(either(less_equal(a, b), is_nan(b)), a, b) if a.dtype.is_float else minimum(a, b)


def heaviside(x: Op, values: Op) -> Op:
    """0 if x < 0, 1 if x > 0, `values` if x = 0; 0 for NaN, as in PyTorch."""
    above = less(0, x)
    return where(equal(x, 0), values, where(above, x.filled(1), 0))


@formula
def copysign(a: Op, b: Op) -> Op:
    """|a| with the sign bit of b; the derivatives at a = 0 and with respect to b are 0, as in PyTorch."""
    low = is_negative(b)
    zero = where(low, a.filled(-0.0), flat_zero(b))
    sign_differs = differs(is_negative(a), low)
    return where(equal(a, 0.0), zero, negated(sign_differs, a))


# ---- sums of exponentials ----
@formula
def logaddexp(a: Op, b: Op) -> Op:
    """log(e^a + e^b), the larger plus log1p(e^(smaller - larger)); equal infinities share the gradient."""
    return _shared(a, b, joined_logs(a, b))


def joined_logs(a: Op, b: Op) -> Op:
    """log(e^a + e^b); for equal infinities a gets the whole gradient."""
    high, rest = _apart(a, b)
    return high + log1p(unary(OpCode.EXP, rest))


@formula
def logaddexp2(a: Op, b: Op) -> Op:
    """log2(2^a + 2^b) without overflow; equal infinities share the gradient."""
    high, rest = _apart(a, b)
    return _shared(a, b, high + log1p(unary(OpCode.EXP2, rest)) / math.log(2))


def _apart(a: Op, b: Op) -> tuple[Op, Op]:
    """Returns the larger, and the smaller minus the larger; 0 for equal infinities."""
    steep = less(a, b)
    high, low = where(steep, b, a), where(steep, a, b)
    same = _same_infinity(a, b)
    return high, where(same, 0.0, where(same, 0.0, low) - where(same, 0.0, high))


def _shared(a: Op, b: Op, total: Op) -> Op:
    return where(_same_infinity(a, b), a * 0.5 + b * 0.5, total)


def _same_infinity(a: Op, b: Op) -> Op:
    return both(equal(a, b), is_infinite(a))


# ---- products with logarithms ----
@formula
def xlogy(x: Op, y: Op) -> Op:
    """x log(y); 0 if x = 0, unless y is NaN."""
    return _steep(x, y, x * unary(OpCode.LOG, where(_no_logarithm(x, y), 1.0, y)))


@formula
def xlog1py(x: Op, y: Op) -> Op:
    """x log(1 + y); 0 if x = 0, unless y is NaN."""
    return _steep(x, y, x * log1p(where(_no_logarithm(x, y + 1.0), 0.0, y)))


def _no_logarithm(x: Op, y: Op) -> Op:
    outside = either(less_equal(y, 0.0), is_infinite(y))
    return both(equal(x, 0.0), outside)


def _steep(x: Op, y: Op, product: Op) -> Op:
    """The product; at y = infinity and x = 0 a root of x instead, whose derivative is infinite, like the logarithm."""
    steep = both(equal(x, 0.0), equal(y, math.inf))
    return where(steep, unary(OpCode.SQRT, where(steep, x, 1.0) + 0.0), product)


# ---- the parts of a float ----
def nextafter(a: Op, b: Op) -> Op:
    """The next float after a towards b; derivatives 1 for a, 0 for b: a plus a constant step, which is exact."""
    after = detached(_next(a, b))
    moves = both(both(differs(a, b), is_finite(a)), differs(after, 0.0))
    return where(moves, a + (after - detached(where(moves, a, 0.0)) + flat_zero(b)), after)


def _next(a: Op, b: Op) -> Op:
    """The next float after a towards b: its bits, as an integer, plus or minus 1."""
    bits = a.dtype.signed
    number = bitcast(a, bits)
    outward = equal(less(a, b), less(0.0, a))
    moved = bitcast(number + where(outward, filled(1, bits, a.shape), filled(-1, bits, a.shape)), a.dtype)
    least = bitcast(filled(1, bits, a.shape), a.dtype)
    result = where(equal(a, 0.0), negated(is_negative(b), least), moved)
    result = where(equal(a, b), b, result)
    return where(either(is_nan(a), is_nan(b)), a.filled(math.nan), result)


def frexp(x: Op) -> tuple[Op, Op]:
    """A mantissa, 1/2 <= |m| < 1, and an int32 exponent with x = m 2^e; the exponent of 0, inf and NaN is 0."""
    stored, bias = x.dtype.mantissa, x.dtype.exponent_bias
    width = x.dtype.bits - x.dtype.precision
    normal = less_equal(2.0 ** (1 - bias), absolute(x))
    raised = where(normal, x, x * 2.0 ** (stored + 2))  # subnormal numbers are scaled up
    biased = and_(shr(bitcast(raised, x.dtype.signed), stored), (1 << width) - 1)
    power = cast(biased, int32) - (bias - 1)
    odd = either(equal(x, 0.0), either(is_infinite(x), is_nan(x)))
    power = where(odd, 0, power)
    mantissa = where(odd, x, _scaled(raised, power))
    return mantissa, where(normal, power, where(odd, 0, power - (stored + 2)))


def _scaled(x: Op, power: Op) -> Op:
    """x 2^-power in two steps, since float32 holds neither 2^-128 nor 2^128."""
    half = shr(power, 1)
    for part in (half, power - half):
        x = x * unary(OpCode.EXP2, cast(-part, x.dtype))
    return x


# ---- nearness ----
@formula
def is_close(a: Op, b: Op, rtol: float, atol: float, equal_nan: bool) -> Op:
    """|a - b| <= atol + rtol |b|; equal infinities are close, NaN and NaN only with equal_nan."""
    near = equal(a, b)
    if a.dtype.kind == "b" or (rtol == 0 and atol == 0):
        close = near
    elif a.dtype.is_float:
        allowed = absolute(b * rtol) + atol
        distance = absolute(a - b)
        finite = less(distance, math.inf)
        close = either(near, both(finite, less_equal(distance, allowed)))
    else:
        wide = [cast(x, int64) for x in (a, b)]
        bound = absolute(cast(wide[1], float64) * rtol) + atol
        close = either(near, less_equal(cast(absolute(wide[0] - wide[1]), float64), bound))
    return either(close, both(is_nan(a), is_nan(b))) if equal_nan and a.dtype.is_float else close
