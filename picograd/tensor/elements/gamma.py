"""The gamma function's logarithm and its derivatives, by series for large arguments.

In:    float64 Ops of one shape
Out:   float64 Ops
Next:  picograd/tensor/elements/normal.py

Source: NIST Digital Library of Mathematical Functions, 5.5 (recurrence, reflection), 5.11.1 and 5.11.2 (series),
25.11.43 (Hurwitz's zeta function). In float64 also for float32 results: sums of large terms leave small ones.
"""

from __future__ import annotations

import math

from picograd.ir.build import both, compare, either, unary, where
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.elements.inverses import is_negative, negated
from picograd.tensor.elements.pointwise import absolute, is_infinite, polynomial, round_even

BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
    -236364091 / 2730,
)  # fmt: skip
RAISED = 8  # arguments are raised to at least this; nine terms of the series then leave 2^-54


def _less(a: Op, bound: float) -> Op:
    return compare(OpCode.CMPLT, a, bound)


def _right_half(x: Op) -> tuple[Op, Op, Op, Op]:
    """Returns where x < 1/2, x or 1 - x, whichever is at least 1/2, where that is below RAISED, and it raised there."""
    left = _less(x, 0.5)
    y = where(left, -x + 1.0, x)
    small = _less(y, RAISED)
    return left, y, small, where(small, y + RAISED, y)


def _inverse_powers(z: Op, coefficients: list[float]) -> Op:
    """Returns c0 + c1 / z^2 + c2 / z^4 + ..."""
    return polynomial(unary(OpCode.RECIPROCAL, z * z), coefficients)


def lgamma(x: Op) -> Op:
    """log |gamma(x)|: Stirling's series, less the logarithm of x (x + 1) ... (x + 7); reflected below 1/2."""
    infinite, outside = is_infinite(x), negated(is_negative(x), x)
    outside = outside * where(infinite, outside.filled(math.inf), 1.0)
    x = where(infinite, 1.0, x)
    left, y, small, z = _right_half(x)
    series = _inverse_powers(z, [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:9], 1)])
    stirling = (z - 0.5) * (unary(OpCode.LOG, z) - 1.0) + (series / z + (math.log(2 * math.pi) - 1) / 2)
    held = where(small, y, 1.0)
    product = held
    for k in range(1, RAISED):
        product = product * (held + k)
    value = where(small, stirling - unary(OpCode.LOG, product), stirling)
    nearest, rest = _whole_and_rest(x)
    nothing, near, angle = _apart(rest * math.pi)
    sine = where(nothing, near, unary(OpCode.SIN, angle))
    # At 0 it is as steep as on its side, at the other poles, where both sides are, its derivative is 0 and that of log NaN.
    sine = where(compare(OpCode.CMPEQ, nearest, 0.0), negated(is_negative(sine), sine), absolute(sine))
    mirrored = -unary(OpCode.LOG, where(left, sine, 1.0)) + math.log(math.pi) - value
    return where(infinite, outside, where(left, mirrored, value))


def _whole_and_rest(x: Op) -> tuple[Op, Op]:
    """Returns the nearest integer and what is left, of -0.0 itself."""
    nearest = round_even(x)
    return nearest, where(compare(OpCode.CMPEQ, nearest, 0.0), x, x - nearest)


def _apart(angle: Op) -> tuple[Op, Op, Op]:
    """Returns where an angle is 0, it there, and it elsewhere. At 0 its sine is the angle itself."""
    nothing = compare(OpCode.CMPEQ, angle, 0.0)
    return nothing, where(nothing, angle, 1.0), where(nothing, 1.0, angle)


def _cotangent(angle: Op) -> Op:
    """cos / sin, and 1 / angle at 0."""
    nothing, near, held = _apart(angle)
    return where(nothing, unary(OpCode.RECIPROCAL, near), unary(OpCode.COS, held) / unary(OpCode.SIN, held))


def digamma(x: Op) -> Op:
    """The derivative of log gamma(x): its series, less 1 / x + ... + 1 / (x + 7); psi(1 - x) - pi / tan(pi x) below 1/2."""
    infinite = compare(OpCode.CMPEQ, x, math.inf)
    left, y, small, z = _right_half(where(infinite, 1.0, x))
    series = _inverse_powers(z, [b / (2 * k) for k, b in enumerate(BERNOULLI[:9], 1)])
    value = unary(OpCode.LOG, z) - (series / z + 0.5) / z
    held = where(small, y, 1.0)
    total = unary(OpCode.RECIPROCAL, held)
    for k in range(1, RAISED):
        total = total + unary(OpCode.RECIPROCAL, held + k)
    value = where(small, value - total, value)
    rest = where(left, _whole_and_rest(x)[1], 0.25)
    mirrored = value - _cotangent(rest * math.pi) * math.pi
    pole = both(_less(x, 0.0), compare(OpCode.CMPEQ, rest, 0.0))
    # The value is none of both sides' infinities; both have the same infinite slope.
    return where(infinite, math.inf, where(left, mirrored, value) + where(pole, x.filled(math.nan), 0.0))


def zeta(s: Op, q: Op) -> Op:
    """The sum of (q + k)^-s over k = 0, 1, ..., for s > 1 and q > 0; inf at s = 1 and q = 0, -1, ..., else NaN."""
    last = 10
    power = -s
    first = Op(OpCode.POW, q.dtype, (where(_less(q, 0.0), 1.0, q), power))
    at_pole, endless = compare(OpCode.CMPEQ, q, 0.0), either(is_infinite(q), is_infinite(s))
    whole, negative = compare(OpCode.CMPEQ, q, round_even(q)), _less(q, 0.0)
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
    return where(compare(OpCode.CMPEQ, given, 1.0), math.inf, where(_less(given, 1.0), math.nan, total))


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
    """A part of gamma(a), "gammainc" up to x or "gammaincc" from x on: the host's, since it goes on until it converges."""
    return host_call(name, a.dtype, (a, x, detached(lgamma(a + 1.0))))


def mvlgamma(x: Op, p: int) -> Op:
    """log of the multivariate gamma function: p (p - 1) / 4 log pi + the sum of lgamma(x - j / 2) for j < p."""
    total = lgamma(x)
    for j in range(1, p):
        total = total + lgamma(x - j / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)
