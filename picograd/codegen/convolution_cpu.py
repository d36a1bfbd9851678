"""Convolutions on a CPU as matrix products whose columns are windows, packed a block of K at a time.

A GRID iteration computes a block of the result: some output channels by some vectors of positions. It walks K in blocks;
for each it packs the windows on its stack and multiplies them as codegen/matmul_cpu.py does. Besides the stack, it needs
memory for the packed weight if that is small, and for the parts of a long sum that threads share: SCRATCH_NBYTES each.

If one row of positions fills most lanes of its vectors, vectors begin at its start: they read contiguous elements. Else
vectors continue over the positions of all images.

With few output channels, as in depthwise convolutions, packing a window takes longer than multiplying it: planes of x are
staged with their padding (`emit_planes`), and vectors of positions read them under each tap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.convolution import FILLED_LANES_MIN, ITERATIONS_MIN, Windows, padded
from picograd.codegen.loops import along, longest, nested
from picograd.codegen.matmul import Tile, most_alike, most_rows, store_outputs
from picograd.codegen.matmul_cpu import rows_and_vectors
from picograd.device import Target
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.build import cast, static_shape
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel, of_numbers
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, bounds, ceildiv, flatten, floordiv, less, minimum, mod, mul, subtract, unflatten
from picograd.record import Record

# ---- blocks ----
BLOCK_K_MAX = 288  # of a block: 32 channels of 3 x 3 taps
BLOCK_CHANNELS_MAX = 132  # of a block: panels of 12, 6 or 4; 149 KiB of weights stay in the second-level cache
BLOCK_VECTORS_MIN = 8  # of positions per block


class Blocks(Record, dict=True):
    """The blocks of a convolution.

    windows:    the convolution
    lanes:      lanes per vector
    rows:       rows of the register tile
    vectors:    vectors per row of the tile
    dtype:      dtype of the sums
    has_fma:    the target has fused multiply-add
    """

    windows: Windows
    lanes: int
    rows: int
    vectors: int
    dtype: DType
    has_fma: bool

    # ---- K: channels by taps ----
    @cached_property
    def taps(self) -> int:
        """Taps of a block: all, unless there are many."""
        return most_alike(self.windows.num_taps, BLOCK_K_MAX)

    @cached_property
    def channels(self) -> int:
        """Channels of a block: one, unless the block has all taps."""
        if not self.has_all_taps:
            return 1
        return most_alike(self.windows.channels, max(1, BLOCK_K_MAX // self.taps))

    @property
    def has_all_taps(self) -> bool:
        """True if each block has all taps, and their number is known."""
        return isinstance(self.windows.num_taps, int) and self.num_tap_blocks in (0, 1)

    @property
    def num_tap_blocks(self) -> Dim:
        return ceildiv(self.windows.num_taps, self.taps)

    @property
    def num_k_blocks(self) -> Dim:
        return mul(ceildiv(self.windows.channels, self.channels), self.num_tap_blocks)

    @property
    def depth(self) -> int:
        """Maximum of K per block."""
        return self.channels * self.taps

    # ---- rows: output channels of a group ----
    @property
    def row_panels(self) -> int:
        return ceildiv(self.windows.m, self.rows)

    @cached_property
    def panels(self) -> int:
        """Row panels per block."""
        pieces = ceildiv(self.row_panels, BLOCK_CHANNELS_MAX // self.rows)
        return ceildiv(self.row_panels, pieces)

    @property
    def num_pieces(self) -> int:
        return ceildiv(self.row_panels, self.panels)

    # ---- columns: positions, a vector at a time ----
    @cached_property
    def first_inner(self) -> int:
        """The first of the trailing axes along which positions are consecutive elements of x."""
        w, arg = self.windows, self.windows.arg
        first = len(w.taps) - 1
        pointwise = [
            (taps, arg.stride[i], arg.padding[i], arg.input_dilation[i]) == (1, 1, (0, 0), 1)
            for i, taps in enumerate(w.taps)
        ]
        while first > 0 and all(pointwise[first - 1 :]):
            first -= 1
        return first

    @cached_property
    def inner(self) -> Dim:
        """Positions of a row, at whose start vectors begin."""
        return numel(self.windows.spatial[self.first_inner :])

    @cached_property
    def by_rows(self) -> bool:
        """True if vectors run along one row, or its length is not a number; else along all positions of all images."""
        if not isinstance(self.inner, int):
            return True
        return self.inner >= FILLED_LANES_MIN * self.lanes * ceildiv(self.inner, self.lanes)

    @property
    def num_positions(self) -> Dim:
        return mul(self.windows.anchor.shape[0], numel(self.windows.spatial))

    @property
    def vectors_of_a_row(self) -> Dim:
        return ceildiv(self.inner, self.lanes)

    @property
    def num_vectors(self) -> Dim:
        """Number of vectors of positions."""
        if self.by_rows:
            rows = mul(self.windows.anchor.shape[0], numel(self.windows.spatial[: self.first_inner]))
            return mul(rows, self.vectors_of_a_row)
        return ceildiv(self.num_positions, self.lanes)

    @property
    def width(self) -> int:
        """Vectors per block."""
        return self.vectors * ceildiv(BLOCK_VECTORS_MIN, self.vectors)

    @property
    def num_columns(self) -> Dim:
        """Number of blocks of columns."""
        return ceildiv(self.num_vectors, self.width)

    def position(self, vector: Dim, lane: Dim) -> tuple[Dim, tuple[Dim, ...], Op | bool]:
        """Returns image and position of a vector's lane, and whether it exists."""
        spatial, images = self.windows.spatial, self.windows.anchor.shape[0]
        if not self.by_rows:
            n = add(mul(vector, self.lanes), lane)
            b, *at = unflatten(n, (images, *spatial))
            return b, tuple(at), less(n, self.num_positions)
        outer = spatial[: self.first_inner]
        b, *at = unflatten(floordiv(vector, self.vectors_of_a_row), (images, *outer))
        inner = add(mul(mod(vector, self.vectors_of_a_row), self.lanes), lane)
        known = less(vector, self.num_vectors)
        if self.first_inner == len(spatial) - 1:  # `Windows.column` handles positions past the end of the row
            return b, (*at, inner), known
        return b, (*at, *unflatten(inner, spatial[self.first_inner :])), both(less(inner, self.inner), known)

    def count(self, vector: Dim) -> Dim:
        """Returns the number of a vector's lanes that are positions."""
        if self.by_rows:
            return minimum(subtract(self.inner, mul(mod(vector, self.vectors_of_a_row), self.lanes)), self.lanes)
        return minimum(subtract(self.num_positions, mul(vector, self.lanes)), self.lanes)


