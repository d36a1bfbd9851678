"""Everything prints and reads back as the same Ops; texts are the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picograd import dtype as dtypes
from picograd.errors import DataError
from picograd.ir.op import Buffer, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import AttentionArg, ConvArg
from picograd.ir.stages import BufferUse, Kernel, Nest, NestKind, Param, Program, Schedule, ScheduleItem
from picograd.ir.statements import Alloc, Barrier, For, If, Let, Load, Prefetch, Store, Transpose
from picograd.ir.symbolic import add, floordiv, mul, to_op
from picograd.ir.text import RECORDS, buffers_of, format_graph, format_kernel, neighbourhood, parse_graph, parse_kernel
from picograd.ir.text_program import format_program, format_schedule, format_statement
from picograd.record import Record
from picograd_lab.reader import parse_program

N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 512))
BOUND = Op(OpCode.BIND, dtypes.int64, (N, const(7, dtypes.int64)))


def param(slot: int, *shape: Any, dtype: dtypes.DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def made(code: OpCode, src: tuple[Op, ...], arg: Any = None, dtype: dtypes.DType = dtypes.float32) -> Op:
    return Op(code, dtype, src, arg)


X = param(0, 2, 4)
BODY = made(OpCode.SINK, (X + X, X))
INDEX = param(1, 3, dtype=dtypes.int64)
GRAPHS: dict[str, Op] = {
    "param": X,
    "sum": X + X * 2.0,
    "int constant": const(-7, dtypes.int32),
    "largest": const(2**64 - 1, dtypes.uint64),
    "bool": const(True, dtypes.bool_),
    "negative zero": const(-0.0, dtypes.float32),
    "infinity": const(-float("inf"), dtypes.float16),
    "nan": const(float("nan"), dtypes.float32),
    "other nan": const(-float("nan"), dtypes.float32),
    "tenth": const(0.1, dtypes.float64),
    "small": const(5e-324, dtypes.float64),
    "iota": made(OpCode.IOTA, (), 5, dtypes.int64),
    "bind": BOUND,
    "leaf": made(OpCode.LEAF, (X,), 12),
    "copy": made(OpCode.COPY, (X,), "CUDA"),
    "reshape": made(OpCode.RESHAPE, (X,), (8, 1)),
    "permute": made(OpCode.PERMUTE, (X,), (1, 0)),
    "pad": made(OpCode.PAD, (X,), ((0, 1), (2, 0))),
    "symbolic": made(OpCode.EXPAND, (const(1.0, dtypes.float32),), (N, add(mul(BOUND, 4), 3))),
    "symbolic shrink": made(OpCode.SHRINK, (param(3, 600),), ((0, N),)),
    "cast": made(OpCode.CAST, (X,), None, dtypes.bfloat16),
    "reduce": made(OpCode.REDUCE, (X,), (OpCode.ADD, (0, 1))),
    "reduce no axis": made(OpCode.REDUCE, (X,), (OpCode.MAX, ())),
    "scan": made(OpCode.SCAN, (X,), (OpCode.MUL, 1)),
    "sort": made(OpCode.SORT, (X,), (1, True), dtypes.int64),
    "scatter": made(OpCode.SCATTER, (param(2, 9), INDEX, param(3, 3)), (None, 0, 0)),
    "conv": made(
        OpCode.CONV,
        (param(0, 2, 4, 8), param(1, 6, 4, 3)),
        ConvArg(stride=(2,), padding=((1, 0),), dilation=(1,), input_dilation=(1,)),
    ),
    "attention": made(
        OpCode.OUTPUT, (made(OpCode.ATTENTION, (param(0, 1, 2, 3, 4),) * 3, AttentionArg(0.5, True, 2)),), 1
    ),
    "the gradient of attention": made(
        OpCode.OUTPUT,
        (
            made(
                OpCode.ATTENTION_GRAD,
                (*[param(0, 1, 2, 3, 4)] * 4, *[param(4, 1, 2, 3)] * 2),
                AttentionArg(0.5, soft_cap=30.0),
            ),
        ),
        2,
    ),
    "call": made(OpCode.OUTPUT, (made(OpCode.CALL, (X,), BODY),), 0),
    "loop": made(OpCode.OUTPUT, (made(OpCode.LOOP, (X,), (BODY, 1, 5)),), 1),
}


@pytest.mark.parametrize("op", GRAPHS.values(), ids=GRAPHS.keys())
def test_a_graph_reads_back_as_the_same_ops(op: Op) -> None:
    assert parse_graph(format_graph([op]))[0] is op


def test_several_roots_read_back_in_order() -> None:
    roots = list(GRAPHS.values())
    assert all(a is b for a, b in zip(parse_graph(format_graph(roots)), roots, strict=True))


def test_a_graph_is_one_line_an_op() -> None:
    assert format_graph([made(OpCode.PERMUTE, (X * X,), (1, 0))]) == (
        "%0 = PARAM 0                         float32 (2, 4)\n"
        "%1 = MUL %0 %0                       float32 (2, 4)\n"
        "%2 = PERMUTE %1 (1, 0)               float32 (4, 2)\n"
        "return %2"
    )


def test_buffers_are_numbered_and_read_back_as_those_given() -> None:
    a, b = Buffer("CPU", dtypes.float32, 8), Buffer("CUDA", dtypes.float32, 9)
    x, y = (made(OpCode.BUFFER, (), (buffer, (2, 4))) for buffer in (a, b))
    flat = made(OpCode.BUFFER, (), (a, (8,)))
    graph = x * y + made(OpCode.RESHAPE, (flat,), (2, 4))
    text = format_graph([graph])
    assert text.splitlines()[:2] == [
        "%0 = BUFFER 0 CPU 8                  float32 (2, 4)",
        "%1 = BUFFER 1 CUDA 9                 float32 (2, 4)",
    ]
    assert buffers_of([graph]) == [a, b]
    assert parse_graph(text, buffers_of([graph]))[0] is graph
    again = parse_graph(text)[0]
    assert again is not graph and format_graph([again]) == text


def test_equal_numbers_print_alike_whichever_came_first() -> None:
    whole = made(OpCode.ATTENTION, (param(9, 1, 2, 3, 4),) * 3, AttentionArg(scale=1, causal=False))
    assert "AttentionArg(scale=1.0, causal=False, window=0, soft_cap=0.0, tf32=False, dropout=0.0)" in format_graph([whole])


def test_a_record_of_a_user_reads_back_once_it_is_known() -> None:
    class Paint(Record):
        colour: str
        layers: tuple[int, ...]

    op = made(OpCode.COLLECTIVE, (X,), Paint("it's %1", (1, 2)))
    text = format_graph([op])
    with pytest.raises(DataError, match="Paint is not a record"):
        parse_graph(text)
    RECORDS["Paint"] = Paint
    try:
        assert parse_graph(text)[0] is op
    finally:
        del RECORDS["Paint"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "text: a graph ends in a line 'return %n ...'."),
        ("return %0", "text: %0 is not defined above."),
        ("%0 = PARAMETER 0   float32 (2,)", "is not a line '%n = CODE %sources argument   dtype shape'"),
        ("%0 = IOTA 3   int64 (4,)\nreturn %0", "has shape (3,)"),
        ("%0 = IOTA open('x')   int64 (3,)\nreturn %0", "open is not a record of RECORDS"),
        ("%0 = IOTA [3]   int64 (3,)\nreturn %0", "'[3]' is not an argument of an Op"),
        ("%0 = IOTA 3 +   int64 (3,)\nreturn %0", "cannot be read"),
    ],
)
def test_text_that_is_no_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as raised:
        parse_graph(text)
    assert message in raised.value.fact


@pytest.mark.parametrize(
    "line, message",
    [
        ("transpose 4 to p0[0] by 4", "'transpose 4 to p0[0] by 4' is not a statement."),
        ("barriers", "'barriers' is not a statement."),
        ("v1 = 3", "'v1' names no value"),
        ("prefetch p0", "'prefetch p0' is not a statement."),
    ],
)
def test_a_line_that_is_no_statement_is_refused(line: str, message: str) -> None:
    with pytest.raises(DataError) as raised:
        parse_program(f"program f\n  param p0: in float32[4]\n  phase\n    {line}\n")
    assert message in raised.value.fact


# ---- kernels and schedules ----
def softmax_kernel() -> Kernel:
    x = param(0, N, 70)
    rows = made(OpCode.REDUCE, (x,), (OpCode.MAX, (1,)))
    spread = made(OpCode.EXPAND, (made(OpCode.RESHAPE, (rows,), (N, 1)),), (N, 70))
    nest = Nest(NestKind.REDUCE, (N, 70), (1,), None, ((1, made(OpCode.EXP, (x - spread,))), (2, rows)))
    product = made(OpCode.MATMUL, (param(1, N, 70), param(3, 70, 4)))
    anchored = Nest(NestKind.MATMUL, (N, 4), (), product, ((4, product),))
    params = [(mul(N, 70), "in"), (mul(N, 70), "scratch"), (N, "out"), (280, "in"), (mul(N, 4), "out")]
    return Kernel(
        "softmax_70", tuple(Param(dtypes.float32, n, role) for n, role in params), (N,), ((nest,), (anchored,))
    )


def test_a_kernel_reads_back() -> None:
    kernel = softmax_kernel()
    assert parse_kernel(format_kernel(kernel)) == kernel


def test_a_kernel_shows_graph_params_and_nests() -> None:
    x = param(0, 3)
    nest = Nest(NestKind.ELEMENTWISE, (3,), (), None, ((1, x * x),))
    kernel = Kernel("square_3", (Param(dtypes.float32, 3, "in"), Param(dtypes.float32, 3, "out")), (), ((nest,),))
    assert format_kernel(kernel) == (
        "kernel square_3\n"
        "  %0 = PARAM 0                         float32 (3,)\n"
        "  %1 = MUL %0 %0                       float32 (3,)\n"
        "  param in float32 3\n"
        "  param out float32 3\n"
        "  phase\n"
        "    nest elementwise domain (3,) reduced ()\n"
        "      store 1 %1"
    )


def test_a_schedule_shows_each_kernel_once() -> None:
    kernel = softmax_kernel()
    uses = tuple(BufferUse(p.dtype, p.numel, "temporary", 64 * i) for i, p in enumerate(kernel.params))
    items = (ScheduleItem(kernel, (0, 1, 2, 3, 4)), ScheduleItem(kernel, (0, 1, 2, 4, 3)))
    text = format_schedule(Schedule(items, uses, (), (4,), 1024))
    assert text.splitlines()[:3] == [
        "schedule of 2 kernels, arena of 1024 bytes",
        "  buffer 0: float32[n * 70] temporary at byte 0",
        "  buffer 1: float32[n * 70] temporary at byte 64",
    ]
    assert text.count("kernel softmax_70") == 1 and text.count("  run softmax_70 on buffers") == 2


# ---- programs ----
def var(name: str, lanes: int = 1, dtype: dtypes.DType = dtypes.float32) -> Op:
    return Op(OpCode.VAR, dtype, (), (name, lanes))


def axis(number: int, extent: Any, kind: AxisKind) -> Op:
    return Op(OpCode.RANGE, dtypes.int64, (to_op(extent),), (number, kind))


def at(memory: Op, index: Any, *valid: Op) -> Op:
    return Op(OpCode.LOAD, memory.dtype, (memory, to_op(index), *valid))


def free_program() -> Program:
    i, j = axis(1, N, AxisKind.GRID), axis(2, 8, AxisKind.VECTOR)
    x, y = param(0, mul(N, 8)), param(1, mul(N, 8))
    acc = Op(OpCode.ALLOC, dtypes.float32, (), ("acc", 8, MemorySpace.REGISTER))
    place = add(mul(i, 8), j)
    inside = Op(OpCode.CMPLT, dtypes.bool_, (to_op(place), const(20, dtypes.int64)))
    value = at(x, place, inside) * 2.0 - (at(x, floordiv(place, 3)) + const(-1.5, dtypes.float32))
    value = Op(OpCode.WHERE, dtypes.float32, (inside, value, Op(OpCode.MAX, dtypes.float32, (value, -value))))
    total = Op(OpCode.REDUCE, dtypes.float32, (value,), (OpCode.ADD, ()))
    body = (
        Alloc(acc),
        Prefetch(x, i),
        Transpose(y, to_op(mul(i, 3)), 4, x, i, 5, 2),
        For(j, (Store(acc, j, value), Load(var("x7"), acc, j), Store(y, to_op(place), var("x7") / 3.0, inside))),
        For(j, (Store(acc, const(0, dtypes.int64), total),)),
        If(Op(OpCode.CMPEQ, dtypes.bool_, (i, const(0, dtypes.int64))), (Store(y, i, at(acc, 0)), Barrier())),
    )
    params = (Param(dtypes.float32, mul(N, 8), "in"), Param(dtypes.float32, mul(N, 8), "out"))
    return Program("free_8", params, (N,), ((For(i, body),), ()))


def linear_program() -> Program:
    i = axis(0, 4, AxisKind.GRID)
    x, y = param(0, 32), param(1, 32, dtype=dtypes.bfloat16)
    v1, v2, v3 = var("v1", 1, dtypes.int64), var("v2", 8), var("v3", 8)
    wide, narrow = var("v4", 8), var("v5", 8, dtypes.bfloat16)
    single, lanes, mask = var("v6"), var("v7", 8, dtypes.int64), var("v8", 8, dtypes.bool_)
    body = (
        Let(v1, Op(OpCode.MUL, dtypes.int64, (i, const(8, dtypes.int64)))),
        Load(v2, x, v1),
        Let(v3, Op(OpCode.EXPAND, dtypes.float32, (const(2.0, dtypes.float32),), 8)),
        Let(wide, Op(OpCode.FMA, dtypes.float32, (v2, v3, v2))),
        Let(narrow, Op(OpCode.CAST, dtypes.bfloat16, (wide,))),
        Let(single, Op(OpCode.REDUCE, dtypes.float32, (wide,), (OpCode.MAX, 8))),
        Let(lanes, Op(OpCode.LANES, dtypes.int64, (), 8)),
        Let(mask, Op(OpCode.CMPNE, dtypes.bool_, (narrow, narrow))),
        Load(var("v9", 8), x, lanes, mask),
        Store(y, v1, narrow, mask),
    )
    return Program(
        "linear", (Param(dtypes.float32, 32, "in"), Param(dtypes.bfloat16, 32, "out")), (), ((For(i, body),),)
    )


def clashing_program() -> Program:
    """Names that are taken, reserved or no names, and types that do not follow from operands."""
    i, same = axis(1, 4, AxisKind.LOOP), axis(1, 5, AxisKind.LOOP)
    strange = Op(OpCode.RANGE, dtypes.int64, (const(2, dtypes.int64),), (("a", 1), AxisKind.LOOP))
    y, flat = param(0, 4), param(0, 2, 2)
    names = ["r1", "p0", "load", "float32", "for", "exp", "no name", "it's", "t", "x", "MAX"]
    lets = tuple(Let(var(name), const(float(n), dtypes.float32)) for n, name in enumerate(names))
    odd = Op(OpCode.ADD, dtypes.float16, (var("r1"), var("p0")))
    other = Op(OpCode.CMPLT, dtypes.int32, (odd, const(float("nan"), dtypes.float16)))
    body = (
        *lets,
        Store(y, i, other),
        Store(flat, strange, Op(OpCode.COPY, dtypes.float32, (var("t"),), "CUDA")),
        Let(var("n", 1, dtypes.int64), Op(OpCode.ADD, dtypes.int64, (same, const(-(2**62), dtypes.int64)))),
        Let(var("u", 1, dtypes.uint8), const(200, dtypes.uint8)),
    )
    return Program("clash", (Param(dtypes.float32, 4, "out"),), (), ((For(i, (For(same, (For(strange, body),)),)),),))


def long_program() -> Program:
    """Sharing that would double at every step when it is written out."""
    i = axis(1, 4, AxisKind.GRID)
    value = at(param(0, 4), i)
    for _ in range(200):
        value = value * value + value
    params = (Param(dtypes.float32, 4, "in"), Param(dtypes.float32, 4, "out"))
    return Program("long", params, (), ((For(i, (Store(param(1, 4), i, value),)),),))


PROGRAMS = {p.name: p for p in (free_program(), linear_program(), clashing_program(), long_program())}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_reads_back(program: Program) -> None:
    text = format_program(program)
    assert parse_program(text) == program
    assert format_program(parse_program(text)) == text


def test_a_program_reads_like_code() -> None:
    assert format_program(linear_program()) == (
        "program linear\n"
        "  param p0: in float32[32]\n"
        "  param p1: out bfloat16[32]\n"
        "  memory p0 = 0 float32 (32,)\n"
        "  memory p1 = 1 bfloat16 (32,)\n"
        "  phase\n"
        "    for r0 in grid(4):\n"
        "      v1: int64 = r0 * 8\n"
        "      load v2: float32x8 = p0[v1]\n"
        "      v3: float32x8 = spread(2.0, 8)\n"
        "      v4: float32x8 = fma(v2, v3, v2)\n"
        "      v5: bfloat16x8 = cast(v4, bfloat16)\n"
        "      v6: float32 = REDUCE(float32, v4, arg=(MAX, 8))\n"
        "      v7: int64x8 = lanes(8)\n"
        "      v8: boolx8 = v5 != v5\n"
        "      load v9: float32x8 = p0[v7] when v8\n"
        "      p1[v1] = v5 when v8"
    )


def test_lines_of_a_program_stay_short() -> None:
    lines = format_program(long_program()).splitlines()
    assert len(lines) < 250 and max(map(len, lines)) < 200


leaf = st.sampled_from(
    [
        *(const(v, dtypes.float32) for v in (0.0, -1.5, float("inf"), float("nan"))),
        var("a"),
        var("b"),
        at(param(0, 4), axis(1, 4, AxisKind.LOOP)),
    ]
)
CODES = [OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.MOD, OpCode.MAX, OpCode.POW]
expression = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds(lambda code, a, b: Op(code, dtypes.float32, (a, b)), st.sampled_from(CODES), inner, inner),
        st.builds(lambda a: Op(OpCode.NEG, dtypes.float32, (a,)), inner),
        st.builds(
            lambda code, a, b: Op(OpCode.WHERE, dtypes.float32, (Op(code, dtypes.bool_, (a, b)), b, a)),
            st.sampled_from([OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE]),
            inner,
            inner,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(expression, min_size=1, max_size=4))
def test_any_expression_reads_back(values: list[Op]) -> None:
    i = axis(1, 4, AxisKind.LOOP)
    named = (Let(var("a"), const(1.0, dtypes.float32)), Let(var("b"), const(2.0, dtypes.float32)))
    body = (*named, *(Store(param(0, 4), i, value) for value in values))
    program = Program("random", (Param(dtypes.float32, 4, "out"),), (), ((For(i, body),),))
    assert parse_program(format_program(program)) == program


BITWISE = [OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.SHL, OpCode.SHR, OpCode.IDIV, OpCode.MOD, OpCode.SUB, OpCode.MUL]
integers = st.recursive(
    st.sampled_from([const(-3, dtypes.int64), const(5, dtypes.int64), var("k", 1, dtypes.int64)]),
    lambda inner: st.builds(lambda code, a, b: Op(code, dtypes.int64, (a, b)), st.sampled_from(BITWISE), inner, inner),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(integers)
def test_parentheses_keep_integer_expressions(value: Op) -> None:
    k = var("k", 1, dtypes.int64)
    program = Program("bits", (), (), ((Let(k, const(1, dtypes.int64)), Let(var("m", 1, dtypes.int64), value)),))
    assert parse_program(format_program(program)) == program


def test_a_statement_shows_without_its_body() -> None:
    i = axis(3, 4, AxisKind.BLOCK)
    assert format_statement(For(i, (Barrier(),))) == "for r3 in block(4):"
    square = Transpose(param(1, 4), i, 2, param(0, 4), const(0, dtypes.int64), 2, 2)
    assert format_statement(square) == "transpose 2 to p1[r3] by 2 of p0[0] by 2"
    assert format_statement(Prefetch(param(1, 4), i)) == "prefetch p1[r3]"
    assert format_statement(Store(param(1, 4), i, at(param(0, 4), i) + 1.0)) == "p1[r3] = p0[r3] + 1.0"


def test_the_neighbourhood_of_an_op_marks_it() -> None:
    assert neighbourhood(made(OpCode.PERMUTE, (X,), (1, 0))) == (
        "    %0 = PARAM (0, (2, 4))               float32 (2, 4)\n"
        "  > %1 = PERMUTE %0 (1, 0)               float32 (4, 2)"
    )


def test_texts_are_the_same_in_every_process() -> None:
    """They are keys of the disk cache: neither hashes nor addresses may show."""
    code = (
        "from tests.ir.test_text import *\n"
        "print(format_graph(list(GRAPHS.values())), format_kernel(softmax_kernel()))\n"
        "print(*(format_program(p) for p in PROGRAMS.values()))"
    )
    root = Path(__file__).parents[2]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs.pop().startswith(b"%0 = PARAM")
