"""An operand of a block's product on its way: from memory into registers, from there into one half of shared memory.

In:    elements of an operand, the tile of it that a block needs at a step of K
Out:   `Operand`; `Staged`
Called by: codegen/block_product.py, codegen/tensor_product.py, codegen/block_rows.py.
Next: picograd/codegen/block_product.py

All threads of the block bring elements, each some accesses of up to 16 bytes, neighbours side by side. What they bring
waits in registers while the other half is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from picograd.codegen.builder import Builder
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul


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


@dataclass(frozen=True)
class Staged:
    """A tile of an operand in shared memory, twice where there is more than one step of K.

    first:        position of the tile
    width, depth: positions, and K, of the tile
    k:            length of the product
    threads:      of the block
    by_position:  elements of one position lie side by side, else those of one k
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

    def shared_memory(self) -> Op:
        """Makes the shared memory of both halves, or of the only step."""
        rows, row = (self.width, self.depth) if self.by_position else (self.depth, self.width)
        halves = 1 if self.num_steps == 1 else 2
        return self.build.alloc(self.dtype, halves * rows * (row + self.padding), MemorySpace.SHARED)

    def registers(self) -> Op:
        """Makes the registers in which elements wait."""
        return self.build.alloc(self.dtype, self.own * self.lanes, MemorySpace.REGISTER)

    @property
    def num_steps(self) -> Dim:
        """Tiles along K."""
        return floordiv(add(self.k, self.depth - 1), self.depth)

    @property
    def lanes(self) -> int:
        return gcd(self.operand.lanes, self.depth if self.operand.along_k else self.width)

    @property
    def num_accesses(self) -> int:
        """Accesses of all threads that fill a tile."""
        return self.width * self.depth // self.lanes

    @property
    def own(self) -> int:
        """Accesses of a thread, at most."""
        return -(-self.num_accesses // self.threads)

    def index(self, half: Dim, k: Dim, position: Dim) -> Dim:
        """Returns where an element lies in shared memory."""
        rows, row, at, column = self.width, self.depth, position, k
        if not self.by_position:
            rows, row, at, column = self.depth, self.width, k, position
        return add(mul(add(mul(half, rows), at), row + self.padding), column)

    def fetch(self, thread: Dim, first_k: Dim, registers: Op) -> None:
        """Reads the elements of a step into registers; where there are none it stores 0."""

        def one(place: Dim, position: Dim, k: Dim, lane: Dim) -> None:
            position, k = add(self.first, position), add(first_k, k)
            inside = both(less(position, self.operand.extent), less(k, self.k))  # if the first lane is, all are
            position, k = self._lane(position, k, lane)
            self.build.store(registers, add(place, lane), cast(self.operand.at(position, k, inside), self.dtype))

        self._each(thread, one)

    def put(self, thread: Dim, half: Dim, registers: Op, memory: Op) -> None:
        """Moves what was fetched into a half of shared memory."""

        def one(place: Dim, position: Dim, k: Dim, lane: Dim) -> None:
            position, k = self._lane(position, k, lane)
            value = self.build.load(registers, add(place, lane))
            self.build.store(memory, self.index(half, k, position), value)

        self._each(thread, one)

    def _lane(self, position: Dim, k: Dim, lane: Dim) -> tuple[Dim, Dim]:
        """Returns where a lane is, given the first."""
        return (position, add(k, lane)) if self.operand.along_k else (add(position, lane), k)

    def _each(self, thread: Dim, body: Callable[[Dim, Dim, Dim, Dim], None]) -> None:
        """Runs body(place in the registers, position, k, lane) for what a thread brings: of the first lane, and which."""
        build, lanes = self.build, self.lanes
        with build.loop(self.own, self.unrolled) as number:
            access = add(mul(number, self.threads), thread)
            with build.when(less(access, self.num_accesses)):
                if self.operand.along_k:
                    steps = self.depth // lanes
                    position, k = floordiv(access, steps), mul(mod(access, steps), lanes)
                else:
                    groups = self.width // lanes
                    position, k = mul(mod(access, groups), lanes), floordiv(access, groups)
                with build.loop(lanes, AxisKind.VECTOR) as lane:
                    body(mul(number, lanes), position, k, lane)


def pipeline(
    build: Builder, sides: Sequence[Staged], memories: Sequence[Op], thread: Dim, multiply: Callable[[Dim], None]
) -> None:
    """Walks K: while multiply(half) works on one half of shared memory, elements for the other one are on their way.

    Args:
      memories: shared memory of each side
    """
    depth, places = sides[0].depth, [(side, side.registers(), memory) for side, memory in zip(sides, memories)]
    for side, registers, _ in places:
        side.fetch(thread, 0, registers)
    for side, registers, memory in places:
        side.put(thread, 0, registers, memory)
    build.barrier()
    if sides[0].num_steps == 1:  # nothing more is on its way
        multiply(0)
        return
    with build.loop(sides[0].num_steps, AxisKind.LOOP) as step:
        after = add(step, 1)
        for side, registers, _ in places:
            side.fetch(thread, mul(after, depth), registers)
        multiply(mod(step, 2))
        for side, registers, memory in places:
            side.put(thread, mod(after, 2), registers, memory)
        build.barrier()
