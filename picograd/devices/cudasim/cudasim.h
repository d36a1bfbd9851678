// CUDA C run by a C++17 compiler, for machines with no GPU and for finding what a GPU would not tell.
//
// Included by devices/cuda/primitives.h when NVRTC is not the compiler. Blocks run one after the other, those of a cluster
// (devices/cuda/hopper.h) together. The threads of a block are fibers: each runs until it waits at a barrier or ends, and
// then the next one runs. A kernel is
// stopped with a message as soon as
//   - an access is outside its memory (global, shared or registers),
//   - two threads touch one shared element between two barriers, at least one of them writing (a race); in plain CUDA C (plain.h)
//     one element of a result, too, whatever their blocks,
//   - shared memory or a register is read that nothing has written in this block,
//   - what is copied in the background is touched before its thread has waited for it (copies.h),
//   - a barrier is not reached by all threads of the block, or not the same barrier,
//   - a shuffle or a product of a warp or a warpgroup is not reached by all its threads, or not the same one,
//   - threads wait for an mbarrier that nothing completes any more.
// The order of threads and blocks can be chosen, so that what depends on it gives different results.
// Here are threads and one block; launch.h has the grid. What Hopper added (devices/cuda/hopper.h) is in
// clocks.h, mbarriers.h, tiles.h and warpgroups.h.

#ifndef PICOGRAD_CUDASIM_H
#define PICOGRAD_CUDASIM_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utility>

// Hooks for counting (picograd_lab/ladder/counts.h), which are empty otherwise: an access of so many bytes; an instruction without
// one; so many more of something; an element of a box of the copy engine, of 0 bytes before the first one; accesses from here to the
// end of a scope that are one. ACCESSOR: of functions that access memory, which are inlined to tell one place of the text from another.
#ifndef CUDASIM_COUNTS
#define COUNT_ACCESS(counter, address, nbytes)
#define COUNT_INSTRUCTION(counter)
#define COUNT_MORE(counter, number)
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

static const int64 MAX_THREADS = 1024, MOST_BLOCKS = 2, WARP_THREADS = 32, WARPGROUP_THREADS = 128, MOST_GIVEN = 48, STACK_BYTES = 128 * 1024;
static const int64 SPARE_BYTES = 4 << 20;  // below the lowest stack: a thread that overflows it is caught by its canary
static const uint64 CANARY = 0x5afec0de5afec0deull;

