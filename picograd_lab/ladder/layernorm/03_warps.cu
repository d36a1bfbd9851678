// Warps: a row belongs to a warp: no shared memory and no barrier.
//
// A block has eight rows, a warp each. Five shuffles of three numbers join the moments of 32 threads, and no warp waits
// for another. This suits rows of some thousand elements; a longer row would leave too few warps, each with much to do.
// What is left: 4 bytes a load.
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
    warps(Global<const float32> x, Global<const float32> weight, Global<const float32> bias, Global<float32> y) {
  const int32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, first = row * COLS;
  if (row >= ROWS) return;  // of a whole warp: those that are left shuffle together
  Moments own = {0.0f, 0.0f, 0.0f};
  for (int32 i = lane; i < COLS; i += 32) own = join(own, {1.0f, x[first + i], 0.0f});
  for (int32 distance = 16; distance > 0; distance /= 2)
    own = join(own, {shuffle_xor(own.count, distance), shuffle_xor(own.mean, distance),
                     shuffle_xor(own.squares, distance)});
  const float32 scale = 1.0f / sqrtf(own.squares / COLS + 1e-5f);
  for (int32 i = lane; i < COLS; i += 32) y[first + i] = (x[first + i] - own.mean) * scale * weight[i] + bias[i];
}
