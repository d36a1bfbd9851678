"""Functions of two numbers that arithmetic alone does not give: remainders, signs, bits, sums of exponentials.

In:    Ops of one shape and dtype
Out:   Ops
Next:  picograd/tensor/reductions/reduce.py
"""

from __future__ import annotations

import math

from picograd.dtype import float64, int32, int64
from picograd.ir.build import both, cast, compare, either, unary, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.elements.inverses import BITS, is_negative, negated
from picograd.tensor.elements.pointwise import absolute, is_finite, is_infinite, is_nan, log1p, trunc_divide

DIVISIONS = {8: 12, 16: 23, 32: 46, 64: 92}  # of Euclid's algorithm, for neighbours in Fibonacci's sequence


# ---- remainders and divisors ----
def fmod(a: Op, b: Op) -> Op:
    """What division rounded toward zero leaves; it has the sign of a."""
    if not a.dtype.is_float:
        return a - trunc_divide(a, b) * b
    below = is_negative(a)
    return negated(below, Op(OpCode.MOD, a.dtype, (negated(below, a), negated(is_negative(b), b))))


def gcd(a: Op, b: Op) -> Op:
    """The greatest common divisor of integers, never negative, by as many divisions as the dtype can need."""
    a, b = absolute(a), absolute(b)
    for _ in range(DIVISIONS[a.dtype.bits]):
        done = compare(OpCode.CMPEQ, b, 0)
        a, b = where(done, a, b), where(done, b, Op(OpCode.MOD, a.dtype, (a, where(done, 1, b))))
    return a


def lcm(a: Op, b: Op) -> Op:
    """The least common multiple of integers, 0 where one of them is 0; one that overflows wraps around, as products do."""
    divisor = gcd(a, b)
    return trunc_divide(absolute(a), where(compare(OpCode.CMPEQ, divisor, 0), 1, divisor)) * absolute(b)


# ---- choices ----
def fmax(a: Op, b: Op) -> Op:
    """The greater of both; a number wins over NaN. Of equals a gets the gradient, as in PyTorch."""
    return where(either(compare(OpCode.CMPLE, b, a), is_nan(b)), a, b) if a.dtype.is_float else _extreme(OpCode.MAX, a, b)


def fmin(a: Op, b: Op) -> Op:
    """The smaller of both; a number wins over NaN. Of equals a gets the gradient, as in PyTorch."""
    return where(either(compare(OpCode.CMPLE, a, b), is_nan(b)), a, b) if a.dtype.is_float else _extreme(OpCode.MIN, a, b)


def _extreme(code: OpCode, a: Op, b: Op) -> Op:
    return Op(code, a.dtype, (a, b))


def heaviside(x: Op, values: Op) -> Op:
    """0 where x < 0, 1 where x > 0, `values` where x = 0; of NaN 0, as in PyTorch."""
    above = compare(OpCode.CMPLT, 0, x)
    return where(compare(OpCode.CMPEQ, x, 0), values, where(above, x.filled(1), 0))


def copysign(a: Op, b: Op) -> Op:
    """|a| with the sign bit of b; the derivative at a = 0 is 0, as in PyTorch."""
    low = is_negative(b)
    zero = where(low, a.filled(-0.0), a.filled(0.0))
    differs = compare(OpCode.CMPNE, is_negative(a), low)
    return where(compare(OpCode.CMPEQ, a, 0.0), zero, negated(differs, a))


# ---- sums of exponentials ----
def logaddexp(a: Op, b: Op) -> Op:
    """log(e^a + e^b), the greater plus log1p(e^(smaller - greater)); equal infinities share the gradient."""
    return _shared(a, b, joined_logs(a, b))


def joined_logs(a: Op, b: Op) -> Op:
    """The same, of which a takes the whole gradient of equal infinities."""
    high, rest = _apart(a, b)
    return high + log1p(unary(OpCode.EXP, rest))


def logaddexp2(a: Op, b: Op) -> Op:
    """log2(2^a + 2^b) without overflow; equal infinities share the gradient."""
    high, rest = _apart(a, b)
    return _shared(a, b, high + log1p(unary(OpCode.EXP2, rest)) / math.log(2))


def _apart(a: Op, b: Op) -> tuple[Op, Op]:
    """Returns the greater and what the smaller is below it; 0 of equal infinities."""
    steep = compare(OpCode.CMPLT, a, b)
    high, low = where(steep, b, a), where(steep, a, b)
    same = _same_infinity(a, b)
    return high, where(same, 0.0, where(same, 0.0, low) - where(same, 0.0, high))


def _shared(a: Op, b: Op, total: Op) -> Op:
    return where(_same_infinity(a, b), a * 0.5 + b * 0.5, total)


def _same_infinity(a: Op, b: Op) -> Op:
    return both(compare(OpCode.CMPEQ, a, b), is_infinite(a))


