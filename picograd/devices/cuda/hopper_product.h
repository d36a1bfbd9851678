// A product of matrices on Hopper by wgmma: three warpgroups, of which one copies (hopper_stages.h) and two multiply.
//
// out = finish(lhs @ rhs) for each of a batch, of 16-bit floats, or of float32 as TF32, with float32 sums.
//   - A warpgroup has one step of wgmma on its way while it gives back the stage of the step before.
//   - A result goes to shared memory in slabs of 128 bytes a row, swizzled as well, and leaves by the copy engine.

#ifndef PICOGRAD_HOPPER_PRODUCT_H
#define PICOGRAD_HOPPER_PRODUCT_H

#include "hopper_stages.h"

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
                                  const Barriers& full, const Barriers& turned, const Barriers& empty, int32 warpgroup,
                                  const Finish& finish) {
  typedef Derived<Cut> Is;
  const int32 LENGTH = 64 * Is::STEP;  // of 64 rows
  const bool arrives = threadIdx.x % 128 == 0;
  REGISTERS(float32, sums, Is::SUMS);
  int32 stage = 0, before = 0;
  uint32 parity = 0;
  for (int32 number = blockIdx.x; number < Is::TILES; number += gridDim.x) {
    const Place at = place_of<Cut>(number);
    wgmma_fence<Is::SUMS>(sums, 0);
    for (int32 step = 0; step < Is::STEPS; step++) {
      mbarrier_wait(full, stage, parity);
      if constexpr (Is::TURNS) mbarrier_wait(turned, stage, parity);
      const auto left = operand_at<Is::LEFT_ACROSS>(lhs, stage * Is::LHS_LENGTH + warpgroup * Is::HALVES * LENGTH, LENGTH);
      const auto right = operand_at<Is::RIGHT_ACROSS>(rhs, stage * Is::RHS_LENGTH, LENGTH);
#pragma unroll
      for (int32 part = 0; part < 4; part++) {
#pragma unroll
        for (int32 half = 0; half < Is::HALVES; half++) {
          const auto own_left = moved(left, half * LENGTH + part * (Is::LEFT_ACROSS ? 1024 : Is::DEPTH));
          const auto own_right = moved(right, part * (Is::RIGHT_ACROSS ? 1024 : Is::DEPTH));
          if constexpr (Is::DEPTH == 8)
            wgmma_m64k8<Cut::COLUMNS>(sums, half * Cut::COLUMNS / 2, own_left, own_right, step + part > 0);
          else
            wgmma_m64k16<Cut::COLUMNS>(sums, half * Cut::COLUMNS / 2, own_left, own_right, step + part > 0);
        }
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

// A whole block, of 128 (1 + MULTIPLIERS) threads. finish(matrix, row, column, sums): of two columns side by side what is stored; a row
// or columns may be outside of the result.
template <class Cut, class Finish>
PRIMITIVE void multiply(const TileMap& lhs_map, const TileMap& rhs_map, const TileMap& out_map, const Finish& finish) {
  typedef Derived<Cut> Is;
  typedef typename Cut::T T;
  SHARED_TILE_AT(T, lhs, Cut::STAGES * Is::LHS_LENGTH, 0);
  SHARED_TILE_AT(T, rhs, Cut::STAGES * Is::RHS_LENGTH, Is::RHS_BEGINS);
  SHARED_TILE_AT(typename Cut::Out, slabs, Cut::MULTIPLIERS * Cut::SLABS * Is::SLAB_LENGTH, Is::SLABS_BEGIN);
  MBARRIERS(full, Cut::STAGES);
  MBARRIERS(turned, Cut::STAGES);
  MBARRIERS(empty, Cut::STAGES);
  begin_ring<Cut>(full, turned, empty, Cut::MULTIPLIERS);
  if (threadIdx.x < 128) {
    fill_ring<Cut>(lhs, rhs, lhs_map, rhs_map, full, turned, empty);
  } else {
    more_registers<Is::MANY>();
    multiply_and_store<Cut>(lhs, rhs, slabs, out_map, full, turned, empty, threadIdx.x / 128 - 1, finish);
  }
}

#endif
