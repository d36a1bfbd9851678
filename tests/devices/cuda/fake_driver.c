// A libcuda.so.1 for machines with no GPU: the calls devices/cuda/device.py makes, on host memory. A "cubin" is a shared
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
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, NOT_FOUND = 500,
       NOT_READY = 600, ILLEGAL_ADDRESS = 700, NOT_PERMITTED = 800, NOT_SUPPORTED = 801 };
enum { CONTEXT = 16, FIRST_STREAM = 32, MOST_THREADS = 1024 };
static __thread uint64_t current;  // context: each thread has one of its own, and none at first

// ---- calls that fail as a test asks: the call of that number from now on; and what is made and not yet given back ----
static const char* failing = "";
static int failing_in, failing_status, pending_error;
enum { STREAMS, EVENTS, GRAPHS, READY_GRAPHS, MODULES, HOST_MEMORY, CONTEXTS, NUM_KINDS };
static int alive[NUM_KINDS];

// Returns 0 or less where the failure asked for before has come.
EXPORT int fake_driver_fail(const char* name, int number, int status) {
  const int left = failing_in;
  failing = strdup(name), failing_in = number, failing_status = status;
  return left;
}
EXPORT int fake_driver_alive(int kind) { return alive[kind]; }
static int told(const char* name) {  // a version of a function, cuX_v2 or cuXWithFlags, is the function
  const char* rest = name + strlen(failing);
  if (strncmp(name, failing, strlen(failing)) != 0 || (*rest && *rest != '_' && *rest != 'W')) return SUCCESS;
  if (--failing_in != 0) return SUCCESS;
  if (failing_status >= ILLEGAL_ADDRESS && failing_status < NOT_PERMITTED) pending_error = failing_status;
  return failing_status;
}
#define CALLED do { const int status = told(__func__); if (status) return status; } while (0)
// After an error of a kernel every call that needs the context gives that error.
#define NEEDS_CONTEXT CALLED; if (current != CONTEXT) return INVALID_CONTEXT; if (pending_error) return pending_error

struct Memory { uint64_t address, nbytes; };
static struct Memory memories[4096];
static int num_memories;
static uint64_t held, limit = 64 << 20;  // bytes

