// The gradients of an attention on Hopper: of keys and values by one kernel, of queries by another, which are one text.
//
// P = exp(scale q k.T - logsumexp), dP = grad v.T, dS = P (dP - delta), delta = rowsum(grad out);
// dv = P.T grad, dk = scale dS.T q, dq = scale dS k. The ideas:
//   - A block keeps rows of two matrices, of k and v or of q and grad, and walks over tiles of the other two. Of each tile it has
//     two products, P.T and dP.T with BY_KEYS, or P and dP, whose rows are those that it keeps. So the numbers that follow from them
//     lie in registers as the last products take them, and never in shared memory.
//   - Sums of gradients stay in the registers of one warpgroup and are added up tile by tile, so they have the same bits in every run.
//     The price is two products more than the five that there would be if blocks of keys added to dq in memory.
//   - While one warpgroup computes, tensor cores have products of the others to do, and its own that LAG.
//   - With BY_KEYS logsumexp and delta are of columns: one warp copies them, in units of a power of two, to the ring's stages.
//   - Of a causal attention tiles that see nothing are not looked at, and only those that the diagonal cuts are masked. Blocks
//     with most tiles come first.
// Source: Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135, appendix B.2; Spector et al. 2024, arXiv:2410.20399 (products with
// their rows and columns exchanged).
//
// Cut, a struct of constants, is that of hopper_attention.h, with LOOKERS of 64 rows each that are kept, COLUMNS rows of a tile, and
//   BY_KEYS    whether rows that are kept are those of keys
//   KEEPS      sets of rows there is room for: of a second one copies come while the first is looked at
//   LAGS       whether the last products of a tile go on beside the first of the next: that takes registers

#ifndef PICOGRAD_HOPPER_ATTENTION_GRAD_H
#define PICOGRAD_HOPPER_ATTENTION_GRAD_H

#include "hopper_heads.h"

// first: of q and k, whose rows have FEATURES; other: of grad and v, whose rows have VALUES
template <class Cut> struct GradSizes {
  static const int32 ROWS = 64 * Cut::LOOKERS, LENGTH = Cut::BY_KEYS ? Cut::KEYS : Cut::QUERIES;  // of what is kept
  static const int32 BLOCKS = (LENGTH + ROWS - 1) / ROWS, HEADS = Cut::BY_KEYS ? Cut::GROUPS : Cut::HEADS;
  static const int32 SHARE = Cut::HEADS / Cut::GROUPS, WALKED_HEADS = Cut::BY_KEYS ? SHARE : 1;
  static const int32 PIECES = (Cut::FEATURES + 63) / 64, OTHER_PIECES = (Cut::VALUES + 63) / 64;
  static const int32 KEPT_LENGTH = PIECES * ROWS * 64, KEPT_OTHER_LENGTH = OTHER_PIECES * ROWS * 64;
  static const int32 TILE_LENGTH = PIECES * Cut::COLUMNS * 64, OTHER_LENGTH = OTHER_PIECES * Cut::COLUMNS * 64;
  static const int32 SCORES = Cut::COLUMNS / 2, SUMS = PIECES * 32, OTHER_SUMS = Cut::BY_KEYS ? OTHER_PIECES * 32 : 32;
  static const int32 SLAB_PIECES = Cut::BY_KEYS ? 2 : PIECES;
  static const bool APART = Cut::BY_KEYS && PIECES + OTHER_PIECES == 2;  // both results have slabs of their own
  static const int32 COPYING = Cut::LOOKERS == 3 ? 32 : Cut::BY_KEYS && Cut::COLUMNS > 64 ? 40 : 24;  // registers of who copies
  static const int32 NUMBERS = Cut::BY_KEYS ? 2 * Cut::COLUMNS : 2;  // of a stage
};

// Tiles that some of `count` kept rows from `first` on have to do with.
template <class Cut> PRIMITIVE Tiles tiles_of(int32 first, int32 count) {
  if (first >= GradSizes<Cut>::LENGTH) return {0, 0};
  if constexpr (Cut::BY_KEYS) {
    const int32 from = first - (Cut::KEYS - Cut::QUERIES), sees = Cut::CAUSAL ? from : 0, last = from + count - 1 + Cut::WINDOW;
    const int32 end = Cut::WINDOW == 0 || last > Cut::QUERIES ? Cut::QUERIES : last;
    return {sees < 0 ? 0 : sees / Cut::COLUMNS, end < 0 ? 0 : (end + Cut::COLUMNS - 1) / Cut::COLUMNS};
  } else {
    return {first_key_of<Cut>(first) / Cut::COLUMNS, (keys_of<Cut>(first, count) + Cut::COLUMNS - 1) / Cut::COLUMNS};
  }
}

