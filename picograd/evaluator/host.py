"""The meaning of the functions of ir/host.py, in NumPy, on host arrays.

First come functions of numbers, in float64: those that iterate until they converge (common divisors of integers, incomplete
gamma functions, orthogonal polynomials), then Bessel and Airy functions, by recurrences and integrals near 0 and asymptotic
series far away. Functions of stacks of matrices and of signals follow; matrices are computed in their own precision, by
LAPACK. If a matrix of a batch has no result, the function fails with the number of the first such matrix.

Source: NIST Digital Library of Mathematical Functions: 8.7.1 and 8.9.2 (incomplete gamma functions), 8.12.3 (their uniform
expansion), 18.9.1 (polynomials), 10.6.1, 10.12.4 and 10.23.15 (recurrence, its scale, Y by a sum of J), 10.17.3 (series for
large arguments), 10.31.2 (K near 0), 10.32.9 (K as an integral), 10.40.2, 9.5.4, 9.6.2 and 9.7.9 (Airy's).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from picograd.evaluator.elementwise import Array

EPSILON = 2.0**-53
WIDE_ORDER = 1e8  # above it, two terms of the uniform expansion suffice for full precision


# ---- incomplete gamma functions ----
def _gammainc(a: Array, x: Array, log_gamma: Array) -> Array:
    """The regularized lower incomplete gamma function; log_gamma is that of a + 1."""
    lower, upper = _gamma_parts(a, x, log_gamma)
    return np.where(x < a + 1, lower, 1 - upper)


def _gammaincc(a: Array, x: Array, log_gamma: Array) -> Array:
    """The regularized upper incomplete gamma function."""
    lower, upper = _gamma_parts(a, x, log_gamma)
    return np.where(x < a + 1, 1 - lower, upper)


def _gamma_parts(a: Array, x: Array, log_gamma: Array) -> tuple[Array, Array]:
    """Returns the lower function, accurate for x < a + 1, and the upper one, accurate elsewhere."""
    lower, upper = np.full(a.shape, np.nan), np.full(a.shape, np.nan)
    edges = [  # condition, lower function
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
    """x^a e^-x / gamma(a + 1); for large a by Stirling's series, in which no large terms cancel."""
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
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)), for x >= a + 1, by Lentz's method."""
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
    """Both functions for large a: those of a normal distribution, with the first correction."""
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
LOG_FACTORIALS = np.array([math.lgamma(k + 2.0) for k in range(11)])
COUNTED_RATE = 32.0  # below it, probabilities are summed from that of 0; e^-rate is far from underflow


def _poisson(uniform: Array, rate: Array) -> Array:
    """The least count whose cumulative probability exceeds `uniform`."""
    count, is_low = np.zeros_like(rate), rate < COUNTED_RATE
    count[is_low] = _counted(uniform[is_low], rate[is_low])
    count[~is_low] = _halved(uniform[~is_low], rate[~is_low])
    return count


def _counted(uniform: Array, rate: Array) -> Array:
    """Adds probabilities until the sum is reached or no longer grows."""
    count, k, where = np.zeros_like(rate), 0, np.arange(rate.size)
    weight = total = np.exp(-rate)
    while where.size:
        going = (total <= uniform) & ((k < rate) | (total + weight > total))
        where, uniform, rate, weight, total = (each[going] for each in (where, uniform, rate, weight, total))
        k += 1
        weight = weight * rate / k
        total = total + weight
        count[where] = k
    return count


def _halved(uniform: Array, rate: Array) -> Array:
    """Bisects an interval that contains the count."""
    low, high = np.full_like(rate, -1.0), np.ceil(rate + 12 * np.sqrt(rate) + 50)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        enough = _gammaincc(middle + 1, rate, LOG_FACTORIALS[np.clip(middle, 0, 10).astype(np.int64)]) > uniform
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _binomial(uniform: Array, count: Array, chance: Array) -> Array:
    """The least number of successes in `count` tries whose cumulative probability exceeds `uniform`.

    Counted from 0 by logarithms of probabilities; if success is likely, failures are counted.
    """
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
DEGREE_MAX = 2**16  # each degree takes a step

