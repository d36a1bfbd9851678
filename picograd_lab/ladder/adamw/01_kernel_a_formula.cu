// Kernel a formula: each of four formulas is a kernel that walks along a tensor.
//
// There are four tensors, each with half as many elements as the one before, one behind the other in memory; a kernel
// knows its own by a number that is compiled in. For an element, the four kernels move 12 numbers, and 7 would do: the
// gradient is read twice, the new averages are stored and read again, and the step is stored and read. What is left:
// that, and 16 launches, some of them for a handful of threads.
#include "primitives.h"

static const float32 RATE = 1e-3f, B1 = 0.9f, B2 = 0.999f, EPS = 1e-8f, DECAY = 0.1f;
static const float32 CORRECTION_1 = 0.65132156f, CORRECTION_2 = 0.00995512f;  // 1 - B1^10, 1 - B2^10: the tenth step
#define MEMORY                                                                                                      \
  Global<const float32> p, Global<const float32> g, Global<const float32> m, Global<const float32> v,              \
      Global<float32> new_p, Global<float32> new_m, Global<float32> new_v, Global<float32> step

PRIMITIVE int32 length_of(int32 tensor) { return (N + (1 << tensor) - 1) >> tensor; }
PRIMITIVE int32 start_of(int32 tensor) {
  int32 start = 0;
  for (int32 i = 0; i < tensor; i++) start += length_of(i);
  return start;
}

// Functions, so that what they name twice is loaded once.
PRIMITIVE float32 squared(float32 a) { return a * a; }
PRIMITIVE float32 changed(float32 p, float32 step, float32 decay) { return p - RATE * (step + decay * p); }

#define KERNEL(name, tensor, formula)                                             \
  extern "C" __global__ void __launch_bounds__(256) name##_##tensor(MEMORY) {     \
    const int32 own = blockIdx.x * 256 + threadIdx.x, i = start_of(tensor) + own; \
    if (own < length_of(tensor)) formula;                                         \
  }
#define KERNELS(tensor)                                                                              \
  KERNEL(mean, tensor, new_m[i] = B1 * m[i] + (1 - B1) * g[i])                                       \
  KERNEL(square, tensor, new_v[i] = B2 * v[i] + (1 - B2) * squared(g[i]))                            \
  KERNEL(divide, tensor, step[i] = new_m[i] / CORRECTION_1 / (sqrtf(new_v[i] / CORRECTION_2) + EPS)) \
  KERNEL(change, tensor, new_p[i] = changed(p[i], step[i], tensor % 2 ? 0.0f : DECAY))

KERNELS(0)
KERNELS(1)
KERNELS(2)
KERNELS(3)
