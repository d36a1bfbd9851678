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
//   - Of a causal attention tiles are seen from the diagonal on; those behind it are not looked at, and only those that it cuts
//     are masked. Blocks of queries that see most keys are the first of their heads.
//
// Cut, a struct of constants, says what is computed and how:
//   T                                     elements
//   BATCH, HEADS, GROUPS, QUERIES, KEYS   heads of queries, and of keys and values; HEADS / GROUPS share one
//   FEATURES, VALUES                      of queries and keys; of values: up to 128
//   CAUSAL                                query t sees keys up to t + KEYS - QUERIES
//   LOOKERS, COLUMNS, STAGES              warpgroups that look at keys; keys of a tile; of each ring
//   TOGETHER                              heads whose blocks of queries run side by side
//   SCALE                                 of scores; more than 0

#ifndef PICOGRAD_HOPPER_ATTENTION_H
#define PICOGRAD_HOPPER_ATTENTION_H

#include "hopper.h"

template <class Cut> struct Sizes {
  static const int32 ROWS = 64 * Cut::LOOKERS, BLOCKS = (Cut::QUERIES + ROWS - 1) / ROWS, EVERY = Cut::BATCH * Cut::HEADS;
  static const int32 PIECES = (Cut::FEATURES + 63) / 64, VALUE_PIECES = (Cut::VALUES + 63) / 64;  // of 128 bytes a row
  static const int32 Q_LENGTH = PIECES * ROWS * 64, K_LENGTH = PIECES * Cut::COLUMNS * 64;
  static const int32 V_LENGTH = VALUE_PIECES * Cut::COLUMNS * 64, SLAB_LENGTH = VALUE_PIECES * 4096;
  static const int32 SCORES = Cut::COLUMNS / 2, SUMS = VALUE_PIECES * 32;  // of a thread
};

PRIMITIVE float32 below_all() { return float32_of_bits(0xff800000u); }  // -inf

// head: of all in the batch
struct Where { int32 first, head; };

// The block of queries that a block of threads has in its turn; every other turn goes the other way, so that none has always the longest.
template <class Cut> PRIMITIVE Where queries_of(int32 turn) {
  const int32 blocks = Sizes<Cut>::BLOCKS, every = Sizes<Cut>::EVERY, wide = gridDim.x, own = blockIdx.x;
  const int32 number = turn * wide + (turn % 2 ? wide - 1 - own : own), group = number / (blocks * Cut::TOGETHER);
  if (number >= blocks * every) return {-1, 0};
  const int32 first = group * Cut::TOGETHER, heads = every - first < Cut::TOGETHER ? every - first : Cut::TOGETHER;
  const int32 in_group = number - first * blocks;
  return {(blocks - 1 - in_group / heads) * Sizes<Cut>::ROWS, first + in_group % heads};
}

// Keys that some of `count` queries see: from the first on.
template <class Cut> PRIMITIVE int32 keys_of(int32 first, int32 count) {
  if (first >= Cut::QUERIES) return 0;
  const int32 last = (first + count < Cut::QUERIES ? first + count : Cut::QUERIES) + Cut::KEYS - Cut::QUERIES;
  return !Cut::CAUSAL || last > Cut::KEYS ? Cut::KEYS : last < 0 ? 0 : last;
}
template <class Cut> PRIMITIVE int32 tiles_of(int32 first, int32 count) {
  return (keys_of<Cut>(first, count) + Cut::COLUMNS - 1) / Cut::COLUMNS;
}

// The stage of the ring's use of that number, and whether it is filled for an odd time.
template <class Cut> PRIMITIVE int32 stage_of(int32 use) { return use % Cut::STAGES; }
template <class Cut> PRIMITIVE uint32 parity_of(int32 use) { return use / Cut::STAGES % 2; }

// ---- one thread: fills the rings ----
template <class Cut, class Tile, class Barriers>
PRIMITIVE void load_keys(const Tile& tile, int32 length, const TileMap& map, const Barriers& full, int32 stage, int32 first,
                         int32 head) {
  mbarrier_arrive_expecting(full, stage, length * (int32)sizeof(typename Cut::T));
#pragma unroll
  for (int32 piece = 0; piece < length / (Cut::COLUMNS * 64); piece++)
    load_tile(tile, stage * length + piece * Cut::COLUMNS * 64, map, full, stage, piece * 64, first,
              head % Cut::HEADS / (Cut::HEADS / Cut::GROUPS), head / Cut::HEADS);
}

