"""Rows of matrices held by a block of threads, the parts of an attention on a GPU.

Matrices in shared memory are (positions, features). There are two products: scores, rows times the positions of another
panel, summed over features; and averages, weights of rows and positions times features. Results stay in registers.
Neighbouring threads share a row, and combine their values of it by shuffles.

`ThreadRows`, by multiply-adds: sixteen threads share a row, and a thread has some rows. All reads of shared memory are 16
bytes, along features for scores, along positions for the weights of an average. Each thread needs a whole row of weights,
so they pass through shared memory.

`WarpRows`, by matrix instructions: a warp has 16 or 32 rows. Accumulators are in the order of ir/statements.py, Mma: a
thread has two rows of each 16, and two neighbours of each 8 columns; four threads share a row. The accumulators of two
neighbouring 16 x 8 tiles are element for element the left fragment of 16 x 16, so scores become the weights of an average
without leaving their registers. Source: Dao 2023, arXiv:2307.08691, section 3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import gcd

from picograd.codegen.block_product import Matrix, Staged, load_left, load_right
from picograd.codegen.builder import Builder, read
from picograd.codegen.matmul_gpu import operand_of
from picograd.device import Target
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.attention import ROW_THREADS, Cut, padded
from picograd.ir.build import cast, combined, multiply_add, static_shape
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import MMA_COLUMNS, MMA_DEPTH, MMA_ROWS
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul, placeholders
from picograd.record import Record, replace


# ---- rows of a block of threads ----
class Panel:
    """Some positions of a matrix, with all their features, in shared memory; zeros for missing ones.

    Args:
      rows:       the rows of the block
      matrix:     (batch, heads, positions, features)
      count:      number of positions
      is_walked:  other positions follow: background copies have a second stage, so that these are in flight meanwhile

    stage:  the stage that is read
    """

    def __init__(self, rows: BlockRows, matrix: Op, count: int, target: Target, is_walked: bool = False):
        self.rows, self.matrix, self.target = rows, matrix, target
        self.stage: Dim = 0
        cut, features = rows.cut, static_shape(matrix.shape[-1:])[0]
        self.width = padded(features)
        operand = operand_of(matrix, placeholders(matrix.shape[:2]), target)
        self.staged = Staged(
            rows.build, cut.dtype, self.width, features, cut.threads, rows.unrolled, operand, 0, count, True, cut.padding
        )
        self.is_copied = self.staged.copy_lanes > 0
        self.memory = self.staged.shared_memory(2 if self.is_copied and is_walked else 1)
        self.on_its_way = None if self.is_copied else self.staged.registers()

    def hold(self, head: Sequence[Dim], first: Dim) -> None:
        """Loads the positions of a head, from `first` on, which stay during a walk over another panel."""
        if self.is_copied:
            self.copy(head, first, 0)
            self.rows.build.commit_copies()
        else:
            self.fetch(head, first)
            self.put()

    def copy(self, head: Sequence[Dim], first: Dim, stage: Dim) -> None:
        """Starts to copy positions to a stage."""
        self._at(head, first).copy(self.rows.thread, 0, stage, self.memory)

    def fetch(self, head: Sequence[Dim], first: Dim) -> None:
        """Loads positions into registers."""
        assert self.on_its_way is not None
        self._at(head, first).fetch(self.rows.thread, 0, self.on_its_way)

    def put(self) -> None:
        """Stores the loaded elements to shared memory."""
        assert self.on_its_way is not None
        self.staged.put(self.rows.thread, 0, self.on_its_way, self.memory)

    def _at(self, head: Sequence[Dim], first: Dim) -> Staged:
        return replace(self.staged, operand=operand_of(self.matrix, head, self.target), first=first)

    @property
    def by_rows(self) -> Matrix:
        """The operand of scores, which are sums over features."""
        return Matrix(self.memory, lambda feature, position: self.index(position, feature), along_k=True)

    @property
    def by_columns(self) -> Matrix:
        """The operand of averages, which are sums over positions."""
        return Matrix(self.memory, self.index, along_k=False)

    def index(self, position: Dim, feature: Dim) -> Dim:
        """Returns the index of an element."""
        return self.staged.index(self.stage, feature, position)

    def read(self, position: Dim, feature: Dim) -> Op:
        return read(self.memory, self.index(position, feature))


class Accumulators(Record):
    """rows x width numbers in the registers of a block's threads.

    memory:  registers of one thread
    group:   neighbours in a row that belong to one thread
    """

    memory: Op
    width: int
    group: int


class BlockRows(Record):
    """The rows of a block, seen by one of its threads.

    dtype:     dtype of accumulators
    thread:    number of the thread in the block
    unrolled:  kind of loops over registers
    """

    build: Builder
    cut: Cut
    dtype: DType
    thread: Dim
    unrolled: AxisKind

    # ---- how they are spread over the threads ----
    @abstractmethod
    def row(self, i: Dim) -> Dim:
        """Returns the number within the block of a thread's i-th row."""

    @abstractmethod
    def group_of(self, width: int, of_scores: bool) -> int:
        """Returns the number of neighbours in a row of accumulators that belong to one thread."""

    @abstractmethod
    def column(self, acc: Accumulators, number: Dim) -> Dim:
        """Returns the first column of a thread's n-th group."""

    @abstractmethod
    def place(self, acc: Accumulators, i: Dim, number: Dim) -> Dim:
        """Returns the index of the first element of a group in a thread's i-th row."""

    # ---- products ----
    @abstractmethod
    def add_scores(self, acc: Accumulators, left: Panel, right: Panel) -> None:
        """Adds left right.T, over features."""

    @abstractmethod
    def add_averages(self, acc: Accumulators, weights: Accumulators, panel: Panel) -> None:
        """Adds weights times panel, over the positions of the panel."""

    def scores(self, left: Panel, right: Panel) -> Accumulators:
        """Returns left right.T, over features."""
        acc = self.zeros(self.cut.columns, of_scores=True)
        self.add_scores(acc, left, right)
        return acc

    # ---- numbers in registers ----
    def zeros(self, width: int, of_scores: bool = False) -> Accumulators:
        length = self.cut.own_rows * width // self.cut.row_threads
        memory = self.build.alloc(self.dtype, length, MemorySpace.REGISTER)
        with self.build.loop(length, self.unrolled) as place:
            self.build.store(memory, place, const(0, self.dtype))
        return Accumulators(memory, width, self.group_of(width, of_scores))

    def of_rows(self, value: Callable[[Dim], Op]) -> Op:
        """Allocates a number for each of a thread's rows, with the value value(i)."""
        memory = self.build.alloc(self.dtype, self.cut.own_rows, MemorySpace.REGISTER)
        self.each_row(lambda i: self.build.store(memory, i, value(i)))
        return memory

    def each_row(self, body: Callable[[Dim], None]) -> None:
        """Runs body(i) for each of a thread's rows."""
        with self.build.loop(self.cut.own_rows, self.unrolled) as i:
            body(i)

    def each(self, acc: Accumulators, body: Callable[[Dim, Dim, Dim], None]) -> None:
        """Runs body(i, column, index) for a thread's accumulators."""
        with (
            self.build.loop(self.cut.own_rows, self.unrolled) as i,
            self.build.loop(self.num_groups(acc), self.unrolled) as number,
            self.build.loop(acc.group, self.unrolled) as lane,
        ):
            body(i, add(self.column(acc, number), lane), add(self.place(acc, i, number), lane))

    def num_groups(self, acc: Accumulators) -> int:
        """Returns the number of a thread's groups in a row."""
        return acc.width // self.cut.row_threads // acc.group

    def join(self, numbers: Op, code: OpCode) -> None:
        """Combines the values of the threads that share a row; all of them get the result."""
        with self.build.loop(self.cut.own_rows, self.unrolled) as i:
            value = over_threads(self.build, code, self.build.load(numbers, i), 1, self.cut.row_threads)
            self.build.store(numbers, i, value)

    # ---- what leaves them ----
    def is_first(self) -> Op | bool:
        """Returns whether a thread is the first of those that share its rows."""
        return less(mod(self.thread, self.cut.row_threads), 1)

    def store(
        self, acc: Accumulators, first: Dim, length: int, features: int, put: Callable[[Dim, Dim, Dim, Op], None]
    ) -> None:
        """Runs put(i, position, feature, value) for the elements inside the result, in vectors along features.

        Args:
          first, length:  position of the first row, and number of positions
        """
        lanes = gcd(acc.group, features)
        with (
            self.build.loop(self.cut.own_rows, self.unrolled) as i,
            self.build.loop(self.num_groups(acc), self.unrolled) as number,
            self.build.loop(acc.group // lanes, self.unrolled) as part,
        ):
            position, feature = add(first, self.row(i)), add(self.column(acc, number), mul(part, lanes))
            place = add(self.place(acc, i, number), mul(part, lanes))
            inside = both(less(position, length), less(feature, features))
            with self.build.when(inside), self.build.loop(lanes, AxisKind.VECTOR) as lane:
                put(i, position, add(feature, lane), self.build.load(acc.memory, add(place, lane)))


def over_threads(build: Builder, code: OpCode, value: Op, distance: int, count: int) -> Op:
    """Returns the values of `count` threads, combined by shuffles over `distance`, twice, four times it, ..."""
    while distance < count:
        value = combined(code, value, build.shuffle(value, distance))
        distance *= 2
    return value


def walk(
    rows: BlockRows, panels: Sequence[Panel], head: Sequence[Dim], start: Dim, steps: Dim, look_at: Callable[[Dim], None]
) -> None:
    """Runs look_at(first position) for `steps` tiles of positions from `start` on, while the next tile is loaded.

    Before another walk over the same panels the caller needs a barrier.
    """
    build, may_copy = rows.build, panels[0].target.has_async_copies
    copied, by_registers = ([panel for panel in panels if panel.is_copied is kind] for kind in (True, False))
    for panel in copied:
        panel.copy(head, start, 0)
    for panel in by_registers:
        panel.fetch(head, start)
    if copied:
        build.commit_copies()
    with build.loop(steps, AxisKind.LOOP) as step:
        first = add(start, mul(step, rows.cut.columns))
        after, later = add(first, rows.cut.columns), add(step, 1)
        if may_copy:
            build.wait_for_copies(0)  # also for the kept rows
        build.barrier()
        if by_registers:
            for panel in by_registers:
                panel.put()
            build.barrier()
        if steps != 1:
            with build.when(less(later, steps)):
                for panel in copied:
                    panel.copy(head, after, mod(later, 2))
            if copied:
                build.commit_copies()
            for panel in by_registers:
                panel.fetch(head, after)
        for panel in copied:
            panel.stage = mod(step, 2)
        look_at(first)
    if may_copy and not isinstance(steps, int):
        build.wait_for_copies(0)  # also for tiles that are not used


# ---- by multiply-adds ----
class ThreadRows(BlockRows, dict=True):
    """The rows of a block, by multiply-adds."""

    def row(self, i: Dim) -> Dim:
        return add(mul(floordiv(self.thread, ROW_THREADS), self.cut.high), i)

    def group_of(self, width: int, of_scores: bool) -> int:
        """Returns 1 for scores, so that keys are in different banks; else the features that a thread reads at once."""
        return 1 if of_scores else gcd(width // ROW_THREADS, self.lanes)

    def column(self, acc: Accumulators, number: Dim) -> Dim:
        return mul(add(mul(number, ROW_THREADS), mod(self.thread, ROW_THREADS)), acc.group)

    def place(self, acc: Accumulators, i: Dim, number: Dim) -> Dim:
        return add(mul(i, acc.width // ROW_THREADS), mul(number, acc.group))

    @property
    def lanes(self) -> int:
        """Elements per access of shared memory."""
        return 16 // self.dtype.itemsize

    @cached_property
    def weights(self) -> Op:
        """Allocates shared memory of a weight per row and position."""
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
        self.each(weights, lambda i, c, at: build.store(memory, of_weight(self.row(i), c), build.load(weights.memory, at)))
        build.barrier()
        own = build.alloc(self.dtype, self.cut.high * lanes, MemorySpace.REGISTER)
        with build.loop(self.cut.columns // lanes, AxisKind.LOOP) as step:
            position = mul(step, lanes)
            with build.loop(self.cut.high, self.unrolled) as i, build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(own, add(mul(i, lanes), lane), read(memory, of_weight(self.row(i), add(position, lane))))
            with build.loop(lanes, self.unrolled) as k:
                self._add_position(acc, own, k, panel, add(position, k))

    def _add_position(self, acc: Accumulators, own: Op, k: Dim, panel: Panel, position: Dim) -> None:
        """Adds a position's features, each times the k-th weight of each of a thread's rows."""
        build, group = self.build, acc.group
        features = build.alloc(self.dtype, acc.width // ROW_THREADS, MemorySpace.REGISTER)
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


# ---- by matrix instructions ----
class WarpRows(BlockRows):
    """The rows of a block, by matrix instructions."""

    @property
    def first_row(self) -> Dim:
        """The first row of a thread's warp."""
        return mul(floordiv(self.thread, WARP_THREADS), self.cut.high * MMA_ROWS)

    @property
    def g_and_t(self) -> tuple[Dim, Dim]:
        """The numbers g and t of a thread in its warp (ir/statements.py, Mma)."""
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
        """Returns the index of a thread's four elements of a 16 x 8 tile."""
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
        """Returns weights as left fragments, which are in the same order."""
        build, length = self.build, weights.width // 2 * self.cut.high
        lhs = build.alloc(self.cut.dtype, length, MemorySpace.REGISTER)
        with build.loop(length, self.unrolled) as i:
            build.store(lhs, i, cast(build.load(weights.memory, i), self.cut.dtype))
        return lhs

    def _multiply(self, acc: Accumulators, pair: Dim, lhs: Op, left: Dim, apart: int, rhs: Op) -> None:
        """Adds products by two right fragments to each row tile; left fragments are `apart` elements apart."""
        with self.build.loop(self.cut.high, self.unrolled) as tile, self.build.loop(2, self.unrolled) as i:
            at = self._tile(acc, tile, add(mul(pair, 2), i))
            self.build.mma(acc.memory, at, lhs, add(mul(tile, apart), left), rhs, mul(i, 4))
