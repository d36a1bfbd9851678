// Coalesced: the threads of a warp have contiguous elements.
//
// The one change: element / N is the row, element % N the column. A warp reads 128 bytes of a row of b, which are 4 sectors and all of
// them wanted, and one element of a, which goes to all threads; and it writes 128 bytes of a row of c. What is left: each multiply-add waits for two loads, and each element
// of a is read N times from memory, each of b M times.
#include "primitives.h"

extern "C" __global__ void __launch_bounds__(256)
    coalesced(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, row = element / N, column = element % N;
  if (row >= M) return;
  float32 sum = 0.0f;
  for (int32 k = 0; k < K; k++) sum = fmaf(a[row * K + k], b[k * N + column], sum);
  c[row * N + column] = sum;
}
