// cuBLAS for mlp_cublas.cu: nvcc takes the library; a C++ compiler takes a stand-in that computes the same product on picograd's
// simulator, a thread for each element.
#ifndef SGEMM_H
#define SGEMM_H

#include "gpu.h"

#ifdef __CUDACC__
#include <cublas_v2.h>
#else
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
typedef int cublasHandle_t;
static cublasStatus_t cublasCreate(cublasHandle_t *) { return CUBLAS_STATUS_SUCCESS; }
static const char *cublasGetStatusString(cublasStatus_t) { return "a stride is shorter than a column"; }

static float scale, kept;  // alpha and beta: a launch of the simulator passes integers
__global__ void sgemm(Global<float> c, Global<const float> a, Global<const float> b, int a_is_transposed, int b_is_transposed,
                      int rows, int columns, int depth, int a_stride, int b_stride, int c_stride) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = i % rows, column = i / rows;
  if (column >= columns) return;
  float sum = 0;
  for (int k = 0; k < depth; k++)
    sum += a[a_is_transposed ? k + r * a_stride : r + k * a_stride] * b[b_is_transposed ? column + k * b_stride : k + column * b_stride];
  const int at = r + column * c_stride;
  c[at] = kept != 0 ? scale * sum + kept * c[at] : scale * sum;  // with beta 0, c may hold anything
}

// c (rows, columns) = alpha * a @ b + beta * c; element (i, j) of each matrix is at i + j * stride.
static cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t a_is, cublasOperation_t b_is, int rows, int columns, int depth,
                                  const float *alpha, const float *a, int a_stride, const float *b, int b_stride,
                                  const float *beta, float *c, int c_stride) {
  if (a_stride < (a_is == CUBLAS_OP_T ? depth : rows) || b_stride < (b_is == CUBLAS_OP_T ? columns : depth) || c_stride < rows)
    return CUBLAS_STATUS_INVALID_VALUE;
  scale = *alpha, kept = *beta;
  LAUNCH(sgemm, rows * columns)(c, a, b, (int)a_is, (int)b_is, rows, columns, depth, a_stride, b_stride, c_stride);
  return CUBLAS_STATUS_SUCCESS;
}
#endif

#endif
