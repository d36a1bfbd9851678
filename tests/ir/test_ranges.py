"""What is certain of integers without computing them, held against the values the evaluator finds."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import Tensor, dtypes
from picograd.autodiff.gradient import written_out
from picograd.engine.plan import parametrize, template
from picograd.evaluator import evaluate
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.ranges import value_range
from picograd.rewrites.simplify import simplify_graph

I64 = dtypes.int64
X = Op(OpCode.PARAM, I64, (), (0, (6,)))
SMALL = Op(OpCode.PARAM, dtypes.uint8, (), (1, (6,)))


def binary(code: OpCode, a: Op, b: Op | int) -> Op:
    return Op(code, a.dtype, (a, a.filled(b)))


def clamped(low: int, high: int) -> Op:
    return binary(OpCode.MIN, binary(OpCode.MAX, X, low), high)


def wrapped(x: Op, dim: int) -> Op:
    negative = Op(OpCode.CMPLT, dtypes.bool_, (x, x.filled(0)))
    return Op(OpCode.WHERE, I64, (negative, x + dim, x))


CASES = {
    "nothing is known of memory": (X, (I64.min, I64.max)),
    "a dtype": (SMALL, (0, 255)),
    "cast": (Op(OpCode.CAST, I64, (SMALL,)), (0, 255)),
    "positions": (Op(OpCode.IOTA, I64, (), 6), (0, 5)),
    "clamp": (clamped(-2, 4), (-2, 4)),
    "modulo": (binary(OpCode.MOD, X, 7), (0, 6)),
    "quotient": (binary(OpCode.IDIV, clamped(-7, 9), 2), (-4, 4)),
    "sum": (clamped(-2, 4) + 3, (1, 7)),
    "difference": (clamped(-2, 4) - clamped(1, 2), (-4, 3)),
    "product": (clamped(-2, 4) * -3, (-12, 6)),
    "a sum that may wrap": (X + 1, (I64.min, I64.max)),
    "bits": (binary(OpCode.AND, X, 15), (0, 15)),
    "negative ones from the end": (wrapped(clamped(-5, 4), 5), (0, 4)),
    "no negative ones": (wrapped(clamped(0, 4), 5), (0, 4)),
    "maximum": (Op(OpCode.REDUCE, I64, (clamped(0, 4),), (OpCode.MAX, (0,))), (0, 4)),
    "padding": (Op(OpCode.PAD, I64, (clamped(3, 4),), ((1, 0),)), (0, 4)),
    "a check": (Op(OpCode.CHECK, I64, (clamped(0, 4),), (0, 9)), (0, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_range(name: str) -> None:
    op, expected = CASES[name]
    assert value_range(op) == expected
    values = np.array([I64.min, -3, 0, 2, 5, I64.max])
    found = evaluate([op], {X: values, SMALL: np.array([0, 1, 2, 3, 128, 255], np.uint8)})[0]
    assert expected[0] <= found.min() and found.max() <= expected[1]


# ---- what indices users write need no check ----
def num_checks(result: Tensor) -> int:
    """Returns how many CHECKs are left of a tensor's graph when it is compiled."""
    roots = written_out([result.op])
    graphs = parametrize(roots, template(roots))
    return sum(op.code is OpCode.CHECK for op in toposort(simplify_graph(graphs)))


@pytest.mark.req("B6")
def test_indices_that_are_certainly_inside_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, index = Tensor(np.ones((4, 8), np.float32)), Tensor([1, 2, 9])
    assert num_checks(x[index]) == 1
    assert num_checks(x[Tensor.arange(4)]) == 0
    assert num_checks(x[-1 - Tensor.arange(4)]) == 0
    assert num_checks(x[index % 4]) == 0
    assert num_checks(x[index.clamp(-4, 3)]) == 0
    assert num_checks(x[x.argmax(0)]) == 0
    assert num_checks(x.gather(1, x.argmin(1, keepdim=True))) == 0
    assert num_checks(x[[0, 1]]) == 0
    assert num_checks(x[Tensor.arange(4), index[:1] & 7]) == 0
