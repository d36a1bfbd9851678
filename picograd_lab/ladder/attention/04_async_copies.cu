// Async copies: a tile comes in the background while the one before is used.
//
// cp.async copies from memory to shared memory with no register in between, and a thread goes on meanwhile. k and v have
// a tile each: while scores are computed of one, the other is on its way, and while the weights are multiplied by it, the
// next of k. A barrier says that a tile is there, and that the one before is done with: two for each step in the place
// of four. A copy brings four elements, so D must be a multiple of 4, and rows of a tile have 4 places more. What is
// left: two loads of shared memory feed one multiply-add or little more.
#include "primitives.h"

static const int32 GROUP = HEADS / KV_HEADS, ROWS = 32, KEYS = 32, BLOCKS = (T + ROWS - 1) / ROWS;
static const int32 PITCH = D + 4, W_PITCH = KEYS + 4;    // the rows of a warp are in other banks
static const int32 OWN_KEYS = KEYS / 4, OWN = D / 4;  // of a thread: of a row's scores, of its result

// Starts to bring rows first.. of a matrix (T, D) to a tile, zeros where there are none.
template <class Tile, class Memory>
PRIMITIVE void start_tile(const Tile& tile, Memory memory, int32 at, int32 first) {
  for (int32 i = 4 * threadIdx.x; i < KEYS * D; i += 16 * ROWS)
    copy_async<4>(tile, i / D * PITCH + i % D, memory, at + first * D + i, first + i / D < T);
  commit_copies();
}

extern "C" __global__ void __launch_bounds__(4 * ROWS)
    async_copies(Global<const float32> q, Global<const float32> k, Global<const float32> v, Global<float32> o,
                 Global<float32> lse) {
  SHARED(float32, q_tile, ROWS * PITCH);
  SHARED(float32, k_tile, KEYS * PITCH);
  SHARED(float32, v_tile, KEYS * PITCH);
  SHARED(float32, w_tile, ROWS * W_PITCH);
  REGISTERS(float32, scores, OWN_KEYS);
  REGISTERS(float32, result, OWN);
  const int32 y = threadIdx.x / 4, x = threadIdx.x % 4, head = blockIdx.x / BLOCKS, first = blockIdx.x % BLOCKS * ROWS;
  const int32 row = first + y, q_at = head * T * D, kv_at = head / GROUP * T * D;
  start_tile(k_tile, k, kv_at, 0);
  for (int32 i = threadIdx.x; i < ROWS * D; i += 4 * ROWS)
    q_tile[i / D * PITCH + i % D] = first + i / D < T ? q[q_at + first * D + i] / sqrtf(D) : 0.0f;
#pragma unroll
  for (int32 i = 0; i < OWN; i++) result[i] = 0.0f;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  const int32 end = CAUSAL && first + ROWS < T ? first + ROWS : T;
  for (int32 key = 0; key < end; key += KEYS) {
    wait_copies<0>();
    __syncthreads();  // the tile of k is there, that of v done with
    start_tile(v_tile, v, kv_at, key);
    // ---- scores of the tile ----
#pragma unroll
    for (int32 i = 0; i < OWN_KEYS; i++) scores[i] = 0.0f;
    for (int32 d = 0; d < D; d++) {
      const float32 of_q = q_tile[y * PITCH + d];
#pragma unroll
      for (int32 i = 0; i < OWN_KEYS; i++) scores[i] = fmaf(of_q, k_tile[(4 * i + x) * PITCH + d], scores[i]);
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
    wait_copies<0>();
    __syncthreads();  // the tile of v is there, that of k done with
    if (key + KEYS < end) start_tile(k_tile, k, kv_at, key + KEYS);
#pragma unroll
    for (int32 i = 0; i < OWN; i++) result[i] = result[i] * scale;
    for (int32 j = 0; j < KEYS; j++) {
      const float32 weight = w_tile[y * W_PITCH + j];
#pragma unroll
      for (int32 i = 0; i < OWN; i++) result[i] = fmaf(weight, v_tile[j * PITCH + 4 * i + x], result[i]);
    }
  }
  sum += shuffle_xor(sum, 1);
  sum += shuffle_xor(sum, 2);
  if (row >= T) return;
#pragma unroll
  for (int32 i = 0; i < OWN; i++) o[q_at + row * D + 4 * i + x] = result[i] / sum;
  if (x == 0) lse[head * T + row] = greatest + logf(sum);
}
