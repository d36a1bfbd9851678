"""Writes a Program as OpenCL C: one `kernel` function per phase, or per GRID loop of it, `{name}_{i}`.

In:    Program (linear form), Target
Out:   Source (language "opencl"), with a Launch for each phase

A block is a work-group, a thread a work-item, SHARED memory is local: the global size is grid * block. Memory is passed as
a buffer and a byte offset, since a host does not have device addresses. bools are bytes, since OpenCL does not define the
width of its own. Contiguous lanes are one access of up to 16 bytes if memory is aligned to it.
The text needs one header, devices/primitives.h.
"""

from __future__ import annotations

from math import gcd

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.render_cstyle import BlockWriter
from picograd.devices.render_grids import Phase, launch_of_blocks, take_apart
from picograd.devices.render_rules import OPENCL
from picograd.dtype import DType
from picograd.ir.opcode import MemorySpace
from picograd.ir.stages import Param, Program, Source
from picograd.ir.statements import Alloc, Let, Load, Statement, lanes_of, walk
from picograd.ir.symbolic import from_op
from picograd.record import replace

WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}  # by bytes: type of one access


def render(program: Program, target: Target) -> Source:
    """Writes all phases of a Program as OpenCL C.

    Raises:
      VerifyError: the Program violates the linear form, needs more local memory than there is, or has statements for warps.
    """
    functions, launches = ["\n".join(['#include "primitives.h"', *lanes_declared(program), ""])], []
    phases = [part for statements in program.phases for part in grids_apart(take_apart(program, statements))]
    for i, phase in enumerate(phases):
        symbol = f"{program.name}_{i}"
        writer = OpenClWriter(program, phase, target)
        writer.write_phase()
        head = f"{signature(program, symbol, phase.block)} {{"
        places = [pointer(slot, param) for slot, param in enumerate(program.params)]
        functions.append("\n".join([head, *places, *writer.shared, *writer.lines, "}", ""]))
        launches.append(launch_of_blocks(program, phase, symbol))
    return program.source("opencl", "\n".join(functions), launches)


def lanes_declared(program: Program) -> list[str]:
    """Returns declarations of the multi-lane types that a program names, with their load and store functions."""
    named = {s.var for statements in program.phases for s in walk(statements) if isinstance(s, Let | Load)}
    found = {(stored(var.dtype), lanes_of(var), var.dtype.itemsize) for var in named if lanes_of(var) > 1}
    return [f"LANES({kind}, {lanes}, {WORDS[gcd(16, lanes * nbytes)]})" for kind, lanes, nbytes in sorted(found)]


def grids_apart(phase: Phase) -> list[Phase]:
    """Splits a phase into one phase per GRID loop, if threads of one synchronize.

    NOTE: PoCL 3.1 miscompiles a function with barriers in two branches on the block's number.
    """
    if len(phase.grids) == 1 or not any(s.orders for s in walk(phase.grids)):
        return [phase]
    return [replace(phase, grids=(grid,), starts=(0, from_op(grid.range.src[0]))) for grid in phase.grids]


def signature(program: Program, symbol: str, threads: int) -> str:
    """Returns the head of one function."""
    params = [f"{memory_type(param)} *buffer{slot}, int64 at{slot}" for slot, param in enumerate(program.params)]
    params += [f"int64 n_{variable.arg[0]}" for variable in program.variables]
    return f"kernel __attribute__((reqd_work_group_size({threads}, 1, 1))) void {symbol}({', '.join(params)})"


def pointer(slot: int, param: Param) -> str:
    """Returns the line that declares the pointer of an argument."""
    kind = memory_type(param)
    byte = "global const char" if param.role == "in" else "global char"
    return f"  {kind} *p{slot} = ({kind} *)(({byte} *)buffer{slot} + at{slot});"


def memory_type(param: Param) -> str:
    """Returns the type of an argument's elements; memory that is only read is const."""
    return f"global {'const ' if param.role == 'in' else ''}{stored(param.dtype)}"


def stored(dtype: DType) -> str:
    """Returns the type of an element in memory."""
    return "uint8" if dtype is dtypes.bool_ else str(dtype)


class OpenClWriter(BlockWriter):
    """Writes the body of one phase's function.

    shared:  declarations of local memory, which must precede all statements
    """

    spelling = OPENCL
    thread, block = "get_local_id(0)", "get_group_id(0)"

    def __init__(self, program: Program, phase: Phase, target: Target):
        super().__init__(program, phase, target)
        self.shared: list[str] = []

    def write_alloc(self, alloc: Alloc) -> None:
        """Declares SHARED memory of the block or REGISTERS of a thread."""
        name, numel, space = alloc.memory.arg
        self.check_space(alloc.memory)
        text = f"{stored(alloc.memory.dtype)} {name}[{numel}]"
        if space is MemorySpace.SHARED:
            self.shared.append(f"  local {text} __attribute__((aligned(16)));")
        else:
            self.line(f"{text};")

    def stored(self, dtype: DType) -> str:
        return stored(dtype)

    def write_barrier(self, statement: Statement) -> None:
        self.check_whole(statement)
        self.line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
