// One launch: a block finds its tensor and position; one launch for all tensors.
//
// The blocks of all tensors are counted through, each tensor's from a block of its own on, since what is decided for a
// tensor, here whether its weights decay, is decided for a block. A network has its addresses in a table in memory;
// here they follow from N. What is left is nothing of memory: 28 bytes an element, all of them once. A step can only be
// shorter with narrower averages.
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
extern "C" __global__ void __launch_bounds__(256) one_launch(MEMORY) {
  int32 tensor = 0, block = blockIdx.x;
  for (; block >= (length_of(tensor) + 1023) / 1024; tensor++) block -= (length_of(tensor) + 1023) / 1024;
  const int32 own = 1024 * block + 4 * threadIdx.x, i = start_of(tensor) + own;
  if (own >= length_of(tensor)) return;
  const float32 decay = tensor % 2 ? 0.0f : DECAY;
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
