// Block a row: 256 threads share a row, and join in shared memory.
//
// Element i is thread i % 256's, so a warp reads 128 contiguous bytes: 4 sectors, all of them wanted. The 256 partial
// results are joined as a tree: 128 threads join two each, then 64, and so on, with a barrier after each of the 8
// levels. What is left: most threads wait at those barriers, twice a row; and x is still read three times.
#include "primitives.h"

static const int32 THREADS = 256;

struct Largest {
  PRIMITIVE float32 of(float32 a, float32 b) { return larger(a, b); }
};
struct Sum {
  PRIMITIVE float32 of(float32 a, float32 b) { return a + b; }
};

// Joins a value of each thread; all threads get the result.
template <class Join, class Memory> PRIMITIVE float32 join_block(const Memory& parts, float32 value) {
  __syncthreads();  // others may still read the result of the join before
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int32 half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = Join::of(parts[threadIdx.x], parts[threadIdx.x + half]);
    __syncthreads();
  }
  return parts[0];
}

extern "C" __global__ void __launch_bounds__(THREADS) block_a_row(Global<const float32> x, Global<float32> y) {
  SHARED(float32, parts, THREADS);
  const int32 first = blockIdx.x * COLS;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) greatest = larger(greatest, x[first + i]);
  greatest = join_block<Largest>(parts, greatest);
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) sum += expf(x[first + i] - greatest);
  sum = join_block<Sum>(parts, sum);
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) y[first + i] = expf(x[first + i] - greatest) / sum;
}
