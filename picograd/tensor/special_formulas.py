"""Formulas of special functions on Ops: error functions, gamma functions, Bessel functions.

They are computed in float64 also for float32 results: 1 - erf(x) then has enough digits where erf is near 1, as do small
sums of large terms.

Source: NIST Digital Library of Mathematical Functions, 5.5 (recurrence, reflection), 5.11.1 and 5.11.2 (series),
25.11.43 (Hurwitz zeta function).
"""

from __future__ import annotations

import math

from picograd.ir.build import both, either, equal, less, less_equal, minimum, unary, where
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.formulas import formula
from picograd.tensor.pointwise import absolute, is_infinite, is_negative, log1p, negated, polynomial, round_even

# ---- errors and the normal distribution ----
# Chebyshev coefficients of (1 + 2 x) e^(x^2) erfc(x) in t = (x - 3.75) / (x + 3.75), x >= 0, by our own fit with 40
# digits; the form is that of Shepherd and Laframboise 1981, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x".
SCALED = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189, -0.026658668435305753,
    0.009074997670705265, -0.002413163540417608, 0.0004907758365258086, -6.916973302501207e-05, 4.13902798607301e-06,
    7.74038306619849e-07, -2.1886401049234397e-07, 1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13, 3.2525481481487395e-14,
    3.3478119482868056e-14, -1.8645628804193134e-15, -1.2507950530688652e-15, 7.418235256624011e-17, 5.0681489047960876e-17,
)  # fmt: skip
# The solution of erf(y) = v, with w = -log(1 - v^2): y / v in t = w / 3.125 - 1 up to 6.25, right to 9e-9, and y /
# sqrt(w) in t = (1 / sqrt(w) - 0.2187) / 0.1813 from there to 715, right to 7e-8. By our own fit; w is Giles' choice
# (2012, "Approximating the erfinv function").
MIDDLE = (
    1.653654568, 0.750494324619, -0.0589229517118, -0.0226044358005, 0.0178128748375, -0.00413828067475, -0.00129109544727,
    0.001238347874, -0.000226588106495, -0.000130739131806, 5.9342219342e-05,
)  # fmt: skip
TAIL = (
    0.966210202766, -0.036527849506, 0.000747998162205, 0.00400867342366, -0.00113441078293, 0.00032307551728,
    -0.000160560075413, -2.94478539569e-05, 8.70611302127e-06, 7.09888116797e-05, -4.15777137638e-05,
)  # fmt: skip


def chebyshev(t: Op, coefficients: tuple[float, ...]) -> Op:
    """Returns c0 + c1 T1(t) + c2 T2(t) + ..., by the Clenshaw recurrence."""
    before, last = t.filled(0.0), t.filled(coefficients[-1])
    double = t * 2.0
    for coefficient in reversed(coefficients[1:-1]):
        before, last = last, double * last + (before.filled(coefficient) - before)
    return t * last - before + coefficients[0]


def _scaled_right(x: Op) -> Op:
    """e^(x^2) erfc(x) for x >= 0."""
    held = minimum(x, 1e9)
    return chebyshev((held - 3.75) / (held + 3.75), SCALED) / (x * 2.0 + 1.0)


def _bell(x: Op) -> Op:
    """e^(-x^2), corrected for the rounding error of the square."""
    square = x * x
    rest = detached(Op(OpCode.FMA, x.dtype, (x, x, -square)))
    held = less(square, 750.0)  # beyond it the result is 0 and the correction may be NaN
    return unary(OpCode.EXP, -square) * (where(held, -rest, 0.0) + 1.0)


@formula
def erfcx(x: Op) -> Op:
    """e^(x^2) erfc(x); for negative x 2 e^(x^2) - erfcx(-x)."""
    low = is_negative(x)
    right = _scaled_right(negated(low, x))
    square = where(low, x, 0.0)
    rest = detached(Op(OpCode.FMA, x.dtype, (square, square, -(square * square))))
    finite = less(square * square, 750.0)
    return where(low, unary(OpCode.EXP, square * square) * (where(finite, rest, 0.0) + 1.0) * 2.0 - right, right)


@formula
def erfc(x: Op) -> Op:
    """1 - erf(x), accurate where erf(x) is near 1."""
    far = less(0.5, x)
    nothing = less_equal(30.0, x)
    held = where(nothing, 1.0, where(far, x, 1.0))
    tail = where(nothing, 0.0, _bell(held) * _scaled_right(held))
    return where(far, tail, -unary(OpCode.ERF, where(far, 0.5, x)) + 1.0)


