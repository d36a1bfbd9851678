"""The loops of a convolution on a CPU that reads its windows where they lie: lanes over output channels.

In:    Nest (kind CONV), whose anchor is a CONV that `is_direct`
Out:   two phases of statements in the free form: pack, multiply
Called by: codegen/lower.py.    Next: picograd/codegen/convolution.py

A tile is a few positions of the result by two vectors of output channels. What stands under a tap of a position is one
element for all channels, loaded into all lanes from wherever it lies: no window is packed, and no lane is lost at the end
of a row of positions. Packed are the weight, channels side by side, and with zeros around it an x that has padding.

    for each block of K (input channels by taps), for each panel of output channels, for each tile of positions:
        for c, t:  acc[position, channels] += x[c, position * stride + t * dilation] * w[c, t, channels]

An iteration of GRID does a block of positions and some panels; its sums lie on the stack from block to block of K. Of a
small result with a long K (the gradient of a weight) the sum is split: parts in the second phase, their sums in a third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.index import element_within
from picograd.codegen.loops import along, nested, split
from picograd.codegen.matmul import Operand, is_plain, lanes_of, pack_columns, store_outputs
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import Tile
from picograd.codegen.windows import Windows
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, reshape, swap_last
from picograd.ir.coordinates import flatten, unflatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

MOST_K = 512  # of a block, where the taps are not more
MOST_POSITIONS = 96  # of an iteration of GRID
MOST_PANELS = 4  # of an iteration of GRID
WELL_FILLED = 0.6  # of the lanes
ENOUGH = 16  # iterations of GRID; with fewer, a long sum is split
FEWEST_POSITIONS = 4  # of an image: fewer fill no tile
UNROLLED = 7  # taps along the last axis


def is_direct(nest: Nest, target: Target) -> bool:
    """True for a CONV whose output channels fill lanes, whose positions fill tiles, and whose x has no gaps."""
    assert nest.anchor is not None
    arg, windows = nest.anchor.arg, Windows(nest.anchor)
    if set(arg.input_dilation) != {1} or any(side < 0 for pair in arg.padding for side in pair):
        return False
    width = lanes_of(nest.anchor, target) * (1 if windows.m <= lanes_of(nest.anchor, target) else 2)
    filled = windows.m / (-(-windows.m // width) * width)
    return filled >= WELL_FILLED and prod(windows.spatial) >= FEWEST_POSITIONS and nest.anchor.dtype.is_float


Read = Callable[[Dim, Dim, Sequence[Dim]], Op]  # (image, channel, places of x with its padding) -> an element
Value = Callable[[Dim, Dim, Dim], Op]  # (image, channel, position), each counted in its block -> a sum that is done


@dataclass(frozen=True)
class Direct:
    """How such a convolution is cut.

    windows:  the product
    lanes:    of a vector
    most:     rows of a tile of two vectors
    dtype:    accumulated in
    has_fma:  an instruction multiplies and adds
    """

    windows: Windows
    lanes: int
    most: int
    dtype: DType
    has_fma: bool

    @property
    def batch(self) -> Dim:
        return self.windows.anchor.shape[0]

    @cached_property
    def tile(self) -> Tile:
        """As many positions as leave few over at the end of an image."""
        vectors = 1 if self.windows.m <= self.lanes else 2
        most = self.most * 2 // vectors
        rows = min(range(most, 3, -1), key=lambda rows: -(-self.positions // rows) * rows)
        return Tile(rows, vectors, self.lanes, self.dtype, self.has_fma)

    # ---- output channels of a group ----
    @cached_property
    def panels(self) -> int:
        """Panels of output channels of an iteration of GRID."""
        count = -(-self.windows.m // self.tile.columns)
        return -(-count // -(-count // MOST_PANELS))

    @property
    def width(self) -> int:
        """Output channels of an iteration of GRID."""
        return self.panels * self.tile.columns

    @property
    def num_pieces(self) -> int:
        return -(-self.windows.m // self.width)

    # ---- positions ----
    @cached_property
    def positions(self) -> int:
        """Of an image."""
        return prod(self.windows.spatial)

    @cached_property
    def tiles(self) -> int:
        """Tiles of an image that an iteration of GRID does."""
        count = -(-self.positions // self.tile.rows)
        return -(-count // -(-count * self.tile.rows // MOST_POSITIONS))

    @property
    def length(self) -> int:
        """Positions of an image that an iteration of GRID does."""
        return self.tiles * self.tile.rows

    @property
    def num_chunks(self) -> int:
        return -(-self.positions // self.length)

    @property
    def images(self) -> int:
        """Images of an iteration of GRID: several small ones read the same block of the weight."""
        return max(1, MOST_POSITIONS // self.length) if self.num_chunks == 1 else 1

    @property
    def num_image_blocks(self) -> Dim:
        return floordiv(add(self.batch, self.images - 1), self.images)

    # ---- K ----
    @property
    def channels(self) -> int:
        """Input channels of a block of K."""
        return max(1, MOST_K // self.windows.num_taps)

    @property
    def num_k_blocks(self) -> int:
        return -(-self.windows.channels // self.channels)

    @cached_property
    def splits(self) -> int:
        """Into how many parts the sum over K is split: by shapes alone, so that its bits do not depend on threads."""
        units = self.num_image_blocks
        if not isinstance(units, int):
            return 1
        units *= self.windows.groups * self.num_pieces * self.num_chunks
        return max(1, min(-(-ENOUGH // max(1, units)), self.num_k_blocks // 2))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sums of an iteration of GRID."""
        return (self.images, self.panels, self.length, self.tile.columns)

    def place(self, image: Dim, channel: Dim, position: Dim) -> Dim:
        """Returns where the sum of a channel and a position stands among those of an iteration of GRID."""
        panel, column = split(channel, [self.panels, self.tile.columns])
        return flatten((image, panel, position, column), self.shape)


