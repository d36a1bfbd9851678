"""Exercise 3: a transpose. This one is right, but its stores touch a sector of 32 bytes for each 4 bytes.

Test it:  python -m pytest docs/kernels/exercises/test_3_transpose.py
"""

from __future__ import annotations

import numpy as np

import picograd as pg

SOURCE = """
__global__ void transpose(float *out, const float *x, int rows, int columns) {
  int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < rows && column < columns) out[column * rows + row] = x[row * columns + column];
  // Have the block store its 32 x 32 elements in `__shared__ float tile[32][...]` first. Then the threads of a warp can
  // read 32 neighbours and write 32 neighbours. A column of the tile must not be in one bank: word i is in bank i % 32.
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
