#include "primitives.h"

kernel __attribute__((reqd_work_group_size(128, 1, 1))) void two_grids_0(global float32 *buffer0, int64 at0, global float32 *buffer1, int64 at1, int64 n_n) {
  global float32 *p0 = (global float32 *)((global char *)buffer0 + at0);
  global float32 *p1 = (global float32 *)((global char *)buffer1 + at1);
  const int32 block = get_group_id(0);
  if (block < 3) {
    const int64 g0 = block;
    const int64 t1 = get_local_id(0);
    const int64 v1 = g0 * 128;
    const int64 v2 = v1 + t1;
    const bool v3 = v2 < 300;
    if (v3) {
      p0[v2] = 2.0f;
    }
  }
  if (3 <= block && block < (n_n + 3)) {
    const int64 g2 = block - 3;
    if (get_local_id(0) < 64) {
      const int64 t3 = get_local_id(0);
      const int64 v4 = g2 * 64;
      const int64 v5 = v4 + t3;
      const bool v6 = v5 < n_n;
      if (v6) {
        p1[v5] = 3.0f;
      }
    }
  }
}