def emit_direct(
    nest: Nest, params: Sequence[Op], pack: Builder, build: Builder, after: Builder, target: Target, scratch: Scratch
) -> None:
    """Writes a convolution: x and weight packed in `pack`, sums in `build`, those of split sums in `after`."""
    assert nest.anchor is not None
    lanes = lanes_of(nest.anchor, target)
    most = 12 if target.num_registers >= 32 else 6
    direct = Direct(Windows(nest.anchor), lanes, most, accumulator_dtype(nest.anchor), target.has_fma)
    windows = direct.windows
    x = _padded(direct, pack, scratch)
    w = nest.anchor.src[1]
    columns = swap_last(reshape(w, (windows.groups, windows.m, windows.k)))  # (groups, K, output channels)
    weight = pack_columns(columns, direct.tile.columns, lanes, direct.dtype, pack, scratch)
    extents = [windows.groups, direct.num_pieces, direct.num_image_blocks, direct.num_chunks]
    size = prod(direct.shape)
    parts = scratch(direct.dtype, mul(numel((direct.splits, *extents)), size)) if direct.splits > 1 else None
    with build.loop(numel((direct.splits, *extents)), AxisKind.GRID) as number:
        part, *at = split(number, [direct.splits, *extents])
        sums = Sums(direct, build, at).multiply(part, x, weight)
        if parts is None:
            _store(nest, params, direct, at, lambda *place: read(sums, direct.place(*place)), build)
        else:
            start, memory = mul(number, size), parts
            along(build, 0, size, lanes, lambda i: build.store(memory, add(start, i), read(sums, i)))
    if parts is not None:
        with after.loop(numel(extents), AxisKind.GRID) as number:
            offsets = [mul(add(mul(part, numel(extents)), number), size) for part in range(direct.splits)]

            def total(image: Dim, channel: Dim, position: Dim) -> Op:
                first, *others = (read(parts, add(offset, direct.place(image, channel, position))) for offset in offsets)
                return sum(others, first)

            _store(nest, params, direct, split(number, extents), total, after)


# ---- packing ----
def _padded(direct: Direct, build: Builder, scratch: Scratch) -> Read:
    """Returns how to read x: where it lies, or where it has to be computed or has padding, a copy that has all that."""
    windows = direct.windows
    x, padding = windows.anchor.src[0], windows.arg.padding
    if is_plain(x) and all(pair == (0, 0) for pair in padding):
        return lambda b, c, places: cast(element_within(x, (b, c, *places)), direct.dtype)
    batch, channels, *lengths = x.shape
    shape = (batch, channels, *(add(length, sum(pair)) for length, pair in zip(lengths, padding)))
    memory = scratch(direct.dtype, numel(shape))
    plane, zero = numel(shape[2:]), const(0, direct.dtype)
    with build.loop(numel((batch, channels)), AxisKind.GRID) as number:
        b, c = split(number, [batch, channels])
        start = mul(number, plane)
        along(build, start, plane, direct.lanes, lambda i: build.store(memory, i, zero))

        def copy(outer: list[Dim]) -> None:
            def put(last: Dim) -> None:
                at = [*outer, last]
                where = flatten((b, c, *(add(i, before) for i, (before, _) in zip(at, padding))), shape)
                build.store(memory, where, cast(element_within(x, (b, c, *at)), direct.dtype))

            along(build, 0, lengths[-1], direct.lanes, put)

        nested(build, lengths[:-1], [], copy)
    return lambda b, c, places: read(memory, flatten((b, c, *places), shape))


