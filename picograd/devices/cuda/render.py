"""Writes a Program as CUDA C: one `extern "C" __global__` function a phase, `{name}_{i}`.

In:    Program (linear form), Target
Out:   Source, with a Launch for each phase

The text is compiled by NVRTC for a GPU and by a C++ compiler for the simulator; both read primitives.h.
NOTE: pointers are not `__restrict__`: an output may be the same memory as an input of the kernel.
"""

from __future__ import annotations

from math import prod

from picograd.device import Target
from picograd.devices.render_cstyle import BlockWriter, arguments_of
from picograd.devices.render_grids import asked_for, launch_of_blocks, least_blocks, take_apart
from picograd.devices.render_rules import CPP
from picograd.ir.host import INCLUDES_GIVEN, GivenKernel
from picograd.ir.op import Op, greatest
from picograd.ir.opcode import ROUGHLY, MemorySpace, OpCode
from picograd.ir.stages import Kernel, Launch, Param, Program, Source
from picograd.ir.statements import (
    ACCESSES,
    Alloc,
    CommitCopies,
    CopyAsync,
    LoadMatrices,
    Mma,
    Shuffle,
    Statement,
    WaitForCopies,
)


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
    return program.source("cuda", text, launches)


def signature(program: Program, symbol: str, launch_bounds: str) -> str:
    """Returns the head of one function.

    Args:
      launch_bounds: threads of a block; and how many blocks must fit, so that they get all registers
    """
    params = [f"{param_type(param)} p{slot}" for slot, param in enumerate(program.params)]
    params += [f"int64 n_{variable.arg[0]}" for variable in program.variables]
    return f'extern "C" __global__ void __launch_bounds__({launch_bounds}) {symbol}({", ".join(params)})'


# ---- kernels of a user's own ----
GIVEN_HEAD = f'#include "primitives.h"\n{INCLUDES_GIVEN}\n'


def source_of_given(kernel: Kernel, call: Op) -> Source:
    """Returns the source of a user's kernel, with a function around it that has a plan's parameters.

    Results that nobody asks for are scratch memory. Numbers are written out where they are constants.
    """
    given: GivenKernel = call.arg[0]
    params, values = arguments_of(kernel, call, CPP)
    passed = []
    for (type_, value), name in zip(values, given.names):
        passed.append(f"GIVEN({value}, {name})" if "*" in type_ or "Global" in type_ else f"({type_}){value}")
    symbol, block = f"{kernel.name}_0", prod(given.axes[2:])
    read = {slot for slot, param in enumerate(kernel.params) if slot not in dict(kernel.phases[0][0].outputs)}
    head = [f"{param_type(param, slot in read)} p{slot}" for slot, param in enumerate(params)]
    head += [f"int64 n_{variable.arg[0]}" for variable in kernel.variables]
    in_c = "#define restrict\n" if given.language == "c" else ""  # a word that C++ does not have
    text = "\n".join([
        f"{GIVEN_HEAD}{in_c}{given.text}\n",
        f'#line 1 "{kernel.name}_launch.cu"',
        f"GIVEN_KERNEL({given.bounds or block}) {symbol}({', '.join(head)}) {{",
        f"  {given.entry}({', '.join(passed)});",
        "}",
        "",
    ])  # fmt: skip
    work = sum(greatest(param.numel) for param in params)
    launch = Launch(symbol, call.arg[2], block, work, given.shared_nbytes, axes=given.axes)
    return Source(kernel.name, "cuda", text, params, kernel.variables, (launch,))


def param_type(param: Param, is_read: bool = False) -> str:
    """Returns the type of one argument: memory that is only read is const."""
    return f"Global<{'const ' if is_read or param.role == 'in' else ''}{param.dtype}>"


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

    # ---- primitives (devices/cuda/primitives.h) ----
    def write_copy_async(self, copy: CopyAsync) -> None:
        accesses, condition = self.accesses(copy), self.operand(copy.valid) if copy.valid else "true"
        self.line(f"copy_async<{copy.lanes}>({accesses}, {condition});")

    def write_commit_copies(self, statement: CommitCopies) -> None:
        self.line("commit_copies();")

    def write_wait_for_copies(self, wait: WaitForCopies) -> None:
        self.line(f"wait_copies<{wait.still}>();")

    def write_shuffle(self, shuffle: Shuffle) -> None:
        self.check_whole(shuffle)
        self.name(shuffle.var, [f"shuffle_xor({self.operand(shuffle.value)}, {shuffle.distance})"])

    def write_load_matrices(self, load: LoadMatrices) -> None:
        self.check_whole(load)
        self.line(f"load_matrices<{'true' if load.transposed else 'false'}>({self.accesses(load)});")

    def write_mma(self, mma: Mma) -> None:
        self.check_whole(mma)
        self.line(f"mma_m16n8k16({self.accesses(mma)});")

    def accesses(self, statement: Statement) -> str:
        """Returns the arguments that name memory and index, as the statement has them."""
        pairs = [(getattr(statement, memory), getattr(statement, index)) for memory, index in ACCESSES[type(statement)]]
        return ", ".join(f"{self.memory(memory)}, {self.operand(index)}" for memory, index in pairs)

    def operation(self, op: Op, operands: list[str]) -> str:
        """Returns the text of one operation: a rough one is a primitive."""
        is_rough = op.code is OpCode.EXP2 and op.arg == ROUGHLY
        return f"rough_exp2({operands[0]})" if is_rough else super().operation(op, operands)

    def write_barrier(self, statement: Statement) -> None:
        self.check_whole(statement)
        self.line("__syncthreads();")
