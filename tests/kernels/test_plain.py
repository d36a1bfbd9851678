"""Kernels as they are found elsewhere, in plain CUDA C: each on the simulator, and compiled for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd.errors import CompileError
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler


def randn(*shape: int) -> pg.Tensor:
    return pg.tensor(np.random.default_rng(0).standard_normal(shape, np.float32))


# ---- a product by registers, with casts to vectors (in the manner of siboehm's SGEMM) ----
PRODUCT = """
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
product(int M, int N, int K, float alpha, const float *A, const float *B, float *C) {
  const uint across = blockIdx.y, along = blockIdx.x;
  const uint threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
  __shared__ float As[BM * BK], Bs[BK * BN];
  A += across * BM * K, B += along * BN, C += across * BM * N + along * BN;
  const uint rowA = threadIdx.x / (BK / 4), colA = threadIdx.x % (BK / 4);
  const uint rowB = threadIdx.x / (BN / 4), colB = threadIdx.x % (BN / 4);
  float sums[TM * TN] = {0.0}, regM[TM] = {0.0}, regN[TN] = {0.0};
  for (uint k = 0; k < K; k += BK) {
    float4 part = reinterpret_cast<const float4 *>(&A[rowA * K + colA * 4])[0];
    As[(colA * 4 + 0) * BM + rowA] = part.x;
    As[(colA * 4 + 1) * BM + rowA] = part.y;
    As[(colA * 4 + 2) * BM + rowA] = part.z;
    As[(colA * 4 + 3) * BM + rowA] = part.w;
    reinterpret_cast<float4 *>(&Bs[rowB * BN + colB * 4])[0] =
        reinterpret_cast<const float4 *>(&B[rowB * N + colB * 4])[0];
    __syncthreads();
    A += BK, B += BK * N;
    for (uint i = 0; i < BK; ++i) {
      for (uint m = 0; m < TM; ++m) regM[m] = As[i * BM + threadRow * TM + m];
      for (uint n = 0; n < TN; ++n) regN[n] = Bs[i * BN + threadCol * TN + n];
      for (uint m = 0; m < TM; ++m)
        for (uint n = 0; n < TN; ++n) sums[m * TN + n] += regM[m] * regN[n];
    }
    __syncthreads();
  }
  for (uint m = 0; m < TM; m++)
    for (uint n = 0; n < TN; n += 4) {
      float4 part;
      part.x = alpha * sums[m * TN + n], part.y = alpha * sums[m * TN + n + 1];
      part.z = alpha * sums[m * TN + n + 2], part.w = alpha * sums[m * TN + n + 3];
      reinterpret_cast<float4 *>(&C[(threadRow * TM + m) * N + threadCol * TN + n])[0] = part;
    }
}
"""
product = pg.kernel(
    PRODUCT,
    entry="product<32, 32, 8, 4, 4>",
    output=lambda a, b: ((a.shape[0], b.shape[1]), a.dtype),
    inputs=lambda a, b: (a.shape[0], b.shape[1], a.shape[1], 1.0, a, b),
    grid=lambda a, b: (b.shape[1] // 32, a.shape[0] // 32),
    block=64,
    meaning=np.matmul,
)

# ---- layer norm by warps, three results, hints for caches ----
NORM = """
__device__ float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xFFFFFFFF, v, o);
  return v;
}
__global__ void norm(float* __restrict__ out, float* __restrict__ mean, float* __restrict__ rstd,
                     const float* __restrict__ inp, const float* __restrict__ weight, int C) {
  __shared__ float s_sum[32], s_sq[32];
  const float* x = inp + blockIdx.x * C;
  float* o = out + blockIdx.x * C;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float sum = 0.f, sq = 0.f;
  for (int i = threadIdx.x; i < C; i += blockDim.x) { float v = __ldg(&x[i]); sum += v; sq += v * v; }
  sum = warp_sum(sum), sq = warp_sum(sq);
  if (lane == 0) { s_sum[warp] = sum; s_sq[warp] = sq; }
  __syncthreads();
  if (warp == 0) {
    sum = warp_sum(lane < warps ? s_sum[lane] : 0.f);
    sq = warp_sum(lane < warps ? s_sq[lane] : 0.f);
    if (lane == 0) { s_sum[0] = sum / C; s_sq[0] = rsqrtf(sq / C - (sum / C) * (sum / C) + 1e-5f); }
  }
  __syncthreads();
  float m = s_sum[0], s = s_sq[0];
  if (threadIdx.x == 0) { mean[blockIdx.x] = m; __stcs(rstd + blockIdx.x, s); }
  for (int i = threadIdx.x; i < C; i += blockDim.x) __stcs(o + i, s * (__ldcs(x + i) - m) * weight[i]);
}
"""
norm = pg.kernel(
    NORM,
    output=lambda x, w: (x, (x.shape[:1], x.dtype), (x.shape[:1], x.dtype)),
    inputs=lambda x, w: (x, w, x.shape[1]),
    grid=lambda x, w: x.shape[0],
    block=64,
    meaning=lambda x, w: (
        (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w,
        x.mean(1),
        1 / np.sqrt(x.var(1) + 1e-5),
    ),
)  # fmt: skip

# ---- a histogram by atomics, structures, constants ----
HISTOGRAM = """
#define BINS 16
__constant__ int scale[2] = {1, 2};
struct Pair { float a; int b; };
__device__ inline int bin_of(const int *p, int i) { return p[i] & (BINS - 1); }
__global__ void histogram(int *out, const int *x, int n) {
  __shared__ int bins[BINS];
  if (threadIdx.x < BINS) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[bin_of(x, i)], scale[0]);
  __syncthreads();
  Pair p = {1.0f, 2}, *q = &p;
  if (threadIdx.x < BINS) out[threadIdx.x] = bins[threadIdx.x] * (q->b - 1);
}
"""
histogram = pg.kernel(
    HISTOGRAM,
    output=lambda x: ((16,), pg.int32),
    inputs=lambda x: (x, x.numel()),
    grid=1,
    block=64,
    meaning=lambda x: np.bincount(x & 15, minlength=16).astype(np.int32),
)

# ---- two tiles in turn, arrays of three axes ----
TILES = """
constexpr int T = 16;
__global__ void tiles(float* C, const float* A, const float* B, int M, int N, int K)
{
    __shared__ float As[2][T][T], Bs[2][T][T + 1];
    int ty = threadIdx.y, tx = threadIdx.x, row = blockIdx.y * blockDim.y + ty, col = blockIdx.x * blockDim.x + tx;
    float acc = 0;
    for (int k0 = 0, s = 0; k0 < K; k0 += T, s ^= 1) {
        As[s][ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;
        Bs[s][ty][tx] = (col < N && k0 + ty < K) ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < T; k++) acc = fmaf(As[s][ty][k], Bs[s][k][tx], acc);
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
"""
tiles = pg.kernel(
    TILES,
    output=lambda a, b: ((a.shape[0], b.shape[1]), a.dtype),
    inputs=lambda a, b: (a, b, a.shape[0], b.shape[1], a.shape[1]),
    grid=lambda a, b: (-(-b.shape[1] // 16), -(-a.shape[0] // 16)),
    block=(16, 16),
    meaning=np.matmul,
)

# ---- dynamic shared memory of another type, templates, votes, pointers that walk ----
SUNDRIES = """
extern __shared__ unsigned char raw[];
template <typename T> struct Sum { T v; __device__ void add(T x) { v += x; } };
template <typename T> __device__ T first_two(const T *p) { return p[0] + p[1]; }
__global__ void sundries(float *out, const float *x, const float *y, int n) {
  float *s = (float *)raw;
  int tid = threadIdx.x + threadIdx.y * blockDim.x;
  s[tid] = x[tid];
  __syncthreads();
  Sum<float> a{0.0f};
  const float *p = x, *end = x + n;
  for (; p < end; ++p) a.add(*p);
  unsigned mask = __ballot_sync(0xffffffffu, tid % 2 == 0);
  float2 v = make_float2(s[tid ^ 1], (float)__popc(mask));
  float m = fmaxf(x[tid], y[tid]) + max(1, 2) + min(x[tid], 0.5f);
  auto twice = [&](int i) { return s[i] * 2; };
  if (y != nullptr) out[tid] = a.v + v.x + v.y + m + twice(tid) + first_two(x) + powf(x[tid], 2.0f) + (x[tid] > 0 ? 1 : 0);
}
"""
sundries = pg.kernel(
    SUNDRIES,
    output=lambda x, y: x,
    inputs=lambda x, y: (x, y, x.numel()),
    grid=1,
    block=(8, 4),
    shared_bytes=128,
    meaning=lambda x, y: (
        x.sum() + x.reshape(-1, 2)[:, ::-1].reshape(-1) + 16 + np.maximum(x, y) + 2 + np.minimum(x, 0.5) + 2 * x
        + x[:2].sum() + x * x + (x > 0)
    ),
)  # fmt: skip

KERNELS = {
    "product": (product, (randn(64, 32), randn(32, 64))),
    "norm": (norm, (randn(5, 100), randn(100))),
    "histogram": (histogram, (pg.arange(200, dtype=pg.int32),)),
    "tiles": (tiles, (randn(20, 37), randn(37, 18))),
    "sundries": (sundries, (randn(32), randn(32))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_simulator_runs_it(name: str) -> None:
    kernel, args = KERNELS[name]
    report = kernel.check(*args)
    assert report, str(report)


@pytest.mark.parametrize("name", KERNELS)
def test_a_gpu_is_given_the_same_text(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    kernel, args = KERNELS[name]
    assert kernel.prepare(*(arg.to("CUDASIM") for arg in args)).resources().spill_nbytes == 0


def test_a_float_that_would_become_an_integer_is_refused() -> None:
    """In `c ? x[i] : 0` an element is of a class on the simulator: the branches would meet in int."""
    made: Any = pg.kernel(TILES.replace(": 0.0f", ": 0"), output=tiles.output, inputs=tiles.inputs, grid=1, block=(16, 16))
    with pytest.raises(CompileError, match=r"tiles.cu:9: error: .*\n.* 9 \| .* : 0;(.*\n)+  hint: write 0.0f"):
        made(randn(4, 4).to("CUDASIM"), randn(4, 4).to("CUDASIM")).tolist()
