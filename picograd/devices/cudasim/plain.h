// CUDA C as users write it, on the simulator: pointers and shared arrays that check each access, and CUDA's own functions.
//
// Included by devices/cuda/given.h. devices/cudasim/compile.py has written Pointer<T> for `T *` and SHARED_ARRAY for
// `__shared__`. A pointer knows the memory it is in, so it may be moved, cast and given to a function, and what it
// touches is still checked; an index brings the line it stands in.
//
// Races are found in memory of the device, too: in results, for nobody writes what is const (races.h).

#ifndef PICOGRAD_CUDASIM_PLAIN_H
#define PICOGRAD_CUDASIM_PLAIN_H

#include <assert.h>
#include <math.h>  // C++'s: exp of a float is a float
#include <stdint.h>
#include <type_traits>

namespace cudasim {

extern Pieces<Cell> dynamic_cells;  // of the memory that a launch asks for

// Bytes in which pointers are, of elements of `itemsize`; cells: of shared memory; is_const: an operand; traces: of a result.
struct Memory {
  char* bytes;
  int64 nbytes;
  const char* name;
  int64 itemsize;
  Pieces<Cell>* cells = nullptr;
  bool is_global = false, is_const = false;
  Pieces<Trace>* traces = nullptr;
  ACCESSOR void note(Touch touch, int64 at, int64 width) const {
    if (cells) note_touch(*cells, touch, name, itemsize, nbytes, at, width);
    else if (traces) note_touch(*traces, touch, name, itemsize, nbytes, at, width);
  }
};

template <class T> struct Pointer;

// Ends the launch with a message, at a line of the text.
template <class... Values> __attribute__((noreturn)) static void fail_at(int32 line, const char* form, Values... values) {
  at_line = line;
  fail(form, values...);
}

template <class T> static void check_access(const Memory& memory, int64 at, const char* verb) {
  const int64 width = sizeof(T), index = (at < 0 ? at - width + 1 : at) / width;
  if (__builtin_expect(at < 0 || at + width > memory.nbytes, 0))
    fail("%s %s[%lld], which has %lld elements.", verb, memory.name, index, memory.nbytes / width);
  if (__builtin_expect((int64)(memory.bytes + at) % (int64)alignof(T), 0))
    fail("%s %s at byte %lld, which is no multiple of %d.", verb, memory.name, at, (int)alignof(T));
}
template <class T> static void check_change(const Memory& memory, int64 at, const char* verb) {
  check_access<T>(memory, at, verb);
  if (__builtin_expect(memory.is_const, 0)) fail("%s %s, which is const.", verb, memory.name);
}

// An element on its way to being read or written.
template <class T> struct Reference {
  using Value = std::remove_const_t<T>;
  using Touched = T;
  Memory memory;
  int64 at;
  int32 line;
  ACCESSOR Value read() const {
    const FromLine from(line);
    check_access<T>(memory, at, "reads");
    if (memory.cells) COUNT_ACCESS(SHARED_LOADS, memory.bytes + at, sizeof(T));
    else if (memory.is_global) COUNT_ACCESS(GLOBAL_LOADS, memory.bytes + at, sizeof(T));
    memory.note(READS, at, sizeof(T));
    return *(const Value*)(memory.bytes + at);
  }
  ACCESSOR void write(Value value) const {
    const FromLine from(line);
    check_change<T>(memory, at, "writes");
    if (memory.cells) COUNT_ACCESS(SHARED_STORES, memory.bytes + at, sizeof(T));
    else if (memory.is_global) COUNT_ACCESS(GLOBAL_STORES, memory.bytes + at, sizeof(T));
    memory.note(memory.traces && !memcmp(memory.bytes + at, &value, sizeof(T)) ? WRITES_THE_SAME : WRITES, at, sizeof(T));
    *(Value*)(memory.bytes + at) = value;
  }
  // Stores next(element) in one step, and returns what was there.
  template <class Next> ACCESSOR Value change(Next next) const {
    const FromLine from(line);
    check_change<T>(memory, at, "changes");
    if (memory.cells) COUNT_ACCESS(SHARED_ATOMICS, memory.bytes + at, sizeof(T));
    else if (memory.is_global) COUNT_ACCESS(GLOBAL_ATOMICS, memory.bytes + at, sizeof(T));
    memory.note(CHANGES, at, sizeof(T));
    Value& element = *(Value*)(memory.bytes + at);
    const Value before = element;
    element = next(before);
    return before;
  }
  ACCESSOR operator Value() const { return read(); }
  Pointer<T> operator&() const { return {memory, at, line}; }
};

// What assigns to an element.
#define ASSIGNMENTS(Self)                                                                                                       \
  ACCESSOR const Self& operator=(Value value) const {  /* not by reference: that may be behind the end of an array */           \
    static_assert(!std::is_const_v<typename Reference<T>::Touched>, "memory that is const is written");                         \
    return this->write(value), *this;                                                                                           \
  }                                                                                                                             \
  ACCESSOR const Self& operator=(const Self& other) const { return this->write(other.read()), *this; }                          \
  template <class V> ACCESSOR const Self& operator+=(V value) const { return this->write(this->read() + value), *this; }        \
  template <class V> ACCESSOR const Self& operator-=(V value) const { return this->write(this->read() - value), *this; }        \
  template <class V> ACCESSOR const Self& operator*=(V value) const { return this->write(this->read() * value), *this; }        \
  template <class V> ACCESSOR const Self& operator/=(V value) const { return this->write(this->read() / value), *this; }        \
  template <class V> ACCESSOR const Self& operator%=(V value) const { return this->write(this->read() % value), *this; }        \
  template <class V> ACCESSOR const Self& operator|=(V value) const { return this->write(this->read() | value), *this; }        \
  template <class V> ACCESSOR const Self& operator&=(V value) const { return this->write(this->read() & value), *this; }        \
  template <class V> ACCESSOR const Self& operator^=(V value) const { return this->write(this->read() ^ value), *this; }        \
  ACCESSOR const Self& operator++() const { return this->write(this->read() + 1), *this; }                                      \
  ACCESSOR const Self& operator--() const { return this->write(this->read() - 1), *this; }                                      \
  Value operator++(int) const { const Value before = this->read(); this->write(before + 1); return before; }                    \
  Value operator--(int) const { const Value before = this->read(); this->write(before - 1); return before; }

template <class T> struct Item : Reference<T> {
  using Value = typename Reference<T>::Value;
  Item(const Memory& memory, int64 at, int32 line) : Reference<T>{memory, at, line} {}
  Item(const Item&) = default;
  ASSIGNMENTS(Item)
};

template <class T> struct Pointer {
  using Type = T;
  Memory memory = {nullptr, 0, "null", 1};
  int64 at = 0;
  int32 line = 0;
  Pointer() = default;
  Pointer(std::nullptr_t) {}
  Pointer(const Memory& memory, int64 at, int32 line = 0) : memory(memory), at(at), line(line) {}
  Pointer(T* raw) : memory{nullptr, (int64)(~0ull >> 1), "local memory", 1}, at((int64)raw) {}
  template <class U, int64 N, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  Pointer(U (&array)[N]) : memory{(char*)array, (int64)sizeof array, "a local array", 1} {}
  Pointer(const GlobalMemory<T>& given)
      : memory{(char*)given.elements, given.numel * (int64)sizeof(T), given.name, sizeof(T), nullptr, true, std::is_const_v<T>} {
    if constexpr (!std::is_const_v<T>) memory.traces = given.traces;
  }
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  Pointer(const Pointer<U>& other) : memory(other.memory), at(other.at), line(other.line) {}
  template <class U, class = std::enable_if_t<!std::is_same_v<const U, T>>, class = void>
  explicit Pointer(const Pointer<U>& other) : memory(other.memory), at(other.at), line(other.line) {}
  Item<T> operator[](Place place) const { return {memory, at + place.index * (int64)sizeof(T), place.line}; }
  Item<T> operator*() const { return {memory, at, line}; }
  T* operator->() const {
    const FromLine from(line);
    check_access<T>(memory, at, "reads");
    return (T*)(memory.bytes + at);
  }
  Pointer operator+(Place n) const { return {memory, at + n.index * (int64)sizeof(T), n.line}; }
  Pointer operator-(Place n) const { return {memory, at - n.index * (int64)sizeof(T), n.line}; }
  int64 operator-(const Pointer& other) const { return (where() - other.where()) / (int64)sizeof(T); }
  Pointer& operator+=(Place n) { return *this = *this + n; }
  Pointer& operator-=(Place n) { return *this = *this - n; }
  Pointer& operator++() { return at += sizeof(T), *this; }
  Pointer& operator--() { return at -= sizeof(T), *this; }
  Pointer operator++(int) { Pointer before = *this; ++*this; return before; }
  Pointer operator--(int) { Pointer before = *this; --*this; return before; }
  int64 where() const { return (int64)memory.bytes + at; }
  explicit operator bool() const { return where() != 0; }
  bool operator==(const Pointer& other) const { return where() == other.where(); }
  bool operator!=(const Pointer& other) const { return where() != other.where(); }
  bool operator<(const Pointer& other) const { return where() < other.where(); }
};

// An array of several axes in shared memory.
template <class T, int64 N, int64... M> struct Rows {
  Memory memory;
  int64 at;
  static constexpr int64 NUMEL = (M * ... * 1);
  auto operator[](Place place) const {
    const int64 row = at + place.index * NUMEL * (int64)sizeof(T);
    if constexpr (sizeof...(M) == 1) return Pointer<T>(memory, row, place.line);
    else return Rows<T, M...>{memory, row};
  }
};
template <class T, int64 N, int64... M> static auto array_in(const Memory& memory) {
  if constexpr (sizeof...(M) == 0) return Pointer<T>(memory, 0);
  else return Rows<T, N, M...>{memory, 0};
}

// Shared memory that the launch asks for; it may be declared outside of functions, before there is any.
template <class T> struct Dynamic {
  const char* name;
  Pointer<T> start() const { return {{dynamic_shared, dynamic_nbytes, name, sizeof(T), &dynamic_cells}, 0}; }
  template <class U> operator Pointer<U>() const { return (Pointer<U>)start(); }
  Item<T> operator[](Place place) const { return start()[place]; }
  Pointer<T> operator+(Place n) const { return start() + n; }
  Item<T> operator*() const { return *start(); }
};

// ---- vectors ----
#define VECTOR2(V, T)                                                                                 \
  struct alignas(2 * sizeof(T)) V { T x, y; };                                                        \
  static inline V make_##V(T x, T y) { return {x, y}; }
#define VECTOR3(V, T)                                                                                 \
  struct V { T x, y, z; };                                                                            \
  static inline V make_##V(T x, T y, T z) { return {x, y, z}; }
#define VECTOR4(V, T)                                                                                 \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) V { T x, y, z, w; };                        \
  static inline V make_##V(T x, T y, T z, T w) { return {x, y, z, w}; }
#define VECTORS(name, T) VECTOR2(name##2, T) VECTOR3(name##3, T) VECTOR4(name##4, T)
}  // namespace cudasim
VECTORS(float, float) VECTORS(int, int) VECTORS(uint, unsigned) VECTORS(double, double)
VECTORS(char, signed char) VECTORS(uchar, unsigned char) VECTORS(short, short) VECTORS(ushort, unsigned short)
namespace cudasim {
#define PARTS2(V, C, T)                                                                                   \
  template <> struct Item<C V> : Reference<C V> {                                                     \
    using Value = V;                                                                                      \
    Item<C T> x, y;                                                                                   \
    Item(const Memory& m, int64 at, int32 line)                                                       \
        : Reference<C V>{m, at, line}, x(m, at, line), y(m, at + (int64)sizeof(T), line) {}               \
    Item(const Item&) = default;                                                                  \
    const Item& operator=(Value value) const { return this->write(value), *this; }             \
    const Item& operator=(const Item& other) const { return this->write(other.read()), *this; }   \
  };
#define PARTS4(V, C, T)                                                                                   \
  template <> struct Item<C V> : Reference<C V> {                                                     \
    using Value = V;                                                                                      \
    Item<C T> x, y, z, w;                                                                             \
    Item(const Memory& m, int64 at, int32 line)                                                       \
        : Reference<C V>{m, at, line}, x(m, at, line), y(m, at + (int64)sizeof(T), line),                 \
          z(m, at + 2 * (int64)sizeof(T), line), w(m, at + 3 * (int64)sizeof(T), line) {}                 \
    Item(const Item&) = default;                                                                  \
    const Item& operator=(Value value) const { return this->write(value), *this; }             \
    const Item& operator=(const Item& other) const { return this->write(other.read()), *this; }   \
  };
#define PARTS(name, T) PARTS2(name##2, , T) PARTS2(name##2, const, T) PARTS4(name##4, , T) PARTS4(name##4, const, T)
PARTS(float, float) PARTS(int, int) PARTS(uint, unsigned) PARTS(double, double)

// Memory of a plan under the name that the user's kernel has for it.
template <class T> static GlobalMemory<T> named(GlobalMemory<T> memory, const char* name) {
  memory.name = name;
  names_lines = true;
  if constexpr (!std::is_const_v<T>) memory.traces = traces_of(memory.elements);
  return memory;
}
template <class To, class From> static To as(From&& from) { return (To)from; }

// The value of an element on its way, or of anything else; `auto x = e` is written `auto x = cudasim::Value() = e`.
template <class T> ACCESSOR T value_of(T given) { return given; }
template <class T> ACCESSOR std::remove_const_t<T> value_of(Item<T> item) { return item.read(); }
template <class T, class M> ACCESSOR T value_of(Element<T, M> element) { return element; }
template <class T, class M> ACCESSOR T value_of(ElementAt<T, M> element) { return element; }
struct Value {
  template <class T> ACCESSOR auto operator=(T given) const { return value_of(given); }
};

}  // namespace cudasim

