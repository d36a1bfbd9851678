// Warp shuffles: threads of a warp join in registers, warps in shared memory.
//
// A shuffle hands a register to another thread of the warp: five of them, over distances 16, 8, 4, 2 and 1, join 32
// values with no barrier, and all threads have the result. Of a block, 8 values go to shared memory, which every thread
// joins again. A join costs two barriers in the place of nine. What is left: the second pass reads x for nothing but
// the sum.
#include "primitives.h"

static const int32 THREADS = 256, WARPS = THREADS / 32;

struct Largest {
  PRIMITIVE float32 of(float32 a, float32 b) { return larger(a, b); }
};
struct Sum {
  PRIMITIVE float32 of(float32 a, float32 b) { return a + b; }
};

template <class Join, class Memory> PRIMITIVE float32 join_block(const Memory& parts, float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value = Join::of(value, shuffle_xor(value, distance));
  __syncthreads();  // others may still read the parts of the join before
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int32 warp = 1; warp < WARPS; warp++) value = Join::of(value, parts[warp]);
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) warp_shuffles(Global<const float32> x, Global<float32> y) {
  SHARED(float32, parts, WARPS);
  const int32 first = blockIdx.x * COLS;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) greatest = larger(greatest, x[first + i]);
  greatest = join_block<Largest>(parts, greatest);
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) sum += expf(x[first + i] - greatest);
  sum = join_block<Sum>(parts, sum);
  for (int32 i = threadIdx.x; i < COLS; i += THREADS) y[first + i] = expf(x[first + i] - greatest) / sum;
}
