"""A matrix product of one block on a GPU by matrix instructions, for operands of 16 bits.

In:    elements of two operands, a WarpTile
Out:   statements in the free form
Called by: codegen/grid_product.py.    Next: picograd/codegen/convolution_gpu.py

Both tiles lie in shared memory as (positions, K): two neighbours along K are one 32-bit word of a fragment. Rows are padded
by 16 bytes, so that the 8 x 4 words that a warp reads at once are in 32 banks. A warp has a tile of the result in the
registers of its threads, 16 x 8 at a time; each fragment that it reads serves a row, or a column, of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.codegen.block_product import Store
from picograd.codegen.builder import Builder, read
from picograd.codegen.staged import Operand, Staged, pipeline
from picograd.dtype import DType
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, WarpTile
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul

PADDING = 8  # elements: 16 bytes


@dataclass(frozen=True)
class TensorProduct:
    """The product of one block.

    dtype:         of the operands
    k:             its length
    left, right:   the operands
    store_lanes:   columns that are stored at once; they divide the right operand's extent
    unrolled:      the kind of loops over registers
    """

    build: Builder
    tile: WarpTile
    dtype: DType
    k: Dim
    left: Operand
    right: Operand
    store_lanes: int
    unrolled: AxisKind

    def emit(self, first_row: Dim, first_column: Dim, store: Store) -> None:
        """Writes the block whose result begins at (first_row, first_column)."""
        build, tile = self.build, self.tile
        sides = self.staged(self.left, tile.rows, first_row), self.staged(self.right, tile.columns, first_column)
        memories = [side.shared_memory() for side in sides]
        with build.loop(tile.threads, AxisKind.BLOCK) as thread:
            length = 4 * tile.high_tiles * tile.wide_tiles
            acc = build.alloc(dtypes.float32, length, MemorySpace.REGISTER)
            with build.loop(length, self.unrolled) as place:
                build.store(acc, place, const(0, dtypes.float32))
            pipeline(build, sides, memories, thread, lambda half: self.multiply(thread, half, sides, memories, acc))
            self.store(thread, first_row, first_column, acc, store)

    def staged(self, operand: Operand, width: int, first: Dim) -> Staged:
        """Returns the tile of an operand."""
        depth, threads = self.tile.depth, self.tile.threads
        return Staged(self.build, operand, self.dtype, first, width, depth, self.k, threads, True, PADDING, self.unrolled)

    def place(self, thread: Dim) -> tuple[Dim, Dim, Dim, Dim]:
        """Returns the first row and column of a thread's warp in the tile, and its g and t (ir/statements.py, Mma)."""
        warp, lane = floordiv(thread, WARP_THREADS), mod(thread, WARP_THREADS)
        row = mul(floordiv(warp, self.tile.wide), self.tile.warp_rows)
        column = mul(mod(warp, self.tile.wide), self.tile.warp_columns)
        return row, column, floordiv(lane, 4), mod(lane, 4)

    def multiply(self, thread: Dim, half: Dim, sides: Sequence[Staged], memories: Sequence[Op], acc: Op) -> None:
        """Adds the products of one half of shared memory."""
        build, tile = self.build, self.tile

        def read_pair(side: int, position: Dim, k: Dim, fragment: Op, place: Dim) -> None:
            with build.loop(2, AxisKind.VECTOR) as lane:
                value = read(memories[side], sides[side].index(half, add(k, lane), position))
                build.store(fragment, add(place, lane), value)

        row, column, g, t = self.place(thread)
        lhs = build.alloc(self.dtype, 8 * tile.high_tiles, MemorySpace.REGISTER)
        rhs = build.alloc(self.dtype, 4 * tile.wide_tiles, MemorySpace.REGISTER)
        with build.loop(tile.depth // MMA_DEPTH, self.unrolled) as step:
            k = add(mul(step, MMA_DEPTH), mul(t, 2))
            with build.loop(tile.high_tiles, self.unrolled) as i, build.loop(4, self.unrolled) as pair:
                position = add(add(row, mul(i, MMA_ROWS)), add(g, mul(mod(pair, 2), 8)))
                place = add(mul(i, 8), mul(pair, 2))
                read_pair(0, position, add(k, mul(floordiv(pair, 2), 8)), lhs, place)
            with build.loop(tile.wide_tiles, self.unrolled) as j, build.loop(2, self.unrolled) as pair:
                position = add(add(column, mul(j, MMA_COLUMNS)), g)
                read_pair(1, position, add(k, mul(pair, 8)), rhs, add(mul(j, 4), mul(pair, 2)))
            with build.loop(tile.high_tiles, self.unrolled) as i, build.loop(tile.wide_tiles, self.unrolled) as j:
                build.mma(acc, mul(add(mul(i, tile.wide_tiles), j), 4), lhs, mul(i, 8), rhs, mul(j, 4))

    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Writes what a thread has, where it is inside the result: pairs of columns."""
        build, tile = self.build, self.tile
        row, column, g, t = self.place(thread)
        lanes = 2 if self.store_lanes % 2 == 0 else 1
        with (
            build.loop(tile.high_tiles, self.unrolled) as i,
            build.loop(tile.wide_tiles, self.unrolled) as j,
            build.loop(2, self.unrolled) as below,
            build.loop(2 // lanes, self.unrolled) as right,
        ):
            at_row = add(add(first_row, row), add(mul(i, MMA_ROWS), add(g, mul(below, 8))))
            at_column = add(add(first_column, column), add(mul(j, MMA_COLUMNS), add(mul(t, 2), right)))
            place = add(mul(add(mul(i, tile.wide_tiles), j), 4), add(mul(below, 2), right))
            inside = both(less(at_row, self.left.extent), less(at_column, self.right.extent))
            with build.when(inside), build.loop(lanes, AxisKind.VECTOR) as lane:
                store(at_row, add(at_column, lane), build.load(acc, add(place, lane)))
