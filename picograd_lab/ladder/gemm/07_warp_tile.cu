// Warp tile: a warp computes 64 x 32 elements, in groups of 4 x 4.
//
// Of a tile of 128 x 128 a warp had 16 x 128 elements, for which it reads 144 of a and b; of 64 x 32 it reads 96. A thread has four groups
// of 4 x 4 elements, so that neighbouring threads have neighbouring groups: 8 threads that are served at once ask for 32 different
// banks, or for the same words. What is left: while tiles are on their way from memory, the multiply-adds wait.
#include "primitives.h"

static const int32 TILE = 128, DEPTH = 8, THREADS = 256, LINE = TILE + 4;
static const int32 ROWS = 64, COLUMNS = 32, WARPS_WIDE = TILE / COLUMNS;  // of a warp
static const int32 HIGH = 8, WIDE = 4;                                    // threads of a warp: each has 2 x 2 groups

extern "C" __global__ void __launch_bounds__(THREADS)
    warp_tile(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  SHARED(float32, a_tile, DEPTH * LINE);
  SHARED(float32, b_tile, DEPTH * TILE);
  REGISTERS(float32, sums, 64);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, first_column = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int32 y = warp / WARPS_WIDE * ROWS + lane / WIDE * 4, x = warp % WARPS_WIDE * COLUMNS + lane % WIDE * 4;
  const int32 below = HIGH * 4, beyond = WIDE * 4;  // from one group to the next
  const int32 a_row = t / 2, a_column = t % 2 * 4, b_row = t / 32, b_column = t % 32 * 4;
#pragma unroll
  for (int32 i = 0; i < 64; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < K; first += DEPTH) {
    Lanes<float32, 4> a_lanes = {}, b_lanes = {};
    if (top + a_row < M && first + a_column < K) a_lanes = load_lanes<4>(a, (top + a_row) * K + first + a_column);
    if (first + b_row < K && first_column + b_column < N)
      b_lanes = load_lanes<4>(b, (first + b_row) * N + first_column + b_column);
#pragma unroll
    for (int32 i = 0; i < 4; i++) a_tile[(a_column + i) * LINE + a_row] = a_lanes.at[i];
    store_lanes(b_tile, b_row * TILE + b_column, b_lanes);
    __syncthreads();
#pragma unroll
    for (int32 k = 0; k < DEPTH; k++) {
      const Lanes<float32, 4> left[] = {load_lanes<4>(a_tile, k * LINE + y), load_lanes<4>(a_tile, k * LINE + y + below)};
      const Lanes<float32, 4> right[] = {load_lanes<4>(b_tile, k * TILE + x), load_lanes<4>(b_tile, k * TILE + x + beyond)};
#pragma unroll
      for (int32 i = 0; i < 8; i++)
#pragma unroll
        for (int32 j = 0; j < 8; j++) sums[i * 8 + j] = fmaf(left[i / 4].at[i % 4], right[j / 4].at[j % 4], sums[i * 8 + j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int32 i = 0; i < 8; i++) {
#pragma unroll
    for (int32 j = 0; j < 2; j++) {
      const int32 from = i * 8 + j * 4, row = top + y + i / 4 * below + i % 4, column = first_column + x + j * beyond;
      const Lanes<float32, 4> lanes = {sums[from], sums[from + 1], sums[from + 2], sums[from + 3]};
      if (row < M && column < N) store_lanes(c, row * N + column, lanes);
    }
  }
}
