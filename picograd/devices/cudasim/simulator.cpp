// The simulator's own functions: a GPU's threads, blocks and grids, and what cudasim.h declares.
//
// Compiled once for a set of options, and linked with each kernel (compile.py). All that changes here and in the headers that
// this includes is the library's own.

#ifndef PICOGRAD_CUDASIM_SIMULATOR
#define PICOGRAD_CUDASIM_SIMULATOR

#include <stdarg.h>
#include <sys/mman.h>

#include "../cuda/hopper.h"  // all that kernels see

namespace cudasim {

static const int64 WARPGROUP_THREADS = 128, STACK_BYTES = 128 * 1024;
static const int64 SPARE_BYTES = 4 << 20;  // below the lowest stack: a thread that overflows it is caught by its canary
static const uint64 CANARY = 0x5afec0de5afec0deull;

Fiber fibers[MAX_THREADS], *running;
Index block_shape, grid_shape;
Block blocks[MOST_BLOCKS];
int32 at_line;
bool names_lines;
char* dynamic_shared;
int64 dynamic_nbytes;
Pieces<Cell> dynamic_cells;
const Argument* arguments;
static void* scheduler_stack_pointer;
static void (*run_thread)();
struct alignas(8) Given { char bytes[MOST_GIVEN]; };
static Given given[2][MAX_THREADS];  // what each thread shows to its warp; two in turn, for a thread may be one meeting ahead
static uint64 random_state;
static int64 num_blocks, block_threads, num_threads, thread_order, num_waiting[NUM_STATES];  // num_threads: of all blocks
static const char* kernel_name;
static char message[512];
static bool failed, pauses;       // pauses: the running thread has called `pause`
static int32 (*is_interrupted)();  // asks the host; null where that gives no answer
static uint64 num_rounds;          // of threads, between which the host is asked now and then
static const uint64 ROUNDS_BETWEEN_QUESTIONS = 8;
uint64 num_accesses;

}  // namespace cudasim
#include "stacks.h"  // which, and those below, need what stands above
namespace cudasim {

// ---- errors ----
static int64 thread_number(const Fiber* fiber) { return fiber - fibers; }
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
__attribute__((format(printf, 1, 2))) static void say(const char* form, ...) {
  va_list values;
  va_start(values, form);
  say_values(form, values);
  va_end(values);
}
void fail(const char* form, ...) {
  va_list values;
  va_start(values, form);
  say_values(form, values);
  va_end(values);
  switch_to_scheduler();
  abort();  // the scheduler never comes back to a failed launch
}

void check_bounds(int64 index, int64 numel, const char* name, const char* verb) {
  if (__builtin_expect((uint64)index >= (uint64)numel, 0))
    fail("%s %s[%lld], which has %lld elements.", verb, name, index, numel);
}

int64 check_rank(int64 rank) {
  if (rank < 0 || rank >= num_blocks) fail("reaches for block %lld of its cluster, which has %lld blocks.", rank, num_blocks);
  return rank;
}

// ---- what a user's kernel calls (`watched` in compile.py) ----
static const int64 LEAST_LEFT_BYTES = 16 << 10;  // of a stack: the C library's functions, which a kernel calls, need some

// Lets the host hear an interrupt, and goes on.
void pause() {
  pauses = true;
  switch_to_scheduler();
}

// A place of the text, and behind it the type of an array: its text stands behind two numbers.
struct Site { const char* file; uint32 line, column; };
struct SiteOfArray { Site site; const struct { uint16 kind, info; char text[1]; }* type; };
static void note_line(const Site& site) {
  if (names_lines && !at_line && !strchr(site.file, '/')) at_line = (int32)site.line;  // else it is of a header of ours
}

extern "C" {
// At the begin of each function, and at its end.
void __cyg_profile_func_enter(void*, void*) {
  if (running && (char*)__builtin_frame_address(0) < running->stack + LEAST_LEFT_BYTES)
    fail("needs more than %lld bytes of stack: a function calls itself, or local arrays are large.", STACK_BYTES);
}
void __cyg_profile_func_exit(void*, void*) {}
void __ubsan_handle_out_of_bounds(const SiteOfArray* at, uint64 index) {
  note_line(at->site);
  fail("reaches for element %lld of %s, an array in local or constant memory.", (int64)index, at->type->text);
}
void __ubsan_handle_divrem_overflow(const Site* site, uint64, uint64) {
  note_line(*site);
  fail("divides a whole number by 0.");
}
}

// ---- chance ----
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

// ---- what a thread calls ----
void wait(State state, int32 line) {
  running->state = state;
  running->line = line;
  num_waiting[state]++;
  switch_to_scheduler();
}

int64 meet(const void* value, int64 nbytes, const void** all, int32 line) {
  const int64 thread = thread_number(running), first = thread - thread % WARP_THREADS;
  auto& turn = given[running->num_meetings++ % 2];
  memcpy(turn[thread].bytes, value, (size_t)nbytes);
  wait(AT_SHUFFLE, line);
  for (int64 i = 0; i < WARP_THREADS; i++) all[i] = turn[first + i].bytes;
  return thread - first;
}

const char* parameter_name(int64 parameter) {
  static char names[MOST_ARGUMENTS][8];
  if (!names[parameter][0]) snprintf(names[parameter], sizeof names[parameter], "p%lld", parameter);
  return names[parameter];
}

}  // namespace cudasim
#include "order.h"
#include "copies.h"
#include "clocks.h"
#include "mbarriers.h"
#include "tiles.h"
#include "warpgroups.h"
#include "races.h"
namespace cudasim {

// ---- threads ----
static void start_thread() {
  run_thread();
  check_copies_are_done();
  if (has_clocks) check_thread_is_done();
  wait(ENDED, 0);
  abort();  // the scheduler never comes back to a thread that has ended
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
  if (meeting.orders) tell_each_other(first, count);
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

// What Python gives, to be asked whether a kernel shall be given up.
SEEN_OUTSIDE void picograd_ask(int32 (*asked)()) { is_interrupted = asked; }

static bool is_stopped() {
  if (is_interrupted && is_interrupted()) {
    snprintf(message, sizeof message, "kernel %s: interrupted.", kernel_name);
    failed = true;
  }
  return failed;
}

// Runs each thread that can run, in turn, until it waits or ends.
static void run_threads(const int64* turns, int64 threads) {
  for (int64 i = 0; i < threads && !failed; i++) {
    running = &fibers[turns[i]];
    if (running->state != RUNS) continue;
    do {
      pauses = false;
      switch_to_fiber();
    } while (pauses && !is_stopped());
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
  if (has_clocks) tell_each_other(first, count);
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
  has_clocks = false;
  for (int64& waiting : num_waiting) waiting = 0;
  for (int64 i = 0; i < num_blocks; i++) blocks[i].epoch = epoch;
  for (int64 i = 0; i < num_threads; i++) {
    fibers[i].state = RUNS;
    fibers[i].num_meetings = 0;
    fibers[i].count = 1;
    copies[i].count = copies[i].num_groups = 0;
    prepare_stack(fibers[i], start_thread);
  }
  if (num_blocks > 1) begin_clocks();
  bool is_behind_barrier = true;
  do {
    if (++num_rounds % ROUNDS_BETWEEN_QUESTIONS == 0 && is_stopped()) return;
    if (is_behind_barrier) put_in_order(turns, num_threads, order);
    do run_threads(turns, num_threads);
    while (!failed && release_meetings(num_threads));
  } while (!failed && ((is_behind_barrier = release_barriers()) || (has_clocks && release_mbarriers())));
  for (int64 first = 0; first < num_threads && !failed; first += block_threads)
    failed = !check_together(first, block_threads, "barrier");
  if (!failed) failed = !check_together(0, num_threads, "barrier of a cluster");
  if (has_clocks && !failed) check_block_is_done();
}

// ---- grids, and clusters of their blocks ----
// The place with this number, x first, in a box.
static Index index_of(int64 number, const Index& box) {
  return {(uint32)(number % box.x), (uint32)(number / box.x % box.y), (uint32)(number / ((int64)box.x * box.y))};
}

static const Clusters* first_clusters;
Clusters::Clusters(const char* name, int64 blocks) : name(name), blocks(blocks), next(first_clusters) { first_clusters = this; }

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

const char* launch(const char* name, void (*thread)(), const Argument* given, const int64* shape, int64 order, int64 seed) {
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
  names_lines = false;
  dynamic_nbytes = shape[6];
  dynamic_shared = (char*)aligned_alloc(128, (size_t)(dynamic_nbytes + 127) / 128 * 128);
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
  running = nullptr;
  forget_traces();
  free(turns);
  free(dynamic_shared);
  forget(dynamic_cells);
  munmap(stacks, stack_bytes);
  return failed ? message : nullptr;
}

}  // namespace cudasim

#endif
