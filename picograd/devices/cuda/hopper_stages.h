// Warpgroups that stay on a multiprocessor: one brings tiles of two matrices to a ring of stages, the others empty it.
//
// The ideas, each of which can be seen alone:
//   - Tiles of both operands come by the copy engine, 128 bytes of K at a time, swizzled so that wgmma reads them where they lie;
//     what is outside of a matrix comes as zeros; float32 that are taken as TF32 are rounded on their way.
//   - Where a stage is wanted in the other order (rows along K, or across it), the warps beside the one that copies transpose it where
//     it lies, 32 x 32 elements of float32 at a time. Of 16 bits wgmma takes both.
//   - A ring of stages lies between one thread that copies and the warpgroups that multiply. Each stage has mbarriers: `full`, on
//     which its bytes arrive; `turned`, at which each warp arrives that has transposed its share; and `empty`, at which those arrive
//     that have read it.
//   - The warpgroup that copies gives its registers to those that multiply.
//   - A block computes one tile after the other, so that the next one's copies come while this one is stored. Tiles follow each
//     other in groups of rows: blocks that run at one time read few different rows and columns.
//   - Blocks of a cluster have tiles of the same columns, one below the other. Each brings a share of the columns to all of them, so
//     that a stage is empty when all have read it.
//
// Cut, a struct of constants, says what is multiplied and how:
//   T, Held, Out                elements of the operands, of the product, and of what copies of tiles store
//   BATCH, M, N, K              matrices, and their extents
//   PARTS                       of K, of which each has a result, in the place of a batch
//   LHS_ACROSS, RHS_ACROSS      elements that lie side by side belong to different rows of lhs, or columns of rhs
//   LHS_SHARED, RHS_SHARED      all of the batch have the same one
//   ROWS, COLUMNS               of a tile of the result
//   MULTIPLIERS                 warpgroups that multiply; each has ROWS / MULTIPLIERS rows, a multiple of 64
//   IN_TURN                     each of them has a tile of its own instead, of two
//   STAGES, SLABS               of the ring; of each warpgroup that multiplies
//   GROUP                       rows of tiles in a group
//   CLUSTER                     blocks of a cluster; of several rhs lies across K
//   LANES                       neighbouring columns of a thread, where threads store results
//   ROLLED                      what threads do with results is long
//   MULTIPLY_ADDS               they multiply by hopper_fma.h, which wants rows across K; else by hopper_product.h, by wgmma

#ifndef PICOGRAD_HOPPER_STAGES_H
#define PICOGRAD_HOPPER_STAGES_H

#include "hopper.h"

static const int32 SLAB_ROWS = 64, TURNERS = 3;  // warps that transpose

// STEP: of K in a stage, 128 bytes; as many rows lie side by side across K. DEPTH: of K in a wgmma. ACROSS: as wgmma reads it.
template <class Cut> struct Derived {
  static const int32 STEP = 128 / (int32)sizeof(typename Cut::T), DEPTH = STEP / 4;
  static const bool TURNS_LHS = STEP == 32 && Cut::LHS_ACROSS != Cut::MULTIPLY_ADDS;
  static const bool TURNS_RHS = STEP == 32 && Cut::RHS_ACROSS != Cut::MULTIPLY_ADDS, TURNS = TURNS_LHS || TURNS_RHS;
  static const bool LEFT_ACROSS = Cut::LHS_ACROSS && !TURNS_LHS, RIGHT_ACROSS = Cut::RHS_ACROSS && !TURNS_RHS;
  static const int32 CLUSTER_ROWS = Cut::ROWS * Cut::CLUSTER;  // of a tile for all of its blocks
  static const int32 HIGH = (Cut::M + CLUSTER_ROWS - 1) / CLUSTER_ROWS, WIDE = (Cut::N + Cut::COLUMNS - 1) / Cut::COLUMNS;
  static const int32 TILES = HIGH * WIDE * Cut::BATCH * Cut::PARTS;
  static const int32 STEPS = (Cut::K + STEP * Cut::PARTS - 1) / (STEP * Cut::PARTS);
  static const int32 RHS_ROWS = Cut::RHS_ACROSS ? (Cut::COLUMNS + STEP - 1) / STEP * STEP : Cut::COLUMNS;
  static const int32 LHS_LENGTH = Cut::ROWS * STEP, RHS_LENGTH = RHS_ROWS * STEP;
  static const int32 SHARES = Cut::IN_TURN ? Cut::MULTIPLIERS : 1;  // of the tiles of a block, of which a warpgroup has one
  static const int32 HALVES = Cut::ROWS / 64 * SHARES / Cut::MULTIPLIERS, SUMS = HALVES * Cut::COLUMNS / 2;
  // Registers of a thread that copies, and that multiplies: where sums are many the last ones are wanted; to transpose takes more.
  static const int32 FEW = TURNS ? (SUMS >= 192 ? 56 : 72) : SUMS >= 192 ? 24 : 40, MANY = 252 - FEW / 2;
  static const int32 RHS_BEGINS = Cut::STAGES * LHS_LENGTH * (int32)sizeof(typename Cut::T);  // bytes
  static const int32 SLABS_BEGIN = RHS_BEGINS + Cut::STAGES * RHS_LENGTH * (int32)sizeof(typename Cut::T);
  static const int32 SLAB_COLUMNS = 128 / (int32)sizeof(typename Cut::Out), SLAB_LENGTH = SLAB_ROWS * SLAB_COLUMNS;
  static const int32 PIECES = (Cut::COLUMNS + SLAB_COLUMNS - 1) / SLAB_COLUMNS;  // the last one overlaps, if need be
};

