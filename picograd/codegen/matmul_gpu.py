"""A matrix product, and a convolution, over the grid of a GPU: a block of threads for each tile of the result.

Tiles are chosen by shape, dtype and target; codegen/block_product.py multiplies one of them. Where tiles are too few to
fill a GPU and K is long, blocks share it: each stores the sums of its part in scratch memory, and a second phase adds the
parts of an element in order. The number of parts depends only on the shape, so results are reproducible bit for bit.

A convolution is a product whose right operand is read through windows: rows are the output channels of a group, columns
its positions in all images, k = (channel, tap); no window is stored. Where a group has few output channels (depthwise
convolutions, pools), no other thread needs the same elements: then each element of the result is a thread's own sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import gcd

from picograd.codegen.block_product import BlockProduct, Operand, TensorProduct
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.convolution import Windows
from picograd.codegen.index import element_or_zero, vector_lanes
from picograd.codegen.loops import BLOCKS_WANTED, grid_of_threads, split
from picograd.codegen.matmul import contiguous_axis, is_plain, store_outputs
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, multiply_add, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import K_STEP, MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, BlockTile, RegisterTile, WarpTile
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Nest
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import Coords, add, both, flatten, floordiv, less, mod, mul, unflatten
from picograd.record import Record, replace

# ---- choosing a tile ----
THREAD_TILE_MAX = 8  # rows and columns of a thread's tile, 64 accumulators; of 8-byte elements half as many
THREAD_ELEMENTS_MIN = 4  # elements of a thread's tile: below that shared memory is all it waits for
TILES_HIGH_MAX, TILES_WIDE_MAX = 4, 4  # matrix instructions of a warp for each 16 of K: 64 x 32 of the result
WARP_DEPTH_BYTES = 64  # bytes of K in shared memory for matrix instructions
PARTS_MAX = 16  # of K, that blocks share
PART_K_MIN = 512  # of K: what storing and adding sums costs is then less than what it saves
DEPTH_K = 16  # of K in shared memory; half of it for the largest tiles, whose elements wait in registers


def block_tile(m: Dim, n: Dim, batch: Dim, dtype: DType, target: Target, wanted: int = BLOCKS_WANTED) -> BlockTile:
    """Returns how a GPU cuts `batch` products of m x n: into as large blocks as leave as many as wanted.

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
    """Returns how a GPU cuts `batch` products of m x n for matrix instructions: as large as leaves as many as wanted."""
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


