"""Shapes follow from sources, and what does not fit is said at once: full texts."""

from __future__ import annotations

from typing import Any

import pytest

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg, ConvArg, numel
from picograd.ir.symbolic import add, floordiv, mul, subtract

N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 4))


def param(*shape: Dim) -> Op:
    return Op(OpCode.PARAM, dtypes.float32, (), (0, shape))


def made(code: OpCode, src: tuple[Op, ...], arg: Any = None) -> Op:
    return Op(code, dtypes.float32, src, arg)


def conv(**changes: Any) -> ConvArg:
    plain = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "input_dilation": (1, 1)}
    return ConvArg(**{**plain, **changes})


def call(*results: Op) -> Op:
    return made(OpCode.CALL, (), Op(OpCode.SINK, dtypes.float32, results))


def loop(*results: Op, carry: int) -> Op:
    return made(OpCode.LOOP, (), (Op(OpCode.SINK, dtypes.float32, results), carry, 7))


QKV = (param(2, 8, 5, 4), param(2, 2, 7, 4), param(2, 2, 7, 6))
ROWS = param(2, 8, 5)

RIGHT: list[tuple[str, Op, tuple[Dim, ...]]] = [
    ("add", param(2, 3) + param(2, 3), (2, 3)),
    ("constant", const(1.0, dtypes.float32), ()),
    ("iota", made(OpCode.IOTA, (), 5), (5,)),
    ("reshape", made(OpCode.RESHAPE, (param(2, 6),), (3, 4)), (3, 4)),
    ("reshape a symbolic axis", made(OpCode.RESHAPE, (param(N, 6),), (mul(N, 3), 2)), (mul(N, 3), 2)),
    ("permute", made(OpCode.PERMUTE, (param(2, 3, 4),), (2, 0, 1)), (4, 2, 3)),
    ("expand", made(OpCode.EXPAND, (param(1, 3),), (5, 3)), (5, 3)),
    ("expand a scalar", made(OpCode.EXPAND, (param(),), (5, N)), (5, N)),
    ("spread over lanes", made(OpCode.EXPAND, (param(),), 8), ()),
    ("pad", made(OpCode.PAD, (param(2, N),), ((1, 2), (0, 1))), (5, add(N, 1))),
    ("shrink", made(OpCode.SHRINK, (param(5, 3),), ((1, 4), (0, 3))), (3, 3)),
    ("shrink to a symbolic end", made(OpCode.SHRINK, (param(5),), ((1, N),)), (subtract(N, 1),)),
    ("flip", made(OpCode.FLIP, (param(2, 3),), (0, 1)), (2, 3)),
    ("reduce", made(OpCode.REDUCE, (param(2, 3, 4),), (OpCode.ADD, (0, 2))), (3,)),
    ("scan", made(OpCode.SCAN, (param(2, 3),), (OpCode.ADD, 1)), (2, 3)),
    ("gather rows", made(OpCode.GATHER, (param(10, 4), param(2, 3)), (0, 0)), (2, 3, 4)),
    ("gather with a batch", made(OpCode.GATHER, (param(2, 10, 4), param(2, 3)), (1, 1)), (2, 3, 4)),
    ("gather in the middle", made(OpCode.GATHER, (param(2, 5, 10, 4), param(2, 3)), (2, 1)), (2, 5, 3, 4)),
    ("scatter", made(OpCode.SCATTER, (param(10, 4), param(3), param(3, 4)), (OpCode.ADD, 0, 0)), (10, 4)),
    ("matmul", made(OpCode.MATMUL, (param(7, 2, 3), param(7, 3, 5))), (7, 2, 5)),
    ("matmul of symbolic rows", made(OpCode.MATMUL, (param(N, 3), param(3, 5))), (N, 5)),
    ("conv", made(OpCode.CONV, (param(2, 4, 8, 9), param(6, 2, 3, 3)), conv(groups=2, stride=(2, 1))), (2, 6, 3, 7)),
    (
        "conv, dilated both ways",
        made(
            OpCode.CONV,
            (param(2, 4, 8, 9), param(6, 4, 3, 3)),
            conv(dilation=(2, 1), input_dilation=(1, 2), padding=((1, 0), (2, 3))),
        ),
        (2, 6, 5, 20),
    ),
    (
        "attention",
        made(OpCode.ATTENTION, (param(2, 8, 5, 4), param(2, 2, 7, 4), param(2, 2, 7, 6)), AttentionArg(1.0)),
        (2, 8, 5, 6),
    ),
    (
        "the gradient of an attention's v",
        made(OpCode.OUTPUT, (made(OpCode.ATTENTION_GRAD, (*QKV, param(2, 8, 5, 6), ROWS, ROWS), AttentionArg(1.0)),), 2),
        (2, 2, 7, 6),
    ),
    ("a result of a call", made(OpCode.OUTPUT, (call(param(2, 3), param(4)),), 1), (4,)),
    ("a carry of a loop", made(OpCode.OUTPUT, (loop(param(2), param(3), carry=1),), 0), (2,)),
    ("rows of a loop", made(OpCode.OUTPUT, (loop(param(2), param(3), carry=1),), 1), (7, 3)),
]


