// Registers: a row stays in the registers of its block: x is read once.
//
// A thread has at most 32 elements, so COLS <= 32 * 256. With the row at hand nothing is gained by a pair: the maximum
// is found, then one exponential is computed for each element and kept, then they are divided by their sum. Every loop
// over registers is unrolled, as registers have no addresses. What is left is nothing of memory: x is read once and y
// written once. Longer rows go to shared memory, or are read twice.
#include "primitives.h"

static const int32 THREADS = 256, WARPS = THREADS / 32, STEP = 4 * THREADS, STEPS = (COLS + STEP - 1) / STEP;

struct Largest {
  PRIMITIVE float32 of(float32 a, float32 b) { return larger(a, b); }
};
struct Sum {
  PRIMITIVE float32 of(float32 a, float32 b) { return a + b; }
};

template <class Join, class Memory> PRIMITIVE float32 join_block(const Memory& parts, float32 value) {
  for (int32 distance = 16; distance > 0; distance /= 2) value = Join::of(value, shuffle_xor(value, distance));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int32 warp = 1; warp < WARPS; warp++) value = Join::of(value, parts[warp]);
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) registers(Global<const float32> x, Global<float32> y) {
  SHARED(float32, maxima, WARPS);
  SHARED(float32, sums, WARPS);
  REGISTERS(float32, own, 4 * STEPS);
  const float32 NOTHING = float32_of_bits(0xff800000u);  // -inf: its exponential is 0
  const int32 first = blockIdx.x * COLS;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
#pragma unroll
  for (int32 step = 0; step < STEPS; step++) {
    const int32 i = step * STEP + 4 * threadIdx.x;
    Lanes<float32, 4> four = {NOTHING, NOTHING, NOTHING, NOTHING};
    if (i < COLS) four = load_lanes<4>(aligned(x), first + i);
#pragma unroll
    for (int32 lane = 0; lane < 4; lane++) {
      own[4 * step + lane] = four.at[lane];
      greatest = larger(greatest, four.at[lane]);
    }
  }
  greatest = join_block<Largest>(maxima, greatest);
#pragma unroll
  for (int32 i = 0; i < 4 * STEPS; i++) {
    const float32 power = expf(own[i] - greatest);
    own[i] = power;
    sum += power;
  }
  sum = join_block<Sum>(sums, sum);
#pragma unroll
  for (int32 step = 0; step < STEPS; step++) {
    const int32 i = step * STEP + 4 * threadIdx.x;
    Lanes<float32, 4> four;
#pragma unroll
    for (int32 lane = 0; lane < 4; lane++) four.at[lane] = own[4 * step + lane] / sum;
    if (i < COLS) store_lanes(aligned(y), first + i, four);
  }
}
