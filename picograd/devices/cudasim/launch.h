// How Python starts a kernel in the simulator, and how the kernel gets its arguments.
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

static const int64 MOST_ARGUMENTS = 4096;
extern const Argument* arguments;
const char* parameter_name(int64 parameter);  // p0, p1, ...

// Calls kernel(arguments[0], arguments[1], ...).
template <class Function, Function kernel> struct Call;
template <class... P, void (*kernel)(P...)> struct Call<void (*)(P...), kernel> {
  static const int64 NUM_ARGUMENTS = sizeof...(P);
  static_assert(NUM_ARGUMENTS <= MOST_ARGUMENTS, "a kernel has too many parameters");
  template <size_t... Is> static void run_with(std::index_sequence<Is...>) {
    kernel(Passed<P>::from(arguments[Is], parameter_name(Is))...);
  }
  static void run() { run_with(std::index_sequence_for<P...>()); }
};

// Runs a grid of shape[0..2] blocks of shape[3..5] threads along x, y and z, each with shape[6] bytes of dynamic shared
// memory; returns null, or what went wrong.
const char* launch(const char* name, void (*thread)(), const Argument* given, const int64* shape, int64 order, int64 seed);

}  // namespace cudasim

// What others than a kernel's library see of it; its simulator is its own (-fvisibility=hidden in compile.py).
#define SEEN_OUTSIDE extern "C" __attribute__((visibility("default")))

// The function by which devices/cudasim/device.py starts `kernel`, and how many arguments it takes.
#define CUDASIM_LAUNCHER(kernel)                                                                                       \
  SEEN_OUTSIDE const int64 kernel##_num_arguments = cudasim::Call<decltype(&kernel), &kernel>::NUM_ARGUMENTS;          \
  SEEN_OUTSIDE const char* kernel##_launch(const cudasim::Argument* arguments, const int64* shape, int64 order,        \
                                           int64 seed) {                                                               \
    return cudasim::launch(#kernel, cudasim::Call<decltype(&kernel), &kernel>::run, arguments, shape, order, seed);    \
  }

#endif
