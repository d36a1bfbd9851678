// Persistent: blocks stay, and the next tile is copied while this one is stored.
//
// There are as many blocks as multiprocessors, and each computes one tile after the other. The ring goes on over the end of a tile, so
// that the first of the next one are there when its turn comes. Results leave by the copy engine as well, through slabs in shared memory.
// Tiles follow each other in groups of 8 rows, so that blocks that run at one time read few different rows and columns, which stay in the
// second-level cache. This is the kernel that the compiler writes on Hopper: hopper_stages.h and hopper_product.h have its text, and the
// constants below choose from it. What is left: a tile of 128 x 128 reads as much from shared memory as the tensor cores can take.
#include "hopper_product.h"

struct Cut {
  typedef bfloat16 T;
  typedef Result Held;
  typedef Result Out;
  static const int32 BATCH = 1, PARTS = 1, M = ::M, N = ::N, K = ::K, LHS_ACROSS = 0, RHS_ACROSS = 1, LHS_SHARED = 1, RHS_SHARED = 1;
  static const int32 ROWS = 128, COLUMNS = 128, MULTIPLIERS = 2, STAGES = 4, SLABS = 2, GROUP = 8, CLUSTER = 1, IN_TURN = 0;
  static const int32 LANES = 4, ROLLED = 0, MULTIPLY_ADDS = 0;
};

extern "C" __global__ void __launch_bounds__(384, 1)
    persistent(Global<const bfloat16> a, Global<const bfloat16> b, Global<Result> c, TILE_MAP(a_map), TILE_MAP(b_map),
               TILE_MAP(c_map)) {
  multiply<Cut>(a_map, b_map, c_map, [](int32, int32, int32, int32, Lanes<Result, 4> sums) { return sums; });
}
