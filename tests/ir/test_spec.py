"""What must be rejected, by the rule it breaks; and that what is right passes."""

from __future__ import annotations

from typing import Any

import pytest

from picograd import dtype as dtypes
from picograd.errors import VerifyError
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.spec import GRAPH, verify_graph, verify_kernel, verify_program
from picograd.ir.stages import Kernel, Nest, NestKind, Param, Program
from picograd.ir.statements import Alloc, Barrier, For, If, Let, Load, Prefetch, Statement, Store, Transpose
from picograd.ir.symbolic import to_op
from tests.ir.test_text import BODY, BOUND, GRAPHS, PROGRAMS, X, free_program, linear_program, made, param, var

ONE, TWO = const(1, dtypes.int64), const(2, dtypes.int64)
INTS = param(0, 2, 4, dtype=dtypes.int32)
UNSIGNED = param(0, 2, 4, dtype=dtypes.uint64)
N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 512))

# For every rule of GRAPH an Op that breaks it.
BROKEN_GRAPHS: dict[str, Op] = {
    "no loops, memory accesses or lanes": var("v"),
    "the number of sources": made(OpCode.ADD, (X,)),
    "elementwise operands of one dtype": made(OpCode.ADD, (X, INTS)),
    "the dtype of an elementwise result": made(OpCode.ADD, (X, X), None, dtypes.float64),
    "an operation its dtype has": made(OpCode.EXP, (INTS,), None, dtypes.int32),
    "a condition is bool": made(OpCode.WHERE, (X, X, X)),
    "random bits are uint64": made(OpCode.THREEFRY, (INTS, INTS), None, dtypes.int32),
    "a bitcast keeps the width": made(OpCode.BITCAST, (X,), None, dtypes.int64),
    "the result has the dtype of the first source": made(OpCode.RESHAPE, (X,), (8,), dtypes.int32),
    "a constant its dtype can hold": made(OpCode.CONST, (), 300, dtypes.uint8),
    "a symbolic integer is int64": made(OpCode.VARIABLE, (), ("n", 0, 1), dtypes.int32),
    "a bound value is within its variable's range": made(
        OpCode.BIND, (N, const(513, dtypes.int64)), None, dtypes.int64
    ),
    "REDUCE and SCAN combine by ADD, MUL, MAX or MIN": made(OpCode.REDUCE, (X,), (OpCode.SUB, (0,))),
    "a CHECK is of an int64, by (site, length)": made(OpCode.CHECK, (N,), 5, dtypes.int64),
    "SORT gives int64": made(OpCode.SORT, (X,), (0, False)),
    "SORT keeps places that exist": made(OpCode.SORT, (X,), (0, False, 100), dtypes.int64),
    "an index is an integer": made(OpCode.GATHER, (X, param(1, 3)), (0, 0)),
    "updates have the dtype of the base": made(
        OpCode.SCATTER, (X, param(1, 3, dtype=dtypes.int64), param(2, 3, 4, dtype=dtypes.int32)), (None, 0, 0)
    ),
    "SCATTER stores, or combines by ADD, MUL, MAX or MIN": made(
        OpCode.SCATTER, (X, param(1, 3, dtype=dtypes.int64), param(2, 3, 4)), (OpCode.SUB, 0, 0)
    ),
    "operands of one dtype": made(OpCode.MATMUL, (X, param(1, 4, 3, dtype=dtypes.float64))),
    "a contraction keeps its dtype, or widens to float32": made(
        OpCode.MATMUL, (X, param(1, 4, 3)), None, dtypes.float64
    ),
    "the argument is an AttentionArg": made(OpCode.ATTENTION, (param(0, 1, 2, 3, 4),) * 3, (1.0, True)),
    "draws where there is dropout, else at most a mask": made(
        OpCode.ATTENTION, (*[param(0, 1, 2, 3, 4)] * 3, *[param(1, 1, 2, dtype=dtypes.uint64)] * 2), AttentionArg(1.0)
    ),
    "draws are of uint64 and int64": made(
        OpCode.ATTENTION, (*[param(0, 1, 2, 3, 4)] * 3, *[param(1, 1, 2)] * 2), AttentionArg(1.0, dropout=0.5)
    ),
    "q, k and v of one dtype, a mask of bool or a float": made(
        OpCode.ATTENTION, (*[param(0, 1, 2, 3, 4)] * 3, param(1, 1, 2, 3, 3, dtype=dtypes.int32)), AttentionArg(1.0)
    ),
    "the argument is None or a MatmulArg": made(OpCode.MATMUL, (param(0, 2, 3), param(1, 3, 4)), True),
    "the rows' values have the dtype of the computation": made(
        OpCode.ATTENTION_GRAD,
        (*[param(0, 1, 2, 3, 4, dtype=dtypes.bfloat16)] * 4, *[param(1, 1, 2, 3, dtype=dtypes.bfloat16)] * 2),
        AttentionArg(1.0),
        dtypes.bfloat16,
    ),
    "OUTPUT is of an Op with several results": X,
    "a CALL's arguments fit the PARAMs of its body": made(OpCode.CALL, (param(0, 5),), BODY),
    "a LOOP's sources fit the PARAMs of its body": made(OpCode.LOOP, (param(0, 5),), (BODY, 1, 5)),
    "the argument is a ConvArg": X,
}
# The shape rule refuses these before the spec can.
SAID_BY_SHAPE = {"OUTPUT is of an Op with several results", "the argument is a ConvArg"}


