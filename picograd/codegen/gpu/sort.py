"""The loops of a stable argsort on a GPU: a thread an element, which finds its place in the run merged with its own.

In:    Nest (kind SORT), whose anchor is the SORT
Out:   phases of statements in the free form: one that sorts tiles, then one for each merge of longer runs
Called by: codegen/emit.py, codegen/gpu/scatter.py.    Next: picograd/codegen/scatter.py

Where an element stands once two runs are one is its own place, and how many of the other run come before it: a binary
search, and no element waits for another (rank merging; Satish, Harris, Garland 2009, "Designing efficient sorting
algorithms for manycore GPUs", section 5). A block sorts a tile in shared memory; longer runs are merged in memory.

    keys  1 3 | 0 2      of the left run:   1 has one before it on the right, 3 two      places 0 + 1, 1 + 2
                         of the right run:  0 has none on the left, 2 one                places 0 + 0, 1 + 1

Equal keys keep their order: those of the left run come first. Cost: n log2(n)^2 / 2 comparisons, log2(n / tile) + 1 phases.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch
from picograd.codegen.index import element_within
from picograd.codegen.loops import grid_of_threads, split
from picograd.codegen.sort import Tables, at_most, comes_before, integer, key_dtype, negated
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.ir.build import both, cast, compare, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const, greatest
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, from_op, less, minimum, mod, mul, subtract, to_op

OWN = 4  # elements of a thread, at most

Put = Callable[[Dim, Op, Op], None]  # (place, key, position)
Phase = Callable[[int], Builder]  # the builder of each phase
Keep = Callable[[Builder, Dim, Dim, Callable[[], Op], Op], None]  # (row, place, what gives its key, position)


def emit_sort_gpu(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, target, scratch = context.params, context.target, context.scratch
    phase = context.phase
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending) = anchor.src, anchor.arg
    out, rows = params[nest.outputs[0][0]], [*x.shape[:axis], *x.shape[axis + 1 :]]

    def keep(build: Builder, row: Dim, place: Dim, key: Callable[[], Op], position: Op) -> None:
        at = split(row, rows)
        build.store(out, flatten((*at[:axis], place, *at[axis:]), x.shape), position)

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
        num_passes = max(0, min(self.tile, greatest(self.length)) - 1).bit_length()
        with build.loop(mul(numel(self.rows), num_tiles), AxisKind.GRID) as block:
            row, number = split(block, [numel(self.rows), num_tiles])
            first = mul(number, self.tile)
            count = minimum(subtract(self.length, first), self.tile)
            keys, positions = (build.alloc(t, 2 * self.tile, MemorySpace.SHARED) for t in (self.dtype, dtypes.int64))
            tables = Tables(keys, positions, 0, self.tile)
            with build.loop(min(self.target.block_threads, self.tile), AxisKind.BLOCK) as thread:
                self.each(build, thread, count, lambda i: self.fill(build, row, first, i, tables))
                build.barrier()
                with build.loop(num_passes, AxisKind.LOOP) as turn:
                    source, other = mod(turn, 2), mod(add(turn, 1), 2)

                    def merge(i: Dim) -> None:
                        merged(build, tables, source, count, turn, i, self.descending, stored_in(build, tables, other))

                    self.each(build, thread, count, merge)
                    build.barrier()
                self.each(build, thread, count, lambda i: self.leave(build, row, first, i, tables, num_passes % 2))

    def each(self, build: Builder, thread: Dim, count: Dim, body: Callable[[Dim], None]) -> None:
        """Runs body(i) for a thread's elements of a tile, neighbours side by side."""
        threads = min(self.target.block_threads, self.tile)
        with build.loop(self.tile // threads, AxisKind.LOOP) as own:
            i = add(mul(own, threads), thread)
            with build.when(less(i, count)):
                body(i)

    def fill(self, build: Builder, row: Dim, first: Dim, i: Dim, tables: Tables) -> None:
        """Reads a key."""
        at, position = split(row, self.rows), add(first, i)
        key = element_within(self.x, (*at[: self.axis], position, *at[self.axis :]))
        stored_in(build, tables, 0)(i, cast(key, self.dtype), to_op(position))

    def leave(self, build: Builder, row: Dim, first: Dim, i: Dim, tables: Tables, table: int) -> None:
        """Writes what stands at a place of a sorted tile."""
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


def tile_of(length: int, key_nbytes: int, target: Target) -> int:
    """Returns how many elements a block sorts: a power of two whose two tables fit in shared memory."""
    tile, room = OWN * target.block_threads, min(target.shared_bytes, DECLARED_SHARED_BYTES)
    while 2 * tile * (key_nbytes + dtypes.int64.itemsize) > room or tile // 2 >= max(2, length):
        tile //= 2
    return tile


def stored_in(build: Builder, tables: Tables, table: Dim) -> Put:
    """Returns what stores a key and its position at a place of a table."""

    def put(place: Dim, key: Op, position: Op) -> None:
        assert tables.positions is not None
        build.store(tables.keys, tables.at(table, place), key)
        build.store(tables.positions, tables.at(table, place), position)

    return put


def merged(
    build: Builder, tables: Tables, source: Dim, length: Dim, exponent: Dim, i: Dim, descending: bool, put: Put
) -> None:
    """Writes one element where it stands once its run of 2 ** exponent elements and the one beside are one.

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
    assert tables.positions is not None
    put(from_op(at_most(place, last)), key, build.load(tables.positions, tables.at(source, i)))