def blocks_of(anchor: Op, target: Target) -> Blocks:
    """Returns the blocking of a CONV for `emit_convolution`."""
    windows, lanes = Windows(anchor), target.sum_lanes(anchor.dtype)
    positions = mul(anchor.shape[0], numel(windows.spatial))
    rows, vectors = rows_and_vectors(windows.m, positions, lanes, most_rows(target))
    return Blocks(windows, lanes, rows, max(1, vectors), anchor.dtype.compute_dtype, target.has_fma)


# ---- loops ----
SCRATCH_NBYTES = 1 << 20  # of the packed weight, and of the parts of split sums

Panel = Callable[[Dim, Dim], Op]  # (row of the panel, k in the block) -> an element of the packed weight
Weight = Callable[[Dim, Dim, Dim], Panel]  # (group, panel's number in it, block of K) -> that panel over that block


def emit_convolution(nest: Nest, context: Context) -> None:
    """Writes a convolution: the weight is packed in `first` if it is small, blocks of the result are in `second`.

    A long sum for a small weight gradient is split: its parts are in `first`, their sums in `second`.
    """
    params, target, scratch = context.params, context.target, context.scratch
    first, second = context.phase(0), context.phase(1)
    blocks = blocks_of(nest.anchor, target)
    splits = _num_splits(blocks)
    if splits > 1:
        _split_sums(nest, params, blocks, splits, first, second, scratch)
        return
    weight = _packed_weight(blocks, first, scratch)
    extents = [blocks.windows.groups, blocks.num_pieces, blocks.num_columns]
    with second.loop(numel(extents), AxisKind.GRID) as number:
        group, piece, column = unflatten(number, extents)
        done = _multiply(blocks, group, piece, column, 0, blocks.num_k_blocks, weight, second)
        first_vector = mul(column, blocks.width)
        with second.loop(minimum(subtract(blocks.num_vectors, first_vector), blocks.width), AxisKind.LOOP) as v:

            def value(row: Dim, lane: Dim) -> Op:
                return second.load(done, _place(blocks, row, v, lane))

            start = mul(piece, blocks.panels * blocks.rows)
            height = minimum(subtract(blocks.windows.m, start), blocks.panels * blocks.rows)
            _store_rows(nest, params, blocks, group, start, height, add(first_vector, v), value, second)


