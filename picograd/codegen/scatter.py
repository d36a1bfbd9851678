"""A scatter on a CPU and on a GPU: a copy of the base, then the updates of each element in their order.

Plain: one thread makes all updates of an element, so a sum has the same bits in every run. On a GPU each column has a
thread: for few updates, many rows of indices, and lengths known only at run time.

Sorted, for many updates on a GPU: a stable sort makes the updates of one place a run, in the order they came in. A thread
has an access of the result: it starts from the base and walks the run of its place.

    index     2 0 2 5 2 2      in order  0 2 2 2 2 5      begins, by place  0 1 1 5 5 5 6
    position  0 1 2 3 4 5      position  1 0 2 4 5 3      place 2 walks 1 .. 5: updates 0, 2, 4, 5

A run may be as long as all updates. So if there are very many, the sorted updates are cut into pieces of PIECE_UPDATES,
and pieces of as many of these: threads compute the total of each piece within a single run, and a run is walked by the
longest pieces in it. An index outside of the axis belongs to no run. If updates are stored, not combined, the last of a run
is the result.

The order in which a result is combined depends on shapes and indices, never on timing: base, updates
one by one, totals of pieces, updates one by one. The narrow floats are combined in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.index import element_anywhere, element_within
from picograd.codegen.loops import each_element, grid_of_threads, nested, share_columns, vector_lanes
from picograd.codegen.reduce import start_of
from picograd.codegen.sort import Phase, Sorted, at_most, halve
from picograd.device import Target
from picograd.ir.build import cast, combined, compare, equal, or_, reshape, shl, shr
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import (
    Coords,
    add,
    ceildiv,
    flatten,
    floordiv,
    from_op,
    less,
    minimum,
    mul,
    subtract,
    to_op,
    unflatten,
)
from picograd.ir.symbolic import both as both_hold

# ---- updates in their order ----
PIECE_COLUMNS = 1024  # elements of the axes right of the scattered one in one GRID iteration
BLOCK_UPDATES = 256  # updates that are computed in vectors before they are made one by one
BLOCK_ROWS_MAX = 16  # rows of the result that share the places of a block
AT_HAND = (OpCode.LOAD, OpCode.CONST, OpCode.RANGE, OpCode.PARAM, OpCode.CAST)
OPERATIONS_MIN = 8  # of an update: with fewer, the walk waits for memory anyway
ROWS_SHARED_OUT = 8  # GRID iterations that must be left when rows share places


def emit_scatter(nest: Nest, context: Context) -> None:
    """Writes `out = base` in phase `copy` and `out[..., index, ...] op= updates` in phase `build`."""
    params, target = context.params, context.target
    copy, build = context.phase(0), context.phase(1)
    anchor = nest.anchor
    base, _, updates = anchor.src
    _, axis, _ = anchor.arg
    shape, out = base.shape, params[nest.outputs[0][0]]
    left, right = shape[:axis], shape[axis + 1 :]
    num_index = len(updates.shape) - len(left) - len(right)
    index_shape = list(updates.shape[len(left) : len(left) + num_index])
    lanes = 1 if target.is_gpu else vector_lanes([updates], target)

    def put_base(positions: list[Dim]) -> None:
        copy.store(out, positions[0], element_within(base, unflatten(positions[0], shape)))

    each_element(copy, [numel(shape)], lanes, target, put_base)
    if lanes > 1 and index_shape and numel(right) == 1 and _is_computed(anchor):
        _update_in_blocks(anchor, out, index_shape, lanes, build)
        return
    with share_columns(build, left, numel(right), PIECE_COLUMNS, lanes, target) as (at, _, each):

        def update(index_at: list[Dim]) -> None:
            each(lambda _, column: _update(anchor, out, at, index_at, unflatten(column, list(right)), build))

        nested(build, index_shape, [], update)


def _update(
    anchor: Op, out: Op, at: Sequence[Dim], index_at: Sequence[Dim], right_at: Sequence[Dim], build: Builder
) -> None:
    """Writes one update."""
    _, index, updates = anchor.src
    where = from_op(cast(element_within(index, (*at[: anchor.arg[2]], *index_at)), dtypes.int64))
    _put(anchor, out, at, where, right_at, element_within(updates, (*at, *index_at, *right_at)), build)


def _put(anchor: Op, out: Op, at: Sequence[Dim], where: Dim, right_at: Sequence[Dim], value: Op, build: Builder) -> None:
    """Combines one element with a value, if its place is inside the base."""
    base = anchor.src[0]
    code, axis, _ = anchor.arg
    with build.when(both_hold(less(-1, where), less(where, base.shape[axis]))):
        place = flatten((*at, where, *right_at), base.shape)
        if code is not None:
            value = combined(code, build.load(out, place), value)
        build.store(out, place, value)


def _update_in_blocks(anchor: Op, out: Op, index_shape: Sequence[Dim], lanes: int, build: Builder) -> None:
    """Writes the updates of single elements: GRID over rows with the same indices, block by block of their updates."""
    base = anchor.src[0]
    _, axis, batch = anchor.arg
    left, own, num_alike = base.shape[:axis], base.shape[:batch], numel(base.shape[batch:axis])
    *outer, length = index_shape
    width = _rows_of_a_block(numel(left), num_alike)
    with build.loop(numel((*own, ceildiv(num_alike, width))), AxisKind.GRID) as position:
        *at, piece = unflatten(position, [*own, ceildiv(num_alike, width)])
        first = mul(piece, width)
        rows = _RowsAlike(anchor, out, at, first, minimum(subtract(num_alike, first), width), width, build)

        def write(index_at: list[Dim]) -> None:
            with build.loop(ceildiv(length, BLOCK_UPDATES), AxisKind.LOOP) as number:
                start = mul(number, BLOCK_UPDATES)
                rows.update(index_at, start, minimum(subtract(length, start), BLOCK_UPDATES), lanes)

        nested(build, outer, [], write)


class _RowsAlike:
    """Rows of a result with the same indices, such as the channels of an image, that are being updated.

    at:            their batch
    first, count:  the first row and their number
    places:        places of a block of updates
    values:        values of these updates, for each row
    """

    def __init__(self, anchor: Op, out: Op, at: Sequence[Dim], first: Dim, count: Dim, most: int, build: Builder):
        base, self.index, self.updates = anchor.src
        _, axis, batch = anchor.arg
        self.anchor, self.out, self.at, self.first, self.count, self.build = anchor, out, at, first, count, build
        self.shape, self.right_at = list(base.shape[batch:axis]), [0] * (len(base.shape) - axis - 1)
        self.places = build.alloc(dtypes.int64, BLOCK_UPDATES, MemorySpace.SHARED)
        self.values = build.alloc(self.updates.dtype, BLOCK_UPDATES * most, MemorySpace.SHARED)

    def _row(self, row: Dim) -> list[Dim]:
        return [*self.at, *unflatten(add(self.first, row), self.shape)]

    def update(self, index_at: Sequence[Dim], start: Dim, count: Dim, lanes: int) -> None:
        """Writes a block of updates: places and values in vectors, then the updates one by one."""
        build, whole = self.build, floordiv(count, lanes)
        with build.loop(whole, AxisKind.LOOP) as vector:
            self._compute(index_at, start, mul(vector, lanes), AxisKind.VECTOR, lanes)
        with build.loop(subtract(count, mul(whole, lanes)), AxisKind.LOOP) as rest:
            self._compute(index_at, start, add(mul(whole, lanes), rest), AxisKind.LOOP, 1)
        with build.loop(self.count, AxisKind.LOOP) as row, build.loop(count, AxisKind.LOOP) as i:
            value = build.load(self.values, add(mul(row, BLOCK_UPDATES), i))
            _put(self.anchor, self.out, self._row(row), from_op(build.load(self.places, i)), self.right_at, value, build)

    def _compute(self, index_at: Sequence[Dim], start: Dim, i: Dim, kind: AxisKind, lanes: int) -> None:
        """Stores the places of some updates of the block, from the i-th on, and their values for each row."""
        build, first = self.build, add(start, i)
        with build.loop(lanes, kind) as lane:
            place = element_within(self.index, (*self.at, *index_at, add(first, lane)))
            build.store(self.places, add(i, lane), cast(place, dtypes.int64))
        with build.loop(self.count, AxisKind.LOOP) as row, build.loop(lanes, kind) as lane:
            value = element_within(self.updates, (*self._row(row), *index_at, add(first, lane), *self.right_at))
            build.store(self.values, add(mul(row, BLOCK_UPDATES), add(i, lane)), value)


def _is_computed(anchor: Op) -> bool:
    """True if places and values take more operations than storing and reading a block of them."""
    values = [element_anywhere(op) for op in anchor.src[1:]]
    order = toposort(values, sources=lambda op: () if op.code is OpCode.LOAD else op.src)
    return sum(op.code not in AT_HAND for op in order) > OPERATIONS_MIN


def _rows_of_a_block(rows: Dim, alike: Dim) -> int:
    """Returns the number of rows with the same indices that share a block; fewer if threads have few rows to share."""
    if not (isinstance(rows, int) and isinstance(alike, int)):
        return 1
    return max(1, min(BLOCK_ROWS_MAX, alike, rows // ROWS_SHARED_OUT))


# ---- many updates on a GPU, sorted ----
UNSORTED_UPDATES_MAX = 31  # updates of a place that are walked without sorting, which would not pay
SORTED_ROWS_MAX = 512  # rows with their own indices that are sorted one by one; more are walked by as many threads
POSITIONS_MAX = 1 << 31  # updates of a place, or elements, since positions are int32
PIECE_BITS = 5
PIECE_UPDATES = 1 << PIECE_BITS  # updates, or shorter pieces, of a piece
RUN_UPDATES_MAX = 1024  # updates, or pieces, in one run: if there may be more, threads add up longer pieces


def sorts_updates(nest: Nest, target: Target) -> bool:
    """True if updates are sorted: on a GPU, if their number is known and large, and few threads would walk them.

    NOTE: the number of rows must not change the order of a sum, so it decides only if both ways have the same order.
    """
    if not target.is_gpu:
        return False
    base, index, updates = nest.anchor.src
    code, _, batch = nest.anchor.arg
    if not all(isinstance(dim, int) for dim in (*base.shape, *index.shape, *updates.shape)):
        return False
    count, rows = (prod(_ints(dims)) for dims in (index.shape[batch:], index.shape[:batch]))
    if not UNSORTED_UPDATES_MAX < count < POSITIONS_MAX or prod(_ints(base.shape)) >= POSITIONS_MAX:
        return False
    is_sum = base.dtype.is_float and code in (OpCode.ADD, OpCode.MUL)
    return rows <= SORTED_ROWS_MAX or (is_sum and (count > RUN_UPDATES_MAX or base.dtype.is_narrow))


def emit_scatter_gpu(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = base[..., i, ...] op the updates whose index is i."""
    params, target, scratch = context.params, context.target, context.scratch
    phase = context.phase
    _Scatter(nest.anchor, params[nest.outputs[0][0]], target, scratch).emit(phase)


