// Welford: mean and variance are found in one pass.
//
// Count, mean and sum of squared differences are kept up to date, element by element. The sum of squares less the
// square of the sum would be one pass, too, and lose all digits where the mean is large; this does not. Two parts are
// joined by the distance of their means: m = n b / (n a + n b) and so on, as a tree in shared memory. x is read twice,
// not three times, and there is one join. What is left: 8 levels with a barrier each.
// Source: Welford 1962; Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance".
#include "primitives.h"

static const int32 THREADS = 256;

struct Moments {
  float32 count, mean, squares;
};
PRIMITIVE Moments join(Moments a, Moments b) {
  const float32 count = a.count + b.count, apart = b.mean - a.mean, part = count > 0.0f ? b.count / count : 0.0f;
  return {count, a.mean + apart * part, a.squares + b.squares + apart * apart * a.count * part};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    welford(Global<const float32> x, Global<const float32> weight, Global<const float32> bias, Global<float32> y) {
  SHARED(float32, counts, THREADS);
  SHARED(float32, means, THREADS);
  SHARED(float32, squares, THREADS);
  const int32 first = blockIdx.x * COLS, own = threadIdx.x;
  Moments moments = {0.0f, 0.0f, 0.0f};
  for (int32 i = own; i < COLS; i += THREADS) moments = join(moments, {1.0f, x[first + i], 0.0f});
  for (int32 half = THREADS / 2; half > 0; half /= 2) {
    if (own < 2 * half) counts[own] = moments.count, means[own] = moments.mean, squares[own] = moments.squares;
    __syncthreads();
    if (own < half) moments = join(moments, {counts[own + half], means[own + half], squares[own + half]});
    __syncthreads();
  }
  if (own == 0) means[0] = moments.mean, squares[0] = moments.squares;
  __syncthreads();
  const float32 mean = means[0], scale = 1.0f / sqrtf(squares[0] / COLS + 1e-5f);
  for (int32 i = own; i < COLS; i += THREADS)
    y[first + i] = (x[first + i] - mean) * scale * weight[i] + bias[i];
}
