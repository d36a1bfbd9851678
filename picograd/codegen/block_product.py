"""A matrix product of one block of threads on a GPU: tiles of both operands pass through shared memory.

Staging: all threads of the block bring elements of an operand, each some accesses of up to 16 bytes, coalesced. Elements
that memory has as they are needed are copied in the background, where a target can; elements that are computed, or must
be transposed and are too narrow for copies, wait in registers.

Stages: shared memory holds some stages of K. The copies of all stages but one are under way while that one is multiplied;
computed elements are one stage ahead. A product is then by multiply-adds or by matrix instructions:

Multiply-adds: both tiles are (K, positions) in shared memory, so that a thread reads four of its rows, or columns, at a
time; its rows are groups of four, and all threads together have every group once. A warp is 8 threads wide and 4 high: it
reads few lines, and no two from one bank. Each element of shared memory serves a row or column of threads, each element
in a register as many multiply-adds as the tile of a thread has columns or rows.

Matrix instructions, of 16 bits, or of float32 as TF32: a tile is (positions, K) or (K, positions) in shared memory, as
its operand is in memory, and fragments are transposed on their way to registers. A warp loads four matrices of 8 x 8
elements of 16 bits by one instruction: each thread says where one of their rows begins. Elements of float32 are read one
by one. Rows are padded so that a warp reads from different banks at once: eight rows of 16 bytes, or of float32 the
elements of threads (g, t) at (g, 2 t) and (g, 2 t + 1), or at (2 t, g) where rows are those of K. A warp has a tile of
the result in the registers of its threads, 16 x 8 at a time; a fragment serves a row, or a column, of those.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from picograd.codegen.builder import Builder, read
from picograd.codegen.loops import over_registers
from picograd.device import Target
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.build import cast, multiply_add
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, BlockTile, WarpTile
from picograd.ir.ranges import divisor_of
from picograd.ir.statements import COPY_BYTES, MATRIX_ROW, WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul, placeholder
from picograd.record import Record

# ---- staging an operand in shared memory ----
ANYWHERE = 1 << 31  # positions, and places in K, at which an address is examined: beyond the operand's, too


class Operand(Record):
    """One operand of the product.

    extent:   its rows (of the left one) or columns
    at:       (position, k, where there is one) -> the element; 0 outside
    along_k:  its elements are read along K, not along positions
    lanes:    of one access; they divide the extent they run along
    copied:   in the background, where elements are in memory as they are
    """

    extent: Dim
    at: Callable[[Dim, Dim, Op | bool], Op]
    along_k: bool
    lanes: int
    copied: bool = False


class Staged(Record, dict=True):
    """A tile of an operand in shared memory, some stages of it.

    first:        position of the tile
    width, depth: positions, and K, of the tile
    k:            length of the product
    threads:      of the block
    by_position:  elements of one position are contiguous, else those of one k
    padding:      elements between the rows of shared memory, so that a column of it is not all in one bank
    unrolled:     the kind of loops over registers
    """

    build: Builder
    operand: Operand
    dtype: DType
    first: Dim
    width: int
    depth: int
    k: Dim
    threads: int
    by_position: bool
    padding: int
    unrolled: AxisKind

    def shared_memory(self, stages: int = 1) -> Op:
        """Makes the shared memory of some stages."""
        return self.build.alloc(self.dtype, stages * self.stage_nbytes // self.dtype.itemsize, MemorySpace.SHARED)

    @property
    def stage_nbytes(self) -> int:
        """Bytes of a stage."""
        rows, row = (self.width, self.depth) if self.by_position else (self.depth, self.width)
        return rows * (row + self.padding) * self.dtype.itemsize

    def registers(self) -> Op:
        """Makes the registers in which elements wait."""
        return self.build.alloc(self.dtype, self.own(self.lanes) * self.lanes, MemorySpace.REGISTER)

    @property
    def num_steps(self) -> Dim:
        """Tiles along K."""
        return floordiv(add(self.k, self.depth - 1), self.depth)

    @property
    def lanes(self) -> int:
        return gcd(self.operand.lanes, self.depth if self.operand.along_k else self.width)

    @cached_property
    def copy_lanes(self) -> int:
        """Elements of a copy in the background; 0 where they go by way of registers.

        They are contiguous on both sides, from a multiple of their number on; a transposed element goes alone. So do those
        that do not exist: an address is a multiple whether it is read or not, as the instruction asks for.
        """
        if not self.operand.copied:
            return 0
        along_k = self.operand.along_k
        lanes = gcd(self.lanes, self.padding) if along_k == self.by_position else 1
        steps = (1, lanes) if along_k else (lanes, 1)
        position, k = (mul(placeholder(axis, ANYWHERE), step) for axis, step in zip((2, 3), steps))
        value = self.operand.at(add(self.first, position), k, True)
        if value.code is not OpCode.LOAD or value.src[0].code is not OpCode.PARAM or value.dtype is not self.dtype:
            return 0
        lanes = gcd(lanes, divisor_of(value.src[1], {}))
        return lanes if lanes * self.dtype.itemsize in COPY_BYTES else 0

    def own(self, lanes: int) -> int:
        """Returns the accesses of a thread, at most."""
        return -(-self.width * self.depth // lanes // self.threads)

    def index(self, stage: Dim, k: Dim, position: Dim) -> Dim:
        """Returns the place of an element in shared memory."""
        rows, row, at, column = self.width, self.depth, position, k
        if not self.by_position:
            rows, row, at, column = self.depth, self.width, k, position
        return add(mul(add(mul(stage, rows), at), row + self.padding), column)

    def fetch(self, thread: Dim, first_k: Dim, registers: Op) -> None:
        """Reads the elements of a step into registers; where there are none it stores 0."""

        def one(place: Dim, position: Dim, k: Dim, lane: Dim) -> None:
            inside, position, k = self._at(first_k, position, k)
            position, k = self._lane(position, k, lane)
            self.build.store(registers, add(place, lane), cast(self.operand.at(position, k, inside), self.dtype))

        self._each_lane(thread, one)

    def copy(self, thread: Dim, first_k: Dim, stage: Dim, memory: Op) -> None:
        """Starts to copy the elements of a step to a stage of shared memory, zeros where there are none."""

        def one(place: Dim, position: Dim, k: Dim) -> None:
            to = self.index(stage, k, position)
            inside, position, k = self._at(first_k, position, k)
            value = self.operand.at(position, k, inside)
            if value.code is OpCode.LOAD:
                self.build.copy_async(memory, to, value, self.copy_lanes)
                return
            with self.build.loop(self.copy_lanes, AxisKind.VECTOR) as lane:  # the 0 of an element that does not exist
                self.build.store(memory, add(to, lane), value)

        self._each(thread, self.copy_lanes, one)

    def put(self, thread: Dim, stage: Dim, registers: Op, memory: Op) -> None:
        """Moves what was fetched into a stage of shared memory."""

        def one(place: Dim, position: Dim, k: Dim, lane: Dim) -> None:
            position, k = self._lane(position, k, lane)
            value = self.build.load(registers, add(place, lane))
            self.build.store(memory, self.index(stage, k, position), value)

        self._each_lane(thread, one)

    def _at(self, first_k: Dim, position: Dim, k: Dim) -> tuple[Op | bool, Dim, Dim]:
        """Returns whether an element is in the operand, and where: if the first lane is, all are."""
        position, k = add(self.first, position), add(first_k, k)
        return both(less(position, self.operand.extent), less(k, self.k)), position, k

    def _lane(self, position: Dim, k: Dim, lane: Dim) -> tuple[Dim, Dim]:
        """Returns where a lane is, given the first."""
        return (position, add(k, lane)) if self.operand.along_k else (add(position, lane), k)

    def _each_lane(self, thread: Dim, body: Callable[[Dim, Dim, Dim, Dim], None]) -> None:
        """Runs body(place in the registers, position, k, lane) for what a thread brings: of the first lane, and which."""

        def lanes(place: Dim, position: Dim, k: Dim) -> None:
            with self.build.loop(self.lanes, AxisKind.VECTOR) as lane:
                body(place, position, k, lane)

        self._each(thread, self.lanes, lanes)

    def _each(self, thread: Dim, lanes: int, body: Callable[[Dim, Dim, Dim], None]) -> None:
        """Runs body(place in the registers, position, k) for the accesses of a thread."""
        build, num_accesses = self.build, self.width * self.depth // lanes
        with build.loop(self.own(lanes), self.unrolled) as number:
            access = add(mul(number, self.threads), thread)
            with build.when(less(access, num_accesses)):
                if self.operand.along_k:
                    steps = self.depth // lanes
                    position, k = floordiv(access, steps), mul(mod(access, steps), lanes)
                else:
                    groups = self.width // lanes
                    position, k = mul(mod(access, groups), lanes), floordiv(access, groups)
                body(mul(number, lanes), position, k)


# ---- stages of K ----
Store = Callable[[Dim, Dim, Op], None]  # (row, column, value)


class StagedProduct(Record):
    """The product of one block.

    dtype:         of the operands in shared memory
    sum_dtype:     accumulated in
    k:             its length
    left, right:   the operands
    store_lanes:   columns that are stored at once; they divide the right operand's extent
    """

    build: Builder
    target: Target
    dtype: DType
    sum_dtype: DType
    k: Dim
    left: Operand
    right: Operand
    store_lanes: int

    @property
    @abstractmethod
    def cut(self) -> BlockTile | WarpTile:
        """Rows, columns and K of the block, and its threads."""

    @property
    @abstractmethod
    def num_sums(self) -> int:
        """Accumulators of a thread."""

    @property
    @abstractmethod
    def most_stages(self) -> int:
        """Stages of shared memory that are worth having."""

    @abstractmethod
    def staged(self, operand: Operand, width: int, first: Dim) -> Staged:
        """Returns the tile of an operand."""

    @abstractmethod
    def multiply(self, thread: Dim, stage: Dim, sides: Sequence[Staged], memories: Sequence[Op], acc: Op) -> None:
        """Adds the products of one stage of shared memory."""

    @abstractmethod
    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Writes what a thread has, where it is inside the result."""

    @property
    def unrolled(self) -> AxisKind:
        """The kind of loops over registers."""
        return over_registers(self.target)

    def emit(self, first_row: Dim, first_column: Dim, store: Store) -> None:
        """Writes the block whose result begins at (first_row, first_column)."""
        build, cut = self.build, self.cut
        sides = self.staged(self.left, cut.rows, first_row), self.staged(self.right, cut.columns, first_column)
        stages = num_stages(sides, self.most_stages, self.target)
        memories = [side.shared_memory(stages) for side in sides]
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            acc = build.alloc(self.sum_dtype, self.num_sums, MemorySpace.REGISTER)
            with build.loop(self.num_sums, self.unrolled) as place:
                build.store(acc, place, const(0, self.sum_dtype))
            pipeline(
                build, sides, memories, stages, thread,
                lambda stage: self.multiply(thread, stage, sides, memories, acc),
            )  # fmt: skip
            self.store(thread, first_row, first_column, acc, store)


