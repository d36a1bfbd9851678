// Direct: a thread for each element of y, as the definition says.
//
// Neighbouring threads have neighbouring columns of y, so a warp reads a row of x together, and one element of w. What
// is left: a multiply-add takes two loads. Each element of x is read R R F times, each of w once for each pixel.
#include "primitives.h"

static const int32 PAD = R / 2, OH = (H + 2 * PAD - R) / STRIDE + 1, OW = (W + 2 * PAD - R) / STRIDE + 1;

extern "C" __global__ void __launch_bounds__(256)
    direct(Global<const float32> x, Global<const float32> w, Global<float32> y) {
  const int32 element = blockIdx.x * 256 + threadIdx.x, column = element % OW, row = element / OW % OH;
  const int32 filter = element / (OW * OH) % F, image = element / (OW * OH * F);
  if (image >= N) return;
  float32 sum = 0.0f;
  for (int32 c = 0; c < C; c++)
    for (int32 r = 0; r < R; r++)
      for (int32 s = 0; s < R; s++) {
        const int32 i = row * STRIDE + r - PAD, j = column * STRIDE + s - PAD;
        if (0 <= i && i < H && 0 <= j && j < W)
          sum = fmaf(x[((image * C + c) * H + i) * W + j], w[((filter * C + c) * R + r) * R + s], sum);
      }
  y[element] = sum;
}
