#include "primitives.h"

extern "C" __global__ void __launch_bounds__(256) exp_add_0(Global<const float32> p0, Global<const float32> p1, Global<float32> p2, int64 n_n) {
  const int64 v1 = n_n + 255;
  const int64 v2 = v1 / 256;
  const float32 v3 = p1[0];
  const int64 g0 = blockIdx.x;
  const int64 t1 = threadIdx.x;
  const int64 v4 = g0 * 256;
  const int64 v5 = v4 + t1;
  const bool v6 = v5 < n_n;
  if (v6) {
    const float32 v7 = p0[v5];
    const float32 v8 = expf(v7);
    const float32 v9 = v8 + v3;
    p2[v5] = v9;
  }
}
