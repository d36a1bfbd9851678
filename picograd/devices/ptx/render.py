"""Writes a Program as LLVM IR for an NVIDIA GPU: one kernel function per phase, `{name}_{i}`.

In:    Program (linear form), Target (language "nvptx")
Out:   Source, with a Launch for each phase

Loops are distributed over blocks and threads as in CUDA C (devices/render_grids.py); operations are written as for a CPU
(devices/render_llvm_rows.py). This file adds the rest: thread numbers, barriers, shared memory, accesses of up to 16 bytes,
exchanges between the threads of a warp, and 32-bit integers as parts of addresses.

REGISTER memory is SSA values, one per element, so no pass has to promote memory, and no local memory is used. Pointers have
no address space; LLVM finds out which are global and which shared. The code branches around an access whose condition may
be false; short branches become predicates. Mma in ir/statements.py says how a warp's registers hold a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.render_grids import (
    Phase,
    asked_for,
    broken,
    grid_interval,
    is_rolled,
    launch_of_blocks,
    least_blocks,
    shared_nbytes_of,
    take_apart,
    too_much_shared,
)
from picograd.devices.render_llvm import LIKELY, Dialect, LlvmWriter, Slot, parts_of, slots_by_id
from picograd.devices.render_llvm_rows import WriteLine, memory_type, suffix, type_of, vector, with_sign_of_divisor
from picograd.errors import VerifyError
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.ranges import divisor_of, exact_interval, interval_of
from picograd.ir.stages import Program, Source
from picograd.ir.statements import (
    CommitCopies,
    CopyAsync,
    For,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Shuffle,
    Statement,
    Store,
    WaitForCopies,
    lanes_of,
    operands,
    walk,
)
from picograd.ir.symbolic import to_op

GPU = Dialect(
    apart=True,
    picks=False,  # from memory only
    barrier="call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
    prefetch="",
    rows={  # one instruction; NaN if one is NaN
        (OpCode.MAX, dtypes.float32): "call {t} @llvm.maximum.{s}({t} {0}, {t} {1})",
        (OpCode.MIN, dtypes.float32): "call {t} @llvm.minimum.{s}({t} {0}, {t} {1})",
    },
)
ACCESS_BYTES = 16  # widest access of a thread
SHARED_ALIGNMENT = 16
THREAD, BLOCK = "llvm.nvvm.read.ptx.sreg.tid.x", "llvm.nvvm.read.ptx.sreg.ctaid.x"
THREADS, BLOCKS = '"nvvm.maxntid"="{}"', ' "nvvm.minctasm"="{}"'  # threads per block; blocks that must fit a multiprocessor
ASKED_FOR = f"@asked_for = external addrspace(3) global [0 x i8], align {SHARED_ALIGNMENT}"  # the launch says the size
ROLLED = '!1 = distinct !{!1, !2}\n!2 = !{!"llvm.loop.unroll.disable"}\n'
COMMIT = "call void @llvm.nvvm.cp.async.commit.group()"
WAIT = "call void @llvm.nvvm.cp.async.wait.group(i32 {})"

# Instructions for 32-bit integers: sums and products that do not wrap, quotients of nonnegative numbers.
EXACT = {
    OpCode.ADD: "add nsw", OpCode.SUB: "sub nsw", OpCode.MUL: "mul nsw", OpCode.IDIV: "udiv", OpCode.MOD: "urem",
}  # fmt: skip
SHUFFLE = "call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {0}, i32 {1}, i32 31)"  # -1: all 32 threads; 31: in one warp
MATRICES = "@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{}.b16.p3"
AS_TF32 = "call i32 @llvm.nvvm.f2tf32.rna(float {})"

# PTX ISA 9.7.15.5, mma.m16n8k16 (of TF32 m16n8k8): pairs of float16 come as vectors, of bfloat16 as 32 bits.
MULTIPLY = {
    dtypes.float16: ("<2 x half>", "@llvm.nvvm.mma.m16n8k16.row.col.f32.f32"),
    dtypes.bfloat16: ("i32", "@llvm.nvvm.mma.m16n8k16.row.col.bf16"),
    dtypes.float32: ("i32", "@llvm.nvvm.mma.m16n8k8.row.col.tf32"),
}
ROUGH_EXP2 = "call float @llvm.nvvm.ex2.approx.ftz.f(float {})"


def render(program: Program, target: Target) -> Source:
    """Writes all phases of a Program as kernel functions.

    Raises:
      VerifyError: the Program violates the linear form, or needs more shared memory than the target has.
    """
    functions, launches = [], []
    shared: list[str] = []
    for i, statements in enumerate(program.phases):
        phase = take_apart(program, statements)
        writer = PtxWriter(program, phase, target, f"{program.name}_{i}")
        functions.append(writer.write_kernel(statements))
        shared += writer.shared.values()
        launches.append(launch_of_blocks(program, phase, writer.symbol))
    text = "\n".join([*dict.fromkeys(shared), "", *functions] if shared else functions)
    text += functions_called_by(text)
    if "!prof !0" in text:
        text += "\n" + LIKELY
    if "!llvm.loop !1" in text:
        text += "\n" + ROLLED
    return program.source("nvptx", text, launches)


class PtxWriter(LlvmWriter):
    """The text of one phase's kernel function under construction.

    shared:   name of SHARED memory -> its definition
    divisors: divisors of integer VARs
    steps:    VAR that is another one plus a constant -> that VAR, and the constant
    aligned:  parameters are assumed to begin at a multiple of 16 bytes
    checked:  an access has relied on that
    """

    dialect = GPU

    def __init__(self, program: Program, phase: Phase, target: Target, symbol: str):
        super().__init__(program, target)
        self.phase, self.symbol = phase, symbol
        self.shared: dict[str, str] = {}
        self.shared_nbytes = 0
        self.start(True)

    def start(self, aligned: bool) -> None:
        """Begins a body: only arguments have names yet."""
        self.values, self.held = {}, {}
        self.divisors: dict[Op, int] = {}
        self.steps: dict[Op, tuple[Op, int]] = {}
        self.intervals, self.constants, self.ranges, self.depths, self.waiting = {}, {}, {}, {}, {}
        self.indices = []
        self.in_block = self.phase.block == 1  # with one thread all statements are that thread's
        self.guarded = False  # True where only some threads of the block run
        self.aligned, self.checked = aligned, False

    def write_kernel(self, statements: Sequence[Statement]) -> str:
        """Returns the text of the function.

        It has one body; or, if accesses of 16 bytes need aligned memory, a second one for memory that is not aligned, such
        as a row of a larger buffer.
        """
        self.slots_by_id = slots_by_id(statements, apart=True)
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
        """Writes names for values that all threads have: parameters, thread number, block number."""
        mentioned = [op for statement in walk(statements) for op in operands(statement)]
        self.pointers = {op: f"%p{op.arg[0]}" for op in mentioned if op.code is OpCode.PARAM}
        for name, register in (("thread", THREAD), ("block", BLOCK)):
            self.entry.append(f"  %{name}.32 = call i32 @{register}()")
            self.entry.append(f"  %{name} = zext i32 %{name}.32 to i64")
        self.entry.append("  %first = icmp eq i64 %thread, 0")

    def choice(self) -> str:
        """Writes the test whether all parameters begin at a multiple of 16 bytes."""
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
        """Returns the error for a Program that violates the linear form."""
        return broken(self.program, rule)

    # ---- loops ----
    def write_phase(self) -> None:
        """Writes the statements before the GRID loops, then each loop for its range of blocks."""
        for variable in self.program.variables:
            self.values[variable] = f"%n_{variable.arg[0]}"
        self.statements(self.phase.before)
        if len(self.phase.grids) == 1:
            self.write_grid(self.phase.grids[0], "%block")
            return
        for grid, start, stop in zip(self.phase.grids, self.phase.starts, self.phase.starts[1:]):
            first, end = self.operand(to_op(start), 1), self.operand(to_op(stop), 1)
            after, before = self.emit(f"icmp sge i64 %block, {first}"), self.emit(f"icmp slt i64 %block, {end}")
            with self.when(self.emit(f"and i1 {after}, {before}"), self.slots_by_id[id(grid)]):
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
        """Writes a BLOCK loop as the threads of the block, of which those beyond its extent are idle."""
        if self.in_block and self.phase.block > 1:
            raise self.broken("a BLOCK loop is nested in another")
        extent = loop.range.src[0]
        self.intervals[loop.range] = 0, max(0, min(interval_of(extent, self.intervals)[1], self.phase.block) - 1)
        self.ranges[loop.range.arg[0]] = "%thread.32" if loop.range.dtype is dtypes.int32 else "%thread"
        outer, self.in_block = self.in_block, True
        if extent.code is OpCode.CONST and extent.arg == self.phase.block:
            self.statements(loop.body)
        else:
            self.guarded = True
            inside = self.emit(f"icmp slt i64 %thread, {self.operand(extent, 1)}")
            with self.when(inside, self.slots_by_id[id(loop)]):
                self.statements(loop.body)
            self.guarded = False
        self.in_block = outer

    # ---- statements ----
    def write_for(self, loop: For) -> None:
        kind = loop.range.arg[1]
        if kind is AxisKind.BLOCK:
            self.write_block(loop)
        elif kind is AxisKind.LOOP:
            super().write_for(loop)
        else:
            raise self.broken(f"a {kind.name} loop is used where only a LOOP can be")

    def write_let(self, let: Let) -> None:
        if let.value.dtype.is_int:
            self.divisors[let.var] = divisor_of(let.value, self.divisors)
            self.intervals[let.var] = interval_of(let.value, self.intervals)
            self.note_step(let.var, let.value)
        super().write_let(let)

    def write_commit_copies(self, statement: CommitCopies) -> None:
        self.lines.append(f"  {COMMIT}")

    def write_wait_for_copies(self, wait: WaitForCopies) -> None:
        self.lines.append(f"  {WAIT.format(wait.still)}")

    def write_barrier(self, statement: Statement) -> None:
        self._check_all_run(statement)
        super().write_barrier(statement)

    def allocate(self, memory: Op) -> None:
        """Defines SHARED memory of the block; REGISTERS are values and need no definition."""
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
        """Writes the value of a Let, by the CPU's rows unless a GPU has a better instruction."""
        if op.code is OpCode.EXP2:  # an approximate one; all others are polynomials
            return lane_by_lane(self.emit, op, ROUGH_EXP2, [self.operand(op.src[0], lanes)], lanes)
        if op.code is OpCode.MOD and op.dtype.is_float:
            a, b = (self.operand(s, lanes) for s in op.src)
            return with_sign_of_divisor(self.emit, op.dtype, remainder(self.emit, op, a, b, lanes), b, lanes)
        if op.code is OpCode.WHERE and op.dtype in (dtypes.int8, dtypes.uint8) and lanes > 1:
            return select_bytes(self.emit, [self.operand(s, lanes) for s in op.src], lanes)
        if op.dtype is dtypes.int32 and (written := self.exact_integer(op, lanes)):
            return written
        return super().operation(op, lanes)

    def exact_integer(self, op: Op, lanes: int) -> str | None:
        """Writes arithmetic that cannot wrap; None if it may, or is not a sum, product or quotient.

        Why: LLVM widens a 32-bit sum to an address term by term, and finds constants in it, if it cannot wrap.
        """
        if op.code not in EXACT or not self.is_exact(op):
            return None
        if op.code in (OpCode.IDIV, OpCode.MOD) and interval_of(op.src[0], self.intervals)[0] < 0:
            return None
        a, b = (self.operand(s, lanes) for s in op.src)
        return self.emit(f"{EXACT[op.code]} {type_of(op.dtype, lanes)} {a}, {b}")

    def is_exact(self, op: Op) -> bool:
        """True if an integer operation cannot wrap."""
        exact = exact_interval(op, self.intervals)
        return exact is not None and int(op.dtype.min) <= exact[0] and exact[1] <= int(op.dtype.max)

    def is_index(self, value: Op) -> bool:
        return value.dtype is dtypes.int64 or (value.dtype is dtypes.int32 and self.is_exact(value))

    def note_step(self, var: Op, value: Op) -> None:
        """Notes that an index is another one plus a constant, which an access adds for free."""
        if value.code is not OpCode.ADD or value.src[1].code is not OpCode.CONST or not self.is_index(value):
            return
        base, constant = self.steps.get(value.src[0], (value.src[0], 0))
        self.steps[var] = base, constant + int(value.src[1].arg)

    def address(self, memory: Op, index: Op) -> str:
        """Returns the address of an element: a 32-bit index is widened without its constant part."""
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

    # ---- loads and stores ----
    def read(self, load: Load) -> str:
        """Writes a Load and returns the name of its value."""
        lanes, dtype = lanes_of(load.var), load.var.dtype
        kind = memory_type(dtype, lanes)
        condition_lanes = 0 if load.valid is None else lanes_of(load.valid)
        if condition_lanes == 0:
            held = self._load(load.memory, load.index, lanes)
        elif condition_lanes == 1:
            held = self._where(self._condition(load, 0), kind, lambda: self._load(load.memory, load.index, lanes))
        else:
            held = "poison"
            for lane in range(lanes):
                held = self.emit(f"insertelement {kind} {held}, {self._lane_where(load, lane, lanes)}, i64 {lane}")
        return self.from_memory(held, dtype, lanes)

    def _condition(self, load: Load, lane: int) -> str:
        """Returns the condition of a lane."""
        assert load.valid is not None
        lanes = lanes_of(load.valid)
        condition = self.operand(load.valid, lanes)
        return condition if lanes == 1 else self.emit(f"extractelement <{lanes} x i1> {condition}, i64 {lane}")

    def _lane_where(self, load: Load, lane: int, lanes: int) -> str:
        """Returns the type and name of a lane's element, 0 if its condition is false."""
        kind = memory_type(load.memory.dtype)
        make = partial(self._load_lane, load.memory, load.index, lane, lanes)
        return f"{kind} {self._where(self._condition(load, lane), kind, make)}"

    def write(self, store: Store) -> None:
        """Writes a Store; if all threads would store the same to memory that others see, one does."""
        if self.in_block:
            self._store_elements(store)
            return
        with self.when("%first"):
            self._store_elements(store)

    def _store_elements(self, store: Store) -> None:
        """Writes a Store."""
        dtype = store.memory.dtype
        lanes = max(lanes_of(store.value), lanes_of(store.index), 1 if store.valid is None else lanes_of(store.valid))
        value = self.to_memory(self.operand(store.value, lanes), dtype, lanes)
        if store.valid is None:
            self._store(store, value, lanes)
        elif lanes_of(store.valid) == 1:
            with self.when(self.operand(store.valid, 1)):
                self._store(store, value, lanes)
        else:
            mask = self.operand(store.valid, lanes)
            for lane in range(lanes):
                with self.when(self.emit(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")):
                    self._store_lane(store, value, lane, lanes)

    def write_copy_async(self, copy: CopyAsync) -> None:
        """Writes a CopyAsync; from unaligned memory element by element, without waiting in the background."""
        nbytes = copy.lanes * copy.memory.dtype.itemsize
        if copy.lanes > 1 and not self._alignment(copy.memory, copy.index, copy.lanes):
            self._copy_at_once(copy)
            return
        to = self.emit(f"addrspacecast ptr {self.address(copy.into, copy.place)} to ptr addrspace(3)")
        of = self.emit(f"addrspacecast ptr {self.address(copy.memory, copy.index)} to ptr addrspace(1)")
        num_read = str(nbytes)
        if copy.valid is not None:
            num_read = self.emit(f"select i1 {self.operand(copy.valid, 1)}, i32 {nbytes}, i32 0")
        cache = "cg" if nbytes == ACCESS_BYTES else "ca"  # bypass the first cache, or go through it
        name = f"@llvm.nvvm.cp.async.{cache}.shared.global.{nbytes}.s"
        self.lines.append(f"  call void {name}(ptr addrspace(3) {to}, ptr addrspace(1) {of}, i32 {num_read})")

    def _copy_at_once(self, copy: CopyAsync) -> None:
        kind, dtype = memory_type(copy.memory.dtype, copy.lanes), copy.memory.dtype
        make = partial(self._load, copy.memory, copy.index, copy.lanes)
        held = make() if copy.valid is None else self._where(self.operand(copy.valid, 1), kind, make)
        alignment = self._alignment(copy.into, copy.place, copy.lanes) or dtype.itemsize
        self.lines.append(f"  store {kind} {held}, ptr {self.address(copy.into, copy.place)}, align {alignment}")

    def _where(self, condition: str, kind: str, make: Callable[[], str]) -> str:
        """Writes `make` under a condition, and returns its value, or 0."""
        start = self.block
        with self.when(condition):
            value, end = make(), self.block
        return self.emit(f"phi {kind} [ {value}, %{end} ], [ zeroinitializer, %{start} ]")

    # ---- memory with addresses ----
    def _alignment(self, memory: Op, index: Op, lanes: int) -> int:
        """Returns the alignment, in bytes, of the address of contiguous lanes; 0 if they are loaded one by one."""
        if lanes == 1 or lanes_of(index) > 1 or divisor_of(index, self.divisors) % lanes:
            return 0
        nbytes = min(ACCESS_BYTES, lanes * memory.dtype.itemsize)
        if memory.code is OpCode.PARAM:
            self.checked = True
            return nbytes if self.aligned else 0
        return nbytes

    def _load(self, memory: Op, index: Op, lanes: int) -> str:
        """Writes a load of all lanes, at once if memory is aligned for it; returns the register."""
        kind, alignment = memory_type(memory.dtype, lanes), self._alignment(memory, index, lanes)
        if alignment:
            return self.emit(f"load {kind}, ptr {self.address(memory, index)}, align {alignment}")
        if lanes == 1:
            return self._load_lane(memory, index, 0, 1)
        held, scalar = "poison", memory_type(memory.dtype)
        for lane in range(lanes):
            one = self._load_lane(memory, index, lane, lanes)
            held = self.emit(f"insertelement {kind} {held}, {scalar} {one}, i64 {lane}")
        return held

    def _load_lane(self, memory: Op, index: Op, lane: int, lanes: int) -> str:
        address = self._lane_address(memory, index, lane, lanes)
        return self.emit(f"load {memory_type(memory.dtype)}, ptr {address}, align {memory.dtype.itemsize}")

    def _store(self, store: Store, value: str, lanes: int) -> None:
        alignment = self._alignment(store.memory, store.index, lanes)
        if alignment:
            kind = memory_type(store.memory.dtype, lanes)
            self.lines.append(f"  store {kind} {value}, ptr {self.address(store.memory, store.index)}, align {alignment}")
            return
        for lane in range(lanes):
            self._store_lane(store, value, lane, lanes)

    def _store_lane(self, store: Store, value: str, lane: int, lanes: int) -> None:
        dtype = store.memory.dtype
        if lanes > 1:
            value = self.emit(f"extractelement {memory_type(dtype, lanes)} {value}, i64 {lane}")
        address = self._lane_address(store.memory, store.index, lane, lanes)
        self.lines.append(f"  store {memory_type(dtype)} {value}, ptr {address}, align {dtype.itemsize}")

    def _lane_address(self, memory: Op, index: Op, lane: int, lanes: int) -> str:
        """Returns the address of one lane, which has an index of its own or follows the first."""
        scalar = memory_type(memory.dtype)
        if lanes_of(index) > 1:
            at = self.emit(f"extractelement {type_of(index.dtype, lanes)} {self.operand(index, lanes)}, i64 {lane}")
            return self.emit(f"getelementptr {scalar}, ptr {self.pointers[memory]}, {type_of(index.dtype)} {at}")
        address = self.address(memory, index)
        return self.emit(f"getelementptr {scalar}, ptr {address}, i64 {lane}") if lane else address

    # ---- a warp ----
    def _check_all_run(self, statement: Statement) -> None:
        """Raises VerifyError if some threads of a warp may not reach a statement: the others would wait for ever."""
        if self.guarded:
            raise self.broken(f"a {type(statement).__name__} is in a BLOCK loop that not all threads run")

    def write_shuffle(self, shuffle: Shuffle) -> None:
        """Writes an exchange between threads of a warp: of 32 bits, or of 64 in two parts."""
        self._check_all_run(shuffle)
        kind, value = type_of(shuffle.var.dtype), self.operand(shuffle.value, 1)
        bits = shuffle.var.dtype.bits if shuffle.var.dtype is not dtypes.bool_ else 1
        whole = f"i{bits}"
        if kind != whole:
            value = self.emit(f"bitcast {kind} {value} to {whole}")
        if bits == 64:
            low = self.emit(f"trunc i64 {value} to i32")
            high = self.emit(f"trunc i64 {self.emit(f'lshr i64 {value}, 32')} to i32")
            low, high = (self.emit(SHUFFLE.format(half, shuffle.distance)) for half in (low, high))
            low, high = (self.emit(f"zext i32 {half} to i64") for half in (low, high))
            value = self.emit(f"or i64 {self.emit(f'shl i64 {high}, 32')}, {low}")
        else:
            value = self.emit(f"zext {whole} {value} to i32") if bits < 32 else value
            value = self.emit(SHUFFLE.format(value, shuffle.distance))
            value = self.emit(f"trunc i32 {value} to {whole}") if bits < 32 else value
        self.depths[shuffle.var] = len(self.loops)
        self.values[shuffle.var] = self.emit(f"bitcast {whole} {value} to {kind}") if kind != whole else value

    def write_mma(self, mma: Mma) -> None:
        """Writes a product of matrices that a warp holds, with pairs of operands in 32 bits."""
        self._check_all_run(mma)
        kind, name = MULTIPLY[mma.lhs.dtype]
        acc, lhs, rhs = parts_of(mma)
        if mma.lhs.dtype is dtypes.float32:  # two instructions: (t, t + 4) of K in one are (2 t, 2 t + 1) here
            for a, b in ((lhs[:4], rhs[:2]), (lhs[4:], rhs[2:])):
                parts = [self.emit(AS_TF32.format(self.held[slot])) for slot in (a[0], a[2], a[1], a[3], *b)]
                self._multiply(name, kind, parts, acc)
            return
        scalar, pairs = type_of(mma.lhs.dtype), []
        for low, high in [(part[i], part[i + 1]) for part in (lhs, rhs) for i in range(0, len(part), 2)]:
            pair = self.emit(f"insertelement <2 x {scalar}> poison, {scalar} {self.held[low]}, i64 0")
            pair = self.emit(f"insertelement <2 x {scalar}> {pair}, {scalar} {self.held[high]}, i64 1")
            pairs.append(self.emit(f"bitcast <2 x {scalar}> {pair} to {kind}"))
        self._multiply(name, kind, pairs, acc)

    def _multiply(self, name: str, kind: str, operands: Sequence[str], acc: Sequence[Slot]) -> None:
        """Writes one matrix instruction for operands of a `kind`."""
        result = "{float, float, float, float}"
        given = [f"{kind} {operand}" for operand in operands] + [f"float {self.held[slot]}" for slot in acc]
        made = self.emit(f"call {result} {name}({', '.join(given)})")
        for i, slot in enumerate(acc):
            self.held[slot] = self.emit(f"extractvalue {result} {made}, {i}")

    def write_load_matrices(self, load: LoadMatrices) -> None:
        """Writes a load of four matrices: of each, a thread gets two elements in 32 bits."""
        self._check_all_run(load)
        scalar, result = type_of(load.memory.dtype), "{i32, i32, i32, i32}"
        address = self.emit(f"addrspacecast ptr {self.address(load.memory, load.index)} to ptr addrspace(3)")
        name = MATRICES.format(".trans" if load.transposed else "")
        made = self.emit(f"call {result} {name}(ptr addrspace(3) {address})")
        (slots,) = parts_of(load)
        for i, slot in enumerate(slots):
            if i % 2 == 0:
                pair = self.emit(f"bitcast i32 {self.emit(f'extractvalue {result} {made}, {i // 2}')} to <2 x {scalar}>")
            self.held[slot] = self.emit(f"extractelement <2 x {scalar}> {pair}, i64 {i % 2}")


# ---- operations of a thread ----
# C's fmod, exactly: b is doubled while it does not exceed a, then subtracted and halved. Every step is exact.
REMAINDER = """define internal {t} @remainder_{s}({t} %x, {t} %y) {{
entry:
  %a = call {t} @llvm.fabs.{s}({t} %x)
  %b = call {t} @llvm.fabs.{s}({t} %y)
  %finite = fcmp olt {t} %a, 0x7FF0000000000000
  %divisor = fcmp ogt {t} %b, 0.0
  %defined = and i1 %finite, %divisor
  br i1 %defined, label %double, label %none
double:
  %part = phi {t} [ %b, %entry ], [ %twice, %double ]
  %twice = fmul {t} %part, 2.0
  %again = fcmp ole {t} %twice, %a
  br i1 %again, label %double, label %halve
halve:
  %step = phi {t} [ %part, %double ], [ %less, %halve ]
  %left = phi {t} [ %a, %double ], [ %rest, %halve ]
  %fits = fcmp oge {t} %left, %step
  %taken = fsub {t} %left, %step
  %rest = select i1 %fits, {t} %taken, {t} %left
  %less = fmul {t} %step, 0.5
  %more = fcmp ogt {t} %step, %b
  br i1 %more, label %halve, label %done
done:
  %signed = call {t} @llvm.copysign.{s}({t} %rest, {t} %x)
  ret {t} %signed
none:
  ret {t} 0x7FF8000000000000
}}
"""


def functions_called_by(text: str) -> str:
    """Returns the definitions of those functions above that a text calls."""
    scalars = [scalar for scalar in ("float", "double") if f"@remainder_{suffix(scalar)}(" in text]
    return "".join("\n" + REMAINDER.format(t=scalar, s=suffix(scalar)) for scalar in scalars)


def remainder(emit: WriteLine, op: Op, a: str, b: str, lanes: int) -> str:
    """Writes C's fmod lane by lane. NOTE: LLVM's `frem` is a - trunc(a / b) * b here, wrong for large quotients."""
    scalar = type_of(op.dtype)
    return lane_by_lane(emit, op, f"call {scalar} @remainder_{suffix(scalar)}({scalar} {{}}, {scalar} {{}})", [a, b], lanes)


def lane_by_lane(emit: WriteLine, op: Op, call: str, operands: Sequence[str], lanes: int) -> str:
    """Writes a call of a function without a vector form."""
    scalar, whole = type_of(op.dtype), type_of(op.dtype, lanes)
    if lanes == 1:
        return emit(call.format(*operands))
    result = "poison"
    for lane in range(lanes):
        parts = [emit(f"extractelement {whole} {value}, i64 {lane}") for value in operands]
        result = emit(f"insertelement {whole} {result}, {scalar} {emit(call.format(*parts))}, i64 {lane}")
    return result


def select_bytes(emit: WriteLine, values: Sequence[str], lanes: int) -> str:
    """Writes a select of bytes lane by lane.

    NOTE: LLVM 22 fails an assertion, which ends the process, on `select <4 x i1>, <4 x i8>` of two constants.
    """
    result, (mask, a, b) = "poison", values
    whole = vector("i8", lanes)
    for lane in range(lanes):
        condition = emit(f"extractelement {vector('i1', lanes)} {mask}, i64 {lane}")
        parts = [emit(f"extractelement {whole} {value}, i64 {lane}") for value in (a, b)]
        chosen = emit(f"select i1 {condition}, i8 {parts[0]}, i8 {parts[1]}")
        result = emit(f"insertelement {whole} {result}, i8 {chosen}, i64 {lane}")
    return result
