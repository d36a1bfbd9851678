"""Launches of phases: over threads of a processor, or over blocks of threads; and about how much work they are.

In:    statements of one phase, in the linear form
Out:   Launch; `grid_loops`;  of a GPU `Phase`, `launch_of_blocks`

The grid is an expression of the program's variables, so that one binary serves every length.

On a GPU the GRID loops of a phase follow each other over the blocks of a launch. A BLOCK loop is the threads of the
block: several in one GRID body are the same threads. Every thread computes the statements of a GRID body outside of
BLOCK loops for itself; thread 0 does their stores to memory that others see. Registers allocated there are each
thread's own.
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

ATOMS = frozenset({OpCode.RANGE, OpCode.VARIABLE})  # of index expressions
COUNTED_WORK_MAX = 1 << 40  # more counts as that: of loops whose extents only a run tells, there may be several


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
    """Returns the loops whose iterations are shared among threads."""
    return [s for s in statements if isinstance(s, For) and s.range.arg[1] is AxisKind.GRID]


def _extent(loop: For, named: dict[Op, Op]) -> Dim:
    """Returns the extent of a loop as an expression of variables, in normal form."""
    extent = loop.range.src[0]
    return from_op(extent) if extent.code is OpCode.CONST else _index_value(extent, named)


def _work(statements: Sequence[Statement], named: dict[Op, Op]) -> int:
    """Returns about how many elements are loaded, computed and stored; fills `named` with what Lets name, and
    with loops' RANGEs whose extents are expressions of variables and of other loops."""
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
    """Returns how many iterations a loop has at most; about as many as it has in the middle, where lengths are symbolic.

    That is half-way through the loops around it, at the geometric mean of the least and the largest length: of those from
    64 to 4095 most are short, and for the rest of one after blocks of 128 the bounds are far apart.
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
    """Returns a middle value of a symbolic integer or of the position in a loop, given those of the loops around it."""
    if atom.code is OpCode.VARIABLE:
        least, greatest = bounds(atom)
        return isqrt(max(least, 1) * greatest)
    return floordiv(with_values(from_op(atom.src[0]), middle), 2)


def _index_value(value: Op, named: dict[Op, Op]) -> Dim:
    """Returns an integer with what Lets name put in, in normal form, and known extents of the loops around it."""
    value = named.get(value, value)
    if value.code is OpCode.SHR and value.src[1].code is OpCode.CONST:  # a quotient, made cheap
        return floordiv(_index_value(value.src[0], named), 1 << int(value.src[1].arg))
    if value.code is OpCode.AND and value.src[1].code is OpCode.CONST and (value.src[1].arg + 1).bit_count() == 1:
        return mod(_index_value(value.src[0], named), int(value.src[1].arg) + 1)
    combine = subtract if value.code is OpCode.SUB else INDEX_ARITHMETIC.get(value.code)
    return from_op(value) if combine is None else combine(*(_index_value(s, named) for s in value.src))


# ---- blocks of threads ----
BLOCK_THREADS_MAX = 1024  # of a block (CUDA C++ Programming Guide, table of technical specifications)
GRID_BLOCKS_MAX = (1 << 31) - 1
# A loop that is written out has: iterations; statements that it becomes, where its counter chooses registers and elsewhere.
UNROLLED_TURNS_MAX, UNROLLED_WORK_MAX, FREELY_UNROLLED_WORK_MAX = 64, 8192, 512
UNKNOWN_TRIPS = 64  # iterations a loop of unknown extent is taken to have, for `Launch.work`


class Phase(Record):
    """One phase, taken apart.

    before:  named values before the GRID loops
    grids:   the GRID loops in order
    starts:  the first block of each, and at the end the number of blocks: expressions of VARs
    block:   threads of a block
    """

    before: tuple[Statement, ...]
    grids: tuple[For, ...]
    starts: tuple[Dim, ...]
    block: int


def take_apart(program: Program, statements: Sequence[Statement]) -> Phase:
    """Splits a phase into its GRID loops and the statements before them."""
    grids = grid_loops(statements)
    before = [s for s in statements if s not in grids]
    others = [s for s in before if not isinstance(s, Let | Load | Check)]
    if others or not grids:
        found = type(others[0]).__name__ if others else "nothing"
        raise broken(program, f"a phase is named values and GRID loops, found {found}")
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
        raise broken(program, f"a block has at most {BLOCK_THREADS_MAX} threads, a BLOCK loop can have {extent}")
    return max(1, extent)


def grid_of(program: Program, phase: Phase) -> Dim:
    """Returns the number of blocks as an expression of the variables."""
    grid = with_values(phase.starts[-1], _definitions(phase.before))
    if isinstance(grid, int):
        if grid > GRID_BLOCKS_MAX:
            raise broken(program, f"a launch has at most {GRID_BLOCKS_MAX} blocks, this one {grid}")
        return grid
    if any(op.code in (OpCode.VAR, OpCode.LOAD) for op in toposort([grid])):
        raise broken(program, "the extent of a GRID loop depends on what a kernel has read")
    return grid


def launch_of_blocks(program: Program, phase: Phase, symbol: str) -> Launch:
    """Returns the launch of a phase."""
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
            total += work_of(statement.body) * (most if most < GRID_BLOCKS_MAX else UNKNOWN_TRIPS)
        elif isinstance(statement, If):
            total += work_of(statement.body)
        else:
            total += 1
    return total


def too_much_shared(target: Target, name: str, nbytes: int) -> str:
    """Returns the rule that memory breaks which a block does not have."""
    return f"a block of {target.device} shares {target.shared_bytes} bytes, with {name} it needs {nbytes}"


def broken(program: Program, rule: str) -> VerifyError:
    """Returns the error for a Program that breaks a rule of the linear form."""
    return VerifyError(f"render: kernel {program.name} breaks a rule of the linear form: {rule}.")


def is_unrolled(loop: For) -> bool:
    """True for a short loop that the compiler shall write out: loads of several turns are then on their way together.

    Where its counter chooses registers it may be longer, for their numbers have to be constants. Other loops would become a
    kernel that takes long to compile and is no faster: 512 loads of a sum down columns took NVRTC 16 s.
    """
    extent = loop.range.src[0]
    if extent.code is not OpCode.CONST or extent.arg > UNROLLED_TURNS_MAX:
        return False
    work = work_of([loop])
    return work <= FREELY_UNROLLED_WORK_MAX or work <= UNROLLED_WORK_MAX and _chooses_registers(loop)


def _chooses_registers(loop: For) -> bool:
    """True where the counter of a loop is in the index of a register."""
    counted = {loop.range}  # and all that is computed from it
    for statement in walk(loop.body):
        if isinstance(statement, Let) and not counted.isdisjoint((statement.value, *statement.value.src)):
            counted.add(statement.var)
        for memory, index in ACCESSES[type(statement)]:
            if getattr(statement, index) in counted and is_register(getattr(statement, memory)):
                return True
    return False


def is_rolled(loop: For) -> bool:
    """True for a loop in which the threads of a block meet, which the compiler shall not write out.

    Each turn waits for the others: there is nothing to gain, and two assemblers run out of registers over it. Threads meet
    at barriers, or in shuffles of values that they have read in the same turn; a loop over registers with shuffles reads
    nothing.
    """
    body = list(walk(loop.body))
    shuffles = any(isinstance(statement, Shuffle) for statement in body)
    reads = any(isinstance(statement, Load) and statement.memory.code is OpCode.PARAM for statement in body)
    return (shuffles and reads) or any(statement.orders for statement in body)


def least_blocks(statements: Sequence[Statement]) -> int:
    """Returns how many blocks a multiprocessor must be able to hold; 0: as many as the assembler thinks best.

    An assembler that takes a product for any other code fits more blocks than it has to, and spills accumulators for
    that. Matrix instructions hide each other's latency and need the registers; products without them copy their tiles
    in the background, so that one block computes while another waits.
    """
    found = {type(statement) for statement in walk(statements)}
    return 1 if Mma in found else 2 if CommitCopies in found else 0


def grid_interval(loop: For, known: Intervals) -> Interval:
    """Returns the least and greatest number of a block of a GRID loop."""
    return 0, max(0, min(interval_of(loop.range.src[0], known)[1], GRID_BLOCKS_MAX) - 1)
