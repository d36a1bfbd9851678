// Naive: scores, weights and result are a kernel each, as the definition says.
//
// A thread has one score, the product of a row of q and a row of k. A warp has one row of scores and makes weights of
// them. A thread has one element of the result, a row of weights times a column of v. The scores of a head are T x T,
// and memory sees them four times: stored, read for the weights, stored, read T times or D times over. What is left:
// that, and that each multiply-add waits for two loads.
#include "primitives.h"

#define MEMORY                                                                                                        \
  Global<const float32> q, Global<const float32> k, Global<const float32> v, Global<float32> o, Global<float32> lse, \
      Global<float32> weights
static const int32 GROUP = HEADS / KV_HEADS;  // of heads that share keys and values

extern "C" __global__ void __launch_bounds__(256) scores(MEMORY) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, j = element % T, i = element / T % T, head = element / T / T;
  if (head >= HEADS) return;
  float32 sum = 0.0f;
  for (int32 d = 0; d < D; d++) sum = fmaf(q[(head * T + i) * D + d], k[(head / GROUP * T + j) * D + d], sum);
  if (CAUSAL && j > i) sum = float32_of_bits(0xff800000u);  // -inf
  weights[element] = sum / sqrtf(D);
}

extern "C" __global__ void __launch_bounds__(256) softmax(MEMORY) {
  const int32 row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= HEADS * T) return;
  float32 greatest = -3.4028235e38f, sum = 0.0f;
  for (int32 j = lane; j < T; j += 32) greatest = larger(greatest, weights[row * T + j]);
  for (int32 distance = 16; distance > 0; distance /= 2) greatest = larger(greatest, shuffle_xor(greatest, distance));
  for (int32 j = lane; j < T; j += 32) sum += expf(weights[row * T + j] - greatest);
  for (int32 distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  for (int32 j = lane; j < T; j += 32) weights[row * T + j] = expf(weights[row * T + j] - greatest) / sum;
  if (lane == 0) lse[row] = greatest + logf(sum);
}

extern "C" __global__ void __launch_bounds__(256) weighted(MEMORY) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, d = element % D, row = element / D, head = row / T;
  if (head >= HEADS) return;
  float32 sum = 0.0f;
  for (int32 j = 0; j < T; j++) sum = fmaf(weights[row * T + j], v[(head / GROUP * T + j) * D + d], sum);
  o[element] = sum;
}