def gpu_tile(
    m: Dim, n: Dim, k: Dim, batch: Dim, dtype: DType, target: Target, tf32: bool = False
) -> BlockTile | WarpTile:
    """Returns how a GPU cuts `batch` products of m x k and k x n: by matrix instructions where they are no smaller.

    Tiles are as large as leave enough blocks, where several may share a tile's K.

    Args:
      tf32:  the product takes TF32
    """
    large = all(
        not isinstance(extent, int) or 2 * extent >= least
        for extent, least in ((m, MMA_ROWS), (n, MMA_COLUMNS), (k, MMA_DEPTH))
    )
    wanted = -(-BLOCKS_WANTED // most_parts(k))
    if target.multiplies(dtype, tf32) and large:
        return warp_tile(m, n, batch, dtype, target, wanted)
    return block_tile(m, n, batch, dtype.compute_dtype, target, wanted)


def num_parts(m: Dim, n: Dim, k: Dim, batch: Dim, dtype: DType, target: Target, tf32: bool = False) -> int:
    """Returns how many blocks share K: those of the first guess, for every tile, so that bits are the same."""
    blocks = _blocks(m, n, batch, gpu_tile(m, n, k, batch, dtype, target, tf32))
    if not isinstance(k, int) or not isinstance(blocks, int) or not blocks:
        return 1
    return max(1, -(-k // part_length(k, max(1, min(most_parts(k), BLOCKS_WANTED // blocks)))))


def part_length(k: int, parts: int) -> int:
    """Returns the length of the parts of K, whole steps of any tile; the last one may have less."""
    return max(1, -(-k // (parts * K_STEP))) * K_STEP


def most_parts(k: Dim) -> int:
    """Returns in how many parts K can be taken, each long enough to be worth storing its sums."""
    return max(1, min(PARTS_MAX, k // PART_K_MIN)) if isinstance(k, int) else 1


def _blocks(m: Dim, n: Dim, batch: Dim, tile: BlockTile | WarpTile) -> float:
    """Returns how many tiles there are; many, where that is not known here."""
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(batch, int)):
        return math.inf
    return batch * -(-m // tile.rows) * -(-n // tile.columns)


def _own(extent: Dim, threads: int, most: int) -> int:
    """Returns how many rows or columns a thread has: a power of two, at most all."""
    own = 1
    while own < most and (not isinstance(extent, int) or threads * own < extent):
        own *= 2
    return own


def other_warp_tiles(tile: WarpTile) -> list[WarpTile]:
    """Returns other cuts worth timing: a smaller tile a warp, thus more blocks; less of K at a time, or more."""
    smaller = [replace(tile, high_tiles=tile.high_tiles // 2)] if tile.high_tiles > 1 else []
    return [*smaller, replace(tile, depth=MMA_DEPTH if tile.depth > MMA_DEPTH else 2 * MMA_DEPTH)]


def other_block_tiles(tile: BlockTile) -> list[BlockTile]:
    """Returns other cuts worth timing: a smaller tile a thread, thus more blocks; more or less of K at a time."""
    smaller = [replace(tile, own_rows=tile.own_rows // 2)] if tile.own_rows > 1 else []
    return [*smaller, replace(tile, depth=tile.depth // 2), replace(tile, depth=tile.depth * 2)]


# ---- a matrix product ----
def emit_matmul_gpu(nest: Nest, context: Context) -> None:
    """Writes a product: with 256 threads a block computes 128 x 128 of the result, or less where there is less."""
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    tile, anchor = context.next_tile(), nest.anchor
    assert anchor is not None and not isinstance(tile, RegisterTile)
    *batch, m, n = anchor.shape
    a, b = anchor.src

    def sides(at: Sequence[Dim]) -> tuple[Operand, Operand]:
        return operand_of(a, at, target), operand_of(swap_last(b), at, target)

    lanes = lanes_along([value for _, value in nest.outputs], n, target)
    product = GridProduct(
        nest, params, target, batch, m, n, a.shape[-1], sides, lambda at, row, column: (*at, row, column), lanes
    )
    product.emit(build, after, tile, scratch)


def operand_of(operand: Op, batch: Sequence[Dim], target: Target) -> Operand:
    """Returns an operand as (..., positions, K)."""
    along_k = contiguous_axis(operand) == -1

    def at(position: Dim, k: Dim, inside: Op | bool) -> Op:
        return element_or_zero(operand, (*batch, position, k), inside)

    along = operand.shape[-1 if along_k else -2]
    return Operand(operand.shape[-2], at, along_k, operand_lanes(operand, along, target), target.has_async_copies)


def operand_lanes(operand: Op, along: Dim, target: Target) -> int:
    """Returns how many contiguous elements are read at once: a whole access for an operand in memory."""
    if not is_plain(operand):
        return lanes_along([operand], along, target)
    return gcd(along, target.lanes(operand.dtype)) if isinstance(along, int) else 1


def lanes_along(values: Sequence[Op], along: Dim, target: Target) -> int:
    """Returns how many contiguous elements are computed and accessed at once."""
    return gcd(along, vector_lanes(values, target)) if isinstance(along, int) else 1


# ---- tiles over the grid ----
class GridProduct(Record):
    """Products of m x k and k x n, a batch of them.

    sides:   position in the batch -> the operands
    coords:  (position in the batch, row, column) -> where the result has that
    lanes:   columns that are stored at once
    """

    nest: Nest
    params: Sequence[Op]
    target: Target
    batch: Sequence[Dim]
    m: Dim
    n: Dim
    k: Dim
    sides: Callable[[Sequence[Dim]], tuple[Operand, Operand]]
    coords: Callable[[Sequence[Dim], Dim, Dim], Coords]
    lanes: int

    @property
    def anchor(self) -> Op:
        assert self.nest.anchor is not None
        return self.nest.anchor

    def emit(self, build: Builder, after: Builder, tile: BlockTile | WarpTile, scratch: Scratch) -> None:
        """Writes the product, and where K has parts their sum."""
        anchor, batch = self.anchor, numel(self.batch)
        parts = num_parts(self.m, self.n, self.k, batch, anchor.dtype, self.target, takes_tf32(anchor))
        if parts == 1 or not isinstance(self.k, int):
            self._emit_tiles(build, tile, 1, self.k, self._store)
            return
        shape = (parts, *self.batch, self.m, self.n)
        sums = scratch(self.anchor.dtype.compute_dtype, numel(shape))

        def leave(build: Builder, part: Dim, at: Sequence[Dim], row: Dim, column: Dim, value: Op) -> None:
            build.store(sums, flatten((part, *at, row, column), shape), value)

        self._emit_tiles(build, tile, parts, part_length(self.k, parts), leave)
        with grid_of_threads(after, numel(shape[1:]), self.target) as place:
            total = read(sums, place)
            for part in range(1, parts):
                total = total + read(sums, add(place, mul(numel(shape[1:]), part)))
            *at, row, column = split(place, shape[1:])
            self._store(after, 0, at, row, column, total)

    def _emit_tiles(
        self, build: Builder, tile: BlockTile | WarpTile, parts: int, length: Dim,
        store: Callable[[Builder, Dim, Sequence[Dim], Dim, Dim, Op], None],
    ) -> None:  # fmt: skip
        """Writes the tiles of each part of K, which have a `length`; store(build, part, position in the batch, ...)."""
        tiles = [floordiv(add(self.m, tile.rows - 1), tile.rows), floordiv(add(self.n, tile.columns - 1), tile.columns)]
        with build.loop(numel((parts, *self.batch, *tiles)), AxisKind.GRID) as place:
            part, *at, row_tile, column_tile = split(place, [parts, *self.batch, *tiles])
            sides = self.sides(at)
            if parts > 1:
                left, right = (of_part(side, mul(part, length), self.k) for side in sides)
                sides = left, right
            product = self._product(build, tile, length, sides)
            product.emit(
                mul(row_tile, tile.rows), mul(column_tile, tile.columns),
                lambda row, column, value: store(build, part, at, row, column, value),
            )  # fmt: skip

    def _product(
        self, build: Builder, tile: BlockTile | WarpTile, length: Dim, sides: tuple[Operand, Operand]
    ) -> BlockProduct | TensorProduct:
        """Returns the emitter of one block's product."""
        dtype, wide = self.anchor.dtype, self.anchor.dtype.compute_dtype
        if isinstance(tile, WarpTile):
            return TensorProduct(build, self.target, dtype, wide, length, *sides, self.lanes, tile)
        return BlockProduct(build, self.target, wide, wide, length, *sides, self.lanes, tile)

    def _store(self, build: Builder, part: Dim, at: Sequence[Dim], row: Dim, column: Dim, value: Op) -> None:
        store_outputs(self.nest, self.params, self.coords(at, row, column), cast(value, self.anchor.dtype), build)


def of_part(operand: Operand, first: Dim, k: Dim) -> Operand:
    """Returns the part of an operand from index `first` of K on."""

    def at(position: Dim, own: Dim, inside: Op | bool) -> Op:
        where = add(first, own)
        return operand.at(position, where, both(inside, less(where, k)))

    return Operand(operand.extent, at, operand.along_k, operand.lanes, operand.copied)


# ---- a convolution: windows for columns ----
FEW_CHANNELS_MAX = 4  # output channels of a group


def emit_convolution_gpu(nest: Nest, context: Context) -> None:
    """Writes a convolution: a block for each tile of channels and positions, or a thread for each element."""
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    assert nest.anchor is not None
    windows = Windows(nest.anchor)
    if windows.m < FEW_CHANNELS_MAX:
        _emit_elements(nest, windows, params, build, target)
    else:
        _emit_blocks(nest, windows, params, build, after, target, scratch)


def _emit_elements(nest: Nest, windows: Windows, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes a thread for each element of the result: where a group has too few channels to fill a tile."""
    anchor, dtype = windows.anchor, windows.anchor.dtype.compute_dtype
    with grid_of_threads(build, numel(nest.domain), target) as number:
        b, o, *at = split(number, list(nest.domain))
        group = floordiv(o, max(1, windows.m))
        acc = build.alloc(dtype, 1, MemorySpace.REGISTER)
        build.store(acc, 0, const(0, dtype))
        with build.loop(windows.channels, AxisKind.LOOP) as c, build.loop(windows.num_taps, AxisKind.LOOP) as tap:
            lhs = cast(windows.weight(o, c, tap), dtype)
            rhs = cast(windows.column(b, at, group, c, tap, True), dtype)
            build.store(acc, 0, multiply_add(lhs, rhs, build.load(acc, 0)))
        store_outputs(nest, params, (b, o, *at), cast(build.load(acc, 0), anchor.dtype), build)


def _emit_blocks(
    nest: Nest, windows: Windows, params: Sequence[Op], build: Builder, after: Builder, target: Target, scratch: Scratch
) -> None:
    """Writes the weight, (output channels, K), times windows, (K, positions): a block of threads a tile of that product."""
    anchor = windows.anchor
    images, positions = anchor.shape[0], mul(anchor.shape[0], numel(windows.spatial))
    matrix = swap_last(windows.matrix)  # (groups, output channels, K)

    def sides(at: Sequence[Dim]) -> tuple[Operand, Operand]:
        (group,) = at

        def weight(row: Dim, k: Dim, inside: Op | bool) -> Op:
            return element_or_zero(matrix, (group, row, k), inside)

        def column(position: Dim, k: Dim, inside: Op | bool) -> Op:
            b, *place = unflatten(position, (images, *windows.spatial))
            return windows.column(b, place, group, floordiv(k, windows.num_taps), mod(k, windows.num_taps), inside)

        left = Operand(windows.m, weight, True, operand_lanes(matrix, windows.k, target), target.has_async_copies)
        return left, Operand(positions, column, False, 1, target.has_async_copies)

    def coords(at: Sequence[Dim], row: Dim, position: Dim) -> Coords:
        b, *place = unflatten(position, (images, *windows.spatial))
        return (b, add(mul(at[0], windows.m), row), *place)

    lanes = lanes_along([value for _, value in nest.outputs], (windows.spatial or (1,))[-1], target)
    product = GridProduct(
        nest, params, target, [windows.groups], windows.m, positions, windows.k, sides, coords, lanes
    )
    tile = gpu_tile(windows.m, positions, windows.k, windows.groups, anchor.dtype, target, takes_tf32(anchor))
    product.emit(build, after, tile, scratch)
