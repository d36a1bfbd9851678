"""The loops of a convolution on a CPU that reads its windows where they lie: lanes over output channels.

In:    Nest (kind CONV), whose anchor is a CONV that `is_direct`
Out:   two or three phases of statements in the free form: pack, multiply, add up
Called by: codegen/emit.py.    Next: picograd/codegen/cpu/convolution_blocks.py

A tile is a few positions of the result by two vectors of output channels. What stands under a tap of a position is one
element for all channels, loaded into all lanes from wherever it lies: no window is packed, and no lane is lost at the end
of a row of positions. The weight is packed, channels side by side. An x that has padding, or is computed, is copied a few
rows at a time to the stack, with its padding, or its values at points are.

    for each block of K (input channels by taps), for each point, image, panel of output channels, tile:
        for c, t:  acc[position, channels] += x[point, c, position * stride + t * dilation] * w[point, c, t, channels]
    for each result a of those that stand together:  result[a] = sum over points p of A[a, p] * sum[p]

PLAIN has one point, at which values are those of x and w themselves, and nothing is joined.
Sums lie on the stack from block to block of K. Of a small result with a long K, as the gradient of a weight, they are
split: parts in the second phase, their sums in a third. A large weight is packed block by block, by each iteration of GRID
that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.cpu.direct_tiles import Block, Direct, direct_of
from picograd.codegen.cpu.panels import pack_columns
from picograd.codegen.cpu.points import join_results, pack_own_weight, pack_weight
from picograd.codegen.cpu.toom import PLAIN, linear_combination
from picograd.codegen.epilogue import store_outputs
from picograd.codegen.loops import along, nested, split
from picograd.codegen.tile import num_parts
from picograd.codegen.windows import guarded
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten, unflatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, at_least_0, both, floordiv, less, minimum, mul, subtract

UNROLLED = 7  # taps along the last axis

# (point, image, channel, position, tap) -> the element of x, or the value, that is under it; image, channel and tap from
# the first of the iteration or block on
Read = Callable[[Dim, Dim, Dim, Sequence[Dim], Sequence[Dim]], Op]
Weight = Callable[[Dim, Dim, Dim, Dim], Op]  # (point, panel, column, k), each from the iteration's or the block's first on
Packed = Callable[[Dim, Dim, Dim, Dim, Dim], Op]  # (point, group, panel, column, k) -> an element of the packed weight
Value = Callable[[Dim, Dim, Dim, Dim], Op]  # (which result, image, channel, position) from the first on -> its sum


def emit_direct(nest: Nest, context: Context) -> None:
    """Writes a convolution: the weight packed in `pack`, sums in `build`, those of split sums in `after`."""
    params, target, scratch = context.params, context.target, context.scratch
    pack, build, after = context.phase(0), context.phase(1), context.phase(2)
    assert nest.anchor is not None
    direct = direct_of(nest.anchor, target)
    windows, splits, unit_numel = direct.windows, direct.splits, direct.numel
    packed = _packed(direct, pack, scratch) if direct.is_shared else None
    extents = [windows.groups, direct.num_pieces, direct.num_image_blocks, direct.num_chunks]
    units = numel(extents)
    parts = scratch(direct.dtype, mul(mul(units, splits), unit_numel)) if splits > 1 else None
    with build.loop(mul(units, splits), AxisKind.GRID) as number:
        part, *at = split(number, [splits, *extents])
        sums = Sums(direct, build, at).multiply(part, packed)
        if parts is None:
            _store(nest, params, direct, at, lambda *place: direct.sum_of(sums, 0, *place), build)
        else:
            memory, start = parts, mul(number, unit_numel)
            along(build, 0, unit_numel, direct.lanes, lambda i: build.store(memory, add(start, i), read(sums, i)))
    if parts is not None:
        with after.loop(units, AxisKind.GRID) as number:
            starts = [mul(add(mul(units, part), number), unit_numel) for part in range(splits)]

            def total(*place: Dim) -> Op:
                first, *others = (direct.sum_of(parts, start, *place) for start in starts)
                return sum(others, first)

            _store(nest, params, direct, split(number, extents), total, after)


def _packed(direct: Direct, pack: Builder, scratch: Scratch) -> Packed:
    """Packs the whole weight."""
    windows = direct.windows
    if direct.toom != PLAIN:
        return pack_weight(direct, pack, scratch)
    matrix = windows.by_channel if windows.lies_by_channel else windows.matrix
    k_axes = len(matrix.shape) - 2
    packed = pack_columns(matrix, direct.tile.columns, direct.lanes, direct.dtype, pack, scratch, k_axes)
    return lambda point, group, panel, o, k: packed((group,), panel, o, k)


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
        points = direct.toom.num_points
        self.memory = build.alloc(direct.dtype, points * prod(direct.shape), MemorySpace.SHARED)
        if direct.is_staged:
            self.rows = build.alloc(direct.dtype, direct.channels * direct.numel_of_channel, MemorySpace.SHARED)
        if direct.numel_of_plane:
            self.plane = build.alloc(direct.dtype, direct.numel_of_plane, MemorySpace.SHARED)
        if not direct.is_shared:
            columns = direct.panels * direct.tile.columns
            self.weight = build.alloc(direct.dtype, points * columns * direct.depth, MemorySpace.SHARED)

    def multiply(self, part: Dim, packed: Packed | None) -> Op:
        """Adds up a part of K, block by block, and returns the memory of the results."""
        build, direct = self.build, self.direct
        zero, points = const(0, direct.dtype), direct.toom.num_points
        along(build, 0, points * prod(direct.shape), direct.lanes, lambda i: build.store(self.memory, i, zero))
        each = num_parts(direct.num_k_blocks, direct.splits)
        start = mul(part, each)
        with build.loop(minimum(subtract(direct.num_k_blocks, start), each), AxisKind.LOOP) as step:
            channel, tap = split(add(start, step), [direct.num_channel_blocks, direct.num_tap_blocks])
            block = Block(direct, mul(channel, direct.channels), mul(tap, direct.taps))
            if packed is None:
                weight = pack_own_weight(direct, self.group, self.first_panel, self.panels, block, self.weight, build)
            else:
                weight = self._shared(block, packed)
            x = self._staged(block) if direct.is_staged else self._in_place(block)
            with (
                build.loop(points, AxisKind.LOOP) as point,
                build.loop(self.images, AxisKind.LOOP) as image,
                build.loop(self.panels, AxisKind.LOOP) as panel,
                build.loop(self.tiles, AxisKind.LOOP) as tile,
            ):
                self._multiply_tile(block, (point, image, panel, mul(tile, direct.tile.rows)), x, weight)
        if direct.toom != PLAIN:
            join_results(direct, self.memory, build)
        return self.memory

    # ---- the weight ----
    def _shared(self, block: Block, packed: Packed) -> Weight:
        """Returns how to read what was packed before."""
        return lambda point, panel, o, k: packed(
            point, self.group, add(self.first_panel, panel), o, add(block.first, k)
        )

    # ---- x ----
    def _element(self, block: Block, image: Dim, c: Dim, place: Sequence[Dim], valid: Op | bool = True) -> Op:
        """Returns an element of x where `valid` holds, else 0."""
        windows = self.direct.windows
        channel = add(mul(self.group, windows.channels), add(block.channel, c))
        at = (add(self.first_image, image), channel, *place)
        return cast(guarded(windows.anchor.src[0], at, valid), self.direct.dtype)

    def _in_place(self, block: Block) -> Read:
        """Returns how to read an x without padding where it lies."""
        arg = self.direct.windows.arg

        def element(point: Dim, image: Dim, c: Dim, position: Sequence[Dim], tap: Sequence[Dim]) -> Op:
            taps = [add(block.tap, tap[0]), *tap[1:]]
            steps = zip(position, arg.stride, taps, arg.dilation)
            return self._element(block, image, c, [add(mul(p, s), mul(t, d)) for p, s, t, d in steps])

        return element

    def _staged(self, block: Block) -> Read:
        """Puts what is read of x on the stack, with zeros for padding, and returns how to read it: values at points."""
        build, direct = self.build, self.direct
        arg = direct.windows.arg
        row = unflatten(self.first_position, direct.spatial)[0]
        shape = (direct.toom.num_points, direct.images, direct.channels, direct.numel_of_rows)
        with build.loop(self.images, AxisKind.LOOP) as image, build.loop(block.num_channels, AxisKind.LOOP) as c:
            # The first row that is read, counted in x: before its first and behind its last there is padding.
            top = mul(add(mul(row, arg.stride[0]), mul(block.tap, arg.dilation[0])), direct.step)
            source = self._source(block, image, c, subtract(top, arg.padding[0][0]))
            if direct.numel_of_plane:
                self._fill(self.plane, direct.plane, lambda at: [(0, source(at))], len(direct.plane) > 1)
                plane, extents = self.plane, direct.plane

                def source(at: Sequence[Dim]) -> Op:
                    return read(plane, flatten(at, extents))

            def values(at: Sequence[Dim]) -> Iterator[tuple[Dim, Op]]:
                elements = [source([add(mul(at[0], direct.step), i), *at[1:]]) for i in range(direct.toom.num_points)]
                for point, coefficients in enumerate(direct.toom.of_inputs):
                    yield flatten((point, image, c, 0), shape), linear_combination(coefficients, elements, direct.has_fma)

            self._fill(self.rows, direct.rows, values, direct.toom == PLAIN and len(direct.rows) > 1)

        def staged(point: Dim, image: Dim, c: Dim, position: Sequence[Dim], tap: Sequence[Dim]) -> Op:
            below = minimum(subtract(position[0], row), direct.height - 1)
            steps = zip([below, *position[1:]], arg.stride, tap, arg.dilation)
            place = flatten([add(mul(p, s), mul(t, d)) for p, s, t, d in steps], direct.rows)
            return read(self.rows, flatten((point, image, c, place), shape))

        return staged

    def _source(self, block: Block, image: Dim, c: Dim, top: Dim) -> Callable[[Sequence[Dim]], Op]:
        """Returns an element of a channel of x by its place below row `top`, padding counted; 0 outside of x."""
        direct = self.direct
        arg, lengths = direct.windows.arg, direct.windows.anchor.src[0].shape[2:]

        def element(at: Sequence[Dim]) -> Op:
            places = [add(top, at[0]), *(subtract(i, pair[0]) for i, pair in zip(at[1:], arg.padding[1:]))]
            valid: Op | bool = True
            for place, length in zip(places, lengths):
                valid = both(valid, both(less(-1, place), less(place, length)))
            return self._element(block, image, c, places, valid)

        return element

    def _fill(
        self, memory: Op, extents: tuple[int, ...], values: Callable[[Sequence[Dim]], Iterable[tuple[Dim, Op]]],
        has_border: bool,
    ) -> None:  # fmt: skip
        """Stores values along the last axis, whole vectors: what one stores behind its row, the next row stores over.

        Args:
          values:     place -> the values there, each with where its plane begins in memory
          has_border: padding makes them 0 at both ends of the axis; where fewer vectors cover what is inside, no more
                      are computed
        """
        build, lanes, zero = self.build, self.direct.lanes, const(0, self.direct.dtype)
        before, after = self.direct.windows.arg.padding[-1] if has_border else (0, 0)
        if _num_vectors(extents[-1] - before - after, lanes) == _num_vectors(extents[-1], lanes):
            before = after = 0
        num_inside = _num_vectors(extents[-1] - before - after, lanes)
        behind = before + num_inside * lanes

        def fill(at: list[Dim]) -> None:
            num_behind = _num_vectors(max(0, extents[-1] - behind), lanes)
            parts = [(0, _num_vectors(before, lanes), True), (before, num_inside, False), (behind, num_behind, True)]
            for first, count, is_border in parts:
                if count == 0:
                    continue
                with build.loop(count, AxisKind.LOOP) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
                    place = [*at, add(first, add(mul(vector, lanes), lane))]
                    for start, value in values(place):
                        build.store(memory, add(start, flatten(place, extents)), zero if is_border else value)

        nested(build, extents[:-1], [], fill)

    # ---- a tile ----
    def _taps_inside(self, block: Block, top: Dim, bottom: Dim) -> tuple[Dim, Dim]:
        """Returns the first tap along the first axis, and how many, that some row of a tile does not find in the padding.

        Args:
          top, bottom: rows of the result that the tile begins and ends in
        """
        arg, windows = self.direct.windows.arg, self.direct.windows
        (before, after), step, apart = arg.padding[0], arg.stride[0], arg.dilation[0]
        if before == after == 0 or self.direct.toom != PLAIN:
            return 0, block.num_taps
        length = windows.anchor.src[0].shape[2]
        done = mul(block.tap, apart)
        above = at_least_0(subtract(subtract(before, mul(bottom, step)), done))  # elements of padding before the first row
        left = at_least_0(subtract(subtract(add(length, before + apart - 1), mul(top, step)), done))
        start = minimum(floordiv(add(above, apart - 1), apart), block.num_taps)
        stop = minimum(floordiv(left, apart), block.num_taps)
        return start, at_least_0(subtract(stop, start))

    def _multiply_tile(self, block: Block, at: Sequence[Dim], x: Read, weight: Weight) -> None:
        """Adds a block of K to the sums of a tile: a sum of sums, so that rounding errors of a long K do not pile up.

        Args:
          at: point, image, panel and first position
        """
        build, direct = self.build, self.direct
        tile, (point, image, panel, row) = direct.tile, at

        def where(i: Dim, c: Dim) -> Dim:
            return flatten((point, image, panel, add(row, i), c), (direct.toom.num_points, *direct.shape))

        def position(i: Dim) -> Sequence[Dim]:
            return unflatten(minimum(add(self.first_position, add(row, i)), direct.positions - 1), direct.spatial)

        acc = tile.new(build)
        start, count = self._taps_inside(block, position(0)[0], position(tile.rows - 1)[0])
        extents = [block.num_channels, count, *direct.inner_taps]
        last = extents[-1]
        is_short = isinstance(last, int) and last <= UNROLLED

        def taps(outer: list[Dim]) -> None:
            with build.loop(last, AxisKind.UNROLL if is_short else AxisKind.LOOP) as inner:
                c, first, *others = [*outer, inner]
                tap = [add(start, first), *others]
                k = flatten((c, *tap), (direct.channels, direct.pitch, *direct.inner_taps))
                tile.step(build, acc, lambda i: x(point, image, c, position(i), tap), lambda o: weight(point, panel, o, k))

        nested(build, extents[:-1], [], taps)
        if direct.num_k_blocks == 1:
            tile.each(build, lambda i, c, place: build.store(self.memory, where(i, c), build.load(acc, place)))
            return

        def put(i: Dim, c: Dim, place: Dim) -> None:
            total, block_sum = build.load(self.memory, where(i, c)), build.load(acc, place)
            build.store(self.memory, where(i, c), Op(OpCode.ADD, direct.dtype, (total, block_sum)))

        tile.each(build, put)


def _num_vectors(count: int, lanes: int) -> int:
    return -(-count // lanes)


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

        def put(which: Dim, position: Dim, coords: Sequence[Dim]) -> None:
            done = cast(value(which, image, channel, position), dtype)
            store_outputs(nest, params, (add(first_image, image), o, *coords), done, build)

        if direct.toom == PLAIN:
            count = minimum(subtract(direct.positions, first), direct.length)
            rest = count % direct.lanes if isinstance(count, int) else 0
            along(build, 0, count, direct.lanes, lambda i: put(0, i, unflatten(add(first, i), windows.spatial)), rest=rest)
            return
        results, length, inner = direct.toom.results, windows.spatial[0], windows.spatial[1:]
        first_row = mul(chunk, direct.height)
        with build.loop(minimum(subtract(direct.spatial[0], first_row), direct.height), AxisKind.LOOP) as row:
            top = mul(add(first_row, row), results)
            with build.loop(minimum(subtract(length, top), results), AxisKind.LOOP) as which:
                along(build, 0, direct.inner, direct.lanes, lambda i: put(
                    which, add(mul(row, direct.inner), i), (add(top, which), *unflatten(i, inner))
                ), rest=direct.inner % direct.lanes)
