// Winograd: 16 multiplications in the place of 36 give 2 x 2 elements of y.
//
// F(2 x 2, 3 x 3): y = A.T ((G w G.T) * (B.T x B)) A, for a tile of 4 x 4 of x, which overlaps the next by two. A.T,
// B.T and G stand below; their elements are 0, 1, -1 and 1/2, so a transform is additions. The products are summed over
// channels before A.T is applied. The first kernel transforms the filters, once for all tiles. A block of the second
// has 32 filters and 32 tiles, a thread two of each: 64 sums. For eight channels at once it transforms its 32 tiles, one
// each thread. Sums cancel, so a result is a little less exact. What is left: tiles are read by each 32 filters, and
// overlap; 4 loads of vectors feed 16 multiply-adds; and larger tiles save more, for more lost digits.
// Source: Lavin and Gray 2016, "Fast algorithms for convolutional neural networks", arXiv:1509.09308, section 4.1.
#include "primitives.h"

static const int32 HIGH = (H + 1) / 2, WIDE = (W + 1) / 2, TILES = N * HIGH * WIDE;  // of 2 x 2 elements of y
static const int32 SIDE = 32, CHANNELS = 8, THREADS = 256, PITCH = 16 + 4;           // rows are in other banks

// to = matrix @ from @ matrix.T, of from (K, K) and matrix (M, K).
template <int32 M, int32 K, class Matrix, class To, class From>
PRIMITIVE void transform(const Matrix& matrix, To& to, From& from) {
  REGISTERS(float32, half, M * K);
  const auto add = [](float32 factor, float32 value, float32 sum) {  // factors are known: nothing is left of 0
    return factor == 0.0f ? sum : factor == 1.0f ? sum + value : factor == -1.0f ? sum - value : sum + factor * value;
  };
#pragma unroll
  for (int32 i = 0; i < M * K; i++) {
    float32 sum = 0.0f;
#pragma unroll
    for (int32 k = 0; k < K; k++) sum = add(matrix[i / K][k], from[k * K + i % K], sum);
    half[i] = sum;
  }
#pragma unroll
  for (int32 i = 0; i < M * M; i++) {
    float32 sum = 0.0f;
#pragma unroll
    for (int32 k = 0; k < K; k++) sum = add(matrix[i % M][k], half[i / M * K + k], sum);
    to[i] = sum;
  }
}

// Writes G w G.T of each channel and filter: 16 elements.
extern "C" __global__ void __launch_bounds__(THREADS)
    filters(Global<const float32> x, Global<const float32> w, Global<float32> y, Global<float32> made) {
  const float32 G[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};
  REGISTERS(float32, part, 9);
  REGISTERS(float32, own, 16);
  const int32 at = blockIdx.x * THREADS + threadIdx.x, c = at / F, filter = at % F;
  if (c >= C) return;
#pragma unroll
  for (int32 i = 0; i < 9; i++) part[i] = w[(filter * C + c) * 9 + i];
  transform<4, 3>(G, own, part);
#pragma unroll
  for (int32 i = 0; i < 16; i += 4)
    store_lanes(aligned(made), at * 16 + i, Lanes<float32, 4>{own[i], own[i + 1], own[i + 2], own[i + 3]});
}

