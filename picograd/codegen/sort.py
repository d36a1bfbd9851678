"""A stable argsort on a GPU, and the parts that it shares with a CPU's. A NaN counts as the largest value; equal keys keep
their order.

Ranks: a thread has an element. Its place in two merged runs is its own place plus the number of elements of the
other run come before it: a binary search, and no element waits for another (Satish, Harris, Garland 2009, "Designing
efficient sorting algorithms for manycore GPUs", section 5). A block sorts a tile in shared memory; longer runs are merged
in memory. Cost: n log2(n)^2 / 2 comparisons, log2(n / tile) + 1 phases.

    keys  1 3 | 0 2      of the left run:   1 has one before it on the right, 3 two      places 0 + 1, 1 + 2
                         of the right run:  0 has none on the left, 2 one                places 0 + 0, 1 + 1

Few first places: each of the first K elements is in one of the K groups whose own first elements come first. A
thread has a group in registers; the first elements of groups are sorted, then all elements of K groups. A row of several
tiles keeps K elements of each tile, which are sorted in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.index import element_within
from picograd.codegen.loops import grid_of_threads
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.dtype import DType
from picograd.ir.build import and_, bitcast, both, cast, combined, compare, differs, either, equal, shl, shr, where
from picograd.ir.op import Dim, Op, Shape, const, greatest
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import Coords, add, ceildiv, flatten, from_op, less, minimum, mod, mul, subtract, to_op, unflatten
from picograd.record import Record

POSITION_BITS = 32
LAST = (1 << 63) - 1  # comes after all keys

Put = Callable[[Dim, Op, Op], None]  # (place, key, position)


# ---- tables and comparisons ----
class Tables(Record):
    """Two tables of keys and of positions; a pass reads one of them and writes the other.

    keys, positions:  memory of rows x 2 x length elements; no positions if keys contain them
    first:            index of the first element of this row
    length:           length of a table
    """

    keys: Op
    positions: Op | None
    first: Dim
    length: Dim

    def at(self, table: Dim, index: Dim) -> Dim:
        """Returns the place of an element of one of the two tables."""
        return add(self.first, add(mul(table, self.length), index))


def comes_before(key: Op, other: Op, descending: bool) -> Op:
    """True if `key` must come before an `other` that was earlier: it is smaller, or greater when descending."""
    small, great = (other, key) if descending else (key, other)
    is_less = compare(OpCode.CMPLT, small, great)
    if not key.dtype.is_float:
        return is_less
    return either(is_less, both(differs(great, great), equal(small, small)))


def key_dtype(dtype: DType) -> DType:
    """Returns the dtype in which keys are compared: float32 for floats of 8 and 16 bits, which it holds exactly."""
    return dtype.compute_dtype


def int64(value: int) -> Op:
    """Returns a constant key or position."""
    return const(value, dtypes.int64)


def at_most(side: Op, last: Op) -> Op:
    """Returns the smaller of two positions, compared as unsigned integers, so that it is never below 0."""
    return bitcast(combined(OpCode.MIN, unsigned(side), unsigned(last)), dtypes.int64)


def unsigned(x: Op) -> Op:
    """Returns the bits of an integer as an unsigned one."""
    return const(x.arg, dtypes.uint64) if x.code is OpCode.CONST else bitcast(x, dtypes.uint64)


# ---- keys ----
def ordered(key: Op, descending: bool) -> Op:
    """Returns an integer for a key, such that integers have the order of keys.

    The bits of a float, as an integer, grow with it if it is not negative, and fall if it is. NaN comes last.
    """
    if key.dtype.is_float:
        key = cast(key, dtypes.float64 if key.dtype is dtypes.float64 else dtypes.float32)
        kind, magnitude, nan = BITS[key.dtype]
        bits = bitcast(key, kind)
        by_sign = where(compare(OpCode.CMPLT, bits, 0), -and_(bits, magnitude), bits)
        key = where(differs(key, key), const(nan, kind), by_sign)
    is_unsigned, kind = key.dtype in (dtypes.uint32, dtypes.uint64), key.dtype
    key = cast(key, dtypes.int64) if kind is not dtypes.uint64 else bitcast(key, dtypes.int64)
    if is_unsigned:  # as signed integers, half of them are negative
        key = key + (-1 << 63) if kind is dtypes.uint64 else key - (1 << 31)
    return const(-1, dtypes.int64) - key if descending else key


BITS = {  # for a float: the integer of as many bits, all bits except the sign's, the bits of a NaN
    dtypes.float32: (dtypes.int32, 0x7FFFFFFF, 0x7FC00000),
    dtypes.float64: (dtypes.int64, 0x7FFFFFFFFFFFFFFF, 0x7FF8000000000000),
}


def packed(key: Op, position: Dim, descending: bool) -> Op:
    """Returns one integer for a key of 32 bits or fewer and its position, with the order of both."""
    return shl(ordered(key, descending), POSITION_BITS) + to_op(position)


class RowsAlong(Record):
    """The rows of a tensor along an axis, numbered by its other axes."""

    axis: int
    others: Shape

    @staticmethod
    def of(shape: Shape, axis: int) -> RowsAlong:
        return RowsAlong(axis, (*shape[:axis], *shape[axis + 1 :]))

    @property
    def count(self) -> Dim:
        return numel(self.others)

    def at(self, row: Dim, i: Dim) -> Coords:
        """Returns the coordinates of an element of a row."""
        others = unflatten(row, self.others)
        return (*others[: self.axis], i, *others[self.axis :])


def rank_inside(ranks: Op, at: Sequence[Dim], length: Dim) -> Op:
    """Returns a rank, or the nearest that exists."""
    wanted = cast(element_within(ranks, tuple(at)), dtypes.int64)
    return combined(OpCode.MAX, combined(OpCode.MIN, wanted, to_op(subtract(length, 1))), int64(0))


def stored_in(build: Builder, tables: Tables, table: Dim) -> Put:
    """Returns the function that stores a key and its position in a table."""

    def put(place: Dim, key: Op, position: Op) -> None:
        build.store(tables.keys, tables.at(table, place), key)
        if tables.positions is not None:
            build.store(tables.positions, tables.at(table, place), position)

    return put


# ---- on a GPU: merging by ranks ----
THREAD_ELEMENTS_MAX = 8  # with 4-byte keys 256 threads then fill the shared memory that a function may declare

Key = Callable[[Dim, Dim], Op]  # (row, place) -> an integer that has the order of the elements
PutFirst = Callable[[Builder, Dim, Dim, Op], None]  # (row, place, such an integer)
Phase = Callable[[int], Builder]  # the builder of each phase
Keep = Callable[[Builder, Dim, Dim, Callable[[], Op], Op], None]  # (row, place, a function that reads its key, position)


def emit_sort_gpu(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, target, scratch = context.params, context.target, context.scratch
    phase = context.phase
    anchor = nest.anchor
    (x,), (axis, descending, *_) = anchor.src, anchor.arg
    out, rows, count = params[nest.outputs[0][0]], RowsAlong.of(x.shape, axis), anchor.shape[axis]

    def keep(build: Builder, row: Dim, place: Dim, key: Callable[[], Op], position: Op) -> None:
        with build.when(True if count == x.shape[axis] else less(place, count)):
            build.store(out, flatten(rows.at(row, place), anchor.shape), position)

    Sorted(x, axis, descending, keep, target, scratch).emit(phase)


def emit_ranks_gpu(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the element whose rank is ranks[..., i, ...]."""
    anchor, scratch = nest.anchor, context.scratch
    (x, ranks), (axis, descending) = anchor.src, anchor.arg
    out, order, length = context.params[nest.outputs[0][0]], scratch(dtypes.int64, numel(x.shape)), x.shape[axis]

    def keep(build: Builder, row: Dim, place: Dim, key: Callable[[], Op], position: Op) -> None:
        build.store(order, add(mul(row, length), place), position)

    num_phases = Sorted(x, axis, descending, keep, context.target, scratch).emit(context.phase)
    build, count, rows = context.phase(num_phases), anchor.shape[axis], RowsAlong.of(x.shape, axis)
    with grid_of_threads(build, mul(rows.count, count), context.target) as position:
        row, i = unflatten(position, [rows.count, count])
        here = rows.at(row, i)
        rank = from_op(rank_inside(ranks, here, length))
        build.store(out, flatten(here, anchor.shape), build.load(order, add(mul(row, length), rank)))


