// An attention on Hopper: warpgroups that look at the keys for 64 queries each, and one that copies.
//
// out = softmax(scale q k.T) v for each head of a batch, of 16-bit floats; weights and sums are float32. The ideas:
//   - A block keeps its queries; tiles of keys and of values come by the copy engine through two rings of stages. What is outside of
//     an array comes as zeros.
//   - Scores lie in registers as wgmma leaves them, which is as it takes a left operand: weights are rounded in place, and multiplied
//     with values that lie across K.
//   - While the tensor cores have scores of the next tile and averages of this one to compute, threads compute weights of the next.
//   - Weights are powers of two: scale and log2(e) are one factor. Sums are those of the largest score so far, and are moved when
//     there is a larger one. Source: Milakov and Gimelshein 2018, arXiv:1805.02867; Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135;
//     Shah et al. 2024, arXiv:2407.08608 (the two products that go on beside a softmax).
//   - Of a causal attention tiles are seen from the diagonal on; those behind it, or before a window, are not looked at, and only those
//     that an edge cuts are masked. Blocks of queries that see most keys are the first of their heads.
//   - While the tensor cores have the scores of a tile to compute, threads draw which of their weights dropout keeps, a bit each.
//
// Cut, a struct of constants, says what is computed and how:
//   T                                     elements
//   BATCH, HEADS, GROUPS, QUERIES, KEYS   heads of queries, and of keys and values; HEADS / GROUPS share one
//   FEATURES, VALUES                      of queries and keys; of values: up to 256
//   CAUSAL                                query t sees keys up to t + KEYS - QUERIES
//   WINDOW                                and from t + KEYS - QUERIES - WINDOW + 1 on; 0: from the first on
//   LOOKERS, COLUMNS, STAGES              warpgroups that look at keys; keys of a tile; of each ring
//   KEEPS                                 sets of queries there is room for: of a second one copies come while the first is looked at
//   TOGETHER                              heads whose blocks of queries run side by side
//   SCALE                                 of scores; more than 0
//   IS_CAPPED, CAP                        whether a score x becomes CAP tanh(x / CAP)
//   LEAST_KEPT, KEPT                      draws of 24 bits below it drop a weight, 0: none is; by what others are multiplied

#ifndef PICOGRAD_HOPPER_ATTENTION_H
#define PICOGRAD_HOPPER_ATTENTION_H

#include "hopper_heads.h"

template <class Cut> struct Sizes {
  static const int32 ROWS = 64 * Cut::LOOKERS, BLOCKS = (Cut::QUERIES + ROWS - 1) / ROWS, EVERY = Cut::BATCH * Cut::HEADS;
  static const int32 PIECES = (Cut::FEATURES + 63) / 64, VALUE_PIECES = (Cut::VALUES + 63) / 64;  // of 128 bytes a row
  static const int32 Q_LENGTH = PIECES * ROWS * 64, K_LENGTH = PIECES * Cut::COLUMNS * 64;
  static const int32 V_LENGTH = VALUE_PIECES * Cut::COLUMNS * 64;
  static const int32 SLABS = VALUE_PIECES > 2 ? 2 : VALUE_PIECES, SLAB_LENGTH = SLABS * 4096;  // of a warpgroup: two are used again
  static const int32 SCORES = Cut::COLUMNS / 2, SUMS = VALUE_PIECES * 32;  // of a thread
};

// The first query of a block's in its turn, -1 behind the last, and its head. Those that see most keys come first.
struct Queries { int32 first, head; };
template <class Cut> PRIMITIVE Queries queries_of(int32 turn) {
  typedef Sizes<Cut> Is;
  const Where own = part_of<Is::BLOCKS, Is::EVERY, Cut::TOGETHER>(turn);
  return {own.number < 0 ? -1 : (Is::BLOCKS - 1 - own.number) * Is::ROWS, own.head};
}

template <class Cut> PRIMITIVE Tiles tiles_of(int32 first, int32 count) {
  return {first_key_of<Cut>(first) / Cut::COLUMNS, (keys_of<Cut>(first, count) + Cut::COLUMNS - 1) / Cut::COLUMNS};
}