struct Place { int32 row, column, matrix; };

// The number of a block's first tile, and how far from one to the next.
template <class Cut> PRIMITIVE int32 first_tile() { return blockIdx.x / Cut::CLUSTER; }
template <class Cut> PRIMITIVE int32 tiles_apart() { return gridDim.x / Cut::CLUSTER; }

// Where the block's part of the tile of that number lies.
template <class Cut> PRIMITIVE Place place_of(int32 number) {
  const int32 high = Derived<Cut>::HIGH, wide = Derived<Cut>::WIDE;
  const int32 matrix = number / (high * wide), tile = number % (high * wide), first = tile / (Cut::GROUP * wide) * Cut::GROUP;
  const int32 rows = high - first < Cut::GROUP ? high - first : Cut::GROUP, in_group = tile - first * wide;
  const int32 row = (first + in_group % rows) * Derived<Cut>::CLUSTER_ROWS + (int32)(blockIdx.x % Cut::CLUSTER) * Cut::ROWS;
  return {row, in_group / rows * Cut::COLUMNS, matrix};
}

// Copies COUNT rows of an operand, and STEP of K.
template <bool ACROSS, int32 COUNT, int32 STEP, class Tile, class Barriers>
PRIMITIVE void load_rows(const Tile& tile, int32 index, const TileMap& map, const Barriers& full, int32 stage, int32 row, int32 k,
                         int32 matrix) {
  if constexpr (ACROSS) {
#pragma unroll
    for (int32 first = 0; first < COUNT; first += STEP)
      load_tile(tile, index + first * STEP, map, full, stage, row + first, k, matrix);
  } else {
    load_tile(tile, index, map, full, stage, k, row, matrix);
  }
}

// Copies this block's share of COUNT rows of an operand across K, and STEP of K, to all blocks of the cluster.
template <int32 BLOCKS, int32 COUNT, int32 STEP, class Tile, class Barriers>
PRIMITIVE void load_share(const Tile& tile, int32 index, const TileMap& map, const Barriers& full, int32 stage, int32 row, int32 k,
                          int32 matrix) {
  static_assert(COUNT % (BLOCKS * STEP) == 0, "each block has as many rows");
#pragma unroll
  for (int32 first = 0; first < COUNT; first += BLOCKS * STEP) {
    const int32 own = first + (int32)(blockIdx.x % BLOCKS) * STEP;
    load_tile_to_all<BLOCKS>(tile, index + own * STEP, map, full, stage, row + own, k, matrix);
  }
}

