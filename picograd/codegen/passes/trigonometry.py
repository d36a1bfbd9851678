"""sin and cos for every argument, however large, as arithmetic that every vector unit has.

In:    scalar Ops of dtype float32 or float64
Out:   scalar Ops
Called by: codegen/passes/legalize.py.    Next: picograd/codegen/passes/polynomials.py

An argument is brought to a quarter turn and a rest of at most pi / 4. A large one needs as many bits of 1 / (2 pi)
as it has before the point (Payne and Hanek 1983, "Radian reduction for trigonometric functions"). Errors: 1.6 ulp
for float32, 2.1 ulp for float64.
"""

from __future__ import annotations

from functools import cache
from math import pi

from picograd import dtype as dtypes
from picograd.codegen.passes.polynomials import COS, SIN
from picograd.codegen.scalar import (
    FORMATS,
    absolute,
    and_,
    at_least,
    at_most,
    bitcast,
    bits_of,
    cast,
    differs,
    equal,
    floor,
    fma,
    horner,
    less,
    or_,
    shl,
    shr,
    where,
    xor,
)  # fmt: skip
from picograd.ir.op import Op, const

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
    form = FORMATS[x.dtype]
    if quarters:
        quadrant = quadrant + quarters
    square = rest * rest
    sine = fma(horner(square, SIN[x.dtype]) * square, rest, rest)
    sine = where(equal(square, 0.0), x, sine)  # keeps the sign of -0.0
    cosine = fma(square * square, horner(square, COS[x.dtype]), fma(square, -0.5, 1.0))
    chosen = where(equal(and_(quadrant, 1), 0), sine, cosine)
    sign = shl(and_(quadrant, 2), form.unsigned.bits - 2)
    return bitcast(xor(bits_of(chosen), sign), x.dtype)


def _reduce_float32(x: Op) -> tuple[Op, Op]:
    """Returns the quadrant (its low two bits count) and what is left, in radians.

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
    magic = FORMATS[dtypes.float64].round_magic
    shifted = fma(turns, 4.0, magic)
    rest = fma(turns, 4.0, -(shifted - magic)) * (pi / 2)
    return cast(bits_of(shifted), dtypes.uint32), cast(rest, dtypes.float32)


def _reduce_float64(x: Op) -> tuple[Op, Op]:
    """The same for float64: pi / 2 in three parts up to 2**20, beyond it integers."""
    magic = FORMATS[x.dtype].round_magic
    shifted = fma(x, 2 / pi, magic)
    n = shifted - magic
    rest = fma(n, -HALF_PI[2], fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x)))
    quadrant, far = _reduce_far(x)
    moderate = less(absolute(x), MODERATE)
    return where(moderate, bits_of(shifted), quadrant), where(moderate, rest, far)


def _reduce_far(x: Op) -> tuple[Op, Op]:
    """Payne and Hanek's reduction for |x| >= 2**20.

    x = m * 2**s with an integer m of 53 bits. Of 1 / (2 pi) the bits before position s give whole turns with any m;
    the 192 bits after it, times m and without its whole part, are the turns in x with an error below 2**-130.
    """
    form = FORMATS[x.dtype]
    bits = bits_of(x)
    exponent = and_(shr(bits, 52), 0x7FF)
    start = at_most(at_least(exponent, 1043), 2046) - 1043  # of the window, in bits; s >= -32
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
    below_zero = differs(and_(bits, form.sign), 0)
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
