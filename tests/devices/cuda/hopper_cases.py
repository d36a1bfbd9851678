"""The meaning of each primitive of devices/cuda/hopper.h, as primitive_cases.py has it for the other header."""

from __future__ import annotations

import re

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.stages import TileMap
from tests.devices.cuda.primitive_cases import Case
from tests.gpu_programs import Array

FROM_HOPPER, OF_HOPPER = ("sm_90a", "sm_100a"), ("sm_90a",)
CASES: dict[str, Case] = {}

# ---- threads ----
_x = np.arange(128, dtype=np.int32)
CASES["one of a warp"] = Case(
    """SHARED(int32, count, 4);
  if (i < 4) count[i] = 0;
  __syncthreads();
  if (is_elected()) atomic_add(count, i / 32, 1);
  __syncthreads();
  if (i < 4) p2[i] = count[i] + p0[i];""",
    (_x,), _x[:4] + 1, FROM_HOPPER, threads=128,
)  # fmt: skip
CASES["this thread"] = Case("p2[i] = p0[127 - thread_here()];", (_x,), _x[::-1].copy(), FROM_HOPPER, threads=128)
CASES["a number of a warp"] = Case("p2[i] = p0[i] + of_warp(i / 32);", (_x,), _x + _x // 32, FROM_HOPPER, threads=128)
CASES["threads of a warp"] = Case(
    "SHARED(int32, own, 128);\n  own[i] = p0[i];\n  sync_warp();\n  p2[i] = own[i ^ 9];",
    (_x,), _x[_x ^ 9], FROM_HOPPER, threads=128,
)  # fmt: skip
_x = np.arange(256, dtype=np.int32)
CASES["threads of a warpgroup"] = Case(
    "SHARED(int32, own, 256);\n  own[i] = p0[i];\n  sync_warpgroup();\n  p2[i] = own[i ^ 77];",
    (_x,), _x[_x ^ 77], FROM_HOPPER, threads=256,
)  # fmt: skip
CASES["registers of a warpgroup"] = Case(
    "if (i < 128) fewer_registers<40>();\n  else more_registers<232>();\n  p2[i] = p0[i];",
    (_x,), _x, FROM_HOPPER, threads=256,
)  # fmt: skip

# ---- mbarriers ----
CASES["an mbarrier"] = Case(
    """SHARED(int32, own, 64);
  MBARRIERS(written, 1);
  if (i == 0) mbarrier_init(written, 0, 64);
  __syncthreads();
  for (int32 turn = 0; turn < 3; turn++) {
    if (i < 64) {
      own[i] = p0[i] + turn;
      mbarrier_arrive(written, 0);
      mbarrier_wait(written, 0, turn % 2);
      p2[64 * turn + i] = own[63 - i];
    }
    __syncthreads();
  }""",
    (_x[:64],), np.concatenate([_x[:64][::-1] + turn for turn in range(3)]), FROM_HOPPER, threads=96,
)  # fmt: skip

# ---- clusters ----
# Each of two blocks brings half of a tile to both, twice: the second time when both have read the first.
_x = np.arange(2 * 16 * 32, dtype=np.float32).reshape(2, 16, 32)
CASES["a tile for a cluster"] = Case(
    """SHARED_TILE(T, tile, 512);
  MBARRIERS(full, 1);
  MBARRIERS(empty, 1);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 0, 1);
    mbarrier_init(empty, 0, 2);
    fence_mbarriers();
  }
  sync_cluster();
  for (int32 turn = 0; turn < 2; turn++) {
    if (threadIdx.x == 0) {
      mbarrier_wait(empty, 0, turn ^ 1);
      mbarrier_arrive_expecting(full, 0, 2048);
      load_tile_to_all<2>(tile, 256 * blockIdx.x, map0, full, 0, 0, 8 * blockIdx.x, turn);
    }
    mbarrier_wait(full, 0, turn);
    for (int32 k = threadIdx.x; k < 512; k += 128) p2[(turn * 2 + blockIdx.x) * 512 + k] = tile[k];
    __syncthreads();
    if (threadIdx.x < 2) mbarrier_arrive_at(empty, 0, threadIdx.x);
  }
  sync_cluster();""",
    (_x,), np.repeat(_x, 2, axis=0), FROM_HOPPER, threads=128, blocks=2, cluster=2,
    maps=(TileMap(0, (2, 16, 32), (1, 8, 32), swizzles=False),),
)  # fmt: skip

# ---- copies of tiles ----
_x = np.arange(20 * 48, dtype=np.float32).reshape(20, 48)
_box = np.zeros((8, 32), np.float32)
_box[:4, :16] = _x[16:, 32:]
LOAD = """SHARED_TILE(T, tile, 256);
  MBARRIERS(full, 1);
  if (i == 0) {
    mbarrier_init(full, 0, 1);
    fence_mbarriers();
    mbarrier_arrive_expecting(full, 0, 1024);
    load_tile(tile, 0, map0, full, 0, PLACES);
  }
  __syncthreads();
  mbarrier_wait(full, 0, 0);
  for (int32 k = i; k < 256; k += 64) p2[k] = tile[INDEX];"""
for _name, _index, _swizzles in (("a tile", "k", False), ("a tile, swizzled", "swizzled<T>(k)", True)):
    CASES[f"{_name}, past the end"] = Case(
        LOAD.replace("PLACES", "32, 16").replace("INDEX", _index),
        (_x,), _box, FROM_HOPPER, maps=(TileMap(0, (20, 48), (8, 32), _swizzles),),
    )  # fmt: skip


def copied_as_tf32(values: Array) -> Array:
    """Returns float32 as a copy of tiles rounds them to TF32: ties to even, and of a NaN another."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & ~np.uint32(0x1FFF)
    return np.where(values != values, np.uint32(0x7FFFE000), rounded).astype(np.uint32).view(np.float32)


_x = np.array([0, 1, 0x3F800FFF, 0x3F801000, 0x3F801001, 0xBF803000, 0x7F7FFFFF, 0xFF800000, 0x7FC00000, 0x1234], np.uint32)
_x = np.resize(np.concatenate([_x, np.arange(0x40000000, 0x40004000, 64, np.uint32)]), 256).view(np.float32)
CASES["a tile that is rounded to TF32"] = Case(
    LOAD.replace("PLACES", "0").replace("INDEX", "k"), (_x,), copied_as_tf32(_x), FROM_HOPPER,
    maps=(TileMap(0, (256,), (256,), False, rounds=True),),
)  # fmt: skip
for _axes, _shape, _boxed in (
    (1, (512,), (256,)),
    (3, (3, 6, 64), (2, 4, 32)),
    (4, (3, 3, 6, 64), (1, 2, 4, 32)),
    (5, (2, 2, 2, 6, 64), (2, 1, 1, 4, 32)),
):
    _whole = np.arange(np.prod(_shape), dtype=np.float32).reshape(_shape)
    _part = _whole[tuple(slice(size - box, size) for size, box in zip(_shape, _boxed))]
    _places = ", ".join(str(size - box) for size, box in zip(_shape[::-1], _boxed[::-1]))
    CASES[f"a tile of {_axes} axes"] = Case(
        LOAD.replace("PLACES", _places).replace("INDEX", "k"),
        (_whole,), _part.reshape(-1).copy(), FROM_HOPPER, maps=(TileMap(0, _shape, _boxed, False),),
    )  # fmt: skip
CASES["a tile that is stored"] = Case(
    """SHARED_TILE(T, tile, 256);
  for (int32 turn = 0; turn < 2; turn++) {
    for (int32 k = i; k < 256; k += 64) tile[swizzled<T>(k)] = p0[256 * turn + k];
    fence_async_proxy();
    __syncthreads();
    if (i == 0) {
      store_tile(map0, tile, 0, 0, 8 * turn);
      commit_stores();
      wait_stores<0>();
    }
    __syncthreads();
  }""",
    (np.arange(512, dtype=np.float32),), np.arange(12 * 32, dtype=np.float32), FROM_HOPPER,
    maps=(TileMap(1, (12, 32), (8, 32)),),
)  # fmt: skip
# Each of two consumers reads what the producer copies, and says so by all of its threads, or by one a warp.
STREAM = """SHARED_TILE(T, tiles, 512);
  MBARRIERS(full, 2);
  MBARRIERS(empty, 2);
  if (i == 0) {
    for (int32 stage = 0; stage < 2; stage++) {
      mbarrier_init(full, stage, 1);
      mbarrier_init(empty, stage, ARRIVALS);
    }
    fence_mbarriers();
  }
  __syncthreads();
  if (i == 64) {
    for (int32 k = 0; k < 5; k++) {
      mbarrier_wait(empty, k % 2, k / 2 % 2 ^ 1);
      mbarrier_arrive_expecting(full, k % 2, 1024);
      load_tile(tiles, k % 2 * 256, map0, full, k % 2, 0, 8 * k);
    }
  }
  if (i < 64) {
    float32 sum = 0.0f;
    for (int32 k = 0; k < 5; k++) {
      mbarrier_wait(full, k % 2, k / 2 % 2);
      for (int32 lane = 0; lane < 256; lane += 4) sum += tiles[k % 2 * 256 + swizzled<T>((lane + i) % 256)];
      ARRIVES
    }
    p2[i] = sum;
  }"""
_x = np.arange(40 * 32, dtype=np.float32).reshape(40, 32)
_sums = _x.reshape(-1, 4).sum(0)[np.arange(64) % 4]
for _name, _arrivals, _arrives in (
    ("all threads", 64, "mbarrier_arrive(empty, k % 2);"),
    ("a thread a warp", 2, "sync_warp(); if (i % 32 == 7) mbarrier_arrive(empty, k % 2);"),
):
    CASES[f"a stream that {_name} give back"] = Case(
        STREAM.replace("ARRIVALS", str(_arrivals)).replace("ARRIVES", _arrives),
        (_x,), _sums, FROM_HOPPER, threads=96, maps=(TileMap(0, (40, 32), (8, 32)),),
    )  # fmt: skip

# ---- matrix instructions of a warpgroup ----
PRODUCT = """SHARED_TILE(T, lhs, 64 * ROW);
  SHARED_TILE(T, rhs, WIDE * ROW);
  MBARRIERS(full, 1);
  if (i == 0) {
    mbarrier_init(full, 0, 1);
    fence_mbarriers();
    mbarrier_arrive_expecting(full, 0, 8192 + WIDE * 128);
    load_tile(lhs, 0, map0, full, 0, 0, 0);
    for (int32 first = 0; first < WIDE; first += BOX)
      load_tile(rhs, first * ROW, map1, full, 0, RIGHT ? first : 0, RIGHT ? 0 : first);
  }
  __syncthreads();
  mbarrier_wait(full, 0, 0);
  REGISTERS(float32, acc, COLUMNS / 2);
#pragma unroll
  for (int32 k = 0; k < COLUMNS / 2; k++) acc[k] = 1.0f;
  wgmma_fence<COLUMNS / 2>(acc, 0);
  const auto left = operand_at<LEFT>(lhs, 0, 4096);
  const auto right = operand_at<RIGHT>(rhs, 0, 4096);
  WGMMA<COLUMNS>(acc, 0, moved(left, LEFT ? 1024 : STEP), moved(right, RIGHT ? 1024 : STEP), true);
  WGMMA<COLUMNS>(acc, 0, moved(left, LEFT ? 3072 : 3 * STEP), moved(right, RIGHT ? 3072 : 3 * STEP), true);
  wgmma_commit();
  wgmma_wait<0, COLUMNS / 2>(acc, 0);
  const int32 warp = i / 32, g = i % 32 / 4, t = i % 4;
#pragma unroll
  for (int32 k = 0; k < COLUMNS / 2; k++)
    p2[(16 * warp + g + k / 2 % 2 * 8) * COLUMNS + k / 4 * 8 + 2 * t + k % 2] = acc[k];"""
_rng = np.random.default_rng(6)


def _product_case(narrow: DType, columns: int, across: tuple[bool, bool], kind: str) -> Case:
    """Returns wgmma of two matrices of which a row of memory has elements of K, or where they lie across K, of a column."""
    wide = -(-columns // 64) * 64 if across[1] else columns
    row, step = 128 // narrow.itemsize, 32 // narrow.itemsize
    drawn = [
        _rng.integers(-8, 9, (rows, row)) if kind == "whole" else _rng.standard_normal((rows, row)) for rows in (64, wide)
    ]
    given = [each.astype(narrow.numpy) for each in drawn]
    read = given
    if narrow == dtypes.float32:
        read = [(each.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32) for each in given]
    lhs, rhs = (each.astype(np.float64)[:, [*range(step, 2 * step), *range(3 * step, row)]] for each in read)
    stored = tuple(np.ascontiguousarray(each.T) if turned else each for each, turned in zip(given, across))
    box = 64 if across[1] else columns
    names = {"COLUMNS": columns, "WIDE": wide, "BOX": box, "LEFT": str(across[0]).lower(), "RIGHT": str(across[1]).lower(),
             "ROW": row, "STEP": step, "WGMMA": f"wgmma_m64k{step}"}  # fmt: skip
    body = PRODUCT
    for name, value in names.items():
        body = re.sub(rf"\b{name}\b", str(value), body)
    # Hardware adds the 16 products in an order and with bits of its own.
    return Case(
        body, stored, (1 + lhs @ rhs[:columns].T).astype(np.float32), OF_HOPPER, threads=128,
        tolerance=0.0 if kind == "whole" else 1e-6,
        maps=(TileMap(0, (64, row), (64, row)), TileMap(1, stored[1].shape, (64 if across[1] else columns, row))),
    )  # fmt: skip


ALONG = (False, False)
for _narrow, _columns, _across in (
    (dtypes.bfloat16, 64, ALONG), (dtypes.float16, 128, ALONG), (dtypes.bfloat16, 192, ALONG),
    (dtypes.float16, 256, ALONG), (dtypes.bfloat16, 96, ALONG), (dtypes.float16, 208, ALONG),
    (dtypes.bfloat16, 256, (False, True)), (dtypes.float16, 128, (True, False)), (dtypes.bfloat16, 160, (True, True)),
    (dtypes.float32, 128, ALONG), (dtypes.float32, 240, ALONG),
):  # fmt: skip
    for _kind in ("whole", "rough"):
        _lies = " and ".join("across" if each else "along" for each in _across)
        _name = f"wgmma of {_narrow}, {_columns} columns, {_lies} K, {_kind} numbers"
        CASES[_name] = _product_case(_narrow, _columns, _across, _kind)

# The left operand is in registers.
HELD_PRODUCT = """SHARED_TILE(T, rhs, COLUMNS * 64);
  MBARRIERS(full, 1);
  if (i == 0) {
    mbarrier_init(full, 0, 1);
    fence_mbarriers();
    mbarrier_arrive_expecting(full, 0, COLUMNS * 128);
    for (int32 first = 0; first < COLUMNS; first += 64)
      load_tile(rhs, first * 64, map0, full, 0, RIGHT ? first : 0, RIGHT ? 0 : first);
  }
  __syncthreads();
  mbarrier_wait(full, 0, 0);
  const int32 warp = i / 32, g = i % 32 / 4, t = i % 4;
  REGISTERS(float32, acc, COLUMNS / 2);
  REGISTERS(uint32, pairs, 8);
#pragma unroll
  for (int32 k = 0; k < 8; k++) {
    const int32 at = (16 * warp + g + 8 * (k % 2)) * 32 + 8 * (k / 2) + 2 * t;
    pairs[k] = pair_up(to_float32(p0[at]), to_float32(p0[at + 1]), T{});
  }
#pragma unroll
  for (int32 k = 0; k < COLUMNS / 2; k++) acc[k] = 1.0f;
  wgmma_fence<8>(pairs, 0);
  wgmma_fence<COLUMNS / 2>(acc, 0);
  const auto right = operand_at<RIGHT>(rhs, 0, 4096);
  wgmma_m64k16<COLUMNS>(acc, 0, pairs, 0, right, true);
  wgmma_m64k16<COLUMNS>(acc, 0, pairs, 4, moved(right, RIGHT ? 1024 : 16), true);
  wgmma_commit();
  wgmma_wait<0, COLUMNS / 2>(acc, 0);
  wgmma_done<8>(pairs, 0);
#pragma unroll
  for (int32 k = 0; k < COLUMNS / 2; k++)
    p2[(16 * warp + g + k / 2 % 2 * 8) * COLUMNS + k / 4 * 8 + 2 * t + k % 2] = acc[k];"""


def _held_case(narrow: DType, columns: int, is_across: bool) -> Case:
    """Returns wgmma of a matrix in registers and one in shared memory."""
    lhs, rhs = (_rng.integers(-8, 9, shape).astype(narrow.numpy) for shape in ((64, 32), (columns, 64)))
    stored = np.ascontiguousarray(rhs.T) if is_across else rhs
    body = HELD_PRODUCT.replace("COLUMNS", str(columns)).replace("RIGHT", str(is_across).lower())
    value = 1 + lhs.astype(np.float64) @ rhs.astype(np.float64)[:, :32].T
    return Case(
        body, (lhs, stored), value.astype(np.float32), OF_HOPPER, threads=128, tolerance=0.0,
        maps=(TileMap(1, stored.shape, (64, 64)),),
    )  # fmt: skip


for _narrow, _columns, _is_across in (
    (dtypes.bfloat16, 64, True), (dtypes.float16, 128, True), (dtypes.bfloat16, 128, False)
):  # fmt: skip
    _name = f"wgmma of {_narrow} in registers, {_columns} columns, {'across' if _is_across else 'along'} K"
    CASES[_name] = _held_case(_narrow, _columns, _is_across)

# ---- matrices of a warp ----
_x = np.arange(16 * 64, dtype=np.float16).reshape(16, 64)
CASES["matrices that are stored"] = Case(
    """SHARED_TILE(T, tile, 1024);
  REGISTERS(T, own, 8);
  const int32 g = i / 4, t = i % 4, m = i / 8, r = i % 8;
  for (int32 column = 0; column < 64; column += 16) {
#pragma unroll
    for (int32 k = 0; k < 8; k++) own[k] = p0[(g + k / 2 % 2 * 8) * 64 + column + k / 4 * 8 + 2 * t + k % 2];
    store_matrices(tile, swizzled<T>((m % 2 * 8 + r) * 64 + column + m / 2 * 8), own, 0);
  }
  sync_warp();
  for (int32 k = i; k < 1024; k += 32) p2[k] = tile[swizzled<T>(k)];""",
    (_x,), _x, FROM_HOPPER, threads=32,
)  # fmt: skip
