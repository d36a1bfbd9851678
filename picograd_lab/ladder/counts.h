// Counts of what a kernel does in the simulator, instruction by instruction of a warp: included before the kernel by counts.py.
//
// The simulator runs the threads of a warp one after the other; a GPU runs them together. So each access is noted, and between two
// barriers of the block those are put together that are one instruction: of the 32 threads of a warp, at one place of the text, each
// thread's first, each one's second, and so on. Where a condition in a loop leaves out some accesses, a thread's second may be of
// the third turn: then those are put together as well before which each thread has written as often to registers or memory, which
// it does once a turn or so; the way that needs fewer sectors, or turns of the banks, counts. Of them is counted
//   - in global memory, how many sectors of 32 bytes they touch: the unit in which a GPU moves memory;
//   - in shared memory, how often a bank is asked for another word: 32 banks of 4 bytes answer one word each at a time. Threads with 8
//     or 16 bytes each are served in two or four parts.
//     A word that goes to several threads is moved once.
// What a cache would have kept is not known here.

#ifndef PICOGRAD_LADDER_COUNTS_H
#define PICOGRAD_LADDER_COUNTS_H

// No templates of the standard library: instantiating a sort takes longer to compile than all of a kernel.

#define PICOGRAD_COUNTERS(X)                                                                                              \
  X(GLOBAL_LOADS) X(GLOBAL_STORES) X(GLOBAL_ATOMICS) X(SHARED_LOADS) X(SHARED_STORES) X(SHARED_ATOMICS) X(ASYNC_COPIES)   \
  X(TILE_LOADS) X(TILE_STORES) X(BARRIERS) X(SHUFFLES) X(MMAS) X(WGMMAS) X(WGMMA_COLUMNS) X(MULTIPLY_ADDS) X(EXPONENTIALS)\
  X(LOADED_SECTORS) X(STORED_SECTORS) X(BANK_CONFLICTS) X(SHARED_BYTES) X(REGISTER_BYTES)

namespace cudasim {
#define NAMED(name) name,
enum Counter { PICOGRAD_COUNTERS(NAMED) NUM_COUNTERS };
#undef NAMED
extern long long counters[NUM_COUNTERS], parts_of_one, parts_seen;
void note(Counter counter, const void* address, long long nbytes);
void note_step();  // a thread has written
void note_box(Counter counter, const void* address, long long nbytes);

struct Together {
  explicit Together(long long parts) { parts_of_one = parts, parts_seen = 0; }
  ~Together() { parts_of_one = 0; }
};
}  // namespace cudasim

// What the simulator's headers say where nobody counts is empty.
#define CUDASIM_COUNTS
#define COUNT_ACCESS(counter, address, nbytes) cudasim::note(cudasim::counter, address, nbytes)
#define COUNT_INSTRUCTION(counter) cudasim::note(cudasim::counter, nullptr, 0)
#define COUNT_MORE(counter, number) cudasim::counters[cudasim::counter] += (number)
#define COUNT_STEP() cudasim::note_step()
#define COUNT_BOX(counter, address, nbytes) cudasim::note_box(cudasim::counter, address, nbytes)
#define COUNT_AS_ONE(parts) const cudasim::Together together(parts)
#define ACCESSOR __attribute__((always_inline)) inline

#include "primitives.h"

// Multiply-adds and exponentials of a thread; the table takes 32 as an instruction.
#define fmaf(a, b, c) (COUNT_MORE(MULTIPLY_ADDS, 1), fmaf(a, b, c))
#define expf(a) (COUNT_MORE(EXPONENTIALS, 1), expf(a))
#define rough_exp2(a) (COUNT_MORE(EXPONENTIALS, 1), rough_exp2(a))

#ifdef SIMULATOR  // what is compiled once, with the simulator's own functions
#include "cudasim/simulator.cpp"

