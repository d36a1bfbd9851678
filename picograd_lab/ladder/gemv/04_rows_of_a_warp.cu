// Rows of a warp: a warp has four rows: what it loads of x serves four times.
//
// For each vector of x there are four of a, whose loads do not wait for each other. x is read M / 4 times in all, not M
// times. Rows past the last are computed as the last one is, and not stored. What is left: M / 4 warps are too few
// where there are few rows, however long.
#include "primitives.h"

static const int32 WARPS = 8, ROWS = 4;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    rows_of_a_warp(Global<const float32> a, Global<const float32> x, Global<float32> y) {
  const int32 first = (blockIdx.x * WARPS + threadIdx.x / 32) * ROWS, lane = threadIdx.x % 32;
  if (first >= M) return;
  REGISTERS(float32, sums, ROWS);
#pragma unroll
  for (int32 i = 0; i < ROWS; i++) sums[i] = 0.0f;
  for (int32 k = 4 * lane; k < K; k += 128) {
    const Lanes<float32, 4> of_x = load_lanes<4>(aligned(x), k);
#pragma unroll
    for (int32 i = 0; i < ROWS; i++) {
      const int32 row = first + i < M ? first + i : M - 1;
      const Lanes<float32, 4> of_a = load_lanes<4>(aligned(a), row * K + k);
      for (int32 j = 0; j < 4; j++) sums[i] = fmaf(of_a.at[j], of_x.at[j], sums[i]);
    }
  }
#pragma unroll
  for (int32 i = 0; i < ROWS; i++) {
    float32 sum = sums[i];
    for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
    if (lane == 0 && first + i < M) y[first + i] = sum;
  }
}
