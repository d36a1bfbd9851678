// A product of matrices on Hopper: three warpgroups that stay on a multiprocessor, of which one copies and two multiply.
//
// out = finish(lhs @ rhs) for each of a batch, of 16-bit floats with float32 sums. The ideas, each of which can be seen alone:
//   - Tiles of both operands come by the copy engine, 64 of K at a time, swizzled so that wgmma reads them where they lie;
//     what is outside of a matrix comes as zeros. Rows that lie across K need no copy that turns them: wgmma does.
//   - A ring of stages lies between one thread that copies and the warpgroups that multiply. Each stage has two mbarriers: `full`,
//     on which its bytes arrive, and `empty`, at which each warpgroup that multiplies arrives once it has read it.
//   - A warpgroup has one step of wgmma on its way while it gives back the stage of the step before.
//   - The warpgroup that copies gives its registers to those that multiply.
//   - A block computes one tile after the other, so that the next one's copies come while this one is stored. Tiles follow each
//     other in groups of rows: blocks that run at one time read few different rows and columns.
//   - A result goes to shared memory in slabs of 128 bytes a row, swizzled as well, and leaves by the copy engine.
//
// Cut, a struct of constants, says what is multiplied and how:
//   T, Out                      elements of the operands, and of the result
//   BATCH, M, N, K              matrices, and their extents
//   LHS_ACROSS, RHS_ACROSS      elements that lie side by side belong to different rows of lhs, or columns of rhs
//   LHS_SHARED, RHS_SHARED      all of the batch have the same one
//   ROWS, COLUMNS               of a tile of the result
//   MULTIPLIERS                 warpgroups that multiply; each has ROWS / MULTIPLIERS rows, a multiple of 64
//   STAGES, SLABS               of the ring; of each warpgroup that multiplies
//   GROUP                       rows of tiles in a group

#ifndef PICOGRAD_HOPPER_PRODUCT_H
#define PICOGRAD_HOPPER_PRODUCT_H

#include "hopper.h"

static const int32 STEP = 64, SLAB_ROWS = 64, SLAB_BYTES = 8192;  // of K in a stage; of a slab

template <class Cut> struct Derived {
  static const int32 HIGH = (Cut::M + Cut::ROWS - 1) / Cut::ROWS, WIDE = (Cut::N + Cut::COLUMNS - 1) / Cut::COLUMNS;
  static const int32 TILES = HIGH * WIDE * Cut::BATCH, STEPS = (Cut::K + STEP - 1) / STEP;
  static const int32 RHS_ROWS = Cut::RHS_ACROSS ? (Cut::COLUMNS + 63) / 64 * 64 : Cut::COLUMNS;
  static const int32 LHS_LENGTH = Cut::ROWS * STEP, RHS_LENGTH = RHS_ROWS * STEP;
  static const int32 HALVES = Cut::ROWS / 64 / Cut::MULTIPLIERS, SUMS = HALVES * Cut::COLUMNS / 2;
  static const int32 SLAB_COLUMNS = 128 / (int32)sizeof(typename Cut::Out), SLAB_LENGTH = SLAB_ROWS * SLAB_COLUMNS;
  static const int32 PIECES = (Cut::COLUMNS + SLAB_COLUMNS - 1) / SLAB_COLUMNS;  // the last one overlaps, if need be
};

struct Place { int32 row, column, matrix; };

// Where the tile of that number lies.
template <class Cut> PRIMITIVE Place place_of(int32 number) {
  const int32 high = Derived<Cut>::HIGH, wide = Derived<Cut>::WIDE;
  const int32 matrix = number / (high * wide), tile = number % (high * wide), first = tile / (Cut::GROUP * wide) * Cut::GROUP;
  const int32 rows = high - first < Cut::GROUP ? high - first : Cut::GROUP, in_group = tile - first * wide;
  return {(first + in_group % rows) * Cut::ROWS, in_group / rows * Cut::COLUMNS, matrix};
}

// Copies COUNT rows of an operand, and 64 of K.
template <bool ACROSS, int32 COUNT, class Tile, class Barriers>
PRIMITIVE void load_rows(const Tile& tile, int32 index, const TileMap& map, const Barriers& full, int32 stage, int32 row, int32 k,
                         int32 matrix) {
  if constexpr (ACROSS) {
#pragma unroll
    for (int32 first = 0; first < COUNT; first += 64)
      load_tile(tile, index + first * STEP, map, full, stage, row + first, k, matrix);
  } else {
    load_tile(tile, index, map, full, stage, k, row, matrix);
  }
}