// ---- one thread: fills the rings ----
template <class Cut, class Q, class K, class V, class One, class Ring>
PRIMITIVE void copy_heads(const Q& q, const K& k, const V& v, const TileMap& q_map, const TileMap& k_map, const TileMap& v_map,
                          const One& q_full, const One& q_empty, const Ring& k_full, const Ring& k_empty, const Ring& v_full,
                          const Ring& v_empty) {
  typedef Sizes<Cut> Is;
  int32 use = 0;
  for (int32 turn = 0;; turn++) {
    const Queries own = queries_of<Cut>(turn);
    if (own.first < 0) break;
    const int32 set = turn % Cut::KEEPS;
    mbarrier_wait(q_empty, set, turn / Cut::KEEPS % 2 ^ 1);
    mbarrier_arrive_expecting(q_full, set, Is::Q_LENGTH * (int32)sizeof(typename Cut::T));
    const int32 head = own.head % Cut::HEADS, group = head / (Cut::HEADS / Cut::GROUPS), batch = own.head / Cut::HEADS;
    load_pieces<Is::PIECES, Is::ROWS>(q, set * Is::Q_LENGTH, q_map, q_full, set, own.first, head, batch);
    const Tiles tiles = tiles_of<Cut>(own.first, Is::ROWS);
    for (int32 tile = tiles.end - 1; tile >= tiles.begin; tile--) {
      const int32 stage = stage_of<Cut>(use), first = tile * Cut::COLUMNS;
      const uint32 parity = parity_of<Cut>(use++) ^ 1;
      mbarrier_wait(k_empty, stage, parity);
      mbarrier_arrive_expecting(k_full, stage, Is::K_LENGTH * (int32)sizeof(typename Cut::T));
      load_pieces<Is::PIECES, Cut::COLUMNS>(k, stage * Is::K_LENGTH, k_map, k_full, stage, first, group, batch);
      mbarrier_wait(v_empty, stage, parity);
      mbarrier_arrive_expecting(v_full, stage, Is::V_LENGTH * (int32)sizeof(typename Cut::T));
      load_pieces<Is::VALUE_PIECES, Cut::COLUMNS>(v, stage * Is::V_LENGTH, v_map, v_full, stage, first, group, batch);
    }
  }
}

// ---- a warpgroup: looks at keys ----
// Has scores become powers of how much less they are than the greatest of their row, of which a thread has two. factor: by which what
// was summed before is moved.
template <class Cut, class Scores, class Rows>
PRIMITIVE void weigh(Scores& scores, uint64 kept, Rows& peak, Rows& total, Rows& factor, int32 first, int32 first_key) {
  typedef Sizes<Cut> Is;
  const float32 scale = exponent_factor<Cut>();
  bend<Cut>(scores);
  hide<Cut, false>(scores, first, first_key);
#pragma unroll
  for (int32 row = 0; row < 2; row++) {
    float32 greatest = peak[row];
#pragma unroll
    for (int32 i = 2 * row; i < Is::SCORES; i += 4) greatest = fmaxf(greatest, fmaxf(scores[i], scores[i + 1]));
    greatest = fmaxf(greatest, shuffle_xor(greatest, 1));
    greatest = fmaxf(greatest, shuffle_xor(greatest, 2));
    const float32 from = greatest == below_all() ? 0.0f : greatest * scale;
    factor[row] = rough_exp2(fmaf(peak[row], scale, -from));
    peak[row] = greatest;
    float32 sum = total[row] * factor[row];
#pragma unroll
    for (int32 i = 2 * row; i < Is::SCORES; i += 4) {
      const float32 one = rough_exp2(fmaf(scores[i], scale, -from)), other = rough_exp2(fmaf(scores[i + 1], scale, -from));
      scores[i] = dropped<Cut>(one, kept, i);
      scores[i + 1] = dropped<Cut>(other, kept, i + 1);
      sum += one + other;
    }
    total[row] = sum;
  }
}

