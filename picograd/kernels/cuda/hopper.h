// What Hopper (sm_90a) added to the primitives: barriers in shared memory, copies of tiles by a map, matrix instructions of
// 128 threads. It keeps the rules of primitives.h, and is a file of its own because every kernel includes that one and few
// need this. PTX and functions of CUDA are named in these headers and nowhere else.
//
//   MBARRIERS(name, n)                    n mbarriers of a block
//   SHARED_TILE(T, name, n)               n shared elements, at a multiple of 1024 bytes
//   SHARED_TILE_AT(T, name, n, first)     the same, `first` bytes into the memory that the launch asks for
//   TILE_MAP(name)                        a parameter: an array in memory and a box of it (runtime/tile_maps.py)
//
// Coordinates begin with the innermost axis. Two proxies go to shared memory: the threads, and what works beside them (copies of
// tiles, wgmma). What threads write the others see behind fence_async_proxy.

#ifndef PICOGRAD_HOPPER_H
#define PICOGRAD_HOPPER_H

#include "primitives.h"

#ifdef __CUDACC_RTC__
struct alignas(64) TileMap { uint64 words[16]; };
#define TILE_MAP(name) const __grid_constant__ TileMap name
template <class T> struct SharedTile : Shared<T> {};
struct MBarriers { uint64* memory; };
#define MBARRIERS(name, n)          \
  __shared__ uint64 name##_memory[n]; \
  const MBarriers name = {name##_memory}
#define SHARED_TILE(T, name, n)                  \
  __shared__ __align__(1024) T name##_memory[n]; \
  const SharedTile<T> name = {{name##_memory}}
extern __shared__ __align__(1024) uint8 tiles_asked_for[];
#define SHARED_TILE_AT(T, name, n, first) const SharedTile<T> name = {{(T*)(tiles_asked_for + first)}}
PRIMITIVE uint32 shared_address(const void* memory) { return (uint32)__cvta_generic_to_shared(memory); }
PRIMITIVE uint32 address_of(MBarriers barriers, int64 index) { return shared_address(barriers.memory + index); }
#else
#include "cudasim/clocks.h"  // each needs those before it
#include "cudasim/mbarriers.h"
#include "cudasim/tiles.h"
#include "cudasim/warpgroups.h"
using cudasim::TileMap;
#define TILE_MAP(name) const TileMap name
#define MBARRIERS(name, n)                      \
  static cudasim::MBarrier name##_barriers[n]; \
  const cudasim::MBarriers<(n)> name = {name##_barriers, #name}
#define SHARED_TILE(T, name, n)                       \
  static cudasim::TileElements<T, (n)> name##_elements; \
  const cudasim::SharedTile<T, (n)> name = {{name##_elements, #name}}
#define SHARED_TILE_AT(T, name, n, first) SHARED_TILE(T, name, n)
#endif

// Where element `index` of a swizzled tile lies: of row r of 128 bytes, piece p of 16 bytes is at p ^ (r % 8), so that the same
// piece of eight rows is in eight different groups of banks.
template <class T> PRIMITIVE int64 swizzled(int64 index) {
  const int64 at = index * (int64)sizeof(T);
  return (at ^ (at >> 3 & 0x70)) / (int64)sizeof(T);
}

// ---- threads ----
// Whether this is the one thread of its warp that acts for it; all 32 call it, and always the same is chosen.
// PTX ISA, elect.sync (sm_90).
#ifdef __CUDACC_RTC__
PRIMITIVE bool is_elected() {
  uint32 chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  return chosen;
}
// Waits for the other threads of the warp, or of the warpgroup; what they have written can be read behind it.
PRIMITIVE void sync_warp() { __syncwarp(); }
PRIMITIVE void sync_warpgroup() { asm volatile("bar.sync %0, 128;" ::"r"(1 + (uint32)threadIdx.x / 128) : "memory"); }
// The warpgroup gives back registers of its threads, or waits until so many are free: a thread has N behind it.
// PTX ISA, setmaxnreg (sm_90a).
template <int N> PRIMITIVE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> PRIMITIVE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
#else
PRIMITIVE bool is_elected(int32 line = __builtin_LINE()) {
  cudasim::wait(cudasim::AT_SHUFFLE, line);
  return threadIdx.x % 32 == cudasim::elected_lane();
}
PRIMITIVE void sync_warp(int32 line = __builtin_LINE()) {
  cudasim::begin_clocks();
  cudasim::wait(cudasim::AT_WARP, line);
}
PRIMITIVE void sync_warpgroup(int32 line = __builtin_LINE()) {
  cudasim::begin_clocks();
  cudasim::wait(cudasim::AT_WARPGROUP, line);
}
template <int N> PRIMITIVE void fewer_registers(int32 line = __builtin_LINE()) {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "fewer_registers: a multiple of 8 from 24 to 256");
  cudasim::wait(cudasim::AT_PRODUCT, line);
}
template <int N> PRIMITIVE void more_registers(int32 line = __builtin_LINE()) {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "more_registers: a multiple of 8 from 24 to 256");
  cudasim::wait(cudasim::AT_PRODUCT, line);
}
#endif

// ---- mbarriers ----
// A phase is complete once `count` arrivals and all bytes that were announced are there; then the next begins. mbarrier_wait
// returns when the phase of that parity is complete: 0 for the first, 1 for the second; with 1, at once before the first is.
// PTX ISA, Parallel Synchronization and Communication Instructions: mbarrier (sm_90).
#ifdef __CUDACC_RTC__
PRIMITIVE void mbarrier_init(MBarriers barriers, int64 index, int32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barriers, index)), "r"(count) : "memory");
}
// Shows the mbarriers that the thread has initialised to the copies that will complete on them.
PRIMITIVE void fence_mbarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
PRIMITIVE void mbarrier_arrive(MBarriers barriers, int64 index) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barriers, index)) : "memory");
}
// Arrives, and says that copies bring so many bytes.
PRIMITIVE void mbarrier_arrive_expecting(MBarriers barriers, int64 index, int32 nbytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(barriers, index)), "r"(nbytes)
               : "memory");
}
PRIMITIVE void mbarrier_wait(MBarriers barriers, int64 index, uint32 parity) {
  uint32 complete = 0;
  while (!complete)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(complete) : "r"(address_of(barriers, index)), "r"(parity) : "memory");
}
#else
template <int64 N> PRIMITIVE void mbarrier_init(const cudasim::MBarriers<N>& barriers, int64 index, int32 count) {
  cudasim::initialise(barriers.at(index), barriers.name, index, count);
}
PRIMITIVE void fence_mbarriers() { cudasim::show_mbarriers(); }
template <int64 N> PRIMITIVE void mbarrier_arrive(const cudasim::MBarriers<N>& barriers, int64 index) {
  cudasim::arrive(barriers.at(index), 0);
}
template <int64 N>
PRIMITIVE void mbarrier_arrive_expecting(const cudasim::MBarriers<N>& barriers, int64 index, int32 nbytes) {
  cudasim::arrive(barriers.at(index), nbytes);
}
template <int64 N>
PRIMITIVE void mbarrier_wait(const cudasim::MBarriers<N>& barriers, int64 index, uint32 parity,
                             int32 line = __builtin_LINE()) {
  cudasim::wait_for(barriers.at(index), parity, line);
}
#endif

