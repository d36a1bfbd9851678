"""exp, exp2, log, log2, tanh, erf, pow, sin and cos as arithmetic that every vector unit has.

In:    scalar Ops of dtype float32 or float64
Out:   scalar Ops made of FMA, MUL, ADD, SUB, DIV, WHERE, comparisons and integer operations on the bits

Greatest errors in ulp, against float64 and long double; tests/codegen/passes/test_legalize.py measures them:

           exp   exp2  log   log2  tanh  erf   pow   sin, cos
  float32  0.9   0.9   0.8   1.0   1.6   1.6   0.6   1.6
  float64  0.9   1.0   0.8   0.6   1.6   1.1   1.2   2.1

Sources: the reductions are those of Muller, "Elementary Functions", chapters 4 and 5; the polynomials are fitted by
`python -m tools.fit_polynomials`. An argument of sin or cos is reduced to a quarter turn and a rest of at most pi / 4; a
large one needs as many bits of 1 / (2 pi) as it has before the point (Payne and Hanek 1983, "Radian reduction for
trigonometric functions").
"""

from __future__ import annotations

import math
from functools import cache
from math import pi

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.build import (
    absolute,
    and_,
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
    maximum,
    minimum,
    or_,
    shl,
    shr,
    where,
    with_sign_of,
    xor,
)
from picograd.ir.op import Op, const
from picograd.ir.opcode import ROUGHLY, OpCode

# ---- polynomials ----
Coefficients = dict[DType, tuple[float, ...]]

# exp(r) = 1 + r + r**2 * p(r)                     |r| <= log(2) / 2
EXP: Coefficients = {
    dtypes.float32: (  # 3.2e-9, 0.053 half ulps
        0.4999999403953552, 0.16666516661643982, 0.04166810214519501, 0.008369192481040955, 0.0013838903978466988,
    ),
    dtypes.float64: (  # 1.1e-17, 0.097 half ulps
        0.5000000000000011, 0.16666666666666413, 0.041666666666530155, 0.008333333333494472, 0.0013888888943630812,
        0.0001984126950657026, 2.4801493098157794e-05, 2.7557586375240366e-06, 2.763024863612009e-07,
        2.500006217099606e-08,
    ),
}  # fmt: skip

# tanh(x) = x + x**3 * p(x**2)                     |x| <= 0.55
TANH: Coefficients = {
    dtypes.float32: (  # 1.1e-9, 0.019 half ulps
        -0.33333316445350647, 0.13332544267177582, -0.0538475476205349, 0.02105071395635605, -0.006242848467081785,
    ),
    dtypes.float64: (  # 5.8e-19, 0.005 half ulps
        -0.333333333333333, 0.1333333333332658, -0.053968253963736626, 0.0218694883851548, -0.008863232589692073,
        0.003592091908947431, -0.0014555420447971304, 0.0005884411124264813, -0.00023337277915737046,
        8.330356306873642e-05, -1.9486553206373623e-05,
    ),
}  # fmt: skip

# 2**f = 1 + f * p(f)                              |f| <= 1 / 2
EXP2: Coefficients = {
    dtypes.float32: (  # 1.2e-8, 0.210 half ulps
        0.6931471824645996, 0.24022594094276428, 0.055503662675619125, 0.00962543673813343, 0.0013387887738645077,
        0.00013336501433514059,
    ),
    dtypes.float64: (  # 2.7e-17, 0.246 half ulps
        0.6931471805599453, 0.2402265069591013, 0.055504108664820084, 0.009618129107594115, 0.0013333558146774603,
        0.00015403530457118052, 1.525273349315832e-05, 1.3215435279019327e-06, 1.0178199554447361e-07,
        7.0737838597080265e-09, 4.434774528707342e-10,
    ),
}  # fmt: skip

# sin(x) = x + x**3 * p(x**2)                      |x| <= pi / 4
SIN: Coefficients = {
    dtypes.float32: (  # 4.0e-9, 0.067 half ulps
        -0.16666655242443085, 0.008332189172506332, -0.00019518285989761353,
    ),
    dtypes.float64: (  # 3.7e-18, 0.034 half ulps
        -0.1666666666666663, 0.00833333333332184, -0.00019841269829358536, 2.755731353852112e-06,
        -2.5050734391007662e-08, 1.5895433427877311e-10,
    ),
}  # fmt: skip

