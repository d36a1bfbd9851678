#include "primitives.h"

void sums_of_rows_0(const float32 *p0, float32 *p1, float32 *p2, int64 n_n, int64 begin, int64 end) {
  const int64 first0 = 0, stop0 = first0 + larger_int64(n_n, 0);
  for (int64 g0 = larger_int64(begin, first0) - first0; g0 < smaller_int64(end, stop0) - first0; g0++) {
    float32 acc[1];
    acc[0] = 0.0f;
    for (int64 i1 = 0; i1 < 100; i1++) {
      const int64 v1 = g0 * 100;
      const int64 v2 = v1 + i1;
      const float32 v3 = p0[v2];
      const float32 v4 = acc[0];
      const float32 v5 = v4 + v3;
      acc[0] = v5;
    }
    const float32 v6 = acc[0];
    p1[g0] = v6;
  }
  const int64 first1 = stop0, stop1 = first1 + larger_int64(300, 0);
  for (int64 g2 = larger_int64(begin, first1) - first1; g2 < smaller_int64(end, stop1) - first1; g2++) {
    p2[g2] = 3.0f;
  }
}
