// Tiled: both products take their operands from tiles in shared memory.
//
// The 256 threads of a block compute 16 x 16 scores, or 16 x 16 elements of the result, and bring tiles of both
// operands for 16 steps at a time: memory is read 16 times less often. The tile of k is read down its columns, so its
// rows have 17 places: a column is in 16 banks, not in two. What is left: the scores still go to memory and come back.
#include "primitives.h"

#define MEMORY                                                                                                        \
  Global<const float32> q, Global<const float32> k, Global<const float32> v, Global<float32> o, Global<float32> lse, \
      Global<float32> weights
static const int32 GROUP = HEADS / KV_HEADS, TILE = 16, PITCH = TILE + 1, TILES = (T + TILE - 1) / TILE;
static const int32 PIECES = (D + TILE - 1) / TILE;

extern "C" __global__ void __launch_bounds__(256) scores(MEMORY) {
  SHARED(float32, q_tile, TILE * TILE);
  SHARED(float32, k_tile, TILE * PITCH);
  const int32 y = threadIdx.x / TILE, x = threadIdx.x % TILE, head = blockIdx.x / TILES / TILES;
  const int32 row = blockIdx.x / TILES % TILES * TILE + y, column = blockIdx.x % TILES * TILE;
  float32 sum = 0.0f;
  for (int32 d = 0; d < D; d += TILE) {
    q_tile[y * TILE + x] = row < T && d + x < D ? q[(head * T + row) * D + d + x] : 0.0f;
    k_tile[y * PITCH + x] = column + y < T && d + x < D ? k[(head / GROUP * T + column + y) * D + d + x] : 0.0f;
    __syncthreads();
    for (int32 step = 0; step < TILE; step++) sum = fmaf(q_tile[y * TILE + step], k_tile[x * PITCH + step], sum);
    __syncthreads();
  }
  if (CAUSAL && column + x > row) sum = float32_of_bits(0xff800000u);  // -inf
  if (row < T && column + x < T) weights[(head * T + row) * T + column + x] = sum / sqrtf(D);
}

extern "C" __global__ void __launch_bounds__(256) softmax(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= HEADS * T) return;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  for (int32 j = lane; j < T; j += 32) greatest = larger(greatest, weights[row * T + j]);
  for (int32 distance = 16; distance > 0; distance /= 2) greatest = larger(greatest, shuffle_xor(greatest, distance));
  for (int32 j = lane; j < T; j += 32) sum += expf(weights[row * T + j] - greatest);
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  for (int32 j = lane; j < T; j += 32) weights[row * T + j] = expf(weights[row * T + j] - greatest) / sum;
  if (lane == 0) lse[row] = greatest + logf(sum);
}

extern "C" __global__ void __launch_bounds__(256) weighted(MEMORY) {
  SHARED(float32, w_tile, TILE * TILE);
  SHARED(float32, v_tile, TILE * TILE);
  const int32 y = threadIdx.x / TILE, x = threadIdx.x % TILE, head = blockIdx.x / PIECES / TILES;
  const int32 row = blockIdx.x / PIECES % TILES * TILE + y, d = blockIdx.x % PIECES * TILE + x;
  float32 sum = 0.0f;
  for (int32 j = 0; j < T; j += TILE) {
    w_tile[y * TILE + x] = row < T && j + x < T ? weights[(head * T + row) * T + j + x] : 0.0f;
    v_tile[y * TILE + x] = j + y < T && d < D ? v[(head / GROUP * T + j + y) * D + d] : 0.0f;
    __syncthreads();
    for (int32 step = 0; step < TILE; step++) sum = fmaf(w_tile[y * TILE + step], v_tile[step * TILE + x], sum);
    __syncthreads();
  }
  if (row < T && d < D) o[(head * T + row) * D + d] = sum;
}
