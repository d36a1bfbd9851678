// Async copies: the next tiles come to shared memory while these are multiplied.
//
// cp.async copies 16 bytes from memory to shared memory, through no register, and its thread goes on. Three tiles of each operand are a
// ring: one is multiplied, two are on their way. One barrier a step is enough: behind it the tile of the step before is free. A copy
// cannot transpose, so a lies in rows of 16 of K and a thread reads four of K at a time; rows are 4 longer, so that they
// begin in different banks. What is left: the multiply-adds themselves, one by one.
#include "primitives.h"

static const int32 TILE = 128, DEPTH = 16, THREADS = 256, STAGES = 3, LINE = DEPTH + 4;
static const int32 ROWS = 64, COLUMNS = 32, WARPS_WIDE = TILE / COLUMNS;  // of a warp
static const int32 HIGH = 8, WIDE = 4;                                    // threads of a warp: each has 2 x 2 groups of 4 x 4
static const int32 A_LENGTH = TILE * LINE, B_LENGTH = DEPTH * TILE;

extern "C" __global__ void __launch_bounds__(THREADS)
    async_copies(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  SHARED_AT(float32, a_tile, STAGES * A_LENGTH, 0);
  SHARED_AT(float32, b_tile, STAGES * B_LENGTH, STAGES * A_LENGTH * 4);
  REGISTERS(float32, sums, 64);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, first_column = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int32 y = warp / WARPS_WIDE * ROWS + lane / WIDE * 4, x = warp % WARPS_WIDE * COLUMNS + lane % WIDE * 4;
  const int32 below = HIGH * 4, beyond = WIDE * 4;  // from one group to the next
  const auto copy_step = [&](int32 step) {          // a group of copies, which may be empty
    const int32 stage = step % STAGES, first = step * DEPTH;
#pragma unroll
    for (int32 i = t; i < TILE * DEPTH / 4 && first < K; i += THREADS) {
      const int32 row = i / 4, k = i % 4 * 4, b_row = i / 32, column = i % 32 * 4;
      copy_async<4>(a_tile, stage * A_LENGTH + row * LINE + k, a, (top + row) * K + first + k, top + row < M && first + k < K);
      copy_async<4>(b_tile, stage * B_LENGTH + b_row * TILE + column, b, (first + b_row) * N + first_column + column,
                    first + b_row < K && first_column + column < N);
    }
    commit_copies();
  };
#pragma unroll
  for (int32 i = 0; i < 64; i++) sums[i] = 0.0f;
  for (int32 step = 0; step < STAGES - 1; step++) copy_step(step);
  for (int32 step = 0; step * DEPTH < K; step++) {
    wait_copies<STAGES - 2>();
    __syncthreads();
    copy_step(step + STAGES - 1);
    const int32 a_begins = step % STAGES * A_LENGTH, b_begins = step % STAGES * B_LENGTH;
#pragma unroll
    for (int32 first = 0; first < DEPTH; first += 4) {
      Lanes<float32, 4> left[8];
#pragma unroll
      for (int32 i = 0; i < 8; i++) left[i] = load_lanes<4>(a_tile, a_begins + (y + i / 4 * below + i % 4) * LINE + first);
#pragma unroll
      for (int32 k = 0; k < 4; k++) {
        const int32 line = b_begins + (first + k) * TILE + x;
        const Lanes<float32, 4> right[] = {load_lanes<4>(b_tile, line), load_lanes<4>(b_tile, line + beyond)};
#pragma unroll
        for (int32 i = 0; i < 8; i++)
#pragma unroll
          for (int32 j = 0; j < 8; j++) sums[i * 8 + j] = fmaf(left[i].at[k], right[j / 4].at[j % 4], sums[i * 8 + j]);
      }
    }
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
