"""The meaning of each primitive of devices/cuda/primitives.h: a small kernel, what goes in, and what NumPy says comes out.

So for those in headers that it includes. test_primitives.py runs them on the simulator and on a GPU. A kernel
reads p0, and p1 where it has two inputs, and writes p2; i is the number of its thread in the grid. Those of
devices/cuda/hopper.h are in hopper_cases.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.evaluator.elementwise import ELEMENTWISE_RULES
from picograd.evaluator.program import as_tf32
from picograd.ir.op import const
from picograd.ir.opcode import OpCode
from picograd.ir.stages import TileMap
from picograd.record import Record
from tests.gpu_programs import Array

EVERYWHERE = ("sm_80", "sm_90a", "sm_100a")


class Case(Record):
    """A kernel of one block, or of as many as it has elements to compute, and what it computes.

    archs:      generations of GPUs that have what it calls
    threads:    of a block
    tolerance:  how far a GPU may be from the simulator, of the greatest element
    relative:   how far each element may be, of itself; where both are 0, an element has the same bits
    maps:       of tiles of its parameters, which the kernel calls map0, map1
    cluster:    blocks of a cluster
    """

    body: str
    inputs: tuple[Array, ...]
    expected: Array
    archs: tuple[str, ...] = EVERYWHERE
    threads: int = 64
    blocks: int = 1
    tolerance: float = 0.0
    relative: float = 0.0
    maps: tuple[TileMap, ...] = ()
    cluster: int = 1


CASES: dict[str, Case] = {}


def dtype_of(array: Array) -> DType:
    """Returns the dtype of an array's elements."""
    return next(t for t in vars(dtypes).values() if isinstance(t, DType) and t.numpy == array.dtype)


def each(name: str, value: str, *inputs: Array, expected: Array) -> None:
    """Adds a kernel whose thread i computes element i."""
    blocks = -(-len(expected) // 64)
    CASES[name] = Case(f"if (i < {len(expected)}) p2[i] = {value};", inputs, expected, blocks=blocks)


def pairs(values: Array) -> tuple[Array, Array]:
    """Returns each value beside each."""
    return np.repeat(values, len(values)), np.tile(values, len(values))


def floats(dtype: Any) -> Array:
    return np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -7.25, 3e38, -1e-40, 1e10, np.inf, -np.inf, np.nan], dtype)


def integers(dtype: Any) -> Array:
    """Returns what is near the ends of a type, and near zero."""
    info = np.iinfo(dtype)
    less = [-1, -2, -7, info.min, info.min + 1] if info.min else [200]
    return np.array([0, 1, 2, 3, 7, 31, 100, info.max - 1, info.max, *less], dtype)


def cut(x: float, dtype: Any) -> int:
    """Returns the nearest integer of a type, towards zero; 0 for NaN."""
    info = np.iinfo(dtype)
    if np.isnan(x):
        return 0
    return int(x) if info.min < x < info.max else info.max if x > 0 else info.min


# ---- bits, lanes, warps ----
BITS = np.array([0, 1, 0x3F800000, 0x7F800000, 0x80000000, 0x12345678], np.uint32)
LONG_BITS = np.array([0, 1, 0x3FF0000000000000, 0x123456789ABCDEF0], np.uint64)
each("bits as float32", "float32_of_bits(p0[i])", BITS, expected=BITS.view(np.float32))
each("bits as float64", "float64_of_bits(p0[i])", LONG_BITS, expected=LONG_BITS.view(np.float64))
each("a float's bits", "bitcast<int32>(p0[i])", floats(np.float32), expected=floats(np.float32).view(np.int32))
ROW = np.arange(256, dtype=np.float32)
CASES["lanes"] = Case(
    """SHARED(float32, tile, 256);
  store_lanes(tile, 4 * i, load_lanes<4>(p0, 4 * i));
  __syncthreads();
  store_lanes(p2, 4 * i, load_lanes<4>(tile, 252 - 4 * i));""",
    (ROW,), ROW.reshape(64, 4)[::-1].reshape(-1).copy(),
)  # fmt: skip
CASES["lanes at multiples of 16 bytes"] = Case(
    "store_lanes(aligned(p2), 4 * i, load_lanes<4>(aligned(p0), 252 - 4 * i));",
    (ROW,), ROW.reshape(64, 4)[::-1].reshape(-1).copy(),
)  # fmt: skip
for _dtype in (np.float32, np.int64, np.uint8, np.float64, np.int16):
    _x = np.arange(60, 124).astype(_dtype)
    each(f"shuffle of {np.dtype(_dtype)}", "shuffle_xor(p0[i], 5)", _x, expected=_x[np.arange(64) ^ 5])

