"""What languages for GPUs that are like C have in common: where the loops of a phase lie over blocks and threads.

In:    statements of one phase (linear form), Target
Out:   Phase, the grid of its launch; `BlockWriter`, lines of text
Called by: devices/cuda/render.py, devices/opencl/render.py, render/nvptx.py.    Next: picograd/devices/opencl/render.py

The GRID loops of a phase lie one after the other over the blocks of a launch. A BLOCK loop is the threads of the block:
several in one GRID body are the same threads. What stands in a GRID body but in no BLOCK loop every thread computes for
itself; its stores to memory that others see are done by thread 0. Registers allocated there are each thread's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.errors import VerifyError
from picograd.ir.intervals import Interval, Intervals, interval_of
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Launch, Program
from picograd.ir.statements import (
    Alloc,
    Barrier,
    Check,
    CommitCopies,
    For,
    If,
    Let,
    Load,
    Mma,
    Shuffle,
    Statement,
    Store,
    walk,
)
from picograd.ir.symbolic import add, bounds, from_op, to_op, with_values
from picograd.record import Record
from picograd.render.cstyle import Writer

MAX_THREADS = 1024  # of a block (CUDA C++ Programming Guide, table of technical specifications)
MAX_GRID = (1 << 31) - 1
MOST_TURNS, MOST_UNROLLED = 64, 8192  # of a loop that is written out: iterations, and statements that it becomes
UNKNOWN_TRIPS = 64  # iterations a loop of unknown extent is taken to have, for `Launch.work`


class Phase(Record):
    """One phase, taken apart.

    before:  named values that stand before the GRID loops
    grids:   the GRID loops in order
    starts:  the first block of each, and at the end the number of blocks: expressions of VARs
    block:   threads of a block
    """

    before: tuple[Statement, ...]
    grids: tuple[For, ...]
    starts: tuple[Dim, ...]
    block: int


# ---- taking a phase apart ----
def take_apart(program: Program, statements: Sequence[Statement]) -> Phase:
    """Splits a phase into its GRID loops and what stands before them."""
    grids = [s for s in statements if isinstance(s, For) and s.range.arg[1] is AxisKind.GRID]
    before = [s for s in statements if s not in grids]
    broken = [s for s in before if not isinstance(s, Let | Load | Check)]
    if broken or not grids:
        found = type(broken[0]).__name__ if broken else "nothing"
        raise _broken(program, f"a phase is named values and GRID loops, found {found}")
    starts: list[Dim] = [0]
    for grid in grids:
        starts.append(add(starts[-1], from_op(grid.range.src[0])))
    definitions = _definitions(before)
    block = max((_block_extent(program, loop, definitions) for loop in _block_loops(grids)), default=1)
    return Phase(tuple(before), tuple(grids), tuple(starts), block)


def _definitions(before: Sequence[Statement]) -> dict[Op, Dim]:
    """Returns the integer VARs named before the GRID loops, as expressions of variables."""
    known: dict[Op, Dim] = {}
    for statement in before:
        if isinstance(statement, Let) and statement.value.dtype.is_int:
            known[statement.var] = with_values(from_op(statement.value), known)
    return known


def _block_loops(statements: Sequence[Statement]) -> list[For]:
    found: list[For] = []
    for s in statements:
        if isinstance(s, For) and s.range.arg[1] is AxisKind.BLOCK:
            found.append(s)
        if isinstance(s, For | If):
            found += _block_loops(s.body)
    return found


def _block_extent(program: Program, loop: For, definitions: dict[Op, Dim]) -> int:
    extent = bounds(with_values(from_op(loop.range.src[0]), definitions))[1]
    if extent > MAX_THREADS:
        raise _broken(program, f"a block has at most {MAX_THREADS} threads, a BLOCK loop can have {extent}")
    return max(1, extent)


def grid_of(program: Program, phase: Phase) -> Dim:
    """Returns the number of blocks as an expression of the variables."""
    grid = with_values(phase.starts[-1], _definitions(phase.before))
    if isinstance(grid, int):
        if grid > MAX_GRID:
            raise _broken(program, f"a launch has at most {MAX_GRID} blocks, this one {grid}")
        return grid
    if any(op.code in (OpCode.VAR, OpCode.LOAD) for op in toposort([grid])):
        raise _broken(program, "the extent of a GRID loop depends on what a kernel has read")
    return grid


def launch_of_blocks(program: Program, phase: Phase, symbol: str) -> Launch:
    """Returns what the runtime needs to know of a phase."""
    work = max(work_of(grid.body) for grid in phase.grids)
    return Launch(symbol, grid_of(program, phase), phase.block, work, asked_for(phase))


def asked_for(phase: Phase) -> int:
    """Returns the bytes of SHARED memory that a launch has to ask for: all, where they are more than can be declared."""
    nbytes = sum(shared_nbytes_of(s.memory) for s in walk([*phase.before, *phase.grids]) if isinstance(s, Alloc))
    return nbytes if nbytes > DECLARED_SHARED_BYTES else 0


def shared_nbytes_of(memory: Op) -> int:
    """Returns the bytes an ALLOC takes of a block's SHARED memory, where each begins at a multiple of 16."""
    _, numel, space = memory.arg
    return -(-int(numel) * memory.dtype.itemsize // 16) * 16 if space is MemorySpace.SHARED else 0


def work_of(statements: Sequence[Statement]) -> int:
    """Returns the rough cost of statements: how many operations, loads and stores they run."""
    total = 0
    for statement in statements:
        if isinstance(statement, For):
            most = bounds(from_op(statement.range.src[0]))[1]
            total += work_of(statement.body) * (most if most < MAX_GRID else UNKNOWN_TRIPS)
        elif isinstance(statement, If):
            total += work_of(statement.body)
        else:
            total += 1
    return total


def too_much_shared(target: Target, name: str, nbytes: int) -> str:
    """Returns the rule that memory breaks which a block does not have."""
    return f"a block of {target.device} shares {target.shared_bytes} bytes, with {name} it needs {nbytes}"


def _broken(program: Program, rule: str) -> VerifyError:
    return VerifyError(f"render: kernel {program.name} breaks a rule of the linear form: {rule}.")


def is_unrolled(loop: For) -> bool:
    """True for a short loop, which the compiler shall write out, so that indices into registers are constants."""
    extent = loop.range.src[0]
    return extent.code is OpCode.CONST and extent.arg <= MOST_TURNS and work_of([loop]) <= MOST_UNROLLED


def is_rolled(loop: For) -> bool:
    """True for a loop in which the threads of a block meet, which the compiler shall not write out.

    Each turn waits for the others: there is nothing to gain, and two assemblers run out of registers over it. Threads meet
    at barriers, or in shuffles of what they have read in the same turn; a loop over registers with shuffles reads nothing.
    """
    body = list(walk(loop.body))
    shuffles = any(isinstance(statement, Shuffle) for statement in body)
    reads = any(isinstance(statement, Load) and statement.memory.code is OpCode.PARAM for statement in body)
    return (shuffles and reads) or any(isinstance(statement, Barrier) for statement in body)


def least_blocks(statements: Sequence[Statement]) -> int:
    """Returns how many blocks a multiprocessor must be able to hold; 0: as many as the assembler thinks best.

    What thinks of a product as of any other code fits more blocks than it has to, and spills accumulators for that.
    Matrix instructions hide each other's latency and need the registers; products without them are those of tiles that
    are copied in the background, of which one block computes while another waits.
    """
    found = {type(statement) for statement in walk(statements)}
    return 1 if Mma in found else 2 if CommitCopies in found else 0


def grid_interval(loop: For, known: Intervals) -> Interval:
    """Returns the least and greatest number of a block of a GRID loop."""
    return 0, max(0, min(interval_of(loop.range.src[0], known)[1], MAX_GRID) - 1)


# ---- writing ----
class BlockWriter(Writer):
    """Writes the body of one phase's function.

    thread, block:  how the language calls the number of a thread in its block, and that of the block
    """

    thread: str
    block: str

    def __init__(self, program: Program, phase: Phase, target: Target):
        super().__init__(program)
        self.phase, self.target = phase, target
        self.in_block = phase.block == 1  # with one thread every statement is that thread's
        self.guarded = False  # not all threads of the block run this
        self.scoped = False  # BLOCK loops that stand side by side get a scope each
        self.shared_nbytes = 0

    def write_phase(self) -> None:
        """Writes what stands before the GRID loops, then each of them for its own blocks."""
        self.write(self.phase.before)
        if len(self.phase.grids) == 1:
            self.write_grid(self.phase.grids[0], self.block)
            return
        self.line(f"const int32 block = {self.block};")
        for grid, start, stop in zip(self.phase.grids, self.phase.starts, self.phase.starts[1:]):
            first, end = self.operand(to_op(start)), self.operand(to_op(stop))
            with self.braces(f"if (block < {end})" if start == 0 else f"if ({first} <= block && block < {end})"):
                self.write_grid(grid, "block" if start == 0 else f"block - {first}")

    def write_grid(self, loop: For, position: str) -> None:
        self.intervals[loop.range] = grid_interval(loop, self.intervals)
        self.line(f"const {loop.range.dtype} {self.operand(loop.range)} = {position};")
        self.write(loop.body)

    def write(self, statements: Sequence[Statement]) -> None:
        outer = self.scoped
        self.scoped = sum(isinstance(s, For) and s.range.arg[1] is AxisKind.BLOCK for s in statements) > 1
        super().write(statements)
        self.scoped = outer

    def write_for(self, loop: For) -> None:
        """Writes a loop; a BLOCK loop as the threads of the block, those beyond its extent idle."""
        if loop.range.arg[1] is not AxisKind.BLOCK:
            if is_rolled(loop):
                self.line("#pragma unroll 1")
            elif is_unrolled(loop):
                self.line("#pragma unroll")
            super().write_for(loop)
            return
        if self.in_block and self.phase.block > 1:
            raise self.broken("a BLOCK loop stands in another")
        extent = loop.range.src[0]
        self.intervals[loop.range] = 0, max(0, min(interval_of(extent, self.intervals)[1], self.phase.block) - 1)
        outer = self.in_block
        self.in_block = True
        if extent.code is OpCode.CONST and extent.arg == self.phase.block:
            self.write_threads(loop)
        else:
            self.guarded = True
            with self.braces(f"if ({self.thread} < {self.operand(extent)})"):
                self.write_thread(loop)
            self.guarded = False
        self.in_block = outer

    def write_threads(self, loop: For) -> None:
        """Writes a BLOCK loop that all threads of the block run."""
        if not self.scoped:
            self.write_thread(loop)
            return
        with self.braces():
            self.write_thread(loop)

    def write_thread(self, loop: For) -> None:
        self.line(f"const {loop.range.dtype} {self.operand(loop.range)} = {self.thread};")
        self.write(loop.body)

    def write_store(self, store: Store) -> None:
        own = store.memory.code is OpCode.ALLOC and store.memory.arg[2] is MemorySpace.REGISTER
        if self.in_block or own:
            super().write_store(store)
            return
        with self.braces(f"if ({self.thread} == 0)"):
            super().write_store(store)

    def check_space(self, memory: Op) -> None:
        """Checks that there is room for what a statement allocates."""
        name, _, space = memory.arg
        if space is MemorySpace.GLOBAL:
            raise self.broken(f"{name} is GLOBAL memory, which only a parameter can be")
        self.shared_nbytes += shared_nbytes_of(memory)
        if self.shared_nbytes > self.target.shared_bytes:
            raise self.broken(too_much_shared(self.target, str(name), self.shared_nbytes))

    def check_whole(self, statement: str) -> None:
        """Checks that all threads of the block run what they have to run together."""
        if self.guarded:
            raise self.broken(f"{statement} stands in a BLOCK loop that not all threads run")