# ---- products with logarithms ----
def xlogy(x: Op, y: Op) -> Op:
    """x log(y), and 0 where x = 0 unless y is NaN."""
    return _steep(x, y, x * unary(OpCode.LOG, where(_no_logarithm(x, y), 1.0, y)))


def xlog1py(x: Op, y: Op) -> Op:
    """x log(1 + y), and 0 where x = 0 unless y is NaN."""
    return _steep(x, y, x * log1p(where(_no_logarithm(x, y + 1.0), 0.0, y)))


def _no_logarithm(x: Op, y: Op) -> Op:
    outside = either(compare(OpCode.CMPLE, y, 0.0), is_infinite(y))
    return both(compare(OpCode.CMPEQ, x, 0.0), outside)


def _steep(x: Op, y: Op, product: Op) -> Op:
    """The product, but with y = infinity a root of x = 0: its derivative is infinite, as the logarithm is."""
    steep = both(compare(OpCode.CMPEQ, x, 0.0), compare(OpCode.CMPEQ, y, math.inf))
    return where(steep, unary(OpCode.SQRT, where(steep, x, 1.0) + 0.0), product)


# ---- the parts of a float ----
def nextafter(a: Op, b: Op) -> Op:
    """The next float after a in the direction of b, with the derivative 1 in a: a plus the step there, which is exact."""
    after = detached(_next(a, b))
    moves = both(both(compare(OpCode.CMPNE, a, b), is_finite(a)), compare(OpCode.CMPNE, after, 0.0))
    return where(moves, a + (after - detached(where(moves, a, 0.0))), after)


def _next(a: Op, b: Op) -> Op:
    """The next float after a in the direction of b: its bits, as an integer, plus or minus 1."""
    bits = BITS[a.dtype.itemsize]
    number = Op(OpCode.BITCAST, bits, (a,))
    outward = compare(OpCode.CMPEQ, compare(OpCode.CMPLT, a, b), compare(OpCode.CMPLT, 0.0, a))
    moved = Op(OpCode.BITCAST, a.dtype, (number + where(outward, filled(1, bits, a.shape), filled(-1, bits, a.shape)),))
    least = Op(OpCode.BITCAST, a.dtype, (filled(1, bits, a.shape),))
    result = where(compare(OpCode.CMPEQ, a, 0.0), negated(is_negative(b), least), moved)
    result = where(compare(OpCode.CMPEQ, a, b), b, result)
    return where(either(is_nan(a), is_nan(b)), a.filled(math.nan), result)


def frexp(x: Op) -> tuple[Op, Op]:
    """A mantissa of 1/2 <= |m| < 1 and an int32 exponent with x = m 2^e; 0 has the exponent 0, inf and NaN too."""
    stored, bias = x.dtype.precision - 1, x.dtype.exponent_bias
    width = x.dtype.bits - x.dtype.precision
    normal = compare(OpCode.CMPLE, 2.0 ** (1 - bias), absolute(x))
    raised = where(normal, x, x * 2.0 ** (stored + 2))  # below the normal numbers
    bits = BITS[x.dtype.itemsize]
    number = Op(OpCode.BITCAST, bits, (raised,))
    shifted = Op(OpCode.SHR, bits, (number, filled(stored, bits, x.shape)))
    biased = Op(OpCode.AND, bits, (shifted, filled((1 << width) - 1, bits, x.shape)))
    power = cast(biased, int32) - (bias - 1)
    odd = either(compare(OpCode.CMPEQ, x, 0.0), either(is_infinite(x), is_nan(x)))
    power = where(odd, 0, power)
    mantissa = where(odd, x, _scaled(raised, power))
    return mantissa, where(normal, power, where(odd, 0, power - (stored + 2)))


def _scaled(x: Op, power: Op) -> Op:
    """x 2^-power in two steps, since one of the factors 2^-128 and 2^128 is none of a float32."""
    half = Op(OpCode.SHR, power.dtype, (power, power.filled(1)))
    for part in (half, power - half):
        x = x * unary(OpCode.EXP2, cast(-part, x.dtype))
    return x


# ---- nearness ----
def is_close(a: Op, b: Op, rtol: float, atol: float, equal_nan: bool) -> Op:
    """|a - b| <= atol + rtol |b|; equal infinities are close, NaN to NaN only if asked."""
    near = compare(OpCode.CMPEQ, a, b)
    if a.dtype.kind == "b" or (rtol == 0 and atol == 0):
        close = near
    elif a.dtype.is_float:
        allowed = absolute(b * rtol) + atol
        distance = absolute(a - b)
        finite = compare(OpCode.CMPLT, distance, math.inf)
        close = either(near, both(finite, compare(OpCode.CMPLE, distance, allowed)))
    else:
        wide = [cast(x, int64) for x in (a, b)]
        bound = absolute(cast(wide[1], float64) * rtol) + atol
        close = either(near, compare(OpCode.CMPLE, cast(absolute(wide[0] - wide[1]), float64), bound))
    return either(close, both(is_nan(a), is_nan(b))) if equal_nan and a.dtype.is_float else close
