"""A stable argsort on a CPU: by a network of exchanges or by digits; one or few of its elements by counting parts.

A network of exchanges, for several short rows and keys of 32 bits or fewer: the lanes of a vector are rows. Key and
position are packed into one integer of 64 bits, the key above, so that integers have the stable order. An exchange
is a minimum and a maximum; its two places do not depend on values, so no branch is predicted and nothing
waits (Batcher, "Sorting networks and their applications", 1968: n log2(n)^2 / 4 exchanges).

    pass p merges runs of h = 2^p:   place t of the first run against place h - 1 - t of the second,
                                     then of each half, quarter, ... place t against the place s behind it

Exchanges over short distances are done block by block, so that a block stays in the first-level cache.

A row that is longer, alone, or of 64-bit keys is sorted by one thread, by digits of eight bits, the last first: the
counts of all values tell where the elements of each value begin. Cost: 2 n for a digit.

A single rank needs no sorting. The range from the least to the largest is cut into parts, whose elements are counted, and
the part with the rank is cut again (selection by a histogram). For few first places, most elements that are not less than
the last of these are left out together with their neighbours: the first elements of groups of neighbours tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch
from picograd.codegen.index import element_within
from picograd.codegen.loops import along
from picograd.codegen.sort import (
    LAST,
    POSITION_BITS,
    RowsAlong,
    Tables,
    at_most,
    int64,
    ordered,
    packed,
    rank_inside,
    stored_in,
    unsigned,
)
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.arithmetic import identity
from picograd.ir.build import (
    and_,
    bitcast,
    both,
    cast,
    combined,
    compare,
    differs,
    either,
    equal,
    less_equal,
    shl,
    shr,
    where,
)
from picograd.ir.op import Dim, Op, const, greatest
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, ceildiv, flatten, floordiv, from_op, less, minimum, mul, subtract, to_op
from picograd.record import Record

# ---- a network of exchanges ----
STACK_BYTES_MAX = 128 << 10  # of rows that a thread sorts at once, on its stack: they stay in the second-level cache
NETWORK_ELEMENTS_MAX = 1024  # of a row, half as many if only some ranks are wanted: longer ones are sorted by one thread
BLOCK_BYTES = 16 << 10  # of elements that are exchanged together: half of a first-level cache


def has_network(nest: Nest, target: Target) -> bool:
    """True for several rows of a known, short length whose keys fit one integer together with a position."""
    (x, *ranks), axis = nest.anchor.src, nest.anchor.arg[0]
    length = x.shape[axis]
    if target.is_gpu or not isinstance(length, int) or x.dtype.compute_dtype.itemsize > 4 or is_few(nest.anchor):
        return False
    return 1 < length <= NETWORK_ELEMENTS_MAX // (2 if ranks else 1) and num_rows_of(nest.anchor) != 1


def is_few(anchor: Op) -> bool:
    """True if few first places of a long row are wanted, so that sorting the other elements does not pay."""
    if len(anchor.src) > 1:
        return False
    length, count = (op.shape[anchor.arg[0]] for op in (anchor.src[0], anchor))
    if not isinstance(length, int) or not isinstance(count, int):
        return False
    return max(COUNTED_ELEMENTS_MAX, COUNTED_ROW_PARTS_MIN * count) < length


def num_rows_of(anchor: Op) -> Dim:
    """Returns the number of rows that are sorted."""
    return RowsAlong.of(anchor.src[0].shape, anchor.arg[0]).count


def emit_sort_network(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, target = context.params, context.target
    build = context.phase(0)
    anchor = nest.anchor
    (x, *ranks), (axis, descending, *_) = anchor.src, anchor.arg
    length, count = x.shape[axis], anchor.shape[axis]
    assert isinstance(length, int), "has_network"
    rows = RowsAlong.of(x.shape, axis)

    def key(row: Dim, i: Dim) -> Op:
        return packed(element_within(x, rows.at(row, i)), i, descending)

    def put(row: Dim, i: Dim, value: Op) -> None:
        position = and_(value, (1 << POSITION_BITS) - 1)
        build.store(params[nest.outputs[0][0]], flatten(rows.at(row, i), anchor.shape), position)

    def place(row: Dim, i: Dim) -> Dim:
        return from_op(rank_inside(ranks[0], rows.at(row, i), length)) if ranks else i

    _sort_rows(rows.count, length, count, target.lanes(dtypes.int64), build, key, place, put)


def _sort_rows(
    num_rows: Dim, length: int, count: Dim, lanes: int, build: Builder, key: Callable[[Dim, Dim], Op],
    place: Callable[[Dim, Dim], Dim], put: Callable[[Dim, Dim, Op], None],
) -> None:  # fmt: skip
    """Sorts as many rows as there are lanes at a time; a lane without a row repeats the last one.

    Args:
      count:  number of results of a row
      place:  (row, result) -> its place in the sorted row
    """
    with build.loop(ceildiv(num_rows, lanes), AxisKind.GRID) as group:
        network = Network(length, lanes)
        memory = network.alloc(build)
        last = add(num_rows, -1)
        with build.loop(length, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
            row = minimum(add(mul(group, lanes), lane), last)
            build.store(memory, add(mul(i, lanes), lane), key(row, i))
        network.sort(build, memory)
        with build.loop(count, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
            row = minimum(add(mul(group, lanes), lane), last)
            put(row, i, build.load(memory, add(mul(place(row, i), lanes), lane)))


class Network(Record):
    """Sorts `length` vectors of `lanes` integers lane by lane.

    block:  number of vectors that are exchanged together, a power of two
    whole:  number of vectors in memory, whole blocks
    """

    length: int
    lanes: int

    @property
    def block(self) -> int:
        return min(BLOCK_BYTES // (8 * self.lanes), 1 << (self.length - 1).bit_length())

    @property
    def whole(self) -> int:
        return ceildiv(self.length, self.block) * self.block

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
                    distance = to_op(number) - 1 - to_op(step)
                    self.exchange(build, memory, distance, start, self.block, False)
        for level in range(levels, most):  # few
            self.exchange(build, memory, int64(level), 0, 1 << most, True)
            for log in range(level - 1, levels - 1, -1):
                self.exchange(build, memory, int64(log), 0, 1 << most, False)
            with build.loop(self.whole // self.block, AxisKind.LOOP) as block:
                start = mul(block, self.block)
                with build.loop(levels, AxisKind.LOOP) as step:
                    distance = int64(levels - 1) - to_op(step)
                    self.exchange(build, memory, distance, start, self.block, False)

    def exchange(self, build: Builder, memory: Op, log: Op, start: Dim, count: int, is_mirrored: bool) -> None:
        """Puts pairs in order, at a distance of s = 2^log, of `count` places from `start` on.

        Pair i is t = i % s of block i // s, at a = 2 i - t; its partner is b = a + s, or mirrored the one that is as far
        from the block's end as a is from its start.
        """
        s = shl(const(1, dtypes.int64), log)
        with build.loop(count // 2, AxisKind.LOOP) as i:
            t = and_(to_op(i), s - 1)
            base = shl(to_op(i) - t, 1)
            low = base + t
            if is_mirrored:
                high = base + (shl(s, 1) - 1 - t)
            else:
                high = low + s
            inside = count <= self.whole or compare(OpCode.CMPLT, high, self.whole)
            with build.when(inside):
                a, b = (add(start, from_op(at_most(place, int64(count - 1)))) for place in (low, high))
                with build.loop(self.lanes, AxisKind.VECTOR) as lane:
                    first, second = (add(mul(place, self.lanes), lane) for place in (a, b))
                    x, y = build.load(memory, first), build.load(memory, second)
                    build.store(memory, first, combined(OpCode.MIN, x, y))
                    build.store(memory, second, combined(OpCode.MAX, x, y))


# ---- a single row ----
DIGIT_BITS = 8
DIGIT_VALUES = 1 << DIGIT_BITS
COUNTED_ELEMENTS_MAX = 128  # elements of a row that is sorted by counting ranks: for more, digits are faster
SELECTIONS_MAX = 4  # elements of given ranks that are selected one by one: for more, the row is sorted
PARTS_BITS, FEW_PARTS_BITS = 11, 8  # a selection cuts a row into 2 ** bits parts; fewer bits up to FEW_ELEMENTS_MAX
FEW_ELEMENTS_MAX = 1 << 14
GROUPS_MAX, GROUP_VECTORS_MIN = 4096, 2  # groups of a row, and vectors of a group, for few first places
COUNTED_ROW_PARTS_MIN = 4  # first places are few if they are less than one in that many elements of a row
PLACE_GROUPS_MIN = 4  # groups for each of these places

Element = Callable[[Dim], tuple[Op, Op]]  # place -> an integer that has the order of the elements, and the position


def emit_sort_row(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    anchor = nest.anchor
    (x, *ranks), (axis, descending, *_) = anchor.src, anchor.arg
    out, rows = context.params[nest.outputs[0][0]], RowsAlong.of(x.shape, axis)
    length, count = x.shape[axis], anchor.shape[axis]
    kind, lanes = Elements.of(x.dtype, length), context.target.lanes(dtypes.int64)
    build, memory = context.phase(0), kind.scratch(length, rows.count, context.scratch)
    with build.loop(rows.count, AxisKind.GRID) as row:
        ordering = RowOrder(build, kind, kind.tables(build, length, row, memory), length, lanes)

        def element(i: Dim) -> tuple[Op, Op]:
            return kind.packed(element_within(x, rows.at(row, i)), i, descending), to_op(i)

        def put(i: Dim, position: Op) -> None:
            build.store(out, flatten(rows.at(row, i), anchor.shape), position)

        def rank(i: Dim) -> Op:
            return rank_inside(ranks[0], rows.at(row, i), length)

        def put_ranked(place: Op, position: Op) -> None:
            with build.loop(count, AxisKind.LOOP) as i, build.when(equal(place, rank(i))):
                put(i, position)

        if ranks and isinstance(length, int) and length <= COUNTED_ELEMENTS_MAX:
            ordering.count_ranks(length, element, put_ranked)
        elif ranks and isinstance(count, int) and count <= SELECTIONS_MAX:
            with build.loop(count, AxisKind.LOOP) as i:
                put(i, ordering.select(element, length, rank(i))[1])
        elif ranks:
            position = ordering.sort_digits(element, length)
            with build.loop(count, AxisKind.LOOP) as i:
                put(i, position(from_op(rank(i))))
        elif is_few(anchor):
            ordering.sort(ordering.keep_first(element, count), lambda i: ordering.element(0, i), count, put)
        else:
            ordering.sort(length, element, count, put)


class Elements(Record):
    """Form of the elements of a row while they are sorted.

    is_packed:    an integer has the key above and the position below, if both fit; else positions have their own table
    place_dtype:  dtype of these positions
    """

    is_packed: bool
    place_dtype: DType

    @staticmethod
    def of(dtype: DType, length: Dim) -> Elements:
        """Returns the form for elements of a dtype."""
        place_dtype = dtypes.int32 if greatest(length) <= dtypes.int32.max else dtypes.int64
        return Elements(dtype.compute_dtype.itemsize <= 4 and greatest(length) < 1 << POSITION_BITS, place_dtype)

    def packed(self, key: Op, position: Dim, descending: bool) -> Op:
        """Returns an integer that has the order of the elements, with the position if it fits."""
        return packed(key, position, descending) if self.is_packed else ordered(key, descending)

    def scratch(self, length: Dim, num_rows: Dim, scratch: Scratch) -> tuple[Op, Op | None] | None:
        """Returns memory for the tables of all rows; None if a row's tables are on the stack of its thread."""
        of_element = 8 if self.is_packed else 8 + self.place_dtype.itemsize
        if isinstance(length, int) and 2 * length * of_element <= STACK_BYTES_MAX:
            return None
        total = mul(num_rows, mul(2, length))
        return scratch(dtypes.int64, total), None if self.is_packed else scratch(self.place_dtype, total)

    def tables(self, build: Builder, length: Dim, row: Dim, memory: tuple[Op, Op | None] | None) -> Tables:
        """Returns the two tables of a row."""
        if memory is not None:
            return Tables(*memory, mul(row, mul(2, length)), length)
        assert isinstance(length, int), "scratch"
        keys = build.alloc(dtypes.int64, 2 * length, MemorySpace.SHARED)
        return Tables(
            keys, None if self.is_packed else build.alloc(self.place_dtype, 2 * length, MemorySpace.SHARED), 0, length
        )


