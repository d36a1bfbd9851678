// Register tile: a thread computes 8 x 8 elements, in registers.
//
// For each of K a thread loads 8 elements of a and 8 of b and does 64 multiply-adds: a load for four of them. The tile is 128 x 128, so
// memory is read half as often again. Two blocks fit onto a multiprocessor if a thread has at most 128 registers. What is left: a
// load brings one element; and since the columns of two neighbouring threads are 8 apart, a warp asks 4 banks of shared memory for 16
// words of b, one after the other, and stores to 32 sectors what would fit into 4.
#include "primitives.h"

static const int32 TILE = 128, DEPTH = 8, SIDE = 8, WIDE = TILE / SIDE, THREADS = WIDE * WIDE;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    register_tile(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  SHARED(float32, a_tile, TILE * DEPTH);
  SHARED(float32, b_tile, DEPTH * TILE);
  REGISTERS(float32, sums, SIDE * SIDE);
  REGISTERS(float32, left, SIDE);
  REGISTERS(float32, right, SIDE);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, first_column = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, y = t / WIDE * SIDE, x = t % WIDE * SIDE;
#pragma unroll
  for (int32 i = 0; i < SIDE * SIDE; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < K; first += DEPTH) {
#pragma unroll
    for (int32 i = t; i < TILE * DEPTH; i += THREADS) {
      const int32 row = top + i / DEPTH, k = first + i % DEPTH, b_row = first + i / TILE, column = first_column + i % TILE;
      a_tile[i] = row < M && k < K ? a[row * K + k] : 0.0f;
      b_tile[i] = b_row < K && column < N ? b[b_row * N + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int32 k = 0; k < DEPTH; k++) {
#pragma unroll
      for (int32 i = 0; i < SIDE; i++) {
        left[i] = a_tile[(y + i) * DEPTH + k];
        right[i] = b_tile[k * TILE + x + i];
      }
#pragma unroll
      for (int32 i = 0; i < SIDE; i++)
#pragma unroll
        for (int32 j = 0; j < SIDE; j++) sums[i * SIDE + j] = fmaf(left[i], right[j], sums[i * SIDE + j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int32 i = 0; i < SIDE; i++)
#pragma unroll
    for (int32 j = 0; j < SIDE; j++)
      if (top + y + i < M && first_column + x + j < N) c[(top + y + i) * N + first_column + x + j] = sums[i * SIDE + j];
}
