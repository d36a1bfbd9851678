// Atomics: each element adds to the gradients of weight and bias.
//
// A warp has a row. With n = (x - mean) scale and h = g weight, dx = scale (h - avg(h) - n avg(h n)): two averages of
// the row, then a pass that writes. Weight and bias are shared by all rows: their gradients are sums down the columns.
// Here each row adds to them by atomics: two for each element, all to the same few sectors, and in no order, so that
// the bits differ from run to run. A kernel before sets them to zero. What is left: the atomics.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const float32> x, Global<const float32> weight, Global<const float32> g, Global<const float32> mean,      \
      Global<const float32> scale, Global<float32> dx, Global<float32> dweight, Global<float32> dbias

PRIMITIVE float32 sum_warp(float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}

extern "C" __global__ void __launch_bounds__(256) zero(MEMORY) {
  const int32 i = blockIdx.x * 256 + threadIdx.x;
  if (i < COLS) dweight[i] = 0.0f, dbias[i] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) atomics(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, first = row * COLS;
  if (row >= ROWS) return;
  const float32 centre = mean[row], factor = scale[row];
  float32 sum = 0.0f, product = 0.0f;
  for (int32 i = lane; i < COLS; i += 32) {
    const float32 n = (x[first + i] - centre) * factor, slope = g[first + i], h = slope * weight[i];
    sum += h;
    product = fmaf(h, n, product);
    atomic_add(dweight, i, slope * n);
    atomic_add(dbias, i, slope);
  }
  sum = sum_warp(sum) / COLS;
  product = sum_warp(product) / COLS;
  for (int32 i = lane; i < COLS; i += 32) {
    const float32 n = (x[first + i] - centre) * factor;
    dx[first + i] = factor * (g[first + i] * weight[i] - sum - n * product);
  }
}
