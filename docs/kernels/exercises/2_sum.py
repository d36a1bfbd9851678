"""Exercise 2: the sum of each row, by a block of 128 threads, which read sums before other threads have stored them.

The simulator stops at the first such read: run the test, mend the line that it names, and run it again.

Test it:  python -m pytest docs/kernels/exercises/test_2_sum.py
"""

from __future__ import annotations

import picograd as pg

SOURCE = """
__global__ void row_sums(float *out, const float *x, int columns) {
  __shared__ float sums[128];
  float sum = 0.0f;
  for (int column = threadIdx.x; column < columns; column += 128) sum += x[blockIdx.x * columns + column];
  sums[threadIdx.x] = sum;
  for (int step = 64; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}
"""

row_sums = pg.kernel(
    SOURCE,
    output=lambda x: (x.shape[:1], x.dtype),
    inputs=lambda x: (x, x.shape[1]),
    grid=lambda x: x.shape[0],
    block=128,
    meaning=lambda x: x.sum(1),
)
