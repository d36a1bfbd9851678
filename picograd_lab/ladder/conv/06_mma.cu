// Mma: matrix instructions multiply; the operands are float16.
//
// The implicit product, by the tensor cores: an instruction multiplies 16 x 16 by 16 x 8, with float32 sums. Four warps
// have 32 x 32 of a block's 64 x 64 elements each. Rows of w come by vectors of eight channels' worth, rows of patches
// an element at a time, and go to lines that are 8 longer, 16 bytes, so that the eight rows that load_matrices reads at
// once are in all 32 banks. What is left: neighbours in memory are pixels, whose patches overlap; were they channels,
// (N, H, W, C), a patch would come by vectors, or by the copy engine of Hopper, which has a mode for patches.
#include "primitives.h"

static const int32 PAD = R / 2, OH = (H + 2 * PAD - R) / STRIDE + 1, OW = (W + 2 * PAD - R) / STRIDE + 1;
static const int32 PLANE = OH * OW, PIXELS = N * PLANE, DEPTH = C * R * R;
static const int32 TILE = 64, STEP = 32, THREADS = 128, W_LINE = STEP + 8, P_LINE = TILE + 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    mma(Global<const Element> x, Global<const Element> w, Global<Result> y) {
  SHARED(Element, w_tile, TILE * W_LINE);
  SHARED(Element, p_tile, STEP * P_LINE);
  REGISTERS(float32, sums, 32);  // 2 x 4 products of 16 x 8
  REGISTERS(Element, of_w, 16);
  REGISTERS(Element, of_p, 16);
  const int32 wide = (PIXELS + TILE - 1) / TILE, top = blockIdx.x / wide * TILE, left = blockIdx.x % wide * TILE;
  const int32 t = threadIdx.x, lane = t % 32, row = t / 64 * 32, column = t / 32 % 2 * 32;  // of the warp's elements
  const int32 pixel = left + t % TILE;                                                      // whose patch it brings
  const int32 first_i = pixel / OW % OH * STRIDE - PAD, first_j = pixel % OW * STRIDE - PAD;
  const int32 image = pixel / PLANE * C * H * W;
#pragma unroll
  for (int32 i = 0; i < 32; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < DEPTH; first += STEP) {
#pragma unroll
    for (int32 i = t; i < TILE * STEP / 8; i += THREADS) {
      const int32 line = i / 32 * 8 + i % 8, k = i / 8 % 4 * 8;  // eight threads that are served at once have eight rows
      Lanes<Element, 8> eight = {};
      if (top + line < F && first + k < DEPTH) eight = load_lanes<8>(aligned(w), (top + line) * DEPTH + first + k);
      store_lanes(w_tile, line * W_LINE + k, eight);
    }
#pragma unroll
    for (int32 i = t / TILE; i < STEP; i += THREADS / TILE) {
      const int32 k = first + i, y_at = first_i + k / R % R, x_at = first_j + k % R;
      const bool is_inside = 0 <= y_at && y_at < H && 0 <= x_at && x_at < W && k < DEPTH && pixel < PIXELS;
      Element element = narrowed(0.0f, Element{});
      if (is_inside) element = x[image + (k / (R * R) * H + y_at) * W + x_at];
      p_tile[i * P_LINE + t % TILE] = element;
    }
    __syncthreads();
#pragma unroll
    for (int32 k = 0; k < STEP; k += 16) {
      const int32 line = lane % 16, beyond = lane / 16 * 8;  // of the row of 8 elements that the thread names
#pragma unroll
      for (int32 i = 0; i < 2; i++) {
        load_matrices<false>(of_w, 8 * i, w_tile, (row + 16 * i + line) * W_LINE + k + beyond);
        load_matrices<true>(of_p, 8 * i, p_tile, (k + line) * P_LINE + column + 16 * i + beyond);
      }
#pragma unroll
      for (int32 i = 0; i < 8; i++) mma_m16n8k16(sums, 4 * i, of_w, i / 4 * 8, of_p, i % 4 * 4);
    }
    __syncthreads();
  }
  const auto place = [&](int32 filter, int32 pixel) { return (pixel / PLANE * F + filter) * PLANE + pixel % PLANE; };
#pragma unroll
  for (int32 i = 0; i < 16; i++) {  // pairs of neighbours
    const int32 filter = top + row + i / 8 * 16 + i % 2 * 8 + lane / 4, own = left + column + i / 2 % 4 * 8 + lane % 4 * 2;
    if (filter >= F || own >= PIXELS) continue;
    const Result first = narrowed(sums[2 * i], Result{}), second = narrowed(sums[2 * i + 1], Result{});
    if (PLANE % 2 == 0) {
      store_lanes(aligned(y), place(filter, own), Lanes<Result, 2>{first, second});
    } else {
      y[place(filter, own)] = first;
      if (own + 1 < PIXELS) y[place(filter, own + 1)] = second;
    }
  }
}
