"""Patterns match what they say; tables dispatch, extend and rewrite."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.ir.build import permute, reduce, reshape, unary
from picograd.ir.op import Op, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import Pattern, PatternMatcher, Rule, graph_rewrite

f32, i32 = dtypes.float32, dtypes.int32


def source(name: str, dtype: dtypes.DType = f32, shape: tuple[int, ...] = (2, 3)) -> Op:
    return Op(OpCode.BUFFER, dtype, (), (name, shape))


x, y = source("x"), source("y")


def matches(pattern: Pattern, op: Op) -> dict[str, Op] | None:
    found: dict[str, Op] = {}
    return found if pattern.match(op, found) else None


def test_a_pattern_without_codes_fits_anything() -> None:
    assert matches(Pattern(name="a"), x + y) == {"a": x + y}


def test_codes_kinds_and_sources_are_checked() -> None:
    pattern = Pattern((OpCode.ADD, OpCode.SUB), (Pattern(name="a"), Pattern(OpCode.NEG, name="b")), kinds="f")
    assert matches(pattern, x - (-y)) == {"a": x, "b": -y}
    assert matches(pattern, x * (-y)) is None
    assert matches(pattern, x + y) is None
    n = source("n", i32)
    assert matches(pattern, n + -n) is None


def test_the_number_of_sources_counts() -> None:
    assert matches(Pattern(OpCode.FMA, (Pattern(), Pattern())), Op(OpCode.FMA, f32, (x, x, x))) is None


def test_one_name_is_one_op() -> None:
    pattern = Pattern(OpCode.MUL, (Pattern(name="a"), Pattern(name="a")))
    assert matches(pattern, x * x) == {"a": x}
    assert matches(pattern, x * y) is None


def test_either_order_of_sources() -> None:
    pattern = Pattern(OpCode.ADD, (Pattern(OpCode.NEG, name="a"), Pattern(name="b")), either=True)
    assert matches(pattern, -x + y) == matches(pattern, y + -x) == {"a": -x, "b": y}
    assert matches(pattern, y + x) is None


def test_a_failed_order_leaves_no_names_behind() -> None:
    inner = Pattern(OpCode.ADD, (Pattern(OpCode.NEG, name="a"), Pattern(OpCode.EXP, name="b")), either=True)
    op = unary(OpCode.EXP, y) + (-x)
    assert matches(Pattern(OpCode.MUL, (inner, Pattern(name="a"))), op * -x) == {"a": -x, "b": unary(OpCode.EXP, y)}


def test_a_value_is_seen_through_broadcasting() -> None:
    pattern = Pattern(OpCode.MUL, (Pattern(name="a"), Pattern(value=2)))
    assert matches(pattern, x * 2.0) == {"a": x}
    assert matches(pattern, x * reshape(permute(filled(2, f32, (3, 2)), (1, 0)), (2, 3))) == {"a": x}
    assert matches(pattern, x * 3.0) is None
    assert matches(pattern, x * y) is None


def test_a_condition_looks_at_the_arg() -> None:
    pattern = Pattern(OpCode.REDUCE, when=lambda op: op.arg[0] is OpCode.MAX)
    assert matches(pattern, reduce(x, OpCode.MAX, (0,))) == {}
    assert matches(pattern, reduce(x, OpCode.ADD, (0,))) is None


def test_the_first_rule_that_does_not_decline_wins() -> None:
    table = PatternMatcher(
        [
            ("declines", Pattern(OpCode.ADD), lambda: None),
            ("left", Pattern(OpCode.ADD, (Pattern(name="a"), Pattern())), lambda a: a),
            Rule("never", Pattern(OpCode.ADD), lambda: pytest.fail("asked after a rule that fits")),
        ]
    )
    assert table.rewrite(x + y) is x
    assert table.rewrite(x * y) is None


def test_find_gives_the_rule_and_its_parts_without_running_it() -> None:
    table = PatternMatcher([("sum", Pattern(OpCode.ADD, name="out"), lambda out: pytest.fail("run"))])
    found = table.find(x + y)
    assert found is not None and (found[0].name, found[1]) == ("sum", {"out": x + y})
    assert table.find(x) is None


def test_a_table_passes_extra_arguments_on() -> None:
    table = PatternMatcher([("sum", Pattern(OpCode.ADD, name="out"), lambda grad, out: (grad, out))])
    assert table.rewrite(x + y, grad=x) == (x, x + y)


@pytest.mark.req("G3")
def test_the_right_table_of_a_sum_is_asked_first() -> None:
    base = PatternMatcher(
        [("sum", Pattern(OpCode.ADD), lambda: "base"), ("product", Pattern(OpCode.MUL), lambda: "base")]
    )
    mine = PatternMatcher([("sum", Pattern(OpCode.ADD), lambda: "mine")])
    assert (base + mine).rewrite(x + y) == "mine"
    assert (base + mine).rewrite(x * y) == "base"
    assert [rule.name for rule in base.rules] == ["sum", "product"]


def test_a_rewrite_goes_from_the_sources_to_the_roots_once() -> None:
    halves = PatternMatcher([("to float", Pattern(OpCode.BUFFER, name="b"), lambda b: source(b.arg[0] + "'"))])
    graph = (x + y) * x
    became = graph_rewrite([graph], halves, limit=1)
    assert became[graph] is (source("x'") + source("y'")) * source("x'")


def test_a_rewritten_node_is_tried_again() -> None:
    fewer = PatternMatcher(
        [("less", Pattern(OpCode.CONST, name="c"), lambda c: const(c.arg - 1, i32) if c.arg > 0 else None)]
    )
    assert graph_rewrite([const(5, i32)], fewer)[const(5, i32)] is const(0, i32)


def test_a_table_that_runs_in_circles_stops_at_the_limit() -> None:
    circle = PatternMatcher(
        [
            ("there", Pattern(OpCode.EXP, (Pattern(name="a"),)), lambda a: unary(OpCode.LOG, a)),
            ("back", Pattern(OpCode.LOG, (Pattern(name="a"),)), lambda a: unary(OpCode.EXP, a)),
        ]
    )
    assert graph_rewrite([unary(OpCode.EXP, x)], circle, limit=10)[unary(OpCode.EXP, x)] is unary(OpCode.EXP, x)


def test_shared_parts_are_rewritten_once() -> None:
    calls: list[Op] = []

    def note(out: Op) -> None:
        calls.append(out)

    shared = unary(OpCode.EXP, x)
    graph_rewrite([shared + shared, shared * shared], PatternMatcher([("note", Pattern(OpCode.EXP, name="out"), note)]))
    assert calls == [shared]
