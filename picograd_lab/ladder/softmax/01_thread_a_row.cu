// Thread a row: a thread walks along its row for each of three passes.
//
// The passes find the maximum, then the sum, then write. The 32 threads of a warp are in 32 rows, so each load of a
// warp touches 32 sectors of 32 bytes for 128 bytes that are wanted: what the other 7/8 bring is wanted at the next
// steps, if a cache still has it then. There are as many threads as rows, too few for a GPU. What is left: neighbours
// should read what is contiguous.
#include "primitives.h"

extern "C" __global__ void __launch_bounds__(256) thread_a_row(Global<const float32> x, Global<float32> y) {
  const int32 row = blockIdx.x * 256 + threadIdx.x, first = row * COLS;
  if (row >= ROWS) return;
  // No infinity: a masked element, which is one, may come first, and -inf - -inf is NaN.
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  for (int32 i = 0; i < COLS; i++) greatest = larger(greatest, x[first + i]);
  for (int32 i = 0; i < COLS; i++) sum += expf(x[first + i] - greatest);
  for (int32 i = 0; i < COLS; i++) y[first + i] = expf(x[first + i] - greatest) / sum;
}
