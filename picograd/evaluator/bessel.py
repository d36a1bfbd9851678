"""Bessel functions and Airy's on the host, in float64: recurrences and integrals near 0, asymptotic series far away.

In:    an array of float64
Out:   the array of the values; `BESSEL`
Next:  picograd/evaluator/host.py

Source: NIST Digital Library of Mathematical Functions: 10.6.1, 10.12.4 and 10.23.15 (recurrence, its scale, Y by a sum of
J), 10.17.3 (series for large arguments), 10.31.2 (K near 0), 10.32.9 (K as an integral), 10.40.2, 9.5.4,
9.6.2 and 9.7.9 (Airy's).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.evaluator.elementwise import Array

FAR = 25.0  # from here on, asymptotic series reach rounding
TERMS = 30
EULER = 0.57721566490153286060651209008240243


# ---- J and Y ----
def _orders(x: Array) -> list[Array]:
    """Returns J_0(x), J_1(x), ... for 0 < x <= FAR: the recurrence downwards, scaled: J_0 + 2 J_2 + ... = 1."""
    above, current = np.zeros_like(x), np.full_like(x, 1e-290)
    orders = [current]
    for k in range(2 * math.ceil(FAR) + 20, 0, -1):
        above, current = current, 2 * k / x * current - above
        large = np.abs(current) > 1e200  # of a small x: what came before is nothing beside it
        scale = np.where(large, 1e-250, 1.0)
        above, current = above * scale, current * scale
        orders = [order * scale for order in orders]
        orders.insert(0, current)
    total = orders[0] + 2 * sum(orders[2::2])
    return [order / total for order in orders]


def _waves(order: int, x: Array) -> tuple[Array, Array]:
    """Returns J and Y for x >= FAR: an amplitude times the cosine and the sine of a phase."""
    even, odd, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, TERMS):
        term = term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        if k % 2:
            odd = odd + term * (-1) ** (k // 2)
        else:
            even = even + term * (-1) ** (k // 2)
    phase = x - (order / 2 + 0.25) * np.pi
    amplitude = np.sqrt(2 / (np.pi * x))
    sine, cosine = np.sin(phase), np.cos(phase)
    return amplitude * (even * cosine - odd * sine), amplitude * (even * sine + odd * cosine)


def _first_kind(order: int, x: Array) -> Array:
    """J of order 0, which is even, or 1, which is odd."""
    magnitude = np.abs(x)
    near = _orders(np.clip(magnitude, 1e-300, FAR))[order]
    far = np.where(np.isinf(x), 0.0, _waves(order, np.where(np.isinf(x), FAR, np.maximum(magnitude, FAR)))[0])
    value = np.where(magnitude <= FAR, near, far)
    value = np.where(magnitude < 1e-8, 1.0 if order == 0 else magnitude / 2, value)
    return np.where(np.isnan(x), np.nan, np.copysign(value, value * x) if order else value)


def _second_kind(order: int, x: Array) -> Array:
    """Y of order 0 or 1; minus infinity at 0, NaN below."""
    held = np.clip(x, 1e-300, FAR)
    orders, log = _orders(held), np.log(held / 2) + EULER
    if order == 0:
        rest = sum((-1) ** k / k * orders[2 * k] for k in range(1, len(orders) // 2))
        near = 2 / np.pi * log * orders[0] - 4 / np.pi * rest
    else:
        rest = sum((-1) ** k / k * (orders[2 * k - 1] - orders[2 * k + 1]) for k in range(1, len(orders) // 2))
        near = 2 / np.pi * (log * orders[1] - orders[0] / held + rest)  # -Y_0'
    far = np.where(np.isinf(x), 0.0, _waves(order, np.where(np.isinf(x), FAR, np.maximum(x, FAR)))[1])
    value = np.where(x <= FAR, near, far)
    return np.where(x == 0, -np.inf, np.where(x > 0, value, np.nan))


# ---- K ----
def _decaying(order: float, x: Array) -> Array:
    """Returns e^x K(x) for x >= 2: the trapezoidal rule, exact to rounding, then the series."""
    held, step = np.clip(x, 1.0, FAR), 1 / 32
    total = np.full_like(x, 0.5)
    for k in range(1, 32 * 5):
        total = total + np.exp(-held * (math.cosh(k * step) - 1)) * math.cosh(order * k * step)
    far, term, large = np.ones_like(x), np.ones_like(x), np.maximum(x, FAR)
    for k in range(1, TERMS):
        term = term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * large)
        far = far + term
    return np.where(x <= FAR, total * step, far * np.sqrt(np.pi / (2 * large)))


def _modified(order: int, x: Array, scaled: bool) -> Array:
    """K of order 0 or 1, scaled: times e^x; infinite at 0, NaN below."""
    small = np.clip(x, 1e-300, 2.0)
    square, log = small * small / 4, np.log(small / 2)
    near, harmonic = np.zeros_like(x) if order == 0 else 1 / small, -EULER
    for k in range(TERMS):
        power = square**k / (math.factorial(k) * math.factorial(k + order))
        if order == 0:
            near = near + power * (harmonic - log)
        else:
            near = near + small / 2 * power * (log - harmonic - 1 / (2 * (k + 1)))
        harmonic += 1 / (k + 1)
    held = np.where(np.isnan(x), 2.0, np.maximum(x, 2.0))
    far = _decaying(order, held)
    with np.errstate(under="ignore"):
        value = np.where(x <= 2, near * np.exp(small) if scaled else near, far if scaled else far * np.exp(-held))
    return np.where(x == 0, np.inf, np.where(x > 0, value, np.nan))


# ---- Airy's function ----
def _airy(x: Array) -> Array:
    """Ai: an integral along a turned path, K of order 1/3 where it decays, waves far below 0."""
    held = np.clip(x, -12.0, 1.5)
    nodes, weights = np.polynomial.legendre.leggauss(160)
    middle = np.zeros_like(x)
    for node, weight in zip(nodes * 4.5 + 4.5, weights * 4.5):
        wave = np.cos(held * node * math.sqrt(0.75) + np.pi / 6)
        middle = middle + weight * np.exp(-(node**3) / 3 - held * node / 2) * wave
    right = np.where(np.isinf(x), 1.5, np.maximum(x, 1.5))
    with np.errstate(under="ignore", over="ignore"):
        power = 2 / 3 * right**1.5
        above = np.sqrt(right / 3) / np.pi * _decaying(1 / 3, power) * np.exp(-power)
    left = np.where(np.isinf(x), 12.0, np.maximum(-x, 12.0))
    phase = 2 / 3 * left**1.5
    even, odd, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, TERMS):
        term = term * (6 * k - 5) * (6 * k - 1) / (72 * k * phase)
        even, odd = (even, odd + term * (-1) ** (k // 2)) if k % 2 else (even + term * (-1) ** (k // 2), odd)
    below = (np.cos(phase - np.pi / 4) * even + np.sin(phase - np.pi / 4) * odd) / (np.sqrt(np.pi) * left**0.25)
    value = np.where(x > 1.5, np.where(np.isinf(x), 0.0, above), np.where(x < -12, below, middle / np.pi))
    return np.where(np.isnan(x) | np.isneginf(x), np.nan, value)


BESSEL: dict[str, Callable[..., Any]] = {
    "airy_ai": _airy,
    **{f"bessel_j{order}": functools.partial(_first_kind, order) for order in (0, 1)},
    **{f"bessel_y{order}": functools.partial(_second_kind, order) for order in (0, 1)},
    **{f"modified_bessel_k{order}": functools.partial(_modified, order, scaled=False) for order in (0, 1)},
    **{f"scaled_modified_bessel_k{order}": functools.partial(_modified, order, scaled=True) for order in (0, 1)},
}
