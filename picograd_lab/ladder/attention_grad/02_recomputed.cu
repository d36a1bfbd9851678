// Recomputed: weights and slopes are computed again where they are used.
//
// Tile by tile. One kernel has a block for 16 rows of k and v and walks along q and g; another has a block for 16 rows
// of q and walks along k and v. Both compute the weights and slopes of 16 x 16 scores in shared memory and add their
// products to registers. The scores are computed twice, and memory holds no matrix of T x T. Each gradient belongs to
// one block, so nothing is added by atomics and the bits are the same each time. Of causal attention the tiles right of
// the diagonal are skipped. What is left: shared memory feeds each multiply-add.
// Source: Dao et al. 2022, "FlashAttention", arXiv:2205.14135, appendix B.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const float32> q, Global<const float32> k, Global<const float32> v, Global<const float32> o,              \
      Global<const float32> g, Global<const float32> lse, Global<float32> dq, Global<float32> dk, Global<float32> dv, \
      Global<float32> delta
static const int32 GROUP = HEADS / KV_HEADS, TILE = 16, THREADS = 128, BLOCKS = (T + TILE - 1) / TILE;
static const int32 PITCH = D + 1, S_PITCH = TILE + 1, PARTS = THREADS / TILE, OWN = (D + PARTS - 1) / PARTS;

extern "C" __global__ void __launch_bounds__(256) deltas(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= HEADS * T) return;
  float32 sum = 0.0f;
  for (int32 d = lane; d < D; d += 32) sum = fmaf(g[row * D + d], o[row * D + d], sum);
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  if (lane == 0) delta[row] = sum;
}

// Brings 16 rows of a matrix (T, D) to a tile, zeros where there are none.
template <class Tile, class Memory> PRIMITIVE void load_tile(const Tile& tile, Memory memory, int32 at, int32 first) {
  for (int32 i = threadIdx.x; i < TILE * D; i += THREADS)
    tile[i / D * PITCH + i % D] = first + i / D < T ? memory[at + first * D + i] : 0.0f;
}

// The weights and slopes of 16 x 16 scores; a thread has two.
template <class Tile, class Scores, class Lse, class Delta>
PRIMITIVE void weigh(const Tile& q_tile, const Tile& k_tile, const Tile& v_tile, const Tile& g_tile, Lse lse, Delta delta,
                     const Scores& weights, const Scores& slopes, int32 head, int32 first, int32 key) {
  const int32 y = threadIdx.x / PARTS, row = first + y;
  for (int32 x = threadIdx.x % PARTS; x < TILE; x += PARTS) {
    float32 score = 0.0f, product = 0.0f;
    for (int32 d = 0; d < D; d++) {
      score = fmaf(q_tile[y * PITCH + d], k_tile[x * PITCH + d], score);
      product = fmaf(g_tile[y * PITCH + d], v_tile[x * PITCH + d], product);
    }
    float32 weight = 0.0f, slope = 0.0f;
    if (row < T && key + x < T && !(CAUSAL && key + x > row)) {
      weight = expf(score / sqrtf(D) - lse[head * T + row]);
      slope = weight * (product - delta[head * T + row]) / sqrtf(D);
    }
    weights[y * S_PITCH + x] = weight;
    slopes[y * S_PITCH + x] = slope;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) queries(MEMORY) {
  SHARED(float32, q_tile, TILE * PITCH);
  SHARED(float32, k_tile, TILE * PITCH);
  SHARED(float32, v_tile, TILE * PITCH);
  SHARED(float32, g_tile, TILE * PITCH);
  SHARED(float32, weights, TILE * S_PITCH);
  SHARED(float32, slopes, TILE * S_PITCH);
  REGISTERS(float32, of_q, OWN);
  const int32 y = threadIdx.x / PARTS, x = threadIdx.x % PARTS, head = blockIdx.x / BLOCKS;
  const int32 first = blockIdx.x % BLOCKS * TILE;
  const int32 at = head * T * D, kv_at = head / GROUP * T * D, end = CAUSAL && first + TILE < T ? first + TILE : T;
  load_tile(q_tile, q, at, first);
  load_tile(g_tile, g, at, first);
#pragma unroll
  for (int32 i = 0; i < OWN; i++) of_q[i] = 0.0f;
  for (int32 key = 0; key < end; key += TILE) {
    __syncthreads();  // the tiles before are done with
    load_tile(k_tile, k, kv_at, key);
    load_tile(v_tile, v, kv_at, key);
    __syncthreads();
    weigh(q_tile, k_tile, v_tile, g_tile, lse, delta, weights, slopes, head, first, key);
    __syncthreads();
    for (int32 j = 0; j < TILE; j++) {
#pragma unroll
      for (int32 i = 0; i < OWN; i++)
        if (PARTS * i + x < D) of_q[i] = fmaf(slopes[y * S_PITCH + j], k_tile[j * PITCH + PARTS * i + x], of_q[i]);
    }
  }
#pragma unroll
  for (int32 i = 0; i < OWN; i++)
    if (first + y < T && PARTS * i + x < D) dq[at + (first + y) * D + PARTS * i + x] = of_q[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) keys(MEMORY) {
  SHARED(float32, q_tile, TILE * PITCH);
  SHARED(float32, k_tile, TILE * PITCH);
  SHARED(float32, v_tile, TILE * PITCH);
  SHARED(float32, g_tile, TILE * PITCH);
  SHARED(float32, weights, TILE * S_PITCH);
  SHARED(float32, slopes, TILE * S_PITCH);
  REGISTERS(float32, of_k, OWN);
  REGISTERS(float32, of_v, OWN);
  const int32 y = threadIdx.x / PARTS, x = threadIdx.x % PARTS, kv_head = blockIdx.x / BLOCKS;
  const int32 key = blockIdx.x % BLOCKS * TILE, kv_at = kv_head * T * D;
  load_tile(k_tile, k, kv_at, key);
  load_tile(v_tile, v, kv_at, key);
#pragma unroll
  for (int32 i = 0; i < OWN; i++) of_k[i] = 0.0f, of_v[i] = 0.0f;
  for (int32 head = kv_head * GROUP; head < (kv_head + 1) * GROUP; head++) {
    for (int32 first = CAUSAL ? key : 0; first < T; first += TILE) {
      __syncthreads();  // the tiles before are done with
      load_tile(q_tile, q, head * T * D, first);
      load_tile(g_tile, g, head * T * D, first);
      __syncthreads();
      weigh(q_tile, k_tile, v_tile, g_tile, lse, delta, weights, slopes, head, first, key);
      __syncthreads();
      for (int32 j = 0; j < TILE; j++) {
#pragma unroll
        for (int32 i = 0; i < OWN; i++) {
          if (PARTS * i + x >= D) continue;
          of_k[i] = fmaf(slopes[j * S_PITCH + y], q_tile[j * PITCH + PARTS * i + x], of_k[i]);
          of_v[i] = fmaf(weights[j * S_PITCH + y], g_tile[j * PITCH + PARTS * i + x], of_v[i]);
        }
      }
    }
  }
#pragma unroll
  for (int32 i = 0; i < OWN; i++) {
    if (key + y >= T || PARTS * i + x >= D) continue;
    dk[kv_at + (key + y) * D + PARTS * i + x] = of_k[i];
    dv[kv_at + (key + y) * D + PARTS * i + x] = of_v[i];
  }
}
