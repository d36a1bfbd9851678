"""Solution of chapter 13: rows of the tile are one word longer, so that a column of it is in 32 banks."""

KERNEL = """
#include "primitives.h"
static const int SIDE = 64, TILE = 32, ROWS = 8, LINE = TILE + 1;
extern "C" __global__ void transpose(Global<const float32> x, Global<float32> out) {
  SHARED(float32, tile, TILE * LINE);
  const int row = blockIdx.x / 2 * TILE, column = blockIdx.x % 2 * TILE;
  const int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
  for (int r = i; r < TILE; r += ROWS) tile[r * LINE + j] = x[(row + r) * SIDE + column + j];
  __syncthreads();
  for (int r = i; r < TILE; r += ROWS) out[(column + r) * SIDE + row + j] = tile[j * LINE + r];
}
"""
