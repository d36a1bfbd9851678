// How Python starts a kernel in the simulator: arguments, fibers with stacks, and one block of the grid after the other.
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

static bool make_fibers(int64 threads, char* stacks) {
  if (stacks == (char*)MAP_FAILED) {
    snprintf(message, sizeof message, "kernel %s: no memory for %lld stacks.", kernel_name, threads);
    return false;
  }
  for (int64 i = 0; i < threads; i++) {
    fibers[i].stack = stacks + SPARE_BYTES + i * STACK_BYTES;
    fibers[i].thread = {(uint32)i, 0, 0};
    fibers[i].actor = FIRST_THREAD + (int32)i;
    *(uint64*)fibers[i].stack = CANARY;
  }
  return true;
}

// Runs a grid; returns null, or what went wrong.
static const char* launch(const char* name, void (*thread)(), const Argument* given, int64 grid, int64 threads,
                          int64 order, int64 seed) {
  kernel_name = name;
  run_thread = thread;
  arguments = given;
  random_state = (uint64)seed;
  failed = false;
  block_shape = {(uint32)threads, 1, 1};
  grid_shape = {(uint32)grid, 1, 1};
  num_threads = threads;
  thread_order = order;
  const size_t stack_bytes = (size_t)(threads * STACK_BYTES + SPARE_BYTES);
  char* stacks = (char*)mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!make_fibers(threads, stacks)) return message;
  int64* turns = (int64*)malloc((size_t)grid * sizeof(int64));
  put_in_order(turns, grid, order);
  for (int64 i = 0; i < grid && !failed; i++) {
    block = {(uint32)turns[i], 0, 0};
    run_block(threads, order);
  }
  free(turns);
  munmap(stacks, stack_bytes);
  return failed ? message : nullptr;
}

}  // namespace cudasim

// The function by which devices/cudasim/device.py starts `kernel`, and how many arguments it takes.
#define CUDASIM_LAUNCHER(kernel)                                                                                       \
  extern "C" const int64 kernel##_num_arguments = cudasim::Call<decltype(&kernel), &kernel>::NUM_ARGUMENTS;            \
  extern "C" const char* kernel##_launch(const cudasim::Argument* arguments, int64 grid, int64 threads, int64 order,   \
                                         int64 seed) {                                                                 \
    return cudasim::launch(#kernel, cudasim::Call<decltype(&kernel), &kernel>::run, arguments, grid, threads, order,   \
                           seed);                                                                                      \
  }

#endif
