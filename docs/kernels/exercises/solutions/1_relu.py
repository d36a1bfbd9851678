"""Solution of exercise 1: a thread an element, and as many blocks as hold all of them."""

from __future__ import annotations

import numpy as np

import picograd as pg

SOURCE = """
__global__ void squared_relu(float *out, const float *x, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = fmaxf(x[i], 0.0f);
  out[i] = value * value;
}
"""

squared_relu = pg.kernel(
    SOURCE,
    output=lambda x: x,
    inputs=lambda x: (x, x.numel()),
    grid=lambda x: -(-x.numel() // 64),
    block=64,
    meaning=lambda x: np.maximum(x, 0) ** 2,
)
