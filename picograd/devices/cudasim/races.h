// Races in users' kernels: in shared memory, and in results, for nobody writes what is const.
//
// Included by simulator.cpp. In results threads of a block are ordered as in shared memory; blocks only by atomics. An atomic
// on an element comes after all of a block that has changed that element behind a __threadfence. Two writes of the same bits
// are no race. Memory is known by pieces, as large as the least that a thread has touched at once: halves of a word are two
// threads' own, and a vector is all its elements.

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

static void trace_read(Trace& trace, const char* name, int64 index) {
  own_past();
  check_last_written(trace, "reads", name, index);
  check_all_changed(trace, "reads", name, index);
  add_trace(trace.cell.read, trace.cell.readers, trace.read_line, trace.other_read, trace.other_read_line);
}
static void trace_write(Trace& trace, const char* name, int64 index, bool is_same) {
  own_past();
  if (!is_same) check_last_written(trace, "writes", name, index);
  check_all_changed(trace, "writes", name, index);
  check_all_read(trace, "writes", name, index);
  trace.cell.written = own_access();
  trace.written_line = at_line;
}
static void trace_atomic(Trace& trace, const char* name, int64 index) {
  Past& own = own_past();
  if (trace.told && trace.told < num_past) tell_of(own, trace.told - 1);
  check_last_written(trace, "an atomic on", name, index);
  check_all_read(trace, "an atomic on", name, index);
  add_trace(trace.cell.changed, trace.cell.changers, trace.changed_line, trace.other_changed, trace.other_changed_line);
  if (fenced_in[thread_number(running)] == block_epoch) trace.told = (int32)num_past;
}

// ---- pieces ----
static Several* copy_of(const Several* several) {
  if (!several) return nullptr;
  const size_t nbytes = sizeof(Several) + (size_t)several->room * sizeof(Several::Entry);
  return (Several*)memcpy(malloc(nbytes), several, nbytes);
}
static Cell& cell_of(Cell& cell) { return cell; }
static Cell& cell_of(Trace& trace) { return trace.cell; }

template <class Known> static void forget(Pieces<Known>& pieces) {
  for (int64 i = 0; i < pieces.num_pieces; i++) {
    free(cell_of(pieces.known[i]).readers);
    free(cell_of(pieces.known[i]).changers);
  }
  free(pieces.known);
  pieces = {};
}

// Cuts each piece into some of `granule` bytes, of which is known what is known of all of it.
template <class Known> static void cut(Pieces<Known>& pieces, int64 granule, int64 total) {
  Pieces<Known> cut = {(Known*)calloc((size_t)(total / granule + 1), sizeof(Known)), granule, total / granule + 1};
  for (int64 i = 0; pieces.known && i < cut.num_pieces; i++) {
    cut.known[i] = pieces.known[i * granule / pieces.granule];
    Cell& cell = cell_of(cut.known[i]);
    cell.readers = copy_of(cell.readers);
    cell.changers = copy_of(cell.changers);
  }
  forget(pieces);
  pieces = cut;
}

// Calls note(what is known of a piece, number of its element) for all pieces of `nbytes` from byte `at` on, of `total`.
template <class Known, class Note>
static void each_piece(Pieces<Known>& pieces, int64 itemsize, int64 total, int64 at, int64 nbytes, Note note) {
  const int64 granule = (at | nbytes | itemsize) & -(at | nbytes | itemsize);
  if (!pieces.known || granule < pieces.granule) cut(pieces, granule, total);
  for (int64 end = at + nbytes; at < end; at += pieces.granule) note(pieces.known[at / pieces.granule], at / itemsize);
}

void note_touch(Pieces<Cell>& pieces, Touch touch, const char* name, int64 itemsize, int64 total, int64 at, int64 nbytes) {
  each_piece(pieces, itemsize, total, at, nbytes, [&](Cell& cell, int64 index) {
    if (touch == READS) note_read(cell, name, index);
    else if (touch == CHANGES) note_atomic(cell, name, index);
    else note_write(cell, name, index);
  });
}
void note_touch(Pieces<Trace>& pieces, Touch touch, const char* name, int64 itemsize, int64 total, int64 at, int64 nbytes) {
  each_piece(pieces, itemsize, total, at, nbytes, [&](Trace& trace, int64 index) {
    if (touch == READS) trace_read(trace, name, index);
    else if (touch == CHANGES) trace_atomic(trace, name, index);
    else trace_write(trace, name, index, touch == WRITES_THE_SAME);
  });
}

// Traces of the results of a launch, by the address of each.
struct Traced {
  const void* bytes;
  Pieces<Trace> traces;
};
static Traced traced[MOST_ARGUMENTS];
static int64 num_traced;

Pieces<Trace>* traces_of(const void* bytes) {
  for (int64 i = 0; i < num_traced; i++)
    if (traced[i].bytes == bytes) return &traced[i].traces;
  traced[num_traced] = {bytes, {}};
  return &traced[num_traced++].traces;
}
static void forget_traces() {
  for (int64 i = 0; i < num_traced; i++) forget(traced[i].traces);
  for (int64 i = 0; i < num_past; i++) free(past[i].known);
  num_traced = num_past = 0;
}

}  // namespace cudasim

#endif
