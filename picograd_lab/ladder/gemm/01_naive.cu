// Naive: a thread for each element of c, as the definition says.
//
// Threads that follow each other have elements below each other. So at each step the 32 threads of a warp read 32 rows of a, one
// element of each: 32 sectors of 32 bytes for 128 bytes that are wanted. In b all of them read the same element, and their results
// go to 32 rows of c again. What is left: neighbouring threads should read contiguous elements.
#include "primitives.h"

extern "C" __global__ void __launch_bounds__(256)
    naive(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, row = element % M, column = element / M;
  if (column >= N) return;
  float32 sum = 0.0f;
  for (int32 k = 0; k < K; k++) sum = fmaf(a[row * K + k], b[k * N + column], sum);
  c[row * N + column] = sum;
}
