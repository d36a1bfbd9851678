// Split K: eight warps share four rows, an eighth of K each.
//
// Warp w of a block has vectors w, w + 8, w + 16 and so on of each 32: the block reads along its rows together. Their
// sums meet in shared memory, and always in the same order: the result is the same bits each time, which atomic
// additions would not give. What is left: a is read once and x M / 4 times, from a cache; that is all that there is to
// read.
#include "primitives.h"

static const int32 PARTS = 8, ROWS = 4;

extern "C" __global__ void __launch_bounds__(32 * PARTS)
    split_k(Global<const float32> a, Global<const float32> x, Global<float32> y) {
  SHARED(float32, parts, PARTS * ROWS);
  const int32 first = blockIdx.x * ROWS, part = threadIdx.x / 32, lane = threadIdx.x % 32;
  REGISTERS(float32, sums, ROWS);
#pragma unroll
  for (int32 i = 0; i < ROWS; i++) sums[i] = 0.0f;
  for (int32 k = 4 * threadIdx.x; k < K; k += 128 * PARTS) {
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
    if (lane == 0) parts[part * ROWS + i] = sum;
  }
  __syncthreads();
  if (threadIdx.x < ROWS && first + threadIdx.x < M) {
    float32 sum = 0.0f;
    for (int32 i = 0; i < PARTS; i++) sum += parts[i * ROWS + threadIdx.x];
    y[first + threadIdx.x] = sum;
  }
}
