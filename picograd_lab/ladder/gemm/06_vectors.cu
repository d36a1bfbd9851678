// Vectors: a load or store brings four neighbours, 16 bytes.
//
// A quarter of the instructions do the same work. Rows of a and b must begin at multiples of 16 bytes. The tile of a is transposed on
// its way to shared memory, so that the 8 rows of a thread are neighbours; each of its lines is 4 longer than the tile, so
// that the 32 elements that a warp stores go to 32 banks. What is left: two neighbouring threads have columns that are 8 apart, so that of
// 8 threads that are served at once two ask each bank.
#include "primitives.h"

static const int32 TILE = 128, DEPTH = 8, SIDE = 8, WIDE = TILE / SIDE, THREADS = WIDE * WIDE, LINE = TILE + 4;

extern "C" __global__ void __launch_bounds__(THREADS)
    vectors(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  SHARED(float32, a_tile, DEPTH * LINE);
  SHARED(float32, b_tile, DEPTH * TILE);
  REGISTERS(float32, sums, SIDE * SIDE);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, first_column = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, y = t / WIDE * SIDE, x = t % WIDE * SIDE;
  const int32 a_row = t / 2, a_column = t % 2 * 4, b_row = t / 32, b_column = t % 32 * 4;  // of what the thread brings
#pragma unroll
  for (int32 i = 0; i < SIDE * SIDE; i++) sums[i] = 0.0f;
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
      const Lanes<float32, 4> left[] = {load_lanes<4>(a_tile, k * LINE + y), load_lanes<4>(a_tile, k * LINE + y + 4)};
      const Lanes<float32, 4> right[] = {load_lanes<4>(b_tile, k * TILE + x), load_lanes<4>(b_tile, k * TILE + x + 4)};
#pragma unroll
      for (int32 i = 0; i < SIDE; i++)
#pragma unroll
        for (int32 j = 0; j < SIDE; j++)
          sums[i * SIDE + j] = fmaf(left[i / 4].at[i % 4], right[j / 4].at[j % 4], sums[i * SIDE + j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int32 i = 0; i < SIDE; i++) {
#pragma unroll
    for (int32 j = 0; j < SIDE; j += 4) {
      const int32 from = i * SIDE + j, row = top + y + i, column = first_column + x + j;
      const Lanes<float32, 4> lanes = {sums[from], sums[from + 1], sums[from + 2], sums[from + 3]};
      if (row < M && column < N) store_lanes(c, row * N + column, lanes);
    }
  }
}