template <class Cut, class Q, class K, class V, class Slabs, class One, class Ring, class Drawing, class Finish>
PRIMITIVE void look_at_heads(const Q& q, const K& k, const V& v, const Slabs& slabs, const TileMap& out_map, const One& q_full,
                             const One& q_empty, const Ring& k_full, const Ring& k_empty, const Ring& v_full,
                             const Ring& v_empty, int32 warpgroup, const Drawing& draws_of, const Finish& finish) {
  typedef Sizes<Cut> Is;
  const bool arrives = threadIdx.x % 128 == 0;
  REGISTERS(float32, scores, Is::SCORES);
  REGISTERS(uint32, weights, Cut::COLUMNS / 4);
  REGISTERS(float32, sums, Is::SUMS);
  REGISTERS(float32, peak, 2);
  REGISTERS(float32, total, 2);
  REGISTERS(float32, factor, 2);
  int32 use = 0;
  const auto skip = [&](int32 num) {  // tiles that others of the block see
    for (; num > 0; num--) {
      mbarrier_wait(k_full, stage_of<Cut>(use), parity_of<Cut>(use));
      if (arrives) mbarrier_arrive(k_empty, stage_of<Cut>(use));
      mbarrier_wait(v_full, stage_of<Cut>(use), parity_of<Cut>(use));
      if (arrives) mbarrier_arrive(v_empty, stage_of<Cut>(use));
      use++;
    }
  };
  for (int32 turn = 0;; turn++) {
    const Queries own = queries_of<Cut>(turn);
    if (own.first < 0) break;
    const int32 first = own.first + warpgroup * 64;
    const Tiles every = tiles_of<Cut>(own.first, Is::ROWS), seen = tiles_of<Cut>(first, 64);
    const Tiles tiles = seen.begin < seen.end ? seen : Tiles{every.begin, every.begin};
    const Draws draws = draws_of(own.head / Cut::HEADS, own.head % Cut::HEADS);
    const int32 set = turn % Cut::KEEPS, own_rows = set * Is::Q_LENGTH + warpgroup * 4096;
#pragma unroll
    for (int32 i = 0; i < 2; i++) {
      peak[i] = below_all();
      total[i] = 0.0f;
    }
#pragma unroll
    for (int32 i = 0; i < Is::SUMS; i++) sums[i] = 0.0f;
    skip(every.end - tiles.end);
    mbarrier_wait(q_full, set, turn / Cut::KEEPS % 2);
    const int32 num = tiles.end - tiles.begin;
    if (num == 0 && arrives) mbarrier_arrive(q_empty, set);
    if (num > 0) {
      mbarrier_wait(k_full, stage_of<Cut>(use), parity_of<Cut>(use));
      start_scores<Is::PIECES, Is::ROWS, Cut::COLUMNS>(scores, q, own_rows, k, stage_of<Cut>(use) * Is::K_LENGTH);
      uint64 kept = draw<Cut, false>(draws, first, (tiles.end - 1) * Cut::COLUMNS);
      wgmma_wait<0, Is::SCORES>(scores, 0);
      if (arrives) mbarrier_arrive(k_empty, stage_of<Cut>(use));
      if (arrives && num == 1) mbarrier_arrive(q_empty, set);
      weigh<Cut>(scores, kept, peak, total, factor, first, (tiles.end - 1) * Cut::COLUMNS);
      round_all<typename Cut::T, Cut::COLUMNS>(weights, scores);
      for (int32 tile = tiles.end - 2; tile >= tiles.begin; tile--) {
        use++;
        mbarrier_wait(k_full, stage_of<Cut>(use), parity_of<Cut>(use));
        start_scores<Is::PIECES, Is::ROWS, Cut::COLUMNS>(scores, q, own_rows, k, stage_of<Cut>(use) * Is::K_LENGTH);
        mbarrier_wait(v_full, stage_of<Cut>(use - 1), parity_of<Cut>(use - 1));
        start_sums<Is::VALUE_PIECES, Cut::COLUMNS>(sums, weights, v, stage_of<Cut>(use - 1) * Is::V_LENGTH);
        kept = draw<Cut, false>(draws, first, tile * Cut::COLUMNS);
        wgmma_wait<1, Is::SCORES>(scores, 0);
        wgmma_done<Is::SCORES>(scores, 0);
        if (arrives) mbarrier_arrive(k_empty, stage_of<Cut>(use));
        if (arrives && tile == tiles.begin) mbarrier_arrive(q_empty, set);
        weigh<Cut>(scores, kept, peak, total, factor, first, tile * Cut::COLUMNS);
        wgmma_wait<0, Is::SUMS>(sums, 0);
        wgmma_done<Cut::COLUMNS / 4>(weights, 0);
        if (arrives) mbarrier_arrive(v_empty, stage_of<Cut>(use - 1));
#pragma unroll
        for (int32 i = 0; i < Is::SUMS; i++) sums[i] = sums[i] * factor[i / 2 % 2];
        round_all<typename Cut::T, Cut::COLUMNS>(weights, scores);
      }
      mbarrier_wait(v_full, stage_of<Cut>(use), parity_of<Cut>(use));
      start_sums<Is::VALUE_PIECES, Cut::COLUMNS>(sums, weights, v, stage_of<Cut>(use) * Is::V_LENGTH);
      wgmma_wait<0, Is::SUMS>(sums, 0);
      if (arrives) mbarrier_arrive(v_empty, stage_of<Cut>(use));
      use++;
    }
    if constexpr (Cut::WINDOW > 0) skip(tiles.begin - every.begin);
    const int32 thread = thread_here() % 128;
#pragma unroll
    for (int32 i = 0; i < 2; i++) {
      total[i] = total[i] + shuffle_xor((float32)total[i], 1);
      total[i] = total[i] + shuffle_xor((float32)total[i], 2);
      const int32 query = first + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
      if (thread % 4 == 0 && query < Cut::QUERIES)
        finish(own.head * (int64)Cut::QUERIES + query, fmaf(peak[i], factor_of<Cut>(), logf(total[i])));
    }
    const float32 upper = total[0] == 0.0f ? 0.0f : Cut::KEPT / total[0], lower = total[1] == 0.0f ? 0.0f : Cut::KEPT / total[1];
    const bool any = first < Cut::QUERIES;
    const int32 slab = warpgroup * Is::SLABS, head = own.head % Cut::HEADS, batch = own.head / Cut::HEADS;
    store_rows<typename Cut::T, 0, Is::SLABS, 0>(sums, upper, lower, slabs, out_map, slab, any, first, head, batch);
    if constexpr (Is::VALUE_PIECES > 2)
      store_rows<typename Cut::T, 2, Is::VALUE_PIECES - 2, 0>(sums, upper, lower, slabs, out_map, slab, any, first, head, batch);
  }
  if (arrives) wait_stores<0>();
}

