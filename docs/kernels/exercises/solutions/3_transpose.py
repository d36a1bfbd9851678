"""Solution of exercise 3: a tile whose rows have one word more, so that a column is in 32 banks."""

from __future__ import annotations

import numpy as np

import picograd as pg

SOURCE = """
__global__ void transpose(float *out, const float *x, int rows, int columns) {
  __shared__ float tile[32][33];
  int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
  __syncthreads();
  row = blockIdx.x * 32 + threadIdx.y, column = blockIdx.y * 32 + threadIdx.x;  // of the result
  if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}
"""

transpose = pg.kernel(
    SOURCE,
    output=lambda x: (x.shape[::-1], x.dtype),
    inputs=lambda x: (x, *x.shape),
    grid=lambda x: (-(-x.shape[1] // 32), -(-x.shape[0] // 32)),
    block=(32, 32),
    meaning=np.transpose,
)
