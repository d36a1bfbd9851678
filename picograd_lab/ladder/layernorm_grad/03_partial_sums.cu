// Partial sums: a block keeps the sums of its rows in registers, and stores one row.
//
// There are no more blocks than a GPU runs at a time, and each walks along rows. A warp keeps its row in registers, so
// x and g are read once; and each thread keeps sums for its columns over all rows of the warp. At the end the eight
// warps of a block add theirs in shared memory, one after the other, and one partial row for each block goes to memory,
// where a second kernel adds them up. A thread has 32 elements of a row at most: COLS <= 1024. What is left: a load
// moves 4 bytes a thread.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const float32> x, Global<const float32> weight, Global<const float32> g, Global<const float32> mean,      \
      Global<const float32> scale, Global<float32> dx, Global<float32> dweight, Global<float32> dbias, Global<float32> parts
static const int32 WARPS = 8, MOST = 264;  // blocks: two for each multiprocessor of an H100
static const int32 BLOCKS = (ROWS + WARPS - 1) / WARPS < MOST ? (ROWS + WARPS - 1) / WARPS : MOST;
static const int32 OWN = (COLS + 31) / 32;

PRIMITIVE float32 sum_warp(float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) partial_sums(MEMORY) {
  SHARED(float32, of_weight, COLS);
  SHARED(float32, of_bias, COLS);
  REGISTERS(float32, n, OWN);
  REGISTERS(float32, slope, OWN);
  REGISTERS(float32, weight_sum, OWN);
  REGISTERS(float32, bias_sum, OWN);
  const int32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int32 j = 0; j < OWN; j++) weight_sum[j] = 0.0f, bias_sum[j] = 0.0f;
  for (int32 row = blockIdx.x * WARPS + warp; row < ROWS; row += BLOCKS * WARPS) {
    const float32 centre = mean[row], factor = scale[row];
    float32 sum = 0.0f, product = 0.0f;
#pragma unroll
    for (int32 j = 0; j < OWN; j++) {
      const int32 i = 32 * j + lane;
      const bool is_there = i < COLS;
      n[j] = is_there ? (x[row * COLS + i] - centre) * factor : 0.0f;
      slope[j] = is_there ? g[row * COLS + i] : 0.0f;
      const float32 h = is_there ? slope[j] * weight[i] : 0.0f;
      sum += h;
      product = fmaf(h, n[j], product);
      weight_sum[j] = fmaf(slope[j], n[j], weight_sum[j]);
      bias_sum[j] += slope[j];
    }
    sum = sum_warp(sum) / COLS;
    product = sum_warp(product) / COLS;
#pragma unroll
    for (int32 j = 0; j < OWN; j++) {
      const int32 i = 32 * j + lane;
      if (i < COLS) dx[row * COLS + i] = factor * (slope[j] * weight[i] - sum - n[j] * product);
    }
  }
  // ---- the sums of the eight warps, one after the other ----
  for (int32 turn = 0; turn < WARPS; turn++) {
    __syncthreads();
    if (warp != turn) continue;
#pragma unroll
    for (int32 j = 0; j < OWN; j++) {
      const int32 i = 32 * j + lane;
      if (i >= COLS) continue;
      of_weight[i] = turn ? of_weight[i] + weight_sum[j] : weight_sum[j];
      of_bias[i] = turn ? of_bias[i] + bias_sum[j] : bias_sum[j];
    }
  }
  __syncthreads();
  for (int32 i = threadIdx.x; i < COLS; i += 32 * WARPS) {
    parts[2 * blockIdx.x * COLS + i] = of_weight[i];
    parts[(2 * blockIdx.x + 1) * COLS + i] = of_bias[i];
  }
}

extern "C" __global__ void __launch_bounds__(256) sums(MEMORY) {
  const int32 i = blockIdx.x * 256 + threadIdx.x;
  if (i >= COLS) return;
  float32 of_weight = 0.0f, of_bias = 0.0f;
  for (int32 block = 0; block < BLOCKS; block++) {
    of_weight += parts[2 * block * COLS + i];
    of_bias += parts[(2 * block + 1) * COLS + i];
  }
  dweight[i] = of_weight;
  dbias[i] = of_bias;
}
