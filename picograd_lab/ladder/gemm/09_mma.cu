// Mma: a warp multiplies matrices of bfloat16 by one instruction.
//
// 16 x 16 by 16 x 8 are 2048 multiply-adds, by the tensor cores; the operands are bfloat16, the sums float32. ldmatrix brings four matrices of 8 x 8
// from shared memory to where the instruction wants them, b transposed on the way. A warp has 64 x 32 elements as before: for 16 of K
// it reads 6 times four matrices and multiplies 16 times. Rows of the tiles are 8 elements longer, so that the 8 rows of a
// matrix are in different banks. What is left: every operand passes through registers, and every thread helps to copy.
#include "primitives.h"

static const int32 TILE = 128, DEPTH = 32, THREADS = 256, STAGES = 3, A_LINE = DEPTH + 8, B_LINE = TILE + 8;
static const int32 ROWS = 64, COLUMNS = 32, WARPS_WIDE = TILE / COLUMNS;  // of a warp
static const int32 HIGH = ROWS / 16, WIDE = COLUMNS / 8;                  // products of it
static const int32 A_LENGTH = TILE * A_LINE, B_LENGTH = DEPTH * B_LINE;

extern "C" __global__ void __launch_bounds__(THREADS)
    mma(Global<const bfloat16> a, Global<const bfloat16> b, Global<Result> c) {
  SHARED_AT(bfloat16, a_tile, STAGES * A_LENGTH, 0);
  SHARED_AT(bfloat16, b_tile, STAGES * B_LENGTH, STAGES * A_LENGTH * 2);
  REGISTERS(float32, sums, HIGH * WIDE * 4);
  REGISTERS(bfloat16, left, HIGH * 8);
  REGISTERS(bfloat16, right, WIDE * 4);
  const int32 tiles = (N + TILE - 1) / TILE, top = blockIdx.x / tiles * TILE, first_column = blockIdx.x % tiles * TILE;
  const int32 t = threadIdx.x, warp = t / 32, lane = t % 32, y = warp / WARPS_WIDE * ROWS, x = warp % WARPS_WIDE * COLUMNS;
  const auto copy_step = [&](int32 step) {  // a group of copies, which may be empty
    const int32 stage = step % STAGES, first = step * DEPTH;
#pragma unroll
    for (int32 i = t; i < TILE * DEPTH / 8 && first < K; i += THREADS) {
      const int32 row = i / 4, k = i % 4 * 8, b_row = i / 16, column = i % 16 * 8;
      copy_async<8>(a_tile, stage * A_LENGTH + row * A_LINE + k, a, (top + row) * K + first + k, top + row < M && first + k < K);
      copy_async<8>(b_tile, stage * B_LENGTH + b_row * B_LINE + column, b, (first + b_row) * N + first_column + column,
                    first + b_row < K && first_column + column < N);
    }
    commit_copies();
  };
#pragma unroll
  for (int32 i = 0; i < HIGH * WIDE * 4; i++) sums[i] = 0.0f;
  for (int32 step = 0; step < STAGES - 1; step++) copy_step(step);
  for (int32 step = 0; step * DEPTH < K; step++) {
    wait_copies<STAGES - 2>();
    __syncthreads();
    copy_step(step + STAGES - 1);
    const int32 a_begins = step % STAGES * A_LENGTH, b_begins = step % STAGES * B_LENGTH;
#pragma unroll
    for (int32 k = 0; k < DEPTH; k += 16) {
      const int32 line = lane % 16, beyond = lane / 16 * 8;  // of the row of 8 elements that the thread names
#pragma unroll
      for (int32 i = 0; i < HIGH; i++)
        load_matrices<false>(left, i * 8, a_tile, a_begins + (y + i * 16 + line) * A_LINE + k + beyond);
#pragma unroll
      for (int32 j = 0; j < WIDE; j += 2)
        load_matrices<true>(right, j * 4, b_tile, b_begins + (k + line) * B_LINE + x + j * 8 + beyond);
#pragma unroll
      for (int32 i = 0; i < HIGH; i++)
#pragma unroll
        for (int32 j = 0; j < WIDE; j++) mma_m16n8k16(sums, (i * WIDE + j) * 4, left, i * 8, right, j * 4);
    }
  }
#pragma unroll
  for (int32 i = 0; i < HIGH * WIDE * 2; i++) {  // pairs of neighbours
    const int32 row = top + y + i / 2 / WIDE * 16 + i % 2 * 8 + lane / 4;
    const int32 column = first_column + x + i / 2 % WIDE * 8 + lane % 4 * 2;
    const Result first = narrowed(sums[i * 2], Result{}), second = narrowed(sums[i * 2 + 1], Result{});
    if (row < M && column < N) store_lanes(c, row * N + column, Lanes<Result, 2>{first, second});
  }
}
