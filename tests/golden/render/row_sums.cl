#include "primitives.h"

kernel __attribute__((reqd_work_group_size(2, 1, 1))) void row_sums_8_100_0(global const float32 *buffer0, int64 at0, global float32 *buffer1, int64 at1) {
  global const float32 *p0 = (global const float32 *)((global const char *)buffer0 + at0);
  global float32 *p1 = (global float32 *)((global char *)buffer1 + at1);
  local float32 partial[2] __attribute__((aligned(16)));
  const int64 g0 = get_group_id(0);
  const int64 t1 = get_local_id(0);
  float32 own[1];
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
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
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
