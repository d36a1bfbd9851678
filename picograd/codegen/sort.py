"""A stable argsort on a CPU and on a GPU. A NaN counts as the greatest value; equal keys keep their order.

Merging, on a CPU, of 64-bit keys and of lengths known only at run time: runs of 1, 2, 4, ... sorted positions are merged
two and two. Two tables take turns, and each has the key beside the position, so that a comparison reads contiguous
memory. Cost: n log2 n comparisons.

    keys    3 1 2 0      positions  0 1 2 3
    pass 0  1 3 0 2                 1 0 3 2
    pass 1  0 1 2 3                 3 1 2 0

A network of exchanges, on a CPU, of a known length and keys of 32 bits or fewer: the lanes of a vector are rows. Key and
position are packed into one integer of 64 bits, the key above, so that order of integers is the stable order. An exchange
is a minimum and a maximum; which two places it compares does not depend on values, so nothing is predicted and nothing
waits (Batcher, "Sorting networks and their applications", 1968: n log2(n)^2 / 4 exchanges).

    pass p merges runs of h = 2^p:   place t of the first run against place h - 1 - t of the second,
                                     then of each half, quarter, ... place t against the place s behind it

Exchanges over short distances are done block by block, so that a block stays in the first-level cache. A row that is too
long for that is cut into pieces, which the lanes take instead of rows; sorted, they are merged.

Ranks, on a GPU: a thread has an element. Its place in two merged runs is its own place plus how many elements of the
other run come before it: a binary search, and no element waits for another (Satish, Harris, Garland 2009, "Designing
efficient sorting algorithms for manycore GPUs", section 5). A block sorts a tile in shared memory; longer runs are merged
in memory. Cost: n log2(n)^2 / 2 comparisons, log2(n / tile) + 1 phases.

    keys  1 3 | 0 2      of the left run:   1 has one before it on the right, 3 two      places 0 + 1, 1 + 2
                         of the right run:  0 has none on the left, 2 one                places 0 + 0, 1 + 1

Few first places, on a GPU: of K elements that come first, each is in one of the K groups whose own firsts come first. A
thread has a group in registers; the threads' firsts are sorted, and then the elements of K groups. Of a row of several
tiles K are left of each, and go the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.index import element_within
from picograd.codegen.loops import grid_of_threads, split
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.dtype import DType
from picograd.ir.build import both, cast, compare, where
from picograd.ir.op import Dim, Op, const, greatest
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, flatten, floordiv, from_op, less, minimum, mod, mul, subtract, to_op
from picograd.record import Record


# ---- tables and comparisons ----
class Tables(Record):
    """Two tables of keys and of positions; a pass reads one of them and writes the other.

    keys, positions:  memory of rows x 2 x length elements; no positions where a key tells its own
    first:            index of the first element of this row
    length:           of a table
    """

    keys: Op
    positions: Op | None
    first: Dim
    length: Dim

    def at(self, table: Dim, index: Dim) -> Dim:
        """Returns the place of an element of one of the two tables."""
        return add(self.first, add(mul(table, self.length), index))


def comes_before(key: Op, other: Op, descending: bool) -> Op:
    """True where `key` must come before an `other` that was earlier: it is smaller, or greater when descending."""
    small, great = (other, key) if descending else (key, other)
    is_less = is_below(small, great)
    if not key.dtype.is_float:
        return is_less
    return one_of(is_less, both(compare(OpCode.CMPNE, great, great), compare(OpCode.CMPEQ, small, small)))


def key_dtype(dtype: DType) -> DType:
    """Keys of 8 and 16 bits of float are compared as float32, which holds them exactly."""
    return dtype.compute_dtype


def integer(code: OpCode, a: Op, b: Op) -> Op:
    """Returns an operation on two positions."""
    return Op(code, dtypes.int64, (a, b))


def at_most(side: Op, last: Op) -> Op:
    """Returns the smaller of two positions, compared as what they are: without a sign, so that it is never below 0."""
    smaller = Op(OpCode.MIN, dtypes.uint64, (_unsigned(side), _unsigned(last)))
    return Op(OpCode.BITCAST, dtypes.int64, (smaller,))


def _unsigned(x: Op) -> Op:
    return const(x.arg, dtypes.uint64) if x.code is OpCode.CONST else Op(OpCode.BITCAST, dtypes.uint64, (x,))


def is_below(a: Op, b: Op) -> Op:
    """Returns whether one is below the other."""
    return compare(OpCode.CMPLT, a, b)


def one_of(a: Op, b: Op) -> Op:
    """Returns whether one of two conditions holds."""
    return Op(OpCode.OR, dtypes.bool_, (a, b))


def negated(x: Op) -> Op:
    """Returns whether a condition does not hold."""
    return compare(OpCode.CMPNE, x, const(True, dtypes.bool_))


# ---- on a CPU: merging ----
def emit_sort(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, scratch = context.params, context.scratch
    build = context.phase(0)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending, *_) = anchor.src, anchor.arg
    rows, length = (*x.shape[:axis], *x.shape[axis + 1 :]), x.shape[axis]
    keys, positions = (scratch(t, mul(numel(rows), mul(2, length))) for t in (key_dtype(x.dtype), dtypes.int64))
    out = params[nest.outputs[0][0]]
    num_passes = max(0, greatest(length) - 1).bit_length()

    def sort_row(row: Dim) -> None:
        at = split(row, list(rows))
        tables = Tables(keys, positions, mul(row, mul(2, length)), length)
        with build.loop(length, AxisKind.LOOP) as i:
            key = element_within(x, (*at[:axis], i, *at[axis:]))
            build.store(keys, tables.at(0, i), cast(key, keys.dtype))
            build.store(positions, tables.at(0, i), i)
        with build.loop(num_passes, AxisKind.LOOP) as number:
            merge_runs(tables, number, number, descending, build)
        with build.loop(anchor.shape[axis], AxisKind.LOOP) as i:
            found = build.load(positions, tables.at(num_passes % 2, i))
            build.store(out, flatten((*at[:axis], i, *at[axis:]), anchor.shape), found)

    with build.loop(numel(rows), AxisKind.GRID) as row:
        sort_row(row)


def merge_runs(tables: Tables, number: Dim, turn: Dim, descending: bool, build: Builder) -> None:
    """Merges runs of 2 ** number elements of one table into the other, two and two.

    Args:
      turn: even where the first table is read, odd where the second is
    """
    source, target = mod(turn, 2), mod(add(turn, 1), 2)
    left, right = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))
    width = integer(OpCode.SHL, const(1, dtypes.int64), to_op(number))
    last = integer(OpCode.SUB, to_op(tables.length), const(1, dtypes.int64))
    with build.loop(tables.length, AxisKind.LOOP) as i:
        pair = integer(OpCode.ADD, to_op(number), const(1, dtypes.int64))
        start = integer(OpCode.SHL, integer(OpCode.SHR, to_op(i), pair), pair)
        with build.when(compare(OpCode.CMPEQ, start, to_op(i))):
            build.store(left, 0, start)
            build.store(right, 0, integer(OpCode.ADD, start, width))
        middle = integer(OpCode.MIN, integer(OpCode.ADD, start, width), to_op(tables.length))
        end = integer(OpCode.MIN, integer(OpCode.ADD, middle, width), to_op(tables.length))
        a, b = build.load(left, 0), build.load(right, 0)
        places = [tables.at(source, at_most(side, last)) for side in (a, b)]
        key_a, key_b = (build.load(tables.keys, place) for place in places)
        sooner = comes_before(key_b, key_a, descending)
        take_b = both(is_below(b, end), one_of(negated(is_below(a, middle)), sooner))
        build.store(tables.keys, tables.at(target, i), where(take_b, key_b, key_a))
        if tables.positions is not None:
            position_a, position_b = (build.load(tables.positions, place) for place in places)
            build.store(tables.positions, tables.at(target, i), where(take_b, position_b, position_a))
        step = cast(take_b, dtypes.int64)
        build.store(right, 0, integer(OpCode.ADD, b, step))
        build.store(left, 0, integer(OpCode.ADD, a, integer(OpCode.SUB, const(1, dtypes.int64), step)))


# ---- on a CPU: a network of exchanges ----
STACK_BYTES_MAX = 128 << 10  # of the rows that a thread sorts at once, on its stack: the second-level cache holds them
PIECE_ELEMENTS = 512  # elements of a longer row that a lane sorts
BLOCK_BYTES = 16 << 10  # of exchanges done together, half of a first-level cache
POSITION_BITS = 32
LAST = (1 << 63) - 1  # what comes after all keys


def has_network(nest: Nest, target: Target) -> bool:
    """True if the length is a number, and a key and its position fit one integer."""
    assert nest.anchor is not None
    (x,), axis = nest.anchor.src, nest.anchor.arg[0]
    length = x.shape[axis]
    is_known = isinstance(length, int) and 1 < length < 1 << POSITION_BITS
    return is_known and not target.is_gpu and x.dtype.compute_dtype.itemsize <= 4


def emit_sort_network(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, target, scratch = context.params, context.target, context.scratch
    build = context.phase(0)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending, *_) = anchor.src, anchor.arg
    length, count = x.shape[axis], anchor.shape[axis]
    assert isinstance(length, int) and isinstance(count, int), "has_network"
    rows = [*x.shape[:axis], *x.shape[axis + 1 :]]
    lanes = target.lanes(dtypes.int64) if numel(tuple(rows)) != 1 or length > PIECE_ELEMENTS else 1

    def key(row: Dim, i: Dim) -> Op:
        at = split(row, rows)
        return packed(element_within(x, (*at[:axis], i, *at[axis:])), i, descending)

    def put(row: Dim, i: Dim, value: Op) -> None:
        at = split(row, rows)
        position = _int(OpCode.AND, value, (1 << POSITION_BITS) - 1)
        build.store(params[nest.outputs[0][0]], flatten((*at[:axis], i, *at[axis:]), anchor.shape), position)

    if Network(length, lanes).nbytes <= STACK_BYTES_MAX and (numel(tuple(rows)) != 1 or lanes == 1):
        _sort_rows(numel(tuple(rows)), length, count, lanes, build, key, put)
    else:
        _sort_pieces(numel(tuple(rows)), length, count, lanes, build, scratch, key, put)


def packed(key: Op, position: Dim, descending: bool) -> Op:
    """Returns one integer for a key and its position: its order is theirs.

    A float's bits are an integer that grows with it, where it is not negative; else one that falls. NaN comes last.
    """
    if key.dtype.is_float:
        key = cast(key, dtypes.float32)
        bits = Op(OpCode.BITCAST, dtypes.int32, (key,))
        magnitude = Op(OpCode.AND, dtypes.int32, (bits, const(0x7FFFFFFF, dtypes.int32)))
        ordered = where(compare(OpCode.CMPLT, bits, 0), Op(OpCode.NEG, dtypes.int32, (magnitude,)), bits)
        key = where(compare(OpCode.CMPNE, key, key), const(0x7FC00000, dtypes.int32), ordered)
    is_wide = key.dtype is dtypes.uint32
    key = cast(key, dtypes.int64)
    if is_wide:
        key = _int(OpCode.SUB, key, 1 << 31)
    if descending:
        key = _int(OpCode.SUB, const(-1, dtypes.int64), key)
    return _int(OpCode.ADD, _int(OpCode.SHL, key, POSITION_BITS), to_op(position))


# ---- rows, or pieces of one ----
def _sort_rows(
    num_rows: Dim, length: int, count: int, lanes: int, build: Builder, key: Callable[[Dim, Dim], Op],
    put: Callable[[Dim, Dim, Op], None],
) -> None:  # fmt: skip
    """Sorts as many rows as there are lanes at a time; a lane that has none of its own repeats the last row.

    Args:
      count:  first places that are put
    """
    with build.loop(floordiv(add(num_rows, lanes - 1), lanes), AxisKind.GRID) as group:
        network = Network(length, lanes)
        memory = network.alloc(build)
        last = add(num_rows, -1)
        with build.loop(length, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
            row = minimum(add(mul(group, lanes), lane), last)
            build.store(memory, add(mul(i, lanes), lane), key(row, i))
        network.sort(build, memory)
        with build.loop(count, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
            row = minimum(add(mul(group, lanes), lane), last)
            put(row, i, build.load(memory, add(mul(i, lanes), lane)))


def _sort_pieces(
    num_rows: Dim, length: int, count: int, lanes: int, build: Builder, scratch: Scratch, key: Callable[[Dim, Dim], Op],
    put: Callable[[Dim, Dim, Op], None],
) -> None:  # fmt: skip
    """Sorts the pieces of a row, as many as there are lanes at a time, and merges them."""
    together = PIECE_ELEMENTS * lanes
    num_together = -(-length // together)
    whole = num_together * together  # what is behind the row comes last
    keys = scratch(dtypes.int64, mul(num_rows, 2 * whole))
    num_passes = (whole // PIECE_ELEMENTS - 1).bit_length()
    with build.loop(num_rows, AxisKind.GRID) as row:
        tables = Tables(keys, None, mul(row, 2 * whole), whole)
        network = Network(PIECE_ELEMENTS, lanes)
        memory = network.alloc(build)
        with build.loop(num_together, AxisKind.LOOP) as number:
            first = mul(number, together)

            def place(i: Dim, lane: Dim, first: Dim = first) -> Dim:
                return add(first, add(mul(lane, PIECE_ELEMENTS), i))

            with build.loop(PIECE_ELEMENTS, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                at = place(i, lane)
                value = key(row, minimum(at, length - 1))
                inside = less(at, length)
                value = where(inside, value, const(LAST, dtypes.int64)) if isinstance(inside, Op) else value
                build.store(memory, add(mul(i, lanes), lane), value)
            network.sort(build, memory)
            with build.loop(PIECE_ELEMENTS, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                value = build.load(memory, add(mul(i, lanes), lane))
                build.store(keys, tables.at(0, place(i, lane)), value)
        with build.loop(num_passes, AxisKind.LOOP) as step:
            merge_runs(tables, add(step, PIECE_ELEMENTS.bit_length() - 1), step, False, build)
        with build.loop(count, AxisKind.LOOP) as i:
            put(row, i, build.load(keys, tables.at(num_passes % 2, i)))


# ---- the network ----
class Network(Record):
    """Sorts `length` vectors of `lanes` integers lane by lane.

    block:  how many of them are exchanged together, a power of two
    whole:  how many there are in memory, full blocks
    """

    length: int
    lanes: int

    @property
    def block(self) -> int:
        return min(BLOCK_BYTES // (8 * self.lanes), 1 << (self.length - 1).bit_length())

    @property
    def whole(self) -> int:
        return -(-self.length // self.block) * self.block

    @property
    def nbytes(self) -> int:
        return self.whole * self.lanes * 8

    def alloc(self, build: Builder) -> Op:
        return build.alloc(dtypes.int64, self.whole * self.lanes, MemorySpace.SHARED)

    def sort(self, build: Builder, memory: Op) -> None:
        """Writes the loops: the passes of each block, then those that merge blocks."""
        with build.loop(self.whole - self.length, AxisKind.LOOP) as i, build.loop(self.lanes, AxisKind.VECTOR) as lane:
            place = add(mul(add(i, self.length), self.lanes), lane)
            build.store(memory, place, const(LAST, dtypes.int64))
        levels, most = (self.block - 1).bit_length(), (self.whole - 1).bit_length()
        with build.loop(self.whole // self.block, AxisKind.LOOP) as block:
            start = mul(block, self.block)
            with build.loop(levels, AxisKind.LOOP) as number:
                self.exchange(build, memory, to_op(number), start, self.block, True)
                with build.loop(number, AxisKind.LOOP) as step:
                    distance = _int(OpCode.SUB, _int(OpCode.SUB, to_op(number), 1), to_op(step))
                    self.exchange(build, memory, distance, start, self.block, False)
        for level in range(levels, most):  # few
            self.exchange(build, memory, _constant(level), 0, 1 << most, True)
            for log in range(level - 1, levels - 1, -1):
                self.exchange(build, memory, _constant(log), 0, 1 << most, False)
            with build.loop(self.whole // self.block, AxisKind.LOOP) as block:
                start = mul(block, self.block)
                with build.loop(levels, AxisKind.LOOP) as step:
                    distance = _int(OpCode.SUB, _constant(levels - 1), to_op(step))
                    self.exchange(build, memory, distance, start, self.block, False)

    def exchange(self, build: Builder, memory: Op, log: Op, start: Dim, count: int, is_mirrored: bool) -> None:
        """Puts pairs in order, at a distance of s = 2^log, of `count` places from `start` on.

        Pair i is t = i % s of block i // s, at a = 2 i - t; its partner is b = a + s, or mirrored the one that is as far
        from the block's end as a is from its start.
        """
        s = _int(OpCode.SHL, const(1, dtypes.int64), log)
        with build.loop(count // 2, AxisKind.LOOP) as i:
            t = _int(OpCode.AND, to_op(i), _int(OpCode.SUB, s, 1))
            base = _int(OpCode.SHL, _int(OpCode.SUB, to_op(i), t), 1)
            low = _int(OpCode.ADD, base, t)
            if is_mirrored:
                high = _int(OpCode.ADD, base, _int(OpCode.SUB, _int(OpCode.SUB, _int(OpCode.SHL, s, 1), 1), t))
            else:
                high = _int(OpCode.ADD, low, s)
            inside = count <= self.whole or compare(OpCode.CMPLT, high, self.whole)
            with build.when(inside):
                a, b = (add(start, from_op(at_most(place, _constant(count - 1)))) for place in (low, high))
                with build.loop(self.lanes, AxisKind.VECTOR) as lane:
                    first, second = (add(mul(place, self.lanes), lane) for place in (a, b))
                    x, y = build.load(memory, first), build.load(memory, second)
                    build.store(memory, first, Op(OpCode.MIN, dtypes.int64, (x, y)))
                    build.store(memory, second, Op(OpCode.MAX, dtypes.int64, (x, y)))


def _constant(value: int) -> Op:
    return const(value, dtypes.int64)


def _int(code: OpCode, a: Op, b: Op | int) -> Op:
    return Op(code, dtypes.int64, (a, b if isinstance(b, Op) else _constant(b)))


# ---- on a GPU: merging by ranks ----
THREAD_ELEMENTS_MAX = 8  # at most: of 4-byte keys 256 threads then fill the shared memory that a function may declare

Put = Callable[[Dim, Op, Op], None]  # (place, key, position)
Key = Callable[[Dim, Dim], Op]  # (row, place): an integer in whose order the elements are
PutFirst = Callable[[Builder, Dim, Dim, Op], None]  # (row, place, such an integer)
Phase = Callable[[int], Builder]  # the builder of each phase
Keep = Callable[[Builder, Dim, Dim, Callable[[], Op], Op], None]  # (row, place, what gives its key, position)


def emit_sort_gpu(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, target, scratch = context.params, context.target, context.scratch
    phase = context.phase
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending, *_) = anchor.src, anchor.arg
    out, rows, count = params[nest.outputs[0][0]], [*x.shape[:axis], *x.shape[axis + 1 :]], anchor.shape[axis]

    def keep(build: Builder, row: Dim, place: Dim, key: Callable[[], Op], position: Op) -> None:
        at = split(row, rows)
        with build.when(True if count == x.shape[axis] else less(place, count)):
            build.store(out, flatten((*at[:axis], place, *at[axis:]), anchor.shape), position)

    Sorted(x, axis, descending, keep, target, scratch).emit(phase)


class Sorted:
    """Rows of x along an axis, stably sorted.

    keep:    stores a place of a sorted row
    tile:    elements that a block sorts
    tables:  of the rows in memory; None where a tile is a row
    """

    def __init__(self, x: Op, axis: int, descending: bool, keep: Keep, target: Target, scratch: Scratch):
        self.x, self.axis, self.descending, self.keep, self.target = x, axis, descending, keep, target
        self.rows, self.length = [*self.x.shape[: self.axis], *self.x.shape[self.axis + 1 :]], self.x.shape[self.axis]
        self.dtype = key_dtype(self.x.dtype)
        self.tile = tile_of(greatest(self.length), self.dtype.itemsize, target)
        self.tables: tuple[Op, Op] | None = None
        if greatest(self.length) > self.tile:
            total = mul(numel(self.rows), mul(2, self.length))
            self.tables = scratch(self.dtype, total), scratch(dtypes.int64, total)

    def emit(self, phase: Phase) -> int:
        """Writes all phases; returns how many there are."""
        self.sort_tiles(phase(0))
        num_merges = max(0, -(-greatest(self.length) // self.tile) - 1).bit_length()
        for number in range(num_merges):
            self.merge_runs(phase(number + 1), number, number + 1 == num_merges)
        return 1 + num_merges

    def in_memory(self, row: Dim) -> Tables:
        """Returns the tables of a row."""
        assert self.tables is not None
        return Tables(*self.tables, mul(row, mul(2, self.length)), self.length)

    def sort_tiles(self, build: Builder) -> None:
        """Writes the phase that sorts each tile: in shared memory, whose two tables take turns."""
        num_tiles = floordiv(add(self.length, self.tile - 1), self.tile)
        with build.loop(mul(numel(self.rows), num_tiles), AxisKind.GRID) as block:
            row, number = split(block, [numel(self.rows), num_tiles])
            first = mul(number, self.tile)
            count = minimum(subtract(self.length, first), self.tile)
            keys, positions = (build.alloc(t, 2 * self.tile, MemorySpace.SHARED) for t in (self.dtype, dtypes.int64))
            tables = Tables(keys, positions, 0, self.tile)
            threads = min(self.target.block_threads, self.tile)
            with build.loop(threads, AxisKind.BLOCK) as thread:
                most = min(self.tile, greatest(self.length))  # a row that ends sooner has fewer elements for a thread
                own = Own(thread, threads, most)
                own.each(build, count, lambda i: self.fill(build, row, first, i, tables))
                build.barrier()
                last = sort_by_ranks(build, tables, own, most, count, self.descending)
                own.each(build, count, lambda i: self.leave(build, row, first, i, tables, last))

    def fill(self, build: Builder, row: Dim, first: Dim, i: Dim, tables: Tables) -> None:
        """Reads a key."""
        at, position = split(row, self.rows), add(first, i)
        key = element_within(self.x, (*at[: self.axis], position, *at[self.axis :]))
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
        """Writes the phase that merges runs of 2 ** number tiles, two and two."""
        exponent = number + self.tile.bit_length() - 1
        with grid_of_threads(build, mul(numel(self.rows), self.length), self.target) as position:
            row, i = split(position, [numel(self.rows), self.length])
            tables = self.in_memory(row)

            def put_kept(place: Dim, key: Op, found: Op) -> None:
                self.keep(build, row, place, lambda: key, found)

            into = put_kept if is_last else stored_in(build, tables, (number + 1) % 2)
            merged(build, tables, number % 2, self.length, exponent, i, self.descending, into)


class Own(Record):
    """The elements of a thread of a block among those of a tile; neighbours are of neighbouring threads."""

    thread: Dim
    threads: int
    tile: int

    def each(self, build: Builder, count: Dim, body: Callable[[Dim], None]) -> None:
        """Runs body(i) for the thread's elements of the first `count`."""
        with build.loop(-(-self.tile // self.threads), AxisKind.LOOP) as number:
            i = add(mul(number, self.threads), self.thread)
            with build.when(less(i, count)):
                body(i)


def sort_by_ranks(build: Builder, tables: Tables, own: Own, most: int, count: Dim, descending: bool) -> int:
    """Puts the `count` elements of a block's table in order, which are `most` at most; returns the table they end in."""
    num_passes = max(0, most - 1).bit_length()
    with build.loop(num_passes, AxisKind.LOOP) as turn:
        source, into = mod(turn, 2), stored_in(build, tables, mod(add(turn, 1), 2))
        own.each(build, count, lambda i: merged(build, tables, source, count, turn, i, descending, into))
        build.barrier()
    return num_passes % 2


def tile_of(length: int, key_nbytes: int, target: Target) -> int:
    """Returns how many elements a block sorts: a power of two whose two tables fit in shared memory."""
    tile, room = THREAD_ELEMENTS_MAX * target.block_threads, min(target.shared_bytes, DECLARED_SHARED_BYTES)
    while 2 * tile * (key_nbytes + dtypes.int64.itemsize) > room or tile // 2 >= max(2, length):
        tile //= 2
    return tile


def stored_in(build: Builder, tables: Tables, table: Dim) -> Put:
    """Returns the function that stores a key and its position in a table."""

    def put(place: Dim, key: Op, position: Op) -> None:
        build.store(tables.keys, tables.at(table, place), key)
        if tables.positions is not None:
            build.store(tables.positions, tables.at(table, place), position)

    return put


def merged(
    build: Builder, tables: Tables, source: Dim, length: Dim, exponent: Dim, i: Dim, descending: bool, put: Put
) -> None:
    """Writes one element at its place in the merge of its run of 2 ** exponent elements and the neighbouring run.

    Args:
      source:  the table that is read
      length:  elements that there are
    """
    pair = to_op(add(exponent, 1))
    start = integer(OpCode.SHL, integer(OpCode.SHR, to_op(i), pair), pair)
    width, end = integer(OpCode.SHL, const(1, dtypes.int64), to_op(exponent)), to_op(length)
    middle = integer(OpCode.MIN, start + width, end)
    stop = integer(OpCode.MIN, middle + width, end)
    is_left = compare(OpCode.CMPLT, to_op(i), middle)
    low, high = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))
    build.store(low, 0, where(is_left, middle, start))
    build.store(high, 0, where(is_left, stop, middle))
    key, last = build.load(tables.keys, tables.at(source, i)), to_op(subtract(length, 1))
    with build.loop(add(exponent, 1), AxisKind.LOOP):  # low <= the place looked for <= high
        a, b = build.load(low, 0), build.load(high, 0)
        half = integer(OpCode.SHR, a + b, const(1, dtypes.int64))
        other = build.load(tables.keys, tables.at(source, from_op(at_most(half, last))))
        is_sooner = where(is_left, comes_before(other, key, descending), negated(comes_before(key, other, descending)))
        is_behind = both(compare(OpCode.CMPLT, a, b), is_sooner)
        build.store(low, 0, where(is_behind, half + const(1, dtypes.int64), a))
        build.store(high, 0, where(is_behind, b, half))
    place = to_op(i) + build.load(low, 0) - middle
    position = key if tables.positions is None else build.load(tables.positions, tables.at(source, i))
    put(from_op(at_most(place, last)), key, position)


