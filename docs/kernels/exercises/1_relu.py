"""Exercise 1: a first kernel, out = max(x, 0)^2 for each element of x, however many there are.

Test it:  python -m pytest docs/kernels/exercises/test_1_relu.py
"""

from __future__ import annotations

import numpy as np

import picograd as pg

SOURCE = """
__global__ void squared_relu(float *out, const float *x, int count) {
  // Which element is this thread's? Its block is blockIdx.x, of blockDim.x threads; in it, it is threadIdx.x.
  // The last block may have threads without an element.
}
"""

squared_relu = pg.kernel(
    SOURCE,
    output=lambda x: x,
    inputs=lambda x: (x, x.numel()),
    grid=lambda x: 1,  # how many blocks of 64 threads hold all elements?
    block=64,
    meaning=lambda x: np.maximum(x, 0) ** 2,
)
