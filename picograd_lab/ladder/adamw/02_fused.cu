// Fused: one kernel computes all four formulas; nothing between them is stored.
//
// An element is read with its gradient and both averages, and is written with both: 7 numbers move, which is the least.
// The four launches for each tensor are one. What is left: a load moves 4 bytes a thread, and small tensors have a
// launch each.
#include "primitives.h"

static const float32 RATE = 1e-3f, B1 = 0.9f, B2 = 0.999f, EPS = 1e-8f, DECAY = 0.1f;
static const float32 CORRECTION_1 = 0.65132156f, CORRECTION_2 = 0.00995512f;  // 1 - B1^10, 1 - B2^10: the tenth step
#define MEMORY                                                                                                      \
  Global<const float32> p, Global<const float32> g, Global<const float32> m, Global<const float32> v,              \
      Global<float32> new_p, Global<float32> new_m, Global<float32> new_v

// The step of one element.
struct State {
  float32 p, m, v;
};
PRIMITIVE State stepped(State old, float32 g, float32 decay) {
  const float32 m = B1 * old.m + (1 - B1) * g, v = B2 * old.v + (1 - B2) * g * g;
  const float32 step = m / CORRECTION_1 / (sqrtf(v / CORRECTION_2) + EPS);
  return {old.p - RATE * (step + decay * old.p), m, v};
}
PRIMITIVE int32 length_of(int32 tensor) { return (N + (1 << tensor) - 1) >> tensor; }
PRIMITIVE int32 start_of(int32 tensor) {
  int32 start = 0;
  for (int32 i = 0; i < tensor; i++) start += length_of(i);
  return start;
}

#define KERNEL(tensor)                                                                                     \
  extern "C" __global__ void __launch_bounds__(256) fused_##tensor(MEMORY) {                               \
    const int32 own = blockIdx.x * 256 + threadIdx.x, i = start_of(tensor) + own;                          \
    if (own >= length_of(tensor)) return;                                                                  \
    const State state = stepped({p[i], m[i], v[i]}, g[i], tensor % 2 ? 0.0f : DECAY);                      \
    new_p[i] = state.p, new_m[i] = state.m, new_v[i] = state.v;                                            \
  }

KERNEL(0)
KERNEL(1)
KERNEL(2)
KERNEL(3)