# ---- inverses ----
def _inverse(value: Op, rest: Op) -> Op:
    """Returns y >= 0 with erf(y) = value and erfc(y) = rest, where value + rest = 1; the smaller one is accurate.

    A polynomial gives a start y; the inverse is y + u + y u^2 + (1 + 4 y^2) u^3 / 3 + ..., with u the distance in value
    over the slope of erf. One step raises an error of 7e-8 to its fourth power, and gives three orders of derivatives.
    """
    log = -unary(OpCode.LOG, rest * (value + 1.0))
    far = less(6.25, log)
    root = unary(OpCode.SQRT, where(far, log, 6.25))
    tail = root * polynomial((unary(OpCode.RECIPROCAL, root) - 0.2187) * (1 / 0.1813), TAIL)
    middle = value * polynomial(where(far, 6.25, log) * (1 / 3.125) - 1.0, MIDDLE)
    y = detached(where(far, tail, middle))
    near = less(value, 0.5)
    slope = unary(OpCode.EXP, y * y) * (math.sqrt(math.pi) / 2)
    beyond = _scaled_right(y) * (math.sqrt(math.pi) / 2) - rest * slope
    distance = where(near, (value - unary(OpCode.ERF, y)) * slope, beyond)
    return y + distance * (y * distance + 1.0 + (y * y * 4.0 + 1.0) * (distance * distance) / 3.0)


@formula
def erfinv(x: Op) -> Op:
    """The y with erf(y) = x; infinite at -1 and 1, NaN beyond."""
    low = is_negative(x)
    magnitude = negated(low, x)
    inside = less(magnitude, 1.0)
    held = where(inside, magnitude, 0.25)
    return negated(low, where(inside, _inverse(held, -held + 1.0), _infinite(inside, -magnitude + 1.0)))


def _infinite(inside: Op, distance: Op) -> Op:
    """1 / distance: infinite at the end of a range, NaN beyond; so are its derivatives of all orders."""
    at_end = equal(distance, 0.0)
    held = where(inside, 1.0, distance + 0.0)  # also for -0
    return unary(OpCode.RECIPROCAL, held) * where(either(inside, at_end), held.filled(1.0), math.nan)


# ---- the normal distribution ----
@formula
def ndtr(x: Op) -> Op:
    """The normal distribution function: erfc(-x / sqrt(2)) / 2."""
    return erfc(x * -math.sqrt(0.5)) * 0.5


@formula
def log_ndtr(x: Op) -> Op:
    """log(ndtr(x)), also where ndtr(x) underflows to 0."""
    low = less(x, -1.0)
    left, right = where(low, x, -1.0), where(low, 0.0, x)
    tail = unary(OpCode.LOG, _scaled_right(left * -math.sqrt(0.5)) * 0.5) - left * left * 0.5
    return where(low, tail, log1p(erfc(right * math.sqrt(0.5)) * -0.5))


@formula
def ndtri(p: Op) -> Op:
    """The x with ndtr(x) = p; infinite at 0 and 1, NaN beyond."""
    low = less(p, 0.5)
    tail = where(low, p, -p + 1.0) * 2.0
    inside = less(0.0, tail)
    held = where(inside, tail, 0.75)
    return negated(low, where(inside, _inverse(-held + 1.0, held) * math.sqrt(2), _infinite(inside, tail)))


# ---- gamma functions ----
BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
    -236364091 / 2730,
)  # fmt: skip
ARGUMENT_MIN = 8  # arguments are shifted to at least 8; nine terms of the series then leave 2^-54


def _less(a: Op, bound: float) -> Op:
    return less(a, bound)


def _right_half(x: Op) -> tuple[Op, Op, Op, Op]:
    """Returns whether x < 1/2; x or 1 - x, the one of at least 1/2; whether that is below ARGUMENT_MIN; and it shifted."""
    left = _less(x, 0.5)
    y = where(left, -x + 1.0, x)
    small = _less(y, ARGUMENT_MIN)
    return left, y, small, where(small, y + ARGUMENT_MIN, y)


def _inverse_powers(z: Op, coefficients: list[float]) -> Op:
    """Returns c0 + c1 / z^2 + c2 / z^4 + ..."""
    return polynomial(unary(OpCode.RECIPROCAL, z * z), coefficients)


