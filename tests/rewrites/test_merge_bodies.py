"""Merging of CALLs and LOOPs: the same values, one Op each, and nothing that nobody reads."""

from __future__ import annotations

import numpy as np

import picograd as pg
from picograd import Tensor
from picograd import dtype as dtypes
from picograd.evaluator import evaluate
from picograd.ir.build import unary
from picograd.ir.op import Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.spec import verify_graph
from picograd.rewrites.merge_bodies import merge_bodies

f64 = dtypes.float64


def param(slot: int, *shape: int) -> Op:
    return Op(OpCode.PARAM, f64, (), (slot, shape))


def sink(*roots: Op, mark: str | None = None) -> Op:
    return Op(OpCode.SINK, f64, roots, mark)


def call(body: Op, *src: Op) -> Op:
    return Op(OpCode.CALL, f64, src, body)


def loop(body: Op, num_carry: int, *src: Op) -> Op:
    return Op(OpCode.LOOP, f64, src, (body, num_carry, 4))


def out(producer: Op, number: int) -> Op:
    return Op(OpCode.OUTPUT, f64, (producer,), number)


X, Y, ROWS = param(0, 3), param(1, 3), param(2, 4, 3)
A, B = param(0, 3), param(1, 3)
VALUES = {X: np.array([0.1, 0.2, 0.3]), Y: np.array([1.0, 2.0, 3.0]), ROWS: np.arange(12.0).reshape(4, 3)}


def merged(*roots: Op) -> list[Op]:
    """The Ops with bodies after merging; values are checked to stay."""
    result = merge_bodies(roots)
    verify_graph(result, after="merge_bodies")
    for before, after in zip(evaluate(roots, VALUES), evaluate(result, VALUES)):
        np.testing.assert_array_equal(before, after)
    return [op for op in toposort(result) if op.code in (OpCode.CALL, OpCode.LOOP)]


def test_calls_of_equal_arguments_become_one_with_the_results_of_both() -> None:
    tanh = unary(OpCode.TANH, A)
    first, second = call(sink(tanh), X), call(sink(tanh, tanh * A), X)
    (one,) = merged(out(first, 0), out(second, 0) + out(second, 1))
    assert one.arg.src == (tanh, tanh * A)


def test_calls_whose_arguments_become_one_become_one() -> None:
    tanh = unary(OpCode.TANH, A)
    first, second = call(sink(tanh), X), call(sink(A * A, tanh), X)
    other = call(sink(A * 2.0), out(first, 0)), call(sink(A * 3.0), out(second, 1))
    found = merged(out(other[0], 0), out(other[1], 0), out(second, 0))
    assert len(found) == 2


def test_calls_of_other_arguments_or_marks_stay() -> None:
    body = sink(unary(OpCode.TANH, A))
    assert len(merged(out(call(body, X), 0), out(call(body, Y), 0))) == 2
    marked = sink(unary(OpCode.TANH, A), mark="recompute")
    assert len(merged(out(call(body, X), 0), out(call(marked, X), 0))) == 2


def test_results_and_arguments_that_nobody_reads_go() -> None:
    inner = call(sink(unary(OpCode.EXP, A)), Y)
    (one,) = merged(out(call(sink(A * 2.0, B * A, B), X, out(inner, 0)), 0))
    assert one.src == (X,) and one.arg.src == (A * 2.0,)


def test_loops_that_carry_the_same_become_one() -> None:
    carry = unary(OpCode.TANH, A + B)
    plain, extended = loop(sink(carry), 1, X, ROWS), loop(sink(carry, A, carry * B), 1, X, ROWS)
    (one,) = merged(out(plain, 0), out(extended, 2))
    assert one.arg[0].src == (carry, carry * B)


def test_carries_that_no_result_needs_go() -> None:
    first, second, row = param(0, 3), param(1, 3), param(2, 3)
    body = sink(first * 2.0 + row, second + row, second * row)
    (one,) = merged(out(loop(body, 2, X, Y, ROWS), 2))
    assert one.src == (Y, ROWS) and one.arg[1] == 1
    (both,) = merged(out(loop(sink(first + second, second + row), 2, X, Y, ROWS), 0))
    assert both.arg[1] == 2  # the second is what the first needs


def test_bodies_within_bodies_are_merged_too() -> None:
    tanh = unary(OpCode.TANH, A)
    short, long = call(sink(tanh), A), call(sink(tanh, tanh * A), A)
    outer = loop(sink(out(short, 0) + B), 1, X, ROWS), loop(sink(out(short, 0) + B, out(long, 1)), 1, X, ROWS)
    (one,) = merged(out(outer[0], 0), out(outer[1], 1))
    assert len([op for op in toposort(one.arg[0].src) if op.code is OpCode.CALL]) == 1


def test_merging_is_linear_in_depth() -> None:
    x = X
    for i in range(3000):
        tanh = unary(OpCode.TANH, A)
        x = out(call(sink(tanh), x), 0) if i % 2 else out(call(sink(filled(1.0, f64, (3,)) * A, tanh), x), 1)
    assert len([op for op in toposort(merge_bodies([x])) if op.code is OpCode.CALL]) == 3000


def test_what_the_last_carry_needs_is_kept_when_the_others_go(device: str) -> None:
    """The rows need the third carry, that one the factor; nobody reads the others, or the last value of any."""
    factor = Tensor([3.0])

    def step(s: tuple[Tensor, ...], x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        return (s[0] + x, s[1] - x, s[2] * factor), s[2] + x

    _, ys = pg.scan(step, (Tensor([0.0]), Tensor([0.0]), Tensor([1.0])), Tensor.zeros(3, 1))
    assert ys.tolist() == [[1.0], [3.0], [9.0]]