#define GIVEN(memory, name) cudasim::named(memory, #name)
#define GIVEN_KERNEL(...) void
#define reinterpret_cast cudasim::as
template <class T> using Pointer = cudasim::Pointer<T>;
#define SHARED_ARRAY(T, name, ...)                            \
  static cudasim::SharedBytes<T, ##__VA_ARGS__> name##_memory; \
  const auto name = name##_memory.array(#name)
#define DYNAMIC_SHARED(T, name) const cudasim::Dynamic<T> name = {#name}

namespace cudasim {
template <class T, int64... N> struct SharedBytes {
  static constexpr int64 NUMEL = (N * ... * 1);
  static_assert(NUMEL * sizeof(T) <= 48 * 1024, "a __shared__ array has at most 48 KB; extern __shared__ may have more");
  alignas(16) T elements[NUMEL];
  Pieces<Cell> cells;
  auto array(const char* name) { return array_in<T, N...>({(char*)elements, sizeof elements, name, sizeof(T), &cells}); }
};
template <class T> struct SharedBytes<T> {
  T element;
  Pieces<Cell> cells;
  Item<T> array(const char* name) { return {{(char*)&element, sizeof element, name, sizeof(T), &cells}, 0, 0}; }
};
}  // namespace cudasim

// ---- functions of CUDA ----
#define __assert_fail(text, file, line, function) cudasim::fail_at(line, "the assertion %s does not hold.", text)
#define abort() cudasim::fail_at(__LINE__, "calls abort(), a function of the host.")
#define exit(status) cudasim::fail_at(__LINE__, "calls exit(), a function of the host.")
#define __trap() cudasim::fail_at(__LINE__, "comes to __trap().")
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __constant__ static
#define warpSize 32
#define __syncwarp(...) sync_warp(__LINE__)
static inline void __threadfence() { cudasim::fence(); }
static inline void __threadfence_system() { __threadfence(); }
static inline void __threadfence_block() {}