# cos(x) = 1 - x**2 / 2 + x**4 * p(x**2)           |x| <= pi / 4
COS: Coefficients = {
    dtypes.float32: (  # 1.2e-10, 0.002 half ulps
        0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05,
    ),
    dtypes.float64: (  # 5.7e-20, 0.001 half ulps
        0.041666666666666595, -0.0013888888888873338, 2.480158728899752e-05, -2.7557314215323095e-07,
        2.0875705120035494e-09, -1.1358733123297001e-11,
    ),
}  # fmt: skip

# sin(x) = x + x**3 * p(x**2)                      |x| <= pi / 2, for tensor/random.py
WAVE: Coefficients = {
    dtypes.float32: (  # 6.2e-9, 0.103 half ulps
        -0.16666659712791443, 0.008333069272339344, -0.00019809776858892292, 2.606095677037956e-06,
    ),
    dtypes.float64: (  # 3.1e-19, 0.003 half ulps
        -0.16666666666666666, 0.008333333333333207, -0.0001984126984121248, 2.7557319211569486e-06,
        -2.50521069044239e-08, 1.6058941002215494e-10, -7.643019351907258e-13, 2.721418932552798e-15,
    ),
}  # fmt: skip

# x = c * sqrt(2 * w + pi / 2) * p(t)              c = erf(x / sqrt(2)), w = -log(1 - c**2) <= 36, t = (5 - w) / (5 + w),
#                                                  for tensor/random.py
QUANTILE: Coefficients = {
    dtypes.float32: (  # 4.1e-08, 0.682 half ulps
        0.8646843433380127, -0.14117158949375153, 0.04006145894527435, 0.14573052525520325, 0.09433181583881378,
        -0.08018367737531662, -0.02641012705862522, 0.14522625505924225, -0.017789889127016068, -0.14119631052017212,
        0.139994278550148, 0.08404884487390518, -0.21131382882595062, 0.02926211804151535, 0.17143765091896057,
        -0.07860906422138214, -0.05709082633256912, 0.038987986743450165,
    ),
    dtypes.float64: (  # 9.3e-17, 0.835 half ulps
        0.8646843761309372, -0.14117147552335074, 0.04005865943753994, 0.1457226848526337, 0.09442647148276447,
        -0.0800392057451836, -0.027648526628370532, 0.14408879737521568, -0.009655759233351054, -0.13680550468778344,
        0.11003171620937569, 0.07597945759416554, -0.14727110717574343, 0.032629306081721036, 0.09692170084533619,
        -0.06782228910927598, -0.03251421751596917, 0.03576723576794522, 0.050687035481440885, -0.06780389722341018,
        -0.03683462236516734, 0.15338624724502276, -0.13063994953622077, -0.11081136184712242, 0.3405345680624201,
        -0.0431285244777566, -0.5564485700558471, 0.23015893461788528, 0.9095734458829261, -0.684469142632013,
        -1.0861023930644165, 1.3521404497210814, 0.5929114152855111, -1.501360635794613, 0.1746018122136564,
        0.8786196484582766, -0.4201586130303619, -0.21139164261253515, 0.20179917633000158, -0.010943138251709002,
        -0.02904493535371309, 0.007342372788057313,
    ),
}  # fmt: skip

# log(1 + f) = f - f**2 / 2 + f**3 * p(f)          sqrt(1/2) <= 1 + f <= sqrt(2)
LOG: Coefficients = {
    dtypes.float32: (  # 1.6e-9, 0.026 half ulps
        0.3333331346511841, -0.2500016689300537, 0.20002223551273346, -0.16659358143806458, 0.14209578931331635,
        -0.12549887597560883, 0.1210872009396553, -0.10915470868349075, 0.05339032784104347,
    ),
}  # fmt: skip

# log2(1 + f) = f / log(2) + f**2 * p(f)           sqrt(1/2) <= 1 + f <= sqrt(2)
LOG2: Coefficients = {
    dtypes.float32: (  # 1.1e-8, 0.180 half ulps
        -0.7213473320007324, 0.4808982312679291, -0.36069658398628235, 0.2885674834251404, -0.2396184355020523,
        0.20460061728954315, -0.19105587899684906, 0.18617074191570282, -0.1099579706788063,
    ),
}  # fmt: skip

