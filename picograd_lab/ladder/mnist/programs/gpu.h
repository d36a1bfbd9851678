// The parts of CUDA that the .cu programs use: nvcc compiles them for a GPU, a C++ compiler for picograd's simulator of one.
//
// LAUNCH(kernel, threads)(arguments) runs a kernel with a thread for each of so many elements. Global<T> is a pointer to memory of
// the device; in the simulator each access through it is checked: bounds, races, values that nothing has written.
#ifndef GPU_H
#define GPU_H

#include "common.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
typedef __half Half;
static __host__ __device__ float widened(Half value) { return __half2float(value); }
template <class T> static __host__ __device__ T narrowed(float value) { return T(value); }
#define BOTH __host__ __device__
template <class T> using Global = T *;
static const int BLOCK = 256;
#define LAUNCH(kernel, threads) kernel<<<((threads) + BLOCK - 1) / BLOCK, BLOCK>>>

static void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  exit(1);
}
template <class T> static T *device_memory(size_t count) {
  T *memory;
  check(cudaMalloc((void **)&memory, sizeof(T) * count));
  return memory;
}
template <class T> static void to_device(T *to, const T *from, size_t count) {
  check(cudaMemcpy(to, from, sizeof(T) * count, cudaMemcpyHostToDevice));
}
template <class T> static void to_host(T *to, const T *from, size_t count) {
  check(cudaMemcpy(to, from, sizeof(T) * count, cudaMemcpyDeviceToHost));
}
static void tick_device(int phase) {  // kernels run beside the host: a phase ends when they do
  check(cudaStreamSynchronize(0));
  tick(phase);
}

// ---- copies in a stream of their own, beside the kernels; from memory that stays where it is ----
static cudaStream_t copies;
static cudaEvent_t copied, used;
template <class T> static void pin(const T *array, size_t count) {
  check(cudaHostRegister((void *)array, sizeof(T) * count, cudaHostRegisterDefault));
}
template <class T> static void start_copy(T *to, const T *from, size_t count) {
  if (!copies) {
    check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    check(cudaEventCreate(&copied)), check(cudaEventCreate(&used));
  }
  check(cudaMemcpyAsync(to, from, sizeof(T) * count, cudaMemcpyHostToDevice, copies));
}
static void wait_for_copies() {  // the kernels that follow do, for those begun before
  if (copies) check(cudaEventRecord(copied, copies)), check(cudaStreamWaitEvent(0, copied, 0));
}
static void wait_for_kernels() {  // the copies that follow do, for those launched before
  if (copies) check(cudaEventRecord(used, 0)), check(cudaStreamWaitEvent(copies, used, 0));
}
#else
#include "cuda/primitives.h"
#include "cudasim/simulator.cpp"
#include <functional>
#include <iterator>
#include <map>
#include <vector>
static const int BLOCK = 64;
typedef float16 Half;
static float widened(Half value) { return to_float32(value); }
template <class T> static T narrowed(float value) { return T{to_float16(value)}; }
template <> float narrowed<float>(float value) { return value; }
#define BOTH
static std::map<const char *, size_t> lengths;  // bytes of each piece of memory, by its beginning

template <class T> static T *device_memory(size_t count) {
  T *memory = (T *)allocate(sizeof(T) * count);
  memset((void *)memory, 0xff, sizeof(T) * count);  // NaN: a value that nothing has written shows
  lengths[(const char *)memory] = sizeof(T) * count;
  return memory;
}
template <class T> static void to_device(T *to, const T *from, size_t count) { memcpy(to, from, sizeof(T) * count); }
template <class T> static void to_host(T *to, const T *from, size_t count) { memcpy(to, from, sizeof(T) * count); }
static void tick_device(int phase) { tick(phase); }

// A copy in the background is there when somebody has waited for it: until then its place has NaN.
static std::vector<std::function<void()>> begun;
template <class T> static void pin(const T *, size_t) {}
template <class T> static void start_copy(T *to, const T *from, size_t count) {
  memset((void *)to, 0xff, sizeof(T) * count);
  begun.push_back([=] { memcpy(to, from, sizeof(T) * count); });
}
static void wait_for_copies() {
  for (const auto &copy : begun) copy();
  begun.clear();
}
static void wait_for_kernels() {}

template <class T> static cudasim::Argument argument(T *memory) {
  const auto piece = std::prev(lengths.upper_bound((const char *)memory));
  return {(int64)memory, (int64)(piece->first + piece->second - (const char *)memory)};
}
static cudasim::Argument argument(int number) { return {number, -1}; }

template <class Function, Function kernel> struct Launched {
  const char *name;
  int threads;
  template <class... Values> void operator()(Values... values) const {
    const cudasim::Argument all[] = {argument(values)...};
    const int64 shape[] = {(threads + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0};
    const char *wrong = cudasim::launch(name, cudasim::Call<Function, kernel>::run, all, shape, 0, 0);
    if (!wrong) return;
    fprintf(stderr, "simulator: %s\n", wrong);
    exit(1);
  }
};
#define LAUNCH(kernel, threads) Launched<decltype(&kernel), &kernel>{#kernel, threads}
#endif

static BOTH float widened(float value) { return value; }

// Writes a tensor of the device, if this step is dumped.
static void dump_device(const char *name, const char *kernel, const float *tensor, int rows, int columns) {
  if (!dump_file || !is_shown()) return;
  float *copy = (float *)allocate(sizeof(float) * rows * columns);
  to_host(copy, tensor, (size_t)rows * columns);
  dump(name, kernel, copy, rows, columns);
  free(copy);
}

#endif
