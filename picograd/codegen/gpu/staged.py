"""An operand of a block's product on its way to a stage of shared memory: copied in the background, or by registers.

In:    elements of an operand, the tile of it that a block needs at a step of K
Out:   `Operand`; `Staged`
Called by: codegen/gpu/staged_product.py, codegen/gpu/block_product.py, codegen/gpu/tensor_product.py,
           codegen/gpu/block_rows.py.
Next: picograd/codegen/gpu/staged_product.py

All threads of the block bring elements, each some accesses of up to 16 bytes, neighbours side by side. What lies in memory
as it is needed is copied in the background, where a target can; what is computed, or has to be turned and is too narrow
for that, waits in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from picograd.codegen.builder import Builder
from picograd.dtype import DType
from picograd.forks import cached_property
from picograd.ir.build import cast
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.ranges import divisor_of
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul
from picograd.record import Record

COPY_BYTES = (4, 8, 16)
ANYWHERE = 1 << 31  # positions, and places in K, of which an address is looked at: beyond the operand's, too


class Operand(Record):
    """One operand of the product.

    extent:   its rows (of the left one) or columns
    at:       (position, k, where there is one) -> the element; 0 outside
    along_k:  its elements are read along K, not along positions
    lanes:    of one access; they divide the extent they run along
    copied:   in the background, where elements lie in memory
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

        They lie side by side on both ends, from a multiple of their number on; one that is turned goes alone. So do those
        of which there is none: an address is a multiple whether it is read or not, as the instruction asks for.
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
        """Returns where an element lies in shared memory."""
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
            with self.build.loop(self.copy_lanes, AxisKind.VECTOR) as lane:  # the 0 of what is surely not there
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
