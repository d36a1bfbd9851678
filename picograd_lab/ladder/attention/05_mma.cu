// Mma: matrix instructions multiply; weights stay in registers.
//
// Operands are float16 or bfloat16, sums float32. A warp has 16 rows of q, a block 64, and a tile 32 rows of k and of v. An
// instruction multiplies 16 x 16 by 16 x 8; what a thread gets of two products of scores is just what it has to give of
// the weights as the left operand of the next product: so they never leave registers, and the rows of a warp are nobody
// else's. Rows of a tile have 8 places more, 16 bytes, so that the eight rows that load_matrices reads at once are in
// all 32 banks. Scores are kept times log2(e), for the power of two that a GPU has an instruction for. What is left: a
// warp waits while a tile comes, and nothing is multiplied meanwhile.
#include "primitives.h"

static const int32 GROUP = HEADS / KV_HEADS, ROWS = 64, KEYS = 32, THREADS = 128, BLOCKS = (T + ROWS - 1) / ROWS;
static const int32 PITCH = D + 8;

// Brings rows first.. of a matrix (T, D) to a tile, zeros where there are none.
template <class Tile, class Memory>
PRIMITIVE void load_tile(const Tile& tile, Memory memory, int32 at, int32 first, int32 rows) {
  for (int32 i = 8 * threadIdx.x; i < rows * D; i += 8 * THREADS) {
    Lanes<Element, 8> eight = {};
    if (first + i / D < T) eight = load_lanes<8>(aligned(memory), at + first * D + i);
    store_lanes(tile, i / D * PITCH + i % D, eight);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mma(Global<const Element> q, Global<const Element> k, Global<const Element> v, Global<Result> o,
        Global<float32> lse) {
  SHARED(Element, q_tile, ROWS * PITCH);
  SHARED(Element, k_tile, KEYS * PITCH);
  SHARED(Element, v_tile, KEYS * PITCH);
  REGISTERS(Element, left, 8);
  REGISTERS(Element, right, 8);
  REGISTERS(float32, scores, KEYS / 2);  // 16 x 32 of a warp
  REGISTERS(float32, result, D / 2);     // 16 x D of a warp
  REGISTERS(float32, greatest, 2);       // of the rows g and g + 8
  REGISTERS(float32, sum, 2);
  const int32 head = blockIdx.x / BLOCKS, first = blockIdx.x % BLOCKS * ROWS, lane = threadIdx.x % 32;
  const int32 warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, r = lane % 8, m = lane / 8;  // row r of matrix m
  load_tile(q_tile, q, head * T * D, first, ROWS);
#pragma unroll
  for (int32 i = 0; i < D / 2; i++) result[i] = 0.0f;
  for (int32 i = 0; i < 2; i++) greatest[i] = -3.4028235e38f, sum[i] = 0.0f;
  const float32 unit = 1.44269504f / sqrtf(D);
  const int32 end = CAUSAL && first + ROWS < T ? first + ROWS : T;
  for (int32 key = 0; key < end; key += KEYS) {
    __syncthreads();  // the tiles before are done with
    load_tile(k_tile, k, head / GROUP * T * D, key, KEYS);
    load_tile(v_tile, v, head / GROUP * T * D, key, KEYS);
    __syncthreads();
    // ---- scores ----
#pragma unroll
    for (int32 i = 0; i < KEYS / 2; i++) scores[i] = 0.0f;
#pragma unroll
    for (int32 d = 0; d < D; d += 16) {
      load_matrices<false>(left, 0, q_tile, (16 * warp + 8 * (m % 2) + r) * PITCH + d + 8 * (m / 2));
#pragma unroll
      for (int32 j = 0; j < KEYS; j += 16) {
        load_matrices<false>(right, 0, k_tile, (j + 8 * (m / 2) + r) * PITCH + d + 8 * (m % 2));
        mma_m16n8k16(scores, j / 2, left, 0, right, 0);
        mma_m16n8k16(scores, j / 2 + 4, left, 0, right, 4);
      }
    }
    // ---- weights ----
#pragma unroll
    for (int32 half = 0; half < 2; half++) {
      const int32 row = first + 16 * warp + g + 8 * half;
      float32 most = greatest[half];
#pragma unroll
      for (int32 i = 0; i < KEYS / 4; i++) {
        const int32 at = i / 2 * 4 + 2 * half + i % 2, column = key + i / 2 * 8 + 2 * t + i % 2;
        const bool is_masked = column >= T || (CAUSAL && column > row);
        scores[at] = is_masked ? float32_of_bits(0xff800000u) : scores[at] * unit;
        most = larger(most, scores[at]);
      }
      most = larger(most, shuffle_xor(most, 1));
      most = larger(most, shuffle_xor(most, 2));
      const float32 scale = rough_exp2(greatest[half] - most);
      float32 own = sum[half] * scale;
#pragma unroll
      for (int32 i = 0; i < KEYS / 4; i++) {
        const int32 at = i / 2 * 4 + 2 * half + i % 2;
        const float32 weight = rough_exp2(scores[at] - most);
        scores[at] = weight;
        own += weight;
      }
      greatest[half] = most;
      sum[half] = own;
#pragma unroll
      for (int32 i = 0; i < D / 4; i++) {
        const int32 at = i / 2 * 4 + 2 * half + i % 2;
        result[at] = result[at] * scale;
      }
    }
    // ---- weights @ v ----
#pragma unroll
    for (int32 j = 0; j < KEYS; j += 16) {
#pragma unroll
      for (int32 i = 0; i < 8; i++) left[i] = narrowed(scores[j / 2 + i], Element{});
#pragma unroll
      for (int32 d = 0; d < D; d += 16) {
        load_matrices<true>(right, 0, v_tile, (j + 8 * (m % 2) + r) * PITCH + d + 8 * (m / 2));
        mma_m16n8k16(result, d / 2, left, 0, right, 0);
        mma_m16n8k16(result, d / 2 + 4, left, 0, right, 4);
      }
    }
  }
#pragma unroll
  for (int32 half = 0; half < 2; half++) {
    float32 whole = sum[half];  // of four threads
    whole += shuffle_xor(whole, 1);
    whole += shuffle_xor(whole, 2);
    const int32 row = first + 16 * warp + g + 8 * half;
    if (row < T) {
#pragma unroll
      for (int32 i = 0; i < D / 8; i++) {
        const float32 left = result[4 * i + 2 * half] / whole, right = result[4 * i + 2 * half + 1] / whole;
        const Lanes<Result, 2> two = {narrowed(left, Result{}), narrowed(right, Result{})};
        store_lanes(aligned(o), (head * T + row) * D + 8 * i + 2 * t, two);
      }
      if (t == 0) lse[head * T + row] = (greatest[half] + log2f(whole)) * 0.69314718f;
    }
  }
}