template <class T> static inline std::remove_const_t<T> __ldg(const Pointer<T>& at) { return *at; }
#define HINTED(ending)                                                                                     \
  template <class T> static inline std::remove_const_t<T> __ld##ending(const Pointer<T>& at) { return *at; } \
  template <class T> static inline void __st##ending(const Pointer<T>& at, std::common_type_t<T> value) { *at = value; }
HINTED(ca) HINTED(cg) HINTED(cs) HINTED(cv) HINTED(wb) HINTED(wt)

#define OF_WARP(name, from)                                                                                     \
  template <class G>                                                                                            \
  static ACCESSOR auto name(uint32, G given, int32 number, int32 width = 32, int32 line = __builtin_LINE()) { \
    const auto value = cudasim::value_of(given);                                                                \
    COUNT_INSTRUCTION(SHUFFLES);                                                                                \
    const decltype(cudasim::value_of(given))* all[32];                                                          \
    const int32 lane = (int32)cudasim::meet(value, all, line), first = lane - lane % width, own = lane % width; \
    const int32 other = from;                                                                                   \
    return *all[other < 0 || other >= width ? lane : first + other];                                            \
  }
OF_WARP(__shfl_sync, (number % width))
OF_WARP(__shfl_xor_sync, (own ^ number))
OF_WARP(__shfl_down_sync, (own + number))
OF_WARP(__shfl_up_sync, (own - number))
static ACCESSOR uint32 __ballot_sync(uint32, int32 is_true, int32 line = __builtin_LINE()) {
  COUNT_INSTRUCTION(SHUFFLES);
  const int32* all[32];
  cudasim::meet(is_true, all, line);
  uint32 found = 0;
  for (int32 i = 0; i < 32; i++) found |= (uint32)(*all[i] != 0) << i;
  return found;
}
static inline int32 __any_sync(uint32 mask, int32 is_true, int32 line = __builtin_LINE()) {
  return __ballot_sync(mask, is_true, line) != 0;
}
static inline int32 __all_sync(uint32 mask, int32 is_true, int32 line = __builtin_LINE()) {
  return __ballot_sync(mask, is_true, line) == ~0u;
}

