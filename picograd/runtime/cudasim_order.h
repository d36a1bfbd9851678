// What comes before what in a block of the simulated GPU: the question that a race is the answer to.
//
// Included by cudasim.h. Between two barriers of a block nothing orders its threads but what they tell each other: by an
// mbarrier, or a barrier of a warp or a warpgroup. So each actor counts what it tells, and each thread knows up to which
// count of every other it has been told (vector clocks: Fidge 1988; Mattern 1989). Actors are the threads, and what works
// beside them: the copies that complete on an mbarrier, the products of a warpgroup, the stores of a thread.
//
// A kernel without any of that is never asked for more than barriers: epochs are enough, and clocks are not kept.

#ifndef PICOGRAD_CUDASIM_ORDER_H
#define PICOGRAD_CUDASIM_ORDER_H

namespace cudasim {

static const int32 MANY = -1, ON_ITS_WAY = -2;  // in the place of an actor: several; a copy that its thread has to wait for
static const int32 MOST_MBARRIERS = 64, MOST_WARPGROUPS = 8, MOST_STORERS = 16;
static const int32 FIRST_WARPGROUP = MOST_MBARRIERS, FIRST_STORER = FIRST_WARPGROUP + MOST_WARPGROUPS;
static const int32 FIRST_THREAD = FIRST_STORER + MOST_STORERS, MOST_ACTORS = FIRST_THREAD + MAX_THREADS;
static const uint64 BESIDE = 1ull << 63;  // in an epoch: of an actor that no barrier of the block waits for

// Up to which count something is known of each actor.
struct Clock {
  uint32 at[MOST_ACTORS];
  void join(const Clock& other) {
    for (int64 i = 0; i < num_actors; i++) at[i] = at[i] > other.at[i] ? at[i] : other.at[i];
  }
  void meet(const Clock& other) {
    for (int64 i = 0; i < num_actors; i++) at[i] = at[i] < other.at[i] ? at[i] : other.at[i];
  }
};
// known: of what others did. seen: what of it the asynchronous proxy sees, too, for a fence of it came behind.
struct Knowledge {
  Clock known, seen;
  void join(const Knowledge& other) {
    known.join(other.known);
    seen.join(other.seen);
  }
};
static Knowledge knowledge[MAX_THREADS];

// An access to an element. epoch: that of the block's barriers, or BESIDE and the block's.
struct Access {
  uint64 epoch;
  int32 actor;
  uint32 count;
};
// The accesses of several actors, where neither comes before the other.
struct Several {
  int64 length, room;
  struct Entry {
    int32 actor;
    uint32 count;
  } entries[];
};

static inline Knowledge& own_knowledge() { return knowledge[thread_number(running)]; }

// Keeps clocks from here on. All before the last barrier is known to everybody.
static void keep_clocks() {
  if (keeps_clocks) return;
  keeps_clocks = true;
  for (int64 t = 0; t < num_threads; t++) {
    memset(&knowledge[t], 0, sizeof knowledge[t]);
    for (int64 u = 0; u < num_threads; u++)
      knowledge[t].known.at[FIRST_THREAD + u] = fibers[u].count - (t == u ? 0 : 1);
  }
}

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

static inline bool is_of_another_block(const Access& access) {
  return access.epoch & BESIDE && (access.epoch & ~BESIDE) != block_epoch;
}

// Whether an access comes before all that who has this clock does from now on.
static bool comes_before(const Access& access, const Several* several, const Clock& clock) {
  if (access.epoch < epoch || is_of_another_block(access)) return true;
  if (!keeps_clocks || access.actor == ON_ITS_WAY) return false;
  if (access.actor != MANY) return access.count <= clock.at[access.actor];
  if (!(access.epoch & BESIDE)) return false;  // of before there were clocks
  for (int64 i = 0; i < several->length; i++)
    if (several->entries[i].count > clock.at[several->entries[i].actor]) return false;
  return true;
}

// Adds an access to those of others that it does not come behind, and forgets those that it does.
static void add_access(Access& access, Several*& several, const Access& added, const Clock& clock) {
  if (comes_before(access, several, clock)) {
    access = added;
    return;
  }
  if (!keeps_clocks) {
    access.actor = access.actor == added.actor ? added.actor : MANY;
    return;
  }
  int64 kept = 0;
  if (access.actor != MANY) {
    if (!several) several = (Several*)calloc(1, sizeof(Several));
    several->length = 0;
  }
  const int64 most = (access.actor == MANY ? several->length : 1) + 1;
  if (several->room < most) {
    several = (Several*)realloc(several, sizeof(Several) + (size_t)(2 * most) * sizeof(Several::Entry));
    several->room = 2 * most;
  }
  if (access.actor != MANY) several->entries[several->length++] = {access.actor, access.count};
  for (int64 i = 0; i < several->length; i++) {
    const auto& entry = several->entries[i];
    if (entry.actor != added.actor && entry.count > clock.at[entry.actor]) several->entries[kept++] = entry;
  }
  several->entries[kept++] = {added.actor, added.count};
  several->length = kept;
  access = {BESIDE | block_epoch, MANY, 0};
}

// Ends the launch for an access that nothing orders after an earlier one. did: what that was, as of a thread.
__attribute__((noinline, noreturn)) static void fail_race(const char* does, const char* name, int64 index,
                                                          const Access& access, const char* did) {
  const int32 actor = access.actor;
  if (actor == ON_ITS_WAY) fail("%s %s[%lld], to which a copy is on its way.", does, name, index);
  if (actor == MANY) fail("race: %s %s[%lld], which other threads %s since the last barrier.", does, name, index, did);
  if (actor < FIRST_WARPGROUP)
    fail("%s %s[%lld], to which a copy is on its way: it has not waited for %s.", does, name, index, mbarrier_name(actor));
  if (actor < FIRST_STORER)
    fail("race: %s %s[%lld], which a wgmma of warpgroup %d reads: it has not been told of a wgmma_wait.", does, name, index,
         actor - FIRST_WARPGROUP);
  if (actor < FIRST_THREAD)
    fail("race: %s %s[%lld], which a store of a tile reads: it has not been told of a wait_stores.", does, name, index);
  fail("race: %s %s[%lld], which thread %d %s since the last barrier.", does, name, index, actor - FIRST_THREAD, did);
}

}  // namespace cudasim

#endif
