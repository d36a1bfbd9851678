// What Hopper (sm_90a) added to the primitives: barriers in shared memory, copies of tiles by a map, and in wgmma.h matrix instructions of
// 128 threads. It keeps the rules of primitives.h, and is a file of its own because every kernel includes that one and few
// need this. PTX and functions of CUDA are named in these headers and nowhere else.
//
//   MBARRIERS(name, n)                    n mbarriers of a block
//   SHARED_TILE(T, name, n)               n shared elements, at a multiple of 1024 bytes
//   SHARED_TILE_AT(T, name, n, first)     the same, `first` bytes into the memory that the launch asks for
//   TILE_MAP(name)                        a parameter: an array in memory and a box of it (devices/cuda/tile_maps.py)
//
//   KERNEL_OF_CLUSTERS(name, blocks, threads)   a kernel whose blocks come in clusters along x: they run at the same time
//
// Coordinates begin with the innermost axis. Two proxies go to shared memory: the threads, and what works beside them (copies of
// tiles, wgmma). What threads write the others see behind fence_async_proxy.

#ifndef PICOGRAD_HOPPER_H
#define PICOGRAD_HOPPER_H

#include "primitives.h"

#ifdef __CUDACC_RTC__
struct alignas(64) TileMap { uint64 words[16]; };
#define LAUNCHED_TILE_MAP(name) const __grid_constant__ TileMap name
#ifdef PICOGRAD_GIVEN_H
#define TILE_MAP(name) const TileMap& name  // a user's kernel is inlined into one that is launched
#else
#define TILE_MAP(name) LAUNCHED_TILE_MAP(name)
#endif
#define KERNEL_OF_CLUSTERS(name, blocks, threads) \
  extern "C" __global__ void __launch_bounds__(threads, 1) __cluster_dims__(blocks, 1, 1) name
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
#include "cudasim/asynchronous.h"
using cudasim::TileMap;
#define TILE_MAP(name) const TileMap name
#define LAUNCHED_TILE_MAP(name) TILE_MAP(name)
#define KERNEL_OF_CLUSTERS(name, blocks, threads)                    \
  static const cudasim::Clusters name##_clusters(#name, (blocks)); \
  extern "C" void name
#define MBARRIERS(name, n)                                            \
  static cudasim::MBarrier name##_barriers[cudasim::MOST_BLOCKS][n]; \
  const cudasim::MBarriers<(n)> name = {name##_barriers[cudasim::own_rank()], #name}
#define SHARED_TILE(T, name, n)                                              \
  static cudasim::TileElements<T, (n)> name##_elements[cudasim::MOST_BLOCKS]; \
  const cudasim::SharedTile<T, (n)> name = {{name##_elements[cudasim::own_rank()], #name}}
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
// threadIdx.x, read where this stands: what is computed of it takes no registers before.
PRIMITIVE int32 thread_here() {
  int32 thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
// A number that is the same in all threads of a warp: what is computed of it takes registers of the warp, not of each thread.
PRIMITIVE int32 of_warp(int32 number) { return __shfl_sync(0xffffffffu, number, 0); }
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
PRIMITIVE int32 thread_here() { return threadIdx.x; }
PRIMITIVE int32 of_warp(int32 number, int32 line = __builtin_LINE()) {
  const int32* given[32];
  cudasim::meet(number, given, line);
  if (*given[0] != number) cudasim::fail("of_warp is given %d by thread 0 of a warp, and %d by another.", *given[0], number);
  return number;
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

// ---- clusters ----
// sync_cluster: all threads of all blocks wait for each other. Before it no block has shared memory for the others, and behind a
// block's end it has none any more. mbarrier_arrive_at: arrives at the same mbarrier of another block. load_tile_to_all: what
// load_tile does in this block, in each block of the cluster, with one read of memory.
// PTX ISA, barrier.cluster; mapa; cp.async.bulk.tensor, .multicast::cluster (sm_90).
#ifdef __CUDACC_RTC__
PRIMITIVE void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
PRIMITIVE void mbarrier_arrive_at(MBarriers barriers, int64 index, int32 rank) {
  asm volatile("{ .reg .b32 other; mapa.shared::cluster.u32 other, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [other]; }"
               ::"r"(address_of(barriers, index)), "r"(rank) : "memory");
}
template <int BLOCKS, class T>
PRIMITIVE void load_tile_to_all(SharedTile<T> shared, int64 index, const TileMap& map, MBarriers barriers, int64 barrier, int32 x,
                                int32 y, int32 z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared.memory + index)), "l"(&map),
               "r"(address_of(barriers, barrier)), "r"(x), "r"(y), "r"(z), "h"((uint16)((1 << BLOCKS) - 1)) : "memory");
}
#else
PRIMITIVE void sync_cluster(int32 line = __builtin_LINE()) {
  cudasim::begin_clocks();
  COUNT_INSTRUCTION(BARRIERS);
  cudasim::wait(cudasim::AT_CLUSTER, line);
}
template <int64 N> PRIMITIVE void mbarrier_arrive_at(const cudasim::MBarriers<N>& barriers, int64 index, int32 rank) {
  cudasim::arrive(barriers.at(index, cudasim::check_rank(rank)), 0);
}
template <int BLOCKS, class T, int64 LENGTH, int64 N>
PRIMITIVE void load_tile_to_all(const cudasim::SharedTile<T, LENGTH>& shared, cudasim::Here index, const TileMap& map,
                                const cudasim::MBarriers<N>& barriers, int64 barrier, int32 x, int32 y, int32 z) {
  const int32 at[] = {x, y, z};
  for (int64 rank = 0; rank < BLOCKS; rank++)
    cudasim::start_tile_copy(cudasim::tile_at(shared, index.number, "copies to", cudasim::check_rank(rank)), map,
                             barriers.at(barrier, rank), at, 3, index.line, rank > 0);
}
#endif

// ---- matrices of a warp ----
// Stores from[place..], what a thread has of four matrices of 8 x 8 of 16 bits, as load_matrices (matrices.h) has it: thread 8 m + r
// says by `index` where row r of matrix m begins, a multiple of 8.
// PTX ISA, stmatrix (sm_90).
#ifdef __CUDACC_RTC__
template <class T> PRIMITIVE void store_matrices(SharedTile<T> shared, int64 index, const T* from, int64 place) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(shared_address(shared.memory + index)), "r"(pair_of(from + place)), "r"(pair_of(from + place + 2)),
               "r"(pair_of(from + place + 4)), "r"(pair_of(from + place + 6)) : "memory");
}
#else
template <class T, int64 LENGTH, class Registers>
PRIMITIVE void store_matrices(const cudasim::SharedTile<T, LENGTH>& shared, int64 index, Registers& from, int64 place,
                              int32 line = __builtin_LINE()) {
  if (index % 8) cudasim::fail("stores a row of a matrix at place %lld, which is no multiple of 8.", index);
  const int64* rows[32];
  const int64 lane = cudasim::meet(index, rows, line), g = lane / 4, t = lane % 4;
  COUNT_AS_ONE(8);
  COUNT_ACCESS(SHARED_STORES, &shared.shared.elements[index], sizeof(T));  // the row that the thread names; and no other
  for (int64 m = 0; m < 4; m++)
    for (int64 i = 0; i < 2; i++) shared[*rows[8 * m + g] + 2 * t + i] = (T)from[place + 2 * m + i];
}
#endif

#include "wgmma.h"  // needs what stands above

#endif