#define ATOMIC(name, value_of)                                                                                   \
  template <class T>                                                                                             \
  static inline T name(const Pointer<T>& at, typename std::common_type<T>::type value,                           \
                       int32 line = __builtin_LINE()) {                                                          \
    return cudasim::Item<T>(at.memory, at.at, line).change([&](T before) { return (T)(value_of); });             \
  }
ATOMIC(atomicAdd, before + value)
ATOMIC(atomicSub, before - value)
ATOMIC(atomicMax, before > value ? before : value)
ATOMIC(atomicMin, before < value ? before : value)
ATOMIC(atomicAnd, before & value)
ATOMIC(atomicOr, before | value)
ATOMIC(atomicXor, before ^ value)
ATOMIC(atomicExch, value)
template <class T> static inline T atomicCAS(const Pointer<T>& at, typename std::common_type<T>::type expected,
                                             typename std::common_type<T>::type value, int32 line = __builtin_LINE()) {
  return cudasim::Item<T>(at.memory, at.at, line).change([&](T before) { return before == expected ? value : before; });
}

#define SMALLER_AND_LARGER(T)                                     \
  static inline T min(T a, T b) { return a < b ? a : b; }         \
  static inline T max(T a, T b) { return a > b ? a : b; }
SMALLER_AND_LARGER(int) SMALLER_AND_LARGER(unsigned) SMALLER_AND_LARGER(long long) SMALLER_AND_LARGER(unsigned long long)
SMALLER_AND_LARGER(float) SMALLER_AND_LARGER(double) SMALLER_AND_LARGER(long) SMALLER_AND_LARGER(unsigned long)
#define __expf expf
#define __exp2f exp2f
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline int __float_as_int(float x) { return bitcast<int>(x); }
static inline float __int_as_float(int x) { return bitcast<float>(x); }
static inline unsigned __float_as_uint(float x) { return bitcast<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return bitcast<float>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __mul24(int x, int y) { return x * y; }

#endif
