// The named operations that CUDA C in picograd is made of: rendered kernels and hand-written ones use these and the
// operators of the language, nothing else.
//
// Every primitive has one meaning and up to two bodies: for the GPU (NVRTC defines __CUDACC_RTC__) and for the
// simulator (any C++17 compiler, through devices/cudasim/cudasim.h). Where no body is named, one serves both. Here are memory, and
// what threads do together; numbers.h and matrices.h, which this includes, have the rest. Those that only Hopper has are in
// hopper.h.
//
//   Global<T>                memory of the device: p[i] reads or writes element i
//   SHARED(T, name, n)       n elements that the threads of a block share
//   SHARED_AT(T, name, n, first)   the same, `first` bytes into the memory that the launch asks for
//   REGISTERS(T, name, n)    n elements of one thread; indices are constants
//
// On the GPU these are a pointer and two arrays; in the simulator each access is checked.

#ifndef PICOGRAD_PRIMITIVES_H
#define PICOGRAD_PRIMITIVES_H

typedef signed char int8;
typedef short int16;
typedef int int32;
typedef long long int64;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef float float32;
typedef double float64;

// Floats that are only stored: arithmetic is done in float32.
struct float16 { uint16 bits; };
struct bfloat16 { uint16 bits; };
struct float8_e4m3 { uint8 bits; };
struct float8_e5m2 { uint8 bits; };

