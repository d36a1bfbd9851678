"""Writes the statements that C-like languages share: named values, loads, stores, branches, loops.

In:    statements in the linear form (ir/statements.py)
Out:   `Writer`: lines of text;  `BlockWriter`, which adds the statements of a GPU

A VAR of several lanes is a `Lanes<T, n>` (in OpenCL C a `Txn`, in C an array), and `v.at[k]` is its lane k; its Let is
written lane by lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.render_grids import (
    Phase,
    broken,
    grid_interval,
    is_rolled,
    is_unrolled,
    shared_nbytes_of,
    too_much_shared,
)
from picograd.devices.render_rules import CPP, Spelling, literal, rule_for, write_bitcast, write_cast, write_rule
from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.ir.arithmetic import Interval
from picograd.ir.host import MAP_TYPE, GivenKernel
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.ranges import divisor_of, interval_of
from picograd.ir.shape import numel
from picograd.ir.stages import Kernel, Param, Program
from picograd.ir.statements import WRITERS, Alloc, Check, For, If, Let, Load, Statement, Store, lanes_of
from picograd.ir.symbolic import to_op

LOOP_NAMES = {AxisKind.GRID: "g", AxisKind.BLOCK: "t", AxisKind.LOOP: "i"}


def space_of(memory: Op) -> MemorySpace:
    """Returns the memory space of a PARAM, or of the allocation by a statement."""
    return memory.arg[2] if memory.code is OpCode.ALLOC else MemorySpace.GLOBAL


class Writer(ABC):
    """Writes the statements of one function, and tracks the bounds of named integers.

    spelling:   the language
    program:    the Program whose phase is written
    lines:      text so far
    intervals:  (least, greatest) of integer VARs and RANGEs
    divisors:   divisors of integer VARs
    """

    spelling: Spelling = CPP

    def __init__(self, program: Program):
        self.program = program
        self.lines: list[str] = []
        self.intervals: dict[Op, Interval] = {}
        self.divisors: dict[Op, int] = {}
        self.depth = 1

    # ---- text ----
    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def braces(self, head: str = "") -> Iterator[None]:
        """Writes `head {`, the block, and `}`."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def broken(self, rule: str) -> VerifyError:
        """Returns the error for a Program that violates the linear form."""
        return broken(self.program, rule)

    # ---- expressions ----
    def operand(self, op: Op, lane: int = 0) -> str:
        """Returns the text of one lane of a value, for use in an expression."""
        if op.code is OpCode.VAR:
            name, lanes = op.arg
            return str(name) if lanes == 1 else self.spelling.lane.format(name, lane)
        if op.code is OpCode.CONST:
            return literal(op.arg, op.dtype, self.spelling)
        if op.code is OpCode.RANGE:
            return f"{LOOP_NAMES[op.arg[1]]}{op.arg[0]}"
        if op.code is OpCode.VARIABLE:
            return f"n_{op.arg[0]}"
        if op.code is OpCode.BIND:
            return self.operand(op.src[0], lane)
        return f"({self.expression(op, lane)})"

    def expression(self, op: Op, lane: int = 0) -> str:
        """Returns the text of a lane of a value or of one operation."""
        if op.code is OpCode.LANES:
            return str(lane)
        if op.code is OpCode.EXPAND:
            return self.operand(op.src[0])
        if op.code is OpCode.REDUCE:
            return self.over_lanes(op)
        if not op.src or op.code in (OpCode.RANGE, OpCode.BIND):
            return self.operand(op, lane)
        return self.operation(op, [self.operand(s, lane) for s in op.src])

    def over_lanes(self, op: Op) -> str:
        """Returns the text of a REDUCE: lane i with lane i + n/2, then n/4, ..."""
        (vector,), (code, lanes) = op.src, op.arg
        parts = [self.operand(vector, lane) for lane in range(lanes)]
        one = Op(OpCode.VAR, op.dtype, (), ("", 1))
        while len(parts) > 1:
            half = len(parts) // 2
            joined = Op(code, op.dtype, (one, one))
            parts = [f"({self.operation(joined, [low, high])})" for low, high in zip(parts[:half], parts[half:])]
        return parts[0]

    def operation(self, op: Op, operands: list[str]) -> str:
        """Returns the text of one operation on operands."""
        if op.code is OpCode.CAST:
            return write_cast(op, operands[0], self.spelling)
        if op.code is OpCode.BITCAST:
            return write_bitcast(op, operands[0], self.spelling)
        rule = rule_for(op, self.intervals)
        if rule is None:
            raise self.broken(f"no row of the table writes {op.code.name} of {op.src[-1].dtype}")
        return write_rule(rule, op, operands, self.spelling)

    def memory(self, op: Op) -> str:
        """Returns the name of a PARAM, or of the memory that a statement allocated."""
        return f"p{op.arg[0]}" if op.code is OpCode.PARAM else str(op.arg[0])

    # ---- statements ----
    def write(self, statements: Sequence[Statement]) -> None:
        """Writes statements in order, each by the method for its kind."""
        for statement in statements:
            getattr(self, WRITERS[type(statement)], self.write_unknown)(statement)

    def write_unknown(self, statement: Statement) -> None:
        """Raises the error for a statement that the language does not support."""
        raise self.broken(f"a {type(statement).__name__} is a statement of another kind of machine")

    def write_if(self, branch: If) -> None:
        with self.braces(f"if ({self.expression(branch.condition)})"):
            self.write(branch.body)

    def write_let(self, let: Let) -> None:
        if let.value.dtype.is_int:
            self.intervals[let.var] = interval_of(let.value, self.intervals)
            self.divisors[let.var] = divisor_of(let.value, self.divisors)
        self.name(let.var, [self.expression(let.value, lane) for lane in range(lanes_of(let.var))])

    def name(self, var: Op, lanes: list[str]) -> None:
        """Declares a VAR with the text of each lane."""
        name, count = var.arg
        if count == 1:
            self.line(f"const {var.dtype} {name} = {lanes[0]};")
        else:
            self.line(f"const {self.vector(var)} = {{{', '.join(lanes)}}};")

    def vector(self, var: Op) -> str:
        """Returns the declaration of a VAR of several lanes."""
        name, count = var.arg
        return self.spelling.vector.format(self.stored(var.dtype), count, name)

    def stored(self, dtype: DType) -> str:
        """Returns the type of an element in memory, and in a register."""
        return str(dtype)

    def is_one_access(self, statement: Load | Store, lanes: int) -> bool:
        """True if lanes are one access: consecutive elements, the first at a multiple of their number."""
        memory, index, valid = statement.memory, statement.index, statement.valid
        is_shared = lanes_of(index) == 1 and (valid is None or lanes_of(valid) == 1)
        could_be = self.spelling.load != "" and lanes > 1 and space_of(memory) is not MemorySpace.REGISTER
        return is_shared and could_be and divisor_of(index, self.divisors) % lanes == 0

    def access(self, text: str, dtype: DType, lanes: int, memory: Op, index: Op, value: str = "") -> str:
        """Returns the text of one access of several lanes, as the language spells it."""
        local = "local_" if space_of(memory) is MemorySpace.SHARED else ""
        texts = {"memory": self.memory(memory), "index": self.operand(index), "value": value, "local": local}
        return text.format(T=self.stored(dtype), N=lanes, **texts)

    def element(self, memory: Op, index: Op, lane: int) -> str:
        """Returns the text of one lane's element."""
        if index.code is OpCode.CONST:
            return f"{self.memory(memory)}[{index.arg + lane}]"
        apart = "" if lane == 0 or lanes_of(index) > 1 else f" + {lane}"
        return f"{self.memory(memory)}[{self.operand(index, lane)}{apart}]"

    def write_load(self, load: Load) -> None:
        lanes, zero = lanes_of(load.var), literal(0, load.var.dtype, self.spelling)
        if self.is_one_access(load, lanes):
            text = self.access(self.spelling.load, load.var.dtype, lanes, load.memory, load.index)
            if load.valid is not None:
                zeros = self.spelling.zeros.format(T=self.stored(load.var.dtype), N=lanes)
                text = f"{self.operand(load.valid)} ? {text} : {zeros}"
            self.line(f"const {self.vector(load.var)} = {text};")
            return
        texts = [self.element(load.memory, load.index, lane) for lane in range(lanes)]
        if load.valid is not None:
            texts = [f"{self.operand(load.valid, lane)} ? {text} : {zero}" for lane, text in enumerate(texts)]
        self.name(load.var, texts)

    def write_store(self, store: Store) -> None:
        lanes = lanes_of(store.value)
        if self.is_one_access(store, lanes):
            name, dtype = str(store.value.arg[0]), store.value.dtype
            texts = [f"{self.access(self.spelling.store, dtype, lanes, store.memory, store.index, name)};"]
        else:
            texts = [
                f"{self.element(store.memory, store.index, lane)} = {self.expression(store.value, lane)};"
                for lane in range(lanes)
            ]
        for lane, text in enumerate(texts):
            self.line(text if store.valid is None else f"if ({self.operand(store.valid, lane)}) {text}")

    def write_check(self, check: Check) -> None:
        slot = next(i for i, param in enumerate(self.program.params) if param.role == "report")
        for lane in range(lanes_of(check.inside)):
            call = f"report(p{slot}, {check.number + 1}, {self.expression(check.value, lane)})"
            self.line(f"if (!{self.operand(check.inside, lane)}) {call};")

    def write_for(self, loop: For) -> None:
        if loop.range.arg[1] is not AxisKind.LOOP:
            raise self.broken(f"a {loop.range.arg[1].name} loop is used where only a LOOP can be")
        extent = loop.range.src[0]
        self.intervals[loop.range] = 0, max(0, interval_of(extent, self.intervals)[1] - 1)
        name, dtype, end = self.operand(loop.range), loop.range.dtype, self.operand(extent)
        if dtype is not dtypes.int64 and extent.code is not OpCode.CONST:
            end = f"({dtype}){end}"
        with self.braces(f"for ({dtype} {name} = 0; {name} < {end}; {name}++)"):
            self.write(loop.body)

    @abstractmethod
    def write_alloc(self, alloc: Alloc) -> None:
        """Declares memory."""

    def write_prefetch(self, statement: Statement) -> None:  # noqa: B027
        """Writes nothing: a prefetch has no effect on values, and a GPU has other threads to run meanwhile."""

    @abstractmethod
    def write_barrier(self, statement: Statement) -> None:
        """Writes a wait for the other threads of the block."""