# log((1 + s) / (1 - s)) = 2 * s + s * z * p(z)    z = s**2, |s| <= 0.1716
ATANH: Coefficients = {
    dtypes.float32: (  # 8.1e-10, 0.014 half ulps
        0.6666677594184875, 0.3997758626937866, 0.29870694875717163,
    ),
    dtypes.float64: (  # 8.9e-21, 0.000 half ulps
        0.6666666666666666, 0.4000000000000492, 0.28571428569412305, 0.22222222606806694, 0.1818177836628137,
        0.15386988465089332, 0.13252154959591506, 0.13234729212724158,
    ),
}  # fmt: skip

# erf(x) = x + x * p(x**2)                         |x| <= 1
ERF: Coefficients = {
    dtypes.float32: (  # 1.4e-9, 0.024 half ulps
        0.12837916612625122, -0.3761262595653534, 0.11283578723669052, -0.026853347197175026, 0.005187162198126316,
        -0.0007997853099368513, 7.806903158780187e-05,
    ),
    dtypes.float64: (  # 1.4e-17, 0.122 half ulps
        0.12837916709551256, -0.37612638903183343, 0.11283791670936949, -0.02686617064195855, 0.005223977596726496,
        -0.0008548325484237827, 0.00012055280461001388, -1.4924464627385212e-05, 1.6444132814405354e-06,
        -1.6183804413495138e-07, 1.3615622657996619e-08, -7.605204925496613e-10,
    ),
}  # fmt: skip

# log(1 - erf(x)) = p(x - middle) from the x at the left on; beyond the last x, erf(x) is 1
LOG_ERFC: dict[DType, tuple[tuple[float, float, tuple[float, ...]], ...]] = {
    dtypes.float32: (
        (1.0, 2.5, (  # 5.9e-11, 0.001 half ulps
            -7.806815147399902, -5.35267972946167, -0.943891704082489, -0.010859651491045952, 0.002152957022190094,
            -0.0004434902803041041, 5.631345266010612e-05, -2.2621452444582246e-05,
        )),
    ),
    dtypes.float64: (
        (1.0, 1.375, (  # 3.2e-17, 0.287 half ulps
            -2.9597875510278966, -3.2868997282451957, -0.8823677854320268, -0.029032576704805996, 0.006844604465177007,
            -0.001426194269249601, 0.0002340360360208171, -1.828517989456436e-05, -5.9550835978531134e-06,
            3.57141125504782e-06, -1.1110106061126005e-06, 2.311876299871428e-07, -2.1947571653394206e-08,
            -7.993112439312017e-09, 5.3888610808130956e-09,
        )),
        (1.75, 3.875, (  # 6.2e-19, 0.006 half ulps
            -16.97343371878052, -7.993198211130185, -0.9719657529369271, -0.004099010579151706, 0.0006425141255771167,
            -0.00010234896543816, 1.6181984569306905e-05, -2.4908362565364223e-06, 3.2831992071651035e-07,
            -1.0271972511515323e-07, -3.291630418932538e-08, -1.975226501171006e-08, -5.892457341735255e-09,
            -1.1055880803353943e-09, -1.0200375116223236e-10,
        )),
    ),
}  # fmt: skip
# log2(1 - erf(x)) = x * p(x)                      0 <= x; the error is that of 1 - erf(x), in units of 1
LOG2_ERFC: Coefficients = {
    dtypes.float32: (  # 1.6e-8, 0.268 half ulps
        -1.6279085874557495, -0.918416440486908, -0.14848151803016663, 0.028253713622689247, -0.0007749318610876799,
        -0.0014890959719195962, 0.00044534995686262846, -4.5332879381021485e-05,
    ),
}  # fmt: skip
ERF_IS_ONE = {dtypes.float32: 4.0, dtypes.float64: 6.0}


# ---- exponentials and logarithms ----
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
    return exp_inside(minimum(maximum(x, low), high))


def exp_inside(x: Op, low: Op | None = None) -> Op:
    """exp of x + low for an x within the range; `low` is small against x."""
    shifted, n = _nearest(x, LOG2_E)
    first, second = LN2_NEAREST[x.dtype]
    r = fma(n, -second, fma(n, -first, x))
    r = r if low is None else r + low
    return _times_power_of_two(fma(fma(horner(r, EXP[x.dtype]), r, 1.0), r, 1.0), shifted)


