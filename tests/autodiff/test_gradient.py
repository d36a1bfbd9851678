"""Reverse mode: what is collected, how deep, at what cost, and what it says when it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import gradient
from picograd.autodiff.modes import reverse
from picograd.errors import GradientError
from picograd.evaluator import evaluate
from picograd.ir.attention import outputs
from picograd.ir.build import cast, expand, gather, permute, reduce, shrink, unary
from picograd.ir.host import host_call
from picograd.ir.op import Buffer, Op, Shape, const, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.ir.pattern import Pattern, PatternMatcher
from picograd.ir.shape import AttentionArg
from tests.calls import calls

f32, f64 = dtypes.float32, dtypes.float64
ONE = const(1.0, f64)


def scalar(value: float, name: str) -> Op:
    return Op(OpCode.LEAF, f64, (const(value, f64),), name)


def leaf(shape: Shape, name: str) -> Op:
    return Op(OpCode.LEAF, f64, (Op(OpCode.BUFFER, f64, (), (Buffer("CPU", f64, 0), shape)),), name)


def total(x: Op) -> Op:
    return reduce(x, OpCode.ADD, tuple(range(len(x.shape))))


def value(op: Op) -> float:
    return float(evaluate([op], {})[0])


# ---- A4, A8, A9 ----
@pytest.mark.req("A4")
def test_the_textbook_function_and_its_gradient() -> None:
    x1, x2 = scalar(9.0, "x1"), scalar(10.0, "x2")
    sine = unary(OpCode.SIN, x2)
    result = unary(OpCode.EXP, x1) * (sine * sine)
    grads = gradient(result, ONE, [x1, x2])
    assert f"{value(result):.4f} {value(grads[x1]):.4f} {value(grads[x2]):.4f}" == "2398.1804 2398.1804 7397.6720"


@pytest.mark.req("A8")
def test_a_plus_a_has_gradient_two() -> None:
    a = scalar(3.0, "a")
    assert value(gradient(a + a, ONE, [a])[a]) == 2.0


@pytest.mark.req("A8")
def test_gradients_pass_transposition_broadcasting_slices_and_integer_indexing() -> None:
    x = leaf((2, 3), "x")
    index = Op(OpCode.IOTA, dtypes.int64, (), 2)
    row = expand(shrink(permute(x, (1, 0)), ((1, 2), (0, 2))), (3, 2))
    result = total(gather(row * permute(x, (1, 0)), index, 0, 0))
    array = np.arange(6.0).reshape(2, 3)
    (grad,) = evaluate([gradient(result, ONE, [x])[x]], {x.src[0]: array})
    # sum over i < 2, j of x[j, 1] x[j, i]
    expected = np.stack([array[:, 1], array[:, 0] + 2 * array[:, 1], np.zeros(2)], axis=1)
    np.testing.assert_array_equal(grad, expected)


def test_a_factor_that_all_summands_share_is_multiplied_in_behind_their_sum() -> None:
    """So the gradient of a normalisation is computed from sums of sums, and not from sums of those once more."""
    x, weight = leaf((3, 4), "x"), leaf((3, 4), "weight")
    deviation = x - expand(reduce(x, OpCode.ADD, (1,), keepdim=True) * 0.25, (3, 4))
    variance = reduce(deviation * deviation, OpCode.ADD, (1,), keepdim=True)
    scale = expand(unary(OpCode.RECIPROCAL, unary(OpCode.SQRT, variance)), (3, 4))
    level: dict[Op, int] = {}
    for op in toposort([gradient(total(deviation * scale * weight), ONE, [x])[x]]):
        level[op] = max((level[s] for s in op.src), default=0) + (op.code is OpCode.REDUCE)
    assert max(level.values()) == 2


@pytest.mark.req("A9")
def test_the_second_derivative_of_a_cube_is_six_x() -> None:
    for cube in (lambda x: x * x * x, lambda x: Op(OpCode.POW, f64, (x, const(3.0, f64)))):
        for at in (0.0, 2.0, -1.5):
            x = scalar(at, "x")
            first = gradient(cube(x), ONE, [x])[x]
            second = gradient(first, ONE, [x])[x]
            third = gradient(second, ONE, [x])[x]
            assert [value(first), value(second), value(third)] == [3 * at * at, 6 * at, 6.0]


@pytest.mark.req("A9")
def test_a_hessian_vector_product_equals_the_hessian_times_the_vector() -> None:
    x = leaf((4,), "x")
    result = total(unary(OpCode.SIN, x) * x) * total(x * x)
    vector = Op(OpCode.BUFFER, f64, (), (Buffer("CPU", f64, 4), (4,)))
    product = gradient(total(gradient(result, ONE, [x])[x] * vector), ONE, [x])[x]
    a, v = np.array([0.3, -1.0, 2.0, 0.7]), np.array([1.0, 0.5, -2.0, 0.1])
    s, q = np.sum(np.sin(a) * a), np.sum(a * a)
    ds, dds = np.cos(a) * a + np.sin(a), 2 * np.cos(a) - np.sin(a) * a
    hessian = np.diag(dds * q + 2 * s) + np.outer(ds, 2 * a) + np.outer(2 * a, ds)
    np.testing.assert_allclose(evaluate([product], {x.src[0]: a, vector: v})[0], hessian @ v, rtol=1e-12)


# ---- what is collected ----
def test_a_leaf_in_the_middle_collects_and_passes_on() -> None:
    x = scalar(3.0, "x")
    middle = Op(OpCode.LEAF, f64, (x * x,), "middle")
    grads = gradient(middle * middle, ONE, [x, middle])
    assert value(grads[middle]) == 18.0
    assert value(grads[x]) == 108.0


def test_a_leaf_that_is_not_reached_is_missing() -> None:
    x, y = scalar(3.0, "x"), scalar(4.0, "y")
    stopped = Op(OpCode.DETACH, f64, (y,))
    assert set(gradient(x * stopped, ONE, [x, y])) == {x}
    assert gradient(const(1.0, f64), ONE, [x]) == {}


def test_the_root_may_be_the_leaf() -> None:
    x = scalar(3.0, "x")
    assert gradient(x, ONE, [x]) == {x: ONE}


def test_nothing_flows_through_integers() -> None:
    x = scalar(3.0, "x")
    whole = cast(cast(x, dtypes.int64), f64)
    assert value(gradient(whole * x, ONE, [x])[x]) == 3.0
    assert not whole.needs_grad


def test_only_the_part_between_root_and_leaves_is_looked_at() -> None:
    x, y = scalar(3.0, "x"), scalar(4.0, "y")
    no_rule = Op(OpCode.BITCAST, f64, (y,))
    assert value(gradient(x * no_rule, ONE, [x])[x]) == 4.0


def test_below_what_is_known_to_be_constant_nothing_is_looked_at() -> None:
    x, y = scalar(3.0, "x"), scalar(4.0, "y")
    constant = unary(OpCode.EXP, y * y)
    asked: set[Op] = set()
    found = reverse({x * constant: ONE}, [x], chain_rules, {constant}, lambda op: not asked.add(op) and op.needs_grad)
    assert found.keys() == {x} and not asked & {y, y * y}


def test_linear_gradients_cost_no_operation() -> None:
    x, y = leaf((3,), "x"), leaf((3,), "y")
    seed = filled(1, f64, (3,))
    grads = gradient(x + y, seed, [x, y])
    assert grads[x] is seed and grads[y] is seed


# ---- depth and speed ----
@pytest.mark.variants(first=1)
@pytest.mark.req("A7")
def test_a_graph_of_100_000_nodes_needs_no_recursion() -> None:
    x = scalar(1.0, "x")
    result = x
    for _ in range(50_000):
        result = result * x + x
    grads = gradient(result, ONE, [x])
    assert len(toposort([grads[x]])) > 100_000


def test_the_cost_is_linear_in_the_graph() -> None:
    def nodes(depth: int) -> int:
        x = scalar(1.0, "x")
        result = x
        for _ in range(depth):
            result = unary(OpCode.TANH, result) + result  # 2**depth paths
        return len(toposort([gradient(result, ONE, [x])[x]]))

    assert nodes(400) - nodes(300) == nodes(300) - nodes(200)


def test_the_calls_a_node_costs_do_not_grow_with_the_graph() -> None:
    def cost(depth: int) -> int:
        """Python calls that differentiating a graph of 2 * depth nodes takes."""
        x, y = scalar(1.0, "x"), scalar(2.0, "y")
        result = x
        for _ in range(depth):
            result = result * y + x
        return calls(lambda: gradient(result, ONE, [x, y]))

    cost(10)
    assert (cost(400) - cost(200)) / 400 <= 17  # a node
    assert cost(800) - cost(400) <= 1.01 * 2 * (cost(400) - cost(200))


def test_a_result_of_several_through_which_no_gradient_comes_asks_for_none() -> None:
    x = leaf((1, 1, 4, 4), "x")
    averages, logsumexp = outputs(Op(OpCode.ATTENTION, f64, (x, x, x), AttentionArg(0.5)))
    steps = unary(OpCode.FLOOR, averages)
    assert reverse({steps: filled(1.0, f64, steps.shape)}, {x}, chain_rules) == {}
    both = {steps: filled(1.0, f64, steps.shape), logsumexp: filled(1.0, f64, logsumexp.shape)}
    alone = {logsumexp: filled(1.0, f64, logsumexp.shape)}
    assert reverse(both, {x}, chain_rules) == reverse(alone, {x}, chain_rules)


@pytest.mark.parametrize(("shape", "products"), [((3, 3), 4), ((4, 3), 6), ((3, 4), 6)])
def test_singular_vectors_of_a_square_matrix_have_no_gradient_outside_of_them(shape: Shape, products: int) -> None:
    x = leaf(shape, "x")
    out = host_call("svd", f64, (x,), (), None)
    found = toposort([gradient(out, filled(1.0, f64, out.shape), [x])[x]])
    assert sum(op.code is OpCode.MATMUL for op in found) == products


# ---- errors ----
def test_an_op_without_a_row_is_named_with_its_line() -> None:
    x = scalar(3.0, "x")
    strange = Op(OpCode.BITCAST, f64, (x * x,))
    record(strange)
    record(strange)  # a second line that makes the same is not named
    with pytest.raises(GradientError) as error:
        gradient(strange * x, ONE, [x])
    fact, made = error.value.fact.split("\n")
    assert fact == "backward: BITCAST has no chain rule."
    assert made.startswith("  BITCAST was made at test_gradient.py:") and made.endswith("record(strange)")
    assert error.value.hint == (
        ".detach() it if no gradient should flow, or add a row to chain_rules in picograd/autodiff/chain_rules.py."
    )


@pytest.mark.parametrize(("code", "name"), [(OpCode.MUL, "SCATTER MUL"), (None, "SCATTER")])
def test_the_operation_of_a_scatter_is_named(code: OpCode | None, name: str) -> None:
    x = leaf((3,), "x")
    index = Op(OpCode.IOTA, dtypes.int64, (), 2)
    product = Op(OpCode.SCATTER, f64, (x, index, filled(2.0, f64, (2,))), (code, 0, 0))
    with pytest.raises(GradientError, match=f"backward: {name} has no chain rule."):
        gradient(product, filled(1.0, f64, (3,)), [x], PatternMatcher([]))


def test_a_seed_of_another_shape_is_refused() -> None:
    x = leaf((3,), "x")
    with pytest.raises(GradientError, match=r"a gradient of shape \(\) was given for a result of shape \(3,\)"):
        gradient(x, ONE, [x])


def test_a_row_that_gives_another_shape_is_named() -> None:
    x = leaf((3,), "x")
    wrong = PatternMatcher([("my sine", Pattern(OpCode.SIN, name="out"), lambda grad, out: (total(grad),))])
    with pytest.raises(GradientError) as error:
        gradient(unary(OpCode.SIN, x), filled(1, f64, (3,)), [x], chain_rules + wrong)
    assert error.value.fact == (
        "backward: row 'my sine' of chain_rules gives source 0 of SIN, float64 (3,), a gradient float64 ()."
    )


def test_a_user_adds_a_row_as_a_plain_function() -> None:
    rules = chain_rules + PatternMatcher([("straight", Pattern(OpCode.FLOOR, name="out"), lambda grad, out: (grad,))])
    x = scalar(2.5, "x")
    floor = unary(OpCode.FLOOR, x)
    assert gradient(floor, ONE, [x]) == {}
    assert gradient(floor, ONE, [x], rules) == {x: ONE}


def test_a_narrow_maximum_counts_its_ties_in_float32() -> None:
    x = Op(OpCode.LEAF, dtypes.float16, (filled(1.0, dtypes.float16, (3000,)),), "x")
    grads = gradient(reduce(x, OpCode.MAX, (0,)), const(3000.0, dtypes.float16), [x])
    assert evaluate([grads[x]], {})[0].tolist() == [1.0] * 3000
