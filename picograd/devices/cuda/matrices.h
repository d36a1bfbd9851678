// Matrices that a warp holds in the registers of its threads: how they come from shared memory, and their product.
//
// Included by primitives.h. All 32 threads of a warp call each of these.

#ifndef PICOGRAD_MATRICES_H
#define PICOGRAD_MATRICES_H

// into[place..] = what a thread has of four matrices of 8 x 8 of 16 bits. Thread 8 m + r says by `index` where row r of matrix m
// begins, a multiple of 8; element 2 m + i is (g, 2t + i) of matrix m, or (2t + i, g) where they are TURNED.
// PTX ISA 9.7.15.5.15, ldmatrix (sm_75).
#ifdef __CUDACC_RTC__
template <bool TURNED, class T> PRIMITIVE void load_matrices(T* into, int64 place, Shared<T> shared, int64 index) {
  const uint32 at = (uint32)__cvta_generic_to_shared(shared.memory + index);
  uint32 pairs[4];
  if constexpr (TURNED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3]) : "r"(at) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3]) : "r"(at) : "memory");
  }
#pragma unroll
  for (int i = 0; i < 8; i++) into[place + i].bits = (uint16)(pairs[i / 2] >> 16 * (i % 2));
}
#else
template <bool TURNED, class Registers, class T, int64 LENGTH>
PRIMITIVE void load_matrices(Registers& into, int64 place, const cudasim::SharedMemory<T, LENGTH>& shared, int64 index,
                             int32 line = __builtin_LINE()) {
  if (index % 8) cudasim::fail("reads a row of a matrix at place %lld, which is no multiple of 8.", index);
  struct Row { T at[8]; } row;
  {
    COUNT_AS_ONE(8);
    for (int64 i = 0; i < 8; i++) row.at[i] = shared[index + i];
  }
  const Row* rows[32];
  const int64 lane = cudasim::meet(row, rows, line), g = lane / 4, t = lane % 4;
  for (int64 m = 0; m < 4; m++)
    for (int64 i = 0; i < 2; i++)
      into[place + 2 * m + i] = TURNED ? rows[8 * m + 2 * t + i]->at[g] : rows[8 * m + g]->at[2 * t + i];
}
#endif

// acc[at..] += lhs[left..] @ rhs[right..]: 16 x 8 += (16 x 16) @ (16 x 8). Where g = lane / 4 and t = lane % 4, element i of
// acc is (g + 8 (i / 2), 2t + i % 2); of lhs (g + 8 (i / 2 % 2), 2t + i % 2 + 8 (i / 4)); of rhs (2t + i % 2 + 8 (i / 2), g).
// PTX ISA 9.7.15.5.8, mma.m16n8k16 (sm_80). Of a float32 the 11 bits of TF32 are multiplied.
// volatile: else the compiler may move it to where its result is used, into a branch that only some threads take.
#ifdef __CUDACC_RTC__
template <class T> PRIMITIVE uint32 pair_of(const T* elements) {
  return (uint32)elements[0].bits | (uint32)elements[1].bits << 16;
}
#define PICOGRAD_MMA(T, name)                                                                                       \
  PRIMITIVE void mma_m16n8k16(float32* acc, int64 at, const T* lhs, int64 left, const T* rhs, int64 right) {        \
    const uint32 a0 = pair_of(lhs + left), a1 = pair_of(lhs + left + 2), a2 = pair_of(lhs + left + 4),              \
                 a3 = pair_of(lhs + left + 6), b0 = pair_of(rhs + right), b1 = pair_of(rhs + right + 2);            \
    asm volatile(                                                                                                   \
        "mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "  \
        "{%0, %1, %2, %3};"                                                                                         \
        : "+f"(acc[at]), "+f"(acc[at + 1]), "+f"(acc[at + 2]), "+f"(acc[at + 3])                                    \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                                    \
  }
PICOGRAD_MMA(float16, "f16")
PICOGRAD_MMA(bfloat16, "bf16")
PRIMITIVE uint32 as_tf32(float32 value) {
  uint32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
// Two instructions, each of 8 of K: (t, t + 4) of one are (2t, 2t + 1) here. PTX ISA 9.7.15.5.4, mma.m16n8k8.
PRIMITIVE void mma_m16n8k16(float32* acc, int64 at, const float32* lhs, int64 left, const float32* rhs, int64 right) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float32 *a = lhs + left + 4 * half, *b = rhs + right + 2 * half;
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[at]), "+f"(acc[at + 1]), "+f"(acc[at + 2]), "+f"(acc[at + 3])
        : "r"(as_tf32(a[0])), "r"(as_tf32(a[2])), "r"(as_tf32(a[1])), "r"(as_tf32(a[3])), "r"(as_tf32(b[0])),
          "r"(as_tf32(b[1])));
  }
}
#else
PRIMITIVE float32 as_multiplied(float32 value) {
  const uint32 bits = bitcast<uint32>(value);
  return (bits & 0x7f800000u) == 0x7f800000u ? value : float32_of_bits((bits + 0x1000u) & ~0x1fffu);
}
template <class T> PRIMITIVE float32 as_multiplied(T value) { return to_float32(value); }
template <class Acc, class Lhs, class Rhs>
PRIMITIVE void mma_m16n8k16(Acc& acc, int64 at, Lhs& lhs, int64 left, Rhs& rhs, int64 right,
                            int32 line = __builtin_LINE()) {
  typedef typename Lhs::Type T;
  struct Part { T lhs[8], rhs[4]; } own;
  for (int64 i = 0; i < 8; i++) own.lhs[i] = lhs[left + i];
  for (int64 i = 0; i < 4; i++) own.rhs[i] = rhs[right + i];
  const Part* parts[32];
  COUNT_INSTRUCTION(MMAS);
  const int64 lane = cudasim::meet(own, parts, line);
  for (int64 i = 0; i < 4; i++) {
    const int64 row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    float32 sum = acc[at + i];
    for (int64 k = 0; k < 16; k++) {
      const T a = parts[row % 8 * 4 + k % 8 / 2]->lhs[k % 2 + 2 * (row / 8) + 4 * (k / 8)];
      const T b = parts[column * 4 + k % 8 / 2]->rhs[k % 2 + 2 * (k / 8)];
      sum += as_multiplied(a) * as_multiplied(b);
    }
    acc[at + i] = sum;
  }
}
#endif

#endif
