// Lists: a warp keeps the 32 greatest so far in its registers, a key a thread.
//
// A list is in order. The next 32 keys are put in the opposite order by 15 shuffles; then the greater of the i-th of
// both, for each i, are the 32 greatest of all 64, and 5 shuffles put them in order. The eight warps of a block walk
// along a row together, and the first one merges their lists: that is the only barrier. What is left: the work is the
// same though almost no group of a long row has anything for the list; and K is at most 32.
// Source: Johnson, Douze and Jegou 2017, "Billion-scale similarity search with GPUs", arXiv:1702.08734, section 4.
#include "primitives.h"

static const int32 THREADS = 256, WARPS = THREADS / 32;

// The order of floats as that of integers: NaN is above all numbers, -0 equals 0.
PRIMITIVE uint32 ordered(float32 value) {
  const uint32 bits = value != value ? 0x7fc00000u : value == 0.0f ? 0u : bitcast<uint32>(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
PRIMITIVE uint64 key_of(float32 value, int32 index) { return (uint64)ordered(value) << 32 | ~(uint32)index; }

// The greater or the less of two threads' keys, so that the greater comes first, or last.
PRIMITIVE uint64 exchanged(uint64 key, int32 distance, bool greater_first) {
  const uint64 other = shuffle_xor(key, distance);
  const bool is_first = (threadIdx.x & distance) == 0;
  return is_first == greater_first ? larger(key, other) : smaller(key, other);
}
// The 32 greatest of two lists, greatest first; `ascending` has its least key first.
PRIMITIVE uint64 merge(uint64 list, uint64 ascending) {
  list = larger(list, ascending);
  for (int32 half = 16; half > 0; half /= 2) list = exchanged(list, half, true);
  return list;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    lists(Global<const float32> x, Global<float32> values, Global<int32> indices) {
  SHARED(uint64, of_warps, THREADS);
  const int32 first = blockIdx.x * COLS, lane = threadIdx.x % 32;
  uint64 list = 0;
  for (int32 group = threadIdx.x - lane; group < COLS; group += THREADS) {
    const int32 i = group + lane;
    uint64 key = i < COLS ? key_of(x[first + i], i) : 0;
    for (int32 size = 2; size <= 32; size *= 2)
      for (int32 half = size / 2; half > 0; half /= 2) key = exchanged(key, half, (lane & size) != 0);
    list = merge(list, key);
  }
  of_warps[threadIdx.x] = list;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  for (int32 warp = 1; warp < WARPS; warp++) list = merge(list, of_warps[warp * 32 + 31 - lane]);
  if (lane < K) {
    const int32 index = ~(uint32)list;
    values[blockIdx.x * K + lane] = x[first + index];
    indices[blockIdx.x * K + lane] = index;
  }
}