template <class Cut, class Q, class K, class V, class One, class Ring>
PRIMITIVE void copy_heads(const Q& q, const K& k, const V& v, const TileMap& q_map, const TileMap& k_map, const TileMap& v_map,
                          const One& q_full, const One& q_empty, const Ring& k_full, const Ring& k_empty, const Ring& v_full,
                          const Ring& v_empty) {
  typedef Sizes<Cut> Is;
  int32 use = 0;
  for (int32 turn = 0;; turn++) {
    const Where own = queries_of<Cut>(turn);
    if (own.first < 0) break;
    mbarrier_wait(q_empty, 0, (turn + 1) % 2);
    mbarrier_arrive_expecting(q_full, 0, Is::Q_LENGTH * (int32)sizeof(typename Cut::T));
#pragma unroll
    for (int32 piece = 0; piece < Is::PIECES; piece++)
      load_tile(q, piece * Is::ROWS * 64, q_map, q_full, 0, piece * 64, own.first, own.head % Cut::HEADS, own.head / Cut::HEADS);
    for (int32 tile = tiles_of<Cut>(own.first, Is::ROWS) - 1; tile >= 0; tile--) {
      const int32 stage = stage_of<Cut>(use);
      const uint32 parity = parity_of<Cut>(use++) ^ 1;
      mbarrier_wait(k_empty, stage, parity);
      load_keys<Cut>(k, Is::K_LENGTH, k_map, k_full, stage, tile * Cut::COLUMNS, own.head);
      mbarrier_wait(v_empty, stage, parity);
      load_keys<Cut>(v, Is::V_LENGTH, v_map, v_full, stage, tile * Cut::COLUMNS, own.head);
    }
  }
}

// ---- a warpgroup: looks at keys ----
// Starts scores = q @ k.T.
template <class Cut, class Scores, class Q, class K>
PRIMITIVE void start_scores(Scores& scores, const Q& q, int32 warpgroup, const K& k, int32 stage) {
  typedef Sizes<Cut> Is;
  const auto left = operand_at<false>(q, warpgroup * 4096);
  const auto right = operand_at<false>(k, stage * Is::K_LENGTH);
  wgmma_fence<Is::SCORES>(scores, 0);
#pragma unroll
  for (int32 part = 0; part < Is::PIECES * 4; part++)
    wgmma_m64k16<Cut::COLUMNS>(scores, 0, moved(left, part / 4 * Is::ROWS * 64 + part % 4 * 16),
                               moved(right, part / 4 * Cut::COLUMNS * 64 + part % 4 * 16), part > 0);
  wgmma_commit();
}

// Starts sums += weights @ v.
template <class Cut, class Sums, class Weights, class V>
PRIMITIVE void start_sums(Sums& sums, Weights& weights, const V& v, int32 stage) {
  typedef Sizes<Cut> Is;
  const auto right = operand_at<true>(v, stage * Is::V_LENGTH, Cut::COLUMNS * 64);
  wgmma_fence<Cut::COLUMNS / 4>(weights, 0);
  wgmma_fence<Is::SUMS>(sums, 0);
#pragma unroll
  for (int32 part = 0; part < Cut::COLUMNS / 16; part++)
    wgmma_m64k16<Is::SUMS * 2>(sums, 0, weights, part * 4, moved(right, part * 1024), true);
  wgmma_commit();
}

// Has scores become powers of how much less they are than the greatest of their row, of which a thread has two. factor: by which what
// was summed before is moved.
template <class Cut, class Scores, class Rows>
PRIMITIVE void weigh(Scores& scores, Rows& peak, Rows& total, Rows& factor, int32 first, int32 first_key) {
  typedef Sizes<Cut> Is;
  const float32 scale = Cut::SCALE * 1.4426950408889634f;
  if (keys_of<Cut>(first, 1) < first_key + Cut::COLUMNS) {
    const int32 thread = thread_here() % 128, own = first + thread / 32 * 16 + thread % 32 / 4 + Cut::KEYS - Cut::QUERIES;
#pragma unroll
    for (int32 row = 0; row < 2; row++) {
      const int32 position = own + 8 * row, end = Cut::CAUSAL && position < Cut::KEYS ? position + 1 : Cut::KEYS;
      const int32 seen = end - first_key - thread % 4 * 2;
#pragma unroll
      for (int32 i = 2 * row; i < Is::SCORES; i += 4) {
        if (8 * (i / 4) >= seen) scores[i] = below_all();
        if (8 * (i / 4) + 1 >= seen) scores[i + 1] = below_all();
      }
    }
  }
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
      scores[i] = one;
      scores[i + 1] = other;
      sum += one + other;
    }
    total[row] = sum;
  }
}

