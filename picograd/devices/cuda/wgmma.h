// Matrix instructions of a warpgroup, 128 threads, on Hopper (sm_90a). Included by hopper.h.
//
// operand_at: a matrix in swizzled tiles, of rows or of columns of a product; element (row, k) is that many rows and k from
// shared[index] on, where rows lie along K, 128 bytes of it in each; ACROSS, of 16 bits alone: where K has the rows, with 64 rows of
// the matrix in each, and `next` elements from those to the 64 that follow. `moved`: the same so many elements further: 32 bytes
// along a row, or 16 rows of 64, are the next step of K.
// wgmma_m64k16<N>: acc[at..] = (adds ? acc[at..] : 0) + lhs @ rhs.T of 64 x 16 and N x 16; N is a multiple of 16, from 64 to 256.
// wgmma_m64k8<N>: the same of 64 x 8 and N x 8 of float32, of which it cuts the bits that TF32 does not have.
// Of a thread acc has N / 2 elements: where g = lane / 4 and t = lane % 4, element i is (16 warp + g + 8 (i / 2 % 2),
// 8 (i / 4) + 2t + i % 2).
// Where lhs is in registers, pairs[place..] are 4 pairs of a thread: pair i is of (16 warp + g + 8 (i % 2), 8 (i / 2) + 2t), and the
// column after it, as acc has 16 columns of its own. pair_up: two numbers, rounded to the dtype of the last, as a pair.
// It runs beside the threads. wgmma_fence<COUNT> stands before the first, and where the thread has written acc or pairs;
// wgmma_commit closes a group; wgmma_wait<GROUPS, COUNT> waits for all groups but the last, after which acc and the tiles can be
// used. Where the last groups go on, wgmma_done<COUNT> stands before other registers than theirs are used; and behind a wait, for
// the pairs that were read.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma, matrix descriptor (sm_90a).

#ifndef PICOGRAD_WGMMA_H
#define PICOGRAD_WGMMA_H

#ifdef __CUDACC_RTC__
// NOTE: nothing else tells the compiler that registers change at the wait, not at the instruction that names them.
template <int COUNT> PRIMITIVE void hold_registers(float32* acc, int64 at) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(acc[at + i])::"memory");
}
template <int COUNT> PRIMITIVE void hold_registers(uint32* pairs, int64 at) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(pairs[at + i])::"memory");
}
template <int COUNT, class T> PRIMITIVE void wgmma_fence(T* registers, int64 at) {
  hold_registers<COUNT>(registers, at);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <int COUNT, class T> PRIMITIVE void wgmma_done(T* registers, int64 at) { hold_registers<COUNT>(registers, at); }
PRIMITIVE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int GROUPS, int COUNT> PRIMITIVE void wgmma_wait(float32* acc, int64 at) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
  if constexpr (GROUPS == 0) hold_registers<COUNT>(acc, at);
}
// Bits 0-13: the address; 16-29: the stride from 64 rows to the next 64, not read where rows lie along K; 32-45: the stride from 8
// times 128 bytes to the next 8, 1024 bytes; all in units of 16. Bits 62-63: 1, the swizzle of 128 bytes.
template <class T, bool ACROSS> struct Operand { uint64 descriptor; };
template <bool ACROSS, class T> PRIMITIVE Operand<T, ACROSS> operand_at(SharedTile<T> shared, int64 index, int64 next = 8) {
  const uint32 at = shared_address(shared.memory + index), apart = (uint32)next * (uint32)sizeof(T);
  return {(uint64)((at & 0x3ffff) >> 4) | (uint64)(apart >> 4) << 16 | 64ull << 32 | 1ull << 62};
}
template <class T, bool ACROSS> PRIMITIVE Operand<T, ACROSS> moved(Operand<T, ACROSS> operand, int64 elements) {
  return {operand.descriptor + (uint64)(elements * (int64)sizeof(T) >> 4)};
}
#define PICOGRAD_D32                                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define PICOGRAD_D40 PICOGRAD_D32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PICOGRAD_D48 PICOGRAD_D40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PICOGRAD_D56 PICOGRAD_D48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PICOGRAD_D64 PICOGRAD_D56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PICOGRAD_D72 PICOGRAD_D64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PICOGRAD_D80 PICOGRAD_D72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define PICOGRAD_D88 PICOGRAD_D80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PICOGRAD_D96 PICOGRAD_D88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define PICOGRAD_D104 PICOGRAD_D96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define PICOGRAD_D112 PICOGRAD_D104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define PICOGRAD_D120 PICOGRAD_D112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define PICOGRAD_D128 PICOGRAD_D120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define PICOGRAD_F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
  "+f"(d[i + 6]), "+f"(d[i + 7])