# name: p_1, and p_{k + 1} from (k, x, p_k, p_{k - 1}); p_0 is 1
Recurrence = Callable[[int, Array, Array, Array], Array]
POLYNOMIALS: dict[str, tuple[Callable[[Array], Array], Recurrence]] = {
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
    """Returns the function of x and degrees that runs the three-term recurrence up to the largest degree."""
    first, step = POLYNOMIALS[name]

    def value(x: Array, degrees: Array) -> Array:
        """The polynomial of each degree, rounded towards 0, at x; 0 for a negative degree, NaN above DEGREE_MAX."""
        has_end = degrees <= DEGREE_MAX  # False for NaN
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
    "gcd": np.gcd,
    "gammainc": _gammainc,
    "gammaincc": _gammaincc,
    "poisson": _poisson,
    "binomial": _binomial,
    **{name: _polynomial(name) for name in POLYNOMIALS},
}


# ---- Bessel functions and Airy's ----
FAR = 25.0  # from here on, asymptotic series have full precision
TERMS = 30
EULER = 0.57721566490153286060651209008240243


# ---- J and Y ----
def _orders(x: Array) -> list[Array]:
    """Returns J_0(x), J_1(x), ... for 0 < x <= FAR: downward recurrence, normalized by J_0 + 2 J_2 + ... = 1."""
    above, current = np.zeros_like(x), np.full_like(x, 1e-290)
    orders = [current]
    for k in range(2 * math.ceil(FAR) + 20, 0, -1):
        above, current = current, 2 * k / x * current - above
        large = np.abs(current) > 1e200  # for small x: earlier terms are negligible
        scale = np.where(large, 1e-250, 1.0)
        above, current = above * scale, current * scale
        orders = [order * scale for order in orders]
        orders.insert(0, current)
    total = orders[0] + 2 * sum(orders[2::2])
    return [order / total for order in orders]


def _waves(order: int, x: Array) -> tuple[Array, Array]:
    """Returns J and Y for x >= FAR: an amplitude times cosine and sine of a phase."""
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
    """J of order 0, an even function, or 1, an odd one."""
    magnitude = np.abs(x)
    near = _orders(np.clip(magnitude, 1e-300, FAR))[order]
    far = np.where(np.isinf(x), 0.0, _waves(order, np.where(np.isinf(x), FAR, np.maximum(magnitude, FAR)))[0])
    value = np.where(magnitude <= FAR, near, far)
    value = np.where(magnitude < 1e-8, 1.0 if order == 0 else magnitude / 2, value)
    return np.where(np.isnan(x), np.nan, np.copysign(value, value * x) if order else value)


def _second_kind(order: int, x: Array) -> Array:
    """Y of order 0 or 1; -inf at 0, NaN below."""
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
    """Returns e^x K(x) for x >= 2: the trapezoidal rule, which has full precision here, then the series."""
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
    """K of order 0 or 1; scaled: times e^x; infinite at 0, NaN below."""
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
    """Ai: an integral along a rotated path, K of order 1/3 where Ai decays, waves far below 0."""
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


