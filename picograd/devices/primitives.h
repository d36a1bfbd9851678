// The named operations that C in picograd is made of: rendered kernels use these and the operators of the language,
// nothing else. One header for C (from C99 on, GCC or Clang) and for OpenCL C, which have neither templates nor overloads:
// a primitive's name ends in the types it is for. What each means is said in devices/cuda/primitives.h, too.

#ifndef PICOGRAD_PRIMITIVES_H
#define PICOGRAD_PRIMITIVES_H

#ifdef __OPENCL_VERSION__
#pragma OPENCL FP_CONTRACT OFF
// OpenCL C has vectors of these names, which no kernel uses.
#define int8 char
#define int16 short
#define uint8 uchar
#define uint16 ushort
#define float16 stored_float16
typedef int int32;
typedef long int64;
typedef uint uint32;
typedef ulong uint64;
#define fmodf fmod
#define floorf floor
#define copysignf copysign
#ifdef cl_khr_fp64
#define PICOGRAD_HAS_FLOAT64
#endif
#else
#include <math.h>
#include <stdbool.h>

typedef signed char int8;
typedef short int16;
typedef int int32;
typedef long long int64;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
#define PICOGRAD_HAS_FLOAT64
#endif
typedef float float32;
#ifdef PICOGRAD_HAS_FLOAT64
typedef double float64;
#endif

#define PRIMITIVE static inline

// Floats that are only stored: arithmetic is done in float32.
typedef struct { uint16 bits; } float16;
typedef struct { uint16 bits; } bfloat16;
typedef struct { uint8 bits; } float8_e4m3;
typedef struct { uint8 bits; } float8_e5m2;

// ---- bits ----
#define PICOGRAD_BITS(T, U)                                                                             \
  PRIMITIVE U bits_of_##T(T value) { union { T value; U bits; } same; same.value = value; return same.bits; } \
  PRIMITIVE T T##_of_bits(U bits) { union { T value; U bits; } same; same.bits = bits; return same.value; }
PICOGRAD_BITS(int8, uint8)
PICOGRAD_BITS(int16, uint16)
PICOGRAD_BITS(int32, uint32)
PICOGRAD_BITS(int64, uint64)
PICOGRAD_BITS(uint8, uint8)
PICOGRAD_BITS(uint16, uint16)
PICOGRAD_BITS(uint32, uint32)
PICOGRAD_BITS(uint64, uint64)
PICOGRAD_BITS(float16, uint16)
PICOGRAD_BITS(bfloat16, uint16)
PICOGRAD_BITS(float8_e4m3, uint8)
PICOGRAD_BITS(float8_e5m2, uint8)
PICOGRAD_BITS(float32, uint32)
#ifdef PICOGRAD_HAS_FLOAT64
PICOGRAD_BITS(float64, uint64)
#endif

// ---- errors that values decide ----
// Keeps the first report of a kernel, from whatever thread it comes: its number, then the value it is about.
#ifdef __OPENCL_VERSION__
PRIMITIVE void report(global int64 *words, int64 number, int64 value) {  // numbers are small: the lower half is enough
  if (atomic_cmpxchg((volatile global int *)words, 0, (int)number) == 0) words[1] = value;
}
#else
PRIMITIVE void report(int64 *words, int64 number, int64 value) {
  int64 none = 0;
  if (__atomic_compare_exchange_n(words, &none, number, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) words[1] = value;
}
#endif

#ifdef __OPENCL_VERSION__
// ---- lanes: several elements that one work-item computes side by side ----
// The type TxN, and what reads and writes N elements from memory[index] on, where N divides index. A word W is what one
// access moves; where memory does not begin at a multiple of it (a row of something larger), elements move one by one.
#define PICOGRAD_MOVE(count, to, from) for (int i = 0; i < (int)(count); i++) (to)[i] = (from)[i]
#define LANES(T, N, W)                                                                                  \
  typedef union { T at[N]; W words[N * sizeof(T) / sizeof(W)]; } T##x##N;                               \
  PRIMITIVE T##x##N load_##T##x##N(global const T *memory, int64 index) {                               \
    T##x##N lanes;                                                                                      \
    if ((uintptr_t)memory % sizeof(W) != 0) PICOGRAD_MOVE(N, lanes.at, memory + index);                 \
    else PICOGRAD_MOVE(N * sizeof(T) / sizeof(W), lanes.words, (global const W *)(memory + index));     \
    return lanes;                                                                                       \
  }                                                                                                     \
  PRIMITIVE void store_##T##x##N(global T *memory, int64 index, T##x##N lanes) {                        \
    if ((uintptr_t)memory % sizeof(W) != 0) PICOGRAD_MOVE(N, memory + index, lanes.at);                 \
    else PICOGRAD_MOVE(N * sizeof(T) / sizeof(W), (global W *)(memory + index), lanes.words);           \
  }                                                                                                     \
  PRIMITIVE T##x##N load_local_##T##x##N(local const T *memory, int64 index) {                          \
    T##x##N lanes;                                                                                      \
    PICOGRAD_MOVE(N * sizeof(T) / sizeof(W), lanes.words, (local const W *)(memory + index));           \
    return lanes;                                                                                       \
  }                                                                                                     \
  PRIMITIVE void store_local_##T##x##N(local T *memory, int64 index, T##x##N lanes) {                   \
    PICOGRAD_MOVE(N * sizeof(T) / sizeof(W), (local W *)(memory + index), lanes.words);                 \
  }
