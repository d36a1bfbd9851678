// Register column: a thread computes 8 elements of a column, in registers.
//
// An element of b that has come from shared memory serves 8 multiply-adds instead of one: 9 loads for 8 of them, where it was 16. The
// tile is 64 x 64, so memory is read half as often, too. What is left: a is still read once for each multiply-add.
#include "primitives.h"

static const int32 TILE = 64, DEPTH = 8, ROWS = 8;  // of c, of K, of a thread

extern "C" __global__ void __launch_bounds__(TILE * TILE / ROWS)
    register_column(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  SHARED(float32, a_tile, TILE * DEPTH);
  SHARED(float32, b_tile, DEPTH * TILE);
  REGISTERS(float32, sums, ROWS);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, left = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, y = t / TILE * ROWS, x = t % TILE;
  const int32 a_row = t / DEPTH, a_column = t % DEPTH, b_row = t / TILE, b_column = t % TILE;  // of what the thread brings
#pragma unroll
  for (int32 i = 0; i < ROWS; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < K; first += DEPTH) {
    a_tile[t] = top + a_row < M && first + a_column < K ? a[(top + a_row) * K + first + a_column] : 0.0f;
    b_tile[t] = first + b_row < K && left + b_column < N ? b[(first + b_row) * N + left + b_column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int32 k = 0; k < DEPTH; k++) {
      const float32 right = b_tile[k * TILE + x];
#pragma unroll
      for (int32 i = 0; i < ROWS; i++) sums[i] = fmaf(a_tile[(y + i) * DEPTH + k], right, sums[i]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int32 i = 0; i < ROWS; i++)
    if (top + y + i < M && left + x < N) c[(top + y + i) * N + left + x] = sums[i];
}
