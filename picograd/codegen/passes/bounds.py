"""Proves that every access is inside its memory, and guards the others.

In:    Program in the linear form
Out:   the same Program where all is proved; else one whose guarded accesses touch nothing outside

After:   for each Load, Store and CopyAsync, and each line of a Transpose, 0 <= index < elements of its memory, in every
         lane where `valid` holds, whatever the values of loops, symbolic integers and memory are. A Prefetch may point
         anywhere.
Before:  must run after `linearize`, so that the proved program is the one that runs: a load that was taken out of a
         loop must not rely on the loop running at all.
Why:     an index that is wrong by one reads what belongs to others, and no test may notice. Emitters write loops and
         conditions such that accesses are inside; here a second party reads these.
Example: store p1[v3], where nothing tells that v3 < 10, becomes
         v8 = uint64(v3);  v9 = v8 < 10;  store p1[v3] where v9
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from picograd import dtype as dtypes
from picograd.codegen.passes.inequalities import Known, added
from picograd.errors import VerifyError
from picograd.ir.build import bitcast
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import For, If, Let, Load, Span, Statement, Store, lanes_of
from picograd.ir.symbolic import to_op
from picograd.ir.text_program import format_statement
from picograd.record import replace

Access = Load | Store
CHOICES_MAX = 2  # conditions of WHEREs that are taken apart for one access
INNERMOST_MAX = 4  # conditions that are tried: the others contain these


def prove_bounds(program: Program, numbers: Iterator[int]) -> Program:
    """Returns the program with every access proved to be inside its memory, or guarded.

    Args:
      numbers: for the names of new VARs, which are unique in the whole Program

    Raises:
      VerifyError: an access that surely runs is surely outside.
    """
    prover = _Prover(program)
    for phase in program.phases:
        prover.body(phase, Known(prover.named, program.variables), True)
    if not prover.unproved:
        return program
    guards = _Guards(program, prover.unproved, numbers)
    return replace(program, phases=tuple(map(guards.body, program.phases)), num_guards=len(prover.unproved))


def length_of(program: Program, memory: Op) -> Dim:
    """Returns how many elements a PARAM or an ALLOC has."""
    return memory.arg[1] if memory.code is OpCode.ALLOC else program.params[memory.arg[0]].numel


class _Question(NamedTuple):
    """The question whether first + lane .. first + lane + span - 1 are elements of memory of this length.

    lane:  a LANES where each lane is asked about for itself
    """

    first: Op
    lane: Op | None
    span: int
    length: Op


class _Prover:
    """Walks a Program and collects the accesses that it cannot prove to be inside.

    named:     VAR -> the operation whose value it has
    inside:    the proved accesses: facts, memory, index, number of contiguous elements
    unproved:  ids of the accesses that are not
    lengths:   of memory
    """

    def __init__(self, program: Program):
        self.program = program
        self.named: dict[Op, Op] = {}
        self.inside: set[tuple[Known, Op, Op, int]] = set()
        self.unproved: set[int] = set()
        self.lengths: dict[Op, Dim] = {}

    def body(self, statements: Sequence[Statement], known: Known, is_sure: bool) -> None:
        """Looks at the statements of one body.

        Args:
          is_sure: it runs whenever the program does
        """
        for statement in statements:
            if isinstance(statement, Let):
                self.named[statement.var] = statement.value
            elif isinstance(statement, Load):
                self.access(statement, statement.var.arg[1], known, is_sure)
            elif isinstance(statement, Store):
                value = statement.value
                self.access(statement, value.arg[1] if value.code is OpCode.VAR else 1, known, is_sure)
            elif isinstance(statement, For):
                self.body(statement.body, known, is_sure and known.sum_of(statement.range.src[0]).low > 0)
            elif isinstance(statement, If):
                self.body(statement.body, known.also(statement.condition), False)
            else:
                for memory, index, span in statement.spans():
                    self.span(statement, memory, index, span, None, known, is_sure)
                if statement.guard == "valid":
                    self.where_valid(statement, known, is_sure)

    def access(self, access: Access, lanes: int, known: Known, is_sure: bool) -> None:
        """Proves one access, or notes it."""
        span = lanes if lanes > 1 and lanes_of(access.index) == 1 else 1
        self.span(access, access.memory, access.index, span, access.valid, known, is_sure)

    def where_valid(self, statement: Statement, known: Known, is_sure: bool) -> None:
        """Proves the accesses that a statement makes where it is valid, or notes it; the others must be proved."""
        if id(statement) in self.unproved:
            raise self.unsafe(statement)
        for memory, index, span in statement.spans_where_valid():
            self.span(statement, memory, index, span, getattr(statement, "valid", None), known, is_sure)

    def unsafe(self, statement: Statement) -> VerifyError:
        """Returns the error for a statement that nothing can guard."""
        return VerifyError(f"program {self.program.name}: {format_statement(statement)} may be outside its memory.")

    def span(
        self, access: Statement, memory: Op, index: Op, span: int, valid: Op | None, known: Known, is_sure: bool
    ) -> None:
        """Proves that `span` elements from `index` on are inside, or notes the access.

        Raises:
          VerifyError: an access that surely runs is surely outside, or a warp does it together, so nothing can guard it.
        """
        length = self.lengths.get(memory)
        if length is None:
            length = self.lengths[memory] = length_of(self.program, memory)
        if index.code is OpCode.CONST and type(length) is int and 0 <= index.arg <= length - span:
            return
        if (known, memory, index, span) in self.inside:
            return
        if valid is not None:
            known, is_sure = known.also(valid), False
            if (known, memory, index, span) in self.inside:
                return
        place = known.sum_of(index)
        low, high = place.low, place.high
        if type(length) is not int or low < 0 or high > length - span:
            by_lane = valid is not None and span > 1 and lanes_of(valid) > 1
            lane = Op(OpCode.LANES, dtypes.int64, (), span) if by_lane else None
            question = _Question(index, lane, 1 if by_lane else span, to_op(length))
            if not _is_inside(known, question, CHOICES_MAX):
                if is_sure and _is_outside(known, question):
                    raise VerifyError(
                        f"after pass linearize of program {self.program.name}, a statement is outside its memory.\n"
                        f"  > {format_statement(access)}\n    elements {low}..{high + span - 1} of {length}"
                    )
                if not access.guard:
                    raise self.unsafe(access)
                self.unproved.add(id(access))
                return
        self.inside.add((known, memory, index, span))


def _is_inside(known: Known, question: _Question, most_choices: int) -> bool:
    """True where that was proved, if need be for both outcomes of a choice."""
    index, lane, span, length = question
    first = known.sum_of(index).terms
    if lane is not None:
        first = added(first, known.sum_of(lane).terms)
    room = added(added(known.sum_of(length).terms, first, -1), {(): -span})
    if known.is_never_negative(first) and known.is_never_negative(room):
        return True
    fewer = known.has_failed_often()  # 1 after many failures, else 0: each choice doubles the cases
    for choice in known.choices(index)[:INNERMOST_MAX] if most_choices > fewer else ():
        if all(_is_inside(known.chosen(choice, holds), question, most_choices - 1) for holds in (True, False)):
            return True
    return False


def _is_outside(known: Known, question: _Question) -> bool:
    """True where intervals show the first element before the memory, or the last one behind it: a search takes too long."""
    first, length = known.sum_of(question.first).terms, known.sum_of(question.length).terms
    below, above = added({(): -1}, first, -1), added(added(first, length, -1), {(): question.span - 1})
    return known.interval_of(below)[0] >= 0 or known.interval_of(above)[0] >= 0


class _Guards:
    """Writes a Program again, with conditions for some accesses.

    unproved:  ids of these
    """

    def __init__(self, program: Program, unproved: set[int], numbers: Iterator[int]):
        self.program, self.unproved, self.numbers = program, unproved, numbers
        self.written: list[Statement] = []

    def body(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """Returns the statements of a body, guarded."""
        outer, self.written = self.written, []
        for statement in statements:
            if isinstance(statement, For | If):
                statement = replace(statement, body=self.body(statement.body))
            elif id(statement) in self.unproved:
                statement = self.guarded(statement)
            self.written.append(statement)
        written, self.written = self.written, outer
        return tuple(written)

    def guarded(self, statement: Statement) -> Statement:
        """Returns a statement that touches nothing outside, by the guard of its kind."""
        if isinstance(statement, Load | Store):
            return replace(statement, valid=self.condition(statement))
        if statement.guard == "if":
            return If(self.all_inside(statement.spans(), None), (statement,))
        valid = self.all_inside(statement.spans_where_valid(), getattr(statement, "valid", None))
        return replace(statement, valid=valid)

    def condition(self, access: Access) -> Op:
        """Writes where an access is inside its memory and its own condition holds: lane by lane."""
        lanes = lanes_of(access.var if isinstance(access, Load) else access.value)
        index = self.spread(access.index, lanes)
        if index is not access.index:
            steps = self.name(Op(OpCode.LANES, dtypes.int64, (), lanes), lanes)
            index = self.name(Op(OpCode.ADD, dtypes.int64, (index, steps)), lanes)
        bits = self.name(bitcast(index, dtypes.uint64), lanes)  # an index below 0 is a large number
        length = self.spread(self.length(length_of(self.program, access.memory)), lanes)
        inside = self.name(Op(OpCode.CMPLT, dtypes.bool_, (bits, length)), lanes)
        if access.valid is None:
            return inside
        return self.name(Op(OpCode.AND, dtypes.bool_, (self.spread(access.valid, lanes), inside)), lanes)

    def all_inside(self, spans: Sequence[Span], valid: Op | None) -> Op:
        """Writes where the first and the last element of all spans are inside their memory, and `valid` holds."""
        inside = [] if valid is None else [valid]
        for memory, index, span in spans:
            last = self.name(Op(OpCode.ADD, dtypes.int64, (index, const(span - 1, dtypes.int64))), 1)
            for place in (index, last):
                bits = self.name(bitcast(place, dtypes.uint64), 1)
                length = self.length(length_of(self.program, memory))
                inside.append(self.name(Op(OpCode.CMPLT, dtypes.bool_, (bits, length)), 1))
        every, *others = inside
        for one in others:
            every = self.name(Op(OpCode.AND, dtypes.bool_, (every, one)), 1)
        return every

    def length(self, length: Dim) -> Op:
        """Writes a length, which is never below 0, as an unsigned integer."""
        if isinstance(length, int):
            return const(length, dtypes.uint64)
        named: dict[Op, Op] = {}
        for op in toposort([length]):
            named[op] = self.name(op.replace(src=tuple(map(named.__getitem__, op.src))), 1) if op.src else op
        return self.name(bitcast(named[length], dtypes.uint64), 1)

    def spread(self, value: Op, lanes: int) -> Op:
        """Returns a value in every lane."""
        if lanes_of(value) == lanes:
            return value
        return self.name(Op(OpCode.EXPAND, value.dtype, (value,), lanes), lanes)

    def name(self, value: Op, lanes: int) -> Op:
        """Writes a Let and returns its VAR."""
        var = Op(OpCode.VAR, value.dtype, (), (f"v{next(self.numbers)}", lanes))
        self.written.append(Let(var, value))
        return var