class Sorted:
    """Rows of x along an axis, stably sorted.

    keep:    stores a place of a sorted row
    tile:    elements that a block sorts
    tables:  tables of the rows in memory; None if a tile is a whole row
    """

    def __init__(self, x: Op, axis: int, descending: bool, keep: Keep, target: Target, scratch: Scratch):
        self.x, self.axis, self.descending, self.keep, self.target = x, axis, descending, keep, target
        self.rows, self.length = RowsAlong.of(x.shape, axis), x.shape[axis]
        self.dtype = key_dtype(self.x.dtype)
        self.tile = tile_of(greatest(self.length), self.dtype.itemsize, target)
        self.tables: tuple[Op, Op] | None = None
        if greatest(self.length) > self.tile:
            total = mul(self.rows.count, mul(2, self.length))
            self.tables = scratch(self.dtype, total), scratch(dtypes.int64, total)

    def emit(self, phase: Phase) -> int:
        """Writes all phases; returns their number."""
        self.sort_tiles(phase(0))
        num_merges = max(0, ceildiv(greatest(self.length), self.tile) - 1).bit_length()
        for number in range(num_merges):
            self.merge_runs(phase(number + 1), number, number + 1 == num_merges)
        return 1 + num_merges

    def in_memory(self, row: Dim) -> Tables:
        """Returns the tables of a row."""
        assert self.tables is not None
        return Tables(*self.tables, mul(row, mul(2, self.length)), self.length)

    def sort_tiles(self, build: Builder) -> None:
        """Writes the phase that sorts each tile in shared memory, in two tables in turn."""
        num_tiles = ceildiv(self.length, self.tile)
        with build.loop(mul(self.rows.count, num_tiles), AxisKind.GRID) as block:
            row, number = unflatten(block, [self.rows.count, num_tiles])
            first = mul(number, self.tile)
            count = minimum(subtract(self.length, first), self.tile)
            keys, positions = (build.alloc(t, 2 * self.tile, MemorySpace.SHARED) for t in (self.dtype, dtypes.int64))
            tables = Tables(keys, positions, 0, self.tile)
            threads = min(self.target.block_threads, self.tile)
            with build.loop(threads, AxisKind.BLOCK) as thread:
                most = min(self.tile, greatest(self.length))  # a shorter row has fewer elements for a thread
                own = Own(thread, threads, most)
                own.each(build, count, lambda i: self.fill(build, row, first, i, tables))
                build.barrier()
                last = sort_by_ranks(build, tables, own, most, count, self.descending)
                own.each(build, count, lambda i: self.leave(build, row, first, i, tables, last))

    def fill(self, build: Builder, row: Dim, first: Dim, i: Dim, tables: Tables) -> None:
        """Reads a key."""
        position = add(first, i)
        key = element_within(self.x, self.rows.at(row, position))
        stored_in(build, tables, 0)(i, cast(key, self.dtype), to_op(position))

    def leave(self, build: Builder, row: Dim, first: Dim, i: Dim, tables: Tables, table: int) -> None:
        """Writes the element at a place of a sorted tile."""
        assert tables.positions is not None
        position = build.load(tables.positions, tables.at(table, i))
        if self.tables is None:
            self.keep(build, row, i, lambda: build.load(tables.keys, tables.at(table, i)), position)
        else:
            key = build.load(tables.keys, tables.at(table, i))
            stored_in(build, self.in_memory(row), 0)(add(first, i), key, position)

    def merge_runs(self, build: Builder, number: int, is_last: bool) -> None:
        """Writes the phase that merges pairs of runs of 2 ** number tiles."""
        exponent = number + self.tile.bit_length() - 1
        with grid_of_threads(build, mul(self.rows.count, self.length), self.target) as position:
            row, i = unflatten(position, [self.rows.count, self.length])
            tables = self.in_memory(row)

            def put_kept(place: Dim, key: Op, found: Op) -> None:
                self.keep(build, row, place, lambda: key, found)

            into = put_kept if is_last else stored_in(build, tables, (number + 1) % 2)
            merged(build, tables, number % 2, self.length, exponent, i, self.descending, into)