template <class Cut, class Weights, class Scores> PRIMITIVE void round_weights(Weights& weights, Scores& scores) {
#pragma unroll
  for (int32 i = 0; i < Cut::COLUMNS / 4; i++) weights[i] = pair_up(scores[2 * i], scores[2 * i + 1], typename Cut::T{});
}

// Stores the averages of 64 queries through shared memory.
template <class Cut, class Sums, class Rows, class Slabs>
PRIMITIVE void store_averages(Sums& sums, Rows& total, const Slabs& slabs, const TileMap& map, int32 warpgroup, int32 first,
                              int32 head) {
  typedef Sizes<Cut> Is;
  typedef typename Cut::T T;
  const int32 thread = thread_here() % 128, lane = thread % 32, row = 16 * (thread / 32) + lane % 16;
  REGISTERS(float32, inverse, 2);
#pragma unroll
  for (int32 i = 0; i < 2; i++) inverse[i] = total[i] == 0.0f ? 0.0f : 1.0f / total[i];
  if (thread == 0) wait_stores<0>();  // what was there has left
  sync_warpgroup();
#pragma unroll
  for (int32 column = 0; column < Is::VALUE_PIECES * 64; column += 16) {
    REGISTERS(T, narrow, 8);
#pragma unroll
    for (int32 i = 0; i < 8; i++) narrow[i] = narrowed(sums[column / 2 + i] * inverse[i / 2 % 2], T{});
    const int32 slab = (warpgroup * Is::VALUE_PIECES + column / 64) * 4096;
    store_matrices(slabs, slab + swizzled<T>(row * 64 + column % 64 + lane / 16 * 8), narrow, 0);
  }
  fence_async_proxy();
  sync_warpgroup();
  if (thread == 0 && first < Cut::QUERIES) {
#pragma unroll
    for (int32 piece = 0; piece < Is::VALUE_PIECES; piece++)
      store_tile(map, slabs, (warpgroup * Is::VALUE_PIECES + piece) * 4096, piece * 64, first, head % Cut::HEADS, head / Cut::HEADS);
    commit_stores();
  }
}