def test_every_rule_of_the_graph_has_an_op_that_breaks_it() -> None:
    assert {rule.name for rule in GRAPH} == set(BROKEN_GRAPHS)


@pytest.mark.parametrize("rule", sorted(BROKEN_GRAPHS.keys() - SAID_BY_SHAPE))
def test_a_graph_that_breaks_a_rule_is_rejected(rule: str) -> None:
    with pytest.raises(VerifyError) as raised:
        verify_graph([BROKEN_GRAPHS[rule]], after="simplify")
    assert f"breaks rule {rule!r} of spec GRAPH" in raised.value.fact


@pytest.mark.parametrize("op", GRAPHS.values(), ids=GRAPHS.keys())
def test_right_graphs_pass(op: Op) -> None:
    verify_graph([op], after="simplify")


@pytest.mark.parametrize(
    "op",
    [
        made(OpCode.CMPLT, (X, X), None, dtypes.bool_),
        made(OpCode.CAST, (X,), None, dtypes.int8),
        made(OpCode.BITCAST, (X,), None, dtypes.int32),
        made(OpCode.THREEFRY, (UNSIGNED, UNSIGNED), None, dtypes.uint64),
        made(OpCode.MATMUL, (param(0, 2, 3, dtype=dtypes.bfloat16), param(1, 3, 2, dtype=dtypes.bfloat16))),
        made(OpCode.ATTENTION, (param(0, 1, 2, 3, 4),) * 3, AttentionArg(1.0)),
        made(OpCode.ATTENTION, (*[param(0, 1, 2, 3, 4)] * 3, param(1, 1, 2, 3, 3, dtype=dtypes.bool_)), AttentionArg(1.0)),
        BOUND,
    ],
)
def test_dtypes_that_may_change_pass(op: Op) -> None:
    verify_graph([op], after="simplify")


def test_a_body_is_checked_too() -> None:
    body = made(OpCode.SINK, (made(OpCode.EXP, (INTS,), None, dtypes.int32),))
    with pytest.raises(VerifyError, match="an operation its dtype has"):
        verify_graph([made(OpCode.CALL, (INTS,), body)], after="outline")


def test_an_error_names_the_pass_the_rule_and_the_neighbourhood() -> None:
    with pytest.raises(VerifyError) as raised:
        verify_graph([made(OpCode.ADD, (X, INTS)) + X], after="simplify")
    assert raised.value.fact == (
        "after pass simplify, ADD breaks rule 'elementwise operands of one dtype' of spec GRAPH.\n"
        "    %0 = PARAM (0, (2, 4))               float32 (2, 4)\n"
        "    %1 = PARAM (0, (2, 4))               int32 (2, 4)\n"
        "  > %2 = ADD %0 %1                       float32 (2, 4)\n"
        "This is a bug in picograd. To report it: run with PICOGRAD_DUMP=dump and attach that folder."
    )


# ---- kernels ----
def kernel(
    *outputs: tuple[int, Op], roles: str = "in out", domain: tuple[Dim, ...] = (2, 4), kind: NestKind = NestKind.ELEMENTWISE
) -> Kernel:
    nest = Nest(kind, domain, (), None if kind is NestKind.ELEMENTWISE else X, outputs)
    return Kernel("k", tuple(Param(dtypes.float32, 8, role) for role in roles.split()), (), ((nest,),))


