// How Python starts a kernel in the simulator: arguments, fibers with stacks, and one block or cluster of the grid after the other.
//
// Included by cudasim.h.

#ifndef PICOGRAD_CUDASIM_LAUNCH_H
#define PICOGRAD_CUDASIM_LAUNCH_H

namespace cudasim {

// One argument as Python passes it: an address and the bytes there, or a number (nbytes is -1).
struct Argument { int64 value, nbytes; };

template <class P> struct Passed {
  static P from(const Argument& argument, const char*) { return (P)argument.value; }
};
template <class T> struct Passed<GlobalMemory<T>> {
  static GlobalMemory<T> from(const Argument& argument, const char* name) {
    return {(T*)argument.value, argument.nbytes / (int64)sizeof(T), name};
  }
};

static const Argument* arguments;

// Calls kernel(arguments[0], arguments[1], ...).
template <class Function, Function kernel> struct Call;
template <class... P, void (*kernel)(P...)> struct Call<void (*)(P...), kernel> {
  static const int64 NUM_ARGUMENTS = sizeof...(P);
  static const char* name_of(size_t i) {
    static char names[NUM_ARGUMENTS + 1][8];
    if (names[i][0] == 0) snprintf(names[i], sizeof names[i], "p%d", (int)i);
    return names[i];
  }
  template <size_t... Is> static void run_with(std::index_sequence<Is...>) {
    kernel(Passed<P>::from(arguments[Is], name_of(Is))...);
  }
  static void run() { run_with(std::index_sequence_for<P...>()); }
};

// The place with this number, x first, in a box.
static Index index_of(int64 number, const Index& box) {
  return {(uint32)(number % box.x), (uint32)(number / box.x % box.y), (uint32)(number / ((int64)box.x * box.y))};
}

// Kernels whose blocks come in clusters, by name; what clocks.h registers.
struct Clusters {
  const char* name;
  int64 blocks;
  const Clusters* next;
};
static const Clusters* first_clusters;

static int64 blocks_of_cluster(const char* name) {
  for (const Clusters* each = first_clusters; each; each = each->next)
    if (!strcmp(each->name, name)) return each->blocks;
  return 1;
}

static bool refuse_cluster(int64 grid) {
  const char* why = num_blocks > MOST_BLOCKS || num_threads > MAX_THREADS ? "the simulator has 2 blocks and 1024 threads at most"
                    : grid % num_blocks || grid_shape.x % num_blocks     ? "the grid is no multiple"
                    : block_threads % WARPGROUP_THREADS                  ? "blocks are no whole warpgroups"
                                                                         : nullptr;
  if (!why) return false;
  snprintf(message, sizeof message, "kernel %s: clusters of %lld blocks of %lld threads: %s.", kernel_name, num_blocks,
           block_threads, why);
  return true;
}

static bool make_fibers(char* stacks) {
  if (stacks == (char*)MAP_FAILED) {
    snprintf(message, sizeof message, "kernel %s: no memory for %lld stacks.", kernel_name, num_threads);
    return false;
  }
  for (int64 i = 0; i < num_threads; i++) {
    fibers[i].stack = stacks + SPARE_BYTES + i * STACK_BYTES;
    fibers[i].thread = index_of(i % block_threads, block_shape);
    fibers[i].block = &blocks[i / block_threads];
    fibers[i].actor = FIRST_THREAD + (int32)i;
    *(uint64*)fibers[i].stack = CANARY;
  }
  return true;
}

// Runs a grid of shape[0..2] blocks of shape[3..5] threads along x, y and z, each with shape[6] bytes of dynamic shared
// memory; returns null, or what went wrong.
static const char* launch(const char* name, void (*thread)(), const Argument* given, const int64* shape, int64 order,
                          int64 seed) {
  const int64 grid = shape[0] * shape[1] * shape[2];
  kernel_name = name;
  run_thread = thread;
  arguments = given;
  random_state = (uint64)seed;
  failed = false;
  grid_shape = {(uint32)shape[0], (uint32)shape[1], (uint32)shape[2]};
  block_shape = {(uint32)shape[3], (uint32)shape[4], (uint32)shape[5]};
  block_threads = shape[3] * shape[4] * shape[5];
  num_blocks = blocks_of_cluster(name);
  num_threads = num_blocks * block_threads;
  if (num_blocks > 1 && refuse_cluster(grid)) return message;
  at_line = 0;
  dynamic_nbytes = shape[6];
  dynamic_shared = (char*)aligned_alloc(128, (size_t)(dynamic_nbytes + 127) / 128 * 128);
  dynamic_cells = (Cell*)calloc((size_t)dynamic_nbytes, sizeof(Cell));
  thread_order = order;
  const size_t stack_bytes = (size_t)(num_threads * STACK_BYTES + SPARE_BYTES);
  char* stacks = (char*)mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!make_fibers(stacks)) return message;
  const int64 clusters = grid / num_blocks;
  int64* turns = (int64*)malloc((size_t)clusters * sizeof(int64));
  put_in_order(turns, clusters, order);
  for (int64 i = 0; i < clusters && !failed; i++) {
    for (int64 rank = 0; rank < num_blocks; rank++) blocks[rank].place = index_of(num_blocks * turns[i] + rank, grid_shape);
    run_blocks(order);
  }
  if (end_launch) end_launch();
  free(turns);
  free(dynamic_shared);
  free(dynamic_cells);
  munmap(stacks, stack_bytes);
  return failed ? message : nullptr;
}

}  // namespace cudasim

// The function by which devices/cudasim/device.py starts `kernel`, and how many arguments it takes.
#define CUDASIM_LAUNCHER(kernel)                                                                                       \
  extern "C" const int64 kernel##_num_arguments = cudasim::Call<decltype(&kernel), &kernel>::NUM_ARGUMENTS;            \
  extern "C" const char* kernel##_launch(const cudasim::Argument* arguments, const int64* shape, int64 order,          \
                                         int64 seed) {                                                                 \
    return cudasim::launch(#kernel, cudasim::Call<decltype(&kernel), &kernel>::run, arguments, shape, order, seed);    \
  }

#endif
