"""Rows of matrices that a block of threads holds: the parts of an attention on a GPU.

In:    a Cut, matrices (..., positions, features)
Out:   `Panel`, `Accumulators`, `BlockRows`;  `walk`
Called by: codegen/gpu/thread_rows.py, codegen/gpu/warp_rows.py, codegen/gpu/attention.py, codegen/gpu/attention_grad.py.
Next: picograd/codegen/gpu/thread_rows.py

All that threads share lies in shared memory as (positions, features). Two products are made of it: scores, rows times the
positions of another panel, summed over features; and averages, weights of rows and positions times features. Results stay
in registers. Some neighbouring threads share a row, and join what they know of it by shuffles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import gcd

from picograd.codegen.builder import Builder, read
from picograd.codegen.gpu.fragments import Matrix
from picograd.codegen.gpu.matmul import operand_of
from picograd.codegen.gpu.staged import Staged
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.attention import Cut, padded
from picograd.ir.build import static_shape
from picograd.ir.coordinates import placeholders
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.symbolic import add, both, less, mod, mul
from picograd.record import Record, replace


class Panel:
    """Some positions of a matrix, with all their features, in shared memory; zeros where there are none.

    Args:
      rows:       of the block that shares it
      matrix:     (batch, heads, positions, features)
      count:      positions
      is_walked:  others follow them: what is copied in the background has a second stage, so that these are on their way

    stage:  the one that is read
    """

    def __init__(self, rows: BlockRows, matrix: Op, count: int, target: Target, is_walked: bool = False):
        self.rows, self.matrix, self.target = rows, matrix, target
        self.stage: Dim = 0
        cut, features = rows.cut, static_shape(matrix.shape[-1:])[0]
        self.width = padded(features)
        operand = operand_of(matrix, placeholders(matrix.shape[:2]), target)
        self.staged = Staged(
            rows.build, operand, cut.dtype, 0, count, self.width, features, cut.threads, True, cut.padding, rows.unrolled
        )
        self.is_copied = self.staged.copy_lanes > 0
        self.memory = self.staged.shared_memory(2 if self.is_copied and is_walked else 1)
        self.on_its_way = None if self.is_copied else self.staged.registers()

    def hold(self, head: Sequence[Dim], first: Dim) -> None:
        """Brings the positions of one head, from `first` on, that stay; whoever walks over others then has them."""
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
        """Reads positions into registers."""
        assert self.on_its_way is not None
        self._at(head, first).fetch(self.rows.thread, 0, self.on_its_way)

    def put(self) -> None:
        """Moves what was fetched into shared memory."""
        assert self.on_its_way is not None
        self.staged.put(self.rows.thread, 0, self.on_its_way, self.memory)

    def _at(self, head: Sequence[Dim], first: Dim) -> Staged:
        return replace(self.staged, operand=operand_of(self.matrix, head, self.target), first=first)

    @property
    def by_rows(self) -> Matrix:
        """What scores are made of: sums over features."""
        return Matrix(self.memory, lambda feature, position: self.index(position, feature), along_k=True)

    @property
    def by_columns(self) -> Matrix:
        """What averages are made of: sums over positions."""
        return Matrix(self.memory, self.index, along_k=False)

    def index(self, position: Dim, feature: Dim) -> Dim:
        """Returns where an element lies."""
        return self.staged.index(self.stage, feature, position)

    def read(self, position: Dim, feature: Dim) -> Op:
        return read(self.memory, self.index(position, feature))


class Accumulators(Record):
    """rows x width numbers in the registers of a block's threads.

    memory:  those of one thread
    group:   neighbours in a row that one thread has
    """

    memory: Op
    width: int
    group: int


class BlockRows(Record):
    """The rows of a block, one thread's view of them.

    dtype:     of accumulators
    thread:    of the block
    unrolled:  the kind of loops over registers
    """

    build: Builder
    cut: Cut
    dtype: DType
    thread: Dim
    unrolled: AxisKind

    # ---- how they are spread over the threads ----
    @abstractmethod
    def row(self, i: Dim) -> Dim:
        """Returns which row of the block a thread's i-th one is."""

    @abstractmethod
    def group_of(self, width: int, of_scores: bool) -> int:
        """Returns how many neighbours in a row of accumulators a thread has."""

    @abstractmethod
    def column(self, acc: Accumulators, number: Dim) -> Dim:
        """Returns the first column of a thread's group of that number."""

    @abstractmethod
    def place(self, acc: Accumulators, i: Dim, number: Dim) -> Dim:
        """Returns where a thread has the first element of a group of its i-th row."""

    # ---- products ----
    @abstractmethod
    def add_scores(self, acc: Accumulators, left: Panel, right: Panel) -> None:
        """Adds left right.T, over features."""

    @abstractmethod
    def add_averages(self, acc: Accumulators, weights: Accumulators, panel: Panel) -> None:
        """Adds weights panel, over the positions of the panel."""

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
        """Returns memory with a number of each of a thread's rows: value(i)."""
        memory = self.build.alloc(self.dtype, self.cut.own_rows, MemorySpace.REGISTER)
        self.each_row(lambda i: self.build.store(memory, i, value(i)))
        return memory

    def each_row(self, body: Callable[[Dim], None]) -> None:
        """Runs body(i) for a thread's rows."""
        with self.build.loop(self.cut.own_rows, self.unrolled) as i:
            body(i)

    def each(self, acc: Accumulators, body: Callable[[Dim, Dim, Dim], None]) -> None:
        """Runs body(i, column, place) for what a thread has of accumulators."""
        with (
            self.build.loop(self.cut.own_rows, self.unrolled) as i,
            self.build.loop(self.num_groups(acc), self.unrolled) as number,
            self.build.loop(acc.group, self.unrolled) as lane,
        ):
            body(i, add(self.column(acc, number), lane), add(self.place(acc, i, number), lane))

    def num_groups(self, acc: Accumulators) -> int:
        """Returns how many groups a thread has of a row."""
        return acc.width // self.cut.row_threads // acc.group

    def join(self, numbers: Op, code: OpCode) -> None:
        """Joins the numbers of the threads that share a row; each has the result."""
        with self.build.loop(self.cut.own_rows, self.unrolled) as i:
            value, distance = self.build.load(numbers, i), 1
            while distance < self.cut.row_threads:
                value = combined(code, value, self.build.shuffle(value, distance))
                distance *= 2
            self.build.store(numbers, i, value)

    # ---- what leaves them ----
    def is_first(self) -> Op | bool:
        """Returns whether a thread is the first of those that share its rows."""
        return less(mod(self.thread, self.cut.row_threads), 1)

    def store(
        self, acc: Accumulators, first: Dim, length: int, features: int, put: Callable[[Dim, Dim, Dim, Op], None]
    ) -> None:
        """Runs put(i, position, feature, value) for what is inside of a result, neighbours side by side.

        Args:
          first, length:  position of the first row, and how many positions there are
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


def walk(
    rows: BlockRows, panels: Sequence[Panel], head: Sequence[Dim], start: Dim, steps: Dim, look_at: Callable[[Dim], None]
) -> None:
    """Runs look_at(first position) for `steps` tiles of positions from `start` on, while the next one is on its way.

    Whoever walks over the same panels once more needs a barrier before.
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
            build.wait_for_copies(0)  # of what stays, too
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
        build.wait_for_copies(0)  # of tiles that nobody looks at, where there are none