#endif

// ---- integers ----
// floor_div:  rounded to minus infinity; 0 for a divisor of 0. The least integer divided by -1 wraps to itself.
// floor_mod:  a - floor_div(a, b) * b: has the sign of b; 0 for a divisor of 0.
// int_pow:    a to the power of b, wrapping; for a negative b what 1 / a**-b truncates to.
// shift_left, shift_right:  by any count; a negative one or one past the width shifts everything out.
#define PICOGRAD_INTEGERS(T)                                                                            \
  PRIMITIVE T larger_##T(T a, T b) { return a > b ? a : b; }                                            \
  PRIMITIVE T smaller_##T(T a, T b) { return a < b ? a : b; }                                           \
  PRIMITIVE T floor_div_##T(T a, T b) {                                                                 \
    if (b == 0) return 0;                                                                               \
    if ((T)-1 < (T)0 && b == (T)-1) return (T)(0 - (uint64)a);                                          \
    return a % b != 0 && (a < 0) != (b < 0) ? a / b - 1 : a / b;                                        \
  }                                                                                                     \
  PRIMITIVE T floor_mod_##T(T a, T b) {                                                                 \
    if (b == 0 || ((T)-1 < (T)0 && b == (T)-1)) return 0;                                               \
    const T rest = a % b;                                                                               \
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                                        \
  }                                                                                                     \
  PRIMITIVE T int_pow_##T(T a, T b) {                                                                   \
    if (b < 0) return a == (T)1 ? (T)1 : a == (T)-1 ? (b & 1 ? (T)-1 : (T)1) : (T)0;                    \
    uint64 result = 1, factor = (uint64)a;                                                              \
    for (uint64 left = (uint64)b; left != 0; left >>= 1) {                                              \
      if (left & 1) result *= factor;                                                                   \
      factor *= factor;                                                                                 \
    }                                                                                                   \
    return (T)result;                                                                                   \
  }                                                                                                     \
  PRIMITIVE T shift_left_##T(T a, T count) {                                                            \
    return (uint64)count < 8 * sizeof(T) ? (T)((uint64)a << count) : (T)0;                              \
  }                                                                                                     \
  PRIMITIVE T shift_right_##T(T a, T count) {                                                           \
    return (uint64)count < 8 * sizeof(T) ? (T)(a >> count) : (a < 0 ? (T)-1 : (T)0);                    \
  }
PICOGRAD_INTEGERS(int8)
PICOGRAD_INTEGERS(int16)
PICOGRAD_INTEGERS(int32)
PICOGRAD_INTEGERS(int64)
PICOGRAD_INTEGERS(uint8)
PICOGRAD_INTEGERS(uint16)
PICOGRAD_INTEGERS(uint32)
PICOGRAD_INTEGERS(uint64)