// A whole block, of 128 (1 + LOOKERS) threads. draws_of(batch, head) gives what a head draws; finish(index, logsumexp) is told of each
// query.
template <class Cut, class Drawing, class Finish>
PRIMITIVE void attend(const TileMap& q_map, const TileMap& k_map, const TileMap& v_map, const TileMap& out_map,
                      const Drawing& draws_of, const Finish& finish) {
  typedef Sizes<Cut> Is;
  typedef typename Cut::T T;
  const int32 K_BEGINS = Cut::KEEPS * Is::Q_LENGTH * 2, V_BEGINS = K_BEGINS + Cut::STAGES * Is::K_LENGTH * 2,
              SLABS_BEGIN = V_BEGINS + Cut::STAGES * Is::V_LENGTH * 2;
  SHARED_TILE_AT(T, q, Cut::KEEPS * Is::Q_LENGTH, 0);
  SHARED_TILE_AT(T, k, Cut::STAGES * Is::K_LENGTH, K_BEGINS);
  SHARED_TILE_AT(T, v, Cut::STAGES * Is::V_LENGTH, V_BEGINS);
  SHARED_TILE_AT(T, slabs, Cut::LOOKERS * Is::SLAB_LENGTH, SLABS_BEGIN);
  MBARRIERS(q_full, Cut::KEEPS);
  MBARRIERS(q_empty, Cut::KEEPS);
  MBARRIERS(k_full, Cut::STAGES);
  MBARRIERS(k_empty, Cut::STAGES);
  MBARRIERS(v_full, Cut::STAGES);
  MBARRIERS(v_empty, Cut::STAGES);
  if (threadIdx.x == 0) {
    for (int32 set = 0; set < Cut::KEEPS; set++) {
      mbarrier_init(q_full, set, 1);
      mbarrier_init(q_empty, set, Cut::LOOKERS);
    }
    for (int32 stage = 0; stage < Cut::STAGES; stage++) {
      mbarrier_init(k_full, stage, 1);
      mbarrier_init(v_full, stage, 1);
      mbarrier_init(k_empty, stage, Cut::LOOKERS);
      mbarrier_init(v_empty, stage, Cut::LOOKERS);
    }
    fence_mbarriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<Cut::LOOKERS == 3 ? 32 : 24>();
    if (threadIdx.x < 32 && is_elected())
      copy_heads<Cut>(q, k, v, q_map, k_map, v_map, q_full, q_empty, k_full, k_empty, v_full, v_empty);
  } else {
    more_registers<Cut::LOOKERS == 3 ? 160 : 240>();
    look_at_heads<Cut>(q, k, v, slabs, out_map, q_full, q_empty, k_full, k_empty, v_full, v_empty, of_warp(threadIdx.x / 128) - 1,
                       draws_of, finish);
  }
}

#endif
