#include "primitives.h"

void functions_0(const float32 *p0, float32 *p1, int64 begin, int64 end) {
  for (int64 g0 = begin; g0 < end; g0++) {
    const float32 v1 = p0[g0];
    const bool v2 = 0.0f <= v1;
    const float32 v3 = expf(v1);
    const float32 v4 = larger_float32(v1, 2.0f);
    const float16 v5 = to_float16_float32(v1);
    const float32 v6 = v2 ? v3 : v4;
    const float32 v7 = to_float32_float16(v5);
    const float32 v8 = v6 + v7;
    p1[g0] = v8;
  }
}