# ---- for blocks of threads ----
class BlockWriter(Writer):
    """Writes the body of one phase's function.

    thread, block:  the language's expressions for the thread's number in its block, and the block's number
    """

    thread: str
    block: str

    def __init__(self, program: Program, phase: Phase, target: Target):
        super().__init__(program)
        self.phase, self.target = phase, target
        self.in_block = phase.block == 1  # with one thread all statements are that thread's
        self.guarded = False  # True where only some threads of the block run
        self.scoped = False  # True if consecutive BLOCK loops each need a scope
        self.shared_nbytes = 0

    def write_phase(self) -> None:
        """Writes the statements before the GRID loops, then each loop for its range of blocks."""
        self.write(self.phase.before)
        if len(self.phase.grids) == 1:
            self.write_grid(self.phase.grids[0], self.block)
            return
        self.line(f"const int32 block = {self.block};")
        for grid, start, stop in zip(self.phase.grids, self.phase.starts, self.phase.starts[1:]):
            first, end = self.operand(to_op(start)), self.operand(to_op(stop))
            with self.braces(f"if (block < {end})" if start == 0 else f"if ({first} <= block && block < {end})"):
                self.write_grid(grid, "block" if start == 0 else f"block - {first}")

    def write_grid(self, loop: For, position: str) -> None:
        self.intervals[loop.range] = grid_interval(loop, self.intervals)
        self.line(f"const {loop.range.dtype} {self.operand(loop.range)} = {position};")
        self.write(loop.body)

    def write(self, statements: Sequence[Statement]) -> None:
        outer = self.scoped
        self.scoped = sum(isinstance(s, For) and s.range.arg[1] is AxisKind.BLOCK for s in statements) > 1
        super().write(statements)
        self.scoped = outer

    def write_for(self, loop: For) -> None:
        """Writes a loop; a BLOCK loop becomes the threads of the block, of which those beyond its extent are idle."""
        if loop.range.arg[1] is not AxisKind.BLOCK:
            if is_rolled(loop):
                self.line("#pragma unroll 1")
            elif is_unrolled(loop):
                self.line("#pragma unroll")
            super().write_for(loop)
            return
        if self.in_block and self.phase.block > 1:
            raise self.broken("a BLOCK loop is nested in another")
        extent = loop.range.src[0]
        self.intervals[loop.range] = 0, max(0, min(interval_of(extent, self.intervals)[1], self.phase.block) - 1)
        outer = self.in_block
        self.in_block = True
        if extent.code is OpCode.CONST and extent.arg == self.phase.block:
            self.write_threads(loop)
        else:
            self.guarded = True
            with self.braces(f"if ({self.thread} < {self.operand(extent)})"):
                self.write_thread(loop)
            self.guarded = False
        self.in_block = outer

    def write_threads(self, loop: For) -> None:
        """Writes a BLOCK loop that occupies all threads of the block."""
        if not self.scoped:
            self.write_thread(loop)
            return
        with self.braces():
            self.write_thread(loop)

    def write_thread(self, loop: For) -> None:
        self.line(f"const {loop.range.dtype} {self.operand(loop.range)} = {self.thread};")
        self.write(loop.body)

    def write_store(self, store: Store) -> None:
        own = store.memory.code is OpCode.ALLOC and store.memory.arg[2] is MemorySpace.REGISTER
        if self.in_block or own:
            super().write_store(store)
            return
        with self.braces(f"if ({self.thread} == 0)"):
            super().write_store(store)

    def check_space(self, memory: Op) -> None:
        """Checks that an allocation fits."""
        name, _, space = memory.arg
        if space is MemorySpace.GLOBAL:
            raise self.broken(f"{name} is GLOBAL memory, which only a parameter can be")
        self.shared_nbytes += shared_nbytes_of(memory)
        if self.shared_nbytes > self.target.shared_bytes:
            raise self.broken(too_much_shared(self.target, str(name), self.shared_nbytes))

    def check_whole(self, statement: Statement) -> None:
        """Checks that all threads of the block run a statement that needs them all."""
        if self.guarded:
            raise self.broken(f"a {type(statement).__name__} is in a BLOCK loop that not all threads run")


