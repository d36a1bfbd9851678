// Wgmma and TMA: 128 threads multiply what the copy engine has brought.
//
// One thread asks for a whole tile, by coordinates: the copy engine computes the addresses, swizzles the tile's rows so that no two
// are in the same banks, fills the outside with zeros, and says at an mbarrier when all bytes are there. wgmma reads both operands from
// shared memory, 64 x 16 by 16 x 128, so that no thread loads or stores any of it. Two warpgroups have 64 rows of c each. What is left:
// there is one tile, so copies and products wait for each other.
#include "hopper.h"

static const int32 TILE = 128, DEPTH = 64, THREADS = 256, LENGTH = TILE * DEPTH, HALF = LENGTH / 2;

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma_and_tma(Global<const bfloat16> a, Global<const bfloat16> b, Global<Result> c, TILE_MAP(a_map), TILE_MAP(b_map)) {
  SHARED_TILE(bfloat16, a_tile, LENGTH);
  SHARED_TILE(bfloat16, b_tile, LENGTH);  // two halves of 64 columns: a row of K is 128 bytes
  MBARRIERS(full, 1);
  REGISTERS(float32, sums, TILE / 2);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, left = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, own = t / 128 * HALF;
  if (t == 0) {
    mbarrier_init(full, 0, 1);
    fence_mbarriers();
  }
  __syncthreads();
  for (int32 step = 0; step * DEPTH < K; step++) {
    if (t == 0) {
      mbarrier_arrive_expecting(full, 0, 2 * LENGTH * 2);
      load_tile(a_tile, 0, a_map, full, 0, step * DEPTH, top);
      load_tile(b_tile, 0, b_map, full, 0, left, step * DEPTH);
      load_tile(b_tile, HALF, b_map, full, 0, left + 64, step * DEPTH);
    }
    mbarrier_wait(full, 0, step % 2);
    wgmma_fence<TILE / 2>(sums, 0);
#pragma unroll
    for (int32 k = 0; k < DEPTH; k += 16)
      wgmma_m64k16<TILE>(sums, 0, operand_at<false>(a_tile, own + k), operand_at<true>(b_tile, k * 64, HALF), step + k > 0);
    wgmma_commit();
    wgmma_wait<0, TILE / 2>(sums, 0);
    __syncthreads();
  }
#pragma unroll
  for (int32 i = 0; i < TILE / 4; i++) {  // pairs of neighbours
    const int32 row = top + t / 32 * 16 + i % 2 * 8 + t % 32 / 4, column = left + i / 2 * 8 + t % 4 * 2;
    const Result first = narrowed(sums[i * 2], Result{}), second = narrowed(sums[i * 2 + 1], Result{});
    if (row < M && column < N) store_lanes(c, row * N + column, Lanes<Result, 2>{first, second});
  }
}
