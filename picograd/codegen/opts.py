"""Proposes the choices of a kernel: the one a rule of thumb takes, then the few that are worth timing.

In:    Kernel, Target
Out:   Opts, the best guess first
Called by: engine/choose.py, engine/compiler.py, codegen/lower.py.    Next: picograd/codegen/lower.py

The guess looks at shapes and the target alone. No proposal changes a bit of the result: the order of the sum over K
is the same in all of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from picograd.codegen.panels import MOST_COLUMNS, fits_a_thread, is_along_k, lanes_of, reads_rows_in_place
from picograd.codegen.reduce import accumulator_dtype
from picograd.device import Target
from picograd.ir.build import swap_last
from picograd.ir.op import Dim, Op
from picograd.ir.opts import BlockTile, Opts, RegisterTile
from picograd.ir.shape import numel
from picograd.ir.stages import Kernel, NestKind

ROW_PANELS = 8  # of a piece where an extent is unknown
CUTS = (1, 2, 4, 8)  # panels of columns that a GRID iteration packs; pieces that the rows are cut into
MOST_THREADS = 8  # among which a large product should be cut evenly
THREAD_STEPS = 1 << 22  # n squared times as many multiply-adds are worth cutting a product into n
# What packing an element costs, counted in the multiply-adds that take as long (measured, AVX-512): rows copied along K
# or put side by side, columns copied or transposed.
ROW_COST, ROW_SIDE_BY_SIDE_COST, COLUMN_COST, COLUMN_TRANSPOSE_COST = 16, 48, 40, 72
CACHED = 1 << 19  # bytes of columns that stay in the second-level cache
OWN = 4
WORTH_ANOTHER_TILE = 0.94  # of what the usual tile computes, edges and all
MOST_SIDE = 16  # 256 threads hold 64 x 64 of the result


def candidates(kernel: Kernel, target: Target) -> tuple[Opts, ...]:
    """Returns what is worth trying: the best guess, then others that cut one product in another way."""
    best = guess(kernel, target)
    found = [best]
    for place, (anchor, tile) in enumerate(zip(_products(kernel), best.products)):
        for other in _block_tiles(tile) if isinstance(tile, BlockTile) else _register_tiles(anchor, tile, target):
            found.append(Opts((*best.products[:place], other, *best.products[place + 1 :])))
    return tuple(dict.fromkeys(found))


def guess(kernel: Kernel, target: Target) -> Opts:
    """Returns the choices that a rule of thumb takes."""
    return Opts(tuple(best_guess(anchor, target) for anchor in _products(kernel)))


def _products(kernel: Kernel) -> list[Op]:
    nests = [nest for phase in kernel.phases for nest in phase if nest.kind is NestKind.MATMUL]
    return [nest.anchor for nest in nests if nest.anchor is not None]


def best_guess(anchor: Op, target: Target) -> RegisterTile | BlockTile:
    """Returns the tile of a product that a rule of thumb takes."""
    if target.is_gpu:
        side = MOST_SIDE
        while side > 1 and side * side > target.block_threads:
            side //= 2
        return BlockTile(side, OWN)
    return _register_tile(anchor, _better_turned(anchor), target)


def _register_tile(anchor: Op, turned: bool, target: Target) -> RegisterTile:
    """As many accumulators as the registers hold, no larger than the result."""
    a, b = anchor.src
    lhs, rhs = (swap_last(b), swap_last(a)) if turned else (a, b)
    m, n = lhs.shape[-2], rhs.shape[-1]
    lanes = lanes_of(anchor, target)
    rows, vectors = _rows_and_vectors(m, n, lanes, 12 if target.num_registers >= 32 else 6)
    columns, panels = _cut(lhs, rhs, rows, vectors * lanes, accumulator_dtype(anchor).itemsize)
    return RegisterTile(rows, vectors, panels, columns, turned)


def _rows_and_vectors(m: Dim, n: Dim, lanes: int, most: int) -> tuple[int, int]:
    """How a tile divides among rows and vectors: `most` rows of two, unless another leaves much less over at the edges.

    24 rows of 48 columns, in vectors of 16: 12 x 2 computes 24 x 64, 8 x 3 what is wanted and no edge.
    """
    if not (isinstance(m, int) and isinstance(n, int)):
        return (min(most, m) if isinstance(m, int) else most), (1 if isinstance(n, int) and n <= lanes else 2)
    if m <= most or n <= lanes:
        return min(most, m), min(2, -(-n // lanes))
    usual = (most, 2)
    others = [(rows, 2) for rows in range(most - 1, 2 * most // 3 - 1, -1)] + [(2 * most // 3, 3)]
    areas = {(r, v): -(-m // r) * r * -(-n // (v * lanes)) * v for r, v in (usual, *others)}
    best = min(others, key=lambda tile: (areas[tile], -tile[0] * tile[1]))
    return best if areas[best] < WORTH_ANOTHER_TILE * areas[usual] else usual


def _cut(lhs: Op, rhs: Op, rows: int, nr: int, itemsize: int) -> tuple[int, int]:
    """Returns how many panels of columns, and of rows, a GRID iteration takes: so that the least is packed again.

    What one iteration packs, others pack as well: rows once for each block of columns, columns for each piece of rows.
    """
    *batch, m, k = lhs.shape
    n, count = rhs.shape[-1], numel(tuple(batch))
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int) and isinstance(count, int)):
        return 1, ROW_PANELS
    if not fits_a_thread(k, rows, nr, itemsize):
        return 1, ROW_PANELS
    row_panels, column_panels, steps = -(-m // rows), -(-n // nr), m * n * k
    threads = min(MOST_THREADS, max(1, math.isqrt(count * steps // THREAD_STEPS)))
    row_cost = ROW_COST if is_along_k(lhs, -1) else ROW_SIDE_BY_SIDE_COST
    row_cost = 0 if reads_rows_in_place(lhs, n, nr) else row_cost * m * k
    column_cost = (COLUMN_TRANSPOSE_COST if is_along_k(rhs, -2) else COLUMN_COST) * n * k

    def cost(cut: tuple[int, int]) -> float:
        blocks, pieces = -(-column_panels // cut[0]), -(-row_panels // cut[1])
        num_jobs = count * blocks * pieces
        return (steps + row_cost * blocks + column_cost * pieces) * -(-num_jobs // threads) / max(1, num_jobs)

    # Rows that are put side by side cost more to pack again than columns outside that cache cost to read.
    room = CACHED if is_along_k(lhs, -1) else MOST_COLUMNS
    columns = [c for c in CUTS if c == 1 or (c <= column_panels and c * nr * k * itemsize <= room)]
    panels = [-(-row_panels // pieces) for pieces in CUTS if pieces <= max(1, row_panels)]
    return min(itertools.product(columns, panels), key=cost)


def _better_turned(anchor: Op) -> bool:
    """Which operand becomes columns: where K is contiguous in both, packing transposes it, so the smaller.

    (M, K) @ (N, K).T with M < N, a layer on a small batch, is computed as (N, K) @ (M, K).T and stored transposed.
    """
    a, b = anchor.src
    m, n = a.shape[-2], b.shape[-1]
    if not (isinstance(m, int) and isinstance(n, int) and 2 * m <= n):
        return False
    return is_along_k(a, -1) and is_along_k(b, -2)


def _register_tiles(anchor: Op, tile: RegisterTile, target: Target) -> list[RegisterTile]:
    """Other cuts: more or less work for a thread at a time, a narrower tile, the transposed product."""
    m = anchor.shape[-1 if tile.turned else -2]
    panels = -(-m // tile.rows) if isinstance(m, int) else 2 * ROW_PANELS + 1
    cuts = [replace(tile, panels=n) for n in (ROW_PANELS // 2, 2 * ROW_PANELS) if panels > min(n, tile.panels)]
    narrow = replace(tile, rows=max(1, tile.rows * 2 // 3), vectors=3, columns=1) if tile.rows > 1 else tile
    return [*cuts, narrow, _register_tile(anchor, not tile.turned, target)]


def _block_tiles(tile: BlockTile) -> list[BlockTile]:
    """Other cuts: smaller blocks, more of them, for results that would leave processors idle; larger tiles a thread."""
    smaller = [replace(tile, side=tile.side // 2)] if tile.side > 4 else []
    return [*smaller, replace(tile, own=tile.own // 2), replace(tile, own=2 * tile.own)]
