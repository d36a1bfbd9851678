// Barriers in shared memory of the simulated GPU, and what completes on them: mbarrier, cp.async.bulk.
//
// Included by simulator.cpp. An mbarrier counts arrivals of threads and bytes of copies; when none is missing its phase is
// complete and the next begins. Copies arrive as late as can be, when all threads wait, and one after the other, so that
// nobody gets what it has not waited for. If then nothing completes a phase that threads wait for, that is a deadlock.
// Blocks of a cluster arrive at each other's mbarriers and copy to each other's tiles: each such visit has to be known to the block
// that is visited before it ends, for then its shared memory is no more.

#ifndef PICOGRAD_CUDASIM_MBARRIERS_H
#define PICOGRAD_CUDASIM_MBARRIERS_H

namespace cudasim {

static MBarrier* mbarriers[MOST_MBARRIERS];
static int32 num_mbarriers;

static Clock visits[MOST_BLOCKS];  // up to which count actors have been in the memory of a block from outside

// A copy on its way that an mbarrier counts. arrive: stores it; made by `thread` at `line`, in `phase` of the barrier.
struct BulkCopy {
  void (*arrive)(const BulkCopy& copy);
  MBarrier* barrier;
  uint32 phase;
  int32 line;
  int64 thread, nbytes, work;
};
static const int64 MOST_BULK_COPIES = 256;
static BulkCopy bulk_copies[MOST_BULK_COPIES];
static int64 num_bulk_copies;

// What a thread waits for.
struct Awaited {
  MBarrier* barrier;
  uint32 parity;
};
static Awaited awaited[MAX_THREADS];

static const char* mbarrier_name(int32 actor) {
  static char name[64];
  snprintf(name, sizeof name, "%s[%lld]", mbarriers[actor]->name, mbarriers[actor]->index);
  return name;
}
static bool is_complete(const MBarrier& barrier, uint32 parity) { return (barrier.phase & 1) != parity; }

// Completes the phase if nothing is missing.
static void look_at(MBarrier& barrier) {
  if (barrier.arrivals || barrier.nbytes) return;
  barrier.phase++;
  barrier.arrivals = barrier.count;
  barrier.told.known.at[barrier.actor] = barrier.phase;
  barrier.complete = barrier.told;
}

static void begin_mbarriers() {
  num_mbarriers = num_bulk_copies = 0;
  for (int64 rank = 0; rank < num_blocks && num_blocks > 1; rank++) memset(&visits[rank], 0, sizeof visits[rank]);
}

static MBarrier& used(const MBarrier& barrier, const char* does) {
  if (barrier.block != block_epoch) fail("%s an mbarrier that this block has not initialised.", does);
  if (barrier.thread != thread_number(running) && !comes_before_own(barrier.initialised, nullptr))
    fail("%s %s[%lld]%s, which thread %lld initialised since the last barrier.", does, barrier.name, barrier.index,
         barrier.rank == own_rank() ? "" : " of another block", in_block(barrier.thread));
  return const_cast<MBarrier&>(barrier);
}

void initialise(MBarrier& barrier, const char* name, int64 index, int64 count) {
  begin_clocks();
  if (count < 1 || count >= 1 << 20) fail("initialises %s[%lld] for %lld arrivals; 1 to 2^20 - 1 can be.", name, index, count);
  if (barrier.block == block_epoch) fail("initialises %s[%lld], which is initialised.", name, index);
  if (num_mbarriers == MOST_MBARRIERS) fail("a block has more than %d mbarriers.", MOST_MBARRIERS);
  memset(&barrier, 0, sizeof barrier);
  barrier.name = name;
  barrier.index = index;
  barrier.count = barrier.arrivals = count;
  barrier.actor = (uint32)num_mbarriers;
  barrier.block = block_epoch;
  barrier.rank = own_rank();
  barrier.thread = (int32)thread_number(running);
  barrier.initialised = own_access();
  mbarriers[num_mbarriers++] = &barrier;
}

// Shows the barriers that the thread has initialised to the copies that will complete on them.
void show_mbarriers() {
  for (int32 i = 0; i < num_mbarriers; i++)
    if (mbarriers[i]->thread == thread_number(running)) mbarriers[i]->is_shown = true;
}

// The thread arrives, and says that so many bytes will.
void arrive(const MBarrier& given, int64 nbytes) {
  MBarrier& barrier = used(given, "arrives at");
  if (barrier.arrivals == 0)
    fail("arrives at %s[%lld], where all %lld of this phase have arrived.", barrier.name, barrier.index, barrier.count);
  barrier.arrivals--;
  barrier.nbytes += nbytes;
  barrier.told.join(own_knowledge());
  if (barrier.rank != own_rank()) visits[barrier.rank].at[running->actor] = running->count;
  count_on(thread_number(running));
  look_at(barrier);
}

void wait_for(const MBarrier& given, uint32 parity, int32 line) {
  MBarrier& barrier = used(given, "waits for");
  if (parity > 1) fail("waits for %s[%lld] with parity %u; it is 0 or 1.", barrier.name, barrier.index, parity);
  if (!is_complete(barrier, parity)) {
    awaited[thread_number(running)] = {&barrier, parity};
    wait(AT_MBARRIER, line);
  }
  own_knowledge().join(barrier.complete);
}

// ---- copies ----
// Adds a copy to those on their way; `work` is what its maker knows it by.
static void start_bulk_copy(const MBarrier& given, int64 nbytes, int64 work, void (*arrive)(const BulkCopy&), int32 line) {
  MBarrier& barrier = used(given, "copies by");
  if (!barrier.is_shown)
    fail("copies by %s[%lld], behind whose initialisation no fence_mbarriers came.", barrier.name, barrier.index);
  if (num_bulk_copies == MOST_BULK_COPIES) fail("a block has more than %lld copies on their way.", MOST_BULK_COPIES);
  bulk_copies[num_bulk_copies++] = {arrive, &barrier, barrier.phase, line, thread_number(running), nbytes, work};
  if (barrier.rank != own_rank()) visits[barrier.rank].at[barrier.actor] = barrier.phase + 1;
}

// Lets one copy arrive: the first of them, the last or any, as threads follow each other.
static void finish_bulk_copy() {
  const int64 last = num_bulk_copies - 1;
  const int64 chosen = thread_order == FORWARD ? 0 : thread_order == BACKWARD ? last : (int64)(next_random() % num_bulk_copies);
  const BulkCopy copy = bulk_copies[chosen];
  memmove(&bulk_copies[chosen], &bulk_copies[chosen + 1], (size_t)(last - chosen) * sizeof copy);
  num_bulk_copies = last;
  MBarrier& barrier = *copy.barrier;
  running = &fibers[copy.thread];
  if (barrier.phase != copy.phase) {
    say("the %lld bytes of the copy of line %d come to %s[%lld] when its phase is over: it was told to expect fewer.",
        copy.nbytes, copy.line, barrier.name, barrier.index);
    return;
  }
  copy.arrive(copy);
  barrier.nbytes -= copy.nbytes;
  if (barrier.arrivals == 0 && barrier.nbytes < 0)
    say("%lld bytes more come to %s[%lld] than it was told to expect, the last by the copy of line %d.", -barrier.nbytes,
        barrier.name, barrier.index, copy.line);
  look_at(barrier);
}

// Says which visit to the memory of a block is not known to any of its threads when it ends.
static void check_visits(int64 rank) {
  static Clock known;
  const int64 first = rank * block_threads;
  known = knowledge[first].known;
  for (int64 t = first + 1; t < first + block_threads; t++) known.join(knowledge[t].known);
  for (int32 actor = 0; actor < FIRST_THREAD + num_threads && !failed; actor++) {
    if (visits[rank].at[actor] <= known.at[actor]) continue;
    running = &fibers[actor < FIRST_THREAD ? first : actor - FIRST_THREAD];
    if (actor < FIRST_THREAD) say("the block may end while a copy of another one is on its way to it: nobody waits for %s.", mbarrier_name(actor));
    else say("arrives at an mbarrier of block %lld, which may have ended: no sync_cluster comes behind.", block_number(&fibers[first]));
  }
}

static void check_block_is_done() {
  if (num_bulk_copies) {
    running = &fibers[bulk_copies[0].thread];
    say("the block ends while a copy is on its way, of line %d: nobody waits for %s[%lld].", bulk_copies[0].line,
        bulk_copies[0].barrier->name, bulk_copies[0].barrier->index);
  }
  for (int64 rank = 0; rank < num_blocks && num_blocks > 1 && !failed; rank++) check_visits(rank);
}

// ---- waiting ----
// Lets the threads go on whose phase is complete; returns whether there was one.
static bool release_waiting() {
  bool released = false;
  for (int64 i = 0; i < num_threads; i++) {
    if (fibers[i].state != AT_MBARRIER || !is_complete(*awaited[i].barrier, awaited[i].parity)) continue;
    fibers[i].state = RUNS;
    num_waiting[AT_MBARRIER]--;
    released = true;
  }
  return released;
}

static void say_deadlock() {
  const MBarrier* told = nullptr;
  int64 length = 0;
  for (int64 i = 0; i < num_threads; i++) {
    const MBarrier* barrier = awaited[i].barrier;
    if (fibers[i].state != AT_MBARRIER || barrier == told) continue;
    if (!told) {
      running = &fibers[i];
      say("deadlock: ");
      length = (int64)strlen(message);
    }
    const int64 written = snprintf(
        message + length, sizeof message - (size_t)length,
        "%sthread %lld waits at line %d for parity %u of %s[%lld], whose phase %u misses %lld of %lld arrivals and %lld bytes",
        told ? "; " : "", in_block(i), fibers[i].line, awaited[i].parity, barrier->name, barrier->index, barrier->phase,
        barrier->arrivals, barrier->count, barrier->nbytes);
    length = length + written < (int64)sizeof message - 1 ? length + written : (int64)sizeof message - 1;
    told = barrier;
  }
  snprintf(message + length, sizeof message - (size_t)length, ".");
}

// Lets threads that wait for mbarriers go on, copies arriving where nothing else can happen; returns whether one does.
static bool release_mbarriers() {
  if (!num_waiting[AT_MBARRIER]) return false;
  bool released = release_waiting();
  while (!released && num_bulk_copies && !failed) {
    finish_bulk_copy();
    released = release_waiting();
  }
  if (!released && !failed) say_deadlock();
  return released && !failed;
}

}  // namespace cudasim

#endif