#ifdef __CUDACC_RTC__
#define PRIMITIVE static __device__ __forceinline__
template <class T> using Global = T*;
// Begins at a multiple of 16 bytes: a type of its own, so that nobody asks whether it does.
template <class T> struct Shared {
  T* memory;
  __device__ __forceinline__ T& operator[](int64 index) const { return memory[index]; }
};
#define SHARED(T, name, n)                     \
  __shared__ __align__(16) T name##_memory[n]; \
  const Shared<T> name = {name##_memory}
extern __shared__ __align__(16) uint8 asked_for[];
#define SHARED_AT(T, name, n, first) const Shared<T> name = {(T*)(asked_for + first)}
#define REGISTERS(T, name, n) T name[n]
#else
#include "cudasim/cudasim.h"
#endif

// ---- bits ----
template <class To, class From> PRIMITIVE To bitcast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bitcast: the types differ in width");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}

PRIMITIVE float32 float32_of_bits(uint32 bits) { return bitcast<float32>(bits); }
PRIMITIVE float64 float64_of_bits(uint64 bits) { return bitcast<float64>(bits); }

// ---- lanes: several elements that one thread computes side by side ----
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Lanes { T at[N]; };

// N elements from memory[index] on, where N divides index: one access of up to 16 bytes, if memory starts at such a place
// too (a row of something larger may not).
#ifdef __CUDACC_RTC__
template <int N, class T> PRIMITIVE bool is_aligned(const T* memory) {
  uint32 beyond = (uint64)memory & (alignof(Lanes<T, N>) - 1);
#if __CUDA_ARCH__ >= 1000
  asm volatile("" : "+r"(beyond));  // else loops are written out once for each way in which their pointers may be aligned
#endif
  return beyond == 0;
}
template <int N, class T> PRIMITIVE Lanes<T, N> load_lanes(const T* memory, int64 index) {
  if (is_aligned<N>(memory)) return *(const Lanes<T, N>*)(memory + index);
  Lanes<T, N> lanes;
#pragma unroll
  for (int i = 0; i < N; i++) lanes.at[i] = memory[index + i];
  return lanes;
}
template <int N, class T> PRIMITIVE Lanes<T, N> load_lanes(Shared<T> shared, int64 index) {
  return *(const Lanes<T, N>*)(shared.memory + index);
}
template <class T, int N> PRIMITIVE void store_lanes(Shared<T> shared, int64 index, Lanes<T, N> lanes) {
  *(Lanes<T, N>*)(shared.memory + index) = lanes;
}
// Memory of the device that is known to begin at a multiple of 16 bytes, too.
template <class T> PRIMITIVE Shared<T> aligned(const T* memory) { return {(T*)memory}; }
template <class T, int N> PRIMITIVE void store_lanes(T* memory, int64 index, Lanes<T, N> lanes) {
  if (is_aligned<N>(memory)) {
    *(Lanes<T, N>*)(memory + index) = lanes;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) memory[index + i] = lanes.at[i];
}
#else
template <int N, class Memory> PRIMITIVE auto load_lanes(Memory& memory, int64 index, int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  Lanes<typename Memory::Type, N> lanes;
  COUNT_AS_ONE(N);
  for (int i = 0; i < N; i++) lanes.at[i] = memory[index + i];
  return lanes;
}
template <class Memory, class T, int N>
PRIMITIVE void store_lanes(Memory& memory, int64 index, Lanes<T, N> lanes, int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  COUNT_AS_ONE(N);
  for (int i = 0; i < N; i++) memory[index + i] = lanes.at[i];
}
template <class Memory> PRIMITIVE Memory& aligned(Memory& memory) { return memory; }
#endif

// ---- warps: 32 threads that run together ----
// What that thread of the warp has whose number differs by the bit `distance`; all 32 call it.
#ifdef __CUDACC_RTC__
template <class T> PRIMITIVE T shuffle_xor(T value, int32 distance) {
  if constexpr (sizeof(T) == 8) {
    return bitcast<T>(__shfl_xor_sync(0xffffffffu, bitcast<uint64>(value), distance));
  } else {
    uint32 bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = __shfl_xor_sync(0xffffffffu, bits, distance);
    memcpy(&value, &bits, sizeof(T));
    return value;
  }
}
#else
template <class T> PRIMITIVE T shuffle_xor(T value, int32 distance, int32 line = __builtin_LINE()) {
  uint64 bits = 0;
  memcpy(&bits, &value, sizeof(T));
  const uint64* given[32];
  COUNT_INSTRUCTION(SHUFFLES);
  const int64 lane = cudasim::meet(bits, given, line);
  bits = *given[lane ^ distance];
  memcpy(&value, &bits, sizeof(T));
  return value;
}
#endif

// ---- atomics: on memory of the device, or of a block ----
// Each changes memory[index] in one step and returns what was there. No order among threads: a sum of floats depends on it.
//   atomic_add(memory, index, value)                     int32, int64, uint32, uint64, float32, float64
//   atomic_max, atomic_min(memory, index, value)         integers of 32 and 64 bits
//   atomic_exchange(memory, index, value)                what has 32 or 64 bits
//   compare_and_swap(memory, index, expected, value)     the same: stores value where the bits are those expected
#ifdef __CUDACC_RTC__
template <int NBYTES> struct BitsOf { typedef uint32 Type; };
template <> struct BitsOf<8> { typedef uint64 Type; };
template <class T> struct Itself { typedef T Type; };  // the type of memory decides, not that of a value

template <class T> PRIMITIVE T atomic_add(T* memory, int64 index, typename Itself<T>::Type value) {
  return atomicAdd(memory + index, value);
}
PRIMITIVE int64 atomic_add(int64* memory, int64 index, int64 value) {
  return (int64)atomicAdd((uint64*)memory + index, (uint64)value);
}
template <class T> PRIMITIVE T atomic_max(T* memory, int64 index, typename Itself<T>::Type value) {
  return atomicMax(memory + index, value);
}
template <class T> PRIMITIVE T atomic_min(T* memory, int64 index, typename Itself<T>::Type value) {
  return atomicMin(memory + index, value);
}
template <class T> PRIMITIVE T atomic_exchange(T* memory, int64 index, typename Itself<T>::Type value) {
  typedef typename BitsOf<sizeof(T)>::Type Bits;
  return bitcast<T>(atomicExch((Bits*)(memory + index), bitcast<Bits>(value)));
}
template <class T>
PRIMITIVE T compare_and_swap(T* memory, int64 index, typename Itself<T>::Type expected, typename Itself<T>::Type value) {
  typedef typename BitsOf<sizeof(T)>::Type Bits;
  return bitcast<T>(atomicCAS((Bits*)(memory + index), bitcast<Bits>(expected), bitcast<Bits>(value)));
}
#define OF_SHARED(name)                                                              \
  template <class T, class... Values>                                                \
  PRIMITIVE T name(Shared<T> shared, int64 index, Values... values) {                \
    return name(shared.memory, index, values...);                                    \
  }
OF_SHARED(atomic_add)
OF_SHARED(atomic_max)
OF_SHARED(atomic_min)
OF_SHARED(atomic_exchange)
OF_SHARED(compare_and_swap)
#else
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_add(Memory& memory, int64 index, typename Memory::Type value, int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  return memory.change(index, [&](T before) { return (T)(before + value); });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_max(Memory& memory, int64 index, typename Memory::Type value, int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  return memory.change(index, [&](T before) { return before > value ? before : value; });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_min(Memory& memory, int64 index, typename Memory::Type value, int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  return memory.change(index, [&](T before) { return before < value ? before : value; });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_exchange(Memory& memory, int64 index, typename Memory::Type value, int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  return memory.change(index, [&](T) { return value; });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T compare_and_swap(Memory& memory, int64 index, typename Memory::Type expected, typename Memory::Type value,
                             int32 line = __builtin_LINE()) {
  const cudasim::FromLine from(line);
  return memory.change(index, [&](T before) { return memcmp(&before, &expected, sizeof(T)) ? before : value; });
}
#endif

// ---- copies to shared memory in the background ----
// N elements of 4, 8 or 16 bytes in all, at multiples of N, from memory[from] to shared[to]; zeros if not `valid`, and
// memory is not touched. They are there for their own thread once it has waited, for others after a barrier behind that.
// PTX ISA 9.7.9.25.3, cp.async (sm_80).
#ifdef __CUDACC_RTC__
template <int N, class T> PRIMITIVE void copy_async(Shared<T> shared, int64 to, const T* memory, int64 from, bool valid) {
  constexpr int NBYTES = N * sizeof(T);
  if (!is_aligned<N>(memory)) {  // a row of something larger: these arrive at once
#pragma unroll
    for (int i = 0; i < N; i++) shared[to + i] = valid ? memory[from + i] : T();
    return;
  }
  const uint32 at = (uint32)__cvta_generic_to_shared(shared.memory + to), nread = valid ? NBYTES : 0;
  if constexpr (NBYTES == 16) {  // past the first cache: nobody reads them there again
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(memory + from), "r"(nread) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(memory + from), "n"(NBYTES), "r"(nread)
                 : "memory");
  }
}
// Closes a group of the copies that the thread has started.
PRIMITIVE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups of the thread but the last N.
template <int N> PRIMITIVE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else
template <int N, class T, int64 LENGTH, class Memory>
PRIMITIVE void copy_async(const cudasim::SharedMemory<T, LENGTH>& shared, int64 to, const Memory& memory, int64 from,
                          bool valid, int32 line = __builtin_LINE()) {
  const cudasim::FromLine of_memory(line);
  static_assert(N * sizeof(T) == 4 || N * sizeof(T) == 8 || N * sizeof(T) == 16, "copy_async: 4, 8 or 16 bytes");
  T values[N] = {};
  COUNT_INSTRUCTION(ASYNC_COPIES);
  if (valid) {
    COUNT_AS_ONE(N);
    for (int64 i = 0; i < N; i++) values[i] = memory[from + i];
  }
  if (from % N || to % N) cudasim::fail("copies from place %lld, and that or where it goes is no multiple.", from);
  cudasim::start_copy(shared, to, values, N);
}
PRIMITIVE void commit_copies() { cudasim::commit_own_copies(); }
template <int N> PRIMITIVE void wait_copies() { cudasim::finish_copies(N); }
#endif

// ---- errors that values decide ----
// Keeps the first report of a kernel: its number, then the value it is about.
PRIMITIVE void report(Global<int64> words, int64 number, int64 value) {
  if (compare_and_swap(words, 0, 0, number) == 0) words[1] = value;
}

#include "numbers.h"   // these two need what stands above
#include "matrices.h"

#endif
