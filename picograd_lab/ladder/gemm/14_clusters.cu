// Clusters: two blocks run together, and each brings half of the columns to both.
//
// The two have tiles one below the other, so they read the same columns. Each asks for every other 64 of these, and the copy engine
// puts what it reads once into the shared memory of both (multicast): a third less comes from the second-level cache. In return a stage
// may be filled again only when the warpgroups of both blocks have read it: they arrive at the barrier `empty` of each. A block begins when
// both have their barriers ready, and ends when nobody comes to them any more: two barriers of the cluster. The text is that of the rung
// before with another constant. What is left: cuBLAS has clusters of other forms, and picks one for each shape.
#include "hopper_product.h"

struct Cut {
  typedef bfloat16 T;
  typedef float32 Held;
  typedef float32 Out;
  static const int32 BATCH = 1, PARTS = 1, M = ::M, N = ::N, K = ::K, LHS_ACROSS = 0, RHS_ACROSS = 1, LHS_SHARED = 1, RHS_SHARED = 1;
  static const int32 ROWS = 128, COLUMNS = 256, MULTIPLIERS = 2, STAGES = 4, SLABS = 2, GROUP = 8, CLUSTER = 2, IN_TURN = 0;
  static const int32 LANES = 4, ROLLED = 0, MULTIPLY_ADDS = 0;
};

KERNEL_OF_CLUSTERS(clusters, 2, 384)(Global<const bfloat16> a, Global<const bfloat16> b, Global<float32> c, TILE_MAP(a_map),
                                     TILE_MAP(b_map), TILE_MAP(c_map)) {
  multiply<Cut>(a_map, b_map, c_map, [](int32, int32, int32, int32, Lanes<float32, 4> sums) { return sums; });
}
