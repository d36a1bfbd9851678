"""A scan on a CPU and on a GPU: running sums, products, maxima and minima along one axis.

On a CPU rows are independent of each other; along a row the order is that of the axis, so the bits are those of a loop.

On a GPU a block walks a row, tile by tile. A thread has an access of consecutive elements, and runs over them. Then
threads join their totals by steps of twice the length (Hillis and Steele 1986, "Data parallel algorithms"), in shared
memory whose two halves take turns:

    of each thread   3 1 4 1      step 1   3 4 5 5      step 2   3 4 8 9

A thread's elements start from its neighbour's total, after the total of earlier tiles. Few long rows are cut into parts:
each part's total, then the running totals of a row's parts, then each part again from the total before it. Rows that are
neighbours in memory have a thread each. Running values are float64 for floats, so the order in which they are
joined shows in no result but for its last bit, and depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder, Context, Scratch
from picograd.codegen.index import element_within
from picograd.codegen.loops import BLOCKS_WANTED, share_columns, vector_lanes
from picograd.codegen.reduce import running_dtype, start_of
from picograd.device import Target
from picograd.ir.build import cast, combined, where
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import Coords, add, ceildiv, flatten, floordiv, less, minimum, mod, mul, subtract, unflatten

# ---- columns: running values of neighbouring rows ----
PIECE_COLUMNS = 256  # of the elements right of the axis, whose running values one thread keeps


def emit_scan(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = x[..., 0, ...] op ... op x[..., i, ...]."""
    _scan_columns(nest.anchor, context.params[nest.outputs[0][0]], context.target, context.phase(0))


def _scan_columns(anchor: Op, out: Op, target: Target, build: Builder) -> None:
    """Writes the elements right of the axis as columns, each with a running value that goes along the axis."""
    (x,), (code, axis) = anchor.src, anchor.arg
    left, length, right = x.shape[:axis], x.shape[axis], list(x.shape[axis + 1 :])
    dtype = running_dtype(anchor)
    with share_columns(build, left, numel(right), PIECE_COLUMNS, vector_lanes([x], target), target) as (at, width, each):
        running = build.alloc(dtype, width, MemorySpace.REGISTER if width == 1 else MemorySpace.SHARED)

        def step(number: Dim, column: Dim) -> None:
            coords = (*at, i, *unflatten(column, right))
            total = combined(code, build.load(running, number), cast(element_within(x, coords), dtype))
            build.store(running, number, total)
            build.store(out, flatten(coords, x.shape), cast(total, anchor.dtype))

        each(lambda number, _: build.store(running, number, start_of(code, dtype)))
        with build.loop(length, AxisKind.LOOP) as i:
            each(step)


# ---- rows: a block of threads walks each ----
THREAD_ELEMENTS_MAX = WARP_THREADS - 1  # a row no longer than this is one thread's
PART_TILES_MIN, PARTS_MAX = 4, 256  # of a long row: tiles of a part at least, and parts

Element = Callable[[Dim, Dim], Op]  # (access, lane)
Put = Callable[[Dim, Dim, Op], None]  # (access, lane, running value)


