// Passes: the maximum of a row is found K times, each time below the one before.
//
// A block has a row. A key is the element, as bits that are in order, above the complement of its index: of equal
// elements the first has the greater key, and no two keys are equal. So "below the last one" is all that a pass has to
// know of those before it. What is left: x is read K times.
#include "primitives.h"

static const int32 THREADS = 256, WARPS = THREADS / 32;

// The order of floats as that of integers: NaN is above all numbers, -0 equals 0.
PRIMITIVE uint32 ordered(float32 value) {
  const uint32 bits = value != value ? 0x7fc00000u : value == 0.0f ? 0u : bitcast<uint32>(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
PRIMITIVE uint64 key_of(float32 value, int32 index) { return (uint64)ordered(value) << 32 | ~(uint32)index; }

extern "C" __global__ void __launch_bounds__(THREADS)
    passes(Global<const float32> x, Global<float32> values, Global<int32> indices) {
  SHARED(uint64, parts, WARPS);
  const int32 first = blockIdx.x * COLS;
  uint64 last = ~0ull;
  for (int32 k = 0; k < K; k++) {
    uint64 greatest = 0;  // less than any key
    for (int32 i = threadIdx.x; i < COLS; i += THREADS) {
      const uint64 key = key_of(x[first + i], i);
      if (key < last) greatest = larger(greatest, key);
    }
    for (int32 distance = 16; distance > 0; distance /= 2) greatest = larger(greatest, shuffle_xor(greatest, distance));
    __syncthreads();  // others may still read the parts of the pass before
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = greatest;
    __syncthreads();
    last = parts[0];
    for (int32 warp = 1; warp < WARPS; warp++) last = larger(last, (uint64)parts[warp]);
    if (threadIdx.x == 0) {
      const int32 index = ~(uint32)last;
      values[blockIdx.x * K + k] = x[first + index];
      indices[blockIdx.x * K + k] = index;
    }
  }
}
