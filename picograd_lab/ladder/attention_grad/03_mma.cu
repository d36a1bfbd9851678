// Mma: matrix instructions multiply; weights and slopes stay in registers.
//
// Operands are float16 or bfloat16, sums float32. A warp has 16 rows, a block 64, and what it walks along comes 16 rows at a time.
// The kernel of the keys computes its scores transposed, rows of k times rows of q: then what a thread gets of the
// weights' and slopes' 16 x 16 is just what it has to give as the left operand of weights.T g and slopes.T q. The
// kernel of the queries has them as the forward pass does. Slopes are rounded to float16 before they are divided by
// sqrt(D), so that fewer of them are too small for it. What is left: tiles that come while nothing is multiplied, and
// the scores, which are computed twice.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const Element> q, Global<const Element> k, Global<const Element> v, Global<const float32> o,              \
      Global<const Element> g, Global<const float32> lse, Global<float32> dq, Global<float32> dk, Global<float32> dv, \
      Global<float32> delta
static const int32 GROUP = HEADS / KV_HEADS, ROWS = 64, STEP = 16, THREADS = 128, BLOCKS = (T + ROWS - 1) / ROWS;
static const int32 PITCH = D + 8;

extern "C" __global__ void __launch_bounds__(256) deltas(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= HEADS * T) return;
  float32 sum = 0.0f;
  for (int32 d = lane; d < D; d += 32) sum = fmaf(to_float32(g[row * D + d]), o[row * D + d], sum);
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  if (lane == 0) delta[row] = sum;
}

// Brings rows first.. of a matrix (T, D) to a tile, zeros where there are none.
template <class Tile, class Memory>
PRIMITIVE void load_tile(const Tile& tile, Memory memory, int32 at, int32 first, int32 rows) {
  for (int32 i = 8 * threadIdx.x; i < rows * D; i += 8 * THREADS) {
    Lanes<Element, 8> eight = {};
    if (first + i / D < T) eight = load_lanes<8>(aligned(memory), at + first * D + i);
    store_lanes(tile, i / D * PITCH + i % D, eight);
  }
}

// acc = the warp's 16 rows of `rows` times 16 rows of `columns`, transposed: 16 x 16 in two halves of 16 x 8.
template <class Acc, class Tile, class Columns>
PRIMITIVE void multiply(Acc& acc, const Tile& rows, const Columns& columns) {
  REGISTERS(Element, left, 8);
  REGISTERS(Element, right, 8);
  const int32 warp = threadIdx.x / 32, r = threadIdx.x % 8, m = threadIdx.x % 32 / 8;
#pragma unroll
  for (int32 i = 0; i < 8; i++) acc[i] = 0.0f;
#pragma unroll
  for (int32 d = 0; d < D; d += 16) {
    load_matrices<false>(left, 0, rows, (16 * warp + 8 * (m % 2) + r) * PITCH + d + 8 * (m / 2));
    load_matrices<false>(right, 0, columns, (8 * (m / 2) + r) * PITCH + d + 8 * (m % 2));
    mma_m16n8k16(acc, 0, left, 0, right, 0);
    mma_m16n8k16(acc, 4, left, 0, right, 4);
  }
}

// acc += 16 x 16 of the warp, rounded, times 16 rows of a tile: 16 x D.
template <class Acc, class Square, class Tile>
PRIMITIVE void add_product(Acc& acc, Square& square, const Tile& tile) {
  REGISTERS(Element, left, 8);
  REGISTERS(Element, right, 8);
  const int32 r = threadIdx.x % 8, m = threadIdx.x % 32 / 8;
#pragma unroll
  for (int32 i = 0; i < 8; i++) left[i] = narrowed(square[i], Element{});
#pragma unroll
  for (int32 d = 0; d < D; d += 16) {
    load_matrices<true>(right, 0, tile, (8 * (m % 2) + r) * PITCH + d + 8 * (m / 2));
    mma_m16n8k16(acc, d / 2, left, 0, right, 0);
    mma_m16n8k16(acc, d / 2 + 4, left, 0, right, 4);
  }
}

