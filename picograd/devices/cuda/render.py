"""Writes a Program as CUDA C: one `extern "C" __global__` function per phase, `{name}_{i}`.

In:    Program (linear form), Target
Out:   Source, with a Launch for each phase

NVRTC compiles the text for a GPU, and a C++ compiler for the simulator; both read primitives.h.
NOTE: pointers are not `__restrict__`: an output may be the same memory as an input of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from picograd.device import Target
from picograd.devices.render_cstyle import BlockWriter, arguments_of, map_name, parameters_of
from picograd.devices.render_grids import asked_for, launch_of_blocks, least_blocks, take_apart
from picograd.devices.render_rules import CPP
from picograd.ir.host import INCLUDES_GIVEN, MAP_TYPE, GivenKernel
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
from picograd.record import replace


def render(program: Program, target: Target) -> Source:
    """Writes all phases of a Program as CUDA C.

    Raises:
      VerifyError: the Program violates the linear form, or needs more shared memory than the target has.
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
      launch_bounds: threads per block; and blocks that must fit, so that each gets all registers
    """
    params = [f"{param_type(param)} p{slot}" for slot, param in enumerate(program.params)]
    params += [f"int64 n_{variable.arg[0]}" for variable in program.variables]
    return f'extern "C" __global__ void __launch_bounds__({launch_bounds}) {symbol}({", ".join(params)})'


# ---- kernels of a user's own ----
GIVEN_HEAD = f'#include "primitives.h"\n{INCLUDES_GIVEN}\n'


def source_of_given(kernel: Kernel, call: Op) -> Source:
    """Returns the source of a user's kernel, with a function per launch around it that has a plan's parameters.

    Unused results are scratch memory. Constants are written out.
    """
    given: GivenKernel = call.arg[0]
    params, values = arguments_of(kernel, call, CPP)
    in_c = "#define restrict\n" if given.language == "c" else ""  # C++ lacks the word
    lines = [f"{GIVEN_HEAD}{in_c}{given.text}\n", f'#line 1 "{kernel.name}_launch.cu"']
    launches, work = [], sum(greatest(param.numel) for param in params)
    for number, (own, blocks) in enumerate(zip(given.launches, call.arg[2])):
        symbol, block = f"{kernel.name}_{number}", prod(own.axes[2:])
        passed = [_passed(type_, value, name) for (type_, value), name in zip(values[number], own.names)]
        head = ", ".join(_head_of_given(kernel, params, values[number], len(own.tile_maps)))
        lines += [f"GIVEN_KERNEL({own.bounds or block}) {symbol}({head}) {{", f"  {own.entry}({', '.join(passed)});", "}"]
        maps = tuple([replace(each, param=_slot(kernel, call, each.param)) for each in own.tile_maps])
        launches.append(Launch(symbol, blocks, block, work, own.shared_nbytes, maps, own.axes))
    return Source(kernel.name, "cuda", "\n".join([*lines, ""]), params, kernel.variables, tuple(launches))


def _passed(type_: str, value: str, name: str) -> str:
    """Returns the text of an argument of a user's function."""
    if type_ == MAP_TYPE:
        return value
    return f"GIVEN({value}, {name})" if "*" in type_ or "Global" in type_ else f"({type_}){value}"


def _head_of_given(kernel: Kernel, params: Sequence[Param], passed: Sequence[tuple[str, str]], num_maps: int) -> list[str]:
    """Returns the parameters of a function around a user's: memory, maps of tiles, symbolic integers."""
    written = {value for type_, value in passed if "const" not in type_}
    head = [f"{param_type(param, f'p{slot}' not in written)} p{slot}" for slot, param in enumerate(params)]
    head += [f"LAUNCHED_TILE_MAP({map_name(number)})" for number in range(num_maps)]
    return head + [f"int64 n_{variable.arg[0]}" for variable in kernel.variables]


def _slot(kernel: Kernel, call: Op, at: int) -> int:
    """Returns the slot of an operand, or of a result, with a tile map."""
    if at < 0:
        return parameters_of(kernel, call)[1][-1 - at]
    op = call.src[at]
    while op.code is OpCode.RESHAPE:
        (op,) = op.src
    return int(op.arg[0])


def param_type(param: Param, is_read: bool = False) -> str:
    """Returns the type of an argument; memory that is only read is const."""
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
        """Returns the arguments of an access: memory and index."""
        pairs = [(getattr(statement, memory), getattr(statement, index)) for memory, index in ACCESSES[type(statement)]]
        return ", ".join(f"{self.memory(memory)}, {self.operand(index)}" for memory, index in pairs)

    def operation(self, op: Op, operands: list[str]) -> str:
        """Returns the text of an operation; approximate ones are primitives."""
        is_rough = op.code is OpCode.EXP2 and op.arg == ROUGHLY
        return f"rough_exp2({operands[0]})" if is_rough else super().operation(op, operands)

    def write_barrier(self, statement: Statement) -> None:
        self.check_whole(statement)
        self.line("__syncthreads();")
