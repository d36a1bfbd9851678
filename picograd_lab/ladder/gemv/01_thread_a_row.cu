// Thread a row: a thread multiplies its row of a by x, one element after the other.
//
// The 32 threads of a warp read 32 rows of a, one element of each: 32 sectors of 32 bytes for 128 bytes that are
// wanted. All of them read the same element of x. What is left: neighbours should read what is contiguous, and M
// threads are too few to fill a GPU.
#include "primitives.h"

extern "C" __global__ void __launch_bounds__(256)
    thread_a_row(Global<const float32> a, Global<const float32> x, Global<float32> y) {
  const int32 row = blockIdx.x * 256 + threadIdx.x;
  if (row >= M) return;
  float32 sum = 0.0f;
  for (int32 k = 0; k < K; k++) sum = fmaf(a[row * K + k], x[k], sum);
  y[row] = sum;
}
