// Radix select: histograms of digits find the K-th key, and no more is sorted.
//
// A digit is 8 bits, so a block of 256 threads counts how many keys have which. Counted from above, one digit has the
// K-th key; of the next digit, only keys that begin with it are counted. Most floats differ in their first digits, so
// this ends early: as soon as all keys that begin so belong to the K. These are gathered, in any order, and K are
// sorted. What is left: x is read for each digit and once more; and atomics on one place take turns, which are many for
// the first digit: sign and exponent.
// Source: Alabi et al. 2012, "Fast k-selection algorithms for graphics processing units".
#include "primitives.h"

PRIMITIVE constexpr int32 power_of_two(int32 least) { return least <= 1 ? 1 : 2 * power_of_two((least + 1) / 2); }
static const int32 THREADS = 256, WARPS = THREADS / 32, DIGIT = 8, LENGTH = power_of_two(K);

struct Found {
  int32 digit, above, keys;
};

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

// Finds the digit that the key in place `wanted` from above has, of `own` keys for each thread's digit.
template <class Parts, class Three>
PRIMITIVE Found find(const Parts& parts, const Three& found, int32 own, int32 wanted) {
  const int32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32 from_here = own, all = own;  // keys with this digit or a greater one; of the threads joined so far
  for (int32 distance = 1; distance < 32; distance *= 2) {
    const int32 other = shuffle_xor(all, distance);
    if ((lane & distance) == 0) from_here += other;
    all += other;
  }
  if (lane == 0) parts[warp] = all;
  __syncthreads();
  for (int32 i = warp + 1; i < WARPS; i++) from_here += parts[i];
  const int32 above = from_here - own;
  if (above < wanted && wanted <= from_here) found[0] = threadIdx.x, found[1] = above, found[2] = own;
  __syncthreads();
  return {found[0], found[1], found[2]};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    radix_select(Global<const float32> x, Global<float32> values, Global<int32> indices) {
  SHARED(int32, counts, THREADS);
  SHARED(int32, parts, WARPS);
  SHARED(int32, found, 3);
  SHARED(int32, taken, 1);
  SHARED(uint64, keys, LENGTH);
  const int32 first = blockIdx.x * COLS, t = threadIdx.x;
  if (t == 0) taken[0] = 0;
  for (int32 i = K + t; i < LENGTH; i += THREADS) keys[i] = 0;
  // ---- the least of the K greatest begins with `prefix` ----
  uint64 prefix = 0;
  int32 shift = 64, wanted = K;
  while (true) {
    shift -= DIGIT;
    counts[t] = 0;
    __syncthreads();
    for (int32 i = t; i < COLS; i += THREADS) {
      const uint64 digits = key_of(x[first + i], i) >> shift;
      if (digits >> DIGIT == prefix) atomic_add(counts, digits % THREADS, 1);
    }
    __syncthreads();
    const Found next = find(parts, found, counts[t], wanted);
    prefix = prefix << DIGIT | next.digit;
    wanted -= next.above;
    if (next.keys == wanted) break;  // at the last digit at the latest, since no two keys are equal
  }
  // ---- gather and sort ----
  for (int32 i = t; i < COLS; i += THREADS) {
    const uint64 key = key_of(x[first + i], i);
    if (key >> shift >= prefix) keys[atomic_add(taken, 0, 1)] = key;
  }
  __syncthreads();
  bitonic_sort(keys, LENGTH);
  for (int32 k = t; k < K; k += THREADS) {
    const int32 index = ~(uint32)keys[k];
    values[blockIdx.x * K + k] = x[first + index];
    indices[blockIdx.x * K + k] = index;
  }
}
