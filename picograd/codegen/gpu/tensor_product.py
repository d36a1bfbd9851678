"""A matrix product of one block on a GPU by matrix instructions, for operands of 16 bits, or float32 as TF32.

In:    elements of two operands, a WarpTile
Out:   statements in the free form
Called by: codegen/gpu/grid_product.py.    Next: picograd/codegen/gpu/convolution.py

A tile lies in shared memory as its operand does: as (positions, K) or as (K, positions), and fragments are turned on their
way to registers. Rows are padded so that what a warp reads at once is in different banks: eight rows of 16 bytes, or of
float32 what threads (g, t) read at (g, 2 t) and beside it, or at (2 t, g) where rows are those of K. A warp has a tile of
the result in the registers of its threads, 16 x 8 at a time; a fragment serves a row, or a column, of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from picograd.codegen.gpu.fragments import Matrix, load_left, load_right
from picograd.codegen.gpu.staged import Operand, Staged
from picograd.codegen.gpu.staged_product import StagedProduct, Store
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, WarpTile
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul

PADDING = 16  # bytes
MOST_STAGES = 4  # not measured: a step takes some hundred cycles, what it needs is on its way for more than that


class TensorProduct(StagedProduct):
    """The product of one block, by matrix instructions."""

    tile: WarpTile

    @property
    def cut(self) -> WarpTile:
        return self.tile

    @property
    def num_sums(self) -> int:
        return 4 * self.tile.high_tiles * self.tile.wide_tiles

    @property
    def most_stages(self) -> int:
        return MOST_STAGES

    def staged(self, operand: Operand, width: int, first: Dim) -> Staged:
        """Returns the tile of an operand, which lies in shared memory as it does where it comes from."""
        depth, threads, by_position = self.tile.depth, self.tile.threads, operand.along_k
        padding = PADDING // self.dtype.itemsize * (2 if by_position and self.dtype.itemsize == 4 else 1)
        return Staged(
            self.build, operand, self.dtype, first, width, depth, self.k, threads, by_position, padding, self.unrolled
        )

    def place(self, thread: Dim) -> tuple[Dim, Dim, Dim, Dim]:
        """Returns the first row and column of a thread's warp in the tile, and its g and t (ir/statements.py, Mma)."""
        warp, lane = floordiv(thread, WARP_THREADS), mod(thread, WARP_THREADS)
        row = mul(floordiv(warp, self.tile.wide), self.tile.warp_rows)
        column = mul(mod(warp, self.tile.wide), self.tile.warp_columns)
        return row, column, floordiv(lane, 4), mod(lane, 4)

    def multiply(self, thread: Dim, stage: Dim, sides: Sequence[Staged], memories: Sequence[Op], acc: Op) -> None:
        build, tile = self.build, self.tile
        left, right = (
            Matrix(memory, partial(side.index, stage), side.by_position) for side, memory in zip(sides, memories)
        )
        row, column, _, _ = self.place(thread)
        lhs = build.alloc(self.dtype, 8 * tile.high_tiles, MemorySpace.REGISTER)
        rhs = build.alloc(self.dtype, 4 * tile.wide_tiles, MemorySpace.REGISTER)
        with build.loop(tile.depth // MMA_DEPTH, self.unrolled) as step:
            k = mul(step, MMA_DEPTH)
            with build.loop(tile.high_tiles, self.unrolled) as i:
                load_left(build, lhs, mul(i, 8), left, thread, add(row, mul(i, MMA_ROWS)), k)
            with build.loop(tile.wide_tiles // 2, self.unrolled) as pair:
                load_right(build, rhs, mul(pair, 8), right, thread, add(column, mul(pair, 2 * MMA_COLUMNS)), k)
            with build.loop(tile.high_tiles, self.unrolled) as i, build.loop(tile.wide_tiles, self.unrolled) as j:
                build.mma(acc, mul(add(mul(i, tile.wide_tiles), j), 4), lhs, mul(i, 8), rhs, mul(j, 4))

    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Writes pairs of columns."""
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
