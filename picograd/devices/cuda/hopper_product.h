// A product of matrices on Hopper by wgmma: three warpgroups, of which one copies (hopper_stages.h) and two multiply.
//
// out = finish(lhs @ rhs) for each of a batch, of 16-bit floats, or of float32 as TF32, with float32 sums.
//   - A warpgroup has one step of wgmma on its way while it gives back the stage of the step before.
//   - A result goes to shared memory in slabs of 128 bytes a row, swizzled as well, and leaves by the copy engine.
//   - Or threads store results themselves: where there are several, or matrices are read for them. The four of a row exchange pairs of
//     columns for groups of neighbours, so that together they read and store whole sectors of 32 bytes.

#ifndef PICOGRAD_HOPPER_PRODUCT_H
#define PICOGRAD_HOPPER_PRODUCT_H

#include "hopper_stages.h"

// Two sums, as the product holds them, and the bits of that.
template <class Held, class Sums> PRIMITIVE Lanes<Held, 2> held_pair(Sums& sums, int32 first) {
  if constexpr (sizeof(Held) == 4) return {sums[first], sums[first + 1]};
  else return bitcast<Lanes<Held, 2>>(pair_up(sums[first], sums[first + 1], Held{}));
}
template <int NBYTES> struct PairBits { typedef uint32 Type; };
template <> struct PairBits<8> { typedef uint64 Type; };

