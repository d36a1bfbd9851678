// What an attention and its gradients have in common on Hopper: a block of threads keeps 64 rows for each of its warpgroups that look,
// and walks over tiles of other rows, of whose products with its own it makes sums.
//
// Of 16-bit elements; a row is in pieces of 64, which are 128 bytes. Matrices in shared memory have piece after piece of all their
// rows. Numbers of pieces, rows and columns are constants: PIECES of a row, ROWS that a block keeps, COLUMNS of a tile.

#ifndef PICOGRAD_HOPPER_HEADS_H
#define PICOGRAD_HOPPER_HEADS_H

#include "hopper.h"

PRIMITIVE float32 below_all() { return float32_of_bits(0xff800000u); }  // -inf

// ---- who does what ----
// number: of the head's blocks of rows, -1 behind the last; head: of all in the batch
struct Where { int32 number, head; };

// What a block of threads has in its turn, number by number of TOGETHER heads; every other turn goes the other way, so that none has
// always the longest.
template <int32 BLOCKS, int32 EVERY, int32 TOGETHER> PRIMITIVE Where part_of(int32 turn) {
  const int32 wide = gridDim.x, own = blockIdx.x;
  const int32 number = turn * wide + (turn % 2 ? wide - 1 - own : own), group = number / (BLOCKS * TOGETHER);
  if (number >= BLOCKS * EVERY) return {-1, 0};
  const int32 first = group * TOGETHER, heads = EVERY - first < TOGETHER ? EVERY - first : TOGETHER;
  const int32 in_group = number - first * BLOCKS;
  return {in_group / heads, first + in_group % heads};
}

// Keys that some of `count` queries see: those before that number, and of a window none before the first of them.
template <class Cut> PRIMITIVE int32 keys_of(int32 first, int32 count) {
  if (first >= Cut::QUERIES) return 0;
  const int32 last = (first + count < Cut::QUERIES ? first + count : Cut::QUERIES) + Cut::KEYS - Cut::QUERIES;
  return !Cut::CAUSAL || last > Cut::KEYS ? Cut::KEYS : last < 0 ? 0 : last;
}
template <class Cut> PRIMITIVE int32 first_key_of(int32 query) {
  const int32 key = query + Cut::KEYS - Cut::QUERIES - Cut::WINDOW + 1;
  return Cut::WINDOW == 0 || key < 0 ? 0 : key;
}

// Tiles from begin to end. Of those of a block a warpgroup's are some; it waits for all.
struct Tiles { int32 begin, end; };

// The stage of the ring's use of that number, and whether it is filled for an odd time.
template <class Cut> PRIMITIVE int32 stage_of(int32 use) { return use % Cut::STAGES; }
template <class Cut> PRIMITIVE uint32 parity_of(int32 use) { return use / Cut::STAGES % 2; }

// ---- one thread: copies rows of a head ----
template <int32 PIECES, int32 ROWS, class Tile, class Barriers>
PRIMITIVE void load_pieces(const Tile& tile, int32 index, const TileMap& map, const Barriers& full, int32 barrier, int32 first,
                         int32 head, int32 batch) {
#pragma unroll
  for (int32 piece = 0; piece < PIECES; piece++)
    load_tile(tile, index + piece * ROWS * 64, map, full, barrier, piece * 64, first, head, batch);
}

