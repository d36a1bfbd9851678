"""Launches of phases, over threads of a processor or over blocks of threads, with an estimate of their work.

In:    statements of one phase, in the linear form
Out:   Launch; `grid_loops`;  for GPUs `Phase`, `launch_of_blocks`

The grid is an expression of the program's variables, so one binary serves all lengths.

On a GPU the GRID loops of a phase take consecutive ranges of a launch's blocks. A BLOCK loop is the threads of the block:
several in one GRID body are the same threads. Every thread executes the statements of a GRID body outside BLOCK loops for
itself; of their stores, those to memory that others see are thread 0's. Registers allocated there are private to each
thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt

from picograd import dtype as dtypes
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.errors import VerifyError
from picograd.ir.arithmetic import Interval
from picograd.ir.build import is_register
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.ranges import Intervals, interval_of
from picograd.ir.stages import Launch, Program
from picograd.ir.statements import (
    ACCESSES,
    Alloc,
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
    lanes_of,
    walk,
)
from picograd.ir.symbolic import INDEX_ARITHMETIC, add, bounds, floordiv, from_op, mod, subtract, to_op, with_values
from picograd.record import Record

ATOMS = frozenset({OpCode.RANGE, OpCode.VARIABLE})  # leaves of index expressions
COUNTED_WORK_MAX = 1 << 40  # upper bound: several loops may have unknown extents


def launch_of(symbol: str, statements: Sequence[Statement]) -> Launch:
    """Returns the launch of a phase."""
    named: dict[Op, Op] = {}
    work = _work(statements, named)
    loops = grid_loops(statements)
    grid: Dim = 0 if loops else 1
    for loop in loops:
        grid = add(grid, _extent(loop, named))
    return Launch(symbol, grid, 1, max(1, work // max(1, _trips(grid))))


def grid_loops(statements: Sequence[Statement]) -> list[For]:
    """Returns the loops whose iterations are distributed over threads."""
    return [s for s in statements if isinstance(s, For) and s.range.arg[1] is AxisKind.GRID]


def _extent(loop: For, named: dict[Op, Op]) -> Dim:
    """Returns the extent of a loop as a normal-form expression of variables."""
    extent = loop.range.src[0]
    return from_op(extent) if extent.code is OpCode.CONST else _index_value(extent, named)


def _work(statements: Sequence[Statement], named: dict[Op, Op]) -> int:
    """Returns approximately the number of elements loaded, computed and stored; fills `named` with the definitions of Lets,
    and RANGEs of loops whose extents are expressions of variables and of other loops."""
    total = 0
    for statement in statements:
        if isinstance(statement, Let):
            total += statement.var.arg[1]
            if statement.var.dtype is dtypes.int64 and statement.var.arg[1] == 1:
                named[statement.var] = statement.value
        elif isinstance(statement, Load):
            total += statement.var.arg[1]
        elif isinstance(statement, Store):
            total += lanes_of(statement.value)
        elif isinstance(statement, For):
            extent = _extent(statement, named)
            named[statement.range] = statement.range.replace(src=(to_op(extent),))
            total += min(max(_trips(extent), 0), COUNTED_WORK_MAX) * _work(statement.body, named)
        elif isinstance(statement, If):
            total += _work(statement.body, named)
        else:
            total += statement.num_moved()
    return min(total, COUNTED_WORK_MAX)


def _trips(extent: Dim) -> int:
    """Returns the maximum number of iterations of a loop; for symbolic lengths its number in the middle.

    That is halfway through the surrounding loops, at the geometric mean of the smallest and largest length: lengths from 64
    to 4095 are mostly short, and the remainder after blocks of 128 has bounds that are far apart.
    """
    atoms = [] if isinstance(extent, int) else [op for op in toposort([extent]) if op.code in ATOMS]
    if any(op.code is OpCode.VARIABLE for op in atoms):
        middle: dict[Op, Dim] = {}
        for op in atoms:
            middle[op] = _middle(op, middle)
        value = with_values(extent, middle)
        if isinstance(value, int):
            return value
    return bounds(extent)[1]


def _middle(atom: Op, middle: Mapping[Op, Dim]) -> Dim:
    """Returns a middle value of a symbolic integer or a loop counter, given those of the surrounding loops."""
    if atom.code is OpCode.VARIABLE:
        least, greatest = bounds(atom)
        return isqrt(max(least, 1) * greatest)
    return floordiv(with_values(from_op(atom.src[0]), middle), 2)


def _index_value(value: Op, named: dict[Op, Op]) -> Dim:
    """Returns an integer in normal form, with the definitions of Lets and known loop extents substituted."""
    value = named.get(value, value)
    if value.code is OpCode.SHR and value.src[1].code is OpCode.CONST:  # a quotient as a shift
        return floordiv(_index_value(value.src[0], named), 1 << int(value.src[1].arg))
    if value.code is OpCode.AND and value.src[1].code is OpCode.CONST and (value.src[1].arg + 1).bit_count() == 1:
        return mod(_index_value(value.src[0], named), int(value.src[1].arg) + 1)
    combine = subtract if value.code is OpCode.SUB else INDEX_ARITHMETIC.get(value.code)
    return from_op(value) if combine is None else combine(*(_index_value(s, named) for s in value.src))


# ---- blocks of threads ----
BLOCK_THREADS_MAX = 1024  # per block (CUDA C++ Programming Guide, table of technical specifications)
GRID_BLOCKS_MAX = (1 << 31) - 1
# Limits of an unrolled loop: iterations; resulting statements if its counter indexes registers, and otherwise.
UNROLLED_TURNS_MAX, UNROLLED_WORK_MAX, FREELY_UNROLLED_WORK_MAX = 64, 8192, 512
UNKNOWN_TRIPS = 64  # iterations assumed for a loop of unknown extent, in `Launch.work`


class Phase(Record):
    """A phase, split into its parts.

    before:  named values before the GRID loops
    grids:   the GRID loops in order
    starts:  the first block of each, then the number of all blocks: expressions of VARs
    block:   threads per block
    """

    before: tuple[Statement, ...]
    grids: tuple[For, ...]
    starts: tuple[Dim, ...]
    block: int


def take_apart(program: Program, statements: Sequence[Statement]) -> Phase:
    """Splits a phase into GRID loops and the statements before them."""
    grids = grid_loops(statements)
    before = [s for s in statements if s not in grids]
    others = [s for s in before if not isinstance(s, Let | Load | Check)]
    if others or not grids:
        found = type(others[0]).__name__ if others else "nothing"
        raise broken(program, f"a phase consists of named values and GRID loops, found {found}")
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
    if extent > BLOCK_THREADS_MAX:
        raise broken(program, f"a block has at most {BLOCK_THREADS_MAX} threads, this BLOCK loop up to {extent}")
    return max(1, extent)


def grid_of(program: Program, phase: Phase) -> Dim:
    """Returns the number of blocks as an expression of the variables."""
    grid = with_values(phase.starts[-1], _definitions(phase.before))
    if isinstance(grid, int):
        if grid > GRID_BLOCKS_MAX:
            raise broken(program, f"a launch has at most {GRID_BLOCKS_MAX} blocks, this one {grid}")
        return grid
    if any(op.code in (OpCode.VAR, OpCode.LOAD) for op in toposort([grid])):
        raise broken(program, "the extent of a GRID loop depends on a value in memory")
    return grid


def launch_of_blocks(program: Program, phase: Phase, symbol: str) -> Launch:
    """Returns the launch of a phase."""
    work = max(work_of(grid.body) for grid in phase.grids)
    return Launch(symbol, grid_of(program, phase), phase.block, work, asked_for(phase))


def asked_for(phase: Phase) -> int:
    """Returns the bytes of SHARED memory that a launch must request: all, if they exceed what may be declared."""
    nbytes = sum(shared_nbytes_of(s.memory) for s in walk([*phase.before, *phase.grids]) if isinstance(s, Alloc))
    return nbytes if nbytes > DECLARED_SHARED_BYTES else 0


def shared_nbytes_of(memory: Op) -> int:
    """Returns the bytes that an ALLOC takes of a block's SHARED memory, in which each begins at a multiple of 16."""
    _, numel, space = memory.arg
    return -(-int(numel) * memory.dtype.itemsize // 16) * 16 if space is MemorySpace.SHARED else 0


def work_of(statements: Sequence[Statement]) -> int:
    """Returns an estimate of the cost of statements: the number of operations, loads and stores that they run."""
    total = 0
    for statement in statements:
        if isinstance(statement, For):
            most = bounds(from_op(statement.range.src[0]))[1]
            total += work_of(statement.body) * (most if most < GRID_BLOCKS_MAX else UNKNOWN_TRIPS)
        elif isinstance(statement, If):
            total += work_of(statement.body)
        else:
            total += 1
    return total


def too_much_shared(target: Target, name: str, nbytes: int) -> str:
    """Returns the message for a block that needs more memory than it may have."""
    return f"a block of {target.device} shares {target.shared_bytes} bytes, with {name} it needs {nbytes}"


def broken(program: Program, rule: str) -> VerifyError:
    """Returns the error for a Program that violates the linear form."""
    return VerifyError(f"render: kernel {program.name} breaks a rule of the linear form: {rule}.")


def is_unrolled(loop: For) -> bool:
    """True for a short loop that the compiler shall unroll, so that loads of several iterations are in flight together.

    A loop whose counter indexes registers may be longer, since register numbers must be constants. Unrolling others makes
    kernels that compile slowly and are no faster: 512 loads of a column sum took NVRTC 16 s.
    """
    extent = loop.range.src[0]
    if extent.code is not OpCode.CONST or extent.arg > UNROLLED_TURNS_MAX:
        return False
    work = work_of([loop])
    return work <= FREELY_UNROLLED_WORK_MAX or work <= UNROLLED_WORK_MAX and _chooses_registers(loop)


def _chooses_registers(loop: For) -> bool:
    """True if a register index depends on the loop's counter."""
    counted = {loop.range}  # and everything computed from it
    for statement in walk(loop.body):
        if isinstance(statement, Let) and not counted.isdisjoint((statement.value, *statement.value.src)):
            counted.add(statement.var)
        for memory, index in ACCESSES[type(statement)]:
            if getattr(statement, index) in counted and is_register(getattr(statement, memory)):
                return True
    return False


def is_rolled(loop: For) -> bool:
    """True for a loop in which the threads of a block synchronize, which the compiler shall not unroll.

    Each iteration waits for the other threads, so unrolling gains nothing, and two assemblers run out of registers. Threads
    synchronize at barriers, or in shuffles of values read in the same iteration; a loop over registers with shuffles reads
    nothing.
    """
    body = list(walk(loop.body))
    shuffles = any(isinstance(statement, Shuffle) for statement in body)
    reads = any(isinstance(statement, Load) and statement.memory.code is OpCode.PARAM for statement in body)
    return (shuffles and reads) or any(statement.orders for statement in body)


def least_blocks(statements: Sequence[Statement]) -> int:
    """Returns how many blocks a multiprocessor must hold at least; 0: the assembler decides.

    For products, assemblers fit more blocks than needed and spill accumulators for it. Matrix instructions hide each
    other's latency and need the registers; products without them copy tiles in the background, so one block computes while
    another waits.
    """
    found = {type(statement) for statement in walk(statements)}
    return 1 if Mma in found else 2 if CommitCopies in found else 0


def grid_interval(loop: For, known: Intervals) -> Interval:
    """Returns the least and greatest block number of a GRID loop."""
    return 0, max(0, min(interval_of(loop.range.src[0], known)[1], GRID_BLOCKS_MAX) - 1)
