// Sort: the whole row is put in order in shared memory.
//
// x is read once. A bitonic network sorts 2^p keys in p (p + 1) / 2 steps: each compares pairs that are a power of two
// apart, half of the row with the other half at once, and a barrier separates it from the next. The row is filled up
// with keys of 0, which are less than any other. What is left: all is put in order, of which K elements are wanted, and
// shared memory holds no more than 4096 keys.
// Source: Batcher 1968, "Sorting networks and their applications".
#include "primitives.h"

PRIMITIVE constexpr int32 power_of_two(int32 least) { return least <= 1 ? 1 : 2 * power_of_two((least + 1) / 2); }
static const int32 THREADS = 256, LENGTH = power_of_two(COLS);

// The order of floats as that of integers: NaN is above all numbers, -0 equals 0.
PRIMITIVE uint32 ordered(float32 value) {
  const uint32 bits = value != value ? 0x7fc00000u : value == 0.0f ? 0u : bitcast<uint32>(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
PRIMITIVE uint64 key_of(float32 value, int32 index) { return (uint64)ordered(value) << 32 | ~(uint32)index; }

// Puts keys in order, greatest first, by a network: each step exchanges pairs that do not touch each other.
template <class Memory> PRIMITIVE void bitonic_sort(const Memory& keys, int32 length) {
  for (int32 size = 2; size <= length; size *= 2)
    for (int32 half = size / 2; half > 0; half /= 2) {
      for (int32 pair = threadIdx.x; pair < length / 2; pair += THREADS) {
        const int32 i = pair / half * 2 * half + pair % half;
        const uint64 a = keys[i], b = keys[i + half];
        if ((a < b) == ((i & size) == 0)) keys[i] = b, keys[i + half] = a;
      }
      __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sort(Global<const float32> x, Global<float32> values, Global<int32> indices) {
  SHARED(uint64, keys, LENGTH);
  const int32 first = blockIdx.x * COLS;
  for (int32 i = threadIdx.x; i < LENGTH; i += THREADS) keys[i] = i < COLS ? key_of(x[first + i], i) : 0;
  __syncthreads();
  bitonic_sort(keys, LENGTH);
  for (int32 k = threadIdx.x; k < K; k += THREADS) {
    const int32 index = ~(uint32)keys[k];
    values[blockIdx.x * K + k] = x[first + index];
    indices[blockIdx.x * K + k] = index;
  }
}