@formula
def lgamma(x: Op) -> Op:
    """log |gamma(x)|: Stirling's series minus log(x (x + 1) ... (x + 7)); reflected below 1/2."""
    infinite, outside = is_infinite(x), negated(is_negative(x), x)
    outside = outside * where(infinite, outside.filled(math.inf), 1.0)
    x = where(infinite, 1.0, x)
    left, y, small, z = _right_half(x)
    series = _inverse_powers(z, [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:9], 1)])
    stirling = (z - 0.5) * (unary(OpCode.LOG, z) - 1.0) + (series / z + (math.log(2 * math.pi) - 1) / 2)
    held = where(small, y, 1.0)
    product = held
    for k in range(1, ARGUMENT_MIN):
        product = product * (held + k)
    value = where(small, stirling - unary(OpCode.LOG, product), stirling)
    nearest, rest = _whole_and_rest(x)
    nothing, near, angle = _apart(rest * math.pi)
    sine = where(nothing, near, unary(OpCode.SIN, angle))
    # At 0 the sign of the zero selects a side; at the other poles |sine| has slope 0, which the log's makes NaN.
    sine = where(equal(nearest, 0.0), negated(is_negative(sine), sine), absolute(sine))
    mirrored = -unary(OpCode.LOG, where(left, sine, 1.0)) + math.log(math.pi) - value
    return where(infinite, outside, where(left, mirrored, value))


def _whole_and_rest(x: Op) -> tuple[Op, Op]:
    """Returns the nearest integer and the rest; for -0.0 the rest is -0.0."""
    nearest = round_even(x)
    return nearest, where(equal(nearest, 0.0), x, x - nearest)


def _apart(angle: Op) -> tuple[Op, Op, Op]:
    """Returns whether an angle is 0, the angle there, and the angle elsewhere. At 0 its sine is the angle itself."""
    nothing = equal(angle, 0.0)
    return nothing, where(nothing, angle, 1.0), where(nothing, 1.0, angle)


def _cotangent(angle: Op) -> Op:
    """cos / sin; 1 / angle at 0."""
    nothing, near, held = _apart(angle)
    return where(nothing, unary(OpCode.RECIPROCAL, near), unary(OpCode.COS, held) / unary(OpCode.SIN, held))


@formula
def digamma(x: Op) -> Op:
    """The derivative of log gamma(x): series minus 1 / x + ... + 1 / (x + 7); below 1/2 psi(1 - x) - pi / tan(pi x)."""
    infinite = equal(x, math.inf)
    left, y, small, z = _right_half(where(infinite, 1.0, x))
    series = _inverse_powers(z, [b / (2 * k) for k, b in enumerate(BERNOULLI[:9], 1)])
    value = unary(OpCode.LOG, z) - (series / z + 0.5) / z
    held = where(small, y, 1.0)
    total = unary(OpCode.RECIPROCAL, held)
    for k in range(1, ARGUMENT_MIN):
        total = total + unary(OpCode.RECIPROCAL, held + k)
    value = where(small, value - total, value)
    rest = where(left, _whole_and_rest(x)[1], 0.25)
    mirrored = value - _cotangent(rest * math.pi) * math.pi
    pole = both(_less(x, 0.0), equal(rest, 0.0))
    # Both sides are infinite and the value is neither's; both have the same infinite slope.
    return where(infinite, math.inf, where(left, mirrored, value) + where(pole, x.filled(math.nan), 0.0))


@formula
def zeta(s: Op, q: Op) -> Op:
    """The sum of (q + k)^-s over k = 0, 1, ..., for s > 1 and q > 0; inf at s = 1 and q = 0, -1, ..., else NaN."""
    last = 10
    power = -s
    first = Op(OpCode.POW, q.dtype, (where(_less(q, 0.0), 1.0, q), power))
    at_pole, endless = equal(q, 0.0), either(is_infinite(q), is_infinite(s))
    whole, negative = equal(q, round_even(q)), _less(q, 0.0)
    q = where(either(either(at_pole, negative), endless), 1.0, q)
    s, given = where(is_infinite(s), 2.0, s), s
    power = -s
    total = Op(OpCode.POW, q.dtype, (q, power))
    for k in range(1, last):
        total = total + Op(OpCode.POW, q.dtype, (q + k, power))
    end = q + last
    tail = Op(OpCode.POW, q.dtype, (end, power))
    total = total + tail * end / (s - 1.0) + tail * 0.5
    inverse = unary(OpCode.RECIPROCAL, end)
    factor = s * tail * inverse
    for j, b in enumerate(BERNOULLI, 1):
        total = total + factor * (b / math.factorial(2 * j))
        factor = factor * (s + (2 * j - 1)) * (s + 2 * j) * inverse * inverse
    below = where(whole, total.filled(math.inf), total.filled(math.nan))
    total = where(negative, below, where(either(at_pole, endless), first, total))
    return where(equal(given, 1.0), math.inf, where(_less(given, 1.0), math.nan, total))