def num_stages(sides: Sequence[Staged], most: int, target: Target) -> int:
    """Returns how many stages of K shared memory gets: as many as it holds, at most `most`, at most all of K.

    Two are enough where nothing is copied in the background.
    """
    if sides[0].num_steps == 1:
        return 1
    most = most if all(side.copy_lanes for side in sides) else 2
    fit = target.shared_bytes // sum(side.stage_nbytes for side in sides)
    steps = sides[0].num_steps
    return max(2, min(most, fit, steps if isinstance(steps, int) else most))


def pipeline(
    build: Builder, sides: Sequence[Staged], memories: Sequence[Op], stages: int, thread: Dim,
    multiply: Callable[[Dim], None],
) -> None:  # fmt: skip
    """Walks K: while multiply(stage) works on one stage of shared memory, elements for the others are on their way.

    Args:
      memories: shared memory of each side
    """
    depth, steps, ahead = sides[0].depth, sides[0].num_steps, max(1, stages - 1)
    copied = [(side, memory) for side, memory in zip(sides, memories) if side.copy_lanes]
    by_registers = [(side, side.registers(), memory) for side, memory in zip(sides, memories) if not side.copy_lanes]

    def wait() -> None:
        if copied:
            build.wait_for_copies(ahead - 1)
        build.barrier()

    for stage in range(ahead if copied else 0):
        for side, memory in copied:
            side.copy(thread, mul(stage, depth), stage, memory)
        build.commit_copies()
    for side, registers, _ in by_registers:
        side.fetch(thread, 0, registers)
    for side, registers, memory in by_registers:
        side.put(thread, 0, registers, memory)
    wait()
    if stages == 1:  # nothing more is on its way
        multiply(0)
        return
    with build.loop(steps, AxisKind.LOOP) as step:
        if copied:
            later = add(step, ahead)
            with build.when(less(later, steps)):
                for side, memory in copied:
                    side.copy(thread, mul(later, depth), mod(later, stages), memory)
            build.commit_copies()
        after = add(step, 1)
        for side, registers, _ in by_registers:
            side.fetch(thread, mul(after, depth), registers)
        multiply(mod(step, stages))
        for side, registers, memory in by_registers:
            side.put(thread, mod(after, stages), registers, memory)
        wait()