// Threefry-2x32 of 20 rounds (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"). Word 0 of counter,
// key and result is the high one.
PRIMITIVE uint64 threefry(uint64 counter, uint64 key) {
  const uint32 rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32 high = (uint32)(key >> 32), low = (uint32)key, keys[3] = {high, low, high ^ low ^ 0x1BD11BDAu};
  uint32 x = (uint32)(counter >> 32) + keys[0], y = (uint32)counter + keys[1];
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

// ---- floats: f is what the library appends to the names of a type's functions ----
// larger, smaller:  a NaN wins, -0 < +0 (IEEE 754-2019 maximum, minimum)
// float_mod, float_floor_div:  remainder with the sign of the divisor, and the quotient that goes with it, as in NumPy
#define PICOGRAD_FLOATS(T, f)                                                                           \
  PRIMITIVE T larger_##T(T a, T b) { return a == b ? (signbit(a) ? b : a) : a > b || a != a ? a : b; }  \
  PRIMITIVE T smaller_##T(T a, T b) { return a == b ? (signbit(a) ? a : b) : a < b || a != a ? a : b; } \
  PRIMITIVE T float_mod_##T(T a, T b) {                                                                 \
    const T rest = fmod##f(a, b);                                                                       \
    if (b == 0 || rest != rest) return rest;                                                            \
    if (rest == 0) return copysign##f((T)0, b);                                                            \
    return (rest < 0) != (b < 0) ? rest + b : rest;                                                     \
  }                                                                                                     \
  PRIMITIVE T float_floor_div_##T(T a, T b) {                                                           \
    if (b == 0) return a / b;                                                                           \
    const T rest = fmod##f(a, b);                                                                       \
    T quotient = (a - rest) / b;                                                                        \
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;                                              \
    if (quotient == 0) return copysign##f((T)0, a / b);                                                    \
    const T whole = floor##f(quotient);                                                                 \
    return quotient - whole > (T)0.5f ? whole + 1 : whole;                                              \
  }
PICOGRAD_FLOATS(float32, f)
#ifdef PICOGRAD_HAS_FLOAT64
PICOGRAD_FLOATS(float64, )
#endif

// A float cut to an integer: what does not fit becomes the nearest end of the range, NaN becomes 0.
#define PICOGRAD_TO_INTEGER(T, S)                                                                       \
  PRIMITIVE T to_integer_##T##_##S(S value) {                                                           \
    const bool is_signed = (T)-1 < (T)0;                                                                \
    const int bits = 8 * (int)sizeof(T) - is_signed; /* of the greatest value, all of them ones */      \
    const T greatest = (T)(~(uint64)0 >> (64 - bits));                                                  \
    const S end = (S)((uint64)1 << (bits - 1)) * 2;                                                     \
    if (value != value) return 0;                                                                       \
    if (value >= end) return greatest;                                                                  \
    if (value < (is_signed ? -end : (S)0)) return is_signed ? (T)(-greatest - 1) : (T)0;                \
    return (T)value;                                                                                    \
  }
#define PICOGRAD_TO_INTEGERS(S)  \
  PICOGRAD_TO_INTEGER(int8, S)   \
  PICOGRAD_TO_INTEGER(int16, S)  \
  PICOGRAD_TO_INTEGER(int32, S)  \
  PICOGRAD_TO_INTEGER(int64, S)  \
  PICOGRAD_TO_INTEGER(uint8, S)  \
  PICOGRAD_TO_INTEGER(uint16, S) \
  PICOGRAD_TO_INTEGER(uint32, S) \
  PICOGRAD_TO_INTEGER(uint64, S)
PICOGRAD_TO_INTEGERS(float32)
#ifdef PICOGRAD_HAS_FLOAT64
PICOGRAD_TO_INTEGERS(float64)
#endif