// ---- copies of tiles ----
// load_tile: the box of a map from `at` on, to shared[index..], by one thread; its bytes arrive at an mbarrier, and elements
// outside of the array are zeros. store_tile: the other way; what is outside stays. Stores are closed in groups by their thread, and
// wait_stores<N> waits until all but the last N have read shared memory.
// PTX ISA, Tensors; cp.async.bulk.tensor (sm_90).
#ifdef __CUDACC_RTC__
// What threads wrote to shared memory before, copies of tiles and matrix instructions read behind it.
PRIMITIVE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#define PICOGRAD_LOAD(rank, places, ...)                                                                               \
  asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" places \
               "}], [%2];" ::"r"(shared_address(shared.memory + index)), "l"(&map), "r"(address_of(barriers, barrier)),   \
               __VA_ARGS__ : "memory")
#define PICOGRAD_STORE(rank, places, ...)                                                                  \
  asm volatile("cp.async.bulk.tensor." rank ".global.shared::cta.tile.bulk_group [%1, {" places "}], [%0];" \
               ::"r"(shared_address(shared.memory + index)), "l"(&map), __VA_ARGS__ : "memory")
template <class T, class... Places>
PRIMITIVE void load_tile(SharedTile<T> shared, int64 index, const TileMap& map, MBarriers barriers, int64 barrier,
                         Places... places) {
  const int32 at[] = {(int32)places...};
  constexpr int RANK = sizeof...(Places);
  static_assert(RANK >= 1 && RANK <= 5, "load_tile: one to five coordinates");
  if constexpr (RANK == 1) PICOGRAD_LOAD("1d", "%3", "r"(at[0]));
  if constexpr (RANK == 2) PICOGRAD_LOAD("2d", "%3, %4", "r"(at[0]), "r"(at[1]));
  if constexpr (RANK == 3) PICOGRAD_LOAD("3d", "%3, %4, %5", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  if constexpr (RANK == 4) PICOGRAD_LOAD("4d", "%3, %4, %5, %6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  if constexpr (RANK == 5)
    PICOGRAD_LOAD("5d", "%3, %4, %5, %6, %7", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]));
}
template <class T, class... Places>
PRIMITIVE void store_tile(const TileMap& map, SharedTile<T> shared, int64 index, Places... places) {
  const int32 at[] = {(int32)places...};
  constexpr int RANK = sizeof...(Places);
  static_assert(RANK >= 1 && RANK <= 5, "store_tile: one to five coordinates");
  if constexpr (RANK == 1) PICOGRAD_STORE("1d", "%2", "r"(at[0]));
  if constexpr (RANK == 2) PICOGRAD_STORE("2d", "%2, %3", "r"(at[0]), "r"(at[1]));
  if constexpr (RANK == 3) PICOGRAD_STORE("3d", "%2, %3, %4", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  if constexpr (RANK == 4) PICOGRAD_STORE("4d", "%2, %3, %4, %5", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  if constexpr (RANK == 5)
    PICOGRAD_STORE("5d", "%2, %3, %4, %5, %6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]));
}
PRIMITIVE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> PRIMITIVE void wait_stores() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
#else
PRIMITIVE void fence_async_proxy() { cudasim::show_to_proxy(); }
template <class T, int64 LENGTH, int64 N, class... Places>
PRIMITIVE void load_tile(const cudasim::SharedTile<T, LENGTH>& shared, cudasim::Here index, const TileMap& map,
                         const cudasim::MBarriers<N>& barriers, int64 barrier, Places... places) {
  const int32 at[] = {(int32)places...};
  cudasim::start_tile_copy(cudasim::tile_at(shared, index.number, "copies to"), map, barriers.at(barrier), at,
                           sizeof...(Places), index.line);
}
template <class T, int64 LENGTH, class... Places>
PRIMITIVE void store_tile(const TileMap& map, const cudasim::SharedTile<T, LENGTH>& shared, int64 index, Places... places) {
  const int32 at[] = {(int32)places...};
  cudasim::start_store(cudasim::tile_at(shared, index, "stores from"), map, at, sizeof...(Places));
}
PRIMITIVE void commit_stores() { cudasim::commit_own_stores(); }
template <int N> PRIMITIVE void wait_stores() { cudasim::finish_stores(N); }
#endif

// ---- matrix instructions of a warpgroup: 128 threads ----
// wgmma_m64k16<N>: acc[at..] = (adds ? acc[at..] : 0) + lhs @ rhs.T of 64 x 16 and N x 16, both in swizzled tiles of 64 elements a
// row, from the element on that index left and right name; N is 64, 128, 192 or 256. Of a thread acc has N / 2 elements: where
// g = lane / 4 and t = lane % 4, element i is (16 warp + g + 8 (i / 2 % 2), 8 (i / 4) + 2t + i % 2).
// It runs beside the threads. wgmma_fence<COUNT> stands before the first, and where the thread has written acc; wgmma_commit closes
// a group; wgmma_wait<GROUPS, COUNT> waits for all groups but the last, after which acc and the tiles can be used.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma, matrix descriptor (sm_90a).
#ifdef __CUDACC_RTC__
// NOTE: nothing else tells the compiler that registers change at the wait, not at the instruction that names them.
template <int COUNT> PRIMITIVE void hold_registers(float32* acc, int64 at) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(acc[at + i])::"memory");
}
template <int COUNT> PRIMITIVE void wgmma_fence(float32* acc, int64 at) {
  hold_registers<COUNT>(acc, at);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
PRIMITIVE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int GROUPS, int COUNT> PRIMITIVE void wgmma_wait(float32* acc, int64 at) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
  if constexpr (GROUPS == 0) hold_registers<COUNT>(acc, at);
}
// Bits 0-13: the address; 32-45: the stride from 8 rows to the next 8, 1024 bytes; both in units of 16. Bits 62-63: 1, the swizzle
// of 128 bytes. Bits 16-29, the other stride, are not read where the swizzle is as wide as a row.
template <class T> PRIMITIVE uint64 descriptor_of(SharedTile<T> shared, int64 index) {
  const uint32 at = shared_address(shared.memory + index);
  return (uint64)((at & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#define PICOGRAD_D32                                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"                                                                        
#define PICOGRAD_D64 PICOGRAD_D32                                                                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                                                      
#define PICOGRAD_D96 PICOGRAD_D64                                                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                                                      
#define PICOGRAD_D128 PICOGRAD_D96                                                                             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"                        
#define PICOGRAD_F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PICOGRAD_F16(i) PICOGRAD_F4(i), PICOGRAD_F4(i + 4), PICOGRAD_F4(i + 8), PICOGRAD_F4(i + 12)
#define PICOGRAD_F32(i) PICOGRAD_F16(i), PICOGRAD_F16(i + 16)
#define PICOGRAD_F64(i) PICOGRAD_F32(i), PICOGRAD_F32(i + 32)
#define PICOGRAD_WGMMA(n, name, list, lhs, rhs, adds, ...)                                                          \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " adds ", 0; wgmma.mma_async.sync.aligned.m64n" n "k16.f32." name "." name \
               " {" list "}, " lhs ", " rhs ", p, 1, 1, 0, 0; }"                                                     \
               : __VA_ARGS__ : "l"(a), "l"(b), "r"(adding) : "memory")
#define PICOGRAD_WGMMA_OF(T, name)                                                                                   \
  template <int N>                                                                                                  \
  PRIMITIVE void wgmma_m64k16(float32* acc, int64 at, SharedTile<T> lhs, int64 left, SharedTile<T> rhs, int64 right, \
                              bool adds) {                                                                          \
    static_assert(N == 64 || N == 128 || N == 192 || N == 256, "wgmma_m64k16: 64, 128, 192 or 256 columns");        \
    float32* d = acc + at;                                                                                          \
    const uint64 a = descriptor_of(lhs, left), b = descriptor_of(rhs, right);                                       \
    const int32 adding = adds;                                                                                      \
    if constexpr (N == 64) PICOGRAD_WGMMA("64", name, PICOGRAD_D32, "%32", "%33", "%34", PICOGRAD_F32(0));          \
    if constexpr (N == 128) PICOGRAD_WGMMA("128", name, PICOGRAD_D64, "%64", "%65", "%66", PICOGRAD_F64(0));        \
    if constexpr (N == 192)                                                                                         \
      PICOGRAD_WGMMA("192", name, PICOGRAD_D96, "%96", "%97", "%98", PICOGRAD_F64(0), PICOGRAD_F32(64));            \
    if constexpr (N == 256)                                                                                         \
      PICOGRAD_WGMMA("256", name, PICOGRAD_D128, "%128", "%129", "%130", PICOGRAD_F64(0), PICOGRAD_F64(64));        \
  }
PICOGRAD_WGMMA_OF(float16, "f16")
PICOGRAD_WGMMA_OF(bfloat16, "bf16")
#else
template <int COUNT, int64 LENGTH>
PRIMITIVE void wgmma_fence(cudasim::RegisterMemory<float32, LENGTH>& acc, int64 at) {
  cudasim::show_registers(acc.holds, acc.name, at, COUNT, LENGTH);
}
PRIMITIVE void wgmma_commit() { cudasim::issuers[cudasim::thread_number(cudasim::running)].num_groups++; }
template <int GROUPS, int COUNT, int64 LENGTH>
PRIMITIVE void wgmma_wait(cudasim::RegisterMemory<float32, LENGTH>&, int64) {
  cudasim::finish_products(GROUPS);
}
template <class T> float32 widen_element(const char* element) { return to_float32(*(const T*)element); }
template <int N, class T, int64 LENGTH, int64 LEFT, int64 RIGHT>
PRIMITIVE void wgmma_m64k16(cudasim::RegisterMemory<float32, LENGTH>& acc, int64 at, const cudasim::SharedTile<T, LEFT>& lhs,
                            int64 left, const cudasim::SharedTile<T, RIGHT>& rhs, int64 right, bool adds,
                            int32 line = __builtin_LINE()) {
  static_assert(N == 64 || N == 128 || N == 192 || N == 256, "wgmma_m64k16: 64, 128, 192 or 256 columns");
  const cudasim::Operand operands[] = {{cudasim::tile_at(lhs, left, "a wgmma reads"), widen_element<T>},
                                       {cudasim::tile_at(rhs, right, "a wgmma reads"), widen_element<T>}};
  cudasim::start_product({operands[0], operands[1], N, adds, acc.elements + at, acc.holds + at}, acc.name, at, LENGTH, line);
}
#endif

#endif