# ---- matrices and signals ----
class Failed(Exception):
    """A matrix has no result.

    number:  its index in the batch
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def _each(function: Callable[..., Any], *stacks: Array) -> Any:
    """Returns function(*stacks); if LAPACK fails for a matrix, raises Failed with its index."""
    try:
        return function(*stacks)
    except np.linalg.LinAlgError:
        flat = [_flat(stack) for stack in stacks]
        for number, one in enumerate(zip(*flat)):
            try:
                function(*one)
            except np.linalg.LinAlgError:
                raise Failed(number) from None
        raise


def _joined(*factors: Array) -> Array:
    """Returns factors (..., a, b) or (..., a) flat, one after the other, after their batch axes."""
    batch = factors[1].shape[:-1]
    return np.concatenate([factor.reshape(*batch, -1) for factor in factors], -1)


def _flat(stack: Array) -> Array:
    """Returns a stack of matrices with one batch axis."""
    return stack.reshape(math.prod(stack.shape[:-2]), *stack.shape[-2:])


def _mirrored(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


# ---- the LAPACK of NumPy ----
ROUTINE_MIN = 16  # smaller matrices are not worth separate calls


class Routine(NamedTuple):
    """A Fortran routine, which takes addresses.

    symbol:   its name in the library
    integers: dtype of its integers, 32 or 64 bits
    """

    symbol: Any
    integers: type[np.signedinteger[Any]]

    def __call__(self, count: int, *arguments: Array | bytes | int) -> None:
        """Calls it for each of `count` matrices: arrays have a leading batch axis; letters and numbers are shared."""
        held = [np.asarray(given, self.integers if isinstance(given, int) else None) for given in arguments]
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in held]
        steps = [(address, array.strides[0]) for address, array in zip(addresses, held) if array.ndim > 0]
        for _ in range(count):
            self.symbol(*addresses)
            for address, step in steps:
                address.value = (address.value or 0) + step


@functools.cache
def _routine(name: str, dtype: np.dtype[Any]) -> Routine | None:
    """Returns a routine of the LAPACK that NumPy is linked with; the name is without the letter of precision.

    None: this NumPy does not export it.
    """
    linked = np.linalg._umath_linalg
    full = {"float32": "s", "float64": "d"}[dtype.name] + name
    own = np.int64 if linked._ilp64 else np.int32
    for symbol, integers in ((f"scipy_{full}_64_", np.int64), (f"{full}_64_", np.int64), (f"{full}_", own)):
        try:
            return Routine(getattr(ctypes.CDLL(linked.__file__), symbol), integers)
        except (AttributeError, OSError):  # another library, or one inside NumPy
            continue
    return None


def _routine_of_large(name: str, a: Array) -> Routine | None:
    """Returns a routine for matrices with enough rows: for small ones NumPy's steps over a whole stack are faster."""
    return _routine(name, a.dtype) if a.shape[-1] >= ROUTINE_MIN else None


# ---- systems ----
def _solve(a: Array, b: Array) -> Array:
    return _each(np.linalg.solve, a, b)


def _solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Solves a triangular system in place of b; the other triangle is not read."""
    routine = _routine_of_large("trsm", a)
    if routine is None:
        return _substituted(a, b, upper, unit)
    x, (n, k) = np.array(b, order="C"), b.shape[-2:]
    letters = b"R", b"L" if upper else b"U", b"N", b"U" if unit else b"N"  # X.T A.T = B.T, column-major
    matrices, right = _flat(np.ascontiguousarray(a)), _flat(x)
    routine(len(right), *letters, k, n, np.ones((), a.dtype), matrices, n, right, max(k, 1))
    return x


def _substituted(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Substitutes row by row, in the order of their dependence."""
    x, n = np.array(b), a.shape[-1]
    for i in reversed(range(n)) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        x[..., i, :] -= (a[..., i, None, known] @ x[..., known, :])[..., 0, :]
        if not unit:
            x[..., i, :] /= a[..., i, i, None]
    return x


def _pinv(a: Array, absolute: Array, relative: Array) -> Array:
    """Inverts the singular values above `absolute` and above `relative` times the first; the others become 0."""
    u, s, vh = _each(_thin_svd, a)
    kept = s > np.maximum(absolute[..., None], s[..., :1] * relative[..., None])
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    return _mirrored(vh) @ (inverse[..., None] * _mirrored(u))


# ---- factors ----
BLOCK_COLUMNS = 32  # columns that LU computes one by one
PIVOT_LISTS_MAX = 16  # for more matrices, exchanging rows of all in one NumPy step is faster than lists


def _eigh(a: Array) -> Array:
    values, vectors = _each(np.linalg.eigh, a)
    return np.concatenate([values[..., None, :], vectors], -2)