extern "C" __global__ void __launch_bounds__(THREADS)
    winograd(Global<const float32> x, Global<const float32> w, Global<float32> y, Global<float32> made) {
  const float32 A_T[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
  const float32 B_T[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
  SHARED(float32, w_tile, CHANNELS * SIDE * PITCH);
  SHARED(float32, x_tile, CHANNELS * SIDE * PITCH);
  REGISTERS(float32, sums, 4 * 16);  // of two filters and two tiles
  REGISTERS(float32, part, 16);
  REGISTERS(float32, own, 16);
  const int32 wide = (TILES + SIDE - 1) / SIDE;
  const int32 first_filter = blockIdx.x / wide * SIDE, first_tile = blockIdx.x % wide * SIDE;
  const int32 t = threadIdx.x, row = t / 16, column = t % 16;  // filters row and row + 16, tiles alike
  const int32 tile = first_tile + t % SIDE, image = tile / (WIDE * HIGH);  // that it transforms
  const int32 top = tile / WIDE % HIGH * 2 - 1, left = tile % WIDE * 2 - 1;
#pragma unroll
  for (int32 i = 0; i < 64; i++) sums[i] = 0.0f;
  for (int32 first = 0; first < C; first += CHANNELS) {
    for (int32 i = t; i < CHANNELS * SIDE * 4; i += THREADS) {
      const int32 line = i / 32 * 8 + i % 8, e = i / 8 % 4 * 4;  // eight threads that are served at once have eight rows
      const int32 c = first + line / SIDE, filter = first_filter + line % SIDE;
      Lanes<float32, 4> four = {};
      if (c < C && filter < F) four = load_lanes<4>(aligned(made), (c * F + filter) * 16 + e);
      store_lanes(w_tile, line * PITCH + e, four);
    }
    // ---- B.T x B ----
    const int32 c = first + t / SIDE;
#pragma unroll
    for (int32 i = 0; i < 16; i++) {
      const int32 y_at = top + i / 4, x_at = left + i % 4;
      const bool is_inside = 0 <= y_at && y_at < H && 0 <= x_at && x_at < W && c < C && tile < TILES;
      part[i] = is_inside ? x[((image * C + c) * H + y_at) * W + x_at] : 0.0f;
    }
    transform<4, 4>(B_T, own, part);
#pragma unroll
    for (int32 i = 0; i < 16; i += 4)
      store_lanes(x_tile, t * PITCH + i, Lanes<float32, 4>{own[i], own[i + 1], own[i + 2], own[i + 3]});
    __syncthreads();
    // ---- sixteen products, summed over channels ----
    for (int32 k = 0; k < CHANNELS; k++)
#pragma unroll
      for (int32 i = 0; i < 16; i += 4) {
        const int32 w_at = (k * SIDE + row) * PITCH + i, x_from = (k * SIDE + column) * PITCH + i, next = 16 * PITCH;
        const Lanes<float32, 4> of_w[] = {load_lanes<4>(w_tile, w_at), load_lanes<4>(w_tile, w_at + next)};
        const Lanes<float32, 4> of_x[] = {load_lanes<4>(x_tile, x_from), load_lanes<4>(x_tile, x_from + next)};
#pragma unroll
        for (int32 j = 0; j < 16; j++) {  // pair j / 4 of a filter and a tile
          const int32 at = j / 4 * 16 + i + j % 4;
          sums[at] = fmaf(of_w[j / 8].at[j % 4], of_x[j / 4 % 2].at[j % 4], sums[at]);
        }
      }
    __syncthreads();
  }
#pragma unroll
  for (int32 pair = 0; pair < 4; pair++) {
    const int32 filter = first_filter + row + pair / 2 * 16, of = first_tile + column + pair % 2 * 16;
#pragma unroll
    for (int32 i = 0; i < 16; i++) part[i] = sums[pair * 16 + i];
    transform<2, 4>(A_T, own, part);
#pragma unroll
    for (int32 i = 0; i < 2; i++) {
      const int32 y_at = of / WIDE % HIGH * 2 + i, x_at = of % WIDE * 2;
      const int32 at = ((of / (WIDE * HIGH) * F + filter) * H + y_at) * W + x_at;
      if (filter >= F || of >= TILES || y_at >= H) continue;
      if (W % 2 == 0) {
        store_lanes(aligned(y), at, Lanes<float32, 2>{own[2 * i], own[2 * i + 1]});
      } else {
        y[at] = own[2 * i];
        if (x_at + 1 < W) y[at + 1] = own[2 * i + 1];
      }
    }
  }
}
