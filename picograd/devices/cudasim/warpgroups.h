// Products that the matrix unit of the simulated GPU adds up beside the threads of a warpgroup: wgmma.
//
// Included by simulator.cpp. A product is done when the first of its 128 threads waits for its group, and not before: a kernel
// that gives its tiles to a copy too early, or touches what it adds to, is stopped.

#ifndef PICOGRAD_CUDASIM_WARPGROUPS_H
#define PICOGRAD_CUDASIM_WARPGROUPS_H

namespace cudasim {

static const int64 PRODUCT_ROWS = 64, MOST_DEPTH = 16, PRODUCT_BYTES = 32, MOST_COLUMNS = 256, MOST_PRODUCTS = 32;
static const int64 ACROSS_ROWS = 64;  // of 16 bits, in 128 bytes

int64 Operand::byte_of(int64 row, int64 k) const {
  const int64 line = is_across ? k : row, in_line = is_across ? row % ACROSS_ROWS : k;
  return tile.first + line / 8 * 1024 + line % 8 * SWIZZLE_BYTES + in_line * tile.itemsize +
         (is_across ? row / ACROSS_ROWS * next : 0);
}
int64 Operand::index_of(int64 row, int64 k) const { return swizzled(byte_of(row, k)) / tile.itemsize; }
int64 Operand::depth() const { return PRODUCT_BYTES / tile.itemsize; }

// left: threads that have not been told that it is done.
struct Product {
  Part parts[WARPGROUP_THREADS];
  int64 group, left;
  bool is_done;
};
struct Warpgroup {
  Product products[MOST_PRODUCTS];
  int64 first, num_issued;
};
// Of a thread. next: the first product that it has not been told of.
struct Issuer {
  int64 num_issued, num_groups, next;
  bool has_fenced;
};
static Warpgroup warpgroups[MOST_WARPGROUPS];
static Issuer issuers[MAX_THREADS];
static Part brought[MAX_THREADS];

static void begin_products() {
  for (Warpgroup& warpgroup : warpgroups) warpgroup.first = warpgroup.num_issued = 0;
  for (Issuer& issuer : issuers) issuer = {0, 0, 0, false};
}
static Warpgroup& own_warpgroup() { return warpgroups[thread_number(running) / WARPGROUP_THREADS]; }
static int32 warpgroup_actor() { return FIRST_WARPGROUP + (int32)(thread_number(running) / WARPGROUP_THREADS); }

// ---- starting ----
static void check_operand(const Operand& operand, int64 rows, const char* which) {
  const Tile& tile = operand.tile;
  if (operand.is_across) {
    if (tile.first % 1024 || operand.next % 1024)
      fail("%s of a wgmma begins at byte %lld of %s, across K: no 8 of K are there.", which, tile.first, tile.name);
    check_bounds(operand.byte_of(rows - 1, operand.depth() - 1) / tile.itemsize, tile.numel, tile.name, "a wgmma reads");
    return;
  }
  if (tile.first % 16 || tile.first / SWIZZLE_BYTES % 8 || tile.first % SWIZZLE_BYTES + PRODUCT_BYTES > SWIZZLE_BYTES)
    fail("%s of a wgmma begins at byte %lld of %s: no %lld of K are there in the first of 8 rows.", which, tile.first, tile.name,
         operand.depth());
  check_bounds((tile.first / 1024 * 1024 + rows / 8 * 1024 - 1) / tile.itemsize, tile.numel, tile.name, "a wgmma reads");
}

static void note_operand(const Operand& operand, int64 rows, uint32 count, const Knowledge& of) {
  for (int64 row = 0; row < rows; row++) {
    for (int64 k = 0; k < operand.depth(); k++) {
      const int64 index = operand.index_of(row, k);
      note_bulk_read(operand.tile.cells[index], operand.tile.name, index, warpgroup_actor(), count, of, "a wgmma reads");
    }
  }
}

// Adds the product that all threads of the warpgroup have brought to those on their way.
static void issue(int64 first, int64 group) {
  Warpgroup& warpgroup = own_warpgroup();
  if (warpgroup.num_issued - warpgroup.first == MOST_PRODUCTS) fail("has more than %lld wgmmas on their way.", MOST_PRODUCTS);
  Product& product = warpgroup.products[warpgroup.num_issued++ % MOST_PRODUCTS];
  static Knowledge of;  // what all of them know
  of = knowledge[first];
  for (int64 i = 0; i < WARPGROUP_THREADS; i++) {
    product.parts[i] = brought[first + i];
    const Part &part = product.parts[i], &one = product.parts[0];
    if ((part.pairs == nullptr) != (one.pairs == nullptr) ||
        (!one.pairs && part.lhs.tile.bytes + part.lhs.tile.first != one.lhs.tile.bytes + one.lhs.tile.first) ||
        part.rhs.tile.bytes + part.rhs.tile.first != one.rhs.tile.bytes + one.rhs.tile.first || part.adds != one.adds)
      fail("gives a wgmma other operands than thread %lld.", in_block(first + i));
    of.known.meet(knowledge[first + i].known);
    of.seen.meet(knowledge[first + i].seen);
  }
  product.group = group;
  product.left = WARPGROUP_THREADS;
  product.is_done = false;
  const Part& part = product.parts[0];
  COUNT_MORE(WGMMAS, 1);
  COUNT_MORE(WGMMA_COLUMNS, part.columns);
  COUNT_MORE(SHARED_BYTES, ((part.pairs ? 0 : PRODUCT_ROWS) + part.columns) * PRODUCT_BYTES);
  if (!part.pairs) note_operand(part.lhs, PRODUCT_ROWS, (uint32)group + 1, of);
  note_operand(part.rhs, part.columns, (uint32)group + 1, of);
}

void check_pairs(const Holds* holds, const char* name, int64 place, int64 numel) {
  check_bounds(place, numel, name, "a wgmma reads");
  check_bounds(place + 3, numel, name, "a wgmma reads");
  for (int64 i = place; i < place + 4; i++) {
    if (holds[i] == NOTHING) fail("a wgmma reads %s[%lld], which this thread has not written.", name, i);
    if (holds[i] == WRITTEN) fail("a wgmma reads %s[%lld], written with no wgmma_fence behind it.", name, i);
  }
}

void start_product(const Part& part, const char* name, int64 at, int64 numel, int32 line) {
  begin_clocks();
  const int64 thread = thread_number(running), first = thread - thread % WARPGROUP_THREADS, count = part.columns / 2;
  Issuer& own = issuers[thread];
  check_bounds(at, numel, name, "a wgmma adds to");
  check_bounds(at + count - 1, numel, name, "a wgmma adds to");
  if (!part.pairs) check_operand(part.lhs, PRODUCT_ROWS, "lhs");
  check_operand(part.rhs, part.columns, "rhs");
  if (!own.has_fenced) fail("starts a wgmma before any wgmma_fence.");
  for (int64 i = 0; i < count; i++) {
    if (part.holds[i] == WRITTEN) fail("a wgmma adds to %s[%lld], written with no wgmma_fence behind it.", name, at + i);
    if (part.holds[i] == NOTHING && part.adds)
      fail("a wgmma adds to %s[%lld], which this thread has not written.", name, at + i);
  }
  brought[thread] = part;
  for (int64 i = 0; part.pairs && i < 4; i++) brought[thread].given[i] = part.pairs[i];
  wait(AT_PRODUCT, line);
  for (int64 i = 0; i < count; i++) part.holds[i] = BUSY;
  if (own_warpgroup().num_issued == own.num_issued) issue(first, own.num_groups);  // the first that goes on, for all
  own.num_issued++;
}

void show_registers(Holds* holds, const char* name, int64 at, int64 count, int64 numel) {
  begin_clocks();
  check_bounds(at, numel, name, "shows");
  check_bounds(at + count - 1, numel, name, "shows");
  for (int64 i = at; i < at + count; i++) holds[i] = holds[i] == WRITTEN ? SHOWN : holds[i];
  issuers[thread_number(running)].has_fenced = true;
}

void commit_products() { issuers[thread_number(running)].num_groups++; }

// ---- waiting ----
// PTX ISA, wgmma, register fragment D: element i of a thread is (16 warp + lane / 4 + 8 (i / 2 % 2),
// 8 (i / 4) + 2 (lane % 4) + i % 2).
// PTX ISA, wgmma, register fragment A: pair i of a thread is of row 16 warp + lane / 4 + 8 (i % 2), and of 8 (i / 2) + 2 (lane % 4) of K.
static float32 held_value(const Product& product, int64 row, int64 k) {
  const Part& part = product.parts[32 * (row / 16) + row % 8 * 4 + k % 8 / 2];
  const int64 i = row / 8 % 2 + k / 8 * 2;
  if (part.pairs[i] != part.given[i]) fail("a wgmma reads pairs that have been written since it was started.");
  const uint16 bits = (uint16)(part.given[i] >> 16 * (k % 2));
  return part.rhs.widen((const char*)&bits);
}

static void run_product(const Product& product) {
  static float32 lhs[PRODUCT_ROWS][MOST_DEPTH], rhs[MOST_COLUMNS][MOST_DEPTH];
  const Part& one = product.parts[0];
  const int64 depth = one.rhs.depth();
  auto value = [](const Operand& operand, int64 row, int64 k) {
    return operand.widen(operand.tile.bytes + operand.index_of(row, k) * operand.tile.itemsize);
  };
  for (int64 k = 0; k < depth; k++) {
    for (int64 row = 0; row < PRODUCT_ROWS; row++) lhs[row][k] = one.pairs ? held_value(product, row, k) : value(one.lhs, row, k);
    for (int64 column = 0; column < one.columns; column++) rhs[column][k] = value(one.rhs, column, k);
  }
  for (int64 thread = 0; thread < WARPGROUP_THREADS; thread++) {
    const int64 warp = thread / 32, lane = thread % 32;
    for (int64 i = 0; i < one.columns / 2; i++) {
      const int64 row = 16 * warp + lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      float32 sum = one.adds ? product.parts[thread].sums[i] : 0.0f;
      for (int64 k = 0; k < depth; k++) sum += lhs[row][k] * rhs[column][k];
      product.parts[thread].sums[i] = sum;
    }
  }
}

// Runs the products of all but the last `still` groups of the thread, if no other of its warpgroup has.
void finish_products(int64 still) {
  begin_clocks();
  const int64 thread = thread_number(running), own_part = thread % WARPGROUP_THREADS;
  Warpgroup& warpgroup = own_warpgroup();
  Issuer& own = issuers[thread];
  const int64 end = own.num_groups - still;
  for (; own.next < own.num_issued; own.next++) {
    Product& product = warpgroup.products[own.next % MOST_PRODUCTS];
    if (product.group >= end) break;
    if (!product.is_done) run_product(product);
    product.is_done = true;
    const Part& part = product.parts[own_part];
    for (int64 i = 0; i < part.columns / 2; i++) part.holds[i] = SHOWN;
    if (--product.left == 0) warpgroup.first++;
  }
  for (int64 n = own.next; n < own.num_issued; n++) {  // the same registers may be part of one that goes on
    const Part& part = warpgroup.products[n % MOST_PRODUCTS].parts[own_part];
    for (int64 i = 0; i < part.columns / 2; i++) part.holds[i] = BUSY;
  }
  uint32& known = own_knowledge().known.at[warpgroup_actor()];
  if (end > (int64)known) known = (uint32)end;
}

static void check_products_are_done() {
  const Issuer& own = issuers[thread_number(running)];
  if (own.next < own.num_issued) fail("ends while a wgmma is on its way.");
}

}  // namespace cudasim

#endif