# ---- on a GPU: few first places ----
GROUP_ELEMENTS_MAX = 16  # of a thread, in registers
CANDIDATES_MAX = 1024  # elements of groups that are sorted; with the groups' firsts they fit in shared memory twice
THREADS_MIN = 32  # a warp


def keeps_few(nest: Nest, target: Target) -> bool:
    """True for first places that are few among those of a row, of keys that fit one integer with their position."""
    assert nest.anchor is not None
    (x,), (axis, _, *count) = nest.anchor.src, nest.anchor.arg
    length = x.shape[axis]
    if not target.is_gpu or not any(count) or not isinstance(length, int) or x.dtype.compute_dtype.itemsize > 4:
        return False
    threads, _ = groups_of(length, count[0], target)
    return bool(2 * count[0] <= threads and FEW_PARTS * count[0] <= length < 1 << POSITION_BITS)


FEW_PARTS = 8  # of a row are few: one part of so many


def groups_of(length: int, count: int, target: Target) -> tuple[int, int]:
    """Returns the threads of a block, and the elements of each, for a row of such a length."""
    threads = THREADS_MIN
    while threads < target.block_threads and threads < max(2 * count, length / FEW_PARTS):
        threads *= 2
    most, each = min(GROUP_ELEMENTS_MAX, CANDIDATES_MAX // count), 1
    while 2 * each <= most and threads * each < length:
        each *= 2
    return threads, each


def emit_first_places(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element, for few i."""
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending, count) = anchor.src, anchor.arg
    out, rows, length = context.params[nest.outputs[0][0]], [*x.shape[:axis], *x.shape[axis + 1 :]], x.shape[axis]
    assert isinstance(length, int), "keeps_few"

    def element(row: Dim, i: Dim) -> Op:
        at = split(row, rows)
        return packed(element_within(x, (*at[:axis], i, *at[axis:])), i, descending)

    def put(build: Builder, row: Dim, i: Dim, value: Op) -> None:
        at, position = split(row, rows), _int(OpCode.AND, value, (1 << POSITION_BITS) - 1)
        build.store(out, flatten((*at[:axis], i, *at[axis:]), anchor.shape), position)

    number = 0
    key: Key = element
    while True:
        threads, each = groups_of(length, count, context.target)
        tiles = -(-length // (threads * each))
        firsts = FirstPlaces(numel(rows), length, count, threads, each, tiles)
        if tiles == 1:
            firsts.emit(context.phase(number), key, put)
            return
        number, length = number + 1, tiles * count
        left = context.scratch(dtypes.int64, mul(numel(rows), length))
        key = firsts.leave(context.phase(number - 1), key, left)


class FirstPlaces(Record):
    """The first `count` of each tile of each row, as integers in whose order the elements are.

    threads:  of a block, each with a group of elements: every threads-th of the tile
    each:     elements of a group
    tiles:    of a row
    """

    rows: Dim
    length: int
    count: int
    threads: int
    each: int
    tiles: int

    def leave(self, build: Builder, key: Key, left: Op) -> Key:
        """Writes them to memory, tile by tile; returns how they are read."""
        length = self.tiles * self.count
        self.emit(build, key, lambda build, row, i, value: build.store(left, add(mul(row, length), i), value))
        return lambda row, i: read(left, add(mul(row, length), i))

    def emit(self, build: Builder, key: Key, put: PutFirst) -> None:
        """Writes the phase: a block for each tile."""
        most = self.count * self.each
        with build.loop(mul(self.rows, self.tiles), AxisKind.GRID) as block:
            row, tile = split(block, [self.rows, self.tiles])
            memories = [build.alloc(dtypes.int64, 2 * length, MemorySpace.SHARED) for length in (self.threads, most)]
            firsts, candidates = (Tables(memory, None, 0, memory.arg[1] // 2) for memory in memories)
            with build.loop(self.threads, AxisKind.BLOCK) as thread:
                group, of_candidates = Own(thread, self.threads, self.threads), Own(thread, self.threads, most)
                elements, first = self.read(build, lambda i: key(row, i), mul(tile, self.threads * self.each), thread)
                build.store(firsts.keys, firsts.at(0, thread), first)
                of_candidates.each(
                    build, most, lambda i: build.store(candidates.keys, candidates.at(0, i), _constant(LAST))
                )
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
        """Brings a thread's group to registers; returns them, and the element that comes first."""
        elements = build.alloc(dtypes.int64, self.each, MemorySpace.REGISTER)
        first = build.alloc(dtypes.int64, 1, MemorySpace.REGISTER)
        build.store(first, 0, _constant(LAST))
        with build.loop(self.each, AxisKind.UNROLL) as number:
            i = add(start, add(mul(number, self.threads), thread))
            inside, value = less(i, self.length), key(minimum(i, self.length - 1))
            build.store(elements, number, where(inside, value, _constant(LAST)) if isinstance(inside, Op) else value)
            smaller = Op(OpCode.MIN, dtypes.int64, (build.load(first, 0), build.load(elements, number)))
            build.store(first, 0, smaller)
        return elements, build.load(first, 0)

    def choose(self, build: Builder, firsts: Tables, table: int, elements: Op, first: Op, candidates: Tables) -> None:
        """Has the threads whose firsts are among the first ones add their groups to the candidates, each at its rank.

        An empty group is not among them: several would have one rank.
        """
        last = build.load(firsts.keys, firsts.at(table, self.count - 1))
        is_chosen = both(negated(is_below(last, first)), is_below(first, _constant(LAST)))
        low, high = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))
        with build.when(is_chosen):
            build.store(low, 0, _constant(0))
            build.store(high, 0, _constant(self.count - 1))
            with build.loop((self.count - 1).bit_length(), AxisKind.LOOP):  # low <= the rank <= high
                a, b = build.load(low, 0), build.load(high, 0)
                half = _int(OpCode.SHR, a + b, 1)
                other = build.load(firsts.keys, firsts.at(table, from_op(at_most(half, _constant(self.count - 1)))))
                is_behind = both(is_below(a, b), is_below(other, first))
                build.store(low, 0, where(is_behind, half + _constant(1), a))
                build.store(high, 0, where(is_behind, b, half))
            rank = from_op(at_most(build.load(low, 0), _constant(self.count - 1)))
            with build.loop(self.each, AxisKind.UNROLL) as number:
                place = candidates.at(0, add(mul(rank, self.each), number))
                build.store(candidates.keys, place, build.load(elements, number))
