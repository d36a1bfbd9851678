"""Writes a Program as LLVM IR text: a function a phase, vectors and phi nodes spelled out, so that no pass is needed.

In:    Program in the linear form, Target
Out:   Source (language "llvm"): `define void @{name}_{phase}(ptr %args, i64 %begin, i64 %end)`
Called by: devices/cpu/backend.py.    Next: picograd/render/grids.py

%args is an array of 64-bit words: a pointer for each parameter, then the variables. A call runs the iterations
begin..end of the phase's GRID loops, counted one loop after the other. A phase whose stores may pass by the cache has two
bodies, and a function that chooses (render/llvm_streams.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import Program, Source
from picograd.ir.statements import (
    Alloc,
    Barrier,
    Check,
    For,
    If,
    Let,
    Load,
    Prefetch,
    Statement,
    Store,
    Transpose,
    walk,
)
from picograd.render.addresses import OpenLoop
from picograd.render.grids import grid_loops, launch_of
from picograd.render.llvm_checks import LIKELY, write_check
from picograd.render.llvm_memory import ZEROS, write_load, write_store, write_transpose
from picograd.render.llvm_rows import memory_type, type_of
from picograd.render.llvm_streams import NONTEMPORAL, choice_of_streams, streamed_stores
from picograd.render.llvm_values import ValueWriter
from picograd.render.registers import Slot, changes, is_register


def render(program: Program, target: Target) -> Source:
    """Returns the text of a Program.

    Raises:
      VerifyError: an operation that `legalize` should have replaced is left.
    """
    functions, launches = [], []
    streamed = streamed_stores(program, target)
    for phase, statements in enumerate(program.phases):
        symbol = f"{program.name}_{phase}"
        slots = {streamed[id(s)] for s in walk(statements) if id(s) in streamed} if streamed else ()
        if slots:
            functions.append(FunctionWriter(program, target, streamed).write(f"{symbol}_streamed", statements))
            functions.append(FunctionWriter(program, target).write(f"{symbol}_plain", statements))
            functions.append(choice_of_streams(symbol, sorted(slots)))
        else:
            functions.append(FunctionWriter(program, target).write(symbol, statements))
        launches.append(launch_of(symbol, statements))
    text = "\n".join(functions)
    if "@zeros" in text:
        text = f"{ZEROS}\n\n{text}"
    if "!prof !0" in text:
        text = f"{text}\n{LIKELY}"
    if streamed:
        text = f"{text}\n{NONTEMPORAL}"
    return Source(program.name, "llvm", text, program.params, program.variables, tuple(launches))


# ---- one function ----
class FunctionWriter(ValueWriter):
    """The text of one function under construction.

    entry:    instructions before the code: arguments, memory of the stack
    held:     a place of REGISTER memory -> the name of the value stored there last
    streamed: ids of the Stores that pass by the cache
    changes:  id of a loop or branch -> the places of REGISTER memory it changes
    block:    the label of the basic block that is being written
    """

    def __init__(self, program: Program, target: Target, streamed: Collection[int] = ()):
        super().__init__()
        self.program, self.target, self.streamed = program, target, streamed
        self.entry: list[str] = []
        self.held: dict[Slot, str] = {}
        self.changes: dict[int, list[Slot]] = {}
        self.block = "entry"
        self.num_labels = 0
        self.sink_nbytes = 0

    def write(self, symbol: str, statements: Sequence[Statement]) -> str:
        """Returns the text of one phase as a function: its arguments, its GRID loops one after the other."""
        for slot, param in enumerate(self.program.params):
            self._argument(f"%p{slot}", slot, "ptr")
            self.pointers[Op(OpCode.PARAM, param.dtype, (), (slot, (param.numel,)))] = f"%p{slot}"
        for i, variable in enumerate(self.program.variables):
            self._argument(f"%{variable.arg[0]}", len(self.program.params) + i, "i64")
            self.values[variable] = f"%{variable.arg[0]}"
        self.changes = changes(statements)
        loops = grid_loops(statements)
        before = "0"
        for statement in statements:
            if isinstance(statement, For) and statement.range.arg[1] is AxisKind.GRID:
                before = self._grid(statement, before, statement is loops[0], statement is loops[-1])
            else:
                beside = isinstance(statement, Let | Load | Alloc | Check)
                assert not loops or beside, f"{statement} stands beside GRID loops"
                self.statement(statement)
        if self.sink_nbytes:
            self.entry.append(f"  %sink = alloca [{self.sink_nbytes} x i8], align 64")
        head = f"define void @{symbol}(ptr %args, i64 %begin, i64 %end) {{\nentry:\n"
        return head + "\n".join([*self.entry, *filter(None, self.lines)]) + "\n  ret void\n}\n"

    def _argument(self, name: str, word: int, llvm_type: str) -> None:
        self.entry.append(f"  {name}.at = getelementptr i64, ptr %args, i64 {word}")
        self.entry.append(f"  {name} = load {llvm_type}, ptr {name}.at, align 8")

    # ---- loops and branches ----
    def _grid(self, loop: For, before: str, is_first: bool, is_last: bool) -> str:
        """Writes a GRID loop: the part of its iterations that lies in begin..end; returns where the next one starts."""
        if is_first and is_last:
            if loop.range.src[0] is const(1, dtypes.int64):  # a call runs at least one iteration
                self.ranges[loop.range.arg[0]] = "0"
                self.statements(loop.body)
            else:
                self._loop(loop, "%begin", "%end", False)
            return before
        extent = self.operand(loop.range.src[0], 1)
        length = self.emit(f"call i64 @llvm.smax.i64(i64 {extent}, i64 0)")
        after = length if is_first else self.emit(f"add i64 {before}, {length}")
        first = self.emit(f"call i64 @llvm.smax.i64(i64 %begin, i64 {before})")
        last = self.emit(f"call i64 @llvm.smin.i64(i64 %end, i64 {after})")
        low = first if is_first else self.emit(f"sub i64 {first}, {before}")
        high = last if is_first else self.emit(f"sub i64 {last}, {before}")
        self._loop(loop, low, high, False)
        return after

    def _loop(self, loop: For, low: str, high: str, runs: bool) -> None:
        """Writes a loop from `low` up to `high`; `runs`: it is certain that there is an iteration.

        As few blocks as there can be: LLVM selects instructions block by block.
        """
        self.num_labels += 1
        label, counter = f"loop{self.num_labels}", type_of(loop.range.dtype)
        start = self.block
        here = OpenLoop(loop.range.arg[0], f"%i{self.num_labels}", loop.range.dtype is dtypes.int64)
        before = {slot: self.held.get(slot, "poison") for slot in self.changes[id(loop)]}
        heads = {slot: self.name() for slot in before}
        self.held.update(heads)
        body = self._body(loop, here, label)
        end = self.block
        after = {slot: self.held[slot] for slot in before}
        origins = {here.index: (low, 1), **{n: (self.times(here, low, step), step) for step, n in here.counters.items()}}
        self.lines += here.head
        if runs:
            self.lines.append(f"  br label %{label}")
        else:
            some = self.emit(f"icmp slt {counter} {low}, {high}")
            self.lines.append(f"  br i1 {some}, label %{label}, label %{label}.done")
        self.lines.append(f"{label}:")
        for name, (first, _) in origins.items():
            kind = counter if name is here.index else "i64"
            self.emit(f"phi {kind} [ {first}, %{start} ], [ {name}.next, %{end} ]", name)
        for slot, name in heads.items():
            self.emit(_phi(slot, (before[slot], start), (after[slot], end)), name)
        self.lines += body
        for name, (_, step) in origins.items():
            how = f"add nuw nsw {counter} {name}, 1" if name is here.index else f"add i64 {name}, {step}"
            self.emit(how, f"{name}.next")
        more = self.emit(f"icmp slt {counter} {here.index}.next, {high}")
        self.lines.append(f"  br i1 {more}, label %{label}, label %{label}.done{self.hint(loop)}")
        self.label(f"{label}.done")
        if not runs:
            self._join(before, start, after, end)

    def end_of(self, loop: For) -> str:
        """Returns the extent of a loop, in the type of its counter."""
        end = self.operand(loop.range.src[0], 1)
        is_wide = loop.range.dtype is dtypes.int64 or not end.startswith("%")
        return end if is_wide else self.emit(f"trunc i64 {end} to {type_of(loop.range.dtype)}")

    def hint(self, loop: For) -> str:
        """Returns what the compiler is told of a loop."""
        return ""

    def _body(self, loop: For, here: OpenLoop, label: str) -> list[str]:
        """Returns the lines of a loop's body; what it needs before the first iteration goes to `here`."""
        outside, self.lines = self.lines, []
        self.loops.append(here)
        self.ranges[here.range] = here.index
        self.block = label
        self.statements(loop.body)
        self.loops.pop()
        body, self.lines = self.lines, outside
        return [line for line in body if line]

    def _join(self, before: Mapping[Slot, str], start: str, after: Mapping[Slot, str], end: str) -> None:
        """What registers hold where two ways meet: `before` if it was come from `start`, `after` if from `end`."""
        for slot, value in before.items():
            self.held[slot] = self.emit(_phi(slot, (value, start), (after[slot], end)))

    def label(self, text: str) -> None:
        self.lines.append(f"{text}:")
        self.block = text

    @contextmanager
    def when(self, condition: str, changed: Iterable[Slot] = ()) -> Iterator[None]:
        """Opens a branch; where both ways meet, registers that it changes are named anew."""
        self.num_labels += 1
        label = f"if{self.num_labels}"
        self.lines.append(f"  br i1 {condition}, label %{label}, label %{label}.done")
        start, before = self.block, {slot: self.held.get(slot, "poison") for slot in changed}
        self.label(label)
        yield
        self.lines.append(f"  br label %{label}.done")
        end, after = self.block, {slot: self.held[slot] for slot in before}
        self.label(f"{label}.done")
        self._join(before, start, after, end)

    # ---- statements ----
    def statements(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """Writes the instructions of one statement."""
        if isinstance(statement, Let):
            self.write_let(statement.var, statement.value)
        elif isinstance(statement, Load):
            self.depths[statement.var] = len(self.loops)
            self.values[statement.var] = write_load(self, statement)
        elif isinstance(statement, Store):
            write_store(self, statement)
        elif isinstance(statement, For):
            extent = statement.range.src[0]
            self._loop(statement, "0", self.end_of(statement), extent.code is OpCode.CONST and extent.arg > 0)
        elif isinstance(statement, If):
            with self.when(self.operand(statement.condition, 1), self.changes[id(statement)]):
                self.statements(statement.body)
        elif isinstance(statement, Transpose):
            write_transpose(self, statement)
        elif isinstance(statement, Prefetch):
            address = self.address(statement.memory, statement.index)
            self.lines.append(f"  call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")
        elif isinstance(statement, Alloc):
            self._alloc(statement.memory)
        elif isinstance(statement, Check):
            write_check(self, statement)
        else:
            assert isinstance(statement, Barrier)  # one thread a block: nothing to wait for

    def _alloc(self, memory: Op) -> None:
        if is_register(memory) or memory in self.pointers:
            return
        name, numel, _ = memory.arg
        self.entry.append(f"  %{name} = alloca [{numel} x {memory_type(memory.dtype)}], align 64")
        self.pointers[memory] = f"%{name}"


def _phi(slot: Slot, *origins: tuple[str, str]) -> str:
    """Returns the instruction for a value that depends on the block it was come from."""
    memory, _, lanes = slot
    return f"phi {type_of(memory.dtype, lanes)} " + ", ".join(f"[ {value}, %{block} ]" for value, block in origins)
