"""Writes a Program as readable C: a function per phase, plain loops over scalars.

In:    Program (linear form, of a CPU), Target
Out:   Source (language "c"): `void {name}_{phase}(<pointers>, <variables>, int64 begin, int64 end)`

A call runs the iterations begin..end of the phase's GRID loops, counted one loop after the other, as in LLVM IR
(devices/render_llvm.py). The target has vectors of one lane, so a VECTOR loop is a plain one, which the C compiler may
vectorize again. The text needs one header, devices/primitives.h.
NOTE: pointers are not `restrict`: an output may be the same memory as an input of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.device import Target
from picograd.devices.render_cstyle import Writer, arguments_of
from picograd.devices.render_grids import grid_loops, launch_of
from picograd.devices.render_rules import C
from picograd.ir.host import GivenKernel
from picograd.ir.op import Op, greatest
from picograd.ir.ranges import interval_of
from picograd.ir.stages import Kernel, Launch, Param, Program, Source
from picograd.ir.statements import Alloc, For, Statement, Transpose


def render(program: Program, target: Target) -> Source:
    """Writes all phases of a Program as C.

    Raises:
      VerifyError: the Program violates the linear form, or has statements for GPUs only.
    """
    functions, launches = ['#include "primitives.h"\n'], []
    for phase, statements in enumerate(program.phases):
        symbol = f"{program.name}_{phase}"
        writer = CWriter(program)
        writer.write_phase(statements)
        functions.append("\n".join([f"{signature(program, symbol)} {{", *writer.lines, "}", ""]))
        launches.append(launch_of(symbol, statements))
    return program.source("c", "\n".join(functions), launches)


def source_of_given(kernel: Kernel, call: Op) -> Source:
    """Returns the source of a user's kernel in C, followed by a function with a plan's parameters."""
    given: GivenKernel = call.arg[0]
    params, (passed,) = arguments_of(kernel, call, C)
    head = [f"{param_type(param)} *p{slot}" for slot, param in enumerate(params)]
    head += [f"int64 n_{variable.arg[0]}" for variable in kernel.variables]
    symbol, values = f"{kernel.name}_0", ", ".join(f"({type_}){value}" for type_, value in passed)
    text = "\n".join([
        f'#include "primitives.h"\n{given.text}\n',
        f'#line 1 "{kernel.name}_call.c"',
        f"void {symbol}({', '.join([*head, 'int64 begin', 'int64 end'])}) {{ {given.launches[0].entry}({values}); }}",
        "",
    ])  # fmt: skip
    work = sum(greatest(param.numel) for param in params)
    return Source(kernel.name, "c", text, params, kernel.variables, (Launch(symbol, 1, 1, work),))


def signature(program: Program, symbol: str) -> str:
    """Returns the head of one function."""
    params = [f"{param_type(param)} *p{slot}" for slot, param in enumerate(program.params)]
    params += [f"int64 n_{variable.arg[0]}" for variable in program.variables]
    return f"void {symbol}({', '.join([*params, 'int64 begin', 'int64 end'])})"


def param_type(param: Param) -> str:
    """Returns the type of an argument's elements; memory that is only read is const."""
    return f"{'const ' if param.role == 'in' else ''}{param.dtype}"


class CWriter(Writer):
    """Writes the body of one phase's function."""

    spelling = C

    def write_phase(self, statements: Sequence[Statement]) -> None:
        """Writes the statements before the GRID loops, then the part of each loop that is in begin..end."""
        loops = grid_loops(statements)
        self.write([statement for statement in statements if statement not in loops])
        if len(loops) == 1:
            self.write_part(loops[0], "begin", "end")
            return
        start = "0"
        for number, loop in enumerate(loops):
            extent = self.operand(loop.range.src[0])
            first, stop = f"first{number}", f"stop{number}"
            self.line(f"const int64 {first} = {start}, {stop} = {first} + larger_int64({extent}, 0);")
            self.write_part(loop, f"larger_int64(begin, {first}) - {first}", f"smaller_int64(end, {stop}) - {first}")
            start = stop

    def write_part(self, loop: For, low: str, high: str) -> None:
        """Writes the iterations of a GRID loop from `low` up to `high`."""
        self.intervals[loop.range] = 0, max(0, interval_of(loop.range.src[0], self.intervals)[1] - 1)
        name = self.operand(loop.range)
        with self.braces(f"for (int64 {name} = {low}; {name} < {high}; {name}++)"):
            self.write(loop.body)

    def write_alloc(self, alloc: Alloc) -> None:
        name, numel, _ = alloc.memory.arg
        self.line(f"{alloc.memory.dtype} {name}[{numel}];")

    def write_transpose(self, transpose: Transpose) -> None:
        """Writes a transposition as two loops."""
        into = self.place(transpose.into, transpose.place, f"j * {transpose.step} + i")
        memory = self.place(transpose.memory, transpose.index, f"i * {transpose.stride} + j")
        lanes = transpose.lanes
        with self.braces(f"for (int64 i = 0; i < {lanes}; i++)"):
            self.line(f"for (int64 j = 0; j < {lanes}; j++) {into} = {memory};")

    def place(self, memory: Op, index: Op, offset: str) -> str:
        """Returns the text of the element `offset` further."""
        return f"{self.memory(memory)}[{self.operand(index)} + {offset}]"

    def write_barrier(self, statement: Statement) -> None:
        """Writes nothing: a block is one thread."""