BROKEN_KERNELS: dict[str, Kernel] = {
    "no buffers, identities, bodies or copies": kernel((1, made(OpCode.CONTIGUOUS, (X,)))),
    "a PARAM is one of the kernel's": kernel((1, X + param(5, 2, 4))),
    "a symbolic integer is among the variables": kernel((1, made(OpCode.EXPAND, (made(OpCode.CAST, (N,)),), (2, 4)))),
    "a value is stored into an out or scratch param": kernel((0, X)),
    "a stored value has the param's dtype": kernel((1, made(OpCode.CMPLT, (X, X), None, dtypes.bool_))),
    "a stored value has the domain's shape, or in a REDUCE nest its rows'": kernel((1, X), domain=(8,)),
    "a SCATTER, SCAN, SORT or UPDATE is all that its nest stores": kernel((1, X + X), kind=NestKind.SCAN),
    "a stored value fits the param": kernel((1, made(OpCode.EXPAND, (X,), (2, 4))), domain=(2, 4)),
    "a value that is read was stored in an earlier phase": kernel((1, X + param(1, 2, 4))),
    "every out param is stored": kernel((1, X), roles="in out out"),
}
BROKEN_KERNELS["a stored value fits the param"] = Kernel(
    "k",
    (Param(dtypes.float32, 8, "in"), Param(dtypes.float32, 7, "out")),
    (),
    ((Nest(NestKind.ELEMENTWISE, (2, 4), (), None, ((1, X),)),),),
)


@pytest.mark.parametrize("rule", BROKEN_KERNELS)
def test_a_kernel_that_breaks_a_rule_is_rejected(rule: str) -> None:
    with pytest.raises(VerifyError) as raised:
        verify_kernel(BROKEN_KERNELS[rule], after="create_schedule")
    assert "after pass create_schedule of kernel k, " in raised.value.fact
    assert f"breaks rule {rule!r} of spec KERNEL" in raised.value.fact


def test_a_kernel_may_read_what_an_earlier_phase_stored() -> None:
    first, second = ((1, X * X),), ((2, X + param(1, 2, 4)),)
    nests = tuple((Nest(NestKind.ELEMENTWISE, (2, 4), (), None, outputs),) for outputs in (first, second))
    params = tuple(Param(dtypes.float32, 8, role) for role in ("in", "scratch", "out"))
    verify_kernel(Kernel("k", params, (), nests), after="create_schedule")


def test_a_reduce_nest_stores_rows_and_the_whole_domain() -> None:
    rows = made(OpCode.REDUCE, (X,), (OpCode.ADD, (1,)))
    nest = Nest(NestKind.REDUCE, (2, 4), (1,), None, ((1, rows), (2, X)))
    params = tuple(Param(dtypes.float32, 8, role) for role in ("in", "out", "out"))
    verify_kernel(Kernel("k", params, (), ((nest,),)), after="create_schedule")


# ---- programs ----
P0, P1 = param(0, 8), param(1, 8)
HELD = Op(OpCode.ALLOC, dtypes.float32, (), ("held", 8, MemorySpace.REGISTER))
ACC = Op(OpCode.ALLOC, dtypes.float32, (), ("acc", 8, MemorySpace.SHARED))
LONG, WIDE, MASK = var("i", 1, dtypes.int64), var("w", 8), var("m", 4, dtypes.bool_)
V, FOUR = var("v"), var("l", 4, dtypes.int64)


def axis(number: int, extent: Any, kind: AxisKind = AxisKind.LOOP) -> Op:
    return Op(OpCode.RANGE, dtypes.int64, (to_op(extent),), (number, kind))


def program(*statements: Statement) -> Program:
    return Program("p", (Param(dtypes.float32, 8, "in"), Param(dtypes.float32, 8, "out")), (), (statements,))


