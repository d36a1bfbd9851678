"""Functions of numbers that go on until they converge, so that no fixed graph computes them: the host's, in float64.

In:    arrays of float64 of one shape
Out:   the array of the values; `ITERATED`
Next:  picograd/evaluator/bessel.py

Source: NIST Digital Library of Mathematical Functions: 8.7.1 and 8.9.2 (incomplete gamma functions), 8.12.3 (their uniform
expansion), 18.9.1 (polynomials).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.evaluator.elementwise import Array

EPSILON = 2.0**-53
WIDE_ORDER = 1e8  # above this, two terms of the uniform expansion leave less than rounding does


# ---- incomplete gamma functions ----
def _gammainc(a: Array, x: Array, log_gamma: Array) -> Array:
    """The part of gamma(a) that the integral of t^(a - 1) e^-t from 0 to x is; log_gamma is that of a + 1."""
    lower, upper = _gamma_parts(a, x, log_gamma)
    return np.where(x < a + 1, lower, 1 - upper)


def _gammaincc(a: Array, x: Array, log_gamma: Array) -> Array:
    """The part that is left."""
    lower, upper = _gamma_parts(a, x, log_gamma)
    return np.where(x < a + 1, 1 - lower, upper)


def _gamma_parts(a: Array, x: Array, log_gamma: Array) -> tuple[Array, Array]:
    """Returns the lower part, right where x < a + 1, and the upper part, right elsewhere."""
    lower, upper = np.full(a.shape, np.nan), np.full(a.shape, np.nan)
    edges = [  # where, lower part
        ((a > 0) & (x == 0), 0.0),
        ((a == 0) & (x > 0), 1.0),
        (np.isinf(a) & (a > 0) & (x >= 0) & ~np.isinf(x), 0.0),
        ((a >= 0) & ~np.isinf(a) & np.isinf(x) & (x > 0), 1.0),
    ]
    for where, part in edges:
        lower[where], upper[where] = part, 1 - part
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    wide = inside & (a > WIDE_ORDER)
    lower[wide], upper[wide] = _uniform(a[wide], x[wide])
    below, above = inside & ~wide & (x < a + 1), inside & ~wide & (x >= a + 1)
    lower[below] = _series(a[below], x[below]) * _power(a[below], x[below], log_gamma[below])
    upper[above] = _fraction(a[above], x[above]) * a[above] * _power(a[above], x[above], log_gamma[above])
    return lower, upper


def _power(a: Array, x: Array, log_gamma: Array) -> Array:
    """x^a e^-x / gamma(a + 1); of a large a by Stirling's series, in which no large terms cancel."""
    held = np.maximum(a, 10.0)
    rest = (x - held) / held
    with np.errstate(all="ignore"):
        small = np.abs(rest) < 0.01
        near = -(rest**2) * (0.5 - rest * (1 / 3 - rest * (0.25 - rest * (0.2 - rest * (1 / 6 - rest / 7)))))
        exponent = held * np.where(small, near, np.log1p(rest) - rest)
        stirling = 1 / (12 * held) - 1 / (360 * held**3) + 1 / (1260 * held**5) - 1 / (1680 * held**7)
        large = np.exp(exponent - stirling) / np.sqrt(2 * np.pi * held)
        return np.where(a < 10, np.exp(a * np.log(x) - x - log_gamma), large)


def _series(a: Array, x: Array) -> Array:
    """1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ..., for x < a + 1."""
    total, term, n = np.ones_like(a), np.ones_like(a), 0
    while np.any(term > total * EPSILON):
        n += 1
        term = term * x / (a + n)
        total = total + term
    return total


