"""Writes a Program as LLVM IR text for an NVIDIA GPU: one kernel function a phase, `{name}_{i}`.

In:    Program (linear form), Target (language "nvptx")
Out:   Source, with a Launch for each phase
Called by: devices/ptx/backend.py.    Next: picograd/render/nvptx_rows.py

How loops lie over blocks and threads is as in CUDA C (render/blocks.py); what an operation is in LLVM IR is as on the CPU
(render/llvm_rows.py). Here stands what is neither: the number of a thread, barriers, shared memory, and integers of 32 bits
that are part of an address.

REGISTER memory is SSA values, an element each: no pass has to turn memory into values, and no local memory is used.
Pointers come without an address space; LLVM finds which are of global and which of shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.errors import VerifyError
from picograd.ir.divisors import divisor_of
from picograd.ir.intervals import exact_interval, interval_of
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program, Source
from picograd.ir.statements import (
    Alloc,
    Barrier,
    CommitCopies,
    CopyAsync,
    For,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Prefetch,
    Shuffle,
    Statement,
    Store,
    Transpose,
    WaitForCopies,
    operands,
    walk,
)
from picograd.ir.symbolic import to_op
from picograd.render.blocks import (
    Phase,
    asked_for,
    grid_interval,
    is_rolled,
    launch_of_blocks,
    least_blocks,
    shared_nbytes_of,
    take_apart,
    too_much_shared,
)
from picograd.render.llvm import FunctionWriter
from picograd.render.llvm_checks import LIKELY
from picograd.render.llvm_rows import memory_type, suffix, type_of, with_sign_of_divisor
from picograd.render.nvptx_memory import SHARED_ALIGNMENT, copy_elements, load_elements, store_elements
from picograd.render.nvptx_rows import ROUGH_EXP2, functions_called_by, lane_by_lane, remainder, select_bytes
from picograd.render.nvptx_warps import write_load_matrices, write_mma, write_shuffle
from picograd.render.registers import changes, is_register

THREAD, BLOCK = "llvm.nvvm.read.ptx.sreg.tid.x", "llvm.nvvm.read.ptx.sreg.ctaid.x"
BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
THREADS, BLOCKS = '"nvvm.maxntid"="{}"', ' "nvvm.minctasm"="{}"'  # of a block; that must fit a multiprocessor
ASKED_FOR = f"@asked_for = external addrspace(3) global [0 x i8], align {SHARED_ALIGNMENT}"  # the launch says how much
ROLLED = '!1 = distinct !{!1, !2}\n!2 = !{!"llvm.loop.unroll.disable"}\n'
COMMIT = "call void @llvm.nvvm.cp.async.commit.group()"
WAIT = "call void @llvm.nvvm.cp.async.wait.group(i32 {})"

# Instructions for integers of 32 bits: sums and products that do not wrap, quotients of what is not negative.
EXACT = {
    OpCode.ADD: "add nsw", OpCode.SUB: "sub nsw", OpCode.MUL: "mul nsw", OpCode.IDIV: "udiv", OpCode.MOD: "urem",
}  # fmt: skip


def render(program: Program, target: Target) -> Source:
    """Writes every phase of a Program as a kernel function.

    Raises:
      VerifyError: the Program breaks a rule of the linear form, or needs more shared memory than the target has.
    """
    functions, launches = [], []
    shared: list[str] = []
    for i, statements in enumerate(program.phases):
        phase = take_apart(program, statements)
        writer = KernelWriter(program, phase, target, f"{program.name}_{i}")
        functions.append(writer.write_kernel(statements))
        shared += writer.shared.values()
        launches.append(launch_of_blocks(program, phase, writer.symbol))
    text = "\n".join([*dict.fromkeys(shared), "", *functions] if shared else functions)
    text += functions_called_by(text)
    if "!prof !0" in text:
        text += "\n" + LIKELY
    if "!llvm.loop !1" in text:
        text += "\n" + ROLLED
    return Source(program.name, "nvptx", text, program.params, program.variables, tuple(launches))


class KernelWriter(FunctionWriter):
    """The text of one phase's kernel function under construction.

    shared:   name of SHARED memory -> its definition
    divisors: of integer VARs
    steps:    VAR that is a constant more than another -> that other, and the constant
    aligned:  parameters are taken to start at a multiple of 16 bytes
    checked:  whether an access has made use of that
    """

    def __init__(self, program: Program, phase: Phase, target: Target, symbol: str):
        super().__init__(program, target)
        self.phase, self.symbol = phase, symbol
        self.shared: dict[str, str] = {}
        self.shared_nbytes = 0
        self.start(True)

    def start(self, aligned: bool) -> None:
        """Begins a body: nothing is named yet but arguments."""
        self.values, self.held = {}, {}
        self.divisors: dict[Op, int] = {}
        self.steps: dict[Op, tuple[Op, int]] = {}
        self.intervals, self.constants, self.ranges, self.depths, self.waiting = {}, {}, {}, {}, {}
        self.in_block = self.phase.block == 1  # with one thread every statement is that thread's
        self.guarded = False  # not all threads of the block run this
        self.aligned, self.checked = aligned, False

    def write_kernel(self, statements: Sequence[Statement]) -> str:
        """Returns the text of the function.

        It has one body; or, where accesses of 16 bytes need memory that begins at a multiple of 16, a second one for memory
        that does not, such as a row of something larger.
        """
        self.changes = changes(statements, apart=True)
        self.write_entry(statements)
        self.block = "aligned"
        self.write_phase()
        end = ["  ret void", "}", ""]
        lines = [f"  br i1 {self.choice()}, label %aligned, label %apart" if self.checked else "  br label %aligned"]
        lines += ["aligned:", *filter(None, self.lines)]
        if self.checked:
            self.start(False)
            self.lines, self.block = [], "apart"
            self.write_phase()
            lines += ["  ret void", "apart:", *filter(None, self.lines)]
        params = [f"ptr %p{slot}" for slot in range(len(self.program.params))]
        params += [f"i64 %n_{variable.arg[0]}" for variable in self.program.variables]
        blocks = least_blocks(statements)
        limits = THREADS.format(self.phase.block) + (BLOCKS.format(blocks) if blocks else "")
        head = f'define ptx_kernel void @{self.symbol}({", ".join(params)}) {limits} {{'
        return "\n".join([head, "entry:", *self.entry, *lines, *end])

    def write_entry(self, statements: Sequence[Statement]) -> None:
        """Names what every thread knows: parameters, its own number and its block's."""
        mentioned = [op for statement in walk(statements) for op in operands(statement)]
        self.pointers = {op: f"%p{op.arg[0]}" for op in mentioned if op.code is OpCode.PARAM}
        for name, register in (("thread", THREAD), ("block", BLOCK)):
            self.entry.append(f"  %{name}.32 = call i32 @{register}()")
            self.entry.append(f"  %{name} = zext i32 %{name}.32 to i64")
        self.entry.append("  %first = icmp eq i64 %thread, 0")

    def choice(self) -> str:
        """Writes whether all parameters begin at a multiple of 16 bytes."""
        whole = None
        for slot in range(len(self.program.params)):
            self.entry.append(f"  %p{slot}.at = ptrtoint ptr %p{slot} to i64")
            if slot:
                self.entry.append(f"  %p{slot}.all = or i64 {whole}, %p{slot}.at")
            whole = f"%p{slot}.all" if slot else "%p0.at"
        self.entry.append(f"  %apart.bytes = and i64 {whole}, {SHARED_ALIGNMENT - 1}")
        self.entry.append("  %is.aligned = icmp eq i64 %apart.bytes, 0")
        return "%is.aligned"

    def broken(self, rule: str) -> VerifyError:
        """Returns the error for a Program that breaks a rule of the linear form."""
        return VerifyError(f"render: kernel {self.program.name} breaks a rule of the linear form: {rule}.")

    # ---- loops ----
    def write_phase(self) -> None:
        """Writes what stands before the GRID loops, then each of them for its own blocks."""
        for variable in self.program.variables:
            self.values[variable] = f"%n_{variable.arg[0]}"
        self.statements(self.phase.before)
        if len(self.phase.grids) == 1:
            self.write_grid(self.phase.grids[0], "%block")
            return
        for grid, start, stop in zip(self.phase.grids, self.phase.starts, self.phase.starts[1:]):
            first, end = self.operand(to_op(start), 1), self.operand(to_op(stop), 1)
            after, before = self.emit(f"icmp sge i64 %block, {first}"), self.emit(f"icmp slt i64 %block, {end}")
            with self.when(self.emit(f"and i1 {after}, {before}"), self.changes[id(grid)]):
                self.write_grid(grid, self.emit(f"sub i64 %block, {first}"))

    def write_grid(self, loop: For, position: str) -> None:
        self.intervals[loop.range] = grid_interval(loop, self.intervals)
        if loop.range.dtype is dtypes.int32:
            position = "%block.32" if position == "%block" else self.emit(f"trunc i64 {position} to i32")
        self.ranges[loop.range.arg[0]] = position
        self.statements(loop.body)

    def hint(self, loop: For) -> str:
        return ", !llvm.loop !1" if is_rolled(loop) else ""

    def write_block(self, loop: For) -> None:
        """Writes a BLOCK loop as the threads of the block, those beyond its extent idle."""
        if self.in_block and self.phase.block > 1:
            raise self.broken("a BLOCK loop stands in another")
        extent = loop.range.src[0]
        self.intervals[loop.range] = 0, max(0, min(interval_of(extent, self.intervals)[1], self.phase.block) - 1)
        self.ranges[loop.range.arg[0]] = "%thread.32" if loop.range.dtype is dtypes.int32 else "%thread"
        outer, self.in_block = self.in_block, True
        if extent.code is OpCode.CONST and extent.arg == self.phase.block:
            self.statements(loop.body)
        else:
            self.guarded = True
            inside = self.emit(f"icmp slt i64 %thread, {self.operand(extent, 1)}")
            with self.when(inside, self.changes[id(loop)]):
                self.statements(loop.body)
            self.guarded = False
        self.in_block = outer

    # ---- statements ----
    def statement(self, statement: Statement) -> None:
        """Writes the instructions of one statement."""
        if isinstance(statement, For) and statement.range.arg[1] is AxisKind.BLOCK:
            self.write_block(statement)
        elif isinstance(statement, For) and statement.range.arg[1] is not AxisKind.LOOP:
            raise self.broken(f"a {statement.range.arg[1].name} loop stands where only a LOOP can")
        elif isinstance(statement, Load):
            self.depths[statement.var] = len(self.loops)
            self.values[statement.var] = load_elements(self, statement)
        elif isinstance(statement, Store):
            self.write_store(statement)
        elif isinstance(statement, Alloc):
            self.write_alloc(statement.memory)
        elif isinstance(statement, Shuffle):
            write_shuffle(self, statement)
        elif isinstance(statement, Mma):
            write_mma(self, statement)
        elif isinstance(statement, LoadMatrices):
            write_load_matrices(self, statement)
        elif isinstance(statement, CopyAsync):
            copy_elements(self, statement)
        elif isinstance(statement, CommitCopies):
            self.lines.append(f"  {COMMIT}")
        elif isinstance(statement, WaitForCopies):
            self.lines.append(f"  {WAIT.format(statement.still)}")
        elif isinstance(statement, Barrier):
            if self.guarded:
                raise self.broken("a Barrier stands in a BLOCK loop that not all threads run")
            self.lines.append(f"  {BARRIER}")
        elif isinstance(statement, Transpose):
            raise self.broken("a Transpose is of a CPU's vectors")
        elif not isinstance(statement, Prefetch):  # a GPU has other threads to run while one waits for memory
            if isinstance(statement, Let) and statement.value.dtype.is_int:
                self.divisors[statement.var] = divisor_of(statement.value, self.divisors)
                self.intervals[statement.var] = interval_of(statement.value, self.intervals)
                self.note_step(statement.var, statement.value)
            super().statement(statement)

    def write_store(self, store: Store) -> None:
        """Writes a Store; what others see is stored by one thread where all would store the same."""
        if self.in_block or is_register(store.memory):
            store_elements(self, store)
            return
        with self.when("%first"):
            store_elements(self, store)

    def write_alloc(self, memory: Op) -> None:
        """Defines SHARED memory of the block; REGISTERS are values and need nothing."""
        name, numel, space = memory.arg
        if space is MemorySpace.GLOBAL:
            raise self.broken(f"{name} is GLOBAL memory, which only a parameter can be")
        if space is MemorySpace.REGISTER:
            return
        shared = f"{self.symbol}_{name}"
        if shared not in self.shared:
            first = self.shared_nbytes
            self.shared_nbytes += shared_nbytes_of(memory)
            if self.shared_nbytes > self.target.shared_bytes:
                raise self.broken(too_much_shared(self.target, str(name), self.shared_nbytes))
            if asked_for(self.phase):
                self.shared[shared] = ASKED_FOR
                self.entry.append(f"  %{name}.whole = addrspacecast ptr addrspace(3) @asked_for to ptr")
                self.entry.append(f"  %{name}.at = getelementptr i8, ptr %{name}.whole, i64 {first}")
            else:
                kind = f"[{numel} x {memory_type(memory.dtype)}]"
                where = f"internal addrspace(3) global {kind} poison, align {SHARED_ALIGNMENT}"
                self.shared[shared] = f"@{shared} = {where}"
                self.entry.append(f"  %{name}.at = addrspacecast ptr addrspace(3) @{shared} to ptr")
        self.pointers[memory] = f"%{name}.at"

    # ---- values ----
    def operation(self, op: Op, lanes: int) -> str:
        """Writes the value of a Let: by the rows of the CPU, but for what a GPU has other instructions for."""
        if op.code is OpCode.EXP2:  # a rough one: all others are polynomials
            return lane_by_lane(self.emit, op, ROUGH_EXP2, [self.operand(op.src[0], lanes)], lanes)
        if op.code in (OpCode.MAX, OpCode.MIN) and op.dtype is dtypes.float32:
            a, b = (self.operand(s, lanes) for s in op.src)
            t, name = type_of(op.dtype, lanes), "maximum" if op.code is OpCode.MAX else "minimum"
            return self.emit(f"call {t} @llvm.{name}.{suffix(t)}({t} {a}, {t} {b})")  # NaN wins: one instruction
        if op.code is OpCode.MOD and op.dtype.is_float:
            a, b = (self.operand(s, lanes) for s in op.src)
            return with_sign_of_divisor(self.emit, op.dtype, remainder(self.emit, op, a, b, lanes), b, lanes)
        if op.code is OpCode.WHERE and op.dtype in (dtypes.int8, dtypes.uint8) and lanes > 1:
            return select_bytes(self.emit, [self.operand(s, lanes) for s in op.src], lanes)
        if op.dtype is dtypes.int32 and (written := self.exact_integer(op, lanes)):
            return written
        return super().operation(op, lanes)

    def exact_integer(self, op: Op, lanes: int) -> str | None:
        """Writes arithmetic that surely does not wrap; None where it may, or is no sum, product or quotient.

        Why: LLVM widens a sum of 32 bits to an address part by part, and finds constants in it, if it cannot wrap.
        """
        if op.code not in EXACT or not self.is_exact(op):
            return None
        if op.code in (OpCode.IDIV, OpCode.MOD) and interval_of(op.src[0], self.intervals)[0] < 0:
            return None
        a, b = (self.operand(s, lanes) for s in op.src)
        return self.emit(f"{EXACT[op.code]} {type_of(op.dtype, lanes)} {a}, {b}")

    def is_exact(self, op: Op) -> bool:
        """True where an operation on integers surely does not wrap."""
        exact = exact_interval(op, self.intervals)
        return exact is not None and int(op.dtype.min) <= exact[0] and exact[1] <= int(op.dtype.max)

    def is_index(self, value: Op) -> bool:
        return value.dtype is dtypes.int64 or (value.dtype is dtypes.int32 and self.is_exact(value))

    def note_step(self, var: Op, value: Op) -> None:
        """Remembers an index that is another one and a constant, which an access adds by itself."""
        if value.code is not OpCode.ADD or value.src[1].code is not OpCode.CONST or not self.is_index(value):
            return
        base, constant = self.steps.get(value.src[0], (value.src[0], 0))
        self.steps[var] = base, constant + int(value.src[1].arg)

    def address(self, memory: Op, index: Op) -> str:
        """Returns the address of one element: an index of 32 bits is widened without its constant part."""
        if index.dtype is not dtypes.int32 or (self.loops and self.sum_of(index) is not None):
            return super().address(memory, index)
        kind, (base, constant) = memory_type(memory.dtype), self.steps.get(index, (index, 0))
        wide = self.wide(base, self.lines)
        pointer = self.emit(f"getelementptr {kind}, ptr {self.pointers[memory]}, i64 {wide}")
        return self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {constant}") if constant else pointer

    def wide(self, op: Op, lines: list[str]) -> str:
        if op.dtype is dtypes.int64:
            return self.value_of(op)
        value, name = self.value_of(op), self.name()
        how = "zext nneg" if interval_of(op, self.intervals)[0] >= 0 else "sext"
        lines.append(f"  {name} = {how} i32 {value} to i64")
        return name
