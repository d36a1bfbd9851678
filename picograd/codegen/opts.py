"""Proposes the choices of a kernel: the one a rule of thumb takes, then the few that are worth timing.

In:    Kernel, Target
Out:   Opts, the best guess first
Called by: engine/choose.py, engine/compiler.py, codegen/lower.py.    Next: picograd/codegen/plain_product.py

The guess looks at shapes and the target alone. No proposal changes a bit of the result: the order of the sum over K
is the same in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from picograd.codegen.cpu.few_rows import has_few_rows
from picograd.codegen.cpu.matmul import MOST_REPEATS, is_alone, lanes_of
from picograd.codegen.cpu.panels import contiguous_axis, packs_slowly
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import most_rows
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import swap_last
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import K_STEP, MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, BlockTile, Opts, RegisterTile, Tile, WarpTile
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Kernel, Nest, NestKind
from picograd.ir.statements import WARP_THREADS

ROW_PANELS = 8  # of a piece, at least: their rows stay in the second-level cache while the columns pass
LEAST_PIECES = 8  # of a product whose columns are packed element by element: panels may then be packed by who reads them
MANY_PIECES = 16  # the same where packing copies vectors, and up to MOST_REPEATS may pack the same panel
MOST_OWN = 8  # rows and columns of a thread's tile on a GPU; of 8-byte elements half as many
ENOUGH_BLOCKS = 128  # that leave no part of a GPU idle
LEAST_OWN = 4  # elements of a thread's tile: below that shared memory is all it waits for
MOST_HIGH, MOST_WIDE = 4, 4  # matrix instructions of a warp for each 16 of K: 64 x 32 of the result
WARP_DEPTH = 64  # bytes of K in shared memory for matrix instructions
MOST_PARTS = 16  # of K, that blocks share
LEAST_PART = 512  # of K: what storing and adding sums costs is then less than what it saves
DEPTH = 16  # of K in shared memory; half of it for the largest tiles, whose elements wait in registers
WORTH_ANOTHER_TILE = 0.975  # of what the usual tile costs
STORE_BY_MEMORY = 0.5  # what that costs, in terms of a tile's sums, for each lane: measured, docs/log.md, 2026-11-23


def candidates(kernel: Kernel, target: Target) -> tuple[Opts, ...]:
    """Returns what is worth trying: the best guess, then others that cut one product in another way."""
    best = guess(kernel, target)
    found = [best]
    for place, (nest, tile) in enumerate(zip(_products(kernel, target), best.products)):
        for other in _others(nest, tile, target):
            found.append(Opts((*best.products[:place], other, *best.products[place + 1 :])))
    return tuple(dict.fromkeys(found))


def _others(nest: Nest, tile: Tile, target: Target) -> Sequence[Tile]:
    """Returns other tiles of a product."""
    if isinstance(tile, BlockTile):
        return _block_tiles(tile)
    return _warp_tiles(tile) if isinstance(tile, WarpTile) else _register_tiles(nest, tile, target)


def guess(kernel: Kernel, target: Target) -> Opts:
    """Returns the choices that a rule of thumb takes."""
    return Opts(tuple(best_guess(nest, target) for nest in _products(kernel, target)))


def _products(kernel: Kernel, target: Target) -> list[Nest]:
    """Returns the products of which there is something to choose."""
    nests = [nest for phase in kernel.phases for nest in phase if nest.kind is NestKind.MATMUL]
    return [nest for nest in nests if not has_few_rows(nest, target)]


def _product(nest: Nest) -> Op:
    assert nest.anchor is not None
    return nest.anchor


def best_guess(nest: Nest, target: Target) -> Tile:
    """Returns the tile of a product that a rule of thumb takes."""
    if target.is_gpu:
        anchor = _product(nest)
        *batch, m, n = anchor.shape
        return gpu_tile(m, n, anchor.src[0].shape[-1], numel(batch), anchor.dtype, target, takes_tf32(anchor))
    return _register_tile(nest, _better_turned(nest), target)


def _register_tile(nest: Nest, turned: bool, target: Target) -> RegisterTile:
    """As many accumulators as the registers hold, no larger than the result."""
    anchor = _product(nest)
    m, n = anchor.shape[-2:][::-1] if turned else anchor.shape[-2:]
    lanes = lanes_of(anchor, target)
    rows, vectors = rows_and_vectors(m, n, lanes, most_rows(target), 0.0 if turned else _ragged_overhead(nest, lanes))
    batch = numel(anchor.shape[:-2])
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(batch, int)):
        return RegisterTile(rows, vectors, ROW_PANELS, turned)
    columns = max(1, batch * -(-n // (vectors * lanes)))
    rhs = swap_last(anchor.src[0]) if turned else anchor.src[1]
    pieces = 1 if packs_slowly(rhs, accumulator_dtype(anchor), lanes) else min(MOST_REPEATS, -(-MANY_PIECES // columns))
    if columns * pieces < (LEAST_PIECES if pieces == 1 else MANY_PIECES):
        return RegisterTile(rows, vectors, ROW_PANELS, turned)
    return RegisterTile(rows, vectors, max(ROW_PANELS, -(-m // (rows * pieces))), turned)


def _ragged_overhead(nest: Nest, lanes: int) -> float:
    """Returns what storing by way of memory adds to the time of a product, as a part of that of its sums.

    All tiles go by way of memory as soon as their rows do not divide M (codegen/cpu/matmul.py). 0 where an epilogue needs that
    anyway.
    """
    k = _product(nest).src[0].shape[-1]
    return STORE_BY_MEMORY * lanes / k if isinstance(k, int) and k and is_alone(nest) else 0.0


def rows_and_vectors(m: Dim, n: Dim, lanes: int, most: int, ragged_overhead: float = 0.0) -> tuple[int, int]:
    """Returns the rows and vectors of a tile: most x 2, unless another costs clearly less.

    24 rows of 48 columns, in vectors of 16: 12 x 2 computes 24 x 64, 8 x 3 what is wanted and no edge.

    Args:
      m, n:             rows and columns of the result
      lanes:            of a vector
      most:             rows of two vectors that the registers hold
      ragged_overhead:  what a tile costs more if its rows do not divide m, as a part of what its sums cost
    """
    if not (isinstance(m, int) and isinstance(n, int)):
        return (min(most, m) if isinstance(m, int) else most), (1 if isinstance(n, int) and n <= lanes else 2)
    if m <= most or n <= lanes:
        return min(most, m), min(2, -(-n // lanes))
    usual = (most, 2)
    others = [(rows, 2) for rows in range(most - 1, 2 * most // 3 - 1, -1)] + [(2 * most // 3, 3)]

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        computed = -(-m // rows) * rows * -(-n // (vectors * lanes)) * vectors
        return computed * (1 + ragged_overhead) if m % rows else computed

    best = min(others, key=lambda tile: (cost(tile), -tile[0] * tile[1]))
    return best if cost(best) < WORTH_ANOTHER_TILE * cost(usual) else usual


def _better_turned(nest: Nest) -> bool:
    """Which operand becomes columns: where K is contiguous in both, packing transposes it, so the smaller.

    (M, K) @ (N, K).T with M < N, a layer on a small batch, is computed as (N, K) @ (M, K).T and stored transposed. Not
    where more of that size is read then: element by element that takes longer than to pack the larger operand.
    """
    a, b = _product(nest).src
    m, n = a.shape[-2], b.shape[-1]
    if not (isinstance(m, int) and isinstance(n, int) and 2 * m <= n):
        return False
    return contiguous_axis(a) == -1 and contiguous_axis(b) == -2 and not _reads_more(nest)


def _reads_more(nest: Nest) -> bool:
    """True where what is made of the product reads other memory of the product's size, or of a length not known here."""
    after = toposort([value for _, value in nest.outputs], stop={_product(nest)})
    lengths = [numel(op.shape) for op in after if op.code is OpCode.PARAM]
    size = numel(_product(nest).shape)
    return any(not isinstance(length, int) or not isinstance(size, int) or length >= size for length in lengths)


