// A libcublasLt.so for machines with no GPU: the functions that devices/cuda/cublaslt.py calls, on the memory of the fake driver
// (fake_driver.c), in its streams. It takes what the library's manual says it takes, and no more. Sums run from the last
// of K to the first, so that a result tells who computed it. For testing picograd's own code, never for using it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_TF32 = 77, MAGIC = 0x5eed, WORKSPACE = 4096, SPLIT = 64 };
enum { PLAIN = 1, RELU = 2, BIAS = 4 };

struct Operation { int compute, scale, transpose[2]; uint32_t epilogue; const char* bias; };
struct Layout { int dtype, batch; uint64_t rows, columns; int64_t ld, apart; };
struct Preference { uint64_t workspace; uint32_t scheme, alignment[4]; };
struct Algorithm { uint64_t magic, alignment, workspace, scheme, compute, epilogue, rest[2]; };
struct Heuristic { struct Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; };
struct Product {
  struct Operation op; struct Layout a, b, c, d; const char *left, *right, *added; char *out; void *workspace;
  struct Algorithm how; float alpha, beta;
};

static int64_t (*nbytes_from)(uint64_t);
static int (*submit)(uint64_t, const char* (*)(const int64_t*, const int64_t*, int64_t, int64_t), int64_t*);

EXPORT size_t cublasLtGetVersion(void) {
  const char* version = getenv("FAKE_CUBLASLT_VERSION");
  return version ? (size_t)atoi(version) : 139907;
}
EXPORT const char* cublasLtGetStatusName(int status) {
  return status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED" : "unrecognized status";
}
EXPORT int cublasLtCreate(void** handle) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return NOT_INITIALIZED;
  nbytes_from = dlsym(driver, "fake_driver_nbytes_from");
  submit = dlsym(driver, "fake_driver_submit");
  *handle = &nbytes_from;
  return SUCCESS;
}
// ---- descriptors ----
EXPORT int cublasLtMatmulDescCreate(struct Operation** made, int compute, int scale) {
  *made = calloc(1, sizeof **made);
  **made = (struct Operation){compute, scale, {0, 0}, PLAIN, NULL};
  return scale == R_32F && (compute == COMPUTE_32F || compute == COMPUTE_TF32) ? SUCCESS : INVALID_VALUE;
}
EXPORT int cublasLtMatmulDescSetAttribute(struct Operation* op, int attribute, const void* value, size_t nbytes) {
  if ((attribute == 3 || attribute == 4) && nbytes == 4) op->transpose[attribute - 3] = *(const int32_t*)value;
  else if (attribute == 7 && nbytes == 4 && !getenv("FAKE_CUBLASLT_OLD")) op->epilogue = *(const uint32_t*)value;
  else if (attribute == 8 && nbytes == sizeof(char*) && op->epilogue & BIAS) op->bias = *(char* const*)value;
  else return INVALID_VALUE;
  return op->epilogue == PLAIN || !(op->epilogue & ~(RELU | BIAS)) ? SUCCESS : INVALID_VALUE;
}
EXPORT int cublasLtMatmulDescDestroy(struct Operation* op) { free(op); return SUCCESS; }
EXPORT int cublasLtMatrixLayoutCreate(struct Layout** made, int dtype, uint64_t rows, uint64_t columns, int64_t ld) {
  *made = calloc(1, sizeof **made);
  **made = (struct Layout){dtype, 1, rows, columns, ld, 0};
  return rows && columns && ld >= (int64_t)rows ? SUCCESS : INVALID_VALUE;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(struct Layout* layout, int attribute, const void* value, size_t nbytes) {
  if (attribute == 5 && nbytes == 4) layout->batch = *(const int32_t*)value;
  else if (attribute == 6 && nbytes == 8) layout->apart = *(const int64_t*)value;
  else return INVALID_VALUE;
  return SUCCESS;
}
EXPORT int cublasLtMatrixLayoutDestroy(struct Layout* layout) { free(layout); return SUCCESS; }
EXPORT int cublasLtMatmulPreferenceCreate(struct Preference** made) {
  *made = calloc(1, sizeof **made);
  **made = (struct Preference){0, 7, {256, 256, 256, 256}};
  return SUCCESS;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(struct Preference* to, int attribute, const void* value, size_t nbytes) {
  if (attribute == 1 && nbytes == 8) to->workspace = *(const uint64_t*)value;
  else if (attribute == 3 && nbytes == 4) to->scheme = *(const uint32_t*)value;
  else if (attribute >= 5 && attribute <= 8 && nbytes == 4) to->alignment[attribute - 5] = *(const uint32_t*)value;
  else return INVALID_VALUE;
  return SUCCESS;
}
EXPORT int cublasLtMatmulPreferenceDestroy(struct Preference* preference) { free(preference); return SUCCESS; }

// ---- products ----
static int itemsize(int dtype) { return dtype == R_32F ? 4 : 2; }
// Whether D = op(A) @ op(B) + C has a meaning: of which dtypes stands in the library's manual, in the table of cublasLtMatmul.
static int fits(const struct Operation* op, const struct Layout* a, const struct Layout* b, const struct Layout* c,
                const struct Layout* d) {
  const uint64_t m = op->transpose[0] ? a->columns : a->rows, k = op->transpose[0] ? a->rows : a->columns;
  const uint64_t n = op->transpose[1] ? b->rows : b->columns, depth = op->transpose[1] ? b->columns : b->rows;
  return k == depth && d->rows == m && d->columns == n && c->rows == m && c->columns == n && a->dtype == b->dtype &&
         c->dtype == d->dtype && (d->dtype == a->dtype || d->dtype == R_32F) && (op->compute != COMPUTE_TF32 || a->dtype == R_32F) &&
         a->batch == d->batch && b->batch == d->batch && c->batch == d->batch;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, struct Operation* op, struct Layout* a, struct Layout* b,
                                          struct Layout* c, struct Layout* d, struct Preference* preference, int most,
                                          struct Heuristic* found, int* count) {
  *count = 0;
  if (handle != &nbytes_from || most < 1 || !fits(op, a, b, c, d)) return INVALID_VALUE;
  if (d->rows == 13) return NOT_SUPPORTED;  // no library takes everything
  const uint64_t k = op->transpose[0] ? a->rows : a->columns;
  const uint64_t workspace = k >= SPLIT && preference->workspace >= WORKSPACE ? WORKSPACE : 0;
  uint64_t alignment = preference->alignment[0];
  for (int i = 1; i < 4; i++) {
    if (preference->alignment[i] < (uint64_t)itemsize((i < 2 ? a : d)->dtype)) return INVALID_VALUE;
    if (preference->alignment[i] < alignment) alignment = preference->alignment[i];
  }
  if (op->epilogue & BIAS) {  // its address tells how it is aligned, and nothing is read there
    if (!op->bias || (uint64_t)op->bias % itemsize(d->dtype)) return INVALID_VALUE;
    while ((uint64_t)op->bias % alignment) alignment /= 2;
  }
  *found = (struct Heuristic){
      {MAGIC, alignment, workspace, preference->scheme, (uint64_t)op->compute, op->epilogue, {0}}, workspace, SUCCESS, 1, {0}};
  *count = 1;
  return SUCCESS;
}
static float rounded(float x, int dtype) {
  if (dtype == R_16F) return (float)(_Float16)x;
  if (dtype == R_16BF && !isnan(x)) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, 4);
  }
  return x;
}
static float element(const char* matrices, const struct Layout* layout, int transposed, uint64_t number, uint64_t row, uint64_t column,
                     int compute) {
  const uint64_t r = transposed ? column : row, c = transposed ? row : column;
  const char* at = matrices + (number * layout->apart + r + c * layout->ld) * itemsize(layout->dtype);
  float x = 0;
  if (layout->dtype == R_16F) return (float)*(const _Float16*)at;
  if (layout->dtype == R_16BF) memcpy((char*)&x + 2, at, 2);
  else memcpy(&x, at, 4);
  if (layout->dtype == R_32F && compute == COMPUTE_TF32) {  // cut off, as the instruction does by itself
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits &= 0xffffe000;
    memcpy(&x, &bits, 4);
  }
  return x;
}
static const char* run(const int64_t* arguments, const int64_t* shape, int64_t order, int64_t seed) {
  const struct Product* p = (const struct Product*)arguments;
  const uint64_t depth = p->op.transpose[0] ? p->a.rows : p->a.columns;
  if (getenv("FAKE_CUBLASLT_SLOW")) usleep(200000);
  if (p->how.workspace) memset(p->workspace, 0xff, p->how.workspace);
  for (uint64_t number = 0; number < (uint64_t)p->d.batch; number++)
    for (uint64_t column = 0; column < p->d.columns; column++)
      for (uint64_t row = 0; row < p->d.rows; row++) {
        float sum = 0;
        for (uint64_t k = depth; k-- > 0;) {
          sum += element(p->left, &p->a, p->op.transpose[0], number, row, k, p->op.compute) *
                 element(p->right, &p->b, p->op.transpose[1], number, k, column, p->op.compute);
          if (p->how.scheme != 2) sum = rounded(sum, p->d.dtype);  // parts that are added in the output's dtype
        }
        sum *= p->alpha;
        if (p->beta != 0) sum += p->beta * element(p->added, &p->c, 0, number, row, column, COMPUTE_32F);
        if (p->op.epilogue & BIAS) sum += element(p->op.bias, &p->d, 0, 0, row, 0, COMPUTE_32F);
        if (p->op.epilogue & RELU) sum = fmaxf(sum, 0);
        char* at = p->out + (number * p->d.apart + row + column * p->d.ld) * itemsize(p->d.dtype);
        sum = rounded(sum, p->d.dtype);
        if (p->d.dtype == R_16F) *(_Float16*)at = (_Float16)sum;
        else if (p->d.dtype == R_16BF) memcpy(at, (char*)&sum + 2, 2);
        else memcpy(at, &sum, 4);
      }
  return NULL;
}
static int64_t nbytes_of(const struct Layout* layout) {
  const int64_t last = (layout->batch - 1) * layout->apart + (int64_t)(layout->columns - 1) * layout->ld + (int64_t)layout->rows;
  return last * itemsize(layout->dtype);
}
static int is_inside(const char* matrices, const struct Layout* layout) {
  return nbytes_from((uint64_t)matrices) >= nbytes_of(layout);
}
// Whether memory that is read is none that is written.
static int is_apart(const char* from, int64_t nbytes, const char* out, const struct Layout* d) {
  return from + nbytes <= out || out + nbytes_of(d) <= from;
}
EXPORT int cublasLtMatmul(void* handle, struct Operation* op, const float* alpha, const char* left, struct Layout* a,
                          const char* right, struct Layout* b, const float* beta, const char* added, struct Layout* c,
                          char* out, struct Layout* d, const struct Algorithm* how, void* workspace, size_t nbytes,
                          uint64_t stream) {
  if (handle != &nbytes_from || !fits(op, a, b, c, d) || *alpha == 0) return INVALID_VALUE;
  if (how->magic != MAGIC || how->compute != (uint64_t)op->compute || how->epilogue != op->epilogue) return INVALID_VALUE;
  const uint64_t bias = op->epilogue & BIAS ? (uint64_t)op->bias : 0;
  if (((uint64_t)left | (uint64_t)right | (uint64_t)added | (uint64_t)out | bias) % how->alignment) return NOT_SUPPORTED;
  if (how->workspace && (nbytes < how->workspace || (uint64_t)workspace % 256 || nbytes_from((uint64_t)workspace) < (int64_t)how->workspace))
    return INVALID_VALUE;
  if (!is_inside(left, a) || !is_inside(right, b) || !is_inside(added, c) || !is_inside(out, d)) return INVALID_VALUE;
  if (!is_apart(left, nbytes_of(a), out, d) || !is_apart(right, nbytes_of(b), out, d)) return INVALID_VALUE;
  if (added == out ? memcmp(c, d, sizeof *c) : !is_apart(added, nbytes_of(c), out, d)) return INVALID_VALUE;
  const int64_t length = (int64_t)d->rows * itemsize(d->dtype);
  if (bias && (nbytes_from(bias) < length || !is_apart(op->bias, length, out, d))) return INVALID_VALUE;
  struct Product* made = malloc(sizeof *made);  // whoever runs it frees it
  *made = (struct Product){*op, *a, *b, *c, *d, left, right, added, out, workspace, *how, *alpha, *beta};
  return submit(stream, run, (int64_t*)made) == 0 ? SUCCESS : INVALID_VALUE;
}
