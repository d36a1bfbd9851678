// What a kernel for Hopper is compiled with: mbarriers, tiles and products, which work beside the threads; clusters.
//
// Included by devices/cuda/hopper.h. What is declared here is in clocks.h, mbarriers.h, tiles.h and warpgroups.h.

#ifndef PICOGRAD_CUDASIM_ASYNCHRONOUS_H
#define PICOGRAD_CUDASIM_ASYNCHRONOUS_H

namespace cudasim {

// ---- clocks ----
static const int32 FIRST_THREAD = 256;  // an actor below it works beside the threads
static const int32 MOST_MBARRIERS = 64, MOST_WARPGROUPS = 8, MOST_STORERS = 16;
static const int32 FIRST_WARPGROUP = MOST_MBARRIERS, FIRST_STORER = FIRST_WARPGROUP + MOST_WARPGROUPS;
static const int64 MOST_ACTORS = FIRST_THREAD + MAX_THREADS;
static_assert(FIRST_STORER + MOST_STORERS <= FIRST_THREAD, "actors that are no threads come before them");

// Up to which count something is known of each actor. join: all that either knows; meet: what both know.
struct Clock {
  uint32 at[MOST_ACTORS];
  void join(const Clock& other);
  void meet(const Clock& other);
};
// known: of what others did. seen: what of it the asynchronous proxy sees, too, for a fence of it came behind.
struct Knowledge {
  Clock known, seen;
  void join(const Knowledge& other) {
    known.join(other.known);
    seen.join(other.seen);
  }
};
void begin_clocks();
uint32 elected_lane();

// ---- clusters ----
// Says that the blocks of a kernel come in clusters of so many.
struct Clusters {
  const char* name;
  int64 blocks;
  const Clusters* next;
  Clusters(const char* name, int64 blocks);
};
int64 check_rank(int64 rank);  // of a block in its cluster

// ---- mbarriers ----
// told: what the threads know that have arrived; complete: the same of the last complete phase, which those know that wait.
struct MBarrier {
  const char* name;
  int64 index, count, arrivals, nbytes;  // of arrivals and bytes: how many are missing
  uint32 phase, actor;
  uint64 block;                          // of the cluster whose it is
  int64 rank;                            // of its block there
  int32 thread;                          // that has initialised it
  bool is_shown;                         // a fence_mbarriers came behind that
  Access initialised;
  Knowledge told, complete;
};
// Of a block; those of another block of the cluster lie N further for each rank.
template <int64 N> struct MBarriers {
  MBarrier* barriers;
  const char* name;
  MBarrier& at(int64 index) const { return at(index, own_rank()); }
  MBarrier& at(int64 index, int64 rank) const {
    check_bounds(index, N, name, "uses");
    return barriers[index + (rank - own_rank()) * N];
  }
};
void initialise(MBarrier& barrier, const char* name, int64 index, int64 count);
void show_mbarriers();
void arrive(const MBarrier& given, int64 nbytes);
void wait_for(const MBarrier& given, uint32 parity, int32 line);

// ---- tiles ----
static const int64 MOST_AXES = 5;

// Shared elements from a place that such a copy or product can begin at.
template <class T, int64 N> struct alignas(1024) TileElements : SharedElements<T, N> {};
template <class T, int64 N> struct SharedTile : SharedMemory<T, N> {};

// A number, and the line where it is given.
struct Here {
  int64 number;
  int32 line;
  Here(int64 number, int32 line = __builtin_LINE()) : number(number), line(line) {}
};

// A tile without its type. first: byte of it at which something begins.
struct Tile {
  char* bytes;
  Cell* cells;
  const char* name;
  int64 numel, itemsize, first;
};
template <class T, int64 N>
static Tile tile_at(const SharedTile<T, N>& memory, int64 index, const char* does, int64 rank = own_rank()) {
  check_bounds(index, N, memory.name, does);
  auto& shared = *((TileElements<T, N>*)&memory.shared + (rank - own_rank()));
  return {(char*)shared.elements, shared.cells, memory.name, N, sizeof(T), index * (int64)sizeof(T)};
}

// A matrix, or an array of up to five axes, in memory of the device, and the box of it that a copy moves; the innermost axis
// is the first, strides are in bytes. rounds: float32 arrive as TF32. As devices/cudasim/device.py writes it.
struct TileMap {
  char* memory;
  int64 num_axes, itemsize, swizzles, rounds, extents[MOST_AXES], strides[MOST_AXES], box[MOST_AXES];
  int64 numel() const;
};

template <> struct Passed<TileMap> {
  static TileMap from(const Argument& argument, const char*) { return *(const TileMap*)argument.value; }
};

void show_to_proxy();
void start_tile_copy(const Tile& tile, const TileMap& map, const MBarrier& barrier, const int32* start, int64 num_axes, int32 line,
                     bool is_again = false);
void start_store(const Tile& tile, const TileMap& map, const int32* start, int64 num_axes);
void commit_own_stores();
void finish_stores(int64 still);

// ---- products ----
// A matrix of floats in a tile, swizzled: of each 8 rows of 128 bytes one has elements of K, or where they lie across K, of 16 bits,
// 64 rows of the matrix, and the 64 rows after these lie `next` bytes further. A product has 32 bytes of K.
struct Operand {
  Tile tile;
  float32 (*widen)(const char* element);
  bool is_across;
  int64 next;
  int64 byte_of(int64 row, int64 k) const;
  int64 index_of(int64 row, int64 k) const;
  int64 depth() const;
};
// What one thread brings: its part of the result. pairs: its part of lhs, where that is in registers; given: what they held when
// the product began.
struct Part {
  Operand lhs, rhs;
  int64 columns;
  bool adds;
  float32* sums;
  Holds* holds;
  const uint32* pairs;
  uint32 given[4];
};
void check_pairs(const Holds* holds, const char* name, int64 place, int64 numel);
void start_product(const Part& part, const char* name, int64 at, int64 numel, int32 line);
void show_registers(Holds* holds, const char* name, int64 at, int64 count, int64 numel);
void commit_products();
void finish_products(int64 still);

}  // namespace cudasim

#endif
