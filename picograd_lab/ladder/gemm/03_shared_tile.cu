// Shared tile: a block shares tiles of a and b.
//
// The 1024 threads of a block compute 32 x 32 elements. For every 32 of K each of them brings one element of a and one of b, which 32
// threads read: memory is read 32 times less often. Two barriers keep a tile from being read too early or written too soon. Outside
// of the matrices a tile is filled with zeros. What is left: each multiply-add still takes two loads, though of shared memory.
#include "primitives.h"

static const int32 TILE = 32;

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    shared_tile(Global<const float32> a, Global<const float32> b, Global<float32> c) {
  SHARED(float32, a_tile, TILE * TILE);
  SHARED(float32, b_tile, TILE * TILE);
  const int32 tiles = (N + TILE - 1) / TILE, y = threadIdx.x / TILE, x = threadIdx.x % TILE;
  const int32 row = blockIdx.x / tiles * TILE + y, column = blockIdx.x % tiles * TILE + x;
  float32 sum = 0.0f;
  for (int32 first = 0; first < K; first += TILE) {
    a_tile[y * TILE + x] = row < M && first + x < K ? a[row * K + first + x] : 0.0f;
    b_tile[y * TILE + x] = first + y < K && column < N ? b[(first + y) * N + column] : 0.0f;
    __syncthreads();
    for (int32 k = 0; k < TILE; k++) sum = fmaf(a_tile[y * TILE + k], b_tile[k * TILE + x], sum);
    __syncthreads();
  }
  if (row < M && column < N) c[row * N + column] = sum;
}
