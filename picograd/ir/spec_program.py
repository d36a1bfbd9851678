"""What a Program must be, in its free form and in its linear form.

In:    a Program, and the name of the pass that made it
Out:   nothing, or a VerifyError that names the pass, the rule and the statements around
Next:  picograd/evaluator/elementwise.py

PROGRAM_FREE: every value is defined before it is used and only inside the body it is defined in; indices are int64;
stores go to out or scratch params or to ALLOCs. PROGRAM, the linear form, moreover: one operation a statement, no
UNROLL or VECTOR loops, every VAR named once, lanes agree; indices and RANGEs may be int32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from picograd import dtype as dtypes
from picograd.errors import VerifyError
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import COMPARE, ELEMENTWISE, AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import (
    WARP_THREADS,
    Alloc,
    Barrier,
    Check,
    CopyAsync,
    For,
    If,
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
    lanes_of,
)
from picograd.ir.text_program import format_statement
from picograd.record import Struct, field

LEAVES = frozenset({OpCode.VAR, OpCode.RANGE, OpCode.CONST, OpCode.VARIABLE})
MEMORIES = frozenset({OpCode.PARAM, OpCode.ALLOC})
EXPRESSIONS = LEAVES | ELEMENTWISE | {OpCode.LOAD, OpCode.EXPAND, OpCode.LANES, OpCode.REDUCE}
COMBINING = frozenset({OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN})
LINEAR_LOOPS = frozenset({AxisKind.GRID, AxisKind.BLOCK, AxisKind.LOOP})
# A loop of the key stands inside loops of the kinds at its right only.
MAY_STAND_IN = {AxisKind.GRID: {AxisKind.GRID}, AxisKind.BLOCK: {AxisKind.GRID, AxisKind.BLOCK}}

Failures = Iterator[str]


def verify_program(program: Program, after: str, linear: bool = True) -> None:
    """Checks a Program against PROGRAM, or against PROGRAM_FREE where it is not `linear` yet.

    Raises:
      VerifyError: naming `after`, the pass that made the program.
    """
    checker = _Checker(program, f"after pass {after} of program {program.name}", linear)
    for phase in program.phases:
        checker.body(phase, _Scope())


class _Scope(Struct):
    """What may be used at one place of a program.

    defined:  VARs, RANGEs and ALLOCs
    kinds:    of the loops around
    """

    defined: set[Op] = field(default_factory=set)
    kinds: tuple[AxisKind, ...] = ()

    def inner(self, axis: Op | None = None) -> _Scope:
        if axis is None:
            return _Scope(set(self.defined), self.kinds)
        return _Scope({*self.defined, axis}, (*self.kinds, axis.arg[1]))


class _Checker:
    """Walks a Program and raises VerifyError at the first statement that breaks a rule."""

    def __init__(self, program: Program, where: str, linear: bool):
        self.program, self.where, self.linear = program, where, linear
        self.widths = {dtypes.int64, dtypes.int32} if linear else {dtypes.int64}  # of indices
        self.widths_text = "int64 or int32" if linear else "int64"
        self.named: set[Op] = set()
        self.good: set[Op] = set()  # expressions whose own operations are right, wherever they stand

    def body(self, statements: Sequence[Statement], scope: _Scope) -> None:
        """Checks statements in order; what they name is defined from there on."""
        for place, statement in enumerate(statements):
            rule = next(self.failures(statement, scope), None)
            if rule is not None:
                self.fail(rule, statements, place)
            if isinstance(statement, For):
                self.body(statement.body, scope.inner(statement.range))
            elif isinstance(statement, If):
                self.body(statement.body, scope.inner())
            elif isinstance(statement, Let | Load | Shuffle):
                scope.defined.add(statement.var)
                self.named.add(statement.var)
            elif isinstance(statement, Alloc):
                scope.defined.add(statement.memory)

    def fail(self, rule: str, statements: Sequence[Statement], place: int) -> None:
        shown = [
            f"{'  > ' if i == place else '    '}{format_statement(statements[i])}"
            for i in range(max(0, place - 3), min(len(statements), place + 2))
        ]
        spec = "PROGRAM" if self.linear else "PROGRAM_FREE"
        lines = "\n".join(shown)
        raise VerifyError(f"{self.where}, a statement breaks rule {rule!r} of spec {spec}.\n{lines}")

    def failures(self, statement: Statement, scope: _Scope) -> Failures:
        """Yields the name of each rule a statement breaks."""
        match statement:
            case For():
                yield from self.loop(statement, scope)
            case If(condition=condition):
                yield from self.expression(condition, scope)
                yield from self.truth(condition, 1)
            case Alloc(memory=memory):
                if memory.code is not OpCode.ALLOC or memory.arg[1] < 0:
                    yield "Alloc makes the memory of an ALLOC"
            case Let():
                yield from self.let(statement, scope)
            case Load():
                yield from self.load(statement, scope)
            case Store():
                yield from self.store(statement, scope)
            case Transpose():
                yield from self.transpose(statement, scope)
            case Prefetch(memory=memory, index=index):
                yield from self.access(memory, index, None, 1, scope)
            case Check():
                yield from self.check(statement, scope)
            case CopyAsync():
                yield from self.copy_async(statement, scope)
            case WaitForCopies(still=still):
                if still < 0:
                    yield "a wait leaves a number of groups on their way"
            case LoadMatrices():
                yield from self.load_matrices(statement, scope)
            case Shuffle():
                yield from self.shuffle(statement, scope)
            case Mma():
                yield from self.mma(statement, scope)
            case Barrier():
                if not self.linear and AxisKind.VECTOR in scope.kinds:
                    yield "no barrier in a VECTOR loop"

    # ---- statements ----
    def loop(self, statement: For, scope: _Scope) -> Failures:
        """Yields the rules that a For breaks."""
        axis = statement.range
        if axis.code is not OpCode.RANGE or axis.dtype not in self.widths:
            yield f"a loop runs over an {self.widths_text} RANGE"
            return
        yield from self.expression(axis.src[0], scope)
        kind = axis.arg[1]
        if self.linear and kind not in LINEAR_LOOPS:
            yield "only GRID, BLOCK and LOOP loops"
        if axis.src[0].dtype is not dtypes.int64 or lanes_of(axis.src[0]) != 1:
            yield "an extent is one int64"
        if kind in (AxisKind.UNROLL, AxisKind.VECTOR) and axis.src[0].code is not OpCode.CONST:
            yield "the extent of an UNROLL or VECTOR loop is a constant"
        if axis in scope.defined:
            yield "a RANGE is the loop of one For at a time"
        if not set(scope.kinds) <= MAY_STAND_IN.get(kind, set(AxisKind)):
            yield "GRID loops stand in GRID loops, BLOCK loops in GRID and BLOCK loops"
        if kind is AxisKind.VECTOR and AxisKind.VECTOR in scope.kinds:
            yield "no VECTOR loop in another"

    def let(self, statement: Let, scope: _Scope) -> Failures:
        """Yields the rules that a Let breaks."""
        var, value = statement.var, statement.value
        yield from self.names(var)
        yield from self.expression(value, scope, operation=True)
        if var.dtype is not value.dtype:
            yield "a VAR has the dtype of its value"
        if self.linear:
            yield from _lane_failures(value, lanes_of(var))

    def load(self, statement: Load, scope: _Scope) -> Failures:
        """Yields the rules that a Load breaks."""
        var, memory = statement.var, statement.memory
        yield from self.names(var)
        yield from self.access(memory, statement.index, statement.valid, lanes_of(var), scope)
        if var.dtype is not memory.dtype:
            yield "a VAR has the dtype of the memory it is loaded from"

    def store(self, statement: Store, scope: _Scope) -> Failures:
        """Yields the rules that a Store breaks."""
        memory, value = statement.memory, statement.value
        yield from self.expression(value, scope)
        yield from self.access(memory, statement.index, statement.valid, lanes_of(value), scope)
        if memory.code is OpCode.PARAM and self.program.params[memory.arg[0]].role == "in":
            yield "stores go to out or scratch params or to ALLOCs"
        if value.dtype is not memory.dtype:
            yield "a stored value has the dtype of the memory"

    def transpose(self, statement: Transpose, scope: _Scope) -> Failures:
        """Yields the rules that a Transpose breaks."""
        memory, into = statement.memory, statement.into
        yield from self.access(memory, statement.index, None, 1, scope)
        yield from self.access(into, statement.place, None, 1, scope)
        if into.code is OpCode.PARAM and self.program.params[into.arg[0]].role == "in":
            yield "stores go to out or scratch params or to ALLOCs"
        if memory.dtype is not into.dtype:
            yield "a stored value has the dtype of the memory"
        if min(statement.step, statement.stride) < statement.lanes or memory is into:
            yield "the lines of a transposed square do not overlap"
        if statement.lanes < 2 or statement.lanes & (statement.lanes - 1):
            yield "a transposed square has as many lanes as a vector: a power of two"
        if _is_in(memory, MemorySpace.REGISTER):
            yield "a square that is transposed lies in memory"

    def copy_async(self, statement: CopyAsync, scope: _Scope) -> Failures:
        """Yields the rules that a CopyAsync breaks."""
        memory, into = statement.memory, statement.into
        yield from self.access(memory, statement.index, statement.valid, 1, scope)
        yield from self.access(into, statement.place, None, 1, scope)
        if memory.code is not OpCode.PARAM or not _is_in(into, MemorySpace.SHARED) or memory.dtype is not into.dtype:
            yield "a copy in the background is from a PARAM to SHARED memory of its dtype"
        if statement.lanes * into.dtype.itemsize not in (4, 8, 16):
            yield "a copy in the background has 4, 8 or 16 bytes"

    def load_matrices(self, statement: LoadMatrices, scope: _Scope) -> Failures:
        """Yields the rules that a LoadMatrices breaks."""
        memory, into = statement.memory, statement.into
        yield from self.access(memory, statement.index, None, 1, scope)
        yield from self.access(into, statement.place, None, 1, scope)
        if not _is_in(into, MemorySpace.REGISTER) or not _is_in(memory, MemorySpace.SHARED):
            yield "matrices are brought from SHARED memory to registers"
        if memory.dtype is not into.dtype or into.dtype.itemsize != 2:
            yield "matrices that are brought have elements of 16 bits"
        yield from _by_a_warp(scope)

    def shuffle(self, statement: Shuffle, scope: _Scope) -> Failures:
        """Yields the rules that a Shuffle breaks."""
        var, value, distance = statement.var, statement.value, statement.distance
        yield from self.names(var)
        yield from self.expression(value, scope)
        if var.dtype is not value.dtype or lanes_of(var) != 1 or lanes_of(value) != 1:
            yield "a Shuffle passes one value of its VAR's dtype"
        if not 0 < distance < WARP_THREADS or distance & (distance - 1):
            yield "the distance of a Shuffle is a power of two inside a warp"
        yield from _by_a_warp(scope)

    def mma(self, statement: Mma, scope: _Scope) -> Failures:
        """Yields the rules that an Mma breaks."""
        for memory, index, _ in statement.spans():
            yield from self.access(memory, index, None, 1, scope)
            if not _is_in(memory, MemorySpace.REGISTER):
                yield "the parts of an Mma's matrices are in registers"
        if statement.acc.dtype is not dtypes.float32 or statement.lhs.dtype is not statement.rhs.dtype:
            yield "an Mma adds products of one dtype in float32"
        if statement.lhs.dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
            yield "an Mma multiplies float16, bfloat16 or float32"
        yield from _by_a_warp(scope)

    def check(self, statement: Check, scope: _Scope) -> Failures:
        """Yields the rules that a Check breaks."""
        yield from self.expression(statement.inside, scope)
        yield from self.expression(statement.value, scope)
        if not self.linear:
            yield "a Check statement is of the linear form; before it there are CHECK expressions"
        if statement.inside.dtype is not dtypes.bool_ or statement.value.dtype is not dtypes.int64:
            yield "a Check asks a bool about an int64"
        if lanes_of(statement.inside) != lanes_of(statement.value):
            yield "a Check has a condition for each lane of its value"
        if sum(param.role == "report" for param in self.program.params) != 1:
            yield "a program with Checks has one report param"

    def names(self, var: Op) -> Failures:
        if var.code is not OpCode.VAR:
            yield "a statement names its value by a VAR"
        elif self.linear and var in self.named:
            yield "every VAR is named once"

    def access(self, memory: Op, index: Op, valid: Op | None, lanes: int, scope: _Scope) -> Failures:
        """Yields the rules that the memory, the index or the condition of an access breaks."""
        yield from self.memory(memory, scope)
        yield from self.expression(index, scope)
        if index.dtype not in self.widths:
            yield f"an index is {self.widths_text}"
        if self.linear and lanes_of(index) not in (1, lanes):
            yield "an index has one lane, or one for each lane of the value"
        if valid is not None:
            yield from self.expression(valid, scope)
            yield from self.truth(valid, lanes)

    def memory(self, memory: Op, scope: _Scope) -> Failures:
        """Yields the rules that the memory of an access breaks."""
        if memory.code not in MEMORIES:
            yield "memory is a PARAM or an ALLOC"
        elif memory.code is OpCode.ALLOC and memory not in scope.defined:
            yield "an ALLOC is made before it is used"
        elif memory.code is OpCode.PARAM:
            slot = memory.arg[0]
            params = self.program.params
            if not 0 <= slot < len(params) or params[slot].dtype is not memory.dtype:
                yield "a PARAM is one of the program's"

    def truth(self, condition: Op, lanes: int) -> Failures:
        """Yields the rules that a condition breaks."""
        if condition.dtype is not dtypes.bool_:
            yield "a condition is bool"
        if self.linear and lanes_of(condition) not in (1, lanes):
            yield "a condition has one lane, or one for each lane of the value"

    # ---- expressions ----
    def expression(self, root: Op, scope: _Scope, operation: bool = False) -> Failures:
        """The rules of one expression; in the linear form only a Let's value may be an `operation`."""
        if self.linear and not operation and root.code not in LEAVES:
            yield "one operation a statement"
            return
        parts = [*root.src, root] if self.linear and root.code not in LEAVES else _parts(root)
        for op in parts:
            if self.linear and op is not root and op.code not in LEAVES:
                yield "one operation a statement"
            elif op.code in (OpCode.VAR, OpCode.RANGE) and op not in scope.defined:
                yield "a VAR or RANGE is defined before it is used, in a body around"
            elif op.code is OpCode.VARIABLE and op not in self.program.variables:
                yield "a symbolic integer is among the variables"
            elif op.code is OpCode.LOAD:
                yield from ["one operation a statement"] if self.linear else self.load_expression(op, scope)
            elif op not in self.good:
                yield from _operation_failures(op)
                self.good.add(op)

    def load_expression(self, op: Op, scope: _Scope) -> Failures:
        yield from self.memory(op.src[0], scope)
        if op.src[1].dtype is not dtypes.int64:
            yield "an index is int64"
        if len(op.src) > 2 and op.src[2].dtype is not dtypes.bool_:
            yield "a condition is bool"
        if op.dtype is not op.src[0].dtype:
            yield "a LOAD has the dtype of its memory"


