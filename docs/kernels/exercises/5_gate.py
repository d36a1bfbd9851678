"""Exercise 5: the gradient of silu(x) y, the gate of a Llama. One kernel computes that of x and that of y.

Test it:  python -m pytest docs/kernels/exercises/test_5_gate.py
"""

from __future__ import annotations

import numpy as np

import picograd as pg

SOURCE = """
__global__ void gate(float *out, const float *x, const float *y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = x[i] / (1.0f + expf(-x[i])) * y[i];
}

__global__ void gate_grad(float *dx, float *dy, const float *grad, const float *x, const float *y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  // With s = 1 / (1 + exp(-x)) is silu(x) = x s, and its derivative s (1 + x (1 - s)).
  dx[i] = grad[i];
  dy[i] = grad[i];
}
"""


def blocks(x: pg.Tensor) -> int:
    """Returns how many blocks of 64 threads hold all elements."""
    return -(-x.numel() // 64)


def gate_grad_meaning(grad, x, y):
    s = 1 / (1 + np.exp(-x))
    return grad * y * s * (1 + x * (1 - s)), grad * x * s


gate_grad = pg.kernel(
    SOURCE,
    entry="gate_grad",
    output=lambda grad, x, y: (x, y),
    inputs=lambda grad, x, y: (grad, x, y, x.numel()),
    grid=lambda grad, x, y: blocks(x),
    block=64,
    meaning=gate_grad_meaning,
)

gate = pg.kernel(
    SOURCE,
    entry="gate",
    output=lambda x, y: x,
    inputs=lambda x, y: (x, y, x.numel()),
    grid=lambda x, y: blocks(x),
    block=64,
    meaning=lambda x, y: x / (1 + np.exp(-x)) * y,
    gradient=lambda grad, x, y: (None, None),  # a gradient for x and one for y
)
