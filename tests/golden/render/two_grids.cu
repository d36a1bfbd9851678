#include "primitives.h"

extern "C" __global__ void __launch_bounds__(128) two_grids_0(Global<float32> p0, Global<float32> p1, int64 n_n) {
  const int32 block = blockIdx.x;
  if (block < 3) {
    const int64 g0 = block;
    const int64 t1 = threadIdx.x;
    const int64 v1 = g0 * 128;
    const int64 v2 = v1 + t1;
    const bool v3 = v2 < 300;
    if (v3) {
      p0[v2] = 2.0f;
    }
  }
  if (3 <= block && block < (n_n + 3)) {
    const int64 g2 = block - 3;
    if (threadIdx.x < 64) {
      const int64 t3 = threadIdx.x;
      const int64 v4 = g2 * 64;
      const int64 v5 = v4 + t3;
      const bool v6 = v5 < n_n;
      if (v6) {
        p1[v5] = 3.0f;
      }
    }
  }
}
