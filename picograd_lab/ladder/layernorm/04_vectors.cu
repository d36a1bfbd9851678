// Vectors: one instruction loads or stores four elements, 16 bytes.
//
// Rows must be whole vectors, COLS % 4 == 0. The same sectors are moved by a quarter of the instructions. The four have
// moments of their own, which are joined as one part: there is one division for four elements. What is left: x is still
// read twice.
#include "primitives.h"

static const int32 WARPS = 8;

struct Moments {
  float32 count, mean, squares;
};
PRIMITIVE Moments join(Moments a, Moments b) {
  const float32 count = a.count + b.count, apart = b.mean - a.mean, part = count > 0.0f ? b.count / count : 0.0f;
  return {count, a.mean + apart * part, a.squares + b.squares + apart * apart * a.count * part};
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    vectors(Global<const float32> x, Global<const float32> weight, Global<const float32> bias, Global<float32> y) {
  const int32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, first = row * COLS;
  if (row >= ROWS) return;  // of a whole warp: those that are left shuffle together
  Moments own = {0.0f, 0.0f, 0.0f};
  for (int32 i = 4 * lane; i < COLS; i += 128) {
    const Lanes<float32, 4> four = load_lanes<4>(aligned(x), first + i);
    const float32 mean = (four.at[0] + four.at[1] + four.at[2] + four.at[3]) / 4;
    float32 squares = 0.0f;
    for (int32 j = 0; j < 4; j++) squares += (four.at[j] - mean) * (four.at[j] - mean);
    own = join(own, {4.0f, mean, squares});
  }
  for (int32 distance = 16; distance > 0; distance /= 2)
    own = join(own, {shuffle_xor(own.count, distance), shuffle_xor(own.mean, distance),
                     shuffle_xor(own.squares, distance)});
  const float32 scale = 1.0f / sqrtf(own.squares / COLS + 1e-5f);
  for (int32 i = 4 * lane; i < COLS; i += 128) {
    const Lanes<float32, 4> scales = load_lanes<4>(aligned(weight), i), shifts = load_lanes<4>(aligned(bias), i);
    Lanes<float32, 4> four = load_lanes<4>(aligned(x), first + i);
    for (int32 j = 0; j < 4; j++) four.at[j] = (four.at[j] - own.mean) * scale * scales.at[j] + shifts.at[j];
    store_lanes(aligned(y), first + i, four);
  }
}