# ---- multiply-adds ----
PADDING_ELEMENTS = 4  # elements: what a thread reads at once
WARP_WIDE = 8
ADDS_STAGES_MAX = 3  # not measured: a step of multiply-adds takes longer than what it needs is on its way


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
        return ADDS_STAGES_MAX

    def staged(self, operand: Operand, width: int, first: Dim) -> Staged:
        depth, threads = self.tile.depth, self.tile.threads
        k, padding = self.k, PADDING_ELEMENTS
        return Staged(self.build, operand, self.dtype, first, width, depth, k, threads, False, padding, self.unrolled)

    def place(self, thread: Dim) -> tuple[Dim, Dim]:
        """Returns the row and column of a thread in the tile's high x wide: warps are 8 wide where possible."""
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
        """Writes the tile of a thread, some columns of a group at a time."""
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


# ---- fragments of matrix instructions ----
class Matrix(Record):
    """A matrix in shared memory, of positions and K.

    index:    (k, position) -> place of the element
    along_k:  elements along K are contiguous, else positions are
    """

    memory: Op
    index: Callable[[Dim, Dim], Dim]
    along_k: bool


def load_left(build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim) -> None:
    """Brings a thread's 8 elements of positions x K, 16 x 16, that begin at (position, k).

    The matrices are, in this order, the upper and the lower half of the first 8 of K, and those of the others.
    """
    _load(build, into, place, matrix, thread, position, k, 1)


