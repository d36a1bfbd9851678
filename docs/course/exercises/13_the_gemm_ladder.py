"""Exercise of chapter 13: a matrix is transposed, out[j, i] = x[i, j], by 2 x 2 blocks of 256 threads for 64 x 64 numbers.

A block has a tile of 32 x 32. Here each thread reads along a row, which is coalesced, and writes down a column, which is
not. Let the tile pass through shared memory, so that both are; and see to it that no bank is asked for two words at once.

    SHARED(float32, name, number)   memory of the block
    __syncthreads();                all threads of the block wait for each other

Test it:  python -m pytest docs/course/exercises/test_13_the_gemm_ladder.py
"""

KERNEL = """
#include "primitives.h"
static const int SIDE = 64, TILE = 32, ROWS = 8;  // 256 threads are 8 rows of 32
extern "C" __global__ void transpose(Global<const float32> x, Global<float32> out) {
  const int row = blockIdx.x / 2 * TILE, column = blockIdx.x % 2 * TILE;
  const int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
  for (int r = i; r < TILE; r += ROWS) out[(column + j) * SIDE + row + r] = x[(row + r) * SIDE + column + j];
}
"""
