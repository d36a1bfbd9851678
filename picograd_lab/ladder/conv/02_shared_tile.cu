// Shared tile: a block has a tile of x, and a thread eight filters for a pixel.
//
// For each channel the block brings the part of x that 16 x 16 pixels of y depend on, with its margin, and eight
// filters. A thread reads an element of x from there once for eight multiply-adds, and the weights of four filters by
// one load, which goes to all threads. x is read once for each eight filters, and the R R uses of an element cost no
// memory. Rows of the tile are 16 banks apart, since a warp has 16 pixels of two of them. What is left: three loads for
// eight multiply-adds; two barriers for each channel; and small images leave threads idle.
#include "primitives.h"

static const int32 PAD = R / 2, OH = (H + 2 * PAD - R) / STRIDE + 1, OW = (W + 2 * PAD - R) / STRIDE + 1;
static const int32 TILE = 16, THREADS = TILE * TILE, FILTERS = 8, SIDE = (TILE - 1) * STRIDE + R;
static const int32 PITCH = (SIDE + 15) / 32 * 32 + 16;
static const int32 HIGH = (OH + TILE - 1) / TILE, WIDE = (OW + TILE - 1) / TILE, GROUPS = (F + FILTERS - 1) / FILTERS;

extern "C" __global__ void __launch_bounds__(THREADS)
    shared_tile(Global<const float32> x, Global<const float32> w, Global<float32> y) {
  SHARED(float32, x_tile, SIDE * PITCH);
  SHARED(float32, w_tile, R * R * FILTERS);
  REGISTERS(float32, sums, FILTERS);
  const int32 left = blockIdx.x % WIDE * TILE, top = blockIdx.x / WIDE % HIGH * TILE;
  const int32 filter = blockIdx.x / (WIDE * HIGH) % GROUPS * FILTERS, image = blockIdx.x / (WIDE * HIGH * GROUPS);
  const int32 t = threadIdx.x, row = t / TILE, column = t % TILE;
#pragma unroll
  for (int32 f = 0; f < FILTERS; f++) sums[f] = 0.0f;
  for (int32 c = 0; c < C; c++) {
    for (int32 at = t; at < SIDE * SIDE; at += THREADS) {
      const int32 i = top * STRIDE + at / SIDE - PAD, j = left * STRIDE + at % SIDE - PAD;
      const bool is_inside = 0 <= i && i < H && 0 <= j && j < W;
      x_tile[at / SIDE * PITCH + at % SIDE] = is_inside ? x[((image * C + c) * H + i) * W + j] : 0.0f;
    }
    for (int32 at = t; at < R * R * FILTERS; at += THREADS) {
      const int32 f = filter + at / (R * R), rs = at % (R * R);
      w_tile[rs * FILTERS + at / (R * R)] = f < F ? w[(f * C + c) * R * R + rs] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int32 rs = 0; rs < R * R; rs++) {
      const float32 of_x = x_tile[(row * STRIDE + rs / R) * PITCH + column * STRIDE + rs % R];
#pragma unroll
      for (int32 f = 0; f < FILTERS; f += 4) {
        const Lanes<float32, 4> four = load_lanes<4>(w_tile, rs * FILTERS + f);
#pragma unroll
        for (int32 i = 0; i < 4; i++) sums[f + i] = fmaf(four.at[i], of_x, sums[f + i]);
      }
    }
    __syncthreads();
  }
  if (top + row >= OH || left + column >= OW) return;
#pragma unroll
  for (int32 f = 0; f < FILTERS; f++)
    if (filter + f < F) y[((image * F + filter + f) * OH + top + row) * OW + left + column] = sums[f];
}
