"""Convolutions of images of symbolic lengths on a CPU, box by box: lanes run over output channels.

A GRID iteration has a box of positions, whose lengths are numbers: part of a row if rows have symbolic length, as in a
forward pass; all of a few positions, by several images, as in a weight's gradient. It walks K by boxes of taps: all taps of
some channels, or, if windows are as long as images, part of a few rows of one channel. The box of x under both is staged
with its padding, so that a tile reads it at constant distances, and no index is divided.

    for each box of taps:  stage x;  pack the weight, if windows are long
        for each panel of output channels, tile of positions:
            for c, t:  acc[position, channels] += x[c, position * stride + t * dilation] * w[c, t, channels]

Positions past the end of a row are computed, from zeros, and not stored. Sums stay on the stack from box to box. They are
transposed at the end, so that results are stored along rows. As in codegen/convolution_direct.py, the sum of a gradient
with few results is split: parts in the second phase, their sums in a third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.convolution import FILLED_LANES_MIN, ITERATIONS_MIN, Windows, guarded, padded
from picograd.codegen.convolution_direct import UNROLLED_TAPS_MAX
from picograd.codegen.convolution_tiles import (
    BLOCK_K_MAX,
    PANELS_MAX,
    PARTS_BYTES_MAX,
    POSITIONS_MAX,
    STACK_BYTES_MAX,
    STAGED_ELEMENTS_MAX,
    Blocking,
)
from picograd.codegen.loops import along, longest, nested
from picograd.codegen.matmul import Tile, most_alike, store_outputs
from picograd.codegen.panels import pack_columns
from picograd.device import Target
from picograd.interrupts import cached_property
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel, of_numbers
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, ceildiv, flatten, less, minimum, mod, mul, subtract, unflatten
from picograd.record import Record

# ---- boxes ----
TAPS_OF_A_ROW_MAX = 128  # per box of a long row
LONG_TAPS_MAX = 256  # per box of long rows
ROWS_OF_IMAGES_MAX = 288  # positions of all images of an iteration
MASKED_BYTES_MIN = 64  # of vectors that can be masked at little cost
SUMS_MIN = 8  # vectors of a tile, enough to hide the latency of additions


def has_boxes(anchor: Op, target: Target) -> bool:
    """True for a CONV of symbolic lengths, without gaps, that fits a stack, and whose output channels fill lanes.

    In a weight's gradient lanes may be empty: packing its windows one by one takes longer than multiplying them. In a
    forward pass with vectors of 32 bytes, staging a box takes longer than packing windows: masking it takes several
    vectors.
    """
    windows, lanes, lengths = Windows(anchor), target.sum_lanes(anchor.dtype), anchor.src[0].shape[2:]
    if max(anchor.arg.input_dilation) > 1 or not anchor.dtype.is_float or lanes == 1 or windows.m == 0:
        return False
    if of_numbers((*lengths, *windows.spatial, *windows.taps)) or 0 in (windows.k, *lengths, *windows.spatial):
        return False
    width = lanes if windows.m <= lanes else 2 * lanes
    is_filled = windows.m >= FILLED_LANES_MIN * width * ceildiv(windows.m, width)
    is_fast = of_numbers(windows.spatial) if anchor.arg.of_weight else is_filled and target.vector_bytes >= MASKED_BYTES_MIN
    if not is_fast:
        return False
    boxes = Boxes.of(anchor, target)
    return boxes.numel_on_stack * boxes.dtype.itemsize <= STACK_BYTES_MAX


def _box(lengths: Sequence[Dim], most: int, of_last: int) -> tuple[int, ...]:
    """Returns the lengths of a box of at most `most` positions: whole axes from the last on, then part of one.

    Args:
      of_last:  maximum along an axis that is divided
    """
    found: list[int] = []
    for length in reversed(lengths):
        part = length if isinstance(length, int) and length <= most else max(1, min(most, of_last, longest(length)))
        found.append(part)
        most = max(1, most // part)
    return tuple(reversed(found))


class Boxes(Blocking, dict=True):
    """The boxes of such a convolution."""

    # ---- positions ----
    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Positions of a unit along each axis."""
        return _box(self.windows.spatial, POSITIONS_MAX, POSITIONS_MAX)

    @cached_property
    def is_whole(self) -> bool:
        """True if a unit has all positions of its images; else it has some of one image."""
        return self.positions == self.windows.spatial

    @cached_property
    def images(self) -> int:
        """Number of images of a unit."""
        most = max(1, ROWS_OF_IMAGES_MAX // prod(self.positions)) if self.is_whole else 1
        return most_alike(self.batch, most)

    @cached_property
    def tile(self) -> Tile:
        """Register tile: whole images, if they are small, or a height that wastes little of one."""
        vectors, count = 1 if self.windows.m <= self.lanes else 2, prod(self.positions)
        most = self.tile_rows_max * 2 // vectors
        least = ceildiv(SUMS_MIN, vectors)
        if count <= most:
            rows = count * min(range(most // count, 0, -1), key=lambda n: ceildiv(self.images, n) * max(n * count, least))
        else:
            rows = min(range(most, 2, -1), key=lambda n: ceildiv(count, n) * max(n, least))
        return Tile(rows, vectors, self.lanes, self.dtype, self.has_fma)

    @property
    def num_tiles(self) -> int:
        """Number of tiles of a unit that has whole images."""
        return ceildiv(self.images * prod(self.positions), self.tile.rows)

    @cached_property
    def rows(self) -> int:
        """Rows of sums of a unit, rounded up to whole vectors."""
        return ceildiv(self.num_tiles * self.tile.rows, self.lanes) * self.lanes

    @cached_property
    def num_boxes(self) -> tuple[Dim, ...]:
        """Number of boxes of positions along each axis."""
        return tuple(ceildiv(length, part) for length, part in zip(self.windows.spatial, self.positions))

    # ---- output channels of a group ----
    @property
    def num_panels(self) -> int:
        return ceildiv(self.windows.m, self.tile.columns)

    @cached_property
    def panels(self) -> int:
        """Panels of output channels per unit."""
        return ceildiv(self.num_panels, ceildiv(self.num_panels, PANELS_MAX if self.is_shared else PANELS_MAX // 2))

    @property
    def columns(self) -> int:
        """Columns of sums per unit."""
        return self.panels * self.tile.columns

    @property
    def extents(self) -> list[Dim]:
        """Units by group, piece of the output channels, images and box of positions."""
        pieces = ceildiv(self.num_panels, self.panels)
        return [self.windows.groups, pieces, ceildiv(self.batch, self.images), *self.num_boxes]

    # ---- K ----
    @cached_property
    def is_shared(self) -> bool:
        """True if the weight's lengths are numbers: it is packed once, for all units."""
        return of_numbers(self.windows.anchor.src[1].shape)

    @cached_property
    def taps(self) -> tuple[int, ...]:
        """Taps along each axis of a box of K."""
        if of_numbers(self.windows.taps):
            return _box(self.windows.taps, BLOCK_K_MAX, BLOCK_K_MAX)
        return _box(self.windows.taps, LONG_TAPS_MAX, TAPS_OF_A_ROW_MAX)

    @cached_property
    def channels(self) -> int:
        """Input channels of a box of K: one, unless the box has all taps. Depends on the shapes of one image only."""
        if any(part < longest(length) for part, length in zip(self.taps, self.windows.taps)):
            return 1
        most = min(BLOCK_K_MAX // prod(self.taps), STAGED_ELEMENTS_MAX // prod(self.span))
        return most_alike(self.windows.channels, max(1, most))

    @property
    def blocks(self) -> list[Dim]:
        """Number of boxes of K by channels and by taps along each axis."""
        of_taps = [ceildiv(length, part) for length, part in zip(self.windows.taps, self.taps)]
        return [ceildiv(self.windows.channels, self.channels), *of_taps]

    @cached_property
    def splits(self) -> int:
        """Number of parts of the sum over K, from shapes only, so that its bits do not depend on threads.

        1 if axis 0 is a batch: an image has the same bits alone or among others.
        """
        units = numel(self.extents)
        if not self.windows.arg.of_weight or not isinstance(units, int):
            return 1
        most = PARTS_BYTES_MAX // (units * self.columns * self.rows * self.dtype.itemsize)
        return max(1, min(ceildiv(ITERATIONS_MIN, units), longest(numel(self.blocks)) // 2, most))

    # ---- what is on the stack ----
    @cached_property
    def span(self) -> tuple[int, ...]:
        """Elements of x along each axis under a box of taps at a box of positions."""
        arg = self.windows.arg
        each = zip(self.positions, self.taps, arg.stride, arg.dilation)
        return tuple((n - 1) * step + (taps - 1) * apart + 1 for n, taps, step, apart in each)

    @property
    def staged(self) -> tuple[int, ...]:
        """Images, channels and `span`: a tile may reach past the last image."""
        return (ceildiv(self.num_tiles * self.tile.rows, prod(self.positions)), self.channels, *self.span)

    @property
    def line(self) -> int:
        """Taps along the last axis of a box, rounded up to whole vectors."""
        return ceildiv(self.taps[-1], self.lanes) * self.lanes

    @property
    def packed(self) -> tuple[int, ...]:
        """Panels, channels, taps and columns of a box of the weight."""
        return (self.panels, self.channels, *self.taps[:-1], self.line, self.tile.columns)

    @property
    def numel_on_stack(self) -> int:
        """Elements of two sets of sums, of a box of x and, if it is on the stack, of a box of the weight."""
        weight = 0 if self.is_shared else prod(self.packed) + self.tile.columns * self.line
        return 2 * self.columns * self.rows + prod(self.staged) + weight


# ---- loops ----
Weight = Callable[[Dim, Dim, Sequence[Dim], Dim], Op]  # (panel of the unit, channel and taps of the box, column) -> element
Packed = Callable[[Sequence[Dim], Dim, Dim, Dim], Op]  # ((group,), panel, column, k) -> an element of the packed weight
Sum = Callable[[Dim, Dim], Op]  # (output channel, row of positions) of a unit


def emit_boxes(nest: Nest, context: Context) -> None:
    """Writes a convolution: the weight is packed in a first phase, sums are in a second, those of split sums in a third."""
    pack, build, after = (context.phase(number) for number in range(3))
    boxes = Boxes.of(nest.anchor, context.target)
    packed = _pack_all(boxes, pack, context.scratch) if boxes.is_shared else None
    units, splits, of_unit = numel(boxes.extents), boxes.splits, boxes.columns * boxes.rows
    parts = context.scratch(boxes.dtype, mul(units, splits * of_unit)) if splits > 1 else None
    with build.loop(mul(units, splits), AxisKind.GRID) as number:
        part, *at = unflatten(number, [splits, *boxes.extents])
        unit = Unit(boxes, build, at)
        sums = unit.multiply(part, packed)
        if parts is None:
            _store(nest, context.params, unit, lambda o, row: read(sums, add(mul(o, boxes.rows), row)), build)
        else:
            memory, start = parts, mul(number, of_unit)
            along(build, 0, of_unit, boxes.lanes, lambda i: build.store(memory, add(start, i), read(sums, i)))
    if parts is not None:
        with after.loop(units, AxisKind.GRID) as number:

            def total(o: Dim, row: Dim) -> Op:
                starts = [mul(add(mul(units, part), number), of_unit) for part in range(splits)]
                first, *others = (read(parts, add(start, add(mul(o, boxes.rows), row))) for start in starts)
                return sum(others, first)

            _store(nest, context.params, Unit(boxes, after, unflatten(number, boxes.extents)), total, after)


def _pack_all(boxes: Boxes, pack: Builder, scratch: Scratch) -> Packed:
    return pack_columns(boxes.windows.matrix, boxes.tile.columns, boxes.lanes, boxes.dtype, pack, scratch)


class Unit:
    """A GRID iteration, given by its group, piece, images and box of positions."""

    def __init__(self, boxes: Boxes, build: Builder, at: Sequence[Dim]):
        self.boxes, self.build = boxes, build
        self.group, piece, block, *box = at
        self.first_panel, self.first_image = mul(piece, boxes.panels), mul(block, boxes.images)
        self.panels = minimum(subtract(boxes.num_panels, self.first_panel), boxes.panels)
        self.images = minimum(subtract(boxes.batch, self.first_image), boxes.images)
        self.first = [mul(number, part) for number, part in zip(box, boxes.positions)]
        each = zip(boxes.windows.spatial, self.first, boxes.positions)
        self.positions = [minimum(subtract(length, first), part) for length, first, part in each]

    @property
    def num_tiles(self) -> Dim:
        """Number of tiles with positions: along the only divided axis, those that exist come first."""
        boxes = self.boxes
        if boxes.is_whole:
            return ceildiv(mul(self.images, prod(boxes.positions)), boxes.tile.rows)
        cut = next(i for i, pair in enumerate(zip(boxes.positions, boxes.windows.spatial)) if pair[0] != 1 != pair[1])
        return ceildiv(mul(self.positions[cut], prod(boxes.positions[cut + 1 :])), boxes.tile.rows)

    def multiply(self, part: Dim, packed: Packed | None) -> Op:
        """Adds up a part of K, box by box; returns the memory of the sums, by output channel and position."""
        boxes, build = self.boxes, self.build
        sums = build.alloc(boxes.dtype, boxes.panels * boxes.rows * boxes.tile.columns, MemorySpace.SHARED)
        along(build, 0, boxes.panels * boxes.rows * boxes.tile.columns, boxes.lanes,
              lambda i: build.store(sums, i, const(0, boxes.dtype)))  # fmt: skip
        x = build.alloc(boxes.dtype, prod(boxes.staged) + boxes.lanes, MemorySpace.SHARED)
        num_blocks = numel(boxes.blocks)
        each = ceildiv(num_blocks, boxes.splits)
        start = mul(part, each)
        with build.loop(minimum(subtract(num_blocks, start), each), AxisKind.LOOP) as step:
            channel, *taps = unflatten(add(start, step), boxes.blocks)
            block = Block(boxes, mul(channel, boxes.channels), [mul(n, part) for n, part in zip(taps, boxes.taps)])
            self._stage(block, x)
            weight = self._shared(block, packed) if packed is not None else self._pack(block)
            with build.loop(self.panels, AxisKind.LOOP) as panel, build.loop(self.num_tiles, AxisKind.LOOP) as tile:
                self._add_tile(block, panel, mul(tile, boxes.tile.rows), x, weight, sums)
        return self._transposed(sums)

    def _stage(self, block: Block, memory: Op) -> None:
        """Copies the box of x under the windows, with zeros for padding."""
        boxes, build, arg = self.boxes, self.build, self.boxes.windows.arg
        source, lanes = boxes.windows.anchor.src[0], boxes.lanes
        each = zip(boxes.windows.places(self.first, block.taps), arg.padding)
        tops = [subtract(place, before) for place, (before, _) in each]
        zero, numel_of_image = const(0, boxes.dtype), prod(boxes.staged[1:])
        # A box at the end of K has fewer taps, and reads less.
        taps = zip(boxes.span, boxes.taps, block.num_taps, arg.dilation)
        span = [subtract(n, mul(subtract(most, there), apart)) for n, most, there, apart in taps]
        if not boxes.is_whole and prod(boxes.positions[:-1]) == 1:  # as far as tiles reach
            beyond = boxes.span[-1] - boxes.positions[-1] * arg.stride[-1]
            span[-1] = add(mul(mul(self.num_tiles, boxes.tile.rows), arg.stride[-1]), beyond)

        def copy(at: list[Dim]) -> None:
            image, c, *outer = at
            with build.loop(ceildiv(span[-1], lanes), AxisKind.LOOP) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
                place = [*outer, add(mul(vector, lanes), lane)]
                channel = add(mul(self.group, boxes.windows.channels), add(block.channel, c))
                value = padded(source, add(self.first_image, image), channel, [add(top, i) for top, i in zip(tops, place)])
                build.store(memory, flatten((image, c, *place), boxes.staged), cast(value, boxes.dtype))

        nested(build, [self.images, block.num_channels, *span[:-1]], [], copy)
        there = mul(self.images, numel_of_image)
        left = subtract(boxes.staged[0] * numel_of_image, there)
        along(build, there, left, lanes, lambda i: build.store(memory, i, zero))

    def _shared(self, block: Block, packed: Packed) -> Weight:
        windows = self.boxes.windows

        def element(panel: Dim, c: Dim, taps: Sequence[Dim], o: Dim) -> Op:
            place = (add(block.channel, c), *(add(first, t) for first, t in zip(block.taps, taps)))
            k = flatten(place, (windows.channels, *windows.taps))
            return packed((self.group,), add(self.first_panel, panel), o, k)

        return element

    def _pack(self, block: Block) -> Weight:
        """Packs a box of the weight on the stack: rows of taps, transposed in squares."""
        boxes, build, windows, lanes = self.boxes, self.build, self.boxes.windows, self.boxes.lanes
        columns, memory = boxes.tile.columns, build.alloc(boxes.dtype, prod(boxes.packed), MemorySpace.SHARED)
        lines = build.alloc(boxes.dtype, columns * boxes.line, MemorySpace.SHARED)

        def pack(at: list[Dim]) -> None:
            panel, c, *outer = at
            first_column = mul(add(self.first_panel, panel), columns)
            vectors, height = ceildiv(block.num_taps[-1], lanes), minimum(subtract(windows.m, first_column), columns)
            with (
                build.loop(height, AxisKind.LOOP) as o,
                build.loop(vectors, AxisKind.LOOP) as vector,
                build.loop(lanes, AxisKind.VECTOR) as lane,
            ):
                t = add(mul(vector, lanes), lane)
                taps = [add(first, i) for first, i in zip(block.taps, [*outer, t])]
                place = (add(mul(self.group, windows.m), add(first_column, o)), add(block.channel, c), *taps)
                value = cast(guarded(windows.anchor.src[1], place, less(t, block.num_taps[-1])), boxes.dtype)
                build.store(lines, add(mul(o, boxes.line), t), value)
            along(build, mul(height, boxes.line), mul(subtract(columns, height), boxes.line), lanes,
                  lambda i: build.store(lines, i, const(0, boxes.dtype)))  # fmt: skip
            with build.loop(vectors, AxisKind.LOOP) as square, build.loop(boxes.tile.vectors, AxisKind.LOOP) as side:
                place = (panel, c, *outer, mul(square, lanes), mul(side, lanes))
                start = add(mul(mul(side, lanes), boxes.line), mul(square, lanes))
                build.transpose(memory, flatten(place, boxes.packed), columns, lines, start, boxes.line, lanes)

        nested(build, [self.panels, block.num_channels, *block.num_taps[:-1]], [], pack)
        return lambda panel, c, taps, o: read(memory, flatten((panel, c, *taps, o), boxes.packed))

    def _add_tile(self, block: Block, panel: Dim, row: Dim, x: Op, weight: Weight, sums: Op) -> None:
        """Adds a box of K to the sums of a tile; sums of sums keep the rounding error of a long K small."""
        boxes, build, tile = self.boxes, self.build, self.boxes.tile
        acc, extents = tile.new(build), [block.num_channels, *block.num_taps]
        is_short = isinstance(extents[-1], int) and extents[-1] <= UNROLLED_TAPS_MAX

        def element(i: Dim, c: Dim, taps: Sequence[Dim]) -> Op:
            image, *position = unflatten(add(row, i), (boxes.staged[0], *boxes.positions))
            return read(x, flatten((image, c, *boxes.windows.places(position, taps)), boxes.staged))

        def add_row(outer: list[Dim]) -> None:
            with build.loop(extents[-1], AxisKind.UNROLL if is_short else AxisKind.LOOP) as last:
                c, *taps = [*outer, last]
                tile.step(build, acc, lambda i: element(i, c, taps), lambda o: weight(panel, c, taps, o))

        nested(build, extents[:-1], [], add_row)

        def put(i: Dim, c: Dim, where: Dim) -> None:
            place = flatten((panel, add(row, i), c), (boxes.panels, boxes.rows, tile.columns))
            build.store(sums, place, build.load(sums, place) + build.load(acc, where))

        tile.each(build, put)

    def _transposed(self, sums: Op) -> Op:
        """Returns the sums with contiguous positions."""
        boxes, build, lanes = self.boxes, self.build, self.boxes.lanes
        memory = build.alloc(boxes.dtype, boxes.columns * boxes.rows, MemorySpace.SHARED)
        extents: list[Dim] = [self.panels, boxes.tile.vectors, ceildiv(mul(self.num_tiles, boxes.tile.rows), lanes)]
        if boxes.is_whole:  # parts of split sums are copied unchanged
            extents = [boxes.panels, boxes.tile.vectors, boxes.rows // lanes]

        def turn(at: list[Dim]) -> None:
            panel, side, square = at
            index = flatten((panel, mul(square, lanes), mul(side, lanes)), (boxes.panels, boxes.rows, boxes.tile.columns))
            place = flatten((panel, mul(side, lanes), mul(square, lanes)), (boxes.panels, boxes.tile.columns, boxes.rows))
            build.transpose(memory, place, boxes.rows, sums, index, boxes.tile.columns, lanes)

        nested(build, extents, [], turn)
        return memory


class Block(Record):
    """A box of K: input channels of a group from `channel` on, by taps from `taps` on."""

    boxes: Boxes
    channel: Dim
    taps: Sequence[Dim]

    @property
    def num_channels(self) -> Dim:
        return minimum(subtract(self.boxes.windows.channels, self.channel), self.boxes.channels)

    @property
    def num_taps(self) -> list[Dim]:
        each = zip(self.boxes.windows.taps, self.taps, self.boxes.taps)
        return [minimum(subtract(length, first), part) for length, first, part in each]


# ---- results ----
def _store(nest: Nest, params: Sequence[Op], unit: Unit, total: Sum, build: Builder) -> None:
    """The epilogue: outputs of each channel, along its positions."""
    boxes, dtype = unit.boxes, nest.anchor.dtype
    first_channel = mul(unit.first_panel, boxes.tile.columns)
    count = minimum(subtract(boxes.windows.m, first_channel), boxes.columns)

    def store(at: list[Dim]) -> None:
        image, channel, *outer = at
        o = add(mul(unit.group, boxes.windows.m), add(first_channel, channel))

        def put(i: Dim) -> None:
            position = [*outer, i]
            row = flatten((image, *position), (boxes.images, *boxes.positions))
            coords = [add(first, p) for first, p in zip(unit.first, position)]
            store_outputs(nest, params, (add(unit.first_image, image), o, *coords), cast(total(channel, row), dtype), build)

        along(build, 0, unit.positions[-1], boxes.lanes, put, rest=mod(unit.positions[-1], boxes.lanes))

    nested(build, [unit.images, count, *unit.positions[:-1]], [], store)
