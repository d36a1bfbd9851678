"""Values and addresses in a function of LLVM IR: what stands for an Op, and where an access lies.

In:    Let statements, Ops that they name
Out:   `ValueWriter`, which writes the instructions for them as they are asked for
Called by: render/llvm.py.    Next: picograd/render/llvm_rows.py

An index that is a sum is written only where something other than an address reads it (render/addresses.py).
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.errors import VerifyError
from picograd.ir.intervals import Interval, interval_of
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.statements import lanes_of
from picograd.render.addresses import OpenLoop, Sum, add_up
from picograd.render.llvm_rows import constant, index_division, join_lanes, memory_type, splat, type_of, write_operation


class ValueWriter:
    """The lines of one function under construction, and the names of what they compute.

    lines:     the code
    values:    VAR -> the name of its value
    constants: VAR -> the constant in all its lanes
    repeated:  VAR -> the scalar in all its lanes
    intervals: integer VAR -> its least and greatest value
    ranges:    id of a RANGE -> the name of its value
    pointers:  memory -> the name of its address
    loops:     the open loops, outermost first
    depths:    VAR -> how many loops were open where it was named
    waiting:   VAR that nobody has asked for -> where its instruction will stand
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: dict[Op, str] = {}
        self.constants: dict[Op, Op] = {}
        self.repeated: dict[Op, Op] = {}
        self.intervals: dict[Op, Interval] = {}
        self.ranges: dict[int, str] = {}
        self.pointers: dict[Op, str] = {}
        self.loops: list[OpenLoop] = []
        self.depths: dict[Op, int] = {}
        self.waiting: dict[Op, tuple[list[str], int, Op]] = {}
        self.num_names = 0

    def name(self) -> str:
        self.num_names += 1
        return f"%t{self.num_names}"

    def emit(self, instruction: str, name: str | None = None) -> str:
        """Writes one instruction and returns the name of its result."""
        name = name or self.name()
        self.lines.append(f"  {name} = {instruction}")
        return name

    # ---- values ----
    def write_let(self, var: Op, value: Op) -> None:
        """Names a value. An index that is a sum is written only where something other than an address reads it."""
        if value.code is OpCode.EXPAND:
            (self.constants if value.src[0].code is OpCode.CONST else self.repeated)[var] = value.src[0]
        self.depths[var] = len(self.loops)
        if not self.is_index(value):
            self.values[var] = self.operation(value, lanes_of(var))
            return
        self.intervals[var] = interval_of(value, self.intervals)
        found = add_up(value, self.sum_of) if self.loops and lanes_of(var) == 1 else None
        if found is None:
            self.values[var] = self.operation(value, lanes_of(var))
        else:
            self.loops[-1].sums[var] = found
            self.waiting[var] = (self.lines, len(self.lines), value)
            self.lines.append("")  # most indices are seen by accesses alone

    def is_index(self, value: Op) -> bool:
        """True for what may be part of an address: of int64, which addresses have, too."""
        return value.dtype is dtypes.int64

    def operand(self, op: Op, lanes: int) -> str:
        """Returns the text of a value with that many lanes; a scalar is repeated."""
        if op.code is OpCode.CONST:
            return constant(op.arg, op.dtype, lanes)
        own = lanes_of(op)
        if own == lanes:
            return self.values.get(op) or self.value_of(op)
        if own != 1:
            raise VerifyError(f"render llvm: {op} has {own} lanes where {lanes} are needed.")
        return splat(self.emit, self.value_of(op), type_of(op.dtype), lanes)

    def value_of(self, op: Op) -> str:
        """Returns the name or literal that stands for a scalar value."""
        if op.code is OpCode.RANGE:
            return self.ranges[op.arg[0]]
        if op.code is OpCode.BIND:
            return self.value_of(op.src[0])
        if op in self.waiting:
            self._write_waiting(op)
        found = self.values.get(op)
        if found is not None:
            return found
        if not op.src:
            raise VerifyError(f"render llvm: {op} is used before a statement names it.")
        return self.operation(op, 1)

    def _write_waiting(self, var: Op) -> None:
        """Writes the instruction of a Let where it stood: it is more than an address."""
        lines, place, value = self.waiting.pop(var)
        sources = [self.operand(s, 1) for s in value.src]
        self.values[var] = name = self.name()
        kind = "i64" if var.dtype is dtypes.int64 else "nsw i32"
        lines[place] = f"  {name} = {value.code.name.lower()} {kind} {sources[0]}, {sources[1]}"

    def operation(self, op: Op, lanes: int) -> str:
        """Writes the value of a Let, or of a scalar expression such as a loop's extent."""
        if op.code is OpCode.LANES:
            return "<" + ", ".join(f"{type_of(op.dtype)} {i}" for i in range(lanes)) + ">"
        if op.code is OpCode.EXPAND or not op.src or op.code in (OpCode.RANGE, OpCode.BIND):
            return self.operand(op.src[0] if op.code is OpCode.EXPAND else op, lanes)
        if op.code is OpCode.REDUCE:
            return join_lanes(self.emit, op, self.operand(op.src[0], op.arg[1]))
        sources = list(map(self.constants.get, op.src, op.src))
        if op.code in (OpCode.IDIV, OpCode.MOD) and op.dtype is dtypes.int64:
            a, b = (interval_of(s, self.intervals) for s in op.src)
            if a[0] >= 0 and b[0] > 0:
                names = [self.operand(s, lanes) for s in op.src]
                return index_division(self.emit, op, names, lanes, max(a[1], b[1]) < 1 << 32)
        return write_operation(self.emit, op, sources, [self.operand(s, lanes) for s in op.src], lanes)

    # ---- addresses ----
    def address(self, memory: Op, index: Op) -> str:
        """Returns the address of one element."""
        pointer, kind = self.pointers[memory], memory_type(memory.dtype)
        found = self.sum_of(index) if self.loops else None
        if found is None:
            if index.code is not OpCode.CONST or index.arg != 0:
                step = f"{type_of(index.dtype)} {self.operand(index, 1)}"
                pointer = self.emit(f"getelementptr {kind}, ptr {pointer}, {step}")
            return pointer
        loop = self.loops[-1]
        if found.terms:
            key = memory, found.terms
            if key not in loop.bases:
                loop.bases[key] = self._base(loop, pointer, kind, found)
            pointer = loop.bases[key]
        for offset in (loop.counter(found.step) if found.step else 0, found.constant):
            if offset != 0:
                pointer = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {offset}")
        return pointer

    def _base(self, loop: OpenLoop, pointer: str, kind: str, found: Sum) -> str:
        """Writes the address that an access has in every iteration but for its counter, before the first one."""
        total = loop.totals.get(found.terms)
        if total is None:
            total = loop.totals[found.terms] = self._total(loop, found)
        base = self.name()
        loop.head.append(f"  {base} = getelementptr {kind}, ptr {pointer}, i64 {total}")
        return base

    def _total(self, loop: OpenLoop, found: Sum) -> str:
        """Writes the sum of the terms, before the first iteration."""
        total, *parts = [self.times(loop, self.wide(op, loop.head), factor) for op, factor in found.terms]
        for part in parts:
            name = self.name()
            loop.head.append(f"  {name} = add i64 {total}, {part}")
            total = name
        return total

    def wide(self, op: Op, lines: list[str]) -> str:
        """Returns the name of a part of an address in 64 bits, which addresses have."""
        value = self.value_of(op)
        if op.dtype is dtypes.int64:
            return value
        name = self.name()
        lines.append(f"  {name} = sext {type_of(op.dtype)} {value} to i64")
        return name

    def sum_of(self, op: Op) -> Sum | None:
        """Returns an index as the innermost loop sees it; None where that is no sum."""
        if op.code is OpCode.CONST:
            return Sum(constant=int(op.arg))
        loop = self.loops[-1]
        if op.code is OpCode.RANGE and op.arg[0] == loop.range:
            return Sum(step=1)
        if op.code is OpCode.VAR and self.depths.get(op) == len(self.loops):
            return loop.sums.get(op)
        return Sum(terms=((op, 1),)) if op.code in (OpCode.VAR, OpCode.RANGE, OpCode.VARIABLE, OpCode.BIND) else None

    def times(self, loop: OpenLoop, value: str, factor: int) -> str:
        """Returns a value times a number, computed before the first iteration of a loop."""
        if value == "0" or factor == 1:
            return value
        name = self.name()
        loop.head.append(f"  {name} = mul i64 {value}, {factor}")
        return name
