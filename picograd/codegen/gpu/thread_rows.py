"""Rows of an attention by multiply-adds: a thread has some rows, and of those as many columns as others.

In:    a Cut
Out:   `ThreadRows`
Called by: codegen/gpu/attention.py.    Next: picograd/codegen/gpu/warp_rows.py

Sixteen threads share a row, the rows of a thread stand below each other. All reads of shared memory are 16 bytes, along
features for scores, along positions for the weights of an average, of which each thread needs its whole row: they go by
way of shared memory.
"""

from __future__ import annotations

from math import gcd

from picograd.codegen.builder import read
from picograd.codegen.gpu.block_rows import Accumulators, BlockRows, Panel
from picograd.codegen.tile import multiply_add
from picograd.forks import cached_property
from picograd.ir.attention import WIDE
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.symbolic import add, floordiv, mod, mul


class ThreadRows(BlockRows, dict=True):
    """The rows of a block, by multiply-adds."""

    def row(self, i: Dim) -> Dim:
        return add(mul(floordiv(self.thread, WIDE), self.cut.high), i)

    def group_of(self, width: int, of_scores: bool) -> int:
        """One score, whose keys then lie in different banks; of features as many as a thread reads at once."""
        return 1 if of_scores else gcd(width // WIDE, self.lanes)

    def column(self, acc: Accumulators, number: Dim) -> Dim:
        return mul(add(mul(number, WIDE), mod(self.thread, WIDE)), acc.group)

    def place(self, acc: Accumulators, i: Dim, number: Dim) -> Dim:
        return add(mul(i, acc.width // WIDE), mul(number, acc.group))

    @property
    def lanes(self) -> int:
        """Elements of one access of shared memory."""
        return 16 // self.dtype.itemsize

    @cached_property
    def weights(self) -> Op:
        """Shared memory of a weight for each row and position."""
        return self.build.alloc(self.dtype, self.cut.rows * self._weights_row, MemorySpace.SHARED)

    @property
    def _weights_row(self) -> int:
        return self.cut.columns + self.cut.padding

    def add_scores(self, acc: Accumulators, left: Panel, right: Panel) -> None:
        build, lanes, groups = self.build, self.lanes, self.num_groups(acc)
        lhs = build.alloc(self.dtype, self.cut.high * lanes, MemorySpace.REGISTER)
        rhs = build.alloc(self.dtype, groups * lanes, MemorySpace.REGISTER)
        with build.loop(left.width // lanes, AxisKind.LOOP) as step:
            feature = mul(step, lanes)
            with build.loop(self.cut.high, self.unrolled) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(lhs, add(mul(i, lanes), lane), left.read(self.row(i), add(feature, lane)))
            with build.loop(groups, self.unrolled) as j, build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(rhs, add(mul(j, lanes), lane), right.read(self.column(acc, j), add(feature, lane)))
            with (
                build.loop(self.cut.high, self.unrolled) as i,
                build.loop(groups, self.unrolled) as j,
                build.loop(lanes, self.unrolled) as lane,
            ):
                place = self.place(acc, i, j)
                factors = build.load(lhs, add(mul(i, lanes), lane)), build.load(rhs, add(mul(j, lanes), lane))
                build.store(acc.memory, place, multiply_add(*factors, build.load(acc.memory, place)))

    def add_averages(self, acc: Accumulators, weights: Accumulators, panel: Panel) -> None:
        build, lanes, memory = self.build, self.lanes, self.weights

        def of_weight(row: Dim, column: Dim) -> Dim:
            return add(mul(row, self._weights_row), column)

        build.barrier()
        self.each(
            weights, lambda i, c, at: build.store(memory, of_weight(self.row(i), c), build.load(weights.memory, at))
        )
        build.barrier()
        own = build.alloc(self.dtype, self.cut.high * lanes, MemorySpace.REGISTER)
        with build.loop(self.cut.columns // lanes, AxisKind.LOOP) as step:
            position = mul(step, lanes)
            with build.loop(self.cut.high, self.unrolled) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(
                    own, add(mul(i, lanes), lane), read(memory, of_weight(self.row(i), add(position, lane)))
                )
            with build.loop(lanes, self.unrolled) as k:
                self._add_position(acc, own, k, panel, add(position, k))

    def _add_position(self, acc: Accumulators, own: Op, k: Dim, panel: Panel, position: Dim) -> None:
        """Adds a position's features, each times the k-th of the weights that a thread has of its rows."""
        build, group = self.build, acc.group
        features = build.alloc(self.dtype, acc.width // WIDE, MemorySpace.REGISTER)
        with build.loop(self.num_groups(acc), self.unrolled) as number, build.loop(group, AxisKind.VECTOR) as lane:
            value = panel.read(position, add(self.column(acc, number), lane))
            build.store(features, add(mul(number, group), lane), value)
        with (
            build.loop(self.cut.high, self.unrolled) as i,
            build.loop(self.num_groups(acc), self.unrolled) as number,
            build.loop(group, AxisKind.VECTOR) as lane,
        ):
            place = add(self.place(acc, i, number), lane)
            factors = build.load(own, add(mul(i, self.lanes), k)), build.load(features, add(mul(number, group), lane))
            build.store(acc.memory, place, multiply_add(*factors, build.load(acc.memory, place)))