def exp2(x: Op) -> Op:
    """2**x = 2**n * 2**f with n = round(x)."""
    low, high = EXP2_RANGE[x.dtype]
    x = minimum(maximum(x, low), high)
    shifted, n = _nearest(x, 1.0)
    f = x - n
    return _times_power_of_two(fma(horner(f, EXP2[x.dtype]), f, 1.0), shifted)


def _round_magic(dtype: DType) -> float:
    """Returns 1.5 * 2**mantissa: a float that it is added to has the nearest integer in its low bits."""
    return 1.5 * 2.0**dtype.mantissa


def _nearest(x: Op, factor: float) -> tuple[Op, Op]:
    """Returns n = round(x * factor) as a float, and a float whose low bits are n + 2 * bias."""
    magic = _round_magic(x.dtype) + 2 * x.dtype.exponent_bias
    shifted = x + magic if factor == 1.0 else fma(x, factor, magic)
    return shifted, shifted - magic


def _times_power_of_two(y: Op, shifted: Op) -> Op:
    """Returns y * 2**n in two steps, so that subnormal results are rounded once and overflow gives infinity."""
    bits = bits_of(shifted)
    half = shr(bits, 1)  # the low bits are n // 2 + bias; the bits above them are shifted out
    first, second = (bitcast(shl(part, y.dtype.mantissa), y.dtype) for part in (half, bits - half))
    return y * first * second


def tanh(x: Op) -> Op:
    """A polynomial up to 0.55; above, 1 - 2 / (exp(2 |x|) + 1)."""
    a = absolute(x)
    square = a * a
    small = fma(horner(square, TANH[x.dtype]) * square, a, a)
    large = x.filled(1.0) - x.filled(2.0) / (exp_inside(minimum(a + a, TANH_IS_ONE[x.dtype])) + 1.0)
    return with_sign_of(where(less(a, 0.55), small, large), x)


def erf(x: Op) -> Op:
    """A polynomial up to 1; above, 1 - exp(log(erfc(x))) with a polynomial for the logarithm."""
    a = absolute(x)
    small = fma(horner(a * a, ERF[x.dtype]), a, a)
    limited = minimum(a, ERF_IS_ONE[x.dtype])
    log_erfc: Op | None = None
    for low, middle, coefficients in LOG_ERFC[x.dtype]:
        piece = horner(limited - middle, coefficients)
        log_erfc = piece if log_erfc is None else where(less(limited, low), log_erfc, piece)
    assert log_erfc is not None
    large = x.filled(1.0) - exp_inside(maximum(log_erfc, -50.0))
    return with_sign_of(where(less(a, 1.0), small, large), x)


def one_and_erf(x: Op) -> Op:
    """1 + erf(x) of a float32, 2 ulp off, where exp2 is an instruction: 13 instructions. Beyond 4 the polynomial falls to
    minus infinity, and with it erfc to 0."""
    a = absolute(x)
    erfc = Op(OpCode.EXP2, x.dtype, (horner(a, LOG2_ERFC[x.dtype]) * a,), ROUGHLY)
    return where(less(x, 0.0), erfc, x.filled(2.0) - erfc)


# ---- logarithms ----
def _exponent_and_fraction(x: Op) -> tuple[Op, Op]:
    """Returns n and f with x = 2**n * (1 + f), sqrt(1/2) <= 1 + f <= sqrt(2); subnormals are scaled up first."""
    stored, integer = x.dtype.mantissa, x.dtype.signed
    tiny = less(x, 2.0 ** (1 - x.dtype.exponent_bias))
    lift = stored + 2
    scaled = where(tiny, x * 2.0**lift, x)
    bits, root = bitcast(scaled, integer), SQRT_HALF_BITS[x.dtype]
    exponent = shr(bits - root, stored)
    fraction = bitcast(bits - shl(exponent, stored), x.dtype) - 1.0
    return cast(exponent + where(tiny, const(-lift, integer), 0), x.dtype), fraction


def _at_the_limits(x: Op, y: Op) -> Op:
    """Returns y, the logarithm of an x > 0, put right at 0, below it, at infinity and at NaN."""
    y = where(equal(x, math.inf), x, y)
    return where(less(x.filled(0.0), x), y, where(equal(x, 0.0), x.filled(-math.inf), math.nan))


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
    """Returns the rounded sum and its error where |a| >= |b| (Dekker 1971)."""
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
    inside = both(less(y.filled(lowest), product), less(product, highest))
    return exp_inside(minimum(maximum(product, lowest), highest), where(inside, rest, 0.0))


