"""How a CPU cuts a product: a tile of accumulators that the registers hold, and pieces for threads.

In:    Nest (kind MATMUL), Target
Out:   the tile that a rule of thumb takes, and others
Called by: codegen/opts.py.    Next: picograd/codegen/gpu/tiles.py
"""

from __future__ import annotations

import math

from picograd.codegen.cpu.matmul import MOST_REPEATS, is_alone, lanes_of
from picograd.codegen.cpu.panels import packs_slowly
from picograd.codegen.operands import contiguous_axis
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import most_rows
from picograd.device import Target
from picograd.ir.build import swap_last
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import RegisterTile
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.record import replace

ROW_PANELS = 8  # of a piece, at least: their rows stay in the second-level cache while the columns pass
LEAST_PIECES = 8  # of a product whose columns are packed element by element: panels may then be packed by who reads them
MANY_PIECES = 16  # the same where packing copies vectors, and up to MOST_REPEATS may pack the same panel
WORTH_ANOTHER_TILE = 0.975  # of what the usual tile costs
STORE_BY_MEMORY = 0.5  # what that costs, in terms of a tile's sums, for each lane: measured, docs/log.md, 2026-11-23


def _product(nest: Nest) -> Op:
    assert nest.anchor is not None
    return nest.anchor


def register_tile(nest: Nest, turned: bool, target: Target) -> RegisterTile:
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

    All tiles go by way of memory as soon as their rows do not divide M (codegen/cpu/matmul.py). 0 where an epilogue
    needs that anyway.
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


def better_turned(nest: Nest) -> bool:
    """Which operand becomes columns: where K is contiguous in both, packing transposes it, so the smaller.

    (M, K) @ (N, K).T with M < N, a layer on a small batch, is computed as (N, K) @ (M, K).T and stored transposed. Not
    where more of that shape is read then: element by element that takes longer than to pack the larger operand.
    """
    a, b = _product(nest).src
    m, n = a.shape[-2], b.shape[-1]
    if not (isinstance(m, int) and isinstance(n, int) and 2 * m <= n):
        return False
    return contiguous_axis(a) == -1 and contiguous_axis(b) == -2 and not _reads_more(nest)


def _reads_more(nest: Nest) -> bool:
    """True where what is made of the product reads other memory as large as the product, or of a length not known here."""
    after = toposort([value for _, value in nest.outputs], stop={_product(nest)})
    lengths = [numel(op.shape) for op in after if op.code is OpCode.PARAM]
    own = numel(_product(nest).shape)
    return any(not isinstance(length, int) or not isinstance(own, int) or length >= own for length in lengths)


def register_tiles(nest: Nest, tile: RegisterTile, target: Target) -> list[RegisterTile]:
    """Other cuts: more or less work for a thread at a time, a lower and wider tile, the transposed product."""
    m = _product(nest).shape[-1 if tile.turned else -2]
    panels = -(-m // tile.rows) if isinstance(m, int) else math.inf
    cuts = [replace(tile, panels=n) for n in (ROW_PANELS // 2, 2 * ROW_PANELS) if panels > min(n, tile.panels)]
    wide = replace(tile, rows=max(1, tile.rows * 2 // 3), vectors=3) if tile.rows > 1 else tile
    return [*cuts, wide, register_tile(nest, not tile.turned, target)]
