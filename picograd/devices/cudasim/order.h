// What happens before what in a block of the simulated GPU. Two accesses to one element, of which neither happens before the
// other and one writes, are a race.
//
// Included by simulator.cpp. Barriers of the block cut its time into epochs; within one nothing orders its threads. A kernel with
// what Hopper added orders them by more, and has clocks for it (clocks.h): these are asked where epochs do not say.

#ifndef PICOGRAD_CUDASIM_ORDER_H
#define PICOGRAD_CUDASIM_ORDER_H

namespace cudasim {

static const int32 MANY = -1, ON_ITS_WAY = -2;  // in the place of an actor: several; a copy that its thread has to wait for
static const uint64 BESIDE = 1ull << 63;        // in an epoch: of an actor that no barrier of the block waits for

static uint64 epoch, block_epoch;  // epoch: rises at every barrier and block; block_epoch: of the first of the cluster
static bool has_clocks;            // whether this block has

// What clocks say (clocks.h): of what the running thread does, its own access, and a race with one that is no thread's.
static bool comes_before_own(const Access& access, const Several* several);
static void add_own(Access& access, Several*& several);
static void fail_race_beside(const char* does, const char* name, int64 index, const Access& access);

static bool is_of_another_block(const Access& access) {
  return access.epoch & BESIDE && (access.epoch & ~BESIDE) != block_epoch;
}

// Whether an access may race with one of `actor`: no barrier of the block stands between.
static bool is_near(const Access& access, int32 actor) {
  return access.epoch >= running->block->epoch && access.actor != actor;
}

static Access own_access() { return {running->block->epoch, running->actor, running->count}; }

// Ends the launch for an access that nothing orders after an earlier one. did: what that was, as of a thread.
[[noreturn]] static void fail_race(const char* does, const char* name, int64 index, const Access& access, const char* did) {
  const int32 actor = access.actor;
  if (actor == ON_ITS_WAY) fail("%s %s[%lld], to which a copy is on its way.", does, name, index);
  if (actor >= 0 && actor < FIRST_THREAD) fail_race_beside(does, name, index, access);
  if (actor == MANY) fail("race: %s %s[%lld], which other threads %s since the last barrier.", does, name, index, did);
  fail("race: %s %s[%lld], which thread %lld %s since the last barrier.", does, name, index, in_block(actor - FIRST_THREAD), did);
}

// Fails unless a near access comes before what the running thread does.
static void check_order(const Access& access, const Several* several, const char* does, const char* name, int64 index,
                        const char* did) {
  if (is_of_another_block(access) || (has_clocks && comes_before_own(access, several))) return;
  fail_race(does, name, index, access, did);
}

// Adds the running thread's access to near ones.
static void add_access(Access& access, Several*& several) {
  if (has_clocks) return add_own(access, several);
  access = {running->block->epoch, is_of_another_block(access) ? running->actor : MANY, running->count};
}

// ---- accesses of threads ----
static void check_changed(const Cell& cell, int32 actor, const char* does, const char* name, int64 index) {
  if (is_near(cell.changed, actor)) check_order(cell.changed, cell.changers, does, name, index, "changed by an atomic");
}
static void check_read(const Cell& cell, int32 actor, const char* does, const char* name, int64 index) {
  if (is_near(cell.read, actor)) check_order(cell.read, cell.readers, does, name, index, "read");
}
static void check_written(const Cell& cell, int32 actor, const char* does, const char* name, int64 index) {
  if (is_near(cell.written, actor)) check_order(cell.written, nullptr, does, name, index, "wrote");
}
static void check_there(const Cell& cell, const char* does, const char* name, int64 index) {
  if (cell.written.epoch < block_epoch || is_of_another_block(cell.written))
    fail("%s %s[%lld], which this block has not written.", does, name, index);
}

static void check_write(const Cell& cell, const char* does, const char* name, int64 index) {
  const int32 actor = running->actor;
  check_written(cell, actor, does, name, index);
  check_changed(cell, actor, does, name, index);
  check_read(cell, actor, does, name, index);
}

void note_write(Cell& cell, const char* name, int64 index) {
  check_write(cell, "writes", name, index);
  cell.written = own_access();
}

void note_read(Cell& cell, const char* name, int64 index) {
  const int32 actor = running->actor;
  check_there(cell, "reads", name, index);
  check_written(cell, actor, "reads", name, index);
  check_changed(cell, actor, "reads", name, index);
  if (is_near(cell.read, actor)) add_access(cell.read, cell.readers);
  else cell.read = own_access();
}

// An atomic races with what reads or writes, not with other atomics.
void note_atomic(Cell& cell, const char* name, int64 index) {
  const int32 actor = running->actor;
  check_there(cell, "changes", name, index);
  check_written(cell, actor, "an atomic on", name, index);
  check_read(cell, actor, "an atomic on", name, index);
  if (is_near(cell.changed, actor)) add_access(cell.changed, cell.changers);
  else cell.changed = own_access();
}

}  // namespace cudasim

#endif