def _power_at_the_limits(x: Op, y: Op, result: Op) -> Op:
    """Puts a power right where x is 0, negative or infinite, and where y is 0 or infinite (C17, F.10.4.4)."""
    magnitude = absolute(x)
    zero, infinite = equal(magnitude, 0.0), equal(magnitude, math.inf)
    negative_y = less(y, 0.0)
    result = where(zero, where(negative_y, x.filled(math.inf), 0.0), result)
    result = where(infinite, where(negative_y, x.filled(0.0), math.inf), result)
    grows = xor(less(x.filled(1.0), magnitude), negative_y)
    result = where(equal(absolute(y), math.inf), where(grows, x.filled(math.inf), 0.0), result)
    is_whole, half = equal(floor(y), y), y * 0.5
    is_odd = both(is_whole, differs(floor(half), half))
    below_zero = differs(and_(bits_of(x), x.dtype.sign_bit), 0)
    flipped = bitcast(or_(bits_of(result), x.dtype.sign_bit), x.dtype)
    result = where(both(below_zero, is_odd), flipped, result)
    finite_below = both(less(x, 0.0), both(differs(x, -math.inf), differs(is_whole, True)))
    result = where(finite_below, x.filled(math.nan), result)
    result = where(both(equal(magnitude, 1.0), equal(absolute(y), math.inf)), x.filled(1.0), result)
    result = where(differs(x, x), x, where(differs(y, y), y, result))
    return where(or_(equal(x, 1.0), equal(y, 0.0)), x.filled(1.0), result)


# ---- sin and cos ----
TURN_BITS = 1280
CHUNK_BITS = 28  # times the 24 bits of a float32: exact in float64
NUM_CHUNKS = 7  # 196 bits: the 128 before the point of the largest float32, and 68 for the rest
# pi / 2 in three parts of 53 bits
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
MODERATE = 2.0**20  # up to here three parts of pi / 2 are enough for a float64


@cache
def turns_per_radian() -> int:
    """Returns 1 / (2 pi) * 2**TURN_BITS, rounded down; pi by Machin's formula of 1706."""
    one = 1 << (TURN_BITS + 64)

    def arctangent_of_inverse(n: int) -> int:
        total, power, k = 0, one // n, 0
        while power:
            total += (power // (2 * k + 1)) * (-1) ** k
            power, k = power // (n * n), k + 1
        return total

    two_pi = 8 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (1 << (2 * TURN_BITS + 64)) // two_pi


def sin(x: Op) -> Op:
    return _wave(x, 0)


def cos(x: Op) -> Op:
    return _wave(x, 1)


def _wave(x: Op, quarters: int) -> Op:
    """Returns the sine of x + quarters * pi / 2."""
    quadrant, rest = _reduce_float32(x) if x.dtype is dtypes.float32 else _reduce_float64(x)
    if quarters:
        quadrant = quadrant + quarters
    square = rest * rest
    sine = fma(horner(square, SIN[x.dtype]) * square, rest, rest)
    sine = where(equal(square, 0.0), x, sine)  # keeps the sign of -0.0
    cosine = fma(square * square, horner(square, COS[x.dtype]), fma(square, -0.5, 1.0))
    chosen = where(equal(and_(quadrant, 1), 0), sine, cosine)
    sign = shl(and_(quadrant, 2), x.dtype.bits - 2)
    return bitcast(xor(bits_of(chosen), sign), x.dtype)


def _reduce_float32(x: Op) -> tuple[Op, Op]:
    """Returns the quadrant (its low two bits count) and the rest, in radians.

    The turns in x are added up chunk by chunk of 1 / (2 pi). Whole turns are dropped after each, which leaves every
    sum exact: a chunk times x has 52 bits, and where it is larger than 2**53 all sums before it were whole.
    """
    wide = cast(x, dtypes.float64)
    turns: Op | None = None
    for i in range(NUM_CHUNKS):
        chunk = turns_per_radian() >> (TURN_BITS - CHUNK_BITS * (i + 1)) & ((1 << CHUNK_BITS) - 1)
        factor = chunk * 2.0 ** (-CHUNK_BITS * (i + 1))
        turns = wide * factor if turns is None else fma(wide, factor, turns)
        turns = turns - floor(turns + 0.5)
    assert turns is not None
    magic = _round_magic(dtypes.float64)
    shifted = fma(turns, 4.0, magic)
    rest = fma(turns, 4.0, -(shifted - magic)) * (pi / 2)
    return cast(bits_of(shifted), dtypes.uint32), cast(rest, dtypes.float32)


def _reduce_float64(x: Op) -> tuple[Op, Op]:
    """The same for float64: pi / 2 in three parts up to 2**20, beyond it integers."""
    magic = _round_magic(x.dtype)
    shifted = fma(x, 2 / pi, magic)
    n = shifted - magic
    rest = fma(n, -HALF_PI[2], fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x)))
    quadrant, far = _reduce_far(x)
    moderate = less(absolute(x), MODERATE)
    return where(moderate, bits_of(shifted), quadrant), where(moderate, rest, far)


