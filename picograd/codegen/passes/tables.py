"""Reads what depends on an integer below 16, and on nothing else in a loop, from a table of 16 values in a register.

In:    statements in the free form, of a Kernel for which `may_look_up` holds
Out:   the same, with tables filled before loops

After:   the innermost loop around vectors of 16 floats reads such a value as LOAD(table, integer), one instruction.
Before:  `legalize`, which a table's values need like all others.
Why:     a weight of four bits is chosen from 16 values. To make a float of it, subtract, and scale takes as long as to read
         the bytes; where the scale is the same along the loop, the table is of scaled values.
Example: For k LOOP: For v VECTOR 16: ... (float(w[k * 16 + v] & 15) - 8.0) * s[row] ...             becomes
         For v VECTOR 16: table[v] = (float(v) - 8.0) * s[row]
         For k LOOP: For v VECTOR 16: ... LOAD(table, w[k * 16 + v] & 15) ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.bodies import substitute
from picograd.ir.build import cast, maximum, minimum
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import ELEMENTWISE, AxisKind, MemorySpace, OpCode
from picograd.ir.ranges import value_range
from picograd.ir.stages import Kernel
from picograd.ir.statements import Alloc, For, If, Load, Statement, Store, walk
from picograd.record import replace

TABLE_LANES = 16  # of a table: lanes of a vector of float32
STEPS_MIN = 2  # of computing a value: one costs as much as to look it up
TABLES_MAX = 8  # before a loop, or in it: registers
READS_MIN = 4  # of a table that each iteration fills

INTEGERS = frozenset([dtype for dtype in dtypes.ALL if dtype.is_int])  # where a Kernel has none, nothing is looked up
BITWISE = (OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.SHR)

Lookups = dict[Op, Op]  # a value -> the small integer that it depends on


def may_look_up(kernel: Kernel, target: Target) -> bool:
    """True where something of a Kernel is an integer below 16, and the target permutes 16 lanes by a vector, as AVX-512."""
    if target.is_gpu or target.lanes(dtypes.float32) != TABLE_LANES:
        return False
    return any(op.code in ELEMENTWISE and op.dtype.is_int and _is_small(op) for op in toposort(kernel.values()))


def in_tables(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Returns the statements of a phase with tables."""
    used = [s.range.arg[0] for s in walk(statements) if isinstance(s, For)]
    return _body(statements, count(max(used, default=0) + 1))


def _body(statements: Sequence[Statement], numbers: Iterator[int]) -> tuple[Statement, ...]:
    """Returns the statements of one body, with tables before its loops."""
    written: list[Statement] = []
    for statement in statements:
        if isinstance(statement, For | If):
            statement = replace(statement, body=_body(statement.body, numbers))
        if isinstance(statement, For) and statement.range.arg[1] is AxisKind.LOOP:
            written += _with_tables(statement, numbers)
        else:
            written.append(statement)
    return tuple(written)


def _with_tables(loop: For, numbers: Iterator[int]) -> list[Statement]:
    """Returns tables, and the loop that reads them: in its own vectors, not in those of loops inside it.

    A value that changes with the loop alone, such as the scale of a group, may be in a table that each iteration fills,
    if several vectors read that.
    """
    reads = _values_of_vectors(loop.body)
    changing, of_lanes = _changing(loop), _of_lanes(loop)
    before = _lookups(list(reads), changing, of_lanes)
    within = {v: i for v, i in _lookups(list(reads), changing - {loop.range}, of_lanes).items() if v not in before}
    if within and sum(reads.values()) >= READS_MIN * len({_of_stand_in(v, i) for v, i in within.items()}):
        filled, places = _tables(within, numbers)
        loop = replace(loop, body=(*filled, *_replaced(loop.body, places)))
        before = _lookups(list(_values_of_vectors(loop.body)), _changing(loop), of_lanes)
    filled, places = _tables(before, numbers)
    return [*filled, replace(loop, body=_replaced(loop.body, places))] if places else [loop]


def _tables(found: Lookups, numbers: Iterator[int]) -> tuple[list[Statement], dict[Op, Op]]:
    """Returns statements that fill tables, and for each value how it is read from one."""
    tables: dict[Op, Op] = {}
    filled: list[Statement] = []
    places: dict[Op, Op] = {}
    integers: dict[Op, list[Op]] = {}  # that read a table
    for value, integer in found.items():
        integers.setdefault(_of_stand_in(value, integer), []).append(integer)
    for value, integer in found.items():
        common = _of_stand_in(value, integer)
        if common not in tables:
            if len(tables) == TABLES_MAX:
                continue
            number = next(numbers)
            place = Op(OpCode.RANGE, dtypes.int64, (const(TABLE_LANES, dtypes.int64),), (number, AxisKind.VECTOR))
            table = tables[common] = Op(OpCode.ALLOC, value.dtype, (), (f"t{number}", TABLE_LANES, MemorySpace.REGISTER))
            (stored,) = substitute([value], {integer: cast(_within(place, integers[common]), integer.dtype)})
            filled += [Alloc(table), For(place, (Store(table, place, stored),))]
        places[value] = Op(OpCode.LOAD, value.dtype, (tables[common], cast(_widened(integer), dtypes.int64)))
    return filled, places


