// Tiles of the simulated GPU's shared memory: what copies and products that run beside the threads read and write.
//
// Included by simulator.cpp. These go by the asynchronous proxy: they see what threads have written only behind a fence of it,
// and threads know that they are done only from whom they wait for.

#ifndef PICOGRAD_CUDASIM_TILES_H
#define PICOGRAD_CUDASIM_TILES_H

namespace cudasim {

static const int64 SWIZZLE_BYTES = 128;

// Where byte `at` of a tile lies: in each 8 rows of 128 bytes, pieces of 16 change places by the number of their row.
static int64 swizzled(int64 at) { return at ^ (at >> 3 & 0x70); }

// ---- accesses by the asynchronous proxy ----
// A copy that thread and actor start to an element: all that was done with it before must come before.
static void note_bulk_write(Cell& cell, const char* name, int64 index, int32 actor, uint32 count) {
  check_order(cell.written, nullptr, "copies to", name, index, "wrote");
  check_order(cell.read, cell.readers, "copies to", name, index, "read");
  check_order(cell.changed, cell.changers, "copies to", name, index, "changed by an atomic");
  cell.written = {BESIDE | block_epoch, actor, count};
}

// An actor reads an element on behalf of those who know all of `of`.
static void note_bulk_read(Cell& cell, const char* name, int64 index, int32 actor, uint32 count, const Knowledge& of,
                           const char* does) {
  check_there(cell, does, name, index);
  const Access& written = cell.written;
  if (!comes_before(written, nullptr, of.known)) fail_race(does, name, index, written, "wrote");
  if (!comes_before(cell.changed, cell.changers, of.known)) fail_race(does, name, index, cell.changed, "changed by an atomic");
  if (written.actor >= FIRST_THREAD && written.count > of.seen.at[written.actor])
    fail("%s %s[%lld], which thread %d wrote with no fence_async_proxy behind it.", does, name, index,
         (int32)in_block(written.actor - FIRST_THREAD));
  const Access own = {BESIDE | block_epoch, actor, count};
  if (cell.read.actor == actor && cell.read.epoch == own.epoch) cell.read = own;
  else add_to(cell.read, cell.readers, own, of.known);
}

// What the thread knows of is seen by the asynchronous proxy from here on.
void show_to_proxy() {
  begin_clocks();
  own_knowledge().seen.join(own_knowledge().known);
  count_on(thread_number(running));
}

// ---- maps ----
int64 TileMap::numel() const {
  int64 product = 1;
  for (int64 axis = 0; axis < num_axes; axis++) product *= box[axis];
  return product;
}

// Calls visit(byte of the tile, where that element is in memory or null) for each element of a box from `start` on.
template <class Visit> static void visit_box(const TileMap& map, const int64* start, int64 first, Visit visit) {
  for (int64 i = 0, count = map.numel(); i < count; i++) {
    char* source = map.memory;
    int64 left = i;
    for (int64 axis = 0; axis < map.num_axes; left /= map.box[axis++]) {
      const int64 place = start[axis] + left % map.box[axis];
      if (place < 0 || place >= map.extents[axis]) source = nullptr;
      if (source) source += place * map.strides[axis];
    }
    const int64 at = first + i * map.itemsize;
    visit(map.swizzles ? swizzled(at) : at, source);
  }
}

struct TileWork {
  TileMap map;
  Tile tile;
  int64 start[MOST_AXES];
};

static TileWork check_box(const TileMap& map, const Tile& tile, const int32* start, int64 num_axes, const char* does) {
  if (num_axes != map.num_axes) fail("%s a tile by %lld coordinates of %lld axes.", does, num_axes, map.num_axes);
  if (map.itemsize != tile.itemsize)
    fail("%s %s of %lld bytes an element, by a map of %lld.", does, tile.name, tile.itemsize, map.itemsize);
  const int64 index = tile.first / tile.itemsize;
  check_bounds(index + map.numel() - 1, tile.numel, tile.name, does);
  const int64 multiple = map.swizzles ? 1024 : 128;
  if (tile.first % multiple)
    fail("%s %s[%lld], which begins at byte %lld, no multiple of %lld.", does, tile.name, index, tile.first, multiple);
  TileWork work = {map, tile, {}};
  for (int64 axis = 0; axis < num_axes; axis++) work.start[axis] = start[axis];
  return work;
}

// ---- copies to tiles ----
static TileWork tile_copies[MOST_BULK_COPIES];
static uint64 used_copies[MOST_BULK_COPIES / 64];

// A float32 as TF32, to nearest, ties to even; of a NaN another. So an H100 did it (2026-11).
static float32 rounded_to_tf32(float32 value) {
  const uint32 bits = bitcast<uint32>(value);
  return float32_of_bits(value != value ? 0x7fffe000u : (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu);
}

static void arrive_tile(const BulkCopy& copy) {
  const TileWork& work = tile_copies[copy.work];
  visit_box(work.map, work.start, work.tile.first, [&](int64 at, const char* source) {
    if (source && work.map.rounds) *(float32*)(work.tile.bytes + at) = rounded_to_tf32(*(const float32*)source);
    else if (source) memcpy(work.tile.bytes + at, source, (size_t)work.map.itemsize);
    else memset(work.tile.bytes + at, 0, (size_t)work.map.itemsize);
  });
  used_copies[copy.work / 64] &= ~(1ull << copy.work % 64);
}

// is_again: what it brings has been brought to another block by the same instruction.
void start_tile_copy(const Tile& tile, const TileMap& map, const MBarrier& barrier, const int32* start,
                            int64 num_axes, int32 line, bool is_again) {
  const TileWork work = check_box(map, tile, start, num_axes, "copies to");
  int64 place = 0;
  while (place < MOST_BULK_COPIES - 1 && used_copies[place / 64] >> place % 64 & 1) place++;
  start_bulk_copy(barrier, map.numel() * map.itemsize, place, arrive_tile, line);
  used_copies[place / 64] |= 1ull << place % 64;
  tile_copies[place] = work;
  if (!is_again) COUNT_BOX(TILE_LOADS, nullptr, 0);
  visit_box(map, work.start, tile.first, [&](int64 at, const char* source) {
    COUNT_BOX(TILE_LOADS, is_again ? nullptr : source, tile.itemsize);
    const int64 index = at / tile.itemsize;
    note_bulk_write(tile.cells[index], tile.name, index, (int32)barrier.actor, barrier.phase + 1);
  });
}

// ---- stores of tiles ----
// Of a thread: what it has started, and into which groups that went. actor: -1 before the first.
struct TileStore {
  TileWork work;
  int64 group, thread;
};
struct Storer {
  int32 actor;
  int64 num_groups, num_done;
};
static const int64 MOST_STORES = 64;
static TileStore stores[MOST_STORES];
static int64 num_stores;
static int32 num_storers;
static Storer storers[MAX_THREADS];

static void begin_stores() {
  num_stores = num_storers = 0;
  for (Storer& storer : storers) storer = {-1, 0, 0};
  for (uint64& word : used_copies) word = 0;
}

void start_store(const Tile& tile, const TileMap& map, const int32* start, int64 num_axes) {
  begin_clocks();
  const int64 thread = thread_number(running);
  Storer& own = storers[thread];
  const TileWork work = check_box(map, tile, start, num_axes, "stores from");
  if (own.actor < 0 && num_storers == MOST_STORERS) fail("more than %d threads of a block store tiles.", MOST_STORERS);
  if (own.actor < 0) own.actor = FIRST_STORER + num_storers++;
  if (num_stores == MOST_STORES) fail("a block has more than %lld stores on their way.", MOST_STORES);
  stores[num_stores++] = {work, own.num_groups, thread};
  COUNT_BOX(TILE_STORES, nullptr, 0);
  visit_box(map, work.start, tile.first, [&](int64 at, const char* target) {
    COUNT_BOX(TILE_STORES, target, tile.itemsize);
    const int64 index = at / tile.itemsize;
    note_bulk_read(tile.cells[index], tile.name, index, own.actor, (uint32)own.num_groups + 1, own_knowledge(), "stores from");
  });
}

void commit_own_stores() {
  begin_clocks();
  storers[thread_number(running)].num_groups++;
}

// Runs the stores of all but the last `still` groups of the thread, which then knows that they have read their tiles.
void finish_stores(int64 still) {
  begin_clocks();
  const int64 thread = thread_number(running);
  Storer& own = storers[thread];
  int64 left = 0;
  for (int64 n = 0; n < num_stores; n++) {
    const TileStore& store = stores[n];
    if (store.thread != thread || store.group >= own.num_groups - still) {
      stores[left++] = store;
      continue;
    }
    visit_box(store.work.map, store.work.start, store.work.tile.first, [&](int64 at, char* target) {
      if (target) memcpy(target, store.work.tile.bytes + at, (size_t)store.work.map.itemsize);
    });
  }
  num_stores = left;
  if (own.actor >= 0 && own.num_groups > still) own_knowledge().known.at[own.actor] = (uint32)(own.num_groups - still);
}

static void check_products_are_done();
static void check_thread_is_done() {
  check_products_are_done();
  for (int64 n = 0; n < num_stores; n++)
    if (stores[n].thread == thread_number(running)) fail("ends while it stores from %s.", stores[n].work.tile.name);
}

}  // namespace cudasim

#endif
