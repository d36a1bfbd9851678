// Vectors: one instruction loads or stores four elements, 16 bytes.
//
// A thread has four elements, and four loads of 16 bytes on their way at once. Tensors must be whole vectors: of the
// four tensors the last has N / 8 elements. What is left: a launch for each tensor. A network has hundreds, and most of
// them are a few thousand elements: the GPU is done with such a one before the next launch has come.
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
PRIMITIVE void step_four(MEMORY, int32 i, float32 decay) {
  Lanes<float32, 4> of_p = load_lanes<4>(aligned(p), i), of_m = load_lanes<4>(aligned(m), i);
  Lanes<float32, 4> of_v = load_lanes<4>(aligned(v), i);
  const Lanes<float32, 4> of_g = load_lanes<4>(aligned(g), i);
  for (int32 j = 0; j < 4; j++) {
    const State state = stepped({of_p.at[j], of_m.at[j], of_v.at[j]}, of_g.at[j], decay);
    of_p.at[j] = state.p, of_m.at[j] = state.m, of_v.at[j] = state.v;
  }
  store_lanes(aligned(new_p), i, of_p);
  store_lanes(aligned(new_m), i, of_m);
  store_lanes(aligned(new_v), i, of_v);
}

#define KERNEL(tensor)                                                                                       \
  extern "C" __global__ void __launch_bounds__(256) vectors_##tensor(MEMORY) {                               \
    const int32 own = 4 * (blockIdx.x * 256 + threadIdx.x), decays = tensor % 2 == 0;                        \
    if (own < length_of(tensor))                                                                             \
      step_four(p, g, m, v, new_p, new_m, new_v, start_of(tensor) + own, decays ? DECAY : 0.0f);             \
  }

KERNEL(0)
KERNEL(1)
KERNEL(2)
KERNEL(3)
