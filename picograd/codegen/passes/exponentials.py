"""exp, exp2, log, log2, tanh, erf and pow as arithmetic that every vector unit has.

In:    scalar Ops of dtype float32 or float64
Out:   scalar Ops made of FMA, MUL, ADD, SUB, DIV, WHERE, comparisons and integer operations on the bits
Called by: codegen/passes/legalize.py.    Next: picograd/codegen/passes/trigonometry.py

Greatest errors in ulp, against float64 and long double; tests/codegen/passes/test_legalize.py measures them:

           exp   exp2  log   log2  tanh  erf   pow
  float32  0.9   0.9   0.8   1.0   1.6   1.6   0.6
  float64  0.9   1.0   0.8   0.6   1.6   1.1   1.2

Source: the reductions are those of Muller, "Elementary Functions", chapters 4 and 5; the polynomials are our own.
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.codegen.passes.polynomials import ATANH, ERF, ERF_IS_ONE, EXP, EXP2, LOG, LOG2, LOG_ERFC, TANH
from picograd.codegen.scalar import (
    FORMATS,
    absolute,
    and_,
    at_least,
    at_most,
    bitcast,
    bits_of,
    both,
    cast,
    differs,
    equal,
    floor,
    fma,
    horner,
    less,
    like,
    or_,
    shl,
    shr,
    where,
    with_sign_of,
    xor,
)  # fmt: skip
from picograd.ir.op import Op, const

LOG2_E = 1 / math.log(2)
# log(2) and 1/log(2) in two parts; the first part of LOG2 has zeros at its end, so that small multiples are exact.
LN2 = {
    dtypes.float32: (0.693145751953125, 1.4286067653302226e-06),
    dtypes.float64: (0.6931471803691238, 1.9082149292705877e-10),
}
LN2_NEAREST = {
    dtypes.float32: (0.6931471824645996, -1.904654323148236e-09),
    dtypes.float64: (0.6931471805599453, 2.3190468138462996e-17),
}
LOG2_E_PARTS = {
    dtypes.float32: (1.4426950216293335, 1.9259629911266175e-08),
    dtypes.float64: (1.4426950408889634, 2.0355273740931033e-17),
}
EXP_RANGE = {dtypes.float32: (-104.0, 89.0), dtypes.float64: (-746.0, 710.0)}  # beyond: 0 and infinity
EXP2_RANGE = {dtypes.float32: (-151.0, 129.0), dtypes.float64: (-1076.0, 1025.0)}
TANH_IS_ONE = {dtypes.float32: 20.0, dtypes.float64: 40.0}  # from 2 |x| on
SQRT_HALF_BITS = {dtypes.float32: 0x3F3504F3, dtypes.float64: 0x3FE6A09E667F3BCD}


# ---- exponentials ----
def exp(x: Op) -> Op:
    """e**x = 2**n * e**r with n = round(x / log 2): 17 instructions."""
    low, high = EXP_RANGE[x.dtype]
    return exp_inside(at_most(at_least(x, low), high))


def exp_inside(x: Op, low: Op | None = None) -> Op:
    """exp of x + low for an x within the range; `low` is small beside x."""
    shifted, n = _nearest(x, LOG2_E)
    first, second = LN2_NEAREST[x.dtype]
    r = fma(n, -second, fma(n, -first, x))
    r = r if low is None else r + low
    return _times_power_of_two(fma(fma(horner(r, EXP[x.dtype]), r, 1.0), r, 1.0), shifted)


def exp2(x: Op) -> Op:
    """2**x = 2**n * 2**f with n = round(x)."""
    low, high = EXP2_RANGE[x.dtype]
    x = at_most(at_least(x, low), high)
    shifted, n = _nearest(x, 1.0)
    f = x - n
    return _times_power_of_two(fma(horner(f, EXP2[x.dtype]), f, 1.0), shifted)


def _nearest(x: Op, factor: float) -> tuple[Op, Op]:
    """Returns n = round(x * factor) as a float, and a float whose low bits are n + 2 * bias."""
    form = FORMATS[x.dtype]
    magic = form.round_magic + 2 * form.bias
    shifted = x + magic if factor == 1.0 else fma(x, factor, magic)
    return shifted, shifted - magic


def _times_power_of_two(y: Op, shifted: Op) -> Op:
    """Returns y * 2**n in two steps, so that subnormal results are rounded once and overflow gives infinity."""
    form, bits = FORMATS[y.dtype], bits_of(shifted)
    half = shr(bits, 1)  # the low bits are n // 2 + bias; what stands above them is shifted out
    first, second = (bitcast(shl(part, form.mantissa), y.dtype) for part in (half, bits - half))
    return y * first * second


def tanh(x: Op) -> Op:
    """A polynomial up to 0.55; above, 1 - 2 / (exp(2 |x|) + 1)."""
    a = absolute(x)
    square = a * a
    small = fma(horner(square, TANH[x.dtype]) * square, a, a)
    large = like(1.0, x) - like(2.0, x) / (exp_inside(at_most(a + a, TANH_IS_ONE[x.dtype])) + 1.0)
    return with_sign_of(where(less(a, 0.55), small, large), x)


def erf(x: Op) -> Op:
    """A polynomial up to 1; above, 1 - exp(log(erfc(x))) with a polynomial for the logarithm."""
    a = absolute(x)
    small = fma(horner(a * a, ERF[x.dtype]), a, a)
    limited = at_most(a, ERF_IS_ONE[x.dtype])
    log_erfc: Op | None = None
    for low, middle, coefficients in LOG_ERFC[x.dtype]:
        piece = horner(limited - middle, coefficients)
        log_erfc = piece if log_erfc is None else where(less(limited, low), log_erfc, piece)
    assert log_erfc is not None
    large = like(1.0, x) - exp_inside(at_least(log_erfc, -50.0))
    return with_sign_of(where(less(a, 1.0), small, large), x)


# ---- logarithms ----
def _exponent_and_fraction(x: Op) -> tuple[Op, Op]:
    """Returns n and f with x = 2**n * (1 + f), sqrt(1/2) <= 1 + f <= sqrt(2); subnormals are scaled up first."""
    form = FORMATS[x.dtype]
    tiny = less(x, 2.0 ** (1 - form.bias))
    lift = form.mantissa + 2
    scaled = where(tiny, x * 2.0**lift, x)
    bits, root = bitcast(scaled, form.signed), SQRT_HALF_BITS[x.dtype]
    exponent = shr(bits - root, form.mantissa)
    fraction = bitcast(bits - shl(exponent, form.mantissa), x.dtype) - 1.0
    return cast(exponent + where(tiny, const(-lift, form.signed), 0), x.dtype), fraction


def _at_the_limits(x: Op, y: Op) -> Op:
    """Returns y, the logarithm of an x > 0, put right at 0, below it, at infinity and at NaN."""
    y = where(equal(x, math.inf), x, y)
    return where(less(like(0.0, x), x), y, where(equal(x, 0.0), like(-math.inf, x), math.nan))


def log(x: Op) -> Op:
    """Returns log(x) = n log 2 + log(1 + f), with x = 2^n (1 + f)."""
    n, f = _exponent_and_fraction(x)
    first, second = LN2[x.dtype]
    if x.dtype is dtypes.float32:
        square = f * f
        y = fma(n, second, horner(f, LOG[x.dtype]) * f * square)
        y = fma(square, -0.5, y) + f
        return _at_the_limits(x, fma(n, first, y))
    high, low = _log_of_fraction(f)
    return _at_the_limits(x, fma(n, first, high + fma(n, second, low)))


def log2(x: Op) -> Op:
    """Returns log2(x) = n + log2(1 + f), with x = 2^n (1 + f); float64 carries the sum in two parts."""
    n, f = _exponent_and_fraction(x)
    first, second = LOG2_E_PARTS[x.dtype]
    if x.dtype is dtypes.float32:
        y = fma(f, second, horner(f, LOG2[x.dtype]) * f * f)
        return _at_the_limits(x, fma(f, first, y) + n)
    high, low = _log_of_fraction(f)
    product = high * first
    rest = fma(high, first, -product) + fma(high, second, low * first)
    total, error = _two_sum(n, product)
    return _at_the_limits(x, total + (error + rest))


def _log_of_fraction(f: Op) -> tuple[Op, Op]:
    """Returns log(1 + f) as the sum of two float64, good to about 2**-60 of it.

    log(1 + f) = 2 s + s z p(z) with s = f / (2 + f), z = s**2; s is kept in two parts.
    """
    below = f + 2.0
    below_rest = f - (below - 2.0)
    s = f / below
    s_rest = (fma(-s, below, f) - s * below_rest) / below
    z = s * s
    high = s + s
    tail = fma(horner(z, ATANH[f.dtype]) * z, s, s_rest + s_rest)
    return _fast_two_sum(high, tail)


def _two_sum(a: Op, b: Op) -> tuple[Op, Op]:
    """Returns the rounded sum and its error (Knuth, The Art of Computer Programming 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_two_sum(a: Op, b: Op) -> tuple[Op, Op]:
    """The same for |a| >= |b| (Dekker 1971)."""
    total = a + b
    return total, b - (total - a)


# ---- powers ----
def pow_(x: Op, y: Op) -> Op:
    """x**y as in C: exp(y * log|x|), and then the signs and limits.

    float32 is computed in float64, whose error then disappears; float64 carries a second part of the logarithm.
    """
    if x.dtype is dtypes.float32:
        x, y = cast(x, dtypes.float64), cast(y, dtypes.float64)
        return cast(_power_at_the_limits(x, y, _power_for_float32(absolute(x), y)), dtypes.float32)
    return _power_at_the_limits(x, y, _power(absolute(x), y))


def _power_for_float32(base: Op, y: Op) -> Op:
    n, f = _exponent_and_fraction(base)
    s = f / (f + 2.0)
    z = s * s
    logarithm = fma(n, math.log(2), fma(horner(z, ATANH[f.dtype]) * z, s, s + s))
    return exp(y * logarithm)


def _power(base: Op, y: Op) -> Op:
    """Returns base ** y for base > 0: exp of y log(base), the product carried in two parts."""
    n, f = _exponent_and_fraction(base)
    high, low = _log_of_fraction(f)
    first, second = LN2[base.dtype]
    total, error = _two_sum(n * first, high)
    high, low = _fast_two_sum(total, error + fma(n, second, low))
    product = y * high
    rest = fma(y, high, -product) + y * low
    lowest, highest = EXP_RANGE[base.dtype]
    inside = both(less(like(lowest, y), product), less(product, highest))
    return exp_inside(at_most(at_least(product, lowest), highest), where(inside, rest, 0.0))


def _power_at_the_limits(x: Op, y: Op, result: Op) -> Op:
    """Puts a power right where x is 0, negative or infinite, and where y is 0 or infinite (C17, F.10.4.4)."""
    magnitude = absolute(x)
    zero, infinite = equal(magnitude, 0.0), equal(magnitude, math.inf)
    negative_y = less(y, 0.0)
    result = where(zero, where(negative_y, like(math.inf, x), 0.0), result)
    result = where(infinite, where(negative_y, like(0.0, x), math.inf), result)
    grows = xor(less(like(1.0, x), magnitude), negative_y)
    result = where(equal(absolute(y), math.inf), where(grows, like(math.inf, x), 0.0), result)
    is_whole, half = equal(floor(y), y), y * 0.5
    is_odd = both(is_whole, differs(floor(half), half))
    below_zero = differs(and_(bits_of(x), FORMATS[x.dtype].sign), 0)
    flipped = bitcast(or_(bits_of(result), FORMATS[x.dtype].sign), x.dtype)
    result = where(both(below_zero, is_odd), flipped, result)
    finite_below = both(less(x, 0.0), both(differs(x, -math.inf), differs(is_whole, True)))
    result = where(finite_below, like(math.nan, x), result)
    result = where(both(equal(magnitude, 1.0), equal(absolute(y), math.inf)), like(1.0, x), result)
    result = where(differs(x, x), x, where(differs(y, y), y, result))
    return where(or_(equal(x, 1.0), equal(y, 0.0)), like(1.0, x), result)
