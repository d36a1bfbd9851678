// Memory of the simulated GPU: each access is looked at, and a kernel that breaks a rule is stopped with a message.
//
// Included by cudasim.h, which says what the rules are.

#ifndef PICOGRAD_CUDASIM_MEMORY_H
#define PICOGRAD_CUDASIM_MEMORY_H

namespace cudasim {

// What is known of one shared element. MANY: several threads have read it, or changed it by atomics, since the last barrier.
// copied_block: the block that has a copy on its way to it.
struct Cell {
  uint64 written_epoch, read_epoch, changed_epoch, copied_block;
  int32 writer, reader, changer;
};
static const int32 MANY = -1;

static void check_bounds(int64 index, int64 numel, const char* name, const char* verb) {
  if (__builtin_expect((uint64)index >= (uint64)numel, 0))
    fail("%s %s[%lld], which has %lld elements.", verb, name, index, numel);
}

// Fails where other threads have changed an element by atomics since the last barrier.
static inline void check_unchanged(const Cell& cell, int32 thread, const char* name, int64 index, const char* verb) {
  if (cell.changed_epoch == epoch && cell.changer != thread)
    fail("race: %s %s[%lld], which another thread changed by an atomic since the last barrier.", verb, name, index);
}

static inline void check_arrived(const Cell& cell, const char* name, int64 index, const char* verb) {
  if (cell.copied_block == block_epoch) fail("%s %s[%lld], to which a copy is on its way.", verb, name, index);
}

static inline void note_write(Cell& cell, const char* name, int64 index) {
  const int32 thread = (int32)thread_number(running);
  check_arrived(cell, name, index, "writes");
  check_unchanged(cell, thread, name, index, "writes");
  if (cell.written_epoch == epoch && cell.writer != thread)
    fail("race: writes %s[%lld], which thread %d wrote since the last barrier.", name, index, cell.writer);
  if (cell.read_epoch == epoch && cell.reader != thread) {
    if (cell.reader == MANY)
      fail("race: writes %s[%lld], which other threads read since the last barrier.", name, index);
    fail("race: writes %s[%lld], which thread %d read since the last barrier.", name, index, cell.reader);
  }
  cell.written_epoch = epoch;
  cell.writer = thread;
}

static inline void note_read(Cell& cell, const char* name, int64 index) {
  const int32 thread = (int32)thread_number(running);
  if (cell.written_epoch < block_epoch) fail("reads %s[%lld], which this block has not written.", name, index);
  check_arrived(cell, name, index, "reads");
  check_unchanged(cell, thread, name, index, "reads");
  if (cell.written_epoch == epoch && cell.writer != thread)
    fail("race: reads %s[%lld], which thread %d wrote since the last barrier.", name, index, cell.writer);
  if (cell.read_epoch != epoch) cell.reader = thread;
  else if (cell.reader != thread) cell.reader = MANY;
  cell.read_epoch = epoch;
}

// An atomic races with what reads or writes, not with other atomics.
static inline void note_atomic(Cell& cell, const char* name, int64 index) {
  const int32 thread = (int32)thread_number(running);
  check_arrived(cell, name, index, "changes");
  if (cell.written_epoch < block_epoch) fail("changes %s[%lld], which this block has not written.", name, index);
  if (cell.written_epoch == epoch && cell.writer != thread)
    fail("race: an atomic on %s[%lld], which thread %d wrote since the last barrier.", name, index, cell.writer);
  if (cell.read_epoch == epoch && cell.reader != thread)
    fail("race: an atomic on %s[%lld], which another thread read since the last barrier.", name, index);
  cell.changer = cell.changed_epoch == epoch && cell.changer != thread ? MANY : thread;
  cell.changed_epoch = epoch;
}

// `memory[i]` on its way to being read or written: Memory has `read(i)` and `write(i, value)`.
template <class T, class Memory> struct Element {
  Memory* memory;
  int64 index;
  operator T() const { return memory->read(index); }
  T operator=(T value) const { return memory->write(index, value); }
  T operator=(const Element& other) const { return memory->write(index, (T)other); }
  T operator+=(T value) const { return memory->write(index, memory->read(index) + value); }
};

template <class T> struct GlobalMemory {
  using Type = T;
  T* elements;
  int64 numel;
  const char* name;
  T read(int64 i) const {
    check_bounds(i, numel, name, "reads");
    return elements[i];
  }
  T write(int64 i, T value) const {
    check_bounds(i, numel, name, "writes");
    return elements[i] = value;
  }
  // Stores next(element), and returns what was there.
  template <class Next> T change(int64 i, Next next) const {
    check_bounds(i, numel, name, "changes");
    const T before = elements[i];
    elements[i] = next(before);
    return before;
  }
  Element<T, const GlobalMemory> operator[](int64 i) const { return {this, i}; }
};
template <class T> struct GlobalMemory<const T> {
  using Type = T;
  const T* elements;
  int64 numel;
  const char* name;
  T operator[](int64 i) const {
    check_bounds(i, numel, name, "reads");
    return elements[i];
  }
};

template <class T, int64 N> struct SharedElements {
  T elements[N];
  Cell cells[N];
};
template <class T, int64 N> struct SharedMemory {
  using Type = T;
  SharedElements<T, N>& shared;
  const char* name;
  T read(int64 i) const {
    check_bounds(i, N, name, "reads");
    note_read(shared.cells[i], name, i);
    return shared.elements[i];
  }
  T write(int64 i, T value) const {
    check_bounds(i, N, name, "writes");
    note_write(shared.cells[i], name, i);
    return shared.elements[i] = value;
  }
  template <class Next> T change(int64 i, Next next) const {
    check_bounds(i, N, name, "changes");
    note_atomic(shared.cells[i], name, i);
    const T before = shared.elements[i];
    shared.elements[i] = next(before);
    return before;
  }
  Element<T, const SharedMemory> operator[](int64 i) const { return {this, i}; }
};

template <class T, int64 N> struct RegisterMemory {
  using Type = T;
  const char* name;
  T elements[N];
  bool written[N];
  T read(int64 i) const {
    check_bounds(i, N, name, "reads");
    if (!written[i]) fail("reads %s[%lld], which this thread has not written.", name, i);
    return elements[i];
  }
  T write(int64 i, T value) {
    check_bounds(i, N, name, "writes");
    written[i] = true;
    return elements[i] = value;
  }
  Element<T, RegisterMemory> operator[](int64 i) { return {this, i}; }
};

}  // namespace cudasim

#endif