# ---- sums ----
class Sums:
    """The sums of an iteration of GRID, on its stack."""

    def __init__(self, direct: Direct, build: Builder, at: Sequence[Dim]):
        self.direct, self.build = direct, build
        self.group, piece, block, chunk = at
        windows = direct.windows
        self.first_panel = mul(piece, direct.panels)
        self.first_image = mul(block, direct.images)
        self.first_position = mul(chunk, direct.length)
        tile = direct.tile
        count = -(-windows.m // tile.columns)
        self.panels = minimum(subtract(count, self.first_panel), direct.panels)
        self.images = minimum(subtract(direct.batch, self.first_image), direct.images)
        self.tiles = minimum(
            floordiv(add(subtract(direct.positions, self.first_position), tile.rows - 1), tile.rows), direct.tiles
        )
        self.memory = build.alloc(direct.dtype, prod(direct.shape), MemorySpace.SHARED)

    def multiply(self, part: Dim, x: Read, weight: Operand) -> Op:
        """Adds up a part of K, block by block, and returns the memory of the sums."""
        build, direct = self.build, self.direct
        zero = const(0, direct.dtype)
        along(build, 0, prod(direct.shape), direct.lanes, lambda i: build.store(self.memory, i, zero))
        each = -(-direct.num_k_blocks // direct.splits)
        start = mul(part, each)
        steps = minimum(subtract(direct.num_k_blocks, start), each)
        with (
            build.loop(steps, AxisKind.LOOP) as step,
            build.loop(self.panels, AxisKind.LOOP) as panel,
            build.loop(self.images, AxisKind.LOOP) as image,
            build.loop(self.tiles, AxisKind.LOOP) as tile,
        ):
            channel, row = mul(add(start, step), direct.channels), mul(tile, direct.tile.rows)
            self._multiply_tile(channel, panel, image, row, x, weight)
        return self.memory

    def _multiply_tile(self, channel: Dim, panel: Dim, image: Dim, row: Dim, x: Read, weight: Operand) -> None:
        """Adds a block of K, from an input channel on, to the sums of a tile."""
        build, direct = self.build, self.direct
        windows, tile = direct.windows, direct.tile
        arg, group = windows.arg, self.group

        def place(i: Dim, c: Dim) -> Dim:
            return flatten((image, panel, add(row, i), c), direct.shape)

        def window(i: Dim) -> Sequence[Dim]:
            position = minimum(add(self.first_position, add(row, i)), direct.positions - 1)
            return [mul(p, stride) for p, stride in zip(unflatten(position, windows.spatial), arg.stride)]

        acc = tile.new(build, lambda i, c: build.load(self.memory, place(i, c)))
        count = minimum(subtract(windows.channels, channel), direct.channels)
        *outer, last = windows.taps

        def taps(at: list[Dim]) -> None:
            kind = AxisKind.UNROLL if last <= UNROLLED else AxisKind.LOOP
            with build.loop(last, kind) as tap:
                own, *tap_at = [*at, tap]
                k = flatten((add(channel, own), *tap_at), (windows.channels, *windows.taps))
                c = add(mul(group, windows.channels), add(channel, own))

                def element(i: Dim) -> Op:
                    moved = [mul(t, step) for t, step in zip(tap_at, arg.dilation)]
                    return x(add(self.first_image, image), c, [add(p, t) for p, t in zip(window(i), moved)])

                tile.step(build, acc, element, lambda o: weight((group,), add(self.first_panel, panel), o, k))

        nested(build, [count, *outer], [], taps)
        tile.each(build, lambda i, c, at: build.store(self.memory, place(i, c), build.load(acc, at)))


# ---- results ----
def _store(
    nest: Nest, params: Sequence[Op], direct: Direct, at: Sequence[Dim], value: Value, build: Builder
) -> None:  # fmt: skip
    """The epilogue: outputs of each channel along its positions."""
    assert nest.anchor is not None
    windows, dtype = direct.windows, nest.anchor.dtype
    group, piece, block, chunk = at
    first_channel, first_image, first = mul(piece, direct.width), mul(block, direct.images), mul(chunk, direct.length)
    with (
        build.loop(minimum(subtract(direct.batch, first_image), direct.images), AxisKind.LOOP) as image,
        build.loop(minimum(subtract(windows.m, first_channel), direct.width), AxisKind.LOOP) as channel,
    ):
        o = add(mul(group, windows.m), add(first_channel, channel))

        def put(position: Dim) -> None:
            coords = (add(first_image, image), o, *unflatten(add(first, position), windows.spatial))
            store_outputs(nest, params, coords, cast(value(image, channel, position), dtype), build)

        along(build, 0, minimum(subtract(direct.positions, first), direct.length), direct.lanes, put)
