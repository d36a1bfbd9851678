"""Fits the polynomials of codegen/passes/functions.py: minimax by Remez's exchange, in 60 decimal digits.

In:    a function, an interval, the powers of the polynomial and the weight of its error
Out:   coefficients as float32 or float64 hold them, and the greatest weighted error with them
Run:   python -m tools.fit_polynomials
Source: Remez 1934; Muller, "Elementary Functions", 3rd edition, section 3.6. Coefficients are rounded at once,
        or one by one with the others fitted again, whichever is better.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, getcontext

import tyro

getcontext().prec = 60
GRID = 600  # points among which extrema are sought
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
LN2 = Decimal(2).ln()
Function = Callable[[Decimal], Decimal]


@dataclass(frozen=True)
class Fit:
    """One polynomial sum(c[k] * x**powers[k]) on [low, high].

    function:  what it approximates
    weight:    the error counts times this: 1 / function where the relative error shall be small
    bits:      32 or 64: of the floats its coefficients are
    """

    name: str
    function: Function
    weight: Function
    low: Decimal
    high: Decimal
    powers: tuple[int, ...]
    bits: int


def rounded(value: Decimal, bits: int) -> float:
    """Returns the nearest float of that many bits."""
    return float(value) if bits == 64 else float(struct.unpack("f", struct.pack("f", float(value)))[0])


def solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """Solves linear equations, each row its factors and then its right side, by elimination with pivots."""
    count = len(rows)
    for i in range(count):
        pivot = max(range(i, count), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, count):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    solution = [Decimal(0)] * count
    for i in reversed(range(count)):
        known = sum((rows[i][j] * solution[j] for j in range(i + 1, count)), Decimal(0))
        solution[i] = (rows[i][count] - known) / rows[i][i]
    return solution


def remez(
    xs: Sequence[Decimal], values: Sequence[Decimal], weights: Sequence[Decimal], powers: Sequence[int]
) -> list[Decimal]:
    """Returns the coefficients whose greatest weighted error over the points is least."""
    unknowns = len(powers) + 1
    chosen = [round(i * (len(xs) - 1) / (unknowns - 1)) for i in range(unknowns)]
    coefficients: list[Decimal] = []
    for _ in range(30):
        rows = [
            [xs[c] ** p * weights[c] for p in powers] + [Decimal((-1) ** i), values[c] * weights[c]]
            for i, c in enumerate(chosen)
        ]
        *coefficients, level = solve(rows)
        errors = [
            w * (v - sum((k * x**p for k, p in zip(coefficients, powers)), Decimal(0)))
            for x, v, w in zip(xs, values, weights)
        ]
        chosen = _extrema(errors, unknowns)
        if max(abs(e) for e in errors) <= abs(level) * Decimal("1.001"):
            break
    return coefficients


def _extrema(errors: list[Decimal], count: int) -> list[int]:
    """Returns `count` positions of alternating extrema, the greatest ones."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and (errors[runs[-1]] >= 0) == (error >= 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    extra = [i for i in range(len(errors)) if i not in runs]
    return sorted(runs + extra[: count - len(runs)])


def fit(wanted: Fit) -> tuple[list[float], Decimal]:
    """Returns the rounded coefficients, by ascending power, and the greatest weighted error they leave."""
    middle, half = (wanted.low + wanted.high) / 2, (wanted.high - wanted.low) / 2
    xs = [middle - half * cosine(PI * (2 * i + 1) / (2 * GRID)) for i in range(GRID)]
    values, weights = [wanted.function(x) for x in xs], [abs(wanted.weight(x)) for x in xs]

    def error_of(coefficients: Sequence[float]) -> Decimal:
        return max(abs(w * e) for w, e in zip(weights, _rest(values, xs, coefficients, wanted.powers)))

    at_once = [rounded(c, wanted.bits) for c in remez(xs, values, weights, wanted.powers)]
    one_by_one: list[float] = []
    while len(one_by_one) < len(wanted.powers):
        rest = _rest(values, xs, one_by_one, wanted.powers)
        following = remez(xs, rest, weights, wanted.powers[len(one_by_one) :])
        one_by_one.append(rounded(following[0], wanted.bits))
    best = min(at_once, one_by_one, key=error_of)
    return best, error_of(best)