# ---- kernels of a user's own ----
def arguments_of(kernel: Kernel, call: Op, spelling: Spelling) -> tuple[tuple[Param, ...], list[list[tuple[str, str]]]]:
    """Returns the parameters of a plan's functions that call a user's kernel, and (type, text) of each argument by launch.

    Unused results are scratch memory. Constants are written out.
    """
    params, slots = parameters_of(kernel, call)

    def passed(type_: str, at: int) -> tuple[str, str]:
        if type_ == MAP_TYPE:
            return type_, map_name(at)
        value = f"p{slots[-1 - at]}" if at < 0 else _operand(call.src[at], spelling)
        is_number = "*" not in type_ and at >= 0 and not call.src[at].shape
        return type_, f"{value}[0]" if is_number and value.startswith("p") else value

    return params, [list(map(passed, launch.types, launch.given)) for launch in call.arg[0].launches]


def map_name(number: int) -> str:
    """Returns the name of a tile map, a parameter of a plan's function."""
    return f"map{number}"


def parameters_of(kernel: Kernel, call: Op) -> tuple[tuple[Param, ...], dict[int, int]]:
    """Returns the parameters of a plan's function that calls a user's kernel, and the slot of each result."""
    given: GivenKernel = call.arg[0]
    params, slots = list(kernel.params), {value.arg: slot for slot, value in kernel.phases[0][0].outputs}
    for number, (dtype, shape) in enumerate(zip(given.dtypes, call.arg[1])):
        if number not in slots:
            slots[number] = len(params)
            params.append(Param(dtype, numel(shape), "scratch"))
    return tuple(params), slots


def _operand(op: Op, spelling: Spelling) -> str:
    """Returns the text of an operand: a parameter, a number, or arithmetic on symbolic integers."""
    while op.code is OpCode.RESHAPE:
        (op,) = op.src
    if op.code is OpCode.PARAM:
        return f"p{op.arg[0]}"
    if op.code in OF_LENGTHS:
        typed = "<int64>" if spelling is CPP else "_int64"  # explicit, since a literal is an int
        return OF_LENGTHS[op.code].format(*[_operand(s, spelling) for s in op.src], typed=typed)
    return f"n_{op.arg[0]}" if op.code is OpCode.VARIABLE else literal(op.arg, op.dtype, spelling)


OF_LENGTHS = {
    OpCode.ADD: "({} + {})", OpCode.MUL: "({} * {})", OpCode.IDIV: "floor_div{typed}({}, {})",
    OpCode.MOD: "floor_mod{typed}({}, {})", OpCode.MIN: "smaller{typed}({}, {})",
}  # fmt: skip