// Stores the warp's 16 x D, times a factor.
template <class Acc> PRIMITIVE void store_rows(Acc& acc, Global<float32> memory, int32 at, int32 first, float32 factor) {
  const int32 row = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int32 i = 0; i < D / 4; i++) {
    const int32 y = row + i % 2 * 8, x = column + i / 2 * 8;
    const Lanes<float32, 2> two = {acc[2 * i] * factor, acc[2 * i + 1] * factor};
    if (y < T) store_lanes(aligned(memory), at + y * D + x, two);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) queries(MEMORY) {
  SHARED(Element, q_tile, ROWS * PITCH);
  SHARED(Element, g_tile, ROWS * PITCH);
  SHARED(Element, k_tile, STEP * PITCH);
  SHARED(Element, v_tile, STEP * PITCH);
  REGISTERS(float32, square, 8);
  REGISTERS(float32, products, 8);
  REGISTERS(float32, of_q, D / 2);
  const int32 head = blockIdx.x / BLOCKS, first = blockIdx.x % BLOCKS * ROWS, lane = threadIdx.x % 32;
  const int32 row = first + threadIdx.x / 32 * 16 + lane / 4, end = CAUSAL && first + ROWS < T ? first + ROWS : T;
  load_tile(q_tile, q, head * T * D, first, ROWS);
  load_tile(g_tile, g, head * T * D, first, ROWS);
#pragma unroll
  for (int32 i = 0; i < D / 2; i++) of_q[i] = 0.0f;
  for (int32 key = 0; key < end; key += STEP) {
    __syncthreads();  // the tiles before are done with
    load_tile(k_tile, k, head / GROUP * T * D, key, STEP);
    load_tile(v_tile, v, head / GROUP * T * D, key, STEP);
    __syncthreads();
    multiply(square, q_tile, k_tile);
    multiply(products, g_tile, v_tile);
#pragma unroll
    for (int32 i = 0; i < 8; i++) {
      const int32 y = row + i / 2 % 2 * 8, x = key + i / 4 * 8 + 2 * (lane % 4) + i % 2;
      float32 slope = 0.0f;
      if (y < T && x < T && !(CAUSAL && x > y)) {
        const float32 weight = rough_exp2((square[i] / sqrtf(D) - lse[head * T + y]) * 1.44269504f);
        slope = weight * (products[i] - delta[head * T + y]);
      }
      square[i] = slope;
    }
    add_product(of_q, square, k_tile);
  }
  store_rows(of_q, dq, head * T * D, first, 1.0f / sqrtf(D));
}

extern "C" __global__ void __launch_bounds__(THREADS) keys(MEMORY) {
  SHARED(Element, k_tile, ROWS * PITCH);
  SHARED(Element, v_tile, ROWS * PITCH);
  SHARED(Element, q_tile, STEP * PITCH);
  SHARED(Element, g_tile, STEP * PITCH);
  REGISTERS(float32, square, 8);
  REGISTERS(float32, products, 8);
  REGISTERS(float32, of_k, D / 2);
  REGISTERS(float32, of_v, D / 2);
  const int32 kv_head = blockIdx.x / BLOCKS, first = blockIdx.x % BLOCKS * ROWS, lane = threadIdx.x % 32;
  const int32 key = first + threadIdx.x / 32 * 16 + lane / 4;
  load_tile(k_tile, k, kv_head * T * D, first, ROWS);
  load_tile(v_tile, v, kv_head * T * D, first, ROWS);
#pragma unroll
  for (int32 i = 0; i < D / 2; i++) of_k[i] = 0.0f, of_v[i] = 0.0f;
  for (int32 head = kv_head * GROUP; head < (kv_head + 1) * GROUP; head++) {
    for (int32 row = CAUSAL ? first : 0; row < T; row += STEP) {
      __syncthreads();  // the tiles before are done with
      load_tile(q_tile, q, head * T * D, row, STEP);
      load_tile(g_tile, g, head * T * D, row, STEP);
      __syncthreads();
      multiply(square, k_tile, q_tile);
      multiply(products, v_tile, g_tile);
#pragma unroll
      for (int32 i = 0; i < 8; i++) {
        const int32 x = key + i / 2 % 2 * 8, y = row + i / 4 * 8 + 2 * (lane % 4) + i % 2;
        float32 weight = 0.0f, slope = 0.0f;
        if (y < T && x < T && !(CAUSAL && x > y)) {
          weight = rough_exp2((square[i] / sqrtf(D) - lse[head * T + y]) * 1.44269504f);
          slope = weight * (products[i] - delta[head * T + y]);
        }
        square[i] = weight;
        products[i] = slope;
      }
      add_product(of_v, square, g_tile);
      add_product(of_k, products, q_tile);
    }
  }
  store_rows(of_k, dk, kv_head * T * D, first, 1.0f / sqrtf(D));
  store_rows(of_v, dv, kv_head * T * D, first, 1.0f);
}