class Own(Record):
    """A thread's elements of a tile; neighbouring elements belong to neighbouring threads."""

    thread: Dim
    threads: int
    tile: int

    def each(self, build: Builder, count: Dim, body: Callable[[Dim], None]) -> None:
        """Runs body(i) for the thread's elements among the first `count`."""
        with build.loop(ceildiv(self.tile, self.threads), AxisKind.LOOP) as number:
            i = add(mul(number, self.threads), self.thread)
            with build.when(less(i, count)):
                body(i)


def sort_by_ranks(build: Builder, tables: Tables, own: Own, most: int, count: Dim, descending: bool) -> int:
    """Sorts the `count` elements of a block's table, at most `most`; returns the table in which they end."""
    num_passes = max(0, most - 1).bit_length()
    with build.loop(num_passes, AxisKind.LOOP) as turn:
        source, into = mod(turn, 2), stored_in(build, tables, mod(add(turn, 1), 2))
        own.each(build, count, lambda i: merged(build, tables, source, count, turn, i, descending, into))
        build.barrier()
    return num_passes % 2


def tile_of(length: int, key_nbytes: int, target: Target) -> int:
    """Returns the number of elements that a block sorts: a power of two whose two tables fit in shared memory."""
    tile, room = THREAD_ELEMENTS_MAX * target.block_threads, min(target.shared_bytes, DECLARED_SHARED_BYTES)
    while 2 * tile * (key_nbytes + dtypes.int64.itemsize) > room or tile // 2 >= max(2, length):
        tile //= 2
    return tile