// ---- a warpgroup: which weights count ----
// Has scores be -inf where a query does not see a key. Rows of scores are queries and columns are keys, or with BY_KEYS the other way.
template <class Cut, bool BY_KEYS, class Scores> PRIMITIVE void hide(Scores& scores, int32 first, int32 first_column) {
  const int32 ahead = Cut::KEYS - Cut::QUERIES, thread = thread_here() % 128;
  const int32 own = first + thread / 32 * 16 + thread % 32 / 4, column = first_column + thread % 4 * 2;
  const int32 last_column = first_column + Cut::COLUMNS - 1;
  if (BY_KEYS ? Cut::CAUSAL && first_column + ahead < first + 63 : keys_of<Cut>(first, 1) <= last_column) {
#pragma unroll
    for (int32 row = 0; row < 2; row++) {
      const int32 here = own + 8 * row, sees = here + ahead + 1, end = Cut::CAUSAL && sees < Cut::KEYS ? sees : Cut::KEYS;
      const int32 edge = (BY_KEYS ? here - ahead : end) - column;  // the first that sees, or that is not seen
#pragma unroll
      for (int32 i = 2 * row; i < Cut::COLUMNS / 2; i += 4) {
        if ((8 * (i / 4) >= edge) != BY_KEYS) scores[i] = below_all();
        if ((8 * (i / 4) + 1 >= edge) != BY_KEYS) scores[i + 1] = below_all();
      }
    }
  }
  if constexpr (Cut::WINDOW > 0) {
    if (BY_KEYS ? last_column + ahead < first + Cut::WINDOW : first_key_of<Cut>(first + 63) <= first_column) return;
#pragma unroll
    for (int32 row = 0; row < 2; row++) {
      const int32 here = own + 8 * row;
      const int32 edge = (BY_KEYS ? here + Cut::WINDOW - ahead : here + ahead - Cut::WINDOW + 1) - column;  // as above
#pragma unroll
      for (int32 i = 2 * row; i < Cut::COLUMNS / 2; i += 4) {
        if ((8 * (i / 4) >= edge) == BY_KEYS) scores[i] = below_all();
        if ((8 * (i / 4) + 1 >= edge) == BY_KEYS) scores[i + 1] = below_all();
      }
    }
  }
}

// Has scores be tanh(scale score / cap), where there is a cap: 1 - 2 / (1 + e^2x), right to some 2^-22. Else they stay products.
template <class Cut, class Scores> PRIMITIVE void bend(Scores& scores) {
  if constexpr (Cut::IS_CAPPED) {
    const float32 twice = 2.0f * 1.4426950408889634f * Cut::SCALE / Cut::CAP;
#pragma unroll
    for (int32 i = 0; i < Cut::COLUMNS / 2; i++) scores[i] = fmaf(-2.0f, rough_reciprocal(1.0f + rough_exp2(scores[i] * twice)), 1.0f);
  }
}

// By what scores are multiplied then, and with log2(e), so that weights are powers of two.
template <class Cut> PRIMITIVE constexpr float32 factor_of() { return Cut::IS_CAPPED ? Cut::CAP : Cut::SCALE; }
template <class Cut> PRIMITIVE constexpr float32 exponent_factor() { return factor_of<Cut>() * 1.4426950408889634f; }

// What a head draws: a seed, and the number of its first weight.
struct Draws { uint64 seed, first; };

// Which weights of a tile dropout keeps: a bit for each that a thread has. Weight (row, column) of a head is ROW row + COLUMN column
// behind its first. The loop is not written out: 64 draws are 5,000 instructions.
template <class Cut, bool BY_KEYS> PRIMITIVE uint64 draw(const Draws& draws, int32 first, int32 first_column) {
  uint64 kept = 0;
  if constexpr (Cut::LEAST_KEPT > 0) {
    const int64 ROW = BY_KEYS ? 1 : Cut::KEYS, COLUMN = BY_KEYS ? Cut::KEYS : 1;
    const int32 thread = thread_here() % 128;
    const int64 row = first + thread / 32 * 16 + thread % 32 / 4, column = first_column + thread % 4 * 2;
    uint64 place = draws.first + (uint64)(row * ROW + column * COLUMN);
#pragma unroll 1
    for (int32 i = 0; i < Cut::COLUMNS / 2; i += 4) {
      uint32 four = 0;
#pragma unroll
      for (int32 k = 0; k < 4; k++) {
        const uint64 bits = threefry(place + (uint64)(k / 2 * 8 * ROW + k % 2 * COLUMN), draws.seed);
        four |= (uint32)((uint32)(bits >> 40) >= Cut::LEAST_KEPT) << k;
      }
      kept = kept >> 4 | (uint64)four << 60;
      place += (uint64)(8 * COLUMN);
    }
    kept >>= 64 - Cut::COLUMNS / 2;
  }
  return kept;
}