// One thread: fills the ring, tile after tile.
template <class Cut, class Lhs, class Rhs, class Barriers>
PRIMITIVE void copy_operands(const Lhs& lhs, const Rhs& rhs, const TileMap& lhs_map, const TileMap& rhs_map, const Barriers& full,
                             const Barriers& empty) {
  typedef Derived<Cut> Is;
  int32 stage = 0;
  uint32 parity = 1;
  for (int32 number = blockIdx.x; number < Is::TILES; number += gridDim.x) {
    const Place at = place_of<Cut>(number);
    const int32 lhs_matrix = Cut::LHS_SHARED ? 0 : at.matrix, rhs_matrix = Cut::RHS_SHARED ? 0 : at.matrix;
    for (int32 step = 0; step < Is::STEPS; step++) {
      mbarrier_wait(empty, stage, parity);
      mbarrier_arrive_expecting(full, stage, (Is::LHS_LENGTH + Is::RHS_LENGTH) * (int32)sizeof(typename Cut::T));
      load_rows<Cut::LHS_ACROSS, Cut::ROWS>(lhs, stage * Is::LHS_LENGTH, lhs_map, full, stage, at.row, step * STEP, lhs_matrix);
      load_rows<Cut::RHS_ACROSS, Is::RHS_ROWS>(rhs, stage * Is::RHS_LENGTH, rhs_map, full, stage, at.column, step * STEP, rhs_matrix);
      if (++stage == Cut::STAGES) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

PRIMITIVE float32 as_float32(float32 value) { return value; }
template <class T> PRIMITIVE float32 as_float32(T value) { return to_float32(value); }
// A sum as a result of that type holds it.
template <class Out> PRIMITIVE float32 rounded(float32 value) {
  if constexpr (sizeof(Out) == 4) return value;
  else return to_float32(narrowed(value, Out{}));
}

// Stores 64 rows of sums, which begin at sums[first], by slabs; in each 8 columns of it a thread has 2 elements of 2 rows.
template <class Cut, class Sums, class Slabs, class Finish>
PRIMITIVE void store_rows(Sums& sums, int32 first, const Slabs& slabs, const TileMap& map, Place at, int32 warpgroup,
                          const Finish& finish) {
  typedef Derived<Cut> Is;
  typedef typename Cut::Out Out;
  const int32 thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, row = 16 * warp + lane / 4;
#pragma unroll
  for (int32 piece = 0; piece < Is::PIECES; piece++) {
    const int32 last = Cut::COLUMNS - Is::SLAB_COLUMNS, left = piece * Is::SLAB_COLUMNS < last ? piece * Is::SLAB_COLUMNS : last;
    const int32 slab = (warpgroup * Cut::SLABS + piece % Cut::SLABS) * Is::SLAB_LENGTH;
    if (thread == 0) {  // what was in this slab has left
      if (piece > 0 || Is::PIECES % Cut::SLABS == 0) wait_stores<Cut::SLABS - 1>();
      else wait_stores<0>();
    }
    sync_warpgroup();
#pragma unroll
    for (int32 column = 0; column < Is::SLAB_COLUMNS; column += 16) {
      const int32 from = first + (left + column) / 2;
      REGISTERS(Out, narrow, 8);
#pragma unroll
      for (int32 i = 0; i < 8; i += 2) {
        const Lanes<float32, 2> pair = finish(at.matrix, at.row + row + i / 2 % 2 * 8,
                                              at.column + left + column + i / 4 * 8 + lane % 4 * 2,
                                              Lanes<float32, 2>{sums[from + i], sums[from + i + 1]});
        narrow[i] = narrowed(pair.at[0], Out{});
        narrow[i + 1] = narrowed(pair.at[1], Out{});
      }
      if constexpr (sizeof(Out) == 2) {
        const int32 own_row = 16 * warp + lane % 16, own_column = column + lane / 16 * 8;
        store_matrices(slabs, slab + swizzled<Out>(own_row * Is::SLAB_COLUMNS + own_column), narrow, 0);
      } else {
#pragma unroll
        for (int32 i = 0; i < 8; i += 2) {
          const int32 own_column = column + i / 4 * 8 + lane % 4 * 2;
          store_lanes(slabs, slab + swizzled<Out>((row + i / 2 % 2 * 8) * Is::SLAB_COLUMNS + own_column),
                      Lanes<Out, 2>{narrow[i], narrow[i + 1]});
        }
      }
    }
    fence_async_proxy();
    sync_warpgroup();
    if (thread == 0) {
      if (at.row < Cut::M && at.column + left < Cut::N)
        store_tile(map, slabs, slab, at.column + left, at.row, at.matrix);
      commit_stores();
    }
  }
}

// A warpgroup: empties the ring, tile after tile.
template <class Cut, class Lhs, class Rhs, class Slabs, class Barriers, class Finish>
PRIMITIVE void multiply_and_store(const Lhs& lhs, const Rhs& rhs, const Slabs& slabs, const TileMap& out_map,
                                  const Barriers& full, const Barriers& empty, int32 warpgroup, const Finish& finish) {
  typedef Derived<Cut> Is;
  const bool arrives = threadIdx.x % 128 == 0;
  REGISTERS(float32, sums, Is::SUMS);
  int32 stage = 0, before = 0;
  uint32 parity = 0;
  for (int32 number = blockIdx.x; number < Is::TILES; number += gridDim.x) {
    const Place at = place_of<Cut>(number);
    wgmma_fence<Is::SUMS>(sums, 0);
    for (int32 step = 0; step < Is::STEPS; step++) {
      mbarrier_wait(full, stage, parity);
      const auto left = operand_at<Cut::LHS_ACROSS>(lhs, stage * Is::LHS_LENGTH + warpgroup * Is::HALVES * 4096, 4096);
      const auto right = operand_at<Cut::RHS_ACROSS>(rhs, stage * Is::RHS_LENGTH, 4096);
#pragma unroll
      for (int32 part = 0; part < STEP / 16; part++) {
#pragma unroll
        for (int32 half = 0; half < Is::HALVES; half++)
          wgmma_m64k16<Cut::COLUMNS>(sums, half * Cut::COLUMNS / 2,
                                     moved(left, half * 4096 + part * (Cut::LHS_ACROSS ? 1024 : 16)),
                                     moved(right, part * (Cut::RHS_ACROSS ? 1024 : 16)), step + part > 0);
      }
      wgmma_commit();
      wgmma_wait<1, Is::SUMS>(sums, 0);
      if (step > 0 && arrives) mbarrier_arrive(empty, before);
      before = stage;
      if (++stage == Cut::STAGES) {
        stage = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0, Is::SUMS>(sums, 0);
    if (arrives) mbarrier_arrive(empty, before);
#pragma unroll
    for (int32 half = 0; half < Is::HALVES; half++) {
      const Place own = {at.row + (warpgroup * Is::HALVES + half) * 64, at.column, at.matrix};
      store_rows<Cut>(sums, half * Cut::COLUMNS / 2, slabs, out_map, own, warpgroup, finish);
    }
  }
  if (arrives) wait_stores<0>();
}

// A whole block, of 128 (1 + MULTIPLIERS) threads. finish(matrix, row, column, sums): of two columns side by side what is stored;
// a row or columns may be outside of the result.
template <class Cut, class Finish>
PRIMITIVE void multiply(const TileMap& lhs_map, const TileMap& rhs_map, const TileMap& out_map, const Finish& finish) {
  typedef Derived<Cut> Is;
  typedef typename Cut::T T;
  typedef typename Cut::Out Out;
  const int32 RHS_BEGINS = Cut::STAGES * Is::LHS_LENGTH * (int32)sizeof(T),
              SLABS_BEGIN = RHS_BEGINS + Cut::STAGES * Is::RHS_LENGTH * (int32)sizeof(T);
  SHARED_TILE_AT(T, lhs, Cut::STAGES * Is::LHS_LENGTH, 0);
  SHARED_TILE_AT(T, rhs, Cut::STAGES * Is::RHS_LENGTH, RHS_BEGINS);
  SHARED_TILE_AT(Out, slabs, Cut::MULTIPLIERS * Cut::SLABS * Is::SLAB_LENGTH, SLABS_BEGIN);
  MBARRIERS(full, Cut::STAGES);
  MBARRIERS(empty, Cut::STAGES);
  if (threadIdx.x == 0) {
    for (int32 stage = 0; stage < Cut::STAGES; stage++) {
      mbarrier_init(full, stage, 1);
      mbarrier_init(empty, stage, Cut::MULTIPLIERS);
    }
    fence_mbarriers();
  }
  __syncthreads();
  const bool MANY = Is::SUMS >= 192;  // of a thread: then the last registers of those that copy are wanted, too
  if (threadIdx.x < 128) {
    fewer_registers<MANY ? 24 : 40>();
    if (threadIdx.x < 32 && is_elected()) copy_operands<Cut>(lhs, rhs, lhs_map, rhs_map, full, empty);
  } else {
    more_registers<MANY ? 240 : 232>();
    multiply_and_store<Cut>(lhs, rhs, slabs, out_map, full, empty, threadIdx.x / 128 - 1, finish);
  }
}

#endif
