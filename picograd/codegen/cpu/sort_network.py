"""The loops of a stable argsort on a CPU: rows side by side in the lanes of a vector, by a network of exchanges.

In:    Nest (kind SORT), whose anchor is a SORT of a known length and of keys of 32 bits or fewer
Out:   one phase of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/cpu/sort.py

Key and position stand in one integer of 64 bits, key above, position below: what is smaller as an integer comes first, and
equal keys keep their order. To put two of them in order is a minimum and a maximum, of as many rows as a vector has lanes;
which two are compared depends on their places alone, so nothing is predicted and nothing waits (Batcher, "Sorting
networks and their applications", 1968: n log2(n)^2 / 4 exchanges).

    pass p merges runs of h = 2^p:   place t of the first run against place h - 1 - t of the second,
                                     then of each half, quarter, ... place t against the place s behind it

What is exchanged over short distances is done block by block, so that a block stays in the first-level cache. A row that
is too long for all that is cut into pieces, which the lanes take instead of rows; sorted, they are merged.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch
from picograd.codegen.cpu.sort import merge_runs
from picograd.codegen.index import element_within
from picograd.codegen.loops import split
from picograd.codegen.sort import Tables, at_most
from picograd.device import Target
from picograd.ir.build import cast, compare, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, from_op, less, minimum, mul, to_op
from picograd.record import Record

MOST_OWN = 128 << 10  # bytes of the rows that a thread sorts side by side, on its stack: the second-level cache holds them
PIECE = 512  # elements of a longer row that a lane sorts
BLOCK_BYTES = 16 << 10  # of exchanges done together, half of a first-level cache
POSITION_BITS = 32
LAST = (1 << 63) - 1  # what comes after all keys


def has_network(nest: Nest, target: Target) -> bool:
    """True for a SORT that `emit_sort_network` can do: of how many elements is known, and both parts fit an integer."""
    assert nest.anchor is not None
    (x,), (axis, _) = nest.anchor.src, nest.anchor.arg
    length = x.shape[axis]
    is_known = isinstance(length, int) and 1 < length < 1 << POSITION_BITS
    return is_known and not target.is_gpu and x.dtype.compute_dtype.itemsize <= 4


def emit_sort_network(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, target, scratch = context.params, context.target, context.scratch
    build = context.phase(0)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending) = anchor.src, anchor.arg
    length = x.shape[axis]
    assert isinstance(length, int), "has_network"
    rows = [*x.shape[:axis], *x.shape[axis + 1 :]]
    lanes = max(1, target.vector_bytes // 8) if numel(tuple(rows)) != 1 or length > PIECE else 1

    def key(row: Dim, i: Dim) -> Op:
        at = split(row, rows)
        return packed(element_within(x, (*at[:axis], i, *at[axis:])), i, descending)

    def put(row: Dim, i: Dim, value: Op) -> None:
        at = split(row, rows)
        position = _int(OpCode.AND, value, (1 << POSITION_BITS) - 1)
        build.store(params[nest.outputs[0][0]], flatten((*at[:axis], i, *at[axis:]), x.shape), position)

    if Network(length, lanes).nbytes <= MOST_OWN and (numel(tuple(rows)) != 1 or lanes == 1):
        _sort_rows(numel(tuple(rows)), length, lanes, build, key, put)
    else:
        _sort_pieces(numel(tuple(rows)), length, lanes, build, scratch, key, put)


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
    num_rows: Dim, length: int, lanes: int, build: Builder, key: Callable[[Dim, Dim], Op],
    put: Callable[[Dim, Dim, Op], None],
) -> None:  # fmt: skip
    """Sorts as many rows as there are lanes at a time; a lane that has none of its own repeats the last row."""
    with build.loop(floordiv(add(num_rows, lanes - 1), lanes), AxisKind.GRID) as group:
        network = Network(length, lanes)
        memory = network.alloc(build)
        last = add(num_rows, -1)
        with build.loop(length, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
            row = minimum(add(mul(group, lanes), lane), last)
            build.store(memory, add(mul(i, lanes), lane), key(row, i))
        network.sort(build, memory)
        with build.loop(length, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
            row = minimum(add(mul(group, lanes), lane), last)
            put(row, i, build.load(memory, add(mul(i, lanes), lane)))


def _sort_pieces(
    num_rows: Dim, length: int, lanes: int, build: Builder, scratch: Scratch, key: Callable[[Dim, Dim], Op],
    put: Callable[[Dim, Dim, Op], None],
) -> None:  # fmt: skip
    """Sorts the pieces of a row, as many as there are lanes at a time, and merges them."""
    together = PIECE * lanes
    num_together = -(-length // together)
    whole = num_together * together  # what is behind the row comes last
    keys = scratch(dtypes.int64, mul(num_rows, 2 * whole))
    num_passes = (whole // PIECE - 1).bit_length()
    with build.loop(num_rows, AxisKind.GRID) as row:
        tables = Tables(keys, None, mul(row, 2 * whole), whole)
        network = Network(PIECE, lanes)
        memory = network.alloc(build)
        with build.loop(num_together, AxisKind.LOOP) as number:
            first = mul(number, together)

            def place(i: Dim, lane: Dim, first: Dim = first) -> Dim:
                return add(first, add(mul(lane, PIECE), i))

            with build.loop(PIECE, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                at = place(i, lane)
                value = key(row, minimum(at, length - 1))
                inside = less(at, length)
                value = where(inside, value, const(LAST, dtypes.int64)) if isinstance(inside, Op) else value
                build.store(memory, add(mul(i, lanes), lane), value)
            network.sort(build, memory)
            with build.loop(PIECE, AxisKind.LOOP) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                value = build.load(memory, add(mul(i, lanes), lane))
                build.store(keys, tables.at(0, place(i, lane)), value)
        with build.loop(num_passes, AxisKind.LOOP) as step:
            merge_runs(tables, add(step, PIECE.bit_length() - 1), step, False, build)
        with build.loop(length, AxisKind.LOOP) as i:
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
