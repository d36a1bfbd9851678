// Vectors: one instruction loads four elements of a or of x.
//
// The same sectors by a quarter of the instructions, and four times the bytes on their way for each of them. Rows must
// be whole vectors, K % 4 == 0. What is left: each warp reads all of x for one row, as many bytes as it reads of a.
// They come from a cache, but they come.
#include "primitives.h"

static const int32 WARPS = 8;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    vectors(Global<const float32> a, Global<const float32> x, Global<float32> y) {
  const int32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= M) return;
  float32 sum = 0.0f;
  for (int32 k = 4 * lane; k < K; k += 128) {
    const Lanes<float32, 4> of_a = load_lanes<4>(aligned(a), row * K + k), of_x = load_lanes<4>(aligned(x), k);
    for (int32 i = 0; i < 4; i++) sum = fmaf(of_a.at[i], of_x.at[i], sum);
  }
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  if (lane == 0) y[row] = sum;
}
