// c = a @ b.T, 200 x 100 x 300: a of 200 x 304 and b of 100 x 304 in bfloat16, of whose rows the last 4 are zeros, c in float32.
// Warpgroup 0 copies tiles to a ring of three stages; warpgroups 1 and 2 multiply 64 rows each, and store their tile.
#include "hopper.h"

extern "C" __global__ void __launch_bounds__(384, 1) product_0(Global<const bfloat16> p0, Global<const bfloat16> p1,
                                                               Global<float32> p2, TILE_MAP(a), TILE_MAP(b), TILE_MAP(c)) {
  SHARED_TILE_AT(bfloat16, lhs, 3 * 128 * 64, 0);
  SHARED_TILE_AT(bfloat16, rhs, 3 * 64 * 64, 49152);
  SHARED_TILE_AT(float32, out, 2 * 64 * 64, 73728);
  MBARRIERS(full, 3);
  MBARRIERS(empty, 3);
  const int32 warpgroup = threadIdx.x / 128, top = blockIdx.x / 2 * 128, left = blockIdx.x % 2 * 64;
  if (threadIdx.x == 0) {
    for (int32 stage = 0; stage < 3; stage++) {
      mbarrier_init(full, stage, 1);
      mbarrier_init(empty, stage, 2);
    }
    fence_mbarriers();
  }
  __syncthreads();
  if (warpgroup == 0) {
    fewer_registers<40>();
    if (threadIdx.x < 32 && is_elected()) {
      for (int32 k = 0; k < 5; k++) {
        const int32 stage = k % 3;
        mbarrier_wait(empty, stage, k / 3 % 2 ^ 1);
        mbarrier_arrive_expecting(full, stage, 24576);
        load_tile(lhs, stage * 8192, a, full, stage, k * 64, top);
        load_tile(rhs, stage * 4096, b, full, stage, k * 64, left);
      }
    }
  } else {
    more_registers<232>();
    REGISTERS(float32, acc, 32);
    for (int32 k = 0; k < 5; k++) {
      const int32 stage = k % 3, own = stage * 8192 + (warpgroup - 1) * 4096;
      mbarrier_wait(full, stage, k / 3 % 2);
      wgmma_fence<32>(acc, 0);
#pragma unroll
      for (int32 step = 0; step < 4; step++)
        wgmma_m64k16<64>(acc, 0, operand_at<false>(lhs, own + step * 16), operand_at<false>(rhs, stage * 4096 + step * 16),
                         k + step > 0);
      wgmma_commit();
      wgmma_wait<1, 32>(acc, 0);
      if (k > 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty, (k - 1) % 3);
    }
    wgmma_wait<0, 32>(acc, 0);
    const int32 first = (warpgroup - 1) * 4096, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int32 i = 0; i < 32; i++) {
      const int32 row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      out[first + column / 32 * 2048 + swizzled<float32>(row * 32 + column % 32)] = acc[i];
    }
    fence_async_proxy();
    sync_warpgroup();
    if (threadIdx.x % 128 == 0) {
      for (int32 half = 0; half < 2; half++)
        store_tile(c, out, first + half * 2048, left + half * 32, top + (warpgroup - 1) * 64);
      commit_stores();
      wait_stores<0>();
    }
  }
}