#define PICOGRAD_F16(i) PICOGRAD_F8(i), PICOGRAD_F8(i + 8)
#define PICOGRAD_F32 PICOGRAD_F16(0), PICOGRAD_F16(16)
#define PICOGRAD_F40 PICOGRAD_F32, PICOGRAD_F8(32)
#define PICOGRAD_F48 PICOGRAD_F40, PICOGRAD_F8(40)
#define PICOGRAD_F56 PICOGRAD_F48, PICOGRAD_F8(48)
#define PICOGRAD_F64 PICOGRAD_F56, PICOGRAD_F8(56)
#define PICOGRAD_F72 PICOGRAD_F64, PICOGRAD_F8(64)
#define PICOGRAD_F80 PICOGRAD_F72, PICOGRAD_F8(72)
#define PICOGRAD_F88 PICOGRAD_F80, PICOGRAD_F8(80)
#define PICOGRAD_F96 PICOGRAD_F88, PICOGRAD_F8(88)
#define PICOGRAD_F104 PICOGRAD_F96, PICOGRAD_F8(96)
#define PICOGRAD_F112 PICOGRAD_F104, PICOGRAD_F8(104)
#define PICOGRAD_F120 PICOGRAD_F112, PICOGRAD_F8(112)
#define PICOGRAD_F128 PICOGRAD_F120, PICOGRAD_F8(120)
#define PICOGRAD_MAJORS(a, b) ", " a ", " b
#define PICOGRAD_NO_MAJORS(a, b)
#define PICOGRAD_WGMMA(n, kind, majors, half, b, adds, across_a, across_b)                                             \
  if constexpr (N == n)                                                                                                \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #adds ", 0; wgmma.mma_async.sync.aligned.m64n" #n kind " {"        \
                 PICOGRAD_D##half "}, %" #half ", %" #b ", p, 1, 1" majors("%" #across_a, "%" #across_b) "; }"            \
                 : PICOGRAD_F##half                                                                                    \
                 : "l"(lhs.descriptor), "l"(rhs.descriptor), "r"(adding), "n"((int)LEFT), "n"((int)RIGHT) : "memory");
#define PICOGRAD_WGMMA_OF(T, k, kind, majors)                                                                          \
  template <int N, bool LEFT, bool RIGHT>                                                                              \
  PRIMITIVE void wgmma_m64##k(float32* acc, int64 at, Operand<T, LEFT> lhs, Operand<T, RIGHT> rhs, bool adds) {        \
    static_assert(N % 16 == 0 && N >= 64 && N <= 256, "wgmma_m64" #k ": a multiple of 16 columns from 64 to 256");     \
    float32* d = acc + at;                                                                                             \
    const int32 adding = adds;                                                                                         \
    PICOGRAD_WGMMA(64, kind, majors, 32, 33, 34, 35, 36) PICOGRAD_WGMMA(80, kind, majors, 40, 41, 42, 43, 44)          \
    PICOGRAD_WGMMA(96, kind, majors, 48, 49, 50, 51, 52) PICOGRAD_WGMMA(112, kind, majors, 56, 57, 58, 59, 60)         \
    PICOGRAD_WGMMA(128, kind, majors, 64, 65, 66, 67, 68) PICOGRAD_WGMMA(144, kind, majors, 72, 73, 74, 75, 76)        \
    PICOGRAD_WGMMA(160, kind, majors, 80, 81, 82, 83, 84) PICOGRAD_WGMMA(176, kind, majors, 88, 89, 90, 91, 92)        \
    PICOGRAD_WGMMA(192, kind, majors, 96, 97, 98, 99, 100) PICOGRAD_WGMMA(208, kind, majors, 104, 105, 106, 107, 108)  \
    PICOGRAD_WGMMA(224, kind, majors, 112, 113, 114, 115, 116) PICOGRAD_WGMMA(240, kind, majors, 120, 121, 122, 123, 124)\
    PICOGRAD_WGMMA(256, kind, majors, 128, 129, 130, 131, 132)                                                         \
  }
PICOGRAD_WGMMA_OF(float16, k16, "k16.f32.f16.f16", PICOGRAD_MAJORS)
PICOGRAD_WGMMA_OF(bfloat16, k16, "k16.f32.bf16.bf16", PICOGRAD_MAJORS)
PICOGRAD_WGMMA_OF(float32, k8, "k8.f32.tf32.tf32", PICOGRAD_NO_MAJORS)
#define PICOGRAD_WGMMA_HELD(n, text, name, list, held, b, adds, across_b, ...)                                          \
  if constexpr (N == n)                                                                                               \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " adds ", 0; wgmma.mma_async.sync.aligned.m64n" text "k16.f32." name "." \
                 name " {" list "}, {" held "}, " b ", p, 1, 1, " across_b "; }"                                         \
                 : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rhs.descriptor), "r"(adding),        \
                   "n"((int)RIGHT) : "memory");