// The i-th of them: those that most rows see come first.
template <class Cut> PRIMITIVE int32 tile_of(const Tiles& tiles, int32 i) { return Cut::BY_KEYS ? tiles.begin + i : tiles.end - 1 - i; }

// The first row of a block's in its turn, -1 behind the last, the head that it is of, and the first that it walks over.
struct Block { int32 first, batch, head, walked; };
template <class Cut> PRIMITIVE Block block_of(int32 turn) {
  typedef GradSizes<Cut> Is;
  const Where own = part_of<Is::BLOCKS, Cut::BATCH * Is::HEADS, Cut::TOGETHER>(turn);
  const int32 head = own.head % Is::HEADS, walked = Cut::BY_KEYS ? head * Is::SHARE : head / Is::SHARE;
  return {own.number < 0 ? -1 : (Cut::BY_KEYS ? own.number : Is::BLOCKS - 1 - own.number) * Is::ROWS, own.head / Is::HEADS, head,
          walked};
}

// Calls begin(turn, block) and then look(use, block, head, first row) of each tile that the block walks over.
template <class Cut, class Begin, class Look> PRIMITIVE void walk(const Begin& begin, const Look& look) {
  typedef GradSizes<Cut> Is;
  int32 use = 0;
  for (int32 turn = 0;; turn++) {
    const Block own = block_of<Cut>(turn);
    if (own.first < 0) break;
    begin(turn, own);
    const Tiles tiles = tiles_of<Cut>(own.first, Is::ROWS);
    for (int32 head = 0; head < Is::WALKED_HEADS; head++)
      for (int32 i = 0; i < tiles.end - tiles.begin; i++) look(use++, own, own.walked + head, tile_of<Cut>(tiles, i) * Cut::COLUMNS);
  }
}

// ---- a warpgroup: makes sums ----
// Calls put(i, number) of each of a thread's COLUMNS / 2 elements, with its number: of the row or, with BY_KEYS, of the column.
template <class Cut, class Numbers, class Rows, class Put>
PRIMITIVE void each_with(const Numbers& numbers, int32 index, Rows& rows, const Put& put) {
  const int32 column = thread_here() % 4 * 2;
#pragma unroll
  for (int32 i = 0; i < Cut::COLUMNS / 2; i += 4) {
    Lanes<float32, 2> of_columns = {};
    if constexpr (Cut::BY_KEYS) of_columns = load_lanes<2>(numbers, index + 2 * i + column);
#pragma unroll
    for (int32 k = 0; k < 4; k++) put(i + k, Cut::BY_KEYS ? of_columns.at[k % 2] : (float32)rows[k / 2]);
  }
}

// logsumexp as an exponent of two; of a query that sees nothing, whose scores are all hidden, a number.
PRIMITIVE float32 exponent_of(float32 logsumexp) { return logsumexp == below_all() ? 0.0f : logsumexp * 1.4426950408889634f; }

template <class Cut, class Kept, class Other, class Tile, class OtherTile, class Numbers, class Slabs, class One, class Ring,
          class Drawing, class Rows>