def _reduce_far(x: Op) -> tuple[Op, Op]:
    """Payne and Hanek's reduction for |x| >= 2**20.

    x = m * 2**s with an integer m of 53 bits. The bits of 1 / (2 pi) before position s give whole turns with any m; the
    192 bits after it, times m and without its whole part, are the turns in x with an error below 2**-130.
    """
    bits = bits_of(x)
    exponent = and_(shr(bits, 52), 0x7FF)
    start = minimum(maximum(exponent, 1043), 2046) - 1043  # of the window, in bits; s >= -32
    window = _window(start)
    mantissa = or_(and_(bits, (1 << 52) - 1), 1 << 52)
    high, low = _multiply(mantissa, window)
    quadrant = shr(high + (1 << 61), 62)
    signed = high - shl(quadrant, 62)
    negative = differs(shr(signed, 63), 0)
    high, low = (where(negative, xor(part, (1 << 64) - 1), part) for part in (signed, low))
    scale = [2.0**-30, 2.0**-62, 2.0**-115]  # of a quarter turn, for the three parts below
    parts = [shr(high, 32), and_(high, (1 << 32) - 1), shr(low, 11)]
    values = [cast(bitcast(part, dtypes.int64), x.dtype) * s for part, s in zip(parts, scale)]
    quarters = values[0] + (values[1] + values[2])
    rest = fma(quarters, HALF_PI[0], quarters * HALF_PI[1])
    rest = where(negative, -rest, rest)
    below_zero = differs(and_(bits, x.dtype.sign_bit), 0)
    rest = where(less(absolute(x), float("inf")), where(below_zero, -rest, rest), float("nan"))
    return where(below_zero, const(0, dtypes.uint64) - quadrant, quadrant), rest


def _window(start: Op) -> list[Op]:
    """Returns three words of 1 / (2 pi) * 2**-32 from bit `start` on; words are chosen by halves of their number."""
    digits = turns_per_radian()
    words = [const(digits >> (TURN_BITS + 32 - 64 * (i + 1)), dtypes.uint64) for i in range(19)]
    for step, count in ((8, 11), (4, 7), (2, 5), (1, 4)):
        far = differs(and_(start, 64 * step), 0)
        words = [where(far, words[i + step], words[i]) for i in range(count)]
    shift = and_(start, 63)
    back = const(63, dtypes.uint64) - shift
    return [or_(shl(words[i], shift), shr(shr(words[i + 1], 1), back)) for i in range(3)]


def _multiply(m: Op, window: list[Op]) -> tuple[Op, Op]:
    """Returns the upper 128 bits of m * window modulo 2**192, by limbs of 32 bits."""
    mask = (1 << 32) - 1
    limbs = [part for word in window for part in (shr(word, 32), and_(word, mask))]
    m_low, m_high = and_(m, mask), shr(m, 32)
    low_products = [m_low * limb for limb in limbs]
    high_products = [m_high * limb for limb in limbs]
    columns: list[Op] = []
    carry: Op = const(0, dtypes.uint64)
    for k in (4, 3, 2, 1, 0):
        total = and_(low_products[k], mask) + shr(low_products[k + 1], 32) + and_(high_products[k + 1], mask)
        if k + 2 < 6:
            total = total + shr(high_products[k + 2], 32)
        total = total + carry
        carry = shr(total, 32)
        columns.insert(0, and_(total, mask))
    return or_(shl(columns[0], 32), columns[1]), or_(shl(columns[2], 32), columns[3])