def halve(build: Builder, low: Op, high: Op, is_before: Callable[[Op], Op]) -> None:
    """Halves the interval low <= i <= high of a binary search; is_before(i): element i comes before the wanted one."""
    a, b = build.load(low, 0), build.load(high, 0)
    half = shr(a + b, 1)
    is_behind = both(compare(OpCode.CMPLT, a, b), is_before(half))
    build.store(low, 0, where(is_behind, half + int64(1), a))
    build.store(high, 0, where(is_behind, b, half))


def merged(
    build: Builder, tables: Tables, source: Dim, length: Dim, exponent: Dim, i: Dim, descending: bool, put: Put
) -> None:
    """Writes one element at its place in the merge of its run of 2 ** exponent elements and the neighbouring run.

    Args:
      source:  the table that is read
      length:  number of elements
    """
    pair = to_op(add(exponent, 1))
    start = shl(shr(to_op(i), pair), pair)
    width, end = shl(const(1, dtypes.int64), to_op(exponent)), to_op(length)
    middle = combined(OpCode.MIN, start + width, end)
    stop = combined(OpCode.MIN, middle + width, end)
    is_left = compare(OpCode.CMPLT, to_op(i), middle)
    low, high = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))
    build.store(low, 0, where(is_left, middle, start))
    build.store(high, 0, where(is_left, stop, middle))
    key, last = build.load(tables.keys, tables.at(source, i)), to_op(subtract(length, 1))

    def is_before(place: Op) -> Op:
        other = build.load(tables.keys, tables.at(source, from_op(at_most(place, last))))
        return where(is_left, comes_before(other, key, descending), differs(comes_before(key, other, descending), True))

    with build.loop(add(exponent, 1), AxisKind.LOOP):  # low <= the wanted place <= high
        halve(build, low, high, is_before)
    place = to_op(i) + build.load(low, 0) - middle
    position = key if tables.positions is None else build.load(tables.positions, tables.at(source, i))
    put(from_op(at_most(place, last)), key, position)


# ---- on a GPU: few first places ----
GROUP_ELEMENTS_MAX = 16  # elements of a thread, in registers
CANDIDATES_MAX = 1024  # elements of groups that are sorted; with the groups' first ones they fit in shared memory twice
THREADS_MIN = 32  # a warp


def keeps_few(nest: Nest, target: Target) -> bool:
    """True if few first places of a row are wanted, and a key and its position fit one integer."""
    (x, *_), (axis, _, *count) = nest.anchor.src, nest.anchor.arg
    length = x.shape[axis]
    if not target.is_gpu or not any(count) or not isinstance(length, int) or x.dtype.compute_dtype.itemsize > 4:
        return False
    threads, _ = groups_of(length, count[0], target)
    return bool(2 * count[0] <= threads and SORTED_ROW_PARTS_MIN * count[0] <= length < 1 << POSITION_BITS)


SORTED_ROW_PARTS_MIN = 8  # first places are few if they are at most one in that many elements of a row


