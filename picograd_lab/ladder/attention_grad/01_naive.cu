// Naive: weights and slopes of all scores are stored and summed over.
//
// The logarithms lse from the forward pass give each weight, w = exp(score - lse), without a sum. With g, the gradient
// of the result, the slope of a score is w (g v - delta), where delta = g o is one number for each row. Then dv = w.T
// g, dq = slopes k, dk = slopes.T q, of a head that others share the sum over all of them. What is left: two matrices
// of T x T for each head.
#include "primitives.h"

#define MEMORY                                                                                                      \
  Global<const float32> q, Global<const float32> k, Global<const float32> v, Global<const float32> o,              \
      Global<const float32> g, Global<const float32> lse, Global<float32> dq, Global<float32> dk, Global<float32> dv, \
      Global<float32> delta, Global<float32> weights, Global<float32> slopes
static const int32 GROUP = HEADS / KV_HEADS;

extern "C" __global__ void __launch_bounds__(256) deltas(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= HEADS * T) return;
  float32 sum = 0.0f;
  for (int32 d = lane; d < D; d += 32) sum = fmaf(g[row * D + d], o[row * D + d], sum);
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  if (lane == 0) delta[row] = sum;
}

extern "C" __global__ void __launch_bounds__(256) slope(MEMORY) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, j = element % T, row = element / T, head = row / T;
  if (head >= HEADS) return;
  float32 score = 0.0f, product = 0.0f;
  for (int32 d = 0; d < D; d++) {
    score = fmaf(q[row * D + d], k[(head / GROUP * T + j) * D + d], score);
    product = fmaf(g[row * D + d], v[(head / GROUP * T + j) * D + d], product);
  }
  const float32 weight = CAUSAL && j > row % T ? 0.0f : expf(score / sqrtf(D) - lse[row]);
  weights[element] = weight;
  slopes[element] = weight * (product - delta[row]) / sqrtf(D);
}

extern "C" __global__ void __launch_bounds__(256) queries(MEMORY) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, d = element % D, row = element / D, head = row / T;
  if (head >= HEADS) return;
  float32 sum = 0.0f;
  for (int32 j = 0; j < T; j++) sum = fmaf(slopes[row * T + j], k[(head / GROUP * T + j) * D + d], sum);
  dq[element] = sum;
}

extern "C" __global__ void __launch_bounds__(256) keys(MEMORY) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, d = element % D, j = element / D % T, kv_head = element / D / T;
  if (kv_head >= KV_HEADS) return;
  float32 of_k = 0.0f, of_v = 0.0f;
  for (int32 row = kv_head * GROUP * T; row < (kv_head + 1) * GROUP * T; row++) {
    of_k = fmaf(slopes[row * T + j], q[row * D + d], of_k);
    of_v = fmaf(weights[row * T + j], g[row * D + d], of_v);
  }
  dk[element] = of_k;
  dv[element] = of_v;
}
