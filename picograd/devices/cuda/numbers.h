// Operations on numbers: integers as picograd means them, what is said of floats beyond the language's operators, random
// bits, and the floats that are only stored.
//
// Included by primitives.h. But for instructions that a GPU has for one of these, one body serves the GPU and the simulator.

#ifndef PICOGRAD_NUMBERS_H
#define PICOGRAD_NUMBERS_H

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

// 1 over a value, 1 ulp off; of a subnormal value infinity, and 0 where the result is subnormal. PTX ISA 9.7.3.13, rcp.approx.ftz.f32.
PRIMITIVE float32 rough_reciprocal(float32 value) {
#ifdef __CUDACC_RTC__
  float32 result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  const float32 result = 1.0f / (fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value);
  return fabsf(result) < 0x1p-126f ? copysignf(0.0f, result) : result;
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
PRIMITIVE bfloat16 to_bfloat16(float32 value) {  // PTX ISA 9.7.9, cvt: .bf16x2 from sm_80; of a single one ptxas makes a slow F2F
  uint32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
  return {(uint16)pair};
}
#else
PRIMITIVE bfloat16 to_bfloat16(float32 value) { return bfloat16{(uint16)narrow<8, 7, true>(value)}; }
#endif

PRIMITIVE float16 to_float16(float64 value) { return to_float16(round_to_odd(value)); }
PRIMITIVE bfloat16 to_bfloat16(float64 value) { return to_bfloat16((float32)value); }
PRIMITIVE float8_e4m3 to_float8_e4m3(float64 value) { return to_float8_e4m3((float32)value); }
PRIMITIVE float8_e5m2 to_float8_e5m2(float64 value) { return to_float8_e5m2((float32)value); }

// A value in the dtype of the second one.
PRIMITIVE float32 narrowed(float32 value, float32) { return value; }
PRIMITIVE bfloat16 narrowed(float32 value, bfloat16) { return to_bfloat16(value); }
PRIMITIVE float16 narrowed(float32 value, float16) { return to_float16(value); }

#endif
