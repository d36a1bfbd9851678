"""The loops of a convolution on a CPU that reads its windows where they lie: lanes over output channels.

In:    Nest (kind CONV), whose anchor is a CONV that `is_direct`
Out:   two or three phases of statements in the free form: pack, multiply, add up
Called by: codegen/lower.py.    Next: picograd/codegen/blocks.py

A tile is a few positions of the result by two vectors of output channels. What stands under a tap of a position is one
element for all channels, loaded into all lanes from wherever it lies: no window is packed, and no lane is lost at the end
of a row of positions. The weight is packed, channels side by side. An x that has padding, or is computed, is copied a few
rows at a time to the stack, with its padding.

    for each block of K (input channels by taps), for each image, for each panel of output channels, for each tile:
        for c, t:  acc[position, channels] += x[c, position * stride + t * dilation] * w[c, t, channels]

Sums lie on the stack from block to block of K. Of a small result with a long K, as the gradient of a weight, they are
split: parts in the second phase, their sums in a third. A large weight is packed block by block, by each iteration of GRID
that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.direct import Block, Direct, direct_of
from picograd.codegen.loops import along, nested, split
from picograd.codegen.matmul import Operand, pack_columns, store_outputs
from picograd.codegen.windows import guarded
from picograd.device import Target
from picograd.ir.build import cast, reshape, static_shape, swap_last
from picograd.ir.coordinates import flatten, unflatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, at_least_0, both, floordiv, less, minimum, mul, subtract

UNROLLED = 7  # taps along the last axis

# (channel, position of the result, tap) -> the element of x that is under it; channel and tap from the block's first on
Read = Callable[[Dim, Sequence[Dim], Sequence[Dim]], Op]
Weight = Callable[[Dim, Dim, Dim], Op]  # (panel, column, k), each from the iteration's or the block's first on
Value = Callable[[Dim, Dim, Dim], Op]  # (image, channel, position), each from the iteration's first on -> its sum


def emit_direct(
    nest: Nest, params: Sequence[Op], pack: Builder, build: Builder, after: Builder, target: Target, scratch: Scratch
) -> None:
    """Writes a convolution: the weight packed in `pack`, sums in `build`, those of split sums in `after`."""
    assert nest.anchor is not None
    direct = direct_of(nest.anchor, target)
    windows, splits, size = direct.windows, direct.splits, prod(direct.shape)
    packed = None
    if direct.is_shared:
        matrix = swap_last(reshape(nest.anchor.src[1], (windows.groups, windows.m, windows.k)))  # K by output channels
        packed = pack_columns(matrix, direct.tile.columns, direct.lanes, direct.dtype, pack, scratch)
    extents = [windows.groups, direct.num_pieces, direct.num_image_blocks, direct.num_chunks]
    units = numel(extents)
    parts = scratch(direct.dtype, mul(mul(units, splits), size)) if splits > 1 else None
    with build.loop(mul(units, splits), AxisKind.GRID) as number:
        part, *at = split(number, [splits, *extents])
        sums = Sums(direct, build, at).multiply(part, packed)
        if parts is None:
            _store(nest, params, direct, at, lambda *place: direct.sum_of(sums, 0, *place), build)
        else:
            memory, start = parts, mul(number, size)
            along(build, 0, size, direct.lanes, lambda i: build.store(memory, add(start, i), read(sums, i)))
    if parts is not None:
        with after.loop(units, AxisKind.GRID) as number:
            starts = [mul(add(mul(units, part), number), size) for part in range(splits)]

            def total(*place: Dim) -> Op:
                first, *others = (direct.sum_of(parts, start, *place) for start in starts)
                return sum(others, first)

            _store(nest, params, direct, split(number, extents), total, after)


class Sums:
    """The sums of an iteration of GRID, on its stack."""

    def __init__(self, direct: Direct, build: Builder, at: Sequence[Dim]):
        self.direct, self.build = direct, build
        self.group, piece, block, chunk = at
        self.first_panel, self.first_image = mul(piece, direct.panels), mul(block, direct.images)
        self.first_position = mul(chunk, direct.length)
        self.panels = minimum(subtract(direct.num_panels, self.first_panel), direct.panels)
        self.images = minimum(subtract(direct.batch, self.first_image), direct.images)
        left = subtract(direct.positions, self.first_position)
        self.tiles = minimum(floordiv(add(left, direct.tile.rows - 1), direct.tile.rows), direct.tiles)
        self.memory = build.alloc(direct.dtype, prod(direct.shape), MemorySpace.SHARED)
        if direct.is_staged:
            self.rows = build.alloc(direct.dtype, direct.channels * prod(direct.rows), MemorySpace.SHARED)
        if not direct.is_shared:
            columns = direct.panels * direct.tile.columns
            self.weight = build.alloc(direct.dtype, columns * direct.depth, MemorySpace.SHARED)

    def multiply(self, part: Dim, packed: Operand | None) -> Op:
        """Adds up a part of K, block by block, and returns the memory of the sums."""
        build, direct = self.build, self.direct
        zero = const(0, direct.dtype)
        along(build, 0, prod(direct.shape), direct.lanes, lambda i: build.store(self.memory, i, zero))
        each = -(-direct.num_k_blocks // direct.splits)
        start = mul(part, each)
        with build.loop(minimum(subtract(direct.num_k_blocks, start), each), AxisKind.LOOP) as step:
            channel, tap = split(add(start, step), [direct.num_channel_blocks, direct.num_tap_blocks])
            block = Block(direct, mul(channel, direct.channels), mul(tap, direct.taps))
            weight = self._own(block) if packed is None else self._shared(block, packed)
            with build.loop(self.images, AxisKind.LOOP) as image:
                x = self._staged(block, image) if direct.is_staged else self._in_place(block, image)
                with build.loop(self.panels, AxisKind.LOOP) as panel, build.loop(self.tiles, AxisKind.LOOP) as tile:
                    self._multiply_tile(block, panel, image, mul(tile, direct.tile.rows), x, weight)
        return self.memory

    # ---- the weight ----
    def _shared(self, block: Block, packed: Operand) -> Weight:
        """Returns how to read what was packed before."""
        return lambda panel, o, k: packed((self.group,), add(self.first_panel, panel), o, add(block.first, k))

    def _own(self, block: Block) -> Weight:
        """Packs a block of K, and returns how to read it. A column without a channel of its own gets the last one's."""
        build, direct = self.build, self.direct
        windows, columns = direct.windows, direct.tile.columns
        inner = prod(windows.taps[1:])

        def place(panel: Dim, o: Dim, k: Dim) -> Dim:
            return add(mul(add(mul(panel, direct.depth), k), columns), o)

        with (
            build.loop(mul(self.panels, columns), AxisKind.LOOP) as number,
            build.loop(block.num_channels, AxisKind.LOOP) as c,
            build.loop(mul(block.num_taps, inner), AxisKind.LOOP) as tap,
        ):
            panel, column = split(number, [self.panels, columns])
            own = minimum(add(mul(self.first_panel, columns), number), windows.m - 1)
            o = add(mul(self.group, windows.m), own)
            value = windows.weight(o, add(block.channel, c), add(mul(block.tap, inner), tap))
            k = add(mul(c, direct.taps * inner), tap)
            build.store(self.weight, place(panel, column, k), cast(value, direct.dtype))
        return lambda panel, o, k: read(self.weight, place(panel, o, k))

    # ---- x ----
    def _element(self, block: Block, image: Dim, c: Dim, place: Sequence[Dim], valid: Op | bool = True) -> Op:
        """Returns an element of x where `valid` holds, else 0."""
        windows = self.direct.windows
        channel = add(mul(self.group, windows.channels), add(block.channel, c))
        at = (add(self.first_image, image), channel, *place)
        return cast(guarded(windows.anchor.src[0], at, valid), self.direct.dtype)

    def _in_place(self, block: Block, image: Dim) -> Read:
        """Returns how to read an x without padding where it lies."""
        arg = self.direct.windows.arg

        def element(c: Dim, position: Sequence[Dim], tap: Sequence[Dim]) -> Op:
            taps = [add(block.tap, tap[0]), *tap[1:]]
            steps = zip(position, arg.stride, taps, arg.dilation)
            return self._element(block, image, c, [add(mul(p, s), mul(t, d)) for p, s, t, d in steps])

        return element

    def _staged(self, block: Block, image: Dim) -> Read:
        """Copies the rows of x that are read, with zeros where there is padding, and returns how to read them."""
        build, direct = self.build, self.direct
        arg, lengths = direct.windows.arg, static_shape(direct.windows.anchor.src[0].shape[2:])
        before = [pair[0] for pair in arg.padding]
        row = unflatten(self.first_position, direct.windows.spatial)[0]
        # The first row that is read, counted in x: before its first and behind its last there is padding.
        top = subtract(add(mul(row, arg.stride[0]), mul(block.tap, arg.dilation[0])), before[0])
        size, zero = prod(direct.rows), const(0, direct.dtype)
        with build.loop(block.num_channels, AxisKind.LOOP) as c:
            along(build, mul(c, size), size, direct.lanes, lambda i: build.store(self.rows, i, zero))

            def put(at: Sequence[Dim]) -> None:
                there = [at[0], *(add(i, start) for i, start in zip(at[1:], before[1:]))]
                own = add(top, at[0])
                value = self._element(block, image, c, [own, *at[1:]], both(less(-1, own), less(own, lengths[0])))
                build.store(self.rows, flatten((c, *there), (direct.channels, *direct.rows)), value)

            extents = [direct.rows[0], *lengths[1:]]
            nested(build, extents[:-1], [], lambda at: along(build, 0, extents[-1], direct.lanes, lambda i: put([*at, i])))

        def staged(c: Dim, position: Sequence[Dim], tap: Sequence[Dim]) -> Op:
            below = minimum(subtract(position[0], row), direct.height - 1)
            steps = zip([below, *position[1:]], arg.stride, tap, arg.dilation)
            at = (c, *(add(mul(p, s), mul(t, d)) for p, s, t, d in steps))
            return read(self.rows, flatten(at, (direct.channels, *direct.rows)))

        return staged

    # ---- a tile ----
    def _taps_inside(self, block: Block, top: Dim, bottom: Dim) -> tuple[Dim, Dim]:
        """Returns from which tap on, and how many along the first axis, not all of a tile stands in the padding.

        Args:
          top, bottom: rows of the result that the tile begins and ends in
        """
        arg, windows = self.direct.windows.arg, self.direct.windows
        (before, after), step, apart = arg.padding[0], arg.stride[0], arg.dilation[0]
        if before == after == 0:
            return 0, block.num_taps
        length = static_shape(windows.anchor.src[0].shape[2:])[0]
        done = mul(block.tap, apart)
        above = at_least_0(subtract(subtract(before, mul(bottom, step)), done))  # elements of padding before the first row
        left = at_least_0(subtract(subtract(before + length + apart - 1, mul(top, step)), done))
        start = minimum(floordiv(add(above, apart - 1), apart), block.num_taps)
        stop = minimum(floordiv(left, apart), block.num_taps)
        return start, at_least_0(subtract(stop, start))

    def _multiply_tile(self, block: Block, panel: Dim, image: Dim, row: Dim, x: Read, weight: Weight) -> None:
        """Adds a block of K to the sums of a tile."""
        build, direct = self.build, self.direct
        windows, tile = direct.windows, direct.tile

        def where(i: Dim, c: Dim) -> Dim:
            return flatten((image, panel, add(row, i), c), direct.shape)

        def position(i: Dim) -> Sequence[Dim]:
            return unflatten(minimum(add(self.first_position, add(row, i)), direct.positions - 1), windows.spatial)

        acc = tile.new(build, lambda i, c: build.load(self.memory, where(i, c)))
        start, count = self._taps_inside(block, position(0)[0], position(tile.rows - 1)[0])
        extents = [block.num_channels, count, *windows.taps[1:]]
        last = extents[-1]
        is_short = isinstance(last, int) and last <= UNROLLED

        def taps(outer: list[Dim]) -> None:
            with build.loop(last, AxisKind.UNROLL if is_short else AxisKind.LOOP) as inner:
                c, first, *others = [*outer, inner]
                tap = [add(start, first), *others]
                k = flatten((c, *tap), (direct.channels, direct.taps, *windows.taps[1:]))
                tile.step(build, acc, lambda i: x(c, position(i), tap), lambda o: weight(panel, o, k))

        nested(build, extents[:-1], [], taps)
        tile.each(build, lambda i, c, at: build.store(self.memory, where(i, c), build.load(acc, at)))


# ---- results ----
def _store(nest: Nest, params: Sequence[Op], direct: Direct, at: Sequence[Dim], value: Value, build: Builder) -> None:
    """The epilogue: outputs of each channel along its positions."""
    assert nest.anchor is not None
    windows, dtype, width = direct.windows, nest.anchor.dtype, direct.panels * direct.tile.columns
    group, piece, block, chunk = at
    first_channel, first_image, first = mul(piece, width), mul(block, direct.images), mul(chunk, direct.length)
    with (
        build.loop(minimum(subtract(direct.batch, first_image), direct.images), AxisKind.LOOP) as image,
        build.loop(minimum(subtract(windows.m, first_channel), width), AxisKind.LOOP) as channel,
    ):
        o = add(mul(group, windows.m), add(first_channel, channel))

        def put(position: Dim) -> None:
            coords = (add(first_image, image), o, *unflatten(add(first, position), windows.spatial))
            store_outputs(nest, params, coords, cast(value(image, channel, position), dtype), build)

        along(build, 0, minimum(subtract(direct.positions, first), direct.length), direct.lanes, put)
