"""Rows of an attention by matrix instructions: a warp has one or two times 16 rows.

In:    a Cut
Out:   `WarpRows`
Called by: codegen/attention_gpu.py.    Next: picograd/codegen/attention_gpu.py

Accumulators lie as ir/statements.py, Mma, says: a thread has two rows of each 16, and of those two neighbours of each 8
columns; four threads share a row. The accumulators of two neighbouring 16 x 8 are element for element the left fragment of
16 x 16, so that scores become the weights of an average without leaving their registers.
Source: Dao 2023, arXiv:2307.08691, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from picograd.codegen.block_rows import Accumulators, BlockRows, Panel
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import MMA_COLUMNS, MMA_DEPTH, MMA_ROWS
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, floordiv, mod, mul


@dataclass(frozen=True)
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
        build, (g, t) = self.build, self.g_and_t
        lhs = build.alloc(self.cut.dtype, 8 * self.cut.high, MemorySpace.REGISTER)
        rhs = build.alloc(self.cut.dtype, 4, MemorySpace.REGISTER)
        with build.loop(left.width // MMA_DEPTH, AxisKind.LOOP) as step:
            feature = add(mul(step, MMA_DEPTH), mul(t, 2))
            with (
                build.loop(self.cut.high, self.unrolled) as tile,
                build.loop(4, self.unrolled) as pair,
                build.loop(2, AxisKind.VECTOR) as lane,
            ):
                row = add(self.first_row, add(mul(tile, MMA_ROWS), add(g, mul(mod(pair, 2), 8))))
                value = left.read(row, add(add(feature, mul(floordiv(pair, 2), 8)), lane))
                build.store(lhs, add(add(mul(tile, 8), mul(pair, 2)), lane), value)
            with build.loop(acc.width // MMA_COLUMNS, self.unrolled) as number:
                position = add(mul(number, MMA_COLUMNS), g)
                with build.loop(2, self.unrolled) as pair, build.loop(2, AxisKind.VECTOR) as lane:
                    value = right.read(position, add(add(feature, mul(pair, 8)), lane))
                    build.store(rhs, add(mul(pair, 2), lane), value)
                self._multiply(acc, number, lhs, 0, 8, rhs)

    def add_averages(self, acc: Accumulators, weights: Accumulators, panel: Panel) -> None:
        build, (g, t) = self.build, self.g_and_t
        lhs = self._narrowed(weights)
        rhs = build.alloc(self.cut.dtype, 4, MemorySpace.REGISTER)
        with build.loop(weights.width // MMA_DEPTH, self.unrolled) as step:
            first = add(mul(step, MMA_DEPTH), mul(t, 2))
            with build.loop(acc.width // MMA_COLUMNS, self.unrolled) as number:
                feature = add(mul(number, MMA_COLUMNS), g)
                with build.loop(4, self.unrolled) as i:
                    position = add(first, add(mod(i, 2), mul(floordiv(i, 2), 8)))
                    build.store(rhs, i, panel.read(position, feature))
                self._multiply(acc, number, lhs, mul(step, 8), weights.width // 2, rhs)

    def _narrowed(self, weights: Accumulators) -> Op:
        """Returns weights as left fragments, which have the same order."""
        build, length = self.build, weights.width // 2 * self.cut.high
        lhs = build.alloc(self.cut.dtype, length, MemorySpace.REGISTER)
        with build.loop(length, self.unrolled) as i:
            build.store(lhs, i, cast(build.load(weights.memory, i), self.cut.dtype))
        return lhs

    def _multiply(self, acc: Accumulators, number: Dim, lhs: Op, left: Dim, apart: int, rhs: Op) -> None:
        """Adds one product to each row tile; their fragments lie `apart`."""
        with self.build.loop(self.cut.high, self.unrolled) as tile:
            self.build.mma(acc.memory, self._tile(acc, tile, number), lhs, add(mul(tile, apart), left), rhs, 0)
