// Products on tensor cores for the .cu programs: a warp computes 16 x 8 elements, and of each operand the 11 first bits are multiplied
// (TF32), with sums in float32. nvcc compiles it for sm_80 and later, a C++ compiler for picograd's simulator.
#ifndef TENSOR_CORES_H
#define TENSOR_CORES_H

#include "gpu.h"

#ifdef __CUDACC__
#define ON_DEVICE static __device__
#define REGISTERS(T, name, n) T name[n]

ON_DEVICE unsigned tf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
// sums (16 x 8) += left (16 x 16) @ right (16 x 8): two instructions, each for 8 of K. PTX ISA 9.7.15.5.4, mma.m16n8k8.
ON_DEVICE void mma_m16n8k16(float *sums, int, const float *left, int, const float *right, int) {
  for (int half = 0; half < 2; half++) {
    const float *a = left + 4 * half, *b = right + 2 * half;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(tf32(a[0])), "r"(tf32(a[2])), "r"(tf32(a[1])), "r"(tf32(a[3])), "r"(tf32(b[0])), "r"(tf32(b[1])));
  }
}
#else
#define ON_DEVICE static
#endif

// Threads for a product of rows x columns.
static int warps_of(int rows, int columns) { return (rows + 15) / 16 * ((columns + 7) / 8) * 32; }

// Calls store(row, column, sum) for each element that the thread has of a(row, k) @ b(k, column); a and b are 0 outside.
template <class A, class B, class Store> ON_DEVICE void warp_product(int thread, int depth, int columns, A a, B b, Store store) {
  const int across = (columns + 7) / 8, top = thread / 32 / across * 16, first = thread / 32 % across * 8;
  const int g = thread % 32 / 4, t = thread % 4;
  REGISTERS(float, sums, 4);
  REGISTERS(float, left, 8);
  REGISTERS(float, right, 4);
  for (int i = 0; i < 4; i++) sums[i] = 0;
  for (int k = 0; k < depth; k += 16) {
    for (int i = 0; i < 8; i++) left[i] = a(top + g + i / 2 % 2 * 8, k + 2 * t + i % 2 + i / 4 * 8);
    for (int i = 0; i < 4; i++) right[i] = b(k + 2 * t + i % 2 + i / 2 * 8, first + g);
    mma_m16n8k16(sums, 0, left, 0, right, 0);
  }
  for (int i = 0; i < 4; i++) store(top + g + i / 2 * 8, first + 2 * t + i % 2, (float)sums[i]);
}

#endif
