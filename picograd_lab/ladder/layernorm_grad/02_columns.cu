// Columns: a second kernel has a thread for each column and adds down the rows.
//
// No atomics, and always the same order. Neighbours have neighbouring columns, so what a warp reads is contiguous. But
// x and g are read once more, three times in all, and there are only COLS threads, each with ROWS steps that wait for
// each other. What is left: both.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const float32> x, Global<const float32> weight, Global<const float32> g, Global<const float32> mean,      \
      Global<const float32> scale, Global<float32> dx, Global<float32> dweight, Global<float32> dbias

PRIMITIVE float32 sum_warp(float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}

extern "C" __global__ void __launch_bounds__(256) rows(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, first = row * COLS;
  if (row >= ROWS) return;
  const float32 centre = mean[row], factor = scale[row];
  float32 sum = 0.0f, product = 0.0f;
  for (int32 i = lane; i < COLS; i += 32) {
    const float32 n = (x[first + i] - centre) * factor, h = g[first + i] * weight[i];
    sum += h;
    product = fmaf(h, n, product);
  }
  sum = sum_warp(sum) / COLS;
  product = sum_warp(product) / COLS;
  for (int32 i = lane; i < COLS; i += 32) {
    const float32 n = (x[first + i] - centre) * factor;
    dx[first + i] = factor * (g[first + i] * weight[i] - sum - n * product);
  }
}

extern "C" __global__ void __launch_bounds__(256) columns(MEMORY) {
  const int32 i = blockIdx.x * 256 + threadIdx.x;
  if (i >= COLS) return;
  float32 of_weight = 0.0f, of_bias = 0.0f;
  for (int32 row = 0; row < ROWS; row++) {
    const float32 slope = g[row * COLS + i];
    of_weight = fmaf(slope, (x[row * COLS + i] - mean[row]) * scale[row], of_weight);
    of_bias += slope;
  }
  dweight[i] = of_weight;
  dbias[i] = of_bias;
}
