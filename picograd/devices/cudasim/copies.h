// Copies of the simulated GPU that a thread starts and waits for later: cp.async.
//
// Included by simulator.cpp. What is copied arrives when its thread waits for its group, and not before: a kernel that reads,
// writes or copies to such a place earlier is stopped, as is one that starts a copy to what others use without a barrier
// between, or that ends while copies are on their way.

#ifndef PICOGRAD_CUDASIM_COPIES_H
#define PICOGRAD_CUDASIM_COPIES_H

namespace cudasim {

// A copy on its way to shared elements. group: of its thread's, counted from 0.
struct Copy {
  char* to;
  Cell* cells;
  const char* name;
  int64 index, count, nbytes, group;
  char bytes[16];
};
static const int64 MOST_COPIES = 128;

struct Copies {
  Copy waiting[MOST_COPIES];
  int64 count, num_groups;
};
static Copies copies[MAX_THREADS];

void start_copy(char* to, Cell* cells, const char* name, int64 index, int64 count, const void* values, int64 nbytes) {
  Copies& own = copies[thread_number(running)];
  if (own.count == MOST_COPIES) fail("has more than %lld copies on their way.", MOST_COPIES);
  Copy& copy = own.waiting[own.count++];
  copy = {to, cells, name, index, count, nbytes, own.num_groups, {}};
  memcpy(copy.bytes, values, (size_t)nbytes);
  for (int64 i = 0; i < count; i++) {
    check_write(cells[i], "copies to", name, index + i);
    cells[i].written = {BESIDE | block_epoch, ON_ITS_WAY, 0};
  }
}

void commit_own_copies() { copies[thread_number(running)].num_groups++; }

void finish_copies(int64 still) {
  Copies& own = copies[thread_number(running)];
  int64 left = 0;
  for (int64 n = 0; n < own.count; n++) {
    const Copy& copy = own.waiting[n];
    if (copy.group >= own.num_groups - still) {
      own.waiting[left++] = copy;
      continue;
    }
    for (int64 i = 0; i < copy.count; i++) {
      copy.cells[i].written = own_access();
    }
    memcpy(copy.to, copy.bytes, (size_t)copy.nbytes);
  }
  own.count = left;
}

static void check_copies_are_done() {
  const Copies& own = copies[thread_number(running)];
  if (own.count) fail("ends while %lld copies are on their way, the first to %s.", own.count, own.waiting[0].name);
}

}  // namespace cudasim

#endif