PRIMITIVE void look_at_tiles(const Kept& kept, const Other& other_kept, const Tile& tile, const OtherTile& other_tile,
                             const Numbers& numbers, const Slabs& slabs, const TileMap& result_map,
                             const TileMap& other_result_map, const One& kept_full, const One& kept_empty, const Ring& full,
                             const Ring& empty, int32 warpgroup, const Drawing& draws_of, Rows logsumexp, Rows delta) {
  typedef GradSizes<Cut> Is;
  typedef typename Cut::T T;
  const int32 COLUMNS = Cut::COLUMNS;
  const float32 scale = exponent_factor<Cut>();
  const bool arrives = threadIdx.x % 32 == 0;
  const auto give_back = [&](int32 stage) {  // each warp by itself: its threads have read numbers
    sync_warp();
    if (arrives) mbarrier_arrive(empty, stage);
  };
  REGISTERS(float32, scores, Is::SCORES);
  REGISTERS(float32, slopes, Is::SCORES);
  REGISTERS(uint32, weights, COLUMNS / 4);
  REGISTERS(uint32, narrow, COLUMNS / 4);
  REGISTERS(float32, sums, Is::SUMS);
  REGISTERS(float32, other_sums, Is::OTHER_SUMS);
  const auto finish = [&] {  // waits for the last tile's products
    wgmma_wait<0, Is::SUMS>(sums, 0);
    if constexpr (Cut::BY_KEYS) wgmma_done<Is::OTHER_SUMS>(other_sums, 0);
    wgmma_done<COLUMNS / 4>(weights, 0);
    wgmma_done<COLUMNS / 4>(narrow, 0);
  };
  REGISTERS(float32, exponents, 2);
  REGISTERS(float32, deltas, 2);
  int32 use = 0;
  const auto skip = [&](int32 num) {  // tiles that others of the block look at
    for (; num > 0; num--) {
      mbarrier_wait(full, stage_of<Cut>(use), parity_of<Cut>(use));
      give_back(stage_of<Cut>(use++));
    }
  };
  for (int32 turn = 0;; turn++) {
    const Block own = block_of<Cut>(turn);
    if (own.first < 0) break;
    const int32 first = own.first + warpgroup * 64;
    const Tiles every = tiles_of<Cut>(own.first, Is::ROWS), seen = tiles_of<Cut>(first, 64);
    const int32 last = Cut::BY_KEYS ? every.end : every.begin;  // without any, all are skipped before it
    const Tiles tiles = seen.begin < seen.end ? seen : Tiles{last, last};
    const int32 num = tiles.end - tiles.begin, before = Cut::BY_KEYS ? tiles.begin - every.begin : every.end - tiles.end;
#pragma unroll
    for (int32 i = 0; i < Is::SUMS; i++) sums[i] = 0.0f;
    if constexpr (Cut::BY_KEYS) {
#pragma unroll
      for (int32 i = 0; i < Is::OTHER_SUMS; i++) other_sums[i] = 0.0f;
    } else {
      const int32 thread = thread_here() % 128;
#pragma unroll
      for (int32 i = 0; i < 2; i++) {
        const int32 query = first + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
        const int64 place = (own.batch * Cut::HEADS + own.head) * (int64)Cut::QUERIES + query;
        exponents[i] = query < Cut::QUERIES ? exponent_of(logsumexp[place]) : 0.0f;
        deltas[i] = query < Cut::QUERIES ? (float32)delta[place] : 0.0f;
      }
    }
    const int32 set = turn % Cut::KEEPS;
    mbarrier_wait(kept_full, set, turn / Cut::KEEPS % 2);
    for (int32 head = 0; head < Is::WALKED_HEADS; head++) {
      const Draws draws = draws_of(own.batch, Cut::BY_KEYS ? own.walked + head : own.head);
      skip(before);
      for (int32 i = 0; i < num; i++) {
        const int32 stage = stage_of<Cut>(use), index = stage * Is::NUMBERS;
        mbarrier_wait(full, stage, parity_of<Cut>(use));
        start_scores<Is::PIECES, Is::ROWS, COLUMNS>(scores, kept, set * Is::KEPT_LENGTH + warpgroup * 4096, tile,
                                                    stage * Is::TILE_LENGTH);
        start_scores<Is::OTHER_PIECES, Is::ROWS, COLUMNS>(slopes, other_kept, set * Is::KEPT_OTHER_LENGTH + warpgroup * 4096,
                                                          other_tile, stage * Is::OTHER_LENGTH);
        const int32 walked = tile_of<Cut>(tiles, i) * COLUMNS;
        const uint64 drawn = draw<Cut, Cut::BY_KEYS>(draws, first, walked);
        wgmma_wait<1, Is::SCORES>(scores, 0);  // the tile before has been added, too
        wgmma_done<Is::SCORES>(scores, 0);
        if constexpr (Cut::LAGS) {
          wgmma_done<COLUMNS / 4>(weights, 0);
          wgmma_done<COLUMNS / 4>(narrow, 0);
        }
        if (i > 0) give_back(stage_of<Cut>(use - 1));
        bend<Cut>(scores);
        hide<Cut, Cut::BY_KEYS>(scores, first, walked);
        float32 even = 0.0f;
        each_with<Cut>(numbers, index, exponents, [&](int32 at, float32 exponent) {  // scores become what slopes are multiplied by
          const float32 weight = rough_exp2(fmaf(scores[at], scale, -exponent)), bent = fmaxf(scores[at], -1.0f);
          if (Cut::BY_KEYS && at % 2) weights[at / 2] = pair_up(even, dropped<Cut>(weight, drawn, at), T{});
          even = dropped<Cut>(weight, drawn, at);
          scores[at] = Cut::IS_CAPPED ? weight * fmaf(-bent, bent, 1.0f) : weight;
        });
        if constexpr (Cut::BY_KEYS) {
          start_sums<Is::OTHER_PIECES, COLUMNS>(other_sums, weights, other_tile, stage * Is::OTHER_LENGTH);
          wgmma_wait<1, Is::SCORES>(slopes, 0);
          wgmma_done<Is::SCORES>(slopes, 0);
        } else {
          wgmma_wait<0, Is::SCORES>(slopes, 0);
        }
        each_with<Cut>(numbers, index + COLUMNS, deltas, [&](int32 at, float32 mean) {
          slopes[at] = scores[at] * (dropped<Cut>(slopes[at] * Cut::KEPT, drawn, at) - mean);
        });
        round_all<T, COLUMNS>(narrow, slopes);
        start_sums<Is::PIECES, COLUMNS>(sums, narrow, tile, stage * Is::TILE_LENGTH);
        if constexpr (!Cut::LAGS) finish();
        use++;
      }
      if constexpr (Cut::LAGS) finish();
      if (num > 0) give_back(stage_of<Cut>(use - 1));
      if constexpr (Cut::WINDOW > 0) skip(every.end - every.begin - num - before);
    }
    if (arrives) mbarrier_arrive(kept_empty, set);
    const bool any = first < Is::LENGTH;
    const int32 slab = warpgroup * Is::SLAB_PIECES;
    store_rows<T, 0, Is::PIECES, Is::APART>(sums, Cut::SCALE, Cut::SCALE, slabs, result_map, slab, any, first, own.head, own.batch);
    if constexpr (Cut::BY_KEYS)
      store_rows<T, 0, Is::OTHER_PIECES, Is::APART>(other_sums, Cut::KEPT, Cut::KEPT, slabs, other_result_map, slab + Is::APART, any, first,
                                                 own.head, own.batch);
  }
  if (threadIdx.x % 128 == 0) wait_stores<0>();
}