def groups_of(length: int, count: int, target: Target) -> tuple[int, int]:
    """Returns the threads of a block, and the elements of each, for a row of that length."""
    threads = THREADS_MIN
    while threads < target.block_threads and threads < max(2 * count, length / SORTED_ROW_PARTS_MIN):
        threads *= 2
    most, each = min(GROUP_ELEMENTS_MAX, CANDIDATES_MAX // count), 1
    while 2 * each <= most and threads * each < length:
        each *= 2
    return threads, each


def emit_first_places(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element, for few i."""
    anchor = nest.anchor
    (x,), (axis, descending, count) = anchor.src, anchor.arg
    out, rows, length = context.params[nest.outputs[0][0]], RowsAlong.of(x.shape, axis), x.shape[axis]
    assert isinstance(length, int), "keeps_few"

    def element(row: Dim, i: Dim) -> Op:
        return packed(element_within(x, rows.at(row, i)), i, descending)

    def put(build: Builder, row: Dim, i: Dim, value: Op) -> None:
        position = and_(value, (1 << POSITION_BITS) - 1)
        build.store(out, flatten(rows.at(row, i), anchor.shape), position)

    number = 0
    key: Key = element
    while True:
        threads, each = groups_of(length, count, context.target)
        tiles = ceildiv(length, threads * each)
        firsts = FirstPlaces(rows.count, length, count, threads, each, tiles)
        if tiles == 1:
            firsts.emit(context.phase(number), key, put)
            return
        number, length = number + 1, tiles * count
        left = context.scratch(dtypes.int64, mul(rows.count, length))
        key = firsts.leave(context.phase(number - 1), key, left)


class FirstPlaces(Record):
    """The first `count` elements of each tile of each row, as integers that have the elements' order.

    threads:  threads of a block; each has a group: every threads-th element of the tile
    each:     elements of a group
    tiles:    tiles of a row
    """

    rows: Dim
    length: int
    count: int
    threads: int
    each: int
    tiles: int

    def leave(self, build: Builder, key: Key, left: Op) -> Key:
        """Writes them to memory, tile by tile; returns the function that reads them."""
        length = self.tiles * self.count
        self.emit(build, key, lambda build, row, i, value: build.store(left, add(mul(row, length), i), value))
        return lambda row, i: read(left, add(mul(row, length), i))

    def emit(self, build: Builder, key: Key, put: PutFirst) -> None:
        """Writes the phase: a block for each tile."""
        most = self.count * self.each
        with build.loop(mul(self.rows, self.tiles), AxisKind.GRID) as block:
            row, tile = unflatten(block, [self.rows, self.tiles])
            memories = [build.alloc(dtypes.int64, 2 * length, MemorySpace.SHARED) for length in (self.threads, most)]
            firsts, candidates = (Tables(memory, None, 0, memory.arg[1] // 2) for memory in memories)
            with build.loop(self.threads, AxisKind.BLOCK) as thread:
                group, of_candidates = Own(thread, self.threads, self.threads), Own(thread, self.threads, most)
                elements, first = self.read(build, lambda i: key(row, i), mul(tile, self.threads * self.each), thread)
                build.store(firsts.keys, firsts.at(0, thread), first)
                of_candidates.each(build, most, lambda i: build.store(candidates.keys, candidates.at(0, i), int64(LAST)))
                build.barrier()
                table = sort_by_ranks(build, firsts, group, self.threads, self.threads, False)
                self.choose(build, firsts, table, elements, first, candidates)
                build.barrier()
                table = sort_by_ranks(build, candidates, of_candidates, most, most, False)

                def store(i: Dim) -> None:
                    value = build.load(candidates.keys, candidates.at(table, i))
                    put(build, row, add(mul(tile, self.count), i), value)

                Own(thread, self.threads, self.count).each(build, self.count, store)

    def read(self, build: Builder, key: Callable[[Dim], Op], start: Dim, thread: Dim) -> tuple[Op, Op]:
        """Loads a thread's group to registers; returns these, and the element that comes first."""
        elements = build.alloc(dtypes.int64, self.each, MemorySpace.REGISTER)
        first = build.alloc(dtypes.int64, 1, MemorySpace.REGISTER)
        build.store(first, 0, int64(LAST))
        with build.loop(self.each, AxisKind.UNROLL) as number:
            i = add(start, add(mul(number, self.threads), thread))
            inside, value = less(i, self.length), key(minimum(i, self.length - 1))
            build.store(elements, number, where(inside, value, int64(LAST)) if isinstance(inside, Op) else value)
            smaller = combined(OpCode.MIN, build.load(first, 0), build.load(elements, number))
            build.store(first, 0, smaller)
        return elements, build.load(first, 0)

    def choose(self, build: Builder, firsts: Tables, table: int, elements: Op, first: Op, candidates: Tables) -> None:
        """Adds the groups of threads whose first element is among the first ones to the candidates, at their rank.

        An empty group is left out: several of them would have the same rank.
        """
        last = build.load(firsts.keys, firsts.at(table, self.count - 1))
        is_chosen = both(differs(compare(OpCode.CMPLT, last, first), True), compare(OpCode.CMPLT, first, int64(LAST)))
        low, high = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))

        def is_before(rank: Op) -> Op:
            other = build.load(firsts.keys, firsts.at(table, from_op(at_most(rank, int64(self.count - 1)))))
            return compare(OpCode.CMPLT, other, first)

        with build.when(is_chosen):
            build.store(low, 0, int64(0))
            build.store(high, 0, int64(self.count - 1))
            with build.loop((self.count - 1).bit_length(), AxisKind.LOOP):  # low <= the rank <= high
                halve(build, low, high, is_before)
            rank = from_op(at_most(build.load(low, 0), int64(self.count - 1)))
            with build.loop(self.each, AxisKind.UNROLL) as number:
                place = candidates.at(0, add(mul(rank, self.each), number))
                build.store(candidates.keys, place, build.load(elements, number))
