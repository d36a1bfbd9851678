// What happens before what in a block of the simulated GPU. Two accesses to one element, of which neither happens before the
// other and one writes, are a race.
//
// Included by cudasim.h. Barriers of the block cut its time into epochs; within one nothing orders its threads. A kernel with
// what Hopper added orders them by more, and has clocks for it (clocks.h): these are asked where epochs do not say.

#ifndef PICOGRAD_CUDASIM_ORDER_H
#define PICOGRAD_CUDASIM_ORDER_H

namespace cudasim {

static const int32 MANY = -1, ON_ITS_WAY = -2;  // in the place of an actor: several; a copy that its thread has to wait for
static const int32 FIRST_THREAD = 256;          // an actor below it works beside the threads
static const uint64 BESIDE = 1ull << 63;        // in an epoch: of an actor that no barrier of the block waits for

// An access to an element. epoch: that of the block's barriers, or BESIDE and the block's.
struct Access {
  uint64 epoch;
  int32 actor;
  uint32 count;
};
struct Several;  // accesses of which none comes before another

// What a kernel has that orders threads by more than barriers of their block.
struct Clocks {
  bool (*come_before)(const Access& access, const Several* several);  // what the running thread does
  void (*add)(Access& access, Several*& several);                     // the running thread's own
  void (*fail_race)(const char* does, const char* name, int64 index, const Access& access);  // with one that is no thread's
  void (*tell_each_other)(int64 first, int64 count);                  // threads, all they know
  bool (*release)();                                                  // those whose mbarrier is complete, if there is one
  void (*check_thread_is_done)();
  void (*check_block_is_done)();
};
static const Clocks* clocks;  // of this block, or null

static inline bool is_of_another_block(const Access& access) {
  return access.epoch & BESIDE && (access.epoch & ~BESIDE) != block_epoch;
}

// Whether an access may race with one of `actor`: no barrier of the block stands between.
static inline bool is_near(const Access& access, int32 actor) {
  return access.epoch >= running->block->epoch && access.actor != actor;
}

static inline Access own_access() { return {running->block->epoch, running->actor, running->count}; }

// Ends the launch for an access that nothing orders after an earlier one. did: what that was, as of a thread.
__attribute__((noinline, noreturn)) static void fail_race(const char* does, const char* name, int64 index,
                                                          const Access& access, const char* did) {
  const int32 actor = access.actor;
  if (actor == ON_ITS_WAY) fail("%s %s[%lld], to which a copy is on its way.", does, name, index);
  if (actor >= 0 && actor < FIRST_THREAD) clocks->fail_race(does, name, index, access);
  if (actor == MANY) fail("race: %s %s[%lld], which other threads %s since the last barrier.", does, name, index, did);
  fail("race: %s %s[%lld], which thread %lld %s since the last barrier.", does, name, index, in_block(actor - FIRST_THREAD), did);
}

// Fails unless a near access comes before what the running thread does.
__attribute__((noinline)) static void check_order(const Access& access, const Several* several, const char* does,
                                                  const char* name, int64 index, const char* did) {
  if (is_of_another_block(access) || (clocks && clocks->come_before(access, several))) return;
  fail_race(does, name, index, access, did);
}

// Adds the running thread's access to near ones.
__attribute__((noinline)) static void add_access(Access& access, Several*& several) {
  if (clocks) return clocks->add(access, several);
  access = {running->block->epoch, is_of_another_block(access) ? running->actor : MANY, running->count};
}

}  // namespace cudasim

#endif
