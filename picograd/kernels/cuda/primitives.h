// The named operations that CUDA C in picograd is made of: rendered kernels and hand-written ones use these and the
// operators of the language, nothing else.
//
// Every primitive has one meaning and up to two bodies: for the GPU (NVRTC defines __CUDACC_RTC__) and for the
// simulator (any C++17 compiler, through runtime/cudasim.h). Where no body is named, one serves both. Those that only Hopper
// has are in hopper.h.
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
#include "cudasim.h"
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
  return ((uint64)memory & (alignof(Lanes<T, N>) - 1)) == 0;
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
template <class T, int N> PRIMITIVE void store_lanes(T* memory, int64 index, Lanes<T, N> lanes) {
  if (is_aligned<N>(memory)) {
    *(Lanes<T, N>*)(memory + index) = lanes;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) memory[index + i] = lanes.at[i];
}
#else
template <int N, class Memory> PRIMITIVE auto load_lanes(Memory& memory, int64 index) {
  Lanes<typename Memory::Type, N> lanes;
  for (int i = 0; i < N; i++) lanes.at[i] = memory[index + i];
  return lanes;
}
template <class Memory, class T, int N> PRIMITIVE void store_lanes(Memory& memory, int64 index, Lanes<T, N> lanes) {
  for (int i = 0; i < N; i++) memory[index + i] = lanes.at[i];
}
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
  const int64 lane = cudasim::meet(bits, given, line);
  bits = *given[lane ^ distance];
  memcpy(&value, &bits, sizeof(T));
  return value;
}
#endif

// ---- maximum and minimum: a NaN wins, -0 < +0 (IEEE 754-2019 maximum, minimum) ----
template <class T> PRIMITIVE T larger(T a, T b) { return a > b ? a : b; }
template <class T> PRIMITIVE T smaller(T a, T b) { return a < b ? a : b; }

