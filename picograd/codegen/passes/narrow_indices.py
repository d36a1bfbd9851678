"""Computes in 32 bits what surely fits: indices, above all. A GPU has no 64-bit integer unit.

In:    Program in the linear form
Out:   the same Program, where integers of 64 bits whose bounds are known and small are int32

There an int64 sum is two instructions, a product four, a quotient dozens. Only what is proved is changed: the result and
all operands of an operation are within int32, so that no step on the way wraps. Memory, and integers that may wrap, stay.

After:   a RANGE, an operation of `NARROWED` in a loop, and the operands of a comparison are int32 where they fit, and so
         is an index that is one of these. A value that another statement reads as int64 is a CAST. An extent is int64
         as before, and so are the statements before the GRID loops: they say how many blocks there are.
Before:  must run after `prove_bounds`, which reads sums and not the CASTs between them.
Example: int64 v1 = g0 * 256;  int64 v2 = v1 + t1;  v3 = load p0[v2];  p1[v2] = v2              becomes
         int32 v1 = g0 * 256;  int32 v2 = v1 + t1;  int64 v4 = v2;  v3 = load p0[v2];  p1[v2] = v4
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.arithmetic import Interval
from picograd.ir.op import Op, const
from picograd.ir.opcode import COMPARE, OpCode
from picograd.ir.ranges import interval_of
from picograd.ir.stages import Program
from picograd.ir.statements import FIELDS, INDICES, For, If, Let, Statement, lanes_of
from picograd.record import replace

NARROWED = frozenset({
    OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.IDIV, OpCode.MOD, OpCode.MIN, OpCode.MAX, OpCode.WHERE, OpCode.EXPAND,
})  # fmt: skip
INT32_MIN, INT32_MAX = int(dtypes.int32.min), int(dtypes.int32.max)


def narrow_indices(program: Program, numbers: Iterator[int]) -> Program:
    """Returns the program with integers that surely fit in 32 bits computed so.

    Args:
      numbers: for the names of new VARs, which are unique in the whole Program
    """
    phases = []
    for phase in program.phases:
        found = _Widths()
        found.body(phase, in_loop=False)
        phases.append(_Writer(found, numbers).body(phase, in_loop=False))
    return replace(program, phases=tuple(phases))


class _Widths:
    """The variables that a phase computes in 32 bits, and the width in which each is read.

    intervals:   of int64 VARs and RANGEs, and of the operations that VARs name
    narrow:      RANGEs and VARs that become int32, and VARs of comparisons of int32
    read_narrow: values that are read as int32
    read_wide:   values that are read as int64
    """

    def __init__(self) -> None:
        self.intervals: dict[Op, Interval] = {}
        self.narrow: set[Op] = set()
        self.read_narrow: dict[Op, None] = {}
        self.read_wide: set[Op] = set()

    def body(self, statements: Sequence[Statement], in_loop: bool) -> None:
        """Looks at statements in order."""
        for statement in statements:
            if isinstance(statement, Let):
                self.let(statement, in_loop)
            elif isinstance(statement, For):
                self.loop(statement)
            else:
                self.read_wide.update(values_of(statement))
                if isinstance(statement, If):
                    self.body(statement.body, in_loop)

    def loop(self, loop: For) -> None:
        """Decides how a loop counts."""
        extent = loop.range.src[0]
        self.read_wide.add(extent)
        bounds = interval_of(extent, self.intervals)
        self.intervals[loop.range] = 0, max(0, bounds[1] - 1)
        if bounds[1] <= INT32_MAX:  # a loop counts up to its extent
            self.narrow.add(loop.range)
        self.body(loop.body, in_loop=True)

    def let(self, let: Let, in_loop: bool) -> None:
        """Decides how a Let computes."""
        if let.value.dtype is dtypes.int64:
            self.intervals[let.var] = self.intervals[let.value] = interval_of(let.value, self.intervals)
        if in_loop and self.is_narrow(let.value):
            self.narrow.add(let.var)
            self.read_narrow.update(dict.fromkeys(let.value.src))
        else:
            self.read_wide.update(let.value.src)

    def is_narrow(self, value: Op) -> bool:
        """True where an operation and all that it reads fits in 32 bits."""
        numbers = [op for op in value.src if op.dtype is dtypes.int64]
        if value.code not in COMPARE:
            if value.dtype is not dtypes.int64 or value.code not in NARROWED:
                return False
            numbers.append(value)
        for number in numbers:
            interval = self.intervals.get(number) or interval_of(number, self.intervals)
            if interval[0] < INT32_MIN or interval[1] > INT32_MAX:
                return False
        return bool(numbers)

    @property
    def variables(self) -> list[Op]:
        """Returns the symbolic integers that are read as int32."""
        return [op for op in self.read_narrow if op.code in (OpCode.VARIABLE, OpCode.BIND)]


class _Writer:
    """Writes a phase again.

    short: int64 value -> the same as int32
    long:  int64 value that is int32 now -> the VAR that holds it as int64
    """

    def __init__(self, found: _Widths, numbers: Iterator[int]):
        self.found, self.numbers = found, numbers
        self.short: dict[Op, Op] = {}
        self.long: dict[Op, Op] = {}

    def body(self, statements: Sequence[Statement], in_loop: bool) -> tuple[Statement, ...]:
        """Returns the statements of a body."""
        written: list[Statement] = []
        for statement in statements:
            if isinstance(statement, For):
                written.append(self.loop(statement, in_loop))
            elif isinstance(statement, If):
                written.append(replace(statement, body=self.body(statement.body, in_loop)))
            elif isinstance(statement, Let) and statement.var in self.found.narrow:
                written += self.let(statement)
            else:
                written.append(self.with_widths(statement))
                named: Op | None = getattr(statement, "var", None)
                written += [] if named is None else self.casts(named)
        return tuple(written)

    def loop(self, loop: For, in_loop: bool) -> For:
        """Returns a loop that counts in 32 bits if it may; the outermost ones read symbolic integers so."""
        axis = loop.range.replace(src=(self.as_long(loop.range.src[0]),))
        if loop.range in self.found.narrow:
            self.short[loop.range] = axis = Op(OpCode.RANGE, dtypes.int32, axis.src, axis.arg)
        values = [loop.range] if in_loop else [*self.found.variables, loop.range]
        casts = [cast for value in values for cast in self.casts(value)]
        return For(axis, (*casts, *self.body(loop.body, in_loop=True)))

    def let(self, let: Let) -> list[Statement]:
        """Returns a Let of int32s."""
        value, sources = let.value, tuple(map(self.as_short, let.value.src))
        if value.code in COMPARE:
            return [Let(let.var, value.replace(src=sources))]
        self.short[let.var] = var = Op(OpCode.VAR, dtypes.int32, (), let.var.arg)
        return [Let(var, Op(value.code, dtypes.int32, sources, value.arg)), *self.casts(let.var)]

    def casts(self, value: Op) -> list[Statement]:
        """Returns the statements that name a value in the other width, if it is read so."""
        if value in self.found.narrow:
            wanted, of, into, dtype = value in self.found.read_wide, self.short.get(value, value), self.long, dtypes.int64
        else:
            wanted, of, into, dtype = value in self.found.read_narrow, value, self.short, dtypes.int32
        if value.dtype is not dtypes.int64 or not wanted:
            return []
        into[value] = var = self.new_var(dtype, lanes_of(value))
        return [Let(var, Op(OpCode.CAST, dtype, (of,)))]

    def with_widths(self, statement: Statement) -> Statement:
        """Returns a statement with indices in 32 bits, and all else that it reads as it was."""
        if isinstance(statement, Let):
            sources = tuple(map(self.as_long, statement.value.src))
            return replace(statement, value=statement.value.replace(src=sources))
        changed: dict[str, Any] = {}
        for name in FIELDS[type(statement)]:
            op = getattr(statement, name)
            if isinstance(op, Op) and op.dtype is dtypes.int64 and op in self.found.narrow:
                changed[name] = self.short[op] if name in INDICES else self.long[op]
        return replace(statement, **changed) if changed else statement

    def as_short(self, op: Op) -> Op:
        """Returns an operand as int32; one that is not an int64 as it is."""
        if op.dtype is not dtypes.int64:
            return op
        return const(op.arg, dtypes.int32) if op.code is OpCode.CONST else self.short[op]

    def as_long(self, op: Op) -> Op:
        return self.long.get(op, op)

    def new_var(self, dtype: DType, lanes: int) -> Op:
        return Op(OpCode.VAR, dtype, (), (f"v{next(self.numbers)}", lanes))


def values_of(statement: Statement) -> list[Op]:
    """Returns the Ops that a statement holds, without those that say where it reads or writes."""
    held = [getattr(statement, name) for name in FIELDS[type(statement)] if name not in INDICES]
    return [op for op in held if isinstance(op, Op)]