def polygamma(n: int, x: Op) -> Op:
    """The n-th derivative of digamma, (-1)^(n + 1) n! zeta(n + 1, x); below 0 reflected.

    psi_n(x) = (-1)^n psi_n(1 - x) - pi^(n + 1) c_n(cot(pi x)), where pi^n c_n is the n-th derivative of cot(pi x).
    """
    if n == 0:
        return digamma(x)
    left = _less(x, 0.0)
    value = zeta(x.filled(n + 1.0), where(left, -x + 1.0, x)) * float((-1) ** (n + 1) * math.factorial(n))
    total = polynomial(_cotangent(where(left, x - round_even(x), 0.25) * math.pi), _cotangent_terms(n))
    return where(left, value * (-1.0) ** n - total * math.pi ** (n + 1), value)


def _cotangent_terms(n: int) -> list[int]:
    """Returns the coefficients of the n-th derivative of cot as a polynomial c of it: c_k is -(1 + c^2) c_{k-1}'."""
    terms = [0, 1]
    for _ in range(n):
        slope = [k * term for k, term in enumerate(terms)][1:]
        terms = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope])]
    return terms


def incomplete(name: str, a: Op, x: Op) -> Op:
    """The regularized incomplete gamma function: "gammainc", up to x, or "gammaincc", from x on; the host iterates."""
    return host_call(name, a.dtype, (a, x, detached(lgamma(a + 1.0))))


@formula
def mvlgamma(x: Op, p: int) -> Op:
    """log of the multivariate gamma function: p (p - 1) / 4 log pi + the sum of lgamma(x - j / 2) for j < p."""
    total = lgamma(x)
    for j in range(1, p):
        total = total + lgamma(x - j / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)


# ---- Bessel functions ----
NEAR_MAX = 8.0
LARGEST = 713.0  # largest float64 whose I0 and I1 are finite
# Chebyshev coefficients of sqrt(x) e^-x I(x) in t = 16 / x - 1, x >= 8, by our own fit with 40 digits.
FAR_0 = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06, 2.0489185894690638e-07,
    2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10, 1.1889147107846439e-11, -3.1499165279632416e-11,
    -1.3215811840447713e-11, -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
    -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17,
)  # fmt: skip
FAR_1 = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06, -2.512236237870209e-07,
    -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10, -1.8974958123505413e-11,
    3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14, 1.0420276984128802e-14,
    -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16, 2.96262899764595e-16,
    -3.209525921993424e-17, -4.6503053684893586e-17,
)  # fmt: skip


def _branches(x: Op, order: int) -> tuple[Op, Op, Op]:
    """Returns whether x >= 0 is near, I(x) for near ones, and e^-x I(x) for the others."""
    near = less_equal(x, NEAR_MAX)
    inner = where(near, x, 0.0)
    quarter = inner * inner * 0.25
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(27)]
    total = polynomial(quarter, terms)
    if order:
        total = total * (where(near, x, 1.0) * 0.5)
    held = minimum(where(near, NEAR_MAX, x), 1e300)  # e^inf times 0 would be NaN
    far = chebyshev(x.filled(16.0) / held - 1.0, FAR_1 if order else FAR_0) / unary(OpCode.SQRT, held)
    return near, total, far


@formula
def bessel(x: Op, order: int, scaled: bool) -> Op:
    """I0 or I1 of x; scaled: times e^-|x|. I0 is even, I1 odd."""
    low = is_negative(x)
    magnitude = negated(low, x)
    near, direct, far = _branches(magnitude, order)
    if scaled:
        value = where(near, direct * unary(OpCode.EXP, -absolute(where(near, x, 0.0))), far)  # flat at 0, as |x| is
    else:
        endless = less(LARGEST, magnitude)  # where the function overflows, its derivatives do, too
        half = unary(OpCode.EXP, where(either(near, endless), 0.0, magnitude) * 0.5)  # e^x overflows first
        beyond = magnitude * magnitude * where(endless, x.filled(math.inf), 1.0)
        value = where(endless, beyond, where(near, direct, half * far * half))
    return negated(low, value) if order else value