// ---- narrow floats: exponent bits, mantissa bits; rounded to nearest, ties to even ----
// infinite: the largest exponent means infinity and NaN; without it only "all ones" is NaN, which what overflows becomes.
PRIMITIVE uint32 narrow(float32 value, int exponent_bits, int mantissa_bits, bool infinite) {
  const int shift = 23 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1, least = 1 - bias;
  const uint32 ones = (1u << (exponent_bits + mantissa_bits)) - 1;
  const uint32 limit = infinite ? ones >> mantissa_bits << mantissa_bits : ones;
  const uint32 bits = bits_of_float32(value), magnitude = bits & 0x7fffffffu;
  const uint32 sign = bits >> 31 << (exponent_bits + mantissa_bits);
  if (magnitude > 0x7f800000u) return sign | (infinite ? limit | 1u << (mantissa_bits - 1) : ones);
  const int stored = (int)(magnitude >> 23), exponent = (stored == 0 ? 1 : stored) - 127;
  uint32 result;
  if (exponent < least) {
    const int lost = shift + least - exponent;
    const uint32 mantissa = stored == 0 ? magnitude : (magnitude & 0x7fffffu) | 0x800000u;
    if (lost > 24) return sign;
    result = (mantissa + (1u << (lost - 1)) - 1 + (mantissa >> lost & 1)) >> lost;
  } else {
    result = (magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift;
    result -= (uint32)(127 - bias) << mantissa_bits;
  }
  return sign | (result >= limit ? limit : result);
}

// Of fewer exponent bits than a float32 has.
PRIMITIVE float32 widen(uint32 bits, int exponent_bits, int mantissa_bits, bool infinite) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32 ones = (1u << (exponent_bits + mantissa_bits)) - 1, magnitude = bits & ones;
  const uint32 sign = bits >> (exponent_bits + mantissa_bits) << 31;
  if (infinite ? magnitude >= ones >> mantissa_bits << mantissa_bits : magnitude == ones) {
    const bool is_infinity = infinite && (magnitude & ((1u << mantissa_bits) - 1)) == 0;
    return float32_of_bits(sign | (is_infinity ? 0x7f800000u : 0x7fc00000u));
  }
  if (magnitude >> mantissa_bits == 0) {
    const float32 tiny = (float32)magnitude * float32_of_bits((uint32)(128 - bias - mantissa_bits) << 23);
    return float32_of_bits(sign | bits_of_float32(tiny));
  }
  return float32_of_bits(sign | ((magnitude << (23 - mantissa_bits)) + ((uint32)(127 - bias) << 23)));
}

#define PICOGRAD_NARROW(T, exponent_bits, mantissa_bits, infinite)                                      \
  PRIMITIVE T to_##T##_float32(float32 value) {                                                         \
    return T##_of_bits(narrow(value, exponent_bits, mantissa_bits, infinite));                          \
  }
PICOGRAD_NARROW(float16, 5, 10, true)
PICOGRAD_NARROW(bfloat16, 8, 7, true)
PICOGRAD_NARROW(float8_e4m3, 4, 3, false)
PICOGRAD_NARROW(float8_e5m2, 5, 2, true)
PRIMITIVE float32 to_float32_float16(float16 value) { return widen(value.bits, 5, 10, true); }
PRIMITIVE float32 to_float32_bfloat16(bfloat16 value) { return float32_of_bits((uint32)value.bits << 16); }
PRIMITIVE float32 to_float32_float8_e4m3(float8_e4m3 value) { return widen(value.bits, 4, 3, false); }
PRIMITIVE float32 to_float32_float8_e5m2(float8_e5m2 value) { return widen(value.bits, 5, 2, true); }

#ifdef PICOGRAD_HAS_FLOAT64
// A float32 that rounds on to float16 as `value` would: truncated, its last bit set if anything was cut. (float64 goes
// to bfloat16 and float8 through a float32 rounded to nearest, as in ml_dtypes.)
PRIMITIVE float32 round_to_odd(float64 value) {
  const float32 nearest = (float32)value;
  if ((float64)nearest == value || value != value || isinf(nearest)) return nearest;
  const uint32 bits = bits_of_float32(nearest);
  return float32_of_bits((fabs((float64)nearest) > fabs(value) ? bits - 1 : bits) | 1u);
}
PRIMITIVE float16 to_float16_float64(float64 value) { return to_float16_float32(round_to_odd(value)); }
PRIMITIVE bfloat16 to_bfloat16_float64(float64 value) { return to_bfloat16_float32((float32)value); }
PRIMITIVE float8_e4m3 to_float8_e4m3_float64(float64 value) { return to_float8_e4m3_float32((float32)value); }
PRIMITIVE float8_e5m2 to_float8_e5m2_float64(float64 value) { return to_float8_e5m2_float32((float32)value); }
#endif

#endif
