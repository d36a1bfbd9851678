"""The rules for graphs, Kernels and Programs, by name, checked between passes.

In:    Ops, a Kernel or a Program, and the name of the pass that made it
Out:   nothing, or a VerifyError that names the pass, the rule and the neighbourhood

Shapes are checked when an Op is built (ir/shape.py); here are dtypes, arguments and permitted users. Programs have two
forms. PROGRAM_FREE: every value is defined before it is used and only inside the body it is defined in; indices are
int64; stores go to out or scratch params or to ALLOCs. PROGRAM, the linear form, moreover: one operation a statement,
no UNROLL or VECTOR loops, every VAR named once, lanes agree; indices and RANGEs may be int32. Rules on the fields of
one kind of statement are in its class (ir/statements.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import VerifyError
from picograd.ir.op import Op, greatest, toposort
from picograd.ir.opcode import (
    ATTENTIONS,
    BINARY,
    COMPARE,
    ELEMENTWISE,
    IDENTITY,
    MOVEMENT,
    SEVERAL_RESULTS,
    SOURCES,
    UNARY,
    AxisKind,
    OpCode,
)
from picograd.ir.origin import line_of
from picograd.ir.shape import AttentionArg, ConvArg, MatmulArg, draws_of
from picograd.ir.shape import numel as numel_of
from picograd.ir.stages import Kernel, Nest, NestKind, Program
from picograd.ir.statements import ACCESSES, FIELDS, VALUES, Alloc, Check, For, If, Let, Statement, lanes_of
from picograd.ir.text import neighbourhood
from picograd.ir.text_program import format_statement
from picograd.record import Record, Struct, field

# ---- graphs and kernels ----
COMBINING = frozenset({OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN})
SHIFTS = frozenset({OpCode.SHL, OpCode.SHR})
FLOAT_ONLY = (UNARY - {OpCode.NEG, OpCode.CAST, OpCode.BITCAST}) | {OpCode.DIV} | ATTENTIONS
KINDS: dict[OpCode, str] = {
    **dict.fromkeys(FLOAT_ONLY, "f"),
    **dict.fromkeys((OpCode.AND, OpCode.OR, OpCode.XOR), "biu"),
    **dict.fromkeys((OpCode.NEG, OpCode.SUB, OpCode.MOD, OpCode.POW, OpCode.FMA), "iuf"),
    **dict.fromkeys((OpCode.IDIV, *SHIFTS, OpCode.THREEFRY), "iu"),
}
PROGRAM_ONLY = frozenset({OpCode.RANGE, OpCode.LOAD, OpCode.ALLOC, OpCode.VAR, OpCode.LANES})
NUM_SOURCES: dict[OpCode, int] = {
    **dict.fromkeys(SOURCES - {OpCode.BIND}, 0),
    **dict.fromkeys(ELEMENTWISE - BINARY - {OpCode.WHERE, OpCode.FMA} | MOVEMENT | IDENTITY, 1),
    **dict.fromkeys(BINARY | {OpCode.BIND, OpCode.GATHER, OpCode.UPDATE, OpCode.MATMUL}, 2),
    OpCode.CONV: 2,
    **dict.fromkeys((OpCode.WHERE, OpCode.FMA, OpCode.SCATTER), 3),
    **dict.fromkeys((OpCode.COPY, OpCode.REDUCE, OpCode.SCAN, OpCode.OUTPUT, OpCode.COLLECTIVE), 1),
}


class Rule(Record):
    """A property every Op of some opcodes must have.

    name:   as errors show it, a statement that must hold
    codes:  the opcodes it is about
    holds:  the property
    """

    name: str
    codes: frozenset[OpCode]
    holds: Callable[[Op], bool]


# ---- properties longer than a line ----
def _same_dtypes(op: Op) -> bool:
    values = op.src[1:] if op.code is OpCode.WHERE else op.src
    return all(s.dtype is values[0].dtype for s in values)


def _elementwise_result(op: Op) -> bool:
    if op.code in (OpCode.CAST, OpCode.BITCAST):
        return True
    return op.dtype is (dtypes.bool_ if op.code in COMPARE else op.src[-1].dtype)


def _constant_fits(op: Op) -> bool:
    if not isinstance(op.arg, bool | int | float):
        return False
    held = op.dtype.scalar(op.arg) if not (op.dtype.is_int and isinstance(op.arg, float)) else None
    return held == op.arg or (isinstance(held, float) and isnan(held) and isnan(op.arg))


def _bound(op: Op) -> bool:
    variable, value = op.src
    if variable.code is not OpCode.VARIABLE or value.code is not OpCode.CONST:
        return False
    return bool(variable.arg[1] <= value.arg <= variable.arg[2])


def _contraction_result(op: Op) -> bool:
    operand = op.src[0].dtype
    return op.dtype is operand or (op.dtype is dtypes.float32 and operand.is_float and operand.itemsize <= 2)


def _attention_sources(op: Op) -> bool:
    if op.code is OpCode.ATTENTION_GRAD:
        return len(op.src) == (8 if op.arg.dropout else 6)
    return len(op.src) == 5 if op.arg.dropout else len(op.src) in (3, 4)


def _draws_dtypes(op: Op) -> bool:
    return all(s.dtype is dtype for s, dtype in zip(draws_of(op), (dtypes.uint64, dtypes.int64)))


def _attention_dtypes(op: Op) -> bool:
    masks = op.src[3:4] if len(op.src) == 4 else ()
    return all(s.dtype is op.dtype for s in op.src[:3]) and all(s.dtype.is_float or s.dtype.kind == "b" for s in masks)


def _attention_grad_dtypes(op: Op) -> bool:
    return all(s.dtype is op.dtype for s in op.src[:4]) and all(s.dtype is op.dtype.compute_dtype for s in op.src[4:6])


def _keeps(op: Op) -> bool:
    """Returns whether a SORT that says how many places it keeps has as many, or has ranks for each of its rows."""
    (x, *ranks), (axis, _, *count) = op.src, op.arg
    if ranks:
        shapes = [(*s.shape[:axis], *s.shape[axis + 1 :]) for s in op.src]
        return len(ranks) == 1 and ranks[0].dtype is dtypes.int64 and not count and shapes[0] == shapes[1]
    return not count or (isinstance(count[0], int) and 0 <= count[0] <= greatest(x.shape[axis]))


def _checks(op: Op) -> bool:
    return op.dtype is dtypes.int64 and isinstance(op.arg, tuple) and len(op.arg) == 2


def _combines(op: Op) -> bool:
    return isinstance(op.arg, tuple) and len(op.arg) == 2 and op.arg[0] in COMBINING


def _parameters(body: Op) -> dict[int, Op]:
    return {p.arg[0]: p for p in toposort(body.src) if p.code is OpCode.PARAM}


def _call_fits(op: Op) -> bool:
    """A PARAM of the body has the dtype and the shape of the argument in its slot."""
    if not isinstance(op.arg, Op) or op.arg.code is not OpCode.SINK:
        return False
    slots = _parameters(op.arg)
    return all(
        slot < len(op.src) and p.dtype is op.src[slot].dtype and p.shape == op.src[slot].shape for slot, p in slots.items()
    )


def _loop_fits(op: Op) -> bool:
    """The carry keeps dtype and shape; a stacked input gives its rows, one for each step."""
    body, num_carry, num_steps = op.arg
    if not isinstance(body, Op) or body.code is not OpCode.SINK or num_carry > min(len(body.src), len(op.src)):
        return False
    if any(a.dtype is not b.dtype or a.shape != b.shape for a, b in zip(body.src[:num_carry], op.src)):
        return False
    for slot, p in _parameters(body).items():
        if slot >= len(op.src) or p.dtype is not op.src[slot].dtype:
            return False
        expected = p.shape if slot < num_carry else (num_steps, *p.shape)
        if op.src[slot].shape != expected:
            return False
    return True


def _all(codes: Iterable[OpCode]) -> frozenset[OpCode]:
    return frozenset(codes)


ANY = frozenset(OpCode)
KEEP_DTYPE = MOVEMENT | IDENTITY | {OpCode.COPY, OpCode.GATHER, OpCode.SCATTER, OpCode.COLLECTIVE}
KEEP_DTYPE |= {OpCode.REDUCE, OpCode.SCAN, OpCode.UPDATE}

ONE_DTYPE = _all({OpCode.MATMUL, OpCode.CONV, OpCode.UPDATE})

GRAPH: tuple[Rule, ...] = (
    Rule("no loops, memory accesses or lanes", ANY, lambda op: op.code not in PROGRAM_ONLY),
    Rule("the number of sources", _all(NUM_SOURCES), lambda op: len(op.src) == NUM_SOURCES[op.code]),
    Rule("elementwise operands of one dtype", ELEMENTWISE, _same_dtypes),
    Rule("the dtype of an elementwise result", ELEMENTWISE, _elementwise_result),
    Rule("an operation its dtype has", _all(KINDS), lambda op: op.src[0].dtype.kind in KINDS[op.code]),
    Rule("a condition is bool", _all({OpCode.WHERE}), lambda op: op.src[0].dtype is dtypes.bool_),
    Rule("random bits are uint64", _all({OpCode.THREEFRY}), lambda op: op.dtype is dtypes.uint64),
    Rule("a bitcast keeps the width", _all({OpCode.BITCAST}), lambda op: op.dtype.itemsize == op.src[0].dtype.itemsize),
    Rule("the result has the dtype of the first source", KEEP_DTYPE, lambda op: op.dtype is op.src[0].dtype),
    Rule("a constant its dtype can hold", _all({OpCode.CONST}), _constant_fits),
    Rule("a symbolic integer is int64", _all({OpCode.VARIABLE, OpCode.BIND}), lambda op: op.dtype is dtypes.int64),
    Rule("a bound value is within its variable's range", _all({OpCode.BIND}), _bound),
    Rule("REDUCE and SCAN combine by ADD, MUL, MAX or MIN", _all({OpCode.REDUCE, OpCode.SCAN}), _combines),
    Rule("a CHECK is of an int64, by (site, length)", _all({OpCode.CHECK}), _checks),
    Rule("SORT gives int64", _all({OpCode.SORT}), lambda op: op.dtype is dtypes.int64),
    Rule("SORT keeps places that exist", _all({OpCode.SORT}), _keeps),
    Rule("an index is an integer", _all({OpCode.GATHER, OpCode.SCATTER}), lambda op: op.src[1].dtype.is_int),
    Rule("updates have the dtype of the base", _all({OpCode.SCATTER}), lambda op: op.src[2].dtype is op.dtype),
    Rule(
        "SCATTER stores, or combines by ADD, MUL, MAX or MIN",
        _all({OpCode.SCATTER}),
        lambda op: op.arg[0] is None or op.arg[0] in COMBINING,
    ),
    Rule("operands of one dtype", ONE_DTYPE, _same_dtypes),
    Rule("a contraction keeps its dtype, or widens to float32", _all({OpCode.MATMUL, OpCode.CONV}), _contraction_result),
    Rule("the argument is None or a MatmulArg", _all({OpCode.MATMUL}), lambda op: isinstance(op.arg, MatmulArg | None)),
    Rule("the argument is a ConvArg", _all({OpCode.CONV}), lambda op: isinstance(op.arg, ConvArg)),
    Rule("the argument is an AttentionArg", _all(ATTENTIONS), lambda op: isinstance(op.arg, AttentionArg)),
    Rule("draws where there is dropout, else at most a mask", _all(ATTENTIONS), _attention_sources),
    Rule("draws are of uint64 and int64", _all(ATTENTIONS), _draws_dtypes),
    Rule("q, k and v of one dtype, a mask of bool or a float", _all({OpCode.ATTENTION}), _attention_dtypes),
    Rule("the rows' values have the dtype of the computation", _all({OpCode.ATTENTION_GRAD}), _attention_grad_dtypes),
    Rule("OUTPUT is of an Op with several results", _all({OpCode.OUTPUT}), lambda op: op.src[0].code in SEVERAL_RESULTS),
    Rule("a CALL's arguments fit the PARAMs of its body", _all({OpCode.CALL}), _call_fits),
    Rule("a LOOP's sources fit the PARAMs of its body", _all({OpCode.LOOP}), _loop_fits),
)
RULES_OF: dict[OpCode, tuple[Rule, ...]] = {code: tuple(r for r in GRAPH if code in r.codes) for code in OpCode}


def verify_graph(roots: Sequence[Op], after: str) -> None:
    """Checks every Op of a tensor graph, and of the bodies in it, against GRAPH.

    Raises:
      VerifyError: naming `after`, the pass that made the graph.
    """
    _verify_ops(roots, f"after pass {after}", "GRAPH")


def _verify_ops(roots: Iterable[Op], where: str, spec: str) -> None:
    """Raises VerifyError at the first Op that breaks a rule, bodies of CALL and LOOP included."""
    order = toposort(roots)
    for op in order:
        for rule in RULES_OF[op.code]:
            if not rule.holds(op):
                fact = f"{where}, {op.code.name} breaks rule {rule.name!r} of spec {spec}."
                raise VerifyError(f"{fact}\n{neighbourhood(op)}", line_of(op))
    bodies = [op.arg if op.code is OpCode.CALL else op.arg[0] for op in order if op.code in (OpCode.CALL, OpCode.LOOP)]
    if bodies:
        _verify_ops([value for body in dict.fromkeys(bodies) for value in body.src], where, spec)


# ---- kernels ----
IN_KERNELS = ELEMENTWISE | MOVEMENT | {
    OpCode.PARAM, OpCode.CONST, OpCode.VARIABLE, OpCode.BIND, OpCode.IOTA, OpCode.REDUCE, OpCode.SCAN, OpCode.SORT,
    OpCode.GATHER, OpCode.SCATTER, OpCode.UPDATE, OpCode.MATMUL, OpCode.CONV, OpCode.ATTENTION, OpCode.ATTENTION_GRAD,
    OpCode.OUTPUT,
    OpCode.CUSTOM, OpCode.KERNEL,
}  # fmt: skip


def _is_param(op: Op, kernel: Kernel) -> bool:
    slot = op.arg[0]
    if not 0 <= slot < len(kernel.params):
        return False
    return op.dtype is kernel.params[slot].dtype and _fits(numel_of(op.shape), kernel.params[slot].numel)


def _fits(needed: Any, held: Any) -> bool:
    return needed <= held if isinstance(needed, int) and isinstance(held, int) else True


def _goes_out(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return 0 <= slot < len(kernel.params) and kernel.params[slot].role in ("out", "inout", "scratch")


def _has_param_dtype(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return value.dtype is kernel.params[slot].dtype


def _has_stored_shape(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    if value.code is OpCode.OUTPUT:
        return nest.anchor in (None, value.src[0])
    return value.shape in (nest.domain, nest.row_shape)


def _stores_what_it_may(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return nest.kind not in ANCHOR_ALONE or nest.outputs == ((slot, nest.anchor),)


def _fits_param(slot: int, value: Op, nest: Nest, kernel: Kernel) -> bool:
    return _fits(numel_of(value.shape), kernel.params[slot].numel)


ANCHOR_ALONE = frozenset({NestKind.SCATTER, NestKind.SCAN, NestKind.SORT, NestKind.UPDATE})
KERNEL_OPS: tuple[tuple[str, frozenset[OpCode], Callable[[Op, Kernel], bool]], ...] = (
    ("no buffers, identities, bodies or copies", ANY, lambda op, kernel: op.code in IN_KERNELS),
    ("a PARAM is one of the kernel's", _all({OpCode.PARAM}), _is_param),
    ("a symbolic integer is among the variables", _all({OpCode.VARIABLE}), lambda op, kernel: op in kernel.variables),
)
KERNEL_OUTPUTS: tuple[tuple[str, Callable[[int, Op, Nest, Kernel], bool]], ...] = (
    ("a value is stored into an out or scratch param", _goes_out),
    ("a stored value has the param's dtype", _has_param_dtype),
    ("a stored value has the domain's shape, or in a REDUCE nest its rows'", _has_stored_shape),
    ("a SCATTER, SCAN, SORT or UPDATE is all that its nest stores", _stores_what_it_may),
    ("a stored value fits the param", _fits_param),
)


def verify_kernel(kernel: Kernel, after: str) -> None:
    """Checks a Kernel: its graphs against GRAPH and KERNEL_OPS, what it stores against KERNEL_OUTPUTS.

    Raises:
      VerifyError: naming `after`, the pass that made the kernel.
    """
    where = f"after pass {after} of kernel {kernel.name}"
    outputs = [(slot, value, nest) for phase in kernel.phases for nest in phase for slot, value in nest.outputs]
    order = toposort([value for _, value, _ in outputs])
    for op in order:
        for name, codes, holds in KERNEL_OPS:
            if op.code in codes and not holds(op, kernel):
                fact = f"{where}, {op.code.name} breaks rule {name!r} of spec KERNEL."
                raise VerifyError(f"{fact}\n{neighbourhood(op)}", line_of(op))
    _verify_ops(order, where, "KERNEL")
    for slot, value, nest in outputs:
        for name, fits in KERNEL_OUTPUTS:
            if not fits(slot, value, nest, kernel):
                raise VerifyError(f"{where}, slot {slot} breaks rule {name!r} of spec KERNEL.\n{neighbourhood(value)}")
    _verify_order(kernel, where)


def _verify_order(kernel: Kernel, where: str) -> None:
    """Nothing is read in the phase that stores it, or before; every out param is stored."""
    stored: set[int] = set()
    for phase in kernel.phases:
        values = [value for nest in phase for _, value in nest.outputs]
        for op in toposort(values):
            fresh = op.code is OpCode.PARAM and kernel.params[op.arg[0]].role not in ("in", "inout")
            if fresh and op.arg[0] not in stored:
                rule = "a value that is read was stored in an earlier phase"
                raise VerifyError(f"{where}, slot {op.arg[0]} breaks rule {rule!r} of spec KERNEL.\n{neighbourhood(op)}")
        stored |= {slot for nest in phase for slot, _ in nest.outputs}
    for slot, param in enumerate(kernel.params):
        if param.role in ("out", "inout") and slot not in stored:
            raise VerifyError(f"{where}, slot {slot} breaks rule 'every out param is stored' of spec KERNEL.")


# ---- programs ----
LEAVES = frozenset({OpCode.VAR, OpCode.RANGE, OpCode.CONST, OpCode.VARIABLE})
MEMORIES = frozenset({OpCode.PARAM, OpCode.ALLOC})
EXPRESSIONS = LEAVES | ELEMENTWISE | {OpCode.LOAD, OpCode.EXPAND, OpCode.LANES, OpCode.REDUCE}
LINEAR_LOOPS = frozenset({AxisKind.GRID, AxisKind.BLOCK, AxisKind.LOOP})
# A loop of the key may be inside loops of the kinds at its right only.
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
    """The names defined at one place of a program.

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
        self.good: set[Op] = set()  # expressions whose own operations are right, at any place

    def body(self, statements: Sequence[Statement], scope: _Scope) -> None:
        """Checks statements in order; a name is defined from its statement on."""
        for place, statement in enumerate(statements):
            rule = next(self.failures(statement, scope), None)
            if rule is not None:
                self.fail(rule, statements, place)
            if isinstance(statement, For):
                self.body(statement.body, scope.inner(statement.range))
            elif isinstance(statement, If):
                self.body(statement.body, scope.inner())
            elif isinstance(statement, Alloc):
                scope.defined.add(statement.memory)
            elif hasattr(statement, "var"):
                scope.defined.add(statement.var)
                self.named.add(statement.var)

    def fail(self, rule: str, statements: Sequence[Statement], place: int) -> None:
        shown = [
            f"{'  > ' if i == place else '    '}{format_statement(statements[i])}"
            for i in range(max(0, place - 3), min(len(statements), place + 2))
        ]
        spec = "PROGRAM" if self.linear else "PROGRAM_FREE"
        lines = "\n".join(shown)
        raise VerifyError(f"{self.where}, a statement breaks rule {rule!r} of spec {spec}.\n{lines}")

    def failures(self, statement: Statement, scope: _Scope) -> Failures:
        """Yields the name of each rule a statement breaks: of what it names, reads and writes, then those of its kind."""
        if isinstance(statement, For):
            yield from self.loop(statement, scope)
            return
        var, valid = getattr(statement, "var", None), getattr(statement, "valid", None)
        if var is not None:
            yield from self.names(var)
        is_let = isinstance(statement, Let)
        for name in FIELDS[type(statement)]:
            if name in VALUES and name != "valid":
                yield from self.expression(getattr(statement, name), scope, operation=is_let)
        value = getattr(statement, "value", None) if var is None else var
        lanes = 1 if value is None else lanes_of(value)
        for memory, index in ACCESSES[type(statement)]:
            yield from self.access(getattr(statement, memory), getattr(statement, index), valid, lanes, scope)
        written = getattr(statement, statement.writes) if statement.writes else None
        if written is not None and written.code is OpCode.PARAM and self.program.params[written.arg[0]].role == "in":
            yield "stores go to out or scratch params or to ALLOCs"
        yield from statement.broken()
        if statement.of_warp and (scope.kinds.count(AxisKind.BLOCK) != 1 or AxisKind.VECTOR in scope.kinds):
            yield "a statement of a whole warp is in one BLOCK loop and in no VECTOR loop"
        if isinstance(statement, If):
            yield from self.truth(statement.condition, 1)
        elif isinstance(statement, Let) and self.linear:
            yield from _lane_failures(statement.value, lanes_of(statement.var))
        elif statement.orders and not self.linear and AxisKind.VECTOR in scope.kinds:
            yield "no barrier in a VECTOR loop"
        elif isinstance(statement, Check):
            if not self.linear:
                yield "a Check statement is of the linear form; the free form has CHECK expressions"
            if sum(param.role == "report" for param in self.program.params) != 1:
                yield "a program with Checks has one report param"

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
            yield "a GRID loop is nested only in GRID loops, a BLOCK loop in GRID and BLOCK loops"
        if kind is AxisKind.VECTOR and AxisKind.VECTOR in scope.kinds:
            yield "no VECTOR loop in another"

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
    """Yields failures of the lanes of a Let, which in linear form follow from its operation."""
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