def emit_scan_gpu(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = x[..., 0, ...] op ... op x[..., i, ...]."""
    params, target, scratch = context.params, context.target, context.scratch
    builders = [context.phase(number) for number in range(3)]
    _Scan(nest.anchor, params[nest.outputs[0][0]], target).emit(builders, scratch)


class _Scan:
    """Rows of a SCAN.

    dtype:     of running values
    lanes:     elements of an access
    accesses:  of a row
    """

    def __init__(self, anchor: Op, out: Op, target: Target):
        (self.x,), (self.code, axis) = anchor.src, anchor.arg
        self.anchor, self.out, self.target, self.result_dtype = anchor, out, target, anchor.dtype
        shape = self.x.shape
        self.left, self.length, self.right = list(shape[:axis]), shape[axis], list(shape[axis + 1 :])
        self.dtype, self.threads = running_dtype(anchor), target.block_threads
        lanes = vector_lanes([self.x], target)
        self.lanes = lanes if isinstance(self.length, int) and self.length % lanes == 0 else 1
        self.accesses = floordiv(self.length, self.lanes)

    def emit(self, builders: Sequence[Builder], scratch: Scratch) -> None:
        """Writes all phases."""
        first, second, third, *_ = builders
        rows, is_short = numel(self.left), isinstance(self.length, int) and self.length <= THREAD_ELEMENTS_MAX
        if is_short or numel(self.right) != 1:
            _scan_columns(self.anchor, self.out, self.target, first)
            return
        parts = self.num_parts(rows)
        if parts == 1:
            with first.loop(rows, AxisKind.GRID) as block:
                self.walk_part(first, block, 0, self.accesses, None, self.put(first, block))
            return
        totals = scratch(self.dtype, mul(rows, parts))
        each = ceildiv(self.accesses, parts)
        for build in (first, third):
            with build.loop(mul(rows, parts), AxisKind.GRID) as block:
                row, part = unflatten(block, [rows, parts])
                start = mul(part, each)
                count = minimum(subtract(self.accesses, start), each)
                if build is first:
                    self.walk_part(build, row, start, count, None, None, totals, block)
                else:
                    self.walk_part(build, row, start, count, (totals, block, part), self.put(build, row))
        with second.loop(rows, AxisKind.GRID) as block:
            self.run_totals(second, block, parts, totals)

    def num_parts(self, rows: Dim) -> int:
        """Returns in how many parts a row is walked, none of them empty: one, where rows alone are enough blocks."""
        if not isinstance(rows, int) or not isinstance(self.accesses, int) or rows >= BLOCKS_WANTED:
            return 1
        tiles = ceildiv(self.accesses, self.threads)
        each = ceildiv(self.accesses, max(1, min(PARTS_MAX, tiles // PART_TILES_MIN)))
        return ceildiv(self.accesses, max(1, each))

    def element(self, coords: Coords) -> Op:
        return cast(element_within(self.x, coords), self.dtype)

    def coords(self, row: Dim, access: Dim, lane: Dim) -> Coords:
        return (*unflatten(row, self.left), add(mul(access, self.lanes), lane), *[0 for _ in self.right])

    def put(self, build: Builder, row: Dim) -> Put:
        """Returns the function that stores results of a row."""

        def put(access: Dim, lane: Dim, value: Op) -> None:
            place = flatten(self.coords(row, access, lane), self.x.shape)
            build.store(self.out, place, cast(value, self.result_dtype))

        return put

    # ---- what a block does ----
    def walk_part(
        self, build: Builder, row: Dim, start: Dim, count: Dim, before: tuple[Op, Dim, Dim] | None, put: Put | None,
        totals: Op | None = None, place: Dim = 0,
    ) -> None:  # fmt: skip
        """Writes a part of a row.

        Args:
          before:  the running totals, where this part's are, and which of its row it is
          put:     stores a running value; None where the total of the part is wanted, at a place of `totals`
        """
        sums = build.alloc(self.dtype, 2 * self.threads, MemorySpace.SHARED)
        with build.loop(self.threads, AxisKind.BLOCK) as thread:
            carry = build.alloc(self.dtype, 1, MemorySpace.REGISTER)
            build.store(carry, 0, start_of(self.code, self.dtype))
            if before is not None:
                memory, at, part = before
                with build.when(less(0, part)):
                    build.store(carry, 0, build.load(memory, subtract(at, 1)))

            def element(access: Dim, lane: Dim) -> Op:
                return self.element(self.coords(row, add(start, access), lane))

            shifted = None if put is None else lambda access, lane, value: put(add(start, access), lane, value)
            self.walk(build, thread, sums, carry, count, self.lanes, element, shifted)
            if totals is not None:
                with build.when(less(thread, 1)):
                    build.store(totals, place, build.load(carry, 0))

    def run_totals(self, build: Builder, row: Dim, parts: int, totals: Op) -> None:
        """Writes the running totals of a row's parts over the totals."""
        sums = build.alloc(self.dtype, 2 * self.threads, MemorySpace.SHARED)
        first = mul(row, parts)
        with build.loop(self.threads, AxisKind.BLOCK) as thread:
            carry = build.alloc(self.dtype, 1, MemorySpace.REGISTER)
            build.store(carry, 0, start_of(self.code, self.dtype))
            self.walk(
                build, thread, sums, carry, parts, 1,
                lambda access, lane: build.load(totals, add(first, access)),
                lambda access, lane, value: build.store(totals, add(first, access), value),
            )  # fmt: skip

    def walk(
        self, build: Builder, thread: Dim, sums: Op, carry: Op, count: Dim, lanes: int, element: Element, put: Put | None
    ) -> None:
        """Writes a block's way over `count` accesses, all threads in step; `carry` is what comes before, and grows.

        Args:
          sums:  shared memory, twice an element for each thread
        """
        code, threads, start = self.code, self.threads, start_of(self.code, self.dtype)
        own = build.alloc(self.dtype, lanes, MemorySpace.REGISTER)
        with build.loop(ceildiv(count, threads), AxisKind.LOOP) as step:
            access = add(mul(step, threads), thread)
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(own, lane, start)
            with build.when(less(access, count)), build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(own, lane, element(access, lane))
            for number in range(1, lanes):
                build.store(own, number, combined(code, build.load(own, number - 1), build.load(own, number)))
            build.store(sums, thread, build.load(own, lanes - 1))
            build.barrier()
            half = self.join(build, thread, sums)
            left = build.load(sums, add(half, mod(add(thread, threads - 1), threads)))
            base = combined(code, build.load(carry, 0), where(_is_below(thread, 1), start, left))
            if put is not None:
                with build.when(less(access, count)), build.loop(lanes, AxisKind.VECTOR) as lane:
                    put(access, lane, combined(code, base, build.load(own, lane)))
            build.store(carry, 0, combined(code, build.load(carry, 0), build.load(sums, add(half, threads - 1))))
            build.barrier()

    def join(self, build: Builder, thread: Dim, sums: Op) -> Dim:
        """Writes the steps from the total of each thread to that of all threads up to it; returns where these are."""
        half, other, distance = 0, self.threads, 1
        while distance < self.threads:
            mine = build.load(sums, add(half, thread))
            theirs = build.load(sums, add(half, mod(add(thread, self.threads - distance), self.threads)))
            joined = combined(self.code, theirs, mine)
            build.store(sums, add(other, thread), where(_is_below(thread, distance), mine, joined))
            build.barrier()
            half, other, distance = other, half, 2 * distance
        return half


def _is_below(thread: Dim, bound: int) -> Op:
    found = less(thread, bound)
    assert isinstance(found, Op), "a thread's number is known only when it runs"
    return found