// A thread's i-th number, or 0 where dropout has drawn so.
template <class Cut> PRIMITIVE float32 dropped(float32 number, uint64 kept, int32 i) {
  return Cut::LEAST_KEPT == 0 || kept >> i & 1 ? number : 0.0f;
}

// ---- a warpgroup: products with the rows of a tile ----
// Starts scores = kept @ tile.T, of 64 rows from kept[first] on.
template <int32 PIECES, int32 ROWS, int32 COLUMNS, class Scores, class Kept, class Tile>
PRIMITIVE void start_scores(Scores& scores, const Kept& kept, int32 first, const Tile& tile, int32 index) {
  const auto left = operand_at<false>(kept, first);
  const auto right = operand_at<false>(tile, index);
  wgmma_fence<COLUMNS / 2>(scores, 0);
#pragma unroll
  for (int32 part = 0; part < PIECES * 4; part++)
    wgmma_m64k16<COLUMNS>(scores, 0, moved(left, part / 4 * ROWS * 64 + part % 4 * 16),
                          moved(right, part / 4 * COLUMNS * 64 + part % 4 * 16), part > 0);
  wgmma_commit();
}

// Starts sums += weights @ tile.
template <int32 PIECES, int32 COLUMNS, class Sums, class Weights, class Tile>
PRIMITIVE void start_sums(Sums& sums, Weights& weights, const Tile& tile, int32 index) {
  const auto right = operand_at<true>(tile, index, COLUMNS * 64);
  wgmma_fence<COLUMNS / 4>(weights, 0);
  wgmma_fence<PIECES * 32>(sums, 0);
#pragma unroll
  for (int32 part = 0; part < COLUMNS / 16; part++) {
    wgmma_m64k16<PIECES == 1 ? 64 : 128>(sums, 0, weights, part * 4, moved(right, part * 1024), true);
    if constexpr (PIECES > 2)
      wgmma_m64k16<PIECES == 3 ? 64 : 128>(sums, 64, weights, part * 4, moved(right, 2 * COLUMNS * 64 + part * 1024), true);
  }
  wgmma_commit();
}

// Rounds numbers as products leave them, to pairs as products take them.
template <class T, int32 COLUMNS, class Pairs, class Numbers> PRIMITIVE void round_all(Pairs& pairs, Numbers& numbers) {
#pragma unroll
  for (int32 i = 0; i < COLUMNS / 4; i++) pairs[i] = pair_up(numbers[2 * i], numbers[2 * i + 1], T{});
}

// Stores PIECES of 64 rows of sums, from number FROM on, through slabs of shared memory, each row times its factor, of which a thread
// has two. LEFT: stores of the warpgroup that may be on their way from other slabs.
template <class T, int32 FROM, int32 PIECES, int32 LEFT, class Sums, class Slabs>
PRIMITIVE void store_rows(Sums& sums, float32 upper, float32 lower, const Slabs& slabs, const TileMap& map, int32 first_slab,
                          bool any, int32 first, int32 head, int32 batch) {
  const int32 thread = thread_here() % 128, lane = thread % 32, row = 16 * (thread / 32) + lane % 16;
  if (thread == 0) wait_stores<LEFT>();  // what was there has left
  sync_warpgroup();
#pragma unroll
  for (int32 column = 0; column < PIECES * 64; column += 16) {
    REGISTERS(T, narrow, 8);
#pragma unroll
    for (int32 i = 0; i < 8; i++) narrow[i] = narrowed(sums[FROM * 32 + column / 2 + i] * (i / 2 % 2 ? lower : upper), T{});
    const int32 slab = (first_slab + column / 64) * 4096;
    store_matrices(slabs, slab + swizzled<T>(row * 64 + column % 64 + lane / 16 * 8), narrow, 0);
  }
  fence_async_proxy();
  sync_warpgroup();
  if (thread == 0) {
    if (any) {
#pragma unroll
      for (int32 piece = 0; piece < PIECES; piece++)
        store_tile(map, slabs, (first_slab + piece) * 4096, (FROM + piece) * 64, first, head, batch);
    }
    commit_stores();  // an empty group counts as one
  }
}

#endif
