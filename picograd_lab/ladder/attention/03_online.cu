// Online: result, maximum and sum are kept up to date, tile by tile.
//
// One kernel does all. A block has 32 rows of q and walks along k and v, 32 rows at a time. Of a tile it computes 32 x
// 32 scores in registers. Where they raise the maximum of a row, what was summed so far is scaled down; then the tile's
// weights times its rows of v are added. No score is ever in memory: it holds q, k, v and the result, O(T) in place of
// O(T^2). Of causal attention the tiles right of the diagonal are skipped. Four threads have a row: of the scores every
// fourth column, of the result every fourth element. What is left: two loads of shared memory feed one multiply-add or
// little more.
// Source: Dao et al. 2022, "FlashAttention", arXiv:2205.14135; Rabe and Staats 2021, arXiv:2112.05682.
#include "primitives.h"

static const int32 GROUP = HEADS / KV_HEADS, ROWS = 32, KEYS = 32, BLOCKS = (T + ROWS - 1) / ROWS;
static const int32 PITCH = D + 1, W_PITCH = KEYS + 4;              // the rows of a warp are in other banks
static const int32 OWN_KEYS = KEYS / 4, OWN = (D + 3) / 4;  // of a thread: of a row's scores, of its result

extern "C" __global__ void __launch_bounds__(4 * ROWS)
    online(Global<const float32> q, Global<const float32> k, Global<const float32> v, Global<float32> o,
           Global<float32> lse) {
  SHARED(float32, q_tile, ROWS * PITCH);
  SHARED(float32, kv_tile, KEYS * PITCH);
  SHARED(float32, w_tile, ROWS * W_PITCH);
  REGISTERS(float32, scores, OWN_KEYS);
  REGISTERS(float32, result, OWN);
  const int32 y = threadIdx.x / 4, x = threadIdx.x % 4, head = blockIdx.x / BLOCKS, first = blockIdx.x % BLOCKS * ROWS;
  const int32 row = first + y, q_at = head * T * D, kv_at = head / GROUP * T * D;
  for (int32 i = threadIdx.x; i < ROWS * D; i += 4 * ROWS)
    q_tile[i / D * PITCH + i % D] = first + i / D < T ? q[q_at + first * D + i] / sqrtf(D) : 0.0f;
#pragma unroll
  for (int32 i = 0; i < OWN; i++) result[i] = 0.0f;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  const int32 end = CAUSAL && first + ROWS < T ? first + ROWS : T;
  for (int32 key = 0; key < end; key += KEYS) {
    __syncthreads();  // the tile of v is done with
    for (int32 i = threadIdx.x; i < KEYS * D; i += 4 * ROWS)
      kv_tile[i / D * PITCH + i % D] = key + i / D < T ? k[kv_at + key * D + i] : 0.0f;
    __syncthreads();
    // ---- scores of the tile ----
#pragma unroll
    for (int32 i = 0; i < OWN_KEYS; i++) scores[i] = 0.0f;
    for (int32 d = 0; d < D; d++) {
      const float32 of_q = q_tile[y * PITCH + d];
#pragma unroll
      for (int32 i = 0; i < OWN_KEYS; i++) scores[i] = fmaf(of_q, kv_tile[(4 * i + x) * PITCH + d], scores[i]);
    }
    float32 most = greatest;
#pragma unroll
    for (int32 i = 0; i < OWN_KEYS; i++) {
      const int32 column = key + 4 * i + x;
      if (column >= T || (CAUSAL && column > row)) scores[i] = float32_of_bits(0xff800000u);
      most = larger(most, scores[i]);
    }
    most = larger(most, shuffle_xor(most, 1));
    most = larger(most, shuffle_xor(most, 2));
    // ---- weights: what was summed for the maximum before is scaled to this one ----
    const float32 scale = expf(greatest - most);
    greatest = most;
    sum *= scale;
#pragma unroll
    for (int32 i = 0; i < OWN_KEYS; i++) {
      const float32 weight = expf(scores[i] - most);
      w_tile[y * W_PITCH + 4 * i + x] = weight;
      sum += weight;  // of the own columns: the four parts of a row meet at the end
    }
    __syncthreads();
    for (int32 i = threadIdx.x; i < KEYS * D; i += 4 * ROWS)
      kv_tile[i / D * PITCH + i % D] = key + i / D < T ? v[kv_at + key * D + i] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int32 i = 0; i < OWN; i++) result[i] = result[i] * scale;
    for (int32 j = 0; j < KEYS; j++) {
      const float32 weight = w_tile[y * W_PITCH + j];
#pragma unroll
      for (int32 i = 0; i < OWN; i++)
        if (4 * i + x < D) result[i] = fmaf(weight, kv_tile[j * PITCH + 4 * i + x], result[i]);
    }
  }
  sum += shuffle_xor(sum, 1);
  sum += shuffle_xor(sum, 2);
  if (row >= T) return;
#pragma unroll
  for (int32 i = 0; i < OWN; i++)
    if (4 * i + x < D) o[q_at + row * D + 4 * i + x] = result[i] / sum;
  if (x == 0) lse[head * T + row] = greatest + logf(sum);
}
