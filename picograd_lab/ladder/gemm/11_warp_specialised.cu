// Warp specialised: one warpgroup copies and two multiply, with a ring of tiles.
//
// The thread that copies is up to four tiles ahead. Each tile has two mbarriers: `full`, at which its bytes arrive, and `empty`, at which
// the two warpgroups arrive that have read it. No barrier of the block is left in the loop: who multiplies waits for tiles alone, and has a
// product on its way while it gives back the tile of the one before. The warpgroup that copies gives its registers to the
// others. What is left: nothing is copied or multiplied while a block stores its result and the next one begins.
#include "hopper.h"

static const int32 TILE = 128, DEPTH = 64, STAGES = 4, LENGTH = TILE * DEPTH, HALF = LENGTH / 2, STEPS = (K + DEPTH - 1) / DEPTH;

extern "C" __global__ void __launch_bounds__(384, 1) warp_specialised(Global<const bfloat16> a, Global<const bfloat16> b,
                                                                      Global<Result> c, TILE_MAP(a_map), TILE_MAP(b_map)) {
  SHARED_TILE_AT(bfloat16, a_tiles, STAGES * LENGTH, 0);
  SHARED_TILE_AT(bfloat16, b_tiles, STAGES * LENGTH, STAGES * LENGTH * 2);
  MBARRIERS(full, STAGES);
  MBARRIERS(empty, STAGES);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, left = blockIdx.x % tiles * TILE;
  if (threadIdx.x == 0) {
    for (int32 stage = 0; stage < STAGES; stage++) {
      mbarrier_init(full, stage, 1);
      mbarrier_init(empty, stage, 2);
    }
    fence_mbarriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<40>();
    if (threadIdx.x < 32 && is_elected()) {
      for (int32 step = 0; step < STEPS; step++) {
        const int32 stage = step % STAGES, k = step * DEPTH;
        mbarrier_wait(empty, stage, step / STAGES % 2 ^ 1);
        mbarrier_arrive_expecting(full, stage, 2 * LENGTH * 2);
        load_tile(a_tiles, stage * LENGTH, a_map, full, stage, k, top);
        load_tile(b_tiles, stage * LENGTH, b_map, full, stage, left, k);
        load_tile(b_tiles, stage * LENGTH + HALF, b_map, full, stage, left + 64, k);
      }
    }
  } else {
    more_registers<232>();
    REGISTERS(float32, sums, TILE / 2);
    const int32 t = threadIdx.x - 128, own = t / 128 * HALF;
    wgmma_fence<TILE / 2>(sums, 0);
    for (int32 step = 0; step < STEPS; step++) {
      const int32 begins = step % STAGES * LENGTH;
      mbarrier_wait(full, step % STAGES, step / STAGES % 2);
#pragma unroll
      for (int32 k = 0; k < DEPTH; k += 16)
        wgmma_m64k16<TILE>(sums, 0, operand_at<false>(a_tiles, begins + own + k), operand_at<true>(b_tiles, begins + k * 64, HALF),
                           step + k > 0);
      wgmma_commit();
      wgmma_wait<1, TILE / 2>(sums, 0);
      if (step > 0 && t % 128 == 0) mbarrier_arrive(empty, (step - 1) % STAGES);
    }
    wgmma_wait<0, TILE / 2>(sums, 0);
#pragma unroll
    for (int32 i = 0; i < TILE / 4; i++) {  // pairs of neighbours
      const int32 row = top + t / 32 * 16 + i % 2 * 8 + t % 32 / 4, column = left + i / 2 * 8 + t % 4 * 2;
      const Result first = narrowed(sums[i * 2], Result{}), second = narrowed(sums[i * 2 + 1], Result{});
      if (row < M && column < N) store_lanes(c, row * N + column, Lanes<Result, 2>{first, second});
    }
  }
}