# ---- maximum, minimum ----
for _dtype in (np.float32, np.float64):
    _a, _b = pairs(floats(_dtype))
    with np.errstate(invalid="ignore"):
        _max = np.where(_a == _b, np.where(np.signbit(_a), _b, _a), np.maximum(_a, _b))
        _min = np.where(_a == _b, np.where(np.signbit(_a), _a, _b), np.minimum(_a, _b))
    each(f"larger {np.dtype(_dtype)}", "larger(p0[i], p1[i])", _a, _b, expected=_max)
    each(f"smaller {np.dtype(_dtype)}", "smaller(p0[i], p1[i])", _a, _b, expected=_min)
_a, _b = pairs(integers(np.int32))
each("larger int32", "larger(p0[i], p1[i])", _a, _b, expected=np.maximum(_a, _b))
each("smaller int32", "smaller(p0[i], p1[i])", _a, _b, expected=np.minimum(_a, _b))

# ---- atomics, the first of reports ----
for _dtype in (np.int32, np.int64, np.uint32, np.uint64):
    _x = np.arange(3, 67).astype(_dtype)
    CASES[f"atomics of {np.dtype(_dtype)}"] = Case(
        """SHARED(T, cells, 5);
  if (i < 5) cells[i] = 9;
  __syncthreads();
  atomic_add(cells, 0, p0[i]);
  atomic_max(cells, 1, p0[i]);
  atomic_min(cells, 2, p0[i]);
  if (compare_and_swap(cells, 3, 9, 4) == 9) atomic_exchange(cells, 4, 5);
  __syncthreads();
  if (i < 5) p2[i] = cells[i];""",
        (_x,), np.array([9 + _x.sum(), 66, 3, 4, 5], _dtype),
    )  # fmt: skip
CASES["a report"] = Case(
    "if (i < 2) p2[i] = 0;\n  __syncthreads();\n  if (i == 40) report(p2, 3, p0[i]);\n  __syncthreads();\n"
    "  if (i == 7) report(p2, 5, p0[i]);",
    (np.arange(64),), np.array([3, 40]),
)  # fmt: skip

# ---- copies in the background ----
for _lanes, _dtype in ((1, np.float32), (2, np.float32), (4, np.float32), (8, np.int16)):
    _x = np.arange(64 * _lanes).astype(_dtype)
    CASES[f"a copy of {_lanes} {np.dtype(_dtype)}"] = Case(
        f"""SHARED(T, tile, {64 * _lanes});
  copy_async<{_lanes}>(tile, {_lanes} * (63 - i), p0, {_lanes} * i, i != 5);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  for (int32 lane = 0; lane < {_lanes}; lane++) p2[{_lanes} * i + lane] = tile[{_lanes} * i + lane];""",
        (_x,), np.where(np.arange(64)[:, None] == 5, 0, _x.reshape(64, _lanes)).astype(_dtype)[::-1].reshape(-1).copy(),
    )  # fmt: skip

