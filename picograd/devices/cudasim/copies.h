// Copies of the simulated GPU that a thread starts and waits for later: cp.async.
//
// Included by cudasim.h. What is copied arrives when its thread waits for its group, and not before: a kernel that reads,
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

template <class T, int64 N>
static ACCESSOR void start_copy(const SharedMemory<T, N>& memory, int64 index, const T* values, int64 count) {
  Copies& own = copies[thread_number(running)];
  check_bounds(index, N, memory.name, "copies to");
  check_bounds(index + count - 1, N, memory.name, "copies to");
  if (index % count) fail("copies %lld elements to %s[%lld], which is no multiple.", count, memory.name, index);
  if (own.count == MOST_COPIES) fail("has more than %lld copies on their way.", MOST_COPIES);
  COUNT_ACCESS(SHARED_STORES, &memory.shared.elements[index], count * sizeof(T));
  Copy& copy = own.waiting[own.count++];
  copy = {(char*)&memory.shared.elements[index], &memory.shared.cells[index], memory.name, index, count,
          count * (int64)sizeof(T), own.num_groups, {}};
  memcpy(copy.bytes, values, (size_t)copy.nbytes);
  for (int64 i = 0; i < count; i++) {
    check_write(copy.cells[i], "copies to", copy.name, index + i);
    copy.cells[i].written = {BESIDE | block_epoch, ON_ITS_WAY, 0};
  }
}

// Lets the copies of all but the last `still` groups arrive.
static void finish_copies(int64 still) {
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
