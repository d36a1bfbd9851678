"""A product of one block of threads: tiles of both operands pass through shared memory while others are multiplied.

In:    two operands (codegen/gpu/staged.py), a tile
Out:   `StagedProduct`, what products by multiply-adds and by matrix instructions have in common; `num_stages`, `pipeline`
Called by: codegen/gpu/block_product.py, codegen/gpu/tensor_product.py.    Next: picograd/codegen/gpu/block_product.py

Shared memory holds some stages of K. Where threads copy in the background, the copies of all stages but one are on their
way while that one is multiplied; elements that have to be computed wait in registers, one stage ahead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder
from picograd.codegen.gpu.staged import Operand, Staged
from picograd.codegen.loops import over_registers
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import BlockTile, WarpTile
from picograd.ir.symbolic import add, less, mod, mul
from picograd.record import Record

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
    """Returns how many stages of K lie in shared memory: at most so many, no more than there are, nor than it holds.

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
