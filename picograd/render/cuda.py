"""Writes a Program as CUDA C: one `extern "C" __global__` function a phase, `{name}_{i}`.

In:    Program (linear form), Target
Out:   Source, with a Launch for each phase
Called by: engine/backends/cuda.py, engine/backends/cudasim.py.    Next: picograd/render/cstyle.py

The GRID loops of a phase lie one after the other over blockIdx.x. A BLOCK loop is the threads of the block: several
in one GRID body are the same threads. What stands in a GRID body but in no BLOCK loop every thread computes for
itself; its stores to memory that others see are done by thread 0. Registers allocated there are each thread's own.

The text is compiled by NVRTC for a GPU and by a C++ compiler for the simulator; both read primitives.h.
NOTE: pointers are not `__restrict__`: an output may be the same memory as an input of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from picograd.device import Target
from picograd.errors import VerifyError
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Launch, Param, Program, Source
from picograd.ir.statements import (
    Alloc,
    Check,
    For,
    If,
    Let,
    Load,
    Mma,
    Shuffle,
    Statement,
    Store,
    fragments,
    walk,
)
from picograd.ir.symbolic import add, bounds, from_op, to_op, with_values
from picograd.render.cstyle import Writer
from picograd.render.intervals import interval_of

MAX_THREADS = 1024  # of a block (CUDA C++ Programming Guide, table of technical specifications)
MAX_GRID = (1 << 31) - 1
MOST_TURNS, MOST_UNROLLED = 64, 8192  # of a loop that is written out: iterations, and statements that it becomes
UNKNOWN_TRIPS = 64  # iterations a loop of unknown extent is taken to have, for `Launch.work`


@dataclass(frozen=True)
class Phase:
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


def render(program: Program, target: Target) -> Source:
    """Writes every phase of a Program as CUDA C.

    Raises:
      VerifyError: the Program breaks a rule of the linear form, or needs more shared memory than the target has.
    """
    functions, launches = [], []
    for i, statements in enumerate(program.phases):
        phase = take_apart(program, statements)
        symbol = f"{program.name}_{i}"
        writer = CudaWriter(program, phase, target)
        writer.write_phase()
        is_by_mma = any(isinstance(statement, Mma) for statement in walk(statements))
        launch_bounds = f"{phase.block}, 1" if is_by_mma else f"{phase.block}"
        functions.append("\n".join([f"{signature(program, symbol, launch_bounds)} {{", *writer.lines, "}", ""]))
        work = max(work_of(grid.body) for grid in phase.grids)
        launches.append(Launch(symbol, grid_of(program, phase), phase.block, work))
    text = "\n".join(['#include "primitives.h"\n', *functions])
    return Source(program.name, "cuda", text, program.params, program.variables, tuple(launches))


def signature(program: Program, symbol: str, launch_bounds: str) -> str:
    """Returns the head of one function.

    Args:
      launch_bounds: threads of a block; and 1 where one block at a time is enough, so that it gets all registers
    """
    params = [f"{param_type(param)} p{slot}" for slot, param in enumerate(program.params)]
    params += [f"int64 n_{variable.arg[0]}" for variable in program.variables]
    return f'extern "C" __global__ void __launch_bounds__({launch_bounds}) {symbol}({", ".join(params)})'


def param_type(param: Param) -> str:
    """Returns the type of one argument: memory that is only read is const."""
    return f"Global<{'const ' if param.role == 'in' else ''}{param.dtype}>"


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


def _broken(program: Program, rule: str) -> VerifyError:
    return VerifyError(f"render: kernel {program.name} breaks a rule of the linear form: {rule}.")


def is_unrolled(loop: For) -> bool:
    """True for a loop that NVRTC shall write out, so that indices into registers are constants: short, of known length."""
    extent = loop.range.src[0]
    return extent.code is OpCode.CONST and extent.arg <= MOST_TURNS and work_of([loop]) <= MOST_UNROLLED


# ---- writing ----
class CudaWriter(Writer):
    """Writes the body of one phase's function."""

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
            self.write_grid(self.phase.grids[0], "blockIdx.x")
            return
        self.line("const int64 block = blockIdx.x;")
        for grid, start, stop in zip(self.phase.grids, self.phase.starts, self.phase.starts[1:]):
            first, end = self.operand(to_op(start)), self.operand(to_op(stop))
            with self.braces(f"if (block < {end})" if start == 0 else f"if ({first} <= block && block < {end})"):
                self.write_grid(grid, "block" if start == 0 else f"block - {first}")

    def write_grid(self, loop: For, position: str) -> None:
        self.intervals[loop.range] = 0, MAX_GRID
        self.line(f"const int64 {self.operand(loop.range)} = {position};")
        self.write(loop.body)

    def write(self, statements: Sequence[Statement]) -> None:
        outer = self.scoped
        self.scoped = sum(isinstance(s, For) and s.range.arg[1] is AxisKind.BLOCK for s in statements) > 1
        super().write(statements)
        self.scoped = outer

    def write_for(self, loop: For) -> None:
        """Writes a loop; a BLOCK loop as the threads of the block, those beyond its extent idle."""
        if loop.range.arg[1] is not AxisKind.BLOCK:
            if is_unrolled(loop):
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
            with self.braces(f"if (threadIdx.x < {self.operand(extent)})"):
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
        self.line(f"const int64 {self.operand(loop.range)} = threadIdx.x;")
        self.write(loop.body)

    def write_store(self, store: Store) -> None:
        own = store.memory.code is OpCode.ALLOC and store.memory.arg[2] is MemorySpace.REGISTER
        if self.in_block or own:
            super().write_store(store)
            return
        with self.braces("if (threadIdx.x == 0)"):
            super().write_store(store)

    def write_alloc(self, alloc: Alloc) -> None:
        """Declares SHARED memory of the block or REGISTERS of a thread."""
        name, numel, space = alloc.memory.arg
        dtype = alloc.memory.dtype
        if space is MemorySpace.GLOBAL:
            raise self.broken(f"{name} is GLOBAL memory, which only a parameter can be")
        if space is MemorySpace.SHARED:
            self.shared_nbytes += int(numel) * dtype.itemsize
            if self.shared_nbytes > self.target.shared_bytes:
                raise self.broken(
                    f"a block of {self.target.device} shares {self.target.shared_bytes} bytes, "
                    f"with {name} it needs {self.shared_nbytes}"
                )
        self.line(f"{'SHARED' if space is MemorySpace.SHARED else 'REGISTERS'}({dtype}, {name}, {numel});")

    def write_shuffle(self, shuffle: Shuffle) -> None:
        if self.guarded:
            raise self.broken("a Shuffle stands in a BLOCK loop that not all threads run")
        self.name(shuffle.var, [f"shuffle_xor({self.operand(shuffle.value)}, {shuffle.distance})"])

    def write_mma(self, mma: Mma) -> None:
        if self.guarded:
            raise self.broken("an Mma stands in a BLOCK loop that not all threads run")
        places = [f"{self.memory(memory)}, {self.operand(index)}" for memory, index, _ in fragments(mma)]
        self.line(f"mma_m16n8k16({', '.join(places)});")

    def write_barrier(self) -> None:
        if self.guarded:
            raise self.broken("a Barrier stands in a BLOCK loop that not all threads run")
        self.line("__syncthreads();")
