// CUDA C run by a C++17 compiler, for machines with no GPU and for finding what a GPU would not tell.
//
// Included by devices/cuda/primitives.h when NVRTC is not the compiler. Blocks run one after the other, those of a cluster
// (devices/cuda/hopper.h) together. The threads of a block are fibers: each runs until it waits at a barrier or ends, and
// then the next one runs. A kernel is
// stopped with a message as soon as
//   - an access is outside its memory (global, shared or registers),
//   - two threads touch one shared element between two barriers, at least one of them writing (a race); in users' kernels
//     one element of a result, too, whatever their blocks, and of each element no more than a thread touches (plain.h),
//   - shared memory or a register is read that nothing has written in this block,
//   - what is copied in the background is touched before its thread has waited for it (copies.h),
//   - a barrier is not reached by all threads of the block, or not the same barrier,
//   - a shuffle or a product of a warp or a warpgroup is not reached by all its threads, or not the same one,
//   - threads wait for an mbarrier that nothing completes any more,
//   - a user's kernel leaves a local array or its stack, divides a whole number by 0, or writes what is const.
// The order of threads and blocks can be chosen, so that what depends on it gives different results.
// Here, and in the headers that this includes, is what a kernel is compiled with: memory, whose accesses depend on its types, and
// declarations. What they declare is in simulator.cpp, compiled once and linked with each kernel (compile.py).

#ifndef PICOGRAD_CUDASIM_H
#define PICOGRAD_CUDASIM_H

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's own headers: C++'s <cmath> would be a quarter of a small kernel's compilation
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <utility>

// Hooks for counting (picograd_lab/ladder/counts.h), which are empty otherwise: an access of so many bytes; an instruction without
// one; so many more of something; a register that is written; an element of a box of the copy engine, of 0 bytes before the first
// one; accesses from here to the end of a scope that are one. ACCESSOR: of functions that access memory, which are inlined to tell
// one place of the text from another.
#ifndef CUDASIM_COUNTS
#define COUNT_ACCESS(counter, address, nbytes)
#define COUNT_INSTRUCTION(counter)
#define COUNT_MORE(counter, number)
#define COUNT_STEP()
#define COUNT_BOX(counter, address, nbytes)
#define COUNT_AS_ONE(parts)
#define ACCESSOR inline
#endif

#define PRIMITIVE static ACCESSOR
#define __global__
#define __launch_bounds__(...)
#define __syncthreads() cudasim::wait_at_barrier(__LINE__)
#define threadIdx (cudasim::running->thread)
#define blockIdx (cudasim::running->block->place)
#define blockDim (cudasim::block_shape)
#define gridDim (cudasim::grid_shape)

namespace cudasim {

struct Index { uint32 x, y, z; };

// How threads and blocks follow each other.
enum Order : int64 { FORWARD = 0, BACKWARD = 1, SHUFFLED = 2 };

// What a thread does: it runs, waits for its warp, its warpgroup, an mbarrier, its block or its cluster, or has ended.
enum State : int32 { RUNS, AT_SHUFFLE, AT_WARP, AT_PRODUCT, AT_WARPGROUP, AT_MBARRIER, AT_BARRIER, AT_CLUSTER, ENDED, NUM_STATES };

// A block that runs. epoch: since its last barrier.
struct Block {
  Index place;
  uint64 epoch;
};

// A thread of the running block. line: of the text, where it waits. actor, count: its number among all that access memory, and
// the time of its own clock (order.h).
struct Fiber {
  void* stack_pointer;
  char* stack;
  Index thread;
  Block* block;
  State state;
  int32 line;
  int32 num_meetings;
  int32 actor;
  uint32 count;
};

static const int64 MAX_THREADS = 1024, MOST_BLOCKS = 2, WARP_THREADS = 32, MOST_GIVEN = 48;

extern Fiber fibers[MAX_THREADS], *running;
extern Index block_shape, grid_shape;
extern Block blocks[MOST_BLOCKS];  // of a cluster, or the one that runs
extern int32 at_line;              // of the text, where a user's kernel touches memory; 0: somewhere
extern bool names_lines;            // whether this is a user's kernel
extern char* dynamic_shared;       // memory that a launch asks for
extern int64 dynamic_nbytes;

// Lets the host hear an interrupt now and then: a user's kernel may run without end.
extern uint64 num_accesses;
static const uint64 ACCESSES_BETWEEN_PAUSES = 1 << 20;
void pause();

// Says where a user's kernel touches memory until its scope ends, or that of another around it.
struct FromLine {
  const int32 before;
  ACCESSOR explicit FromLine(int32 line) : before(at_line) {
    if (!names_lines || before) return;
    at_line = line;
    if (__builtin_expect(++num_accesses % ACCESSES_BETWEEN_PAUSES == 0, 0)) pause();
  }
  ACCESSOR ~FromLine() { at_line = before; }
};

static inline int64 own_rank() { return running->block - blocks; }

// Ends the launch with a message; does not return to the thread that failed.
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char* form, ...);

// Lets other threads run until what the thread waits for has come, at a line of the text.
void wait(State state, int32 line);

// Shows a value to the other threads of the warp and learns where theirs are; returns the thread's number in the warp.
int64 meet(const void* value, int64 nbytes, const void** all, int32 line);
template <class T> static inline int64 meet(const T& value, const T* (&all)[WARP_THREADS], int32 line) {
  static_assert(sizeof(T) <= MOST_GIVEN, "meet: the value is too large");
  return meet(&value, sizeof(T), (const void**)all, line);
}

static inline void wait_at_barrier(int32 line) {
  COUNT_INSTRUCTION(BARRIERS);
  wait(AT_BARRIER, line);
}

}  // namespace cudasim
#include "memory.h"  // which, and those below, need what stands above
#include "launch.h"

template <class T> using Global = cudasim::GlobalMemory<T>;
#define SHARED_AT(T, name, n, first) SHARED(T, name, n)
#define SHARED(T, name, n)                                                      \
  static cudasim::SharedElements<T, (n)> name##_elements[cudasim::MOST_BLOCKS]; \
  const cudasim::SharedMemory<T, (n)> name = {name##_elements[cudasim::own_rank()], #name}
#define REGISTERS(T, name, n) cudasim::RegisterMemory<T, (n)> name = {#name}

#endif
