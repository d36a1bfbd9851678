"""Writes the statements that languages like C have in common: named values, loads, stores, branches, loops.

In:    statements in the linear form (ir/statements.py)
Out:   lines of text
Called by: render/cuda.py, which adds what a GPU has.    Next: picograd/render/rules.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from picograd.errors import VerifyError
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Alloc, Barrier, Check, For, If, Let, Load, Prefetch, Statement, Store, Transpose
from picograd.render.intervals import Interval, interval_of
from picograd.render.rules import literal, rule_for, write_cast, write_rule

LOOP_NAMES = {AxisKind.GRID: "g", AxisKind.BLOCK: "t", AxisKind.LOOP: "i"}


class Writer(ABC):
    """Writes one function's statements, and knows the bounds of the integers it has named.

    program:    whose phase is written
    lines:      text so far
    intervals:  (least, greatest) of integer VARs and RANGEs
    """

    def __init__(self, program: Program):
        self.program = program
        self.lines: list[str] = []
        self.intervals: dict[Op, Interval] = {}
        self.depth = 1

    # ---- text ----
    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def braces(self, head: str = "") -> Iterator[None]:
        """Opens `head {` and closes it again."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def broken(self, rule: str) -> VerifyError:
        """Returns the error for a Program that breaks a rule of the linear form."""
        return VerifyError(f"render: kernel {self.program.name} breaks a rule of the linear form: {rule}.")

    # ---- expressions ----
    def operand(self, op: Op) -> str:
        """Returns the text of a value that an expression can contain as it is."""
        if op.code is OpCode.VAR:
            name, lanes = op.arg
            if lanes != 1:
                raise self.broken(f"{name} has {lanes} lanes, where threads are the lanes")
            return str(name)
        if op.code is OpCode.CONST:
            return literal(op.arg, op.dtype)
        if op.code is OpCode.RANGE:
            return f"{LOOP_NAMES[op.arg[1]]}{op.arg[0]}"
        if op.code is OpCode.VARIABLE:
            return f"n_{op.arg[0]}"
        if op.code is OpCode.BIND:
            return self.operand(op.src[0])
        return f"({self.expression(op)})"

    def expression(self, op: Op) -> str:
        """Returns the text of a value or of one operation."""
        if not op.src or op.code in (OpCode.RANGE, OpCode.BIND):
            return self.operand(op)
        operands = [self.operand(s) for s in op.src]
        if op.code is OpCode.CAST:
            return write_cast(op, operands[0])
        if op.code is OpCode.BITCAST:
            return f"bitcast<{op.dtype}>({operands[0]})"
        rule = rule_for(op, self.intervals)
        if rule is None:
            raise self.broken(f"no row of the table writes {op.code.name} of {op.src[-1].dtype}")
        return write_rule(rule, op, operands)

    def memory(self, op: Op) -> str:
        """Returns the name of a PARAM or of the memory that a statement allocated."""
        return f"p{op.arg[0]}" if op.code is OpCode.PARAM else str(op.arg[0])

    # ---- statements ----
    def write(self, statements: Sequence[Statement]) -> None:
        """Writes statements in order."""
        for statement in statements:
            if isinstance(statement, Let):
                self.write_let(statement)
            elif isinstance(statement, Load):
                self.write_load(statement)
            elif isinstance(statement, Store):
                self.write_store(statement)
            elif isinstance(statement, If):
                with self.braces(f"if ({self.expression(statement.condition)})"):
                    self.write(statement.body)
            elif isinstance(statement, For):
                self.write_for(statement)
            elif isinstance(statement, Alloc):
                self.write_alloc(statement)
            elif isinstance(statement, Check):
                self.write_check(statement)
            elif isinstance(statement, Transpose):
                raise self.broken("a Transpose is of a CPU's vectors")
            elif not isinstance(statement, Prefetch):  # a GPU has other threads to run while one waits for memory
                self.write_barrier(statement)

    def write_let(self, let: Let) -> None:
        if let.value.dtype.is_int:
            self.intervals[let.var] = interval_of(let.value, self.intervals)
        self.line(f"const {let.var.dtype} {self.operand(let.var)} = {self.expression(let.value)};")

    def write_load(self, load: Load) -> None:
        text = f"{self.memory(load.memory)}[{self.expression(load.index)}]"
        if load.valid is not None:
            text = f"{self.operand(load.valid)} ? {text} : {literal(0, load.var.dtype)}"
        self.line(f"const {load.var.dtype} {self.operand(load.var)} = {text};")

    def write_store(self, store: Store) -> None:
        text = f"{self.memory(store.memory)}[{self.expression(store.index)}] = {self.expression(store.value)};"
        if store.valid is not None:
            text = f"if ({self.expression(store.valid)}) {text}"
        self.line(text)

    def write_check(self, check: Check) -> None:
        slot = next(i for i, param in enumerate(self.program.params) if param.role == "report")
        call = f"report(p{slot}, {check.number + 1}, {self.expression(check.value)})"
        self.line(f"if (!{self.operand(check.inside)}) {call};")

    def write_for(self, loop: For) -> None:
        if loop.range.arg[1] is not AxisKind.LOOP:
            raise self.broken(f"a {loop.range.arg[1].name} loop stands where only a LOOP can")
        extent = loop.range.src[0]
        self.intervals[loop.range] = 0, max(0, interval_of(extent, self.intervals)[1] - 1)
        name = self.operand(loop.range)
        with self.braces(f"for (int64 {name} = 0; {name} < {self.operand(extent)}; {name}++)"):
            self.write(loop.body)

    @abstractmethod
    def write_alloc(self, alloc: Alloc) -> None:
        """Declares memory."""

    @abstractmethod
    def write_barrier(self, barrier: Barrier) -> None:
        """Waits for the other threads of the block."""