def _rest(
    values: Sequence[Decimal], xs: Sequence[Decimal], coefficients: Sequence[float], powers: Sequence[int]
) -> list[Decimal]:
    """Returns what the first coefficients leave of the values."""
    done = [(Decimal(c), p) for c, p in zip(coefficients, powers)]
    return [v - sum((c * x**p for c, p in done), Decimal(0)) for v, x in zip(values, xs)]


# ---- functions in 60 digits ----
def sine(x: Decimal) -> Decimal:
    return _series(x, x, lambda term, k: -term * x * x / ((2 * k) * (2 * k + 1)))


def cosine(x: Decimal) -> Decimal:
    return _series(x, Decimal(1), lambda term, k: -term * x * x / ((2 * k - 1) * (2 * k)))


def tanh(x: Decimal) -> Decimal:
    return 1 - 2 / ((2 * x).exp() + 1)


def erf(x: Decimal) -> Decimal:
    """2 / sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (2n+1)!!: all terms positive (DLMF 7.6.2)."""
    total = _series(x, x, lambda term, k: term * 2 * x * x / (2 * k + 1))
    return 2 / PI.sqrt() * (-x * x).exp() * total


def quantile_rest(w: Decimal) -> Decimal:
    """What the numbers beside it leave of x = c * sqrt(2 w + pi / 2), c = erf(x / sqrt(2)), w = -log(1 - c^2): near 1."""
    if not w:
        return Decimal(1)
    c = (1 - (-w).exp()).sqrt()
    scale = c * (2 * w + PI / 2).sqrt()
    x, step = scale, Decimal(1)
    while abs(step) > Decimal("1e-25") * x:
        distance = (erf(x / Decimal(2).sqrt()) - c) * (PI / 2).sqrt() * (x * x / 2).exp()
        step = distance / (1 + x * distance / 2)  # Halley's
        x -= step
    return x / scale


def _series(x: Decimal, first: Decimal, following: Callable[[Decimal, int], Decimal]) -> Decimal:
    total, term, k = Decimal(0), first, 1
    while term and abs(term) > abs(total) * Decimal("1e-58"):
        total, term, k = total + term, following(term, k), k + 1
    return total


def _quotient(numerator: Function, denominator: Function, limit: Decimal) -> Function:
    """numerator / denominator, and `limit` at 0."""
    return lambda x: limit if x == 0 else numerator(x) / denominator(x)


def _root(function: Function) -> Function:
    """The function of the square root: for odd and even functions, fitted in x squared."""
    return lambda z: function(z.sqrt())


def wanted_fits() -> list[Fit]:
    """Returns every polynomial of codegen/passes/functions.py."""
    reach, half = LN2 / 2 * Decimal("1.0001"), Decimal("0.50001")
    exp_rest = _quotient(lambda r: r.exp() - 1 - r, lambda r: r * r, Decimal("0.5"))
    exp2_rest = _quotient(lambda f: (f * LN2).exp() - 1, lambda f: f, LN2)
    log_rest = _quotient(lambda f: (1 + f).ln() - f + f * f / 2, lambda f: f**3, 1 / Decimal(3))
    log2_rest = _quotient(lambda f: ((1 + f).ln() - f) / LN2, lambda f: f * f, -1 / (2 * LN2))
    low, high = Decimal("0.5").sqrt() - 1, Decimal(2).sqrt() - 1
    turn = PI / 4 * Decimal("1.0001")
    atanh_rest = _root(lambda s: ((1 + s) / (1 - s)).ln() / s - 2 if s else Decimal(0))
    fits = []
    for bits, exp_n, exp2_n, sin_n, cos_n, tanh_n in ((32, 5, 6, 3, 3, 5), (64, 10, 11, 6, 6, 11)):
        fits += [
            Fit("EXP", exp_rest, lambda r: r * r / r.exp(), -reach, reach, tuple(range(exp_n)), bits),
            Fit("TANH", _root(lambda x: (tanh(x) - x) / x**3 if x else -1 / Decimal(3)),
                _root(lambda x: x**3 / tanh(x) if x else Decimal(0)), Decimal(0), Decimal("0.55") ** 2,
                tuple(range(tanh_n)), bits),
            Fit("EXP2", exp2_rest, lambda f: f / (f * LN2).exp(), -half, half, tuple(range(exp2_n)), bits),
            Fit("SIN", *_sine_fit(turn), tuple(range(sin_n)), bits),
            Fit("COS", _root(lambda x: (cosine(x) - 1 + x * x / 2) / x**4 if x else 1 / Decimal(24)),
                _root(lambda x: x**4 / cosine(x)), Decimal(0), turn**2, tuple(range(cos_n)), bits),
        ]  # fmt: skip
    fits += [
        Fit("LOG", log_rest, _quotient(lambda f: f**3, lambda f: (1 + f).ln(), Decimal(0)), low, high,
            tuple(range(9)), 32),
        Fit("LOG2", log2_rest, _quotient(lambda f: f * f, lambda f: (1 + f).ln() / LN2, Decimal(0)), low, high,
            tuple(range(9)), 32),
    ]  # fmt: skip
    for bits, atanh_n, wave_n in ((32, 3, 4), (64, 8, 8)):
        fits += [
            Fit("ATANH", atanh_rest, _root(lambda s: s / ((1 + s) / (1 - s)).ln() if s else Decimal("0.5")),
                Decimal(0), (high / (2 + high)) ** 2 * Decimal("1.0001"), tuple(range(1, atanh_n + 1)), bits),
            Fit("WAVE", *_sine_fit(2 * turn), tuple(range(wave_n)), bits),
        ]  # fmt: skip
        fits.append(_quantile_fit(18 if bits == 32 else 42, bits))
    return fits + _erf_fits()


