// Vectors: one instruction loads or stores four elements, 16 bytes.
//
// Rows must be whole vectors, COLS % 4 == 0: then each begins at a multiple of 16 bytes. The same sectors are moved by
// a quarter of the instructions, and four loads' worth of bytes are on their way at once for each thread.  What is
// left: x is still read twice.
#include "primitives.h"

static const int32 THREADS = 256, WARPS = THREADS / 32;

struct Pair {
  float32 greatest, sum;
};
PRIMITIVE Pair join(Pair a, Pair b) {
  const float32 scale = expf(-fabsf(a.greatest - b.greatest));
  return {larger(a.greatest, b.greatest), a.greatest < b.greatest ? a.sum * scale + b.sum : a.sum + b.sum * scale};
}

extern "C" __global__ void __launch_bounds__(THREADS) vectors(Global<const float32> x, Global<float32> y) {
  SHARED(float32, maxima, WARPS);
  SHARED(float32, sums, WARPS);
  const int32 first = blockIdx.x * COLS;
  Pair pair = {-3.4028235e38f, 0.0f};
  for (int32 i = 4 * threadIdx.x; i < COLS; i += 4 * THREADS) {
    const Lanes<float32, 4> four = load_lanes<4>(aligned(x), first + i);
    const float32 greatest = larger(larger(four.at[0], four.at[1]), larger(four.at[2], four.at[3]));
    const float32 most = larger(pair.greatest, greatest);
    float32 sum = pair.sum * expf(pair.greatest - most);
    for (int32 lane = 0; lane < 4; lane++) sum += expf(four.at[lane] - most);
    pair = {most, sum};
  }
  for (int32 distance = 16; distance > 0; distance /= 2)
    pair = join(pair, {shuffle_xor(pair.greatest, distance), shuffle_xor(pair.sum, distance)});
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = pair.greatest, sums[threadIdx.x / 32] = pair.sum;
  __syncthreads();
  pair = {maxima[0], sums[0]};
  for (int32 warp = 1; warp < WARPS; warp++) pair = join(pair, {maxima[warp], sums[warp]});
  for (int32 i = 4 * threadIdx.x; i < COLS; i += 4 * THREADS) {
    Lanes<float32, 4> four = load_lanes<4>(aligned(x), first + i);
    for (int32 lane = 0; lane < 4; lane++) four.at[lane] = expf(four.at[lane] - pair.greatest) / pair.sum;
    store_lanes(aligned(y), first + i, four);
  }
}
