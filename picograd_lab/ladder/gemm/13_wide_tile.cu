// Wide tile: a tile of 128 x 256 elements reads less for each product.
//
// For each step of K a block of 128 x 128 moves 80 KiB of shared memory, 25.6 FLOP a byte, of which the tensor cores want 32. wgmma of
// 256 columns reads 320 rows of 32 bytes for twice the products of one that reads 192: it is 32. A thread then has 128 sums. This is
// the tile that the compiler takes for large products on an H100. What is left: two blocks, one below the other, read the same columns.
#include "hopper_product.h"

struct Cut {
  typedef bfloat16 T;
  typedef Result Held;
  typedef Result Out;
  static const int32 BATCH = 1, PARTS = 1, M = ::M, N = ::N, K = ::K, LHS_ACROSS = 0, RHS_ACROSS = 1, LHS_SHARED = 1, RHS_SHARED = 1;
  static const int32 ROWS = 128, COLUMNS = 256, MULTIPLIERS = 2, STAGES = 4, SLABS = 2, GROUP = 8, CLUSTER = 1, IN_TURN = 0;
  static const int32 LANES = 4, ROLLED = 0, MULTIPLY_ADDS = 0;
};

extern "C" __global__ void __launch_bounds__(384, 1)
    wide_tile(Global<const bfloat16> a, Global<const bfloat16> b, Global<Result> c, TILE_MAP(a_map), TILE_MAP(b_map),
               TILE_MAP(c_map)) {
  multiply<Cut>(a_map, b_map, c_map, [](int32, int32, int32, int32, Lanes<Result, 4> sums) { return sums; });
}