def _sine_fit(reach: Decimal) -> tuple[Function, Function, Decimal, Decimal]:
    """Returns function, weight and interval of p in sin(x) = x + x**3 * p(x**2) up to |x| = reach."""
    rest = _root(lambda x: (sine(x) - x) / x**3 if x else -1 / Decimal(6))
    return rest, _root(lambda x: x**3 / sine(x) if x else Decimal(0)), Decimal(0), reach**2


def _quantile_fit(count: int, bits: int) -> Fit:
    """Returns the fit of x / (c * sqrt(2 w + pi / 2)) in t = (5 - w) / (5 + w), from w = 36 (x = 8.3) to 0."""
    five = Decimal(5)
    low = (five - 36) / (five + 36)
    return Fit("QUANTILE", lambda t: quantile_rest(five * (1 - t) / (1 + t)), lambda t: Decimal(1), low, Decimal(1),
               tuple(range(count)), bits)  # fmt: skip


def _erf_fits() -> list[Fit]:
    """Returns the fits of erf near 0, and of log(erfc) further out."""
    small = _root(lambda x: (erf(x) / x if x else 2 / PI.sqrt()) - 1)
    fits = []
    for bits, split, small_n, pieces in (
        (32, Decimal(1), 7, ((Decimal(1), Decimal("4"), 8),)),
        (64, Decimal(1), 12, ((Decimal(1), Decimal("1.75"), 15), (Decimal("1.75"), Decimal("6"), 15))),
    ):
        fits.append(Fit("ERF", small, lambda z: 1 / (erf(z.sqrt()) / z.sqrt()) if z else PI.sqrt() / 2, Decimal(0),
                        split**2, tuple(range(small_n)), bits))  # fmt: skip
        for low, high, count in pieces:
            middle = rounded((low + high) / 2, 32)
            fits.append(_log_erfc(low, high, Decimal(middle), count, bits))
    fits.append(Fit("LOG2_ERFC", lambda x: (1 - erf(x)).ln() / (LN2 * x), lambda x: x * (1 - erf(x)) * LN2, Decimal(0),
                    Decimal("4.25"), tuple(range(8)), 32))  # fmt: skip
    return fits


def _log_erfc(low: Decimal, high: Decimal, middle: Decimal, count: int, bits: int) -> Fit:
    def weight(t: Decimal) -> Decimal:
        return (1 - erf(t + middle)) / erf(t + middle)

    powers = tuple(range(count))
    return Fit(f"LOG_ERFC from {low}", lambda t: (1 - erf(t + middle)).ln(), weight, low - middle, high - middle,
               powers, bits)  # fmt: skip


def main() -> None:
    """Fits every polynomial and prints it as in picograd/codegen/passes/functions.py."""
    for wanted in wanted_fits():
        coefficients, error = fit(wanted)
        ulps = error * 2 ** (24 if wanted.bits == 32 else 53)
        print(f"    # {wanted.name} float{wanted.bits}: {error:.1e}, {ulps:.3f} half ulps")
        print("    " + ", ".join(repr(c) for c in coefficients) + ",")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.fit_polynomials")
