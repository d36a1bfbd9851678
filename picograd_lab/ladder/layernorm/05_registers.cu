// Registers: a row stays in the registers of its warp: x is read once.
//
// With the row at hand, two passes are as good as one. A thread has at most 64 elements, so COLS <= 64 * 32. The mean
// is found first, then the squared differences from it: neither divisions nor products of counts, five shuffles of one
// number each. Loops over registers are unrolled, as registers have no addresses. What is left is nothing of memory,
// but for weight and bias, which each row reads anew, from a cache. Longer rows want a block each.
#include "primitives.h"

static const int32 WARPS = 8, STEPS = (COLS + 127) / 128;

PRIMITIVE float32 sum_warp(float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    registers(Global<const float32> x, Global<const float32> weight, Global<const float32> bias, Global<float32> y) {
  const int32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, first = row * COLS;
  if (row >= ROWS) return;
  REGISTERS(float32, own, 4 * STEPS);
  float32 sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int32 step = 0; step < STEPS; step++) {
    const int32 i = 128 * step + 4 * lane;
    Lanes<float32, 4> four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (i < COLS) four = load_lanes<4>(aligned(x), first + i);
#pragma unroll
    for (int32 j = 0; j < 4; j++) own[4 * step + j] = four.at[j], sum += four.at[j];
  }
  const float32 mean = sum_warp(sum) / COLS;
#pragma unroll
  for (int32 step = 0; step < STEPS; step++) {
#pragma unroll
    for (int32 j = 0; j < 4; j++) {
      const float32 apart = own[4 * step + j] - mean;
      if (128 * step + 4 * lane < COLS) squares = fmaf(apart, apart, squares);
    }
  }
  const float32 scale = 1.0f / sqrtf(sum_warp(squares) / COLS + 1e-5f);
#pragma unroll
  for (int32 step = 0; step < STEPS; step++) {
    const int32 i = 128 * step + 4 * lane;
    if (i >= COLS) continue;
    const Lanes<float32, 4> scales = load_lanes<4>(aligned(weight), i), shifts = load_lanes<4>(aligned(bias), i);
    Lanes<float32, 4> four;
#pragma unroll
    for (int32 j = 0; j < 4; j++) four.at[j] = (own[4 * step + j] - mean) * scale * scales.at[j] + shifts.at[j];
    store_lanes(aligned(y), first + i, four);
  }
}