def _within(place: Op, integers: Sequence[Op]) -> Op:
    """Returns a place of a table among the values that its integers have: others may be beyond memory, or divide by 0."""
    lows, highs = zip(*map(value_range, integers))
    low, high = min(lows), max(highs)
    place = place if high == TABLE_LANES - 1 else minimum(place, int(high))
    return maximum(place, int(low)) if low > 0 else place


def _of_stand_in(value: Op, integer: Op) -> Op:
    """Returns a value with a stand-in for its integer: values that are equal then have one table."""
    return substitute([value], {integer: Op(OpCode.VAR, integer.dtype, (), ("integer", 1))})[0]


def _values_of_vectors(body: Sequence[Statement], copies: int = 1, is_vector: bool = False) -> dict[Op, int]:
    """Returns the stores of VECTOR loops of 16 lanes that are in no other loop, and in how many copies."""
    found: dict[Op, int] = {}
    for statement in body:
        inner: dict[Op, int] = {}
        if isinstance(statement, For) and statement.range.arg[1] is AxisKind.VECTOR:
            if int(statement.range.src[0].arg) == TABLE_LANES:
                inner = _values_of_vectors(statement.body, copies, True)
        elif isinstance(statement, For) and statement.range.arg[1] is AxisKind.UNROLL:
            inner = _values_of_vectors(statement.body, copies * int(statement.range.src[0].arg), is_vector)
        elif isinstance(statement, If):
            inner = _values_of_vectors(statement.body, copies, is_vector)
        elif isinstance(statement, Store) and is_vector:
            inner = {statement.value: copies}
        for value, times in inner.items():
            found[value] = found.get(value, 0) + times
    return found


def _changing(loop: For) -> set[Op]:
    """Returns the values that change in a loop: its own and inner RANGEs, VARs that are loaded, memory that is stored
    to."""
    changing = {loop.range}
    for statement in walk(loop.body):
        if isinstance(statement, For):
            changing.add(statement.range)
        elif isinstance(statement, Load):
            changing.add(statement.var)
        elif statement.writes:
            changing.add(getattr(statement, statement.writes))
        elif isinstance(statement, Alloc):
            changing.add(statement.memory)
    return changing


def _of_lanes(loop: For) -> set[Op]:
    """Returns the values that differ between lanes: RANGEs of VECTOR loops, and VARs that are loaded at addresses made
    of them."""
    found: set[Op] = set()
    for statement in walk(loop.body):
        if isinstance(statement, For) and statement.range.arg[1] is AxisKind.VECTOR:
            found.add(statement.range)
        elif isinstance(statement, Load) and not found.isdisjoint(toposort([statement.index])):
            found.add(statement.var)
    return found


def _lookups(values: Sequence[Op], changing: set[Op], of_lanes: set[Op]) -> Lookups:
    """Returns the largest parts of `values` that a table can hold: each lane chooses by an integer of its own."""
    integers: dict[Op, Op | None] = {}  # what changes -> the one small integer it depends on, None: on more
    steps: dict[Op, int] = {}  # from that integer
    wanted: set[Op] = set(values)  # by something that is not a table's
    order = toposort(values)
    for op in order:
        sources = [s for s in op.src if s in integers]
        of = {integers[s] for s in sources}
        if op in changing or (op.code not in ELEMENTWISE and sources and op.code is not OpCode.LOAD):
            integers[op] = None
        elif sources:
            integers[op] = of.pop() if len(of) == 1 else None
            steps[op] = 1 + sum(steps.get(s, 0) for s in sources)
        if op in integers and integers[op] is None and op.dtype.is_int and op.code in ELEMENTWISE and _is_small(op):
            integers[op], steps[op] = op, 0
    for op in order:
        if integers.get(op, op) is None:
            wanted.update(op.src)
    found = {op: integers.get(op) for op in order if op in wanted and op.dtype is dtypes.float32}
    of_one = {op: integer for op, integer in found.items() if integer is not None and steps[op] >= STEPS_MIN}
    return {op: integer for op, integer in of_one.items() if not of_lanes.isdisjoint(toposort([integer]))}


def _is_small(op: Op) -> bool:
    low, high = value_range(op)
    return low >= 0 and high < TABLE_LANES


def _widened(integer: Op) -> Op:
    """Returns the same integer of 32 bits: two that are made of one byte make it wide together."""
    wide: dict[Op, Op] = {}
    for op in toposort([integer], sources=lambda op: op.src if _is_same_when_wide(op) else ()):
        is_same = _is_same_when_wide(op)
        wide[op] = Op(op.code, dtypes.int32, tuple([wide[s] for s in op.src])) if is_same else cast(op, dtypes.int32)
    return wide[integer] if _is_same_when_wide(integer) else integer


def _is_same_when_wide(op: Op) -> bool:
    """True for an operation on narrow integers that gives the same on wider ones."""
    return op.code in BITWISE and op.dtype.itemsize < dtypes.int32.itemsize


def _replaced(body: Sequence[Statement], places: dict[Op, Op]) -> tuple[Statement, ...]:
    """Returns a body that reads tables."""
    written: list[Statement] = []
    for statement in body:
        if isinstance(statement, For | If):
            statement = replace(statement, body=_replaced(statement.body, places))
        elif isinstance(statement, Store):
            (value,) = substitute([statement.value], places)
            statement = replace(statement, value=value)
        written.append(statement)
    return tuple(written)
