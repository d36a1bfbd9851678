"""Rows of an attention by matrix instructions: a warp has one or two times 16 rows.

In:    a Cut
Out:   `WarpRows`
Called by: codegen/gpu/attention.py.    Next: picograd/codegen/gpu/attention_results.py

Accumulators lie as ir/statements.py, Mma, says: a thread has two rows of each 16, and of those two neighbours of each 8
columns; four threads share a row. The accumulators of two neighbouring 16 x 8 are element for element the left fragment of
16 x 16, so that scores become the weights of an average without leaving their registers.
Source: Dao 2023, arXiv:2307.08691, section 3.
"""

from __future__ import annotations

from picograd.codegen.gpu.block_rows import Accumulators, BlockRows, Panel
from picograd.codegen.gpu.fragments import load_left, load_right
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import MMA_COLUMNS, MMA_DEPTH, MMA_ROWS
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, floordiv, mod, mul


class WarpRows(BlockRows):
    """The rows of a block, by matrix instructions."""

    @property
    def first_row(self) -> Dim:
        """The first row of a thread's warp."""
        return mul(floordiv(self.thread, WARP_THREADS), self.cut.high * MMA_ROWS)

    @property
    def g_and_t(self) -> tuple[Dim, Dim]:
        """Where a thread stands in its warp (ir/statements.py, Mma)."""
        lane = mod(self.thread, WARP_THREADS)
        return floordiv(lane, 4), mod(lane, 4)

    def row(self, i: Dim) -> Dim:
        g, _ = self.g_and_t
        return add(self.first_row, add(mul(floordiv(i, 2), MMA_ROWS), add(g, mul(mod(i, 2), 8))))

    def group_of(self, width: int, of_scores: bool) -> int:
        return 2

    def column(self, acc: Accumulators, number: Dim) -> Dim:
        _, t = self.g_and_t
        return add(mul(number, MMA_COLUMNS), mul(t, 2))

    def place(self, acc: Accumulators, i: Dim, number: Dim) -> Dim:
        return add(self._tile(acc, floordiv(i, 2), number), mul(mod(i, 2), 2))

    def _tile(self, acc: Accumulators, row_tile: Dim, number: Dim) -> Dim:
        """Returns where a thread has its four elements of 16 x 8."""
        return mul(add(mul(row_tile, acc.width // MMA_COLUMNS), number), 4)

    def add_scores(self, acc: Accumulators, left: Panel, right: Panel) -> None:
        build, thread = self.build, self.thread
        lhs = build.alloc(self.cut.dtype, 8 * self.cut.high, MemorySpace.REGISTER)
        rhs = build.alloc(self.cut.dtype, 8, MemorySpace.REGISTER)
        with build.loop(left.width // MMA_DEPTH, AxisKind.LOOP) as step:
            feature = mul(step, MMA_DEPTH)
            with build.loop(self.cut.high, self.unrolled) as tile:
                row = add(self.first_row, mul(tile, MMA_ROWS))
                load_left(build, lhs, mul(tile, 8), left.by_rows, thread, row, feature)
            with build.loop(acc.width // MMA_COLUMNS // 2, self.unrolled) as pair:
                load_right(build, rhs, 0, right.by_rows, thread, mul(pair, 2 * MMA_COLUMNS), feature)
                self._multiply(acc, pair, lhs, 0, 8, rhs)

    def add_averages(self, acc: Accumulators, weights: Accumulators, panel: Panel) -> None:
        build, lhs = self.build, self._narrowed(weights)
        rhs = build.alloc(self.cut.dtype, 8, MemorySpace.REGISTER)
        with build.loop(weights.width // MMA_DEPTH, self.unrolled) as step:
            position = mul(step, MMA_DEPTH)
            with build.loop(acc.width // MMA_COLUMNS // 2, self.unrolled) as pair:
                load_right(build, rhs, 0, panel.by_columns, self.thread, mul(pair, 2 * MMA_COLUMNS), position)
                self._multiply(acc, pair, lhs, mul(step, 8), weights.width // 2, rhs)

    def _narrowed(self, weights: Accumulators) -> Op:
        """Returns weights as left fragments, which have the same order."""
        build, length = self.build, weights.width // 2 * self.cut.high
        lhs = build.alloc(self.cut.dtype, length, MemorySpace.REGISTER)
        with build.loop(length, self.unrolled) as i:
            build.store(lhs, i, cast(build.load(weights.memory, i), self.cut.dtype))
        return lhs

    def _multiply(self, acc: Accumulators, pair: Dim, lhs: Op, left: Dim, apart: int, rhs: Op) -> None:
        """Adds products by two right fragments to each row tile; its left fragments lie `apart`."""
        with self.build.loop(self.cut.high, self.unrolled) as tile, self.build.loop(2, self.unrolled) as i:
            at = self._tile(acc, tile, add(mul(pair, 2), i))
            self.build.mma(acc.memory, at, lhs, add(mul(tile, apart), left), rhs, mul(i, 4))
