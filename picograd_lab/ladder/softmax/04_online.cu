// Online: maximum and sum are found in one pass.
//
// The sum so far is scaled whenever the maximum rises. A pair (greatest, sum) means sum * exp(greatest). Two such pairs
// are joined by scaling the sum of the lower maximum, in any order: so a thread adds elements to its pair, warps join
// pairs by shuffles, the block in shared memory. x is read twice, not three times; the price is an exponential for each
// join of two threads. What is left: a load instruction moves 4 bytes a thread.
// Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv:1805.02867.
#include "primitives.h"

static const int32 THREADS = 256, WARPS = THREADS / 32;

struct Pair {
  float32 greatest, sum;
};
PRIMITIVE Pair join(Pair a, Pair b) {
  const float32 scale = expf(-fabsf(a.greatest - b.greatest));
  return {larger(a.greatest, b.greatest), a.greatest < b.greatest ? a.sum * scale + b.sum : a.sum + b.sum * scale};
}

extern "C" __global__ void __launch_bounds__(THREADS) online(Global<const float32> x, Global<float32> y) {
  SHARED(float32, maxima, WARPS);
  SHARED(float32, sums, WARPS);
  const int32 first = blockIdx.x * COLS;
  Pair pair = {-3.4028235e38f, 0.0f};
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) pair = join(pair, {x[first + i], 1.0f});
  for (int32 distance = 16; distance > 0; distance /= 2)
    pair = join(pair, {shuffle_xor(pair.greatest, distance), shuffle_xor(pair.sum, distance)});
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = pair.greatest, sums[threadIdx.x / 32] = pair.sum;
  __syncthreads();
  pair = {maxima[0], sums[0]};
  for (int32 warp = 1; warp < WARPS; warp++) pair = join(pair, {maxima[warp], sums[warp]});
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) y[first + i] = expf(x[first + i] - pair.greatest) / pair.sum;
}
