"""A matrix product of one block on a GPU: tiles of both operands in shared memory, a small tile of the result per thread.

In:    elements of two operands, a BlockTile
Out:   statements in the free form
Called by: codegen/gpu/grid_product.py.    Next: picograd/codegen/gpu/fragments.py

Both tiles lie in shared memory as (K, positions), so that a thread reads four of its rows, or columns, at a time; its rows
are groups of four, apart by what all threads have of such groups, and a warp is 8 threads wide and 4 high: what it reads
is few lines, without two in one bank. Each element of shared memory serves a row or column of threads, each element in a
register as many multiply-adds as the tile of a thread has columns or rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from picograd.codegen.builder import read
from picograd.codegen.gpu.staged import Operand, Staged
from picograd.codegen.gpu.staged_product import StagedProduct, Store
from picograd.codegen.tile import multiply_add
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import BlockTile
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul

PADDING = 4  # elements: what a thread reads at once
WARP_WIDE = 8
MOST_STAGES = 3  # not measured: a step of multiply-adds takes longer than what it needs is on its way


class BlockProduct(StagedProduct):
    """The product of one block, by multiply-adds."""

    tile: BlockTile

    @property
    def cut(self) -> BlockTile:
        return self.tile

    @property
    def num_sums(self) -> int:
        return self.tile.own_rows * self.tile.own_columns

    @property
    def most_stages(self) -> int:
        return MOST_STAGES

    def staged(self, operand: Operand, width: int, first: Dim) -> Staged:
        depth, threads = self.tile.depth, self.tile.threads
        return Staged(self.build, operand, self.dtype, first, width, depth, self.k, threads, False, PADDING, self.unrolled)

    def place(self, thread: Dim) -> tuple[Dim, Dim]:
        """Returns where a thread stands among the tile's high x wide: warps are 8 wide where that goes."""
        tile = self.tile
        if tile.wide % WARP_WIDE or tile.high % (WARP_THREADS // WARP_WIDE):
            return floordiv(thread, tile.wide), mod(thread, tile.wide)
        warp, lane = floordiv(thread, WARP_THREADS), mod(thread, WARP_THREADS)
        warps = tile.wide // WARP_WIDE
        y = add(mul(floordiv(warp, warps), WARP_THREADS // WARP_WIDE), floordiv(lane, WARP_WIDE))
        return y, add(mul(mod(warp, warps), WARP_WIDE), mod(lane, WARP_WIDE))

    def multiply(self, thread: Dim, stage: Dim, sides: Sequence[Staged], memories: Sequence[Op], acc: Op) -> None:
        """Adds the products of one stage: at each k a thread reads its rows and columns once and multiplies all by all."""
        build, tile = self.build, self.tile
        y, x = self.place(thread)
        rows = build.alloc(self.dtype, tile.own_rows, MemorySpace.REGISTER)
        columns = build.alloc(self.dtype, tile.own_columns, MemorySpace.REGISTER)
        with build.loop(tile.depth, AxisKind.LOOP) as k:
            left, right = (partial(_element, side, memory, stage, k) for side, memory in zip(sides, memories))
            self._read_own(rows, tile.own_rows, tile.row_group, tile.high, y, left)
            self._read_own(columns, tile.own_columns, tile.column_group, tile.wide, x, right)
            self._add_products(rows, columns, acc)

    def _read_own(
        self, own: Op, count: int, group_length: int, apart: int, first: Dim, element: Callable[[Dim], Op]
    ) -> None:
        """Reads `count` positions of a thread, in groups: group g is the (first + g * apart)-th of the tile."""
        build = self.build
        with (
            build.loop(count // group_length, self.unrolled) as group,
            build.loop(group_length, AxisKind.VECTOR) as lane,
        ):
            position = add(mul(add(mul(group, apart), first), group_length), lane)
            build.store(own, add(mul(group, group_length), lane), element(position))

    def _add_products(self, rows: Op, columns: Op, acc: Op) -> None:
        """Adds each of a thread's rows times each of its columns."""
        build, tile = self.build, self.tile
        with (
            build.loop(tile.own_rows, self.unrolled) as i,
            build.loop(tile.own_columns // tile.column_group, self.unrolled) as group,
            build.loop(tile.column_group, AxisKind.VECTOR) as lane,
        ):
            column = add(mul(group, tile.column_group), lane)
            where = add(mul(i, tile.own_columns), column)
            product = multiply_add(build.load(rows, i), build.load(columns, column), build.load(acc, where))
            build.store(acc, where, product)

    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Writes the tile of a thread, some columns at a time, which lie side by side in a group."""
        build, tile = self.build, self.tile
        y, x = self.place(thread)
        lanes = gcd(self.store_lanes, tile.column_group)
        parts = tile.own_columns // lanes
        with build.loop(tile.own_rows, self.unrolled) as i, build.loop(parts, self.unrolled) as part:
            number = mul(part, lanes)
            group, rest = floordiv(number, tile.column_group), mod(number, tile.column_group)
            row_group, row_rest = floordiv(i, tile.row_group), mod(i, tile.row_group)
            row = add(first_row, add(mul(add(mul(row_group, tile.high), y), tile.row_group), row_rest))
            column = add(first_column, add(mul(add(mul(group, tile.wide), x), tile.column_group), rest))
            inside = both(less(row, self.left.extent), less(column, self.right.extent))
            with build.when(inside), build.loop(lanes, AxisKind.VECTOR) as lane:
                store(row, add(column, lane), build.load(acc, add(mul(i, tile.own_columns), add(number, lane))))


def _element(side: Staged, memory: Op, stage: Dim, k: Dim, position: Dim) -> Op:
    return read(memory, side.index(stage, k, position))
