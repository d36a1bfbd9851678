"""The graphs that CALLs and LOOPs hold."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.ir.bodies import bodies_in, body_of, carry_and_steps, map_bodies, with_body
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode

f32 = dtypes.float32
X = Op(OpCode.PARAM, f32, (), (0, (2,)))


def sink(*roots: Op) -> Op:
    return Op(OpCode.SINK, f32, roots)


def call(body: Op, *src: Op) -> Op:
    return Op(OpCode.CALL, f32, src, body)


def output(producer: Op, number: int = 0) -> Op:
    return Op(OpCode.OUTPUT, f32, (producer,), number)


INNER = sink(X * X)
OUTER = sink(output(call(INNER, X)) + X)
ROW = Op(OpCode.PARAM, f32, (), (1, (2,)))
LOOP = Op(OpCode.LOOP, f32, (X, Op(OpCode.PARAM, f32, (), (1, (5, 2)))), (sink(X + ROW), 1, 5))


def test_a_loop_knows_its_carry_and_steps_and_a_call_is_one_step_that_carries_nothing() -> None:
    assert carry_and_steps(LOOP) == (1, 5)
    assert carry_and_steps(call(INNER, X)) == (0, 1)


def test_another_body_leaves_what_else_a_loop_says() -> None:
    changed = with_body(LOOP, sink(X * ROW))
    assert body_of(changed) is sink(X * ROW) and carry_and_steps(changed) == (1, 5) and changed.src == LOOP.src


def test_bodies_come_once_and_inner_ones_first() -> None:
    graph = output(call(OUTER, X)) + output(call(OUTER, X * 2.0)) + output(call(INNER, X))
    assert bodies_in(toposort([graph])) == [INNER, OUTER]


def test_every_body_is_rewritten_and_what_holds_it_follows() -> None:
    seen: list[tuple[Op, ...]] = []

    def change(roots: list[Op]) -> list[Op]:
        seen.append(tuple(roots))
        return [root * 3.0 for root in roots]

    (graph,) = map_bodies([output(call(OUTER, X))], change)
    inner = sink(X * X * 3.0)
    assert graph is output(call(sink((output(call(inner, X)) + X) * 3.0), X))
    assert seen == [(X * X,), (output(call(inner, X)) + X,)]


def test_a_graph_without_bodies_is_not_looked_at_twice() -> None:
    (graph,) = map_bodies([X * X], pytest.fail)
    assert graph is X * X
