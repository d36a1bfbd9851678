"""Forward mode: values, what it does not touch, and what it costs beside reverse mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import gradient, jvp, ops_by_code
from picograd.errors import GradientError
from picograd.evaluator import evaluate
from picograd.ir.build import cast, expand, flip, gather, pad, permute, reduce, reshape, scan, shrink, unary
from picograd.ir.op import Buffer, Op, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import Pattern, PatternMatcher
from picograd.ir.shape import ConvArg

f64 = dtypes.float64
ONE = const(1.0, f64)


def scalar(value: float, name: str) -> Op:
    return Op(OpCode.LEAF, f64, (const(value, f64),), name)


def value(op: Op | None) -> float:
    assert op is not None
    return float(evaluate([op], {})[0])


@pytest.mark.req("A4")
def test_the_textbook_function_in_forward_mode() -> None:
    x1, x2 = scalar(9.0, "x1"), scalar(10.0, "x2")
    sine = unary(OpCode.SIN, x2)
    result = unary(OpCode.EXP, x1) * (sine * sine)
    by_x1, by_x2 = value(jvp([result], {x1: ONE})[0]), value(jvp([result], {x2: ONE})[0])
    assert f"{by_x1:.4f} {by_x2:.4f}" == "2398.1804 7397.6720"


@pytest.mark.req("A5")
def test_forward_mode_costs_a_run_for_each_input_and_reverse_mode_one(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [scalar(0.1 * i, f"x{i}") for i in range(10)]
    result = unary(OpCode.SIN, inputs[0])
    for x in inputs[1:]:
        result = unary(OpCode.SIN, result * x)
    reverse = ops_by_code(gradient(result, ONE, inputs).values(), known=[result])
    forward: dict[OpCode, int] = {}
    for x in inputs:
        for code, count in ops_by_code([t for t in jvp([result], {x: ONE}) if t], known=[result]).items():
            forward[code] = forward.get(code, 0) + count
    print("operations beyond the value itself")
    for name, counts in (("value", ops_by_code([result])), ("reverse", reverse), ("forward", forward)):
        print(f"{name:8} {sum(counts.values()):4}  " + ", ".join(f"{code.name} {n}" for code, n in counts.items()))
    assert ops_by_code([result]) == {OpCode.SIN: 10, OpCode.MUL: 9}
    assert reverse == {OpCode.COS: 10, OpCode.MUL: 10 + 2 * 9}
    # input i moves its product and every SIN and MUL after it
    assert forward == {OpCode.COS: 10 + sum(range(1, 10)), OpCode.MUL: 2 * (10 + sum(range(1, 10))) - 1}
    assert "reverse" in capsys.readouterr().out


def test_one_pass_moves_several_roots_along_several_inputs() -> None:
    x, y = scalar(2.0, "x"), scalar(5.0, "y")
    product, difference = jvp([x * y, x - y], {x: const(3.0, f64), y: const(7.0, f64)})
    assert (value(product), value(difference)) == (29.0, -4.0)


def test_what_does_not_move_has_no_tangent() -> None:
    x, y = scalar(2.0, "x"), scalar(5.0, "y")
    stopped = Op(OpCode.DETACH, f64, (x,))
    assert jvp([y, stopped, unary(OpCode.FLOOR, x), cast(x, dtypes.int64)], {x: ONE}) == [None] * 4


def test_any_op_can_move_and_is_not_looked_below() -> None:
    x = Op(OpCode.BUFFER, f64, (), (Buffer("CPU", f64, 1), ()))
    strange = Op(OpCode.BITCAST, f64, (x,))
    (tangent,) = jvp([strange * strange], {strange: ONE, x: ONE})
    assert tangent is not None
    assert evaluate([tangent], {x: np.array(3.0)})[0] == 6.0


def test_an_op_in_the_middle_keeps_the_tangent_it_was_given() -> None:
    x = scalar(2.0, "x")
    middle = x * x
    assert value(jvp([middle * x], {x: ONE, middle: const(0.0, f64)})[0]) == 4.0


def test_general_rows_move_without_a_trace_of_the_helper_leaf() -> None:
    x = Op(OpCode.LEAF, f64, (filled(2.0, f64, (3,)),), "x")
    (tangent,) = jvp([reduce(x, OpCode.MAX, (0,))], {x: filled(1.0, f64, (3,))})
    assert value(tangent) == 1.0


def test_an_op_without_a_row_is_named() -> None:
    x = scalar(2.0, "x")
    with pytest.raises(GradientError) as error:
        jvp([Op(OpCode.BITCAST, f64, (x,))], {x: ONE})
    assert error.value.fact == "jvp: BITCAST has no chain rule."


LINEAR: dict[str, Callable[[Op], Op]] = {
    "reshape": lambda a: reshape(a, (6,)),
    "permute": lambda a: permute(a, (1, 0)),
    "expand": lambda a: expand(reshape(a, (2, 3, 1)), (2, 3, 4)),
    "pad": lambda a: pad(a, ((1, 0), (0, 2))),
    "shrink": lambda a: shrink(a, ((0, 1), (1, 3))),
    "flip": lambda a: flip(a, (0,)),
    "sum": lambda a: reduce(a, OpCode.ADD, (1,)),
    "running sum": lambda a: scan(a, OpCode.ADD, 1),
    "cast": lambda a: cast(cast(a, dtypes.float32), f64),
    "gather": lambda a: gather(a, const(1, dtypes.int64), 1, 0),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_tangent_of_a_linear_op_is_the_op_itself(name: str) -> None:
    """Not the transpose of its transpose, which has the same values and takes more Ops."""
    x, moves = (Op(OpCode.LEAF, f64, (filled(1, f64, (2, 3)),), name) for name in ("x", "moves"))
    assert jvp([LINEAR[name](x)], {x: moves}) == [LINEAR[name](moves)]


PRODUCTS: dict[str, Callable[[Op, Op], Op]] = {
    "matmul": lambda a, b: Op(OpCode.MATMUL, f64, (a, b)),
    "conv": lambda a, b: Op(OpCode.CONV, f64, (a, b), ConvArg((2,), ((1, 0),), (1,), (1,))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_tangent_of_a_product_is_two_products(name: str) -> None:
    product = PRODUCTS[name]
    a, b, moves_a, moves_b = (Op(OpCode.LEAF, f64, (filled(1, f64, (3, 3, 3)),), name) for name in ("a", "b", "da", "db"))
    assert jvp([product(a, b)], {a: moves_a, b: moves_b}) == [product(moves_a, b) + product(a, moves_b)]
    assert jvp([product(a, b)], {b: moves_b}) == [product(a, moves_b)]


def test_a_tangent_of_another_shape_is_refused() -> None:
    x = scalar(2.0, "x")
    with pytest.raises(GradientError, match=r"a tangent is float64 \(3,\), its Op float64 \(\)"):
        jvp([x], {x: filled(1, f64, (3,))})


def test_a_users_row_serves_forward_mode_too() -> None:
    rules = chain_rules + PatternMatcher([("straight", Pattern(OpCode.FLOOR, name="out"), lambda grad, out: (grad,))])
    x = scalar(2.5, "x")
    assert jvp([unary(OpCode.FLOOR, x)], {x: ONE}, rules) == [ONE]


def test_a_users_row_of_an_op_that_joins_elements_is_turned_around() -> None:
    x = Op(OpCode.LEAF, f64, (filled(2.0, f64, (3,)),), "x")
    half = ("half a sum", Pattern(OpCode.REDUCE, name="out"), lambda grad, out: (expand(grad * 0.5, (3,)),))
    (tangent,) = jvp([reduce(x, OpCode.ADD, (0,))], {x: filled(1.0, f64, (3,))}, chain_rules + PatternMatcher([half]))
    assert tangent is not None and tangent.shape == () and value(tangent) == 1.5


def test_a_deep_graph_needs_no_recursion() -> None:
    x = scalar(1.0, "x")
    result = x
    for _ in range(50_000):
        result = unary(OpCode.TANH, result)
    assert jvp([result], {x: ONE})[0] is not None


@pytest.mark.parametrize("code", [OpCode.MUL, OpCode.DIV, OpCode.MAX, OpCode.MIN, OpCode.POW], ids=lambda code: code.name)
@pytest.mark.parametrize("place", [0, 1])
def test_the_tangent_of_an_elementwise_op_is_its_row_applied_to_the_tangent(code: OpCode, place: int) -> None:
    """Its Jacobian is a diagonal, so both modes give one graph."""
    x, y, change = scalar(2.0, "x"), scalar(3.0, "y"), scalar(0.5, "change")
    out = Op(code, f64, (x, y))
    leaf = out.src[place]
    assert jvp([out], {leaf: change}) == [gradient(out, change, [leaf])[leaf]]