EXPORT int cuInit(unsigned flags) { CALLED; return SUCCESS; }
// FAKE_DRIVER_VERSION, _DEVICES and _ARCH say what it is, and FAKE_DRIVER_LACKS a function that it has not.
// With FAKE_DRIVER_RUNS=0 kernels do nothing: what is left is what a call costs the host.
static int said(const char* name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }
EXPORT int cuDriverGetVersion(int* version) { CALLED; *version = said("FAKE_DRIVER_VERSION", 13000); return SUCCESS; }
EXPORT int cuDeviceGetCount(int* count) { CALLED; *count = said("FAKE_DRIVER_DEVICES", 1); return SUCCESS; }
EXPORT int cuDeviceGet(int* device, int ordinal) { CALLED; *device = ordinal; return SUCCESS; }
EXPORT int cuDeviceGetName(char* name, int length, int device) { CALLED; strncpy(name, "no GPU", length); return SUCCESS; }
EXPORT int cuDevicePrimaryCtxRetain(uint64_t* context, int device) { CALLED; *context = CONTEXT; alive[CONTEXTS]++; return SUCCESS; }
static int num_streams;
EXPORT int cuDevicePrimaryCtxRelease(int device) {  // with the last one goes what was made in it
  CALLED;
  if (--alive[CONTEXTS] == 0) num_streams = alive[STREAMS] = alive[EVENTS] = 0;
  return SUCCESS;
}
EXPORT int cuCtxSetCurrent(uint64_t context) {
  CALLED;
  current = context;
  return context == CONTEXT ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  CALLED;
  const int arch = said("FAKE_DRIVER_ARCH", 90);
  *value = attribute == 75 ? arch / 10 : attribute == 76 ? arch % 10 : attribute == 97 ? 232448 : attribute == 16 ? 132 : -1;  // CUdevice_attribute
  return SUCCESS;
}
EXPORT int cuMemGetInfo(size_t* left, size_t* total) { NEEDS_CONTEXT; *left = limit - held; *total = limit; return SUCCESS; }
EXPORT int cuMemAlloc(uint64_t* address, size_t nbytes) {
  NEEDS_CONTEXT;
  if (held + nbytes > limit) return OUT_OF_MEMORY;
  *address = (uint64_t)aligned_alloc(256, nbytes);
  memset((void*)*address, 0xff, nbytes);
  held += nbytes;
  memories[num_memories++] = (struct Memory){*address, nbytes};
  return SUCCESS;
}
static void run_all(void);
EXPORT int cuMemFree(uint64_t address) {
  NEEDS_CONTEXT;
  run_all();  // as the driver does
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
// ---- streams: commands wait in them, and run as late, or as early, as the rules allow ----
// FAKE_DRIVER_EAGER names the stream of each two (0 or 1, in the order they were made) that runs ahead of the other: what a program
// forgot to wait for then comes too early, or too late.
struct Event { int64_t recorded, done; double seconds; };
enum Kind { COPY, RECORD, WAIT, LAUNCH };
struct Shape { int64_t extents[7]; };  // blocks, then threads of a block, each along x, y and z; bytes of shared memory
struct Command {
  enum Kind kind;
  void *to; const void* from; size_t nbytes;      // COPY
  struct Event* event; int64_t number;            // RECORD, WAIT
  const char* (*launch)(const int64_t*, const int64_t*, int64_t, int64_t); int64_t* arguments; struct Shape shape;
  struct Command* next;
};
enum { MOST_STREAMS = 4 };
static struct Stream { struct Command *head, *tail; } streams[MOST_STREAMS];

static struct Stream* stream_of(uint64_t handle) { return &streams[handle - FIRST_STREAM]; }
static int is_stream(uint64_t handle) { return handle >= FIRST_STREAM && handle < FIRST_STREAM + (uint64_t)num_streams; }

EXPORT int cuStreamCreate(uint64_t* stream, unsigned flags) {
  NEEDS_CONTEXT;
  if (num_streams == MOST_STREAMS) return OUT_OF_MEMORY;
  *stream = FIRST_STREAM + num_streams++;
  alive[STREAMS]++;
  return SUCCESS;
}
// Runs the first command of a stream, if it need not wait.
static int step(struct Stream* stream) {
  struct Command* command = stream->head;
  if (!command || (command->kind == WAIT && command->event->done < command->number)) return 0;
  if (command->kind == COPY) memcpy(command->to, command->from, command->nbytes);
  if (command->kind == RECORD) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    command->event->done = command->number;
    command->event->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  }
  if (command->kind == LAUNCH) {
    const char* message = NULL;
    if (said("FAKE_DRIVER_RUNS", 1)) message = command->launch(command->arguments, command->shape.extents, 0, 0);
    if (message) pending_error = ILLEGAL_ADDRESS;
    free(command->arguments);
  }
  stream->head = command->next;
  if (!stream->head) stream->tail = NULL;
  free(command);
  return 1;
}
static int step_any(void) {
  for (int i = 0; i < num_streams; i++)
    if (step(&streams[i])) return 1;
  return 0;
}
static void run_all(void) { while (step_any()); }
static void run_eager(void) {
  const char* eager = getenv("FAKE_DRIVER_EAGER");
  for (int i = 0; eager && i < num_streams; i++)
    while (i % 2 == atoi(eager) && step(&streams[i]));
}
static void submit(uint64_t stream, struct Command command) {
  struct Command* made = malloc(sizeof *made);
  *made = command;
  struct Stream* into = stream_of(stream);
  if (into->tail) into->tail->next = made; else into->head = made;
  into->tail = made;
  run_eager();
}
// What fake_cublaslt.c asks for and submits; its arguments are freed when it has run.
EXPORT int64_t fake_driver_nbytes_from(uint64_t address) { return nbytes_from(address); }
EXPORT int fake_driver_submit(uint64_t stream, const char* (*function)(const int64_t*, const int64_t*, int64_t, int64_t),
                              int64_t* arguments) {
  if (!is_stream(stream)) return INVALID_VALUE;
  submit(stream, (struct Command){.kind = LAUNCH, .launch = function, .arguments = arguments});
  return SUCCESS;
}
EXPORT int cuMemcpyHtoDAsync(uint64_t to, const void* from, size_t nbytes, uint64_t stream) {
  NEEDS_CONTEXT;
  if (!is_stream(stream) || nbytes_from(to) < (int64_t)nbytes) return INVALID_VALUE;
  submit(stream, (struct Command){.kind = COPY, .to = (void*)to, .from = from, .nbytes = nbytes});
  return SUCCESS;
}
EXPORT int cuMemcpyDtoHAsync(void* to, uint64_t from, size_t nbytes, uint64_t stream) {
  NEEDS_CONTEXT;
  if (!is_stream(stream) || nbytes_from(from) < (int64_t)nbytes) return INVALID_VALUE;
  submit(stream, (struct Command){.kind = COPY, .to = to, .from = (void*)from, .nbytes = nbytes});
  return SUCCESS;
}
EXPORT int cuMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t nbytes, uint64_t stream) {
  CALLED;
  if (nbytes_from(to) < (int64_t)nbytes) return INVALID_VALUE;
  return cuMemcpyDtoHAsync((void*)to, from, nbytes, stream);
}
EXPORT int cuMemHostAlloc(void** address, size_t nbytes, unsigned flags) {
  NEEDS_CONTEXT;
  *address = aligned_alloc(4096, nbytes);
  alive[HOST_MEMORY]++;
  return *address ? SUCCESS : OUT_OF_MEMORY;
}
EXPORT int cuEventCreate(struct Event** event, unsigned flags) {
  NEEDS_CONTEXT;
  *event = calloc(1, sizeof **event);
  alive[EVENTS]++;
  return *event ? SUCCESS : OUT_OF_MEMORY;
}
EXPORT int cuEventRecord(struct Event* event, uint64_t stream) {
  NEEDS_CONTEXT;
  if (!is_stream(stream)) return INVALID_VALUE;
  submit(stream, (struct Command){.kind = RECORD, .event = event, .number = ++event->recorded});
  return SUCCESS;
}
EXPORT int cuStreamWaitEvent(uint64_t stream, struct Event* event, unsigned flags) {
  NEEDS_CONTEXT;
  if (!is_stream(stream)) return INVALID_VALUE;
  submit(stream, (struct Command){.kind = WAIT, .event = event, .number = event->recorded});
  return SUCCESS;
}
// A question lets the lazy stream do one thing: who asks often enough learns that all is done.
EXPORT int cuEventQuery(struct Event* event) {
  NEEDS_CONTEXT;
  if (event->done < event->recorded) step_any();
  run_eager();
  return pending_error ? pending_error : event->done < event->recorded ? NOT_READY : SUCCESS;
}
EXPORT int cuStreamQuery(uint64_t stream) {
  NEEDS_CONTEXT;
  if (!is_stream(stream)) return INVALID_VALUE;
  step_any();
  return pending_error ? pending_error : stream_of(stream)->head ? NOT_READY : SUCCESS;
}
EXPORT int cuEventElapsedTime_v2(float* milliseconds, struct Event* start, struct Event* stop) {
  CALLED;
  *milliseconds = (float)(1e3 * (stop->seconds - start->seconds));
  return start->done && stop->done ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuEventElapsedTime(float* milliseconds, struct Event* start, struct Event* stop) {
  CALLED;
  return cuEventElapsedTime_v2(milliseconds, start, stop);
}
EXPORT int cuEventDestroy(struct Event* event) { CALLED; alive[EVENTS]--; return SUCCESS; }  // commands under way may name it

// ---- code ----
struct Function { const char* (*launch)(const int64_t*, const int64_t*, int64_t, int64_t); int64_t num_arguments; unsigned most_shared; };

static char* ptx;  // the text that was loaded last, which is its own handle

EXPORT int cuModuleLoadData(void** module, const void* image) {
  NEEDS_CONTEXT;
  if (memcmp(image, "\x7f""ELF", 4) != 0) {  // text ends with a zero byte
    if (!strstr(image, ".version 7.8\n.target sm_90\n.address_size 64\n")) return INVALID_PTX;
    *module = ptx = strdup(image);
    alive[MODULES]++;
    return SUCCESS;
  }
  if (*(const uint16_t*)((const char*)image + 0x12) == 190) return NO_BINARY_FOR_GPU;  // e_machine: a real GPU's
  // An image tells no length; an ELF file ends with its table of section headers (ELF-64 header: e_shoff, e_shnum).
  const char* bytes = image;
  const uint64_t nbytes = *(uint64_t*)(bytes + 0x28) + *(uint16_t*)(bytes + 0x3a) * (uint64_t)*(uint16_t*)(bytes + 0x3c);
  char path[] = "/tmp/fake_driver_XXXXXX";
  const int file = mkstemp(path);
  const int whole = write(file, image, nbytes) == (ssize_t)nbytes;
  close(file);
  *module = whole ? dlopen(path, RTLD_NOW) : NULL;
  unlink(path);
  alive[MODULES] += *module != NULL;
  return *module ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuModuleLoadDataEx(void** module, const void* image, unsigned count, const int* options, void** values) {
  CALLED;
  const int status = cuModuleLoadData(module, image);
  if (status != INVALID_PTX || count != 2 || options[0] != 5 || options[1] != 6) return status;  // CUjit_option
  snprintf(values[0], (size_t)values[1], "ptxas application ptx input, line 1; fatal   : no version");
  return status;
}
EXPORT int cuModuleUnload(void* module) {
  NEEDS_CONTEXT;
  for (int i = 0; i < num_streams; i++)
    if (streams[i].head) return INVALID_VALUE;  // code that may run: nothing says that the driver waits for it
  alive[MODULES]--;
  return SUCCESS;
}
EXPORT int cuModuleGetFunction(struct Function** function, void* module, const char* name) {
  NEEDS_CONTEXT;
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
  if (!made->launch || !count) {
    fprintf(stderr, "fake driver: %s\n", dlerror());
    return NOT_FOUND;
  }
  made->num_arguments = *count;
  *function = made;
  return SUCCESS;
}
// ---- maps of tiles: a word that tells one, then where the record is that devices/cudasim/tiles.h has ----
static const uint64_t IS_MAP = 0x70616d20656c6974;
EXPORT int cuTensorMapEncodeTiled(uint64_t* map, int kind, unsigned num_axes, void* address, const uint64_t* extents,
                                  const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                                  int swizzle, int promotion, int fill) {
  CALLED;
  static const int64_t itemsizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};  // CUtensorMapDataType; the last is TFLOAT32
  if ((uint64_t)map % 64 || kind > 11 || num_axes - 1 > 4 || (uint64_t)address % 16) return INVALID_VALUE;
  if (interleave || (swizzle && swizzle != 3) || fill) return INVALID_VALUE;
  int64_t* record = calloc(20, sizeof(int64_t));
  record[0] = (int64_t)address, record[1] = num_axes, record[2] = itemsizes[kind], record[3] = swizzle == 3;
  record[4] = kind == 11;
  for (unsigned axis = 0; axis < num_axes; axis++) {
    if (steps[axis] != 1 || (axis && strides[axis - 1] % 16)) return INVALID_VALUE;
    record[5 + axis] = (int64_t)extents[axis];
    record[10 + axis] = axis ? (int64_t)strides[axis - 1] : itemsizes[kind];
    record[15 + axis] = box[axis];
  }
  map[0] = IS_MAP, map[1] = (uint64_t)record;
  return SUCCESS;
}
// A launch as it is stored: arguments with the bytes behind each, by which the simulator checks accesses.
static int64_t* copied_arguments(const struct Function* function, void** params) {
  int64_t* arguments = malloc(2 * sizeof(int64_t) * (size_t)function->num_arguments + 1);
  for (int64_t i = 0; i < function->num_arguments; i++) {
    const uint64_t* value = params[i];
    arguments[2 * i] = (int64_t)(value[0] == IS_MAP ? value[1] : value[0]);
    arguments[2 * i + 1] = nbytes_from((uint64_t)arguments[2 * i]);
  }
  return arguments;
}
EXPORT int cuFuncSetAttribute(struct Function* function, int attribute, int value) {
  NEEDS_CONTEXT;
  if (attribute != 8 || value > 232448) return INVALID_VALUE;  // CUfunction_attribute
  function->most_shared = (unsigned)value;
  return SUCCESS;
}
// CUDA C++ Programming Guide, technical specifications per compute capability.
static int is_possible(const struct Shape* shape) {
  const int64_t* n = shape->extents;
  for (int i = 0; i < 6; i++)
    if (n[i] < 1) return 0;
  return !(n[0] >> 31 || n[1] >> 16 || n[2] >> 16 || n[5] > 64 || n[3] * n[4] * n[5] > MOST_THREADS);
}
EXPORT int cuLaunchKernel(struct Function* function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, uint64_t stream, void** params,
                          void** extra) {
  NEEDS_CONTEXT;
  if (!function->launch) return NOT_SUPPORTED;
  if (shared > function->most_shared) return INVALID_VALUE;
  const struct Shape shape = {{x, y, z, block_x, block_y, block_z, shared}};
  if (!is_stream(stream) || !is_possible(&shape) || extra) return INVALID_VALUE;
  submit(stream, (struct Command){.kind = LAUNCH, .launch = function->launch, .shape = shape,
                                  .arguments = copied_arguments(function, params)});
  return SUCCESS;
}

// ---- graphs: nodes in the order they were added, each after the one before ----
struct NodeParams {  // CUDA_KERNEL_NODE_PARAMS
  struct Function* function;
  unsigned grid[3], block[3], shared;
  void** params; void** extra; void* kernel; void* context;
};
// One that is ready has nodes of its own, by the numbers of those it was made of, and takes memory of the GPU for them. What is
// destroyed has GONE nodes: who uses it still is told.
enum { NODE_NBYTES = 10 << 10, GONE = -1 };
struct Node { struct Function* function; struct Shape shape; unsigned enabled; int64_t* arguments; int number; struct Node* next; };
struct Graph { struct Node *first, *last; int num_nodes; };
struct Ready { struct Node* nodes; int num_nodes; };
static int num_graph_launches;

static int set_params(struct Node* node, const struct NodeParams* params) {
  if (params->shared > params->function->most_shared) return INVALID_VALUE;
  const unsigned *grid = params->grid, *block = params->block;
  const struct Shape shape = {{grid[0], grid[1], grid[2], block[0], block[1], block[2], params->shared}};
  if (!is_possible(&shape)) return INVALID_VALUE;
  node->function = params->function, node->shape = shape;
  free(node->arguments);
  node->arguments = copied_arguments(params->function, params->params);
  return SUCCESS;
}
EXPORT int cuGraphCreate(struct Graph** graph, unsigned flags) { CALLED; *graph = calloc(1, sizeof **graph); alive[GRAPHS]++; return SUCCESS; }
EXPORT int cuGraphAddKernelNode(struct Node** node, struct Graph* graph, struct Node** before, size_t num_before,
                                   const struct NodeParams* params) {
  NEEDS_CONTEXT;
  if (num_before != (graph->last ? 1u : 0u) || (num_before && before[0] != graph->last)) return INVALID_VALUE;
  *node = calloc(1, sizeof **node);
  (*node)->enabled = 1;
  if (graph->last) graph->last->next = *node; else graph->first = *node;
  graph->last = *node, (*node)->number = graph->num_nodes++;
  return set_params(*node, params);
}
EXPORT int cuGraphInstantiateWithFlags(struct Ready** ready, struct Graph* graph, unsigned long long flags) {
  CALLED;
  if (graph->num_nodes == GONE) return INVALID_VALUE;
  const uint64_t nbytes = (uint64_t)graph->num_nodes * NODE_NBYTES;
  if (held + nbytes > limit) return OUT_OF_MEMORY;
  held += nbytes;
  *ready = malloc(sizeof **ready);
  **ready = (struct Ready){calloc((size_t)graph->num_nodes, sizeof(struct Node)), graph->num_nodes};
  for (struct Node* node = graph->first; node; node = node->next) {
    const size_t length = 2 * sizeof(int64_t) * (size_t)node->function->num_arguments;
    struct Node* own = &(*ready)->nodes[node->number];
    *own = *node;
    own->arguments = memcpy(malloc(length + 1), node->arguments, length);
  }
  alive[READY_GRAPHS]++;
  return SUCCESS;
}
static struct Node* node_in(struct Ready* ready, const struct Node* node) {
  return node->number < ready->num_nodes ? &ready->nodes[node->number] : NULL;
}
EXPORT int cuGraphExecKernelNodeSetParams(struct Ready* ready, struct Node* node, const struct NodeParams* params) {
  CALLED;
  struct Node* own = node_in(ready, node);
  return own ? set_params(own, params) : INVALID_VALUE;
}
EXPORT int cuGraphNodeSetEnabled(struct Ready* ready, struct Node* node, unsigned is_enabled) {
  CALLED;
  struct Node* own = node_in(ready, node);
  if (!own) return INVALID_VALUE;
  own->enabled = is_enabled;
  return SUCCESS;
}
EXPORT int cuGraphLaunch(struct Ready* ready, uint64_t stream) {
  NEEDS_CONTEXT;
  if (ready->num_nodes == GONE) return INVALID_VALUE;
  num_graph_launches++;
  for (const struct Node* node = ready->nodes; node < ready->nodes + ready->num_nodes; node++) {
    if (!node->enabled) continue;
    int64_t* arguments = malloc(2 * sizeof(int64_t) * (size_t)node->function->num_arguments + 1);
    memcpy(arguments, node->arguments, 2 * sizeof(int64_t) * (size_t)node->function->num_arguments);
    submit(stream, (struct Command){.kind = LAUNCH, .launch = node->function->launch, .shape = node->shape,
                                    .arguments = arguments});
  }
  return SUCCESS;
}
EXPORT int cuGraphExecDestroy(struct Ready* ready) {
  CALLED;
  if (ready->num_nodes == GONE) return INVALID_VALUE;
  held -= (uint64_t)ready->num_nodes * NODE_NBYTES;
  for (int i = 0; i < ready->num_nodes; i++) free(ready->nodes[i].arguments);
  free(ready->nodes);
  *ready = (struct Ready){NULL, GONE};
  alive[READY_GRAPHS]--;
  return SUCCESS;
}
EXPORT int cuGraphDestroy(struct Graph* graph) {
  CALLED;
  if (graph->num_nodes == GONE) return INVALID_VALUE;
  for (struct Node *node = graph->first, *next; node; node = next) next = node->next, free(node->arguments), free(node);
  *graph = (struct Graph){NULL, NULL, GONE};
  alive[GRAPHS]--;
  return SUCCESS;
}
EXPORT int fake_driver_graph_launches(void) { return num_graph_launches; }

// The bindings ask for every function by name.
EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  void* self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (getenv("FAKE_DRIVER_LACKS") && strcmp(name, getenv("FAKE_DRIVER_LACKS")) == 0) name = "nothing";
  if (version >= 12000 && strcmp(name, "cuGetProcAddress") == 0) name = "cuGetProcAddress_v2";
  *function = dlsym(self ? self : RTLD_DEFAULT, name);
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
EXPORT int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
