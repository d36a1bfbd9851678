"""Writes a Program as CUDA C: one `extern "C" __global__` function a phase, `{name}_{i}`.

In:    Program (linear form), Target
Out:   Source, with a Launch for each phase

The text is compiled by NVRTC for a GPU and by a C++ compiler for the simulator; both read primitives.h.
NOTE: pointers are not `__restrict__`: an output may be the same memory as an input of the kernel.
"""

from __future__ import annotations

from picograd.device import Target
from picograd.ir.op import Op
from picograd.ir.opcode import ROUGHLY, MemorySpace, OpCode
from picograd.ir.stages import Param, Program, Source
from picograd.ir.statements import Alloc, CommitCopies, CopyAsync, LoadMatrices, Mma, Shuffle, WaitForCopies
from picograd.render.cstyle import BlockWriter, OfAGpu
from picograd.render.grids import asked_for, launch_of_blocks, least_blocks, take_apart


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
        launch_bounds = ", ".join(str(n) for n in (phase.block, least_blocks(statements)) if n)
        functions.append("\n".join([f"{signature(program, symbol, launch_bounds)} {{", *writer.lines, "}", ""]))
        launches.append(launch_of_blocks(program, phase, symbol))
    text = "\n".join(['#include "primitives.h"\n', *functions])
    return Source(program.name, "cuda", text, program.params, program.variables, tuple(launches))


def signature(program: Program, symbol: str, launch_bounds: str) -> str:
    """Returns the head of one function.

    Args:
      launch_bounds: threads of a block; and how many blocks must fit, so that they get all registers
    """
    params = [f"{param_type(param)} p{slot}" for slot, param in enumerate(program.params)]
    params += [f"int64 n_{variable.arg[0]}" for variable in program.variables]
    return f'extern "C" __global__ void __launch_bounds__({launch_bounds}) {symbol}({", ".join(params)})'


def param_type(param: Param) -> str:
    """Returns the type of one argument: memory that is only read is const."""
    return f"Global<{'const ' if param.role == 'in' else ''}{param.dtype}>"


class CudaWriter(BlockWriter):
    """Writes the body of one phase's function."""

    thread, block = "threadIdx.x", "blockIdx.x"

    def write_alloc(self, alloc: Alloc) -> None:
        """Declares SHARED memory of the block or REGISTERS of a thread."""
        name, numel, space = alloc.memory.arg
        first = self.shared_nbytes
        self.check_space(alloc.memory)
        what = f"{alloc.memory.dtype}, {name}, {numel}"
        if space is MemorySpace.REGISTER:
            self.line(f"REGISTERS({what});")
        else:
            self.line(f"SHARED_AT({what}, {first});" if asked_for(self.phase) else f"SHARED({what});")

    def write_of_a_gpu(self, statement: OfAGpu) -> None:
        """Calls the primitive of that name (devices/cuda/primitives.h)."""
        if isinstance(statement, Shuffle | LoadMatrices | Mma):
            self.check_whole(f"a {type(statement).__name__}")
        match statement:
            case CopyAsync(into=into, place=place, memory=memory, index=index, lanes=lanes, valid=valid):
                accesses, condition = self.places((into, place), (memory, index)), self.operand(valid) if valid else "true"
                self.line(f"copy_async<{lanes}>({accesses}, {condition});")
            case CommitCopies():
                self.line("commit_copies();")
            case WaitForCopies(still=still):
                self.line(f"wait_copies<{still}>();")
            case Shuffle(var=var, value=value, distance=distance):
                self.name(var, [f"shuffle_xor({self.operand(value)}, {distance})"])
            case LoadMatrices(into=into, place=place, memory=memory, index=index, turned=turned):
                accesses = self.places((into, place), (memory, index))
                self.line(f"load_matrices<{'true' if turned else 'false'}>({accesses});")
            case Mma():
                accesses = self.places(*[(memory, index) for memory, index, _ in statement.spans()])
                self.line(f"mma_m16n8k16({accesses});")

    def places(self, *accesses: tuple[Op, Op]) -> str:
        """Returns the arguments that name memory and index."""
        return ", ".join(f"{self.memory(memory)}, {self.operand(index)}" for memory, index in accesses)

    def operation(self, op: Op, operands: list[str]) -> str:
        """Returns the text of one operation: a rough one is a primitive."""
        is_rough = op.code is OpCode.EXP2 and op.arg == ROUGHLY
        return f"rough_exp2({operands[0]})" if is_rough else super().operation(op, operands)

    def write_barrier(self) -> None:
        self.check_whole("a Barrier")
        self.line("__syncthreads();")