I0 = axis(0, 8)
LOAD_V = Load(V, P0, ONE)
LOAD_WIDE = Load(WIDE, P0, const(0, dtypes.int64))
IN_BOTH_FORMS: list[tuple[str, Program]] = [
    ("a VAR or RANGE is defined before it is used, in a body around", program(Store(P1, ONE, V))),
    (
        "a VAR or RANGE is defined before it is used, in a body around",
        program(Store(P1, I0, const(0.0, dtypes.float32))),
    ),
    ("a VAR or RANGE is defined before it is used, in a body around", program(For(I0, (LOAD_V,)), Store(P1, ONE, V))),
    (
        "a VAR or RANGE is defined before it is used, in a body around",
        program(For(I0, ()), Store(P1, I0, const(0.0, dtypes.float32))),
    ),
    (
        "a VAR or RANGE is defined before it is used, in a body around",
        program(If(const(True, dtypes.bool_), (LOAD_V,)), Store(P1, ONE, V)),
    ),
    ("an ALLOC is made before it is used", program(Load(V, ACC, ONE))),
    ("a PARAM is one of the program's", program(Load(V, param(2, 8), ONE))),
    ("a PARAM is one of the program's", program(Load(var("k", 1, dtypes.int32), param(0, 8, dtype=dtypes.int32), ONE))),
    ("memory is a PARAM or an ALLOC", program(LOAD_V, Load(var("u"), V, ONE))),
    ("stores go to out or scratch params or to ALLOCs", program(LOAD_V, Store(P0, ONE, V))),
    ("a stored value has the dtype of the memory", program(Store(P1, ONE, ONE))),
    ("an index is int64 or int32", program(Load(V, P0, const(1, dtypes.int16)))),
    ("an index is int64 or int32", program(Prefetch(P0, const(1, dtypes.int16)))),
    ("an ALLOC is made before it is used", program(Prefetch(ACC, ONE))),
    ("an ALLOC is made before it is used", program(Transpose(P1, ONE, 2, ACC, ONE, 2, 2))),
    ("an index is int64 or int32", program(Transpose(P1, ONE, 2, P0, const(1, dtypes.int16), 2, 2))),
    ("stores go to out or scratch params or to ALLOCs", program(Transpose(P0, ONE, 2, P1, ONE, 2, 2))),
    ("the lines of a transposed square do not overlap", program(Transpose(P1, ONE, 1, P0, ONE, 2, 2))),
    ("the lines of a transposed square do not overlap", program(Transpose(P1, ONE, 2, P1, ONE, 2, 2))),
    ("a transposed square has a vector's lanes, a power of two", program(Transpose(P1, ONE, 3, P0, ONE, 3, 3))),
    ("a transposed square is in memory", program(Alloc(HELD), Transpose(P1, ONE, 2, HELD, ONE, 2, 2))),
    ("a condition is bool", program(If(ONE, ()))),
    ("a condition is bool", program(Load(V, P0, ONE, ONE))),
    ("a VAR has the dtype of its value", program(Let(V, Op(OpCode.ADD, dtypes.int64, (ONE, ONE))))),
    ("a VAR has the dtype of the memory it is loaded from", program(Load(LONG, P0, ONE))),
    ("a statement names its value by a VAR", program(Load(I0, P0, ONE))),
    ("elementwise operands of one dtype", program(LOAD_V, Let(var("u"), Op(OpCode.ADD, dtypes.float32, (V, ONE))))),
    ("the dtype of an elementwise result", program(LOAD_V, Let(LONG, Op(OpCode.ADD, dtypes.int64, (V, V))))),
    ("a comparison is bool", program(LOAD_V, Let(var("u"), Op(OpCode.CMPLT, dtypes.float32, (V, V))))),
    ("no tensor operations", program(LOAD_V, Let(var("u"), Op(OpCode.RESHAPE, dtypes.float32, (V,), (1,))))),
    ("a symbolic integer is among the variables", program(For(axis(0, N), ()))),
    ("a loop runs over an int64 or int32 RANGE", program(For(LONG, ()))),
    ("an extent is one int64", program(For(Op(OpCode.RANGE, dtypes.int64, (const(8, dtypes.int32),), I0.arg), ()))),
    ("a RANGE is the loop of one For at a time", program(For(I0, (For(I0, ()),)))),
    (
        "a GRID loop is nested only in GRID loops, a BLOCK loop in GRID and BLOCK loops",
        program(For(I0, (For(axis(1, 8, AxisKind.GRID), ()),))),
    ),
    (
        "a GRID loop is nested only in GRID loops, a BLOCK loop in GRID and BLOCK loops",
        program(For(I0, (For(axis(1, 8, AxisKind.BLOCK), ()),))),
    ),
    ("Alloc makes the memory of an ALLOC", program(Alloc(P0))),
]
IN_THE_FREE_FORM: list[tuple[str, Program]] = [
    (
        "the extent of an UNROLL or VECTOR loop is a constant",
        program(For(axis(0, 8), (For(axis(1, I0, AxisKind.VECTOR), ()),))),
    ),
    (
        "no VECTOR loop in another",
        program(For(axis(0, 8, AxisKind.VECTOR), (For(axis(1, 4, AxisKind.VECTOR), ()),))),
    ),
    ("no barrier in a VECTOR loop", program(For(axis(0, 8, AxisKind.VECTOR), (Barrier(),)))),
    ("an index is int64", program(LOAD_V, Store(P1, ONE, Op(OpCode.LOAD, dtypes.float32, (P0, V))))),
    ("a LOAD has the dtype of its memory", program(Store(P1, ONE, Op(OpCode.LOAD, dtypes.float64, (P0, ONE))))),
]
IN_THE_LINEAR_FORM: list[tuple[str, Program]] = [
    ("one operation a statement", program(LOAD_V, Store(P1, ONE, V + V))),
    ("one operation a statement", program(LOAD_V, Let(var("u"), V + V * V))),
    ("one operation a statement", program(Let(V, Op(OpCode.LOAD, dtypes.float32, (P0, ONE))))),
    ("one operation a statement", program(Load(V, P0, Op(OpCode.ADD, dtypes.int64, (ONE, TWO))))),
    ("only GRID, BLOCK and LOOP loops", program(For(axis(0, 4, AxisKind.UNROLL), ()))),
    ("only GRID, BLOCK and LOOP loops", program(For(axis(0, 4, AxisKind.VECTOR), ()))),
    ("every VAR is named once", program(LOAD_V, LOAD_V)),
    ("the operands of an operation have the lanes of its VAR", program(LOAD_WIDE, Let(V, WIDE + WIDE))),
    ("the operands of an operation have the lanes of its VAR", program(LOAD_V, LOAD_WIDE, Let(var("u", 8), WIDE + V))),
    ("EXPAND puts a scalar into every lane of its VAR", program(LOAD_V, Let(WIDE, made(OpCode.EXPAND, (V,), 4)))),
    (
        "LANES gives int64, as many as its VAR has lanes",
        program(Let(var("l", 8, dtypes.int64), Op(OpCode.LANES, dtypes.int64, (), 4))),
    ),
    (
        "REDUCE joins 2**n lanes by ADD, MUL, MAX or MIN into one",
        program(LOAD_WIDE, Let(V, made(OpCode.REDUCE, (WIDE,), (OpCode.ADD, 4)))),
    ),
    (
        "an index has one lane, or one for each lane of the value",
        program(Let(FOUR, Op(OpCode.LANES, dtypes.int64, (), 4)), Load(WIDE, P0, FOUR)),
    ),
    (
        "a condition has one lane, or one for each lane of the value",
        program(
            Load(var("q", 4), P0, ONE),
            Let(MASK, Op(OpCode.CMPLT, dtypes.bool_, (var("q", 4), var("q", 4)))),
            Load(WIDE, P0, ONE, MASK),
        ),
    ),
]  # fmt: skip
REJECTED = [
    *((rule, p, True) for rule, p in IN_BOTH_FORMS),
    *((rule.replace("int64 or int32", "int64"), p, False) for rule, p in IN_BOTH_FORMS),  # 32 bits are the last pass's
    *((rule, p, False) for rule, p in IN_THE_FREE_FORM),
    *((rule, p, True) for rule, p in IN_THE_LINEAR_FORM),
]