static Fiber fibers[MAX_THREADS];
static Fiber* running;
static Index block_shape, grid_shape;
static Block blocks[MOST_BLOCKS];  // of a cluster, or the one that runs
static void* scheduler_stack_pointer;
static void (*run_thread)();
struct alignas(8) Given { char bytes[MOST_GIVEN]; };
static Given given[2][MAX_THREADS];  // what each thread shows to its warp; two in turn, for a thread may be one meeting ahead
static uint64 epoch, block_epoch, random_state;  // epoch: rises at every barrier and block; block_epoch: of the first of the cluster
static int64 num_blocks, block_threads, num_threads, thread_order, num_waiting[NUM_STATES];  // num_threads: of all blocks
static void (*begin_cluster)();  // what a cluster of several blocks begins with
static void (*end_launch)();     // what follows the last block, or null
static const char* kernel_name;
static char message[512];
static int32 at_line;  // of the text, where a user's kernel touches memory; 0: somewhere
static char* dynamic_shared;  // memory that a launch asks for
static int64 dynamic_nbytes;
static bool failed;

}  // namespace cudasim
#include "stacks.h"  // which, and those below, need what stands above
namespace cudasim {

// ---- errors ----
static int64 thread_number(const Fiber* fiber) { return fiber - fibers; }
static int64 own_rank() { return running->block - blocks; }
static int64 in_block(int64 thread) { return thread % block_threads; }
static int64 block_number(const Fiber* fiber) {
  const Index& at = fiber->block->place;
  return at.x + (int64)grid_shape.x * (at.y + (int64)grid_shape.y * at.z);
}
static void say_values(const char* form, va_list values) {
  int64 length = snprintf(message, sizeof message, "kernel %s, block %lld, thread %lld", kernel_name, block_number(running),
                          in_block(thread_number(running)));
  if (at_line) length += snprintf(message + length, sizeof message - length, ", line %d", at_line);
  length += snprintf(message + length, sizeof message - length, ": ");
  vsnprintf(message + length, sizeof message - length, form, values);
  failed = true;
}
// Ends the launch with a message, where no thread runs.
__attribute__((noinline, format(printf, 1, 2))) static void say(const char* form, ...) {
  va_list values;
  va_start(values, form);
  say_values(form, values);
  va_end(values);
}
// Ends the launch with a message; does not return to the thread that failed.
__attribute__((noinline, noreturn, format(printf, 1, 2))) static void fail(const char* form, ...) {
  va_list values;
  va_start(values, form);
  say_values(form, values);
  va_end(values);
  switch_to_scheduler();
  abort();  // the scheduler never comes back to a failed launch
}

static inline void wait(State state, int32 line) {
  running->state = state;
  running->line = line;
  num_waiting[state]++;
  switch_to_scheduler();
}

}  // namespace cudasim
#include "order.h"
#include "memory.h"
#include "copies.h"
namespace cudasim {

// ---- threads ----
static inline void wait_at_barrier(int32 line) {
  COUNT_INSTRUCTION(BARRIERS);
  wait(AT_BARRIER, line);
}

// Shows a value to the other threads of the warp and learns where theirs are; returns the thread's number in the warp.
template <class T> static inline int64 meet(const T& value, const T* (&all)[WARP_THREADS], int32 line) {
  static_assert(sizeof(T) <= MOST_GIVEN, "meet: the value is too large");
  const int64 thread = thread_number(running), first = thread - thread % WARP_THREADS;
  auto& turn = given[running->num_meetings++ % 2];
  memcpy(turn[thread].bytes, &value, sizeof(T));
  wait(AT_SHUFFLE, line);
  for (int64 i = 0; i < WARP_THREADS; i++) all[i] = (const T*)turn[first + i].bytes;
  return thread - first;
}

static void start_thread() {
  run_thread();
  check_copies_are_done();
  if (clocks) clocks->check_thread_is_done();
  wait(ENDED, 0);
  abort();  // the scheduler never comes back to a thread that has ended
}

// splitmix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators").
static uint64 next_random() {
  uint64 z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static void put_in_order(int64* items, int64 count, int64 order) {
  for (int64 i = 0; i < count; i++) items[i] = order == BACKWARD ? count - 1 - i : i;
  for (int64 i = count - 1; order == SHUFFLED && i > 0; i--) {
    const int64 j = (int64)(next_random() % (uint64)(i + 1)), item = items[i];
    items[i] = items[j];
    items[j] = item;
  }
}

// Checks that threads first .. first + count - 1 that have not ended all wait at one place, or says which do not.
static bool check_together(int64 first, int64 count, const char* what) {
  const Fiber* one = nullptr;  // a thread that waits
  for (int64 i = first; i < first + count && !one; i++)
    if (fibers[i].state != ENDED) one = &fibers[i];
  for (int64 i = first; one && i < first + count; i++) {
    if (fibers[i].state == one->state && fibers[i].line == one->line) continue;
    int64 length = snprintf(message, sizeof message, "kernel %s, block %lld, thread %lld: divergent %s: waits at line %d, ",
                            kernel_name, block_number(one), in_block(thread_number(one)), what, one->line);
    length += snprintf(message + length, sizeof message - length, "while thread %lld ", in_block(i));
    if (fibers[i].block != one->block)
      length += snprintf(message + length, sizeof message - length, "of block %lld ", block_number(&fibers[i]));
    if (fibers[i].state == ENDED) snprintf(message + length, sizeof message - length, "has ended.");
    else snprintf(message + length, sizeof message - length, "waits at line %d.", fibers[i].line);
    return false;
  }
  return true;
}

// Where some threads of a block wait for each other. orders: what one did before, the others know behind.
struct Meeting {
  State state;
  int64 count;
  bool orders;
  const char *what, *name;
};
static const Meeting MEETINGS[] = {
    {AT_SHUFFLE, WARP_THREADS, false, "shuffle", "a warp that shuffles"},
    {AT_WARP, WARP_THREADS, true, "barrier of a warp", "a warp with a barrier"},
    {AT_PRODUCT, WARPGROUP_THREADS, false, "instruction of a warpgroup", "a warpgroup"},
    {AT_WARPGROUP, WARPGROUP_THREADS, true, "barrier of a warpgroup", "a warpgroup"},
};

// Lets threads first .. first + count - 1 go on, of whom one waits at a meeting, if all do. One that can go on itself, or that
// waits for an mbarrier or for its warp, may still come.
static bool release_meeting(const Meeting& meeting, int64 first, int64 count) {
  for (int64 i = first; i < first + count; i++) {
    const State state = fibers[i].state;
    if (state == RUNS || state == AT_MBARRIER) return false;
    if (meeting.count > WARP_THREADS && (state == AT_SHUFFLE || state == AT_WARP)) return false;
  }
  failed = !check_together(first, count, meeting.what);
  if (!failed && count < meeting.count) {
    snprintf(message, sizeof message, "kernel %s: %s has %lld threads.", kernel_name, meeting.name, count);
    failed = true;
  }
  if (failed) return false;
  for (int64 i = first; i < first + count; i++) fibers[i].state = RUNS;
  num_waiting[meeting.state] -= count;
  if (meeting.orders) clocks->tell_each_other(first, count);
  return true;
}

// Lets every warp and warpgroup go on of which a thread waits at a meeting, if all do; returns whether there was one.
static bool release_meetings(int64 threads) {
  bool released = false;
  for (const Meeting& meeting : MEETINGS) {
    for (int64 first = 0; num_waiting[meeting.state] && first < threads && !failed; first += meeting.count) {
      const int64 count = threads - first < meeting.count ? threads - first : meeting.count;
      bool waits = false;
      for (int64 i = first; i < first + count; i++) waits |= fibers[i].state == meeting.state;
      if (waits) released |= release_meeting(meeting, first, count);
    }
  }
  return released;
}

// Runs each thread that can run, in turn, until it waits or ends.
static void run_threads(const int64* turns, int64 threads) {
  for (int64 i = 0; i < threads && !failed; i++) {
    running = &fibers[turns[i]];
    if (running->state != RUNS) continue;
    switch_to_fiber();
    if (!failed && *(uint64*)running->stack != CANARY) {
      snprintf(message, sizeof message, "kernel %s: a thread needs more than %lld bytes of stack.", kernel_name,
               STACK_BYTES);
      failed = true;
    }
  }
}

// Lets threads first .. first + count - 1 go on behind a barrier, of all of whom each has come to it.
static void release_together(State state, int64 first, int64 count) {
  for (int64 i = first; i < first + count; i++) {
    fibers[i].state = RUNS;
    fibers[i].block->epoch = epoch + 1;
    fibers[i].count++;
  }
  epoch++;
  num_waiting[state] -= count;
  if (clocks) clocks->tell_each_other(first, count);
}

// Whether all of some threads wait at a barrier of this kind, or have ended, and one waits.
static bool have_come(State state, int64 first, int64 count) {
  bool waits = false;
  for (int64 i = first; i < first + count; i++) {
    if (fibers[i].state != state && fibers[i].state != ENDED) return false;
    waits |= fibers[i].state == state;
  }
  return waits;
}

// Lets each block go on whose threads are all at a barrier, or the cluster; returns whether there was one.
static bool release_barriers() {
  bool released = false;
  for (int64 first = 0; first < num_threads && !failed; first += block_threads) {
    if (!have_come(AT_BARRIER, first, block_threads)) continue;
    failed = !check_together(first, block_threads, "barrier");
    if (!failed) release_together(AT_BARRIER, first, block_threads);
    released = true;
  }
  if (!failed && !released && have_come(AT_CLUSTER, 0, num_threads)) {
    failed = !check_together(0, num_threads, "barrier of a cluster");
    if (!failed) release_together(AT_CLUSTER, 0, num_threads);
    released = true;
  }
  return released && !failed;
}

// Runs a block, or those of a cluster together, from barrier to barrier.
static void run_blocks(int64 order) {
  static int64 turns[MAX_THREADS];
  block_epoch = ++epoch;
  clocks = nullptr;
  for (int64& waiting : num_waiting) waiting = 0;
  for (int64 i = 0; i < num_blocks; i++) blocks[i].epoch = epoch;
  for (int64 i = 0; i < num_threads; i++) {
    fibers[i].state = RUNS;
    fibers[i].num_meetings = 0;
    fibers[i].count = 1;
    copies[i].count = copies[i].num_groups = 0;
    prepare_stack(fibers[i], start_thread);
  }
  if (num_blocks > 1) begin_cluster();
  bool is_behind_barrier = true;
  do {
    if (is_behind_barrier) put_in_order(turns, num_threads, order);
    do run_threads(turns, num_threads);
    while (!failed && release_meetings(num_threads));
  } while (!failed && ((is_behind_barrier = release_barriers()) || (clocks && clocks->release())));
  for (int64 first = 0; first < num_threads && !failed; first += block_threads)
    failed = !check_together(first, block_threads, "barrier");
  if (!failed) failed = !check_together(0, num_threads, "barrier of a cluster");
  if (clocks && !failed) clocks->check_block_is_done();
}

}  // namespace cudasim

template <class T> using Global = cudasim::GlobalMemory<T>;
#define SHARED_AT(T, name, n, first) SHARED(T, name, n)
#define SHARED(T, name, n)                                                      \
  static cudasim::SharedElements<T, (n)> name##_elements[cudasim::MOST_BLOCKS]; \
  const cudasim::SharedMemory<T, (n)> name = {name##_elements[cudasim::own_rank()], #name}
#define REGISTERS(T, name, n) cudasim::RegisterMemory<T, (n)> name = {#name}

#include "launch.h"

#endif