#define PICOGRAD_WGMMA_HELD_OF(T, name)                                                                               \
  PRIMITIVE uint32 pair_up(float32 first, float32 second, T) {                                                        \
    uint32 pair;                                                                                                      \
    asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));                                  \
    return pair;                                                                                                      \
  }                                                                                                                   \
  template <int N, bool RIGHT>                                                                                        \
  PRIMITIVE void wgmma_m64k16(float32* acc, int64 at, const uint32* pairs, int64 place, Operand<T, RIGHT> rhs, bool adds) { \
    static_assert(N == 64 || N == 128, "wgmma_m64k16: 64 or 128 columns, where lhs is in registers");                 \
    float32* d = acc + at;                                                                                            \
    const uint32* a = pairs + place;                                                                                  \
    const int32 adding = adds;                                                                                        \
    PICOGRAD_WGMMA_HELD(64, "64", name, PICOGRAD_D32, "%32, %33, %34, %35", "%36", "%37", "%38", PICOGRAD_F32)         \
    PICOGRAD_WGMMA_HELD(128, "128", name, PICOGRAD_D64, "%64, %65, %66, %67", "%68", "%69", "%70", PICOGRAD_F64)       \
  }
PICOGRAD_WGMMA_HELD_OF(float16, "f16")
PICOGRAD_WGMMA_HELD_OF(bfloat16, "bf16")
#else
template <int COUNT, class T, int64 LENGTH>
PRIMITIVE void wgmma_fence(cudasim::RegisterMemory<T, LENGTH>& registers, int64 at) {
  cudasim::show_registers(registers.holds, registers.name, at, COUNT, LENGTH);
}
template <int COUNT, class T, int64 LENGTH> PRIMITIVE void wgmma_done(cudasim::RegisterMemory<T, LENGTH>&, int64) {}
PRIMITIVE void wgmma_commit() { cudasim::commit_products(); }
template <int GROUPS, int COUNT, int64 LENGTH>
PRIMITIVE void wgmma_wait(cudasim::RegisterMemory<float32, LENGTH>&, int64) {
  cudasim::finish_products(GROUPS);
}
template <class T> float32 widen_element(const char* element) { return to_float32(*(const T*)element); }
template <> inline float32 widen_element<float32>(const char* at) { return float32_of_bits(*(const uint32*)at & ~0x1fffu); }
template <class T, bool ACROSS> struct Operand { cudasim::Operand of; };
template <bool ACROSS, class T, int64 LENGTH>
PRIMITIVE Operand<T, ACROSS> operand_at(const cudasim::SharedTile<T, LENGTH>& shared, int64 index, int64 next = 8) {
  return {{cudasim::tile_at(shared, index, "a wgmma reads"), widen_element<T>, ACROSS, next * (int64)sizeof(T)}};
}
template <class T, bool ACROSS> PRIMITIVE Operand<T, ACROSS> moved(Operand<T, ACROSS> operand, int64 elements) {
  operand.of.tile.first += elements * (int64)sizeof(T);
  return operand;
}
template <int N, class T, bool LEFT, bool RIGHT, int64 LENGTH>
PRIMITIVE void wgmma_m64k16(cudasim::RegisterMemory<float32, LENGTH>& acc, int64 at, Operand<T, LEFT> lhs,
                            Operand<T, RIGHT> rhs, bool adds, int32 line = __builtin_LINE()) {
  static_assert(N % 16 == 0 && N >= 64 && N <= 256, "wgmma: a multiple of 16 columns from 64 to 256");
  cudasim::start_product({lhs.of, rhs.of, N, adds, acc.elements + at, acc.holds + at, nullptr}, acc.name, at, LENGTH, line);
}
template <int N, int64 LENGTH>
PRIMITIVE void wgmma_m64k8(cudasim::RegisterMemory<float32, LENGTH>& acc, int64 at, Operand<float32, false> lhs,
                           Operand<float32, false> rhs, bool adds, int32 line = __builtin_LINE()) {
  wgmma_m64k16<N>(acc, at, lhs, rhs, adds, line);
}
template <class T> PRIMITIVE uint32 pair_up(float32 first, float32 second, T like) {
  return narrowed(first, like).bits | (uint32)narrowed(second, like).bits << 16;
}
template <int N, class T, bool RIGHT, int64 LENGTH, int64 PAIRS>
PRIMITIVE void wgmma_m64k16(cudasim::RegisterMemory<float32, LENGTH>& acc, int64 at,
                            cudasim::RegisterMemory<uint32, PAIRS>& pairs, int64 place, Operand<T, RIGHT> rhs, bool adds,
                            int32 line = __builtin_LINE()) {
  static_assert(N == 64 || N == 128, "wgmma_m64k16: 64 or 128 columns, where lhs is in registers");
  cudasim::check_pairs(pairs.holds, pairs.name, place, PAIRS);
  cudasim::start_product({{}, rhs.of, N, adds, acc.elements + at, acc.holds + at, pairs.elements + place}, acc.name, at,
                         LENGTH, line);
}
#endif

#endif
