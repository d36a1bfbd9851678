// What a user's kernel in CUDA C finds beside primitives.h: the names of CUDA for types and functions that have others here.
//
// On the GPU the rest is the compiler's own. On the simulator its functions are in cudasim/plain.h, and pointers and shared
// memory of the source have become classes that check each access (devices/cudasim/compile.py).

#ifndef PICOGRAD_GIVEN_H
#define PICOGRAD_GIVEN_H

#include "primitives.h"
#ifndef __CUDACC_RTC__
#include "hopper.h"
#endif

typedef float16 half, __half;
typedef bfloat16 __nv_bfloat16;
PRIMITIVE float __half2float(half value) { return to_float32(value); }
PRIMITIVE half __float2half(float value) { return to_float16(value); }
PRIMITIVE float __bfloat162float(__nv_bfloat16 value) { return to_float32(value); }
PRIMITIVE __nv_bfloat16 __float2bfloat16(float value) { return to_bfloat16(value); }

#ifdef __CUDACC_RTC__
typedef int8 int8_t;
typedef uint8 uint8_t;
typedef int16 int16_t;
typedef uint16 uint16_t;
typedef int32 int32_t;
typedef uint32 uint32_t;
typedef int64 int64_t;
typedef uint64 uint64_t;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
#define GIVEN(memory, name) memory
// A user's kernel is inlined into one whose arguments are those of a plan.
#define GIVEN_KERNEL(...) extern "C" __attribute__((global)) void __attribute__((launch_bounds(__VA_ARGS__)))
#undef __global__
#undef __launch_bounds__
#define __global__ __device__ __forceinline__
#define __launch_bounds__(...)
#else
#include "cudasim/plain.h"
#endif

#endif
