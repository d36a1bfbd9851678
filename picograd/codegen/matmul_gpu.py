"""Matrix products and convolutions over the grid of a GPU: a block of threads per tile of the result.

Tiles are chosen by shape, dtype and target; codegen/block_product.py multiplies one of them. If tiles are too few to fill a
GPU and K is long, blocks share it: each stores the sums of its part in scratch memory, and a second phase adds the parts of
an element in order. The number of parts depends only on the shape, so results are reproducible bit for bit.

A convolution is a product whose right operand is read through windows: rows are the output channels of a group, columns its
positions in all images, k = (channel, tap); windows are not stored. By multiply-adds a block loads a box of the images to
shared memory, where each element serves all windows and taps that read it, if a model of clocks finds that faster. If a
group has few output channels (depthwise convolutions, pools), no other thread needs the same elements: then each element
of the result is a sum by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial, reduce
from itertools import product
from math import gcd

from picograd.codegen.block_product import PADDING_ELEMENTS, WARP_WIDE, BlockProduct, Box, Images, Operand, TensorProduct
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.convolution import Windows, guarded
from picograd.codegen.index import element_or_zero
from picograd.codegen.loops import BLOCKS_WANTED, grid_of_threads, vector_lanes
from picograd.codegen.matmul import contiguous_axis, is_plain, store_outputs
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, multiply_add, static_shape, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import GROUP, K_STEP, MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, BlockTile, RegisterTile, WarpTile
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Nest
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import Coords, add, both, ceildiv, flatten, floordiv, less, mod, mul, subtract, unflatten
from picograd.record import Record, replace

# ---- choosing a tile ----
THREAD_TILE_MAX = 8  # rows and columns of a thread's tile: 64 accumulators; for 8-byte elements half as many
THREAD_ELEMENTS_MIN = 4  # of a thread's tile; a smaller one only waits for shared memory
TILES_HIGH_MAX, TILES_WIDE_MAX = 4, 4  # matrix instructions of a warp per 16 of K: 64 x 32 of the result
WARP_DEPTH_BYTES = 64  # of K in shared memory, for matrix instructions
PARTS_MAX = 16  # of K, shared among blocks
PART_K_MIN = 512  # of K: then storing and adding sums costs less than it saves
DEPTH_K = 16  # of K in shared memory; half of it for the largest tiles, whose elements pass through registers


def block_tile(m: Dim, n: Dim, batch: Dim, dtype: DType, target: Target, wanted: int = BLOCKS_WANTED) -> BlockTile:
    """Returns the tile for `batch` products of m x n: the largest that leaves enough blocks.

    A thread's tile of r x c reads r + c elements of shared memory for r * c multiply-adds.
    """
    high = 1
    while high * high * 4 <= target.block_threads:
        high *= 2
    wide = target.block_threads // high
    most = THREAD_TILE_MAX * 4 // max(4, dtype.itemsize)
    tile = BlockTile(high, wide, _own(m, high, most), _own(n, wide, most), DEPTH_K)
    while _blocks(m, n, batch, tile) < wanted and tile.own_rows * tile.own_columns > THREAD_ELEMENTS_MIN:
        if tile.own_rows > tile.own_columns:
            tile = replace(tile, own_rows=tile.own_rows // 2)
        else:
            tile = replace(tile, own_columns=tile.own_columns // 2)
    return tile if tile.own_rows * tile.own_columns < THREAD_TILE_MAX**2 else replace(tile, depth=DEPTH_K // 2)


def warp_tile(m: Dim, n: Dim, batch: Dim, dtype: DType, target: Target, wanted: int = BLOCKS_WANTED) -> WarpTile:
    """Returns the tile for `batch` products of m x n by matrix instructions: the largest that leaves enough blocks."""
    warps = target.block_threads // WARP_THREADS
    high = 1
    while high * high * 4 <= warps:
        high *= 2
    wide = warps // high
    own_columns = 2 * _own(n, wide * 2 * MMA_COLUMNS, TILES_WIDE_MAX // 2)  # fragments come in pairs
    tile = WarpTile(high, wide, _own(m, high * MMA_ROWS, TILES_HIGH_MAX), own_columns, WARP_DEPTH_BYTES // dtype.itemsize)
    while _blocks(m, n, batch, tile) < wanted and tile.high_tiles * tile.wide_tiles > THREAD_ELEMENTS_MIN:
        if tile.high_tiles >= tile.wide_tiles:
            tile = replace(tile, high_tiles=tile.high_tiles // 2)
        else:
            tile = replace(tile, wide_tiles=tile.wide_tiles // 2)
    return tile


def gpu_tile(m: Dim, n: Dim, k: Dim, batch: Dim, dtype: DType, target: Target, tf32: bool = False) -> BlockTile | WarpTile:
    """Returns the tile for `batch` products of m x k and k x n: by matrix instructions unless they are smaller than it.

    Tiles are the largest that leave enough blocks, if several may share a tile's K.

    Args:
      tf32:  the product may use TF32
    """
    large = all(
        not isinstance(extent, int) or 2 * extent >= least
        for extent, least in ((m, MMA_ROWS), (n, MMA_COLUMNS), (k, MMA_DEPTH))
    )
    wanted = ceildiv(BLOCKS_WANTED, most_parts(k))
    if target.multiplies(dtype, tf32) and large:
        return warp_tile(m, n, batch, dtype, target, wanted)
    return block_tile(m, n, batch, dtype.compute_dtype, target, wanted)


def num_parts(m: Dim, n: Dim, k: Dim, batch: Dim, dtype: DType, target: Target, tf32: bool = False) -> int:
    """Returns the number of blocks that share K: that of the default tile, for every tile, so that bits are the same."""
    blocks = _blocks(m, n, batch, gpu_tile(m, n, k, batch, dtype, target, tf32))
    if not isinstance(k, int) or not isinstance(blocks, int) or not blocks:
        return 1
    return max(1, ceildiv(k, part_length(k, max(1, min(most_parts(k), BLOCKS_WANTED // blocks)))))


def part_length(k: int, parts: int, step: int = K_STEP) -> int:
    """Returns the length of the parts of K, whole steps of any tile; the last part may be shorter."""
    return max(1, ceildiv(k, parts * step)) * step


def most_parts(k: Dim) -> int:
    """Returns the maximum number of parts of K that are worth storing their sums."""
    return max(1, min(PARTS_MAX, k // PART_K_MIN)) if isinstance(k, int) else 1


def _blocks(m: Dim, n: Dim, batch: Dim, tile: BlockTile | WarpTile) -> float:
    """Returns the number of tiles; a large number if it is unknown."""
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(batch, int)):
        return math.inf
    return batch * ceildiv(m, tile.rows) * ceildiv(n, tile.columns)


def _own(extent: Dim, threads: int, most: int) -> int:
    """Returns the number of a thread's rows or columns: a power of two, at most all."""
    own = 1
    while own < most and (not isinstance(extent, int) or threads * own < extent):
        own *= 2
    return own


