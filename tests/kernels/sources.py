"""Kernels in plain CUDA C that the tests of pg.kernel share."""

from __future__ import annotations

import math

import numpy as np

import picograd as pg

SAXPY = """
__global__ void saxpy(float *out, const float *x, const float *y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""
saxpy = pg.kernel(
    SAXPY,
    output=lambda x, y, a: x,
    inputs=lambda x, y, a: (x, y, a, x.numel()),
    grid=lambda x, y, a: -(-x.numel() // 256),
    meaning=lambda x, y, a: a * x + y,
)

TRANSPOSE = """
#define TILE 8
__global__ void transpose(float *__restrict__ out, const float *__restrict__ x, int rows, int columns) {
  __shared__ float tile[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
  __syncthreads();
  row = blockIdx.x * TILE + threadIdx.y, column = blockIdx.y * TILE + threadIdx.x;
  if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}
"""
transpose = pg.kernel(
    TRANSPOSE,
    output=lambda x: (x.shape[::-1], x.dtype),
    inputs=lambda x: (x, *x.shape),
    grid=lambda x: (-(-x.shape[1] // 8), -(-x.shape[0] // 8)),
    block=(8, 8),
    meaning=np.transpose,
)

ROWS = """
template <int THREADS> __global__ void rows(float *sums, int *most, const float *x, int n) {
  extern __shared__ float parts[];
  const float *row = x + (long long)blockIdx.x * n;
  float sum = 0.0f, greatest = row[0];
  for (int i = threadIdx.x; i < n; i += THREADS) {
    sum += row[i];
    greatest = max(greatest, row[i]);
  }
  for (int i = 16; i > 0; i /= 2) greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, i));
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int i = THREADS / 2; i > 0; i /= 2) {
    if (threadIdx.x < i) parts[threadIdx.x] += parts[threadIdx.x + i];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = parts[0];
    most[blockIdx.x] = (int)greatest;
  }
}
"""
rows = pg.kernel(
    ROWS,
    entry="rows<32>",
    output=lambda x: ((x.shape[:1], pg.float32), (x.shape[:1], pg.int32)),
    inputs=lambda x: (x, x.shape[1]),
    grid=lambda x: x.shape[0],
    block=32,
    shared_bytes=32 * 4,
    meaning=lambda x: (x.sum(1), x.max(1).astype(np.int32)),
)

VECTORS = """
__global__ void twice(float *out, const float *x) {
  const int i = 4 * threadIdx.x;
  float4 v = reinterpret_cast<const float4 *>(&x[i])[0];
  v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2;
  *(float4 *)(out + i) = v;
}
"""
twice = pg.kernel(VECTORS, output=lambda x: x, grid=1, block=lambda x: x.numel() // 4, meaning=lambda x: 2 * x)

GELU = """
__global__ void gelu(float *out, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(0.70710678f * x[i]));
}

__global__ void gelu_grad(float *dx, const float *grad, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i], below = 0.5f * (1.0f + erff(0.70710678f * v)), density = 0.39894228f * expf(-0.5f * v * v);
  dx[i] = grad[i] * (below + v * density);
}
"""
erf = np.vectorize(math.erf, otypes=[float])
gelu_grad = pg.kernel(
    GELU,
    entry="gelu_grad",
    output=lambda grad, x: x,
    inputs=lambda grad, x: (grad, x, x.numel()),
    grid=lambda grad, x: -(-x.numel() // 64),
    block=64,
    meaning=lambda grad, x: grad * (0.5 * (1 + erf(x / 2**0.5)) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
)
gelu = pg.kernel(
    GELU,
    entry="gelu",
    output=lambda x: x,
    inputs=lambda x: (x, x.numel()),
    grid=lambda x: -(-x.numel() // 64),
    block=64,
    meaning=lambda x: x * 0.5 * (1 + erf(x / 2**0.5)),
    gradient=lambda grad, x: gelu_grad(grad, x),
)
