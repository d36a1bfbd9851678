"""Direct convolutions on a CPU, with Winograd's F(m, r) along the first axis: lanes run over output channels.

A tile is a few positions of the result by two vectors of output channels. The element under a tap of a position is the same
for all channels, broadcast from x to all lanes: no window is packed, and no lane is wasted at the end of a row. The weight
is packed, output channels contiguous. If x has padding, or is computed, it is staged: copied to the stack a few rows at a
time, with its padding, or its input transform is.

    for each block of K (input channels by taps), for each point, image, panel of output channels, tile:
        for c, t:  acc[position, channels] += x[point, c, position * stride + t * dilation] * w[point, c, t, channels]
    for each of the m outputs a:  result[a] = sum over points p of A[a, p] * sum[p]                  (output transform)

Along the first axis the m outputs of a Winograd tile are one position, or its r taps one tap; each of its points is then
such a convolution, of transformed values: the same loops with one axis more. `PLAIN` is F(1, 1): one point, no transform.
The filter transform is applied while the weight is packed, the input transform while x is staged, the output transform to
the sums, in place.

Positions count through all spatial axes of an image, so a tile continues from row to row. A GRID iteration has some
positions of one image, or all of several small ones, by some panels of output channels. Sums stay on the stack from block
to block of K. A small result with a long K, such as a weight's gradient, is split: parts in the second phase, their sums in
a third. A large weight is packed block by block, by each GRID iteration that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.convolution import guarded, padded
from picograd.codegen.convolution_tiles import Block, DirectTiles, direct_of
from picograd.codegen.loops import along, nested
from picograd.codegen.matmul import contiguous_axis, store_outputs
from picograd.codegen.panels import fill_panel, pack_columns
from picograd.codegen.winograd import PLAIN, linear_combination
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import Coords, add, at_least_0, ceildiv, flatten, floordiv, minimum, mul, subtract, unflatten

# ---- transforms of filters and outputs ----
TRANSPOSED_ELEMENTS_MAX = 128  # of a row of the weight, transposed together


def pack_transformed_weight(direct: DirectTiles, pack: Builder, scratch: Scratch) -> Packed:
    """Packs the transforms of the whole weight, output channels contiguous; returns a reader of them."""
    windows, each = direct.windows, _channels_of_a_run(direct)
    shape = (direct.scheme.num_points, windows.groups, direct.num_panels, direct.k, direct.tile.columns)
    memory, (taps, *inner) = scratch(direct.dtype, numel(shape)), direct.tap_extents
    runs = ceildiv(windows.channels, each)
    with pack.loop(mul(windows.groups, runs), AxisKind.GRID) as number:
        group, run = unflatten(number, [windows.groups, runs])
        channel = mul(run, each)
        count = minimum(subtract(windows.channels, channel), each)
        with pack.loop(direct.num_panels, AxisKind.LOOP) as panel, pack.loop(taps, AxisKind.LOOP) as tap:

            def put(point: Dim, c: Dim, inner_tap: Dim, o: Dim, value: Op) -> None:
                k = add(mul(add(mul(add(channel, c), taps), tap), prod(inner)), inner_tap)
                pack.store(memory, flatten((point, group, panel, k, o), shape), value)

            _transform_filter(direct, (group, panel, channel, tap), count, put, pack)
    return lambda point, group, panel, o, k: read(memory, flatten((point, group, panel, k, o), shape))


def pack_block(
    direct: DirectTiles, group: Dim, first_panel: Dim, panels: Dim, block: Block, memory: Op, build: Builder
) -> Weight:
    """Packs the transforms of a block of K; returns a reader of them."""
    each, inner = _channels_of_a_run(direct), prod(direct.inner_taps)
    shape = (direct.scheme.num_points, direct.unit_panels, direct.depth, direct.tile.columns)
    if direct.scheme == PLAIN:
        start, extents = (block.channel, mul(block.tap, inner)), (block.num_channels, mul(block.num_taps, inner))
        with build.loop(panels, AxisKind.LOOP) as panel:
            own = group, add(first_panel, panel)
            _copy_weight(direct, own, start, extents, memory, lambda i, o: flatten((0, panel, i, o), shape), build)
        return lambda point, panel, o, k: read(memory, flatten((point, panel, k, o), shape))
    with (
        build.loop(ceildiv(block.num_channels, each), AxisKind.LOOP) as run,
        build.loop(panels, AxisKind.LOOP) as panel,
        build.loop(block.num_taps, AxisKind.LOOP) as tap,
    ):
        channel = mul(run, each)
        count = minimum(subtract(block.num_channels, channel), each)

        def put(point: Dim, c: Dim, inner_tap: Dim, o: Dim, value: Op) -> None:
            k = add(mul(add(mul(add(channel, c), direct.pitch), tap), inner), inner_tap)
            build.store(memory, flatten((point, panel, k, o), shape), value)

        at = (group, add(first_panel, panel), add(block.channel, channel), add(block.tap, tap))
        _transform_filter(direct, at, count, put, build)
    return lambda point, panel, o, k: read(memory, flatten((point, panel, k, o), shape))


def _channels_of_a_run(direct: DirectTiles) -> int:
    """Returns the number of input channels transposed together: consecutive elements of the weight."""
    return max(1, TRANSPOSED_ELEMENTS_MAX // prod(direct.windows.taps)) if direct.has_all_taps else 1


def _transform_filter(
    direct: DirectTiles, at: Sequence[Dim], count: Dim, put: Callable[[Dim, Dim, Dim, Dim, Op], None], build: Builder
) -> None:
    """Computes the filter transform of a panel of output channels, for some input channels and the taps of a tile.

    Args:
      at:    group, panel, first input channel, index of the taps along the first axis
      count: number of input channels; 1, unless a tile has all taps
      put:   (point, channel, tap along the other axes, column, value), lanes over columns
    """
    scheme, columns, inner = direct.scheme, direct.tile.columns, prod(direct.inner_taps)
    taps = scheme.taps * inner
    transposed = build.alloc(direct.dtype, _channels_of_a_run(direct) * taps * columns, MemorySpace.SHARED)
    _transpose_weight(direct, at, count, transposed, build)
    with build.loop(count, AxisKind.LOOP) as c, build.loop(inner, AxisKind.LOOP) as i:

        def values(o: Dim) -> None:
            places = [add(mul(c, taps), add(number * inner, i)) for number in range(scheme.taps)]
            elements = [read(transposed, add(mul(place, columns), o)) for place in places]
            for point, row in enumerate(scheme.filter_transform):
                put(point, c, i, o, linear_combination(row, elements, direct.has_fma))

        along(build, 0, columns, direct.lanes, values)


def _transpose_weight(direct: DirectTiles, at: Sequence[Dim], count: Dim, transposed: Op, build: Builder) -> None:
    """Copies a run of K of a panel, output channels contiguous; 0 for missing channels or taps."""
    columns, inner, zero = direct.tile.columns, prod(direct.inner_taps), const(0, direct.dtype)
    group, panel, first_channel, tap = at
    first = mul(tap, direct.scheme.taps)
    there = minimum(subtract(direct.windows.taps[0], first), direct.scheme.taps)

    def place(i: Dim, o: Dim) -> Dim:
        return add(mul(i, columns), o)

    start, extents = (first_channel, mul(first, inner)), (count, mul(there, inner))
    _copy_weight(direct, (group, panel), start, extents, transposed, place, build)
    with build.loop(mul(subtract(direct.scheme.taps, there), inner), AxisKind.LOOP) as i:  # past the last tap
        along(build, 0, columns, direct.lanes, lambda o: build.store(transposed, place(add(mul(there, inner), i), o), zero))


def _copy_weight(
    direct: DirectTiles, at: tuple[Dim, Dim], first: tuple[Dim, Dim], extents: tuple[Dim, Dim], memory: Op,
    place: Callable[[Dim, Dim], Dim], build: Builder,
) -> None:  # fmt: skip
    """Copies input channels by taps, all taps or those of one channel, for a panel's output channels; 0 past the last.

    K counts elements in the order of memory or, if they are not contiguous there, channel by channel.

    Args:
      at:              group and panel
      first, extents:  channels and taps; taps count over all axes
      place:           (k from the first on, output channel of the panel) -> index of the copy
    """
    windows, columns, zero = direct.windows, direct.tile.columns, const(0, direct.dtype)
    (group, panel), (channel, tap), (channels, taps) = at, first, extents
    own, run = minimum(subtract(windows.m, mul(panel, columns)), columns), mul(channels, taps)
    is_one_run = contiguous_axis(windows.matrix) == -2
    weight = windows.matrix if is_one_run else windows.by_channel
    along_k = contiguous_axis(weight) == -2

    def fill(c: Dim, count: Dim) -> None:
        def coords(i: Dim, o: Dim) -> Coords:
            column = add(mul(panel, columns), o)
            if is_one_run:
                return group, add(add(mul(channel, windows.num_taps), tap), i), column
            return group, add(channel, c), add(tap, i), column

        def there(i: Dim, o: Dim) -> Dim:
            return place(add(mul(c, taps), i), o)

        fill_panel(weight, memory, columns, direct.lanes, along_k, (own, count), there, coords, build)

    if is_one_run:
        fill(0, run)
    else:
        with build.loop(channels, AxisKind.LOOP) as c:
            fill(c, taps)
    with build.loop(subtract(columns, own), AxisKind.LOOP) as o, build.loop(run, AxisKind.LOOP) as i:
        build.store(memory, place(i, add(own, o)), zero)


def transform_outputs(direct: DirectTiles, memory: Op, build: Builder) -> None:
    """Applies the output transform: outputs replace the sums of the first points."""
    scheme, point_numel = direct.scheme, prod(direct.shape)
    # The float nearest to 1/3 has a relative error of 2**-25, less than half a step of any q: 3 q times it rounds to q.
    # Powers of two are exact, so the same holds for 6 q and 24 q, as long as these are exact.
    scale = const(1.0 / scheme.divisor, direct.dtype)

    def join(i: Dim) -> None:
        sums = [build.load(memory, add(point * point_numel, i)) for point in range(scheme.num_points)]
        for which, row in enumerate(scheme.output_transform):
            total = linear_combination(row, sums, direct.has_fma)
            build.store(memory, add(which * point_numel, i), Op(OpCode.MUL, total.dtype, (total, scale)))

    along(build, 0, point_numel, direct.lanes, join)


# ---- loops ----
UNROLLED_TAPS_MAX = 7  # along the last axis

# (point, image, channel, position, tap) -> the element of x under it, or of its transform; image, channel and tap relative
# to the iteration or block
Read = Callable[[Dim, Dim, Dim, Sequence[Dim], Sequence[Dim]], Op]
Weight = Callable[[Dim, Dim, Dim, Dim], Op]  # (point, panel, column, k), each relative to the iteration or block
Packed = Callable[[Dim, Dim, Dim, Dim, Dim], Op]  # (point, group, panel, column, k) -> an element of the packed weight
Value = Callable[[Dim, Dim], Op]  # (column, position) -> a result of a tile, of an image and a panel


def emit_direct(nest: Nest, context: Context) -> None:
    """Writes a convolution: the weight is packed in `pack`, sums are in `build`, those of split sums in `after`."""
    params, target, scratch = context.params, context.target, context.scratch
    pack, build, after = context.phase(0), context.phase(1), context.phase(2)
    direct = direct_of(nest.anchor, target)
    windows, splits, unit_numel = direct.windows, direct.splits, direct.numel
    packed = _packed(direct, pack, scratch) if direct.is_shared else None
    extents = [windows.groups, direct.num_pieces, direct.num_image_blocks, direct.num_chunks]
    units = numel(extents)
    parts = scratch(direct.dtype, mul(mul(units, splits), unit_numel)) if splits > 1 else None
    with build.loop(mul(units, splits), AxisKind.GRID) as number:
        part, *at = unflatten(number, [splits, *extents])
        sums = Sums(direct, build, at).multiply(part, packed)
        if parts is None:
            transposed = build.alloc(direct.dtype, prod(direct.transposed), MemorySpace.SHARED)
            _store(nest, params, direct, at, lambda *of: _transposed(direct, sums, transposed, of, build), build)
        else:
            memory, start = parts, mul(number, unit_numel)
            along(build, 0, unit_numel, direct.lanes, lambda i: build.store(memory, add(start, i), read(sums, i)))
    if parts is not None:
        with after.loop(units, AxisKind.GRID) as number:
            starts = [mul(add(mul(units, part), number), unit_numel) for part in range(splits)]

            def totals(*of: Dim) -> Value:
                def total(column: Dim, position: Dim) -> Op:
                    first, *others = [direct.sum_of(parts, start, (*of, position, column)) for start in starts]
                    return sum(others, first)

                return total

            _store(nest, params, direct, unflatten(number, extents), totals, after)


def _packed(direct: DirectTiles, pack: Builder, scratch: Scratch) -> Packed:
    """Packs the whole weight."""
    windows = direct.windows
    if direct.scheme != PLAIN:
        return pack_transformed_weight(direct, pack, scratch)
    matrix = windows.by_channel if windows.is_by_channel else windows.matrix
    k_axes = len(matrix.shape) - 2
    packed = pack_columns(matrix, direct.tile.columns, direct.lanes, direct.dtype, pack, scratch, k_axes)
    return lambda point, group, panel, o, k: packed((group,), panel, o, k)


class Sums:
    """The sums of a unit, on the stack."""

    def __init__(self, direct: DirectTiles, build: Builder, at: Sequence[Dim]):
        self.direct, self.build = direct, build
        self.group, piece, block, chunk = at
        self.first_panel, self.first_image = mul(piece, direct.unit_panels), mul(block, direct.unit_images)
        self.images = minimum(subtract(direct.batch, self.first_image), direct.unit_images)
        # Positions count through `extents`, from `first_position` on; x is staged from the window at `origin` on.
        self.first_position: Dim = 0
        self.first_row: Dim = 0
        if direct.is_blocked:
            self.origin, own = direct.block(chunk)
            self.extents = (self.images, *own)
        else:
            self.first_position = mul(chunk, direct.unit_positions)
            self.first_row, *_ = unflatten(self.first_position, direct.spatial)
            self.origin, self.extents = (self.first_row, *[0 for _ in direct.spatial[1:]]), direct.spatial
        self.positions = numel(self.extents)
        self.panels = minimum(subtract(direct.num_panels, self.first_panel), direct.unit_panels)
        left = subtract(self.positions, self.first_position)
        self.tiles = minimum(ceildiv(left, direct.tile.rows), direct.unit_tiles)
        self.memory = build.alloc(direct.dtype, direct.numel_of_sums, MemorySpace.SHARED)
        if direct.is_staged:
            self.rows = build.alloc(direct.dtype, direct.channels * direct.numel_of_channel, MemorySpace.SHARED)
        if direct.numel_of_plane:
            self.plane = build.alloc(direct.dtype, direct.numel_of_plane, MemorySpace.SHARED)
        if not direct.is_shared:
            columns = direct.scheme.num_points * direct.unit_panels * direct.tile.columns
            self.weight = build.alloc(direct.dtype, columns * direct.depth, MemorySpace.SHARED)

    def multiply(self, part: Dim, packed: Packed | None) -> Op:
        """Adds up a part of K, block by block; returns the memory of the results."""
        build, direct = self.build, self.direct
        zero, points = const(0, direct.dtype), direct.scheme.num_points
        along(build, 0, points * prod(direct.shape), direct.lanes, lambda i: build.store(self.memory, i, zero))
        each = ceildiv(direct.num_k_blocks, direct.splits)
        start = mul(part, each)
        with build.loop(minimum(subtract(direct.num_k_blocks, start), each), AxisKind.LOOP) as step:
            channel, tap = unflatten(add(start, step), [direct.num_channel_blocks, direct.num_tap_blocks])
            block = Block(direct, mul(channel, direct.channels), mul(tap, direct.taps))
            if packed is None:
                weight = pack_block(direct, self.group, self.first_panel, self.panels, block, self.weight, build)
            else:
                weight = self._shared(block, packed)
            x = self._staged(block) if direct.is_staged else self._in_place(block)
            with (
                build.loop(points, AxisKind.LOOP) as point,
                build.loop(1 if direct.is_blocked else self.images, AxisKind.LOOP) as image,
                build.loop(self.panels, AxisKind.LOOP) as panel,
                build.loop(self.tiles, AxisKind.LOOP) as tile,
            ):
                self._multiply_tile(block, (point, image, panel, mul(tile, direct.tile.rows)), x, weight)
        if direct.scheme != PLAIN:
            transform_outputs(direct, self.memory, build)
        return self.memory

    # ---- the weight ----
    def _shared(self, block: Block, packed: Packed) -> Weight:
        """Returns a reader of the weight that the first phase packed."""
        return lambda point, panel, o, k: packed(point, self.group, add(self.first_panel, panel), o, add(block.first, k))

    # ---- x ----
    def _element(self, block: Block, image: Dim, c: Dim, places: Sequence[Dim], is_inside: bool = False) -> Op:
        """Returns an element of x; 0 outside."""
        windows = self.direct.windows
        x, image = windows.anchor.src[0], add(self.first_image, image)
        channel = add(mul(self.group, windows.channels), add(block.channel, c))
        value = guarded(x, (image, channel, *places), True) if is_inside else padded(x, image, channel, places)
        return cast(value, self.direct.dtype)

    def _in_place(self, block: Block) -> Read:
        """Returns a reader of an x without padding, in its own memory."""
        windows = self.direct.windows

        def element(point: Dim, image: Dim, c: Dim, position: Sequence[Dim], tap: Sequence[Dim]) -> Op:
            places = windows.places(position, [add(block.tap, tap[0]), *tap[1:]])
            return self._element(block, image, c, places, is_inside=True)

        return element

    def _staged(self, block: Block) -> Read:
        """Copies x to the stack, with zeros for padding, or its input transform; returns a reader of it."""
        build, direct = self.build, self.direct
        arg = direct.windows.arg
        shape = (direct.scheme.num_points, direct.unit_images, direct.channels, direct.numel_of_rows)
        with build.loop(self.images, AxisKind.LOOP) as image, build.loop(block.num_channels, AxisKind.LOOP) as c:
            # The first row that is read, relative to x: before the first and after the last one there is padding.
            top = mul(add(mul(self.origin[0], arg.stride[0]), mul(block.tap, arg.dilation[0])), direct.step)
            source = self._source(block, image, c, subtract(top, arg.padding[0][0]))
            if direct.numel_of_plane:
                self._fill(self.plane, direct.plane, lambda at: [(0, source(at))], self._has_border)
                plane, extents = self.plane, direct.plane

                def source(at: Sequence[Dim]) -> Op:
                    return read(plane, flatten(at, extents))

            def values(at: Sequence[Dim]) -> Iterator[tuple[Dim, Op]]:
                elements = [source([add(mul(at[0], direct.step), i), *at[1:]]) for i in range(direct.scheme.num_points)]
                for point, coefficients in enumerate(direct.scheme.input_transform):
                    yield flatten((point, image, c, 0), shape), linear_combination(coefficients, elements, direct.has_fma)

            self._fill(self.rows, direct.rows, values, direct.scheme == PLAIN and self._has_border)

        def staged(point: Dim, image: Dim, c: Dim, position: Sequence[Dim], tap: Sequence[Dim]) -> Op:
            if direct.is_blocked:
                image, position = minimum(position[0], direct.unit_images - 1), position[1:]
            below = minimum(subtract(position[0], self.first_row), direct.unit_rows - 1)
            place = flatten(direct.windows.places([below, *position[1:]], tap), direct.rows)
            return read(self.rows, flatten((point, image, c, place), shape))

        return staged

    def _source(self, block: Block, image: Dim, c: Dim, top: Dim) -> Callable[[Sequence[Dim]], Op]:
        """Returns an element of a channel of x by its position below row `top`, padding counted; 0 outside x."""
        arg = self.direct.windows.arg
        starts = [mul(first, step) for first, step in zip(self.origin, arg.stride)]

        def element(at: Sequence[Dim]) -> Op:
            inner = zip(at[1:], starts[1:], arg.padding[1:])
            places = [add(top, at[0]), *[subtract(add(start, i), before) for i, start, (before, _) in inner]]
            return self._element(block, image, c, places)

        return element

    @property
    def _has_border(self) -> bool:
        """True where whole rows of x are staged, with their padding."""
        return len(self.direct.rows) > 1 and not self.direct.is_blocked

    def _fill(
        self, memory: Op, extents: tuple[int, ...], values: Callable[[Sequence[Dim]], Iterable[tuple[Dim, Op]]],
        has_border: bool,
    ) -> None:  # fmt: skip
        """Stores values along the last axis, in whole vectors: the next row overwrites elements past the row's end.

        Args:
          values:     index -> the values there, each with the start of its plane in memory has_border: padding makes them 0
                      at both ends of the axis; only the inside is computed if that takes fewer vectors
        """
        build, lanes, zero = self.build, self.direct.lanes, const(0, self.direct.dtype)
        before, after = self.direct.windows.arg.padding[-1] if has_border else (0, 0)
        if ceildiv(extents[-1] - before - after, lanes) == ceildiv(extents[-1], lanes):
            before = after = 0
        num_inside = ceildiv(extents[-1] - before - after, lanes)
        behind = before + num_inside * lanes

        def fill(at: list[Dim]) -> None:
            num_behind = ceildiv(max(0, extents[-1] - behind), lanes)
            parts = [(0, ceildiv(before, lanes), True), (before, num_inside, False), (behind, num_behind, True)]
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
        """Returns the first tap along the first axis that some row of a tile finds inside x, and the number of such taps.

        Args:
          top, bottom: first and last row of the result in the tile
        """
        arg, windows = self.direct.windows.arg, self.direct.windows
        (before, after), step, apart = arg.padding[0], arg.stride[0], arg.dilation[0]
        if before == after == 0 or self.direct.scheme != PLAIN or self.direct.is_blocked:
            return 0, block.num_taps
        length = windows.anchor.src[0].shape[2]
        done = mul(block.tap, apart)
        above = at_least_0(subtract(subtract(before, mul(bottom, step)), done))  # elements of padding before the first row
        left = at_least_0(subtract(subtract(add(length, before + apart - 1), mul(top, step)), done))
        start = minimum(ceildiv(above, apart), block.num_taps)
        stop = minimum(floordiv(left, apart), block.num_taps)
        return start, at_least_0(subtract(stop, start))

    def _multiply_tile(self, block: Block, at: Sequence[Dim], x: Read, weight: Weight) -> None:
        """Adds a block of K to the sums of a tile; sums of sums keep the rounding error of a long K small.

        Args:
          at: point, image, panel and first position
        """
        build, direct = self.build, self.direct
        tile, (point, image, panel, row) = direct.tile, at

        def where(i: Dim, c: Dim) -> Dim:
            return flatten((point, image, panel, add(row, i), c), (direct.scheme.num_points, *direct.shape))

        def position(i: Dim) -> Sequence[Dim]:
            place = minimum(add(self.first_position, add(row, i)), subtract(self.positions, 1))
            is_of_one = direct.is_blocked and self.images == 1  # image
            return (0, *unflatten(place, self.extents[1:])) if is_of_one else unflatten(place, self.extents)

        acc = tile.new(build)
        start, count = self._taps_inside(block, position(0)[0], position(tile.rows - 1)[0])
        extents = [block.num_channels, count, *direct.inner_taps]
        last = extents[-1]
        is_short = isinstance(last, int) and last <= UNROLLED_TAPS_MAX

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


# ---- results ----
def _transposed(direct: DirectTiles, sums: Op, memory: Op, of: Sequence[Dim], build: Builder) -> Value:
    """Transposes one result of each tile, for an image and a panel, in registers: lanes become positions."""
    lanes, columns = direct.lanes, direct.tile.columns
    if lanes == 1:
        return lambda column, position: direct.sum_of(sums, 0, (*of, position, column))

    def transpose(at: list[Dim]) -> None:
        side, square = at
        start = flatten((*of, mul(square, lanes), mul(side, lanes)), (direct.scheme.outputs, *direct.shape))
        place = flatten((mul(side, lanes), mul(square, lanes)), direct.transposed)
        build.transpose(memory, place, direct.transposed[1], sums, start, columns, lanes)

    nested(build, [direct.tile.vectors, direct.transposed[1] // lanes], [], transpose)
    return lambda column, position: read(memory, flatten((column, position), direct.transposed))


def _store(
    nest: Nest, params: Sequence[Op], direct: DirectTiles, at: Sequence[Dim], values: Callable[..., Value], build: Builder
) -> None:
    """The epilogue: outputs of each channel along its positions.

    Args:
      values: (number of the result in a tile, image, panel) -> its values
    """
    windows, dtype, columns, results = direct.windows, nest.anchor.dtype, direct.tile.columns, direct.scheme.outputs
    group, piece, block, chunk = at
    first_panel, first_image = mul(piece, direct.unit_panels), mul(block, direct.unit_images)
    images = minimum(subtract(direct.batch, first_image), direct.unit_images)
    first, first_row, (length, *inner) = mul(chunk, direct.unit_positions), mul(chunk, direct.unit_rows), windows.spatial
    with (
        build.loop(results, AxisKind.LOOP) as which,
        build.loop(1 if direct.is_blocked else images, AxisKind.LOOP) as image,
        build.loop(minimum(subtract(direct.num_panels, first_panel), direct.unit_panels), AxisKind.LOOP) as panel,
    ):
        value, first_channel = values(which, image, panel), mul(add(first_panel, panel), columns)
        with build.loop(minimum(subtract(windows.m, first_channel), columns), AxisKind.LOOP) as column:
            o = add(mul(group, windows.m), add(first_channel, column))

            def put(position: Dim, coords: Coords, image: Dim = image) -> None:
                done = cast(value(column, position), dtype)
                store_outputs(nest, params, (add(first_image, image), o, *coords), done, build)

            if direct.is_blocked:
                _store_block(direct, chunk, images, which, put, build)
                return
            if direct.scheme == PLAIN:
                count = minimum(subtract(direct.positions, first), direct.unit_positions)
                rest = count % direct.lanes if isinstance(count, int) else 0
                along(build, 0, count, direct.lanes, lambda i: put(i, unflatten(add(first, i), windows.spatial)), rest=rest)
                return
            rows = floordiv(subtract(add(length, results - 1), which), results)  # number of rows with such a result
            with build.loop(minimum(subtract(rows, first_row), direct.unit_rows), AxisKind.LOOP) as row:
                top = add(mul(add(first_row, row), results), which)
                along(build, 0, direct.inner, direct.lanes, lambda i: put(
                    add(mul(row, direct.inner), i), (top, *unflatten(i, inner))
                ), rest=direct.inner % direct.lanes)


def _store_block(
    direct: DirectTiles, number: Dim, images: Dim, which: Dim, put: Callable[[Dim, Coords, Dim], None], build: Builder
) -> None:
    """Stores one result of each tile of a block of images with symbolic lengths.

    Args:
      number:  of the block
      put:     (position counted through all images of the unit, coordinates of the result, image): stores it
    """
    (origin, own), results = direct.block(number), direct.scheme.outputs
    rows = floordiv(subtract(add(direct.windows.spatial[0], results - 1), which), results)  # that have it

    def store(at: list[Dim]) -> None:
        image, *outer = at

        def element(i: Dim) -> None:
            first, *others = [add(start, place) for start, place in zip(origin, (*outer, i))]
            put(flatten((*at, i), (images, *own)), (add(mul(first, results), which), *others), image)

        along(build, 0, own[-1], direct.lanes, element, rest=own[-1])

    nested(build, [images, minimum(subtract(rows, origin[0]), own[0]), *own[1:-1]], [], store)
