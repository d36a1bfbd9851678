// Warp a row: 32 threads read neighbours of a row, and join by shuffles.
//
// Each load of a is 128 contiguous bytes: 4 sectors, all of them wanted. There are 32 times as many threads. The sums
// of a warp are joined by five shuffles, over 16, 8, 4, 2 and 1 threads. What is left: a load instruction brings one
// element a thread, and x is loaded as often as a.
#include "primitives.h"

static const int32 WARPS = 8;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    warp_a_row(Global<const float32> a, Global<const float32> x, Global<float32> y) {
  const int32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= M) return;  // of a whole warp: those that are left shuffle together
  float32 sum = 0.0f;
  for (int32 k = lane; k < K; k += 32) sum = fmaf(a[row * K + k], x[k], sum);
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  if (lane == 0) y[row] = sum;
}
