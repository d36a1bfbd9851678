// Implicit product: patches are made where a block needs them, and never stored.
//
// The product is that of the rung before. What differs is where a tile of patches comes from: a thread always brings
// elements for one pixel, so of each only channel and place in the filter have to be found, from k; elements outside of
// x are zeros. Neighbouring threads have neighbouring pixels, so they read along rows of x. What is left: an element of
// x is still loaded R R times by a block, though from a cache; and there are as many multiply-adds as before.
// Source: Chetlur et al. 2014, "cuDNN: Efficient primitives for deep learning", arXiv:1410.0759, section 3.
#include "primitives.h"

static const int32 PAD = R / 2, OH = (H + 2 * PAD - R) / STRIDE + 1, OW = (W + 2 * PAD - R) / STRIDE + 1;
static const int32 PLANE = OH * OW, PIXELS = N * PLANE, DEPTH = C * R * R;
static const int32 TILE = 64, STEP = 8, THREADS = 256, LINE = TILE + 4;  // rows of w are transposed, to other banks

extern "C" __global__ void __launch_bounds__(THREADS)
    implicit_product(Global<const float32> x, Global<const float32> w, Global<float32> y) {
  SHARED(float32, w_tile, STEP * LINE);
  SHARED(float32, p_tile, STEP * TILE);
  REGISTERS(float32, sums, 16);
  const int32 wide = (PIXELS + TILE - 1) / TILE, top = blockIdx.x / wide * TILE, left = blockIdx.x % wide * TILE;
  const int32 t = threadIdx.x, row = t / 16 * 4, column = t % 16 * 4;  // of its 4 x 4 elements
  const int32 pixel = left + t % TILE;                                // of the patches that it brings elements of
  const int32 first_i = pixel / OW % OH * STRIDE - PAD, first_j = pixel % OW * STRIDE - PAD;
  const int32 image = pixel / PLANE * C * H * W;
#pragma unroll
  for (int32 i = 0; i < 16; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < DEPTH; first += STEP) {
#pragma unroll
    for (int32 i = t; i < STEP * TILE; i += THREADS) {
      const int32 filter = top + i / STEP, k = first + i % STEP, of_k = first + i / TILE;
      w_tile[i % STEP * LINE + i / STEP] = filter < F && k < DEPTH ? w[filter * DEPTH + k] : 0.0f;
      const int32 y_at = first_i + of_k / R % R, x_at = first_j + of_k % R;
      const bool is_inside = 0 <= y_at && y_at < H && 0 <= x_at && x_at < W && of_k < DEPTH && pixel < PIXELS;
      p_tile[i] = is_inside ? x[image + (of_k / (R * R) * H + y_at) * W + x_at] : 0.0f;
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
