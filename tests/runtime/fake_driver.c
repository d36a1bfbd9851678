// A libcuda.so.1 for machines with no GPU: the calls runtime/cuda.py makes, on host memory. A "cubin" is a shared
// library of the simulator, so kernels really run; PTX text is looked at and does not run. For testing the device's own
// code, never for using it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_PTX = 218, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700,
       NOT_SUPPORTED = 801 };
enum { CONTEXT = 16, STREAM = 32 };

struct Memory { uint64_t address, nbytes; };
static struct Memory memories[4096];
static int num_memories, pending_error;
static uint64_t held, limit = 64 << 20;  // bytes

EXPORT int cuInit(unsigned flags) { return SUCCESS; }
EXPORT int cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
EXPORT int cuDeviceGetCount(int* count) { *count = 1; return SUCCESS; }
EXPORT int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return SUCCESS; }
EXPORT int cuDevicePrimaryCtxRetain(uint64_t* context, int device) { *context = CONTEXT; return SUCCESS; }
EXPORT int cuCtxSetCurrent(uint64_t context) { return context == CONTEXT ? SUCCESS : INVALID_VALUE; }
EXPORT int cuStreamCreate(uint64_t* stream, unsigned flags) { *stream = STREAM; return SUCCESS; }
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 8 ? 49152 : -1;  // CUdevice_attribute
  return SUCCESS;
}
EXPORT int cuMemGetInfo(size_t* left, size_t* total) { *left = limit - held; *total = limit; return SUCCESS; }
EXPORT int cuMemAlloc(uint64_t* address, size_t nbytes) {
  if (held + nbytes > limit) return OUT_OF_MEMORY;
  *address = (uint64_t)aligned_alloc(256, nbytes);
  memset((void*)*address, 0xff, nbytes);
  held += nbytes;
  memories[num_memories++] = (struct Memory){*address, nbytes};
  return SUCCESS;
}
EXPORT int cuMemFree(uint64_t address) {
  for (int i = 0; i < num_memories; i++) {
    if (memories[i].address != address) continue;
    held -= memories[i].nbytes;
    free((void*)address);
    memories[i] = memories[--num_memories];
    return SUCCESS;
  }
  return INVALID_VALUE;
}
// Bytes from `address` to the end of its allocation.
static int64_t nbytes_from(uint64_t address) {
  for (int i = 0; i < num_memories; i++)
    if (memories[i].address <= address && address < memories[i].address + memories[i].nbytes)
      return (int64_t)(memories[i].address + memories[i].nbytes - address);
  return -1;
}
EXPORT int cuMemcpyHtoDAsync(uint64_t to, const void* from, size_t nbytes, uint64_t stream) {
  if (stream != STREAM || nbytes_from(to) < (int64_t)nbytes) return INVALID_VALUE;
  memcpy((void*)to, from, nbytes);
  return SUCCESS;
}
EXPORT int cuMemcpyDtoHAsync(void* to, uint64_t from, size_t nbytes, uint64_t stream) {
  if (stream != STREAM || nbytes_from(from) < (int64_t)nbytes) return INVALID_VALUE;
  memcpy(to, (void*)from, nbytes);
  return SUCCESS;
}
EXPORT int cuStreamSynchronize(uint64_t stream) {
  const int error = pending_error;
  pending_error = SUCCESS;
  return stream == STREAM ? error : INVALID_VALUE;
}

// ---- events: when they were recorded, in seconds; everything before has run by then ----
EXPORT int cuEventCreate(double** event, unsigned flags) {
  *event = malloc(sizeof(double));
  **event = -1;
  return *event ? SUCCESS : OUT_OF_MEMORY;
}
EXPORT int cuEventRecord(double* event, uint64_t stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *event = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  return stream == STREAM ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuEventSynchronize(double* event) { return *event < 0 ? INVALID_VALUE : SUCCESS; }
EXPORT int cuEventElapsedTime_v2(float* milliseconds, double* start, double* stop) {
  *milliseconds = (float)(1e3 * (*stop - *start));
  return *start < 0 || *stop < 0 ? INVALID_VALUE : SUCCESS;
}
EXPORT int cuEventElapsedTime(float* milliseconds, double* start, double* stop) {
  return cuEventElapsedTime_v2(milliseconds, start, stop);
}
EXPORT int cuEventDestroy(double* event) {
  free(event);
  return SUCCESS;
}

// ---- code ----
struct Function { const char* (*launch)(const int64_t*, int64_t, int64_t, int64_t, int64_t); int64_t num_arguments; };

static char* ptx;  // the text that was loaded last, which is its own handle

EXPORT int cuModuleLoadData(void** module, const void* image) {
  if (memcmp(image, "\x7f""ELF", 4) != 0) {  // text ends with a zero byte
    if (!strstr(image, ".version 7.8\n.target sm_90\n.address_size 64\n")) return INVALID_PTX;
    *module = ptx = strdup(image);
    return SUCCESS;
  }
  // An image tells no length; an ELF file ends with its table of section headers (ELF-64 header: e_shoff, e_shnum).
  const char* bytes = image;
  const uint64_t nbytes = *(uint64_t*)(bytes + 0x28) + *(uint16_t*)(bytes + 0x3a) * (uint64_t)*(uint16_t*)(bytes + 0x3c);
  char path[] = "/tmp/fake_driver_XXXXXX";
  const int file = mkstemp(path);
  const int whole = write(file, image, nbytes) == (ssize_t)nbytes;
  close(file);
  *module = whole ? dlopen(path, RTLD_NOW) : NULL;
  unlink(path);
  return *module ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuModuleUnload(void* module) { return SUCCESS; }
EXPORT int cuModuleGetFunction(struct Function** function, void* module, const char* name) {
  char symbol[512];
  struct Function* made = calloc(1, sizeof *made);
  if (module == ptx && ptx) {
    snprintf(symbol, sizeof symbol, ".visible .entry %s(", name);
    *function = made;
    return strstr(ptx, symbol) ? SUCCESS : NOT_FOUND;
  }
  snprintf(symbol, sizeof symbol, "%s_launch", name);
  made->launch = dlsym(module, symbol);
  snprintf(symbol, sizeof symbol, "%s_num_arguments", name);
  const int64_t* count = dlsym(module, symbol);
  if (!made->launch || !count) return NOT_FOUND;
  made->num_arguments = *count;
  *function = made;
  return SUCCESS;
}
EXPORT int cuLaunchKernel(struct Function* function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, uint64_t stream, void** params,
                          void** extra) {
  int64_t arguments[512];
  if (!function->launch) return NOT_SUPPORTED;
  if (stream != STREAM || x == 0 || y != 1 || z != 1 || block_y != 1 || block_z != 1) return INVALID_VALUE;
  for (int64_t i = 0; i < function->num_arguments; i++) {
    arguments[2 * i] = *(int64_t*)params[i];
    arguments[2 * i + 1] = nbytes_from(arguments[2 * i]);
  }
  const char* message = function->launch(arguments, x, block_x, 0, 0);
  if (message) pending_error = ILLEGAL_ADDRESS;  // as on a GPU, told at the next wait
  return SUCCESS;
}

// The bindings ask for every function by name.
EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  void* self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  *function = dlsym(self ? self : RTLD_DEFAULT, name);
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
EXPORT int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
