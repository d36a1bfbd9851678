// Tiles: a small layer for kernels of a user's own, on the GPU and on the simulator. `using namespace tiles;` behind the line that
// includes it.
//
//   matrix(memory, rows, columns)               row-major memory of the device that knows where it ends
//   BLOCK_TILE(T, name, ROWS, COLUMNS)          a tile in shared memory; name(row, column) is an element
//   Accumulators<HIGH, WIDE> name               a warp's tile in registers, 16 HIGH x 8 WIDE of float32
//   load(tile, matrix, top, left)               by all threads of the block; zeros outside of the matrix
//   store(matrix, top, left, tile)              by all threads of the block; what is outside stays as it is
//   store(matrix, top, left, accumulators, f)   by the warp; f(element), which may be left out, is what is stored
//   clear(accumulators)
//   mma(accumulators, a, row, b, column)        += a(row.., all) @ b(all, column..): tiles of float16, bfloat16, float32 (TF32)
//   barrier()                                   all threads of the block have come here
//
// Rows of a tile are 16 bytes further apart than they are long, so that rows at a time are in different banks.

#ifndef PICOGRAD_TILES_H
#define PICOGRAD_TILES_H

#include "primitives.h"

// A message of the simulator names the line that calls.
#ifdef __CUDACC_RTC__
#define MEMBER __device__ __forceinline__
#define CALLED_FROM
#define AT_LINE(index) (index)
#else
#define MEMBER ACCESSOR
#define CALLED_FROM , int32 line = __builtin_LINE()
#define AT_LINE(index) cudasim::Place(index, line)
#endif

namespace tiles {

// ---- memory ----
template <class Memory> struct Matrix {
  Memory memory;
  int64 rows, columns;
  MEMBER bool has(int64 row, int64 column) const { return row < rows && column < columns; }
};
template <class Memory> PRIMITIVE Matrix<Memory> matrix(Memory memory, int64 rows, int64 columns) {
  return {memory, rows, columns};
}

template <class T, int R, int C, class Memory> struct Tile {
  typedef T Type;
  static const int ROWS = R, COLUMNS = C, LINE = C + 16 / sizeof(T);
  Memory memory;
  MEMBER decltype(auto) operator()(int64 row, int64 column) const { return memory[row * LINE + column]; }
};
template <class T, int R, int C, class Memory> PRIMITIVE Tile<T, R, C, Memory> tile_in(const Memory& memory) {
  return {memory};
}
#define BLOCK_TILE(T, name, ROWS, COLUMNS)                               \
  SHARED(T, name##_tile, (ROWS) * ((COLUMNS) + 16 / sizeof(T)));         \
  const auto name = tiles::tile_in<T, ROWS, COLUMNS>(name##_tile)

PRIMITIVE void barrier() { __syncthreads(); }

// ---- between memory and tiles ----
template <class T, int R, int C, class M, class From>
PRIMITIVE void load(const Tile<T, R, C, M>& tile, Matrix<From> from, int64 top, int64 left CALLED_FROM) {
  for (int i = threadIdx.x; i < R * C; i += blockDim.x) {
    const int row = i / C, column = i % C;
    T value = T();
    if (from.has(top + row, left + column)) value = from.memory[AT_LINE((top + row) * from.columns + left + column)];
    tile(row, column) = value;
  }
}
template <class T, int R, int C, class M, class To>
PRIMITIVE void store(Matrix<To> to, int64 top, int64 left, const Tile<T, R, C, M>& tile CALLED_FROM) {
  for (int i = threadIdx.x; i < R * C; i += blockDim.x) {
    const int row = i / C, column = i % C;
    if (to.has(top + row, left + column)) to.memory[AT_LINE((top + row) * to.columns + left + column)] = (T)tile(row, column);
  }
}

// ---- a warp's tile in registers ----
template <int HIGH, int WIDE> struct Accumulators { REGISTERS(float32, values, HIGH * WIDE * 4); };

template <int HIGH, int WIDE> PRIMITIVE void clear(Accumulators<HIGH, WIDE>& sums) {
#pragma unroll
  for (int i = 0; i < HIGH * WIDE * 4; i++) sums.values[i] = 0.0f;
}

template <int HIGH, int WIDE, class T, int R, int DEPTH, class A, int C, class B>
PRIMITIVE void mma(Accumulators<HIGH, WIDE>& sums, const Tile<T, R, DEPTH, A>& a, int row, const Tile<T, DEPTH, C, B>& b, int column) {
  static_assert(DEPTH % 16 == 0, "mma: the columns of a and the rows of b are a multiple of 16");
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  REGISTERS(T, left, HIGH * 8);
  REGISTERS(T, right, WIDE * 4);
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {  // the places of elements in matrices.h
#pragma unroll
    for (int i = 0; i < HIGH * 8; i++) left[i] = (T)a(row + i / 8 * 16 + g + i / 2 % 2 * 8, k + 2 * t + i % 2 + i % 8 / 4 * 8);
#pragma unroll
    for (int i = 0; i < WIDE * 4; i++) right[i] = (T)b(k + 2 * t + i % 2 + i % 4 / 2 * 8, column + i / 4 * 8 + g);
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < WIDE; j++) mma_m16n8k16(sums.values, (i * WIDE + j) * 4, left, i * 8, right, j * 4);
  }
}

template <int HIGH, int WIDE, class To, class Function>
PRIMITIVE void store(Matrix<To> to, int64 top, int64 left, Accumulators<HIGH, WIDE>& sums, Function of CALLED_FROM) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < HIGH * WIDE * 4; i++) {
    const int64 row = top + i / 4 / WIDE * 16 + g + i % 4 / 2 * 8, column = left + i / 4 % WIDE * 8 + 2 * t + i % 2;
    if (to.has(row, column)) to.memory[AT_LINE(row * to.columns + column)] = of((float32)sums.values[i]);
  }
}
struct Itself {
  MEMBER float32 operator()(float32 value) const { return value; }
};
template <int HIGH, int WIDE, class To>
PRIMITIVE void store(Matrix<To> to, int64 top, int64 left, Accumulators<HIGH, WIDE>& sums CALLED_FROM) {
#ifdef __CUDACC_RTC__
  store(to, top, left, sums, Itself());
#else
  store(to, top, left, sums, Itself(), line);
#endif
}

}  // namespace tiles

#undef MEMBER
#undef CALLED_FROM
#undef AT_LINE
#endif