namespace cudasim {

long long counters[NUM_COUNTERS], parts_of_one, parts_seen;
static const int64 SECTOR_BYTES = 32, BANKS = 32, BANK_BYTES = 4, MOST_OF_THREAD = 16;

struct Noted {
  const void* place;  // in the text: where the function returns to that notes it
  uint64 address;
  int32 thread, nbytes, number, step;  // number: of all accesses, then of the thread's at that place; step: writes before it
  Counter counter;
  int64 warp() const { return thread / WARP_THREADS; }
  bool is_of_thread(const Noted& other) const { return thread == other.thread && place == other.place; }
  bool is_with(const Noted& other) const { return warp() == other.warp() && place == other.place && number == other.number; }
};
static Noted* noted;
static int64 num_noted, room_for_noted;
static uint64 noted_epoch, step_epoch;
static int32 steps[MAX_THREADS];  // writes of each thread since the last barrier

// ---- one instruction of a warp ----
struct Different {  // numbers, each of them once: those of 32 threads with 16 bytes each, which may lie across two words or sectors
  uint64 values[WARP_THREADS * (MOST_OF_THREAD / BANK_BYTES + 1)];
  int64 count = 0;
  bool add(uint64 value) {
    for (int64 i = count; i > 0; i--)
      if (values[i - 1] == value) return false;
    values[count++] = value;
    return true;
  }
};

static int64 sectors_of(const Noted* first, const Noted* last) {
  Different sectors;
  for (const Noted* one = first; one < last; one++)
    for (uint64 at = one->address / SECTOR_BYTES; at <= (one->address + one->nbytes - 1) / SECTOR_BYTES; at++) sectors.add(at);
  return sectors.count;
}

// Counts how often the banks answer beyond once for each part of the warp, and the words that they give to it or take.
static void count_banks(const Noted* first, const Noted* last) {
  Different words;
  const int64 together = WARP_THREADS * BANK_BYTES / (first->nbytes > BANK_BYTES ? first->nbytes : BANK_BYTES);
  for (int64 part = 0; part < WARP_THREADS; part += together) {
    Different asked_for;
    int64 answers[BANKS] = {}, most = 1;
    for (const Noted* one = first; one < last; one++) {
      if (one->thread % WARP_THREADS < part || one->thread % WARP_THREADS >= part + together) continue;
      for (uint64 word = one->address / BANK_BYTES; word <= (one->address + one->nbytes - 1) / BANK_BYTES; word++) {
        if (asked_for.add(word) && ++answers[word % BANKS] > most) most = answers[word % BANKS];
        words.add(word);
      }
    }
    counters[BANK_CONFLICTS] += most - 1;
  }
  counters[SHARED_BYTES] += BANK_BYTES * words.count;
}

static void count_instruction(const Noted* first, const Noted* last) {
  const Counter counter = first->counter;
  counters[counter]++;
  if (counter == GLOBAL_LOADS || counter == GLOBAL_ATOMICS) counters[LOADED_SECTORS] += sectors_of(first, last);
  if (counter == GLOBAL_STORES || counter == GLOBAL_ATOMICS) counters[STORED_SECTORS] += sectors_of(first, last);
  if (counter == SHARED_LOADS || counter == SHARED_STORES || counter == SHARED_ATOMICS) count_banks(first, last);
}

// ---- all between two barriers ----
static int by_thread(const void* left, const void* right) {
  const Noted &a = *(const Noted*)left, &b = *(const Noted*)right;
  if (a.thread != b.thread) return a.thread < b.thread ? -1 : 1;
  if (a.place != b.place) return a.place < b.place ? -1 : 1;
  return a.number < b.number ? -1 : 1;
}

static int by_instruction(const void* left, const void* right) {
  const Noted &a = *(const Noted*)left, &b = *(const Noted*)right;
  if (a.warp() != b.warp()) return a.warp() < b.warp() ? -1 : 1;
  if (a.place != b.place) return a.place < b.place ? -1 : 1;
  return a.number != b.number ? (a.number < b.number ? -1 : 1) : 0;
}

static int by_step(const void* left, const void* right) {
  const Noted &a = *(const Noted*)left, &b = *(const Noted*)right;
  if (a.step != b.step) return a.step < b.step ? -1 : 1;
  return by_thread(left, right);
}

// Counts instructions of one warp at one place of the text, whose accesses are in the order of their numbers.
static void count_in_order(const Noted* from, const Noted* end) {
  for (const Noted *first = from, *last; first < end; first = last) {
    for (last = first; last < end && last->is_with(*first);) last++;
    count_instruction(first, last);
  }
}

// Numbers the accesses of each thread that have the same step, so that those of one step and number are one instruction.
static void number_by_step(Noted* from, Noted* end) {
  qsort(from, (size_t)(end - from), sizeof *from, by_step);
  int32 before = 0, most = 0;
  for (Noted *one = from, *first = from; one < end; one++) {
    if (one->step != first->step) before += most + 1, most = 0;
    if (one->step != first->step || one->thread != first->thread) first = one;
    const int32 number = (int32)(one - first);
    most = number > most ? number : most;
    one->number = before + number;
  }
  qsort(from, (size_t)(end - from), sizeof *from, by_instruction);
}

static int64 turns() {
  return counters[LOADED_SECTORS] + counters[STORED_SECTORS] + counters[BANK_CONFLICTS];
}

static void count_noted() {
  qsort(noted, (size_t)num_noted, sizeof *noted, by_thread);
  for (int64 i = 0, first = 0; i < num_noted; i++) {
    if (!noted[i].is_of_thread(noted[first])) first = i;
    noted[i].number = (int32)(i - first);
  }
  qsort(noted, (size_t)num_noted, sizeof *noted, by_instruction);
  for (int64 first = 0, last = 0; first < num_noted; first = last) {
    bool are_together = true;  // threads of one number have one step, too
    while (last < num_noted && noted[last].warp() == noted[first].warp() && noted[last].place == noted[first].place) {
      const Noted &one = noted[last], &before = noted[last++ - 1];
      if (last - 1 > first && one.number == before.number && one.step != before.step) are_together = false;
    }
    long long before[NUM_COUNTERS], by_number[NUM_COUNTERS];
    memcpy(before, counters, sizeof before);
    count_in_order(noted + first, noted + last);
    if (are_together) continue;
    const int64 own = turns();
    memcpy(by_number, counters, sizeof by_number);
    memcpy(counters, before, sizeof before);
    number_by_step(noted + first, noted + last);
    count_in_order(noted + first, noted + last);
    if (own <= turns()) memcpy(counters, by_number, sizeof by_number);
  }
  num_noted = 0;
}

void note_step() {
  if (step_epoch != epoch) memset(steps, 0, sizeof steps);
  step_epoch = epoch;
  steps[thread_number(running)]++;
}

void note(Counter counter, const void* address, long long nbytes) {
  if (parts_of_one && address) {
    if (parts_seen++) return;
    nbytes *= parts_of_one;
  }
  if (noted_epoch != epoch) count_noted();
  noted_epoch = epoch;
  const void* place = __builtin_return_address(0);
  for (int64 done = 0; done == 0 || done < nbytes; done += MOST_OF_THREAD) {
    if (num_noted == room_for_noted) {
      room_for_noted = 2 * room_for_noted + 1024;
      noted = (Noted*)realloc(noted, (size_t)room_for_noted * sizeof *noted);
    }
    const int64 left = nbytes - done;
    noted[num_noted] = {place, (uint64)address + done, (int32)thread_number(running),
                        (int32)(left < MOST_OF_THREAD ? left : MOST_OF_THREAD), (int32)num_noted,
                        step_epoch == epoch ? steps[thread_number(running)] : 0, counter};
    num_noted++;
  }
  if (counter == GLOBAL_STORES || counter == SHARED_STORES) note_step();
}

// An element of a box that the copy engine moves: neighbours come one after the other.
void note_box(Counter counter, const void* address, int64 nbytes) {
  static uint64 sector;
  if (nbytes == 0) counters[counter]++, sector = ~0ull;
  counters[SHARED_BYTES] += nbytes;
  if (!address || (uint64)address / SECTOR_BYTES == sector) return;
  sector = (uint64)address / SECTOR_BYTES;
  counters[counter == TILE_LOADS ? LOADED_SECTORS : STORED_SECTORS]++;
}

}  // namespace cudasim

// What counts.py asks for: the names of the counters, and what they hold since it asked before.
#define NAMED(name) #name "\n"
SEEN_OUTSIDE const char* picograd_counter_names() { return PICOGRAD_COUNTERS(NAMED); }
#undef NAMED
SEEN_OUTSIDE void picograd_take_counts(long long* into) {
  cudasim::count_noted();
  memcpy(into, cudasim::counters, sizeof cudasim::counters);
  memset(cudasim::counters, 0, sizeof cudasim::counters);
}
#endif

#endif