def _eig(a: Array) -> Array:
    values, vectors = _each(_real_eig, a)
    return np.concatenate([values[..., None, :], vectors], -2)


def _real_eig(a: Array) -> tuple[Array, Array]:
    """Returns eigenvalues in rising order (LAPACK's order is unspecified), and eigenvectors of length 1.

    NumPy's arrays are complex if one number is, and from version 2.5 on always.
    """
    values, vectors = np.linalg.eig(a)
    if values.imag.any():
        raise np.linalg.LinAlgError
    values, vectors = values.real, vectors.real
    order = values.argsort(-1, kind="stable")
    return np.take_along_axis(values, order, -1), np.take_along_axis(vectors, order[..., None, :], -1)


def _thin_svd(a: Array) -> Any:
    return np.linalg.svd(_finite(a), full_matrices=False)


def _svd(a: Array) -> Array:
    return _joined(*_each(_thin_svd, a))


def _svdvals(a: Array) -> Any:
    return _each(lambda stack: np.linalg.svd(_finite(stack), compute_uv=False), a)


def _finite(a: Array) -> Array:
    """Returns a; raises LinAlgError for numbers that are not finite: LAPACK's iteration would never end."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError
    return a


def _qr(a: Array) -> Array:
    q, r = np.linalg.qr(a)
    batch = a.shape[:-2]
    return np.concatenate([q.reshape(*batch, q.shape[-2] * q.shape[-1]), r.reshape(*batch, r.shape[-2] * r.shape[-1])], -1)


def _complement(q: Array) -> Array:
    """The columns that complete orthonormal columns to a square matrix."""
    complete, _ = np.linalg.qr(q, "complete")
    return complete[..., q.shape[-1] :]


def _cholesky(a: Array) -> Any:
    factored = _positive(a)
    if factored is None:
        return _each(_cholesky_of_small, a)
    lower, orders = factored
    if orders.any():
        raise Failed(int((orders != 0).argmax()))
    return np.tril(lower)


def _cholesky_of_small(a: Array) -> Any:
    lower = np.linalg.cholesky(a)
    if _first_nan(lower).any():  # LAPACK takes it for a positive number
        raise np.linalg.LinAlgError
    return lower


def _first_nan(lower: Array) -> Array:
    """Returns the number, from 1, of the first row with NaN on the diagonal, else 0."""
    is_nan, n = np.isnan(np.diagonal(lower, axis1=-2, axis2=-1)), lower.shape[-1]
    first = np.where(is_nan, np.arange(1, n + 1), n + 1).min(-1, initial=n + 1)
    return np.where(first <= n, first, 0)


def _positive(a: Array) -> tuple[Array, Array] | None:
    """Factors by LAPACK: L in the lower triangle, and the order of the first leading minor that is not positive, or 0."""
    routine = _routine_of_large("potrf", a)
    if routine is None:
        return None
    lower, n = np.array(a, order="C"), a.shape[-1]
    orders = np.zeros(math.prod(a.shape[:-2]), routine.integers)
    routine(len(orders), b"U", n, _flat(lower), n, orders)  # Fortran reads rows as columns
    orders = orders.reshape(a.shape[:-2])
    return lower, np.where(orders == 0, _first_nan(lower), orders)


def _slogdet(a: Array) -> Array:
    sign, logarithm = np.linalg.slogdet(a)
    sign = np.where(np.isnan(logarithm), 0, sign)
    return np.stack([sign, logarithm], -1)


def _cofactor(a: Array) -> Array:
    """det(u) det(v) u (products of all singular values but one) vh: without quotients, so a may be singular."""
    u, s, vh = _each(_thin_svd, a)
    n = a.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1).astype(a.dtype)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return sign[..., None, None] * (u * others[..., None, :]) @ vh


def _cholesky_order(a: Array) -> Array:
    """The order of the first leading minor that is not positive definite, or 0."""
    factored = _positive(a)
    if factored is not None:
        return factored[1].astype(np.int64)
    flat = _flat(a)
    orders = [next((k for k in range(1, a.shape[-1] + 1) if not _is_positive(one[:k, :k])), 0) for one in flat]
    return np.array(orders, np.int64).reshape(a.shape[:-2])


def _is_positive(a: Array) -> bool:
    try:
        _cholesky_of_small(a)
    except np.linalg.LinAlgError:
        return False
    return True


def _lu_pivots(a: Array) -> Array:
    """The row that is exchanged with the next one, for each column: the first of the largest remaining ones."""
    k = min(a.shape[-2:])
    transposed = _transposed(a)
    pivots = np.zeros((len(transposed), k), np.int64)
    if not _factorize(transposed, pivots):
        _eliminate(transposed, pivots)
    return pivots.reshape(*a.shape[:-2], k)


def _rows_of_pivots(pivots: Array, m: int) -> Array:
    """The order of rows after all exchanges."""
    flat = _flat(pivots[..., None])[..., 0] - 1
    every, rows = np.arange(len(flat)), np.tile(np.arange(m), (len(flat), 1))
    if len(flat) < PIVOT_LISTS_MAX:
        orders = rows.tolist()
        for order, chosen in zip(orders, flat.tolist()):
            for i, other in enumerate(chosen):
                order[i], order[other] = order[other], order[i]
        rows = np.array(orders, np.int64)
    else:
        for i, chosen in enumerate(flat.T):
            rows[every, chosen], rows[:, i] = rows[:, i].copy(), rows[every, chosen]
    return rows.reshape(*pivots.shape[:-1], m)


def _lu(a: Array) -> Array:
    """L below the diagonal, U on and above it, for rows in pivot order."""
    transposed = _transposed(a)
    pivots = np.zeros(transposed.shape[:-1], np.int64)
    if not _factorize(transposed, pivots) or np.any(pivots != np.arange(1, a.shape[-1] + 1)):
        transposed = _transposed(a)
        _eliminate(transposed)
    return _mirrored(transposed).reshape(a.shape)


def _transposed(a: Array) -> Array:
    """Returns a copy of transposed matrices with one batch axis: each column is contiguous."""
    return np.array(_mirrored(_flat(a)), order="C")


def _factorize(transposed: Array, pivots: Array) -> bool:
    """Factors transposed matrices in place by LAPACK, and returns the exchanged rows; False for small matrices."""
    routine = _routine_of_large("getrf", transposed)
    if routine is None:
        return False
    n, m = transposed.shape[-2:]
    found = np.zeros(pivots.shape, routine.integers)
    routine(len(found), m, n, transposed, m, found, np.zeros((), routine.integers))
    pivots[:] = found
    return True


def _eliminate(transposed: Array, pivots: Array | None = None) -> None:
    """Factors transposed matrices in place, block of columns by block; later columns are updated by a product.

    With `pivots` rows are exchanged first; it receives their numbers, from 1.
    """
    every, (n, m) = np.arange(len(transposed)), transposed.shape[-2:]
    for start in range(0, min(m, n), BLOCK_COLUMNS):
        k = min(BLOCK_COLUMNS, min(m, n) - start)
        block, behind = transposed[:, start : start + k, start:], transposed[:, start + k :, start:]
        for i in range(k):
            if pivots is not None:
                chosen = start + i + np.abs(block[:, i, i:]).argmax(-1)
                pivots[:, start + i] = chosen + 1
                own = transposed[:, :, start + i].copy()
                transposed[:, :, start + i] = transposed[every, :, chosen]
                transposed[every, :, chosen] = own
            pivot = block[:, i, i, None]
            block[:, i, i + 1 :] /= np.where(pivot == 0, 1, pivot)  # zeros stay zeros
            block[:, i + 1 :, i + 1 :] -= block[:, i + 1 :, i, None] * block[:, i, None, i + 1 :]
        if behind.size:
            behind[..., :k] = _mirrored(_substituted(_mirrored(block[..., :k]), _mirrored(behind[..., :k]), False, True))
            behind[..., k:] -= behind[..., :k] @ block[..., k:]


PADE_13 = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
APPROXIMANT_NORM_MAX = 5.371920351148152  # norm up to which the approximant has full precision in float64


def _matrix_exp(a: Array) -> Array:
    """Scaling and squaring, Pade approximant of degree 13: Higham 2005, SIAM J. Matrix Anal. 26(4), algorithm 2.3."""
    norm = np.abs(a).sum(-2).max(-1, initial=0)
    squarings = np.ceil(np.log2(np.maximum(norm / APPROXIMANT_NORM_MAX, 1))).astype(int)
    squarings = np.where(np.isfinite(norm), squarings, 0)
    x = a.astype(np.float64) / 2.0 ** squarings[..., None, None]
    one = np.eye(a.shape[-1])
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    b = PADE_13
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    result: Array = np.linalg.solve(even - odd, even + odd)
    for i in range(int(squarings.max(initial=0))):
        result = np.where((i < squarings)[..., None, None], result @ result, result)
    return result.astype(a.dtype)


# ---- transforms ----
def _complex(x: Array) -> Array:
    """Returns pairs (..., 2) as complex numbers."""
    pairs = np.ascontiguousarray(x)
    return pairs.view(np.result_type(x.dtype, np.complex64))[..., 0]


def _pairs(z: Array) -> Array:
    """Returns complex numbers as pairs (..., 2), in the same memory."""
    whole = np.ascontiguousarray(z)
    return whole.view(whole.real.dtype).reshape(*z.shape, 2)


def _transform(name: str, x: Array, axis: int, result: Array) -> Array:
    """Transforms along an axis into `result`, without a scale, by the function behind np.fft.

    NOTE: np.fft passes the factor 1 as an integer, for which float32 is cast to float64 and back: 6 times as slow.
    """
    one = np.ones((), result.real.dtype)
    transform: Callable[..., Array] = getattr(np.fft._pocketfft_umath, name)  # type: ignore[attr-defined]
    return transform(x, one, axes=[(axis,), (), (axis,)], out=result)


def _fft(x: Array, sign: int, *axes: int) -> Array:
    """Transforms axes, counted without the axis of pairs; neither direction is scaled."""
    z = _complex(x)
    result = np.empty_like(z)
    for axis in reversed(axes):
        z = _transform("fft" if sign < 0 else "ifft", z, axis, result)
    return _pairs(z)


def _rfft(x: Array, length: int, axis: int) -> Array:
    shape = [*x.shape]
    shape[axis] = length // 2 + 1
    result = np.empty(shape, np.result_type(x.dtype, np.complex64))
    return _pairs(_transform("rfft_n_odd" if length % 2 else "rfft_n_even", x, axis, result))


def _irfft(x: Array, length: int, axis: int) -> Array:
    z = _complex(x)
    shape = [*z.shape]
    shape[axis] = length
    return _transform("irfft", z, axis, np.empty(shape, z.real.dtype))


HOST_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv": lambda a: _each(np.linalg.inv, a),
    "solve": _solve,
    "solve_triangular": _solve_triangular,
    "cholesky": _cholesky,
    "det": np.linalg.det,
    "cofactor": _cofactor,
    "slogdet": _slogdet,
    "cholesky_order": _cholesky_order,
    "lu_pivots": _lu_pivots,
    "rows_of_pivots": _rows_of_pivots,
    "lu": _lu,
    "qr": _qr,
    "complement": _complement,
    "eigh": _eigh,
    "eig": _eig,
    "eigvalsh": lambda a: _each(np.linalg.eigvalsh, a),
    "svd": _svd,
    "svdvals": _svdvals,
    "pinv": _pinv,
    "matrix_exp": _matrix_exp,
    "fft": _fft,
    "rfft": _rfft,
    "irfft": _irfft,
    **ITERATED,
    **BESSEL,
}