class RowOrder(Record):
    """A row that a thread sorts, or a part of it, in two tables that each have room for the row."""

    build: Builder
    kind: Elements
    tables: Tables
    length: Dim
    lanes: int

    # ---- elements ----
    def put(self, table: Dim, place: Dim, element: tuple[Op, Op]) -> None:
        """Stores an element."""
        stored_in(self.build, self.tables, table)(place, element[0], cast(element[1], self.kind.place_dtype))

    def element(self, table: Dim, place: Dim) -> tuple[Op, Op]:
        """Returns the element at a place of a table."""
        at = self.tables.at(table, place)
        key = self.build.load(self.tables.keys, at)
        if self.tables.positions is None:
            return key, and_(key, (1 << POSITION_BITS) - 1)
        return key, cast(self.build.load(self.tables.positions, at), dtypes.int64)

    def inside(self, place: Op) -> Dim:
        """Returns a place, limited so that its bounds can be proved."""
        return from_op(at_most(place, to_op(subtract(self.length, 1))))

    def number(self, value: Dim) -> Op:
        """Makes a variable."""
        memory = self.build.alloc(dtypes.int64, 1, MemorySpace.REGISTER)
        self.build.store(memory, 0, to_op(value))
        return memory

    def counts(self, count: int) -> Op:
        """Makes counts, all 0."""
        memory = self.build.alloc(dtypes.int64, count, MemorySpace.SHARED)
        along(self.build, 0, count, self.lanes, lambda place: self.build.store(memory, place, int64(0)))
        return memory

    def combined(self, codes: Sequence[OpCode], value: Callable[[Dim], Op], count: Dim) -> list[Op]:
        """Returns the reductions of `count` values by some operations, in vectors and a remainder."""
        build, lanes = self.build, self.lanes
        starts = [const(identity(code, dtypes.int64), dtypes.int64) for code in codes]
        several, one = ([build.alloc(dtypes.int64, n, MemorySpace.REGISTER) for _ in codes] for n in (lanes, 1))

        def step(into: list[Op], place: Dim, i: Dim) -> None:
            here = value(i)
            for code, memory in zip(codes, into):
                build.store(memory, place, combined(code, build.load(memory, place), here))

        with build.loop(lanes, AxisKind.VECTOR) as lane:
            for memory, start in zip(several, starts):
                build.store(memory, lane, start)
        with build.loop(floordiv(count, lanes), AxisKind.LOOP) as number, build.loop(lanes, AxisKind.VECTOR) as lane:
            step(several, lane, add(mul(number, lanes), lane))
        with build.loop(lanes, AxisKind.VECTOR) as lane:
            for code, memory, total in zip(codes, several, one):
                found = build.load(memory, lane)
                build.store(total, 0, Op(OpCode.REDUCE, dtypes.int64, (found,), (code, ())) if lanes > 1 else found)
        whole = mul(floordiv(count, lanes), lanes)
        with build.loop(subtract(count, whole), AxisKind.LOOP) as i:
            step(one, 0, add(whole, i))
        return [build.load(total, 0) for total in one]

    # ---- order ----
    def sort(self, count: Dim, element: Element, wanted: Dim, put: Callable[[Dim, Op], None]) -> None:
        """Writes put(place, position) for the `wanted` first places in the order of `count` elements."""
        is_short = less(subtract(count, 1), COUNTED_ELEMENTS_MAX)

        def put_first(rank: Op, position: Op) -> None:
            with self.build.when(compare(OpCode.CMPLT, rank, to_op(wanted))):
                put(from_op(at_most(rank, to_op(subtract(wanted, 1)))), position)

        with self.build.when(is_short):
            self.count_ranks(count, element, put_first)
        with self.build.when(differs(is_short, True) if isinstance(is_short, Op) else not is_short):
            position = self.sort_digits(element, count)
            with self.build.loop(wanted, AxisKind.LOOP) as i:
                put(i, position(i))

    def count_ranks(self, count: Dim, element: Element, put: Callable[[Op, Op], None]) -> None:
        """Writes put(place, position) for each of few elements: its place is the number of elements before it."""
        build = self.build
        with build.loop(count, AxisKind.LOOP) as i:
            self.put(0, i, element(i))
        with build.loop(count, AxisKind.LOOP) as i:
            key, position = self.element(0, i)

            def before(j: Dim, i: Dim = i, key: Op = key) -> Op:
                other = build.load(self.tables.keys, self.tables.at(0, j))
                comes = compare(OpCode.CMPLT, other, key)
                if not self.kind.is_packed:
                    comes = either(comes, both(equal(other, key), compare(OpCode.CMPLT, to_op(j), to_op(i))))
                return cast(comes, dtypes.int64)

            (rank,) = self.combined([OpCode.ADD], before, count)
            put(rank, position)

    def sort_digits(self, element: Element, count: Dim) -> Callable[[Dim], Op]:
        """Writes the passes of all digits, the last first; returns the function from a place to the element's position.

        A pass sorts the elements stably by one digit. Keys are counted from the least one, and a
        digit that all of them share needs no pass: few digits are left for small integers.
        """
        build, low_bit = self.build, POSITION_BITS if self.kind.is_packed else 0
        num_digits = (64 - low_bit) // DIGIT_BITS
        counts = self.counts(num_digits * DIGIT_VALUES)

        def kept(i: Dim) -> Op:  # in vectors, since random keys are long computations
            key, _ = element(i)
            build.store(self.tables.keys, self.tables.at(0, i), key)
            return key

        (least,) = self.combined([OpCode.MIN], kept, count)
        low = and_(least, -1 << low_bit)
        with build.loop(count, AxisKind.LOOP) as i:
            key = build.load(self.tables.keys, self.tables.at(0, i)) - low
            self.put(0, i, (key, element(i)[1]))
            for digit in range(num_digits):
                self.increase(counts, add(digit * DIGIT_VALUES, _digit(key, low_bit + digit * DIGIT_BITS)))
        turn = self.number(0)
        with build.loop(num_digits, AxisKind.LOOP) as number:
            self.move_by_digit(counts, count, mul(number, DIGIT_VALUES), add(low_bit, mul(number, DIGIT_BITS)), turn)
        last = from_op(and_(build.load(turn, 0), 1))
        return lambda i: self.element(last, i)[1]

    def increase(self, counts: Op, place: Dim) -> Op:
        """Adds 1 to a count; returns the count before."""
        count = self.build.load(counts, place)
        self.build.store(counts, place, count + 1)
        return count

    def move_by_digit(self, counts: Op, count: Dim, first: Dim, shift: Dim, turn: Op) -> None:
        """Writes the pass of the digit whose counts begin at `first`, unless all elements have the same digit."""
        build = self.build
        source = from_op(and_(build.load(turn, 0), 1))
        of_one = build.load(counts, add(first, _digit(self.element(source, 0)[0], shift)))
        with build.when(compare(OpCode.CMPLT, of_one, to_op(count))):
            before = self.number(0)
            with build.loop(DIGIT_VALUES, AxisKind.LOOP) as value:
                here, start = build.load(counts, add(first, value)), build.load(before, 0)
                build.store(counts, add(first, value), start)
                build.store(before, 0, start + here)
            with build.loop(count, AxisKind.LOOP) as i:
                element = self.element(source, i)
                place = self.increase(counts, add(first, _digit(element[0], shift)))
                self.put(subtract(1, source), self.inside(place), element)
            build.store(turn, 0, to_op(subtract(1, source)))

    # ---- one element by its rank ----
    def select(self, element: Element, count: Dim, rank: Op) -> tuple[Op, Op]:
        """Returns the element of a rank among the first `count`: its key, and its position.

        The range between the least and the largest is cut into parts, and the elements of each are counted; those of
        the part that has the rank are kept in the second table, in their order, and are cut again, until all are equal.
        """
        build, bits = self.build, PARTS_BITS if greatest(count) > FEW_ELEMENTS_MAX else FEW_PARTS_BITS
        left, wanted, distance = self.number(count), self.number(from_op(rank)), self.number(1)
        self.narrow(element, count, bits, left, wanted, distance)
        with build.loop(ceildiv(64, bits) - 1, AxisKind.LOOP):
            differ = differs(build.load(distance, 0), 0)
            with build.when(differ):
                here = self.inside(build.load(left, 0) - int64(1))
                self.narrow(lambda i: self.element(1, i), add(here, 1), bits, left, wanted, distance)
        return self.element(1, self.inside(build.load(wanted, 0)))

    def narrow(self, element: Element, count: Dim, bits: int, left: Op, wanted: Op, distance: Op) -> None:
        """Writes one cut: keeps the elements of a part, and stores their number and the rank among them."""
        build = self.build
        low, high = self.combined([OpCode.MIN, OpCode.MAX], lambda i: element(i)[0], count)
        build.store(distance, 0, high - low)
        range_ = bitcast(build.load(distance, 0), dtypes.uint64)
        shift = int64(0)
        for step in (32, 16, 8, 4, 2, 1):
            further = shr(range_, unsigned(shift + (step - 1)))
            more = less_equal(const(1 << bits, dtypes.uint64), further)
            shift = where(more, shift + step, shift)

        def part(key: Op) -> Dim:
            offset = bitcast(key - low, dtypes.uint64)
            number = shr(offset, unsigned(shift))
            return from_op(and_(bitcast(number, dtypes.int64), (1 << bits) - 1))

        counts = self.counts(1 << bits)
        with build.loop(count, AxisKind.LOOP) as i:
            self.increase(counts, part(element(i)[0]))
        rank, before, chosen, start, kept = build.load(wanted, 0), *(self.number(0) for _ in range(4))
        with build.loop(1 << bits, AxisKind.LOOP) as value:
            here = build.load(before, 0)
            is_before = less_equal(here, rank)
            build.store(chosen, 0, where(is_before, to_op(value), build.load(chosen, 0)))
            build.store(start, 0, where(is_before, here, build.load(start, 0)))
            build.store(before, 0, here + build.load(counts, value))
        with build.loop(count, AxisKind.LOOP) as i:
            one, place = element(i), build.load(kept, 0)
            self.put(1, self.inside(place), one)
            is_here = equal(to_op(part(one[0])), build.load(chosen, 0))
            build.store(kept, 0, place + cast(is_here, dtypes.int64))
        build.store(left, 0, build.load(kept, 0))
        build.store(wanted, 0, rank - build.load(start, 0))

    # ---- few first places ----
    def keep_first(self, element: Element, wanted: int) -> Dim:
        """Copies all candidates for the `wanted` first places to the first table, in order; returns their number.

        First the least element of each group of neighbours is found. The K-th of these, for K wanted places, is a limit: K
        elements are not above it. So no greater element is among the first K, and a group whose least element is greater
        has no candidate. If there are too few groups, the element of rank K is selected itself.
        """
        build, length = self.build, self.length
        assert isinstance(length, int)
        of_group = max(GROUP_VECTORS_MIN * self.lanes, ceildiv(length, GROUPS_MAX))
        num_groups = ceildiv(length, of_group)
        kept = self.number(0)

        def keep(i: Dim, last: Op) -> None:
            one, place = element(i), build.load(kept, 0)
            self.put(0, self.inside(place), one)
            is_first = less_equal(one[0], last)
            build.store(kept, 0, place + cast(is_first, dtypes.int64))

        if num_groups < PLACE_GROUPS_MIN * wanted:
            last, _ = self.select(element, length, int64(wanted - 1))
            with build.loop(length, AxisKind.LOOP) as i:
                keep(i, last)
        else:
            firsts = build.alloc(dtypes.int64, num_groups, MemorySpace.SHARED)
            with build.loop(num_groups, AxisKind.LOOP) as group:
                start = mul(group, of_group)
                count = minimum(subtract(length, start), of_group)
                (least,) = self.combined([OpCode.MIN], lambda i: element(add(start, i))[0], count)
                build.store(firsts, group, least)
            last, _ = self.select(lambda i: (build.load(firsts, i), to_op(i)), num_groups, int64(wanted - 1))
            with build.loop(num_groups, AxisKind.LOOP) as group:
                start = mul(group, of_group)
                count = minimum(subtract(length, start), of_group)
                may_have = less_equal(build.load(firsts, group), last)
                with build.when(may_have), build.loop(count, AxisKind.LOOP) as i:
                    keep(add(start, i), last)
        return add(self.inside(build.load(kept, 0) - int64(1)), 1)


def _digit(key: Op, shift: Dim) -> Dim:
    return from_op(and_(shr(key, to_op(shift)), DIGIT_VALUES - 1))
