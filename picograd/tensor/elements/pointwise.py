"""Functions of numbers as compositions of few opcodes, exact where it matters and with gradients free of NaN.

In:    Ops of one shape and a float dtype (unless said)
Out:   Ops
Next:  picograd/tensor/elements/inverses.py

Where a formula holds on one side only, its input is replaced on the other side before it is used, so that the
branch not taken never multiplies a zero gradient by infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from picograd.dtype import Scalar, float64
from picograd.ir.build import both, compare, either, maximum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import cast, detached
from picograd.tensor.formulas import formula

Function = Callable[..., Op]


@formula
def absolute(x: Op) -> Op:
    """|x|, of any number; the derivative at 0 is 0."""
    if x.dtype.kind in "bu":
        return x
    greater = maximum(x, -x)
    return greater + 0.0 if x.dtype.is_float else greater  # of 0.0 and -0.0 either may be taken; the sum is 0.0


@formula
def sign(x: Op) -> Op:
    """-1, 0 or 1; of any number. Of a float it is a flat function of x, not a constant: its gradient is 0, not none."""
    minus_one, zero, one = (x.filled(value) for value in (-1, 0, 1))
    nothing = where(compare(OpCode.CMPEQ, x, zero), unary(OpCode.FLOOR, x) + 0.0, zero) if x.dtype.is_float else zero
    positive = where(compare(OpCode.CMPLT, zero, x), one, nothing)
    return positive if x.dtype.kind in "bu" else where(compare(OpCode.CMPLT, x, zero), minus_one, positive)


# ---- rounding ----
def floor(x: Op) -> Op:
    """Greatest integer <= x; integers are their own."""
    return unary(OpCode.FLOOR, x) if x.dtype.is_float else x


def ceil(x: Op) -> Op:
    """Least integer >= x; integers are their own."""
    return -unary(OpCode.FLOOR, -x) if x.dtype.is_float else x


@formula
def trunc(x: Op) -> Op:
    """x without its fraction; integers are their own."""
    return where(compare(OpCode.CMPLT, x, 0), ceil(x), floor(x)) if x.dtype.is_float else x


@formula
def round_even(x: Op) -> Op:
    """Nearest integer, halves to the even one; integers are their own."""
    if not x.dtype.is_float:
        return x
    low = floor(x)
    rest = x - low
    odd = compare(OpCode.CMPNE, floor(low * 0.5) * 2.0, low)
    up = either(compare(OpCode.CMPLT, 0.5, rest), both(compare(OpCode.CMPEQ, rest, 0.5), odd))
    return where(up, ceil(x), low)  # and not low + 1, which makes 0.0 of -0.5


@formula
def floor_divide(a: Op, b: Op) -> Op:
    """a / b rounded to minus infinity, from the exact remainder as Python and PyTorch do."""
    quotient = (a - Op(OpCode.MOD, a.dtype, (a, b))) / b
    nearest = round_even(quotient)
    signed = where(compare(OpCode.CMPEQ, nearest, 0.0), a / b * 0.0, nearest)  # a zero has the sign of a / b
    result = where(compare(OpCode.CMPEQ, b, 0.0), a / b, where(is_infinite(quotient), quotient, signed))
    apart = compare(OpCode.CMPLT, where(is_infinite(b), a * sign(b), a), 0.0)  # of a number and infinity: -1 or 0
    return where(both(is_infinite(b), is_finite(a)), where(apart, a.filled(-1.0), a / b), result)


@formula
def trunc_divide(a: Op, b: Op) -> Op:
    """a / b rounded toward zero; of integers exactly, without a float between."""
    if a.dtype.is_float:
        return trunc(a / b)
    low = Op(OpCode.IDIV, a.dtype, (a, b))
    if a.dtype.kind == "u":
        return low
    rest = compare(OpCode.CMPNE, Op(OpCode.MOD, a.dtype, (a, b)), 0)
    below = compare(OpCode.CMPLT, Op(OpCode.XOR, a.dtype, (a, b)), 0)  # the signs differ: floor went one too far
    return low + cast(both(rest, below), a.dtype)


# ---- tests ----
def is_nan(x: Op) -> Op:
    """True for NaN."""
    return compare(OpCode.CMPNE, x, x)


def nan_unless(condition: Op, x: Op) -> Op:
    """x where the condition holds, else NaN, with the derivative NaN."""
    return x * where(condition, x.filled(1.0), math.nan)


def is_infinite(x: Op) -> Op:
    """True for plus and minus infinity."""
    return compare(OpCode.CMPEQ, absolute(x), math.inf)


def is_finite(x: Op) -> Op:
    """True for neither NaN nor infinity."""
    return compare(OpCode.CMPLT, absolute(x), math.inf)


def is_extreme(x: Op, extreme: Op) -> Op:
    """True where x is the extreme of what it stands among, of any number: the extreme itself, or a NaN, which wins."""
    found = compare(OpCode.CMPEQ, x, extreme)
    return either(found, is_nan(x)) if x.dtype.is_float else found


# ---- powers and logarithms ----
def polynomial(x: Op, coefficients: Sequence[float]) -> Op:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    total = x.filled(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def constant_power(x: Op, exponent: Scalar) -> Op | None:
    """x ** exponent for the exponents that are products, roots or quotients; None for others."""
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
    if exponent == -2:  # not 1 / (x * x), of whose derivative 0 infinity is a factor at 0 and at infinity
        return unary(OpCode.RECIPROCAL, x) * unary(OpCode.RECIPROCAL, x)
    return None


@formula
def rsqrt(x: Op) -> Op:
    """1 / sqrt(x)."""
    return unary(OpCode.RECIPROCAL, unary(OpCode.SQRT, x))


@formula
def flat_sqrt(x: Op) -> Op:
    """sqrt(x) with the derivative 0 at 0, for lengths: 0 * infinity would make NaN of the gradient of what was squared."""
    zero = compare(OpCode.CMPEQ, x, 0.0)
    return where(zero, 0.0, unary(OpCode.SQRT, where(zero, 1.0, x)))


def log10(x: Op) -> Op:
    """Logarithm to base 10."""
    return unary(OpCode.LOG2, x) * math.log10(2)


@formula
def log1p(x: Op) -> Op:
    """log(1 + x), exact near 0: log1p(x) = 2 artanh(s) with s = x / (2 + x), a series in s^2."""
    near = compare(OpCode.CMPLT, absolute(x), 0.25)
    small = where(near, x, 0.0)
    s = small / (small + 2.0)
    square = s * s  # s^2 < 0.0205, so that six terms leave 2^-30, twelve 2^-64
    terms = 12 if x.dtype is float64 else 6
    series = polynomial(square, [1 / (2 * k + 1) for k in range(terms + 1)])
    held = where(near, 1.0, x)
    total = held + 1.0
    divisor = where(compare(OpCode.CMPEQ, total, 0.0), 1.0, total)
    lost = detached((held - (total - 1.0)) / divisor)  # what the sum has rounded away, as a part of it
    lost = where(compare(OpCode.CMPLT, absolute(held), 2.0**52), lost, 0.0)
    return where(near, s * series * 2.0, unary(OpCode.LOG, total) + lost)


@formula
def expm1(x: Op) -> Op:
    """exp(x) - 1, exact near 0: 2 t / (1 - t) with t = tanh(x / 2)."""
    near = compare(OpCode.CMPLT, absolute(x), 0.5)
    t = unary(OpCode.TANH, where(near, x, 0.0) * 0.5)
    return where(near, t * 2.0 / (-t + 1.0), unary(OpCode.EXP, x) - 1.0)


# ---- trigonometry ----
@formula
def tan(x: Op) -> Op:
    """sin(x) / cos(x)."""
    return unary(OpCode.SIN, x) / unary(OpCode.COS, x)


@formula
def sinh(x: Op) -> Op:
    """(exp(x) - exp(-x)) / 2, exact near 0."""
    near = compare(OpCode.CMPLT, absolute(x), 0.5)
    e = expm1(where(near, x, 0.0))
    far, large = _half_exp(x)
    held = where(far, 0.0, x)
    middle = (unary(OpCode.EXP, held) - unary(OpCode.EXP, -held)) * 0.5
    return where(near, (e + e / (e + 1.0)) * 0.5, where(far, where(compare(OpCode.CMPLT, x, 0), -large, large), middle))


@formula
def cosh(x: Op) -> Op:
    """(exp(x) + exp(-x)) / 2."""
    far, large = _half_exp(x)
    held = where(far, 0.0, x)
    return where(far, large, (unary(OpCode.EXP, held) + unary(OpCode.EXP, -held)) * 0.5)


def _half_exp(x: Op) -> tuple[Op, Op]:
    """Returns where |x| is so large that exp(|x|) may overflow, and exp(|x|) / 2 there."""
    magnitude = absolute(x)
    far = compare(OpCode.CMPLT, _exp_limit(x) - 1, magnitude)
    root = unary(OpCode.EXP, where(far, magnitude, 0.0) * 0.5)
    return far, root * 0.5 * root


@formula
def sinc(x: Op) -> Op:
    """sin(pi x) / (pi x); near 0, where derivatives of the quotient lose digits, its series in x^2."""
    near = compare(OpCode.CMPLT, absolute(x), 0.15)
    small = where(near, x, 0.0) * math.pi
    terms = 9 if x.dtype is float64 else 5
    series = polynomial(small * small, [(-1) ** k / math.factorial(2 * k + 1) for k in range(terms)])
    held = where(near, 1.0, x)
    whole = round_even(held)
    sine = unary(OpCode.SIN, (held - whole) * math.pi)  # of what is left of whole turns: pi x has too few digits
    odd = compare(OpCode.CMPNE, floor(whole * 0.5) * 2.0, whole)
    return where(near, series, where(odd, -sine, sine) / (held * math.pi))


@formula
def logit(x: Op, eps: float | None) -> Op:
    """log(x / (1 - x)), of x held between eps and 1 - eps; near 1/2 by way of 2 x - 1, which is exact there."""
    if eps is not None:
        x = clamp(x, eps, 1.0 - eps)
    else:
        x = nan_unless(both(compare(OpCode.CMPLE, 0.0, x), compare(OpCode.CMPLE, x, 1.0)), x)
    centered = x * 2.0 - 1.0
    near = compare(OpCode.CMPLT, absolute(centered), 0.5)
    z, held = where(near, centered, 0.0), where(near, 0.5, x)
    return where(near, log1p(z) - log1p(-z), unary(OpCode.LOG, held) - log1p(-held))


def nan_to_num(x: Op, nan: float, posinf: float, neginf: float) -> Op:
    """x with numbers for NaN and infinities."""
    x = where(is_nan(x), nan, x)
    x = where(compare(OpCode.CMPEQ, x, math.inf), posinf, x)
    return where(compare(OpCode.CMPEQ, x, -math.inf), neginf, x)


# ---- activations ----
@formula
def relu(x: Op) -> Op:
    """0 where x <= 0, else x; of any number. NaN stays."""
    return where(compare(OpCode.CMPLE, x, 0), 0, x)


@formula
def sigmoid(x: Op) -> Op:
    """1 / (1 + exp(-x))."""
    return _logistic(_held(x))


@formula
def silu(x: Op) -> Op:
    """x * sigmoid(x); of -inf and what is near it 0 too."""
    held = _held(x)
    return held * _logistic(held)


@formula
def mish(x: Op) -> Op:
    """x * tanh(softplus(x)); of -inf and what is near it 0 too."""
    held = _held(x)
    return held * unary(OpCode.TANH, softplus(held, 1.0, 20.0))


def _held(x: Op) -> Op:
    """x, but no less than where exp(-x) overflows: so the gradient is 0 there and not NaN."""
    least = -_exp_limit(x)
    return where(compare(OpCode.CMPLT, x, least), least, x)


def _exp_limit(x: Op) -> int:
    """Greatest integer whose exponential is finite."""
    return math.floor(math.log(x.dtype.largest))


def _logistic(x: Op) -> Op:
    return unary(OpCode.RECIPROCAL, unary(OpCode.EXP, -x) + 1.0)


@formula
def softplus(x: Op, beta: float, threshold: float) -> Op:
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold."""
    scaled = x * beta
    large = compare(OpCode.CMPLT, threshold, scaled)
    return where(large, x, log1p(unary(OpCode.EXP, where(large, 0.0, scaled))) / beta)


@formula
def gelu(x: Op, approximate: bool) -> Op:
    """x times the normal distribution function of x (Hendrycks, Gimpel 2016, arXiv:1606.08415), or its tanh form."""
    if approximate:
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (unary(OpCode.TANH, inner) + 1.0)
    return x * 0.5 * (unary(OpCode.ERF, x * math.sqrt(0.5)) + 1.0)


def clamp(x: Op, low: Any, high: Any) -> Op:
    """x held between low and high (scalars or None); the gradient at a bound is 1, as in PyTorch."""
    if low is not None:
        x = where(compare(OpCode.CMPLT, x, low), low, x)
    if high is not None:
        x = where(compare(OpCode.CMPLT, high, x), high, x)
    return x


def clamp_to(x: Op, limit: Op, low: bool) -> Op:
    """x held above or below a limit; a limit that is NaN gives NaN."""
    past = compare(OpCode.CMPLT, x, limit) if low else compare(OpCode.CMPLT, limit, x)
    return where(either(past, is_nan(limit)) if x.dtype.is_float else past, limit, x)