class _Scatter:
    """A SCATTER of (left, places, right) elements.

    batch:     number of axes of left that have indices of their own
    updates:   the updates as (left, count, right)
    lanes:     elements of an access along right; there are `accesses` of them
    keys:      the sorted indices of each batch, with the positions of their updates (`order`); int32, like `begins`
    begins:    the start of each place's run, and then the end of the last run
    totals:    totals of the pieces of PIECE_UPDATES, PIECE_UPDATES ** 2, ... updates that are within one run
    """

    def __init__(self, anchor: Op, out: Op, target: Target, scratch: Scratch):
        self.base, index, updates = anchor.src
        self.code, axis, num_batch = anchor.arg
        self.out, self.target, self.dtype, self.scratch = out, target, anchor.dtype.compute_dtype, scratch
        shape = _ints(self.base.shape)
        self.left, self.places, self.right = shape[:axis], shape[axis], shape[axis + 1 :]
        self.batch = shape[:num_batch]
        self.count = prod(_ints(index.shape[num_batch:]))
        self.index = reshape(_at_edges(index, self.places), (*self.batch, self.count))
        self.updates = reshape(updates, (*self.left, self.count, *self.right))
        lanes, columns = vector_lanes([self.base, updates], target), prod(self.right)
        self.lanes = lanes if columns % lanes == 0 else 1
        self.accesses = columns // self.lanes
        rows = prod(self.batch)
        self.keys, self.order = (scratch(dtypes.int32, rows * self.count) for _ in range(2))
        self.begins = scratch(dtypes.int32, rows * (self.places + 1))
        self.totals: list[Op] = []

    def emit(self, phase: Phase) -> None:
        """Writes all phases."""
        number = Sorted(self.index, len(self.batch), False, self.keep, self.target, self.scratch).emit(phase)
        self.find_begins(phase(number))
        while self.code is not None and self.num_pieces(len(self.totals)) > RUN_UPDATES_MAX:
            number += 1
            self.add_up(phase(number))
        self.combine(phase(number + 1))

    def keep(self, build: Builder, row: Dim, place: Dim, key: Callable[[], Op], position: Op) -> None:
        """Stores the update at a place of a batch's sorted order."""
        at = add(mul(row, self.count), place)
        build.store(self.keys, at, key())
        build.store(self.order, at, cast(position, dtypes.int32))

    def num_pieces(self, level: int) -> int:
        """Returns the number of whole pieces of PIECE_UPDATES ** level updates."""
        return self.count >> PIECE_BITS * level

    def find_begins(self, build: Builder) -> None:
        """Writes the phase in which a thread for each place finds the first index that is not below it."""
        with grid_of_threads(build, prod(self.batch) * (self.places + 1), self.target) as position:
            row, place = unflatten(position, [prod(self.batch), self.places + 1])
            low, high = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))
            build.store(low, 0, const(0, dtypes.int64))
            build.store(high, 0, const(self.count, dtypes.int64))
            with build.loop(self.count.bit_length(), AxisKind.LOOP):  # low <= the wanted position <= high
                halve(build, low, high, lambda half: compare(OpCode.CMPLT, self.key(build, row, half), to_op(place)))
            build.store(self.begins, position, cast(build.load(low, 0), dtypes.int32))

    def key(self, build: Builder, row: Dim, place: Op) -> Op:
        """Returns the index at a place of a batch's sorted order."""
        return cast(build.load(self.keys, add(mul(row, self.count), self.inside(place, 0))), dtypes.int64)

    def inside(self, piece: Op, level: int) -> Dim:
        """Returns a piece, limited so that its bounds can be proved."""
        return from_op(at_most(piece, const(self.num_pieces(level) - 1, dtypes.int64)))

    def row_of(self, left: Sequence[Dim]) -> Dim:
        return flatten(tuple(left[: len(self.batch)]), tuple(self.batch))

    # ---- what a thread of an access does ----
    @contextmanager
    def each_access(self, build: Builder, extent: int) -> Iterator[tuple[list[Dim], Dim, Dim]]:
        """Opens a thread for each left, position in `extent`, and access."""
        left, accesses = list(self.left), self.accesses
        with grid_of_threads(build, prod(left) * extent * accesses, self.target) as position:
            *at, middle, access = unflatten(position, [*left, extent, accesses])
            yield at, middle, access

    def columns(self, access: Dim, lane: Dim) -> Coords:
        return unflatten(add(mul(access, self.lanes), lane), self.right)

    def add_up(self, build: Builder) -> None:
        """Writes the phase that computes totals of pieces within one run, from those of shorter pieces."""
        level = len(self.totals)
        num_pieces, shift = self.num_pieces(level + 1), PIECE_BITS * (level + 1)
        totals = self.scratch(self.dtype, prod(self.left) * num_pieces * prod(self.right))
        with self.each_access(build, num_pieces) as (left, piece, access):
            first = add(mul(self.row_of(left), self.count), mul(piece, 1 << shift))
            ends = [build.load(self.keys, place) for place in (first, add(first, (1 << shift) - 1))]
            own = build.alloc(self.dtype, self.lanes, MemorySpace.REGISTER)
            with build.when(equal(*ends)):
                with build.loop(self.lanes, AxisKind.VECTOR) as lane:
                    build.store(own, lane, start_of(self.code, self.dtype))
                with build.loop(PIECE_UPDATES, AxisKind.LOOP) as part:
                    self.accumulate(build, own, left, add(mul(piece, PIECE_UPDATES), part), access, level)
                with build.loop(self.lanes, AxisKind.VECTOR) as lane:
                    at = self.total_at(left, piece, access, lane, level + 1)
                    build.store(totals, at, build.load(own, lane))
        self.totals.append(totals)

    def total_at(self, left: Sequence[Dim], piece: Dim, access: Dim, lane: Dim, level: int) -> Dim:
        """Returns the place of the total of a piece, for one column."""
        shape = (*self.left, self.num_pieces(level), *self.right)
        return flatten((*left, piece, *self.columns(access, lane)), shape)

    def accumulate(self, build: Builder, own: Op, left: list[Dim], piece: Dim, access: Dim, level: int) -> None:
        """Combines the total of a piece, or a single update, with a thread's values."""
        assert self.code is not None
        position = self.update_at(build, self.row_of(left), piece) if level == 0 else piece
        with build.loop(self.lanes, AxisKind.VECTOR) as lane:
            if level == 0:
                value = element_within(self.updates, (*left, position, *self.columns(access, lane)))
            else:
                value = read(self.totals[level - 1], self.total_at(left, position, access, lane, level))
            build.store(own, lane, combined(self.code, build.load(own, lane), cast(value, self.dtype)))

    def update_at(self, build: Builder, row: Dim, place: Dim) -> Dim:
        """Returns the number of the update at a place of the sorted order."""
        position = build.load(self.order, add(mul(row, self.count), place))
        return self.inside(cast(position, dtypes.int64), 0)

    def combine(self, build: Builder) -> None:
        """Writes the phase that makes the result."""
        with self.each_access(build, self.places) as (left, place, access):
            row = self.row_of(left)
            first = add(mul(row, self.places + 1), place)
            begin, end = (cast(build.load(self.begins, at), dtypes.int64) for at in (first, add(first, 1)))
            own = build.alloc(self.dtype, self.lanes, MemorySpace.REGISTER)
            with build.loop(self.lanes, AxisKind.VECTOR) as lane:
                base = element_within(self.base, (*left, place, *self.columns(access, lane)))
                build.store(own, lane, cast(base, self.dtype))
            with build.when(compare(OpCode.CMPLT, begin, end)):
                (self.take_last if self.code is None else self.walk)(build, own, left, begin, end, access)
            with build.loop(self.lanes, AxisKind.VECTOR) as lane:
                at = flatten((*left, place, *self.columns(access, lane)), self.base.shape)
                build.store(self.out, at, cast(build.load(own, lane), self.base.dtype))

    def take_last(self, build: Builder, own: Op, left: list[Dim], begin: Op, end: Op, access: Dim) -> None:
        """Writes the last update of a run over a thread's values."""
        position = self.update_at(build, self.row_of(left), self.inside(end - const(1, dtypes.int64), 0))
        with build.loop(self.lanes, AxisKind.VECTOR) as lane:
            value = element_within(self.updates, (*left, position, *self.columns(access, lane)))
            build.store(own, lane, cast(value, self.dtype))

    def walk(self, build: Builder, own: Op, left: list[Dim], begin: Op, end: Op, access: Dim) -> None:
        """Combines a run with a thread's values, by pieces that become longer, then shorter."""
        here, one, top = begin, const(1, dtypes.int64), len(self.totals)
        for level in range(top):
            below = const((PIECE_UPDATES << PIECE_BITS * level) - 1, dtypes.int64)
            longer = or_(here - one, below) + one  # the start of the next longer piece
            here = self.walk_pieces(build, own, left, here, combined(OpCode.MIN, longer, end), access, level)
        for level in reversed(range(top + 1)):
            here = self.walk_pieces(build, own, left, here, end, access, level)

    def walk_pieces(self, build: Builder, own: Op, left: list[Dim], here: Op, end: Op, access: Dim, level: int) -> Op:
        """Combines whole pieces between `here` and `end` with a thread's values; returns the update after them."""
        bits = const(PIECE_BITS * level, dtypes.int64)
        first, stop = (shr(at, bits) for at in (here, end))
        with build.loop(subtract(from_op(stop), from_op(first)), AxisKind.LOOP) as part:
            self.accumulate(build, own, left, self.inside(first + part, level), access, level)
        return combined(OpCode.MAX, here, shl(stop, bits))


def _at_edges(index: Op, places: int) -> Op:
    """Returns indices as int32; one outside of the axis becomes the nearest integer outside."""
    wide = cast(index, dtypes.int64)
    return cast(combined(OpCode.MIN, combined(OpCode.MAX, wide, wide.filled(-1)), wide.filled(places)), dtypes.int32)


def _ints(dims: Sequence[Dim]) -> list[int]:
    """Returns dims, which must be numbers."""
    found = [dim for dim in dims if isinstance(dim, int)]
    assert len(found) == len(dims), f"{dims}: only scatters of known shapes come here"
    return found
