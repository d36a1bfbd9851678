"""How a GPU cuts a product: tiles of a block of threads, by multiply-adds or by matrix instructions, and parts of K.

In:    shape and dtype of a product, Target
Out:   the tile that a rule of thumb takes, and others; how many blocks share K
Called by: codegen/opts.py, codegen/gpu/grid_product.py, codegen/gpu/convolution.py.
Next: picograd/codegen/gpu/warpgroup_tiles.py
"""

from __future__ import annotations

import math

from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.op import Dim
from picograd.ir.opts import K_STEP, MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, BlockTile, WarpTile
from picograd.ir.statements import WARP_THREADS
from picograd.record import replace

MOST_OWN = 8  # rows and columns of a thread's tile, 64 accumulators; of 8-byte elements half as many
ENOUGH_BLOCKS = 128  # as many as large GPUs have multiprocessors (A100 108, H100 132), so that few are idle; not measured
LEAST_OWN = 4  # elements of a thread's tile: below that shared memory is all it waits for
MOST_HIGH, MOST_WIDE = 4, 4  # matrix instructions of a warp for each 16 of K: 64 x 32 of the result
WARP_DEPTH = 64  # bytes of K in shared memory for matrix instructions
MOST_PARTS = 16  # of K, that blocks share
LEAST_PART = 512  # of K: what storing and adding sums costs is then less than what it saves
DEPTH = 16  # of K in shared memory; half of it for the largest tiles, whose elements wait in registers


def block_tile(m: Dim, n: Dim, batch: Dim, dtype: DType, target: Target, wanted: int = ENOUGH_BLOCKS) -> BlockTile:
    """Returns how a GPU cuts `batch` products of m x n: into as large blocks as leave as many as wanted.

    A thread's tile of r x c reads r + c elements of shared memory for r * c multiply-adds.
    """
    high = 1
    while high * high * 4 <= target.block_threads:
        high *= 2
    wide = target.block_threads // high
    most = MOST_OWN * 4 // max(4, dtype.itemsize)
    tile = BlockTile(high, wide, _own(m, high, most), _own(n, wide, most), DEPTH)
    while _blocks(m, n, batch, tile) < wanted and tile.own_rows * tile.own_columns > LEAST_OWN:
        if tile.own_rows > tile.own_columns:
            tile = replace(tile, own_rows=tile.own_rows // 2)
        else:
            tile = replace(tile, own_columns=tile.own_columns // 2)
    return tile if tile.own_rows * tile.own_columns < MOST_OWN**2 else replace(tile, depth=DEPTH // 2)


def warp_tile(m: Dim, n: Dim, batch: Dim, dtype: DType, target: Target, wanted: int = ENOUGH_BLOCKS) -> WarpTile:
    """Returns how a GPU cuts `batch` products of m x n for matrix instructions: as large as leaves as many as wanted."""
    warps = target.block_threads // WARP_THREADS
    high = 1
    while high * high * 4 <= warps:
        high *= 2
    wide = warps // high
    own_columns = 2 * _own(n, wide * 2 * MMA_COLUMNS, MOST_WIDE // 2)  # fragments come in pairs
    tile = WarpTile(high, wide, _own(m, high * MMA_ROWS, MOST_HIGH), own_columns, WARP_DEPTH // dtype.itemsize)
    while _blocks(m, n, batch, tile) < wanted and tile.high_tiles * tile.wide_tiles > LEAST_OWN:
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
    wanted = -(-ENOUGH_BLOCKS // most_parts(k))
    if target.multiplies(dtype, tf32) and large:
        return warp_tile(m, n, batch, dtype, target, wanted)
    return block_tile(m, n, batch, dtype.compute_dtype, target, wanted)


def num_parts(m: Dim, n: Dim, k: Dim, batch: Dim, dtype: DType, target: Target, tf32: bool = False) -> int:
    """Returns how many blocks share K: those of the first guess, whatever tile is tried, so that bits are the same."""
    blocks = _blocks(m, n, batch, gpu_tile(m, n, k, batch, dtype, target, tf32))
    if not isinstance(k, int) or not isinstance(blocks, int) or not blocks:
        return 1
    return max(1, -(-k // part_length(k, max(1, min(most_parts(k), ENOUGH_BLOCKS // blocks)))))


def part_length(k: int, parts: int) -> int:
    """Returns the length of the parts of K, whole steps of any tile; the last one may have less."""
    return max(1, -(-k // (parts * K_STEP))) * K_STEP


def most_parts(k: Dim) -> int:
    """Returns in how many parts K can be taken, each long enough to be worth storing its sums."""
    return max(1, min(MOST_PARTS, k // LEAST_PART)) if isinstance(k, int) else 1


def _blocks(m: Dim, n: Dim, batch: Dim, tile: BlockTile | WarpTile) -> float:
    """Returns how many tiles there are; many, where that is not known here."""
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(batch, int)):
        return math.inf
    return batch * -(-m // tile.rows) * -(-n // tile.columns)


def _own(extent: Dim, threads: int, most: int) -> int:
    """Returns how many rows or columns a thread has: a power of two, no more than there are."""
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
