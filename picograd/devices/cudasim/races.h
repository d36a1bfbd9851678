// Races in memory of the device, of users' kernels: in results, for nobody writes what is const.
//
// Included by simulator.cpp, called by plain.h. Threads of a block are ordered as in
// shared memory; blocks only by atomics. An atomic on an element comes after all of a block that has changed that element
// behind a __threadfence. Two writes of the same bits are no race.

#ifndef PICOGRAD_CUDASIM_RACES_H
#define PICOGRAD_CUDASIM_RACES_H

namespace cudasim {

// What is known of an element of a result. other: of the last block before that of the access in `cell`; lines: of all these.
// told: the last block that has changed it behind a __threadfence, from 1.
struct Trace {
  Cell cell;
  Access other_read, other_changed;
  int32 written_line, read_line, other_read_line, changed_line, other_changed_line, told;
};

// A block that has run in this launch, or runs. known: the blocks of which it has been told, a bit each, or null.
struct Past {
  uint64 epoch;
  int64 number;
  uint64* known;
};
static Past* past;
static int64 num_past, room_for_past;
static const int64 MOST_TOLD = 1 << 14;  // blocks of a grid; beyond it a block that is told of one is told of all
static uint64 fenced_in[MAX_THREADS];    // the block in which a thread has last come to a __threadfence

static Past& own_past() {
  if (num_past && past[num_past - 1].epoch == block_epoch) return past[num_past - 1];
  if (num_past == room_for_past) {
    room_for_past = 2 * room_for_past + 64;
    past = (Past*)realloc(past, (size_t)room_for_past * sizeof(Past));
  }
  past[num_past] = {block_epoch, block_number(running), nullptr};
  return past[num_past++];
}

// The place in `past` of the block that made an access.
static int64 block_of(const Access& access) {
  const uint64 at = access.epoch & ~BESIDE;
  int64 first = 0, last = num_past;
  while (last - first > 1) {
    const int64 middle = (first + last) / 2;
    (past[middle].epoch <= at ? first : last) = middle;
  }
  return first;
}
static bool is_told_of(const Past& own, int64 block) {
  return own.known && (num_past > MOST_TOLD || own.known[block / 64] >> block % 64 & 1);
}
static void tell_of(Past& own, int64 block) {
  if (!own.known) own.known = (uint64*)calloc(MOST_TOLD / 64, sizeof(uint64));
  if (num_past > MOST_TOLD) return;
  for (int64 i = 0; past[block].known && i < MOST_TOLD / 64; i++) own.known[i] |= past[block].known[i];
  own.known[block / 64] |= 1ull << block % 64;
}

void fence() { fenced_in[thread_number(running)] = block_epoch; }

static bool is_of_own_block(const Access& access) { return (access.epoch & ~BESIDE) >= block_epoch; }

// Fails where nothing orders what the thread does after an earlier access. did: what that was; since: its line.
static void check_trace(const Access& access, const Several* several, const char* does, const char* name, int64 index,
                        const char* did, int32 since) {
  if (!access.epoch) return;
  const bool is_own = is_of_own_block(access);
  const int64 block = block_of(access);
  if (is_own ? !is_near(access, running->actor) || (has_clocks && comes_before_own(access, several)) : is_told_of(own_past(), block))
    return;
  char who[48] = "other threads", where[48] = "", line[24] = "";
  if (access.actor != MANY) snprintf(who, sizeof who, "thread %lld", in_block(access.actor - FIRST_THREAD));
  if (!is_own) snprintf(where, sizeof where, " of block %lld", past[block].number);
  if (since) snprintf(line, sizeof line, " at line %d", since);
  fail("race: %s %s[%lld], which %s%s %s%s%s.", does, name, index, who, where, did, line,
       is_own ? " since the last barrier" : "; nothing orders blocks");
}
static void check_all_read(const Trace& trace, const char* does, const char* name, int64 index) {
  check_trace(trace.cell.read, trace.cell.readers, does, name, index, "read", trace.read_line);
  check_trace(trace.other_read, nullptr, does, name, index, "read", trace.other_read_line);
}
static void check_all_changed(const Trace& trace, const char* does, const char* name, int64 index) {
  check_trace(trace.cell.changed, trace.cell.changers, does, name, index, "changed by an atomic", trace.changed_line);
  check_trace(trace.other_changed, nullptr, does, name, index, "changed by an atomic", trace.other_changed_line);
}
static void check_last_written(const Trace& trace, const char* does, const char* name, int64 index) {
  check_trace(trace.cell.written, nullptr, does, name, index, "wrote", trace.written_line);
}
// Adds the running thread's access to those of its kind, and keeps the last one of another block.
static void add_trace(Access& access, Several*& several, int32& line, Access& other, int32& other_line) {
  const bool is_own = is_of_own_block(access);
  if (access.epoch && !is_own) other = access, other_line = line;
  if (is_own && is_near(access, running->actor)) add_access(access, several);
  else access = own_access();
  line = at_line;
}

void trace_read(Trace* traces, const char* name, int64 index) {
  Trace& trace = traces[index];
  own_past();
  check_last_written(trace, "reads", name, index);
  check_all_changed(trace, "reads", name, index);
  add_trace(trace.cell.read, trace.cell.readers, trace.read_line, trace.other_read, trace.other_read_line);
}
void trace_write(Trace* traces, const char* name, int64 index, bool is_same) {
  Trace& trace = traces[index];
  own_past();
  if (!is_same) check_last_written(trace, "writes", name, index);
  check_all_changed(trace, "writes", name, index);
  check_all_read(trace, "writes", name, index);
  trace.cell.written = own_access();
  trace.written_line = at_line;
}
void trace_atomic(Trace* traces, const char* name, int64 index) {
  Trace& trace = traces[index];
  Past& own = own_past();
  if (trace.told && trace.told < num_past) tell_of(own, trace.told - 1);
  check_last_written(trace, "an atomic on", name, index);
  check_all_read(trace, "an atomic on", name, index);
  add_trace(trace.cell.changed, trace.cell.changers, trace.changed_line, trace.other_changed, trace.other_changed_line);
  if (fenced_in[thread_number(running)] == block_epoch) trace.told = (int32)num_past;
}

// Traces of the results of a launch.
struct Traced {
  char* bytes;
  Trace* traces;
};
static const int64 MOST_TRACED = 64;
static Traced traced[MOST_TRACED];
static int64 num_traced;

Trace* traces_of(char* bytes, int64 count) {
  for (int64 i = 0; i < num_traced; i++)
    if (traced[i].bytes == bytes) return traced[i].traces;
  if (num_traced == MOST_TRACED || !count) return nullptr;
  traced[num_traced] = {bytes, (Trace*)calloc((size_t)count, sizeof(Trace))};
  return traced[num_traced++].traces;
}
static void forget_traces() {
  for (int64 i = 0; i < num_traced; i++) free(traced[i].traces);
  for (int64 i = 0; i < num_past; i++) free(past[i].known);
  num_traced = num_past = 0;
}

}  // namespace cudasim

#endif
