"""A matrix product of one block on a GPU: tiles of both operands in shared memory, a small tile of the result per thread.

In:    elements of two operands, a BlockTile
Out:   statements in the free form
Called by: codegen/matmul_gpu.py, codegen/convolution_gpu.py.    Next: picograd/codegen/convolution_gpu.py

    for each step of K:   while this step's tiles are multiplied, the next step's elements come into registers;
                          then they go into the other half of shared memory, and all threads wait for each other

Both tiles lie in shared memory as (K, positions), so that a thread reads four of its rows, or columns, at a time; its rows
are groups of four, apart by what all threads have of such groups, and a warp is 8 threads wide and 4 high: what it reads
is few lines, without two in one bank. Each element of shared memory serves a row or column of threads, each element in a
register as many multiply-adds as the tile of a thread has columns or rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from picograd.codegen.builder import Builder, read
from picograd.codegen.tile import multiply_add
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import BlockTile
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul

PADDING = 4  # elements between rows of shared memory, so that a column of it is not all in one bank
WARP_WIDE = 8


@dataclass(frozen=True)
class Operand:
    """One operand of the product.

    extent:   its rows (of the left one) or columns
    at:       (position, k, where there is one) -> the element; 0 outside
    along_k:  its elements are read along K, not along positions
    lanes:    of one access; they divide the extent they run along
    """

    extent: Dim
    at: Callable[[Dim, Dim, Op | bool], Op]
    along_k: bool
    lanes: int


Store = Callable[[Dim, Dim, Op], None]  # (row, column, value)


@dataclass(frozen=True)
class BlockProduct:
    """The product of one block.

    dtype:         accumulated in
    k:             its length
    left, right:   the operands
    store_lanes:   columns that are stored at once; they divide the right operand's extent
    """

    build: Builder
    tile: BlockTile
    dtype: DType
    k: Dim
    left: Operand
    right: Operand
    store_lanes: int

    def emit(self, first_row: Dim, first_column: Dim, store: Store) -> None:
        """Writes the block whose result begins at (first_row, first_column)."""
        build, tile, depth = self.build, self.tile, self.tile.depth
        left = _Staged(self, self.left, tile.rows, first_row)
        right = _Staged(self, self.right, tile.columns, first_column)
        with build.loop(tile.threads, AxisKind.BLOCK) as thread:
            acc = build.alloc(self.dtype, tile.own_rows * tile.own_columns, MemorySpace.REGISTER)
            with build.loop(tile.own_rows * tile.own_columns, AxisKind.LOOP) as place:
                build.store(acc, place, const(0, self.dtype))
            sides = [(side, side.registers()) for side in (left, right)]
            for side, registers in sides:
                side.fetch(thread, 0, registers)
            for side, registers in sides:
                side.put(thread, 0, registers)
            build.barrier()
            with build.loop(floordiv(add(self.k, depth - 1), depth), AxisKind.LOOP) as step:
                after = add(step, 1)
                for side, registers in sides:
                    side.fetch(thread, mul(after, depth), registers)
                self.multiply(thread, mod(step, 2), left, right, acc)
                for side, registers in sides:
                    side.put(thread, mod(after, 2), registers)
                build.barrier()
            self.store(thread, first_row, first_column, acc, store)

    def place(self, thread: Dim) -> tuple[Dim, Dim]:
        """Returns where a thread stands among the tile's high x wide: warps are 8 wide where that goes."""
        tile = self.tile
        if tile.wide % WARP_WIDE or tile.high % (WARP_THREADS // WARP_WIDE):
            return floordiv(thread, tile.wide), mod(thread, tile.wide)
        warp, lane = floordiv(thread, WARP_THREADS), mod(thread, WARP_THREADS)
        warps = tile.wide // WARP_WIDE
        y = add(mul(floordiv(warp, warps), WARP_THREADS // WARP_WIDE), floordiv(lane, WARP_WIDE))
        return y, add(mul(mod(warp, warps), WARP_WIDE), mod(lane, WARP_WIDE))

    def multiply(self, thread: Dim, half: Dim, left: _Staged, right: _Staged, acc: Op) -> None:
        """Adds the products of one half of shared memory."""
        build, tile = self.build, self.tile
        y, x = self.place(thread)
        rows = build.alloc(self.dtype, tile.own_rows, MemorySpace.REGISTER)
        columns = build.alloc(self.dtype, tile.own_columns, MemorySpace.REGISTER)
        sides = (
            (left, rows, tile.own_rows, tile.row_group, tile.high, y),
            (right, columns, tile.own_columns, tile.column_group, tile.wide, x),
        )
        with build.loop(tile.depth, AxisKind.LOOP) as k:
            for side, own, count, size, apart, first in sides:
                with (
                    build.loop(count // size, AxisKind.LOOP) as group,
                    build.loop(size, AxisKind.VECTOR) as lane,
                ):
                    place = add(mul(add(mul(group, apart), first), size), lane)
                    build.store(own, add(mul(group, size), lane), read(side.memory, side.index(half, k, place)))
            with (
                build.loop(tile.own_rows, AxisKind.LOOP) as i,
                build.loop(tile.own_columns // tile.column_group, AxisKind.LOOP) as group,
                build.loop(tile.column_group, AxisKind.VECTOR) as lane,
            ):
                column = add(mul(group, tile.column_group), lane)
                where = add(mul(i, tile.own_columns), column)
                product = multiply_add(build.load(rows, i), build.load(columns, column), build.load(acc, where))
                build.store(acc, where, product)

    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Writes what a thread has, where it is inside the result."""
        build, tile = self.build, self.tile
        y, x = self.place(thread)
        lanes = gcd(self.store_lanes, tile.column_group)
        parts = tile.own_columns // lanes
        with build.loop(tile.own_rows, AxisKind.LOOP) as i, build.loop(parts, AxisKind.LOOP) as part:
            number = mul(part, lanes)
            group, rest = floordiv(number, tile.column_group), mod(number, tile.column_group)
            row_group, row_rest = floordiv(i, tile.row_group), mod(i, tile.row_group)
            row = add(first_row, add(mul(add(mul(row_group, tile.high), y), tile.row_group), row_rest))
            column = add(first_column, add(mul(add(mul(group, tile.wide), x), tile.column_group), rest))
            inside = both(less(row, self.left.extent), less(column, self.right.extent))
            with build.when(inside), build.loop(lanes, AxisKind.VECTOR) as lane:
                store(row, add(column, lane), build.load(acc, add(mul(i, tile.own_columns), add(number, lane))))


class _Staged:
    """An operand on its way: from memory into registers, from there into one of two halves of shared memory.

    width:  positions of a tile
    """

    def __init__(self, product: BlockProduct, operand: Operand, width: int, first: Dim):
        self.product, self.operand, self.width, self.first = product, operand, width, first
        length = 2 * product.tile.depth * self.stride
        self.memory = product.build.alloc(product.dtype, length, MemorySpace.SHARED)

    @property
    def stride(self) -> int:
        return self.width + PADDING

    @cached_property
    def lanes(self) -> int:
        along = self.product.tile.depth if self.operand.along_k else self.width
        return gcd(self.operand.lanes, along)

    @cached_property
    def num_accesses(self) -> int:
        """Accesses of all threads that fill a tile."""
        return self.width * self.product.tile.depth // self.lanes

    @property
    def own(self) -> int:
        """Accesses of a thread, at most."""
        return -(-self.num_accesses // self.product.tile.threads)

    def registers(self) -> Op:
        return self.product.build.alloc(self.product.dtype, self.own * self.lanes, MemorySpace.REGISTER)

    def index(self, half: Dim, k: Dim, position: Dim) -> Dim:
        """Returns where an element lies in shared memory."""
        return add(mul(add(mul(half, self.product.tile.depth), k), self.stride), position)

    def each(self, thread: Dim, body: Callable[[Dim, Dim, Dim, Dim], None]) -> None:
        """Runs body(place in the registers, position, k, lane) for what a thread brings: of the first lane, and which."""
        build, lanes = self.product.build, self.lanes
        with build.loop(self.own, AxisKind.LOOP) as number:
            access = add(mul(number, self.product.tile.threads), thread)
            with build.when(less(access, self.num_accesses)):
                if self.operand.along_k:
                    steps = self.product.tile.depth // lanes
                    position, k = floordiv(access, steps), mul(mod(access, steps), lanes)
                else:
                    groups = self.width // lanes
                    position, k = mul(mod(access, groups), lanes), floordiv(access, groups)
                with build.loop(lanes, AxisKind.VECTOR) as lane:
                    body(mul(number, lanes), position, k, lane)

    def fetch(self, thread: Dim, first_k: Dim, registers: Op) -> None:
        """Reads the elements of a step; where there are none it stores 0."""
        product, operand = self.product, self.operand

        def one(place: Dim, position: Dim, k: Dim, lane: Dim) -> None:
            position, k = add(self.first, position), add(first_k, k)
            inside = both(less(position, operand.extent), less(k, product.k))  # if the first lane is, all are
            position, k = (position, add(k, lane)) if operand.along_k else (add(position, lane), k)
            product.build.store(registers, add(place, lane), cast(operand.at(position, k, inside), product.dtype))

        self.each(thread, one)

    def put(self, thread: Dim, half: Dim, registers: Op) -> None:
        """Moves what was fetched into a half of shared memory."""
        build = self.product.build

        def one(place: Dim, position: Dim, k: Dim, lane: Dim) -> None:
            position, k = (position, add(k, lane)) if self.operand.along_k else (add(position, lane), k)
            build.store(self.memory, self.index(half, k, position), build.load(registers, add(place, lane)))

        self.each(thread, one)
