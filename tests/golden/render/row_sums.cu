#include "primitives.h"

extern "C" __global__ void __launch_bounds__(2) row_sums_8_100_0(Global<const float32> p0, Global<float32> p1) {
  const int64 g0 = blockIdx.x;
  SHARED(float32, partial, 2);
  const int64 t1 = threadIdx.x;
  REGISTERS(float32, own, 1);
  const int64 v1 = 101 - t1;
  const int64 v2 = v1 / 2;
  const int64 v3 = g0 * 100;
  const int64 v4 = v3 + t1;
  own[0] = 0.0f;
  for (int64 i2 = 0; i2 < v2; i2++) {
    const int64 v5 = i2 * 2;
    const int64 v6 = v4 + v5;
    const float32 v7 = p0[v6];
    const float32 v8 = own[0];
    const float32 v9 = v8 + v7;
    own[0] = v9;
  }
  const float32 v10 = own[0];
  partial[t1] = v10;
  __syncthreads();
  const bool v15 = t1 < 1;
  if (v15) {
    const float32 v11 = partial[t1];
    const int64 v12 = t1 + 1;
    const float32 v13 = partial[v12];
    const float32 v14 = v11 + v13;
    partial[t1] = v14;
  }
  const bool v16 = t1 == 0;
  if (v16) {
    const float32 v17 = partial[0];
    p1[g0] = v17;
  }
}