def _fraction(a: Array, x: Array) -> Array:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)), for x >= a + 1, from its front (Lentz's way)."""
    b = x + 1 - a
    c, d = np.full_like(a, 1e300), 1 / b
    value, n, factor = d, 0, np.zeros_like(a)
    while np.any(np.abs(factor - 1) > EPSILON * 4):
        n += 1
        top, b = n * (a - n), b + 2
        d = top * d + b
        d = 1 / np.where(d == 0, 1e-300, d)
        c = b + top / c
        c = np.where(c == 0, 1e-300, c)
        factor = c * d
        value = value * factor
    return value


def _uniform(a: Array, x: Array) -> tuple[Array, Array]:
    """Both parts for a large a: those of a normal distribution, and the first correction."""
    rest = (x - a) / a
    small = np.abs(rest) < 1e-3
    series = rest**2 * (0.5 - rest * (1 / 3 - rest * (0.25 - rest * (0.2 - rest / 6))))
    distance = np.sign(rest) * np.sqrt(2 * np.where(small, series, rest - np.log1p(np.where(small, 0, rest))))
    tail = np.exp(-a * distance**2 / 2) / np.sqrt(2 * np.pi * a) * (-1 / 3 + np.clip(distance, -1, 1) / 12)
    scaled = distance * np.sqrt(a / 2)
    upper = np.array([math.erfc(value) for value in scaled]) / 2 + tail
    lower = np.array([math.erfc(-value) for value in scaled]) / 2 - tail
    return lower, upper


# ---- counts ----
FACTORIALS = np.array([math.lgamma(k + 2.0) for k in range(11)])


def _poisson(uniform: Array, rate: Array) -> Array:
    """The least count whose probability, with all below it, exceeds `uniform`: halving an interval that holds it."""
    low, high = np.full_like(rate, -1.0), np.ceil(rate + 12 * np.sqrt(rate) + 50)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        enough = _gammaincc(middle + 1, rate, FACTORIALS[np.clip(middle, 0, 10).astype(np.int64)]) > uniform
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(rate == 0, 0.0, high)


def _binomial(uniform: Array, count: Array, chance: Array) -> Array:
    """The same of a number of tries: counted up from 0, by logarithms; what is likely is counted by what it is not."""
    rare = np.minimum(chance, 1 - chance)
    with np.errstate(divide="ignore"):
        weight, odds = count * np.log1p(-rare), np.log(rare) - np.log1p(-rare)
        total, k = np.exp(weight), np.zeros_like(count)
        while np.any(going := (total <= uniform) & (k < count)):
            weight = np.where(going, weight + odds + np.log(np.where(going, count - k, 1) / (k + 1)), weight)
            k = k + going
            total = np.where(going, total + np.exp(weight), total)
    return np.where(chance > 0.5, count - k, k)


# ---- polynomials ----
GREATEST_DEGREE = 2**16  # a step for each degree below

# name: p_1, and p_{k + 1} of (k, x, p_k, p_{k - 1}); p_0 is 1
Step = Callable[[int, Array, Array, Array], Array]
POLYNOMIALS: dict[str, tuple[Callable[[Array], Array], Step]] = {
    "chebyshev_t": (lambda x: x, lambda k, x, p, q: 2 * x * p - q),
    "chebyshev_u": (lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - q),
    "chebyshev_v": (lambda x: 2 * x - 1, lambda k, x, p, q: 2 * x * p - q),
    "chebyshev_w": (lambda x: 2 * x + 1, lambda k, x, p, q: 2 * x * p - q),
    "hermite_h": (lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q),
    "hermite_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_l": (lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre_p": (lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}


def _polynomial(name: str) -> Callable[[Array, Array], Array]:
    """Returns the function of x and degrees that walks the three-term recurrence up to the greatest degree."""
    first, step = POLYNOMIALS[name]

    def value(x: Array, degrees: Array) -> Array:
        """The polynomial of each degree, rounded towards 0, at x; 0 for a negative degree, NaN for one beyond all use."""
        has_end = degrees <= GREATEST_DEGREE  # NaN has not
        n = np.where(has_end, np.trunc(degrees), -1.0)
        result = np.where(has_end, np.where(n == 0, 1.0, 0.0), np.nan)
        before, current, k = np.ones_like(x), first(x), 1
        while np.any(n >= k):
            result = np.where(n == k, current, result)
            before, current = current, step(k, x, current, before)
            k += 1
        return result

    return value


ITERATED: dict[str, Callable[..., Any]] = {
    "gammainc": _gammainc,
    "gammaincc": _gammaincc,
    "poisson": _poisson,
    "binomial": _binomial,
    **{name: _polynomial(name) for name in POLYNOMIALS},
}