@pytest.mark.parametrize("op, shape", [(op, shape) for _, op, shape in RIGHT], ids=[name for name, _, _ in RIGHT])
def test_shape(op: Op, shape: tuple[Dim, ...]) -> None:
    assert op.shape == shape


WRONG: list[tuple[str, OpCode, tuple[Op, ...], Any, str]] = [
    ("add", OpCode.ADD, (param(2, 3), param(3)), None, "add: shapes differ: (2, 3), (3,)."),
    ("where", OpCode.WHERE, (param(2), param(2), param(3)), None, "where: shapes differ: (2,), (2,), (3,)."),
    ("reshape", OpCode.RESHAPE, (param(4, 6),), (5, 5), "reshape: (4, 6) has 24 elements, (5, 5) has 25."),
    ("permute", OpCode.PERMUTE, (param(4, 6),), (0, 0), "permute: (0, 0) does not name each of the 2 axes of (4, 6) once."),
    (
        "expand",
        OpCode.EXPAND,
        (param(4, 1),),
        (5, 3),
        "expand: (4, 1) does not fit (5, 3): each axis must be equal or of length 1.",
    ),
    (
        "expand to more axes",
        OpCode.EXPAND,
        (param(4),),
        (5, 4),
        "expand: (4,) does not fit (5, 4): each axis must be equal or of length 1.",
    ),
    ("pad", OpCode.PAD, (param(4),), ((-1, 0),), "pad: ((-1, 0),) needs one non-negative pair for each axis of (4,)."),
    ("shrink", OpCode.SHRINK, (param(4),), ((1, 5),), "shrink: 1:5 is outside an axis of length 4 of (4,)."),
    ("shrink backwards", OpCode.SHRINK, (param(4),), ((3, 2),), "shrink: 3:2 is outside an axis of length 4 of (4,)."),
    ("shrink no axis", OpCode.SHRINK, (param(4),), (), "shrink: () needs one pair for each axis of (4,)."),
    ("flip", OpCode.FLIP, (param(4),), (1,), "flip: axes (1,) are not distinct axes of (4,)."),
    ("reduce", OpCode.REDUCE, (param(4),), (OpCode.ADD, (0, 0)), "reduce: axes (0, 0) are not distinct axes of (4,)."),
    ("scan", OpCode.SCAN, (param(4),), (OpCode.ADD, 1), "scan: axes (1,) are not distinct axes of (4,)."),
    ("sort", OpCode.SORT, (param(4),), (-1, False), "sort: axes (-1,) are not distinct axes of (4,)."),
    (
        "gather",
        OpCode.GATHER,
        (param(2, 5), param(3, 4)),
        (1, 1),
        "gather: index (3, 4) does not fit axis 1 of (2, 5) with 1 batch axes.",
    ),
    (
        "scatter",
        OpCode.SCATTER,
        (param(5, 2), param(3), param(3, 4)),
        (None, 0, 0),
        "scatter: updates (3, 4) are not (3, 2), the shape of (5, 2) at (3,).",
    ),
    (
        "matmul of vectors",
        OpCode.MATMUL,
        (param(4), param(4, 2)),
        None,
        "matmul: lhs (4,), rhs (4, 2) need two axes each, for rows and columns.",
    ),
    (
        "matmul of batches",
        OpCode.MATMUL,
        (param(2, 3, 4), param(3, 4, 5)),
        None,
        "matmul: batch axes differ: lhs (2, 3, 4), rhs (3, 4, 5).",
    ),
    (
        "matmul",
        OpCode.MATMUL,
        (param(32, 768), param(50257, 512)),
        None,
        "matmul: inner dimensions differ: lhs (32, 768) has K=768, rhs (50257, 512) has K=50257.",
    ),
    (
        "conv of other axes",
        OpCode.CONV,
        (param(2, 4, 8), param(6, 4, 3, 3)),
        conv(),
        "conv: x (2, 4, 8), w (6, 4, 3, 3) do not fit (B, C, *spatial), (O, C / groups, *kernel).",
    ),
    (
        "conv of an argument for other axes",
        OpCode.CONV,
        (param(2, 4, 8, 8), param(6, 4, 3, 3)),
        conv(stride=(1,)),
        "conv: ConvArg(stride=(1,), padding=((0, 0), (0, 0)), dilation=(1, 1), input_dilation=(1, 1), groups=1, "
        "of_weight=False, tf32=False) needs one entry for each of the 2 spatial axes of x (2, 4, 8, 8).",
    ),
    (
        "conv of other channels",
        OpCode.CONV,
        (param(2, 3, 8, 8), param(6, 4, 3, 3)),
        conv(),
        "conv: x (2, 3, 8, 8) has 3 channels, w (6, 4, 3, 3) needs 4 x 1 groups.",
    ),
    (
        "conv of groups that cannot share",
        OpCode.CONV,
        (param(2, 8, 8, 8), param(6, 2, 3, 3)),
        conv(groups=4),
        "conv: w (6, 2, 3, 3) has 6 outputs, which 4 groups cannot share.",
    ),
    (
        "conv of a long kernel",
        OpCode.CONV,
        (param(2, 4, 8, 2), param(6, 4, 3, 3)),
        conv(),
        "conv: a kernel spanning 3 is longer than the padded input 2 of axis 1.",
    ),
    (
        "attention",
        OpCode.ATTENTION,
        (param(2, 8, 5, 4), param(2, 2, 7, 3), param(2, 2, 7, 6)),
        AttentionArg(1.0),
        "attention: q (2, 8, 5, 4), k (2, 2, 7, 3), v (2, 2, 7, 6) do not fit (B, H, T, D), (B, G, S, D), "
        "(B, G, S, D).",
    ),
    (
        "attention of heads",
        OpCode.ATTENTION,
        (param(2, 8, 5, 4), param(2, 3, 7, 4), param(2, 3, 7, 4)),
        AttentionArg(1.0),
        "attention: q (2, 8, 5, 4) has 8 heads, not a multiple of the 3 of k (2, 3, 7, 4).",
    ),
    (
        "attention with a mask",
        OpCode.ATTENTION,
        (*QKV, param(2, 1, 5, 7)),
        AttentionArg(1.0),
        "attention: a mask (2, 1, 5, 7) of q (2, 8, 5, 4) and k (2, 2, 7, 4) is not (2, 8, 5, 7).",
    ),
    (
        "attention with dropout",
        OpCode.ATTENTION,
        (*QKV, param(2, 8), param(2, 2)),
        AttentionArg(1.0, dropout=0.5),
        "attention: seeds (2, 8) and numbers (2, 2) of draws for q (2, 8, 5, 4) are not (2, 8) each.",
    ),
    (
        "the gradient of attention",
        OpCode.ATTENTION_GRAD,
        (*QKV, param(2, 8, 5, 4), ROWS, param(2, 8)),
        AttentionArg(1.0),
        "attention: grad (2, 8, 5, 4), logsumexp (2, 8, 5), delta (2, 8) do not fit (B, H, T, E), (B, H, T), "
        "(B, H, T).",
    ),
    ("output of one result", OpCode.OUTPUT, (param(3),), 0, "output: PARAM has one result."),
    (
        "output that is not there",
        OpCode.OUTPUT,
        (call(param(3)),),
        1,
        "output: there is no result 1 of CALL, which has 1.",
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=[case[0] for case in WRONG])
def test_error(case: tuple[str, OpCode, tuple[Op, ...], Any, str]) -> None:
    _, code, src, arg, text = case
    with pytest.raises(ShapeError) as raised:
        Op(code, dtypes.float32, src, arg)
    assert raised.value.fact == text


def test_an_error_quotes_the_users_line() -> None:
    with pytest.raises(ShapeError) as raised:
        param(2, 3) + param(3)
    number = raised.value.line.number
    assert str(raised.value) == (
        f"add: shapes differ: (2, 3), (3,).\n  at test_shape.py:{number}    param(2, 3) + param(3)"
    )


def test_windows_fit_an_image_of_symbolic_lengths() -> None:
    found = made(OpCode.CONV, (param(2, 4, N, 8), param(6, 4, 3, 3)), conv(stride=(2, 1), padding=((1, 1), (0, 0))))
    assert found.shape == (2, 6, floordiv(add(N, 1), 2), 6)


def test_symbolic_output_channels_are_refused() -> None:
    with pytest.raises(ShapeError, match="a symbolic dimension .* is used where a number is needed"):
        made(OpCode.CONV, (param(2, 4, 8, 8), param(N, 4, 3, 3)), conv())


def test_numel_multiplies_symbolic_dimensions() -> None:
    assert numel(()) == 1
    assert numel((2, 3)) == 6
    assert numel((2, N, 3)) is mul(N, 6)