// Stores 64 rows of sums, which begin at sums[first], by slabs; in each 8 columns of it a thread has 2 elements of 2 rows.
template <class Cut, class Sums, class Slabs, class Finish>
PRIMITIVE void store_rows(Sums& sums, int32 first, const Slabs& slabs, const TileMap& map, Place at, int32 warpgroup,
                          const Finish& finish) {
  typedef Derived<Cut> Is;
  typedef typename Cut::Held Held;
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
      for (int32 below = 0; below < 2; below++) {
        const Lanes<Held, 2> low = held_pair<Held>(sums, from + 2 * below), high = held_pair<Held>(sums, from + 4 + 2 * below);
        const Lanes<Held, 4> own = {low.at[0], low.at[1], high.at[0], high.at[1]};
        const Lanes<Out, 4> done =
            finish(at.matrix, at.row + row + 8 * below, (at.column + left + column) / 16, lane % 4, own);
#pragma unroll
        for (int32 i = 0; i < 4; i++) narrow[i / 2 * 4 + 2 * below + i % 2] = done.at[i];
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

// Threads whose numbers differ by `distance` exchange: the one of the two has both their first values behind it, the other both second.
template <class T> PRIMITIVE void exchange(T& first, T& second, int32 distance) {
  const bool odd = threadIdx.x / distance % 2;
  const T got = shuffle_xor(odd ? first : second, distance);
  first = odd ? got : first;
  second = odd ? second : got;
}

// Hands on all sums of a thread in pieces of 64 columns of a row. The four threads of a row have pairs of each 8 columns; by exchanges
// they get 4 neighbours of each 16, or 8 of each 32. ROLLED: of what is long the text stands there once, for all of it would not fit
// into the cache of instructions; since registers are not chosen by a number, those to come move up.
template <class Cut, class Sums, class Finish> PRIMITIVE void finish_rows(Sums& sums, Place at, const Finish& finish) {
  typedef typename Cut::Held Held;
  typedef typename PairBits<2 * sizeof(Held)>::Type Pair;
  const int32 warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, row = at.row + 16 * warp + lane / 4, t = lane % 4;
  const int32 COUNT = Derived<Cut>::SUMS / 2, WIDE = Cut::COLUMNS / 32;  // pairs; batches of 64 rows
  Pair held[COUNT];
#pragma unroll
  for (int32 i = 0; i < COUNT; i++)  // batch by batch: of 64 columns first those of the upper row
    held[i] = bitcast<Pair>(held_pair<Held>(sums, i / 16 * 32 + i % 8 * 4 + i / 8 % 2 * 2));
#pragma unroll (Cut::ROLLED ? 1 : COUNT / 8)
  for (int32 batch = 0; batch < COUNT / 8; batch++) {
    Pair pairs[8];
    Lanes<Held, 16> own;
#pragma unroll
    for (int32 i = 0; i < 8; i++) pairs[i] = held[i];
#pragma unroll
    for (int32 i = 0; i < 8; i += 2) exchange(pairs[i], pairs[i + 1], 1);
#pragma unroll
    for (int32 i = 0; i < 8; i++)
      if (Cut::LANES == 8 && i % 4 < 2) exchange(pairs[i], pairs[i + 2], 2);
#pragma unroll
    for (int32 i = 0; i < 16; i++) own.at[i] = bitcast<Lanes<Held, 2>>(pairs[i / 2]).at[i % 2];
    finish(at.matrix, row + batch / WIDE * 64 + batch % 2 * 8, at.column / 64 + batch % WIDE / 2,
           Cut::LANES == 8 ? t : t % 2 * 2 + t / 2, own);
#pragma unroll
    for (int32 i = 0; i + 8 < COUNT; i++) held[i] = held[i + 8];
  }
}

// How the sums of a warpgroup are stored.
template <class Cut, class Slabs, class Finish> struct BySlabs {
  const Slabs& slabs;
  const TileMap& map;
  const Finish& finish;
};
template <class Cut, class Finish> struct ByThreads { const Finish& finish; };
template <class Cut, class Slabs, class Finish, class Sums>
PRIMITIVE void store_sums(const BySlabs<Cut, Slabs, Finish>& by, Sums& sums, Place at, int32 warpgroup) {
#pragma unroll
  for (int32 half = 0; half < Derived<Cut>::HALVES; half++) {
    const Place own = {at.row + half * 64, at.column, at.matrix};
    store_rows<Cut>(sums, half * Cut::COLUMNS / 2, by.slabs, by.map, own, warpgroup, by.finish);
  }
}
template <class Cut, class Finish, class Sums>
PRIMITIVE void store_sums(const ByThreads<Cut, Finish>& by, Sums& sums, Place at, int32) {
  finish_rows<Cut>(sums, at, by.finish);
}

// A warpgroup: empties the ring, tile after tile. Where each tile is of one warpgroup, they take turns: one begins to look at a tile
// when the last step of the one before is under way, and stores while the other multiplies.
template <class Cut, class Lhs, class Rhs, class Barriers, class By>
PRIMITIVE void multiply_and_store(const Lhs& lhs, const Rhs& rhs, const Barriers& full, const Barriers& turned,
                                  const Barriers& empty, const Barriers& order, int32 warpgroup, const By& by) {
  typedef Derived<Cut> Is;
  const int32 LENGTH = 64 * Is::STEP;  // of 64 rows
  const int32 own_rows = Cut::IN_TURN ? 0 : warpgroup * Is::HALVES, mine = Cut::IN_TURN ? of_warp(warpgroup) : 0;
  const bool arrives = threadIdx.x % 128 == 0;
  REGISTERS(float32, sums, Is::SUMS);
  int32 stage = mine * Is::STEPS % Cut::STAGES, before = 0;
  uint32 parity = mine * Is::STEPS / Cut::STAGES % 2, turn = 1 - mine;
  for (int32 number = first_tile<Cut>() + mine * tiles_apart<Cut>(); number < Is::TILES; number += Is::SHARES * tiles_apart<Cut>()) {
    const Place at = place_of<Cut>(number);
    if constexpr (Cut::IN_TURN) mbarrier_wait(order, mine, turn);
    wgmma_fence<Is::SUMS>(sums, 0);
    for (int32 step = 0; step < Is::STEPS; step++) {
      mbarrier_wait(full, stage, parity);
      if constexpr (Is::TURNS) mbarrier_wait(turned, stage, parity);
      const auto left = operand_at<Is::LEFT_ACROSS>(lhs, stage * Is::LHS_LENGTH + own_rows * LENGTH, LENGTH);
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
      if (step > 0 && arrives) give_back<Cut>(empty, before);
      before = stage;
      if (++stage == Cut::STAGES) {
        stage = 0;
        parity ^= 1;
      }
    }
    if constexpr (Cut::IN_TURN) {
      if (arrives) mbarrier_arrive(order, 1 - mine);
      turn ^= 1;
      stage += Is::STEPS;  // those of the other's tile
      parity ^= stage / Cut::STAGES % 2;
      stage %= Cut::STAGES;
    }
    wgmma_wait<0, Is::SUMS>(sums, 0);
    if (arrives) give_back<Cut>(empty, before);
    store_sums(by, sums, Place{at.row + own_rows * 64, at.column, at.matrix}, warpgroup);
  }
}

// A whole block, of 128 (1 + MULTIPLIERS) threads.
template <class Cut, class By>
PRIMITIVE void multiply_with(const TileMap& lhs_map, const TileMap& rhs_map, const By& by) {
  typedef Derived<Cut> Is;
  typedef typename Cut::T T;
  SHARED_TILE_AT(T, lhs, Cut::STAGES * Is::LHS_LENGTH, 0);
  SHARED_TILE_AT(T, rhs, Cut::STAGES * Is::RHS_LENGTH, Is::RHS_BEGINS);
  MBARRIERS(full, Cut::STAGES);
  MBARRIERS(turned, Cut::STAGES);
  MBARRIERS(empty, Cut::STAGES);
  MBARRIERS(order, Cut::STAGES);
  if (Cut::IN_TURN && threadIdx.x == 0)
    for (int32 warpgroup = 0; warpgroup < Cut::MULTIPLIERS; warpgroup++) mbarrier_init(order, warpgroup, 1);
  begin_ring<Cut>(full, turned, empty, Is::SHARES == 1 ? Cut::MULTIPLIERS : 1);
  if (threadIdx.x < 128) {
    fill_ring<Cut>(lhs, rhs, lhs_map, rhs_map, full, turned, empty);
  } else {
    more_registers<Is::MANY>();
    multiply_and_store<Cut>(lhs, rhs, full, turned, empty, order, threadIdx.x / 128 - 1, by);
  }
  if constexpr (Cut::CLUSTER > 1) sync_cluster();  // others still arrive at this block's `empty`
}

// finish(matrix, row, piece, own, values), which codegen/epilogue.py writes: of columns of a thread what is stored in their place; where
// there are no slabs it stores that itself. A row, or a piece of columns, may be outside of the result.
template <class Cut, class Finish>
PRIMITIVE void multiply(const TileMap& lhs_map, const TileMap& rhs_map, const TileMap& out_map, const Finish& finish) {
  typedef Derived<Cut> Is;
  SHARED_TILE_AT(typename Cut::Out, slabs, Cut::MULTIPLIERS * Cut::SLABS * Is::SLAB_LENGTH, Is::SLABS_BEGIN);
  multiply_with<Cut>(lhs_map, rhs_map, BySlabs<Cut, decltype(slabs), Finish>{slabs, out_map, finish});
  if (threadIdx.x >= 128 && threadIdx.x % 128 == 0) wait_stores<0>();
}
template <class Cut, class Finish>
PRIMITIVE void multiply(const TileMap& lhs_map, const TileMap& rhs_map, const Finish& finish) {
  multiply_with<Cut>(lhs_map, rhs_map, ByThreads<Cut, Finish>{finish});
}

#endif