def _is_in(memory: Op, space: MemorySpace) -> bool:
    return memory.code is OpCode.ALLOC and memory.arg[2] is space


def _by_a_warp(scope: _Scope) -> Failures:
    if scope.kinds.count(AxisKind.BLOCK) != 1 or AxisKind.VECTOR in scope.kinds:
        yield "what a warp does together stands in one BLOCK loop and in no VECTOR loop"


class _Opaque:
    """Stops `toposort` at values: the extent of a RANGE is not part of the expression."""

    def __contains__(self, op: Op) -> bool:
        return op.code in LEAVES


def _parts(root: Op) -> list[Op]:
    return [op for op in toposort([root], stop=_Opaque()) if op.code not in MEMORIES]


def _operation_failures(op: Op) -> Failures:
    """The rules that need nothing but the Op."""
    if op.code not in EXPRESSIONS:
        yield "no tensor operations"
    if op.code not in ELEMENTWISE:
        return
    if op.code is OpCode.CHECK and op.dtype is not dtypes.int64:
        yield "a CHECK is of an int64"
    values = op.src[1:] if op.code is OpCode.WHERE else op.src
    if any(s.dtype is not values[0].dtype for s in values):
        yield "elementwise operands of one dtype"
    if op.code is OpCode.WHERE and op.src[0].dtype is not dtypes.bool_:
        yield "a condition is bool"
    if op.code in COMPARE and op.dtype is not dtypes.bool_:
        yield "a comparison is bool"
    if op.code not in COMPARE | {OpCode.CAST, OpCode.BITCAST} and op.dtype is not values[0].dtype:
        yield "the dtype of an elementwise result"


def _lane_failures(value: Op, lanes: int) -> Failures:
    """In the linear form the lanes of a Let follow from its operation."""
    if value.code is OpCode.LANES:
        if value.arg != lanes or value.dtype is not dtypes.int64:
            yield "LANES gives int64, as many as its VAR has lanes"
    elif value.code is OpCode.EXPAND:
        if value.arg != lanes or lanes_of(value.src[0]) != 1:
            yield "EXPAND puts a scalar into every lane of its VAR"
    elif value.code is OpCode.REDUCE:
        code, width = value.arg
        power_of_two = isinstance(width, int) and width > 0 and width & (width - 1) == 0
        if lanes != 1 or code not in COMBINING or not power_of_two or lanes_of(value.src[0]) != width:
            yield "REDUCE joins 2**n lanes by ADD, MUL, MAX or MIN into one"
    elif any(lanes_of(s) != lanes for s in value.src):
        yield "the operands of an operation have the lanes of its VAR"