def _register_tiles(nest: Nest, tile: RegisterTile, target: Target) -> list[RegisterTile]:
    """Other cuts: more or less work for a thread at a time, a lower and wider tile, the transposed product."""
    m = _product(nest).shape[-1 if tile.turned else -2]
    panels = -(-m // tile.rows) if isinstance(m, int) else math.inf
    cuts = [replace(tile, panels=n) for n in (ROW_PANELS // 2, 2 * ROW_PANELS) if panels > min(n, tile.panels)]
    wide = replace(tile, rows=max(1, tile.rows * 2 // 3), vectors=3) if tile.rows > 1 else tile
    return [*cuts, wide, _register_tile(nest, not tile.turned, target)]


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


def _warp_tiles(tile: WarpTile) -> list[WarpTile]:
    """Other cuts: a smaller tile a warp, thus more blocks; less of K at a time, or more."""
    smaller = [replace(tile, high_tiles=tile.high_tiles // 2)] if tile.high_tiles > 1 else []
    return [*smaller, replace(tile, depth=MMA_DEPTH if tile.depth > MMA_DEPTH else 2 * MMA_DEPTH)]


def _block_tiles(tile: BlockTile) -> list[BlockTile]:
    """Other cuts: a smaller tile a thread, thus more blocks; more or less of K at a time."""
    smaller = [replace(tile, own_rows=tile.own_rows // 2)] if tile.own_rows > 1 else []
    return [*smaller, replace(tile, depth=tile.depth // 2), replace(tile, depth=tile.depth * 2)]