def other_warp_tiles(tile: WarpTile) -> list[WarpTile]:
    """Returns other tiles worth timing: smaller ones per warp, thus more blocks; less or more of K at a time."""
    smaller = [replace(tile, high_tiles=tile.high_tiles // 2)] if tile.high_tiles > 1 else []
    return [*smaller, replace(tile, depth=MMA_DEPTH if tile.depth > MMA_DEPTH else 2 * MMA_DEPTH)]


def other_block_tiles(tile: BlockTile) -> list[BlockTile]:
    """Returns other tiles worth timing: smaller ones per thread, thus more blocks; more or less of K at a time."""
    smaller = [replace(tile, own_rows=tile.own_rows // 2)] if tile.own_rows > 1 else []
    return [*smaller, replace(tile, depth=tile.depth // 2), replace(tile, depth=tile.depth * 2)]


# ---- a matrix product ----
def emit_matmul_gpu(nest: Nest, context: Context) -> None:
    """Writes a product: a block of 256 threads computes up to 128 x 128 of the result."""
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    tile, anchor = context.next_tile(), nest.anchor
    assert not isinstance(tile, RegisterTile)
    *batch, m, n = anchor.shape
    a, b = anchor.src

    def sides(at: Sequence[Dim]) -> tuple[Operand, Operand]:
        return operand_of(a, at, target), operand_of(swap_last(b), at, target)

    lanes = lanes_along([value for _, value in nest.outputs], n, target)
    k = a.shape[-1]
    parts = num_parts(m, n, k, numel(batch), anchor.dtype, target, takes_tf32(anchor))
    grid = GridProduct(
        nest, params, target, batch, m, n, k, parts, sides, lambda at, row, column: (*at, row, column), lanes
    )
    grid.emit(build, after, tile, scratch)


def operand_of(operand: Op, batch: Sequence[Dim], target: Target) -> Operand:
    """Returns an operand as (..., positions, K)."""
    along_k = contiguous_axis(operand) == -1

    def at(position: Dim, k: Dim, inside: Op | bool) -> Op:
        return element_or_zero(operand, (*batch, position, k), inside)

    along = operand.shape[-1 if along_k else -2]
    return Operand(operand.shape[-2], at, along_k, operand_lanes(operand, along, target), target.has_async_copies)


def operand_lanes(operand: Op, along: Dim, target: Target) -> int:
    """Returns the number of contiguous elements per read: a whole access for an operand in memory."""
    if not is_plain(operand):
        return lanes_along([operand], along, target)
    return gcd(along, target.lanes(operand.dtype)) if isinstance(along, int) else 1


def lanes_along(values: Sequence[Op], along: Dim, target: Target) -> int:
    """Returns the number of contiguous elements computed and accessed at once."""
    return gcd(along, vector_lanes(values, target)) if isinstance(along, int) else 1


# ---- tiles over the grid ----
class GridProduct(Record):
    """Products of m x k and k x n, in a batch.

    parts:   of K, shared among blocks
    sides:   position in the batch -> the operands
    coords:  (position in the batch, row, column) -> coordinates in the result
    lanes:   columns stored at once
    """

    nest: Nest
    params: Sequence[Op]
    target: Target
    batch: Sequence[Dim]
    m: Dim
    n: Dim
    k: Dim
    parts: int
    sides: Callable[[Sequence[Dim]], tuple[Operand, Operand | Images]]
    coords: Callable[[Sequence[Dim], Dim, Dim], Coords]
    lanes: int

    def emit(self, build: Builder, after: Builder, tile: BlockTile | WarpTile, scratch: Scratch) -> None:
        """Writes the product, and the sum of parts of K, if any."""
        parts = self.parts
        if parts == 1 or not isinstance(self.k, int):
            self._emit_tiles(build, tile, 1, self.k, self._store)
            return
        shape = (parts, *self.batch, self.m, self.n)
        sums = scratch(self.nest.anchor.dtype.compute_dtype, numel(shape))

        def leave(build: Builder, part: Dim, at: Sequence[Dim], row: Dim, column: Dim, value: Op) -> None:
            build.store(sums, flatten((part, *at, row, column), shape), value)

        right = self.sides([0] * len(self.batch))[1]
        step = right.box.depth if isinstance(right, Images) else K_STEP
        self._emit_tiles(build, tile, parts, part_length(self.k, parts, step), leave)
        with grid_of_threads(after, numel(shape[1:]), self.target) as place:
            total = read(sums, place)
            for part in range(1, parts):
                total = total + read(sums, add(place, mul(numel(shape[1:]), part)))
            *at, row, column = unflatten(place, shape[1:])
            with after.when(right.holds(column)):
                self._store(after, 0, at, row, column, total)

    def _emit_tiles(
        self, build: Builder, tile: BlockTile | WarpTile, parts: int, length: Dim,
        store: Callable[[Builder, Dim, Sequence[Dim], Dim, Dim, Op], None],
    ) -> None:  # fmt: skip
        """Writes the tiles of each part of K, of `length`; store(build, part, position in the batch, ...)."""
        tiles = [ceildiv(self.m, tile.rows), ceildiv(self.n, tile.columns)]
        with build.loop(numel((parts, *self.batch, *tiles)), AxisKind.GRID) as place:
            part, *at, row_tile, column_tile = unflatten(place, [parts, *self.batch, *tiles])
            sides = self.sides(at)
            if parts > 1:
                left, right = sides
                first = mul(part, length)
                sides = of_part(left, first, self.k), (
                    right.of_part(first) if isinstance(right, Images) else of_part(right, first, self.k)
                )
            self._product(build, tile, length, sides).emit(
                mul(row_tile, tile.rows), mul(column_tile, tile.columns),
                lambda row, column, value: store(build, part, at, row, column, value),
            )  # fmt: skip

    def _product(
        self, build: Builder, tile: BlockTile | WarpTile, length: Dim, sides: tuple[Operand, Operand | Images]
    ) -> BlockProduct | TensorProduct:
        """Returns the emitter of one block's product."""
        dtype, wide = self.nest.anchor.dtype, self.nest.anchor.dtype.compute_dtype
        if isinstance(tile, WarpTile):
            return TensorProduct(build, self.target, dtype, wide, length, *sides, self.lanes, tile)
        return BlockProduct(build, self.target, wide, wide, length, *sides, self.lanes, tile)

    def _store(self, build: Builder, part: Dim, at: Sequence[Dim], row: Dim, column: Dim, value: Op) -> None:
        store_outputs(self.nest, self.params, self.coords(at, row, column), cast(value, self.nest.anchor.dtype), build)


def of_part(operand: Operand, first: Dim, k: Dim) -> Operand:
    """Returns the part of an operand from index `first` of K on."""

    def at(position: Dim, own: Dim, inside: Op | bool) -> Op:
        where = add(first, own)
        return operand.at(position, where, both(inside, less(where, k)))

    return Operand(operand.extent, at, operand.along_k, operand.lanes, operand.copied)


# ---- a convolution: windows for columns ----
FEW_CHANNELS_MAX = 4  # output channels of a group


def emit_convolution_gpu(nest: Nest, context: Context) -> None:
    """Writes a convolution: a block per tile of channels and positions, or a thread per element."""
    params, target, scratch = context.params, context.target, context.scratch
    windows = Windows(nest.anchor)
    if windows.m < FEW_CHANNELS_MAX:
        _emit_elements(nest, windows, params, context.phase(0), target)
        return
    cut = box_of(windows, target)
    if cut is None:
        grid, tile = _by_columns(nest, windows, params, target)
    else:
        tile, box, parts = cut
        grid = _by_boxes(nest, windows, params, target, box, parts)
    grid.emit(context.phase(0), context.phase(1), tile, scratch)


def _emit_elements(nest: Nest, windows: Windows, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes a thread per element of the result, if a group has too few channels to fill a tile."""
    anchor, dtype = windows.anchor, windows.anchor.dtype.compute_dtype
    with grid_of_threads(build, numel(nest.domain), target) as number:
        b, o, *at = unflatten(number, list(nest.domain))
        group = floordiv(o, max(1, windows.m))
        acc = build.alloc(dtype, 1, MemorySpace.REGISTER)
        build.store(acc, 0, const(0, dtype))
        with build.loop(windows.channels, AxisKind.LOOP) as c, build.loop(windows.num_taps, AxisKind.LOOP) as tap:
            lhs = cast(windows.weight(o, c, tap), dtype)
            rhs = cast(windows.column(b, at, group, c, tap, True), dtype)
            build.store(acc, 0, multiply_add(lhs, rhs, build.load(acc, 0)))
        store_outputs(nest, params, (b, o, *at), cast(build.load(acc, 0), anchor.dtype), build)


def _by_columns(
    nest: Nest, windows: Windows, params: Sequence[Op], target: Target
) -> tuple[GridProduct, BlockTile | WarpTile]:
    """Returns the weight, (output channels, K), times windows, (K, positions), whose elements are read separately."""
    anchor = windows.anchor
    images, positions = anchor.shape[0], mul(anchor.shape[0], numel(windows.spatial))

    def sides(at: Sequence[Dim]) -> tuple[Operand, Operand]:
        def column(position: Dim, k: Dim, inside: Op | bool) -> Op:
            b, *place = unflatten(position, (images, *windows.spatial))
            return windows.column(b, place, at[0], floordiv(k, windows.num_taps), mod(k, windows.num_taps), inside)

        return _weights(windows, at[0], target), Operand(positions, column, False, 1, target.has_async_copies)

    def coords(at: Sequence[Dim], row: Dim, position: Dim) -> Coords:
        b, *place = unflatten(position, (images, *windows.spatial))
        return (b, add(mul(at[0], windows.m), row), *place)

    shape = (windows.m, positions, windows.k, windows.groups, anchor.dtype, target, takes_tf32(anchor))
    lanes = lanes_along([value for _, value in nest.outputs], (windows.spatial or (1,))[-1], target)
    grid = GridProduct(
        nest, params, target, [windows.groups], windows.m, positions, windows.k, num_parts(*shape), sides, coords, lanes
    )
    return grid, gpu_tile(*shape)


def _weights(windows: Windows, group: Dim, target: Target) -> Operand:
    """Returns the weight of a group, (output channels, K)."""
    matrix = swap_last(windows.matrix)  # (groups, output channels, K)

    def weight(row: Dim, k: Dim, inside: Op | bool) -> Op:
        return element_or_zero(matrix, (group, row, k), inside)

    return Operand(windows.m, weight, True, operand_lanes(matrix, windows.k, target), target.has_async_copies)


# ---- a convolution: boxes of images ----
def _by_boxes(nest: Nest, windows: Windows, params: Sequence[Op], target: Target, box: Box, parts: int) -> GridProduct:
    """Returns the weight times windows; a block loads the images under its windows once for all taps."""
    boxed = _BoxedWindows(windows, box, target)
    lanes = 1 if box.along_images else lanes_along([value for _, value in nest.outputs], boxed.places[-1], target)
    columns, k = math.prod(boxed.tiles) * box.columns, math.prod(boxed.steps) * box.depth
    return GridProduct(
        nest, params, target, [windows.groups], windows.m, columns, k, parts, boxed.sides, boxed.coords, lanes
    )


class _BoxedWindows:
    """Windows of a convolution, box by box: the result's coordinates of a column, and the images' of an index into K.

    K is walked in steps of a box: blocks of channels and taps in the order of k, so the order of a sum stays the same.

    places:  images, and positions of windows along each axis;  at_once: per box;  tiles: number of boxes
    depths:  channels, and taps along each axis;                of_k: per box;     steps: number of boxes
    """

    def __init__(self, windows: Windows, box: Box, target: Target):
        self.windows, self.box, self.target = windows, box, target
        images, _, *spatial = static_shape(windows.anchor.shape)
        self.places, self.depths = [images, *spatial], static_shape(windows.anchor.src[1].shape)[1:]
        self.at_once, self.of_k = (box.images, *box.places), (box.channels, *box.taps)
        self.tiles, self.steps = (*map(ceildiv, self.places, self.at_once),), (*map(ceildiv, self.depths, self.of_k),)
        *before, last = [first for first, _ in windows.arg.padding]
        self.leads = [*before, last + box.lead]

    def place(self, column: Dim) -> Coords:
        """Returns the image and the position of a column."""
        box = self.box
        first, own = unflatten(floordiv(column, box.columns), self.tiles), box.column(mod(column, box.columns))
        return tuple(add(mul(at, apart), i) for at, apart, i in zip(first, self.at_once, own))

    def holds(self, column: Dim) -> Op | bool:
        return reduce(both, map(less, self.place(column), self.places))

    def coords(self, at: Sequence[Dim], row: Dim, column: Dim) -> Coords:
        image, *position = self.place(column)
        return (image, add(mul(at[0], self.windows.m), row), *position)

    def sides(self, at: Sequence[Dim]) -> tuple[Operand, Images]:
        """Returns the weight and the images of a group."""
        windows, box, has_async = self.windows, self.box, self.target.has_async_copies
        weights = _weights(windows, at[0], self.target)
        lanes = gcd(weights.lanes, box.taps[-1]) if box.taps != windows.taps else weights.lanes
        left = Operand(windows.m, partial(self.weight, weights), True, lanes, has_async)
        return left, Images(box, partial(self.element, at[0]), self.holds, has_async)

    def weight(self, weights: Operand, row: Dim, k: Dim, inside: Op | bool) -> Op:
        """Returns an element of the weight at an index into K that is counted box by box."""
        if self.box.taps != self.windows.taps:
            first, own = unflatten(floordiv(k, self.box.depth), self.steps), unflatten(mod(k, self.box.depth), self.of_k)
            k = flatten([add(mul(i, apart), j) for i, apart, j in zip(first, self.of_k, own)], self.depths)
        return weights.at(row, k, both(inside, less(k, self.windows.k)))

    def element(self, group: Dim, first_column: Dim, first_k: Dim, inner: Coords, lane: Dim) -> Op:
        """Returns an element of the images at `inner` coordinates of the box at a column and a k."""
        box, x, channels = self.box, self.windows.anchor.src[0], self.depths[0]
        image, *places = unflatten(floordiv(first_column, box.columns), self.tiles)
        channel, *taps = unflatten(floordiv(first_k, box.depth), self.steps)
        image, channel = add(mul(image, box.images), inner[0]), add(mul(channel, box.channels), inner[1])
        valid, found = both(less(image, self.places[0]), less(channel, channels)), list[Dim]()
        for axis, length in enumerate(x.shape[2:]):
            of_place, of_tap = box.places[axis] * box.stride[axis], box.taps[axis] * box.dilation[axis]
            first = add(mul(places[axis], of_place), mul(taps[axis], of_tap))
            where = add(first, subtract(inner[2 + axis], self.leads[axis]))
            valid = both(valid, both(less(-1, where), less(where, length)))
            found.append(where)
        found[-1] = add(found[-1], lane)
        return guarded(x, (image, add(mul(group, channels), channel), *found), valid)


# ---- which box: a model of clocks ----
SUMS_MAX = 64  # per thread
# Registers of a multiprocessor, which has at least two blocks; of a thread; those that NVRTC uses for each copy of a stage,
# whose address it keeps, and for the rest.
REGISTERS, REGISTERS_MAX, COPY_REGISTERS, OTHER_REGISTERS = 1 << 16, 168, 4, 28
COLUMNS_MIN, COLUMNS_TILE_MAX = 32, 256  # of a box
WINDOWS_MAX = 32  # of an image, if a box has all of them
MORE_PRODUCTS_MAX = 1.1  # factor of the products by columns: threads without a result multiply, too
WARPS_FILLED_MIN = 0.85  # part of a warp's threads
DEPTHS = 16, 40, 72  # approximate maxima of K per stage
SECTOR_BYTES = 32
# Per clock a multiprocessor does: multiply-adds; bytes of memory. A warp takes clocks to start a copy, which computes
# indices and bounds. A warp's access of shared memory takes one clock. Not measured with these kernels.
ADDS_CLOCK, BYTES_CLOCK, COPY_CLOCKS = 128, 64, 4


class Sizes(Record):
    """The lengths of a convolution.

    m, channels:      output and input channels of a group
    places, lengths:  of the result, and of the input, along each axis
    lanes:            maximum elements of the input per access
    """

    m: int
    images: int
    channels: int
    groups: int
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    lanes: int

    @property
    def k(self) -> int:
        """The length of the product."""
        return self.channels * math.prod(self.taps)

    @property
    def positions(self) -> int:
        """Number of windows of all images."""
        return self.images * math.prod(self.places)

    def columns(self, box: Box) -> int:
        """Returns the number of boxes that cover the result."""
        return ceildiv(self.images, box.images) * math.prod(map(ceildiv, self.places, box.places))

    def parts(self, tile: BlockTile, columns: int) -> int:
        """Returns the number of blocks that share K, if this many columns of tiles cover the result."""
        return max(1, min(most_parts(self.k), BLOCKS_WANTED // (self.groups * ceildiv(self.m, tile.rows) * columns)))


def box_of(windows: Windows, target: Target) -> tuple[BlockTile, Box, int] | None:
    """Returns the division of a convolution into boxes, and of K into parts; None if reading by columns is better.

    A block reads the elements of an image once for all taps. But boxes have whole rows and images, so some threads may have
    no result; and the smaller the box, the more the margin around its windows counts.
    """
    anchor, arg = windows.anchor, windows.arg
    x, w = anchor.src
    shapes = [tuple(dim for dim in value.shape if isinstance(dim, int)) for value in (anchor, x, w)]
    is_known = all(len(shape) == len(value.shape) for shape, value in zip(shapes, (anchor, x, w)))
    if not windows.spatial or not is_known or 0 in shapes[0] + shapes[1] + shapes[2] or {*arg.input_dilation} != {1}:
        return None
    (images, _, *places), (_, _, *lengths), (_, channels, *taps) = shapes
    dtype = anchor.dtype.compute_dtype
    lanes = target.lanes(x.dtype) if x.dtype is dtype and is_plain(x) else 1
    sizes = Sizes(
        windows.m, images, channels, arg.groups, tuple(places), tuple(lengths), tuple(taps), arg.stride, arg.dilation,
        tuple(before for before, _ in arg.padding), lanes,
    )  # fmt: skip
    tile = gpu_tile(sizes.m, sizes.positions, sizes.k, sizes.groups, anchor.dtype, target, takes_tf32(anchor))
    return _best_box(sizes, tile, dtype.itemsize, target) if isinstance(tile, BlockTile) else None


@lru_cache(maxsize=256)
def _best_box(sizes: Sizes, tile: BlockTile, itemsize: int, target: Target) -> tuple[BlockTile, Box, int] | None:
    """Returns the tile with the fewest clocks; None if a product by columns with `tile` takes no more."""
    sector = SECTOR_BYTES // itemsize

    def clocks(tile: BlockTile, columns: int, loads: float, copies: float, elements: float, k: int) -> float:
        """Returns a multiprocessor's clocks, from a thread's `loads` and a block's `copies` and `elements` per k."""
        parts = sizes.parts(tile, columns)
        blocks = sizes.groups * ceildiv(sizes.m, tile.rows) * columns * parts
        warps = ceildiv(tile.threads, WARP_THREADS)
        adds = warps * WARP_THREADS * tile.own_rows * tile.own_columns / ADDS_CLOCK
        brought = copies / WARP_THREADS * COPY_CLOCKS + elements * itemsize / BYTES_CLOCK
        of_k = adds + loads * warps + brought
        return ceildiv(blocks, BLOCKS_WANTED) * of_k * ceildiv(k, parts)

    def whole(elements: int) -> int:
        return ceildiv(elements, sector) * sector

    loads = tile.own_rows / tile.row_group + tile.own_columns / tile.column_group
    brought = min(sizes.m, tile.rows) + min(sizes.positions, tile.columns)
    columns = ceildiv(sizes.positions, tile.columns)
    fewest = clocks(tile, columns, loads, brought, brought, sizes.k)
    most = MORE_PRODUCTS_MAX * ceildiv(sizes.m, tile.rows) * tile.rows * columns * tile.columns * sizes.k
    best = None
    for box in _boxes(sizes):
        *inner, row = (min(each, length) for each, length in zip(box.shape[2:], sizes.lengths))
        elements = box.images * box.channels * math.prod(inner) * whole(row) / box.depth
        copies = math.prod(box.shape) / box.lanes / box.depth
        columns, k = sizes.columns(box), ceildiv(sizes.channels, box.channels) * box.channels * math.prod(sizes.taps)
        reads = box.turns * (1 if box.along_images else box.span / GROUP / box.taps[-1])
        for cut in _block_tiles(sizes.m, box, itemsize, target):
            rows = min(sizes.m, cut.rows)
            if ceildiv(sizes.m, cut.rows) * cut.rows * columns * cut.columns * k > most:
                continue
            loads = cut.own_rows / cut.row_group + cut.own_columns / GROUP * reads * turns_of_columns(cut)
            taken = clocks(cut, columns, loads, copies + rows, elements + rows * whole(box.depth) / box.depth, k)
            if taken < fewest:
                fewest, best = taken, (cut, box, sizes.parts(cut, columns))
    return best


def _boxes(sizes: Sizes) -> Iterator[Box]:
    """Yields candidate boxes: positions in powers of two and parts of an image, or all windows of several images."""

    def fitting(most: int, extent: int, step: int = 1) -> list[int]:
        parts = [ceildiv(ceildiv(extent, number), step) * step for number in (1, 2, 3, 4)]
        powers = [step << bit for bit in range((most // step).bit_length()) if step << bit < 2 * extent]
        return sorted({*powers, *(part for part in parts if part <= 2 * most)})

    *outer, last = sizes.places
    highs = [(*[1] * (len(outer) - 1), high) for high in fitting(16, outer[-1])] if outer else [()]
    of_images = [1 << bit for bit in range(4) if 1 << bit < 2 * sizes.images]
    for channels, taps in sorted({_depth(sizes.channels, sizes.taps, most) for most in DEPTHS}):
        cut = sizes.stride, sizes.dilation
        for wide, high, images in product(fitting(32, last, GROUP), highs, of_images):
            steps = wide * sizes.stride[-1], taps[-1] * sizes.dilation[-1] if taps[-1] < sizes.taps[-1] else 0
            lanes = gcd(sizes.lanes, sizes.lengths[-1], *steps)
            box = Box(images, (*high, wide), channels, taps, *cut, False, -sizes.before[-1] % lanes, lanes)
            if COLUMNS_MIN <= box.columns <= COLUMNS_TILE_MAX:
                yield box
        for images in (8, 16, 32) if math.prod(sizes.places) <= WINDOWS_MAX else ():
            if images < 2 * sizes.images:
                yield Box(images, sizes.places, channels, taps, *cut, True, 0, 1)


def _depth(channels: int, taps: tuple[int, ...], most: int) -> tuple[int, tuple[int, ...]]:
    """Returns the channels and taps per stage, about `most`; outer axes are divided only if inner ones are whole.

    Parts of taps divide their axis: beyond its last tap a window would read a number of the image, which may be NaN.
    """
    own: tuple[int, ...] = ()
    for axis in reversed(range(len(taps))):
        room = most // math.prod(own) if own == taps[axis + 1 :] else 1
        own = (max(part for part in range(1, taps[axis] + 1) if taps[axis] % part == 0 and part <= max(1, room)), *own)
    of_channels = 1
    while own == taps and of_channels < channels and 2 * of_channels * math.prod(taps) <= most:
        of_channels *= 2
    return of_channels, own


def turns_of_columns(tile: BlockTile) -> int:
    """Returns the turns of shared memory for a warp's read of a group of columns per thread."""
    is_square = tile.wide % WARP_WIDE == 0 and tile.high % (WARP_THREADS // WARP_WIDE) == 0
    return ceildiv(WARP_WIDE if is_square else min(tile.wide, WARP_THREADS), WARP_WIDE)


def _block_tiles(m: int, box: Box, itemsize: int, target: Target) -> Iterator[BlockTile]:
    """Yields blocks of threads for the columns of a box."""
    groups, reads = box.columns // GROUP, 1 if box.along_images else box.span // GROUP
    for own, threads in product(range(1, SUMS_MAX // GROUP + 1), (target.block_threads, target.block_threads // 2)):
        wide = groups // own
        high = 1 << (threads // wide).bit_length() - 1 if groups % own == 0 and wide <= threads else 0
        if not high or high * wide < WARPS_FILLED_MIN * ceildiv(high * wide, WARP_THREADS) * min(WARP_THREADS, threads):
            continue
        for rows in (1, 2, 4, 8):
            nbytes = (box.depth * (high * rows + PADDING_ELEMENTS) + box.numel) * itemsize
            brought = high * rows * box.depth, math.prod(box.shape) // box.lanes
            copies = sum(ceildiv(each, high * wide) for each in brought)
            held = (rows * own * GROUP + own * reads * GROUP + rows) * itemsize // 4
            registers = held + COPY_REGISTERS * copies + OTHER_REGISTERS
            has_room = registers <= min(REGISTERS_MAX, REGISTERS // (2 * threads)) and 2 * nbytes <= target.shared_bytes
            if has_room and rows * own * GROUP > THREAD_ELEMENTS_MIN and high * rows < 2 * max(m, high):
                yield BlockTile(high, wide, rows, own * GROUP, box.depth)
