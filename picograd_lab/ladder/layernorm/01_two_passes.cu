// Two passes: a pass for the mean, one for the variance, one to write.
//
// A block has a row. This is the definition, and safe: a difference from the mean is small where the numbers are large.
// 256 threads join their sums in shared memory as a tree, with a barrier after each of 8 levels. What is left: x is
// read three times, and the joins are two.
#include "primitives.h"

static const int32 THREADS = 256;

// Adds up a value of each thread; all threads get the sum.
template <class Memory> PRIMITIVE float32 sum_block(const Memory& parts, float32 value) {
  __syncthreads();  // others may still read the sum before
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int32 half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  return parts[0];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    two_passes(Global<const float32> x, Global<const float32> weight, Global<const float32> bias, Global<float32> y) {
  SHARED(float32, parts, THREADS);
  const int32 first = blockIdx.x * COLS;
  float32 sum = 0.0f, squares = 0.0f;
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) sum += x[first + i];
  const float32 mean = sum_block(parts, sum) / COLS;
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) {
    const float32 apart = x[first + i] - mean;
    squares = fmaf(apart, apart, squares);
  }
  const float32 scale = 1.0f / sqrtf(sum_block(parts, squares) / COLS + 1e-5f);
  for (int32 i = threadIdx.x; i < COLS; i += THREADS)
    y[first + i] = (x[first + i] - mean) * scale * weight[i] + bias[i];
}