PRIMITIVE float64 larger(float64 a, float64 b) {
  if (a == b) return signbit(a) ? b : a;
  return a > b || a != a ? a : b;
}
PRIMITIVE float64 smaller(float64 a, float64 b) {
  if (a == b) return signbit(a) ? a : b;
  return a < b || a != a ? a : b;
}
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800
PRIMITIVE float32 larger(float32 a, float32 b) {  // PTX ISA 9.7.3, max: .NaN from sm_80
  float32 result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
PRIMITIVE float32 smaller(float32 a, float32 b) {
  float32 result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
#else
PRIMITIVE float32 larger(float32 a, float32 b) { return (float32)larger((float64)a, (float64)b); }
PRIMITIVE float32 smaller(float32 a, float32 b) { return (float32)smaller((float64)a, (float64)b); }
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
PRIMITIVE T atomic_add(Memory& memory, int64 index, typename Memory::Type value) {
  return memory.change(index, [&](T before) { return (T)(before + value); });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_max(Memory& memory, int64 index, typename Memory::Type value) {
  return memory.change(index, [&](T before) { return before > value ? before : value; });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_min(Memory& memory, int64 index, typename Memory::Type value) {
  return memory.change(index, [&](T before) { return before < value ? before : value; });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T atomic_exchange(Memory& memory, int64 index, typename Memory::Type value) {
  return memory.change(index, [&](T) { return value; });
}
template <class Memory, class T = typename Memory::Type>
PRIMITIVE T compare_and_swap(
    Memory& memory, int64 index, typename Memory::Type expected, typename Memory::Type value) {
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
  const uint32 at = (uint32)__cvta_generic_to_shared(shared.memory + to), size = valid ? NBYTES : 0;
  if constexpr (NBYTES == 16) {  // past the first cache: nobody reads them there again
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(memory + from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(memory + from), "n"(NBYTES), "r"(size)
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
                          bool valid) {
  static_assert(N * sizeof(T) == 4 || N * sizeof(T) == 8 || N * sizeof(T) == 16, "copy_async: 4, 8 or 16 bytes");
  T values[N] = {};
  for (int64 i = 0; valid && i < N; i++) values[i] = memory[from + i];
  if (from % N || to % N) cudasim::fail("copies from place %lld, and that or where it goes is no multiple.", from);
  cudasim::start_copy(shared, to, values, N);
}
PRIMITIVE void commit_copies() { cudasim::copies[cudasim::thread_number(cudasim::running)].num_groups++; }
template <int N> PRIMITIVE void wait_copies() { cudasim::finish_copies(N); }
#endif

// ---- errors that values decide ----
// Keeps the first report of a kernel: its number, then the value it is about.
PRIMITIVE void report(Global<int64> words, int64 number, int64 value) {
  if (compare_and_swap(words, 0, 0, number) == 0) words[1] = value;
}

// ---- integers ----
// Quotient rounded to minus infinity; 0 for a divisor of 0. The least integer divided by -1 wraps to itself.
template <class T> PRIMITIVE T floor_div(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return T(0 - (uint64)a);
  T quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// a - floor_div(a, b) * b: has the sign of b; 0 for a divisor of 0.
template <class T> PRIMITIVE T floor_mod(T a, T b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// a to the power of b, wrapping; for a negative b what 1 / a**-b truncates to.
template <class T> PRIMITIVE T int_pow(T a, T b) {
  if (b < 0) return a == T(1) ? T(1) : a == T(-1) ? (b & 1 ? T(-1) : T(1)) : T(0);
  uint64 result = 1, factor = (uint64)a;
  for (uint64 left = (uint64)b; left != 0; left >>= 1) {
    if (left & 1) result *= factor;
    factor *= factor;
  }
  return (T)result;
}

// Shifts by any count: bits that leave are lost, a negative count or one past the width shifts everything out.
template <class T> PRIMITIVE T shift_left(T a, T count) {
  return (uint64)count < 8 * sizeof(T) ? (T)((uint64)a << count) : T(0);
}
template <class T> PRIMITIVE T shift_right(T a, T count) {
  return (uint64)count < 8 * sizeof(T) ? (T)(a >> count) : (a < 0 ? T(-1) : T(0));
}

// Threefry-2x32 of 20 rounds (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"). Word 0 of counter,
// key and result is the high one.
PRIMITIVE uint64 threefry(uint64 counter, uint64 key) {
  const uint32 rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32 high = (uint32)(key >> 32), low = (uint32)key, keys[3] = {high, low, high ^ low ^ 0x1BD11BDAu};
  uint32 x = (uint32)(counter >> 32) + keys[0], y = (uint32)counter + keys[1];
#pragma unroll
  for (uint32 round = 0; round < 20; round++) {
    const uint32 by = rotations[round % 8];
    x += y;
    y = (y << by | y >> (32 - by)) ^ x;
    if (round % 4 == 3) {
      const uint32 step = round / 4 + 1;
      x += keys[step % 3];
      y += keys[(step + 1) % 3] + step;
    }
  }
  return (uint64)x << 32 | y;
}

// ---- floats ----
// Remainder with the sign of the divisor, and the quotient that goes with it (both as NumPy has them).
template <class T> PRIMITIVE T float_mod(T a, T b) {
  const T rest = fmod(a, b);
  if (b == 0 || rest != rest) return rest;
  if (rest == 0) return copysign(T(0), b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
template <class T> PRIMITIVE T float_floor_div(T a, T b) {
  if (b == 0) return a / b;
  const T rest = fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return copysign(T(0), a / b);
  const T whole = floor(quotient);
  return quotient - whole > T(0.5) ? whole + 1 : whole;
}

// 2 to the power of a value, 2 ulp off; subnormal results are 0. PTX ISA 9.7.3.21, ex2.approx.ftz.f32.
PRIMITIVE float32 rough_exp2(float32 value) {
#ifdef __CUDACC_RTC__
  float32 result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  const float32 result = exp2f(value);
  return result < 0x1p-126f ? 0.0f : result;
#endif
}

// A float cut to an integer: what does not fit becomes the nearest end of the range, NaN becomes 0.
template <class To, class From> PRIMITIVE To to_integer(From value) {
  const bool is_signed = To(-1) < To(0);
  const int bits = 8 * sizeof(To) - is_signed;  // of the greatest value, all of them ones
  const To greatest = (To)(~0ull >> (64 - bits));
  const From end = From(1ull << (bits - 1)) * 2;
  if (value != value) return 0;
  if (value >= end) return greatest;
  if (value < (is_signed ? -end : From(0))) return is_signed ? To(-greatest - 1) : To(0);
  return (To)value;
}

// ---- narrow floats: EXP exponent bits, MAN mantissa bits, rounded to nearest, ties to even ----
// INF: the largest exponent means infinity and NaN; without it only "all ones" is NaN, and what overflows becomes NaN.
template <int EXP, int MAN, bool INF> PRIMITIVE uint32 narrow(float32 value) {
  const int shift = 23 - MAN, bias = (1 << (EXP - 1)) - 1, least = 1 - bias;
  const uint32 ones = (1u << (EXP + MAN)) - 1, limit = INF ? ones >> MAN << MAN : ones;
  const uint32 bits = bitcast<uint32>(value), magnitude = bits & 0x7fffffffu, sign = bits >> 31 << (EXP + MAN);
  if (magnitude > 0x7f800000u) return sign | (INF ? limit | 1u << (MAN - 1) : ones);
  const int stored = (int)(magnitude >> 23), exponent = (stored == 0 ? 1 : stored) - 127;
  uint32 result;
  if (exponent < least) {
    const int lost = shift + least - exponent;
    const uint32 mantissa = stored == 0 ? magnitude : (magnitude & 0x7fffffu) | 0x800000u;
    if (lost > 24) return sign;
    result = (mantissa + (1u << (lost - 1)) - 1 + (mantissa >> lost & 1)) >> lost;
  } else {
    result = ((magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift) - ((uint32)(127 - bias) << MAN);
  }
  return sign | (result >= limit ? limit : result);
}

template <int EXP, int MAN, bool INF> PRIMITIVE float32 widen(uint32 bits) {
  const int bias = (1 << (EXP - 1)) - 1;
  const uint32 ones = (1u << (EXP + MAN)) - 1, magnitude = bits & ones, sign = bits >> (EXP + MAN) << 31;
  if (INF ? magnitude >= ones >> MAN << MAN : magnitude == ones) {
    const bool infinite = INF && (magnitude & ((1u << MAN) - 1)) == 0;
    return float32_of_bits(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
  }
  if (magnitude >> MAN == 0) {
    const float32 tiny = (float32)magnitude * float32_of_bits((uint32)(128 - bias - MAN) << 23);
    return float32_of_bits(sign | bitcast<uint32>(tiny));
  }
  return float32_of_bits(sign | ((magnitude << (23 - MAN)) + ((uint32)(127 - bias) << 23)));
}

// A float32 that rounds on to float16 as `value` would: truncated, its last bit set if anything was cut. (float64 goes
// to bfloat16 and float8 through a float32 rounded to nearest, as in ml_dtypes.)
PRIMITIVE float32 round_to_odd(float64 value) {
  const float32 nearest = (float32)value;
  if ((float64)nearest == value || value != value || isinf(nearest)) return nearest;
  const uint32 bits = bitcast<uint32>(nearest);
  return float32_of_bits((fabs((float64)nearest) > fabs(value) ? bits - 1 : bits) | 1u);
}

PRIMITIVE float32 to_float32(bfloat16 value) { return float32_of_bits((uint32)value.bits << 16); }
PRIMITIVE float32 to_float32(float8_e4m3 value) { return widen<4, 3, false>(value.bits); }
PRIMITIVE float32 to_float32(float8_e5m2 value) { return widen<5, 2, true>(value.bits); }
PRIMITIVE float8_e4m3 to_float8_e4m3(float32 value) { return float8_e4m3{(uint8)narrow<4, 3, false>(value)}; }
PRIMITIVE float8_e5m2 to_float8_e5m2(float32 value) { return float8_e5m2{(uint8)narrow<5, 2, true>(value)}; }

#ifdef __CUDACC_RTC__
PRIMITIVE float32 to_float32(float16 value) {
  float32 result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
PRIMITIVE float16 to_float16(float32 value) {
  float16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
#else
PRIMITIVE float32 to_float32(float16 value) { return widen<5, 10, true>(value.bits); }
PRIMITIVE float16 to_float16(float32 value) { return float16{(uint16)narrow<5, 10, true>(value)}; }
#endif
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800
PRIMITIVE bfloat16 to_bfloat16(float32 value) {  // PTX ISA 9.7.9, cvt: .bf16 from sm_80
  bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
#else
PRIMITIVE bfloat16 to_bfloat16(float32 value) { return bfloat16{(uint16)narrow<8, 7, true>(value)}; }
#endif

PRIMITIVE float16 to_float16(float64 value) { return to_float16(round_to_odd(value)); }
PRIMITIVE bfloat16 to_bfloat16(float64 value) { return to_bfloat16((float32)value); }
PRIMITIVE float8_e4m3 to_float8_e4m3(float64 value) { return to_float8_e4m3((float32)value); }
PRIMITIVE float8_e5m2 to_float8_e5m2(float64 value) { return to_float8_e5m2((float32)value); }

// ---- matrices that a warp holds in registers ----
// into[place..] = what a thread has of four matrices of 8 x 8 of 16 bits. Thread 8 m + r says by `index` where row r of matrix m
// begins, a multiple of 8; element 2 m + i is (g, 2t + i) of matrix m, or (2t + i, g) where they are TURNED.
// PTX ISA 9.7.15.5.15, ldmatrix (sm_75). All 32 threads call it.
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
  for (int64 i = 0; i < 8; i++) row.at[i] = shared[index + i];
  const Row* rows[32];
  const int64 lane = cudasim::meet(row, rows, line), g = lane / 4, t = lane % 4;
  for (int64 m = 0; m < 4; m++)
    for (int64 i = 0; i < 2; i++)
      into[place + 2 * m + i] = TURNED ? rows[8 * m + 2 * t + i]->at[g] : rows[8 * m + g]->at[2 * t + i];
}
#endif

// acc[at..] += lhs[left..] @ rhs[right..]: 16 x 8 += (16 x 16) @ (16 x 8). Where g = lane / 4 and t = lane % 4, element i of
// acc is (g + 8 (i / 2), 2t + i % 2); of lhs (g + 8 (i / 2 % 2), 2t + i % 2 + 8 (i / 4)); of rhs (2t + i % 2 + 8 (i / 2), g).
// PTX ISA 9.7.15.5.8, mma.m16n8k16 (sm_80). All 32 threads call it. Of a float32 the 11 bits of TF32 are multiplied.
// volatile: nobody may move it to where its results are used, into a branch that some threads do not take.
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
