// Clocks of the threads of a simulated block, for kernels that order them by more than its barriers.
//
// Included by simulator.cpp. Threads tell each other what they have done by mbarriers and barriers of a warp or a
// warpgroup. Each actor counts what it tells, and each thread knows up to which count of every other it has been told (vector
// clocks: Fidge 1988; Mattern 1989). Actors are the threads, and what works beside them: copies that complete on an mbarrier,
// products of a warpgroup, stores of a thread. An access comes before another if its count is known to who does that.

#ifndef PICOGRAD_CUDASIM_CLOCKS_H
#define PICOGRAD_CUDASIM_CLOCKS_H

namespace cudasim {

void Clock::join(const Clock& other) {
  for (int64 i = 0; i < FIRST_THREAD + num_threads; i++) at[i] = at[i] > other.at[i] ? at[i] : other.at[i];
}
void Clock::meet(const Clock& other) {
  for (int64 i = 0; i < FIRST_THREAD + num_threads; i++) at[i] = at[i] < other.at[i] ? at[i] : other.at[i];
}

static Knowledge knowledge[MAX_THREADS];
static Knowledge& own_knowledge() { return knowledge[thread_number(running)]; }

struct Several {
  int64 length, room;
  struct Entry {
    int32 actor;
    uint32 count;
  } entries[];
};

// Begins the next count of a thread: what it does from now on, nobody has been told.
static void count_on(int64 thread) { knowledge[thread].known.at[FIRST_THREAD + thread] = ++fibers[thread].count; }

// Has threads first .. first + count - 1 tell each other all they know.
static void tell_each_other(int64 first, int64 count) {
  static Knowledge all;
  all = knowledge[first];
  for (int64 t = first + 1; t < first + count; t++) all.join(knowledge[t]);
  for (int64 t = first; t < first + count; t++) {
    knowledge[t].join(all);
    count_on(t);
  }
}

// ---- accesses ----
// Whether an access comes before all that who has this clock does from now on.
static bool comes_before(const Access& access, const Several* several, const Clock& clock) {
  // In a cluster an access may be of another block's memory, whose barriers are not this one's.
  if (access.epoch < (num_blocks > 1 ? block_epoch : running->block->epoch) || is_of_another_block(access)) return true;
  if (access.actor == ON_ITS_WAY) return false;
  if (access.actor != MANY) return access.count <= clock.at[access.actor];
  if (!(access.epoch & BESIDE)) return false;  // of before there were clocks
  for (int64 i = 0; i < several->length; i++)
    if (several->entries[i].count > clock.at[several->entries[i].actor]) return false;
  return true;
}

// Adds an access to those of others that it does not come behind, and forgets those that it does.
static void add_to(Access& access, Several*& several, const Access& added, const Clock& clock) {
  if (comes_before(access, several, clock)) {
    access = added;
    return;
  }
  const bool is_one = access.actor != MANY || !(access.epoch & BESIDE);
  const int64 most = (is_one ? 1 : several->length) + 1;
  if (!several || several->room < most) {
    several = (Several*)realloc(several, sizeof(Several) + (size_t)(2 * most) * sizeof(Several::Entry));
    several->room = 2 * most;
  }
  if (is_one) several->length = 1, several->entries[0] = {access.actor == MANY ? added.actor : access.actor, access.count};
  int64 kept = 0;
  for (int64 i = 0; i < several->length; i++) {
    const auto& entry = several->entries[i];
    if (entry.actor != added.actor && entry.count > clock.at[entry.actor]) several->entries[kept++] = entry;
  }
  several->entries[kept++] = {added.actor, added.count};
  several->length = kept;
  access = {BESIDE | block_epoch, MANY, 0};
}

static bool comes_before_own(const Access& access, const Several* several) {
  return comes_before(access, several, own_knowledge().known);
}
static void add_own(Access& access, Several*& several) { add_to(access, several, own_access(), own_knowledge().known); }

static const char* mbarrier_name(int32 actor);
static void fail_race_beside(const char* does, const char* name, int64 index, const Access& access) {
  if (access.actor < FIRST_WARPGROUP)
    fail("%s %s[%lld], to which a copy is on its way: no wait for %s is known to it.", does, name, index,
         mbarrier_name(access.actor));
  if (access.actor < FIRST_STORER)
    fail("race: %s %s[%lld], which a wgmma of warpgroup %d reads: no wgmma_wait for it is known.", does, name, index,
         (access.actor - FIRST_WARPGROUP) % (int32)(block_threads / WARPGROUP_THREADS));
  fail("race: %s %s[%lld], which a store of a tile reads: no wait_stores for it is known.", does, name, index);
}

// The thread of each warp that acts for it: one and the same all through a block.
uint32 elected_lane() {
  return thread_order == FORWARD ? 0 : thread_order == BACKWARD ? 31 : (uint32)(block_epoch * 7 % WARP_THREADS);
}

// ---- a block with clocks ----
static void begin_mbarriers();
static void begin_stores();
static void begin_products();

// Keeps clocks from here on. All before the last barrier is known to everybody.
void begin_clocks() {
  if (has_clocks) return;
  has_clocks = true;
  for (int64 t = 0; t < num_threads; t++) {
    memset(&knowledge[t], 0, sizeof knowledge[t]);
    for (int64 u = 0; u < num_threads; u++) knowledge[t].known.at[FIRST_THREAD + u] = fibers[u].count - (t == u ? 0 : 1);
  }
  begin_mbarriers();
  begin_stores();
  begin_products();
}

}  // namespace cudasim

#endif
