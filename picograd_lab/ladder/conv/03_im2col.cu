// Im2col: patches of x become the columns of a matrix, and w times it is y.
//
// The first kernel writes for each pixel of y the C R R elements that it depends on; then the convolution is a product
// of matrices, (F, C R R) @ (C R R, pixels), for which everything of that ladder is at hand: a block has 64 x 64
// elements, a thread 4 x 4 of them, and two loads of vectors feed 16 multiply-adds. What is left: the patches are R R
// times as large as x, are written and read again for each 64 filters.
#include "primitives.h"

static const int32 PAD = R / 2, OH = (H + 2 * PAD - R) / STRIDE + 1, OW = (W + 2 * PAD - R) / STRIDE + 1;
static const int32 PLANE = OH * OW, PIXELS = N * PLANE, DEPTH = C * R * R;
static const int32 TILE = 64, STEP = 8, THREADS = 256, LINE = TILE + 4;  // rows of w are transposed, to other banks

extern "C" __global__ void __launch_bounds__(THREADS)
    patches_of(Global<const float32> x, Global<const float32> w, Global<float32> y, Global<float32> patches) {
  const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
  if (at >= (int64)DEPTH * PIXELS) return;
  const int32 k = at / PIXELS, pixel = at % PIXELS;
  const int32 i = pixel / OW % OH * STRIDE + k / R % R - PAD, j = pixel % OW * STRIDE + k % R - PAD;
  const bool is_inside = 0 <= i && i < H && 0 <= j && j < W;
  patches[at] = is_inside ? x[((pixel / PLANE * C + k / (R * R)) * H + i) * W + j] : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    product(Global<const float32> x, Global<const float32> w, Global<float32> y, Global<float32> patches) {
  SHARED(float32, w_tile, STEP * LINE);
  SHARED(float32, p_tile, STEP * TILE);
  REGISTERS(float32, sums, 16);
  const int32 wide = (PIXELS + TILE - 1) / TILE, top = blockIdx.x / wide * TILE, left = blockIdx.x % wide * TILE;
  const int32 t = threadIdx.x, row = t / 16 * 4, column = t % 16 * 4;  // of its 4 x 4 elements
#pragma unroll
  for (int32 i = 0; i < 16; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < DEPTH; first += STEP) {
#pragma unroll
    for (int32 i = t; i < STEP * TILE; i += THREADS) {
      const int32 filter = top + i / STEP, k = first + i % STEP, of_k = first + i / TILE, pixel = left + i % TILE;
      w_tile[i % STEP * LINE + i / STEP] = filter < F && k < DEPTH ? w[filter * DEPTH + k] : 0.0f;
      p_tile[i] = of_k < DEPTH && pixel < PIXELS ? patches[(int64)of_k * PIXELS + pixel] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int32 k = 0; k < STEP; k++) {
      const Lanes<float32, 4> of_w = load_lanes<4>(w_tile, k * LINE + row), of_p = load_lanes<4>(p_tile, k * TILE + column);
#pragma unroll
      for (int32 i = 0; i < 16; i++) sums[i] = fmaf(of_w.at[i / 4], of_p.at[i % 4], sums[i]);
    }
    __syncthreads();
  }
  const auto place = [&](int32 filter, int32 pixel) { return (pixel / PLANE * F + filter) * PLANE + pixel % PLANE; };
#pragma unroll
  for (int32 i = 0; i < 4; i++) {
    const int32 filter = top + row + i, pixel = left + column;
    if (filter >= F) continue;
    if (PLANE % 4 == 0) {
      const Lanes<float32, 4> four = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
      if (pixel < PIXELS) store_lanes(aligned(y), place(filter, pixel), four);
    } else {
#pragma unroll
      for (int32 j = 0; j < 4; j++)
        if (pixel + j < PIXELS) y[place(filter, pixel + j)] = sums[4 * i + j];
    }
  }
}
