"""Modified Bessel functions of order 0 and 1: a power series up to 8, a fit in 1 / x beyond.

In:    float64 Ops of one shape
Out:   float64 Ops
Next:  picograd/tensor/elements/pairs.py
"""

from __future__ import annotations

import math

from picograd.ir.build import compare, either, minimum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.elements.inverses import is_negative, negated
from picograd.tensor.elements.normal import chebyshev
from picograd.tensor.elements.pointwise import absolute, polynomial

NEAR = 8.0
LARGEST = 713.0  # of float64 whose I0 and I1 are finite
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
    """Returns where x >= 0 is near, I(x) there, and e^-x I(x) beyond."""
    near = compare(OpCode.CMPLE, x, NEAR)
    inner = where(near, x, 0.0)
    quarter = inner * inner * 0.25
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(27)]
    total = polynomial(quarter, terms)
    if order:
        total = total * (where(near, x, 1.0) * 0.5)
    held = minimum(where(near, NEAR, x), 1e300)  # e^inf times 0 would be NaN
    far = chebyshev(x.filled(16.0) / held - 1.0, FAR_1 if order else FAR_0) / unary(OpCode.SQRT, held)
    return near, total, far


def bessel(x: Op, order: int, scaled: bool) -> Op:
    """I0 or I1 of x; scaled: times e^-|x|. I0 is even, I1 odd."""
    low = is_negative(x)
    magnitude = negated(low, x)
    near, direct, far = _branches(magnitude, order)
    if scaled:
        value = where(near, direct * unary(OpCode.EXP, -absolute(where(near, x, 0.0))), far)  # flat at 0, as |x| is
    else:
        endless = compare(OpCode.CMPLT, LARGEST, magnitude)  # where it overflows, its derivatives do
        half = unary(OpCode.EXP, where(either(near, endless), 0.0, magnitude) * 0.5)  # e^x overflows before e^x / sqrt(x)
        beyond = magnitude * magnitude * where(endless, x.filled(math.inf), 1.0)
        value = where(endless, beyond, where(near, direct, half * far * half))
    return negated(low, value) if order else value