@pytest.mark.parametrize("rule, wrong, linear", REJECTED)
def test_a_program_that_breaks_a_rule_is_rejected(rule: str, wrong: Program, linear: bool) -> None:
    with pytest.raises(VerifyError) as raised:
        verify_program(wrong, after="linearize", linear=linear)
    spec = "PROGRAM" if linear else "PROGRAM_FREE"
    assert f"after pass linearize of program p, a statement breaks rule {rule!r} of spec {spec}." in raised.value.fact


def test_right_programs_pass() -> None:
    verify_program(linear_program(), after="linearize")
    verify_program(linear_program(), after="legalize", linear=False)
    verify_program(free_program(), after="emit", linear=False)
    verify_program(PROGRAMS["long"], after="emit", linear=False)


def test_a_free_program_is_not_linear() -> None:
    with pytest.raises(VerifyError, match="of spec PROGRAM"):
        verify_program(free_program(), after="linearize")


def test_an_error_shows_the_statements_around() -> None:
    wrong = program(For(I0, (LOAD_V, Barrier(), Store(P0, I0, V), Barrier(), Barrier())))
    with pytest.raises(VerifyError) as raised:
        verify_program(wrong, after="linearize")
    assert raised.value.fact == (
        "after pass linearize of program p, a statement breaks rule 'stores go to out or scratch params or to ALLOCs' "
        "of spec PROGRAM.\n"
        "    load v: float32 = p0[1]\n"
        "    barrier\n"
        "  > p0[r0] = v\n"
        "    barrier\n"
        "This is a bug in picograd. To report it: run with PICOGRAD_DUMP=dump and attach that folder."
    )
