"""A matrix product of one block of threads on a GPU: tiles of both operands pass through shared memory.

Staging: all threads of the block load elements of an operand by coalesced accesses of up to 16 bytes. If memory has the
elements in the needed form, they are copied in the background, on targets that can do so; elements that are computed, or
must be transposed and are too narrow for copies, pass through registers.

Stages: shared memory holds some stages of K. While one is multiplied, copies of the others are in flight; computed elements
are one stage ahead. The product is computed by multiply-adds or by matrix instructions:

Multiply-adds: both tiles are (K, positions) in shared memory, so a thread reads four of its rows, or columns, at a time;
its rows are groups of four, and all threads together have each group once. A warp is 8 threads wide and 4 high: it reads
few lines, without bank conflicts. Each element of shared memory serves a row or column of threads, each element in a
register as many multiply-adds as the thread's tile has columns or rows.

The right operand of a convolution may be a box of images instead, which contains whole windows: the elements of a row under
the windows of four neighbouring columns are then read once for all taps of that row.

Matrix instructions, for 16-bit floats, or for float32 as TF32: a tile is (positions, K) or (K, positions) in shared memory,
as its operand is in memory, and fragments are transposed on their way to registers. A warp loads four matrices of 8 x 8
16-bit elements by one instruction: each thread gives the address of one of their rows. float32 is read element by element.
Rows are padded against bank conflicts: a warp reads eight rows of 16 bytes at once, or for float32 the elements of threads
(g, t) at (g, 2 t) and (g, 2 t + 1), or at (2 t, g) if rows are those of K. A warp holds a tile of the result in its
threads' registers, 16 x 8 at a time; a fragment serves a row, or a column, of these.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from picograd.codegen.builder import Builder, read
from picograd.codegen.loops import nested, over_registers
from picograd.device import Target
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.build import cast, multiply_add
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import GROUP, MMA_COLUMNS, MMA_DEPTH, MMA_ROWS, BlockTile, WarpTile
from picograd.ir.ranges import divisor_of
from picograd.ir.statements import COPY_BYTES, MATRIX_ROW, WARP_THREADS
from picograd.ir.symbolic import (
    Coords,
    add,
    both,
    bounds,
    ceildiv,
    flatten,
    floordiv,
    less,
    mod,
    mul,
    placeholder,
    subtract,
    unflatten,
    weighted_sum,
)
from picograd.record import Record, replace

# ---- staging an operand in shared memory ----
BANKS = 32  # of shared memory, each 4 bytes wide
ANYWHERE = 1 << 31  # bound of positions and of indices into K for proofs about addresses, also past the operand


class Operand(Record):
    """An operand of the product.

    extent:   number of its rows (left) or columns (right)
    at:       (position, k, condition or None) -> the element; 0 outside
    along_k:  elements are read along K, not along positions
    lanes:    elements per access; they divide the extent along which they run
    copied:   elements are in memory in the needed form, so they are copied in the background
    """

    extent: Dim
    at: Callable[[Dim, Dim, Op | bool], Op]
    along_k: bool
    lanes: int
    copied: bool = False

    def holds(self, position: Dim) -> Op | bool:
        """Returns whether a position exists."""
        return less(position, self.extent)


class Side(Record, dict=True):
    """The shared memory of one operand: some stages of K, which all threads of a block fill.

    depth:     elements of K per stage
    k:         length of the product
    threads:   threads per block
    unrolled:  kind of loops over registers
    """

    build: Builder
    dtype: DType
    depth: int
    k: Dim
    threads: int
    unrolled: AxisKind

    def shared_memory(self, stages: int = 1) -> Op:
        """Allocates the shared memory of some stages."""
        return self.build.alloc(self.dtype, stages * self.stage_nbytes // self.dtype.itemsize, MemorySpace.SHARED)

    def registers(self) -> Op:
        """Allocates the registers through which elements pass."""
        return self.build.alloc(self.dtype, self.own(self.lanes) * self.lanes, MemorySpace.REGISTER)

    @property
    def num_steps(self) -> Dim:
        """Number of tiles along K."""
        return ceildiv(self.k, self.depth)

    def own(self, lanes: int) -> int:
        """Returns the maximum number of a thread's accesses."""
        return ceildiv(ceildiv(self.numel, lanes), self.threads)

    @property
    @abstractmethod
    def numel(self) -> int:
        """Elements loaded per stage."""

    @property
    @abstractmethod
    def stage_nbytes(self) -> int:
        """Bytes per stage."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """Elements per access."""

    @property
    @abstractmethod
    def copy_lanes(self) -> int:
        """Elements per background copy; 0 if they pass through registers."""

    @abstractmethod
    def first_of(self, access: Dim, lanes: int) -> Coords:
        """Returns the position of an access' first element in the tile or box."""

    @abstractmethod
    def element(self, first_k: Dim, at: Coords, lane: Dim) -> Op:
        """Returns a lane of the access that begins at `at`, in a step of K; 0 for missing elements."""

    @abstractmethod
    def address(self, stage: Dim, at: Coords, lane: Dim) -> Dim:
        """Returns the index of that lane in shared memory."""

    def fetch(self, thread: Dim, first_k: Dim, registers: Op) -> None:
        """Loads the elements of a step into registers; 0 for missing ones."""

        def one(place: Dim, at: Coords, lane: Dim) -> None:
            self.build.store(registers, add(place, lane), cast(self.element(first_k, at, lane), self.dtype))

        self._each_lane(thread, one)

    def put(self, thread: Dim, stage: Dim, registers: Op, memory: Op) -> None:
        """Stores the loaded elements to a stage of shared memory."""

        def one(place: Dim, at: Coords, lane: Dim) -> None:
            value = self.build.load(registers, add(place, lane))
            self.build.store(memory, self.address(stage, at, lane), value)

        self._each_lane(thread, one)

    def copy(self, thread: Dim, first_k: Dim, stage: Dim, memory: Op) -> None:
        """Starts copies of the elements of a step to a stage of shared memory; zeros for missing ones."""
        build, lanes = self.build, self.copy_lanes

        def start(place: Dim, at: Coords) -> None:
            to, value = self.address(stage, at, 0), self.element(first_k, at, 0)
            if value.code is OpCode.LOAD:
                build.copy_async(memory, to, value, lanes)
                return
            with build.loop(lanes, AxisKind.VECTOR) as lane:  # zeros for missing elements
                build.store(memory, add(to, lane), value)

        self._each(thread, lanes, start)

    def _each(self, thread: Dim, lanes: int, body: Callable[[Dim, Coords], None]) -> None:
        """Runs body(index in the registers, start) for a thread's accesses."""
        with self.build.loop(self.own(lanes), self.unrolled) as number:
            access = add(mul(number, self.threads), thread)
            with self.build.when(less(access, self.numel // lanes)):
                body(mul(number, lanes), self.first_of(access, lanes))

    def _each_lane(self, thread: Dim, body: Callable[[Dim, Coords, Dim], None]) -> None:
        """Runs body(index in the registers, start of the access, lane) for a thread's elements."""

        def lanes(place: Dim, at: Coords) -> None:
            with self.build.loop(self.lanes, AxisKind.VECTOR) as lane:
                body(place, at, lane)

        self._each(thread, self.lanes, lanes)

    def _together(self, first: Op, second: Op, lanes: int) -> int:
        """Returns `lanes`, or 1 if two elements in a row are not neighbours in memory, as in a view of every other one."""
        are_loads = first.code is OpCode.LOAD and second.code is OpCode.LOAD
        return 1 if are_loads and bounds(subtract(second.src[1], first.src[1])) != (1, 1) else lanes

    def _copied_lanes(self, value: Op, lanes: int) -> int:
        """Returns how many of a value's `lanes` an aligned copy takes, or 0."""
        if value.code is not OpCode.LOAD or value.src[0].code is not OpCode.PARAM or value.dtype is not self.dtype:
            return 0
        lanes = gcd(lanes, divisor_of(value.src[1], {}))
        return lanes if lanes * self.dtype.itemsize in COPY_BYTES else 0


class Staged(Side):
    """A tile of an operand in shared memory.

    first:        first position of the tile
    width:        positions per tile
    by_position:  elements of a position are contiguous, else those of an index into K
    padding:      elements between rows of shared memory, against bank conflicts of a column
    """

    operand: Operand
    first: Dim
    width: int
    by_position: bool
    padding: int

    @property
    def numel(self) -> int:
        return self.width * self.depth

    @property
    def stage_nbytes(self) -> int:
        rows, row = (self.width, self.depth) if self.by_position else (self.depth, self.width)
        return rows * (row + self.padding) * self.dtype.itemsize

    @property
    def lanes(self) -> int:
        return gcd(self.operand.lanes, self.depth if self.operand.along_k else self.width)

    @cached_property
    def copy_lanes(self) -> int:
        """Elements per background copy; 0 if they pass through registers.

        They are contiguous and aligned on both sides; a transposed element is copied alone. Missing elements have aligned
        addresses, too, as the instruction requires even if it does not read them.
        """
        if not self.operand.copied:
            return 0
        along_k = self.operand.along_k
        lanes = gcd(self.lanes, self.padding) if along_k == self.by_position else 1
        steps = (1, lanes) if along_k else (lanes, 1)
        position, k = (mul(placeholder(axis, ANYWHERE), step) for axis, step in zip((2, 3), steps))
        first, second = (
            self.operand.at(add(self.first, add(position, 0 if along_k else n)), add(k, n if along_k else 0), True)
            for n in (0, 1)
        )
        return self._copied_lanes(first, self._together(first, second, lanes))

    def index(self, stage: Dim, k: Dim, position: Dim) -> Dim:
        """Returns the index of an element in shared memory."""
        rows, row, at, column = self.width, self.depth, position, k
        if not self.by_position:
            rows, row, at, column = self.depth, self.width, k, position
        return add(mul(add(mul(stage, rows), at), row + self.padding), column)

    def first_of(self, access: Dim, lanes: int) -> Coords:
        """Returns a position and an index into K, relative to the tile."""
        if self.operand.along_k:
            steps = self.depth // lanes
            return floordiv(access, steps), mul(mod(access, steps), lanes)
        groups = self.width // lanes
        return mul(mod(access, groups), lanes), floordiv(access, groups)

    def element(self, first_k: Dim, at: Coords, lane: Dim) -> Op:
        first = add(self.first, at[0]), add(first_k, at[1])
        inside = both(less(first[0], self.operand.extent), less(first[1], self.k))  # all lanes are inside if the first is
        return self.operand.at(*self._lane(first, lane), inside)

    def address(self, stage: Dim, at: Coords, lane: Dim) -> Dim:
        position, k = self._lane(at, lane)
        return self.index(stage, k, position)

    def _lane(self, first: Coords, lane: Dim) -> tuple[Dim, Dim]:
        """Returns the position and the index into K of a lane, from those of the first."""
        position, k = first
        return (position, add(k, lane)) if self.operand.along_k else (add(position, lane), k)


# ---- staging what windows read ----
class Box(Record, dict=True):
    """The part of a convolution that a block computes in a stage: some windows, and some of their taps.

    images, places:    the result's columns: images, and positions along each axis
    channels, taps:    the part of K: channels, and taps along each axis
    stride, dilation:  between windows, and between taps
    along_images:      neighbouring columns are images, else positions along the last axis
    lead, lanes:       copies of `lanes` elements begin `lead` elements before the first needed one
    """

    images: int
    places: tuple[int, ...]
    channels: int
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    along_images: bool
    lead: int
    lanes: int

    @cached_property
    def columns(self) -> int:
        """Number of columns of the result."""
        return self.images * math.prod(self.places)

    @cached_property
    def depth(self) -> int:
        """Number of elements of K."""
        return self.channels * math.prod(self.taps)

    @cached_property
    def span(self) -> int:
        """Elements of a row under the windows of a group of columns, in whole accesses."""
        return self._reach(GROUP)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Images, channels, and elements along each axis under the windows."""
        *outer, last = zip(self.places, self.stride, self.taps, self.dilation)
        rows = [(place - 1) * step + (tap - 1) * apart + 1 for place, step, tap, apart in outer]
        place, step, tap, apart = last
        row = (place - 1) * step + (tap - 1) * apart + 1 if self.along_images else self._reach(place)
        return (self.images, self.channels, *rows, row)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Elements of shared memory from an image, channel, or position along each axis, to the next."""
        images, channels, *rows, row = self.shape
        if self.along_images:
            apart = images + PADDING_ELEMENTS
            *outer, _ = _strides((channels, *rows, row, apart))
            return (1, *outer)
        return (*_strides((images, channels, *rows, self.pitch)),)

    @cached_property
    def pitch(self) -> int:
        """Elements between rows, such that windows of eight groups of columns are in different banks, if possible."""
        row = self.shape[-1]
        at = [self.column(GROUP * group) for group in range(min(WARP_WIDE, self.columns // GROUP))]

        def turns(pitch: int) -> int:
            apart = _strides((*self.shape[:-1], pitch))
            steps = (apart[0], *map(math.prod, zip(self.stride, apart[2:])))
            return _turns([sum(map(math.prod, zip(place, steps))) for place in at])

        return min(range(row, row + BANKS, GROUP), key=lambda pitch: (turns(pitch), pitch))

    @cached_property
    def turns(self) -> int:
        """Number of turns that shared memory takes to serve eight groups of columns, the best and the actual one."""
        return _turns([self.window(GROUP * group) for group in range(min(WARP_WIDE, self.columns // GROUP))])

    @cached_property
    def numel(self) -> int:
        """Elements of shared memory per stage."""
        images, channels, *rows, row = self.shape
        row = row * (images + PADDING_ELEMENTS) if self.along_images else images * self.pitch
        return channels * math.prod(rows) * row

    def column(self, column: Dim) -> Coords:
        """Returns the image and the positions of a column."""
        if self.along_images:
            *place, image = unflatten(column, (*self.places, self.images))
            return (image, *place)
        return unflatten(column, (self.images, *self.places))

    def window(self, column: Dim) -> Dim:
        """Returns the index in shared memory of a column's window, or of the first access of it."""
        image, *place = self.column(column)
        of_image, _, *rows = self.strides
        apart = zip(place, self.stride, rows)
        return weighted_sum([(image, of_image), *((at, step * stride) for at, step, stride in apart)])

    def tap(self, channel: Dim, taps: Sequence[Dim]) -> Dim:
        """Returns the offset of a tap in its window."""
        _, of_channel, *rows = self.strides
        apart = zip(taps, self.dilation, rows)
        return weighted_sum([(channel, of_channel), *((at, step * stride) for at, step, stride in apart)])

    def _reach(self, places: int) -> int:
        needed = self.lead + (places - 1) * self.stride[-1] + (self.taps[-1] - 1) * self.dilation[-1] + 1
        return ceildiv(needed, GROUP) * GROUP


class Images(Record):
    """The right operand of a convolution, of which a block keeps a box in shared memory.

    box:     the block's part of it in a stage
    at:      (first column, first k, image, channel and positions in the box, lane) -> the element; 0 outside
    holds:   column -> whether it exists
    copied:  elements are in memory in the needed form, so they are copied in the background
    """

    box: Box
    at: Callable[[Dim, Dim, Coords, Dim], Op]
    holds: Callable[[Dim], Op | bool]
    copied: bool

    def of_part(self, first: Dim) -> Images:
        """Returns the part from index `first` of K on."""
        return replace(self, at=lambda column, k, inner, lane: self.at(column, add(first, k), inner, lane))


class StagedImages(Side):
    """A box of images in shared memory: each element is loaded once for all windows and taps that read it.

    first:  first column of the tile
    """

    images: Images
    first: Dim

    @property
    def numel(self) -> int:
        return math.prod(self.images.box.shape)

    @property
    def stage_nbytes(self) -> int:
        return self.images.box.numel * self.dtype.itemsize

    @property
    def lanes(self) -> int:
        return self.images.box.lanes

    @cached_property
    def copy_lanes(self) -> int:
        if not self.images.copied:
            return 0
        access = mul(placeholder(2, self.numel // self.lanes), self.lanes)
        first_k = mul(placeholder(3, ANYWHERE), self.depth)
        at = unflatten(access, self.images.box.shape)
        first, second = (self.images.at(self.first, first_k, at, lane) for lane in (0, 1))
        return self._copied_lanes(first, self._together(first, second, self.lanes))

    def first_of(self, access: Dim, lanes: int) -> Coords:
        """Returns coordinates in the box."""
        return unflatten(mul(access, lanes), self.images.box.shape)

    def element(self, first_k: Dim, at: Coords, lane: Dim) -> Op:
        return self.images.at(self.first, first_k, at, lane)

    def address(self, stage: Dim, at: Coords, lane: Dim) -> Dim:
        box = self.images.box
        return add(add(mul(stage, box.numel), weighted_sum(zip(at, box.strides))), lane)

    def index(self, stage: Dim, column: Dim, channel: Dim, taps: Sequence[Dim]) -> Dim:
        """Returns the index in shared memory of a column's element under a tap, or of the accesses that contain it."""
        box = self.images.box
        return add(mul(stage, box.numel), add(box.window(column), box.tap(channel, taps)))


def _turns(places: Sequence[Dim]) -> int:
    """Returns the maximum number of accesses of GROUP elements that begin in the same bank."""
    banks = [floordiv(place, GROUP) % (BANKS // GROUP) for place in places]
    return max(map(banks.count, banks))


def _strides(shape: Sequence[int]) -> list[int]:
    """Returns the row-major strides of a shape."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


# ---- stages of K ----
Store = Callable[[Dim, Dim, Op], None]  # (row, column, value)


class StagedProduct(Record):
    """The product of one block.

    dtype:         dtype of the operands in shared memory
    sum_dtype:     dtype of the accumulators
    k:             length of the product
    left, right:   the operands
    store_lanes:   columns stored at once; they divide the right operand's extent
    """

    build: Builder
    target: Target
    dtype: DType
    sum_dtype: DType
    k: Dim
    left: Operand
    right: Operand | Images
    store_lanes: int

    @property
    @abstractmethod
    def cut(self) -> BlockTile | WarpTile:
        """Rows, columns and K of the block, and its threads."""

    @property
    @abstractmethod
    def num_sums(self) -> int:
        """Number of a thread's accumulators."""

    @property
    @abstractmethod
    def most_stages(self) -> int:
        """Number of stages of shared memory that is worth having."""

    @abstractmethod
    def staged(self, operand: Operand | Images, width: int, first: Dim) -> Side:
        """Returns the tile of an operand."""

    @abstractmethod
    def multiply(self, thread: Dim, stage: Dim, sides: Sequence[Side], memories: Sequence[Op], acc: Op) -> None:
        """Adds the products of one stage."""

    @abstractmethod
    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Stores a thread's elements that are inside the result."""

    @property
    def unrolled(self) -> AxisKind:
        """Kind of loops over registers."""
        return over_registers(self.target)

    def inside(self, row: Dim, column: Dim) -> Op | bool:
        """Returns whether the result has this element."""
        return both(self.left.holds(row), self.right.holds(column))

    def emit(self, first_row: Dim, first_column: Dim, store: Store) -> None:
        """Writes the block of the result that begins at (first_row, first_column)."""
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


def num_stages(sides: Sequence[Side], most: int, target: Target) -> int:
    """Returns the number of stages of K: as many as fit into shared memory, at most `most`, at most all of K.

    Without background copies two suffice.
    """
    if sides[0].num_steps == 1:
        return 1
    most = most if all(side.copy_lanes for side in sides) else 2
    fit = target.shared_bytes // sum(side.stage_nbytes for side in sides)
    steps = sides[0].num_steps
    return max(2, min(most, fit, steps if isinstance(steps, int) else most))


def pipeline(
    build: Builder, sides: Sequence[Side], memories: Sequence[Op], stages: int, thread: Dim,
    multiply: Callable[[Dim], None],
) -> None:  # fmt: skip
    """Loops over K: while multiply(stage) uses one stage of shared memory, elements of the others are loaded.

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
    if stages == 1:  # nothing else is in flight
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
PADDING_ELEMENTS = 4  # elements that a thread reads at once
WARP_WIDE = 8
ADDS_STAGES_MAX = 3  # not measured: a step of multiply-adds takes longer than loading its operands


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

    def staged(self, operand: Operand | Images, width: int, first: Dim) -> Side:
        depth, threads = self.tile.depth, self.tile.threads
        k, padding = self.k, PADDING_ELEMENTS
        if isinstance(operand, Images):
            return StagedImages(self.build, self.dtype, depth, k, threads, self.unrolled, operand, first)
        return Staged(self.build, self.dtype, depth, k, threads, self.unrolled, operand, first, width, False, padding)

    def place(self, thread: Dim) -> tuple[Dim, Dim]:
        """Returns the row and column of a thread in the tile's grid of threads; warps are 8 wide if possible."""
        tile = self.tile
        if tile.wide % WARP_WIDE or tile.high % (WARP_THREADS // WARP_WIDE):
            return floordiv(thread, tile.wide), mod(thread, tile.wide)
        warp, lane = floordiv(thread, WARP_THREADS), mod(thread, WARP_THREADS)
        warps = tile.wide // WARP_WIDE
        y = add(mul(floordiv(warp, warps), WARP_THREADS // WARP_WIDE), floordiv(lane, WARP_WIDE))
        return y, add(mul(mod(warp, warps), WARP_WIDE), mod(lane, WARP_WIDE))

    def multiply(self, thread: Dim, stage: Dim, sides: Sequence[Side], memories: Sequence[Op], acc: Op) -> None:
        """Adds the products of one stage: for each k a thread reads its rows and columns once and multiplies all pairs."""
        build, tile = self.build, self.tile
        y, x = self.place(thread)
        rows = build.alloc(self.dtype, tile.own_rows, MemorySpace.REGISTER)
        if isinstance(sides[1], StagedImages):
            self._multiply_windows(y, x, stage, rows, sides[1], _tiles(sides)[0], memories, acc)
            return
        columns = build.alloc(self.dtype, tile.own_columns, MemorySpace.REGISTER)
        with build.loop(tile.depth, AxisKind.LOOP) as k:
            left, right = (partial(_element, side, memory, stage, k) for side, memory in zip(_tiles(sides), memories))
            self._read_own(rows, tile.own_rows, tile.row_group, tile.high, y, left)
            self._read_own(columns, tile.own_columns, tile.column_group, tile.wide, x, right)
            self._add_products(rows, columns, tile.column_group, 1, 0, acc)

    def _multiply_windows(
        self, y: Dim, x: Dim, stage: Dim, rows: Op, side: StagedImages, left: Staged, memories: Sequence[Op], acc: Op
    ) -> None:
        """Adds the products of one stage if the right operand is a box of images.

        If neighbouring columns are positions, a thread reads the part of a row under its windows once for all taps of that
        row; else the elements under one tap are neighbours, and are read for each tap.
        """
        build, tile, box = self.build, self.tile, side.images.box
        group_length, taps = tile.column_group, (box.channels, *box.taps)
        span, step = (group_length, 1) if box.along_images else (box.span, box.stride[-1])
        columns = build.alloc(self.dtype, tile.own_columns // group_length * span, MemorySpace.REGISTER)

        def read_windows(channel: Dim, at: Sequence[Dim]) -> None:
            with (
                build.loop(tile.own_columns // group_length, self.unrolled) as group,
                build.loop(span // group_length, self.unrolled) as part,
                build.loop(group_length, AxisKind.VECTOR) as lane,
            ):
                column, place = mul(add(mul(group, tile.wide), x), group_length), add(mul(part, group_length), lane)
                value = read(memories[1], add(side.index(stage, column, channel, at), place))
                build.store(columns, add(mul(group, span), place), value)

        def add_tap(at: Sequence[Dim], shift: Dim) -> None:
            self._read_own(
                rows, tile.own_rows, tile.row_group, tile.high, y,
                partial(_element, left, memories[0], stage, flatten(at, taps)),
            )  # fmt: skip
            self._add_products(rows, columns, span, step, shift, acc)

        def along_a_row(at: list[Dim]) -> None:
            read_windows(at[0], (*at[1:], 0))
            with build.loop(taps[-1], self.unrolled) as tap:
                add_tap((*at, tap), add(box.lead, mul(tap, box.dilation[-1])))

        def under_a_tap(at: list[Dim]) -> None:
            read_windows(at[0], at[1:])
            add_tap(at, 0)

        if box.along_images:
            nested(build, taps, [], under_a_tap)
        else:
            nested(build, taps[:-1], [], along_a_row)

    def _read_own(
        self, own: Op, count: int, group_length: int, apart: int, first: Dim, element: Callable[[Dim], Op]
    ) -> None:
        """Loads a thread's `count` positions in groups: group g is number first + g * apart of the tile."""
        build = self.build
        with (build.loop(count // group_length, self.unrolled) as group, build.loop(group_length, AxisKind.VECTOR) as lane):
            position = add(mul(add(mul(group, apart), first), group_length), lane)
            build.store(own, add(mul(group, group_length), lane), element(position))

    def _add_products(self, rows: Op, columns: Op, span: int, step: int, shift: Dim, acc: Op) -> None:
        """Adds the products of a thread's rows and columns; those of a group are `step` apart from group * span + shift."""
        build, tile = self.build, self.tile
        with (
            build.loop(tile.own_rows, self.unrolled) as i,
            build.loop(tile.own_columns // tile.column_group, self.unrolled) as group,
            build.loop(tile.column_group, AxisKind.VECTOR) as lane,
        ):
            where = add(mul(i, tile.own_columns), add(mul(group, tile.column_group), lane))
            place = add(mul(group, span), add(mul(lane, step), shift))
            product = multiply_add(build.load(rows, i), build.load(columns, place), build.load(acc, where))
            build.store(acc, where, product)

    def store(self, thread: Dim, first_row: Dim, first_column: Dim, acc: Op, store: Store) -> None:
        """Stores the tile of a thread, some columns of a group at a time."""
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
            with build.when(self.inside(row, column)), build.loop(lanes, AxisKind.VECTOR) as lane:
                store(row, add(column, lane), build.load(acc, add(mul(i, tile.own_columns), add(number, lane))))


def _tiles(sides: Sequence[Side]) -> list[Staged]:
    """Returns the sides that are tiles of operands."""
    return [side for side in sides if isinstance(side, Staged)]


def _element(side: Staged, memory: Op, stage: Dim, k: Dim, position: Dim) -> Op:
    return read(memory, side.index(stage, k, position))


# ---- fragments of matrix instructions ----
class Matrix(Record):
    """A matrix of positions and K in shared memory.

    index:    (k, position) -> index of the element
    along_k:  elements along K are contiguous, else positions are
    """

    memory: Op
    index: Callable[[Dim, Dim], Dim]
    along_k: bool


def load_left(build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim) -> None:
    """Loads a thread's 8 elements of positions x K, 16 x 16, from (position, k) on.

    The matrices are, in this order, the upper and the lower half for the first 8 of K, then for the others.
    """
    _load(build, into, place, matrix, thread, position, k, 1)


def load_right(build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim) -> None:
    """Loads a thread's 4 elements of K x positions, 16 x 8, twice: for the 8 positions from `position` on, and the next 8.

    The matrices are, in this order, the halves of K for the first 8 positions, then for the others.
    """
    _load(build, into, place, matrix, thread, position, k, 2)


def _load(
    build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim, position_bit: int
) -> None:
    """Loads four matrices; one bit of their number, 1 or 2, selects the half of positions, the other the half of K."""
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
    build.load_matrices(into, place, matrix.memory, index, transposed=not matrix.along_k)


def _load_elements(
    build: Builder, into: Op, place: Dim, matrix: Matrix, lane: Dim, position: Dim, k: Dim, position_bit: int
) -> None:
    """Loads a thread's two neighbours along K of each of the four matrices."""
    g, t = floordiv(lane, 4), mod(lane, 4)
    for number in range(4):
        of_position, of_k = (MATRIX_ROW * (number // bit % 2) for bit in (position_bit, 3 - position_bit))
        row, first = add(position, add(g, of_position)), add(k, add(mul(t, 2), of_k))
        with build.loop(2, AxisKind.VECTOR if matrix.along_k else AxisKind.UNROLL) as i:
            value = read(matrix.memory, matrix.index(add(first, i), row))
            build.store(into, add(add(place, 2 * number), i), value)


# ---- matrix instructions ----
PADDING_BYTES = 16
MATRIX_STAGES_MAX = 4  # not measured: a step takes some hundred cycles, loading its operands more


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

    def staged(self, operand: Operand | Images, width: int, first: Dim) -> Side:
        """Returns the tile of an operand, in the order of its memory."""
        assert isinstance(operand, Operand)
        depth, threads, by_position = self.tile.depth, self.tile.threads, operand.along_k
        padding = PADDING_BYTES // self.dtype.itemsize * (2 if by_position and self.dtype.itemsize == 4 else 1)
        return Staged(
            self.build, self.dtype, depth, self.k, threads, self.unrolled, operand, first, width, by_position, padding
        )

    def place(self, thread: Dim) -> tuple[Dim, Dim, Dim, Dim]:
        """Returns the first row and column of a thread's warp in the tile, and its g and t (Mma, ir/statements.py)."""
        warp, lane = floordiv(thread, WARP_THREADS), mod(thread, WARP_THREADS)
        row = mul(floordiv(warp, self.tile.wide), self.tile.warp_rows)
        column = mul(mod(warp, self.tile.wide), self.tile.warp_columns)
        return row, column, floordiv(lane, 4), mod(lane, 4)

    def multiply(self, thread: Dim, stage: Dim, sides: Sequence[Side], memories: Sequence[Op], acc: Op) -> None:
        build, tile = self.build, self.tile
        left, right = (
            Matrix(memory, partial(side.index, stage), side.by_position) for side, memory in zip(_tiles(sides), memories)
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
        """Stores pairs of columns."""
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
            with build.when(self.inside(at_row, at_column)), build.loop(lanes, AxisKind.VECTOR) as lane:
                store(at_row, add(at_column, lane), build.load(acc, add(place, lane)))
