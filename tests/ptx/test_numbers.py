"""Instructions on numbers: against NumPy, Python's fractions and integers, the C library's fma, and ml_dtypes' floats.

Each test writes a kernel of one instruction, whose lane i computes element i.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.launch import Buffers, Pointer, launch
from tests.ptx.module import NBYTES, PtxError
from tests.ptx.parse import parse
from tests.ptx.registers import DTYPES

Array = np.ndarray[Any, Any]
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    2.5,
    -3.5,
    1e-45,
    -1e-40,
    1.17549435e-38,
    3.4e38,
    -3.4e38,
    1e10,
    np.inf,
    -np.inf,
    np.nan,
]


def computed(line: str, kinds: list[str], *inputs: Array, extra: str = "") -> Array:
    """Returns what an instruction gives of inputs: d is of kinds[0], and a, b, c of the others."""
    names = "dabc"[: len(kinds)]
    body = [f".reg .b{8 * NBYTES[kind]} {name};" for name, kind in zip(names, kinds) if kind != "pred"]
    body += [f".reg .pred {name};" for name, kind in zip(names, kinds) if kind == "pred"]
    body += [".reg .b32 t; .reg .b64 p, q; .reg .pred r;", extra, "mov.u32 t, %tid.x;"]
    for slot, (name, kind) in enumerate(zip(names[1:], kinds[1:])):
        body += [f"ld.param.u64 p, [x{slot + 1}];", f"mad.wide.u32 q, t, {NBYTES[kind]}, p;"]
        body.append(f"ld.global.b{8 * NBYTES[kind]} {name}, [q];")
    out = kinds[0] if kinds[0] != "pred" else "u32"
    body += [line, "ld.param.u64 p, [x0];", f"mad.wide.u32 q, t, {NBYTES[out]}, p;"]
    if kinds[0] == "pred":
        body += [".reg .b32 s;", "selp.u32 s, 1, 0, d;"]
    body += [f"st.global.b{8 * NBYTES[out]} [q], {'s' if kinds[0] == 'pred' else 'd'};", "ret;"]
    params = ", ".join(f".param .u64 x{i}" for i in range(len(kinds)))
    module = parse(HEAD + f".visible .entry k({params})\n{{\n" + "\n".join(body) + "\n}\n")
    count = len(inputs[0])
    arrays = [np.zeros(count, DTYPES[out]), *map(np.ascontiguousarray, inputs)]
    pointers = [Pointer(f"x{i}", array.ctypes.data, array.nbytes) for i, array in enumerate(arrays)]
    buffers = Buffers(pointers, module)
    launch(module, "k", 1, count, 0, buffers, [buffers.address_of(one).to_bytes(8, "little") for one in pointers])
    return arrays[0]


def floats(rng: np.random.Generator, dtype: Any, count: int = 400) -> Array:
    """Returns special numbers, and others of every size."""
    reach = {2: 12, 4: 120, 8: 300}[np.dtype(dtype).itemsize]
    with np.errstate(all="ignore"):
        drawn = np.ldexp(rng.standard_normal(count), rng.integers(-reach, reach, count))
        return np.concatenate([np.array(SPECIAL), drawn]).astype(dtype)


def pairs(rng: np.random.Generator, dtype: Any) -> tuple[Array, Array]:
    """Returns each special number beside each, then numbers near each other."""
    a = floats(rng, dtype)
    special = a[: len(SPECIAL)]
    near = a[len(SPECIAL) :]
    with np.errstate(all="ignore"):
        others = (near * rng.uniform(-2, 2, len(near))).astype(dtype)
    return np.concatenate([np.repeat(special, len(SPECIAL)), near]), np.concatenate(
        [np.tile(special, len(SPECIAL)), others]
    )


def same(found: Array, expected: Array) -> None:
    """Fails unless the bits are the same, or both are NaN."""
    expected = expected.astype(found.dtype)
    bits = [array.view(f"u{array.itemsize}") for array in (found, expected)]
    is_same = (bits[0] == bits[1]) | ((found != found) & (expected != expected))
    bad = np.flatnonzero(~is_same)
    assert not len(bad), f"{len(bad)} differ, the first at {bad[0]}: {found[bad[0]]!r} for {expected[bad[0]]!r}"


# ---- floats ----
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_to_nearest_is_numpys(name: str, kind: str, rng: np.random.Generator) -> None:
    a, b = pairs(rng, DTYPES[kind])
    with np.errstate(all="ignore"):
        expected = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name](a, b)
    same(computed(f"{name}.rn.{kind} d, a, b;", [kind] * 3, a, b), expected)


def rounded_fraction(exact: Fraction, mode: str) -> float:
    """Returns the float32 on a side of a number, by comparing neighbours with it."""
    with np.errstate(all="ignore"):
        near = np.float32(float(exact))
        below = near if Fraction(float(near)) <= exact else np.nextafter(near, np.float32(-np.inf))
        above = near if Fraction(float(near)) >= exact else np.nextafter(near, np.float32(np.inf))
    towards_zero = below if exact >= 0 else above
    return float({"rm": below, "rp": above, "rz": towards_zero}[mode])


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_other_roundings_take_the_neighbour_on_their_side(name: str, mode: str, rng: np.random.Generator) -> None:
    a, b, c = (np.ldexp(rng.standard_normal(300), rng.integers(-20, 20, 300)).astype(np.float32) for _ in range(3))
    operands = ["a", "b", "c"][: 3 if name == "fma" else 2]
    found = computed(
        f"{name}.{mode}.f32 d, {', '.join(operands)};", ["f32"] * (1 + len(operands)), *(a, b, c)[: len(operands)]
    )
    for x, y, z, got in zip(a, b, c, found):
        x, y, z = (Fraction(float(v)) for v in (x, y, z))
        exact = {"add": x + y, "mul": x * y, "fma": x * y + z}[name]
        assert float(got) == rounded_fraction(exact, mode)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_a_multiply_add_is_rounded_once(kind: str, rng: np.random.Generator) -> None:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = getattr(library, "fmaf" if kind == "f32" else "fma")
    number = ctypes.c_float if kind == "f32" else ctypes.c_double
    function.restype, function.argtypes = number, [number] * 3
    dtype = DTYPES[kind]
    a, b = pairs(rng, dtype)
    with np.errstate(all="ignore"):
        c = np.where(rng.random(len(a)) < 0.5, -(a * b), rng.permutation(a)).astype(dtype)  # sums that nearly vanish
    expected = np.array([function(*map(float, each)) for each in zip(a, b, c)], dtype)
    same(computed(f"fma.rn.{kind} d, a, b, c;", [kind] * 4, a, b, c), expected)


def test_ftz_takes_and_gives_zeros_for_subnormal_numbers() -> None:
    a, b = np.array([1e-40, 1e-30, -1e-30, 2.0], np.float32), np.array([1e30, 1e-10, 1e-10, 1e-40], np.float32)
    same(computed("mul.rn.ftz.f32 d, a, b;", ["f32"] * 3, a, b), np.array([0.0, 0.0, -0.0, 0.0], np.float32))


def test_sat_keeps_zero_to_one() -> None:
    a = np.array([-1.0, 0.25, 3.0, np.nan], np.float32)
    same(computed("add.rn.sat.f32 d, a, 0f00000000;", ["f32", "f32"], a), np.array([0.0, 0.25, 1.0, 0.0], np.float32))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("wins", ["", ".NaN"])
def test_extrema_know_signs_of_zero_and_whether_nan_wins(wins: str, kind: str, rng: np.random.Generator) -> None:
    if wins and kind == "f64":
        kind = "f32"  # there is none of 64 bits
    a, b = pairs(rng, DTYPES[kind])
    if wins:
        expected = np.where(np.isnan(a) | np.isnan(b), np.nan, np.fmax(a, b))
    else:
        expected = np.fmax(a, b)
    expected = np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), expected)
    same(computed(f"max{wins}.{kind} d, a, b;", [kind] * 3, a, b), expected)


def test_a_nan_loses_its_payload() -> None:
    a = np.array([0xFFC12345], np.uint32).view(np.float32)
    assert computed("add.rn.f32 d, a, a;", ["b32", "f32"], a)[0] == 0x7FFFFFFF


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_arithmetic_of_16_bits_is_rounded_once(kind: str, rng: np.random.Generator) -> None:
    dtype = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}[kind]
    a, b, c = (rng.standard_normal(500).astype(dtype) for _ in range(3))
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c)]
    # Fractions of few bits: the sum is exact in float64, from which both types are rounded once (here by way of odd bits).
    expected = np.array([float(e) for e in exact])
    assert all(Fraction(float(x)) == e for x, e in zip(expected, exact))
    bits = [x.view(np.uint16) for x in (a, b, c)]
    found = computed(f"fma.rn.{kind} d, a, b, c;", [kind] * 4, *bits).view(np.uint16).view(dtype)
    gap = np.abs(found.astype(np.float64) - expected)
    for step in (1, -1):  # no neighbour is nearer
        neighbour = (found.view(np.int16) + np.int16(step)).view(dtype).astype(np.float64)
        assert (np.isnan(neighbour) | (gap <= np.abs(neighbour - expected))).all()


@pytest.mark.parametrize(
    ("name", "function", "ulps"),
    [("ex2", np.exp2, 2.5), ("lg2", np.log2, 2.5), ("rcp", np.reciprocal, 1.5), ("rsqrt", lambda x: x**-0.5, 2.5)],
)
def test_approximations_are_as_near_as_promised_and_no_nearer(
    name: str, function: Any, ulps: float, rng: np.random.Generator
) -> None:
    a = rng.uniform(0.1, 20, 500).astype(np.float32)
    found, exact = computed(f"{name}.approx.ftz.f32 d, a;", ["f32"] * 2, a), function(a.astype(np.float64))
    off = np.abs(found - exact) / np.spacing(exact.astype(np.float32))
    assert off.max() <= ulps and (off > 0.5).any()


# ---- conversions ----
def test_floats_become_integers() -> None:
    a = np.array([1.5, 2.5, -1.5, 3e9, -3e9, np.nan, np.inf, -np.inf], np.float32)
    top, least = 2**31 - 1, -(2**31)
    assert computed("cvt.rni.s32.f32 d, a;", ["s32", "f32"], a).tolist() == [2, 2, -2, top, least, 0, top, least]
    assert computed("cvt.rzi.s32.f32 d, a;", ["s32", "f32"], a).tolist() == [1, 2, -1, top, least, 0, top, least]
    assert computed("cvt.rmi.s32.f32 d, a;", ["s32", "f32"], a)[2] == -2
    assert computed("cvt.rpi.s32.f32 d, a;", ["s32", "f32"], a)[:2].tolist() == [2, 3]
    assert computed("cvt.rzi.u64.f32 d, a;", ["u64", "f32"], np.array([2.0**63, -1.0], np.float32)).tolist() == [2**63, 0]
    # Where 64 bits are involved a NaN is no 0 (PTX ISA 9.0, 9.7.9.21).
    assert computed("cvt.rzi.s64.f32 d, a;", ["s64", "f32"], a)[5] == -(2**63)
    assert computed("cvt.rzi.s32.f64 d, a;", ["s32", "f64"], a.astype(np.float64))[5] == least


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_floats_become_narrow_ones(to: str, rng: np.random.Generator) -> None:
    dtype = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}[to]
    a = np.concatenate([floats(rng, np.float32), floats(rng, np.float16).astype(np.float32) * np.float32(1.0002)])
    with np.errstate(all="ignore"):
        expected = a.astype(dtype)
    found = computed(f"cvt.rn.{to}.f32 d, a;", [to, "f32"], a).view(np.uint16).view(dtype)
    same(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)])
def test_two_floats_become_bytes_and_back(kind: str, dtype: Any, rng: np.random.Generator) -> None:
    high, low = floats(rng, np.float16).astype(np.float32), floats(rng, np.float16).astype(np.float32)[::-1].copy()
    found = computed(f"cvt.rn.satfinite.{kind}.f32 d, a, b;", [kind, "f32", "f32"], high, low)
    greatest = float(ml_dtypes.finfo(dtype).max)
    for values, shift in ((low, 0), (high, 8)):
        expected = np.clip(values, -greatest, greatest).astype(dtype)
        same((found >> np.uint16(shift)).astype(np.uint8).view(dtype).astype(np.float32), expected.astype(np.float32))
    halves = computed(f"cvt.rn.f16x2.{kind} d, a;", ["b32", kind], found)
    same(
        halves.astype(np.uint16).view(np.float16), (found & np.uint16(255)).astype(np.uint8).view(dtype).astype(np.float16)
    )


def test_tf32_rounds_ties_away() -> None:
    a = np.array([0x3F801000, 0xBF801000, 0x3F800FFF, 0x3F803000], np.uint32)
    found = computed("cvt.rna.tf32.f32 d, a;", ["b32", "f32"], a)
    assert found.tolist() == [0x3F802000, 0xBF802000, 0x3F800000, 0x3F804000]


@pytest.mark.parametrize("to", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_integers_become_floats(kind: str, to: str, rng: np.random.Generator) -> None:
    info = np.iinfo(DTYPES[kind])
    a = rng.integers(info.min, info.max, 300, endpoint=True, dtype=info.dtype)
    a[:3] = [info.min, info.max, 0]
    same(computed(f"cvt.rn.{to}.{kind} d, a;", [to, kind], a), a.astype(DTYPES[to]))


# ---- integers ----
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_integers_wrap_as_pythons_modulo_their_width(kind: str, rng: np.random.Generator) -> None:
    info = np.iinfo(DTYPES[kind])
    a, b = (rng.integers(info.min, info.max, 200, endpoint=True, dtype=info.dtype) for _ in range(2))
    a[:3], b[:4] = [info.min, info.max, 1], [1, info.max, info.max, 7]
    modulus, pairs_ = 1 << info.bits, [(int(x), int(y)) for x, y in zip(a, b)]

    def check(line: str, expected: list[int], width: int = 1) -> None:
        out = f"{kind[0]}{width * info.bits}"
        found = computed(line, [out, kind, kind], a, b)
        assert [int(x) % modulus**width for x in found] == [x % modulus**width for x in expected], line

    check(f"add.{kind} d, a, b;", [x + y for x, y in pairs_])
    check(f"sub.{kind} d, a, b;", [x - y for x, y in pairs_])
    check(f"mul.lo.{kind} d, a, b;", [x * y for x, y in pairs_])
    check(f"mul.hi.{kind} d, a, b;", [x * y >> info.bits for x, y in pairs_])
    check(f"div.{kind} d, a, b;", [abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) if y else -1 for x, y in pairs_])
    check(f"rem.{kind} d, a, b;", [abs(x) % abs(y) * (-1 if x < 0 else 1) if y else -1 for x, y in pairs_])
    if info.bits < 64:
        check(f"mul.wide.{kind} d, a, b;", [x * y for x, y in pairs_], 2)


def test_a_carry_goes_on() -> None:
    a, b = np.array([2**32 - 1, 5], np.uint32), np.array([1, 6], np.uint32)
    assert computed("add.cc.u32 a, a, b; addc.u32 d, 0, 0;", ["u32", "u32", "u32"], a, b).tolist() == [1, 0]
    assert computed("sub.cc.u32 a, b, a; subc.u32 d, 0, 0;", ["u32", "u32", "u32"], a, b).tolist() == [2**32 - 1, 0]


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_shifts_stop_at_the_width(kind: str) -> None:
    bits = int(kind[1:])
    a = np.full(6, -5 if kind[0] == "s" else (1 << bits) - 5, DTYPES[kind])
    count = np.array([0, 1, bits - 1, bits, bits + 1, 2**32 - 1], np.uint32)
    expected = [int(a[0]) >> min(int(n), bits) for n in count]
    assert computed(f"shr.{kind} d, a, b;", [kind, kind, "u32"], a, count).tolist() == expected
    found = computed(f"shl.b{bits} d, a, b;", [kind, kind, "u32"], a, count)
    assert [int(x) % (1 << bits) for x in found] == [(int(a[0]) << int(n)) % (1 << bits) if n < bits else 0 for n in count]


def test_bits_are_found_taken_and_put() -> None:
    a = np.array([0, 1, 0x80000000, 0x00F0F000, 0xFFFFFFFF], np.uint32)
    words = [int(x) for x in a]
    assert computed("popc.b32 d, a;", ["u32", "u32"], a).tolist() == [x.bit_count() for x in words]
    assert computed("clz.b32 d, a;", ["u32", "u32"], a).tolist() == [32 - x.bit_length() for x in words]
    assert computed("bfind.u32 d, a;", ["s32", "u32"], a).tolist() == [x.bit_length() - 1 for x in words]
    assert computed("bfind.s32 d, a;", ["s32", "u32"], a).tolist() == [-1, 0, 30, 23, -1]
    assert computed("brev.b32 d, a;", ["u32", "u32"], a).tolist() == [int(f"{x:032b}"[::-1], 2) for x in words]
    assert computed("bfe.u32 d, a, 12, 8;", ["u32", "u32"], a).tolist() == [x >> 12 & 255 for x in words]
    assert computed("bfe.s32 d, a, 12, 4;", ["s32", "u32"], a).tolist() == [0, 0, 0, -1, -1]
    assert computed("bfi.b32 d, 5, a, 4, 3;", ["u32", "u32"], a).tolist() == [x & ~0x70 | 0x50 for x in words]
    assert computed("prmt.b32 d, a, 0x44332211, 0x7601;", ["u32", "u32"], np.array([0xDDCCBBAA], np.uint32)).tolist() == [
        0x4433AABB
    ]
    assert computed("prmt.b32 d, a, 0, 0x888B;", ["u32", "u32"], np.array([0x7F0000AA], np.uint32)).tolist() == [0xFFFFFF00]
    assert computed("shf.l.wrap.b32 d, a, 1, 33;", ["u32", "u32"], np.array([1 << 31], np.uint32)).tolist() == [3]
    assert computed("lop3.b32 d, a, 0xFF00FF00, 0xF0F0F0F0, 0xE8;", ["u32", "u32"], a)[3] == 0xF0F0F000  # the majority


# ---- comparisons ----
def test_comparisons_know_nan() -> None:
    a, b = np.array([1.0, 2.0, np.nan, -0.0], np.float32), np.array([2.0, 1.0, 1.0, 0.0], np.float32)
    wanted = {"lt": [1, 0, 0, 0], "ltu": [1, 0, 1, 0], "eq": [0, 0, 0, 1], "ne": [1, 1, 0, 0], "neu": [1, 1, 1, 0]}
    for name, expected in {**wanted, "num": [1, 1, 0, 1], "nan": [0, 0, 1, 0]}.items():
        assert computed(f"setp.{name}.f32 d, a, b;", ["pred", "f32", "f32"], a, b).tolist() == expected, name
    combined = "setp.lt.and.f32 r|d, a, b, !r;"
    extra = "setp.eq.s32 r, 0, 0;"
    assert computed(f"{extra} {combined}", ["pred", "f32", "f32"], a, b).tolist() == [0, 0, 0, 0]


def test_what_is_not_in_the_table_is_named() -> None:
    with pytest.raises(PtxError, match=r"mul\.lo\.sat\.s32 d, a, a;: \.sat is not known of mul"):
        computed("mul.lo.sat.s32 d, a, a;", ["s32", "s32"], np.zeros(1, np.int32))
    with pytest.raises(PtxError, match=r"there is no tex\.1d in the table"):
        computed("tex.1d d, a;", ["s32", "s32"], np.zeros(1, np.int32))