# ---- integers ----
for _dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint64):
    _a, _b = pairs(integers(_dtype))
    _wide = [(int(a), int(b)) for a, b in zip(_a, _b)]
    _bits = 8 * np.dtype(_dtype).itemsize

    def _wrapped(values: list[int], dtype: Any = _dtype, bits: int = _bits) -> Array:
        return np.array([value % (1 << bits) for value in values], np.uint64).astype(f"u{bits // 8}").view(dtype)

    _name = str(np.dtype(_dtype))
    each(f"floor_div {_name}", "floor_div(p0[i], p1[i])", _a, _b, expected=_wrapped([a // b if b else 0 for a, b in _wide]))
    each(f"floor_mod {_name}", "floor_mod(p0[i], p1[i])", _a, _b, expected=_wrapped([a % b if b else 0 for a, b in _wide]))
    _to = [pow(a, b, 1 << _bits) if b >= 0 else (a if b % 2 else 1) if abs(a) == 1 else 0 for a, b in _wide]
    each(f"int_pow {_name}", "int_pow(p0[i], p1[i])", _a, _b, expected=_wrapped(_to))
    _left = [a << b if 0 <= b < _bits else 0 for a, b in _wide]
    each(f"shift_left {_name}", "shift_left(p0[i], p1[i])", _a, _b, expected=_wrapped(_left))
    _right = [a >> (b if 0 <= b < _bits else _bits) for a, b in _wide]
    each(f"shift_right {_name}", "shift_right(p0[i], p1[i])", _a, _b, expected=_wrapped(_right))
_a, _b = pairs(integers(np.uint64))
_random = ELEMENTWISE_RULES[OpCode.THREEFRY](const(0, dtypes.uint64), (_a, _b))
each("threefry", "threefry(p0[i], p1[i])", _a, _b, expected=_random)

# ---- floats ----
for _dtype in (np.float32, np.float64):
    _a, _b = pairs(floats(_dtype))
    with np.errstate(all="ignore"):
        _rest, _quotient = np.mod(_a, _b), np.floor_divide(_a, _b)
    each(f"float_mod {np.dtype(_dtype)}", "float_mod(p0[i], p1[i])", _a, _b, expected=_rest)
    each(f"float_floor_div {np.dtype(_dtype)}", "float_floor_div(p0[i], p1[i])", _a, _b, expected=_quotient)
    for _to_type in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        _x = np.concatenate(
            [floats(_dtype), np.array([127.9, 128, -128.5, -129, 255.5, 256, 2**31, 2**63, -(2.0**63)], _dtype)]
        )
        _cut = [cut(float(x), _to_type) for x in _x]
        each(f"{np.dtype(_dtype)} to {np.dtype(_to_type)}", f"to_integer<{np.dtype(_to_type)}>(p0[i])", _x,
             expected=np.array(_cut, _to_type))  # fmt: skip

# NOTE: not a power whose result is subnormal by a hair: there 2 ulp decide between it and 0.
_x = np.array([0, -0.25, -1 / 3, -0.5, -1, -7.75, -125.5, -126.5, -140, -200, -np.inf], np.float32)
_powers = np.exp2(_x.astype(np.float64))
CASES["rough exp2"] = Case(
    "if (i < 11) p2[i] = rough_exp2(p0[i]);", (_x,), np.where(_powers < 2.0**-126, 0, _powers).astype(np.float32),
    relative=2.0**-22,  # PTX ISA 9.7.3.21: 2 to 4 ulp
)  # fmt: skip

_x = np.array([1, 2, 3, -7, 1e-30, 1e30, 0, -0.0, np.inf, -np.inf, 1e-40, -3e38], np.float32)
with np.errstate(divide="ignore"):
    _inverse = 1 / np.where(np.abs(_x) < 2.0**-126, np.copysign(0, _x), _x).astype(np.float64)
CASES["rough reciprocal"] = Case(
    "if (i < 12) p2[i] = rough_reciprocal(p0[i]);", (_x,),
    np.where(np.abs(_inverse) < 2.0**-126, np.copysign(0, _inverse), _inverse).astype(np.float32), relative=2.0**-22,
)  # fmt: skip

# ---- narrow floats ----
PROBES = np.array(
    [0.0, -0.0, 1.0, 1 / 3, -1e-3, 2.0**-24, 2.0**-25, 6e-8, 5e-41, 447.0, 449.0, 464.0, 465.0, 65504.0, 65519.0, 65520.0]
    + [1e9, -3e38, 1.00048828125, 1.0 + 2.0**-11 + 2.0**-30, np.inf, -np.inf, np.nan]
)
NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2)
for _narrow in NARROW:
    with np.errstate(all="ignore"):
        _x = PROBES.astype(np.float32)
        each(f"float32 to {_narrow}", f"to_{_narrow}(p0[i])", _x, expected=_x.astype(_narrow.numpy))
        if _narrow.itemsize == 2:
            each(f"narrowed to {_narrow}", f"narrowed(p0[i], {_narrow}{{}})", _x, expected=_x.astype(_narrow.numpy))
        each(f"{_narrow} to float32", "to_float32(p0[i])", _x.astype(_narrow.numpy),
             expected=_x.astype(_narrow.numpy).astype(np.float32))  # fmt: skip
        # float64 goes to float16 at once, to the others by way of float32.
        _by = PROBES if _narrow == dtypes.float16 else PROBES.astype(np.float32)
        each(f"float64 to {_narrow}", f"to_{_narrow}(p0[i])", PROBES, expected=_by.astype(_narrow.numpy))
with np.errstate(all="ignore"):
    _x = PROBES.astype(np.float32)
    each("narrow", "(uint16)narrow<5, 10, true>(p0[i])", _x[:-1], expected=_x[:-1].astype(np.float16).view(np.uint16))
    each("widen", "widen<5, 10, true>(p0[i])", _x.astype(np.float16).view(np.uint16),
         expected=_x.astype(np.float16).astype(np.float32))  # fmt: skip
    _near = PROBES.astype(np.float32)
    _off = (_near.astype(np.float64) != PROBES) & np.isfinite(PROBES)
    _below = np.where(np.abs(_near.astype(np.float64)) > np.abs(PROBES), np.nextafter(_near, np.float32(0)), _near)
    _odd = np.where(_off, (_below.view(np.uint32) | 1).view(np.float32), _near)
    each("round_to_odd", "round_to_odd(p0[i])", PROBES, expected=_odd)

# ---- matrices of a warp ----
LANE = np.arange(32)
GROUP, PLACE = LANE[:, None] // 4, LANE[:, None] % 4
_x = np.arange(4 * 64).astype(np.float16)
for _turned in (False, True):
    _m, _i = np.arange(8)[None] // 2, np.arange(8)[None] % 2
    _rows, _columns = (2 * PLACE + _i, GROUP + 0 * _i) if _turned else (GROUP + 0 * _i, 2 * PLACE + _i)
    CASES[f"matrices{', turned' if _turned else ''}"] = Case(
        f"""SHARED(float16, tile, 256);
  REGISTERS(float16, own, 8);
  for (int32 k = 0; k < 8; k++) tile[8 * i + k] = p0[8 * i + k];
  __syncthreads();
  load_matrices<{"true" if _turned else "false"}>(own, 0, tile, 8 * i);
  for (int32 k = 0; k < 8; k++) p2[8 * i + k] = own[k];""",
        (_x,), _x.reshape(4, 8, 8)[_m, _rows, _columns].reshape(-1), threads=32,
    )  # fmt: skip
PRODUCT = """REGISTERS(float32, acc, 4);
  REGISTERS(T, lhs, 8);
  REGISTERS(T, rhs, 4);
  const int32 g = i / 4, t = i % 4;
  for (int32 k = 0; k < 4; k++) acc[k] = 1.0f;
  for (int32 k = 0; k < 8; k++) lhs[k] = p0[(g + 8 * (k / 2 % 2)) * 16 + 2 * t + k % 2 + 8 * (k / 4)];
  for (int32 k = 0; k < 4; k++) rhs[k] = p1[(2 * t + k % 2 + 8 * (k / 2)) * 8 + g];
  mma_m16n8k16(acc, 0, lhs, 0, rhs, 0);
  for (int32 k = 0; k < 4; k++) p2[(g + 8 * (k / 2)) * 8 + 2 * t + k % 2] = acc[k];"""
_rng = np.random.default_rng(5)
for _narrow in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
    _whole = [_rng.integers(-8, 9, shape).astype(_narrow.numpy) for shape in ((16, 16), (16, 8))]
    _rough = [_rng.standard_normal(shape).astype(np.float32).astype(_narrow.numpy) for shape in ((16, 16), (16, 8))]
    for _kind, (_a, _b) in {"whole numbers": _whole, "rough numbers": _rough}.items():
        _lhs, _rhs = (as_tf32(m) if _narrow == dtypes.float32 else m.astype(np.float32) for m in (_a, _b))
        _sum = (1 + _lhs.astype(np.float64) @ _rhs.astype(np.float64)).astype(np.float32)
        # Hardware adds 8 or 16 products in an order and with bits of its own.
        CASES[f"mma of {_narrow}, {_kind}"] = Case(
            PRODUCT, (_a, _b), _sum, threads=32, tolerance=0.0 if _kind == "whole numbers" else 1e-6
        )