template <class Cut, class Q, class K, class V, class Slabs, class One, class Ring, class Finish>
PRIMITIVE void look_at_heads(const Q& q, const K& k, const V& v, const Slabs& slabs, const TileMap& out_map, const One& q_full,
                             const One& q_empty, const Ring& k_full, const Ring& k_empty, const Ring& v_full,
                             const Ring& v_empty, int32 warpgroup, const Finish& finish) {
  typedef Sizes<Cut> Is;
  const bool arrives = threadIdx.x % 128 == 0;
  REGISTERS(float32, scores, Is::SCORES);
  REGISTERS(uint32, weights, Cut::COLUMNS / 4);
  REGISTERS(float32, sums, Is::SUMS);
  REGISTERS(float32, peak, 2);
  REGISTERS(float32, total, 2);
  REGISTERS(float32, factor, 2);
  int32 use = 0;
  for (int32 turn = 0;; turn++) {
    const Where own = queries_of<Cut>(turn);
    if (own.first < 0) break;
    const int32 first = own.first + warpgroup * 64, tiles = tiles_of<Cut>(first, 64);
#pragma unroll
    for (int32 i = 0; i < 2; i++) {
      peak[i] = below_all();
      total[i] = 0.0f;
    }
#pragma unroll
    for (int32 i = 0; i < Is::SUMS; i++) sums[i] = 0.0f;
    for (int32 skipped = tiles_of<Cut>(own.first, Is::ROWS) - tiles; skipped > 0; skipped--) {  // others of the block see these
      mbarrier_wait(k_full, stage_of<Cut>(use), parity_of<Cut>(use));
      if (arrives) mbarrier_arrive(k_empty, stage_of<Cut>(use));
      mbarrier_wait(v_full, stage_of<Cut>(use), parity_of<Cut>(use));
      if (arrives) mbarrier_arrive(v_empty, stage_of<Cut>(use));
      use++;
    }
    mbarrier_wait(q_full, 0, turn % 2);
    if (tiles == 0 && arrives) mbarrier_arrive(q_empty, 0);
    if (tiles > 0) {
      mbarrier_wait(k_full, stage_of<Cut>(use), parity_of<Cut>(use));
      start_scores<Cut>(scores, q, warpgroup, k, stage_of<Cut>(use));
      wgmma_wait<0, Is::SCORES>(scores, 0);
      if (arrives) mbarrier_arrive(k_empty, stage_of<Cut>(use));
      if (arrives && tiles == 1) mbarrier_arrive(q_empty, 0);
      weigh<Cut>(scores, peak, total, factor, first, (tiles - 1) * Cut::COLUMNS);
      round_weights<Cut>(weights, scores);
      for (int32 tile = tiles - 2; tile >= 0; tile--) {
        use++;
        mbarrier_wait(k_full, stage_of<Cut>(use), parity_of<Cut>(use));
        start_scores<Cut>(scores, q, warpgroup, k, stage_of<Cut>(use));
        mbarrier_wait(v_full, stage_of<Cut>(use - 1), parity_of<Cut>(use - 1));
        start_sums<Cut>(sums, weights, v, stage_of<Cut>(use - 1));
        wgmma_wait<1, Is::SCORES>(scores, 0);
        wgmma_done<Is::SCORES>(scores, 0);
        if (arrives) mbarrier_arrive(k_empty, stage_of<Cut>(use));
        if (arrives && tile == 0) mbarrier_arrive(q_empty, 0);
        weigh<Cut>(scores, peak, total, factor, first, tile * Cut::COLUMNS);
        wgmma_wait<0, Is::SUMS>(sums, 0);
        wgmma_done<Cut::COLUMNS / 4>(weights, 0);
        if (arrives) mbarrier_arrive(v_empty, stage_of<Cut>(use - 1));
#pragma unroll
        for (int32 i = 0; i < Is::SUMS; i++) sums[i] = sums[i] * factor[i / 2 % 2];
        round_weights<Cut>(weights, scores);
      }
      mbarrier_wait(v_full, stage_of<Cut>(use), parity_of<Cut>(use));
      start_sums<Cut>(sums, weights, v, stage_of<Cut>(use));
      wgmma_wait<0, Is::SUMS>(sums, 0);
      if (arrives) mbarrier_arrive(v_empty, stage_of<Cut>(use));
      use++;
    }
    const int32 thread = thread_here() % 128;
#pragma unroll
    for (int32 i = 0; i < 2; i++) {
      total[i] = total[i] + shuffle_xor((float32)total[i], 1);
      total[i] = total[i] + shuffle_xor((float32)total[i], 2);
      const int32 query = first + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
      if (thread % 4 == 0 && query < Cut::QUERIES)
        finish(own.head * (int64)Cut::QUERIES + query, fmaf(peak[i], Cut::SCALE, logf(total[i])));
    }
    store_averages<Cut>(sums, total, slabs, out_map, warpgroup, first, own.head);
  }
  if (arrives) wait_stores<0>();
}

// A whole block, of 128 (1 + LOOKERS) threads. finish(index, logsumexp) is told of each query.
template <class Cut, class Finish>
PRIMITIVE void attend(const TileMap& q_map, const TileMap& k_map, const TileMap& v_map, const TileMap& out_map,
                      const Finish& finish) {
  typedef Sizes<Cut> Is;
  typedef typename Cut::T T;
  const int32 K_BEGINS = Is::Q_LENGTH * 2, V_BEGINS = K_BEGINS + Cut::STAGES * Is::K_LENGTH * 2,
              SLABS_BEGIN = V_BEGINS + Cut::STAGES * Is::V_LENGTH * 2;
  SHARED_TILE_AT(T, q, Is::Q_LENGTH, 0);
  SHARED_TILE_AT(T, k, Cut::STAGES * Is::K_LENGTH, K_BEGINS);
  SHARED_TILE_AT(T, v, Cut::STAGES * Is::V_LENGTH, V_BEGINS);
  SHARED_TILE_AT(T, slabs, Cut::LOOKERS * Is::SLAB_LENGTH, SLABS_BEGIN);
  MBARRIERS(q_full, 1);
  MBARRIERS(q_empty, 1);
  MBARRIERS(k_full, Cut::STAGES);
  MBARRIERS(k_empty, Cut::STAGES);
  MBARRIERS(v_full, Cut::STAGES);
  MBARRIERS(v_empty, Cut::STAGES);
  if (threadIdx.x == 0) {
    mbarrier_init(q_full, 0, 1);
    mbarrier_init(q_empty, 0, Cut::LOOKERS);
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
    look_at_heads<Cut>(q, k, v, slabs, out_map, q_full, q_empty, k_full, k_empty, v_full, v_empty, threadIdx.x / 128 - 1, finish);
  }
}

#endif
