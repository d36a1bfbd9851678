// Vectors: one instruction loads or stores four elements, 16 bytes.
//
// Rows must be whole vectors, COLS % 4 == 0. The same sectors are moved by a quarter of the instructions. What is left:
// weight is read for each row, from a cache, though a thread could keep it as it keeps its sums, if it had the
// registers.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const float32> x, Global<const float32> weight, Global<const float32> g, Global<const float32> mean,      \
      Global<const float32> scale, Global<float32> dx, Global<float32> dweight, Global<float32> dbias, Global<float32> parts
static const int32 WARPS = 8, MOST = 264;  // blocks: two for each multiprocessor of an H100
static const int32 BLOCKS = (ROWS + WARPS - 1) / WARPS < MOST ? (ROWS + WARPS - 1) / WARPS : MOST;
static const int32 OWN = (COLS + 127) / 128;

PRIMITIVE float32 sum_warp(float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) vectors(MEMORY) {
  SHARED(float32, of_weight, COLS);
  SHARED(float32, of_bias, COLS);
  REGISTERS(float32, n, 4 * OWN);
  REGISTERS(float32, slope, 4 * OWN);
  REGISTERS(float32, weight_sum, 4 * OWN);
  REGISTERS(float32, bias_sum, 4 * OWN);
  const int32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int32 j = 0; j < 4 * OWN; j++) weight_sum[j] = 0.0f, bias_sum[j] = 0.0f, n[j] = 0.0f, slope[j] = 0.0f;
  for (int32 row = blockIdx.x * WARPS + warp; row < ROWS; row += BLOCKS * WARPS) {
    const float32 centre = mean[row], factor = scale[row];
    float32 sum = 0.0f, product = 0.0f;
#pragma unroll
    for (int32 j = 0; j < OWN; j++) {
      const int32 i = 128 * j + 4 * lane;
      if (i >= COLS) continue;
      const Lanes<float32, 4> of_x = load_lanes<4>(aligned(x), row * COLS + i);
      const Lanes<float32, 4> of_g = load_lanes<4>(aligned(g), row * COLS + i);
      const Lanes<float32, 4> weights = load_lanes<4>(aligned(weight), i);
#pragma unroll
      for (int32 k = 0; k < 4; k++) {
        const float32 own = (of_x.at[k] - centre) * factor, h = of_g.at[k] * weights.at[k];
        sum += h;
        product = fmaf(h, own, product);
        weight_sum[4 * j + k] = fmaf(of_g.at[k], own, weight_sum[4 * j + k]);
        bias_sum[4 * j + k] += of_g.at[k];
        n[4 * j + k] = own;
        slope[4 * j + k] = of_g.at[k];
      }
    }
    sum = sum_warp(sum) / COLS;
    product = sum_warp(product) / COLS;
#pragma unroll
    for (int32 j = 0; j < OWN; j++) {
      const int32 i = 128 * j + 4 * lane;
      if (i >= COLS) continue;
      Lanes<float32, 4> four = load_lanes<4>(aligned(weight), i);
#pragma unroll
      for (int32 k = 0; k < 4; k++)
        four.at[k] = factor * (slope[4 * j + k] * four.at[k] - sum - n[4 * j + k] * product);
      store_lanes(aligned(dx), row * COLS + i, four);
    }
  }
  // ---- the sums of the eight warps, one after the other ----
  for (int32 turn = 0; turn < WARPS; turn++) {
    __syncthreads();
    if (warp != turn) continue;
#pragma unroll
    for (int32 j = 0; j < OWN; j++) {
      const int32 i = 128 * j + 4 * lane;
      if (i >= COLS) continue;
      Lanes<float32, 4> weights = {}, biases = {};
      if (turn) weights = load_lanes<4>(of_weight, i), biases = load_lanes<4>(of_bias, i);
#pragma unroll
      for (int32 k = 0; k < 4; k++) weights.at[k] += weight_sum[4 * j + k], biases.at[k] += bias_sum[4 * j + k];
      store_lanes(of_weight, i, weights);
      store_lanes(of_bias, i, biases);
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