// One thread: fills the ring, tile after tile.
template <class Cut, class Lhs, class Rhs, class Barriers>
PRIMITIVE void copy_operands(const Lhs& lhs, const Rhs& rhs, const TileMap& lhs_map, const TileMap& rhs_map, const Barriers& full,
                             const Barriers& empty) {
  typedef Derived<Cut> Is;
  static_assert(Cut::CLUSTER == 1 || Cut::RHS_ACROSS, "blocks share columns that lie across K");
  int32 stage = 0;
  uint32 parity = 1;
  for (int32 number = first_tile<Cut>(); number < Is::TILES; number += tiles_apart<Cut>()) {
    const Place at = place_of<Cut>(number);
    const int32 lhs_matrix = Cut::LHS_SHARED ? 0 : at.matrix, rhs_matrix = Cut::RHS_SHARED ? 0 : at.matrix;
    for (int32 step = 0; step < Is::STEPS; step++) {
      mbarrier_wait(empty, stage, parity);
      mbarrier_arrive_expecting(full, stage, (Is::LHS_LENGTH + Is::RHS_LENGTH) * (int32)sizeof(typename Cut::T));
      const int32 k = ((Cut::PARTS > 1 ? at.matrix * Is::STEPS : 0) + step) * Is::STEP;
      load_rows<Cut::LHS_ACROSS, Cut::ROWS, Is::STEP>(lhs, stage * Is::LHS_LENGTH, lhs_map, full, stage, at.row, k, lhs_matrix);
      if constexpr (Cut::CLUSTER > 1)
        load_share<Cut::CLUSTER, Is::RHS_ROWS, Is::STEP>(rhs, stage * Is::RHS_LENGTH, rhs_map, full, stage, at.column, k, rhs_matrix);
      else
        load_rows<Cut::RHS_ACROSS, Is::RHS_ROWS, Is::STEP>(rhs, stage * Is::RHS_LENGTH, rhs_map, full, stage, at.column, k, rhs_matrix);
      if (++stage == Cut::STAGES) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// A warp transposes 32 x 32 elements that begin at tile[first], in their own place: a thread reads its row, then writes its column. Of
// eight threads each reads other banks, of all 32 each writes another.
template <class Tile> PRIMITIVE void turn(const Tile& tile, int32 first) {
  const int32 lane = threadIdx.x % 32, row = first + lane * 32 + lane % 8 * 4, column = first + lane;
  Lanes<float32, 4> pieces[8];
#pragma unroll
  for (int32 piece = 0; piece < 8; piece++) pieces[piece] = load_lanes<4>(tile, row ^ piece * 4);
  sync_warp();
#pragma unroll
  for (int32 i = 0; i < 32; i++) tile[(column ^ i % 8 * 4) + i * 32] = pieces[i / 4].at[i % 4];
}

// A warp beside the one that copies: transposes its share of each stage that is full.
template <class Cut, class Lhs, class Rhs, class Barriers>
PRIMITIVE void turn_operands(const Lhs& lhs, const Rhs& rhs, const Barriers& full, const Barriers& turned) {
  typedef Derived<Cut> Is;
  const int32 warp = threadIdx.x / 32 - 1, of_lhs = Is::TURNS_LHS ? Cut::ROWS / 32 : 0, of_rhs = Is::TURNS_RHS ? Is::RHS_ROWS / 32 : 0;
  int32 stage = 0;
  uint32 parity = 0;
  const int32 tiles = (Is::TILES - first_tile<Cut>() + tiles_apart<Cut>() - 1) / tiles_apart<Cut>();
  for (int32 steps = tiles * Is::STEPS; steps > 0; steps--) {
    mbarrier_wait(full, stage, parity);
#pragma unroll 1  // it has few registers
    for (int32 i = warp; i < of_lhs; i += TURNERS) turn(lhs, stage * Is::LHS_LENGTH + i * 1024);
#pragma unroll 1
    for (int32 i = (warp + TURNERS - of_lhs % TURNERS) % TURNERS; i < of_rhs; i += TURNERS)
      turn(rhs, stage * Is::RHS_LENGTH + i * 1024);
    fence_async_proxy();
    sync_warp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(turned, stage);
    if (++stage == Cut::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// Arrives at `empty` for a stage, in each block that copies to it.
template <class Cut, class Barriers> PRIMITIVE void give_back(const Barriers& empty, int32 stage) {
  if constexpr (Cut::CLUSTER == 1) {
    mbarrier_arrive(empty, stage);
  } else {
    for (int32 rank = 0; rank < Cut::CLUSTER; rank++) mbarrier_arrive_at(empty, stage, rank);
  }
}

// What every block begins with. arrivals: of those of a block that multiply, at `empty` for each stage.
template <class Cut, class Barriers>
PRIMITIVE void begin_ring(const Barriers& full, const Barriers& turned, const Barriers& empty, int32 arrivals) {
  if (threadIdx.x == 0) {
    for (int32 stage = 0; stage < Cut::STAGES; stage++) {
      mbarrier_init(full, stage, 1);
      mbarrier_init(turned, stage, TURNERS);
      mbarrier_init(empty, stage, arrivals * Cut::CLUSTER);
    }
    fence_mbarriers();
  }
  if constexpr (Cut::CLUSTER > 1) sync_cluster();
  else __syncthreads();
}

// The first warpgroup.
template <class Cut, class Lhs, class Rhs, class Barriers>
PRIMITIVE void fill_ring(const Lhs& lhs, const Rhs& rhs, const TileMap& lhs_map, const TileMap& rhs_map, const Barriers& full,
                         const Barriers& turned, const Barriers& empty) {
  typedef Derived<Cut> Is;
  fewer_registers<Is::FEW>();
  if (threadIdx.x >= 32) {
    if constexpr (Is::TURNS) turn_operands<Cut>(lhs, rhs, full, turned);
  } else if (is_elected()) {
    copy_operands<Cut>(lhs, rhs, lhs_map, rhs_map, full, empty);
  }
}

#endif
