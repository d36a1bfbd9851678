// Memory of the simulated GPU: each access is looked at, and a kernel that breaks a rule is stopped with a message.
//
// Included by cudasim.h, which says what the rules are.

#ifndef PICOGRAD_CUDASIM_MEMORY_H
#define PICOGRAD_CUDASIM_MEMORY_H

namespace cudasim {

// What is known of one shared element: who wrote it, who has read it since, who changed it by atomics.
struct Cell {
  Access written, read, changed;
  Several *readers, *changers;
};

static Cell* dynamic_cells;  // of the memory that a launch asks for, one a byte

static void check_bounds(int64 index, int64 numel, const char* name, const char* verb) {
  if (__builtin_expect((uint64)index >= (uint64)numel, 0))
    fail("%s %s[%lld], which has %lld elements.", verb, name, index, numel);
}

// ---- accesses of threads ----
static inline void check_changed(const Cell& cell, int32 actor, const char* does, const char* name, int64 index) {
  if (is_near(cell.changed, actor)) check_order(cell.changed, cell.changers, does, name, index, "changed by an atomic");
}
static inline void check_read(const Cell& cell, int32 actor, const char* does, const char* name, int64 index) {
  if (is_near(cell.read, actor)) check_order(cell.read, cell.readers, does, name, index, "read");
}
static inline void check_written(const Cell& cell, int32 actor, const char* does, const char* name, int64 index) {
  if (is_near(cell.written, actor)) check_order(cell.written, nullptr, does, name, index, "wrote");
}
static inline void check_there(const Cell& cell, const char* does, const char* name, int64 index) {
  if (cell.written.epoch < block_epoch || is_of_another_block(cell.written))
    fail("%s %s[%lld], which this block has not written.", does, name, index);
}

static inline void check_write(const Cell& cell, const char* does, const char* name, int64 index) {
  const int32 actor = running->actor;
  check_written(cell, actor, does, name, index);
  check_changed(cell, actor, does, name, index);
  check_read(cell, actor, does, name, index);
}

static inline void note_write(Cell& cell, const char* name, int64 index) {
  check_write(cell, "writes", name, index);
  cell.written = own_access();
}

static inline void note_read(Cell& cell, const char* name, int64 index) {
  const int32 actor = running->actor;
  check_there(cell, "reads", name, index);
  check_written(cell, actor, "reads", name, index);
  check_changed(cell, actor, "reads", name, index);
  if (is_near(cell.read, actor)) add_access(cell.read, cell.readers);
  else cell.read = own_access();
}

// An atomic races with what reads or writes, not with other atomics.
static inline void note_atomic(Cell& cell, const char* name, int64 index) {
  const int32 actor = running->actor;
  check_there(cell, "changes", name, index);
  check_written(cell, actor, "an atomic on", name, index);
  check_read(cell, actor, "an atomic on", name, index);
  if (is_near(cell.changed, actor)) add_access(cell.changed, cell.changers);
  else cell.changed = own_access();
}

// `memory[i]` on its way to being read or written: Memory has `read(i)` and `write(i, value)`.
template <class T, class Memory> struct Element {
  Memory* memory;
  int64 index;
  ACCESSOR operator T() const { return memory->read(index); }
  ACCESSOR T operator=(T value) const { return memory->write(index, value); }
  ACCESSOR T operator=(const Element& other) const { return memory->write(index, (T)other); }
  ACCESSOR T operator+=(T value) const { return memory->write(index, memory->read(index) + value); }
};

template <class T> struct GlobalMemory {
  using Type = T;
  T* elements;
  int64 numel;
  const char* name;
  ACCESSOR T read(int64 i) const {
    check_bounds(i, numel, name, "reads");
    COUNT_ACCESS(GLOBAL_LOADS, elements + i, sizeof(T));
    return elements[i];
  }
  ACCESSOR T write(int64 i, T value) const {
    check_bounds(i, numel, name, "writes");
    COUNT_ACCESS(GLOBAL_STORES, elements + i, sizeof(T));
    return elements[i] = value;
  }
  // Stores next(element), and returns what was there.
  template <class Next> ACCESSOR T change(int64 i, Next next) const {
    check_bounds(i, numel, name, "changes");
    COUNT_ACCESS(GLOBAL_ATOMICS, elements + i, sizeof(T));
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
  ACCESSOR T operator[](int64 i) const {
    check_bounds(i, numel, name, "reads");
    COUNT_ACCESS(GLOBAL_LOADS, elements + i, sizeof(T));
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
  ACCESSOR T read(int64 i) const {
    check_bounds(i, N, name, "reads");
    note_read(shared.cells[i], name, i);
    COUNT_ACCESS(SHARED_LOADS, shared.elements + i, sizeof(T));
    return shared.elements[i];
  }
  ACCESSOR T write(int64 i, T value) const {
    check_bounds(i, N, name, "writes");
    note_write(shared.cells[i], name, i);
    COUNT_ACCESS(SHARED_STORES, shared.elements + i, sizeof(T));
    return shared.elements[i] = value;
  }
  template <class Next> ACCESSOR T change(int64 i, Next next) const {
    check_bounds(i, N, name, "changes");
    note_atomic(shared.cells[i], name, i);
    COUNT_ACCESS(SHARED_ATOMICS, shared.elements + i, sizeof(T));
    const T before = shared.elements[i];
    shared.elements[i] = next(before);
    return before;
  }
  Element<T, const SharedMemory> operator[](int64 i) const { return {this, i}; }
};

// What a register holds: nothing; what its thread has written; what wgmma_fence has shown to the matrix unit; what that is
// adding to.
enum Holds : uint8 { NOTHING = 0, WRITTEN = 1, SHOWN = 2, BUSY = 3 };

template <class T, int64 N> struct RegisterMemory {
  using Type = T;
  const char* name;
  T elements[N];
  Holds holds[N];
  ACCESSOR T read(int64 i) const {
    check_bounds(i, N, name, "reads");
    if (holds[i] == NOTHING) fail("reads %s[%lld], which this thread has not written.", name, i);
    if (holds[i] == BUSY) fail("reads %s[%lld], to which a wgmma adds: no wgmma_wait for it came before.", name, i);
    COUNT_MORE(REGISTER_BYTES, sizeof(T));
    return elements[i];
  }
  ACCESSOR T write(int64 i, T value) {
    check_bounds(i, N, name, "writes");
    if (holds[i] == BUSY) fail("writes %s[%lld], to which a wgmma adds: no wgmma_wait for it came before.", name, i);
    COUNT_MORE(REGISTER_BYTES, sizeof(T));
    holds[i] = WRITTEN;
    return elements[i] = value;
  }
  Element<T, RegisterMemory> operator[](int64 i) { return {this, i}; }
};

}  // namespace cudasim

#endif
