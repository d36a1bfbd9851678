// Memory of the simulated GPU: each access is looked at, and a kernel that breaks a rule is stopped with a message.
//
// Included by cudasim.h, which says what the rules are. order.h has those of the order of accesses.

#ifndef PICOGRAD_CUDASIM_MEMORY_H
#define PICOGRAD_CUDASIM_MEMORY_H

namespace cudasim {

// An access to an element. epoch: that of the block's barriers, or BESIDE and the block's (order.h).
struct Access {
  uint64 epoch;
  int32 actor;
  uint32 count;
};
struct Several;  // accesses of which none comes before another

// What is known of one shared element: who wrote it, who has read it since, who changed it by atomics.
struct Cell {
  Access written, read, changed;
  Several *readers, *changers;
};

void check_bounds(int64 index, int64 numel, const char* name, const char* verb);

// The running thread writes, reads or changes a shared element.
void note_write(Cell& cell, const char* name, int64 index);
void note_read(Cell& cell, const char* name, int64 index);
void note_atomic(Cell& cell, const char* name, int64 index);

// The same in users' kernels, where a thread may touch a part of an element, or several: of shared memory, and of a result in
// memory of the device (races.h). A piece has as many bytes as the least that a thread has touched at once. Touched are `nbytes`
// from byte `at` on of memory of `total`, in which an element has `itemsize`.
template <class Known> struct Pieces {
  Known* known;
  int64 granule, num_pieces;
};
struct Trace;
enum Touch { READS, WRITES, WRITES_THE_SAME, CHANGES };
void note_touch(Pieces<Cell>& pieces, Touch touch, const char* name, int64 itemsize, int64 total, int64 at, int64 nbytes);
void note_touch(Pieces<Trace>& pieces, Touch touch, const char* name, int64 itemsize, int64 total, int64 at, int64 nbytes);
Pieces<Trace>* traces_of(const void* bytes);
void fence();

// An index, and the line of the text where it is.
struct Place {
  int64 index;
  int32 line;
  template <class I> ACCESSOR Place(const I& index, int32 line = __builtin_LINE()) : index((int64)index), line(line) {}
};

// `memory[i]` on its way to being read or written: Memory has `read(i)` and `write(i, value)`.
template <class T, class Memory> struct Element {
  Memory* memory;
  int64 index;
  ACCESSOR operator T() const { return memory->read(index); }
  ACCESSOR T operator=(T value) const { return memory->write(index, value); }
  ACCESSOR T operator=(const Element& other) const { return memory->write(index, (T)other); }
  ACCESSOR T operator+=(T value) const { return memory->write(index, memory->read(index) + value); }
};

// The same of memory of the device, with the line where it is touched.
template <class T, class Memory> struct ElementAt {
  Memory* memory;
  Place place;
  ACCESSOR T read() const {
    const FromLine from(place.line);
    return memory->read(place.index);
  }
  ACCESSOR T write(T value) const {
    const FromLine from(place.line);
    return memory->write(place.index, value);
  }
  ACCESSOR operator T() const { return read(); }
  ACCESSOR T operator=(T value) const { return write(value); }
  ACCESSOR T operator=(const ElementAt& other) const { return write(other.read()); }
  ACCESSOR T operator+=(T value) const { return write(read() + value); }
};

// traces: of a result of a user's kernel.
template <class T> struct GlobalMemory {
  using Type = T;
  T* elements;
  int64 numel;
  const char* name;
  Pieces<Trace>* traces = nullptr;
  ACCESSOR void trace(Touch touch, int64 i) const {
    if (traces) note_touch(*traces, touch, name, sizeof(T), numel * (int64)sizeof(T), i * (int64)sizeof(T), sizeof(T));
  }
  ACCESSOR T read(int64 i) const {
    check_bounds(i, numel, name, "reads");
    COUNT_ACCESS(GLOBAL_LOADS, elements + i, sizeof(T));
    trace(READS, i);
    return elements[i];
  }
  ACCESSOR T write(int64 i, T value) const {
    check_bounds(i, numel, name, "writes");
    COUNT_ACCESS(GLOBAL_STORES, elements + i, sizeof(T));
    if (traces) trace(memcmp(elements + i, &value, sizeof(T)) ? WRITES : WRITES_THE_SAME, i);
    return elements[i] = value;
  }
  // Stores next(element), and returns what was there.
  template <class Next> ACCESSOR T change(int64 i, Next next) const {
    check_bounds(i, numel, name, "changes");
    COUNT_ACCESS(GLOBAL_ATOMICS, elements + i, sizeof(T));
    trace(CHANGES, i);
    const T before = elements[i];
    elements[i] = next(before);
    return before;
  }
  ACCESSOR ElementAt<T, const GlobalMemory> operator[](Place place) const { return {this, place}; }
};
template <class T> struct GlobalMemory<const T> {
  using Type = T;
  const T* elements;
  int64 numel;
  const char* name;
  ACCESSOR T operator[](Place place) const {
    const FromLine from(place.line);
    check_bounds(place.index, numel, name, "reads");
    COUNT_ACCESS(GLOBAL_LOADS, elements + place.index, sizeof(T));
    return elements[place.index];
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
    COUNT_STEP();
    holds[i] = WRITTEN;
    return elements[i] = value;
  }
  Element<T, RegisterMemory> operator[](int64 i) { return {this, i}; }
};

// ---- copies that a thread starts and waits for later (copies.h) ----
void start_copy(char* to, Cell* cells, const char* name, int64 index, int64 count, const void* values, int64 nbytes);
template <class T, int64 N>
static ACCESSOR void start_copy(const SharedMemory<T, N>& memory, int64 index, const T* values, int64 count) {
  check_bounds(index, N, memory.name, "copies to");
  check_bounds(index + count - 1, N, memory.name, "copies to");
  if (index % count) fail("copies %lld elements to %s[%lld], which is no multiple.", count, memory.name, index);
  COUNT_ACCESS(SHARED_STORES, &memory.shared.elements[index], count * sizeof(T));
  start_copy((char*)&memory.shared.elements[index], &memory.shared.cells[index], memory.name, index, count, values,
             count * (int64)sizeof(T));
}
void commit_own_copies();
void finish_copies(int64 still);  // lets the copies of all but the last groups arrive

}  // namespace cudasim

#endif