def load_right(build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim) -> None:
    """Brings a thread's 4 elements of K x positions, 16 x 8, twice: of the 8 positions from `position` on, then the next 8.

    The matrices are, in this order, the halves of K of the first 8 positions, and those of the others.
    """
    _load(build, into, place, matrix, thread, position, k, 2)


def _load(
    build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim, position_bit: int
) -> None:
    """Brings four matrices; of the bits of their number, 1 and 2, one tells halves of positions, the other halves of K."""
    lane = mod(thread, WARP_THREADS)
    if matrix.memory.dtype.itemsize == 4:
        _load_elements(build, into, place, matrix, lane, position, k, position_bit)
        return
    number, row = floordiv(lane, MATRIX_ROW), mod(lane, MATRIX_ROW)
    of_position, of_k = (mul(mod(floordiv(number, bit), 2), MATRIX_ROW) for bit in (position_bit, 3 - position_bit))
    if matrix.along_k:
        of_position = add(of_position, row)
    else:
        of_k = add(of_k, row)
    index = matrix.index(add(k, of_k), add(position, of_position))
    build.load_matrices(into, place, matrix.memory, index, turned=not matrix.along_k)


def _load_elements(
    build: Builder, into: Op, place: Dim, matrix: Matrix, lane: Dim, position: Dim, k: Dim, position_bit: int
) -> None:
    """Brings a thread's two neighbours along K of each of the four matrices."""
    g, t = floordiv(lane, 4), mod(lane, 4)
    for number in range(4):
        of_position, of_k = (MATRIX_ROW * (number // bit % 2) for bit in (position_bit, 3 - position_bit))
        row, first = add(position, add(g, of_position)), add(k, add(mul(t, 2), of_k))
        with build.loop(2, AxisKind.VECTOR if matrix.along_k else AxisKind.UNROLL) as i:
            value = read(matrix.memory, matrix.index(add(first, i), row))
            build.store(into, add(add(place, 2 * number), i), value)


# ---- matrix instructions ----
PADDING_BYTES = 16  # bytes
MATRIX_STAGES_MAX = 4  # not measured: a step takes some hundred cycles, what it needs is on its way for more than that


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
        return MATRIX_STAGES_MAX

    def staged(self, operand: Operand, width: int, first: Dim) -> Staged:
        """Returns the tile of an operand, in the same order in shared memory as in its own memory."""
        depth, threads, by_position = self.tile.depth, self.tile.threads, operand.along_k
        padding = PADDING_BYTES // self.dtype.itemsize * (2 if by_position and self.dtype.itemsize == 4 else 1)
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