// A whole block, of 128 (1 + LOOKERS) threads. It keeps k and v, walks over q and grad and stores dk and dv with BY_KEYS, else it
// keeps q and grad, walks over k and v and stores dq, which is its other result in name only.
template <class Cut, class Drawing, class Rows>
PRIMITIVE void differentiate(const TileMap& kept_map, const TileMap& other_kept_map, const TileMap& tile_map,
                             const TileMap& other_tile_map, const TileMap& result_map, const TileMap& other_result_map,
                             const Drawing& draws_of, Rows logsumexp, Rows delta) {
  typedef GradSizes<Cut> Is;
  typedef typename Cut::T T;
  const int32 KEPT_OTHER_BEGINS = Cut::KEEPS * Is::KEPT_LENGTH * 2, TILES_BEGIN = KEPT_OTHER_BEGINS + Cut::KEEPS * Is::KEPT_OTHER_LENGTH * 2,
              OTHERS_BEGIN = TILES_BEGIN + Cut::STAGES * Is::TILE_LENGTH * 2,
              SLABS_BEGIN = OTHERS_BEGIN + Cut::STAGES * Is::OTHER_LENGTH * 2,
              NUMBERS_BEGIN = SLABS_BEGIN + Cut::LOOKERS * Is::SLAB_PIECES * 8192;
  SHARED_TILE_AT(T, kept, Cut::KEEPS * Is::KEPT_LENGTH, 0);
  SHARED_TILE_AT(T, other_kept, Cut::KEEPS * Is::KEPT_OTHER_LENGTH, KEPT_OTHER_BEGINS);
  SHARED_TILE_AT(T, tile, Cut::STAGES * Is::TILE_LENGTH, TILES_BEGIN);
  SHARED_TILE_AT(T, other_tile, Cut::STAGES * Is::OTHER_LENGTH, OTHERS_BEGIN);
  SHARED_TILE_AT(T, slabs, Cut::LOOKERS * Is::SLAB_PIECES * 4096, SLABS_BEGIN);
  SHARED_TILE_AT(float32, numbers, Cut::STAGES * Is::NUMBERS, NUMBERS_BEGIN);
  MBARRIERS(kept_full, Cut::KEEPS);
  MBARRIERS(kept_empty, Cut::KEEPS);
  MBARRIERS(full, Cut::STAGES);
  MBARRIERS(empty, Cut::STAGES);
  if (threadIdx.x == 0) {
    for (int32 set = 0; set < Cut::KEEPS; set++) {
      mbarrier_init(kept_full, set, 1);
      mbarrier_init(kept_empty, set, 4 * Cut::LOOKERS);
    }
    for (int32 stage = 0; stage < Cut::STAGES; stage++) {
      mbarrier_init(full, stage, Cut::BY_KEYS ? 2 : 1);  // who copies tiles, and who copies numbers
      mbarrier_init(empty, stage, 4 * Cut::LOOKERS);
    }
    fence_mbarriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    more_registers<Cut::LOOKERS == 3 ? 160 : 252 - Is::COPYING / 2>();
    look_at_tiles<Cut>(kept, other_kept, tile, other_tile, numbers, slabs, result_map, other_result_map, kept_full, kept_empty,
                       full, empty, of_warp(threadIdx.x / 128) - 1, draws_of, logsumexp, delta);
    return;
  }
  fewer_registers<Is::COPYING>();
  if (threadIdx.x < 32 && is_elected()) {
    const int32 nbytes = sizeof(T);
    walk<Cut>(
        [&](int32 turn, const Block& own) {
          const int32 set = turn % Cut::KEEPS;
          mbarrier_wait(kept_empty, set, turn / Cut::KEEPS % 2 ^ 1);
          mbarrier_arrive_expecting(kept_full, set, (Is::KEPT_LENGTH + Is::KEPT_OTHER_LENGTH) * nbytes);
          load_pieces<Is::PIECES, Is::ROWS>(kept, set * Is::KEPT_LENGTH, kept_map, kept_full, set, own.first, own.head, own.batch);
          load_pieces<Is::OTHER_PIECES, Is::ROWS>(other_kept, set * Is::KEPT_OTHER_LENGTH, other_kept_map, kept_full, set, own.first,
                                                  own.head, own.batch);
        },
        [&](int32 use, const Block& own, int32 head, int32 first) {
          const int32 stage = stage_of<Cut>(use);
          mbarrier_wait(empty, stage, parity_of<Cut>(use) ^ 1);
          mbarrier_arrive_expecting(full, stage, (Is::TILE_LENGTH + Is::OTHER_LENGTH) * nbytes);
          load_pieces<Is::PIECES, Cut::COLUMNS>(tile, stage * Is::TILE_LENGTH, tile_map, full, stage, first, head, own.batch);
          load_pieces<Is::OTHER_PIECES, Cut::COLUMNS>(other_tile, stage * Is::OTHER_LENGTH, other_tile_map, full, stage, first,
                                                      head, own.batch);
        });
  }
  if (Cut::BY_KEYS && threadIdx.x / 32 == 1)
    walk<Cut>([](int32, const Block&) {},
              [&](int32 use, const Block& own, int32 head, int32 first) {
                const int32 stage = stage_of<Cut>(use), index = stage * Is::NUMBERS;
                mbarrier_wait(empty, stage, parity_of<Cut>(use) ^ 1);
#pragma unroll
                for (int32 i = threadIdx.x % 32; i < Cut::COLUMNS; i += 32) {
                  const bool any = first + i < Cut::QUERIES;  // others are rows of zeros, and may weigh what they like
                  const int64 place = (own.batch * Cut::HEADS + head) * (int64)Cut::QUERIES + first + i;
                  numbers[index + i] = any ? exponent_of(logsumexp[place]) : 0.0f;
                  numbers[index + Cut::COLUMNS + i] = any ? (float32)delta[place] : 0.0f;
                }
                sync_warp();
                if (threadIdx.x % 32 == 0) mbarrier_arrive(full, stage);
              });
}

#endif
