"""Exact arithmetic on floats, and rounding of its results to any format: .rn, .rz, .rm, .rp, .rna.

Out:   `as_odd_sum`, `fma64`, `rounded`, `decoded`, `encoded`, `FORMATS`

A result that is not exact in float64 is kept as float64 rounded to odd: cut, and its last bit set. Rounding it to a format
of at most 51 bits gives what rounding the exact result gives (Boldo and Melquiond 2008, "Emulation of FMA and correctly
rounded sums: proved algorithms using rounding to odd").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.ptx.lanes import Array


@dataclass(frozen=True)
class Format:
    """A binary float.

    bits:      of the mantissa, without the leading 1
    least:     the exponent of the smallest normal number
    greatest:  finite number
    nan:       the bits that an instruction gives for NaN (PTX ISA 9.0, 9.7.3 to 9.7.5)
    """

    bits: int
    least: int
    greatest: float
    nan: int


FORMATS = {
    "f64": Format(52, -1022, float(np.finfo(np.float64).max), 0x7FF8000000000000),
    "f32": Format(23, -126, float(np.finfo(np.float32).max), 0x7FFFFFFF),
    "tf32": Format(10, -126, float((2 - 2.0**-10) * 2.0**127), 0x7FFFFFFF),
    "f16": Format(10, -14, 65504.0, 0x7FFF),
    "bf16": Format(7, -126, float((2 - 2.0**-7) * 2.0**127), 0x7FFF),
    "e4m3": Format(3, -6, 448.0, 0x7F),
    "e5m2": Format(2, -14, 57344.0, 0x7F),
}
MODES: dict[str, Callable[[Array], Array]] = {
    "rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil,
    "rna": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def rounded(values: Array, name: str, mode: str = "rn", is_finite: bool = False) -> Array:
    """Returns float64 numbers of a format: the nearest to each value, or the one on a side of it.

    Args:
      values:     float64; what is not exact is rounded to odd
      is_finite:  what is too large becomes the greatest number, not infinity
    """
    form = FORMATS[name]
    exponent = np.maximum(np.frexp(values)[1] - 1, form.least) - form.bits
    result = np.ldexp(MODES[mode](np.ldexp(values, -exponent)), exponent)
    outside = np.abs(result) > form.greatest
    if outside.any():
        stays = (mode == "rz") | ((mode == "rm") & (result > 0)) | ((mode == "rp") & (result < 0)) | is_finite
        stays &= np.isfinite(values) | is_finite
        result = np.where(outside, np.copysign(np.where(stays, form.greatest, np.inf), result), result)
    return result


# ---- sums and products without an error ----
def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns a sum, and what is missing from it (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns a product, and what is missing from it (Dekker 1971); no number may be near the ends of the range."""
    a_high, b_high = (x * 134217729.0 - (x * 134217729.0 - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def to_odd(total: Array, missing: Array) -> Array:
    """Returns a float64 rounded to odd for an exact sum of two, of which `missing` is below half an ulp of the other."""
    bits = total.view(np.int64)
    is_away = (missing < 0) != (total < 0)  # the exact sum is nearer to zero
    cut = np.where((missing != 0) & is_away, bits - 1, bits)
    odd = np.where(missing != 0, cut | 1, bits).view(np.float64)
    return np.where(np.isfinite(total), odd, total)


def as_odd_sum(a: Array, b: Array) -> Array:
    """Returns a + b in float64, rounded to odd."""
    return to_odd(*two_sum(a, b))


def fma64(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c in float64, rounded once, to nearest."""
    size = [np.where(x == 0, 0.0, np.abs(x)) for x in (a, b, c)]
    is_near = [(x == 0) | ((x > 2.0**-400) & (x < 2.0**400)) for x in size]
    near = is_near[0] & is_near[1] & is_near[2]
    high, low = two_product(a, b)
    first, first_missing = two_sum(c, low)
    second, second_missing = two_sum(high, first)
    result = second + to_odd(*two_sum(first_missing, second_missing))
    # A sum of nothing has the sign that the exact one has: -0 only of two negative zeros.
    result = np.where((high == 0) | (result == 0), a * b + c, result)
    far = np.flatnonzero(~near)
    if len(far):
        result = result.copy()
        for i in far.tolist():
            result[i] = _fma_of_one(float(a[i]), float(b[i]), float(c[i]))
    return result


def _fma_of_one(a: float, b: float, c: float) -> float:
    """Returns a * b + c of numbers near the ends of the range, or of what is no number."""
    if not all(map(np.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            # A product that overflows is no infinity: only one of infinities is.
            product = np.float64(a) * np.float64(b) if not (np.isfinite(a) and np.isfinite(b)) else np.float64(0)
            return float(product + c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if (a == 0 or b == 0) else 0.0
    try:
        return float(exact)  # CPython rounds a fraction once, to nearest, ties to even
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


# ---- bits of formats ----
def decoded(bits: Array, name: str) -> Array:
    """Returns the values of bits of a format, as float64."""
    if name in ("f16", "f32", "f64"):
        return bits.view(f"f{bits.itemsize}").astype(np.float64)
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if name == "e5m2":
        return (bits.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float64)
    assert name == "e4m3", name
    return E4M3[bits]


def _table_of_e4m3() -> Array:
    """Returns the values of all 256 numbers of e4m3 (OCP 8-bit floating point specification 1.0, table 1)."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    values = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7))
    values = np.where(code & 127 == 127, np.nan, values)
    return np.where(code > 127, -values, values)


E4M3 = _table_of_e4m3()


def encoded(values: Array, name: str) -> Array:
    """Returns the bits of float64 values that are numbers of a format; every NaN is the one that instructions give."""
    is_nan = np.isnan(values)
    if name in ("f16", "f32"):
        bits = values.astype(np.float16 if name == "f16" else np.float32).view(f"u{2 if name == 'f16' else 4}")
    elif name == "tf32":
        bits = values.astype(np.float32).view(np.uint32)
    elif name == "bf16":
        bits = (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    elif name == "e5m2":
        bits = (values.astype(np.float16).view(np.uint16) >> np.uint16(8)).astype(np.uint8)
    elif name == "e4m3":
        code = np.searchsorted(E4M3[:127], np.abs(values)).astype(np.uint8)
        bits = code | (np.signbit(values).astype(np.uint8) << np.uint8(7))
    else:
        bits = values.view(np.uint64)
    return np.where(is_nan, np.array(FORMATS[name].nan, bits.dtype), bits)
