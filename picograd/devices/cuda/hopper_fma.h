// A product of float32 on Hopper by multiply-adds: one warpgroup copies (hopper_stages.h), two multiply.
//
//   - Operands lie across K in a stage, so that a thread reads four of its rows, or columns, at a time; what it needs for the next
//     of K it reads while it multiplies. It waits for the next stage, and does nothing else besides.
//   - A warp is 8 threads wide and 4 high, rows and columns of a thread are groups of four: what a warp reads at once is 64 or 128
//     bytes without two in one bank, and what it stores 128 bytes of 4 rows.
//   - Each element adds up along K, in order, as generated kernels do.

#ifndef PICOGRAD_HOPPER_FMA_H
#define PICOGRAD_HOPPER_FMA_H

#include "hopper_stages.h"

static const int32 WARPS_WIDE = 2, LINES = 8;  // of the tile; of K between two places where swizzled pieces are the same

// Brings what a thread has of line `line` of K: COUNT groups of four, APART apart, from tile[first + at[its pieces]] on.
template <int32 COUNT, int32 PIECES, class Registers, class Tile, class Places>
PRIMITIVE void load_own(Registers& own, int32 place, const Tile& tile, int32 first, Places& at, int32 line) {
#pragma unroll
  for (int32 group = 0; group < COUNT; group++) {
    const int32 position = group * PIECES, block = position / 8, piece = position % 8 ^ (line & (8 - PIECES) & 7);
    const Lanes<float32, 4> lanes = load_lanes<4>(tile, first + at[line % PIECES] + block * 1024 + line * 32 + piece * 4);
#pragma unroll
    for (int32 i = 0; i < 4; i++) own[place + 4 * group + i] = lanes.at[i];
  }
}

// A warpgroup: empties the ring, tile after tile.
template <class Cut, class Lhs, class Rhs, class Barriers, class Finish>
PRIMITIVE void add_and_store(const Lhs& lhs, const Rhs& rhs, const Barriers& full, const Barriers& turned,
                             const Barriers& empty, int32 warpgroup, const Finish& finish) {
  typedef Derived<Cut> Is;
  const int32 ROWS = Cut::ROWS / (8 * Cut::MULTIPLIERS), COLUMNS = Cut::COLUMNS / (8 * WARPS_WIDE);  // of a thread
  const int32 warp = warpgroup * 4 + threadIdx.x % 128 / 32, lane = threadIdx.x % 32, y = lane / 8, x = lane % 8;
  const int32 first_row = warp / WARPS_WIDE * 4 * ROWS, first_column = warp % WARPS_WIDE * 8 * COLUMNS;
  static_assert(ROWS % 8 == 0 && COLUMNS % 4 == 0, "the rows and columns of a warp are whole 32");
  REGISTERS(int32, left_at, 4);
  REGISTERS(int32, right_at, 8);
#pragma unroll
  for (int32 i = 0; i < 4; i++) left_at[i] = first_row * 32 + (y ^ i) * 4;
#pragma unroll
  for (int32 i = 0; i < 8; i++) right_at[i] = first_column * 32 + (x ^ i) * 4;
  REGISTERS(float32, sums, ROWS * COLUMNS);
  REGISTERS(float32, left, 2 * ROWS);
  REGISTERS(float32, right, 2 * COLUMNS);
  int32 stage = 0;
  uint32 parity = 0;
  for (int32 number = blockIdx.x; number < Is::TILES; number += gridDim.x) {
    const Place tile = place_of<Cut>(number);
#pragma unroll
    for (int32 i = 0; i < ROWS * COLUMNS; i++) sums[i] = 0.0f;
    for (int32 step = 0; step < Is::STEPS; step++) {
      mbarrier_wait(full, stage, parity);
      if constexpr (Is::TURNS) mbarrier_wait(turned, stage, parity);
      const int32 lhs_begins = stage * Is::LHS_LENGTH, rhs_begins = stage * Is::RHS_LENGTH;
      load_own<ROWS / 4, 4>(left, 0, lhs, lhs_begins, left_at, 0);
      load_own<COLUMNS / 4, 8>(right, 0, rhs, rhs_begins, right_at, 0);
#pragma unroll 1
      for (int32 k = 0; k < Is::STEP; k += LINES) {
#pragma unroll
        for (int32 line = 0; line < LINES; line++) {
          const int32 now = line % 2, next = 1 - now;
          const int32 further = (k + (line + 1) / LINES * LINES) % Is::STEP * 32;  // behind the last line the first, for nothing
          load_own<ROWS / 4, 4>(left, next * ROWS, lhs, lhs_begins + further, left_at, (line + 1) % LINES);
          load_own<COLUMNS / 4, 8>(right, next * COLUMNS, rhs, rhs_begins + further, right_at, (line + 1) % LINES);
#pragma unroll
          for (int32 i = 0; i < ROWS; i++)
#pragma unroll
            for (int32 j = 0; j < COLUMNS; j++)
              sums[i * COLUMNS + j] = fmaf(left[now * ROWS + i], right[now * COLUMNS + j], sums[i * COLUMNS + j]);
        }
      }
      sync_warp();
      if (lane == 0) mbarrier_arrive(empty, stage);
      if (++stage == Cut::STAGES) {
        stage = 0;
        parity ^= 1;
      }
    }
#pragma unroll (Cut::ROLLED ? 1 : ROWS)  // as hopper_product.h does it
    for (int32 i = 0; i < ROWS; i++) {
      const int32 row = tile.row + first_row + i / 4 * 16 + 4 * y + i % 4;
      Lanes<float32, COLUMNS> own;
#pragma unroll
      for (int32 j = 0; j < COLUMNS; j++) own.at[j] = sums[j];
      finish(tile.matrix, row, tile.column / (8 * COLUMNS) + warp % WARPS_WIDE, x, own);
#pragma unroll
      for (int32 j = 0; j + COLUMNS < ROWS * COLUMNS; j++) sums[j] = sums[j + COLUMNS];
    }
  }
}

// A whole block, of 128 (1 + MULTIPLIERS) threads. finish(matrix, row, piece, own, values), which codegen/epilogue.py writes, stores what is
// made of the columns of a thread. A row, or a piece of columns, may be outside of the result.
template <class Cut, class Finish>
PRIMITIVE void multiply_add(const TileMap& lhs_map, const TileMap& rhs_map, const Finish& finish) {
  typedef Derived<Cut> Is;
  typedef typename Cut::T T;
  SHARED_TILE_AT(T, lhs, Cut::STAGES * Is::LHS_LENGTH, 0);
  SHARED_TILE_AT(T, rhs, Cut::STAGES * Is::RHS_LENGTH, Is::RHS_BEGINS);
  MBARRIERS(full, Cut::STAGES);
  MBARRIERS(turned, Cut::STAGES);
  MBARRIERS(empty, Cut::STAGES);
  begin_ring<Cut>(full, turned, empty, 4 * Cut::MULTIPLIERS);
  if (threadIdx.x < 128) {
    fill_ring<Cut>(lhs, rhs, lhs_map, rhs_map, full, turned, empty);
  } else {
    more_registers<Is::MANY>();
    add_and_store<Cut>(lhs, rhs, full, turned, empty, threadIdx.x / 128 - 1, finish);
  }
}

#endif