def _num_splits(blocks: Blocks) -> int:
    """Returns the number of parts of the sum over K, from shapes only, so that its bits do not depend on threads.

    1 if axis 0 is a batch: an image has the same bits alone or among others.
    """
    windows = blocks.windows
    parts, columns = windows.groups * blocks.num_pieces, blocks.num_columns
    if not windows.arg.of_weight or not isinstance(columns, int) or parts * columns >= ITERATIONS_MIN:
        return 1
    nbytes = windows.groups * windows.m * columns * blocks.width * blocks.lanes * blocks.dtype.itemsize
    return max(1, min(ITERATIONS_MIN, longest(blocks.num_k_blocks) // 2, SCRATCH_NBYTES // nbytes))


def _split_sums(
    nest: Nest, params: Sequence[Op], blocks: Blocks, splits: int, first: Builder, second: Builder, scratch: Scratch
) -> None:
    """Writes parts of the sums, then adds them in order."""
    windows, columns = blocks.windows, blocks.num_columns
    length = mul(columns, blocks.width * blocks.lanes)
    shape = (splits, windows.groups, windows.m, length)
    memory = scratch(blocks.dtype, numel(shape))
    each = ceildiv(blocks.num_k_blocks, splits)

    def place(part: Dim, group: Dim, row: Dim, vector: Dim, lane: Dim) -> Dim:
        whole = add(mul(add(mul(part, windows.groups), group), windows.m), row)
        return add(mul(whole, length), add(mul(vector, blocks.lanes), lane))

    extents = [splits, windows.groups, blocks.num_pieces, columns]
    with first.loop(numel(extents), AxisKind.GRID) as number:
        part, group, piece, column = unflatten(number, extents)
        start = mul(part, each)
        count = minimum(subtract(blocks.num_k_blocks, start), each)
        done = _multiply(blocks, group, piece, column, start, count, None, first)
        top = mul(piece, blocks.panels * blocks.rows)
        with (
            first.loop(minimum(subtract(windows.m, top), blocks.panels * blocks.rows), AxisKind.LOOP) as row,
            first.loop(blocks.width, AxisKind.LOOP) as v,
            first.loop(blocks.lanes, AxisKind.VECTOR) as lane,
        ):
            where = place(part, group, add(top, row), add(mul(column, blocks.width), v), lane)
            first.store(memory, where, first.load(done, _place(blocks, row, v, lane)))
    with second.loop(mul(windows.groups, blocks.num_vectors), AxisKind.GRID) as number:
        group, vector = unflatten(number, [windows.groups, blocks.num_vectors])

        def value(row: Dim, lane: Dim) -> Op:
            total = read(memory, place(0, group, row, vector, lane))
            for part in range(1, splits):
                total = Op(OpCode.ADD, blocks.dtype, (total, read(memory, place(part, group, row, vector, lane))))
            return total

        _store_rows(nest, params, blocks, group, 0, windows.m, vector, value, second)


def _store_rows(
    nest: Nest, params: Sequence[Op], blocks: Blocks, group: Dim, start: Dim, height: Dim, vector: Dim,
    value: Callable[[Dim, Dim], Op], build: Builder,
) -> None:  # fmt: skip
    """The epilogue: outputs of some channels at a vector of positions."""
    dtype = nest.anchor.dtype
    with build.loop(height, AxisKind.LOOP) as i:

        def store(lane: Dim) -> None:
            b, at, _ = blocks.position(vector, lane)
            channel = add(mul(group, blocks.windows.m), add(start, i))
            store_outputs(nest, params, (b, channel, *at), cast(value(i, lane), dtype), build)

        along(build, 0, blocks.count(vector), blocks.lanes, store)


# ---- planes ----
STAGED_ELEMENTS_MAX = 1 << 13  # of x staged together: the first-level cache holds them
PLANE_VECTORS_MAX = 8  # of a tile: enough sums to hide the latency of their additions
PLANE_FILLED_MIN = 0.3  # of the lanes over a plane
PLANES_BYTES_MAX = 1 << 20
PART_OF_ROW_MAX = 256  # of a row of symbolic length
UNROLLED_TAPS_MAX = 8  # along the last axis


class Planes(Record, dict=True):
    """Planes: the elements of some channels of x under the windows of some rows of positions, with padding.

    Positions count through a staged plane, padding included, so under each tap a vector of them reads neighbours, across
    rows. With a stride there is a plane per phase:

        stride 2:  x  0 1 2 3 4 5  ->  0 2 4 | 1 3 5

    For rows of symbolic length a plane has a part of them, of constant length: a tile has one vector of each of some rows.

    blocks:  blocks of the same convolution; sums are added in the same order
    most:    vectors of sums that fit into registers
    """

    blocks: Blocks
    most: int

    @property
    def windows(self) -> Windows:
        return self.blocks.windows

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """Elements between the first tap and the last, along each axis."""
        return tuple((taps - 1) * apart for taps, apart in zip(static_shape(self.windows.taps), self.windows.arg.dilation))

    @cached_property
    def phases(self) -> tuple[int, ...]:
        return tuple(min(step, reach + 1) for step, reach in zip(self.windows.arg.stride, self.reach))

    @cached_property
    def beyond(self) -> tuple[int, ...]:
        """Elements of a plane past the last position, along each axis."""
        return tuple(reach // step for step, reach in zip(self.windows.arg.stride, self.reach))

    @property
    def has_parts(self) -> bool:
        """True if planes have parts of rows."""
        return len(self.windows.spatial) > 1 and not isinstance(self.windows.spatial[-1], int)

    @property
    def inner(self) -> tuple[int, ...]:
        """Positions of a plane along each axis except the first."""
        *middle, last = self.windows.spatial[1:] or (1,)
        if not isinstance(last, int):  # whole vectors, as far as tiles reach
            last = min(PART_OF_ROW_MAX, ceildiv(longest(last), self.blocks.lanes) * self.blocks.lanes)
        return (*static_shape(tuple(middle)), last) if len(self.windows.spatial) > 1 else ()

    @cached_property
    def height(self) -> int:
        """Positions along the first axis computed together."""
        of_row = self.blocks.channels * prod(self.phases) * prod(n + more for n, more in zip(self.inner, self.beyond[1:]))
        most = max(1, STAGED_ELEMENTS_MAX // of_row - self.beyond[0])
        if not self.has_parts:
            return most_alike(self.windows.spatial[0], most)
        of_tile = self.most_vectors
        return of_tile * max(1, min(most // of_tile, ceildiv(longest(self.windows.spatial[0]), of_tile)))

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Elements of a plane along each axis."""
        return tuple(n + more for n, more in zip((self.height, *self.inner), self.beyond))

    @cached_property
    def num_positions(self) -> int:
        """Number of positions of a plane, with those past the end of a row."""
        return self.height * prod(self.extents[1:])

    @property
    def most_vectors(self) -> int:
        """Maximum vectors of a tile."""
        return min(PLANE_VECTORS_MAX, max(1, self.most // self.blocks.rows))

    @cached_property
    def tile(self) -> Tile:
        blocks, count, vectors = self.blocks, self.num_positions, self.most_vectors
        if not self.has_parts:
            vectors = min(range(vectors, 0, -1), key=lambda n: ceildiv(count, n * blocks.lanes) * (n + 1))
        return Tile(blocks.rows, vectors, blocks.lanes, blocks.dtype, blocks.has_fma)

    @cached_property
    def num_tiles(self) -> int:
        return ceildiv(self.num_positions, self.tile.columns)

    @property
    def columns(self) -> int:
        """Maximum number of positions of all tiles."""
        return self.num_tiles * self.tile.columns

    def tiles(self, lengths: Sequence[Dim]) -> list[Dim]:
        """Returns the number of tiles with positions, from the lengths of the axes: rows and vectors of parts."""
        if self.has_parts:
            return [ceildiv(lengths[0], self.tile.vectors), ceildiv(lengths[1], self.blocks.lanes)]
        return [minimum(ceildiv(mul(lengths[0], prod(self.extents[1:])), self.tile.columns), self.num_tiles)]

    def position(self, tile: Sequence[Dim], column: Dim) -> Dim:
        """Returns a position by its column in a tile."""
        if not self.has_parts:
            return add(mul(tile[0], self.tile.columns), column)
        row = add(mul(tile[0], self.tile.vectors), floordiv(column, self.blocks.lanes))
        return flatten((row, add(mul(tile[1], self.blocks.lanes), mod(column, self.blocks.lanes))), self.extents)

    @cached_property
    def numel(self) -> int:
        """Elements of a plane, with those that the last tile and the last vector read past it."""
        behind = self.blocks.lanes if self.has_parts else int(flatten(self.beyond, self.extents))
        return max(prod(self.extents) + self.blocks.lanes, self.columns + behind)

    @cached_property
    def line(self) -> int:
        """Elements of a row of x in memory, split in registers into phases; 0 if most of them belong to none."""
        step, lanes = self.windows.arg.stride[-1], self.blocks.lanes
        return step * ceildiv(self.extents[-1], lanes) * lanes if 1 < step <= 2 * self.phases[-1] else 0

    @property
    def numel_on_stack(self) -> int:
        staged = self.blocks.channels * prod(self.phases) * self.numel + self.line
        return staged + self.blocks.row_panels * self.blocks.rows * self.columns + self.blocks.rows * self.blocks.depth

    # ---- places on the stack ----
    def place(self, c: Dim, phase: Sequence[Dim], position: Dim) -> Dim:
        """Returns the index of a staged element of x."""
        return add(mul(flatten((c, *phase), (self.blocks.channels, *self.phases)), self.numel), position)

    def under(self, c: Dim, taps: Sequence[Dim], position: Dim) -> Dim:
        """Returns the index of the element of x under a tap at a position."""
        arg = self.windows.arg
        reached = [mul(tap, apart) for tap, apart in zip(taps, arg.dilation)]
        behind = [floordiv(at, step) for at, step in zip(reached, arg.stride)]
        phase = [mod(at, step) for at, step in zip(reached, arg.stride)]
        return self.place(c, phase, add(position, flatten(behind, self.extents)))


def has_planes(anchor: Op, target: Target) -> bool:
    """True for a CONV without gaps whose positions fill lanes plane by plane."""
    arg, windows = anchor.arg, Windows(anchor)
    if arg.of_weight or max(arg.input_dilation) > 1 or min(min(pair) for pair in arg.padding) < 0:
        return False
    if not of_numbers((anchor.shape[1], *windows.spatial[1:-1], anchor.src[0].shape[1], *anchor.src[1].shape)):
        return False
    if not all(bounds(n)[0] > 0 for n in (*anchor.shape[1:], *anchor.src[0].shape[1:], *anchor.src[1].shape)):
        return False
    planes = planes_of(anchor, target)
    blocks, positions = planes.blocks, planes.height * prod(planes.inner)
    is_small = planes.numel_on_stack * blocks.dtype.itemsize <= PLANES_BYTES_MAX
    if planes.has_parts and (len(windows.spatial) > 2 or bounds(windows.spatial[-1])[0] < blocks.lanes):
        return False
    return blocks.has_all_taps and is_small and positions >= PLANE_FILLED_MIN * planes.columns


def planes_of(anchor: Op, target: Target) -> Planes:
    """Returns the blocking of a CONV for `emit_planes`."""
    return Planes(blocks_of(anchor, target), 2 * most_rows(target))


def emit_planes(nest: Nest, context: Context) -> None:
    """Writes a convolution: the weight is packed in a first phase if it is small; the second has images, group by group."""
    build, anchor = context.phase(1), nest.anchor
    planes = planes_of(anchor, context.target)
    blocks, windows, lanes = planes.blocks, planes.windows, planes.blocks.lanes
    weight = _packed_weight(blocks, context.phase(0), context.scratch)
    length, *inner = windows.spatial
    extents = [anchor.shape[0], windows.groups, ceildiv(length, planes.height)]
    if planes.has_parts:
        extents.append(ceildiv(inner[-1], planes.inner[-1]))
    with build.loop(numel(extents), AxisKind.GRID) as number:
        image, group, chunk, *part = unflatten(number, extents)
        top, left = mul(chunk, planes.height), mul(part[0], planes.inner[-1]) if part else 0
        at, lengths = (image, group, top, left), [minimum(subtract(length, top), planes.height), *inner]
        if part:
            lengths[-1] = minimum(subtract(inner[-1], left), planes.inner[-1])
        staged = build.alloc(blocks.dtype, blocks.channels * prod(planes.phases) * planes.numel, MemorySpace.SHARED)
        done = build.alloc(blocks.dtype, blocks.row_panels * blocks.rows * planes.columns, MemorySpace.SHARED)
        own = None if weight else build.alloc(blocks.dtype, blocks.rows * blocks.depth, MemorySpace.SHARED)
        if blocks.num_k_blocks != 1:
            along(build, 0, blocks.row_panels * blocks.rows * planes.columns, lanes,
                  lambda i: build.store(done, i, const(0, blocks.dtype)))
        with build.loop(blocks.num_k_blocks, AxisKind.LOOP) as block:
            _stage(planes, at, lengths, block, staged, build)
            with build.loop(blocks.row_panels, AxisKind.LOOP) as panel:
                lhs = weight(group, panel, block) if weight else _own_panel(blocks, group, panel, block, own, build)
                row = mul(panel, blocks.rows)
                tiles = planes.tiles(lengths) if not of_numbers(windows.spatial) else [planes.num_tiles]
                nested(build, tiles, [], lambda tile: _add_taps(planes, block, lhs, staged, done, (row, tile), build))
        _store_planes(nest, context.params, planes, at, lengths, done, build)


def _store_planes(
    nest: Nest, params: Sequence[Op], planes: Planes, at: Sequence[Dim], lengths: Sequence[Dim], done: Op, build: Builder
) -> None:
    """The epilogue: outputs of each channel along existing positions; `at` and `lengths` as in `_stage`."""
    windows, lanes, (image, group, top, left), (*rows, count) = planes.windows, planes.blocks.lanes, at, lengths

    def store(outer: list[Dim]) -> None:
        o, *places = outer

        def put(i: Dim) -> None:
            position = [*places, i]
            value = build.load(done, add(mul(o, planes.columns), flatten(position, planes.extents)))
            coords: list[Dim] = [image, add(mul(group, windows.m), o), add(top, position[0]), *position[1:]]
            if planes.has_parts:
                coords[-1] = add(left, coords[-1])
            store_outputs(nest, params, tuple(coords), cast(value, nest.anchor.dtype), build)

        has_rest = planes.has_parts or isinstance(count, int)
        along(build, 0, count, lanes, put, rest=mod(count, lanes) if has_rest else 0)

    nested(build, [windows.m, *rows], [], store)


def _stage(planes: Planes, at: Sequence[Dim], lengths: Sequence[Dim], block: Dim, memory: Op, build: Builder) -> None:
    """Copies the elements of x under the windows of a block of K, with zeros for padding.

    Args:
      at:       image, group, first row and first position of a row
      lengths:  positions along each axis
    """
    blocks, stride, (_, _, top, left) = planes.blocks, planes.windows.arg.stride, at
    extents: list[Dim] = [*planes.extents]
    if planes.has_parts:  # as far as tiles reach
        reached = zip(planes.tiles(lengths), (planes.tile.vectors, blocks.lanes), planes.beyond)
        extents = [add(mul(count, part), more) for count, part, more in reached]
    lanes, zero, element = blocks.lanes, const(0, blocks.dtype), _padded(planes, at, block)
    tail = prod(planes.extents)  # the stack after it may hold subnormal numbers, which are slow

    def copy(outer: list[Dim]) -> None:
        c, *more = outer
        phase, places = more[: len(planes.phases) - 1], more[len(planes.phases) - 1 :]
        first = [*places, left]  # the positions left in the row
        first[0] = add(top, first[0])
        *row, start = [add(mul(place, step), r) for place, step, r in zip(first, stride, [*phase, 0])]
        line = build.alloc(blocks.dtype, planes.line, MemorySpace.SHARED) if planes.line else None
        if line is not None:
            vectors = mul(ceildiv(extents[-1], lanes), stride[-1])
            with build.loop(vectors, AxisKind.LOOP) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
                i = add(mul(vector, lanes), lane)
                build.store(line, i, element(c, row, add(start, i)))
        for r in range(planes.phases[-1]):
            count = ceildiv(extents[-1], lanes)
            with build.loop(count, AxisKind.LOOP) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
                i = add(mul(vector, lanes), lane)
                column = add(mul(i, stride[-1]), r)
                value = element(c, row, add(start, column)) if line is None else build.load(line, column)
                build.store(memory, planes.place(c, (*phase, r), flatten((*places, i), planes.extents)), value)

    def clear(outer: list[Dim]) -> None:
        c, *phase = outer
        along(build, tail, planes.numel - tail, lanes, lambda i: build.store(memory, planes.place(c, phase, i), zero))

    channels = minimum(subtract(planes.windows.channels, _first_channel(blocks, block)), blocks.channels)
    if not planes.has_parts:
        nested(build, [channels, *planes.phases], [], clear)
    nested(build, [channels, *planes.phases[:-1], *extents[:-1]], [], copy)


def _padded(planes: Planes, at: Sequence[Dim], block: Dim) -> Callable[[Dim, Sequence[Dim], Dim], Op]:
    """Returns an element by channel, rows and column of x, counted with the padding, which is 0."""
    windows, x, (image, group, *_) = planes.windows, planes.windows.anchor.src[0], at

    def element(c: Dim, row: Sequence[Dim], column: Dim) -> Op:
        coords = [subtract(place, before) for place, (before, _) in zip((*row, column), windows.arg.padding)]
        channel = add(mul(group, windows.channels), add(_first_channel(planes.blocks, block), c))
        return cast(padded(x, image, channel, coords), planes.blocks.dtype)

    return element


def _add_taps(
    planes: Planes, block: Dim, lhs: Panel, staged: Op, done: Op, at: tuple[Dim, Sequence[Dim]], build: Builder
) -> None:
    """Adds a block of K to the sums of a tile; `at` has its first output channel and its number."""
    blocks, tile, (row, number) = planes.blocks, planes.tile, at
    position = partial(planes.position, number)
    *outer, last = static_shape(planes.windows.taps)
    acc = tile.new(build)
    channels = minimum(subtract(planes.windows.channels, _first_channel(blocks, block)), blocks.channels)

    def add_row(above: list[Dim]) -> None:
        with build.loop(last, AxisKind.UNROLL if last <= UNROLLED_TAPS_MAX else AxisKind.LOOP) as tap:
            c, *taps = [*above, tap]
            k = add(mul(c, blocks.taps), flatten(taps, (*outer, last)))
            tile.step(build, acc, lambda i: lhs(i, k), lambda o: read(staged, planes.under(c, taps, position(o))))

    nested(build, [channels, *outer], [], add_row)

    def put(i: Dim, c: Dim, where: Dim) -> None:
        place, value = add(mul(add(row, i), planes.columns), position(c)), build.load(acc, where)
        build.store(done, place, value if blocks.num_k_blocks == 1 else _added(build.load(done, place), value))

    tile.each(build, put)


def _added(total: Op, part: Op) -> Op:
    return Op(OpCode.OR if total.dtype is dtypes.bool_ else OpCode.ADD, total.dtype, (total, part))


# ---- a block of the result ----
def _place(blocks: Blocks, row: Dim, vector: Dim, lane: Dim) -> Dim:
    """Returns the index of an element of a block of the result."""
    return add(mul(row, blocks.width * blocks.lanes), add(mul(vector, blocks.lanes), lane))


def _multiply(
    blocks: Blocks, group: Dim, piece: Dim, column: Dim, start: Dim, count: Dim, weight: Weight | None, build: Builder
) -> Op:
    """Computes a block of the result over some blocks of K, in memory on the stack; returns that."""
    height, lanes = blocks.panels * blocks.rows, blocks.lanes
    done = build.alloc(blocks.dtype, height * blocks.width * lanes, MemorySpace.SHARED)
    windows = build.alloc(blocks.dtype, blocks.depth * blocks.width * lanes, MemorySpace.SHARED)
    own = None if weight else build.alloc(blocks.dtype, blocks.rows * blocks.depth, MemorySpace.SHARED)
    with build.loop(height * blocks.width, AxisKind.LOOP) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
        build.store(done, add(mul(vector, lanes), lane), const(0, blocks.dtype))
    with build.loop(count, AxisKind.LOOP) as number:
        block = add(start, number)
        depth = _pack_windows(blocks, group, column, block, windows, build)
        first_panel = mul(piece, blocks.panels)
        with build.loop(minimum(subtract(blocks.row_panels, first_panel), blocks.panels), AxisKind.LOOP) as index:
            panel = add(first_panel, index)
            lhs = weight(group, panel, block) if weight else _own_panel(blocks, group, panel, block, own, build)
            with build.loop(blocks.width // blocks.vectors, AxisKind.LOOP) as side:

                def rhs(c: Dim, k: Dim) -> Op:
                    return read(windows, _packed_place(blocks, side, k, c))

                _multiply_tile(blocks, depth, lhs, rhs, done, mul(index, blocks.rows), side, build)
    return done


def _multiply_tile(
    blocks: Blocks, depth: Dim, lhs: Panel, rhs: Callable[[Dim, Dim], Op], done: Op, row: Dim,
    side: Dim, build: Builder,
) -> None:  # fmt: skip
    """The micro-kernel: a tile in registers over a block of K, added to the sums of earlier blocks.

    Sums of sums keep the rounding error of a long K small.
    """
    tile = Tile(blocks.rows, blocks.vectors, blocks.lanes, blocks.dtype, blocks.has_fma)
    acc = tile.multiply(build, tile.new(build), depth, lhs, rhs)

    def put(i: Dim, c: Dim, where: Dim) -> None:
        place = _place(blocks, add(row, i), mul(side, blocks.vectors), c)
        build.store(done, place, _added(build.load(done, place), build.load(acc, where)))

    tile.each(build, put)


# ---- packing ----
def _first_channel(blocks: Blocks, block: Dim) -> Dim:
    return mul(floordiv(block, blocks.num_tap_blocks), blocks.channels)


def _first_tap(blocks: Blocks, block: Dim) -> Dim:
    return mul(mod(block, blocks.num_tap_blocks), blocks.taps)


def _packed_place(blocks: Blocks, side: Dim, k: Dim, c: Dim) -> Dim:
    """Returns the index of an element of the packed windows: panels as wide as a tile, k after k."""
    return add(mul(add(mul(side, blocks.depth), k), blocks.vectors * blocks.lanes), c)


def _pack_windows(blocks: Blocks, group: Dim, column: Dim, block: Dim, memory: Op, build: Builder) -> Dim:
    """Packs a block of the windows and returns how much of K it has.

    Channels are the innermost loop: they share the position of a tap.
    """
    windows, dtype = blocks.windows, blocks.dtype
    channel, tap = _first_channel(blocks, block), _first_tap(blocks, block)
    num_channels = minimum(subtract(windows.channels, channel), blocks.channels)
    num_taps = minimum(subtract(windows.num_taps, tap), blocks.taps)
    with (
        build.loop(blocks.width, AxisKind.LOOP) as v,
        build.loop(num_taps, AxisKind.LOOP) as t,
        build.loop(num_channels, AxisKind.LOOP) as c,
        build.loop(blocks.lanes, AxisKind.VECTOR) as lane,
    ):
        b, at, known = blocks.position(add(mul(column, blocks.width), v), lane)
        value = windows.column(b, at, group, add(channel, c), add(tap, t), known)
        side, beside = floordiv(v, blocks.vectors), mul(mod(v, blocks.vectors), blocks.lanes)
        where = _packed_place(blocks, side, add(mul(c, blocks.taps), t), add(beside, lane))
        build.store(memory, where, cast(value, dtype))
    return num_taps if blocks.channels == 1 else mul(num_channels, blocks.taps)


def _packed_weight(blocks: Blocks, build: Builder, scratch: Scratch) -> Weight | None:
    """Packs the whole weight, contiguous along K; returns None if it is large: then each block packs its own."""
    windows, dtype, rows = blocks.windows, blocks.dtype, blocks.rows
    length = add(windows.k, 16)  # for a power of two all rows would share one cache set
    count = windows.groups * blocks.row_panels
    if count * rows * longest(length) * dtype.itemsize > SCRATCH_NBYTES:
        return None
    memory = scratch(dtype, mul(count * rows, length))

    def place(panel: Dim, i: Dim, k: Dim) -> Dim:
        return add(mul(add(mul(panel, rows), i), length), k)

    with build.loop(count, AxisKind.GRID) as panel:
        group, first = floordiv(panel, blocks.row_panels), mul(mod(panel, blocks.row_panels), rows)
        height = minimum(subtract(windows.m, first), rows)
        with build.loop(height, AxisKind.LOOP) as i:
            o = add(mul(group, windows.m), add(first, i))
            along(build, 0, windows.k, blocks.lanes,
                  lambda k: build.store(memory, place(panel, i, k), cast(windows.weight_row(o, k), dtype)))
        with build.loop(subtract(rows, height), AxisKind.LOOP) as i:
            along(build, 0, windows.k, blocks.lanes,
                  lambda k: build.store(memory, place(panel, add(height, i), k), const(0, dtype)))

    def packed_panel(group: Dim, number: Dim, block: Dim) -> Panel:
        panel = add(mul(group, blocks.row_panels), number)
        first_k = add(mul(_first_channel(blocks, block), windows.num_taps), _first_tap(blocks, block))
        return lambda i, k: read(memory, place(panel, i, add(first_k, k)))

    return packed_panel


def _own_panel(blocks: Blocks, group: Dim, panel: Dim, block: Dim, memory: Op | None, build: Builder) -> Panel:
    """Packs a panel of rows of the weight, over a block of K, on the stack."""
    assert memory is not None
    windows, dtype, depth = blocks.windows, blocks.dtype, blocks.depth
    first = mul(panel, blocks.rows)
    height = minimum(subtract(windows.m, first), blocks.rows)
    channel, tap = _first_channel(blocks, block), _first_tap(blocks, block)
    with build.loop(height, AxisKind.LOOP) as i:
        o = add(mul(group, windows.m), add(first, i))
        if not blocks.has_all_taps:
            count = minimum(subtract(windows.num_taps, tap), blocks.taps)
            along(build, 0, count, blocks.lanes, lambda t: build.store(
                memory, add(mul(i, depth), t), cast(windows.weight(o, channel, add(tap, t)), dtype)))
        else:
            count = mul(minimum(subtract(windows.channels, channel), blocks.channels), windows.num_taps)
            start = mul(channel, windows.num_taps)
            along(build, 0, count, blocks.lanes, lambda k: build.store(
                memory, add(mul(i, depth), k), cast(windows.weight_row(o, add(start, k)), dtype)))
    with build.loop(subtract(blocks.rows, height), AxisKind.LOOP) as i:
        row = add(height, i)
        along(build, 0, depth, blocks.lanes, lambda k: build.store(memory, add(mul(row, depth), k), const(0, dtype)))
    return lambda i, k: read(memory, add(mul(i, depth), k))
